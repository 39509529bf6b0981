/* SPDX-License-Identifier: MIT */
/* lttng_events.h: LTTng's description of its events in lttng.c; it is read several times. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER mj_bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./lttng_events.h"

#if !defined(LTTNG_EVENTS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define LTTNG_EVENTS_H

#include <lttng/tracepoint.h>

/* clang-format off */
LTTNG_UST_TRACEPOINT_EVENT_CLASS(mj_bench, two_ints,
    LTTNG_UST_TP_ARGS(int, a, int, b),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(int, a, a)
        lttng_ust_field_integer(int, b, b)))

/* One for each session, for an event is recorded by every session that asks for it. */
LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(mj_bench, two_ints, mj_bench, dormant,
    LTTNG_UST_TP_ARGS(int, a, int, b))
LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(mj_bench, two_ints, mj_bench, discard,
    LTTNG_UST_TP_ARGS(int, a, int, b))
LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(mj_bench, two_ints, mj_bench, discard_tid,
    LTTNG_UST_TP_ARGS(int, a, int, b))
LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(mj_bench, two_ints, mj_bench, overwrite,
    LTTNG_UST_TP_ARGS(int, a, int, b))
/* clang-format on */

#endif

#include <lttng/tracepoint-event.h>

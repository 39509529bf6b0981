/* SPDX-License-Identifier: MIT */
/* lttng_event.h: LTTng's description of the event of listen.c; it is read several times. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER BENCH_MARKER
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "lttng_event.h"

#if !defined(LTTNG_EVENT_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define LTTNG_EVENT_H

#include <lttng/tracepoint.h>

/* clang-format off */
#undef EVENT_OF
#define EVENT_OF(provider) LTTNG_UST_TRACEPOINT_EVENT(provider, event, \
    LTTNG_UST_TP_ARGS(int, a, int, b), \
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(int, a, a) lttng_ust_field_integer(int, b, b)))
EVENT_OF(BENCH_MARKER)
/* clang-format on */

#endif

#include <lttng/tracepoint-event.h>

/* SPDX-License-Identifier: MIT */
/* lttng_site.h: LTTng's description of the tracepoints of site.h; it is read several times. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER markerjit_bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "lttng_site.h"

#if !defined(LTTNG_SITE_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define LTTNG_SITE_H

#include <lttng/tracepoint.h>

/* clang-format off */
#define FIELD(name) lttng_ust_field_integer(uint64_t, name, name)
LTTNG_UST_TRACEPOINT_EVENT(markerjit_bench, site_1,
    LTTNG_UST_TP_ARGS(uint64_t, a), LTTNG_UST_TP_FIELDS(FIELD(a)))
LTTNG_UST_TRACEPOINT_EVENT(markerjit_bench, site_2,
    LTTNG_UST_TP_ARGS(uint64_t, a, uint64_t, b), LTTNG_UST_TP_FIELDS(FIELD(a) FIELD(b)))
LTTNG_UST_TRACEPOINT_EVENT(markerjit_bench, site_4,
    LTTNG_UST_TP_ARGS(uint64_t, a, uint64_t, b, uint64_t, c, uint64_t, d),
    LTTNG_UST_TP_FIELDS(FIELD(a) FIELD(b) FIELD(c) FIELD(d)))
LTTNG_UST_TRACEPOINT_EVENT(markerjit_bench, site_8,
    LTTNG_UST_TP_ARGS(uint64_t, a, uint64_t, b, uint64_t, c, uint64_t, d, uint64_t, e, uint64_t, f,
        uint64_t, g, uint64_t, h),
    LTTNG_UST_TP_FIELDS(FIELD(a) FIELD(b) FIELD(c) FIELD(d) FIELD(e) FIELD(f) FIELD(g) FIELD(h)))
/* clang-format on */

#endif

#include <lttng/tracepoint-event.h>

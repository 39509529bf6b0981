/* SPDX-License-Identifier: MIT */
/* lttng.c: the loop of subjects.c around tracepoints of LTTng-UST. */
#define _GNU_SOURCE 1
#include "block.h"

#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng_events.h"

PASS(dormant, lttng_ust_tracepoint(mj_bench, dormant, i, j))
PASS(discard, lttng_ust_tracepoint(mj_bench, discard, i, j))
PASS(discard_tid, lttng_ust_tracepoint(mj_bench, discard_tid, i, j))
PASS(overwrite, lttng_ust_tracepoint(mj_bench, overwrite, i, j))

int main(void) {
    static const struct subject subjects[] = {
        SUBJECT(rdtsc),       SUBJECT(dormant),   SUBJECT(discard),
        SUBJECT(discard_tid), SUBJECT(overwrite), {NULL, NULL},
    };

    return serve_blocks(subjects);
}

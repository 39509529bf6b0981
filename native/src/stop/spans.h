/* SPDX-License-Identifier: MIT */
/* spans.h: edits that a thread may be inside of, and the threads that are. */
#ifndef MARKERJIT_SPANS_H
#define MARKERJIT_SPANS_H

#include "threads.h"

/* An edit of several bytes of code. Its inside is every byte but the first: a thread at the first
   byte has not begun the old instructions and will begin the new ones; one inside would go on in
   the middle of the new bytes. */
struct span {
    uint64_t address;
    uint32_t index; /* of the edit */
    uint32_t size;
};

struct spans {
    struct span *spans; /* in order of address */
    uint32_t count;
    uint64_t reach; /* none has an address inside that is farther behind the first one's */
};

/* Before any thread is stopped. MJ_OK, or MJ_ERRNO without memory. Edits of one byte have no
   inside, so there may be no spans; then nothing needs to be checked. */
int spans_create(const struct mj_edit *edits, uint32_t count, struct spans *spans,
                 struct mj_report *report);
void spans_destroy(struct spans *spans);

/* The span that has this address inside, or NULL. */
const struct span *span_around(const struct spans *spans, uint64_t address);

/*
 * Have no stopped thread go on inside a span, neither by its own instruction pointer nor by one
 * that a signal frame on its stacks will put back. A thread that has a move is moved, which is
 * harmless whatever becomes of the edit. Frames are not changed: a handler may look its caller up,
 * or may have done so. MJ_OK, or where some threads may have been moved: MJ_IN_SPAN, with
 * report->tid and report->index; MJ_STACK_UNKNOWN, with report->tid; MJ_ERRNO; MJ_GONE.
 */
int leave_spans(const struct mj_target *target, const struct stopped *stopped,
                const struct spans *spans, struct mj_report *report);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * spans.c: edits of several bytes of code, in order, so that an instruction pointer is looked up in
 * a few steps while all threads stand: there may be hundreds of threads and thousands of edits.
 */

#include "spans.h"

#include "stacks.h"

#include <errno.h>
#include <stdlib.h>

enum { LARGEST_EDIT = sizeof(((struct mj_edit *)0)->old_bytes) };

static int by_address(const void *left, const void *right) {
    const struct span *a = left, *b = right;

    return (a->address > b->address) - (a->address < b->address);
}

static uint32_t count_spans(const struct mj_edit *edits, uint32_t count) {
    uint32_t spans = 0;

    for (uint32_t i = 0; i < count; i++)
        spans += edits[i].code && edits[i].size > 1;
    return spans;
}

int spans_create(const struct mj_edit *edits, uint32_t count, struct spans *spans,
                 struct mj_report *report) {
    const uint32_t room = count_spans(edits, count);

    *spans = (struct spans){0};
    if (!room)
        return MJ_OK;
    spans->spans = malloc(room * sizeof *spans->spans);
    if (!spans->spans) {
        report->error = ENOMEM;
        return MJ_ERRNO;
    }
    for (uint32_t i = 0; i < count; i++)
        if (edits[i].code && edits[i].size > 1)
            spans->spans[spans->count++] =
                (struct span){.address = edits[i].address, .index = i, .size = edits[i].size};
    qsort(spans->spans, spans->count, sizeof *spans->spans, by_address);
    spans->reach = spans->spans[room - 1].address - spans->spans[0].address + LARGEST_EDIT;
    return MJ_OK;
}

void spans_destroy(struct spans *spans) {
    free(spans->spans);
    *spans = (struct spans){0};
}

/* How many spans begin below this address. */
static uint32_t count_below(const struct spans *spans, uint64_t address) {
    uint32_t low = 0, high = spans->count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (spans->spans[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct span *span_around(const struct spans *spans, uint64_t address) {
    if (!spans->count || address - spans->spans[0].address > spans->reach)
        return NULL; /* most words of a stack */
    /* Steps may write to one place more than once, so spans may overlap. */
    for (uint32_t i = count_below(spans, address); i--;) {
        const struct span *span = &spans->spans[i];

        if (address - span->address >= LARGEST_EDIT)
            return NULL;
        if (address - span->address < span->size)
            return span;
    }
    return NULL;
}

/* An interrupted system call may be begun again, at the instruction before `rip`. */
static const struct span *span_of(const struct spans *spans, const struct user_regs_struct *regs) {
    const struct span *span = span_around(spans, regs->rip);

    return span || !begins_call_again(regs) ? span : span_around(spans, regs->rip - SYSCALL_SIZE);
}

/* Where a thread may go on instead; 0 where it has to stay. One that begins its call again begins
   it at another place, and the handler of a signal that it stopped for may ask where it was. */
static uint64_t copy_for(const struct mj_target *target, const struct stopped_thread *thread) {
    if (begins_call_again(&thread->regs) || !(thread->plain || thread->listens))
        return 0;
    for (uint64_t i = 0; i < target->move_count; i++)
        if (target->moves[i].inside == thread->regs.rip)
            return target->moves[i].copy;
    return 0;
}

static int move(struct stopped_thread *thread, uint64_t copy, struct mj_report *report) {
    struct user_regs_struct regs = thread->regs;

    regs.rip = copy;
    if (ptrace(PTRACE_SETREGS, thread->tid, 0, &regs)) {
        report->error = errno;
        report->tid = thread->tid;
        return errno == ESRCH ? MJ_GONE : MJ_ERRNO;
    }
    thread->regs = regs;
    return MJ_OK;
}

int leave_spans(const struct mj_target *target, const struct stopped *stopped,
                const struct spans *spans, struct mj_report *report) {
    int status;

    if (!spans->count)
        return MJ_OK;
    for (uint32_t t = 0; t < stopped->count; t++) {
        const struct stopped_thread *thread = &stopped->threads[t];
        const struct span *span = span_of(spans, &thread->regs);

        if (span && !copy_for(target, thread)) {
            report->tid = thread->tid;
            report->index = span->index;
            return MJ_IN_SPAN;
        }
    }
    status = check_stacks(target, stopped, spans, report);
    for (uint32_t t = 0; t < stopped->count && status == MJ_OK; t++) {
        struct stopped_thread *thread = &stopped->threads[t];

        if (span_of(spans, &thread->regs))
            status = move(thread, copy_for(target, thread), report);
    }
    return status;
}

/* SPDX-License-Identifier: MIT */
/* calls.c: lists of system calls for a borrowed thread, and the threads that there are. */

#define _GNU_SOURCE
#include "borrow.h"

static uint64_t argument(const struct mj_call *calls, uint32_t index, int i) {
    const int8_t ref = calls[index].refs[i];
    const int refers = ref >= 0 && (uint32_t)ref < index;

    return calls[index].args[i] + (refers ? (uint64_t)calls[ref].result : 0);
}

static int make_calls(struct borrowed *borrowed, struct mj_call *calls, uint32_t count) {
    int status = MJ_OK;

    for (uint32_t i = 0; i < count && status == MJ_OK; i++) {
        uint64_t args[6];

        for (int a = 0; a < 6; a++)
            args[a] = argument(calls, i, a);
        status = borrow_call(borrowed, calls[i].number, args, &calls[i].result);
        if (status == MJ_OK && calls[i].result < 0 && calls[i].result > -4096) {
            borrowed->report->index = i;
            borrowed->report->error = (int)-calls[i].result;
            status = MJ_CALL_FAILED;
        }
    }
    return status;
}

struct borrowing {
    const struct mj_target *target;
    const struct mj_thread *threads;
    uint32_t thread_count;
    struct mj_call *calls;
    uint32_t count;
    struct mj_report *report;
};

static int call_and_give_back(const struct borrowing *all, struct borrowed *borrowed) {
    const int status = make_calls(borrowed, all->calls, all->count);
    const int ended = borrow_end(borrowed);

    /* What calls were made is known, unless the process is gone. */
    return status == MJ_OK && ended == MJ_GONE ? ended : status;
}

static int borrow_and_call(void *arguments) {
    const struct borrowing *all = arguments;
    struct borrowed borrowed;
    uint32_t busy = 0;
    int status = MJ_NO_THREAD;

    for (uint32_t i = 0; i < all->thread_count && may_try_another(status, &busy); i++)
        status = borrow_begin(all->target, all->threads[i].tid, &borrowed, all->report);
    return status == MJ_OK ? call_and_give_back(all, &borrowed) : status;
}

static int borrow_alone_and_call(void *arguments) {
    const struct borrowing *all = arguments;
    struct borrowed borrowed;
    struct stopped others;
    int status = stop_all(all->target, &others, all->report);

    if (status != MJ_OK)
        return status;
    status = borrow_one_of(all->target, &others, &borrowed, all->report);
    if (status == MJ_OK)
        status = call_and_give_back(all, &borrowed);
    resume_all(&others, all->report);
    return status;
}

int mj_borrow(const struct mj_target *target, const struct mj_thread *threads,
              uint32_t thread_count, struct mj_call *calls, uint32_t count,
              struct mj_report *report) {
    struct borrowing all = {target, threads, thread_count, calls, count, report};

    return in_own_thread(target->alone ? borrow_alone_and_call : borrow_and_call, &all, report);
}

struct listing {
    const struct mj_target *target;
    struct mj_thread *threads;
    uint32_t *count;
    struct mj_report *report;
};

static int list_threads(void *arguments) {
    const struct listing *all = arguments;
    struct stopped stopped;
    const int status = stop_all(all->target, &stopped, all->report);

    if (status != MJ_OK)
        return status;
    if (*all->count > stopped.count)
        *all->count = stopped.count;
    for (uint32_t i = 0; i < *all->count; i++)
        all->threads[i] = (struct mj_thread){.tid = stopped.threads[i].tid,
                                             .fs_base = stopped.threads[i].regs.fs_base,
                                             .rseq = usual_rseq_of(stopped.threads[i].tid)};
    resume_all(&stopped, all->report);
    return MJ_OK;
}

int mj_threads(const struct mj_target *target, struct mj_thread *threads, uint32_t *count,
               struct mj_report *report) {
    struct listing all = {target, threads, count, report};

    return in_own_thread(list_threads, &all, report);
}

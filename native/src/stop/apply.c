/* SPDX-License-Identifier: MIT */
/*
 * apply.c: a transaction under each kind of quiescence.
 *
 * stop        all threads stand from before the first comparison until the last byte is read back.
 *             Each has left user code by an interrupt or a system call and goes back by a
 *             serialising return, so none can run old bytes. Only words that no thread looks at yet
 *             are written before that: to write so many takes longer than all of the code
 * membarrier  of another process: one of its threads is borrowed and makes the fences, since
 *             membarrier(2) acts on its caller's process; the others run. Of our own: we make them
 * signals     of our own process: fence.c
 * none        nothing but the order of the steps
 */

#define _GNU_SOURCE
#include "borrow.h"
#include "mapped.h"
#include "race.h"
#include "spans.h"
#include "transaction.h"
#include "write.h"

#include "../fence/fence.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* How often a thread inside a span is looked for, and how long it may run before the second time.
   The pause doubles each time: a third of a second in all. */
enum { TRIES_IN_SPAN = 16, FIRST_PAUSE_NS = 10000 };

struct application {
    const struct mj_target *target;
    int maps; /* of maps_open: opened before any thread stands */
    const struct mj_edit *edits;
    uint32_t count;
    struct mj_report *report;
};

static struct transaction transaction_of(const struct application *all) {
    return (struct transaction){
        .target = all->target, .edits = all->edits, .count = all->count, .report = all->report};
}

/* ---- stop ------------------------------------------------------------------------------------ */

#define LIBC_SIGNAL (1ul << 31) /* 32: libc lets no program block it */

/* Asked of ptrace, since /proc shows the mask for the length of a call: one of ppoll or sigwait may
   let in what is blocked before and after. A mask with libc's own signal is libc's own, held while
   a thread is created or ends, and no code of the program runs under it. */
static int check_sigtrap(const struct stopped *stopped, struct mj_report *report) {
    for (uint32_t t = 0; t < stopped->count; t++) {
        uint64_t mask;

        if (ptrace(PTRACE_GETSIGMASK, stopped->threads[t].tid, sizeof mask, &mask))
            continue;
        if (mask & 1ul << (SIGTRAP - 1) && !(mask & LIBC_SIGNAL)) {
            report->tid = stopped->threads[t].tid;
            return MJ_SIGTRAP_BLOCKED;
        }
    }
    return MJ_OK;
}

/* Whether SIGTRAP has our handler still: no file says it, so one of those that stand asks. In the
   stop that is needed anyway: to stop one more time for it takes as long as all the rest. */
static int check_trap(const struct mj_target *target, struct stopped *stopped,
                      struct mj_report *report) {
    const uint64_t args[6] = {SIGTRAP, 0, target->seen_trap, sizeof(uint64_t)};
    struct borrowed borrowed;
    uint64_t handler; /* the first word of the answer */
    int64_t result = 0;

    if (!target->trap)
        return MJ_OK;
    int status = borrow_standing(target, stopped, &borrowed, report);
    if (status != MJ_OK)
        return status;
    status = borrow_call(&borrowed, SYS_rt_sigaction, args, &result);
    const int back = stand_again(&borrowed, stopped);

    if (status == MJ_OK)
        status = back;
    if (status == MJ_OK &&
        (result || !read_bytes(target, target->seen_trap, &handler, 8) || handler != target->trap))
        status = MJ_OTHER_TRAP;
    return status;
}

static int apply_stopped_once(const struct application *all, struct steps_of_runs *runs,
                              const struct spans *spans) {
    struct transaction transaction = transaction_of(all);
    struct stopped stopped;
    int status = stop_all(all->target, &stopped, all->report);

    if (status != MJ_OK)
        return status;
    transaction.runs = runs;
    transaction.standing = 1;
    status = still_mapped(all->target, all->maps, all->report);
    if (status == MJ_OK && all->target->needs_sigtrap)
        status = check_sigtrap(&stopped, all->report);
    if (status == MJ_OK)
        status = check_trap(all->target, &stopped, all->report);
    if (status == MJ_OK)
        status = leave_spans(all->target, &stopped, spans, all->report);
    if (status == MJ_OK)
        status = transact(&transaction);
    MJ_RACE("done");
    resume_all(&stopped, all->report);
    return status;
}

/* A thread that runs through a span leaves it within a moment; a signal handler that was called
   inside a span may take long. */
static int apply_when_outside(const struct application *all, struct steps_of_runs *runs,
                              const struct spans *spans) {
    long pause_ns = FIRST_PAUSE_NS;
    int status = apply_stopped_once(all, runs, spans);

    for (int i = 1; i < TRIES_IN_SPAN && status == MJ_IN_SPAN; i++, pause_ns *= 2) {
        MJ_RACE("in span");
        nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
        status = apply_stopped_once(all, runs, spans);
    }
    return status;
}

/* Compare in advance, so that no thread is stopped for a change that is refused. */
static int compare_runs(const struct application *all, struct steps_of_runs *runs) {
    int status = MJ_OK;

    for (uint32_t i = 0; i < runs->count && status == MJ_OK; i++) {
        status = runs_compare(all->target, &runs->steps[i], all->report);
        if (status != MJ_OK)
            all->report->index += (uint32_t)(runs->steps[i].edits - all->edits);
    }
    return status;
}

/* The whole steps, from the first one on, whose edits are all to be written early; 0 where nothing
   else is to be written. */
static uint32_t count_early(const struct application *all) {
    uint32_t whole = 0;

    for (uint32_t i = 0; i < all->count; i++) {
        if (i && all->edits[i].step != all->edits[i - 1].step)
            whole = i;
        if (!all->edits[i].early)
            return whole;
    }
    return 0;
}

/* Write those, then stop the threads for the others. */
static int apply_in_two(const struct application *early, const struct application *rest,
                        struct steps_of_runs *runs, const struct spans *spans) {
    const struct transaction before = transaction_of(early);
    int status = transact(&before);

    if (status != MJ_OK)
        return status;
    MJ_RACE("early");
    status = apply_when_outside(rest, runs, spans);
    if (status == MJ_OK || status == MJ_GONE)
        return status;
    rest->report->index += early->count;
    return take_back(&before, early->count, status);
}

static int apply_stopped(void *arguments) {
    const struct application *all = arguments;
    struct application early = *all, rest = *all;
    struct spans spans;

    early.count = count_early(all);
    rest.edits += early.count;
    rest.count -= early.count;
    int status = spans_create(rest.edits, rest.count, &spans, rest.report);

    if (status != MJ_OK)
        return status;
    struct steps_of_runs runs = steps_of_runs_create(rest.edits, rest.count);

    rest.maps = maps_open(rest.target->pid);
    status = still_mapped(rest.target, rest.maps, rest.report);
    if (status == MJ_OK)
        status = compare_runs(&rest, &runs);
    if (status == MJ_OK) { /* that was a first look; the look while no thread runs decides */
        if (!rest.target->is_private)
            privatise_pages(rest.target, rest.edits, rest.count);
        status = apply_in_two(&early, &rest, &runs, &spans);
    } else {
        rest.report->index += early.count;
    }
    if (rest.maps >= 0)
        close(rest.maps);
    steps_of_runs_destroy(&runs);
    spans_destroy(&spans);
    return status;
}

/* While the others run the answer can only be a moment old. */
static int mapped_now(const struct mj_target *target, struct mj_report *report) {
    const int maps = target->mapped_size ? maps_open(target->pid) : -1;
    const int status = still_mapped(target, maps, report);

    if (maps >= 0)
        close(maps);
    return status;
}

/* ---- membarrier in another process ----------------------------------------------------------- */

static int fence_by_borrowed(void *argument) {
    static const uint64_t fence[6] = {MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE};
    int64_t result;

    if (borrow_call(argument, SYS_membarrier, fence, &result) != MJ_OK)
        return -ESRCH;
    return (int)result;
}

/* Once in the life of a process it has to say that it will want this, before anything is written.
   It may be said again. */
static int register_borrowed(struct borrowed *borrowed) {
    static const uint64_t wanted[6] = {MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE};
    int64_t result;

    if (borrowed->target->is_registered)
        return MJ_OK;
    const int status = borrow_call(borrowed, SYS_membarrier, wanted, &result);

    if (status != MJ_OK || !result)
        return status;
    borrowed->report->error = (int)-result;
    return MJ_NOT_SYNCED;
}

static int apply_fenced(void *arguments) {
    const struct application *all = arguments;
    struct transaction transaction = transaction_of(all);
    struct borrowed borrowed;
    int status = borrow_any(all->target, &borrowed, all->report);

    if (status != MJ_OK)
        return status;
    transaction.sync = fence_by_borrowed;
    transaction.argument = &borrowed;
    status = register_borrowed(&borrowed);
    if (status == MJ_OK)
        status = mapped_now(all->target, all->report);
    if (status == MJ_OK)
        status = transact(&transaction);
    borrow_end(&borrowed); /* whatever becomes of the thread, the edits are as `status` says */
    return status;
}

/* ---- our own process ------------------------------------------------------------------------- */

static int fence_own(void *argument) {
    (void)argument;
    return mj_fence_membarrier();
}

static int signal_own(void *argument) {
    const struct application *all = argument;

    return mj_fence_signals(&all->report->tid);
}

static int apply_own(struct application *all, int quiescence) {
    struct transaction transaction = transaction_of(all);

    transaction.sync = quiescence == MJ_MEMBARRIER ? fence_own
                       : quiescence == MJ_SIGNALS  ? signal_own
                                                   : NULL;
    transaction.argument = all;
    return transact(&transaction);
}

/* A store would go to our own memory. */
static int has_stores(const struct application *all) {
    for (uint32_t i = 0; i < all->count; i++)
        if (all->edits[i].store)
            return 1;
    return 0;
}

int mj_apply(const struct mj_target *target, int quiescence, const struct mj_edit *edits,
             uint32_t count, struct mj_report *report) {
    struct application all = {target, -1, edits, count, report};
    const int own = target->pid == getpid();

    switch (!own && has_stores(&all) ? 0 : quiescence) {
    case MJ_STOP:
        if (!own)
            return in_own_thread(target->pid, apply_stopped, &all, report);
        break;
    case MJ_MEMBARRIER:
        return own ? apply_own(&all, quiescence)
                   : in_own_thread(target->pid, apply_fenced, &all, report);
    case MJ_SIGNALS:
        if (own)
            return apply_own(&all, quiescence);
        break;
    case MJ_NONE: { /* nothing in it needs the process to be ours */
        const int status = mapped_now(target, report);

        return status == MJ_OK ? apply_own(&all, quiescence) : status;
    }
    }
    report->error = EINVAL;
    return MJ_ERRNO;
}

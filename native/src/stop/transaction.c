/* SPDX-License-Identifier: MIT */
/*
 * transaction.c: all edits or none.
 *
 *   1  compare all, but those in places that an earlier step writes: nothing is written unless
 *      every edit finds the bytes that it expects. A step of runs was compared before, while
 *      threads ran, and each run of it is compared once more when its turn comes (runs.c)
 *   2  for each step: compare those others,
 *   3  write,
 *   4  read back,
 *   5  synchronise the cores, if it was code
 *   6  if any of these fails: put the old bytes back, the last step first, and synchronise after
 *      each as on the way there. Where that fails too, the bytes of an earlier step stay: a
 *      breakpoint without its tail does no harm, a tail without its breakpoint would
 */

#include "transaction.h"

#include "race.h"
#include "write.h"

/* A step: edits [first, end). */
struct step {
    uint32_t first, end;
    int code;
};

static struct runs *runs_at(const struct transaction *all, uint32_t first) {
    return runs_from(all->runs, &all->edits[first]);
}

static struct step step_at(const struct transaction *all, uint32_t first) {
    struct step step = {first, first, 0};
    const struct runs *runs = runs_at(all, first);

    if (runs) /* a step of its own: there may be a hundred thousand edits */
        return (struct step){first, first + runs->edit_count, 1};
    while (step.end < all->count && all->edits[step.end].step == all->edits[first].step)
        step.code |= all->edits[step.end++].code;
    return step;
}

static struct step step_before(const struct transaction *all, uint32_t end) {
    uint32_t first = end - 1;

    while (first && all->edits[first - 1].step == all->edits[end - 1].step)
        first--;
    return step_at(all, first);
}

/* The runs that these edits are: all of them, and no other; or NULL. */
static struct runs *runs_of(const struct transaction *all, struct step step) {
    struct runs *runs = runs_at(all, step.first);

    return runs && step.end - step.first == runs->edit_count ? runs : NULL;
}

/* Compare edits [first, end) with what they expect. */
static int compare(const struct transaction *all, uint32_t first, uint32_t end) {
    const int status =
        compare_edits(all->target, &all->edits[first], end - first, OLD_BYTES, all->report);

    if (status != MJ_OK)
        all->report->index += first;
    return status;
}

/* The edits behind the first that are to be compared with it: all have `again` set, or none has. */
static uint32_t end_of_comparison(const struct transaction *all, uint32_t first, uint32_t end) {
    uint32_t stop = first + 1;

    while (stop < end && all->edits[stop].again == all->edits[first].again && !runs_at(all, stop))
        stop++;
    return stop;
}

/* Those of [first, end) that have `again` set, or those that have not; but no runs. */
static int compare_some(const struct transaction *all, uint32_t first, uint32_t end, int again) {
    int status = MJ_OK;

    for (uint32_t stop; first < end && status == MJ_OK; first = stop) {
        const struct runs *runs = runs_at(all, first);

        if (runs) {
            stop = first + runs->edit_count;
            continue;
        }
        stop = end_of_comparison(all, first, end);
        if (!all->edits[first].again == !again)
            status = compare(all, first, stop);
    }
    return status;
}

static int synchronise(const struct transaction *all, struct step step) {
    if (!step.code || !all->sync)
        return MJ_OK;
    MJ_RACE("sync");
    const int error = all->sync(all->argument);

    MJ_RACE("synced");
    if (!error)
        return MJ_OK;
    all->report->error = -error;
    return MJ_NOT_SYNCED;
}

static int write_step(const struct transaction *all, struct step step, enum bytes which,
                      uint32_t *done) {
    struct runs *runs = which == NEW_BYTES ? runs_of(all, step) : NULL;
    const int status =
        runs ? runs_write(all->target, runs, done, all->report)
             : write_edits(all->target, &all->edits[step.first], step.end - step.first, which,
                           all->standing, done, all->report);

    if (status != MJ_OK)
        all->report->index += step.first;
    return status;
}

/* 2 to 5; *done says how many edits of the step were written. */
static int do_step(const struct transaction *all, struct step step, uint32_t *done) {
    int status = compare_some(all, step.first, step.end, 1); /* 2 */

    *done = 0;
    if (status != MJ_OK)
        return status;
    status = write_step(all, step, NEW_BYTES, done); /* 3 */
    all->report->written += *done;
    if (status != MJ_OK)
        return status;
    if (!runs_of(all, step)) { /* those are read back as they are written */
        MJ_RACE("read back");
        status = compare_edits(all->target, &all->edits[step.first], step.end - step.first,
                               NEW_BYTES, all->report); /* 4 */
        if (status != MJ_OK)
            all->report->index += step.first;
        if (status == MJ_UNEXPECTED)
            status = MJ_NOT_VERIFIED;
    }
    return status == MJ_OK ? synchronise(all, step) : status; /* 5 */
}

static int has_code(const struct transaction *all, uint32_t count) {
    while (count--)
        if (all->edits[count].code)
            return 1;
    return 0;
}

/* Put back as much of the step as possible. */
static int undo_step(const struct transaction *all, struct step step) {
    int status = MJ_OK;

    while (step.first < step.end) {
        uint32_t done;
        const int one = write_step(all, step, OLD_BYTES, &done);

        if (one == MJ_OK || one == MJ_GONE)
            return status == MJ_OK ? one : status;
        status = MJ_NOT_UNDONE;
        step.first = all->report->index + 1; /* write_step has made it one of all edits */
    }
    return status;
}

/* 6: the first `written` edits were written, the last of them perhaps in part. */
int take_back(const struct transaction *all, uint32_t written, int status) {
    const struct mj_report why = *all->report;

    while (written) {
        struct step step = step_before(all, written);

        step.end = written;
        const int undone = undo_step(all, step);

        if (undone != MJ_OK)
            return undone;
        /* The bytes are back; only what an earlier step put there must wait for the cores. */
        if (synchronise(all, step) != MJ_OK && has_code(all, step.first))
            return MJ_NOT_UNDONE;
        written = step.first;
    }
    *all->report = why;
    return status;
}

int transact(const struct transaction *all) {
    int status = compare_some(all, 0, all->count, 0); /* 1 */
    uint32_t first = 0, done = 0;

    for (; first < all->count && status == MJ_OK;) {
        const struct step step = step_at(all, first);

        status = do_step(all, step, &done);
        if (status == MJ_OK)
            first = step.end;
    }
    if (status == MJ_OK || status == MJ_GONE)
        return status;
    return take_back(all, first + (first < all->count ? done : 0), status);
}

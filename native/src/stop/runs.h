/* SPDX-License-Identifier: MIT */
/* runs.h: a step of many edits of code, prepared to be compared and written by runs. */
#ifndef MARKERJIT_RUNS_H
#define MARKERJIT_RUNS_H

#include "stop.h"

struct run;
struct place;

struct runs {
    struct run *runs; /* NULL: there are none */
    uint32_t count;
    struct place *places;
    uint8_t
        *image; /* a run, as it was read and then as it is written; `found`, as it is read back */
    uint8_t *found;
    int has_uprobe_calls; /* there may be calls that the kernel put in the place of no-ops */
    struct place *own;    /* bytes that look like a uprobe's, and are the program's own */
    uint32_t own_count, own_room;
    const struct mj_edit *edits;
    uint32_t edit_count;
};

/* Before anybody stands still. Without memory, or for few edits, there are none. */
struct runs runs_create(const struct mj_edit *edits, uint32_t count);
void runs_destroy(struct runs *runs);

enum { MOST_STEPS_OF_RUNS = 4 }; /* holes are one, and the jumps to them another */

/* The steps of a transaction that are written by runs, in its order: nothing but code, of which no
   byte is one that an earlier step writes. */
struct steps_of_runs {
    struct runs steps[MOST_STEPS_OF_RUNS];
    uint32_t count;
};

struct steps_of_runs steps_of_runs_create(const struct mj_edit *edits, uint32_t count);
void steps_of_runs_destroy(struct steps_of_runs *steps);

/* Those that begin with this edit, or NULL. */
struct runs *runs_from(struct steps_of_runs *steps, const struct mj_edit *first);

/* Does every place hold its old byte? MJ_OK, MJ_UNEXPECTED, MJ_ERRNO, MJ_GONE; report->index counts
   from runs->edits. Threads may run. Notes what of the gaps is the program's own: without that
   runs_write takes more pieces. */
int runs_compare(const struct mj_target *target, struct runs *runs, struct mj_report *report);

/* Compare each run once more, write the new bytes with what stands between, and read it back. *done
   says how many edits were written, the last run of them perhaps in part. Statuses as runs_compare;
   also MJ_NOT_VERIFIED, and MJ_DISTURBED when another tool changed the bytes between edits. */
int runs_write(const struct mj_target *target, struct runs *runs, uint32_t *done,
               struct mj_report *report);

#endif

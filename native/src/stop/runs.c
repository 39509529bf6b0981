/* SPDX-License-Identifier: MIT */
/*
 * runs.c: a step of many edits of code, prepared to be compared and written by runs.
 *
 * A hundred thousand edits are five megabytes, and threads stand still while they are made. So what
 * is needed of them is made small before: the runs, and eight bytes for each byte that changes.
 * Then a run is read, changed in our cache, written and read back while it is hot.
 *
 * Only for the time in which nobody runs, since it writes what stands between the edits, too.
 */

#include "runs.h"

#include "race.h"
#include "write.h"

#include <stdlib.h>
#include <string.h>

enum { FEWEST = 4 }; /* of fewer, reading what stands between costs more than it saves */

struct run {
    uint64_t address;
    uint32_t size;
    uint32_t first_place, places;
    uint32_t end; /* the edit behind its last one */
};

struct place {
    uint32_t at; /* from the start of its run */
    uint8_t old_byte, new_byte;
};

static uint32_t count_bytes(const struct mj_edit *edits, uint32_t count) {
    uint32_t bytes = 0;

    for (uint32_t i = 0; i < count; i++)
        bytes += edits[i].size;
    return bytes;
}

static uint32_t add_places(struct place *places, const struct mj_edit *edit, uint64_t start) {
    for (uint32_t i = 0; i < edit->size; i++)
        places[i] = (struct place){.at = (uint32_t)(edit->address - start) + i,
                                   .old_byte = edit->old_bytes[i],
                                   .new_byte = edit->new_bytes[i]};
    return edit->size;
}

struct runs runs_create(const struct mj_edit *edits, uint32_t count) {
    struct runs runs = {.edits = edits, .edit_count = count};
    uint32_t places = 0;

    if (count < FEWEST)
        return runs;
    runs.runs = malloc(count * sizeof *runs.runs);
    runs.places = malloc(count_bytes(edits, count) * sizeof *runs.places);
    if (!runs.runs || !runs.places) {
        runs_destroy(&runs);
        return runs;
    }
    for (uint32_t i = 0; i < count;) {
        struct run *run = &runs.runs[runs.count++];
        size_t size;
        const uint32_t end = i + run_of(&edits[i], count - i, &size);

        *run = (struct run){
            .address = edits[i].address, .size = (uint32_t)size, .first_place = places, .end = end};
        for (; i < end; i++)
            places += add_places(&runs.places[places], &edits[i], run->address);
        run->places = places - run->first_place;
    }
    return runs;
}

void runs_destroy(struct runs *runs) {
    free(runs->runs);
    free(runs->places);
    runs->runs = NULL;
    runs->places = NULL;
    runs->count = 0;
}

static const struct place *places_of(const struct runs *runs, const struct run *run) {
    return &runs->places[run->first_place];
}

static uint32_t first_edit(const struct runs *runs, const struct run *run) {
    return run == runs->runs ? 0 : run[-1].end;
}

/* The edit of a run that has this place. */
static uint32_t edit_at(const struct runs *runs, const struct run *run, uint32_t at) {
    uint32_t i = first_edit(runs, run);

    while (i + 1 < run->end && runs->edits[i].address + runs->edits[i].size <= run->address + at)
        i++;
    return i;
}

static int differs(const struct runs *runs, const struct run *run, const uint8_t *found,
                   uint32_t at, int status, struct mj_report *report) {
    report->index = edit_at(runs, run, at);
    const struct mj_edit *edit = &runs->edits[report->index];

    memcpy(report->found, found + (edit->address - run->address), edit->size);
    return status;
}

static int compare_run(const struct mj_target *target, const struct runs *runs,
                       const struct run *run, struct mj_report *report) {
    const struct place *places = places_of(runs, run);
    uint8_t found[RUN_BYTES];

    if (!read_bytes(target, run->address, found, run->size))
        return fault(report, first_edit(runs, run));
    for (uint32_t i = 0; i < run->places; i++)
        if (found[places[i].at] != places[i].old_byte)
            return differs(runs, run, found, places[i].at, MJ_UNEXPECTED, report);
    return MJ_OK;
}

int runs_compare(const struct mj_target *target, const struct runs *runs,
                 struct mj_report *report) {
    int status = MJ_OK;

    for (uint32_t i = 0; i < runs->count && status == MJ_OK; i++)
        status = compare_run(target, runs, &runs->runs[i], report);
    return status;
}

/* How far a write that ended early got, in edits. */
static uint32_t edits_within(const struct runs *runs, const struct run *run, size_t written) {
    uint32_t i = first_edit(runs, run);

    while (i < run->end && runs->edits[i].address < run->address + written)
        i++;
    return i;
}

static int write_run(const struct mj_target *target, const struct runs *runs, const struct run *run,
                     uint32_t *done, struct mj_report *report) {
    const struct place *places = places_of(runs, run);
    uint8_t wanted[RUN_BYTES], found[RUN_BYTES];

    if (!read_bytes(target, run->address, wanted, run->size))
        return fault(report, first_edit(runs, run));
    for (uint32_t i = 0; i < run->places; i++)
        wanted[places[i].at] = places[i].new_byte;
    const size_t written = write_bytes(target, run->address, wanted, run->size);

    *done = edits_within(runs, run, written);
    if (written != run->size)
        return fault(report, edit_at(runs, run, (uint32_t)written));
    MJ_RACE("read back");
    if (!read_bytes(target, run->address, found, run->size))
        return fault(report, first_edit(runs, run));
    if (!memcmp(wanted, found, run->size))
        return MJ_OK;
    uint32_t at = 0;

    while (wanted[at] == found[at])
        at++;
    return differs(runs, run, found, at, MJ_NOT_VERIFIED, report);
}

int runs_write(const struct mj_target *target, const struct runs *runs, uint32_t *done,
               struct mj_report *report) {
    int status = MJ_OK;

    *done = 0;
    for (uint32_t i = 0; i < runs->count && status == MJ_OK; i++)
        status = write_run(target, runs, &runs->runs[i], done, report);
    return status;
}

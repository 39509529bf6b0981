/* SPDX-License-Identifier: MIT */
/*
 * runs.c: a step of many edits of code, prepared to be compared and written by runs.
 *
 * A hundred thousand edits take five megabytes, and threads are stopped while they are written. So
 * they are condensed in advance: to the runs, and eight bytes for each byte that changes. They are
 * compared in advance, too, so that no thread is stopped for a switch that is refused. Then a run
 * is read, compared, changed in our cache, written and read back while it is hot, all runs in the
 * same two buffers. Written one by one, so many edits take thirty times as long.
 *
 * A run is written with its gaps, the bytes between the edits. No thread of the target changes them
 * meanwhile, since all stand, but another process may: the kernel puts uprobes into the target and
 * takes them out. Nothing makes a read and a write of ours one step for it. Therefore:
 *
 *   1  a gap that may hold what a uprobe put there is not written. If that has gone since we read
 *      it, the next thread there would die of the int3 that we put back. So would a fork's child of
 *      a call, which Linux 6.18 puts in the place of a 5-byte no-op: it leads to a mapping that a
 *      fork does not copy (arch/x86/kernel/uprobes.c).
 *      Most such bytes are parts of the program's own instructions, and each of them would cut a
 *      run in two. The mapped file tells: the kernel puts no uprobe where the file has an int3
 *      (prepare_uprobe in kernel/events/uprobes.c), and no call but in the place of a no-op. So a
 *      byte that is the file's is the program's own. The files are read before the stop; where one
 *      cannot be read, the run is cut
 *   2  a gap that has changed between the read and the read back ends the transaction, which is
 *      rolled back: another tool is at work there
 *   3  there remains the time between the read and the write of one run. A uprobe that is put
 *      into a gap just then is lost: it counts nothing, and does no harm
 */

#include "runs.h"

#include "file.h"
#include "mapped.h"
#include "race.h"
#include "write.h"

#include <stdlib.h>
#include <string.h>

enum { FEWEST = 4 }; /* of fewer, reading what stands between costs more than it saves */

enum { INT3 = 0xcc, CALL = 0xe8 };

enum { FIRST_OWN = 1024 };

#define UPROBE_CALLS "[uprobes-trampoline]"

struct run {
    uint64_t address;
    uint32_t size;
    uint32_t first_place, places;
    uint32_t end; /* the edit behind its last one */
    uint32_t first_own, own_count;
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

/* Touched here, so that no page of them is a new one while threads stand. */
static uint8_t *buffers_create(void) {
    uint8_t *buffers = malloc(2 * RUN_BYTES);

    if (buffers)
        memset(buffers, INT3, 2 * RUN_BYTES);
    return buffers;
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
    runs.image = buffers_create();
    if (!runs.image)
        runs_destroy(&runs);
    else
        runs.found = runs.image + RUN_BYTES;
    return runs;
}

void runs_destroy(struct runs *runs) {
    free(runs->runs);
    free(runs->places);
    free(runs->own);
    free(runs->image);
    runs->own = NULL;
    runs->own_count = runs->own_room = 0;
    runs->runs = NULL;
    runs->places = NULL;
    runs->image = runs->found = NULL;
    runs->count = 0;
}

/* The edits of the step of the first one. *whole says whether all of them may be written by runs.
 */
static uint32_t count_step(const struct mj_edit *edits, uint32_t count, int *whole) {
    uint32_t n = 0;

    *whole = 1;
    for (; n < count && edits[n].step == edits[0].step; n++)
        *whole &= edits[n].code && !edits[n].again && !edits[n].store;
    return n;
}

struct steps_of_runs steps_of_runs_create(const struct mj_edit *edits, uint32_t count) {
    struct steps_of_runs steps = {.count = 0};

    for (uint32_t i = 0, size; i < count && steps.count < MOST_STEPS_OF_RUNS; i += size) {
        int whole;

        size = count_step(&edits[i], count - i, &whole);
        if (!whole)
            continue;
        steps.steps[steps.count] = runs_create(&edits[i], size);
        steps.count += steps.steps[steps.count].count > 0;
    }
    return steps;
}

void steps_of_runs_destroy(struct steps_of_runs *steps) {
    while (steps->count)
        runs_destroy(&steps->steps[--steps->count]);
}

struct runs *runs_from(struct steps_of_runs *steps, const struct mj_edit *first) {
    for (uint32_t i = 0; steps && i < steps->count; i++)
        if (steps->steps[i].edits == first)
            return &steps->steps[i];
    return NULL;
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

static int is_in_an_edit(const struct runs *runs, const struct run *run, uint32_t at) {
    const struct mj_edit *edit = &runs->edits[edit_at(runs, run, at)];

    return run->address + at - edit->address < edit->size;
}

/* Read the run into the image. Does every place hold its old byte? */
static int compare_run(const struct mj_target *target, const struct runs *runs,
                       const struct run *run, struct mj_report *report) {
    const struct place *places = places_of(runs, run);

    if (!read_bytes(target, run->address, runs->image, run->size))
        return fault(report, first_edit(runs, run));
    for (uint32_t i = 0; i < run->places; i++)
        if (runs->image[places[i].at] != places[i].old_byte)
            return differs(runs, run, runs->image, places[i].at, MJ_UNEXPECTED, report);
    return MJ_OK;
}

/* Does the run hold its image? MJ_OK; MJ_NOT_VERIFIED where an edit differs; MJ_DISTURBED where a
   gap does; MJ_ERRNO, MJ_GONE. */
static int read_back(const struct mj_target *target, const struct runs *runs, const struct run *run,
                     struct mj_report *report) {
    uint32_t at = 0;

    if (!read_bytes(target, run->address, runs->found, run->size))
        return fault(report, first_edit(runs, run));
    if (!memcmp(runs->image, runs->found, run->size))
        return MJ_OK;
    while (runs->image[at] == runs->found[at])
        at++;
    return differs(runs, run, runs->found, at,
                   is_in_an_edit(runs, run, at) ? MJ_NOT_VERIFIED : MJ_DISTURBED, report);
}

/* The first byte in `at`..`end` that a uprobe may have put there; or `end`. */
static uint32_t find_uprobe(const struct runs *runs, uint32_t at, uint32_t end) {
    const uint8_t *trap = memchr(runs->image + at, INT3, end - at);
    const uint32_t before = trap ? (uint32_t)(trap - runs->image) : end;
    const uint8_t *call =
        runs->has_uprobe_calls ? memchr(runs->image + at, CALL, before - at) : NULL;

    return call ? (uint32_t)(call - runs->image) : before;
}

/* The number of places before this one. */
static uint32_t count_before(const struct place *places, uint32_t count, uint32_t at) {
    uint32_t low = 0;

    while (low < count) {
        const uint32_t middle = low + (count - low) / 2;

        if (places[middle].at < at)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

/* As find_uprobe, but only in gaps; *place is the first place behind it. There are few such bytes,
   so they are looked for in all of the run, and not gap by gap. */
static uint32_t find_uprobe_in_gap(const struct runs *runs, const struct run *run, uint32_t at,
                                   uint32_t *place) {
    const struct place *places = places_of(runs, run);
    const uint32_t last = places[run->places - 1].at;

    for (; (at = find_uprobe(runs, at, last)) < last; at++) {
        *place = count_before(places, run->places, at);
        if (places[*place].at != at) /* and not a byte of ours */
            return at;
    }
    return last;
}

static int add_own(struct runs *runs, struct run *run, uint32_t at) {
    if (runs->own_count == runs->own_room) {
        const uint32_t room = runs->own_room ? 2 * runs->own_room : FIRST_OWN;
        void *grown = realloc(runs->own, room * sizeof *runs->own);

        if (!grown)
            return 0;
        runs->own = grown;
        runs->own_room = room;
    }
    runs->own[runs->own_count++] =
        (struct place){.at = at, .old_byte = runs->image[at], .new_byte = runs->image[at]};
    run->own_count++;
    return 1;
}

/* Bytes of gaps that look like a uprobe's, and are the file's, of the image that was just read.
   What is not noted counts as a uprobe's. */
static void note_own(const struct mj_target *target, struct runs *runs, struct run *run,
                     struct file *file) {
    const uint32_t last = places_of(runs, run)[run->places - 1].at;
    uint32_t place, at = find_uprobe_in_gap(runs, run, 0, &place);

    run->first_own = runs->own_count;
    run->own_count = 0;
    if (at == last || !file_read(file, target, run->address, runs->found, run->size))
        return;
    for (; at < last; at = find_uprobe_in_gap(runs, run, at + 1, &place))
        if (runs->found[at] == runs->image[at] && !add_own(runs, run, at))
            return;
}

static int is_own(const struct runs *runs, const struct run *run, uint32_t at) {
    const struct place *own = &runs->own[run->first_own];
    const uint32_t before = count_before(own, run->own_count, at);

    return before < run->own_count && own[before].at == at &&
           own[before].old_byte == runs->image[at];
}

int runs_compare(const struct mj_target *target, struct runs *runs, struct mj_report *report) {
    struct file file = {.fd = -1};
    int status = MJ_OK;

    runs->own_count = 0;
    runs->has_uprobe_calls = has_mapping(target, UPROBE_CALLS);
    for (uint32_t i = 0; i < runs->count && status == MJ_OK; i++) {
        status = compare_run(target, runs, &runs->runs[i], report);
        if (status == MJ_OK)
            note_own(target, runs, &runs->runs[i], &file);
    }
    file_close(&file);
    return status;
}

/* The place behind the last one that may be written together with `first`. */
static uint32_t end_of_piece(const struct runs *runs, const struct run *run, uint32_t first) {
    const struct place *places = places_of(runs, run);
    const uint32_t last = places[run->places - 1].at;
    uint32_t place, at = find_uprobe_in_gap(runs, run, places[first].at, &place);

    for (; at < last; at = find_uprobe_in_gap(runs, run, at + 1, &place))
        if (!is_own(runs, run, at))
            return place;
    return run->places;
}

/* Write the image, but for gaps that may hold a uprobe. *done counts on from the first edit. */
static int write_image(const struct mj_target *target, const struct runs *runs,
                       const struct run *run, uint32_t *done, struct mj_report *report) {
    const struct place *places = places_of(runs, run);

    for (uint32_t i = 0, end; i < run->places; i = end) {
        end = end_of_piece(runs, run, i);
        const uint32_t start = places[i].at, size = places[end - 1].at + 1 - start;
        const size_t written = write_bytes(target, run->address + start, runs->image + start, size);
        const uint64_t stop = run->address + start + written;

        if (written == size)
            continue;
        while (*done < run->end && runs->edits[*done].address < stop)
            ++*done;
        return fault(report, edit_at(runs, run, (uint32_t)(start + written)));
    }
    *done = run->end;
    return MJ_OK;
}

static int write_run(const struct mj_target *target, const struct runs *runs, const struct run *run,
                     uint32_t *done, struct mj_report *report) {
    const struct place *places = places_of(runs, run);
    int status = compare_run(target, runs, run, report);

    if (status != MJ_OK)
        return status;
    MJ_RACE("run: read");
    for (uint32_t i = 0; i < run->places; i++)
        runs->image[places[i].at] = places[i].new_byte;
    status = write_image(target, runs, run, done, report);
    if (status != MJ_OK)
        return status;
    MJ_RACE("read back");
    return read_back(target, runs, run, report);
}

int runs_write(const struct mj_target *target, struct runs *runs, uint32_t *done,
               struct mj_report *report) {
    int status = MJ_OK;

    *done = 0;
    runs->has_uprobe_calls = has_mapping(target, UPROBE_CALLS);
    for (uint32_t i = 0; i < runs->count && status == MJ_OK; i++)
        status = write_run(target, runs, &runs->runs[i], done, report);
    return status;
}

/* SPDX-License-Identifier: MIT */
/*
 * write.c: change the deciding bytes of many sites, all or none. The only writer of code here.
 *
 * Before: all sites were found dormant, and mapped private (change.c). Then:
 *   1. run by run, look once more and store one byte a site
 *   2. read all back, a piece of the run at a time
 *   3. if a step fails, take back what was written, in reverse, and look at that too
 *
 * How a byte is stored:
 * - A few go through /proc/self/mem: the page becomes a private copy and is never writable for
 *   anybody else.
 * - MANY in a run: mprotect opens the run, bytes are stored, mprotect closes it. Not a prepared
 *   image of the pages through /proc/self/mem, which needs no mprotect and is sometimes faster: it
 *   would write back bytes of others that we read a moment ago, and undo what a controller or a
 *   uprobe did there in between.
 * - Where one way is refused (SELinux execmem; proc_mem.force_override= of Linux 6.12; no /proc),
 *   the other one, page by page.
 */
#define _GNU_SOURCE
#include "spot.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* A pwrite costs about 0.5 us, a pair of mprotect as many interrupts of the other CPUs as it takes,
   2 to 50 us. */
#ifndef MJ_MANY
#define MJ_MANY 64
#endif

struct writer {
    const struct mj_digest *digest;
    enum mj_state from, to;
    int memory; /* /proc/self/mem: a file, -1: it cannot be opened, or NOT_YET */
};

enum { NOT_YET = -2 };

/* Sites whose code fits the caches that a core has of its own. */
enum { PIECE = 2048 };

/* ---- one byte -------------------------------------------------------------------------------- */

static int protect(const uint8_t *first, const uint8_t *last, int protection) {
    const uintptr_t start = (uintptr_t)first & -MJ_PAGE_SIZE;

    return mprotect((void *)start, (uintptr_t)last + 1 - start, protection) ? -errno : 0;
}

static int store_unprotected(uint8_t *at, uint8_t byte, int protection) {
    const int error = protect(at, at, protection | PROT_WRITE);

    if (error)
        return error;
    __atomic_store_n(at, byte, __ATOMIC_RELEASE);
    return protect(at, at, protection);
}

static int store(struct writer *writer, const struct mj_run *run, const struct mj_spot *spot,
                 uint8_t byte) {
    uint8_t *at = mj_deciding_byte(spot);
    const int protection = run->protection >= 0
                               ? run->protection
                               : PROT_READ | PROT_EXEC | (spot->is_writable ? PROT_WRITE : 0);

    if (writer->memory == NOT_YET)
        writer->memory = open(MJ_PROC "/mem", O_RDWR | O_CLOEXEC);
    if (writer->memory >= 0 && pwrite(writer->memory, &byte, 1, (off_t)(uintptr_t)at) == 1)
        return 0;
    return store_unprotected(at, byte, protection);
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* Look before writing. */
static int write_spot(struct writer *writer, const struct mj_run *run, const struct mj_spot *spot,
                      bool is_open_for_writing) {
    const uint8_t byte = mj_byte_for(spot->kind, writer->to);

    MJ_RACE("write", spot->code);
    if (!mj_spot_is(spot, writer->from))
        return -EILSEQ;
    if (!is_open_for_writing)
        return store(writer, run, spot, byte);
    __atomic_store_n(mj_deciding_byte(spot), byte, __ATOMIC_RELEASE);
    return 0;
}

static bool open_for_writing(struct writer *writer, const struct mj_run *run) {
    const struct mj_spot *spots = &writer->digest->spots[run->first];

    const uint8_t *first = mj_deciding_byte(&spots[0]);
    const uint8_t *last = mj_deciding_byte(&spots[run->count - 1]);

    if (run->count < MJ_MANY || run->protection < 0 || run->is_shared)
        return false;
    if (!protect(first, last, run->protection | PROT_WRITE))
        return true;
    protect(first, last, run->protection); /* it may have come a part of the way */
    return false;
}

static int close_for_writing(struct writer *writer, const struct mj_run *run) {
    const struct mj_spot *spots = &writer->digest->spots[run->first];

    return protect(mj_deciding_byte(&spots[0]), mj_deciding_byte(&spots[run->count - 1]),
                   run->protection);
}

static void keep_first(int *first, int error) {
    if (!*first)
        *first = error;
}

/* 1 and 2, up to the first failure; `written` counts those written, from the first of all on. Read
   back in pieces, while they are near. */
static int open_run(struct writer *writer, const struct mj_run *run, size_t *written) {
    const struct mj_spot *spots = &writer->digest->spots[run->first];
    const bool is_open = open_for_writing(writer, run);
    int error = 0;

    for (size_t i = 0, seen = 0; i < run->count && !error;) {
        mj_fetch_ahead(spots, i, run->count);
        error = write_spot(writer, run, &spots[i++], is_open);
        *written += !error || mj_spot_is(&spots[i - 1], writer->to); /* written, and then failed */
        if (!error && (i % PIECE == 0 || i == run->count))
            for (; seen < i && !error; seen++)
                error = mj_spot_is(&spots[seen], writer->to) ? 0 : -EIO;
    }
    if (is_open)
        keep_first(&error, close_for_writing(writer, run));
    return error;
}

static int close_spot(struct writer *writer, const struct mj_run *run, const struct mj_spot *spot,
                      bool is_open_for_writing) {
    const int error = write_spot(writer, run, spot, is_open_for_writing);

    return error == -EILSEQ && mj_spot_is(spot, writer->to) ? 0 : error;
}

/* Goes on after a failure. */
static int close_run(struct writer *writer, const struct mj_run *run) {
    const struct mj_spot *spots = &writer->digest->spots[run->first];
    const bool is_open = open_for_writing(writer, run);
    int error = 0;

    for (size_t i = 0, seen = 0; i < run->count;) {
        const struct mj_spot *spot = &spots[i++];

        mj_fetch_ahead(spots, i, run->count);
        if (!run->is_shared)
            keep_first(&error, close_spot(writer, run, spot, is_open));
        else if (!mj_spot_is(spot, writer->to))
            keep_first(&error, -EACCES);
        if (i % PIECE == 0 || i == run->count)
            for (; seen < i; seen++)
                if (!mj_spot_is(&spots[seen], writer->to))
                    keep_first(&error, -EIO);
    }
    if (is_open)
        keep_first(&error, close_for_writing(writer, run));
    return error;
}

/* 3. The first `written` spots, last one first. */
static int take_back(struct writer *writer, size_t written) {
    const struct mj_digest *digest = writer->digest;
    struct writer back = {digest, writer->to, writer->from, writer->memory};
    int error = 0;

    for (size_t i = digest->run_count; i-- > 0;) {
        const struct mj_run *run = &digest->runs[i];

        if (written <= run->first)
            continue;
        const bool is_open = open_for_writing(&back, run);
        while (written > run->first)
            keep_first(&error, write_spot(&back, run, &digest->spots[--written], is_open));
        if (is_open)
            keep_first(&error, close_for_writing(&back, run));
    }
    writer->memory = back.memory;
    return error;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void end(struct writer *writer) {
    if (writer->memory >= 0)
        close(writer->memory);
}

int mj_open_sites(const struct mj_digest *digest) {
    struct writer writer = {digest, MJ_DORMANT, MJ_OPEN, NOT_YET};
    size_t written = 0;
    int error = 0;

    for (size_t i = 0; i < digest->run_count && !error; i++)
        error = open_run(&writer, &digest->runs[i], &written);
    if (error && take_back(&writer, written)) /* 3 */
        error = -ENOTRECOVERABLE;
    end(&writer);
    return error;
}

/* All sites of a run have one slot. */
static bool is_ours(const struct mj_digest *digest, const struct mj_run *run) {
    return digest->uses[digest->spots[run->first].use].ours;
}

int mj_close_sites(const struct mj_digest *digest) {
    struct writer writer = {digest, MJ_OPEN, MJ_DORMANT, NOT_YET};
    int error = 0;

    for (size_t i = 0; i < digest->run_count; i++)
        if (is_ours(digest, &digest->runs[i]))
            keep_first(&error, close_run(&writer, &digest->runs[i]));
    end(&writer);
    return error;
}

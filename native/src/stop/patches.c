/* SPDX-License-Identifier: MIT */
/*
 * patches.c: many heads put into the table of patches of an arena at once.
 *
 * markerjit/arena/patches.py is where the table is explained, and does the same for a few. Here is
 * a copy of the pages that are needed; the file itself is not mapped, since the program may cut it
 * short under us. Nothing is written before all heads have a place:
 *
 *   1  the pages in which the search for the heads begins are read, those that follow each other at
 *      once; others when a search goes on there
 *   2  each head is put into the copy
 *   3  what has changed is written, new entries without their addresses
 *   4  the addresses. The handler believes an entry that has one (trap.c)
 *
 * All of the table is the program's to write. Nothing that is read here is an index or a size.
 */

#define _GNU_SOURCE
#include "race.h"
#include "stop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    PER_PAGE = MJ_PAGE / sizeof(struct mj_patch),
    FURTHEST = 1 << 13, /* entries that are looked at for one address: there may be no free place */
    FIRST_NEW = 1024,
};

_Static_assert(PER_PAGE * sizeof(struct mj_patch) == MJ_PAGE, "entries fill a page");

struct entered {
    uint32_t at;
    uint64_t address;
};

struct mj_patches {
    int fd;
    uint64_t offset; /* in the file */
    uint32_t mask;
    uint32_t pages;
    struct mj_patch *copy; /* of all entries; memory is taken by the pages that were read */
    uint8_t *known;        /* by page: it was read */
    uint8_t *changed;      /* by page: it is to be written */
    struct entered *entered;
    uint32_t count, room;
};

static uint32_t first_place(uint64_t address, uint32_t mask) { /* as in trap.c */
    const uint64_t block = (address >> 10) * 0x9e3779b97f4a7c15ul >> 32;

    return (uint32_t)(block << 4 | (address >> 6 & 15)) & mask;
}

struct mj_patches *mj_patches_create(int fd, uint64_t offset, uint32_t entries) {
    struct mj_patches *all = calloc(1, sizeof *all);

    if (!all)
        return NULL;
    *all = (struct mj_patches){.fd = fd,
                               .offset = offset,
                               .mask = entries - 1,
                               .pages = (entries + PER_PAGE - 1) / PER_PAGE};
    void *copy = mmap(NULL, (size_t)all->pages * MJ_PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    all->copy = copy == MAP_FAILED ? NULL : copy;
    all->known = calloc(all->pages, 1);
    all->changed = calloc(all->pages, 1);
    if (all->copy && all->known && all->changed)
        return all;
    mj_patches_destroy(all);
    return NULL;
}

void mj_patches_destroy(struct mj_patches *all) {
    if (all->copy)
        munmap(all->copy, (size_t)all->pages * MJ_PAGE);
    free(all->known);
    free(all->changed);
    free(all->entered);
    free(all);
}

static int fails(struct mj_report *report, int error) {
    report->error = error;
    return MJ_ERRNO;
}

static uint8_t *page_of(const struct mj_patches *all, uint32_t page) {
    return (uint8_t *)all->copy + (size_t)page * MJ_PAGE;
}

static int read_pages(struct mj_patches *all, uint32_t first, uint32_t count,
                      struct mj_report *report) {
    const size_t size = (size_t)count * MJ_PAGE;
    const off_t offset = (off_t)(all->offset + (uint64_t)first * MJ_PAGE);
    ssize_t got;

    for (size_t done = 0; done < size; done += (size_t)got) {
        got = pread(all->fd, page_of(all, first) + done, size - done, offset + (off_t)done);
        if (got <= 0)
            return fails(report, got ? errno : ENODATA);
    }
    memset(all->known + first, 1, count);
    return MJ_OK;
}

static int write_pages(const struct mj_patches *all, uint32_t first, uint32_t count,
                       struct mj_report *report) {
    const size_t size = (size_t)count * MJ_PAGE;
    const off_t offset = (off_t)(all->offset + (uint64_t)first * MJ_PAGE);
    ssize_t put;

    for (size_t done = 0; done < size; done += (size_t)put) {
        put = pwrite(all->fd, page_of(all, first) + done, size - done, offset + (off_t)done);
        if (put <= 0)
            return fails(report, put ? errno : ENOSPC);
    }
    return MJ_OK;
}

/* The first page from `page` on that is set, and in *end the first behind it that is not. */
static uint32_t run_from(const uint8_t *set, uint32_t page, uint32_t pages, uint32_t *end) {
    while (page < pages && !set[page])
        page++;
    for (*end = page; *end < pages && set[*end];)
        ++*end;
    return page;
}

/* 1; the addresses stand so many bytes from each other. */
static int read_starts(struct mj_patches *all, const void *addresses, uint32_t count,
                       size_t distance, struct mj_report *report) {
    uint8_t *wanted = calloc(all->pages, 1);
    int status = MJ_OK;

    if (!wanted)
        return fails(report, ENOMEM);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t address;

        memcpy(&address, (const char *)addresses + i * distance, sizeof address);
        const uint32_t page = first_place(address, all->mask) / PER_PAGE;

        wanted[page] = !all->known[page];
    }
    for (uint32_t end, page = run_from(wanted, 0, all->pages, &end);
         page < all->pages && status == MJ_OK; page = run_from(wanted, end, all->pages, &end))
        status = read_pages(all, page, end - page, report);
    free(wanted);
    return status;
}

/* *at is the entry of this address, or the free one for it. MJ_OK, MJ_NO_ROOM, MJ_ERRNO. */
static int find(struct mj_patches *all, uint64_t address, uint32_t *at, struct mj_report *report) {
    uint32_t place = first_place(address, all->mask);

    for (uint32_t tried = 0; tried <= all->mask && tried < FURTHEST; tried++) {
        if (!all->known[place / PER_PAGE]) {
            const int status = read_pages(all, place / PER_PAGE, 1, report);

            if (status != MJ_OK)
                return status;
        }
        *at = place;
        if (!all->copy[place].address || all->copy[place].address == address)
            return MJ_OK;
        place = (place + 1) & all->mask;
    }
    return MJ_NO_ROOM;
}

static void change(struct mj_patches *all, uint32_t at, const struct mj_patch *entry) {
    all->copy[at] = *entry;
    all->changed[at / PER_PAGE] = 1;
}

static int note_new(struct mj_patches *all, uint32_t at, uint64_t address,
                    struct mj_report *report) {
    if (all->count == all->room) {
        const uint32_t room = all->room ? 2 * all->room : FIRST_NEW;
        struct entered *grown = realloc(all->entered, room * sizeof *grown);

        if (!grown)
            return fails(report, ENOMEM);
        all->entered = grown;
        all->room = room;
    }
    all->entered[all->count++] = (struct entered){at, address};
    return MJ_OK;
}

/* 2, of one head */
static int enter(struct mj_patches *all, struct mj_patch entry, uint32_t most, uint32_t *used,
                 struct mj_report *report) {
    uint32_t at;
    const int status = find(all, entry.address, &at, report);

    if (status != MJ_OK)
        return status;
    const struct mj_patch before = all->copy[at];

    if (!before.address) {
        if (*used >= most)
            return MJ_NO_ROOM;
        ++*used;
        change(all, at, &entry);
        return note_new(all, at, entry.address, report);
    }
    if (entry.body && before.body && before.body != entry.body)
        return MJ_UNEXPECTED; /* a fork's child may still have the code that this led to */
    if (!entry.body) {
        entry.body = before.body;
        entry.gone = !!before.gone;
    }
    entry.planted = before.planted;
    if (memcmp(&entry, &before, sizeof entry))
        change(all, at, &entry);
    return MJ_OK;
}

int mj_patches_enter(struct mj_patches *all, const struct mj_patch *heads, uint32_t count,
                     uint32_t most, uint32_t *used, struct mj_report *report) {
    int status = read_starts(all, &heads->address, count, sizeof *heads, report);

    for (uint32_t i = 0; i < count && status == MJ_OK; i++) {
        report->index = i;
        status = enter(all, heads[i], most, used, report);
    }
    return status;
}

int mj_patches_mark(struct mj_patches *all, const uint64_t *addresses, uint32_t count, int planted,
                    struct mj_report *report) {
    int status = read_starts(all, addresses, count, sizeof *addresses, report);

    for (uint32_t i = 0, at; i < count && status == MJ_OK; i++) {
        status = find(all, addresses[i], &at, report);
        if (status == MJ_NO_ROOM)
            status = MJ_OK; /* it is not in the table */
        else if (status == MJ_OK && all->copy[at].address && all->copy[at].planted != planted) {
            all->copy[at].planted = (uint8_t)planted;
            all->changed[at / PER_PAGE] = 1;
        }
    }
    return status;
}

static int is_planted(const struct mj_patch *entry, const struct mj_breakpoint *breakpoint) {
    return entry->address && entry->planted && !entry->gone && entry->body == breakpoint->body;
}

int mj_patches_planted(struct mj_patches *all, const struct mj_breakpoint *breakpoints,
                       uint32_t count, struct mj_report *report) {
    int status = read_starts(all, &breakpoints->address, count, sizeof *breakpoints, report);

    for (uint32_t i = 0, at; i < count && status == MJ_OK; i++) {
        status = find(all, breakpoints[i].address, &at, report);
        if (status == MJ_NO_ROOM ||
            (status == MJ_OK && !is_planted(&all->copy[at], &breakpoints[i])))
            status = MJ_UNEXPECTED;
    }
    return status;
}

int mj_patches_changed(const struct mj_patches *all) {
    return memchr(all->changed, 1, all->pages) != NULL;
}

static int write_changed(const struct mj_patches *all, struct mj_report *report) {
    int status = MJ_OK;

    for (uint32_t end, page = run_from(all->changed, 0, all->pages, &end);
         page < all->pages && status == MJ_OK;
         page = run_from(all->changed, end, all->pages, &end)) {
        status = write_pages(all, page, end - page, report);
        MJ_RACE("patches: pages");
    }
    return status;
}

int mj_patches_write(struct mj_patches *all, struct mj_report *report) {
    for (uint32_t i = 0; i < all->count; i++)
        all->copy[all->entered[i].at].address = 0;
    int status = write_changed(all, report); /* 3 */

    if (!all->count || status != MJ_OK)
        return status;
    memset(all->changed, 0, all->pages);
    for (uint32_t i = 0; i < all->count; i++) {
        all->copy[all->entered[i].at].address = all->entered[i].address;
        all->changed[all->entered[i].at / PER_PAGE] = 1;
    }
    MJ_RACE("patches: addresses");
    return write_changed(all, report); /* 4 */
}

/* SPDX-License-Identifier: MIT */
/*
 * maps.c: the present mapping of the code of sites: its protection, and whether it is shared with
 * its file. A write to a shared mapping would change the file. The write itself does not prevent
 * that: it succeeds where the mapping is writable.
 *
 * The mapping is looked up for each switch, since there is no notice of an mmap or mprotect. The
 * lookup uses PROCMAP_QUERY (Linux 6.11), or else reads /proc/self/maps up to the place. The file
 * is not kept open between switches: after a program closes all its descriptors, our number may be
 * another file.
 *
 * Without /proc the segments of the object are used. No stdio, which allocates (see notes.c).
 */
#define _GNU_SOURCE
#include "spot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct mapping {
    uintptr_t start, end;
    int protection;
    bool is_shared;
};

struct maps {
    int file;
    bool by_reading;
    struct mapping last;
};

/* ---- PROCMAP_QUERY: struct procmap_query of linux/fs.h, newer than many headers ----------------
 */

struct query {
    uint64_t size, query_flags, query_address;
    uint64_t start, end, flags, page_size, offset, inode;
    uint32_t device_major, device_minor, name_size, build_id_size;
    uint64_t name_address, build_id_address;
};

enum { IS_READABLE = 1, IS_WRITABLE = 2, IS_EXECUTABLE = 4, IS_SHARED = 8 };

#define QUERY _IOWR('f', 17, struct query)

/* Returns 0, -ENOENT where nothing is mapped, or another error where the query is not supported.
 * Not ioctl(), whose second argument is int in musl. */
static int query(int file, uintptr_t address, struct mapping *mapping) {
    struct query query = {.size = sizeof(query), .query_address = address};

    if (syscall(SYS_ioctl, file, QUERY, &query))
        return -errno;
    *mapping = (struct mapping){.start = query.start,
                                .end = query.end,
                                .protection = (query.flags & IS_READABLE ? PROT_READ : 0) |
                                              (query.flags & IS_WRITABLE ? PROT_WRITE : 0) |
                                              (query.flags & IS_EXECUTABLE ? PROT_EXEC : 0),
                                .is_shared = (query.flags & IS_SHARED) != 0};
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* "start-end rwxs ..." */
static bool parse(const char *line, struct mapping *mapping) {
    char *rest;
    const uintptr_t start = strtoul(line, &rest, 16);
    const uintptr_t end = *rest == '-' ? strtoul(rest + 1, &rest, 16) : 0;

    if (!end || strlen(rest) < 5)
        return false;
    *mapping =
        (struct mapping){start, end,
                         (rest[1] == 'r' ? PROT_READ : 0) | (rest[2] == 'w' ? PROT_WRITE : 0) |
                             (rest[3] == 'x' ? PROT_EXEC : 0),
                         rest[4] == 's'};
    return true;
}

static int read_until(int file, uintptr_t address, struct mapping *mapping) {
    char chunk[4096], line[64];
    size_t length = 0;
    ssize_t got;

    if (lseek(file, 0, SEEK_SET) < 0)
        return -errno;
    while ((got = read(file, chunk, sizeof(chunk))) > 0)
        for (ssize_t i = 0; i < got; i++) {
            if (chunk[i] != '\n') {
                if (length < sizeof(line) - 1) /* the rest is only the path */
                    line[length++] = chunk[i];
                continue;
            }
            line[length] = '\0';
            length = 0;
            if (parse(line, mapping) && address < mapping->end)
                return mapping->start <= address ? 0 : -ENOENT;
        }
    return got < 0 ? -errno : -ENOENT;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static int find(struct maps *maps, uintptr_t address) {
    int error;

    if (address >= maps->last.start && address < maps->last.end)
        return 0;
    maps->last = (struct mapping){0};
    if (maps->file < 0)
        return -ENOSYS;
    if (!maps->by_reading) {
        error = query(maps->file, address, &maps->last);
        if (!error || error == -ENOENT)
            return error;
        maps->by_reading = true;
    }
    error = read_until(maps->file, address, &maps->last);
    if (error)
        maps->last = (struct mapping){0};
    return error;
}

static bool any_spot_in(const struct mj_digest *digest, const struct mj_run *run,
                        const struct mapping *mapping) {
    for (size_t i = run->first; i < run->first + run->count; i++)
        if ((uintptr_t)digest->spots[i].code >= mapping->start &&
            (uintptr_t)digest->spots[i].code < mapping->end)
            return true;
    return false;
}

static void look_at_run(struct maps *maps, const struct mj_digest *digest, struct mj_run *run) {
    const struct mj_spot *first = &digest->spots[run->first];
    const struct mj_spot *last = first + run->count - 1;
    const uintptr_t start = (uintptr_t)mj_deciding_byte(first) & -MJ_PAGE_SIZE;
    const uintptr_t end = (uintptr_t)mj_deciding_byte(last) + 1;
    bool is_even = true; /* one protection, and nothing shared in between */
    int error = 0;

    run->is_shared = false;
    for (uintptr_t at = start; at < end && !error; at = maps->last.end) {
        error = find(maps, at);
        if (error)
            break;
        if (at == start)
            run->protection = maps->last.protection;
        is_even &= run->protection == maps->last.protection && !maps->last.is_shared;
        run->is_shared |= maps->last.is_shared && any_spot_in(digest, run, &maps->last);
    }
    if (error == -ENOSYS)
        run->protection = PROT_READ | PROT_EXEC | (first->is_writable ? PROT_WRITE : 0);
    else if (error || !is_even)
        run->protection = -1;
}

void mj_look_at_maps(struct mj_digest *digest) {
    struct maps maps = {.file = -1};

    if (digest->run_count)
        maps.file = open(MJ_PROC "/maps", O_RDONLY | O_CLOEXEC);
    for (size_t i = 0; i < digest->run_count; i++)
        look_at_run(&maps, digest, &digest->runs[i]);
    if (maps.file >= 0)
        close(maps.file);
}

/* SPDX-License-Identifier: MIT */
/*
 * mapped.c: is what the edits are for still what is mapped there?
 *
 * Checked while no thread runs, because a thread may unload an object, and map another in its
 * place, until the moment in which it is stopped. The bytes alone do not tell: only the byte of a
 * site that changes is compared, and a copy of an object has all of them.
 *
 * Linux 6.11 and later answer for one address (PROCMAP_QUERY). On older kernels the whole text is
 * read, which takes longer than all else that is done while one thread stands.
 */

#define _GNU_SOURCE
#include "mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* include/uapi/linux/fs.h, Linux 6.11: struct procmap_query */
struct query {
    uint64_t size, flags, address;
    uint64_t start, end, permissions, page_size, offset, inode;
    uint32_t major, minor, name_size, build_id_size;
    uint64_t name, build_id;
};

#define QUERY _IOWR('f', 17, struct query)

enum { ONLY_EXECUTABLE = 4, COVERING_OR_NEXT = 16 }; /* of flags */

enum { NAME_BYTES = 64 }; /* of the kernel's own mappings */

enum { FIRST_SIZE = 64 * 1024 };

int maps_open(pid_t pid) {
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    return open(path, O_RDONLY | O_CLOEXEC);
}

char *read_maps(pid_t pid, size_t *size) {
    size_t room = FIRST_SIZE;
    char *text = malloc(room);
    ssize_t got = -1;
    const int fd = text ? maps_open(pid) : -1;
    int error = errno;

    *size = 0;
    while (fd >= 0 && text && (got = read(fd, text + *size, room - *size)) > 0) {
        *size += (size_t)got;
        char *grown = *size == room ? realloc(text, room *= 2) : text;

        if (!grown)
            free(text);
        text = grown;
    }
    if (fd >= 0) {
        error = text ? errno : ENOMEM;
        close(fd);
    }
    if (text && !got) {
        text[*size] = 0; /* there is room: it has grown whenever it was full */
        return text;
    }
    free(text);
    errno = error;
    return NULL;
}

static int not_readable(struct mj_report *report) {
    report->error = errno;
    return errno == ENOENT || errno == ESRCH ? MJ_GONE : MJ_ERRNO;
}

/* Whether this line describes the mapping. Its name is left out: a file may be renamed. */
static int is_line_of(const char *line, const struct query *mapping) {
    const uint64_t flags = mapping->permissions;
    const char permissions[] = {flags & READABLE ? 'r' : '-', flags & WRITABLE ? 'w' : '-',
                                flags & EXECUTABLE ? 'x' : '-', flags & SHARED ? 's' : 'p', ' '};
    char *rest;

    if (strtoull(line, &rest, 16) != mapping->start ||
        strtoull(rest + 1, &rest, 16) != mapping->end)
        return 0;
    if (memcmp(rest + 1, permissions, sizeof permissions) != 0)
        return 0;
    return strtoull(rest + 1 + sizeof permissions, &rest, 16) == mapping->offset &&
           strtoul(rest + 1, &rest, 16) == mapping->major &&
           strtoul(rest + 1, &rest, 16) == mapping->minor &&
           strtoull(rest + 1, &rest, 10) == mapping->inode;
}

/* Each line by a question of its own. -1: the kernel does not know the question. */
static int still_mapped_by_query(const struct mj_target *target, int maps,
                                 struct mj_report *report) {
    const char *line = target->mapped, *end = line + target->mapped_size;

    while (line < end) {
        struct query mapping = {.size = sizeof mapping, .address = strtoull(line, NULL, 16)};

        if (ioctl(maps, QUERY, &mapping)) {
            if (errno == ENOTTY || errno == EINVAL)
                return -1;
            return errno == ENOENT ? MJ_MOVED : not_readable(report);
        }
        if (!is_line_of(line, &mapping))
            return MJ_MOVED;
        line = memchr(line, '\n', (size_t)(end - line));
        line = line ? line + 1 : end;
    }
    return MJ_OK;
}

/* Both are in order of address, so one walk through the process's lines finds all of ours. */
static int still_mapped_by_text(const struct mj_target *target, struct mj_report *report) {
    const char *wanted = target->mapped, *end = wanted + target->mapped_size;
    size_t size;
    char *text = read_maps(target->pid, &size);

    if (!text)
        return not_readable(report);
    for (const char *at = text, *stop = text + size; at < stop && wanted < end;) {
        const char *newline = memchr(at, '\n', (size_t)(stop - at));
        const size_t line = newline ? (size_t)(newline + 1 - at) : (size_t)(stop - at);

        if ((size_t)(end - wanted) >= line && !memcmp(at, wanted, line))
            wanted += line;
        at += line;
    }
    free(text);
    if (!size) /* killed, and its memory is gone */
        return MJ_GONE;
    return wanted < end ? MJ_MOVED : MJ_OK;
}

int still_mapped(const struct mj_target *target, int maps, struct mj_report *report) {
    if (!target->mapped_size)
        return MJ_OK;
    const int status = maps < 0 ? -1 : still_mapped_by_query(target, maps, report);

    return status < 0 ? still_mapped_by_text(target, report) : status;
}

static int has_in_text(const struct mj_target *target, const char *name) {
    size_t size;
    char *text = read_maps(target->pid, &size);
    const int has = !text || memmem(text, size, name, strlen(name));

    free(text);
    return has;
}

/* The name of a mapping that is of no file. -1: the kernel does not tell. */
static int has_name(int maps, uint64_t start, const char *name) {
    char found[NAME_BYTES] = "";
    struct query query = {
        .size = sizeof query, .address = start, .name = (uint64_t)found, .name_size = sizeof found};

    if (ioctl(maps, QUERY, &query))
        return -1;
    return strcmp(found, name) == 0;
}

int has_mapping(const struct mj_target *target, const char *name) {
    struct query query = {.size = sizeof query, .flags = ONLY_EXECUTABLE | COVERING_OR_NEXT};
    const int maps = maps_open(target->pid);
    int has = 0;

    while (maps >= 0 && !has && !ioctl(maps, QUERY, &query)) {
        if (!query.inode)
            has = has_name(maps, query.start, name);
        query = (struct query){.size = sizeof query,
                               .flags = ONLY_EXECUTABLE | COVERING_OR_NEXT,
                               .address = query.end};
    }
    if (maps < 0 || has < 0 || (!has && errno != ENOENT)) /* that is the end */
        has = has_in_text(target, name);
    if (maps >= 0)
        close(maps);
    return has;
}

static struct mj_mapping mapping_of(const struct query *query) {
    return (struct mj_mapping){
        .start = query->start,
        .end = query->end,
        .permissions = query->permissions,
        .offset = query->offset,
        .inode = query->inode,
        .major = query->major,
        .minor = query->minor,
    };
}

int mapping_at(int maps, uint64_t address, struct mj_mapping *found, struct mj_report *report) {
    struct query query = {.size = sizeof query, .address = address};

    if (ioctl(maps, QUERY, &query))
        return errno == ENOENT ? MJ_MOVED : not_readable(report);
    *found = mapping_of(&query);
    return MJ_OK;
}

int64_t mj_mappings(int32_t pid, struct mj_mapping *found, uint32_t most) {
    const int maps = maps_open(pid);
    struct query query = {.size = sizeof query, .flags = COVERING_OR_NEXT};
    int64_t count = 0;

    if (maps < 0)
        return -1;
    while (!ioctl(maps, QUERY, &query)) {
        if (count++ == most)
            break;
        found[count - 1] = mapping_of(&query);
        query =
            (struct query){.size = sizeof query, .flags = COVERING_OR_NEXT, .address = query.end};
    }
    if (count <= most && errno != ENOENT) /* that is the end; anything else is no answer */
        count = -1;
    close(maps);
    return count;
}

/* The next one behind those before `address` that is of this kind, as flags of the question say. */
static int next_mapping(int maps, uint64_t flags, uint64_t address, struct query *found) {
    *found = (struct query){.size = sizeof *found, .flags = flags, .address = address};
    return ioctl(maps, QUERY, found) == 0;
}

int mapped_as(int maps, const struct mj_mapping *seen, uint32_t count, uint64_t kind) {
    struct query query = {.end = 0};
    int same = 1;

    for (uint32_t i = 0; same && i < count; i++) {
        if ((seen[i].permissions & kind) != kind)
            continue;
        same = next_mapping(maps, COVERING_OR_NEXT | kind, query.end, &query);
        if (same) {
            const struct mj_mapping now = mapping_of(&query);

            same = !memcmp(&now, &seen[i], sizeof now);
        }
    }
    return same && !next_mapping(maps, COVERING_OR_NEXT | kind, query.end, &query) &&
           errno == ENOENT;
}

/* The first object has what is asked for, and so has any other. */
static int note_loads(struct dl_phdr_info *object, size_t size, void *loads) {
    (void)size;
    *(struct mj_loads *)loads = (struct mj_loads){object->dlpi_adds, object->dlpi_subs};
    return 1;
}

void mj_own_loads(struct mj_loads *loads) {
    *loads = (struct mj_loads){0};
    dl_iterate_phdr(note_loads, loads);
}

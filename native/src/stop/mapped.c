/* SPDX-License-Identifier: MIT */
/*
 * mapped.c: is what the edits are for still what is mapped there?
 *
 * Checked while no thread runs, because a thread may unload an object, and map another in its
 * place, until the moment in which it is stopped. The bytes alone do not tell: only the byte of a
 * site that changes is compared, and a copy of an object has all of them.
 */

#define _GNU_SOURCE
#include "mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_SIZE = 64 * 1024 };

char *read_maps(pid_t pid, size_t *size) {
    size_t room = FIRST_SIZE;
    char path[64], *text = malloc(room);
    ssize_t got = -1;

    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    const int fd = text ? open(path, O_RDONLY | O_CLOEXEC) : -1;
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

/* Both are in order of address, so one walk through the process's lines finds all of ours. */
int still_mapped(const struct mj_target *target, struct mj_report *report) {
    const char *wanted = target->mapped, *end = wanted + target->mapped_size;
    size_t size;

    if (!target->mapped_size)
        return MJ_OK;
    char *text = read_maps(target->pid, &size);
    if (!text) {
        report->error = errno;
        return errno == ENOENT || errno == ESRCH ? MJ_GONE : MJ_ERRNO;
    }
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

int has_mapping(const struct mj_target *target, const char *name) {
    size_t size;
    char *text = read_maps(target->pid, &size);
    const int has = !text || memmem(text, size, name, strlen(name));

    free(text);
    return has;
}

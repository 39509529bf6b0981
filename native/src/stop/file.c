/* SPDX-License-Identifier: MIT */
/*
 * file.c: what the file has that is mapped at an address.
 *
 * A line of /proc/PID/maps has the inode, and the file is opened by the kernel's link to it, which
 * root may follow, or by its name as the process sees it. There may be another file by that name
 * now, so the inode is compared, and the device, too. A place that is no regular file is never
 * opened.
 */

#define _GNU_SOURCE
#include "file.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

/* RWF_NOWAIT of preadv2(2). Both are asked for by number: the C library of 2012 that the wheel is
   linked with does not have them. A kernel before Linux 4.14 refuses, and nothing is read. */
enum { FROM_MEMORY = 8 };

enum { PATH_ROOM = PATH_MAX + 64, PERMISSIONS = 5 /* with a space */ };

/* A line of /proc/PID/maps. Its name has no end of its own. */
struct line {
    uint64_t start, end, offset, inode;
    dev_t device;
    const char *name;
    int name_size;
};

static struct line line_at(const char *text, const char *end) {
    struct line line;
    char *rest;

    line.start = strtoull(text, &rest, 16);
    line.end = strtoull(rest + 1, &rest, 16);
    line.offset = strtoull(rest + 1 + PERMISSIONS, &rest, 16);
    const unsigned major = (unsigned)strtoul(rest + 1, &rest, 16);

    line.device = makedev(major, (unsigned)strtoul(rest + 1, &rest, 16));
    line.inode = strtoull(rest + 1, &rest, 10);
    rest += strspn(rest, " ");
    line.name = rest;
    line.name_size = (int)(end - rest);
    return line;
}

/* The line that has all of these addresses. */
static int find_line(const struct mj_target *target, uint64_t address, size_t size,
                     struct line *line) {
    const char *text = target->mapped, *end = text + target->mapped_size;

    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));

        if (!newline)
            return 0;
        *line = line_at(text, newline);
        if (address >= line->start && address + size <= line->end)
            return 1;
        text = newline + 1;
    }
    return 0;
}

/* -1 where this is no regular file, or has another inode. */
static int open_regular(const char *path, const struct line *line, int compare_device) {
    const int place = open(path, O_PATH | O_CLOEXEC);
    struct stat status;
    char same[64];
    int fd = -1;

    if (place < 0)
        return -1;
    if (!fstat(place, &status) && S_ISREG(status.st_mode) && status.st_ino == line->inode &&
        (!compare_device || status.st_dev == line->device)) {
        snprintf(same, sizeof same, "/proc/self/fd/%d", place);
        fd = open(same, O_RDONLY | O_CLOEXEC);
    }
    close(place);
    return fd;
}

static int open_file(const struct mj_target *target, const struct line *line) {
    char path[PATH_ROOM];

    if (!line->inode)
        return -1;
    snprintf(path, sizeof path, "/proc/%d/map_files/%lx-%lx", target->pid,
             (unsigned long)line->start, (unsigned long)line->end);
    const int fd = open_regular(path, line, 0); /* a file has several devices on btrfs */

    if (fd >= 0)
        return fd;
    snprintf(path, sizeof path, "/proc/%d/root%.*s", target->pid, line->name_size, line->name);
    return open_regular(path, line, 1);
}

int file_read(struct file *file, const struct mj_target *target, uint64_t address, void *bytes,
              size_t size) {
    const struct iovec here = {bytes, size};
    struct line line;

    if (address < file->start || address + size > file->end) {
        if (!find_line(target, address, size, &line))
            return 0;
        file_close(file);
        *file = (struct file){line.start, line.end, line.offset, open_file(target, &line)};
    }
    if (file->fd < 0)
        return 0;
    const uint64_t offset = file->offset + (address - file->start);

    return syscall(SYS_preadv2, file->fd, &here, 1l, offset, 0l, FROM_MEMORY) == (long)size;
}

void file_close(struct file *file) {
    if (file->end && file->fd >= 0)
        close(file->fd);
    *file = (struct file){.fd = -1};
}

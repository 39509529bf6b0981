/* SPDX-License-Identifier: MIT */
/*
 * tasks.c: which threads a process has, and what each of them does.
 *
 * A list of thousands of threads is compared with those that are known by a set: to look through
 * all that are known for each of them takes longer than to stop them.
 */

#define _GNU_SOURCE
#include "tasks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    DIRECTORY_LINKS = 2, /* of a directory itself: `.` and its name */
    FIRST_ROOM = 128,
    STAT_BYTES = 512,
};

DIR *open_tasks(pid_t pid) {
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/task", pid);
    return opendir(path);
}

/* A list that breaks off is not one that has ended, and the threads that it leaves out would run
   on. */
pid_t next_task(DIR *tasks) {
    struct dirent *entry;
    pid_t tid = 0;

    do {
        errno = 0;
        entry = readdir(tasks);
        tid = entry ? atoi(entry->d_name) : 0;
    } while (entry && tid <= 0); /* `.` and `..` */
    return tid;
}

/* The directory has a link for each, but for its own two. */
uint64_t count_tasks(DIR *tasks) {
    struct stat directory;

    return fstat(dirfd(tasks), &directory) ? 0 : directory.st_nlink - DIRECTORY_LINKS;
}

static char state_in(int directory, const char *path) {
    char line[STAT_BYTES];
    const int fd = openat(directory, path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) /* we may be out of descriptors: that says nothing of the thread */
        return errno == ENOENT || errno == ESRCH ? 'X' : '?';
    const ssize_t got = read(fd, line, sizeof line - 1);
    const int error = got < 0 ? errno : ESRCH;

    close(fd);
    if (got <= 0)
        return error == ESRCH ? 'X' : '?';
    line[got] = 0;
    const char *name_end = strrchr(line, ')');
    return name_end && name_end[1] == ' ' && name_end[2] ? name_end[2] : 'X';
}

char state_of_task(DIR *tasks, pid_t tid) {
    char path[32];

    snprintf(path, sizeof path, "%d/stat", tid);
    return state_in(dirfd(tasks), path);
}

char state_of(pid_t pid, pid_t tid) {
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, tid);
    return state_in(AT_FDCWD, path);
}

/* It may be listed still: the first thread may end before the others. */
int is_dead(pid_t pid, pid_t tid) { return strchr("ZX", state_of(pid, tid)) != NULL; }

/* ---- sets ------------------------------------------------------------------------------------ */

/* Of the thread, or where it would be: threads made one after the other lie side by side. */
static pid_t *slot_of(const struct tids *set, pid_t tid) {
    uint32_t at = (uint32_t)tid & (set->room - 1);

    while (set->slots[at] && set->slots[at] != tid)
        at = (at + 1) & (set->room - 1);
    return &set->slots[at];
}

static int grow(struct tids *set) {
    struct tids larger = {.room = set->room ? 2 * set->room : FIRST_ROOM, .count = set->count};

    larger.slots = calloc(larger.room, sizeof *larger.slots);
    if (!larger.slots)
        return -1;
    for (uint32_t i = 0; i < set->room; i++)
        if (set->slots[i])
            *slot_of(&larger, set->slots[i]) = set->slots[i];
    free(set->slots);
    *set = larger;
    return 0;
}

int tids_add(struct tids *set, pid_t tid) {
    if (2 * set->count >= set->room && grow(set)) /* half of it stays free */
        return -1;
    pid_t *slot = slot_of(set, tid);

    if (*slot)
        return 0;
    *slot = tid;
    set->count++;
    return 1;
}

void tids_destroy(struct tids *set) {
    free(set->slots);
    *set = (struct tids){0};
}

/* SPDX-License-Identifier: MIT */
/* calls.c: lists of system calls for a borrowed thread. */

#define _GNU_SOURCE
#include "borrow.h"
#include "lay.h"
#include "race.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEMFD "/memfd:" MJ_ARENA_NAME " (deleted)"

static uint64_t argument(const struct mj_call *calls, uint32_t index, int i) {
    const int8_t ref = calls[index].refs[i];
    const int refers = ref >= 0 && (uint32_t)ref < index;

    return calls[index].args[i] + (refers ? (uint64_t)calls[ref].result : 0);
}

#define PATH_ROOM 96

static void path_of(const struct borrowed *borrowed, uint64_t descriptor, char path[PATH_ROOM]) {
    snprintf(path, PATH_ROOM, "/proc/%d/task/%d/fd/%d", borrowed->target->pid,
             borrowed->stopped.threads[0].tid, (int)descriptor);
}

static int is_passed_over(const struct borrowed *borrowed, const struct mj_call *call,
                          uint64_t descriptor) {
    struct stat found;
    char path[PATH_ROOM];

    if (!call->inode)
        return 0;
    path_of(borrowed, descriptor, path);
    return stat(path, &found) || found.st_dev != call->device || found.st_ino != call->inode;
}

/* What we opened is a memfd of ours, and still empty. */
static int is_new_memfd(int opened) {
    char path[PATH_ROOM], link[sizeof MEMFD];
    struct stat about;

    snprintf(path, sizeof path, "/proc/self/fd/%d", opened);
    return readlink(path, link, sizeof link) == (ssize_t)sizeof MEMFD - 1 &&
           !memcmp(link, MEMFD, sizeof MEMFD - 1) && !fstat(opened, &about) && !about.st_size;
}

/* MJ_GROW_MEMFD: our descriptor, or an errno below 0. */
static int64_t grow_memfd(const struct borrowed *borrowed, uint64_t descriptor, uint64_t size) {
    char path[PATH_ROOM];
    int error = 0;

    path_of(borrowed, descriptor, path);
    /* It may be another file by now: nothing is waited for, and no terminal becomes ours. */
    const int opened = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (opened < 0)
        return errno == ENOENT ? -EBADF : -errno;
    if (!is_new_memfd(opened))
        error = EBADF;
    else if (ftruncate(opened, (off_t)size))
        error = errno;
    MJ_RACE("borrow: grown");
    if (!error)
        return opened;
    close(opened);
    return -error;
}

static int make_calls(struct borrowed *borrowed, struct mj_call *calls, uint32_t count) {
    int status = MJ_OK;

    for (uint32_t i = 0; i < count && status == MJ_OK; i++) {
        uint64_t args[6];

        for (int a = 0; a < 6; a++)
            args[a] = argument(calls, i, a);
        calls[i].result = 0;
        if (is_passed_over(borrowed, &calls[i], args[0]))
            continue;
        if (calls[i].text_arg) {
            if (!lay_text(borrowed, calls[i].text))
                return MJ_GONE; /* its frame is there: nothing else can be the reason */
            args[calls[i].text_arg - 1] = borrowed->frame.start;
        }
        if (calls[i].number == MJ_GROW_MEMFD)
            calls[i].result = grow_memfd(borrowed, args[0], args[1]);
        else
            status = borrow_call(borrowed, calls[i].number, args, &calls[i].result);
        if (status == MJ_OK && calls[i].result < 0 && calls[i].result > -4096) {
            borrowed->report->index = i;
            borrowed->report->error = (int)-calls[i].result;
            status = MJ_CALL_FAILED;
        }
    }
    return status;
}

struct borrowing {
    const struct mj_target *target;
    struct mj_call *calls;
    uint32_t count;
    struct mj_thread *threads;
    uint32_t *thread_count;
    struct mj_report *report;
};

static struct mj_thread describe(const struct stopped_thread *thread) {
    return (struct mj_thread){
        .tid = thread->tid, .fs_base = thread->regs.fs_base, .rseq = usual_rseq_of(thread->tid)};
}

/* The borrowed one first. */
static void list_threads(const struct borrowing *all, const struct borrowed *borrowed) {
    const struct stopped *others = &borrowed->others;
    const uint32_t room = *all->thread_count;

    *all->thread_count = 0;
    for (uint32_t i = 0; i <= others->count && i < room; i++)
        all->threads[(*all->thread_count)++] =
            describe(i ? &others->threads[i - 1] : &borrowed->stopped.threads[0]);
}

static int borrow_and_call(void *arguments) {
    const struct borrowing *all = arguments;
    struct borrowed borrowed;
    int status = all->threads ? borrow_alone(all->target, &borrowed, all->report)
                              : borrow_any(all->target, &borrowed, all->report);

    if (status != MJ_OK)
        return status;
    if (all->threads)
        list_threads(all, &borrowed);
    status = make_calls(&borrowed, all->calls, all->count);
    const int ended = borrow_end(&borrowed);

    /* The results of the calls are known, unless the process is gone. */
    return status == MJ_OK && ended == MJ_GONE ? ended : status;
}

int mj_borrow(const struct mj_target *target, struct mj_call *calls, uint32_t count,
              struct mj_thread *threads, uint32_t *thread_count, struct mj_report *report) {
    struct borrowing all = {target, calls, count, threads, thread_count, report};

    return in_own_thread(target->pid, borrow_and_call, &all, report);
}

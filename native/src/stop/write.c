/* SPDX-License-Identifier: MIT */
/*
 * write.c: the only code that writes into a target's text.
 *
 *   1  compare all: nothing is written unless every edit finds the bytes that it expects
 *   2  write, in order
 *   3  read all back
 *   4  if 2 or 3 fails, put the old bytes back in reverse order
 *
 * Through /proc/PID/mem, which writes to r-x pages by giving the process a private copy
 * (process_vm_writev cannot). One edit of one byte is one store in the kernel's copy; of several
 * bytes it is not promised to be, so those need the threads stopped.
 */

#define _GNU_SOURCE
#include "threads.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum moved { NOTHING, SOME, ALL };

/* Some bytes of an edit are an error like none. */
static enum moved all_of(ssize_t bytes, const struct mj_edit *edit) {
    if (bytes == (ssize_t)edit->size)
        return ALL;
    if (bytes <= 0)
        return NOTHING;
    errno = EIO;
    return SOME;
}

typedef enum moved put_fn(int mem_fd, const struct mj_edit *edit, const uint8_t *bytes);

static enum moved get(int mem_fd, const struct mj_edit *edit, uint8_t *bytes) {
    return all_of(pread(mem_fd, bytes, edit->size, (off_t)edit->address), edit);
}

static enum moved put(int mem_fd, const struct mj_edit *edit, const uint8_t *bytes) {
    return all_of(pwrite(mem_fd, bytes, edit->size, (off_t)edit->address), edit);
}

/* In our own process. Only words outside the code are stored to directly: an edit of text has
   another size, and its page is not writable. */
static enum moved put_own(int mem_fd, const struct mj_edit *edit, const uint8_t *bytes) {
    uint64_t word;

    if (edit->size != sizeof word || edit->address % sizeof word)
        return put(mem_fd, edit, bytes);
    memcpy(&word, bytes, sizeof word);
    __atomic_store_n((uint64_t *)edit->address, word, __ATOMIC_SEQ_CST);
    return ALL;
}

/* A read or write that failed: 0 bytes mean that there is no memory any more. */
static int fault(struct mj_report *report, uint32_t index) {
    report->index = index;
    report->error = errno;
    return errno == ESRCH || !errno ? MJ_GONE : MJ_ERRNO;
}

static int compare_all(int mem_fd, const struct mj_edit *edits, uint32_t count, int written,
                       struct mj_report *report) {
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *expected = written ? edits[i].new_bytes : edits[i].old_bytes;

        errno = 0;
        if (get(mem_fd, &edits[i], report->found) != ALL)
            return fault(report, i);
        if (memcmp(report->found, expected, edits[i].size)) {
            report->index = i;
            return written ? MJ_NOT_VERIFIED : MJ_UNEXPECTED;
        }
    }
    return MJ_OK;
}

static int take_back(put_fn *put_bytes, int mem_fd, const struct mj_edit *edits, uint32_t count,
                     int status, struct mj_report *report) {
    while (count--)
        if (put_bytes(mem_fd, &edits[count], edits[count].old_bytes) != ALL) {
            report->index = count;
            status = MJ_NOT_UNDONE;
        }
    return status;
}

static int write_all(put_fn *put_bytes, int mem_fd, const struct mj_edit *edits, uint32_t count,
                     struct mj_report *report) {
    int status = compare_all(mem_fd, edits, count, 0, report); /* 1 */

    if (status != MJ_OK)
        return status;
    for (uint32_t i = 0; i < count; i++) { /* 2 */
        errno = 0;
        const enum moved moved = put_bytes(mem_fd, &edits[i], edits[i].new_bytes);

        if (moved != ALL) {
            status = fault(report, i);
            if (status == MJ_GONE)
                return status;
            return take_back(put_bytes, mem_fd, edits, i + (moved == SOME), status, report);
        }
    }
    status = compare_all(mem_fd, edits, count, 1, report); /* 3 */
    if (status == MJ_OK || status == MJ_GONE)
        return status;
    return take_back(put_bytes, mem_fd, edits, count, status, report); /* 4 */
}

int mj_write(int mem_fd, const struct mj_edit *edits, uint32_t count, struct mj_report *report) {
    return write_all(put, mem_fd, edits, count, report);
}

int mj_write_own(int mem_fd, const struct mj_edit *edits, uint32_t count,
                 struct mj_report *report) {
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0)) {
        report->error = errno;
        return MJ_ERRNO;
    }
    const int status = write_all(put_own, mem_fd, edits, count, report);

    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0);
    return status;
}

/* A thread that stands at the first byte has not begun the old instruction and will begin the new
   one; one that stands behind it would go on in the middle of the new bytes. */
static int check_spans(const struct stopped *stopped, const struct mj_edit *edits, uint32_t count,
                       struct mj_report *report) {
    for (uint32_t t = 0; t < stopped->count; t++)
        for (uint32_t i = 0; i < count; i++) {
            const uint64_t rip = stopped->threads[t].regs.rip;

            if (rip > edits[i].address && rip < edits[i].address + edits[i].size) {
                report->tid = stopped->threads[t].tid;
                report->index = i;
                return MJ_IN_SPAN;
            }
        }
    return MJ_OK;
}

struct stopped_write {
    pid_t pid;
    int mem_fd;
    const struct mj_edit *edits;
    uint32_t count;
    struct mj_report *report;
};

static int write_stopped(void *arguments) {
    const struct stopped_write *all = arguments;
    struct stopped stopped;
    int status = stop_all(all->pid, &stopped, all->report);

    if (status != MJ_OK)
        return status;
    status = check_spans(&stopped, all->edits, all->count, all->report);
    if (status == MJ_OK)
        status = mj_write(all->mem_fd, all->edits, all->count, all->report);
    resume_all(&stopped, all->report);
    return status;
}

int mj_write_stopped(pid_t pid, int mem_fd, const struct mj_edit *edits, uint32_t count,
                     struct mj_report *report) {
    struct stopped_write all = {pid, mem_fd, edits, count, report};

    return in_own_thread(write_stopped, &all, report);
}

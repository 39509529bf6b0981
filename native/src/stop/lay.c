/* SPDX-License-Identifier: MIT */
/*
 * lay.c: where the way back of a borrowed thread stands: in the arena's scratch, or on its stack.
 *
 * The scratch has room for one frame, and its first word is the thread that uses it. A controller
 * that is killed leaves the word there, and for good: the thread that it had may still be on its
 * way back, and wait for a CPU or in the kernel, and it must find its frame. From then on threads
 * are borrowed on their own stacks, as they are before there is an arena: below the stack pointer
 * and the red zone, where a signal frame would stand. That may be no stack of the thread alone (one
 * of coroutines is handed on and moved), so no other thread runs as long as a frame stands there.
 */

#define _GNU_SOURCE
#include "lay.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#define RED_ZONE 128 /* bytes below the stack pointer that code may use: System V ABI, 3.2.2 */

int has_free_scratch(const struct mj_target *target) {
    uint64_t user;

    return target->scratch &&
           pread(target->mem_fd, &user, sizeof user, (off_t)target->scratch) == sizeof user &&
           !user;
}

static int pass_scratch(const struct mj_target *target, uint64_t from, uint64_t to) {
    const off_t at = (off_t)target->scratch;
    uint64_t user;

    return target->scratch && pread(target->mem_fd, &user, sizeof user, at) == sizeof user &&
           user == from && pwrite(target->mem_fd, &to, sizeof to, at) == sizeof to;
}

static int read_place(const struct borrowed *borrowed, uint8_t *bytes) {
    const size_t size = borrowed->frame.size;

    return pread(borrowed->target->mem_fd, bytes, size, (off_t)borrowed->frame.start) ==
           (ssize_t)size;
}

/* From the start of the frame on. Not by /proc/PID/mem: that would write into the guard page below
   a stack that is full, where the thread itself could not read it. */
static int write_there(const struct borrowed *borrowed, const uint8_t *bytes, size_t size) {
    const struct iovec here = {(void *)bytes, size};
    const struct iovec there = {(void *)borrowed->frame.start, size};

    return process_vm_writev(borrowed->target->pid, &here, 1, &there, 1, 0) == (ssize_t)size;
}

static int write_place(const struct borrowed *borrowed, const uint8_t *bytes) {
    return write_there(borrowed, bytes, borrowed->frame.size);
}

int lay_text(const struct borrowed *borrowed, const char text[MJ_CALL_TEXT]) {
    return write_there(borrowed, (const uint8_t *)text, MJ_CALL_TEXT);
}

static int put_frame(struct borrowed *borrowed) {
    if (!read_place(borrowed, borrowed->covered))
        return 0;
    if (write_place(borrowed, borrowed->frame.bytes))
        return 1;
    write_place(borrowed, borrowed->covered); /* it may have been written in part */
    return 0;
}

int lay_frame(struct borrowed *borrowed) {
    const struct mj_target *target = borrowed->target;
    const struct stopped_thread *thread = &borrowed->stopped.threads[0];
    int status = MJ_OK;

    borrowed->in_scratch = pass_scratch(target, 0, (uint64_t)thread->tid);
    if (!borrowed->in_scratch && !borrowed->alone)
        return MJ_NO_THREAD;
    const uint64_t limit =
        borrowed->in_scratch ? target->scratch + MJ_SCRATCH_SIZE : thread->regs.rsp - RED_ZONE;

    borrowed->report->error = frame_build(target, thread, borrowed->mask, limit, &borrowed->frame);
    if (borrowed->report->error)
        status = borrowed->report->error == ESRCH ? MJ_GONE : MJ_ERRNO;
    else if (!put_frame(borrowed))
        status = MJ_NO_THREAD;
    if (status != MJ_OK && borrowed->in_scratch)
        pass_scratch(target, (uint64_t)thread->tid, 0);
    return status;
}

void take_frame_away(const struct borrowed *borrowed) {
    if (borrowed->in_scratch) /* its content need not be restored */
        pass_scratch(borrowed->target, (uint64_t)borrowed->stopped.threads[0].tid, 0);
    else
        write_place(borrowed, borrowed->covered);
}

/* SPDX-License-Identifier: MIT */
/*
 * lay.c: where the way back of a borrowed thread stands: in the arena's scratch, or on its stack.
 *
 * The scratch has room for one frame, and its first word is the thread that uses it. Who is killed
 * leaves the word there, and for good: the thread that he had may still be on its way back, and
 * wait for a CPU or in the kernel, and it must find its frame. From then on threads are borrowed on
 * their own stacks, as they are before there is an arena: below the stack pointer and the red zone,
 * where a signal frame would stand.
 */

#define _GNU_SOURCE
#include "lay.h"

#include <unistd.h>

#define RED_ZONE 128 /* bytes below the stack pointer that code may use: System V ABI, 3.2.2 */

static int pass_scratch(const struct mj_target *target, uint64_t from, uint64_t to) {
    const off_t at = (off_t)target->scratch;
    uint64_t user;

    return target->scratch && pread(target->mem_fd, &user, sizeof user, at) == sizeof user &&
           user == from && pwrite(target->mem_fd, &to, sizeof to, at) == sizeof to;
}

static int move_frame(const struct borrowed *borrowed, uint8_t *read_into, const uint8_t *from) {
    const size_t size = borrowed->frame.size;
    const off_t at = (off_t)borrowed->frame.address;
    const int mem_fd = borrowed->target->mem_fd;

    return (!read_into || pread(mem_fd, read_into, size, at) == (ssize_t)size) &&
           (!from || pwrite(mem_fd, from, size, at) == (ssize_t)size);
}

int lay_frame(struct borrowed *borrowed) {
    const struct mj_target *target = borrowed->target;
    const struct stopped_thread *thread = &borrowed->stopped.threads[0];
    int status = MJ_OK;

    borrowed->in_scratch = pass_scratch(target, 0, (uint64_t)thread->tid);
    const uint64_t limit =
        borrowed->in_scratch ? target->scratch + MJ_SCRATCH_SIZE : thread->regs.rsp - RED_ZONE;

    borrowed->report->error = frame_build(target, thread, borrowed->mask, limit, &borrowed->frame);
    if (borrowed->report->error)
        status = MJ_ERRNO;
    else if (!move_frame(borrowed, borrowed->covered, borrowed->frame.bytes))
        status = MJ_NO_THREAD;
    if (status != MJ_OK && borrowed->in_scratch)
        pass_scratch(target, (uint64_t)thread->tid, 0);
    return status;
}

void take_frame_away(const struct borrowed *borrowed) {
    if (borrowed->in_scratch) /* nobody misses what is in there */
        pass_scratch(borrowed->target, (uint64_t)borrowed->stopped.threads[0].tid, 0);
    else
        move_frame(borrowed, NULL, borrowed->covered);
}

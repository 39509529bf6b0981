/* SPDX-License-Identifier: MIT */
/*
 * copies.c: the registers and stacks of threads, copied while they stand for a moment.
 *
 * Frames are found in the copies, when all run again (markerjit/unwind/walk.py). So a thread is
 * stopped for as long as it takes to copy its stack: some 30 us for 256 KiB.
 *
 * A thread in a signal handler may have left another stack, where the handler runs on an alternate
 * one. What is interrupted is found by the frame of the signal, as in stacks.c. A word that only
 * looks like such a frame costs a piece, and nothing else.
 */

#define _GNU_SOURCE
#include "stacks.h"

#include <unistd.h>

struct copying {
    const struct mj_target *target;
    int32_t tid;
    struct mj_stack *stacks;
    uint32_t *count;
    const struct mj_stack_room *room;
    uint64_t used;
    struct mj_report *report;
};

static int has_piece(const struct mj_stack *stack, uint64_t address) {
    for (uint32_t i = 0; i < stack->count; i++)
        if (address - stack->pieces[i].address < stack->pieces[i].size)
            return 1;
    return 0;
}

/* Up to the first page that cannot be read. Without a piece left, or with no byte of it, nothing.
 */
static void copy_piece(struct copying *all, struct mj_stack *stack, uint64_t address) {
    const uint64_t left = all->room->size - all->used;
    const uint64_t wanted = left < all->room->most ? left : all->room->most;

    if (stack->count == MJ_STACK_PIECES || has_piece(stack, address))
        return;
    const ssize_t got =
        pread(all->target->mem_fd, all->room->bytes + all->used, wanted, (off_t)address);

    if (got <= 0)
        return;
    stack->pieces[stack->count++] = (struct mj_stack_piece){address, (uint64_t)got, all->used};
    all->used += ((uint64_t)got + sizeof(uint64_t) - 1) & -sizeof(uint64_t);
}

static void copy_stack(struct copying *all, struct mj_stack *stack) {
    copy_piece(all, stack, stack->rsp & -sizeof(uint64_t));
    for (uint32_t i = 0; i < stack->count; i++) {
        const uint64_t *words = (const uint64_t *)(all->room->bytes + stack->pieces[i].offset);
        const uint64_t count = stack->pieces[i].size / sizeof *words;

        for (uint64_t at = 0; at + FRAME_WORDS <= count; at++) {
            const uint64_t framed = framed_stack(&words[at]);

            if (framed)
                copy_piece(all, stack, framed & -sizeof *words);
        }
    }
}

static int copy_stopped(void *arguments) {
    struct copying *all = arguments;
    const uint32_t room = *all->count;
    struct stopped stopped;
    const int status = all->tid ? stop_one(all->target, all->tid, &stopped, all->report)
                                : stop_all(all->target, &stopped, all->report);

    if (status != MJ_OK)
        return status;
    *all->count = stopped.count;
    for (uint32_t i = 0; i < stopped.count && i < room; i++) {
        const struct stopped_thread *thread = &stopped.threads[i];

        all->stacks[i] = (struct mj_stack){.tid = thread->tid,
                                           .rip = thread->regs.rip,
                                           .rsp = thread->regs.rsp,
                                           .rbp = thread->regs.rbp,
                                           .call = (int64_t)thread->regs.orig_rax};
        copy_stack(all, &all->stacks[i]);
    }
    resume_all(&stopped, all->report);
    return MJ_OK;
}

int mj_copy_stacks(const struct mj_target *target, int32_t tid, struct mj_stack *stacks,
                   uint32_t *count, const struct mj_stack_room *room, struct mj_report *report) {
    struct copying all = {.target = target,
                          .tid = tid,
                          .stacks = stacks,
                          .count = count,
                          .room = room,
                          .report = report};

    return in_own_thread(target->pid, copy_stopped, &all, report);
}

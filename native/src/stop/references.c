/* SPDX-License-Identifier: MIT */
/*
 * references.c: which parts of the arena a thread of the process may still be in, or on its way to.
 *
 * All threads stand for a moment. A thread that executes code has its address in the instruction
 * pointer. A thread that has called from the code has the address on a stack, and a thread that is
 * about to go there has it in a register. A thread that a signal has interrupted there has it in
 * the signal frame (stacks.c). A function that calls no other may have an address in its red zone
 * only. So code that none of these words leads to, and no slot, will never be executed again.
 *
 * The kernel looks at a restartable sequence that a thread has long left, whenever the thread goes
 * back to its own code after another one has run, and kills it if the descriptor makes no sense. So
 * the address of that, which stands in the thread's struct rseq, counts, too.
 *
 * A function that replaces another may leave its address anywhere: in a table of the program, or on
 * the stack of a coroutine that is not running. So all memory is searched for such addresses
 * (mj_find_mentions).
 *
 * A word that only looks like an address keeps its code, which costs room and nothing else.
 */

#include "stacks.h"

#include "../../include/markerjit/abi.h"
#include "write.h"

#define RED_ZONE 128

struct search_for {
    const struct mj_target *target;
    const struct mj_range *ranges;
    uint32_t count;
    uint8_t *referred;
    int everywhere; /* in all memory, and not only on stacks */
    struct mj_report *report;
};

static int look_for_range(void *subject, uint64_t word, struct mj_report *report) {
    const struct search_for *all = subject;
    uint32_t low = 0, high = all->count;

    (void)report;
    while (low < high) { /* the first that begins above */
        const uint32_t middle = low + (high - low) / 2;

        if (all->ranges[middle].start <= word)
            low = middle + 1;
        else
            high = middle;
    }
    if (low && word - all->ranges[low - 1].start < all->ranges[low - 1].size)
        all->referred[low - 1] = 1;
    return MJ_OK;
}

static struct window window_of(const struct search_for *all) {
    if (!all->count)
        return (struct window){0};
    const struct mj_range *last = &all->ranges[all->count - 1];

    return (struct window){all->ranges->start, last->start + last->size - all->ranges->start};
}

static void look_at_registers(struct search_for *all, const struct user_regs_struct *regs) {
    const uint64_t words[] = {regs->rip, regs->rax, regs->rbx, regs->rcx, regs->rdx, regs->rsi,
                              regs->rdi, regs->rbp, regs->rsp, regs->r8,  regs->r9,  regs->r10,
                              regs->r11, regs->r12, regs->r13, regs->r14, regs->r15};

    for (uint32_t i = 0; i < sizeof words / sizeof *words; i++)
        look_for_range(all, words[i], all->report);
}

/* Search what is not on a stack. Memory that cannot be read holds nothing of ours. */
static void look_beside_stack(struct search_for *all, const struct user_regs_struct *regs) {
    const int64_t rseq = all->target->rseq_offset;
    uint64_t words[RED_ZONE / sizeof(uint64_t)], sequence;

    if (read_bytes(all->target, (regs->rsp & -sizeof(uint64_t)) - RED_ZONE, words, RED_ZONE))
        for (uint32_t i = 0; i < sizeof words / sizeof *words; i++)
            look_for_range(all, words[i], all->report);
    if (rseq && read_bytes(all->target, regs->fs_base + (uint64_t)rseq + MJ_RSEQ_SEQUENCE,
                           &sequence, sizeof sequence))
        look_for_range(all, sequence, all->report);
}

static int find_stopped(void *arguments) {
    struct search_for *all = arguments;
    struct stopped stopped;
    const struct window window = window_of(all);
    int status = stop_all(all->target, &stopped, all->report);

    if (status != MJ_OK)
        return status;
    for (uint32_t i = 0; i < stopped.count; i++) {
        look_at_registers(all, &stopped.threads[i].regs);
        look_beside_stack(all, &stopped.threads[i].regs);
    }
    status = search_stacks(all->target, &stopped, window, look_for_range, all, all->report);
    if (status == MJ_OK && all->everywhere)
        status = search_everything(all->target, window, look_for_range, all, all->report);
    resume_all(&stopped, all->report);
    return status;
}

int mj_find_references(const struct mj_target *target, const struct mj_range *ranges,
                       uint32_t count, uint8_t *referred, struct mj_report *report) {
    struct search_for all = {target, ranges, count, referred, 0, report};

    return in_own_thread(target->pid, find_stopped, &all, report);
}

int mj_find_mentions(const struct mj_target *target, const struct mj_range *ranges, uint32_t count,
                     uint8_t *mentioned, struct mj_report *report) {
    struct search_for all = {target, ranges, count, mentioned, 1, report};

    return in_own_thread(target->pid, find_stopped, &all, report);
}

/* SPDX-License-Identifier: MIT */
/*
 * stack.c: the stack of an event as a number, for the code of a question.
 *
 *   1  say where the program stands: at a marker by the return address of its body's call, at a
 * site that no compiler prepared by what the stub names behind its call 2  walk (walk.c) 3  find
 * the number of that stack, or give it one
 *
 * A place of the table is claimed by a compare-and-swap, the stack is written where nobody else
 * writes, and its number is published by a release store (I), which pairs with (J) here and with
 * the reader, who has the number from an event. A thread that finds a claimed place passes it, so a
 * stack may have two numbers. The reader merges equal stacks.
 */

#include "runtime.h"

#define CLAIMED 1ul
#define WORD sizeof(uint64_t)

/* The words of a call below its arguments: from the return address on. */
enum { RETURN_ADDRESS = -3, SHAPE = -2 };

/* What a stub names, by `movabs $..., %rax`; 0 where it names nothing. Only code of ours is read:
   that of a program may be only for execution. */
static uint64_t named_behind(uint64_t address) {
    const uint8_t *code = (const uint8_t *)address;
    uint64_t named;

    if (code[0] != 0x48 || code[1] != 0xb8)
        return 0;
    __builtin_memcpy(&named, code + 2, sizeof named);
    return named;
}

/* 1 */
static struct mj_frame frame_of(const uint64_t *words, int is_stub, uint64_t rbp) {
    const uint64_t back = words[RETURN_ADDRESS], named = is_stub ? named_behind(back) : 0;
    const uint64_t above = (uint64_t)(words + (words[SHAPE] & ((1 << MJ_SHAPE_FLOATS) - 1)));
    const uint64_t to_stack = named >> MJ_SITE_ABOVE & 0x7fff;
    const uint64_t rsp = above + (named ? to_stack * WORD : MJ_RED_ZONE);

    if (!is_stub || !named)
        return (struct mj_frame){back, rsp, rbp, 0};
    if (named & MJ_SITE_CALLED)
        return (struct mj_frame){*(const uint64_t *)rsp, rsp + WORD, rbp, 0};
    return (struct mj_frame){named & ((1ul << MJ_SITE_ABOVE) - 1), rsp, rbp, 1};
}

/* Put a stack where it stays; 0 where there is no room. Its first word is 0 until all of it is
   there. */
static uint64_t put(struct mj_stacks *stacks, uint64_t *log, const uint64_t *stack,
                    uint32_t words) {
    const uint64_t asked = stacks->words_room,
                   room = asked < MJ_STACK_WORDS ? asked : MJ_STACK_WORDS;

    if (__atomic_load_n(&stacks->words_used, __ATOMIC_RELAXED) + words > room)
        return 0;
    const uint64_t number = __atomic_fetch_add(&stacks->words_used, words, __ATOMIC_RELAXED);

    if (number < 2 || number + words > room)
        return 0;
    for (uint32_t at = 1; at < words; at++)
        log[number + at] = stack[at];
    __atomic_store_n(&log[number], stack[0], __ATOMIC_RELEASE);
    return number;
}

/* 3 */
static uint64_t number_of(struct mj_stacks *stacks, const uint64_t *stack, uint32_t words,
                          uint64_t hash) {
    uint64_t *places = (uint64_t *)((char *)stacks + MJ_STACKS_PLACES);
    uint64_t *log = (uint64_t *)((char *)stacks + MJ_STACKS_WORDS);
    const uint64_t tag = hash >> 32;
    const uint64_t mask = stacks->places_mask & (MJ_STACK_PLACES - 1);

    for (uint64_t tries = 0; tries < MJ_STACK_TRIES && tries <= mask; tries++) {
        uint64_t *place = &places[(hash + tries) & mask];
        uint64_t state = __atomic_load_n(place, __ATOMIC_ACQUIRE); /* (J) */

        if (!state && mj_alive() &&
            __atomic_compare_exchange_n(place, &state, CLAIMED, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_ACQUIRE)) {
            const uint64_t number = put(stacks, log, stack, words);

            __atomic_store_n(place, number ? tag << 32 | number : 0, __ATOMIC_RELEASE); /* (I) */
            if (number)
                return number;
            break;
        }
        const uint64_t number = (uint32_t)state;

        if (state >> 32 == tag && number > CLAIMED && number + words <= MJ_STACK_WORDS &&
            mj_is_same(log + number, stack, words))
            return number;
    }
    __atomic_fetch_add(&stacks->lost, 1, __ATOMIC_RELAXED);
    return 0;
}

uint64_t mj_stack(uint64_t depth, const uint64_t *words, uint64_t is_stub, uint64_t rbp) {
    struct mj_stacks *stacks = (struct mj_stacks *)mj_control()->stacks;
    const uint32_t most = depth - 1 < MJ_MAX_STACK_DEPTH ? (uint32_t)depth : MJ_MAX_STACK_DEPTH;
    uint64_t stack[1 + most];
    uint64_t hash;

    if (!stacks || !mj_alive())
        return 0;
    const struct mj_frame frame = frame_of(words, is_stub != 0, rbp);
    const uint32_t size = mj_walk(stacks, &frame, stack, most, &hash); /* 2 */

    return size && mj_alive() ? number_of(stacks, stack, size, hash) : 0;
}

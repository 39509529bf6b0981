/* SPDX-License-Identifier: MIT */
/*
 * spot.h: the state of a site in code by its bytes. Reads only. The functions are inline, because a
 * switch calls them three times for each of very many sites, and only memory should limit it.
 *
 * Only one byte of a site ever changes, and the instruction that it is in has the same length
 * before and after, so a running thread executes the old instruction or the new one and nothing
 * in between. The manuals: AMD (APM volume 2, 7.6.1) allows a store inside an aligned
 * quadword to code that another processor is executing. Intel (SDM volume 3, 8.1.3) asks for a
 * serialising instruction on the other processor before it executes the new code, and calls it
 * implementation-specific otherwise. The fence (change.c) gives that after the fact; the moment
 * between store and fence rests on observation (docs/explanation, 10^8 flips on one AMD part) on
 * Intel.
 */
#ifndef MJ_LIB_SPOT_H
#define MJ_LIB_SPOT_H

#include "internal.h"

#include <string.h>

/* The offset of the deciding byte, and its two values. Kinds without one are switched by the slot
   alone (pointer) or not at all. */
struct mj_shape {
    uint8_t at, dormant, open;
};

static const struct mj_shape mj_shapes[16] = {
    [MJ_KIND_jump] = {1, 0x05, 0x00},      /* eb 05  jmp end     ->  eb 00  jmp to the next, e9 */
    [MJ_KIND_nop] = {0, 0xa9, 0xe9},       /* a9 xx  test eax, x ->  e9 xx  jmp body            */
    [MJ_KIND_immediate] = {0, 0x00, 0x01}, /* b0 00  mov al, 0   ->  b0 01  mov al, 1           */
};

static inline uint8_t *mj_deciding_byte(const struct mj_spot *spot) {
    return (uint8_t *)(uintptr_t)spot->code + mj_shapes[spot->kind].at;
}

static inline uint8_t mj_byte_for(unsigned kind, enum mj_state state) {
    return state == MJ_OPEN ? mj_shapes[kind].open : mj_shapes[kind].dormant;
}

/* eb XX e9 rel32, in a single load with the byte before; notes.c has checked that one exists. */
static inline bool mj_is_jump(const struct mj_spot *spot, uint8_t distance) {
    const uint64_t relative = (uint32_t)spot->relative;
    const uint64_t expected = relative << 32 | 0xe900eb00 | (uint64_t)distance << 16;
    uint64_t bytes;

    memcpy(&bytes, spot->code - 1, sizeof(bytes));
    return (bytes ^ expected) >> 8 == 0;
}

/* Whether the spot holds exactly the bytes of this state: the deciding byte, and the others as the
   note says. */
static inline bool mj_spot_is(const struct mj_spot *spot, enum mj_state state) {
    const uint8_t *code = spot->code;

    switch (spot->kind) { /* the kinds as constants, so that no byte is looked up */
    case MJ_KIND_jump:    /* eb 05 e9 rel32 */
        return mj_is_jump(spot, mj_byte_for(MJ_KIND_jump, state));
    case MJ_KIND_nop: /* a9 rel32 */
        return code[0] == mj_byte_for(MJ_KIND_nop, state) &&
               !memcmp(code + 1, &spot->relative, sizeof(spot->relative));
    case MJ_KIND_immediate: /* b0+r 00 */
        return code[0] == mj_byte_for(MJ_KIND_immediate, state) && (code[-1] & 0xf8) == 0xb0;
    default:
        return false;
    }
}

/* Prefetches for a walk in order: the processor predicts lines inside a page, not the next page. */
static inline void mj_fetch_ahead(const struct mj_spot *spots, size_t i, size_t count) {
    enum { AHEAD = 32 };

    if (i + AHEAD < count)
        __builtin_prefetch(spots[i + AHEAD].code);
}

#endif

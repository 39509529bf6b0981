/* SPDX-License-Identifier: MIT */
/*
 * recent.h: rules by the address of an instruction, as walks found them last. A walk that meets an
 * address again needs one load, in place of two searches.
 *
 * A rule, the code that it is of, and the address are one word, which is read and written at once:
 * no entry is ever half of one and half of another, whoever is stopped or killed, and no one waits.
 * What is in the word's place gives the address its low bits. From the low bits up it has
 *
 *      1 bit   whether the CFA is a distance from the frame pointer; else from the stack pointer
 *      3 bits  0: the caller's frame pointer is in its register; else how many words below the
 *              return address it was saved
 *     10 bits  that distance, in words; 0 (and 0 above): nothing has called this one
 *      9 bits  the number of the code, in the directory
 *      7 bits  the directory's number
 *     34 bits  the address
 *
 * A rule that does not fit is looked up each time. That of an address is put here only where the
 * next address is of the same code: so what is found for an address also says that the return
 * address, the one behind it, is in code.
 *
 * A word is of one directory, and the words are erased before its number comes again
 * (markerjit/arena/stacks.py). What is written over them is no danger: a walk reads no memory that
 * it would not read by a rule of a table.
 */
#ifndef MARKERJIT_RECENT_H
#define MARKERJIT_RECENT_H

#include "runtime.h"

#define MJ_RECENT_CODES 512
#define MJ_RECENT_DIRECTORY_BITS 7
#define MJ_RECENT_KEY 23 /* from this bit on, the directory's number and the address */
#define MJ_RECENT_MOST_WORDS 1023
#define MJ_RECENT_MOST_SAVED 8
#define MJ_RECENT_FRAME 1u

static inline uint64_t *mj_recent_place(const struct mj_stacks *stacks, uint64_t address) {
    return (uint64_t *)((char *)stacks + MJ_STACKS_RECENT) +
           (address & ((1 << MJ_STACKS_RECENT_BITS) - 1));
}

static inline uint64_t mj_recent_key(uint64_t address, uint64_t directory) {
    return address >> MJ_STACKS_RECENT_BITS << MJ_RECENT_DIRECTORY_BITS |
           (directory & ((1 << MJ_RECENT_DIRECTORY_BITS) - 1));
}

/* The word of the rule at an address; 0 where it is not there. */
static inline uint64_t mj_recent(const struct mj_stacks *stacks, uint64_t address,
                                 uint64_t directory) {
    const uint64_t word = __atomic_load_n(mj_recent_place(stacks, address), __ATOMIC_RELAXED);

    return word >> MJ_RECENT_KEY == mj_recent_key(address, directory) ? word : 0;
}

static inline uint64_t mj_recent_code(uint64_t word) { return word >> 14 & (MJ_RECENT_CODES - 1); }

/* In bytes. */
static inline uint64_t mj_recent_distance(uint64_t word) { return word >> 1 & 0x1ff8; }

/* Where the frame pointer was saved, in bytes below the CFA; the return address is in the first
   eight, which this is where it was not saved. */
static inline uint64_t mj_recent_saved(uint64_t word) { return (word & 14) * 4 + 8; }

static inline int mj_recent_is_saved(uint64_t word) { return (word & 14) != 0; }

static inline int mj_recent_is_outermost(uint64_t word) { return !(word & 0x3ff1); }

#endif

/* SPDX-License-Identifier: MIT */
/*
 * aggregate.h: what aggregates, pairs and blocks share: their memory, its words, keys, and places.
 * aggregate.c says how a thread that comes late leaves the memory of another one alone.
 */
#ifndef MARKERJIT_AGGREGATE_H
#define MARKERJIT_AGGREGATE_H

#include "runtime.h"

/* An aggregate, and what its entry said of it while it had this ticket. */
struct mj_table {
    const struct mj_control *control;
    struct mj_aggregate *aggregate;
    const struct mj_marker *marker;
    uint64_t ticket;
    uint64_t keys;
    uint64_t values;
    uint64_t stride;
    uint64_t slow;
    uint64_t tick_ns;
    uint64_t forget;
    uint32_t group_words;
    uint32_t group_mask;
    uint32_t key_words;
    uint32_t held_words;
    uint32_t mask;
    uint32_t room;
    uint32_t words;
    uint32_t slow_words;
    uint32_t slow_room;
};

/* Where words are, of CPU 0, and those of the others by the table's stride. */
struct mj_cells {
    const struct mj_table *table;
    uint64_t *words;
};

/* Parts of a key, or fields. `constants`: from where on the places of constants count. */
struct mj_parts {
    const void *constants;
    const struct mj_key_part *part;
    unsigned count;
    int careful;
};

/* Whether the aggregate that a marker's entry names is there. */
int mj_look(struct mj_table *table, const struct mj_marker *marker);

/* Around changes of the memory by locked instructions: where this thread has counted itself in, and
   counts itself out. 0: the memory must not be changed. */
struct mj_calls *mj_go_in(const struct mj_table *table);
void mj_go_out(struct mj_calls *calls);

/* Add to a word. Returns whether the sum, as one of signed numbers, has left its 64 bits. */
int mj_add(const struct mj_cells *cells, unsigned word, uint64_t value);

/* Change a word of this CPU, or after some rounds the shared one, to what `made` makes of it. */
typedef uint64_t mj_change_fn(uint64_t before, uint64_t value);
void mj_change(const struct mj_cells *cells, unsigned word, uint64_t value, mj_change_fn *made);
__attribute__((visibility("hidden"))) uint64_t mj_larger(uint64_t before, uint64_t value);

/* The number of a key, or -1: there is no room for it, or its place has no number of ours. */
int64_t mj_number_of(const struct mj_table *table, const uint64_t *key);

/* Put parts together, of the words of the call and the numbers that the code has computed, behind
   which `*numbers` is then. Returns whether the texts have room; one that has none is cut. */
int mj_put_parts(const struct mj_parts *parts, const uint64_t *words, const uint64_t **numbers,
                 uint64_t *key);

/* The number of bits of a number. */
static inline uint64_t mj_bits_of(uint64_t value) {
    return value ? 64 - (uint64_t)__builtin_clzl(value) : 0;
}

/* ---- places ----------------------------------------------------------------------------------
 * A word is the state of a place, and belongs with it to the thread that made it BUSY. */

static inline unsigned mj_kind_of(uint64_t state) { return state & MJ_PLACE_STATE; }

static inline int mj_has_tag(uint64_t state, uint64_t hash) {
    return mj_kind_of(state) == MJ_PLACE_FULL && state >> MJ_PLACE_TAG == hash >> MJ_PLACE_TAG;
}

/* The state of the same place after it was given once more, with the tag of this hash. */
static inline uint64_t mj_next_state(uint64_t hash, uint64_t state, unsigned kind) {
    const uint64_t one = MJ_PLACE_STATE + 1ul;
    const uint64_t given = (state + one) & ((1ul << MJ_PLACE_TAG) - 1) & -one;

    return (hash >> MJ_PLACE_TAG << MJ_PLACE_TAG) | given | kind;
}

/* (J) Whether the place is ours; then `*state` is what it has now. */
static inline int mj_take_place(uint64_t *word, uint64_t *state, uint64_t hash) {
    uint64_t busy = mj_next_state(hash, *state, MJ_PLACE_BUSY);

    __asm__ __volatile__(""
                         : "+r"(busy)); /* before the look: a signal handler may fork behind it */
    if (!mj_alive() ||
        !__atomic_compare_exchange_n(word, state, busy, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return 0;
    *state = busy;
    return 1;
}

/* (K) By a compare-and-swap, because a child that a signal handler has forked does it, too. */
static inline void mj_publish_place(uint64_t *word, uint64_t state, uint64_t hash, unsigned kind) {
    __atomic_compare_exchange_n(word, &state, mj_next_state(hash, state, kind), 0, __ATOMIC_RELEASE,
                                __ATOMIC_RELAXED);
}

/* heap.c: a step of an allocator. */
void mj_step(const struct mj_table *table, const struct mj_pairing *how, uint64_t now,
             const uint64_t *numbers);

/* The fine bucket of a number without a sign. */
uint64_t mj_fine_bucket(uint64_t value);

#endif

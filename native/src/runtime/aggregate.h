/* SPDX-License-Identifier: MIT */
/*
 * aggregate.h: what aggregates and pairs share: their memory, its words, and keys. aggregate.c says
 * how a thread that comes late leaves the memory of another one alone.
 */
#ifndef MARKERJIT_AGGREGATE_H
#define MARKERJIT_AGGREGATE_H

#include "runtime.h"

/* An aggregate, and what its entry said of it while it had this ticket. */
struct mj_table {
    const struct mj_control *control;
    struct mj_aggregate *aggregate;
    struct mj_calls *calls; /* where this thread counts itself in and out */
    uint64_t ticket;
    uint64_t keys;
    uint64_t values;
    uint64_t stride;
    uint64_t slow;
    uint64_t tick_ns;
    uint64_t forget;
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

/* Around changes of the memory by locked instructions. False: it must not be changed. */
int mj_go_in(const struct mj_table *table);
void mj_go_out(const struct mj_table *table);

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

/* The fine bucket of a number without a sign. */
uint64_t mj_fine_bucket(uint64_t value);

#endif

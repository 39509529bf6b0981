/* SPDX-License-Identifier: MIT */
/*
 * pair.c: the time from one marker to the next with the same key, and of a call by its return.
 *
 *   1  a begin looks for its key among the places where it may be, and replaces the begin that
 *      waits there. Otherwise it takes a place that is free, or that of a begin which has waited
 *      for so long that it is forgotten
 *   2  an end looks for its key, takes the begin away, and adds the time between the two to the
 *      words of the pairs; one that took long is put into a list, with the fields of both ends
 *
 *      A begin may have a group, such as its stack, which divides the times: its number is kept
 *      with the begin, and the words of the pair are those of the group
 *
 *   3  an end that knows how long it took, the return of a function, has no begin here: its time is
 *      added to the words of its own key, as aggregates are
 *
 * A place belongs to the thread that made its state BUSY, by a compare-and-swap (J, aggregate.h).
 * That compares the number of times that it was given, too, so what was read of the place before is
 * still so. Its owner writes, and publishes by another one (K). No thread waits: a place that is
 * BUSY is passed over, so a signal handler may interrupt at any instruction. One whose thread never
 * comes back (longjmp, death) stays BUSY, and a begin that was in it is in no number. A slow pair
 * that such a thread was writing is the last one that the reader gets: the list is read in its
 * order.
 *
 * Two threads that begin with the same key at the same time may both find no place that has it, and
 * then both wait. An end takes one of them, and the other one stays until the next end with this
 * key, for which it is a begin that was long ago. A key that only one thread has, such as `tid`,
 * has no such begins.
 *
 * Otherwise each begin is one of: the begin of a pair, replaced, forgotten, not taken (no room, a
 * key that is too long or unreadable), or waiting; each end is that of a pair, alone, or not taken.
 *
 * All of it is done by locked instructions, between mj_go_in and mj_go_out (aggregate.c).
 */

#include "aggregate.h"

#define ROUNDS 8 /* of a place that others change meanwhile */

_Static_assert(sizeof(struct mj_pairing) == 256, "markerjit/abi.py");

struct visit {
    const struct mj_table *table;
    const struct mj_pairing *how;
    struct mj_cells missed;
    const uint64_t *key;
    const uint64_t *words;   /* of the call, */
    const uint64_t *numbers; /* and those that its fields are made of */
    uint64_t *states;
    uint64_t hash;
    uint64_t now;
    uint64_t who;
    uint64_t group; /* its number + 1; 0: none */
};

static uint64_t now(const struct mj_pairing *how, const struct mj_control *control) {
    return how->time == MJ_TIME_TSC ? mj_counter() : mj_read_clock(control, how->time);
}

static uint64_t *place_at(const struct visit *visit, uint64_t at) {
    const struct mj_table *table = visit->table;
    uint64_t *places = visit->states + table->mask + 1ul;

    return places + at * (table->key_words + table->held_words);
}

static uint64_t *held_at(const struct visit *visit, uint64_t at) {
    return place_at(visit, at) + visit->table->key_words;
}

/* ---- states ---------------------------------------------------------------------------------- */

static uint64_t state_at(const struct visit *visit, uint64_t at) {
    return __atomic_load_n(&visit->states[at], __ATOMIC_ACQUIRE);
}

static int take(const struct visit *visit, uint64_t at, uint64_t *state) {
    return mj_take_place(&visit->states[at], state, visit->hash);
}

static void publish(const struct visit *visit, uint64_t at, uint64_t state, unsigned kind) {
    mj_publish_place(&visit->states[at], state, visit->hash, kind);
}

static int is_key_at(const struct visit *visit, uint64_t at) {
    return mj_is_same(place_at(visit, at), visit->key, visit->table->key_words);
}

/* A begin looks at all places where its key may be, of which most have another tag or none. */
static inline int has_key(const struct visit *visit, uint64_t at, uint64_t state) {
    return mj_has_tag(state, visit->hash) && is_key_at(visit, at);
}

/* Fields are put where they stay: a buffer for them would take 1 KiB of the program's stack. */
static void put_fields(const struct visit *visit, uint64_t *to) {
    const struct mj_pairing *how = visit->how;
    const struct mj_key_part *first = how->part + how->group_parts + how->parts;
    const struct mj_parts fields = {how, first, how->fields, how->careful};
    const uint64_t *numbers = visit->numbers;

    mj_put_parts(&fields, visit->words, &numbers, to);
}

/* ---- 1 --------------------------------------------------------------------------------------- */

/* Put a begin into a place that is ours. */
static void put_begin(const struct visit *visit, uint64_t at, uint64_t state) {
    uint64_t *key = place_at(visit, at), *held = held_at(visit, at);

    for (uint32_t word = 0; word < visit->table->key_words; word++)
        key[word] = visit->key[word];
    held[0] = visit->now;
    held[1] = visit->who;
    held[2] = visit->group;
    put_fields(visit, held + MJ_HELD_WORDS);
    publish(visit, at, state, MJ_PLACE_FULL);
}

enum choice { SAME, NOBODYS, OLD, NONE };

static int is_old(const struct visit *visit, uint64_t at) {
    const uint64_t begun = __atomic_load_n(held_at(visit, at), __ATOMIC_RELAXED);

    return (int64_t)(visit->now - begun) > 0 && visit->now - begun >= visit->table->forget;
}

/* The best place for a begin, and its state. */
static enum choice choose(const struct visit *visit, uint64_t *at, uint64_t *state) {
    enum choice best = NONE;

    for (uint64_t tries = 0; tries < MJ_PLACES_OF_KEY; tries++) {
        const uint64_t here = (visit->hash + tries) & visit->table->mask;
        const uint64_t now = state_at(visit, here);
        const unsigned kind = mj_kind_of(now);
        const enum choice choice = has_key(visit, here, now)                      ? SAME
                                   : kind == MJ_PLACE_FREE                        ? NOBODYS
                                   : kind == MJ_PLACE_FULL && is_old(visit, here) ? OLD
                                                                                  : NONE;

        if (choice < best) {
            best = choice;
            *at = here;
            *state = now;
        }
        if (best == SAME)
            break;
    }
    return best;
}

static void begin(const struct visit *visit) {
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t at = 0, state = 0;
        const enum choice choice = choose(visit, &at, &state);

        if (choice == NONE)
            break;
        if (!take(visit, at, &state))
            continue;
        put_begin(visit, at, state);
        if (choice == SAME)
            mj_add(&visit->missed, MJ_MISSED_REPLACED, 1);
        if (choice == OLD)
            mj_add(&visit->missed, MJ_MISSED_FORGOTTEN, 1);
        return;
    }
    mj_add(&visit->missed, MJ_MISSED_FULL, 1);
}

/* ---- 2 --------------------------------------------------------------------------------------- */

/* `begin` is a begin: its time, its thread and marker, its group, and `begun` words of its fields.
 */
static void put_slow(const struct visit *visit, const uint64_t *begin, uint32_t begun,
                     uint64_t took_ns) {
    const struct mj_table *table = visit->table;
    struct mj_aggregate *aggregate = table->aggregate;
    uint64_t head = __atomic_load_n(&aggregate->slow_head, __ATOMIC_RELAXED);

    do {
        const uint64_t waiting = head - __atomic_load_n(&aggregate->slow_read, __ATOMIC_ACQUIRE);

        if (waiting >= table->slow_room || !mj_alive()) {
            mj_add(&visit->missed, MJ_MISSED_UNSHOWN, 1);
            return;
        }
    } while (!__atomic_compare_exchange_n(&aggregate->slow_head, &head, head + 1, 0,
                                          __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    uint64_t *entry = (uint64_t *)(mj_code_start + table->slow) +
                      (head & (table->slow_room - 1)) * table->slow_words;

    entry[1] = begin[0];
    entry[2] = took_ns;
    entry[3] = begin[1];
    entry[4] = visit->who;
    entry[5] = begin[2];
    for (uint32_t word = 0; word < begun; word++)
        entry[MJ_SLOW_WORDS + word] = begin[MJ_HELD_WORDS + word];
    put_fields(visit, entry + MJ_SLOW_WORDS + begun);
    __atomic_store_n(&entry[0], head + 1, __ATOMIC_RELEASE); /* pairs with the reader's copy */
}

static void add_time(const struct mj_cells *cells, uint64_t took_ns) {
    const unsigned words = cells->table->words;

    mj_add(cells, words - 2, took_ns);
    mj_change(cells, words - 1, took_ns, mj_larger);
    mj_add(cells, (unsigned)mj_fine_bucket(took_ns), 1);
}

/* How many groups there is room for. */
static uint32_t groups_of(const struct mj_table *table) {
    return table->group_words ? table->group_mask / 2 + 1 : 0;
}

/* End the begin that is in a place of ours. */
static void add_pair(const struct visit *visit, const uint64_t *held) {
    const struct mj_table *table = visit->table;
    const uint64_t group = held[2] <= groups_of(table) ? held[2] : 0; /* whatever stands there */
    struct mj_cells cells = {table, visit->missed.words + MJ_MISSED + group * table->words};
    uint64_t end = visit->now;

    /* A begin of another thread that came between our clock and our look: the time is that of now.
     */
    if ((int64_t)(end - held[0]) < 0)
        end = now(visit->how, table->control);
    const uint64_t ticks = (int64_t)(end - held[0]) < 0 ? 0 : end - held[0];
    const uint64_t took_ns = (uint64_t)((unsigned __int128)ticks * table->tick_ns >> 32);

    add_time(&cells, took_ns);
    if (table->slow_room && took_ns >= visit->how->slower_ns)
        put_slow(visit, held, table->held_words - MJ_HELD_WORDS, took_ns);
}

static void end(const struct visit *visit) {
    for (uint64_t tries = 0; tries < MJ_PLACES_OF_KEY; tries++) {
        const uint64_t at = (visit->hash + tries) & visit->table->mask;
        uint64_t state = state_at(visit, at);

        for (int round = 0; round < ROUNDS && has_key(visit, at, state); round++)
            if (take(visit, at, &state)) {
                add_pair(visit, held_at(visit, at));
                publish(visit, at, state, MJ_PLACE_FREE);
                return;
            }
    }
    mj_add(&visit->missed, MJ_MISSED_ALONE, 1);
}

/* ---- 3 --------------------------------------------------------------------------------------- */

static void call(const struct visit *visit, uint64_t took_ns) {
    const struct mj_table *table = visit->table;
    const int64_t number = mj_number_of(table, visit->key);
    const uint64_t here[MJ_HELD_WORDS] = {visit->now, visit->who, (uint64_t)number + 1};

    if (number < 0) {
        mj_add(&visit->missed, MJ_MISSED_FULL, 1);
        return;
    }
    const struct mj_cells cells = {table, visit->missed.words + MJ_MISSED +
                                              (uint64_t)number * table->words};

    add_time(&cells, took_ns);
    if (!table->slow_room || took_ns < visit->how->slower_ns)
        return;
    struct mj_calls *calls = mj_go_in(table);

    if (calls) {
        put_slow(visit, here, 0, took_ns);
        mj_go_out(calls);
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

/* The number of the group of a begin, + 1; 0 where it has none: there is no room for another group,
   a text of its key is too long, or a number could not be read. `*numbers` is then behind those of
   the group. */
static uint64_t group_of(const struct mj_table *table, const struct mj_pairing *how,
                         const uint64_t *words, const uint64_t **numbers, uint64_t *key) {
    const struct mj_parts parts = {how, how->part, how->group_parts, how->careful};
    const uint64_t places = table->mask + 1ul;
    const uint64_t place_words = 1ul + table->key_words + table->held_words;
    const int missing = how->group_missing_at && (*numbers)[how->group_missing_at - 1];
    struct mj_table groups = *table;

    if (!mj_put_parts(&parts, words, numbers, key) || missing)
        return 0;
    groups.keys += sizeof(uint64_t) * places * place_words;
    groups.key_words = table->group_words;
    groups.mask = table->group_mask;
    groups.room = groups_of(table);
    return (uint64_t)(mj_number_of(&groups, key) + 1);
}

/* Whether places and slow pairs have room for what such a marker writes: its entry may name an
   aggregate that was made for others. */
static int is_sound(const struct mj_table *table, const struct mj_pairing *how) {
    const uint64_t fields = how->field_words, held = table->held_words;
    const uint64_t begun = how->ends ? 0 : fields, ended = how->ends ? fields : 0;
    const uint64_t least = how->took_at ? 0 : MJ_HELD_WORDS;

    return how->key_words == table->key_words && how->key_words <= MJ_MAX_KEY_WORDS &&
           (!how->group_parts || how->group_words == table->group_words) &&
           how->group_words <= MJ_MAX_KEY_WORDS && fields <= MJ_MAX_FIELD_WORDS &&
           held >= least + begun &&
           held <= (how->took_at ? 0 : MJ_HELD_WORDS + MJ_MAX_FIELD_WORDS) &&
           (!table->slow_room || table->slow_words >= MJ_SLOW_WORDS + held - least + ended) &&
           table->words >= MJ_MIDDLE_FINE + 2;
}

void mj_pair(const struct mj_pairing *how, const uint64_t *words, const uint64_t *numbers) {
    const struct mj_control *control = mj_control();
    const uint64_t time = now(how, control);
    const struct mj_marker *marker = (const struct mj_marker *)how->marker;
    const struct mj_parts parts = {how, how->part + how->group_parts, how->parts, how->careful};
    const int missing = how->missing_at && numbers[how->missing_at - 1];
    const uint64_t took_ns = how->took_at ? numbers[how->took_at - 1] : 0;
    uint64_t key[MJ_MAX_KEY_WORDS];
    struct mj_table table;

    if (!mj_look(&table, marker))
        return;
    if (how->step) {
        mj_step(&table, how, time, numbers);
        return;
    }
    if (!is_sound(&table, how))
        return;
    struct visit visit = {
        .table = &table,
        .how = how,
        .missed = {&table, (uint64_t *)(mj_code_start + table.values)},
        .key = key,
        .words = words,
        .numbers = 0, /* all are named, or the compiler clears the whole of it before, slowly */
        .states = (uint64_t *)(mj_code_start + table.keys),
        .hash = 0,
        .now = time,
        .who = (uint64_t)mj_id(control, marker) << 32 | mj_tid(control),
        .group = 0,
    };

    if (missing) {
        mj_add(&visit.missed, how->ends ? MJ_MISSED_END_UNREADABLE : MJ_MISSED_UNREADABLE, 1);
        return;
    }
    if (how->group_parts)
        visit.group = group_of(&table, how, words, &numbers, key);
    const int fits = mj_put_parts(&parts, words, &numbers, key);

    if (!fits) {
        mj_add(&visit.missed, how->ends ? MJ_MISSED_END_LONG : MJ_MISSED_LONG, 1);
        return;
    }
    visit.numbers = numbers;
    if (how->took_at) {
        call(&visit, took_ns);
        return;
    }
    visit.hash = mj_hash(key, how->key_words);
    struct mj_calls *calls = mj_go_in(&table);

    if (!calls)
        return;
    if (how->ends)
        end(&visit);
    else
        begin(&visit);
    mj_go_out(calls);
}

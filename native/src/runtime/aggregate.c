/* SPDX-License-Identifier: MIT */
/*
 * aggregate.c: the values that a marker adds up by key instead of recording events.
 *
 *   1  look whether the aggregate is still there: the one that the marker's entry names, by its
 *      ticket. A thread may come here late, when the reader has ended and the memory is another's
 *   2  put the key together: numbers, which the code before this has computed, and texts
 *   3  find its number, or give it one: `enter`
 *   4  change the words of that number, those of this CPU in a restartable sequence (restart.S),
 *      otherwise those that all CPUs share, by locked instructions. Each looks at the ticket again
 *
 * The memory is given to another aggregate only when no thread can change it any more. A
 * restartable sequence that has seen the ticket is over when all threads were stopped. A thread
 * that uses locked instructions counts itself in before it looks at the ticket (G), and out when it
 * has changed the memory. The reader takes the ticket away, stops all threads, and looks at these
 * counts (H).
 *
 * An event that cannot be added is counted, by what was in the way (MJ_MISSED_...), so that the sum
 * over all keys and these is the number of events. Every word is changed on its own: a thread that
 * dies in between leaves the count of an event without its value, or the other way round.
 *
 * A key is claimed by a compare-and-swap, written, and published by a release store (E), which
 * pairs with (F) here and with the reader's copy. One that is claimed and never published, because
 * a signal handler left by longjmp, is passed over. A key that two threads enter at once may have
 * two numbers. The reader adds up by key.
 */

#include "aggregate.h"

#define CLAIMED 1ul
#define FIRST 2u /* the lower half of the state of a key with the number 0 */
#define ROOM_OF_TEXT (sizeof(struct mj_text) + MJ_MAX_ASKED + 2 * sizeof(uint64_t))
#define NULL_TEXT (~0ul)
#define ROUNDS 4 /* of a change to a word that another thread of this CPU changes */
#define SIGN (1ul << 63)

_Static_assert(sizeof(struct mj_aggregate) == MJ_AGGREGATE_SIZE, "aggregate");
_Static_assert(sizeof(struct mj_aggregation) == 96, "markerjit/abi.py");
_Static_assert(sizeof(struct mj_control) <= MJ_PAGE, "the control block has a page");
_Static_assert(__builtin_offsetof(struct mj_control, cell_sequences) == MJ_CONTROL_CELL_SEQUENCES,
               "restart.S");

struct key {
    uint64_t state;
    uint64_t words[];
};

static int is_there(const struct mj_aggregate *aggregate, uint64_t ticket) {
    return *(const volatile uint64_t *)&aggregate->ticket == ticket;
}

static struct mj_aggregate *aggregate_with(const struct mj_control *control, uint64_t ticket) {
    return (struct mj_aggregate *)mj_part(control, MJ_PART_AGGREGATES) + ticket % MJ_AGGREGATES;
}

/* A thread that was held up may find the entry of another aggregate, or half of it. So everything
   is read between two looks at the ticket, which is written first when an aggregate ends, and last
   when one is made. */
int mj_look(struct mj_table *table, const struct mj_marker *marker) {
    const struct mj_control *control = mj_control();
    const uint64_t ticket = *(const volatile uint64_t *)&marker->aggregate;
    struct mj_aggregate *aggregate = aggregate_with(control, ticket);

    if (!ticket || !is_there(aggregate, ticket))
        return 0;
    __asm__ __volatile__("" : : : "memory");
    *table = (struct mj_table){
        .control = control,
        .aggregate = aggregate,
        .marker = marker,
        .ticket = ticket,
        .keys = aggregate->keys,
        .values = aggregate->values,
        .stride = aggregate->stride,
        .slow = aggregate->slow,
        .tick_ns = aggregate->tick_ns,
        .forget = aggregate->forget,
        .group_words = aggregate->group_words,
        .group_mask = aggregate->group_mask,
        .key_words = aggregate->key_words,
        .held_words = aggregate->held_words,
        .mask = aggregate->mask,
        .room = aggregate->room,
        .words = aggregate->words,
        .slow_words = aggregate->slow_words,
        .slow_room = aggregate->slow_room,
    };
    __asm__ __volatile__("" : : : "memory");
    return is_there(aggregate, ticket) && mj_alive();
}

/* (G) The count is a locked instruction, so the ticket is read behind it. */
struct mj_calls *mj_go_in(const struct mj_table *table) {
    const struct mj_control *control = table->control;
    const uint64_t row = (uint64_t)control->cpus + mj_cpu(control);
    struct mj_calls *calls = (struct mj_calls *)mj_part(control, MJ_PART_CALLS) +
                             row * control->parts[MJ_PART_MARKERS].count +
                             mj_id(control, table->marker);

    if (!mj_alive())
        return 0;
    __atomic_fetch_add(&calls->entered, 1, __ATOMIC_SEQ_CST);
    if (is_there(table->aggregate, table->ticket))
        return calls;
    mj_go_out(calls);
    return 0;
}

/* A child that a signal handler has forked meanwhile leaves that to its parent. */
void mj_go_out(struct mj_calls *calls) {
    if (mj_alive())
        __atomic_fetch_add(&calls->left, 1, __ATOMIC_SEQ_CST);
}

/* ---- 4 --------------------------------------------------------------------------------------- */

static uint64_t *of_ring(const struct mj_cells *cells, unsigned word, uint64_t ring) {
    return (uint64_t *)((char *)(cells->words + word) + ring * cells->table->stride);
}

/* The word that all CPUs share. */
static uint64_t *shared_word(const struct mj_cells *cells, unsigned word) {
    const struct mj_control *control = cells->table->control;

    return of_ring(cells, word, control->cpus + mj_cpu(control));
}

int mj_add(const struct mj_cells *cells, unsigned word, uint64_t value) {
    const struct mj_table *table = cells->table;
    const int done = mj_cell_add(cells->words + word, table->stride, value,
                                 &table->aggregate->ticket, table->ticket);
    struct mj_calls *calls;
    uint64_t before = 0;
    int64_t sum;

    if (done != MJ_ANOTHER)
        return done == MJ_OVER;
    calls = mj_go_in(table);
    if (!calls)
        return 0;
    if (mj_alive())
        before = __atomic_fetch_add(shared_word(cells, word), value, __ATOMIC_RELAXED);
    mj_go_out(calls);
    return __builtin_add_overflow((int64_t)before, (int64_t)value, &sum);
}

uint64_t mj_larger(uint64_t before, uint64_t value) { return before < value ? value : before; }

void mj_change(const struct mj_cells *cells, unsigned word, uint64_t value, mj_change_fn *made) {
    const struct mj_table *table = cells->table;

    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t before = *of_ring(cells, word, mj_cpu(table->control));
        const uint64_t after = made(before, value);

        if (after == before)
            return;
        const int done = mj_cell_set(cells->words + word, table->stride, after,
                                     &table->aggregate->ticket, table->ticket, before);

        if (done == MJ_DONE || done == MJ_DEAD)
            return;
        if (done == MJ_ANOTHER)
            break;
    }
    uint64_t *shared = shared_word(cells, word);
    struct mj_calls *calls = mj_go_in(table);

    if (!calls)
        return;
    uint64_t before = __atomic_load_n(shared, __ATOMIC_RELAXED);

    while (mj_alive() && !__atomic_compare_exchange_n(shared, &before, made(before, value), 0,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    mj_go_out(calls);
}

/* ---- 3 --------------------------------------------------------------------------------------- */

uint64_t mj_hash(const uint64_t *key, uint32_t words) {
    uint64_t hash = 0, factor = MJ_HASH_FACTOR;

    for (uint32_t at = 0; at < words; at++) {
        hash += key[at] * factor;
        factor *= MJ_HASH_STEP;
    }
    return __builtin_bswap64(hash);
}

int mj_is_same(const uint64_t *words, const uint64_t *key, uint32_t count) {
    uint32_t at = 0;

    while (at < count && words[at] == key[at])
        at++;
    return at == count;
}

/* Give a key a number, at a place that was free. Returns the state of the place: 0 where there is
   no room. A fork's child that was in the middle of this does what its parent does: the first one
   to publish has given the number. */
static uint64_t give_number(const struct mj_table *table, struct key *place, const uint64_t *key,
                            uint64_t tag) {
    struct mj_aggregate *aggregate = table->aggregate;
    const uint32_t words = table->key_words;
    uint64_t state = 0;

    if (__atomic_load_n(&aggregate->used, __ATOMIC_RELAXED) >= table->room || !mj_alive())
        return 0;
    if (!__atomic_compare_exchange_n(&place->state, &state, CLAIMED, 0, __ATOMIC_ACQUIRE,
                                     __ATOMIC_ACQUIRE))
        return state;
    const uint64_t number = __atomic_fetch_add(&aggregate->used, 1, __ATOMIC_RELAXED);

    if (number >= table->room) /* the place stays claimed: others have passed it */
        return 0;
    for (uint32_t at = 0; at < words; at++)
        place->words[at] = key[at];
    state = CLAIMED;
    const uint64_t published = tag << 32 | (FIRST + number);

    if (__atomic_compare_exchange_n(&place->state, &state, published, 0, __ATOMIC_RELEASE, /* (E) */
                                    __ATOMIC_ACQUIRE))
        return published;
    return state;
}

static uint64_t enter(const struct mj_table *table, struct key *place, const uint64_t *key,
                      uint64_t tag) {
    struct mj_calls *calls = mj_go_in(table);
    uint64_t state;

    if (!calls)
        return 0;
    state = give_number(table, place, key, tag);
    mj_go_out(calls);
    return state;
}

int64_t mj_number_of(const struct mj_table *table, const uint64_t *key) {
    const uint32_t words = table->key_words;
    const uint64_t hash = mj_hash(key, words), tag = hash >> 32, mask = table->mask;
    const uint64_t size = sizeof(uint64_t) * (1 + words);
    char *places = (char *)mj_code_start + table->keys;

    for (uint64_t tries = 0; tries <= mask; tries++) {
        struct key *place = (struct key *)(places + ((hash + tries) & mask) * size);
        uint64_t state = __atomic_load_n(&place->state, __ATOMIC_ACQUIRE); /* (F) */

        if (!state)
            state = enter(table, place, key, tag);
        if (!state)
            return -1;
        if (state >> 32 == tag && (uint32_t)state >= FIRST &&
            mj_is_same(place->words, key, words)) {
            const uint32_t number = (uint32_t)state - FIRST;

            return number < table->room ? (int64_t)number : -1; /* whatever was written there */
        }
    }
    return -1;
}

/* ---- 2 --------------------------------------------------------------------------------------- */

static uint64_t least(uint64_t one, uint64_t other) { return one < other ? one : other; }

/* Put a text into a key: its length, then its bytes and zeros. Returns whether it has room. */
static int put_text(const struct mj_parts *parts, const struct mj_key_part *part,
                    const uint64_t *words, const uint64_t **numbers, uint64_t *key) {
    char room[ROOM_OF_TEXT] __attribute__((aligned(8)));
    const struct mj_text *head = (const struct mj_text *)room;
    const struct mj_asked_text *text = &part->text;
    const uint64_t arg = (uint64_t)text->arg % MJ_MAX_ARGS, before = arg ? words[arg - 1] : 0;
    const uint64_t size = (part->words - 1ul) * sizeof(uint64_t);
    const int is_computed = part->kind == MJ_KEY_TEXT_AT;
    const uint64_t from = is_computed ? *(*numbers)++ : words[arg];
    /* The program has not passed a computed address: docs/decisions/0023 */
    const int careful = is_computed || parts->careful;
    const uint64_t limit = least(text->limit, MJ_MAX_ASKED);

    mj_put_text(mj_control(), careful, room, from, text->op, before, limit);
    const int missing = head->state == MJ_TEXT_NULL || head->state == MJ_TEXT_UNREADABLE;
    const uint64_t length = missing ? 0 : head->length;
    const uint64_t high = least(text->high, length), low = least(text->low, high);
    const uint64_t bytes = least(high - low, size);
    const char *content = room + sizeof *head + low;
    char *to = (char *)(key + 1);

    key[0] = missing ? NULL_TEXT : bytes;
    for (uint64_t word = 1; word < part->words; word++)
        key[word] = 0;
    for (uint64_t at = 0; at < bytes; at++)
        to[at] = content[at];
    return high - low <= size && !(head->state == MJ_TEXT_CUT && text->high > length);
}

int mj_put_parts(const struct mj_parts *parts, const uint64_t *words, const uint64_t **numbers,
                 uint64_t *key) {
    int fits = 1;

    for (unsigned at = 0; at < parts->count; at++) {
        const struct mj_key_part *part = &parts->part[at];
        const uint64_t *constant =
            (const uint64_t *)((const char *)parts->constants + part->constant);

        switch (part->kind) {
        case MJ_KEY_NUMBER:
            *key = *(*numbers)++;
            break;
        case MJ_KEY_CONSTANT:
            for (unsigned word = 0; word < part->words; word++)
                key[word] = constant[word];
            break;
        default:
            fits &= put_text(parts, part, words, numbers, key);
        }
        key += part->words;
    }
    return fits;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The bucket of a number without a sign: those of one power of two are MJ_PARTS_OF_OCTAVE, all
   equally wide. markerjit/questions/buckets.py has the same. */
uint64_t mj_fine_bucket(uint64_t value) {
    const uint64_t bits = mj_bits_of(value);

    if (bits <= MJ_PARTS_BITS + 1)
        return value;
    const uint64_t shift = bits - (MJ_PARTS_BITS + 1);

    return (shift << MJ_PARTS_BITS) + (value >> shift);
}

/* The same of a double without its sign, which is no NaN: by its exponent, and for fine buckets the
   upper bits of its fraction. 0 for what is below 2 ** -MJ_EXPONENTS_BELOW; what is larger than all
   others, infinity among it, has the last one. */
static uint64_t float_bucket(uint64_t bits, unsigned fraction_bits) {
    const uint64_t base = (uint64_t)(1023 - MJ_EXPONENTS_BELOW) << fraction_bits;
    const uint64_t last =
        ((uint64_t)(MJ_EXPONENTS_ABOVE + MJ_EXPONENTS_BELOW) << fraction_bits) + 1;
    const uint64_t at = bits >> (52 - fraction_bits);

    return at < base ? 0 : least(at - base + 1, last);
}

static uint64_t bucket_of(const struct mj_aggregation *how, uint64_t value) {
    const int fine = how->does & MJ_DOES_QUANTILES;
    const int negative = how->value != MJ_VALUE_UNSIGNED && value >> 63;
    uint64_t at, middle;

    if (how->value == MJ_VALUE_FLOAT) {
        at = float_bucket(value & ~SIGN, fine ? MJ_PARTS_BITS : 0);
        middle = fine ? MJ_MIDDLE_FINE_FLOAT : MJ_MIDDLE_FLOAT;
    } else {
        const uint64_t size = negative ? -value : value;

        at = fine ? mj_fine_bucket(size) : mj_bits_of(size);
        middle = fine ? MJ_MIDDLE_FINE : MJ_MIDDLE;
        if (how->value == MJ_VALUE_UNSIGNED)
            return at;
    }
    return negative ? middle - at : middle + at;
}

static int is_nan(const struct mj_aggregation *how, uint64_t value) {
    return how->value == MJ_VALUE_FLOAT && (value & ~SIGN) > 0x7fful << 52;
}

/* A word that is larger where the value is. */
static uint64_t in_order(const struct mj_aggregation *how, uint64_t value) {
    if (how->value == MJ_VALUE_UNSIGNED)
        return value;
    return how->value == MJ_VALUE_FLOAT && value >> 63 ? ~value : value ^ SIGN;
}

static void add_to_sum(const struct mj_aggregation *how, const struct mj_cells *cells,
                       unsigned word, uint64_t value) {
    if (how->value == MJ_VALUE_FLOAT) {
        mj_change(cells, word, value, mj_float_sum);
        return;
    }
    const int negative = value >> 63;
    int64_t beyond = mj_add(cells, word, value) ? (negative ? -1 : 1) : 0;

    if (how->value == MJ_VALUE_UNSIGNED && negative) /* it was added as 2 ** 64 less */
        beyond++;
    if (beyond)
        mj_add(cells, word + 1, (uint64_t)beyond);
}

static void add_value(const struct mj_aggregation *how, const struct mj_cells *cells,
                      uint64_t value) {
    unsigned word = 1;

    if (how->does & (MJ_DOES_HIST | MJ_DOES_QUANTILES)) {
        const uint64_t bucket = bucket_of(how, value);

        if (bucket < cells->table->words)
            mj_add(cells, (unsigned)bucket, 1);
        return;
    }
    if (how->does & MJ_DOES_SUM) {
        add_to_sum(how, cells, word, value);
        word += 2;
    }
    if (how->does & MJ_DOES_MIN)
        mj_change(cells, word++, ~in_order(how, value), mj_larger);
    if (how->does & MJ_DOES_MAX)
        mj_change(cells, word, in_order(how, value), mj_larger);
    mj_add(cells, 0, 1);
}

void mj_aggregate(const struct mj_aggregation *how, const uint64_t *words,
                  const uint64_t *numbers) {
    const struct mj_parts parts = {how, how->part, how->parts, how->careful};
    const uint64_t *rest = numbers;
    uint64_t key[MJ_MAX_KEY_WORDS];
    struct mj_table table;

    if (!mj_look(&table, (const struct mj_marker *)how->marker)) /* 1 */
        return;
    if (how->key_words != table.key_words || how->key_words > MJ_MAX_KEY_WORDS)
        return;
    struct mj_cells cells = {&table, (uint64_t *)(mj_code_start + table.values)};
    const int fits = mj_put_parts(&parts, words, &rest, key); /* 2 */
    const uint64_t value = how->value ? numbers[how->value_at] : 0;

    if (how->missing_at && numbers[how->missing_at - 1]) {
        mj_add(&cells, MJ_MISSED_UNREADABLE, 1);
    } else if (is_nan(how, value)) {
        mj_add(&cells, MJ_MISSED_NAN, 1);
    } else if (!fits) {
        mj_add(&cells, MJ_MISSED_LONG, 1);
    } else {
        const int64_t number = mj_number_of(&table, key); /* 3 */

        if (number < 0) {
            mj_add(&cells, MJ_MISSED_FULL, 1);
            return;
        }
        cells.words += MJ_MISSED + (uint64_t)number * table.words;
        add_value(how, &cells, value); /* 4 */
    }
}

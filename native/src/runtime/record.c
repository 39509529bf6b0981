/* SPDX-License-Identifier: MIT */
/*
 * record.c: the probes `record` and `count`.
 *
 * A record is made in four steps, and may be interrupted by a signal handler that records, or moved
 * to another CPU, between any two instructions:
 *
 *   1  take the arguments from the call and measure the strings
 *   2  reserve: move `reserved` by compare-and-swap, or count a loss when the reader is too far
 *      behind, or has gone; the time is read inside the loop, so that within a ring positions
 *      follow time
 *   3  write the fields
 *   4  commit (C): a release store of the position, pairs with (D) in ring/reader.py, which reads
 *      commit words first and the fields in a later system call
 */

#include "runtime.h"

#include <stdarg.h>

struct taken {
    uint64_t words[MJ_MAX_ARGS];  /* the argument, or the pointer to a string */
    uint64_t length[MJ_MAX_ARGS]; /* of strings, with flags */
    uint64_t size;                /* bytes of the whole record */
};

static uint64_t measure(const char *text, uint64_t limit, uint8_t op) {
    uint64_t length = 0;

    if ((uint64_t)text < MJ_PAGE)
        return MJ_STRING_NULL;
    while (length < limit && text[length])
        length++;
    /* With %.8s what stands behind the limit need not be ours to read. */
    return op == MJ_OP_STRING && length == limit && text[length] ? length | MJ_STRING_CUT : length;
}

/* An int of the caller's as the most bytes of a `%.*s`, which a NUL ends too, as in printf; a
   negative one is none at all. */
static uint64_t bounded(uint64_t word, uint64_t limit, uint64_t *cut) {
    const int32_t asked = (int32_t)word;

    *cut = asked < 0 || (uint64_t)asked > limit;
    return *cut ? limit : (uint64_t)asked;
}

static inline void take(const struct mj_marker *marker, struct taken *taken, va_list args) {
    uint64_t cut;

    taken->size = sizeof(struct mj_record);
    for (unsigned i = 0; i < marker->argc && i < MJ_MAX_ARGS; i++) {
        union {
            double real;
            uint64_t word;
        } value;

        if (marker->ops[i] == MJ_OP_FP)
            value.real = va_arg(args, double);
        else
            value.word = va_arg(args, uint64_t);
        taken->words[i] = value.word;
        taken->size += 8;
        if (marker->ops[i] == MJ_OP_STRING || marker->ops[i] == MJ_OP_PREFIX) {
            taken->length[i] = measure((const char *)value.word, marker->limits[i], marker->ops[i]);
        } else if (marker->ops[i] == MJ_OP_BYTES) {
            const uint64_t length = bounded(i ? taken->words[i - 1] : 0, marker->limits[i], &cut);

            taken->length[i] =
                measure((const char *)value.word, length, cut ? MJ_OP_STRING : MJ_OP_PREFIX);
        } else {
            continue;
        }
        taken->size += ((uint32_t)taken->length[i] + 7ul) & ~7ul;
    }
}

static inline uint64_t read_clock(void) {
    uint32_t low, high;

    __asm__ __volatile__("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

static inline uint64_t commit_word(uint64_t position, uint64_t size) {
    return position << 16 | size / 8;
}

/* Returns the record's position, or ~0 when the ring is full, or when its reader did not renew its
   lease: nobody may come for the records. Fills what cannot be used at the end of the ring. */
static inline uint64_t reserve(const struct mj_control *control, struct mj_ring *ring, char *data,
                               uint64_t size, uint64_t *time) {
    const uint64_t lease = __atomic_load_n(&control->lease, __ATOMIC_RELAXED);
    const uint64_t ring_size = control->ring_size;
    uint64_t position = __atomic_load_n(&ring->reserved, __ATOMIC_RELAXED);
    uint64_t filler;

    do {
        const uint64_t left = ring_size - (position & (ring_size - 1));
        const uint64_t consumed = __atomic_load_n(&ring->consumed, __ATOMIC_ACQUIRE);

        filler = left < size ? left : 0;
        if (position + filler + size - consumed > ring_size)
            return ~0ul;
        *time = read_clock();
        if (lease && *time > lease)
            return ~0ul;
    } while (!__atomic_compare_exchange_n(&ring->reserved, &position, position + filler + size, 0,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    if (filler) {
        struct mj_record *record = (void *)(data + (position & (ring_size - 1)));

        /* A tail of eight or sixteen bytes has room for the commit word only: the reader knows
           that no record is so short. */
        if (filler >= sizeof *record)
            record->marker = MJ_FILLER;
        __atomic_store_n(&record->commit, commit_word(position, filler), __ATOMIC_RELEASE);
    }
    return position + filler;
}

static inline void put_fields(const struct mj_marker *marker, const struct taken *taken,
                              uint64_t *payload) {
    for (unsigned i = 0; i < marker->argc && i < MJ_MAX_ARGS; i++) {
        if (marker->ops[i] < MJ_OP_STRING) {
            *payload++ = taken->words[i];
            continue;
        }
        const char *text = (const char *)taken->words[i];
        const uint32_t length = (uint32_t)taken->length[i];

        *payload++ = taken->length[i];
        for (uint32_t at = 0; at < length; at++)
            ((char *)payload)[at] = text[at];
        payload += (length + 7) / 8;
    }
}

void mj_record(struct mj_slot *slot, ...) {
    const struct mj_marker *marker = slot->data;
    const struct mj_control *control = mj_control();
    struct taken taken;
    va_list args;

    if (!mj_alive(control))
        return;
    va_start(args, slot);
    take(marker, &taken, args); /* 1 */
    va_end(args);

    const uint32_t cpu = mj_cpu(control);
    const uint64_t ring_size = control->ring_size;
    struct mj_count *count = mj_counts(control, cpu, marker->id);
    struct mj_ring *ring = mj_part(control->ring + cpu * control->ring_stride);
    char *data = (char *)ring + MJ_PAGE;
    uint64_t time;
    const uint64_t position = reserve(control, ring, data, taken.size, &time); /* 2 */

    if (position == ~0ul) {
        __atomic_fetch_add(&count->lost, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&count->hits, 1, __ATOMIC_RELAXED);
        return;
    }
    struct mj_record *record = (void *)(data + (position & (ring_size - 1)));

    record->time = time;
    record->tid = mj_tid(control);
    record->marker = marker->id;
    record->reserved = 0;
    put_fields(marker, &taken, (uint64_t *)(record + 1));                                   /* 3 */
    __atomic_store_n(&record->commit, commit_word(position, taken.size), __ATOMIC_RELEASE); /* 4 */
    __atomic_fetch_add(&count->hits, 1, __ATOMIC_RELAXED);
}

void mj_count(struct mj_slot *slot, ...) {
    const struct mj_marker *marker = slot->data;
    const struct mj_control *control = mj_control();

    if (mj_alive(control))
        __atomic_fetch_add(&mj_counts(control, mj_cpu(control), marker->id)->hits, 1,
                           __ATOMIC_RELAXED);
}

/* SPDX-License-Identifier: MIT */
/*
 * subjects.c: the same loop around what recording is compared with, and around markers.
 *
 * Which marker is on, and how it records, is the controller's business: bench/recorders.py starts
 * this program once for each way of recording.
 */
#define _GNU_SOURCE 1
#include "block.h"

#include <markerjit/marker.h>

/* 32 bytes, and a record of two ints as ours is, written by hand. */
struct stored {
    uint64_t words[4];
};
struct record {
    uint32_t head, tid;
    uint64_t time;
    int a, b;
};

/* Bytes that are stored to: in the first cache, in a core's own caches, as many as a ring has. */
enum { HOT = 1 << 14, MIDDLE = 1 << 20, RING = 1 << 22 };

static union {
    char bytes[RING];
    char apart[RING + 4096]; /* what was begun at the end is finished behind it */
} buffers[MOST_THREADS] __attribute__((aligned(4096)));

static __thread size_t stored; /* by this thread, of whatever size */

static struct {
    _Atomic unsigned long count;
    char apart[120];
} shared __attribute__((aligned(128))), own[MOST_THREADS] __attribute__((aligned(128)));

static const char short_text[] = "12345";
static const char long_text[] = "1234567890123456789012345678901234567890";
static const char longer_text[] = "1234567890123456789012345678901234567890"
                                  "1234567890123456789012345678901234567890"
                                  "1234567890123456789012345678901234567890"
                                  "1234567890123456789012345678901234567890"
                                  "1234567890123456789012345678901234567890";

__attribute__((noinline)) static void nothing(int i, int j) {
    __asm__ volatile("" : : "r"(i), "r"(j));
}

/* One behind the other, round and round; the next block goes on behind them. */
#define BUFFER                                                                                     \
    char *const bytes = buffers[own_index].bytes;                                                  \
    size_t at = stored;                                                                            \
                                                                                                   \
    stored += events
#define NEXT(type, size) (struct type *)(bytes + (at++ * sizeof(struct type) & ((size)-1)))

static inline void store(struct stored *stored, uint64_t word) {
    *stored = (struct stored){{word, word, word, word}};
    __asm__ volatile("" : "+m"(*stored));
}

static inline void record(struct record *record, int a, int b) {
    *record = (struct record){1 | sizeof *record / 8 << MJ_WORDS_SHIFT, 2, read_counter(), a, b};
    __asm__ volatile("" : "+m"(*record));
}

/* The line that will be written to next is asked for while the clock is read. */
static inline void record_ahead(struct record *next, int a, int b) {
    __asm__ volatile("prefetchw 512(%0)" : : "r"(next));
    record(next, a, b);
}

PASS(empty, )
PASS(call, nothing(i, j))
PASS_WITH(store, BUFFER, store(NEXT(stored, MIDDLE), events))
PASS_WITH(by_hand, BUFFER, record(NEXT(record, RING), i, j))
PASS_WITH(by_hand_ahead, BUFFER, record_ahead(NEXT(record, RING), i, j))
PASS_WITH(by_hand_hot, BUFFER, record(NEXT(record, HOT), i, j))
PASS(clock_gettime, uint64_t time = now_ns(); __asm__ volatile("" : : "r"(time)))
PASS(locked_own, atomic_fetch_add(&own[own_index].count, 1))
PASS(locked_shared, atomic_fetch_add(&shared.count, 1))
PASS(bench, MARK(bench, "a %d b %d", i, j))
PASS(bench_1, MARK(bench_1, "a %d", i))
PASS(bench_3, MARK(bench_3, "a %d b %d c %d", i, j, i))
PASS(bench_4, MARK(bench_4, "a %d b %d c %d d %d", i, j, i, j))
PASS(bench_8, MARK(bench_8, "a %d b %d c %d d %d e %d f %d g %d h %d", i, j, i, j, i, j, i, j))
PASS(bench_text5, MARK(bench_text5, "text %s", short_text))
PASS(bench_text40, MARK(bench_text40, "text %s", long_text))
PASS(bench_text200, MARK(bench_text200, "text %s", longer_text))

int main(void) {
    static const struct subject subjects[] = {
        SUBJECT(empty),        SUBJECT(call),          SUBJECT(rdtsc),       SUBJECT(store),
        SUBJECT(by_hand),      SUBJECT(by_hand_ahead), SUBJECT(by_hand_hot), SUBJECT(clock_gettime),
        SUBJECT(locked_own),   SUBJECT(locked_shared), SUBJECT(bench),       SUBJECT(bench_1),
        SUBJECT(bench_3),      SUBJECT(bench_4),       SUBJECT(bench_8),     SUBJECT(bench_text5),
        SUBJECT(bench_text40), SUBJECT(bench_text200), {NULL, NULL},
    };

    return serve_blocks(subjects);
}

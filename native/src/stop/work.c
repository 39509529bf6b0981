/* SPDX-License-Identifier: MIT */
/* work.c: how long this machine takes for work like that of a probe that records an event. */

#define _GNU_SOURCE
#include "stop.h"

#include <time.h>

#define TURNS 4096
#define TRIES 5
#define RING 4096 /* words */
#define RECORD 4  /* words of a record */

static uint64_t thread_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* As a stub and a recorder do: a call through a word, the time, room in a ring, a record of four
   words, and the counters that a reader looks at. */
static __attribute__((noinline)) void record(volatile uint64_t *ring, volatile uint64_t *words,
                                             uint64_t value) {
    uint32_t low, high;

    __asm__ __volatile__("rdtsc" : "=a"(low), "=d"(high) : : "memory");
    const uint64_t head = words[0], at = head & (RING - 1);

    if (head - words[1] > RING - RECORD)
        words[1] = head;
    ring[at] = value << 32 | RECORD;
    ring[at + 1] = (uint64_t)high << 32 | low;
    ring[at + 2] = value;
    ring[at + 3] = words[2];
    words[0] = head + RECORD;
    words[3]++;
}

uint64_t mj_work_ps(void) {
    static volatile uint64_t ring[RING], words[8];
    static void (*volatile call)(volatile uint64_t *, volatile uint64_t *, uint64_t) = record;
    uint64_t best = ~0ul;

    for (int tries = 0; tries < TRIES; tries++) {
        const uint64_t began = thread_ns();

        for (uint64_t turn = 0; turn < TURNS; turn++)
            call(ring, words, turn);
        const uint64_t took = thread_ns() - began;

        best = took < best ? took : best;
    }
    return best * 1000 / TURNS;
}

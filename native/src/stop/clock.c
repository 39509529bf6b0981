/* SPDX-License-Identifier: MIT */
/* clock.c: the time stamp counter beside the clock, which Python cannot read. */

#define _GNU_SOURCE
#include "threads.h"

#define TRIES 8

static uint64_t read_tsc(void) {
    uint32_t low, high;

    __asm__ __volatile__("lfence; rdtsc; lfence" : "=a"(low), "=d"(high) : : "memory");
    return (uint64_t)high << 32 | low;
}

/* Of several readings of the counter around the clock, the tightest. */
void mj_clock_pair(uint64_t *tsc, uint64_t *monotonic_ns) {
    uint64_t best = ~0ul;

    for (int i = 0; i < TRIES; i++) {
        const uint64_t before = read_tsc();
        const uint64_t now = now_ns();
        const uint64_t after = read_tsc();

        if (after - before < best) {
            best = after - before;
            *tsc = before + best / 2;
            *monotonic_ns = now;
        }
    }
}

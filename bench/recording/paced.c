/* SPDX-License-Identifier: MIT */
/*
 * paced.c: passes events at a given pace, for bench/draining.py.
 *
 *     run EVENTS TICKS      pass so many events, so many ticks of the time stamp counter apart
 *     run passed=N ns=T
 */
#define _GNU_SOURCE
#include <markerjit/marker.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

static uint64_t read_counter(void) {
    uint32_t low, high;

    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

static uint64_t now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ul + (uint64_t)now.tv_nsec;
}

static void pass(unsigned long events, uint64_t apart) {
    uint64_t next = read_counter();

    for (unsigned long i = 0; i < events; i++) {
        MARK(paced, "i %d j %d", (int)i, (int)i + 1);
        next += apart;
        while ((int64_t)(read_counter() - next) < 0)
            ;
    }
}

int main(void) {
    unsigned long events, apart;
    cpu_set_t first;

    CPU_ZERO(&first);
    CPU_SET(0, &first);
    sched_setaffinity(0, sizeof first, &first);
    printf("ready\n");
    fflush(stdout);
    while (scanf(" run %lu %lu", &events, &apart) == 2) {
        const uint64_t begun = now_ns();

        pass(events, apart);
        printf("run passed=%lu ns=%lu\n", events, (unsigned long)(now_ns() - begun));
        fflush(stdout);
    }
    return 0;
}

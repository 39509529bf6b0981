/* SPDX-License-Identifier: MIT */
/*
 * fill.c: passes events of several kinds at a pace, for markerjit bench reading.
 *
 *     run CPU KIND EVENTS TICKS   on that CPU pass EVENTS events, TICKS ticks of the time stamp
 *                                 counter apart: ints, longs, numbers (these in turn), text, mixed
 *                                 (a text and two ints in turn)
 *     run ns=T
 *
 * It ends when its input does.
 */
#define _GNU_SOURCE
#include <markerjit/marker.h>

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char letters[] = "the quick brown fox jum";

static uint64_t read_counter(void) {
    uint32_t low, high;

    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

static uint64_t now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void pass_ints(long i) { MARK(fill_ints, "a %d b %d", (int)i, (int)-i); }

static void pass_longs(long i) { MARK(fill_longs, "a %ld b %ld", i, -i); }

/* Of 0 to 22 bytes. */
static void pass_text(long i) {
    MARK(fill_text, "key %s len %ld", letters + i % (long)sizeof(letters), i);
}

static void pass_number(long i) { i % 2 ? pass_longs(i) : pass_ints(i); }

static void pass_mixed(long i) { i % 2 ? pass_longs(i) : pass_text(i); }

static const struct {
    const char *name;
    void (*pass)(long i);
} kinds[] = {
    {"ints", pass_ints},      {"longs", pass_longs}, {"text", pass_text},
    {"numbers", pass_number}, {"mixed", pass_mixed},
};

static void pass_all(void (*pass)(long i), long events, uint64_t apart) {
    uint64_t next = read_counter();

    for (long i = 0; i < events; i++) {
        pass(i);
        next += apart;
        while (apart && (int64_t)(read_counter() - next) < 0)
            ;
    }
}

static int stay_on(int cpu) {
    cpu_set_t only;

    CPU_ZERO(&only);
    CPU_SET((size_t)cpu, &only);
    return sched_setaffinity(0, sizeof(only), &only);
}

int main(void) {
    char name[16];
    long events;
    unsigned long apart;
    int cpu;

    printf("ready\n");
    fflush(stdout);
    while (scanf(" run %d %15s %ld %lu", &cpu, name, &events, &apart) == 4) {
        void (*pass)(long i) = NULL;

        for (size_t kind = 0; kind < sizeof(kinds) / sizeof(*kinds); kind++)
            if (!strcmp(name, kinds[kind].name))
                pass = kinds[kind].pass;
        if (!pass || stay_on(cpu))
            return 2;
        const uint64_t begun = now_ns();

        pass_all(pass, events, apart);
        printf("run ns=%lu\n", now_ns() - begun);
        fflush(stdout);
    }
    return feof(stdin) ? 0 : 2;
}

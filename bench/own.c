/* SPDX-License-Identifier: MIT */
/*
 * own.c: times switches of a program's own markers, for bench/own.py, which makes the sites.
 *
 * Run with a number of rounds. Prints the number of sites, then a line for each round: nanoseconds
 * of a bare membarrier, of switching on, of a membarrier, of switching off. Another thread runs in
 * user code all the time, on another CPU if there is one.
 */
#define _GNU_SOURCE
#include <markerjit/marker.h>
#include <markerjit/probes.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Made by own.py: functions that go through all sites, and a NULL. */
extern int (*const parts[])(int);

enum { PRIVATE_EXPEDITED_SYNC_CORE = 1 << 5 };

static unsigned long hits;
static volatile int stop;

static void on_own(struct mj_slot *slot, int n) {
    (void)slot;
    (void)n;
    hits++;
}

static void *run(void *unused) {
    while (!stop)
        __asm__ volatile("" : : : "memory");
    return unused;
}

/* The first or second of our CPUs. With only one, nothing is changed. */
static void stay_on(pthread_t thread, int which) {
    cpu_set_t ours, only;

    CPU_ZERO(&only);
    if (sched_getaffinity(0, sizeof(ours), &ours) || CPU_COUNT(&ours) < 2)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &ours) && which-- == 0)
            CPU_SET(cpu, &only);
    pthread_setaffinity_np(thread, sizeof(only), &only);
}

static void must(int error) {
    if (error) {
        fprintf(stderr, "own: error %d\n", -error);
        exit(1);
    }
}

static long now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

static long time_membarrier(void) {
    const long start = now_ns();

    syscall(SYS_membarrier, PRIVATE_EXPEDITED_SYNC_CORE, 0, 0);
    return now_ns() - start;
}

static long time_on(void) {
    const long start = now_ns();

    must(marker_set_probe("bench", MARKER_PROBE(on_own), MARKER_CALL));
    return now_ns() - start;
}

static long time_off(void) {
    const long start = now_ns();

    must(marker_disable_probe("bench"));
    return now_ns() - start;
}

/* How many sites there are: each is passed once. */
static unsigned long pass_all(void) {
    const unsigned long before = hits;

    for (int i = 0; parts[i]; i++)
        parts[i](i);
    return hits - before;
}

int main(int argc, char **argv) {
    pthread_t runner;

    if (argc != 2 || pthread_create(&runner, NULL, run, NULL))
        return 2;
    stay_on(runner, 1);
    stay_on(pthread_self(), 0);
    time_on(); /* the first time copies pages and reads notes */
    printf("%lu\n", pass_all());
    time_off();
    for (int round = atoi(argv[1]); round > 0; round--) {
        const long bare = time_membarrier(), on = time_on();
        const long bare_again = time_membarrier(), off = time_off();

        printf("%ld %ld %ld %ld\n", bare, on, bare_again, off);
    }
    stop = 1;
    pthread_join(runner, NULL);
    return pass_all() ? 1 : 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * truth_threads: N threads in a marker loop, and threads that are born and die.
 *
 *     truth_threads [THREADS] [--rate PER_SECOND | --spin] [--birth] [--paused]
 *
 *     truth_loop   "i %d n %lu": thread i (from 0) in its n-th turn (from 1)
 *     truth_birth  "id %lu": once in each short-lived thread, numbered from 1
 *
 * `--rate` is per thread, 1,000 where nothing is said; with `--spin` they run at full speed, which
 * takes a CPU each. Commands: counts, pause, resume, quit.
 * `pause` answers with the counts when all threads stand still; they are exact until `resume`.
 * Linked statically it is truth_static.
 */
#define _GNU_SOURCE 1
#include <markerjit/marker.h>
#include <time.h>

#include "truth.h"

enum { MAX_THREADS = 1024, SLICE_NS = 5000000 };

struct worker {
    int index;
    truth_count turns __attribute__((aligned(64)));
};

static struct worker workers[MAX_THREADS];
static truth_count births;
static struct truth_gate gate = TRUTH_GATE;
static int threads = 2;
static long period_ns = 1000000;
static bool birth;

/* In slices, so that a slow thread too comes to the gate soon. */
static void wait_for_turn(struct timespec *next) {
    next->tv_nsec += period_ns % 1000000000;
    next->tv_sec += period_ns / 1000000000 + next->tv_nsec / 1000000000;
    next->tv_nsec %= 1000000000;
    for (;;) {
        struct timespec now;

        truth_pass(&gate);
        clock_gettime(CLOCK_MONOTONIC, &now);
        long left_ns = (next->tv_sec - now.tv_sec) * 1000000000 + next->tv_nsec - now.tv_nsec;
        if (left_ns <= 0)
            return;
        nanosleep(&(struct timespec){0, left_ns < SLICE_NS ? left_ns : SLICE_NS}, NULL);
    }
}

static void *work(void *argument) {
    struct worker *self = argument;
    struct timespec next;

    clock_gettime(CLOCK_MONOTONIC, &next);
    for (unsigned long n = 1;; n++) {
        truth_pass(&gate);
        MARK(truth_loop, "i %d n %lu", self->index, n);
        truth_add(&self->turns);
        if (period_ns)
            wait_for_turn(&next);
    }
    return NULL;
}

static void *live_shortly(void *argument) {
    MARK(truth_birth, "id %lu", *(unsigned long *)argument);
    truth_add(&births);
    return NULL;
}

static void *give_birth(void *argument) {
    (void)argument;
    for (unsigned long id = 1;; id++) {
        pthread_t child;

        truth_pass(&gate);
        if (pthread_create(&child, NULL, live_shortly, &id) != 0)
            _exit(3);
        pthread_join(child, NULL);
    }
    return NULL;
}

static void say_counts(const char *word) {
    unsigned long turns = 0;

    for (int i = 0; i < threads; i++)
        turns += atomic_load(&workers[i].turns);
    truth_say("%s truth_loop=%lu truth_birth=%lu threads=%d", word, turns, atomic_load(&births),
              threads);
}

int main(int argc, char **argv) {
    char line[64];

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--rate") == 0 && i + 1 < argc)
            period_ns = 1000000000 / (atol(argv[++i]) > 0 ? atol(argv[i]) : 1);
        else if (strcmp(argv[i], "--spin") == 0)
            period_ns = 0;
        else if (strcmp(argv[i], "--birth") == 0)
            birth = true;
        else if (strcmp(argv[i], "--paused") == 0)
            atomic_store(&gate.closed, true);
        else
            threads = atoi(argv[i]);
    if (threads < 0 || threads > MAX_THREADS)
        return 2;
    for (int i = 0; i < threads; i++) {
        workers[i].index = i;
        truth_start(work, &workers[i]);
    }
    if (birth)
        truth_start(give_birth, NULL);
    if (atomic_load(&gate.closed))
        truth_close(&gate, threads + birth);
    truth_ready();
    while (truth_next(line, sizeof(line))) {
        if (truth_is(line, "pause"))
            truth_close(&gate, threads + birth);
        else if (truth_is(line, "resume"))
            truth_open(&gate);
        say_counts(line);
    }
    return 0;
}

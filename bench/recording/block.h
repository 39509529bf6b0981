/* SPDX-License-Identifier: MIT */
/*
 * block.h: passes blocks of events on command and says how long that took, for bench/recording.py.
 *
 *     run SUBJECT EVENTS THREADS
 *     run passed=N ns=A,B ticks=A,B rdtsc_ns=A,B rdtsc_ticks=A,B whole_ns=A,B rdtsc_whole_ns=A,B
 *
 * A block is cut into pieces, and a piece of bare rdtsc stands before each: on a shared machine the
 * speed changes, but seldom within microseconds. Said is the median piece, by thread, in
 * CLOCK_MONOTONIC and in the time stamp counter, and the whole block: a piece that was interrupted
 * is in that, and seldom the median.
 *
 * Each thread stays on a CPU of its own and passes some events before its clock starts; `passed`
 * counts those too. All threads begin each piece at once. Between blocks they sleep.
 */
#ifndef BLOCK_H
#define BLOCK_H

#include "../../native/targets/truth.h"

#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <time.h>

enum { MOST_THREADS = 2, PIECES = 11, WARM_UP = 2000 };

struct subject {
    const char *name;
    void (*pass)(unsigned long events);
};

/*
 * A function pass_NAME that does it once an event. The compiler believes that i and j are new each
 * time, so it moves nothing out of the loop, and all loops are the same.
 */
#define PASS(name, ...) PASS_WITH(name, , __VA_ARGS__)
#define PASS_WITH(name, before, ...)                                                               \
    __attribute__((noinline)) static void pass_##name(unsigned long events) {                      \
        before;                                                                                    \
        for (; events; events--) {                                                                 \
            int i = (int)events, j = i + 1;                                                        \
                                                                                                   \
            __asm__ volatile("" : "+r"(i), "+r"(j));                                               \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    }
#define SUBJECT(name)                                                                              \
    { #name, pass_##name }

static inline uint64_t read_counter(void) {
    uint32_t low, high;

    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

static inline uint64_t now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* What all others are compared with, so every program has it. */
PASS(rdtsc, uint64_t time = read_counter(); __asm__ volatile("" : : "r"(time)))

static struct {
    const struct subject *subject;
    unsigned long events; /* in a piece */
    int threads;
    atomic_int arrived;
    sem_t done;
} block;

struct times {
    uint64_t ns[PIECES], ticks[PIECES], whole_ns;
};

static struct worker {
    int index;
    sem_t go;
    struct times subject, rdtsc;
} workers[MOST_THREADS];

static __thread int own_index; /* of the worker that asks */

static inline void wait_for(sem_t *semaphore) {
    while (sem_wait(semaphore) < 0)
        if (errno != EINTR)
            _exit(3);
}

/* On the CPU of that number among ours. With fewer CPUs the controller asks for fewer threads. */
static inline void stay_on(int index) {
    cpu_set_t ours, only;

    CPU_ZERO(&only);
    if (sched_getaffinity(0, sizeof(ours), &ours))
        _exit(3);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &ours) && index-- == 0)
            CPU_SET(cpu, &only);
    if (CPU_COUNT(&only) && sched_setaffinity(0, sizeof(only), &only))
        _exit(3);
}

/* Returns when all threads of the block are here for the `turn`th time. */
static inline void meet(int turn) {
    atomic_fetch_add(&block.arrived, 1);
    while (atomic_load(&block.arrived) < turn * block.threads)
        __asm__ volatile("pause");
}

static inline void time_piece(void (*pass)(unsigned long events), struct times *times, int piece) {
    const uint64_t start = now_ns();
    const uint64_t first = read_counter();

    pass(block.events);
    times->ticks[piece] = read_counter() - first;
    times->ns[piece] = now_ns() - start;
    times->whole_ns += times->ns[piece];
}

static void *work(void *argument) {
    struct worker *self = argument;

    own_index = self->index;
    stay_on(self->index);
    for (;;) {
        wait_for(&self->go);
        self->subject.whole_ns = self->rdtsc.whole_ns = 0;
        block.subject->pass(WARM_UP);
        for (int piece = 0; piece < PIECES; piece++) {
            meet(2 * piece + 1);
            time_piece(pass_rdtsc, &self->rdtsc, piece);
            meet(2 * piece + 2);
            time_piece(block.subject->pass, &self->subject, piece);
        }
        sem_post(&block.done);
    }
    return NULL;
}

static inline int compare_times(const void *left, const void *right) {
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

static inline uint64_t middle(uint64_t times[PIECES]) {
    qsort(times, PIECES, sizeof(times[0]), compare_times);
    return times[PIECES / 2];
}

static inline void run_block(void) {
    char said[480];
    int used = 0;

    atomic_store(&block.arrived, 0);
    for (int i = 0; i < block.threads; i++)
        sem_post(&workers[i].go);
    for (int i = 0; i < block.threads; i++)
        wait_for(&block.done);
#define SAY(name, value)                                                                           \
    for (int i = 0; i < block.threads; i++)                                                        \
    used += snprintf(said + used, sizeof(said) - (size_t)used, "%s%lu", i ? "," : " " name "=",    \
                     (unsigned long)(value))
    SAY("ns", middle(workers[i].subject.ns));
    SAY("ticks", middle(workers[i].subject.ticks));
    SAY("rdtsc_ns", middle(workers[i].rdtsc.ns));
    SAY("rdtsc_ticks", middle(workers[i].rdtsc.ticks));
    SAY("whole_ns", workers[i].subject.whole_ns);
    SAY("rdtsc_whole_ns", workers[i].rdtsc.whole_ns);
#undef SAY
    truth_say("run passed=%lu%s", (block.events * PIECES + WARM_UP) * (unsigned)block.threads,
              said);
}

/* Answers commands until the input ends. `subjects` ends with one that has no name. */
static inline int serve_blocks(const struct subject *subjects) {
    char line[128], name[64];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sem_init(&block.done, 0, 0);
    for (int i = 0; i < MOST_THREADS; i++) {
        workers[i].index = i;
        sem_init(&workers[i].go, 0, 0);
        truth_start(work, &workers[i]);
    }
    truth_ready();
    while (truth_next(line, sizeof(line))) {
        const struct subject *subject = subjects;

        if (sscanf(line, "run %63s %lu %d", name, &block.events, &block.threads) != 3)
            name[0] = '\0';
        while (subject->name && strcmp(subject->name, name) != 0)
            subject++;
        if (!subject->name || block.threads < 1 || block.threads > MOST_THREADS) {
            truth_say("unknown %s", line);
            continue;
        }
        block.subject = subject;
        block.events /= PIECES;
        run_block();
    }
    return 0;
}

#endif

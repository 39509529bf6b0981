/* SPDX-License-Identifier: MIT */
/*
 * toggle.c: threads that go through sites and notice how long each step takes, for markerjit bench.
 *
 *     toggle THREADS busy|asleep      asleep: only one of them runs, the others wait for ever
 *
 * Answers each line of its input with one that begins with the same word:
 *
 *     go, rest        the threads run; all stand at the gate. They begin at rest
 *     clear, told     forget; the slowest step since then, how many, how many with a wrong result,
 *                     how often our own probe was hit, and how many steps took how long: `BUCKET:N`
 *     walk            at rest: go once through all sites. How many, how many wrong, how often hit
 *     on, off         switch all sites with libmarkerjit.a: error, and ns that it took; and that a
 *                     bare membarrier took just before, 0 where the program has none registered
 *
 * A step is one function with one site, and one reading of the clock. What is going on when it is
 * told counts by its age. The sites are parts made by the bench, which leave their functions in the
 * section toggle_steps; step I of a part gives n * (I + 3) + 1. It ends when its input does. As a
 * library, another caller passes the lines to toggle_answer.
 */
#define _GNU_SOURCE
#include <markerjit/marker.h>
#include <markerjit/probes.h>

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef unsigned step_fn(unsigned n);

extern step_fn *const __start_toggle_steps[] __attribute__((visibility("hidden")));
extern step_fn *const __stop_toggle_steps[] __attribute__((visibility("hidden")));

enum {
    MOST_THREADS = 4096,
    FINE = 3, /* eight buckets for each power of two: none is wider than an eighth of its start */
    BUCKETS = 64 << FINE,
    FIRST = -20,
    PRIVATE_EXPEDITED_SYNC_CORE = 1 << 5, /* linux/membarrier.h */
};

/* Of one thread. `since` is when its step began, or 0 at the gate. */
struct meter {
    _Atomic uint64_t since, slowest, steps, wrong, counts[BUCKETS];
} __attribute__((aligned(64)));

static struct meter *meters;
static int runners;
static _Atomic uint64_t hits;

/* A futex, and no condition: hundreds of threads that run would hand a mutex on one by one, each
   when its turn on a CPU comes. */
static _Atomic uint32_t closed = 1;
static atomic_int waiting;

void toggle_rank(int nice);
int toggle_start(int threads, int asleep);
int toggle_answer(const char *line, char *answer, size_t size);

static uint64_t now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static unsigned bucket(uint64_t ns) {
    if (ns < 1 << FINE)
        return (unsigned)ns;
    const unsigned power = 63 - (unsigned)__builtin_clzll(ns);

    return ((power - FINE + 1) << FINE) + (unsigned)(ns >> (power - FINE)) - (1 << FINE);
}

/* A thread that found the gate open and has not said so yet still counts as standing. It looks
   again, because a thread that has closed the gate meanwhile relies on that count. */
static void stand_at_gate(struct meter *meter) {
    atomic_store(&meter->since, 0);
    do {
        atomic_fetch_add(&waiting, 1);
        while (atomic_load(&closed))
            syscall(SYS_futex, &closed, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
        atomic_fetch_sub(&waiting, 1);
    } while (atomic_load(&closed));
}

static size_t site_count(void) { return (size_t)(__stop_toggle_steps - __start_toggle_steps); }

static bool step(size_t at, unsigned n) {
    return __start_toggle_steps[at](n) == n * (unsigned)(at % TOGGLE_PART + 3) + 1;
}

static void count(struct meter *meter, uint64_t took, bool right) {
    if (took > atomic_load_explicit(&meter->slowest, memory_order_relaxed))
        atomic_store_explicit(&meter->slowest, took, memory_order_relaxed);
    atomic_fetch_add_explicit(&meter->steps, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&meter->counts[bucket(took)], 1, memory_order_relaxed);
    if (!right)
        atomic_fetch_add_explicit(&meter->wrong, 1, memory_order_relaxed);
}

static void *go_round(void *own) {
    struct meter *meter = own;
    const size_t sites = site_count();
    size_t at = (size_t)(meter - meters) * 7919 % sites;
    uint64_t since = 0;

    for (unsigned n = 0;; n++) {
        if (atomic_load_explicit(&closed, memory_order_acquire)) {
            stand_at_gate(meter);
            since = 0;
        }
        if (!since)
            since = now_ns();
        atomic_store_explicit(&meter->since, since, memory_order_relaxed);
        const bool right = step(at, n);
        const uint64_t now = now_ns();

        count(meter, now - since, right);
        since = now;
        if (++at == sites)
            at = 0;
    }
    return own;
}

static void *sleep_for_ever(void *unused) {
    static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&own);
    for (;;)
        pthread_cond_wait(&never, &own);
    return unused;
}

static int start_one(void *(*run)(void *), void *argument) {
    pthread_attr_t small;
    pthread_t thread;

    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    const int error = pthread_create(&thread, &small, run, argument);

    pthread_attr_destroy(&small);
    return error;
}

/* Until all have left; where there are many more than CPUs, that would take seconds: then all that
   can be said is that they may run. */
static void open_gate(void) {
    const uint64_t enough = now_ns() + 20 * 1000000;

    atomic_store(&closed, 0);
    syscall(SYS_futex, &closed, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    while (atomic_load(&waiting) && now_ns() < enough)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

/* Until all stand there. A thread that had not left yet stays. */
static void close_gate(void) {
    atomic_store(&closed, 1);
    while (atomic_load(&waiting) < runners)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

/* The thread that answers lines gets priority, where that is permitted. Between hundreds of running
   threads it would wait for seconds. The thread that switches gets none. */
void toggle_rank(int nice) { setpriority(PRIO_PROCESS, (id_t)gettid(), nice); }

/* 0, or the error of the thread that could not be made. */
int toggle_start(int threads, int asleep) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* hundreds of busy threads without a master are a plague */
    runners = asleep ? 1 : threads;
    meters = aligned_alloc(64, (size_t)runners * sizeof(*meters));
    if (!meters)
        return -1;
    memset(meters, 0, (size_t)runners * sizeof(*meters));
    for (int i = 0; i < threads; i++) {
        const int error =
            i < runners ? start_one(go_round, &meters[i]) : start_one(sleep_for_ever, NULL);

        if (error)
            return error;
    }
    close_gate();
    toggle_rank(FIRST);
    return 0;
}

static void clear(void) {
    for (int i = 0; i < runners; i++) {
        atomic_store(&meters[i].slowest, 0);
        atomic_store(&meters[i].steps, 0);
        for (unsigned b = 0; b < BUCKETS; b++)
            atomic_store_explicit(&meters[i].counts[b], 0, memory_order_relaxed);
    }
}

static size_t add_counts(char *answer, size_t size, size_t used) {
    for (unsigned b = 0; b < BUCKETS && used < size; b++) {
        uint64_t sum = 0;

        for (int i = 0; i < runners; i++)
            sum += atomic_load_explicit(&meters[i].counts[b], memory_order_relaxed);
        if (sum)
            used += (size_t)snprintf(answer + used, size - used, " %u:%lu", b, sum);
    }
    return used;
}

static void tell(char *answer, size_t size) {
    uint64_t slowest = 0, steps = 0, wrong = 0;

    for (int i = 0; i < runners; i++) {
        const uint64_t finished = atomic_load(&meters[i].slowest);
        const uint64_t since = atomic_load(&meters[i].since), now = now_ns();
        const uint64_t going_on = since && now > since ? now - since : 0;
        const uint64_t most = finished > going_on ? finished : going_on;

        slowest = most > slowest ? most : slowest;
        steps += atomic_load(&meters[i].steps);
        wrong += atomic_load(&meters[i].wrong);
    }
    const int used = snprintf(answer, size, "told slowest=%lu steps=%lu wrong=%lu hits=%lu",
                              slowest, steps, wrong, atomic_load(&hits));

    add_counts(answer, size, (size_t)used);
}

static void walk(char *answer, size_t size) {
    const uint64_t before = atomic_load(&hits);
    unsigned long wrong = 0;

    for (size_t at = 0; at < site_count(); at++)
        wrong += !step(at, (unsigned)at);
    snprintf(answer, size, "walk sites=%zu wrong=%lu hits=%lu", site_count(), wrong,
             atomic_load(&hits) - before);
}

static void on_hit(struct mj_slot *slot, unsigned n) {
    (void)slot;
    (void)n;
    atomic_fetch_add_explicit(&hits, 1, memory_order_relaxed);
}

/* The least that a switch with this fence can take. */
static uint64_t time_membarrier(void) {
    const uint64_t start = now_ns();

    return syscall(SYS_membarrier, PRIVATE_EXPEDITED_SYNC_CORE, 0, 0) ? 0 : now_ns() - start;
}

static void toggle(bool on, char *answer, size_t size) {
    toggle_rank(0);
    const uint64_t fence = time_membarrier(), start = now_ns();
    const int error = on ? marker_set_probe("bench_toggle", MARKER_PROBE(on_hit), MARKER_CALL)
                         : marker_disable_probe("bench_toggle");

    const uint64_t took = now_ns() - start;

    toggle_rank(FIRST);
    snprintf(answer, size, "%s error=%d ns=%lu fence=%lu", on ? "on" : "off", -error, took, fence);
}

/* 0, or -1 for a line that is not a command. */
int toggle_answer(const char *line, char *answer, size_t size) {
    snprintf(answer, size, "%s", line);
    if (!strcmp(line, "go"))
        open_gate();
    else if (!strcmp(line, "rest"))
        close_gate();
    else if (!strcmp(line, "clear"))
        clear();
    else if (!strcmp(line, "told"))
        tell(answer, size);
    else if (!strcmp(line, "walk"))
        walk(answer, size);
    else if (!strcmp(line, "on") || !strcmp(line, "off"))
        toggle(line[1] == 'n', answer, size);
    else
        return -1;
    return 0;
}

int main(int argc, char **argv) {
    static char line[64], answer[32 << 10];
    const int threads = argc == 3 ? atoi(argv[1]) : 0;

    if (threads < 1 || threads > MOST_THREADS)
        return 2;
    const int error = toggle_start(threads, !strcmp(argv[2], "asleep"));

    if (error) {
        fprintf(stderr, "%d threads: %s\n", threads, strerror(error));
        return 1;
    }
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (toggle_answer(line, answer, sizeof(answer)))
            return 2;
        printf("%s\n", answer);
        fflush(stdout);
    }
    return 0;
}

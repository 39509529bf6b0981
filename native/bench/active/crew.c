/* SPDX-License-Identifier: MIT */
/*
 * crew.c: runs loops in several threads at once and says how long they took, for markerjit bench.
 *
 *     crew CPU,CPU,... OBJECT...    each CPU gets a thread; each object has
 *                                   `uint64_t run(uint64_t, const uint64_t *)`; `linked` stands
 *                                   for the next one that was linked into this program
 *     ready objects=N threads=T
 *     run INDEX TIMES REPEAT THREADS
 *                                   the first THREADS of them: a tenth of it to warm up, then
 *                                   REPEAT times
 *     ran NS/SHARE...               CLOCK_MONOTONIC, for each time: the mean over the threads;
 *                                   and of their cores' shares the largest one, before and after
 *                                   (core.h)
 *     truth                         how many rounds each loop has made since the start,
 *     truth N...                    in all threads, warming up included
 *     where INDEX                   the address of the object's `bench_place`, in hexadecimal
 *     where ADDRESS
 *
 * The threads of a run wait for each other before each time, busily, so that they run at once.
 * Between runs they sleep. Any process may trace this one (Yama). It ends when its input does.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "../core.h"

typedef uint64_t run_fn(uint64_t times, const uint64_t *data);

enum { MOST_REPEATS = 100, MOST_THREADS = 1024 };

struct object {
    run_fn *run;
    void *place;
    uint64_t rounds;
};

struct worker {
    uint64_t data[8];
    uint64_t took[MOST_REPEATS];
    unsigned share[MOST_REPEATS];
    pthread_t thread;
    unsigned number;
} __attribute__((aligned(128)));

static struct worker workers[MOST_THREADS];

/* A section of all objects that were linked into this program, in the order of their linking. */
extern run_fn *const __start_bench_linked[] __attribute__((weak));
extern run_fn *const __stop_bench_linked[] __attribute__((weak));

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t generation; /* of the run that is to be made */
    unsigned threads;    /* that make it */
    unsigned working;
    run_fn *run;
    uint64_t times;
    unsigned long repeat;
} job = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static atomic_ulong arrivals __attribute__((aligned(128)));

/* Returns when all threads of the run have come here `laps` times. `arrivals` is 0 at first. */
static void meet(unsigned long laps, unsigned threads) {
    atomic_fetch_add(&arrivals, 1);
    while (atomic_load_explicit(&arrivals, memory_order_acquire) < laps * threads)
        __builtin_ia32_pause();
}

static void work_once(struct worker *self) {
    job.run(job.times / 10 + 1, self->data);
    unsigned before = core_share();

    for (unsigned long i = 0; i < job.repeat; i++) {
        meet(i + 1, job.threads);
        const uint64_t start = now_ns();

        job.run(job.times, self->data);
        self->took[i] = now_ns() - start;
        const unsigned after = core_share();

        self->share[i] = before > after ? before : after;
        before = after;
    }
}

static void *work(void *argument) {
    struct worker *self = argument;
    uint64_t done = 0;

    for (;;) {
        pthread_mutex_lock(&job.lock);
        while (job.generation == done)
            pthread_cond_wait(&job.changed, &job.lock);
        done = job.generation;
        const int is_in = self->number < job.threads;

        pthread_mutex_unlock(&job.lock);
        if (!is_in)
            continue;
        work_once(self);
        pthread_mutex_lock(&job.lock);
        if (--job.working == 0)
            pthread_cond_broadcast(&job.changed);
        pthread_mutex_unlock(&job.lock);
    }
    return NULL;
}

static void start(unsigned number, int cpu) {
    struct worker *self = &workers[number];
    pthread_attr_t attributes;
    cpu_set_t only;

    self->number = number;
    for (unsigned i = 0; i < 8; i++)
        self->data[i] = (i + 1) * 0x9e3779b97f4a7c15;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    pthread_attr_init(&attributes);
    if (pthread_attr_setaffinity_np(&attributes, sizeof(only), &only) ||
        pthread_create(&self->thread, &attributes, work, self)) {
        fprintf(stderr, "crew: no thread on CPU %d\n", cpu);
        exit(2);
    }
    pthread_attr_destroy(&attributes);
}

static unsigned start_all(char *cpus) {
    unsigned threads = 0;

    for (char *cpu = strtok(cpus, ","); cpu && threads < MOST_THREADS; cpu = strtok(NULL, ","))
        start(threads++, atoi(cpu));
    return threads;
}

static void take_linked(struct object *into) {
    static run_fn *const *next = __start_bench_linked;

    if (next == __stop_bench_linked) {
        fprintf(stderr, "crew: there is no such object in it\n");
        exit(2);
    }
    into->run = *next++;
}

static void load(struct object *into, const char *path) {
    if (strcmp(path, "linked") == 0) {
        take_linked(into);
        return;
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    into->run = handle ? (run_fn *)dlsym(handle, "run") : NULL;
    if (!into->run) {
        fprintf(stderr, "crew: %s\n", dlerror());
        exit(2);
    }
    into->place = dlsym(handle, "bench_place");
}

static void run_job(struct object *object, uint64_t times, unsigned long repeat, unsigned threads) {
    pthread_mutex_lock(&job.lock);
    job.run = object->run;
    job.times = times;
    job.repeat = repeat;
    job.threads = job.working = threads;
    atomic_store(&arrivals, 0);
    job.generation++;
    pthread_cond_broadcast(&job.changed);
    while (job.working)
        pthread_cond_wait(&job.changed, &job.lock);
    pthread_mutex_unlock(&job.lock);
    object->rounds += threads * (times / 10 + 1 + repeat * times);
}

static void say_took(unsigned long repeat, unsigned threads) {
    printf("ran");
    for (unsigned long i = 0; i < repeat; i++) {
        uint64_t sum = 0;
        unsigned share = 0;

        for (unsigned number = 0; number < threads; number++) {
            const struct worker *worker = &workers[number];

            sum += worker->took[i];
            share = worker->share[i] > share ? worker->share[i] : share;
        }
        printf(" %lu/%u", sum / threads, share);
    }
    printf("\n");
}

int main(int argc, char **argv) {
    const unsigned count = argc < 3 ? 0 : (unsigned)argc - 2;
    unsigned long index, times, repeat, threads;
    char line[256];

    if (!count)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    struct object *objects = calloc(count, sizeof(*objects));

    if (!objects)
        return 2;
    for (unsigned i = 0; i < count; i++)
        load(&objects[i], argv[i + 2]);
    const unsigned started = start_all(argv[1]);

    printf("ready objects=%u threads=%u\n", count, started);
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        if (sscanf(line, "run %lu %lu %lu %lu", &index, &times, &repeat, &threads) == 4) {
            if (index >= count || repeat > MOST_REPEATS || !threads || threads > started)
                return 2;
            run_job(&objects[index], times, repeat, (unsigned)threads);
            say_took(repeat, (unsigned)threads);
        } else if (sscanf(line, "where %lu", &index) == 1 && index < count) {
            printf("where %lx\n", (unsigned long)objects[index].place);
        } else if (strcmp(line, "truth\n") == 0) {
            printf("truth");
            for (unsigned i = 0; i < count; i++)
                printf(" %lu", objects[i].rounds);
            printf("\n");
        } else {
            return 2;
        }
        fflush(stdout);
    }
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * runner.c: runs loops on command and says how long they took, for markerjit bench.
 *
 *     runner CPU OBJECT...        each object has `uint64_t run(uint64_t, const uint64_t *)`
 *     ready objects=N
 *     run INDEX TIMES REPEAT      warmed up by a tenth of it, then REPEAT times
 *     ran NS/SHARE...             CLOCK_MONOTONIC, for each time; and the core's share, the
 *                                 larger one of before and after (core.h)
 *
 * All variants of a comparison are objects of one process, on one CPU, so that they can be run in
 * any order, and nothing but their code differs. What a loop reads is empty, and what it prints
 * goes nowhere: both are ours. It ends when its input does.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "../core.h"

typedef uint64_t run_fn(uint64_t times, const uint64_t *data);

enum { MOST_REPEATS = 1000 };

static uint64_t data[8] __attribute__((aligned(64)));

static void stay_on(int cpu) {
    cpu_set_t only;

    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    if (sched_setaffinity(0, sizeof(only), &only))
        perror("runner: sched_setaffinity");
}

/* A stream over what a standard descriptor was, which is /dev/null from here on. */
static FILE *take(int descriptor, int flags, const char *mode) {
    const int kept = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int nowhere = open("/dev/null", flags | O_CLOEXEC);
    FILE *stream = kept < 0 ? NULL : fdopen(kept, mode);

    if (!stream || nowhere < 0 || dup2(nowhere, descriptor) < 0) {
        perror("runner: /dev/null");
        exit(2);
    }
    close(nowhere);
    return stream;
}

static run_fn *load(const char *path) {
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *found = object ? dlsym(object, "run") : NULL;

    if (!found) {
        fprintf(stderr, "runner: %s\n", dlerror());
        exit(2);
    }
    return (run_fn *)found;
}

int main(int argc, char **argv) {
    const int objects = argc - 2;
    uint64_t took[MOST_REPEATS];
    unsigned share[MOST_REPEATS];
    unsigned long index, times, repeat;

    if (objects < 1)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    FILE *questions = take(STDIN_FILENO, O_RDONLY, "r");
    FILE *answers = take(STDOUT_FILENO, O_WRONLY, "w");
    run_fn **run = calloc((size_t)objects, sizeof(*run));

    if (!run)
        return 2;
    for (int i = 0; i < objects; i++)
        run[i] = load(argv[i + 2]);
    for (unsigned i = 0; i < 8; i++)
        data[i] = i * 0x9e3779b97f4a7c15;
    stay_on(atoi(argv[1]));
    fprintf(answers, "ready objects=%d\n", objects);
    fflush(answers);
    while (fscanf(questions, " run %lu %lu %lu", &index, &times, &repeat) == 3) {
        if (index >= (unsigned long)objects || repeat > MOST_REPEATS)
            return 2;
        run[index](times / 10 + 1, data);
        unsigned before = core_share();

        for (unsigned long i = 0; i < repeat; i++) {
            const uint64_t start = now_ns();

            run[index](times, data);
            took[i] = now_ns() - start;
            const unsigned after = core_share();

            share[i] = before > after ? before : after;
            before = after;
        }
        fprintf(answers, "ran");
        for (unsigned long i = 0; i < repeat; i++)
            fprintf(answers, " %lu/%u", took[i], share[i]);
        fprintf(answers, "\n");
        fflush(answers);
    }
    return 0;
}

/* SPDX-License-Identifier: MIT */
/* clang-format off */
/*
 * truth_paths: things that are begun by one of three functions, and ended all by another one, and
 * that measures for itself how long each of them took.
 *
 *     truth_paths [THREADS]
 *
 *     opened  (struct thing *thing): called by by_read, and by by_write, which by_both calls, too
 *     closed  (struct thing *thing): called by settle alone
 *
 *     truth_opened  "path %d ratio %g name %s": in opened
 *     truth_closed  "path %d": in closed
 *
 * Commands: `run N`: each thread has N turns, of three things each; `tell` says of each of the three
 * paths (read, write, both) how many things there were, and the sums of the nanoseconds that they
 * took at least and at most; `quit`.
 */
/* clang-format on */
#include <markerjit/marker.h>
#include <time.h>

#include "truth.h"

#define FUNCTION __attribute__((noinline, noclone, noipa))

enum { PATHS = 3, MAX_THREADS = 8 };

struct thing {
    int path;
    float ratio;
    double share;
    const char *name;
    unsigned long from, since; /* nanoseconds: before it was begun, and behind that */
};

struct sums {
    truth_count things, least, most;
};

static struct sums sums[PATHS];
static truth_count opens, closes;
static struct truth_gate gate = TRUTH_GATE;
static _Atomic long left[MAX_THREADS];
static int threads = 1;
static const char *const names[PATHS] = {"read", "write", "both"};

static unsigned long now(void) {
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (unsigned long)time.tv_sec * 1000000000 + (unsigned long)time.tv_nsec;
}

/* The counts stand before the markers, so that both the function and its marker can be opened. */
FUNCTION void opened(struct thing *thing) {
    truth_add(&opens);
    MARK(truth_opened, "path %d ratio %g name %s", thing->path, (double)thing->ratio, thing->name);
}

FUNCTION void closed(struct thing *thing) {
    truth_add(&closes);
    MARK(truth_closed, "path %d", thing->path);
}

FUNCTION void by_read(struct thing *thing) {
    thing->from = now();
    opened(thing);
    thing->since = now();
}

FUNCTION void by_write(struct thing *thing) {
    thing->from = now();
    opened(thing);
    thing->since = now();
}

FUNCTION void by_both(struct thing *thing) {
    by_write(thing);
    __asm__ volatile("" : : : "memory"); /* no tail call */
}

FUNCTION void settle(struct thing *thing) {
    const unsigned long until = thing->since + 2000ul * (unsigned long)(thing->path + 1);

    while (now() < until)
        ;
    const unsigned long least = now() - thing->since;
    closed(thing);
    const unsigned long most = now() - thing->from;
    truth_add(&sums[thing->path].things);
    atomic_fetch_add(&sums[thing->path].least, least);
    atomic_fetch_add(&sums[thing->path].most, most);
}

FUNCTION void turn(void) {
    static void (*const begin[PATHS])(struct thing *) = {by_read, by_write, by_both};

    for (int path = 0; path < PATHS; path++) {
        struct thing thing = {path, 0.5f * (float)path, 0.25 * path, names[path], 0, 0};

        begin[path](&thing);
        settle(&thing);
    }
}

static void *work(void *argument) {
    _Atomic long *turns = argument;

    for (;;) {
        truth_pass(&gate);
        if (atomic_load(turns) > 0) {
            turn();
            atomic_fetch_sub(turns, 1);
        }
    }
    return NULL;
}

static void run(long turns) {
    for (int i = 0; i < threads; i++)
        atomic_store(&left[i], turns);
    truth_open(&gate);
    for (int i = 0; i < threads; i++)
        while (atomic_load(&left[i]) > 0)
            usleep(1000);
    truth_close(&gate, threads);
}

static void tell(void) {
    char line[400];
    size_t used = 0;

    for (int path = 0; path < PATHS; path++)
        used += (size_t)snprintf(line + used, sizeof(line) - used,
                                 " %s=%lu %s_least=%lu %s_most=%lu", names[path], sums[path].things,
                                 names[path], sums[path].least, names[path], sums[path].most);
    truth_say("tell%s", line);
}

int main(int argc, char **argv) {
    char line[300];
    const char *rest;

    if (argc > 1)
        threads = atoi(argv[1]);
    if (threads < 1 || threads > MAX_THREADS)
        return 2;
    atomic_store(&gate.closed, true);
    for (int i = 0; i < threads; i++)
        truth_start(work, &left[i]);
    truth_ready();
    while (truth_next(line, sizeof(line))) {
        if ((rest = truth_is(line, "run")))
            run(truth_number(rest, 1));
        if (truth_is(line, "tell")) {
            tell();
            continue;
        }
        line[strcspn(line, " ")] = 0;
        truth_say("%s", line);
    }
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * truth_keys: threads whose markers have keys and values, and that count for themselves by key.
 *
 *     truth_keys [THREADS] [--keys N] [--timer] [--pin]
 *
 *     truth_key    "key %d text %s value %ld half %g": the key is below N; the text is `key-` and
 * the key; half the value, as a double truth_plain  "number %u": the same key, in another signature
 *
 * With `--timer` a handler interrupts the first thread every millisecond, and executes truth_key,
 * too. With `--pin` each thread stays on a CPU, the first on the first one. Commands: `pause`
 * answers when all stand still, `resume`; `tell FILE` writes a line for each key: the key, how
 * often it was passed, and sum, least and largest of the values; `fork N` has a child pass N times,
 * which nothing counts; `null N` passes N times with a text that is NULL, and `long N` with one of
 * 300 bytes, and key -1: neither is told.
 */
#define _GNU_SOURCE 1
#include <limits.h>
#include <markerjit/marker.h>
#include <sched.h>
#include <sys/wait.h>

#include "truth_timer.h"

enum { MAX_THREADS = 16, MAX_KEYS = 16384, LONG = 300 };

struct seen {
    unsigned long count;
    long sum, least, most;
};

/* A thread, or the handler of the timer: each counts what it does itself. */
struct worker {
    unsigned long turns;
    uint32_t random;
    int cpu;
    struct seen *keys;
};

static struct worker workers[MAX_THREADS + 1], *handler = &workers[MAX_THREADS];
static char texts[MAX_KEYS][16], long_text[LONG + 1];
static struct truth_gate gate = TRUTH_GATE;
static int threads = 2, keys = 100;
static bool timer, pin;

static void pass(struct worker *self) {
    self->random = self->random * 1664525 + 1013904223;
    const uint32_t first = self->random >> 16;

    self->random = self->random * 1664525 + 1013904223;
    /* Lower keys are more frequent. */
    const int key = (int)((uint64_t)first * (self->random >> 16) * (uint64_t)keys >> 32);
    const long value = (long)key * 1000 + (long)(self->turns++ % 997) - 400;
    struct seen *seen = &self->keys[key];

    MARK(truth_key, "key %d text %s value %ld half %g", key, texts[key], value, (double)value / 2);
    MARK(truth_plain, "number %u", (unsigned)key);
    seen->count++;
    seen->sum += value;
    seen->least = value < seen->least ? value : seen->least;
    seen->most = value > seen->most ? value : seen->most;
}

static void on_timer(int number) {
    (void)number;
    pass(handler);
}

static void *work(void *argument) {
    struct worker *self = argument;
    cpu_set_t cpus;

    if (self == workers)
        truth_take_timer();
    if (pin) {
        CPU_ZERO(&cpus);
        CPU_SET(self->cpu, &cpus);
        pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
    }
    for (;;) {
        truth_pass(&gate);
        pass(self);
    }
    return NULL;
}

static void tell(const char *path) {
    FILE *file = fopen(path, "w");

    for (int key = 0; file && key < keys; key++) {
        struct seen all = {0, 0, LONG_MAX, LONG_MIN};

        for (int i = 0; i <= MAX_THREADS; i++) {
            const struct seen *seen = workers[i].keys ? &workers[i].keys[key] : NULL;

            if (!seen || !seen->count)
                continue;
            all.count += seen->count;
            all.sum += seen->sum;
            all.least = seen->least < all.least ? seen->least : all.least;
            all.most = seen->most > all.most ? seen->most : all.most;
        }
        if (all.count)
            fprintf(file, "%d %lu %ld %ld %ld\n", key, all.count, all.sum, all.least, all.most);
    }
    if (file)
        fclose(file);
}

static void start(struct worker *self, int index) {
    self->random = (uint32_t)index + 1;
    self->cpu = index % (int)sysconf(_SC_NPROCESSORS_ONLN);
    self->keys = calloc(MAX_KEYS, sizeof(*self->keys));
    if (!self->keys)
        _exit(3);
    for (int key = 0; key < MAX_KEYS; key++) {
        self->keys[key].least = LONG_MAX;
        self->keys[key].most = LONG_MIN;
    }
}

/* Not counted by anybody. */
static void pass_in_child(long times) {
    const pid_t child = fork();

    if (child == 0) {
        for (long i = 0; i < times; i++)
            pass(&workers[0]);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void pass_with(const char *text, long times) {
    for (long i = 0; i < times; i++)
        MARK(truth_key, "key %d text %s value %ld half %g", -1, text, 0L, 0.0);
}

int main(int argc, char **argv) {
    char line[300];
    const char *rest;

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--timer") == 0)
            timer = true;
        else if (strcmp(argv[i], "--pin") == 0)
            pin = true;
        else if (strcmp(argv[i], "--keys") == 0 && i + 1 < argc)
            keys = atoi(argv[++i]);
        else
            threads = atoi(argv[i]);
    if (threads < 1 || threads > MAX_THREADS || keys < 1 || keys > MAX_KEYS)
        return 2;
    for (int key = 0; key < keys; key++)
        snprintf(texts[key], sizeof(texts[key]), "key-%d", key);
    memset(long_text, 'x', LONG);
    truth_have_timer(on_timer);
    start(handler, MAX_THREADS);
    atomic_store(&gate.closed, true);
    for (int i = 0; i < threads; i++) {
        start(&workers[i], i);
        truth_start(work, &workers[i]);
    }
    truth_ready();
    while (truth_next(line, sizeof(line))) {
        if (truth_is(line, "pause"))
            truth_stand_still(&gate, threads);
        else if (truth_is(line, "resume")) {
            truth_open(&gate);
            truth_set_timer(timer);
        } else if ((rest = truth_is(line, "tell")))
            tell(rest);
        else if ((rest = truth_is(line, "fork")))
            pass_in_child(truth_number(rest, 1));
        else if ((rest = truth_is(line, "null")))
            pass_with(NULL, truth_number(rest, 1));
        else if ((rest = truth_is(line, "long")))
            pass_with(long_text, truth_number(rest, 1));
        line[strcspn(line, " ")] = 0;
        truth_say("%s", line);
    }
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * truth.h: what the truth programs share: lines in, lines out, counters, and a gate for threads.
 *
 * A truth program prints `ready pid=N` once it runs, answers every line of its standard input with
 * one line that begins with the same word (`fork` with `forked`), and ends with exit code 0 on
 * `quit` or when its input ends. Each counter is incremented by the thread that executes the
 * marker, right after it, so with the threads held at the gate it is exactly the number of times
 * that the marker was passed.
 */
#ifndef TRUTH_H
#define TRUTH_H

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef _Atomic unsigned long truth_count;

static inline void truth_add(truth_count *count) {
    atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
}

/* One whole line, in one write. */
__attribute__((format(printf, 1, 2))) static inline void truth_say(const char *format, ...) {
    char line[512];
    va_list args;

    va_start(args, format);
    size_t size = (size_t)vsnprintf(line, sizeof(line) - 1, format, args);
    va_end(args);
    if (size > sizeof(line) - 2)
        size = sizeof(line) - 2;
    line[size] = '\n';
    if (write(STDOUT_FILENO, line, size + 1) < 0)
        _exit(3);
}

static inline void truth_ready(void) { truth_say("ready pid=%d", (int)getpid()); }

/*
 * The next command; false at `quit` or the end. Read byte by byte, so that nothing is lost in a
 * buffer when the program forks or becomes another.
 */
static inline bool truth_next(char *line, size_t size) {
    size_t used = 0;

    for (;;) {
        char c;
        ssize_t got = read(STDIN_FILENO, &c, 1);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        if (c == '\n')
            break;
        if (used + 1 < size)
            line[used++] = c;
    }
    line[used] = '\0';
    return strcmp(line, "quit") != 0;
}

/* What follows the word in a command line, or NULL if it is another command. */
static inline const char *truth_is(const char *line, const char *word) {
    size_t size = strlen(word);

    if (strncmp(line, word, size) != 0 || (line[size] != ' ' && line[size] != '\0'))
        return NULL;
    return line + size + (line[size] == ' ');
}

static inline long truth_number(const char *text, long otherwise) {
    return *text ? strtol(text, NULL, 10) : otherwise;
}

/* Threads pass the gate once a turn. Closing it returns when `threads` of them stand before it. */
struct truth_gate {
    atomic_bool closed;
    pthread_mutex_t lock;
    pthread_cond_t change;
    int waiting;
};
#define TRUTH_GATE                                                                                 \
    { .lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER }

static inline void truth_pass(struct truth_gate *gate) {
    if (!atomic_load_explicit(&gate->closed, memory_order_relaxed))
        return;
    pthread_mutex_lock(&gate->lock);
    gate->waiting++;
    pthread_cond_broadcast(&gate->change);
    while (atomic_load(&gate->closed))
        pthread_cond_wait(&gate->change, &gate->lock);
    gate->waiting--;
    pthread_cond_broadcast(&gate->change);
    pthread_mutex_unlock(&gate->lock);
}

static inline void truth_close(struct truth_gate *gate, int threads) {
    pthread_mutex_lock(&gate->lock);
    atomic_store(&gate->closed, true);
    while (gate->waiting < threads)
        pthread_cond_wait(&gate->change, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

/* Returns when all have left, so that a thread is never counted in two closings. */
static inline void truth_open(struct truth_gate *gate) {
    pthread_mutex_lock(&gate->lock);
    atomic_store(&gate->closed, false);
    pthread_cond_broadcast(&gate->change);
    while (gate->waiting > 0)
        pthread_cond_wait(&gate->change, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static inline void truth_start(void *(*run)(void *), void *argument) {
    pthread_t thread;

    if (pthread_create(&thread, NULL, run, argument) != 0)
        _exit(3);
    pthread_detach(thread);
}

#endif

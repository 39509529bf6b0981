/* SPDX-License-Identifier: MIT */
/*
 * truth_alloc: allocations of the C library by known call sites, and a program that counts them.
 *
 *     truth_alloc
 *
 *     truth_take   "ptr %p size %lu": a slot of a pool of the program's own was taken
 *     truth_give   "ptr %p": it was given back
 *
 * Each function is a call site, or some of them, and counts for itself: its blocks, the bytes that
 * it asked for and those that malloc_usable_size says it got, and its blocks that are live.
 * Commands: `run N` has each function work N times; `counts` answers `NAME=BLOCKS,ASKED,GIVEN,LIVE`
 * for each; `pool N` takes and gives N slots, and keeps each tenth; `hot N` is malloc and free N
 * times in a loop in each of two threads; `drop` frees what was leaked; `layers N` has `left`, N
 * times, and `right`, twice as often, allocate 100 bytes by way of `layer`, which `right` frees
 * again; `fork` has a child allocate, which nothing counts.
 */
#define _GNU_SOURCE 1
#include <malloc.h>
#include <markerjit/marker.h>
#include <semaphore.h>
#include <stdint.h>
#include <sys/wait.h>

#include "truth.h"

#define FUNCTION __attribute__((noinline, noclone, noipa)) static void
#define USED(p) __asm__ volatile("" : "+r"(p) : : "memory")

struct seen {
    const char *name;
    unsigned long blocks, asked, given, live;
};

enum {
    PLAIN,
    ZEROED,
    LARGE,
    GROWN,
    BEGUN,
    ALIGNED,
    BOUNDED,
    PAGED,
    HANDED,
    LEAKED,
    DENIED,
    EMPTIED,
    SITES,
    SLOTS = 1000,
    SLOT_SIZE = 64
};

static struct seen sites[SITES] = {{.name = "plain"},   {.name = "zeroed"}, {.name = "large"},
                                   {.name = "grown"},   {.name = "begun"},  {.name = "aligned"},
                                   {.name = "bounded"}, {.name = "paged"},  {.name = "handed"},
                                   {.name = "leaked"},  {.name = "denied"}, {.name = "emptied"}};
static sem_t full, empty;
static void *handed_over;
static void *leaks[100000];
static unsigned long leak_count;
static char pool[SLOTS][SLOT_SIZE];

static void seen(int site, void *block, size_t asked) {
    sites[site].blocks++;
    sites[site].asked += asked;
    sites[site].given += malloc_usable_size(block);
    sites[site].live++;
}

static void end(int site, void *block) {
    sites[site].live--;
    free(block);
}

FUNCTION plain(unsigned long n) {
    void *block = malloc(1 + n % 1000);

    seen(PLAIN, block, 1 + n % 1000);
    end(PLAIN, block);
}

FUNCTION zeroed(unsigned long n) {
    void *block = calloc(n % 7 + 1, 300);

    seen(ZEROED, block, (n % 7 + 1) * 300);
    end(ZEROED, block);
}

FUNCTION large(unsigned long n) {
    void *block = calloc(1, 60000 + n % 100 * 3000);

    seen(LARGE, block, 60000 + n % 100 * 3000);
    end(LARGE, block);
}

FUNCTION grown(unsigned long n) {
    void *block = malloc(10);

    seen(GROWN, block, 10);
    for (size_t size = 5000; size < 300000; size *= 6) {
        block = realloc(block, size + n % 50);
        sites[GROWN].live--;
        seen(GROWN, block, size + n % 50);
    }
    end(GROWN, block);
}

FUNCTION begun(unsigned long n) {
    void *block = realloc(NULL, 64 + n % 64);

    seen(BEGUN, block, 64 + n % 64);
    end(BEGUN, block);
}

FUNCTION aligned(unsigned long n) {
    void *block;

    if (posix_memalign(&block, 128, 500 + n % 10) != 0)
        _exit(4);
    USED(block);
    seen(ALIGNED, block, 500 + n % 10);
    end(ALIGNED, block);
}

FUNCTION bounded(unsigned long n) {
    void *block = memalign(64, 700 + n % 10);

    seen(BOUNDED, block, 700 + n % 10);
    end(BOUNDED, block);
}

FUNCTION paged(unsigned long n) {
    void *block = aligned_alloc(4096, 4096 * (1 + n % 3));

    seen(PAGED, block, 4096 * (1 + n % 3));
    end(PAGED, block);
}

FUNCTION handed(unsigned long n) {
    void *block = malloc(96 + n % 8);

    seen(HANDED, block, 96 + n % 8);
    handed_over = block;
    sem_post(&full);
    sem_wait(&empty);
    sites[HANDED].live--;
}

FUNCTION leaked(unsigned long n) {
    if (n % 10)
        return;
    void *block = malloc(48 + n % 16);

    seen(LEAKED, block, 48 + n % 16);
    if (leak_count < sizeof(leaks) / sizeof(leaks[0]))
        leaks[leak_count++] = block;
}

FUNCTION denied(unsigned long n) {
    size_t all = SIZE_MAX / 4;
    void *block = malloc(32);

    USED(all);
    seen(DENIED, block, 32);
    if (malloc(all) || realloc(block, all + n))
        _exit(5);
    end(DENIED, block);
}

FUNCTION emptied(unsigned long n) {
    size_t none = 0;
    void *block = malloc(24 + n % 8);

    USED(none);
    seen(EMPTIED, block, 24 + n % 8);
    sites[EMPTIED].live--;
    if (realloc(block, none))
        _exit(6);
}

static void *take(void *argument) {
    for (;;) {
        while (sem_wait(&full) != 0)
            continue;
        free(handed_over);
        sem_post(&empty);
    }
    return argument;
}

__attribute__((noinline, noclone, noipa)) static void *layer(void) {
    void *block = malloc(100);

    USED(block);
    return block;
}

FUNCTION left(unsigned long n) {
    void *block = layer();

    USED(block);
    leaks[n] = block;
}

FUNCTION right(unsigned long n) {
    for (int times = 0; times < 2; times++) { /* one site, not two */
        USED(n);
        free(layer());
        USED(times);
    }
}

static void use_pool(long count) {
    static unsigned long number;

    for (long at = 0; at < count; at++, number++) {
        char *slot = pool[number % SLOTS];

        MARK(truth_take, "ptr %p size %lu", slot, (unsigned long)(number % SLOT_SIZE + 1));
        if (number % 10)
            MARK(truth_give, "ptr %p", slot);
    }
}

static void *be_hot(void *argument) {
    for (long count = *(long *)argument; count; count--) {
        void *block = malloc(40);

        USED(block);
        free(block);
    }
    return NULL;
}

static void hot(long count) {
    pthread_t threads[2];

    for (int at = 0; at < 2; at++)
        if (pthread_create(&threads[at], NULL, be_hot, &count) != 0)
            _exit(7);
    for (int at = 0; at < 2; at++)
        pthread_join(threads[at], NULL);
}

static void say_counts(void) {
    char text[600];
    size_t used = 0;

    for (int at = 0; at < SITES; at++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, " %s=%lu,%lu,%lu,%lu",
                                 sites[at].name, sites[at].blocks, sites[at].asked, sites[at].given,
                                 sites[at].live);
    truth_say("counts%s", text);
}

static void (*const all[])(unsigned long) = {plain,   zeroed, large,  grown,  begun,  aligned,
                                             bounded, paged,  handed, leaked, denied, emptied};

int main(void) {
    char line[64];
    const char *rest;
    unsigned long number = 0;

    mallopt(M_MMAP_THRESHOLD, 128 << 10); /* and so it stays */
    sem_init(&full, 0, 0);
    sem_init(&empty, 0, 0);
    truth_start(take, NULL);
    truth_ready();
    while (truth_next(line, sizeof(line))) {
        if ((rest = truth_is(line, "run"))) {
            for (long left = truth_number(rest, 1); left; left--, number++)
                for (size_t at = 0; at < sizeof(all) / sizeof(all[0]); at++)
                    all[at](number);
            truth_say("run");
        } else if (truth_is(line, "counts")) {
            say_counts();
        } else if ((rest = truth_is(line, "pool"))) {
            use_pool(truth_number(rest, 1));
            truth_say("pool");
        } else if ((rest = truth_is(line, "hot"))) {
            hot(truth_number(rest, 1));
            truth_say("hot");
        } else if ((rest = truth_is(line, "layers"))) {
            for (unsigned long left_over = (unsigned long)truth_number(rest, 1); left_over;) {
                right(--left_over);
                left(left_over);
            }
            truth_say("layers");
        } else if (truth_is(line, "drop")) {
            while (leak_count)
                end(LEAKED, leaks[--leak_count]);
            truth_say("drop");
        } else if (truth_is(line, "fork")) {
            const pid_t child = fork();

            if (child == 0) {
                for (unsigned long n = 0; n < 100; n++)
                    plain(n);
                usleep(200000);
                _exit(0);
            }
            truth_say("forked pid=%d", (int)child);
            waitpid(child, NULL, 0);
        } else {
            truth_say("unknown");
        }
    }
    return 0;
}

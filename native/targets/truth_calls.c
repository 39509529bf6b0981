/* SPDX-License-Identifier: MIT */
/*
 * truth_calls: functions that call each other in every way, and how often each was entered.
 *
 *     leaf     (long n): calls nothing; returns n + 1
 *     twice    (long n): calls `leaf` two times
 *     deep     (long n): calls itself n times
 *     even, odd (long n): call each other, n times in all
 *     handed   (long n): its last call is a jump to `leaf`
 *     catcher  (long n): calls `middle`, and `after` when that is left by longjmp
 *     middle   (long n): calls `thrower`
 *     thrower  (long n): is left by longjmp, and `middle` with it, where n is odd
 *     after    (long n): calls `leaf`
 *     inner    (long n): is called by `outer` in a thread of its own, and ends that thread
 *     slow     (long n): calls `leaf`, and returns when `release` was given
 *     spun     (long n): calls `leaf`, by threads at full speed
 *
 * Commands: `run N`: N turns of the first eleven (one thread each turn). `enter N` has another
 * thread enter `slow`; `release` lets it return. `resume` and `pause`: four threads run at full
 * speed until they stand still again (at first they do). `counts`; `quit`.
 */
#include <setjmp.h>

#include "truth.h"

#define FUNCTION __attribute__((noinline, noclone, noipa))
#define SPINNERS 4

static struct truth_counts {
    truth_count leaf, twice, deep, even, odd, handed, catcher, middle, thrower, jumped, after,
        outer, slow, spun, left_slow;
} counts;
static struct truth_gate gate = TRUTH_GATE;
static _Thread_local jmp_buf place;
static atomic_bool may_return;
static atomic_long entered, ended;

FUNCTION long leaf(long n) {
    truth_add(&counts.leaf);
    return n + 1;
}

FUNCTION long twice(long n) {
    truth_add(&counts.twice);
    return leaf(n) + leaf(n + 1);
}

FUNCTION long deep(long n) {
    truth_add(&counts.deep);
    const long below = n > 0 ? deep(n - 1) : 0;

    __asm__ volatile("" ::"r"(below));
    return below + n;
}

FUNCTION long odd(long n);

FUNCTION long even(long n) {
    truth_add(&counts.even);
    const long below = n > 0 ? odd(n - 1) : 0;

    __asm__ volatile("" ::"r"(below));
    return below + 1;
}

FUNCTION long odd(long n) {
    truth_add(&counts.odd);
    const long below = n > 0 ? even(n - 1) : 0;

    __asm__ volatile("" ::"r"(below));
    return below + 1;
}

FUNCTION long handed(long n) {
    truth_add(&counts.handed);
    return leaf(n * 3);
}

FUNCTION long thrower(long n) {
    truth_add(&counts.thrower);
    if (n % 2) {
        truth_add(&counts.jumped);
        longjmp(place, 1);
    }
    return n * 7;
}

FUNCTION long middle(long n) {
    truth_add(&counts.middle);
    const long below = thrower(n);

    __asm__ volatile("" ::"r"(below));
    return below + 1;
}

FUNCTION long after(long n) {
    truth_add(&counts.after);
    return leaf(n) + 3;
}

FUNCTION long catcher(long n) {
    truth_add(&counts.catcher);
    if (setjmp(place) == 0)
        return middle(n) + 5;
    return after(n) + 6;
}

FUNCTION long inner(long n) {
    if (n >= 0) {
        atomic_fetch_add(&ended, 1);
        pthread_exit(NULL);
    }
    return n + 2;
}

FUNCTION long outer(long n) {
    truth_add(&counts.outer);
    const long below = inner(n);

    __asm__ volatile("" ::"r"(below));
    return below + 1;
}

FUNCTION long slow(long n) {
    truth_add(&counts.slow);
    leaf(n);
    atomic_store(&entered, 1);
    while (!atomic_load(&may_return))
        usleep(1000);
    return n * 5;
}

FUNCTION long spun(long n) {
    truth_add(&counts.spun);
    return leaf(n) * 3;
}

static void *end_inside(void *argument) {
    outer(*(long *)argument);
    return NULL;
}

static void *be_slow(void *argument) {
    slow(*(long *)argument);
    truth_add(&counts.left_slow);
    return NULL;
}

static void *spin(void *argument) {
    (void)argument;
    for (long n = 0;; n = (n + 1) & 0xffff) {
        truth_pass(&gate);
        spun(n);
    }
    return NULL;
}

static void turn(long n) {
    static long number = 7;
    pthread_t thread;

    twice(n);
    deep(n % 5);
    even(n % 6);
    handed(n);
    catcher(n);
    if (pthread_create(&thread, NULL, end_inside, &number) != 0)
        _exit(3);
    pthread_join(thread, NULL);
}

static void enter(void) {
    static long number = 3;

    atomic_store(&may_return, false);
    atomic_store(&entered, 0);
    truth_start(be_slow, &number);
    while (!atomic_load(&entered))
        usleep(1000);
}

static void release(void) {
    const unsigned long before = atomic_load(&counts.left_slow);

    atomic_store(&may_return, true);
    while (atomic_load(&counts.left_slow) == before)
        usleep(1000);
}

int main(void) {
    char line[64];
    const char *rest;
    long number = 0;

    atomic_store(&gate.closed, true);
    for (int i = 0; i < SPINNERS; i++)
        truth_start(spin, NULL);
    truth_close(&gate, SPINNERS);
    truth_ready();
    while (truth_next(line, sizeof(line))) {
        if ((rest = truth_is(line, "run")))
            for (long n = truth_number(rest, 1); n > 0; n--)
                turn(number++);
        else if (truth_is(line, "enter"))
            enter();
        else if (truth_is(line, "release"))
            release();
        else if (truth_is(line, "pause"))
            truth_close(&gate, SPINNERS);
        else if (truth_is(line, "resume"))
            truth_open(&gate);
        line[strcspn(line, " ")] = '\0';
        truth_say(
            "%s leaf=%lu twice=%lu deep=%lu even=%lu odd=%lu handed=%lu catcher=%lu middle=%lu "
            "thrower=%lu jumped=%lu after=%lu outer=%lu slow=%lu spun=%lu",
            line, counts.leaf, counts.twice, counts.deep, counts.even, counts.odd, counts.handed,
            counts.catcher, counts.middle, counts.thrower, counts.jumped, counts.after,
            counts.outer, counts.slow, counts.spun);
    }
    return 0;
}

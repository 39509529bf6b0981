/* SPDX-License-Identifier: MIT */
/*
 * truth_interrupted: a function whose calls are interrupted by a handler that calls it, too.
 *
 *     interrupted   called N times for `run N`, and once by each signal, some forty microseconds
 *                   apart. Each two hundredth handler also forks a child, which calls it and ends:
 *                   those calls are nobody's
 *
 * `run N` answers how often it was called in this process.
 */
#define _GNU_SOURCE 1
#include <sys/wait.h>

#include "truth_timer.h"

enum { INTERVAL_US = 40, BETWEEN_FORKS = 200, CALLS_OF_CHILD = 1000 };

static volatile unsigned long handlers;

__attribute__((noinline, noclone)) static unsigned long interrupted(unsigned long n,
                                                                    unsigned long other) {
    __asm__ volatile("");
    return 3 * n + other;
}

static void on_timer(int number) {
    (void)number;
    interrupted(++handlers, 1);
    if (handlers % BETWEEN_FORKS == 0 && fork() == 0) {
        for (unsigned long n = 0; n < CALLS_OF_CHILD; n++)
            interrupted(n, 2);
        _exit(0);
    }
}

static void set_timer(int interval_us) {
    setitimer(ITIMER_REAL, &(struct itimerval){{0, interval_us}, {0, interval_us}}, NULL);
}

int main(void) {
    char line[64];
    const char *rest;

    signal(SIGCHLD, SIG_IGN);
    truth_have_timer(on_timer);
    truth_take_timer();
    truth_ready();
    while (truth_next(line, sizeof(line))) {
        unsigned long calls = 0, sum = 0;

        if ((rest = truth_is(line, "run"))) {
            calls = (unsigned long)truth_number(rest, 1);
            handlers = 0;
            set_timer(INTERVAL_US);
            for (unsigned long n = 0; n < calls; n++)
                sum += interrupted(n, sum);
            set_timer(0);
        }
        truth_say("run calls=%lu handled=%lu sum=%lu", calls + handlers, handlers, sum);
    }
    return 0;
}

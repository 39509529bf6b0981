/* SPDX-License-Identifier: MIT */
/*
 * truth_timer.h: a timer that interrupts one thread of a truth program every millisecond.
 *
 * All threads begin with SIGALRM blocked, as main has it, and one of them takes it.
 */
#ifndef TRUTH_TIMER_H
#define TRUTH_TIMER_H

#include <sched.h>
#include <signal.h>
#include <sys/time.h>

#include "truth.h"

static inline void truth_mask(int how, int signal_number) {
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, signal_number);
    pthread_sigmask(how, &set, NULL);
}

/* By the main thread, before others are started. */
static inline void truth_have_timer(void (*handler)(int)) {
    truth_mask(SIG_BLOCK, SIGALRM);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART}, NULL);
}

/* By the thread that is to be interrupted. */
static inline void truth_take_timer(void) { truth_mask(SIG_UNBLOCK, SIGALRM); }

static inline void truth_set_timer(bool on) {
    const int interval_us = on ? 1000 : 0;

    setitimer(ITIMER_REAL, &(struct itimerval){{0, interval_us}, {0, interval_us}}, NULL);
}

/* The timer first, then its last signal, then the threads, of which one takes it. */
static inline void truth_stand_still(struct truth_gate *gate, int threads) {
    sigset_t pending;

    truth_set_timer(false);
    while (sigpending(&pending) == 0 && sigismember(&pending, SIGALRM))
        sched_yield();
    truth_close(gate, threads);
}

#endif

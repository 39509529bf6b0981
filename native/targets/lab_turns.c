/* SPDX-License-Identifier: MIT */
/*
 * lab_turns: two threads in a marker loop, for the lab, whose controllers are killed.
 *
 *     lab_turns PARENT
 *
 *     lab_turn  "n %lu": a thread in its n-th turn (from 1)
 *
 * Answers each byte on standard input with a line, the turns of both threads so far. It ends with
 * its standard input, with its parent, and after five minutes. Only the parent and processes that
 * the parent starts may trace it.
 */
#define _GNU_SOURCE 1
#include <markerjit/marker.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 2, LIMIT_S = 300, NAP_NS = 20000 };

static atomic_ulong turns;

static void *turn(void *unused) {
    const struct timespec nap = {.tv_nsec = NAP_NS};

    for (unsigned long n = 1;; n++) {
        MARK(lab_turn, "n %lu", n);
        atomic_fetch_add(&turns, 1);
        nanosleep(&nap, NULL);
    }
    return unused;
}

int main(int argc, char **argv) {
    const pid_t parent = argc == 2 ? (pid_t)strtol(argv[1], NULL, 10) : 0;
    char byte;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* wrong usage, or it died before that call */
        return 1;
    prctl(PR_SET_PTRACER, parent, 0, 0, 0); /* for Yama; an error where there is no Yama */
    alarm(LIMIT_S);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;

        if (pthread_create(&thread, NULL, turn, NULL))
            return 1;
    }
    do {
        printf("%lu\n", atomic_load(&turns));
        fflush(stdout);
    } while (read(STDIN_FILENO, &byte, 1) == 1);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * gate.c: what every program of the bench does before and after main. Linked to it, nothing calls
 * it.
 *
 *     REAL_CPU       run on this CPU
 *     REAL_REPORT    a descriptor for lines: "ready" before main, and at the end what main and
 *                    what it ran took, in ns: "took CPU WALL", for each place in a program built
 *                    with REAL_TRUTH "passed NAME TIMES", and "end"
 *     REAL_GATE      a descriptor: a byte is waited for there after "ready" and after "end"
 *
 * Without REAL_REPORT nothing is done. With it the program ends when who started it does.
 */
#define _GNU_SOURCE
#include "truth.h"
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

extern const struct real_place __start_real_places[] __attribute__((weak));
extern const struct real_place __stop_real_places[] __attribute__((weak));

static int report = -1;
static int gate = -1;
static unsigned long long cpu_began;
static unsigned long long wall_began;

static unsigned long long now(clockid_t clock) {
    struct timespec time;

    clock_gettime(clock, &time);
    return (unsigned long long)time.tv_sec * 1000000000 + (unsigned long long)time.tv_nsec;
}

static int number(const char *name) {
    const char *text = getenv(name);

    return text ? atoi(text) : -1;
}

static void wait_at_gate(void) {
    char byte;

    if (gate >= 0 && read(gate, &byte, 1) != 1)
        _exit(3);
}

__attribute__((constructor)) static void begin(void) {
    const int cpu = number("REAL_CPU");

    report = number("REAL_REPORT");
    gate = number("REAL_GATE");
    if (report < 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (cpu >= 0) {
        cpu_set_t only;

        CPU_ZERO(&only);
        CPU_SET(cpu, &only);
        if (sched_setaffinity(0, sizeof(only), &only) != 0)
            _exit(3);
    }
    if (dprintf(report, "ready\n") < 0)
        _exit(3);
    wait_at_gate();
    wall_began = now(CLOCK_MONOTONIC);
    cpu_began = now(CLOCK_PROCESS_CPUTIME_ID);
}

__attribute__((destructor)) static void end(void) {
    const unsigned long long cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    const unsigned long long wall = now(CLOCK_MONOTONIC);

    if (report < 0)
        return;
    dprintf(report, "took %llu %llu\n", cpu - cpu_began, wall - wall_began);
    for (const struct real_place *one = __start_real_places; one < __stop_real_places; one++)
        dprintf(report, "passed %s %lu\n", one->name, one->passed);
    dprintf(report, "end\n");
    wait_at_gate();
}

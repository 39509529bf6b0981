/* SPDX-License-Identifier: MIT */
/*
 * sites.c: a crowd of threads that goes through all sites that sites.py made, or sleeps.
 *
 * As a program: `crowd THREADS`; answers `go` and `rest` on its standard input with the same word,
 * once every thread does so, and ends on `quit`. As a library: crowd_start(threads), crowd_go() and
 * crowd_rest(). The threads begin asleep.
 */
#define _GNU_SOURCE 1
#include "../native/targets/truth.h"

#include <signal.h>
#include <sys/prctl.h>

/* Made by sites.py: functions that go through all sites, and a NULL. */
extern int (*const parts[])(int);

void crowd_start(int threads);
void crowd_go(void);
void crowd_rest(void);

static struct truth_gate gate = TRUTH_GATE;
static int crowd;

/* The gate is asked once a part, that is every thousand sites, so that a rest comes soon. */
static void *go_round(void *unused) {
    for (int n = 0;;)
        for (int i = 0; parts[i]; i++) {
            truth_pass(&gate);
            n = parts[i](n);
        }
    return unused;
}

void crowd_start(int threads) {
    atomic_store(&gate.closed, true);
    for (crowd = 0; crowd < threads; crowd++)
        truth_start(go_round, NULL);
    truth_close(&gate, crowd);
}

void crowd_go(void) { truth_open(&gate); }

void crowd_rest(void) { truth_close(&gate, crowd); }

int main(int argc, char **argv) {
    char line[64];

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* five hundred busy threads without a master are a plague */
    crowd_start(argc > 1 ? atoi(argv[1]) : 1);
    truth_ready();
    while (truth_next(line, sizeof(line))) {
        if (truth_is(line, "go"))
            crowd_go();
        else if (truth_is(line, "rest"))
            crowd_rest();
        truth_say("%s", line);
    }
    return 0;
}

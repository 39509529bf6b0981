/* SPDX-License-Identifier: MIT */
/*
 * truth_storm: threads that give birth to threads as fast as they can.
 *
 *     truth_storm [PARENTS]
 *
 *     truth_storm  "who %d n %lu": who 0 in a parent before each birth, 1 in its child, 2 in the
 *                  child's own child; the second field counts evaluations
 *
 * Commands: `pause` answers when only the parents are left, and they stand still; `resume`,
 * `counts`, `quit`. At first it is paused.
 */
#define _GNU_SOURCE 1
#include <markerjit/marker.h>

#include "truth.h"

static truth_count turns, evaluated, births;
static struct truth_gate gate = TRUTH_GATE;

static unsigned long evaluate(void) { return atomic_fetch_add(&evaluated, 1) + 1; }

__attribute__((noinline)) static void pass(int who) {
    MARK(truth_storm, "who %d n %lu", who, evaluate());
    truth_add(&turns);
}

static void give_birth(void *(*run)(void *)) {
    pthread_t child;

    if (pthread_create(&child, NULL, run, NULL) != 0)
        _exit(3);
    truth_add(&births);
    pthread_join(child, NULL);
}

static void *live_shortly(void *argument) {
    pass(2);
    return argument;
}

static void *live_and_give_birth(void *argument) {
    pass(1);
    give_birth(live_shortly);
    pass(1);
    return argument;
}

static void *storm(void *argument) {
    for (;;) {
        truth_pass(&gate);
        pass(0);
        give_birth(live_and_give_birth);
    }
    return argument;
}

int main(int argc, char **argv) {
    const int parents = argc > 1 ? atoi(argv[1]) : 2;
    char line[64];

    atomic_store(&gate.closed, true);
    for (int i = 0; i < parents; i++)
        truth_start(storm, NULL);
    truth_close(&gate, parents);
    truth_ready();
    while (truth_next(line, sizeof line)) {
        if (truth_is(line, "pause"))
            truth_close(&gate, parents);
        else if (truth_is(line, "resume"))
            truth_open(&gate);
        truth_say("%s turns=%lu evaluated=%lu births=%lu", line, atomic_load(&turns),
                  atomic_load(&evaluated), atomic_load(&births));
    }
    return 0;
}

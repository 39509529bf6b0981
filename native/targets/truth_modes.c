/* SPDX-License-Identifier: MIT */
/*
 * truth_modes: one marker loop, built once with each MJ_MODE.
 *
 *     truth_mode  "i %d evaluated %lu": the second field counts how often it was evaluated
 *
 * Commands: `run N`: N turns in the main thread, i from 0, counted when answered. `resume` and
 * `pause`: a second thread runs at full speed until it stands still again (at first it does); its
 * turns go through a second site, of truth_spin, with the same fields. `counts`, `quit`.
 */
#include <markerjit/marker.h>

#include "truth.h"

static truth_count turns, evaluated, spins, spin_evaluated;
static struct truth_gate gate = TRUTH_GATE;

static unsigned long evaluate(truth_count *count) { return atomic_fetch_add(count, 1) + 1; }

__attribute__((noinline)) static void run(long times) {
    for (int i = 0; i < times; i++) {
        MARK(truth_mode, "i %d evaluated %lu", i, evaluate(&evaluated));
        truth_add(&turns);
    }
}

static void *spin(void *argument) {
    (void)argument;
    for (int i = 0;; i = (i + 1) & 0xffff) {
        truth_pass(&gate);
        MARK(truth_spin, "i %d evaluated %lu", i, evaluate(&spin_evaluated));
        truth_add(&spins);
    }
    return NULL;
}

int main(void) {
    char line[64];
    const char *rest;

    atomic_store(&gate.closed, true);
    truth_start(spin, NULL);
    truth_close(&gate, 1);
    truth_ready();
    while (truth_next(line, sizeof(line))) {
        if ((rest = truth_is(line, "run")))
            run(truth_number(rest, 1));
        else if (truth_is(line, "pause"))
            truth_close(&gate, 1);
        else if (truth_is(line, "resume"))
            truth_open(&gate);
        line[strcspn(line, " ")] = '\0';
        truth_say("%s truth_mode=%lu evaluated=%lu truth_spin=%lu spin_evaluated=%lu", line,
                  atomic_load(&turns), atomic_load(&evaluated), atomic_load(&spins),
                  atomic_load(&spin_evaluated));
    }
    return 0;
}

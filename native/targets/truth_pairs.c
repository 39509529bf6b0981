/* SPDX-License-Identifier: MIT */
/*
 * truth_pairs: threads that begin and end things, and that count for themselves what follows what.
 *
 *     truth_pairs [THREADS] [--timer] [--handed]
 *
 *     truth_begin  "who %u id %lu text %s half %g": who is a thread, id is another one each time
 *     truth_end    "who %u id %lu status %d"
 *
 * Some begins have no end, and some ends no begin. With `--timer` a handler interrupts the first
 * thread every millisecond, and begins and ends as one of its own. With `--handed` each thread ends
 * what the one before it has begun, if that is ready. Commands: `pause` answers when all stand
 * still, `resume`; `tell` says of all threads how many begins and ends there were, how many ends
 * had a begin of the same `who` behind the last end, and how many begins followed a begin so; `slow
 * MS` has the main thread (who 99) begin, wait, and end; `fork N` has a child begin and end N
 * times, which nothing counts.
 */
#define _GNU_SOURCE 1
#include <markerjit/marker.h>
#include <sys/wait.h>
#include <time.h>

#include "truth_timer.h"

enum { MAX_THREADS = 16, MAIN = 99 };

struct worker {
    unsigned who;
    unsigned long turns;
    bool begun;
    unsigned long begins, ends, pairs, replaced;
    _Atomic unsigned long handed; /* an id that waits for its end; 0: none */
};

static struct worker workers[MAX_THREADS + 1], *handler = &workers[MAX_THREADS];
static struct truth_gate gate = TRUTH_GATE;
static int threads = 2;
static bool timer, handed;

static void begin(struct worker *self, unsigned long id) {
    MARK(truth_begin, "who %u id %lu text %s half %g", self->who, id, id % 2 ? "odd" : "even",
         (double)id / 2);
    self->begins++;
    self->replaced += self->begun;
    self->begun = true;
}

static void end(struct worker *self, unsigned long id) {
    MARK(truth_end, "who %u id %lu status %d", self->who, id, (int)(id % 5) - 2);
    self->ends++;
    self->pairs += self->begun;
    self->begun = false;
}

static void pass(struct worker *self) {
    const unsigned long turn = self->turns++;
    const unsigned long id = (self->who + 1ul) << 32 | turn;

    if (turn % 11 != 3)
        begin(self, id);
    if (turn % 7 != 5)
        end(self, id);
}

/* Each id has one begin and one end, by two threads. */
static void hand_over(struct worker *self) {
    struct worker *before = &workers[(self->who + (unsigned)threads - 1) % (unsigned)threads];
    unsigned long none = 0;
    const unsigned long id = (self->who + 1ul) << 32 | ++self->turns;
    const unsigned long theirs = atomic_load(&before->handed);

    if (!atomic_load(&self->handed)) {
        MARK(truth_begin, "who %u id %lu text %s half %g", self->who, id, "handed", 0.5);
        self->begins++;
        atomic_compare_exchange_strong(&self->handed, &none, id);
    }
    if (theirs) {
        MARK(truth_end, "who %u id %lu status %d", self->who, theirs, 0);
        self->ends++;
        self->pairs++;
        atomic_store(&before->handed, 0);
    }
}

static void on_timer(int number) {
    (void)number;
    pass(handler);
}

static void *work(void *argument) {
    struct worker *self = argument;

    if (self == workers)
        truth_take_timer();
    for (;;) {
        truth_pass(&gate);
        if (handed)
            hand_over(self);
        else
            pass(self);
    }
    return NULL;
}

static void tell(void) {
    unsigned long begins = 0, ends = 0, pairs = 0, replaced = 0;

    for (int i = 0; i <= MAX_THREADS; i++) {
        begins += workers[i].begins;
        ends += workers[i].ends;
        pairs += workers[i].pairs;
        replaced += workers[i].replaced;
    }
    truth_say("tell begins=%lu ends=%lu pairs=%lu replaced=%lu", begins, ends, pairs, replaced);
}

static void be_slow(long milliseconds) {
    const struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};

    MARK(truth_begin, "who %u id %lu text %s half %g", (unsigned)MAIN, 7ul, "slow", -1.5);
    nanosleep(&pause, NULL);
    MARK(truth_end, "who %u id %lu status %d", (unsigned)MAIN, 7ul, -3);
}

static void pass_in_child(long times) {
    const pid_t child = fork();

    if (child == 0) {
        for (long i = 0; i < times; i++)
            pass(&workers[0]);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

int main(int argc, char **argv) {
    char line[300];
    const char *rest;

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--timer") == 0)
            timer = true;
        else if (strcmp(argv[i], "--handed") == 0)
            handed = true;
        else
            threads = atoi(argv[i]);
    if (threads < 1 || threads > MAX_THREADS)
        return 2;
    truth_have_timer(on_timer);
    atomic_store(&gate.closed, true);
    for (unsigned i = 0; i <= MAX_THREADS; i++)
        workers[i].who = i;
    for (int i = 0; i < threads; i++)
        truth_start(work, &workers[i]);
    truth_ready();
    while (truth_next(line, sizeof(line))) {
        if (truth_is(line, "tell")) {
            tell();
            continue;
        }
        if (truth_is(line, "pause"))
            truth_stand_still(&gate, threads);
        else if (truth_is(line, "resume")) {
            truth_open(&gate);
            truth_set_timer(timer);
        } else if ((rest = truth_is(line, "slow")))
            be_slow(truth_number(rest, 1));
        else if ((rest = truth_is(line, "fork")))
            pass_in_child(truth_number(rest, 1));
        line[strcspn(line, " ")] = 0;
        truth_say("%s", line);
    }
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * crowd.c: the threads that execute the places: workers, threads born and dying, handlers of
 * signals that fly between them, and a plugin that comes and goes.
 *
 * Each counts for itself, so counting adds no locked instruction (which would serialise) to a
 * loop. At the gate the counts are exact: the helpers come to it only when what they started has
 * ended.
 */
#define _GNU_SOURCE
#include "torture.h"

#include <dlfcn.h>
#include <markerjit/marker.h>
#include <sched.h>
#include <signal.h>

struct worker {
    pthread_t thread;
    struct tally loop;
    struct tally handler;  /* what the signal handler saw in this thread */
    truth_count evaluated; /* arguments of the real marker: exactly when it was active */
} __attribute__((aligned(64)));

_Atomic uint64_t change_sequence = 1; /* nothing is known of the forms before `flip` */
_Atomic uint8_t forms[MAX_PLACES];

static struct worker workers[MAX_WORKERS];
static struct tally newborn; /* one at a time, so they share one */
static struct truth_gate gate = TRUTH_GATE;
static truth_count births, signals_sent, signals_handled, libraries, plugin_calls;
static __thread struct worker *self;
static struct crowd crowd;

static void add(truth_count *count) {
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/*
 * (A) pairs with (A) in flip.c: an even number that is the same before and behind says that no
 * transaction began or ended meanwhile, so the form that it left must be the one executed.
 */
static void visit(struct tally *tally, unsigned index) {
    const uint64_t before = atomic_load(&change_sequence); /* (A) */
    const uint8_t form = atomic_load_explicit(&forms[index], memory_order_relaxed);

    add(&tally->executions);
    const uint32_t value = places[index].call();
    const uint64_t after = atomic_load(&change_sequence); /* (A) */

    if (value != OLD_VALUE && value != NEW_VALUE) {
        add(&tally->torn);
        return;
    }
    const uint8_t got = value == NEW_VALUE;

    add(got ? &tally->new_forms : &tally->old_forms);
    if (got != tally->last[index]) {
        tally->last[index] = got;
        add(&tally->transitions);
    }
    if (before == after && before % 2 == 0 && got != form)
        add(&tally->stale);
}

void visit_all(struct tally *tally) {
    for (unsigned i = 0; i < place_count; i++)
        visit(tally, i);
}

static void *work(void *argument) {
    self = argument;
    for (;;) {
        truth_pass(&gate);
        visit_all(&self->loop);
        MARK(torture_real, "n %lu",
             atomic_fetch_add_explicit(&self->evaluated, 1, memory_order_relaxed));
    }
    return NULL;
}

static void on_signal(int number) {
    (void)number;
    if (self)
        visit_all(&self->handler);
    truth_add(&signals_handled);
}

/* To each worker one, now this signal and now that; the next when all have been handled, since
   SIGUSR1 does not queue. */
static void *send_signals(void *argument) {
    (void)argument;
    for (unsigned turn = 0;; turn++) {
        truth_pass(&gate);
        for (int i = 0; i < crowd.workers; i++)
            if (pthread_kill(workers[i].thread, turn % 2 ? SIGUSR1 : SIGRTMIN) == 0)
                truth_add(&signals_sent);
        while (atomic_load(&signals_handled) < atomic_load(&signals_sent))
            sched_yield();
    }
    return NULL;
}

static void *live_shortly(void *argument) {
    (void)argument;
    for (int i = 0; i < 10; i++)
        visit_all(&newborn);
    return NULL;
}

static void *give_birth(void *argument) {
    (void)argument;
    for (;;) {
        pthread_t child;

        truth_pass(&gate);
        if (pthread_create(&child, NULL, live_shortly, NULL) != 0)
            _exit(3);
        pthread_join(child, NULL);
        truth_add(&births);
    }
    return NULL;
}

static void *load_libraries(void *argument) {
    (void)argument;
    for (;;) {
        truth_pass(&gate);
        void *library = dlopen(crowd.plugin, RTLD_NOW | RTLD_LOCAL);
        void (*call)(int, truth_count *) =
            library ? (void (*)(int, truth_count *))dlsym(library, "truth_plugin") : NULL;

        if (!call) {
            truth_say("died cannot load %s", crowd.plugin);
            _exit(3);
        }
        for (int n = 0; n < 100; n++)
            call(n, &plugin_calls);
        dlclose(library);
        truth_add(&libraries);
    }
    return NULL;
}

static int gate_threads(void) {
    return crowd.workers + crowd.births + crowd.signals + (crowd.plugin != NULL);
}

/* They begin at a closed gate. */
void crowd_start(const struct crowd *wanted) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    crowd = *wanted;
    sigaddset(&action.sa_mask, SIGUSR1);
    sigaddset(&action.sa_mask, SIGRTMIN);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGRTMIN, &action, NULL);
    atomic_store(&gate.closed, true);
    for (int i = 0; i < crowd.workers; i++)
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            _exit(3);
    if (crowd.births)
        truth_start(give_birth, NULL);
    if (crowd.signals)
        truth_start(send_signals, NULL);
    if (crowd.plugin)
        truth_start(load_libraries, NULL);
    crowd_pause();
}

/* Have the crowd's own threads executed anything more? Any change will do. */
unsigned long crowd_progress(void) {
    unsigned long executions = 0;

    for (int i = 0; i < crowd.workers; i++)
        executions += atomic_load_explicit(&workers[i].loop.executions, memory_order_relaxed);
    return executions;
}

void crowd_pause(void) { truth_close(&gate, gate_threads()); }

void crowd_resume(void) { truth_open(&gate); }

struct sums {
    unsigned long executions, old_forms, new_forms, torn, stale, transitions;
};

static void sum(struct sums *sums, const struct tally *tally) {
    sums->executions += tally->executions;
    sums->old_forms += tally->old_forms;
    sums->new_forms += tally->new_forms;
    sums->torn += tally->torn;
    sums->stale += tally->stale;
    sums->transitions += tally->transitions;
}

void crowd_say(const char *word) {
    struct sums sums = {0};
    unsigned long evaluated = 0;

    for (int i = 0; i < crowd.workers; i++) {
        sum(&sums, &workers[i].loop);
        sum(&sums, &workers[i].handler);
        evaluated += workers[i].evaluated;
    }
    sum(&sums, &newborn);
    truth_say("%s executions=%lu old=%lu new=%lu torn=%lu stale=%lu transitions=%lu trapped=%lu "
              "births=%lu signals=%lu libraries=%lu evaluated=%lu",
              word, sums.executions, sums.old_forms, sums.new_forms, sums.torn, sums.stale,
              sums.transitions, trapped, births, signals_handled, libraries, evaluated);
}

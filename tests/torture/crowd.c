/* SPDX-License-Identifier: MIT */
/*
 * crowd.c: the threads that execute the places: workers, handlers of the signals that interrupt
 * them, threads born and dying, and a plugin that comes and goes.
 *
 * Each counts for itself, so counting adds no locked instruction (which would serialise) to a
 * loop. At the gate the counts are exact: the helpers come to it only when what they started has
 * ended.
 */
#define _GNU_SOURCE
#include "torture.h"

#include <dlfcn.h>
#include <markerjit/marker.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

/* Each of the two interrupts the handler of the other, so frames lie on frames. The second one's
   handler has a stack of its own. */
static const struct {
    int number, flags;
    long period_ns; /* of a timer that each worker has for it */
} interruptions[] = {{SIGUSR1, SA_RESTART, 97000}, {SIGUSR2, SA_RESTART | SA_ONSTACK, 131000}};

enum { INTERRUPTIONS = sizeof(interruptions) / sizeof(*interruptions) };
enum { STACK_BYTES = 64 << 10, GUARD_BYTES = 4096 };

struct worker {
    struct tally loop;
    struct tally handlers[INTERRUPTIONS]; /* seen by the signal handlers in this thread */
    truth_count evaluated; /* arguments of the real marker: exactly when it was active */
} __attribute__((aligned(64)));

_Atomic uint64_t change_sequence = 1; /* the forms are not known before `flip` */
_Atomic uint8_t forms[MAX_PLACES];

static struct worker workers[MAX_WORKERS];
static struct tally newborn; /* one at a time, so they share one */
static struct truth_gate gate = TRUTH_GATE;
static truth_count births, signals_handled, libraries, plugin_calls;
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

/* Nothing once the gate is closed: a worker that waits there executes nothing more. */
static void on_signal(int number) {
    if (atomic_load(&gate.closed))
        return;
    visit_all(&self->handlers[number == interruptions[1].number]);
    truth_add(&signals_handled);
}

/* With unmapped memory around it, because memory above a stack may be searched with it. */
static bool use_own_stack(void) {
    char *memory =
        mmap(NULL, STACK_BYTES + 2 * GUARD_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const stack_t stack = {.ss_sp = memory + GUARD_BYTES, .ss_size = STACK_BYTES};

    return memory != MAP_FAILED && !mprotect(stack.ss_sp, STACK_BYTES, PROT_READ | PROT_WRITE) &&
           !sigaltstack(&stack, NULL);
}

/* A timer interrupts the thread wherever it is, without another thread that would need a CPU to
   send a signal. */
static bool be_interrupted(int number, long period_ns) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = number};
    const struct timespec period = {.tv_nsec = period_ns};
    timer_t timer;

    event._sigev_un._tid = gettid();
    return !timer_create(CLOCK_MONOTONIC, &event, &timer) &&
           !timer_settime(timer, 0, &(struct itimerspec){period, period}, NULL);
}

static void *work(void *argument) {
    self = argument;
    if (crowd.signals && !use_own_stack())
        _exit(3);
    for (int i = 0; crowd.signals && i < INTERRUPTIONS; i++)
        if (!be_interrupted(interruptions[i].number, interruptions[i].period_ns))
            _exit(3);
    for (;;) {
        truth_pass(&gate);
        visit_all(&self->loop);
        MARK(torture_real, "n %lu",
             atomic_fetch_add_explicit(&self->evaluated, 1, memory_order_relaxed));
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

static int gate_threads(void) { return crowd.workers + crowd.births + (crowd.plugin != NULL); }

/* They begin at a closed gate. */
void crowd_start(const struct crowd *wanted) {
    crowd = *wanted;
    for (int i = 0; i < INTERRUPTIONS; i++)
        sigaction(interruptions[i].number,
                  &(struct sigaction){.sa_handler = on_signal, .sa_flags = interruptions[i].flags},
                  NULL);
    atomic_store(&gate.closed, true);
    for (int i = 0; i < crowd.workers; i++)
        truth_start(work, &workers[i]);
    if (crowd.births)
        truth_start(give_birth, NULL);
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
        for (int h = 0; h < INTERRUPTIONS; h++)
            sum(&sums, &workers[i].handlers[h]);
        evaluated += workers[i].evaluated;
    }
    sum(&sums, &newborn);
    truth_say("%s executions=%lu old=%lu new=%lu torn=%lu stale=%lu transitions=%lu trapped=%lu "
              "births=%lu signals=%lu libraries=%lu evaluated=%lu",
              word, sums.executions, sums.old_forms, sums.new_forms, sums.torn, sums.stale,
              sums.transitions, trapped, births, signals_handled, libraries, evaluated);
}

/* SPDX-License-Identifier: MIT */
/*
 * truth_handlers: markers in signal handlers: nested ones, one that interrupts itself, and one on a
 * stack of its own; and handlers that last.
 *
 *     truth_main     "n %lu": in a thread at full speed that the signals interrupt
 *     truth_handler  "signal %d depth %d n %lu": at the begin and the end of each handler
 *
 * SIGUSR1 raises SIGUSR2 in the middle; SIGUSR2 is not blocked in its own handler, and raises
 * itself three deep; then SIGRTMIN runs on an alternate stack and raises SIGUSR2 from there. A
 * timer sends SIGUSR1 to the thread five thousand times a second while it is not paused.
 *
 * Commands: `resume`, `pause` (it is paused at first), `hold HOW`: a second thread enters a handler
 * and stays in it, HOW is spin, read or sleep; it has passed the marker once. `release`: it passes
 * the marker again and leaves the handler; answered when it has. `counts`, `quit`. `eintr` counts
 * calls of the held handler that were interrupted.
 */
#define _GNU_SOURCE 1
#include <markerjit/marker.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "truth.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum { NESTED_DEPTH = 3, STACK_SIZE = 64 * 1024 };
enum how { SPIN, READ, SLEEP };

static truth_count main_turns, main_evaluated, handler_turns, handler_evaluated, eintr;
static struct truth_gate gate = TRUTH_GATE;
static timer_t timer;
static pthread_t held_thread;
static int release_pipe[2];
static volatile enum how hold_how;
static atomic_bool held, on_its_way;
static _Thread_local volatile int depth;

static unsigned long evaluate(truth_count *count) { return atomic_fetch_add(count, 1) + 1; }

__attribute__((noinline)) static void pass(int number, int how_deep) {
    MARK(truth_handler, "signal %d depth %d n %lu", number, how_deep, evaluate(&handler_evaluated));
    truth_add(&handler_turns);
}

static void on_usr1(int number) {
    pass(number, 0);
    raise(SIGUSR2);
    raise(SIGRTMIN);
    pass(number, 0);
}

static void on_usr2(int number) {
    depth++;
    pass(number, depth);
    if (depth < NESTED_DEPTH)
        raise(SIGUSR2);
    pass(number, depth);
    depth--;
}

static void on_own_stack(int number) {
    pass(number, 0);
    raise(SIGUSR2);
    pass(number, 0);
}

static void on_hold(int number) {
    char byte;

    pass(number, 0);
    atomic_store(&held, true);
    if (hold_how == READ)
        while (read(release_pipe[0], &byte, 1) < 0 && errno == EINTR)
            truth_add(&eintr);
    else
        while (atomic_load(&held))
            if (hold_how == SLEEP && nanosleep(&(struct timespec){0, 500000}, NULL))
                truth_add(&eintr);
    pass(number, 0);
}

static void handle(int number, void (*handler)(int), int flags) {
    sigaction(number, &(struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART | flags},
              NULL);
}

static void set_timer(bool on) {
    const long interval_ns = on ? 200000 : 0;

    timer_settime(timer, 0, &(struct itimerspec){{0, interval_ns}, {0, interval_ns}}, NULL);
}

static void *work(void *argument) {
    stack_t stack = {.ss_size = STACK_SIZE};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};

    stack.ss_sp =
        mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    event.sigev_notify_thread_id = (int)syscall(SYS_gettid);
    if (sigaltstack(&stack, NULL) || timer_create(CLOCK_MONOTONIC, &event, &timer))
        _exit(3);
    for (;;) {
        truth_pass(&gate);
        MARK(truth_main, "n %lu", evaluate(&main_evaluated));
        truth_add(&main_turns);
    }
    return argument;
}

/* Where the held handler runs; `release` waits until this thread is out of it. */
static void *be_held(void *argument) {
    sigset_t set;

    sigemptyset(&set);
    for (;;) {
        sigsuspend(&set);
        atomic_store(&on_its_way, false);
    }
    return argument;
}

static void hold(enum how how) {
    hold_how = how;
    atomic_store(&on_its_way, true);
    pthread_kill(held_thread, SIGRTMIN + 1);
    while (!atomic_load(&held))
        sched_yield();
}

static void release(void) {
    if (hold_how == READ && write(release_pipe[1], "", 1) != 1)
        _exit(3);
    atomic_store(&held, false);
    while (atomic_load(&on_its_way))
        sched_yield();
}

/* The timer first, so that the thread is held before the gate without a signal on its way. */
static void stand_still(void) {
    set_timer(false);
    truth_close(&gate, 1);
}

int main(void) {
    char line[64];
    const char *rest;
    sigset_t hold_set;

    /* It comes only in sigsuspend: before, that would wait for another one. */
    sigemptyset(&hold_set);
    sigaddset(&hold_set, SIGRTMIN + 1);
    pthread_sigmask(SIG_BLOCK, &hold_set, NULL);
    handle(SIGUSR1, on_usr1, 0);
    handle(SIGUSR2, on_usr2, SA_NODEFER);
    handle(SIGRTMIN, on_own_stack, SA_ONSTACK);
    handle(SIGRTMIN + 1, on_hold, 0);
    atomic_store(&gate.closed, true);
    if (pipe(release_pipe) || pthread_create(&held_thread, NULL, be_held, NULL))
        return 3;
    truth_start(work, NULL);
    truth_close(&gate, 1);
    truth_ready();
    while (truth_next(line, sizeof line)) {
        if ((rest = truth_is(line, "hold")))
            hold(!strcmp(rest, "spin") ? SPIN : !strcmp(rest, "read") ? READ : SLEEP);
        else if (truth_is(line, "release"))
            release();
        else if (truth_is(line, "pause"))
            stand_still();
        else if (truth_is(line, "resume")) {
            truth_open(&gate);
            set_timer(true);
        }
        line[strcspn(line, " ")] = '\0';
        truth_say("%s main=%lu main_evaluated=%lu handler=%lu handler_evaluated=%lu eintr=%lu",
                  line, atomic_load(&main_turns), atomic_load(&main_evaluated),
                  atomic_load(&handler_turns), atomic_load(&handler_evaluated),
                  atomic_load(&eintr));
    }
    return 0;
}

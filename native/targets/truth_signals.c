/* SPDX-License-Identifier: MIT */
/*
 * truth_signals: a program that handles signals in its own way.
 *
 *     truth_signals [--block-trap] [--own-trap] [--timer]
 *
 *     truth_work     "n %lu": a thread at full speed; with --block-trap it blocks SIGTRAP
 *     truth_handler  "signal %d n %lu": with --timer, in a handler that interrupts that thread
 *                    every millisecond
 *     truth_woken    "n %lu": a thread that sleeps in epoll_wait, each time it was poked
 *
 * Commands: `trap` executes an int3 of the program's own (with --own-trap its handler counts it and
 * the program goes on; without, it dies). `poke` wakes the sleeping thread. `pause` answers when
 * all stand still and no signal is on its way; `resume`, `counts`, `quit`. Among the counts,
 * `own_trap` is the int3s handled, and `eintr` how often epoll_wait was interrupted: nothing in
 * here does that, so it must stay 0.
 */
#define _GNU_SOURCE 1
#include <markerjit/marker.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "truth_timer.h"

static truth_count works, handled, woken, traps, interrupted;
static struct truth_gate gate = TRUTH_GATE;
static bool block_trap, timer;
static int poke;

static void on_trap(int number) {
    (void)number;
    truth_add(&traps);
}

static void on_timer(int number) {
    unsigned long n = atomic_load(&handled) + 1; /* only one thread takes the signal */

    MARK(truth_handler, "signal %d n %lu", number, n);
    truth_add(&handled);
}

static void *work(void *argument) {
    (void)argument;
    if (block_trap)
        truth_mask(SIG_BLOCK, SIGTRAP);
    truth_take_timer();
    for (unsigned long n = 1;; n++) {
        truth_pass(&gate);
        MARK(truth_work, "n %lu", n);
        truth_add(&works);
    }
    return NULL;
}

static void *wait_for_poke(void *argument) {
    int epoll = *(int *)argument;

    for (unsigned long n = 1;;) {
        struct epoll_event event;
        uint64_t value;

        if (epoll_wait(epoll, &event, 1, -1) < 0) {
            truth_add(&interrupted);
        } else if (read(poke, &value, sizeof(value)) == sizeof(value)) {
            MARK(truth_woken, "n %lu", n++);
            truth_add(&woken);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    char line[64];

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--block-trap") == 0)
            block_trap = true;
        else if (strcmp(argv[i], "--timer") == 0)
            timer = true;
        else if (strcmp(argv[i], "--own-trap") == 0)
            sigaction(SIGTRAP, &(struct sigaction){.sa_handler = on_trap}, NULL);
    poke = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    epoll_ctl(epoll, EPOLL_CTL_ADD, poke, &event);
    truth_have_timer(on_timer);
    truth_start(work, NULL);
    truth_start(wait_for_poke, &epoll);
    truth_set_timer(timer);
    truth_ready();
    while (truth_next(line, sizeof(line))) {
        if (truth_is(line, "trap"))
            __asm__ __volatile__("int3");
        else if (truth_is(line, "poke"))
            eventfd_write(poke, 1);
        else if (truth_is(line, "pause"))
            truth_stand_still(&gate, 1);
        else if (truth_is(line, "resume")) {
            truth_open(&gate);
            truth_set_timer(timer);
        }
        truth_say("%s truth_work=%lu truth_handler=%lu truth_woken=%lu own_trap=%lu eintr=%lu",
                  line, atomic_load(&works), atomic_load(&handled), atomic_load(&woken),
                  atomic_load(&traps), atomic_load(&interrupted));
    }
    return 0;
}

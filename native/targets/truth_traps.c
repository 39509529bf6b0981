/* SPDX-License-Identifier: MIT */
/*
 * truth_traps: a program that uses SIGTRAP itself.
 *
 *     truth_traps [--own | --ignore] [--block] [--WAIT]
 *
 *     truth_traps  "n %lu": at each `pass`, and in a thread at full speed; counts evaluations
 *
 * `--own`: a handler on an alternate stack that counts what was sent and what was trapped, by
 * si_code, and that it came with the value that was sent. `--ignore`: SIG_IGN. With --sigwait,
 * --sigtimedwait or --signalfd a thread blocks SIGTRAP, takes what is sent to it and passes the
 * marker; with `--block` all others block it, too. --ppoll: a thread blocks it, but not while it
 * waits.
 *
 * Commands: `pass N`; `raise`: sigqueue of SIGTRAP to this process (raise(3) to this thread without
 * a waiting one); `wait`: send it to the waiting thread; each is answered when it has been taken,
 * at once if ignored. `int3`: one of the program's own. `eintr` counts waits that were interrupted.
 */
#define _GNU_SOURCE 1
#include <markerjit/marker.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <time.h>

#include "truth.h"

static truth_count turns, evaluated, sent, trapped, waited, wrong, eintr;
static enum how { NO_WAITER, SIGWAIT, SIGTIMEDWAIT, SIGNALFD, PPOLL } how;
static bool own, block;
static pthread_t waiter;
static sigset_t only_trap;
static int poke[2];

static unsigned long evaluate(void) { return atomic_fetch_add(&evaluated, 1) + 1; }

__attribute__((noinline)) static void pass(void) {
    MARK(truth_traps, "n %lu", evaluate());
    truth_add(&turns);
}

static void on_trap(int number, siginfo_t *info, void *context) {
    (void)context;
    if (number != SIGTRAP)
        truth_add(&wrong);
    if (info->si_code == SI_QUEUE && info->si_value.sival_int != 42)
        truth_add(&wrong);
    truth_add(info->si_code > 0 ? &trapped : &sent);
}

static int take(int fd) {
    struct timespec second = {1, 0};
    struct signalfd_siginfo info;
    sigset_t none;
    char byte;
    int number;

    switch (how) {
    case SIGWAIT:
        return sigwait(&only_trap, &number) == 0 ? number : -1;
    case SIGTIMEDWAIT:
        return sigtimedwait(&only_trap, NULL, &second);
    case PPOLL:
        sigemptyset(&none);
        if (ppoll(&(struct pollfd){poke[0], POLLIN, 0}, 1, NULL, &none) < 0)
            return -1;
        return read(poke[0], &byte, 1) == 1 ? SIGTRAP : -1;
    default:
        return read(fd, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : -1;
    }
}

static void *wait_for_traps(void *argument) {
    int fd = -1;

    pthread_sigmask(SIG_BLOCK, &only_trap, NULL);
    if (how == SIGNALFD && (fd = signalfd(-1, &only_trap, SFD_CLOEXEC)) < 0)
        _exit(3);
    for (;;) {
        const int number = take(fd);

        if (number == SIGTRAP) {
            pass(); /* with SIGTRAP blocked again: a breakpoint here would be the end */
            truth_add(&waited);
        } else if (errno == EINTR) {
            truth_add(&eintr);
        }
    }
    return argument;
}

static void *work(void *argument) {
    for (;;)
        pass();
    return argument;
}

static void wait_for(truth_count *count, unsigned long before) {
    while (atomic_load(count) == before)
        sched_yield();
}

static void send_to(bool to_waiter) {
    truth_count *count = to_waiter || block ? &waited : &sent;
    const unsigned long before = atomic_load(count);

    if (to_waiter && how == PPOLL && write(poke[1], "", 1) != 1)
        _exit(3);
    if (to_waiter && how != PPOLL)
        pthread_kill(waiter, SIGTRAP);
    else if (!to_waiter && how == NO_WAITER)
        pthread_sigqueue(pthread_self(), SIGTRAP, (union sigval){.sival_int = 42});
    else if (!to_waiter)
        sigqueue(getpid(), SIGTRAP, (union sigval){.sival_int = 42});
    if (own || to_waiter || (block && how != NO_WAITER))
        wait_for(count, before);
}

static void set_up(int argc, char **argv) {
    static char stack[64 * 1024];

    sigemptyset(&only_trap);
    sigaddset(&only_trap, SIGTRAP);
    for (int i = 1; i < argc; i++) {
        own |= !strcmp(argv[i], "--own");
        block |= !strcmp(argv[i], "--block");
        how = !strcmp(argv[i], "--sigwait")        ? SIGWAIT
              : !strcmp(argv[i], "--sigtimedwait") ? SIGTIMEDWAIT
              : !strcmp(argv[i], "--signalfd")     ? SIGNALFD
              : !strcmp(argv[i], "--ppoll")        ? PPOLL
                                                   : how;
        if (!strcmp(argv[i], "--ignore"))
            signal(SIGTRAP, SIG_IGN);
    }
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    if (own)
        sigaction(SIGTRAP,
                  &(struct sigaction){.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_ONSTACK},
                  NULL);
    if (block)
        pthread_sigmask(SIG_BLOCK, &only_trap, NULL);
}

int main(int argc, char **argv) {
    char line[64];
    const char *rest;

    set_up(argc, argv);
    if (pipe(poke))
        return 3;
    if (how != NO_WAITER && pthread_create(&waiter, NULL, wait_for_traps, NULL))
        return 3;
    truth_start(work, NULL);
    truth_ready();
    while (truth_next(line, sizeof line)) {
        if ((rest = truth_is(line, "pass")))
            for (long n = truth_number(rest, 1); n > 0; n--)
                pass();
        else if (truth_is(line, "raise"))
            send_to(false);
        else if (truth_is(line, "wait"))
            send_to(true);
        else if (truth_is(line, "int3"))
            __asm__ __volatile__("int3");
        line[strcspn(line, " ")] = '\0';
        truth_say("%s turns=%lu evaluated=%lu sent=%lu trapped=%lu waited=%lu wrong=%lu eintr=%lu",
                  line, atomic_load(&turns), atomic_load(&evaluated), atomic_load(&sent),
                  atomic_load(&trapped), atomic_load(&waited), atomic_load(&wrong),
                  atomic_load(&eintr));
    }
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * handlers.c: handlers for a thread that meets int3, and for a fatal signal.
 *
 * A thread on a breakpoint goes on as if it had executed the new form. It may come here long after
 * the breakpoint went away, and does the same then: when it met the breakpoint, the new form was
 * allowed.
 */
#define _GNU_SOURCE
#include "torture.h"

#include <signal.h>
#include <ucontext.h>

truth_count trapped;

/* Print one line and exit. The driver takes 70 for a torn execution that could not go on. */
static void die(const char *how, uint64_t rip) {
    const uint64_t near = place_count ? rip - places[0].at : 0;

    truth_say("died %s rip=%#lx behind_first_place=%#lx", how, rip, near);
    _exit(70);
}

static void on_trap(int number, siginfo_t *info, void *frame) {
    greg_t *regs = ((ucontext_t *)frame)->uc_mcontext.gregs;
    const struct place *place = place_at((uint64_t)regs[REG_RIP] - 1);

    (void)number, (void)info;
    if (!place)
        die("SIGTRAP", (uint64_t)regs[REG_RIP]);
    if (place->trap_pushes) {
        regs[REG_RSP] -= 8;
        *(uint64_t *)regs[REG_RSP] = place->at + place->size;
    }
    if (place->trap_returns)
        regs[REG_RAX] = NEW_VALUE;
    regs[REG_RIP] = (greg_t)place->trap_rip;
    truth_add(&trapped);
}

static void on_death(int number, siginfo_t *info, void *frame) {
    (void)info;
    die(number == SIGSEGV  ? "SIGSEGV"
        : number == SIGILL ? "SIGILL"
        : number == SIGFPE ? "SIGFPE"
                           : "SIGBUS",
        (uint64_t)((ucontext_t *)frame)->uc_mcontext.gregs[REG_RIP]);
}

void install_handlers(void) {
    static const int deadly[] = {SIGSEGV, SIGILL, SIGBUS, SIGFPE};
    /* SA_NODEFER: a handler that interrupts ours may meet int3 itself, and the kernel kills a
       process that blocks a SIGTRAP which it must deliver. */
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_NODEFER};

    sigaction(SIGTRAP, &action, NULL);
    action.sa_sigaction = on_death;
    for (unsigned i = 0; i < sizeof(deadly) / sizeof(*deadly); i++)
        sigaction(deadly[i], &action, NULL);
}

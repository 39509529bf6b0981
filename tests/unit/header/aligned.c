/* SPDX-License-Identifier: MIT */
/*
 * aligned: a site at each of the 64 places in a cache line, walked through in single steps.
 *
 * pads.h is PAD(1) to PAD(64). With the trap flag set, the processor stops after each instruction,
 * so the addresses seen are the instructions executed.
 */
#define _GNU_SOURCE 1
#include "selfpatch.h"

#include <markerjit/marker.h>

static int steps;
static greg_t step[256];
static volatile int sink;

static void on_step(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)info;
    if (steps < 256)
        step[steps++] = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
}

/* Below the red zone, where the flags are of no harm. */
#define TRAP_FLAG(operation)                                                                       \
    __asm__ __volatile__("lea -128(%%rsp), %%rsp\n"                                                \
                         "pushf\n" operation ", (%%rsp)\n"                                         \
                         "popf\n"                                                                  \
                         "lea 128(%%rsp), %%rsp\n"                                                 \
                         :                                                                         \
                         :                                                                         \
                         : "cc", "memory")

#define PAD(n)                                                                                     \
    __attribute__((noinline, aligned(64))) static void pad_##n(int x) {                            \
        __asm__ __volatile__(".skip " #n ", 0x90");                                                \
        MARK(pad, "x %d", x);                                                                      \
        sink = x;                                                                                  \
    }
#include "pads.h"
#undef PAD

#define PAD(n) pad_##n,
static void (*const pads[])(int) = {
#include "pads.h"
};

/* A short one: every instruction of it is a signal. */
__attribute__((aligned(16))) static void count_hit(struct mj_slot *slot, ...) {
    (void)slot;
    sp_hits++;
}

/* Where the site begins: at the prefix in the last byte of a line, if it has one. */
static greg_t start_of(const struct mj_note *note) {
    unsigned char *site = SP_AT(note, site);

    return (greg_t)(site - (note->kind == MJ_KIND_jump && site[-1] == 0x40 &&
                            (unsigned long)site % 64 == 0));
}

static void walk(void (*function)(int)) {
    steps = 0;
    TRAP_FLAG("orq $0x100");
    function(1);
    TRAP_FLAG("andq $~0x100");
}

/* The steps around the one site in `function`; `on` says which way it must go. */
static void check(void (*function)(int), int on, unsigned long *places) {
    const struct mj_note *note = NULL;
    int at = -1;

    walk(function);
    for (int i = 0; i < steps && at < 0; i++)
        for (int k = 0; k < sp_count && at < 0; k++)
            if (step[i] == start_of(sp_notes[k]))
                at = i, note = sp_notes[k];
    if (at < 1 || at + 2 >= steps) {
        SP_CHECK(0, "no site in %d steps", steps);
        return;
    }
    greg_t site = (greg_t)SP_AT(note, site), body = (greg_t)SP_AT(note, body);
    int direct = note->kind == MJ_KIND_nop; /* active it jumps to the body in one step */

    places[step[at] & 63]++;
    SP_CHECK((site & 63) != 63 || note->kind != MJ_KIND_jump, "site at %lx", (long)site);
    SP_CHECK(step[at] - step[at - 1] < 16 && step[at] > step[at - 1], "does not follow");
    if (!on)
        SP_CHECK(step[at + 1] == (greg_t)SP_AT(note, end), "%lx", (long)step[at + 1]);
    else if (direct)
        SP_CHECK(step[at + 1] == body, "%lx", (long)step[at + 1]);
    else
        SP_CHECK(step[at + 1] == site + 2 && step[at + 2] == body, "%lx", (long)step[at + 1]);
}

int main(void) {
    unsigned long places[64] = {0}, hits = 0;
    struct sigaction action;
    int count = (int)(sizeof(pads) / sizeof(*pads));

    sp_start();
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_step;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &action, NULL);
    for (int on = 0; on < 2; on++) {
        if (on)
            sp_switch("pad", 1, (unsigned long)count_hit);
        for (int i = 0; i < count; i++)
            check(pads[i], on, places);
        SP_CHECK(sp_hits == (unsigned)(on * count), "%lu hits", sp_hits);
        hits += sp_hits;
    }
    for (int i = 0; i < 64; i++)
        SP_CHECK(places[i] == 2, "place %d: %lu", i, places[i]);
    if (!sp_failures)
        printf("ok %d sites %lu hits\n", sp_count, hits);
    return sp_failures != 0;
}

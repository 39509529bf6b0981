/* SPDX-License-Identifier: MIT */
/*
 * trap.c: the SIGTRAP handler of mode int3.
 *
 * A breakpoint of ours sends the thread to the body of its marker, which returns to where a dormant
 * site goes on. No instruction is copied: every kind of site that takes an int3 has a body that
 * replaces what the first byte began. The same table completes jumps that are being changed by the
 * breakpoint protocol (markerjit/patch/protocol/breakpoint.py).
 *
 * A trap that is not ours goes to the action that the program had before. Not everything is
 * preserved: that action's SA_RESETHAND; that it may have run with other signals blocked when its
 * mask was changed afterwards; and that it ran with SIGTRAP blocked, on the thread's own stack, and
 * ended system calls, if it was made so: ours has SA_NODEFER, SA_ONSTACK and SA_RESTART.
 */

#include "runtime.h"

#define SIGTRAP 5
#define SI_USER_OR_LESS 0 /* si_code of kill, tgkill, sigqueue: sent, not a trap */
#define SI_KERNEL 0x80    /* si_code of an int3: do_int3_user, handle_swbp of Linux */
#define TRAP_BRKPT 1      /* the same where another kernel runs the program (gVisor) */
#define NR_rt_sigaction 13
#define NR_gettid 186
#define NR_tgkill 234
#define NR_getpid 39
#define INT3 0xcc
#ifndef NULL
#define NULL ((void *)0)
#endif

/* Offsets in struct ucontext: arch/x86/include/uapi/asm/sigcontext.h, 40 bytes of flags, link and
   stack, then 15 registers and rsp, and rip. The kernel makes the link NULL and never reads it. */
#define UCONTEXT_LINK 8
#define UCONTEXT_RIP 168

static long syscall4(long number, long a, long b, long c, long d) {
    register long r10 __asm__("r10") = d;
    long result;

    __asm__ __volatile__("syscall"
                         : "=a"(result)
                         : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                         : "rcx", "r11", "memory");
    return result;
}

/* The search for an address begins here, in a table of mask + 1 entries: those of 1 KiB of code are
   together, so that a controller finds many of them in few pages. */
static uint32_t first_place(uint64_t address, uint32_t mask) {
    const uint64_t block = (address >> 10) * 0x9e3779b97f4a7c15ul >> 32;

    return (uint32_t)(block << 4 | (address >> 6 & 15)) & mask;
}

/* The head at this address, if a breakpoint of ours stood there ever, or NULL. Entries are only
   ever added, the address last; their number is bounded, so a full table ends the search too. */
static const struct mj_patch *find_patch(const struct mj_control *control, uint64_t address) {
    const struct mj_patch *patches = mj_part(control, MJ_PART_PATCHES);
    const uint32_t mask = control->parts[MJ_PART_PATCHES].count - 1;
    uint32_t at = first_place(address, mask);

    for (uint32_t tried = 0; tried <= mask; tried++, at = (at + 1) & mask) {
        const uint64_t found = __atomic_load_n(&patches[at].address, __ATOMIC_ACQUIRE);

        if (found == address)
            return !patches[at].body || (patches[at].gone && mj_alive()) ? NULL : &patches[at];
        if (!found)
            break;
    }
    return NULL;
}

/* A handler of ours that is passing a trap on: that of this arena. Several arenas may be in the
   process. The list begins at the link of the trap's context. */
struct passing {
    const struct mj_control *control;
    const struct passing *before;
};

static int is_passing(const struct mj_control *control, const struct passing *passing) {
    while (passing && passing->control != control)
        passing = passing->before;
    return !!passing;
}

/*
 * Do what the kernel would have done without us.
 *
 * The action before ours may lead back here with the same trap: a program's handler that was
 * installed anew, and kept ours to pass on to. The second time round nobody is left to handle it.
 */
static void pass_on(const struct mj_control *control, int signal, void *info, void *context) {
    const struct mj_sigaction *old = &control->old_trap;
    const struct passing **link = (const struct passing **)((char *)context + UCONTEXT_LINK);
    const struct passing passing = {control, *link};
    const int sent = ((const int32_t *)info)[2] <= SI_USER_OR_LESS;

    if (old->handler > 1 && !is_passing(control, *link)) {
        *link = &passing;
        ((void (*)(int, void *, void *))old->handler)(signal, info, context);
        *link = passing.before;
        return;
    }
    if (old->handler == 1 && sent) /* SIG_IGN; a trap cannot be ignored */
        return;
    const struct mj_sigaction by_default = {0, 0, 0, 0};

    syscall4(NR_rt_sigaction, SIGTRAP, (long)&by_default, 0, 8);
    syscall4(NR_tgkill, syscall4(NR_getpid, 0, 0, 0, 0), syscall4(NR_gettid, 0, 0, 0, 0), SIGTRAP,
             0); /* is delivered at once: SIGTRAP is not blocked here (SA_NODEFER) */
}

/*
 * Whether an int3 may have raised this signal. The address alone does not say so: behind a one-byte
 * site a single step (TRAP_TRACE) or a hardware breakpoint (TRAP_HWBKPT) of the program's own ends
 * at the same place.
 */
static int is_breakpoint(const void *info) {
    const int32_t code = ((const int32_t *)info)[2];

    return code == SI_KERNEL || code == TRAP_BRKPT;
}

__attribute__((used)) void mj_trap(int signal, void *info, void *context) {
    const struct mj_control *control = mj_control();
    uint64_t *rip = (uint64_t *)((char *)context + UCONTEXT_RIP);
    const uint64_t address = *rip - 1;
    const struct mj_patch *patch = is_breakpoint(info) ? find_patch(control, address) : NULL;

    if (!patch)
        pass_on(control, signal, info, context);
    else if (*(const volatile uint8_t *)address == INT3)
        *rip = patch->body; /* as if the instruction under it had been executed */
    else                    /* switched off between the trap and now: run what stands there */
        *rip = address;
}

/* Where the kernel returns to from the handler: rt_sigreturn(2). */
__asm__(".text\n"
        ".globl mj_restorer\n"
        "mj_restorer:\n"
        "mov $15, %eax\n"
        "syscall\n");

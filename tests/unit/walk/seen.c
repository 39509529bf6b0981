/* SPDX-License-Identifier: MIT */
/*
 * Walks of this process's own stacks by the runtime, and copies of the registers and stacks that
 * they began with.
 *
 *     walk_from     walk from any registers; returns the number of the stack
 *     look          walk from here, and copy
 *     look_sorting  the same, from a comparison of qsort; look_in_signal, from a handler of a
 * signal, on a stack of its own or on that of the thread; look_deep, below n frames
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define SHAPE_WORDS 3 /* of a call, below its words */
#define ROOM (1 << 20)

struct copy {
    uint64_t start;
    uint64_t size;
    unsigned char bytes[ROOM];
};

struct seen {
    uint64_t gate; /* the runtime's */
    uint64_t depth;
    uint64_t limit; /* the end of the thread's stack */
    uint64_t number;
    uint64_t rip, rsp, rbp;
    struct copy here;  /* the stack where the walk began, */
    struct copy other; /* and the one that a signal has interrupted */
};

uint64_t call_gate(uint64_t gate, uint64_t depth, const uint64_t *words, uint64_t rbp);
__asm__(".text\n.globl call_gate\n.type call_gate, @function\ncall_gate:\n"
        ".cfi_startproc\n"
        "push %rbp\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbp, 0\n"
        "mov %rdi, %rax\n"
        "mov %rsi, %rdi\n"
        "mov %rdx, %r10\n"
        "mov $1, %r11d\n" /* as of a stub */
        "mov %rcx, %rbp\n"
        "call *%rax\n"
        "pop %rbp\n.cfi_adjust_cfa_offset -8\n"
        "ret\n.cfi_endproc\n.size call_gate, . - call_gate\n");

/* `words` are where a call would have them, somewhere below `rsp`. */
static uint64_t walk_with(uint64_t gate, uint64_t depth, uint64_t rip, uint64_t rsp, uint64_t rbp,
                          uint64_t *words, int called) {
    unsigned char stub[10] = {0x48, 0xb8};
    const uint64_t named = rip | (rsp - (uint64_t)words) / 8 << 48 | (uint64_t)(called != 0) << 63;

    memcpy(stub + 2, &named, sizeof named);
    words[-1] = 0; /* the slot */
    words[-2] = 0; /* no words */
    words[-3] = (uint64_t)stub;
    return call_gate(gate, depth, words, rbp);
}

/* The page of rsp, and SHAPE_WORDS words below it, have to be there. */
uint64_t walk_from(uint64_t gate, uint64_t depth, uint64_t rip, uint64_t rsp, uint64_t rbp,
                   int called) {
    return walk_with(gate, depth, rip, rsp, rbp, (uint64_t *)rsp, called);
}

static void copy(struct copy *to, uint64_t start, uint64_t end) {
    to->start = start;
    to->size = end - start < ROOM ? end - start : ROOM;
    memcpy(to->bytes, (const void *)start, to->size);
}

__attribute__((noinline)) void look(struct seen *seen, uint64_t end) {
    uint64_t block[SHAPE_WORDS];

    __asm__ volatile("lea 1f(%%rip), %%rax\n"
                     "mov %%rax, %0\n"
                     "mov %%rsp, %1\n"
                     "mov %%rbp, %2\n"
                     "1:"
                     : "=m"(seen->rip), "=m"(seen->rsp), "=m"(seen->rbp)
                     :
                     : "rax", "memory");
    copy(&seen->here, seen->rsp, end);
    /* The frame of this function has the block, so it is above the stack pointer: a call has its
       words below, in the frames of the callees. */
    (void)block;
    uint64_t *below = (uint64_t *)(seen->rsp - 4096);

    seen->number = walk_with(seen->gate, seen->depth, seen->rip, seen->rsp, seen->rbp, below, 0);
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) void look_here(struct seen *seen) {
    look(seen, seen->limit);
    __asm__ volatile("" ::: "memory");
}

static __thread struct seen *seen_now;
static __thread uint64_t handler_end;

static int compare(const void *one, const void *other) {
    if (!seen_now->number)
        look(seen_now, seen_now->limit);
    return *(const int *)one - *(const int *)other;
}

void look_sorting(struct seen *seen) {
    int numbers[] = {3, 1, 2, 7, 5};

    seen_now = seen;
    seen->number = 0;
    qsort(numbers, 5, sizeof *numbers, compare);
}

static void handle(int number, siginfo_t *info, void *context) {
    const ucontext_t *interrupted = context;
    const uint64_t rsp = (uint64_t)interrupted->uc_mcontext.gregs[REG_RSP];

    (void)number;
    (void)info;
    copy(&seen_now->other, rsp, seen_now->limit);
    look(seen_now, handler_end ? handler_end : seen_now->limit);
}

__attribute__((noinline)) static void interrupted(int depth) {
    volatile char room[100];

    room[0] = 0;
    if (depth)
        interrupted(depth - 1);
    else
        raise(SIGUSR1);
    room[1] = 0;
}

void look_in_signal(struct seen *seen, int on_own_stack) {
    static char stack[64 << 10];
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof stack}, none = {.ss_flags = SS_DISABLE};
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO}, before;

    seen_now = seen;
    handler_end = on_own_stack ? (uint64_t)stack + sizeof stack : 0;
    sigaltstack(on_own_stack ? &own : &none, NULL);
    action.sa_flags |= on_own_stack ? SA_ONSTACK : 0;
    sigaction(SIGUSR1, &action, &before);
    interrupted(5);
    sigaction(SIGUSR1, &before, NULL);
    sigaltstack(&none, NULL);
}

__attribute__((noinline)) int look_deep(struct seen *seen, int depth) {
    volatile char room[24];

    room[0] = (char)depth;
    if (depth)
        return look_deep(seen, depth - 1) + room[0];
    look(seen, seen->limit);
    return room[0];
}

/* SPDX-License-Identifier: MIT */
/*
 * truth_stack_switches: functions on stacks that a thread leaves in other ways than by a return.
 *
 *     step     (long n): calls nothing
 *     worker   (long n): the body of a coroutine; calls `step` and `yield` again and again
 *     yield    (long n): switches to the stack of `resume`
 *     resume   (long n): switches to the stack of a coroutine; calls `step` before and after
 *     raiser   (long n): raises a signal, and calls `step` afterwards
 *     handler  (int number): handles it on a stack of its own; calls `step`, and leaves by
 *              siglongjmp where `attempt` asks for that
 *     attempt  (long n): calls `raiser`, and `rescued` where that was left
 *     rescued  (long n): calls `step`
 *     descend  (long n): calls itself n times; the last one leaves all by longjmp
 *     landing  (long n): calls `descend`, and `rescued` behind it
 *
 * Coroutines have their stacks in mappings, in the heap, and side by side in one variable; they
 * switch by swapcontext, or by some instructions of our own (`by_hand`).
 *
 * Commands: `mapped N`, `heap N`, `beside N`, `by_hand N`: two coroutines, which are resumed in
 * turns, N times each, and then dropped as they are. `signals N`, `jumps N`, `landings N`: so many.
 * `counts`; `quit`.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "truth.h"

#define FUNCTION __attribute__((noinline, noclone, noipa))
#define SIZE 65536
#define TWO 2

static struct truth_counts {
    truth_count step, worker, yield, resume, raiser, handler, attempt, rescued, descend, landing,
        jumped, made;
} counts;
static ucontext_t outside, inside[TWO];
static void *outside_by_hand, *inside_by_hand[TWO];
static bool by_hand, is_to_jump;
static int current;
static sigjmp_buf place;
static char beside[TWO][SIZE] __attribute__((aligned(16)));

/* Saves what a function keeps, and goes on where the other stack was left. */
void by_hand_switch(void **from, void *to);
__asm__(".pushsection .text\n"
        ".type by_hand_switch, @function\n"
        "by_hand_switch:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
        "    ret\n"
        ".size by_hand_switch, . - by_hand_switch\n"
        ".popsection\n");

FUNCTION long step(long n) {
    truth_add(&counts.step);
    return n * 3 + 1;
}

FUNCTION long yield(long n) {
    truth_add(&counts.yield);
    if (by_hand)
        by_hand_switch(&inside_by_hand[current], outside_by_hand);
    else
        swapcontext(&inside[current], &outside);
    return n + 2;
}

FUNCTION long worker(long n) {
    truth_add(&counts.worker);
    while (n >= 0) {
        step(n);
        n = yield(n);
    }
    return n * 5;
}

FUNCTION long resume(long n) {
    truth_add(&counts.resume);
    step(n);
    current = (int)(n % TWO);
    if (by_hand)
        by_hand_switch(&outside_by_hand, inside_by_hand[current]);
    else
        swapcontext(&outside, &inside[current]);
    return step(n) + 1;
}

static void begin(void) {
    worker(current);
    abort();
}

static char *stack_of(const char *kind, int i) {
    if (*kind == 'm')
        return mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return *kind == 'h' ? malloc(SIZE) : beside[i];
}

static void coroutines(const char *kind, long turns) {
    by_hand = kind[1] == 'y';
    for (int i = 0; i < TWO; i++) {
        char *stack = stack_of(by_hand ? "beside" : kind, i);
        void **top = (void **)(stack + SIZE) - 8;

        truth_add(&counts.made);
        if (by_hand) {
            top[6] = (void *)begin; /* behind six registers */
            inside_by_hand[i] = top;
            continue;
        }
        getcontext(&inside[i]);
        inside[i].uc_stack.ss_sp = stack;
        inside[i].uc_stack.ss_size = SIZE;
        makecontext(&inside[i], begin, 0);
    }
    for (long n = 0; n < TWO * turns; n++)
        resume(n);
}

FUNCTION void handler(int number) {
    truth_add(&counts.handler);
    step(number);
    if (is_to_jump)
        siglongjmp(place, 1);
    __asm__ volatile("");
}

FUNCTION long raiser(long n) {
    truth_add(&counts.raiser);
    raise(SIGUSR1);
    return step(n) + 4;
}

FUNCTION long rescued(long n) {
    truth_add(&counts.rescued);
    return step(n) + 5;
}

FUNCTION long attempt(long n) {
    truth_add(&counts.attempt);
    if (sigsetjmp(place, 1) == 0)
        return raiser(n) + 6;
    truth_add(&counts.jumped);
    return rescued(n) + 7;
}

FUNCTION long descend(long n) {
    truth_add(&counts.descend);
    if (n == 0)
        siglongjmp(place, 1);
    const long below = descend(n - 1);

    __asm__ volatile("" ::"r"(below));
    return below + 1;
}

FUNCTION long landing(long n) {
    truth_add(&counts.landing);
    if (sigsetjmp(place, 1) == 0)
        return descend(n);
    return rescued(n) + 8;
}

static void signals(long turns, bool jumps) {
    is_to_jump = jumps;
    for (long n = 0; n < turns; n++)
        attempt(n);
}

int main(void) {
    char line[64];
    const char *rest;
    stack_t stack = {.ss_sp = malloc(SIZE), .ss_size = SIZE};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};

    sigaltstack(&stack, NULL);
    sigaction(SIGUSR1, &action, NULL);
    truth_ready();
    while (truth_next(line, sizeof(line))) {
        if ((rest = truth_is(line, "signals")))
            signals(truth_number(rest, 1), false);
        else if ((rest = truth_is(line, "jumps")))
            signals(truth_number(rest, 1), true);
        else if ((rest = truth_is(line, "landings")))
            for (long n = truth_number(rest, 1); n > 0; n--)
                landing(n % 7);
        else if (strcmp(line, "counts") != 0 && (rest = strchr(line, ' ')))
            coroutines(line, truth_number(rest + 1, 1));
        line[strcspn(line, " ")] = '\0';
        truth_say("%s step=%lu worker=%lu yield=%lu resume=%lu raiser=%lu handler=%lu attempt=%lu "
                  "rescued=%lu descend=%lu landing=%lu jumped=%lu made=%lu",
                  line, counts.step, counts.worker, counts.yield, counts.resume, counts.raiser,
                  counts.handler, counts.attempt, counts.rescued, counts.descend, counts.landing,
                  counts.jumped, counts.made);
    }
    return 0;
}

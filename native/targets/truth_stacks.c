/* SPDX-License-Identifier: MIT */
/* clang-format off */
/*
 * truth_stacks: functions that are entered on one stack while others of the same name are active on
 * other stacks, and are left in another order. What each returns follows from its argument.
 *
 *     held    (long n): in one of four contexts that take turns (swapcontext); returns n * 11
 *     nested  (long n): for n below 1000, raises a signal whose handler, on a stack of its own,
 *             calls it with n + 1000; for those, every third time, the handler leaves it by a jump
 *             out of itself (siglongjmp); returns n * 13
 *     summed  (long n, ...): adds n numbers up
 *     tripled (long n): a structure in memory, of n, n * 2 and n * 3
 *     again   (long n): jumps to its own start until n is 0 (tail recursion); returns 0
 *     halved  (double d, long n): returns n / 2 of its second argument
 *     waited  (long n): is entered by all threads at once, each at another depth; returns n * 17
 *     replied (long n): calls vfork, and waits for the child; returns n * 19
 *
 * Commands: `run N`: N turns. `counts`; `quit`.
 */
/* clang-format on */
#include <alloca.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "truth.h"

#define FUNCTION __attribute__((noinline, noclone, noipa))
#define CONTEXTS 4
#define STACK (64 << 10)
#define THREADS 6

struct triple {
    long one, two, three;
};

static truth_count held_calls, nested_calls, jumps, waited_calls, turns, replied_calls;
static ucontext_t main_context, contexts[CONTEXTS];
static char stacks[CONTEXTS][STACK], handler_stack[STACK];
static volatile int current;
static volatile long nested_in;
static sigjmp_buf out;
static pthread_barrier_t barrier;

static void need(int is_so) {
    if (!is_so)
        _exit(4);
}

FUNCTION long held(long n) {
    truth_add(&held_calls);
    swapcontext(&contexts[current], &main_context);
    return n * 11;
}

static void hold(int which, int low) {
    const long n = (long)low;

    need(held(n + which) == (n + which) * 11);
}

FUNCTION long nested(long n) {
    truth_add(&nested_calls);
    if (n < 1000) {
        nested_in = n;
        raise(SIGUSR1);
    } else if (n % 3 == 0) {
        truth_add(&jumps);
        siglongjmp(out, 1);
    }
    return n * 13;
}

static void handle(int number) {
    (void)number;
    need(nested(nested_in + 1000) == (nested_in + 1000) * 13);
}

FUNCTION long summed(long n, ...) {
    va_list numbers;
    long sum = 0;

    va_start(numbers, n);
    for (long i = 0; i < n; i++)
        sum += va_arg(numbers, long);
    va_end(numbers);
    return sum;
}

FUNCTION struct triple tripled(long n) {
    const struct triple triple = {n, n * 2, n * 3};

    return triple;
}

FUNCTION long halved(double d, long n) {
    __asm__ volatile("" ::"x"(d));
    return n / 2;
}

FUNCTION long waited(long n) {
    truth_add(&waited_calls);
    pthread_barrier_wait(&barrier);
    return n * 17;
}

FUNCTION long replied(long n) {
    const pid_t child = vfork();

    if (child == 0) {
        long inner = n;
        __asm__ volatile("" : "+r"(inner));
        _exit(inner == n ? 0 : 1);
    }
    int status = -1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    need(status == 0);
    truth_add(&replied_calls);
    return n * 19;
}

long again(long n);

static void *wait_deep(void *argument) {
    const long n = *(long *)argument;
    char *below = alloca((size_t)(n % 100 * 24 + 8)); /* frames at all distances from a page */

    __asm__ volatile("" ::"r"(below) : "memory");
    need(waited(n) == n * 17);
    return NULL;
}

static void turn(long n) {
    pthread_t threads[THREADS];
    long numbers[THREADS];

    for (int i = 0; i < CONTEXTS; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = stacks[i];
        contexts[i].uc_stack.ss_size = STACK;
        contexts[i].uc_link = &main_context;
        makecontext(&contexts[i], (void (*)(void))hold, 2, i, (int)n);
        current = i;
        swapcontext(&main_context, &contexts[i]);
    }
    for (int i = 0; i < CONTEXTS; i++) {
        current = (int)((i + n) % CONTEXTS);
        swapcontext(&main_context, &contexts[current]);
    }
    if (sigsetjmp(out, 1) == 0)
        need(nested(n % 1000) == n % 1000 * 13);
    need(summed(3, n, n + 1, n + 2) == 3 * n + 3);
    need(tripled(n).three == n * 3);
    need(again(n % 5) == 0);
    need(halved((double)n, n) == n / 2);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = n * THREADS + i;
        need(pthread_create(&threads[i], NULL, wait_deep, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    need(replied(n) == n * 19);
    truth_add(&turns);
}

int main(void) {
    const stack_t alternative = {.ss_sp = handler_stack, .ss_size = STACK};
    const struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK | SA_NODEFER};
    char line[64];
    const char *rest;
    long number = 0;

    sigaltstack(&alternative, NULL);
    sigaction(SIGUSR1, &action, NULL);
    pthread_barrier_init(&barrier, NULL, THREADS);
    truth_ready();
    while (truth_next(line, sizeof(line))) {
        if ((rest = truth_is(line, "run")))
            for (long n = truth_number(rest, 1); n > 0; n--)
                turn(number++);
        line[strcspn(line, " ")] = '\0';
        truth_say("%s turns=%lu held=%lu nested=%lu jumps=%lu waited=%lu", line,
                  atomic_load(&turns), atomic_load(&held_calls), atomic_load(&nested_calls),
                  atomic_load(&jumps), atomic_load(&waited_calls));
    }
    return 0;
}

/* clang-format off */
__asm__(
    ".pushsection .text.written,\"ax\"\n"
    ".balign 16\n.globl again\n.type again, @function\nagain: .cfi_startproc\n"
    "push %rbx\n.cfi_adjust_cfa_offset 8\n"
    "mov %rdi, %rbx\n"
    "mov %rbx, %rax\n"
    "pop %rbx\n.cfi_adjust_cfa_offset -8\n"
    "test %rax, %rax\n"
    "je 1f\n"
    "dec %rdi\n"
    "jmp again\n"
    "nopl 0(%rax, %rax)\n"
    "1: mov %rdi, %rax\n"
    "nopl 0(%rax, %rax)\n"
    "ret\n"
    ".cfi_endproc\n.size again, .-again\n"
    ".balign 16\n"
    ".popsection\n");
/* clang-format on */

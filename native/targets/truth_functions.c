/* SPDX-License-Identifier: MIT */
/*
 * truth_functions: functions that nobody prepared, and how often each was entered.
 *
 *     turn     (int i, const char *text, unsigned long square): each turn of `run`; `turned` is
 *              another name of it
 *     landing  begins with an endbr64, and is called through a pointer
 *     brief    three bytes, and padding behind them
 *     looping  jumps back into the five bytes that it begins with: a short jump opens it
 *     again    calls itself, ten times a turn
 *     thrown   is left by longjmp
 *     handle   the handler of a signal that each turn raises
 *     spun     by the second thread
 *     passed   by a child of `fork`
 *
 * Commands: `run N`: N turns in the main thread. `resume` and `pause`: the second thread runs at
 * full speed until it stands still again (at first it does). `fork N`: a child enters its function
 * N times and exits; answered when it is gone. `counts`; `quit`.
 */
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

#include "truth.h"

#define FUNCTION __attribute__((noinline, noclone, noipa))

static truth_count turns, handled, spins, children;
static struct truth_gate gate = TRUTH_GATE;
static jmp_buf place;

FUNCTION long turn(int i, const char *text, unsigned long square) {
    truth_add(&turns);
    return (long)text[0] + i + (long)square;
}

long turned(int i, const char *text, unsigned long square) __attribute__((alias("turn")));

long landing(long value);
long brief(void);
long looping(long times);

static long (*volatile landing_at)(long) = landing;

FUNCTION int again(int depth) {
    const int below = depth > 1 ? again(depth - 1) : 0;

    __asm__ volatile("" ::"r"(below)); /* or the compiler would make a loop of it */
    return below + 1;
}

FUNCTION void thrown(int value) { longjmp(place, value); }

FUNCTION void handle(int number) {
    (void)number;
    truth_add(&handled);
}

FUNCTION void spun(int i) {
    __asm__ volatile("" ::"r"(i));
    truth_add(&spins);
}

FUNCTION long passed(long i) {
    __asm__ volatile("" ::"r"(i));
    return i * i + 1;
}

static void run(long times) {
    static volatile long sum;

    for (int i = 0; i < times; i++) {
        sum += turn(i, i % 2 ? "odd" : "even", (unsigned long)i * (unsigned long)i);
        if (landing_at(i) != i + 1 || brief() != 0 || looping(3) != 3 || again(10) != 10)
            _exit(4);
        if (setjmp(place) == 0)
            thrown(1);
        raise(SIGUSR1);
    }
}

static void *spin(void *argument) {
    (void)argument;
    for (int i = 0;; i = (i + 1) & 0xffff) {
        truth_pass(&gate);
        spun(i);
    }
    return NULL;
}

static void fork_and_wait(long times) {
    int status = -1;
    const pid_t pid = fork();

    if (pid == 0) {
        for (long i = 0; i < times; i++)
            passed(i);
        _exit(0);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!status)
        truth_add(&children);
}

int main(void) {
    char line[64];
    const char *rest;

    signal(SIGUSR1, handle);
    atomic_store(&gate.closed, true);
    truth_start(spin, NULL);
    truth_close(&gate, 1);
    truth_ready();
    while (truth_next(line, sizeof(line))) {
        if ((rest = truth_is(line, "run")))
            run(truth_number(rest, 1));
        else if ((rest = truth_is(line, "fork")))
            fork_and_wait(truth_number(rest, 1));
        else if (truth_is(line, "pause"))
            truth_close(&gate, 1);
        else if (truth_is(line, "resume"))
            truth_open(&gate);
        line[strcspn(line, " ")] = '\0';
        truth_say("%s turn=%lu handled=%lu spin=%lu children=%lu", line, atomic_load(&turns),
                  atomic_load(&handled), atomic_load(&spins), atomic_load(&children));
    }
    return 0;
}

/* Behind what is compiled: the code that comes first has no unwind entries. */
__asm__(".pushsection .text.written,\"ax\"\n"
        ".balign 16\n"
        ".globl landing\n"
        ".type landing, @function\n"
        "landing: .cfi_startproc\n"
        "endbr64\n"
        "lea 1(%rdi), %rax\n"
        "test %rax, %rax\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size landing, .-landing\n"
        ".balign 16\n"
        ".globl brief\n"
        ".type brief, @function\n"
        "brief: .cfi_startproc\n"
        "xor %eax, %eax\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size brief, .-brief\n"
        ".balign 16\n"
        ".globl looping\n"
        ".type looping, @function\n"
        "looping: .cfi_startproc\n"
        "xor %eax, %eax\n"
        "1: inc %rax\n"
        "dec %rdi\n"
        "jnz 1b\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size looping, .-looping\n"
        ".balign 16\n"
        ".popsection\n");

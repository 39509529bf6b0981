/* SPDX-License-Identifier: MIT */
/*
 * truth_replaced: functions that are to be replaced, what they return, and how often the old ones
 * were executed.
 *
 *     square   (long n): n * n
 *     mixed    (double x, int n, const char *text, ...): x + n + the text's length
 *     many     eight arguments, two of them on the stack; their sum
 *     deep     (long n): calls itself; n + 1 calls, and returns n
 *     endless  (long n): jumps back to its own start, which nothing may be put over
 *     brief    three bytes
 *     spun     (long n): n + 1, by four threads at full speed
 *
 * Commands: `run N`: calls the first four with N, and answers what they return. `resume` and
 * `pause`: four threads call `spun` at full speed; each return that is neither n + 1 nor n + 2 is
 * counted as wrong. `keep N`: a static variable has this number. `fork N`: as `run`, in a child,
 * whose answer is `child …`. `counts`; `quit`.
 */
#include <sys/wait.h>

#include "truth.h"

#define FUNCTION __attribute__((noinline, noclone, noipa))
#define SPINNERS 4

static volatile unsigned long kept;
static truth_count squares, spins, changed, wrong;
static struct truth_gate gate = TRUTH_GATE;

long endless(long n);
long brief(void);

FUNCTION long square(long n) {
    truth_add(&squares);
    return n * n;
}

FUNCTION double mixed(double x, int n, const char *text, ...) {
    return x + n + (double)strlen(text);
}

FUNCTION long many(long a, long b, long c, long d, long e, long f, long g, long h) {
    return a + b + c + d + e + f + g + h;
}

FUNCTION long deep(long n) {
    const long below = n > 0 ? deep(n - 1) : 0;

    __asm__ volatile("" ::"r"(below));
    return n > 0 ? below + 1 : 0;
}

FUNCTION long spun(long n) {
    __asm__ volatile("" : "+r"(n));
    return n + 1;
}

static void *spin(void *argument) {
    (void)argument;
    for (long n = 0;; n = (n + 1) & 0xffff) {
        truth_pass(&gate);
        const long result = spun(n);

        truth_add(&spins);
        if (result == n + 2)
            truth_add(&changed);
        else if (result != n + 1)
            truth_add(&wrong);
    }
    return NULL;
}

static void run(const char *word, long n) {
    truth_say("%s square=%ld mixed=%ld many=%ld deep=%ld squares=%lu", word, square(n),
              (long)mixed(0.5, (int)n, "text", 7L, 8.0), many(n, 2, 3, 4, 5, 6, 7, 8), deep(n),
              atomic_load(&squares));
}

static void fork_and_run(long n) {
    const pid_t pid = fork();

    if (pid == 0) {
        run("child", n);
        _exit(0);
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

int main(void) {
    char line[64];
    const char *rest;

    atomic_store(&gate.closed, true);
    for (int i = 0; i < SPINNERS; i++)
        truth_start(spin, NULL);
    truth_close(&gate, SPINNERS);
    truth_ready();
    while (truth_next(line, sizeof(line))) {
        if ((rest = truth_is(line, "run"))) {
            run("run", truth_number(rest, 1));
            continue;
        }
        if ((rest = truth_is(line, "fork"))) {
            fork_and_run(truth_number(rest, 1));
            continue;
        }
        if ((rest = truth_is(line, "keep")))
            kept = truth_number(rest, 0);
        else if (truth_is(line, "pause"))
            truth_close(&gate, SPINNERS);
        else if (truth_is(line, "resume"))
            truth_open(&gate);
        line[strcspn(line, " ")] = '\0';
        truth_say("%s spun=%lu changed=%lu wrong=%lu", line, atomic_load(&spins),
                  atomic_load(&changed), atomic_load(&wrong));
    }
    return (int)(endless(1) + brief() - 1);
}

__asm__(".pushsection .text.written,\"ax\"\n"
        ".balign 16\n"
        ".globl endless\n"
        ".type endless, @function\n"
        "endless: .cfi_startproc\n"
        "mov %rdi, %rax\n"
        "sub $1, %rdi\n"
        "cmp $1000, %rdi\n"
        "jg endless\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size endless, .-endless\n"
        ".balign 16\n"
        ".globl brief\n"
        ".type brief, @function\n"
        "brief: .cfi_startproc\n"
        "xor %eax, %eax\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size brief, .-brief\n"
        ".popsection\n");

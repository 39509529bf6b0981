/* SPDX-License-Identifier: MIT */
/*
 * truth_call_sites: calls of every kind, and how often each caller has made them.
 *
 *     direct    calls `leaf` twice
 *     stacked   calls `wide`, with two arguments on the stack
 *     plt       calls `getenv` through the linkage table
 *     slot      calls `rand_r` by its slot
 *     handed    its last call is a jump to `leaf`
 *     passed    its last call is a jump by the slot of `rand_r`
 *     near      jumps to `leaf` where its argument is 0, with 32 bits
 *     brief     jumps to `close_by`, which stands behind it, where its argument is 0, with 8 bits
 *     deep      calls itself
 *     pointed   calls `leaf` by a pointer: nobody can know that
 *     spun      calls `leaf`, by four threads at full speed
 *
 * Commands: `run N`: N turns. `resume` and `pause`: the threads run at full speed until they stand
 * still again (at first they do). `fork N`: a child runs N turns and exits. `counts`; `quit`.
 */
#include <sys/wait.h>

#include "truth.h"

#define FUNCTION __attribute__((noinline, noclone, noipa))
#define SPINNERS 4

extern int rand_r(unsigned int *seed) __attribute__((noplt));

static struct truth_counts {
    truth_count leaf, direct, stacked, plt, slot, handed, passed, jumped, stayed, deep, pointed,
        spun;
} counts;
static struct truth_gate gate = TRUTH_GATE;
static volatile long sum;

long leaf(long n);
long near(long n);
long brief(long n);

static long (*volatile leaf_at)(long) = leaf;

FUNCTION long leaf(long n) {
    truth_add(&counts.leaf);
    return n + 1;
}

FUNCTION long wide(long a, long b, long c, long d, long e, long f, long g, int h) {
    return a + b + c + d + e + f + g + h;
}

FUNCTION long direct(long n) {
    truth_add(&counts.direct);
    return leaf(n) + leaf(n + 1);
}

FUNCTION long stacked(long n) {
    truth_add(&counts.stacked);
    return wide(n, 2, 3, 4, 5, 6, n * 7, -8) + 1;
}

FUNCTION long plt(const char *name) {
    truth_add(&counts.plt);
    return getenv(name) == NULL;
}

FUNCTION long slot(unsigned int *seed) {
    truth_add(&counts.slot);
    return rand_r(seed) + 1L;
}

FUNCTION long handed(long n) {
    truth_add(&counts.handed);
    return leaf(n * 3);
}

FUNCTION int passed(unsigned int *seed) {
    truth_add(&counts.passed);
    return rand_r(seed);
}

FUNCTION long deep(long n) {
    truth_add(&counts.deep);
    const long below = n > 0 ? deep(n - 1) : 0;

    __asm__ volatile("" ::"r"(below));
    return below + n;
}

FUNCTION long pointed(long n) {
    truth_add(&counts.pointed);
    return leaf_at(n) + 1;
}

FUNCTION long spun(long n) {
    truth_add(&counts.spun);
    return leaf(n) * 3;
}

static void turn(long n) {
    unsigned int seed = (unsigned int)n;

    if (direct(n) != 2 * n + 3 || stacked(n) != 8 * n + 13 || plt("MARKERJIT_NOT_SET") != 1)
        _exit(4);
    sum += slot(&seed) + passed(&seed);
    if (handed(n) != 3 * n + 1 || deep(3) != 6 || pointed(n) != n + 2)
        _exit(5);
    if (near(n % 2) != (n % 2 ? 70 : 1) || brief(n % 2) != (n % 2 ? 71 : 72))
        _exit(6);
    truth_add(n % 2 ? &counts.stayed : &counts.jumped);
}

static void run(long times) {
    for (long n = 0; n < times; n++)
        turn(n);
}

static void *spin(void *argument) {
    (void)argument;
    for (long n = 0;; n = (n + 1) & 0xffff) {
        truth_pass(&gate);
        if (spun(n) != 3 * n + 3)
            _exit(7);
    }
    return NULL;
}

static void fork_and_wait(long times) {
    int status = -1;
    const pid_t pid = fork();

    if (pid == 0) {
        run(times);
        _exit(0);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (status)
        _exit(8);
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
        if ((rest = truth_is(line, "run")))
            run(truth_number(rest, 1));
        else if ((rest = truth_is(line, "fork")))
            fork_and_wait(truth_number(rest, 1));
        else if (truth_is(line, "pause"))
            truth_close(&gate, SPINNERS);
        else if (truth_is(line, "resume"))
            truth_open(&gate);
        line[strcspn(line, " ")] = '\0';
        truth_say("%s leaf=%lu direct=%lu stacked=%lu plt=%lu slot=%lu handed=%lu passed=%lu "
                  "jumped=%lu stayed=%lu deep=%lu pointed=%lu spun=%lu",
                  line, atomic_load(&counts.leaf), atomic_load(&counts.direct),
                  atomic_load(&counts.stacked), atomic_load(&counts.plt), atomic_load(&counts.slot),
                  atomic_load(&counts.handed), atomic_load(&counts.passed),
                  atomic_load(&counts.jumped), atomic_load(&counts.stayed),
                  atomic_load(&counts.deep), atomic_load(&counts.pointed),
                  atomic_load(&counts.spun));
    }
    return 0;
}

__asm__(".pushsection .text.written,\"ax\"\n"
        ".balign 16\n"
        ".globl near\n"
        ".type near, @function\n"
        "near: .cfi_startproc\n"
        "test %rdi, %rdi\n"
        "je leaf\n"
        "mov $70, %eax\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size near, .-near\n"
        ".balign 16\n"
        ".globl brief\n"
        ".type brief, @function\n"
        "brief: .cfi_startproc\n"
        "test %rdi, %rdi\n"
        "je .Lclose_by\n"
        "mov $71, %eax\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size brief, .-brief\n"
        ".balign 16\n"
        ".globl close_by\n"
        ".type close_by, @function\n"
        "close_by: .Lclose_by: .cfi_startproc\n"
        "mov $72, %eax\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size close_by, .-close_by\n"
        ".popsection\n");

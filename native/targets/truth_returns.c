/* SPDX-License-Identifier: MIT */
/*
 * truth_returns: functions that are left in every way, and how often each was entered.
 *
 *     many     (long n): returns in several places: n + 100, n + 200 or n + 300 by n % 3
 *     tailed   (long n): its last call is a jump to `many`
 *     perhaps  (long n): jumps on a condition, to `many` for 0; else returns n + 1
 *     counted  (long n): jumps to `landed` by a loop for 1; else returns n
 *     emptied  (long n): jumps to `landed` where %rcx is 0, for 0; else returns n
 *     landed   (in %rax): returns it + 40
 *     through  (long n, long (*f)(long)): jumps to what its second argument points to
 *     deep     (long n): calls itself n times; returns n * (n + 1) / 2
 *     brief    (): three bytes, returns 0
 *     single   (long n): one instruction and a return, n + 7
 *     popped   (long n): a return that the processor predicts badly (rep ret); n + 9
 *     rare     (long n): has a part elsewhere, in which it returns n - 1 where n is odd; else n
 *     thrown   (long n): is left by longjmp where n is odd; else returns n
 *     handled  (int): the handler of a signal that each turn raises
 *     spun     (long n): by threads at full speed; returns n * 3
 *     slow     (long n): returns n * 5, when `release` was given
 *     passed   (long n): by a child of `fork`; returns n * n
 *
 * Commands: `run N`: N turns of all but the last three in the main thread. `resume` and `pause`:
 * four threads run at full speed until they stand still again (at first they do). `enter N` has
 * another thread enter `slow`; `release` lets it return. `fork N`. `counts`; `quit`.
 */
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

#include "truth.h"

#define FUNCTION __attribute__((noinline, noclone, noipa))
#define SPINNERS 4

static truth_count turns, signals, spins, odd, left_slow;
static struct truth_gate gate = TRUTH_GATE;
static _Thread_local jmp_buf place;
static atomic_bool may_return;
static atomic_long entered;

long many(long n);
long tailed(long n);
long perhaps(long n);
long counted(long n);
long emptied(long n);
long through(long n, long (*f)(long));
long brief(void);
long single(long n);
long popped(long n);
long rare(long n);

FUNCTION long deep(long n) {
    const long below = n > 0 ? deep(n - 1) : 0;

    __asm__ volatile("" ::"r"(below));
    return below + n;
}

FUNCTION long thrown(long n) {
    if (n % 2) {
        truth_add(&odd);
        longjmp(place, 1);
    }
    return n;
}

FUNCTION void handled(int number) {
    (void)number;
    truth_add(&signals);
}

FUNCTION long spun(long n) {
    __asm__ volatile("" : "+r"(n));
    truth_add(&spins);
    return n * 3;
}

FUNCTION long passed(long n) {
    __asm__ volatile("" : "+r"(n));
    return n * n;
}

FUNCTION long slow(long n) {
    while (!atomic_load(&may_return))
        usleep(1000);
    return n * 5;
}

static void need(long value, long expected) {
    if (value != expected)
        _exit(4);
}

static void turn(long n) {
    need(many(n), n + 100 * (n % 3 + 1));
    need(tailed(n), n + 100 * (n % 3 + 1));
    need(perhaps(n % 2), n % 2 ? 2 : 100);
    need(counted(n % 2), n % 2 ? 41 : 0);
    need(emptied(n % 2), n % 2 ? 1 : 40);
    need(through(n, many), n + 100 * (n % 3 + 1));
    need(deep(n % 7), n % 7 * (n % 7 + 1) / 2);
    need(brief(), 0);
    need(single(n), n + 7);
    need(popped(n), n + 9);
    need(rare(n), n % 2 ? n - 1 : n);
    if (setjmp(place) == 0)
        need(thrown(n), n);
    raise(SIGUSR1);
    truth_add(&turns);
}

static void *spin(void *argument) {
    (void)argument;
    for (long n = 0;; n = (n + 1) & 0xffff) {
        truth_pass(&gate);
        need(spun(n), n * 3);
    }
    return NULL;
}

static void *be_slow(void *argument) {
    const long n = *(long *)argument;

    atomic_store(&entered, 1);
    need(slow(n), n * 5);
    truth_add(&left_slow);
    return NULL;
}

static void enter(long n) {
    static long number;

    number = n;
    atomic_store(&may_return, false);
    atomic_store(&entered, 0);
    truth_start(be_slow, &number);
    while (!atomic_load(&entered))
        usleep(1000);
    usleep(20000);
}

static void release(void) {
    const unsigned long before = atomic_load(&left_slow);

    atomic_store(&may_return, true);
    while (atomic_load(&left_slow) == before)
        usleep(1000);
}

static void fork_and_wait(long times) {
    int status = -1;
    const pid_t pid = fork();

    if (pid == 0) {
        for (long n = 0; n < times; n++)
            if (passed(n) != n * n)
                _exit(5);
        _exit(0);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (status)
        _exit(6);
}

int main(void) {
    char line[64];
    const char *rest;
    long number = 0;

    signal(SIGUSR1, handled);
    atomic_store(&gate.closed, true);
    for (int i = 0; i < SPINNERS; i++)
        truth_start(spin, NULL);
    truth_close(&gate, SPINNERS);
    truth_ready();
    while (truth_next(line, sizeof(line))) {
        if ((rest = truth_is(line, "run")))
            for (long n = truth_number(rest, 1); n > 0; n--)
                turn(number++);
        else if ((rest = truth_is(line, "fork")))
            fork_and_wait(truth_number(rest, 1));
        else if ((rest = truth_is(line, "enter")))
            enter(truth_number(rest, 1));
        else if (truth_is(line, "release"))
            release();
        else if (truth_is(line, "pause"))
            truth_close(&gate, SPINNERS);
        else if (truth_is(line, "resume"))
            truth_open(&gate);
        line[strcspn(line, " ")] = '\0';
        truth_say("%s turns=%lu handled=%lu spun=%lu odd=%lu", line, atomic_load(&turns),
                  atomic_load(&signals), atomic_load(&spins), atomic_load(&odd));
    }
    return 0;
}

/* Behind what is compiled: the code that comes first has no unwind entries. */
#define BEGIN(name)                                                                                \
    ".balign 16\n.globl " #name "\n.type " #name ", @function\n" #name ": .cfi_startproc\n"
#define END(name) ".cfi_endproc\n.size " #name ", .-" #name "\n"

__asm__(
    ".pushsection .text.written,\"ax\"\n"
    /* clang-format off */
        BEGIN(many)
        "push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbx, 0\n"
        "mov %rdi, %rax\n"
        "xor %edx, %edx\n"
        "mov $3, %ecx\n"
        "div %rcx\n"
        "mov %rdi, %rbx\n"
        "cmp $1, %rdx\n"
        "je 1f\n"
        "ja 2f\n"
        "lea 100(%rbx), %rax\n"
        "pop %rbx\n.cfi_remember_state\n.cfi_adjust_cfa_offset -8\n"
        "ret\n"
        ".cfi_restore_state\n"
        "1: lea 200(%rbx), %rax\n"
        "pop %rbx\n.cfi_remember_state\n.cfi_adjust_cfa_offset -8\n"
        "ret\n"
        ".cfi_restore_state\n"
        "2: lea 300(%rbx), %rax\n"
        "pop %rbx\n.cfi_adjust_cfa_offset -8\n"
        "ret\n"
        END(many)
        BEGIN(tailed)
        "push %rbx\n.cfi_adjust_cfa_offset 8\n"
        "mov %rdi, %rbx\n"
        "mov %rbx, %rdi\n"
        "pop %rbx\n.cfi_adjust_cfa_offset -8\n"
        "jmp many\n"
        END(tailed)
        BEGIN(perhaps)
        "lea 1(%rdi), %rax\n"
        "test %rdi, %rdi\n"
        ".byte 0x0f, 0x84\n.reloc ., R_X86_64_PC32, many - 4\n.long 0\n"
        "nopl 0(%rax, %rax)\n"
        "ret\n"
        END(perhaps)
        BEGIN(counted)
        "lea 1(%rdi), %rcx\n"
        "mov %rdi, %rax\n"
        "nopl 0(%rax, %rax)\n"
        "loop 7f\n"
        "nopl 0(%rax, %rax)\n"
        "ret\n"
        END(counted)
        BEGIN(landed)
        "7: add $40, %rax\n"
        "nopl 0(%rax, %rax)\n"
        "nopl 0(%rax, %rax)\n"
        "ret\n"
        END(landed)
        BEGIN(emptied)
        "mov %rdi, %rcx\n"
        "mov %rdi, %rax\n"
        "nopl 0(%rax, %rax)\n"
        "jrcxz 7b\n"
        "nopl 0(%rax, %rax)\n"
        "ret\n"
        END(emptied)
        BEGIN(through)
        "push %rbx\n.cfi_adjust_cfa_offset 8\n"
        "mov %rsi, %rax\n"
        "pop %rbx\n.cfi_adjust_cfa_offset -8\n"
        "nopl 0(%rax, %rax)\n"
        "jmp *%rax\n"
        END(through)
        BEGIN(brief)
        "xor %eax, %eax\n"
        "ret\n"
        END(brief)
        BEGIN(single)
        "lea 7(%rdi), %rax\n"
        "ret\n"
        END(single)
        BEGIN(popped)
        "lea 9(%rdi), %rax\n"
        "cmp %rax, %rdi\n"
        "jne 1f\n"
        "ud2\n"
        "1: rep ret\n"
        END(popped)
        BEGIN(rare)
        "push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbx, 0\n"
        "mov %rdi, %rax\n"
        "mov %rdi, %rbx\n"
        "test $1, %bl\n"
        "jne rare.cold\n"
        "pop %rbx\n.cfi_adjust_cfa_offset -8\n"
        "ret\n"
        END(rare)
        ".balign 16\n"
        ".popsection\n"
        ".pushsection .text.unlikely,\"ax\"\n"
        ".balign 16\n"
        ".type rare.cold, @function\n"
        "rare.cold: .cfi_startproc\n"
        ".cfi_def_cfa_offset 16\n.cfi_offset %rbx, -16\n"
        "lea -1(%rbx), %rax\n"
        "pop %rbx\n.cfi_adjust_cfa_offset -8\n"
        "ret\n"
        END(rare.cold)
        ".balign 16\n"
        ".popsection\n"
    /* clang-format on */
);

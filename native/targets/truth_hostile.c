/* SPDX-License-Identifier: MIT */
/*
 * truth_hostile: functions that leave little room for a jump, or none, and how often each was
 * entered.
 *
 *     bare       (): one byte, a return, and right behind it another function
 *     two        (): two bytes, and the next function right behind them
 *     popping    (two numbers on the stack): its return removes them (`ret $16`); returns their sum
 *     tabled     (long n): jumps through a table, to eight returns: (n % 8) * 11 + 3
 *     threaded   (long n): jumps through a table again and again, n times; returns what it adds
 *     rewritten  (long n): n + a number that the program writes into its first instruction
 *
 * Commands: `run N`: N calls of each. `unlock` makes the code of `rewritten` writable, as a program
 * has it that changes its own code all the time, and `lock` makes it not. `rewrite N` writes the
 * number. `sums` is of what was returned. `quit`.
 */
#include <stdint.h>
#include <sys/mman.h>

#include "truth.h"

#define FUNCTION __attribute__((noinline, noclone, noipa))
#define PAGE 4096ul

void bare(void);
void two(void);
long popping_of(long one, long other);
long rewritten(long n);

__asm__(".pushsection .text\n"
        ".globl bare, two, popping, popping_of, rewritten\n"
        ".type bare, @function\n.type two, @function\n.type popping, @function\n"
        ".type popping_of, @function\n.type rewritten, @function\n"
        "bare:\n.cfi_startproc\n    ret\n.cfi_endproc\n.size bare, . - bare\n"
        "two:\n.cfi_startproc\n    nop\n    ret\n.cfi_endproc\n.size two, . - two\n"
        "popping:\n.cfi_startproc\n"
        "    mov 8(%rsp), %rax\n    add 16(%rsp), %rax\n    ret $16\n"
        ".cfi_endproc\n.size popping, . - popping\n"
        "popping_of:\n.cfi_startproc\n"
        "    push %rdi\n.cfi_adjust_cfa_offset 8\n    push %rsi\n.cfi_adjust_cfa_offset 8\n"
        "    call popping\n.cfi_adjust_cfa_offset -16\n    ret\n"
        ".cfi_endproc\n.size popping_of, . - popping_of\n"
        ".p2align 12\n"
        "rewritten:\n.cfi_startproc\n"
        "    mov $5, %eax\n    add %rdi, %rax\n    ret\n"
        ".cfi_endproc\n.size rewritten, . - rewritten\n"
        ".p2align 12\n"
        ".popsection\n");

static struct truth_counts { truth_count calls, tabled, popped, threaded, rewritten; } counts;

FUNCTION long tabled(long n) {
    switch (n % 8) {
    case 0:
        return 3;
    case 1:
        __asm__ volatile("");
        return 14;
    case 2:
        __asm__ volatile("" ::"r"(n));
        return 25;
    case 3:
        __asm__ volatile("" ::"r"(n + 1));
        return 36;
    case 4:
        __asm__ volatile("" ::"r"(n + 2));
        return 47;
    case 5:
        __asm__ volatile("" ::"r"(n + 3));
        return 58;
    case 6:
        __asm__ volatile("" ::"r"(n + 4));
        return 69;
    default:
        __asm__ volatile("" ::"r"(n + 5));
        return 80;
    }
}

FUNCTION long threaded(long n) {
    static const void *const table[] = {&&one, &&ten, &&hundred, &&end};
    long sum = 0;

    goto *table[n > 0 ? n % 3 : 3];
one:
    sum += 1;
    n--;
    goto *table[n > 0 ? n % 3 : 3];
ten:
    sum += 10;
    n--;
    goto *table[n > 0 ? n % 3 : 3];
hundred:
    sum += 100;
    n--;
    goto *table[n > 0 ? n % 3 : 3];
end:
    return sum;
}

static void protect(int access) {
    if (mprotect((void *)((uintptr_t)rewritten & -PAGE), PAGE, access) != 0)
        _exit(3);
}

static void turn(long n) {
    truth_add(&counts.calls);
    bare();
    two();
    atomic_fetch_add(&counts.popped, (unsigned long)popping_of(n, 3));
    atomic_fetch_add(&counts.tabled, (unsigned long)tabled(n));
    atomic_fetch_add(&counts.threaded, (unsigned long)threaded(n % 20));
    atomic_fetch_add(&counts.rewritten, (unsigned long)rewritten(n));
}

int main(void) {
    char line[64];
    const char *rest;

    truth_ready();
    while (truth_next(line, sizeof(line))) {
        if ((rest = truth_is(line, "run")))
            for (long n = truth_number(rest, 1); n > 0; n--)
                turn(n);
        else if (truth_is(line, "unlock"))
            protect(PROT_READ | PROT_WRITE | PROT_EXEC);
        else if (truth_is(line, "lock"))
            protect(PROT_READ | PROT_EXEC);
        else if ((rest = truth_is(line, "rewrite"))) {
            const int32_t number = (int32_t)truth_number(rest, 0);

            memcpy((char *)rewritten + 1, &number, sizeof number);
        }
        line[strcspn(line, " ")] = '\0';
        truth_say("%s calls=%lu popped=%lu tabled=%lu threaded=%lu rewritten=%lu", line,
                  counts.calls, counts.popped, counts.tabled, counts.threaded, counts.rewritten);
    }
    return 0;
}

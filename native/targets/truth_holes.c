/* SPDX-License-Identifier: MIT */
/*
 * truth_holes: functions whose first five bytes something jumps into, so that a short jump opens
 * them, to a hole in reach; and how often each was entered.
 *
 *     first, second, third  padding of five bytes stands behind each: room for one hole
 *     last                  no padding is in reach but that behind `third`; instructions behind it
 *                           can give room
 *     lost                  has instructions that may be lost to a hole of `last`
 *     alone                 no hole is in reach, of any kind
 *
 * Each takes a number above 0, and returns it.
 *
 * Commands: `run N`: N calls of each in the main thread, and `block`: that blocks all signals from
 * now on. `resume` and `pause`: the second thread
 * calls all of them at full speed until it stands still again (at first it does). `counts`; `quit`.
 */
#include "truth.h"

#include <signal.h>

long first(long times);
long second(long times);
long third(long times);
long last(long times);
long lost(long times);
long alone(long times);

static long (*const functions[])(long) = {first, second, third, last, lost, alone};
enum { FUNCTIONS = sizeof(functions) / sizeof(*functions) };

static truth_count calls, spins;
static struct truth_gate gate = TRUTH_GATE;

static void call_each(long times) {
    for (int i = 0; i < FUNCTIONS; i++)
        if (functions[i](times) != times)
            _exit(4);
}

static void *spin(void *argument) {
    (void)argument;
    for (long times = 1;; times = times % 7 + 1) {
        truth_pass(&gate);
        call_each(times);
        truth_add(&spins);
    }
    return NULL;
}

int main(void) {
    char line[64];
    const char *rest;

    atomic_store(&gate.closed, true);
    truth_start(spin, NULL);
    truth_close(&gate, 1);
    truth_ready();
    while (truth_next(line, sizeof(line))) {
        if ((rest = truth_is(line, "run"))) {
            for (long turn = truth_number(rest, 1); turn > 0; turn--) {
                call_each(turn % 7 + 1);
                truth_add(&calls);
            }
        } else if (truth_is(line, "block")) {
            sigset_t all;
            sigfillset(&all);
            pthread_sigmask(SIG_SETMASK, &all, NULL);
        } else if (truth_is(line, "pause")) {
            truth_close(&gate, 1);
        } else if (truth_is(line, "resume")) {
            truth_open(&gate);
        }
        line[strcspn(line, " ")] = '\0';
        truth_say("%s calls=%lu spins=%lu", line, atomic_load(&calls), atomic_load(&spins));
    }
    return 0;
}

#define BEGIN(name) ".globl " name "\n.type " name ", @function\n" name ": .cfi_startproc\n"
#define END(name) ".cfi_endproc\n.size " name ", .-" name "\n"
/* Eleven bytes, and a jump to the third. */
#define LOOP(name) BEGIN(name) "xor %eax, %eax\n1: inc %rax\ndec %rdi\njne 1b\nret\n" END(name)
/* Further than a short jump goes, and nowhere five bytes that are executed one after the other. */
#define WALL(name) BEGIN(name) ".rept 100\njmp . + 2\n.endr\nret\n" END(name)

__asm__(".pushsection .text.written,\"ax\"\n"
        ".balign 16\n" LOOP("first") ".balign 16\n" LOOP("second") ".balign 16\n" LOOP(
            "third") ".balign 16\n" WALL("wall_before") LOOP("last")
            BEGIN("lost") "push %rbx\nmov %rdi, %rbx\nmov %rbx, %rax\nadd $1, %rax\nsub $1, %rax\n"
                          "pop %rbx\nret\n" END("lost") WALL("wall_between") LOOP("alone")
                              WALL("wall_behind") ".balign 16\n.popsection\n");

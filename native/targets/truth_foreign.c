/* SPDX-License-Identifier: MIT */
/*
 * truth_foreign: code that nobody prepared, with places to open across cache lines and pages.
 *
 *     torture:word, line1 … line4, page   USDT probes "-8@%rdi". The no-op and an addition behind
 * it are the five bytes of a jump. So many of them are before the border of a cache line; of
 * `page`, two before a page's torture_word, … torture_page        functions whose first two
 * instructions are five bytes, in the same way; the second one is their return
 *
 * All threads call all of them in turns, and so does the handler of a signal, wherever it comes. A
 * call has to return its argument and one: else it is counted as torn.
 *
 * Commands: `resume` and `pause`: they run, and stand still; `counts`, with `turns` (each place was
 * called once in a turn) and `torn`; `quit`.
 */
#include "truth_timer.h"

enum { THREADS = 2 };

#define NOTE(name)                                                                                 \
    ".pushsection .note.stapsdt,\"\",\"note\"\n"                                                   \
    ".balign 4\n"                                                                                  \
    ".4byte 992f-991f, 994f-993f, 3\n"                                                             \
    "991: .asciz \"stapsdt\"\n"                                                                    \
    "992: .balign 4\n"                                                                             \
    "993: .8byte 990b\n"                                                                           \
    ".8byte _.stapsdt.base\n"                                                                      \
    ".8byte torture_semaphore\n"                                                                   \
    ".asciz \"torture\"\n"                                                                         \
    ".asciz \"" name "\"\n"                                                                        \
    ".asciz \"-8@%rdi\"\n"                                                                         \
    "994: .balign 4\n"                                                                             \
    ".popsection\n"

/* A function that begins `before` bytes before a border. */
#define BEGIN(name, border, before)                                                                \
    ".text\n.balign " border "\n.skip " border " - " before ", 0xcc\n.globl " name "\n"            \
    ".type " name ", @function\n" name ":\n.cfi_startproc\n"
#define END(name) ".cfi_endproc\n.size " name ", . - " name "\n.skip 16, 0xcc\n"

#define PLACES(name, border, before)                                                               \
    BEGIN("usdt_" name, border, before " - 3")                                                     \
    "mov %rdi, %rax\n990: nop\nadd $1, %rax\nret\n" END("usdt_" name) NOTE(name)                   \
        BEGIN("torture_" name, border, before) "lea 1(%rdi), %rax\nret\n" END("torture_" name)

__asm__(".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
        ".weak _.stapsdt.base\n"
        ".hidden _.stapsdt.base\n"
        "_.stapsdt.base: .space 1\n"
        ".size _.stapsdt.base, 1\n"
        ".popsection\n");
__asm__(PLACES("word", "64", "32") PLACES("line1", "64", "1") PLACES("line2", "64", "2")
            PLACES("line3", "64", "3") PLACES("line4", "64", "4") PLACES("page", "4096", "2"));

__attribute__((section(".probes"), used)) unsigned short torture_semaphore;

#define EACH(place) place(word) place(line1) place(line2) place(line3) place(line4) place(page)
#define DECLARE(name) extern long usdt_##name(long), torture_##name(long);
#define CALL(name) torn += (usdt_##name(i) != i + 1) + (torture_##name(i) != i + 1);

EACH(DECLARE)

static truth_count turns, torn_calls, signals;
static struct truth_gate gate = TRUTH_GATE;

static void take_turn(long i) {
    int torn = 0;

    EACH(CALL)
    for (; torn; torn--)
        truth_add(&torn_calls);
    truth_add(&turns);
}

static void on_alarm(int number) {
    (void)number;
    take_turn(-7);
    truth_add(&signals);
}

static void *run(void *argument) {
    if (!argument)
        truth_take_timer();
    for (long i = 0;; i++) {
        truth_pass(&gate);
        take_turn(i);
    }
    return NULL;
}

int main(void) {
    char line[64];

    truth_have_timer(on_alarm);
    atomic_store(&gate.closed, true);
    for (long i = 0; i < THREADS; i++)
        truth_start(run, (void *)i);
    truth_close(&gate, THREADS);
    truth_ready();
    while (truth_next(line, sizeof(line))) {
        if (truth_is(line, "resume")) {
            truth_open(&gate);
            truth_set_timer(true);
        } else if (truth_is(line, "pause")) {
            truth_stand_still(&gate, THREADS);
        } else if (!truth_is(line, "counts")) {
            break;
        }
        truth_say("counts turns=%lu torn=%lu signals=%lu raised=%lu", atomic_load(&turns),
                  atomic_load(&torn_calls), atomic_load(&signals),
                  (unsigned long)torture_semaphore);
    }
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * truth_usdt: USDT probes, in notes as sys/sdt.h writes them; no header of SystemTap is needed.
 *
 *     truth:turn    "-4@i 8@evaluated": each turn of `run`; its semaphore is the word `turns`
 *     truth:guarded "-4@i": only while its semaphore is raised
 *     truth:values  a char, a short, a double, a float, a constant and a string
 *     truth:spin    "-4@i": of the second thread
 *     truth:child   "-4@i": in a child of `fork`
 *
 * Commands: `run N`: N turns in the main thread. `resume` and `pause`: the second thread runs at
 * full speed until it stands still again (at first it does). `fork N`: a child passes its probe N
 * times and exits; answered when it is gone. `child`: a child goes on with the commands, after its
 * own line `ready`; when it has quit, the command is answered. `counts`, with the semaphores;
 * `quit`.
 */
#include <sys/wait.h>

#include "truth.h"

#define NOTE(name, operands, semaphore)                                                            \
    "990: nop\n"                                                                                   \
    ".pushsection .note.stapsdt,\"\",\"note\"\n"                                                   \
    ".balign 4\n"                                                                                  \
    ".4byte 992f-991f, 994f-993f, 3\n"                                                             \
    "991: .asciz \"stapsdt\"\n"                                                                    \
    "992: .balign 4\n"                                                                             \
    "993: .8byte 990b\n"                                                                           \
    ".8byte _.stapsdt.base\n"                                                                      \
    ".8byte " semaphore "\n"                                                                       \
    ".asciz \"truth\"\n"                                                                           \
    ".asciz \"" name "\"\n"                                                                        \
    ".asciz \"" operands "\"\n"                                                                    \
    "994: .balign 4\n"                                                                             \
    ".popsection\n"

__asm__(".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
        ".weak _.stapsdt.base\n"
        ".hidden _.stapsdt.base\n"
        "_.stapsdt.base: .space 1\n"
        ".size _.stapsdt.base, 1\n"
        ".popsection\n");

__attribute__((section(".probes"), used)) unsigned short turns_semaphore, guarded_semaphore;

static truth_count turns, guarded, values, spins, evaluated, children;
static struct truth_gate gate = TRUTH_GATE;

__attribute__((noinline)) static void turn(int i) {
    const unsigned long number = atomic_fetch_add(&evaluated, 1) + 1;

    __asm__ volatile(NOTE("turn", "-4@%0 8@%1", "turns_semaphore")::"nor"(i), "nor"(number));
    truth_add(&turns);
    if (__builtin_expect(*(volatile unsigned short *)&guarded_semaphore, 0)) {
        __asm__ volatile(NOTE("guarded", "-4@%0", "guarded_semaphore")::"nor"(i));
        truth_add(&guarded);
    }
}

__attribute__((noinline)) static void pass_values(int i) {
    const double wide = i + 0.5;
    const float narrow = (float)i - 0.25f;
    const char *text = i % 2 ? "odd" : "even";
    const signed char small = (signed char)-i;
    const short medium = (short)(i * 1000);

    __asm__ volatile(NOTE("values", "-1@%b0 -2@%w1 8f@%2 4f@%3 4@$7 8@%4", "0")::"q"(small),
                     "r"(medium), "x"(wide), "x"(narrow), "r"(text));
    truth_add(&values);
}

__attribute__((noinline)) static void run(long times) {
    for (int i = 0; i < times; i++) {
        turn(i);
        pass_values(i);
    }
}

static void *spin(void *argument) {
    (void)argument;
    for (int i = 0;; i = (i + 1) & 0xffff) {
        truth_pass(&gate);
        __asm__ volatile(NOTE("spin", "-4@%0", "0")::"nor"(i));
        truth_add(&spins);
    }
    return NULL;
}

/* A child that is to serve comes back with true. */
static bool fork_and_wait(long times, bool serving) {
    int status = -1;
    const pid_t pid = fork();

    if (pid == 0 && serving) {
        truth_ready();
        return true;
    }
    if (pid == 0) {
        for (int i = 0; i < times; i++)
            __asm__ volatile(NOTE("child", "-4@%0", "0")::"nor"(i));
        _exit(0);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!status)
        truth_add(&children);
    return false;
}

int main(void) {
    char line[64];
    const char *rest;

    atomic_store(&gate.closed, true);
    truth_start(spin, NULL);
    truth_close(&gate, 1);
    truth_ready();
    while (truth_next(line, sizeof(line))) {
        if ((rest = truth_is(line, "run")))
            run(truth_number(rest, 1));
        else if ((rest = truth_is(line, "fork")))
            fork_and_wait(truth_number(rest, 1), false);
        else if (truth_is(line, "child")) {
            if (fork_and_wait(0, true))
                continue;
        } else if (truth_is(line, "pause"))
            truth_close(&gate, 1);
        else if (truth_is(line, "resume"))
            truth_open(&gate);
        line[strcspn(line, " ")] = '\0';
        truth_say("%s turn=%lu guarded=%lu values=%lu spin=%lu children=%lu turns_raised=%d "
                  "guarded_raised=%d",
                  line, atomic_load(&turns), atomic_load(&guarded), atomic_load(&values),
                  atomic_load(&spins), atomic_load(&children),
                  *(volatile unsigned short *)&turns_semaphore,
                  *(volatile unsigned short *)&guarded_semaphore);
    }
    return 0;
}

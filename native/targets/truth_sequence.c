/* SPDX-License-Identifier: MIT */
/*
 * truth_sequence: a thread that is always inside a restartable sequence (rseq(2)), and leaves it
 * only when it is aborted. It passes no marker, and reads no commands.
 *
 * Its line is `ready pid=N aborted=ADDRESS`: there, in hexadecimal, is how often it was aborted.
 */
#include <markerjit/marker.h>
#include <sys/rseq.h>

#include "truth.h"

static truth_count aborted;

__attribute__((noinline, noclone)) static void mark(unsigned n) { MARK(truth_sequence, "n %u", n); }

/* The sequence begins at 1 and never ends by itself; 3 is its abort handler. */
static void live_inside(void) {
    __asm__ volatile("    .pushsection __rseq_cs, \"aw\"\n"
                     "    .balign 32\n"
                     "0:  .long 0, 0\n"
                     "    .quad 1f, 2f - 1f, 3f\n"
                     "    .popsection\n"
                     "4:  lea 0b(%%rip), %%rax\n"
                     "    mov %%rax, %%fs:8(%[area])\n"
                     "1:  pause\n"
                     "    jmp 1b\n"
                     "2:  ud2\n"
                     "    .long %c[signature]\n"
                     "3:  lock incq %[aborted]\n"
                     "    jmp 4b\n"
                     : [aborted] "+m"(aborted)
                     : [area] "r"(__rseq_offset), [signature] "i"(RSEQ_SIG)
                     : "rax", "cc", "memory");
}

int main(void) {
    if (getpid() == 1) /* never: it has to be in the code */
        mark(1);
    truth_say("ready pid=%d aborted=%lx", (int)getpid(), (unsigned long)&aborted);
    live_inside();
}

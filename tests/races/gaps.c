/* SPDX-License-Identifier: MIT */
/*
 * gaps.c: six sites close together, and between them two no-ops that another tool probes, and an
 * int3 that nobody executes.
 *
 * Says `ready one=ADDRESS five=ADDRESS int3=ADDRESS`: the no-ops of one and of five bytes. For each
 * line of input it comes by once, and then a child of a fork does; it says how often, and how the
 * child ended.
 */
#include <markerjit/marker.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern const char one[], five[], trap[];

__attribute__((noinline)) static void come_by(int number) {
    MARK(gap_one, "number %d", number);
    MARK(gap_two, "number %d", number);
    __asm__ volatile("one: nop");
    MARK(gap_three, "number %d", number);
    MARK(gap_four, "number %d", number);
    __asm__ volatile("five: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00");
    __asm__ volatile("jmp 1f\ntrap: int3\n1:");
    MARK(gap_five, "number %d", number);
    MARK(gap_six, "number %d", number);
}

static int let_a_child_come_by(int number) {
    int status = -1;
    const pid_t child = fork();

    if (!child) {
        come_by(number);
        _exit(0);
    }
    waitpid(child, &status, 0);
    return status;
}

int main(void) {
    char line[16];

    setvbuf(stdout, NULL, _IONBF, 0);
    printf("ready one=%lu five=%lu int3=%lu\n", (unsigned long)(uintptr_t)one,
           (unsigned long)(uintptr_t)five, (unsigned long)(uintptr_t)trap);
    for (int number = 1; fgets(line, sizeof line, stdin); number++) {
        int status = 0;

        if (line[0] == 'f')
            status = let_a_child_come_by(number);
        else
            come_by(number);
        printf("%.*s number=%d status=%d\n", (int)strcspn(line, "\n"), line, number, status);
    }
    return 0;
}

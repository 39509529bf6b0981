/* SPDX-License-Identifier: MIT */
/*
 * truth_start: a program that tells how it was started, and ends.
 *
 *     truth_constructed  "pid %d": in its constructor
 *     truth_main         "argc %d": at the first statement of main
 *     truth_end          "code %d": before it ends
 *
 * It prints `args A B`, `entry` and whether AT_ENTRY is that of its file, `descriptors` and how
 * many it has, `blocked` and `ignored`, each as a mask of signals, `group` and whether its process
 * group is that of its parent, and `traced` and its tracer. Then it does what its first argument
 * says: `exit N`, `kill N` (a signal for itself), `wait` (until its input ends), `count` (waits for
 * SIGINT, and ends with 7), or nothing.
 */
#define _GNU_SOURCE 1
#include <dirent.h>
#include <markerjit/marker.h>
#include <signal.h>
#include <sys/auxv.h>

#include "truth.h"

extern void _start(void);

__attribute__((constructor)) static void construct(void) {
    MARK(truth_constructed, "pid %d", (int)getpid());
}

static int count_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(folder))
        count++;
    closedir(folder);
    return count - 3; /* `.`, `..` and the folder */
}

static unsigned long mask_of(int (*has)(int number)) {
    unsigned long mask = 0;

    for (int number = 1; number < 32; number++)
        mask |= (unsigned long)!!has(number) << number;
    return mask;
}

static int is_ignored(int number) {
    struct sigaction action;

    return !sigaction(number, NULL, &action) && action.sa_handler == SIG_IGN;
}

static int is_blocked(int number) {
    sigset_t mask;

    sigprocmask(SIG_SETMASK, NULL, &mask);
    return sigismember(&mask, number);
}

static int do_as_told(char *const argv[]) {
    sigset_t interrupt;
    char byte;
    int number;

    if (!argv[1])
        return 0;
    if (!strcmp(argv[1], "exit"))
        return atoi(argv[2]);
    if (!strcmp(argv[1], "kill"))
        raise(atoi(argv[2]));
    if (!strcmp(argv[1], "wait"))
        while (read(STDIN_FILENO, &byte, 1) > 0)
            ;
    if (!strcmp(argv[1], "count")) {
        sigemptyset(&interrupt);
        sigaddset(&interrupt, SIGINT);
        sigprocmask(SIG_BLOCK, &interrupt, NULL);
        truth_say("counting pid=%d", (int)getpid());
        sigwait(&interrupt, &number);
        return 7;
    }
    return 0;
}

int main(int argc, char *argv[]) {
    MARK(truth_main, "argc %d", argc);
    char line[256] = "args";

    for (int i = 1; i < argc; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line), " %s", argv[i]);
    truth_say("%s", line);
    truth_say("entry %d", getauxval(AT_ENTRY) == (unsigned long)_start);
    truth_say("descriptors %d", count_descriptors());
    truth_say("blocked %lx", mask_of(is_blocked));
    truth_say("ignored %lx", mask_of(is_ignored));
    truth_say("group %d", getpgrp() == getpgid(getppid()));

    const int code = do_as_told(argv);

    MARK(truth_end, "code %d", code);
    return code;
}

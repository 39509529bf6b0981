/* SPDX-License-Identifier: MIT */
/*
 * truth_fork: has children, and becomes another program.
 *
 *     truth_parent  "turn %d": before each fork, turn from 1
 *     truth_child   "i %d pid %d": in the child, i from 0
 *
 * Commands: `fork [TIMES [WAIT_MS]]`: a child waits, passes its marker TIMES times (10) and exits;
 * answered with `forked pid=… status=…` when it is gone, the status as wait(2) gives it.
 * `exec PATH ARGS…`: answered only if it did not work. `counts`, `quit`. The counters are shared
 * with the children.
 */
#define _GNU_SOURCE 1
#include <markerjit/marker.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "truth.h"

static struct shared { truth_count parent, child; } * counts;

static void be_child(long times, long wait_ms) {
    nanosleep(&(struct timespec){wait_ms / 1000, wait_ms % 1000 * 1000000}, NULL);
    for (int i = 0; i < times; i++) {
        MARK(truth_child, "i %d pid %d", i, (int)getpid());
        truth_add(&counts->child);
    }
    _exit(0);
}

static void fork_and_wait(char *rest) {
    static int turn;
    char *end;
    long times = *rest ? strtol(rest, &end, 10) : 10;
    long wait_ms = *rest ? strtol(end, NULL, 10) : 0;
    int status = -1;

    turn++;
    MARK(truth_parent, "turn %d", turn);
    truth_add(&counts->parent);
    pid_t pid = fork();
    if (pid == 0)
        be_child(times, wait_ms);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    truth_say("forked pid=%d status=%d", (int)pid, status);
}

static void become(char *rest) {
    char *argv[32];
    int argc = 0;

    for (char *word = strtok(rest, " "); word && argc < 31; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    if (argc)
        execv(argv[0], argv);
    truth_say("exec errno=%d", argc ? errno : EINVAL);
}

int main(void) {
    char line[4200];

    counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (counts == MAP_FAILED)
        return 3;
    truth_ready();
    while (truth_next(line, sizeof(line)))
        if (truth_is(line, "fork"))
            fork_and_wait(line + strcspn(line, " ") + (line[4] == ' '));
        else if (truth_is(line, "exec"))
            become(line + strlen("exec"));
        else
            truth_say("%s truth_parent=%lu truth_child=%lu", line, atomic_load(&counts->parent),
                      atomic_load(&counts->child));
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * truth_follow: a program that starts others in many ways, and counts for all of them.
 *
 *     truth_follow  "who %d pid %d": in every process; who is 0 in the first one, 1 in children
 *
 * `truth_follow leaf N` passes N times and exits with N. Commands of the first process, each for N
 * times: `fork`: a child passes three times; `quick`: a child passes once and ends at once;
 * `exec`: a child executes a leaf of three; `vfork`: the same from vfork; `threads`: four threads
 * fork at the same time, each child passing three times. Each answers with the turns of the first
 * process and of all children, by their exit codes, the children that ended badly, and those that
 * were taken by the handler of SIGCHLD.
 */
#define _GNU_SOURCE 1
#include <markerjit/marker.h>
#include <signal.h>
#include <sys/wait.h>

#include "truth.h"

enum { THREADS = 4 };

static const char *self;
static truth_count turns, children, bad, reaped, ends;

__attribute__((noinline)) static void pass(int who, long times) {
    for (long i = 0; i < times; i++)
        MARK(truth_follow, "who %d pid %d", who, (int)getpid());
}

static void on_child(int number) {
    const int error = errno;
    int status;

    (void)number;
    while (waitpid(-1, &status, WNOHANG) > 0) {
        truth_add(&reaped);
        if (WIFEXITED(status))
            atomic_fetch_add(&children, (unsigned long)WEXITSTATUS(status));
        else
            truth_add(&bad);
        truth_add(&ends);
    }
    errno = error;
}

static void wait_for_ends(unsigned long wanted) {
    sigset_t child, before;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &child, &before);
    while (atomic_load(&ends) < wanted)
        sigsuspend(&before);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void become_leaf(void) {
    execl(self, self, "leaf", "3", (char *)NULL);
    _exit(99);
}

static void start_one(int executes, long times) {
    const pid_t pid = fork();

    if (pid < 0)
        truth_add(&bad);
    if (pid)
        return;
    if (executes)
        become_leaf();
    pass(1, times);
    _exit((int)times);
}

static void pass_here(void) {
    pass(0, 1);
    truth_add(&turns);
}

static void *fork_often(void *argument) {
    for (long i = *(const long *)argument; i; i--) {
        start_one(0, 3);
        pass_here();
    }
    return NULL;
}

static void fork_in_threads(long times) {
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, fork_often, &times))
            _exit(3);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void do_once(const char *word) {
    const unsigned long before = atomic_load(&ends);

    if (!strcmp(word, "vfork")) {
        if (vfork() == 0)
            become_leaf();
    } else {
        start_one(!strcmp(word, "exec"), strcmp(word, "quick") ? 3 : 1);
    }
    pass_here();
    wait_for_ends(before + 1);
}

static void answer(const char *word, long times) {
    const unsigned long before = atomic_load(&ends);

    if (!strcmp(word, "threads")) {
        fork_in_threads(times);
        wait_for_ends(before + THREADS * (unsigned long)times);
    } else {
        for (long i = 0; i < times; i++)
            do_once(word);
    }
    truth_say("%s turns=%lu children=%lu bad=%lu reaped=%lu", word, atomic_load(&turns),
              atomic_load(&children), atomic_load(&bad), atomic_load(&reaped));
}

int main(int argc, char **argv) {
    struct sigaction action = {.sa_handler = on_child, .sa_flags = SA_RESTART};
    char line[64], word[32];
    long times;

    self = argv[0];
    if (argc > 2) {
        const long leaf = strtol(argv[2], NULL, 10);

        pass(1, leaf);
        return (int)leaf;
    }
    sigaction(SIGCHLD, &action, NULL);
    truth_ready();
    while (truth_next(line, sizeof line))
        if (sscanf(line, "%31s %ld", word, &times) == 2)
            answer(word, times);
    return 0;
}

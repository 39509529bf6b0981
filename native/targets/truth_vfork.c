/* SPDX-License-Identifier: MIT */
/*
 * truth_vfork: threads that vfork and execute another program, again and again.
 *
 *     truth_vfork [THREADS]
 *
 *     truth_vfork  "who %d n %lu": before each vfork (who 0), and in the child, which shares our
 *                  memory, before it executes this very file with `--exit` (who 1)
 *
 * Commands: `pause` answers when no child is left; `resume`, `counts`, `quit`. At first it is
 * paused. `bad` counts children that did not end with 7.
 */
#define _GNU_SOURCE 1
#include <markerjit/marker.h>
#include <sys/wait.h>

#include "truth.h"

static truth_count parents, children, evaluated, bad;
static struct truth_gate gate = TRUTH_GATE;
static char *arguments[] = {(char *)"/proc/self/exe", (char *)"--exit", NULL};

static unsigned long evaluate(void) { return atomic_fetch_add(&evaluated, 1) + 1; }

__attribute__((noinline)) static void pass(int who, truth_count *count) {
    MARK(truth_vfork, "who %d n %lu", who, evaluate());
    truth_add(count);
}

__attribute__((noinline)) static pid_t spawn(void) {
    pid_t pid = vfork();

    if (pid == 0) {
        pass(1, &children);
        execv(arguments[0], arguments);
        _exit(1);
    }
    return pid;
}

static void *work(void *argument) {
    (void)argument;
    for (;;) {
        int status = -1;

        truth_pass(&gate);
        pass(0, &parents);
        pid_t pid = spawn();
        while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
            truth_add(&bad);
    }
    return NULL;
}

int main(int argc, char **argv) {
    char line[64];
    int threads = 1;

    if (argc > 1 && strcmp(argv[1], "--exit") == 0)
        return 7;
    if (argc > 1)
        threads = atoi(argv[1]);
    atomic_store(&gate.closed, true);
    for (int i = 0; i < threads; i++)
        truth_start(work, NULL);
    truth_close(&gate, threads);
    truth_ready();
    while (truth_next(line, sizeof line)) {
        if (truth_is(line, "pause"))
            truth_close(&gate, threads);
        else if (truth_is(line, "resume"))
            truth_open(&gate);
        truth_say("%s parents=%lu children=%lu evaluated=%lu bad=%lu", line, atomic_load(&parents),
                  atomic_load(&children), atomic_load(&evaluated), atomic_load(&bad));
    }
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * truth_twins: a child in our memory, with our thread control block, at work on another CPU than
 * its parent was, and beside a thread that is where the parent was.
 *
 *     truth_twins  "who %d n %lu": passed by the child (who 1) and by the thread (who 0) at once, n
 *                  from 1 for each
 *
 * Commands: `vfork TIMES` and `clone TIMES` make such a child, and answer when it and the thread
 * have each passed the marker TIMES times. `counts`, `quit`. `bad` counts children that did not end
 * with 7. On a machine with one CPU both work there in turns.
 */
#define _GNU_SOURCE 1
#include <markerjit/marker.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "truth.h"

static truth_count passed[2], bad;
static unsigned long times;
static atomic_int there;
static int cpus[2];

static void go_to(int cpu) {
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        _exit(3);
}

/* Both begin when both are there. */
__attribute__((noinline)) static void pass_all(int who) {
    atomic_fetch_add(&there, 1);
    while (atomic_load(&there) < 2)
        sched_yield();
    for (unsigned long n = 1; n <= times; n++) {
        MARK(truth_twins, "who %d n %lu", who, n);
        truth_add(&passed[who]);
    }
}

static void *thread(void *argument) {
    go_to(cpus[0]);
    pass_all(0);
    return argument;
}

static int child(void *argument) {
    (void)argument;
    go_to(cpus[1]);
    pass_all(1);
    _exit(7);
}

__attribute__((noinline)) static pid_t make_child(bool by_vfork) {
    static char stack[256 * 1024] __attribute__((aligned(16)));

    if (!by_vfork)
        return clone(child, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    pid_t pid = vfork();

    if (pid == 0)
        child(NULL);
    return pid;
}

static void run(bool by_vfork) {
    pthread_t beside;
    int status = -1;

    atomic_store(&there, 0);
    go_to(cpus[0]);
    if (pthread_create(&beside, NULL, thread, NULL) != 0)
        _exit(3);
    const pid_t pid = make_child(by_vfork);

    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
        truth_add(&bad);
    pthread_join(beside, NULL);
}

static void find_cpus(void) {
    cpu_set_t allowed;

    if (sched_getaffinity(0, sizeof allowed, &allowed))
        _exit(3);
    for (int cpu = 0, found = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
        if (CPU_ISSET(cpu, &allowed)) {
            cpus[1] = cpu;
            if (!found++)
                cpus[0] = cpu;
        }
}

int main(void) {
    char line[64];
    const char *rest;

    find_cpus();
    truth_ready();
    while (truth_next(line, sizeof line)) {
        const bool by_vfork = truth_is(line, "vfork");

        if ((rest = truth_is(line, by_vfork ? "vfork" : "clone"))) {
            times = (unsigned long)truth_number(rest, 1);
            run(by_vfork);
        }
        *strchrnul(line, ' ') = '\0';
        truth_say("%s thread=%lu child=%lu bad=%lu", line, atomic_load(&passed[0]),
                  atomic_load(&passed[1]), atomic_load(&bad));
    }
    return 0;
}

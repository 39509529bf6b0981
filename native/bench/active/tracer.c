/* SPDX-License-Identifier: MIT */
/*
 * tracer.c: breakpoints by ptrace that count, and nothing else, for markerjit bench.
 *
 *     tracer PID ADDRESS...     each, in hexadecimal, that of a one-byte no-op
 *     ready
 *     hits                      (or any other line) asks, at any time:
 *     hits N...                 how often each was come to
 *
 * It is as quick as such a tracer can be: it seizes all threads once, reads one register at a stop,
 * and steps over the no-op by letting the thread go on behind it. A breakpoint in place of another
 * instruction would have to be taken out for a step, with all other threads standing.
 *
 * The process that started it ends it. Then the threads run on, and the next breakpoint would kill
 * them. It sees only the threads that are there when it comes.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 64, NOP = 0x90, INT3 = 0xcc };

static uint64_t address[MOST];
static atomic_ulong hits[MOST];
static unsigned count;

static void give_up(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    _exit(1);
}

/* Seize a thread and let it stop. */
static void seize(pid_t thread) {
    int status;

    if (ptrace(PTRACE_SEIZE, thread, 0, 0) || ptrace(PTRACE_INTERRUPT, thread, 0, 0))
        give_up("ptrace");
    if (waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status))
        give_up("waitpid");
}

/* Do it to all threads; they sleep, and no new ones come. */
static void for_each_thread(pid_t pid, void (*what)(pid_t thread)) {
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *tasks = opendir(path);

    if (!tasks)
        give_up(path);
    for (struct dirent *entry; (entry = readdir(tasks));)
        if (entry->d_name[0] != '.')
            what(atoi(entry->d_name));
    closedir(tasks);
}

static void go_on(pid_t thread) {
    if (ptrace(PTRACE_CONT, thread, 0, 0) && errno != ESRCH)
        give_up("ptrace");
}

static void insert(pid_t thread, uint64_t at) {
    errno = 0;
    const long word = ptrace(PTRACE_PEEKTEXT, thread, at, 0);

    if (errno)
        give_up("ptrace");
    if ((word & 0xff) != NOP) {
        fprintf(stderr, "%#lx does not hold a one-byte no-op\n", at);
        _exit(1);
    }
    if (ptrace(PTRACE_POKETEXT, thread, at, (word & ~0xffL) | INT3))
        give_up("ptrace");
}

/* Whether the thread stands behind a breakpoint of ours; it is counted then. */
static int is_hit(pid_t thread) {
    errno = 0;
    const long rip = ptrace(PTRACE_PEEKUSER, thread, offsetof(struct user_regs_struct, rip), 0);

    for (unsigned i = 0; i < count && !errno; i++) {
        if ((uint64_t)rip == address[i] + 1) {
            atomic_fetch_add_explicit(&hits[i], 1, memory_order_relaxed);
            return 1;
        }
    }
    return 0;
}

/* Handle stops until no thread is left. */
static void trace(void) {
    int status;

    for (pid_t thread; (thread = waitpid(-1, &status, __WALL)) > 0;) {
        if (!WIFSTOPPED(status))
            continue;
        const int signal = WSTOPSIG(status);
        const int is_event = status >> 16; /* a group stop, for one: not a signal to deliver */
        const int is_ours = is_event || (signal == SIGTRAP && is_hit(thread));

        if (ptrace(PTRACE_CONT, thread, 0, is_ours ? 0 : signal) && errno != ESRCH)
            give_up("ptrace");
    }
}

/* What was counted is asked for while the other thread waits for stops. */
static void *answer(void *nothing) {
    char line[64];

    while (fgets(line, sizeof(line), stdin)) {
        printf("hits");
        for (unsigned i = 0; i < count; i++)
            printf(" %lu", atomic_load(&hits[i]));
        printf("\n");
        fflush(stdout);
    }
    _exit(0);
    return nothing;
}

int main(int argc, char **argv) {
    pthread_t asked;

    if (argc < 3 || argc - 2 > MOST)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const pid_t pid = atoi(argv[1]);

    for_each_thread(pid, seize);
    for (count = 0; (int)count < argc - 2; count++) {
        address[count] = strtoul(argv[count + 2], NULL, 16);
        insert(pid, address[count]);
    }
    for_each_thread(pid, go_on);
    printf("ready\n");
    fflush(stdout);
    if (pthread_create(&asked, NULL, answer, NULL))
        give_up("pthread_create");
    trace();
    return 0;
}

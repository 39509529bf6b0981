/* SPDX-License-Identifier: MIT */
/*
 * truth_crowd: threads that make recording hard: many, on the move between CPUs, interrupted by
 * handlers that record too, forking, and one without a thread library.
 *
 *     truth_crowd [THREADS] [--move] [--alarm MARKERS] [--fork] [--raw] [--counts FILE]
 *
 *     crowd_turn    "who %d n %lu": thread `who` (from 0) in its n-th turn (from 1)
 *     crowd_alarm   "who %d n %lu": in a signal handler that interrupts the threads five thousand
 *                   times a second, as often as --alarm says, numbered together from 1
 *     crowd_child   "n %lu": in the child of a fork, as it begins and before it ends
 *
 * With --move each thread goes to another CPU in every turn; with --fork thread 0 forks in every
 * hundredth; with --raw the last thread is made by clone(2) alone, and has the thread-local
 * variables of the first one. With --counts the turns of each thread are in that file too, as
 * 64-bit numbers, and outlive the program. Commands: `run TURNS`: each thread makes TURNS turns;
 * answered when all are done, no handler runs and no child is left. `counts`, `quit`. Both are
 * answered with
 *
 *     WORD crowd_turn=N crowd_alarm=N crowd_child=N
 */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <markerjit/marker.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "truth.h"

enum { MAX_THREADS = 1024, RAW_STACK = 256 * 1024, FORK_EVERY = 100 };

struct worker {
    int who;
    truth_count *turns, wanted;
} __attribute__((aligned(64)));

static struct worker workers[MAX_THREADS];
static truth_count alarms, children;
static int threads = 2, alarm_markers;
static bool moving, forking, raw;
static cpu_set_t allowed;
static _Thread_local int self;

static void wait_a_little(void) {
    syscall(SYS_nanosleep, &(struct timespec){0, 200000}, NULL); /* without errno, where it works */
}

static void on_alarm(int number) {
    (void)number;
    for (int i = 0; i < alarm_markers; i++) {
        const unsigned long n = atomic_fetch_add(&alarms, 1) + 1;

        MARK(crowd_alarm, "who %d n %lu", self, n);
    }
}

static void set_alarm(bool on) {
    const int interval_us = on ? 200 : 0;

    setitimer(ITIMER_REAL, &(struct itimerval){{0, interval_us}, {0, interval_us}}, NULL);
}

/* The next of the CPUs that we may use. */
static void move(unsigned long turn) {
    cpu_set_t one;
    int number = 0;

    for (int skip = (int)(turn % (unsigned)CPU_COUNT(&allowed));; number++)
        if (CPU_ISSET(number, &allowed) && skip-- == 0)
            break;
    CPU_ZERO(&one);
    CPU_SET(number, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void have_a_child(unsigned long turn) {
    int status = -1;
    const pid_t pid = fork();

    if (pid == 0) {
        MARK(crowd_child, "n %lu", turn);
        MARK(crowd_child, "n %lu", turn);
        _exit(0);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (status == 0)
        atomic_fetch_add(&children, 2);
}

static int work(void *argument) {
    struct worker *worker = argument;

    for (;;) {
        while (atomic_load(worker->turns) < atomic_load(&worker->wanted)) {
            const unsigned long turn = atomic_load(worker->turns) + 1;

            if (moving)
                move(turn);
            MARK(crowd_turn, "who %d n %lu", worker->who, turn);
            if (forking && worker->who == 0 && turn % FORK_EVERY == 0)
                have_a_child(turn);
            atomic_store(worker->turns, turn);
        }
        wait_a_little();
    }
    return 0;
}

static void *thread(void *argument) {
    sigset_t alarm_set;

    self = ((struct worker *)argument)->who;
    sigemptyset(&alarm_set);
    sigaddset(&alarm_set, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &alarm_set, NULL);
    work(argument);
    return NULL;
}

/* By the system call, because a program that calls the C library's clone is not recorded in
   restartable sequences in the first place. */
static void start_raw(struct worker *worker) {
    static void *stack[RAW_STACK / sizeof(void *)] __attribute__((aligned(16)));
    const long flags =
        CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    void **top = stack + RAW_STACK / sizeof(void *) - 2;
    long result;

    top[0] = worker;
    top[1] = (void *)work;
    __asm__ __volatile__("syscall\n\t"
                         "test %%eax, %%eax\n\t"
                         "jnz 1f\n\t"
                         "pop %%rdi\n\t"
                         "pop %%rax\n\t"
                         "call *%%rax\n\t" /* and never comes back */
                         "1:"
                         : "=a"(result)
                         : "a"((long)SYS_clone), "D"(flags), "S"(top)
                         : "rcx", "r11", "memory");
    if (result < 0)
        _exit(3);
}

/* The alarm is off before the last thread is waited for, so the thread that took the last signal
   has left its handler when it makes its last turn, which a turn more makes sure of. */
static void run(unsigned long times) {
    sigset_t pending;

    set_alarm(alarm_markers > 0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < threads; i++)
            atomic_fetch_add(&workers[i].wanted, round ? 1 : times - 1);
        for (int i = 0; i < threads; i++)
            while (atomic_load(workers[i].turns) < atomic_load(&workers[i].wanted))
                wait_a_little();
        set_alarm(false);
        while (sigpending(&pending) == 0 && sigismember(&pending, SIGALRM))
            wait_a_little();
    }
}

/* The turns of all threads, in a file if one is named. */
static truth_count *map_counts(const char *path) {
    const size_t size = MAX_THREADS * sizeof(truth_count);
    const int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    const int flags = path ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void *found = MAP_FAILED;

    if (!path || (fd >= 0 && ftruncate(fd, (off_t)size) == 0))
        found = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (found == MAP_FAILED)
        _exit(3);
    return found;
}

static void say_counts(const char *word) {
    unsigned long turns = 0;

    for (int i = 0; i < threads; i++)
        turns += atomic_load(workers[i].turns);
    truth_say("%s crowd_turn=%lu crowd_alarm=%lu crowd_child=%lu", word, turns,
              atomic_load(&alarms), atomic_load(&children));
}

int main(int argc, char **argv) {
    char line[64];
    const char *rest, *path = NULL;
    sigset_t alarm_set;

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--move") == 0)
            moving = true;
        else if (strcmp(argv[i], "--fork") == 0)
            forking = true;
        else if (strcmp(argv[i], "--raw") == 0)
            raw = true;
        else if (strcmp(argv[i], "--alarm") == 0 && i + 1 < argc)
            alarm_markers = atoi(argv[++i]);
        else if (strcmp(argv[i], "--counts") == 0 && i + 1 < argc)
            path = argv[++i];
        else
            threads = atoi(argv[i]);
    if (threads < 1 || threads > MAX_THREADS)
        return 2;
    sched_getaffinity(0, sizeof allowed, &allowed);
    sigemptyset(&alarm_set);
    sigaddset(&alarm_set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm_set, NULL);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm, .sa_flags = SA_RESTART}, NULL);
    truth_count *turns = map_counts(path);

    for (int i = 0; i < threads; i++) {
        workers[i].who = i;
        workers[i].turns = &turns[i];
        if (raw && i == threads - 1)
            start_raw(&workers[i]);
        else
            truth_start(thread, &workers[i]);
    }
    truth_ready();
    while (truth_next(line, sizeof line)) {
        if ((rest = truth_is(line, "run")))
            run((unsigned long)truth_number(rest, 1000));
        line[strcspn(line, " ")] = '\0';
        say_counts(line);
    }
    return 0;
}

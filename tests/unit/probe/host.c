/* SPDX-License-Identifier: MIT */
/*
 * A target for probes, in the test's own process: room for code and data, and a runtime whose
 * events the test can look at. All of it is one library, so that everything is near everything.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096
#define EVENTS 256

char code[64 * PAGE] __attribute__((aligned(PAGE)));
char data[256 * PAGE] __attribute__((aligned(PAGE)));
uint64_t alive = 1;

int let_code_run(void) { return mprotect(code, sizeof code, PROT_READ | PROT_WRITE | PROT_EXEC); }

/* Where a thread library keeps the kernel's id of a thread, from the fs base; < 0: nowhere. */
long tid_offset(void) {
    const char *block;
    const pid_t tid = gettid();

    __asm__("mov %%fs:0, %0" : "=r"(block));
    for (long at = 0; at < 2 * PAGE / 3; at += 4)
        if (!memcmp(block + at, &tid, sizeof tid))
            return at;
    return -1;
}

/* ---- the runtime ----------------------------------------------------------------------------- */

/* In the place of struct mj_marker: how to take the arguments, a letter for each. */
struct how {
    char letters[16]; /* g: general register, f: double, s: string */
};

struct event {
    const struct how *how;
    uint64_t words[12];
    char text[64];
};

struct event events[EVENTS];
unsigned events_used;

void record_event(const struct how *how, ...) {
    struct event *event = &events[__atomic_fetch_add(&events_used, 1, __ATOMIC_RELAXED) % EVENTS];
    va_list args;

    memset(event, 0, sizeof *event);
    event->how = how;
    va_start(args, how);
    for (int i = 0; how->letters[i]; i++) {
        if (how->letters[i] == 'f') {
            const double real = va_arg(args, double);

            memcpy(&event->words[i], &real, sizeof real);
            continue;
        }
        event->words[i] = va_arg(args, uint64_t);
        if (how->letters[i] == 's')
            strncpy(event->text, (const char *)event->words[i], sizeof event->text - 1);
    }
    va_end(args);
}

long fetch(void *to, const void *from, unsigned long size) {
    unsigned long done = 0;

    while (done < size) {
        const unsigned long page = PAGE - ((uintptr_t)from + done) % PAGE;
        const unsigned long part = size - done < page ? size - done : page;
        const struct iovec remote = {(char *)from + done, part};
        const struct iovec local = {(char *)to + done, part};

        if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != (ssize_t)part)
            break;
        done += part;
    }
    return (long)done;
}

/* ---- calling probes as markers do ------------------------------------------------------------ */

typedef void probe(void *slot, ...);

struct job {
    probe *probe;
    void *slot;
    uint64_t times;
    int cpus;
};

/* From every CPU in turn, so that a thread is moved away in the middle of counting. */
static void *hit(void *argument) {
    const struct job *job = argument;
    cpu_set_t set;

    for (uint64_t i = 0; i < job->times; i++) {
        if (i % 1000 == 0) {
            CPU_ZERO(&set);
            CPU_SET(i / 1000 % (uint64_t)job->cpus, &set);
            sched_setaffinity(0, sizeof set, &set);
        }
        job->probe(job->slot, i);
    }
    return 0;
}

void hit_from_threads(probe *probe, void *slot, int threads, uint64_t times, int cpus) {
    struct job job = {probe, slot, times, cpus};
    pthread_t started[16];

    for (int i = 0; i < threads; i++)
        pthread_create(&started[i], 0, hit, &job);
    for (int i = 0; i < threads; i++)
        pthread_join(started[i], 0);
}

static probe *in_handler;
static void *slot_of_handler;
static volatile uint64_t handled;

static void on_alarm(int signal) {
    (void)signal;
    in_handler(slot_of_handler, handled);
    handled++;
}

/* How often a signal handler came in between and hit the probe too. */
uint64_t hit_with_signals(probe *probe, void *slot, uint64_t times) {
    const struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = on_alarm}, old;

    in_handler = probe;
    slot_of_handler = slot;
    handled = 0;
    sigaction(SIGALRM, &action, &old);
    setitimer(ITIMER_REAL, &often, 0);
    for (uint64_t i = 0; i < times; i++)
        probe(slot, i);
    setitimer(ITIMER_REAL, &never, 0);
    sigaction(SIGALRM, &old, 0);
    return handled;
}

/* SPDX-License-Identifier: MIT */
/*
 * truth_many: many threads that sleep in different system calls, and one that runs.
 *
 *     truth_many [THREADS] [--run]
 *
 *     many_turn "who %d n %lu": thread `who` (from 0) in its n-th turn (from 1)
 *
 * Thread `who` waits for its next turn in sem_wait, read, poll or epoll_wait. With --run the first
 * one waits in none, and runs all the time. Commands: `turn`: each thread makes one turn; answered
 * when all have. `counts`, `quit`. Both are answered with
 *
 *     WORD many_turn=N eintr=N threads=N
 *
 * where eintr is how many calls ended with EINTR, though no signal was sent.
 */
#define _GNU_SOURCE 1
#include <markerjit/marker.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "truth.h"

enum { MAX_THREADS = 4096, STACK_BYTES = 64 * 1024 };
enum way { SEM_WAIT, READ, POLL, EPOLL_WAIT, WAYS };

struct worker {
    int who, event, epoll;
    sem_t turn;
    truth_count asked, turns;
} __attribute__((aligned(64)));

static struct worker workers[MAX_THREADS];
static truth_count interrupted;
static int threads = 8;
static bool running;
static sem_t done;

static bool is_running(const struct worker *worker) { return running && worker->who == 0; }

/* Until the event or the semaphore says that there is a turn; 0 where a call has failed. */
static bool wait_in(struct worker *worker) {
    struct pollfd file = {.fd = worker->event, .events = POLLIN};
    struct epoll_event event;
    eventfd_t value;

    switch (worker->who % WAYS) {
    case SEM_WAIT:
        return sem_wait(&worker->turn) == 0;
    case POLL:
        return poll(&file, 1, -1) == 1 && eventfd_read(worker->event, &value) == 0;
    case EPOLL_WAIT:
        return epoll_wait(worker->epoll, &event, 1, -1) == 1 &&
               eventfd_read(worker->event, &value) == 0;
    default:
        return eventfd_read(worker->event, &value) == 0;
    }
}

static void wait_for_turn(struct worker *worker) {
    while (is_running(worker) && atomic_load(&worker->asked) == atomic_load(&worker->turns))
        ;
    while (!is_running(worker) && !wait_in(worker)) {
        if (errno != EINTR)
            _exit(3);
        truth_add(&interrupted);
    }
}

static void *work(void *argument) {
    struct worker *self = argument;

    for (unsigned long n = 1;; n++) {
        wait_for_turn(self);
        MARK(many_turn, "who %d n %lu", self->who, n);
        truth_add(&self->turns);
        sem_post(&done);
    }
    return NULL;
}

static void prepare(struct worker *worker, int who) {
    struct epoll_event event = {.events = EPOLLIN};

    worker->who = who;
    worker->event = eventfd(0, EFD_CLOEXEC);
    worker->epoll = who % WAYS == EPOLL_WAIT ? epoll_create1(EPOLL_CLOEXEC) : -1;
    sem_init(&worker->turn, 0, 0);
    if (worker->event < 0 || (who % WAYS == EPOLL_WAIT &&
                              epoll_ctl(worker->epoll, EPOLL_CTL_ADD, worker->event, &event)))
        _exit(3);
}

static void make_turn(void) {
    for (int i = 0; i < threads; i++) {
        truth_add(&workers[i].asked);
        if (i % WAYS == SEM_WAIT)
            sem_post(&workers[i].turn);
        else
            eventfd_write(workers[i].event, 1);
    }
    for (int i = 0; i < threads; i++)
        while (sem_wait(&done) != 0)
            truth_add(&interrupted);
}

static void say_counts(const char *word) {
    unsigned long turns = 0;

    for (int i = 0; i < threads; i++)
        turns += atomic_load(&workers[i].turns);
    truth_say("%s many_turn=%lu eintr=%lu threads=%d", word, turns, atomic_load(&interrupted),
              threads);
}

int main(int argc, char **argv) {
    pthread_attr_t small;
    pthread_t thread;
    char line[64];

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--run") == 0)
            running = true;
        else
            threads = atoi(argv[i]);
    if (threads < 1 || threads > MAX_THREADS)
        return 2;
    sem_init(&done, 0, 0);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK_BYTES);
    pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    for (int i = 0; i < threads; i++) {
        prepare(&workers[i], i);
        if (pthread_create(&thread, &small, work, &workers[i]) != 0)
            _exit(3);
    }
    make_turn();
    truth_ready();
    while (truth_next(line, sizeof(line))) {
        if (truth_is(line, "turn"))
            make_turn();
        say_counts(line);
    }
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * truth_waits: a thread in each of the system calls that wait.
 *
 *     truth_waits  "what %d n %lu": each time such a call has ended, for any reason
 *
 * No signal is ever handled in here, so a call that ends with EINTR was disturbed from outside.
 * Half of the calls wait for ever and are woken by `poke`; the others time out after some
 * milliseconds and wait again.
 *
 * Commands: `poke`: wake each of the first half once, answered when all have been; `counts`:
 * `turns`, how many calls have ended, and `NAME=` how many of them with EINTR, for each that did at
 * all; `quit`.
 */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <markerjit/marker.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>

#include "truth.h"

enum { SHORT_MS = 7 };
static const struct timespec shortly = {0, SHORT_MS * 1000000};

static int poke_pipe[4][2];
static int event_fd, message_queue, semaphores, listener, timed_socket[2], inotify, signal_fd;
static int never_pipe[2];
static aio_context_t aio;
static sem_t semaphore, never_semaphore;
static _Atomic uint32_t futex_word;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

static void drain(int fd) {
    char byte;

    if (read(fd, &byte, 1) < 0)
        _exit(3);
}

/* Each returns as the system call does: negative, with the reason in errno. The first half: */
static long wait_read(void) {
    char byte;
    return read(poke_pipe[0][0], &byte, 1);
}
static long wait_poll(void) {
    const long got = poll(&(struct pollfd){poke_pipe[1][0], POLLIN, 0}, 1, -1);
    if (got > 0)
        drain(poke_pipe[1][0]);
    return got;
}
static long wait_select(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(poke_pipe[2][0], &set);
    const long got = select(poke_pipe[2][0] + 1, &set, NULL, NULL, NULL);
    if (got > 0)
        drain(poke_pipe[2][0]);
    return got;
}
static long wait_epoll(void) {
    struct epoll_event event = {.events = EPOLLIN};
    static int epoll = -1;
    if (epoll < 0) {
        epoll = epoll_create1(EPOLL_CLOEXEC);
        epoll_ctl(epoll, EPOLL_CTL_ADD, poke_pipe[3][0], &event);
    }
    const long got = epoll_wait(epoll, &event, 1, -1);
    if (got > 0)
        drain(poke_pipe[3][0]);
    return got;
}
static long wait_eventfd(void) {
    uint64_t value;
    return read(event_fd, &value, sizeof value);
}
static long wait_futex(void) {
    const uint32_t seen = atomic_load(&futex_word);
    return syscall(SYS_futex, &futex_word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}
static long wait_semaphore(void) { return sem_wait(&semaphore); }
static long wait_accept(void) {
    const int fd = accept(listener, NULL, NULL);
    if (fd >= 0)
        close(fd);
    return fd;
}
static long wait_message(void) {
    struct {
        long type;
        char byte;
    } message;
    return msgrcv(message_queue, &message, 1, 0, 0);
}
static long wait_semop(void) { return semop(semaphores, &(struct sembuf){0, -1, 0}, 1); }
static long wait_signal_fd(void) {
    struct signalfd_siginfo info;
    return read(signal_fd, &info, sizeof info);
}

/* The second half: */
static long wait_nanosleep(void) { return nanosleep(&shortly, NULL); }
static long wait_clock_nanosleep(void) {
    errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &shortly, NULL);
    return errno ? -1 : 0;
}
static long wait_poll_short(void) {
    return poll(&(struct pollfd){never_pipe[0], POLLIN, 0}, 1, SHORT_MS);
}
static long wait_ppoll(void) {
    return ppoll(&(struct pollfd){never_pipe[0], POLLIN, 0}, 1, &shortly, NULL);
}
static long wait_pselect(void) { return pselect(0, NULL, NULL, NULL, &shortly, NULL); }
static long wait_epoll_short(void) {
    struct epoll_event event;
    static int epoll = -1;
    if (epoll < 0)
        epoll = epoll_create1(EPOLL_CLOEXEC);
    return epoll_wait(epoll, &event, 1, SHORT_MS);
}
static long wait_semaphore_short(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += shortly.tv_nsec;
    if (until.tv_nsec >= 1000000000)
        until = (struct timespec){until.tv_sec + 1, until.tv_nsec - 1000000000};
    return sem_timedwait(&never_semaphore, &until);
}
static long wait_condition(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += shortly.tv_nsec;
    if (until.tv_nsec >= 1000000000)
        until = (struct timespec){until.tv_sec + 1, until.tv_nsec - 1000000000};
    pthread_mutex_lock(&lock);
    errno = pthread_cond_timedwait(&never, &lock, &until);
    pthread_mutex_unlock(&lock);
    return errno ? -1 : 0;
}
static long wait_getevents(void) {
    struct io_event event;
    struct timespec timeout = shortly;
    return syscall(SYS_io_getevents, aio, 1, 1, &event, &timeout);
}
static long wait_recv(void) {
    char byte;
    return recv(timed_socket[0], &byte, 1, 0);
}
static long wait_signal(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    return sigtimedwait(&set, NULL, &shortly);
}
static long wait_semtimedop(void) {
    return semtimedop(semaphores, &(struct sembuf){1, -1, 0}, 1, &shortly);
}
static long wait_timer_fd(void) {
    const struct itimerspec once = {{0, 0}, shortly};
    static int fd = -1;
    uint64_t times;
    if (fd < 0)
        fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    timerfd_settime(fd, 0, &once, NULL);
    return read(fd, &times, sizeof times);
}
static long wait_inotify(void) {
    char event[512];
    return read(inotify, event, sizeof event);
}

static struct wait {
    const char *name;
    long (*call)(void);
    truth_count turns, eintr;
} waits[] = {
    {.name = "read", .call = wait_read},
    {.name = "poll", .call = wait_poll},
    {.name = "select", .call = wait_select},
    {.name = "epoll_wait", .call = wait_epoll},
    {.name = "eventfd", .call = wait_eventfd},
    {.name = "futex", .call = wait_futex},
    {.name = "sem_wait", .call = wait_semaphore},
    {.name = "accept", .call = wait_accept},
    {.name = "msgrcv", .call = wait_message},
    {.name = "semop", .call = wait_semop},
    {.name = "signalfd", .call = wait_signal_fd},
    {.name = "inotify", .call = wait_inotify},
#define WOKEN 12
    {.name = "nanosleep", .call = wait_nanosleep},
    {.name = "clock_nanosleep", .call = wait_clock_nanosleep},
    {.name = "poll_timeout", .call = wait_poll_short},
    {.name = "ppoll", .call = wait_ppoll},
    {.name = "pselect", .call = wait_pselect},
    {.name = "epoll_timeout", .call = wait_epoll_short},
    {.name = "sem_timedwait", .call = wait_semaphore_short},
    {.name = "cond_timedwait", .call = wait_condition},
    {.name = "io_getevents", .call = wait_getevents},
    {.name = "recv_timeout", .call = wait_recv},
    {.name = "sigtimedwait", .call = wait_signal},
    {.name = "semtimedop", .call = wait_semtimedop},
    {.name = "timerfd", .call = wait_timer_fd},
};
enum { WAITS = sizeof waits / sizeof *waits };

static void *work(void *argument) {
    struct wait *self = argument;

    for (unsigned long n = 1;; n++) {
        errno = 0;
        if (self->call() < 0 && errno == EINTR)
            truth_add(&self->eintr);
        MARK(truth_waits, "what %d n %lu", (int)(self - waits), n);
        truth_add(&self->turns);
    }
    return NULL;
}

static void check(bool ok) {
    if (!ok) {
        perror("truth_waits");
        _exit(3);
    }
}

static int file;

static void set_up(void) {
    char file_name[] = "/tmp/truth_waits-XXXXXX";
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval timeout = {0, SHORT_MS * 1000};
    sigset_t set;

    for (int i = 0; i < 4; i++)
        check(!pipe(poke_pipe[i]));
    check(!pipe(never_pipe));
    event_fd = eventfd(0, EFD_CLOEXEC);
    check(!sem_init(&semaphore, 0, 0) && !sem_init(&never_semaphore, 0, 0));
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(!bind(listener, (struct sockaddr *)&here, sizeof here) && !listen(listener, 5));
    /* In a namespace of our own, where we may, they are gone with us, however we end. */
    if (unshare(CLONE_NEWIPC))
        errno = 0;
    message_queue = msgget(IPC_PRIVATE, 0600);
    semaphores = semget(IPC_PRIVATE, 2, 0600);
    check(message_queue >= 0 && semaphores >= 0);
    check(!semctl(semaphores, 0, SETVAL, 0) && !semctl(semaphores, 1, SETVAL, 0));
    check(!socketpair(AF_UNIX, SOCK_STREAM, 0, timed_socket));
    check(!setsockopt(timed_socket[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout));
    check(!syscall(SYS_io_setup, 1, &aio));
    check((file = mkstemp(file_name)) >= 0);
    inotify = inotify_init1(IN_CLOEXEC);
    check(inotify_add_watch(inotify, file_name, IN_MODIFY) >= 0 && !unlink(file_name));
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    check(!pthread_sigmask(SIG_BLOCK, &set, NULL));
    sigdelset(&set, SIGUSR2);
    signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
    check(signal_fd >= 0);
}

static void finish(void) {
    msgctl(message_queue, IPC_RMID, NULL);
    semctl(semaphores, 0, IPC_RMID);
}

static void poke_all(void) {
    struct sockaddr_in here;
    socklen_t size = sizeof here;
    struct {
        long type;
        char byte;
    } message = {1, 0};
    const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    for (int i = 0; i < 4; i++)
        check(write(poke_pipe[i][1], "", 1) == 1);
    check(!eventfd_write(event_fd, 1));
    atomic_fetch_add(&futex_word, 1);
    syscall(SYS_futex, &futex_word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    sem_post(&semaphore);
    check(!getsockname(listener, (struct sockaddr *)&here, &size));
    check(!connect(connection, (struct sockaddr *)&here, size));
    close(connection);
    check(!msgsnd(message_queue, &message, 1, 0));
    check(!semop(semaphores, &(struct sembuf){0, 1, 0}, 1));
    check(!kill(getpid(), SIGUSR1));
    check(write(file, "", 1) == 1);
}

static void poke(void) {
    unsigned long before[WOKEN];

    for (int i = 0; i < WOKEN; i++)
        before[i] = atomic_load(&waits[i].turns);
    poke_all();
    for (int i = 0; i < WOKEN; i++)
        while (atomic_load(&waits[i].turns) == before[i])
            sched_yield();
}

static void say_counts(const char *word) {
    unsigned long turns = 0;
    char text[400] = "";
    size_t used = 0;

    for (int i = 0; i < WAITS; i++) {
        turns += atomic_load(&waits[i].turns);
        if (atomic_load(&waits[i].eintr) && used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, " %s=%lu", waits[i].name,
                                     atomic_load(&waits[i].eintr));
    }
    truth_say("%s turns=%lu%s", word, turns, text);
}

int main(void) {
    char line[64];

    set_up();
    for (int i = 0; i < WAITS; i++)
        truth_start(work, &waits[i]);
    truth_ready();
    while (truth_next(line, sizeof line)) {
        if (truth_is(line, "poke"))
            poke();
        say_counts(line);
    }
    finish();
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * threads.c: stop every thread of a process with PTRACE_SEIZE and PTRACE_INTERRUPT, and let them go
 * on as if nothing had been.
 *
 * SEIZE and INTERRUPT, because they send no signal: nothing shows in the target, no parent is told,
 * and a process that is stopped by job control stays so (ptrace(2), "Attaching and detaching").
 *
 * What still shows in the target, and is mended in resume_all: a few system calls return EINTR
 * after any stop, although no handler ran (signal(7), "Interruption of system calls and library
 * functions by stop signals").
 */

#define _GNU_SOURCE
#include "threads.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STOP_TIMEOUT_NS 300000000ul /* a thread in uninterruptible sleep may take for ever */
#define SPINS_BEFORE_SLEEP 20       /* some 5 us: what a running thread needs to stop */
#define STACK_SIZE (128 * 1024)
#define SHORTEST_SLEEP_NS 5000
#define LONGEST_SLEEP_NS 320000
#define KERNEL_ERESTARTNOHAND 514 /* include/linux/errno.h: restart, unless a handler ran */

uint64_t now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ul + (uint64_t)now.tv_nsec;
}

/* Threads that we resume preempt us before the last one runs: 428 ms for 512 busy threads without
   this, 3.7 ms with it. Not permitted is fine. Only from the moment when all stand: while we wait
   for them, polling at this priority would take the CPU away from the very thread that we wait for
   (100 ms and more on a busy machine). */
static void raise_priority(struct stopped *stopped) {
    struct sched_param fifo = {.sched_priority = 50};
    struct sched_param old;

    stopped->old_policy = sched_getscheduler(0);
    if (stopped->old_policy == SCHED_FIFO || sched_getparam(0, &old))
        return;
    stopped->old_priority = old.sched_priority;
    stopped->raised = !sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &fifo);
}

static void lower_priority(struct stopped *stopped) {
    struct sched_param old = {.sched_priority = stopped->old_priority};

    if (stopped->raised)
        sched_setscheduler(0, stopped->old_policy, &old);
    stopped->raised = 0;
}

static struct stopped_thread *find(struct stopped *stopped, pid_t tid) {
    for (uint32_t i = 0; i < stopped->count; i++)
        if (stopped->threads[i].tid == tid)
            return &stopped->threads[i];
    return NULL;
}

static const struct stopped_thread *first_that_runs(const struct stopped *stopped) {
    uint32_t i = 0;

    while (stopped->threads[i].stands)
        i++;
    return &stopped->threads[i];
}

static int fail(struct mj_report *report, int status, pid_t tid, int error) {
    report->tid = tid;
    report->error = error;
    return status;
}

/* A thread that has ended and is still listed: the first thread may end before the others. */
static int is_dead(pid_t pid, pid_t tid) {
    char path[64], line[512];
    ssize_t got;

    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, tid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 1;
    got = read(fd, line, sizeof line - 1);
    close(fd);
    line[got > 0 ? got : 0] = 0;
    const char *name_end = strrchr(line, ')');
    return !name_end || name_end[1] != ' ' || strchr("ZX", name_end[2]);
}

static int seize(struct stopped *stopped, pid_t tid, struct mj_report *report) {
    if (stopped->count == stopped->room) {
        const uint32_t room = stopped->room ? 2 * stopped->room : 64;
        void *grown = realloc(stopped->threads, room * sizeof *stopped->threads);

        if (!grown)
            return fail(report, MJ_ERRNO, tid, ENOMEM);
        stopped->threads = grown;
        stopped->room = room;
    }
    if (ptrace(PTRACE_SEIZE, tid, 0, PTRACE_O_TRACESYSGOOD)) {
        const int error = errno;

        return error == ESRCH || is_dead(stopped->pid, tid) ? MJ_OK
                                                            : fail(report, MJ_ERRNO, tid, error);
    }
    stopped->threads[stopped->count++] = (struct stopped_thread){.tid = tid};
    ptrace(PTRACE_INTERRUPT, tid, 0, 0); /* fails only if it is gone: wait_all sees that */
    return MJ_OK;
}

/* Seize what is new in /proc/PID/task; *found says how many were. */
static int seize_new(struct stopped *stopped, uint32_t *found, struct mj_report *report) {
    const uint32_t before = stopped->count;
    char path[64];
    int status = MJ_OK;

    snprintf(path, sizeof path, "/proc/%d/task", stopped->pid);
    DIR *tasks = opendir(path);
    if (!tasks)
        return fail(report, errno == ENOENT ? MJ_GONE : MJ_ERRNO, stopped->pid, errno);
    for (struct dirent *entry; status == MJ_OK && (entry = readdir(tasks));) {
        const pid_t tid = atoi(entry->d_name);

        if (tid > 0 && !find(stopped, tid))
            status = seize(stopped, tid, report);
    }
    closedir(tasks);
    *found = stopped->count - before;
    return status;
}

/*
 * Does the thread stand, and why? Asked of ptrace and not taken from a wait status: another thread
 * of our own process that waits for its child, the target, may have taken that.
 */
static void look(struct stopped_thread *thread) {
    siginfo_t why;

    thread->stands = !ptrace(PTRACE_GETREGS, thread->tid, 0, &thread->regs);
    if (!thread->stands)
        return;
    if (ptrace(PTRACE_GETSIGINFO, thread->tid, 0, &why))
        return;
    /* Three kinds: our interrupt, a job-control stop, and a signal on its way to the thread. */
    thread->plain = why.si_code == INTERRUPT_STOP;
    thread->pending_signal = why.si_code >> 8 == PTRACE_EVENT_STOP ? 0 : why.si_signo;
}

/* Look at those that do not stand yet, take those that have ended off the list; returns how many
   are left to wait for. */
static uint32_t look_at_all(struct stopped *stopped) {
    uint32_t running = 0;

    for (uint32_t i = 0; i < stopped->count;) {
        struct stopped_thread *thread = &stopped->threads[i];

        if (!thread->stands)
            look(thread);
        if (!thread->stands && is_dead(stopped->pid, thread->tid)) {
            *thread = stopped->threads[--stopped->count];
            continue;
        }
        running += !thread->stands;
        i++;
    }
    return running;
}

/*
 * Wait for all, in any order, and for stops only: the end of a process is its parent's to be told,
 * and a tracer that took the status would keep it from a parent that is in our own process.
 */
static int wait_all(struct stopped *stopped, struct mj_report *report) {
    const uint64_t deadline_ns = now_ns() + STOP_TIMEOUT_NS;
    long sleep_ns = SHORTEST_SLEEP_NS;
    uint32_t running = 0, spins = 0;

    for (uint32_t i = 0; i < stopped->count; i++)
        running += !stopped->threads[i].stands;
    while (running) {
        siginfo_t info = {.si_pid = 0};

        if (!waitid(P_ALL, 0, &info, WSTOPPED | WNOHANG | __WALL | __WNOTHREAD) && info.si_pid) {
            struct stopped_thread *thread = find(stopped, info.si_pid);

            if (thread && !thread->stands) {
                look(thread);
                running -= thread->stands;
            }
            spins = 0;
        } else if (++spins > SPINS_BEFORE_SLEEP) {
            /* The thread may need our CPU to get to its stop: give it room, more each time. */
            nanosleep(&(struct timespec){.tv_nsec = sleep_ns}, NULL);
            sleep_ns = sleep_ns < LONGEST_SLEEP_NS ? 2 * sleep_ns : sleep_ns;
            running = look_at_all(stopped);
            if (running && now_ns() > deadline_ns)
                return fail(report, MJ_BUSY, first_that_runs(stopped)->tid, 0);
        }
    }
    return MJ_OK;
}

static void begin(pid_t pid, struct stopped *stopped) {
    memset(stopped, 0, sizeof *stopped);
    stopped->pid = pid;
    stopped->old_slack = prctl(PR_GET_TIMERSLACK);
    prctl(PR_SET_TIMERSLACK, 1); /* else every short sleep takes 50 us more */
    stopped->started_ns = now_ns();
}

static int end(struct stopped *stopped, int status, struct mj_report *report) {
    if (status == MJ_OK && !stopped->count)
        status = fail(report, MJ_GONE, stopped->pid, ESRCH);
    prctl(PR_SET_TIMERSLACK, stopped->old_slack);
    raise_priority(stopped);
    stopped->stopped_ns = now_ns();
    report->threads = stopped->count;
    report->stop_ns = stopped->stopped_ns - stopped->started_ns;
    if (status != MJ_OK)
        resume_all(stopped, report);
    return status;
}

struct job {
    int (*work)(void *arguments);
    void *arguments;
    int status;
};

static void *do_job(void *argument) {
    struct job *job = argument;

    job->status = job->work(job->arguments);
    return NULL;
}

int in_own_thread(int (*work)(void *arguments), void *arguments, struct mj_report *report) {
    struct job job = {.work = work, .arguments = arguments};
    pthread_attr_t small;
    pthread_t thread;
    cpu_set_t here;
    sigset_t all, before;

    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK_SIZE);
    /* On our own CPU, where we are about to wait: to wake another takes longer than the stop. */
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    pthread_attr_setaffinity_np(&small, sizeof here, &here);
    /* No signal of the controller's may end a wait in there, least of all on borrowed registers. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&thread, &small, do_job, &job);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&small);
    if (error)
        return fail(report, MJ_ERRNO, 0, error);
    pthread_join(thread, NULL);
    return job.status;
}

int stop_all(pid_t pid, struct stopped *stopped, struct mj_report *report) {
    int status = MJ_OK;

    begin(pid, stopped);
    for (uint32_t found = 1; found && status == MJ_OK;) {
        status = seize_new(stopped, &found, report);
        if (status == MJ_OK)
            status = wait_all(stopped, report);
    }
    return end(stopped, status, report);
}

int stop_one(pid_t pid, pid_t tid, struct stopped *stopped, struct mj_report *report) {
    begin(pid, stopped);
    int status = seize(stopped, tid, report);

    if (status == MJ_OK)
        status = wait_all(stopped, report);
    return end(stopped, status, report);
}

/*
 * These return EINTR after a stop even if no signal handler runs: some always, those of sockets
 * when there is a timeout (SO_RCVTIMEO, SO_SNDTIMEO). We put the kernel's own "restart unless a
 * handler ran" in its place, which it looks at when the thread goes on: so a signal that is really
 * pending still ends the call, and our stop does not. A timeout starts afresh. Others are left
 * alone: an EINTR of close, say, must not be followed by a second close.
 */
static int leaks_eintr(uint64_t number) {
    switch (number) {
    case SYS_accept:
    case SYS_accept4:
    case SYS_connect:
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
    case SYS_epoll_wait:
    case SYS_io_getevents:
    case SYS_io_pgetevents:
    case SYS_io_uring_enter:
    case SYS_read:
    case SYS_readv:
    case SYS_recvfrom:
    case SYS_recvmmsg:
    case SYS_recvmsg:
    case SYS_rt_sigtimedwait:
    case SYS_semop:
    case SYS_semtimedop:
    case SYS_sendmmsg:
    case SYS_sendmsg:
    case SYS_sendto:
    case SYS_write:
    case SYS_writev:
        return 1;
    }
    return 0;
}

static void mend_system_call(struct stopped_thread *thread) {
    if ((int64_t)thread->regs.orig_rax < 0 || (int64_t)thread->regs.rax != -EINTR ||
        !leaks_eintr(thread->regs.orig_rax))
        return;
    thread->regs.rax = (uint64_t)-KERNEL_ERESTARTNOHAND;
    ptrace(PTRACE_SETREGS, thread->tid, 0, &thread->regs);
}

void resume_all(struct stopped *stopped, struct mj_report *report) {
    const uint64_t from_ns = now_ns();

    for (uint32_t i = 0; i < stopped->count; i++) {
        struct stopped_thread *thread = &stopped->threads[i];

        if (!thread->stands)
            continue;
        if (thread->plain)
            mend_system_call(thread);
        ptrace(PTRACE_DETACH, thread->tid, 0, thread->pending_signal);
        if (thread->resend_signal)
            syscall(SYS_tgkill, stopped->pid, thread->tid, thread->resend_signal);
    }
    report->held_ns = from_ns - stopped->stopped_ns;
    report->resume_ns = now_ns() - from_ns;
    lower_priority(stopped);
    free(stopped->threads);
    stopped->threads = NULL;
    stopped->count = stopped->room = 0;
}

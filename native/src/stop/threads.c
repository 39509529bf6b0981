/* SPDX-License-Identifier: MIT */
/*
 * threads.c: stop every thread of a process with PTRACE_SEIZE and PTRACE_INTERRUPT, and let them go
 * on as if nothing had been.
 *
 * SEIZE and INTERRUPT, because they send no signal: nothing shows in the target, no parent is told,
 * and a process that is stopped by job control stays so (ptrace(2), "Attaching and detaching").
 *
 * One effect still shows in the target, and is repaired by the look at each thread: a few system
 * calls return EINTR after any stop, although no handler ran (signal(7), "Interruption of system
 * calls and library functions by stop signals").
 *
 * A thread stands from its own stop until the last one has come to its own. So whatever can be done
 * before the first interrupt, is:
 *
 *   1  all threads are seized, which stops none
 *   2  those that run, or wait for a CPU, are interrupted, and waited for. On a busy machine that
 *      takes as long as they wait for their turn, and meanwhile no other thread stands
 *   3  the others are interrupted, all of them before any is waited for. They sleep, and come to
 *      their stop at once
 *   4  threads that are new are seized and interrupted, until there are none
 */

#define _GNU_SOURCE
#include "threads.h"
#include "follow.h"
#include "race.h"
#include "tasks.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STOP_TIMEOUT_NS 300000000ul /* a thread in uninterruptible sleep may take for ever */
#define LOADED_TIMEOUT_NS 5000000000ul
#define LOOKS_BEFORE_SLEEP 20 /* some 5 us: what a running thread needs to stop */
#define STACK_SIZE (256 * 1024)
#define SHORTEST_SLEEP_NS 5000
#define LONGEST_SLEEP_NS 320000
#define ASK_FOR_ENDS_FROM_NS 40000 /* sleeps: whether a thread has ended takes longer to ask */

/* Threads that are looked at in turn, until one of them stands. To ask for thousands that wait for
   a CPU, again and again, would take it away from them. */
#define MOST_AWAITED 32

/* include/linux/errno.h: what an interrupted call has in rax until the kernel begins it again */
enum { ERESTARTSYS = 512, ERESTARTNOINTR = 513, ERESTARTNOHAND = 514, ERESTART_RESTARTBLOCK = 516 };

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
    const char *asked = getenv("MARKERJIT_PRIORITY"); /* markerjit/proc/priority.py */

    if (asked && !strcmp(asked, "keep"))
        return;
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

static int fail(struct mj_report *report, int status, pid_t tid, int error) {
    report->tid = tid;
    report->error = error;
    return status;
}

static int has_room(struct stopped *stopped) {
    if (stopped->count < stopped->room)
        return 1;
    const uint32_t room = stopped->room ? 2 * stopped->room : 64;
    void *grown = realloc(stopped->threads, room * sizeof *stopped->threads);

    if (!grown)
        return 0;
    stopped->threads = grown;
    stopped->room = room;
    return 1;
}

/* Trace a thread, which runs on. One of a process that is followed is traced already: then it can
   be interrupted, and is. */
static int seize(struct stopped *stopped, pid_t tid, struct mj_report *report) {
    if (!has_room(stopped))
        return fail(report, MJ_ERRNO, tid, ENOMEM);
    const int followed = is_followed(stopped->pid);
    int asked = followed && is_held(tid); /* it stands, and is not to be interrupted */

    if (!asked && ptrace(PTRACE_SEIZE, tid, 0, followed ? FOLLOW_OPTIONS : PTRACE_O_TRACESYSGOOD)) {
        const int error = errno;

        if (error == ESRCH || is_dead(stopped->pid, tid))
            return MJ_OK;
        /* One that is traced already, and by us, can be interrupted. */
        if (!followed || error != EPERM || ptrace(PTRACE_INTERRUPT, tid, 0, 0))
            return fail(report, MJ_ERRNO, tid, error);
        asked = 1;
    }
    stopped->threads[stopped->count++] =
        (struct stopped_thread){.tid = tid, .followed = followed, .asked = asked};
    MJ_RACE("seized");
    return MJ_OK;
}

static void swap(struct stopped *stopped, uint32_t i, uint32_t j) {
    const struct stopped_thread thread = stopped->threads[i];

    stopped->threads[i] = stopped->threads[j];
    stopped->threads[j] = thread;
}

/* The threads that are known, so that the list is gone through once. */
static int add_all(struct tids *known, const struct stopped *stopped) {
    for (uint32_t i = 0; i < stopped->count; i++)
        if (tids_add(known, stopped->threads[i].tid) < 0)
            return 0;
    return 1;
}

/* Seize what is new in /proc/PID/task; *found says how many were. */
static int seize_new(struct stopped *stopped, DIR *tasks, uint32_t *found,
                     struct mj_report *report) {
    const uint32_t before = stopped->count;
    struct tids known = {0};
    int status = add_all(&known, stopped) ? MJ_OK : fail(report, MJ_ERRNO, stopped->pid, ENOMEM);
    pid_t tid;

    rewinddir(tasks);
    while (status == MJ_OK && (tid = next_task(tasks))) {
        const int is_new = tids_add(&known, tid);

        if (is_new < 0)
            status = fail(report, MJ_ERRNO, tid, ENOMEM);
        else if (is_new)
            status = seize(stopped, tid, report);
    }
    if (status == MJ_OK && errno && errno != ENOENT) /* ENOENT: the process has ended */
        status = fail(report, MJ_ERRNO, stopped->pid, errno);
    tids_destroy(&known);
    *found = stopped->count - before;
    return status;
}

/* Whether the process has as many threads as stand: then it has no others, since one that stands
   makes none and does not end. Where a thread has ended and is still listed, this says no, and they
   are listed again. */
static int are_all(const struct stopped *stopped, DIR *tasks) {
    return count_tasks(tasks) == stopped->count;
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

int begins_call_again(const struct user_regs_struct *regs) {
    if ((int64_t)regs->orig_rax < 0)
        return 0;
    switch (-(int64_t)regs->rax) {
    case ERESTARTSYS:
    case ERESTARTNOINTR:
    case ERESTARTNOHAND:
    case ERESTART_RESTARTBLOCK:
        return 1;
    }
    return 0;
}

/* At once and not when the thread is resumed: we may be killed before that. */
static void mend_system_call(struct stopped_thread *thread) {
    if ((int64_t)thread->regs.orig_rax < 0 || (int64_t)thread->regs.rax != -EINTR ||
        !leaks_eintr(thread->regs.orig_rax))
        return;
    thread->regs.rax = (uint64_t)-ERESTARTNOHAND;
    ptrace(PTRACE_SETREGS, thread->tid, 0, &thread->regs);
}

/*
 * The same for calls with a relative timeout, if it was asked for: they go on by restart_syscall, a
 * call that a program has never made and whose filters may end it. The kernel gives out the rest of
 * the timeout nowhere, so it begins again. A signal handler ends the call, as before.
 */
static void repeat_sleep(struct stopped_thread *thread) {
    if ((int64_t)thread->regs.orig_rax < 0 || (int64_t)thread->regs.rax != -ERESTART_RESTARTBLOCK)
        return;
    thread->regs.rax = (uint64_t)-ERESTARTNOHAND;
    thread->repeats_sleep = !ptrace(PTRACE_SETREGS, thread->tid, 0, &thread->regs);
}

void leave_sleep(struct stopped_thread *thread) {
    if (!thread->repeats_sleep)
        return;
    thread->regs.rax = (uint64_t)-ERESTART_RESTARTBLOCK;
    ptrace(PTRACE_SETREGS, thread->tid, 0, &thread->regs);
    thread->repeats_sleep = 0;
}

/*
 * A thread that stands in the scratch, and not for us, was borrowed by a controller that was
 * killed, and is on its way back. The result of its call is for nobody. So a call that would be
 * begun again ends instead, or the thread would wait in it with all of its signals blocked.
 */
static int ends_call_for_nobody(const struct stopped *stopped, struct stopped_thread *thread) {
    if (!stopped->scratch || thread->regs.rsp - stopped->scratch >= MJ_SCRATCH_SIZE)
        return 0;
    if (begins_call_again(&thread->regs)) {
        thread->regs.rax = (uint64_t)-EINTR;
        ptrace(PTRACE_SETREGS, thread->tid, 0, &thread->regs);
    }
    return 1;
}

/*
 * The stops of a thread that is followed: it has made a thread or a process, and goes on until our
 * interrupt stops it again, which the stop has cancelled. Or it has executed a file: then it
 * stands, and is for the follower.
 */
static int goes_on_from_event(struct stopped_thread *thread, const siginfo_t *why) {
    switch (why->si_code >> 8) {
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
    case PTRACE_EVENT_CLONE:
        thread->stands = 0;
        ptrace(PTRACE_INTERRUPT, thread->tid, 0, 0);
        ptrace(PTRACE_CONT, thread->tid, 0, 0);
        return 1;
    case PTRACE_EVENT_EXEC:
        thread->executed = 1;
        return 1;
    }
    return 0;
}

/*
 * Does the thread stand, and why? Asked of ptrace and not taken from a wait status: another thread
 * of our own process that waits for its child, the target, may have taken that.
 */
static void look(const struct stopped *stopped, struct stopped_thread *thread) {
    siginfo_t why;

    thread->stands = !ptrace(PTRACE_GETREGS, thread->tid, 0, &thread->regs);
    if (!thread->stands)
        return;
    const int unknown = ptrace(PTRACE_GETSIGINFO, thread->tid, 0, &why) != 0;

    if (thread->followed && !unknown && goes_on_from_event(thread, &why))
        return;
    const int for_nobody = ends_call_for_nobody(stopped, thread);

    if (stopped->repeats_sleeps && !for_nobody)
        repeat_sleep(thread);
    if (unknown)
        return;
    /* Three kinds: our interrupt, a job-control stop, and a signal on its way to the thread. */
    thread->plain = why.si_code == INTERRUPT_STOP;
    thread->listens = !thread->plain && why.si_code >> 8 == PTRACE_EVENT_STOP;
    thread->pending_signal = why.si_code >> 8 == PTRACE_EVENT_STOP ? 0 : why.si_signo;
    if (thread->plain && !for_nobody)
        mend_system_call(thread);
}

/*
 * The wait status of a stop is taken, so that no other thread of ours that waits for its child
 * takes it for its own. But that of a thread that has a signal to take is left: when it has been
 * taken, the kernel forgets the signal if we are killed, and a SIGTRAP of a breakpoint that is
 * forgotten lets the thread run on in the middle of an instruction.
 */
static void take_status(const struct stopped_thread *thread) {
    siginfo_t info;

    if (!thread->pending_signal)
        waitid(P_PID, (id_t)thread->tid, &info, WSTOPPED | WNOHANG | __WALL | __WNOTHREAD);
}

/* What a pass over threads that do not stand yet has come to. */
struct pass {
    uint32_t looks; /* at threads that do not stand */
    int came;       /* some stand now, or have ended */
};

/*
 * Look at the next threads that do not stand, of the first `end`, and put those that do to the
 * others that stand; if asked, take those that have ended off the list. A thread is asked by its
 * number. waitid(P_ALL) would look through all threads that we trace each time, and have the kernel
 * do so thousands of times.
 */
static struct pass look_at_next(struct stopped *stopped, uint32_t *end, int asks_for_ends) {
    struct pass pass = {0};

    for (uint32_t i = stopped->standing; i < *end && pass.looks < MOST_AWAITED;) {
        struct stopped_thread *thread = &stopped->threads[i];

        if (!thread->stands)
            look(stopped, thread);
        if (thread->stands) {
            take_status(thread);
            swap(stopped, i++, stopped->standing++);
            pass.came = 1;
        } else if (asks_for_ends && is_dead(stopped->pid, thread->tid)) {
            swap(stopped, i, --*end);
            swap(stopped, *end, --stopped->count);
            pass.came = 1;
        } else {
            pass.looks++;
            i++;
        }
    }
    return pass;
}

/*
 * Wait for the first `end` threads, in any order, and for stops only: the end of a process is its
 * parent's to be told, and a tracer that took the status would keep it from a parent that is in our
 * own process.
 */
static int wait_for(struct stopped *stopped, uint32_t end, struct mj_report *report) {
    const uint64_t deadline_ns = now_ns() + STOP_TIMEOUT_NS;
    long sleep_ns = SHORTEST_SLEEP_NS;
    uint32_t looks = 0;
    int asks_for_ends = 0;

    while (stopped->standing < end) {
        const uint64_t from_ns = now_ns();
        const struct pass pass = look_at_next(stopped, &end, asks_for_ends);

        if (!stopped->standing && end <= MOST_AWAITED)
            stopped->started_ns = from_ns; /* all were looked at, and none stands */
        looks = pass.came ? 0 : looks + pass.looks;
        if (stopped->standing == end || looks < LOOKS_BEFORE_SLEEP)
            continue;
        /* The thread may need our CPU to get to its stop: give it room, more each time. */
        nanosleep(&(struct timespec){.tv_nsec = sleep_ns}, NULL);
        asks_for_ends = sleep_ns >= ASK_FOR_ENDS_FROM_NS;
        sleep_ns = sleep_ns < LONGEST_SLEEP_NS ? 2 * sleep_ns : sleep_ns;
        if (from_ns > deadline_ns) {
            const pid_t tid = stopped->threads[stopped->standing].tid;

            /* A thread that only waits for a CPU will come to its stop. On a machine with a
               hundred busy tasks that takes a while. */
            if (from_ns > deadline_ns + LOADED_TIMEOUT_NS || state_of(stopped->pid, tid) == 'D')
                return fail(report, MJ_BUSY, tid, 0);
        }
    }
    return MJ_OK;
}

/* Interrupt threads [first, end): which fails only if one is gone, and wait_for sees that. */
static void interrupt(struct stopped *stopped, uint32_t first, uint32_t end) {
    if (!stopped->standing)
        stopped->started_ns = now_ns();
    for (uint32_t i = first; i < end; i++) {
        if (!stopped->threads[i].asked)
            ptrace(PTRACE_INTERRUPT, stopped->threads[i].tid, 0, 0);
        MJ_RACE("interrupted");
    }
}

/* Put the threads that do not sleep before the others. Returns how many there are. */
static uint32_t put_first_that_run(struct stopped *stopped, DIR *tasks) {
    uint32_t running = 0;

    for (uint32_t i = 0; stopped->count > 1 && i < stopped->count; i++)
        if (strchr("RD", state_of_task(tasks, stopped->threads[i].tid)))
            swap(stopped, i, running++);
    return running;
}

/* Interrupt those that do not stand yet, and wait for all. */
static int stop_seized(struct stopped *stopped, DIR *tasks, struct mj_report *report) {
    const uint32_t running = stopped->standing ? 0 : put_first_that_run(stopped, tasks);
    int status = MJ_OK;

    if (running) {
        interrupt(stopped, 0, running);
        status = wait_for(stopped, running, report);
    }
    if (status != MJ_OK)
        return status;
    interrupt(stopped, stopped->standing, stopped->count);
    return wait_for(stopped, stopped->count, report);
}

static void begin(const struct mj_target *target, struct stopped *stopped) {
    memset(stopped, 0, sizeof *stopped);
    stopped->pid = target->pid;
    stopped->pidfd = target->pidfd;
    stopped->repeats_sleeps = target->repeats_sleeps;
    stopped->scratch = target->scratch;
    stopped->old_slack = prctl(PR_GET_TIMERSLACK);
    prctl(PR_SET_TIMERSLACK, 1); /* else every short sleep takes 50 us more */
    stopped->seized_ns = stopped->started_ns = now_ns();
}

/* The number belongs to the process that we mean as long as that has not ended. */
static int is_another(const struct stopped *stopped) {
    struct pollfd ended = {.fd = stopped->pidfd, .events = POLLIN};

    return stopped->pidfd >= 0 && poll(&ended, 1, 0) > 0;
}

/* A signal stops a thread as soon as it is seized, so it may stand from then on. */
static int has_early_stop(const struct stopped *stopped) {
    for (uint32_t i = 0; i < stopped->count; i++)
        if (!stopped->threads[i].plain && !stopped->threads[i].listens)
            return 1;
    return 0;
}

static int end(struct stopped *stopped, int status, struct mj_report *report) {
    if (status == MJ_OK && (!stopped->count || is_another(stopped)))
        status = fail(report, MJ_GONE, stopped->pid, ESRCH);
    prctl(PR_SET_TIMERSLACK, stopped->old_slack);
    raise_priority(stopped);
    stopped->stopped_ns = now_ns();
    if (has_early_stop(stopped))
        stopped->started_ns = stopped->seized_ns;
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

/*
 * No signal of the controller's may end a wait in there, least of all on borrowed registers. But
 * SIGCHLD is let through where it is ignored: the kernel sends one for each thread that stops, and
 * one that is blocked is kept, and wakes another thread of ours. Where the caller blocks it, some
 * thread waits for it by sigwait, and would miss it.
 */
static void mask_for_job(const sigset_t *of_caller, sigset_t *mask) {
    struct sigaction action;

    sigfillset(mask);
    if (!sigismember(of_caller, SIGCHLD) && !sigaction(SIGCHLD, NULL, &action) &&
        !(action.sa_flags & SA_SIGINFO) &&
        (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN))
        sigdelset(mask, SIGCHLD);
}

static void *do_job(void *argument) {
    struct job *job = argument;

    job->status = job->work(job->arguments);
    return NULL;
}

/* We are about to wait on our CPU: to wake another takes longer than the stop. A CPU that is not
   known, or that does not fit into the set, leaves the set empty, and no thread can be created with
   an empty set. */
static void stay_on_this_cpu(pthread_attr_t *attributes) {
    const int cpu = sched_getcpu();
    cpu_set_t here;

    if (cpu < 0 || cpu >= CPU_SETSIZE)
        return;
    CPU_ZERO(&here);
    CPU_SET(cpu, &here);
    pthread_attr_setaffinity_np(attributes, sizeof here, &here);
}

int in_own_thread(pid_t pid, int (*work)(void *arguments), void *arguments,
                  struct mj_report *report) {
    if (is_followed(pid))
        return in_follower(work, arguments);

    struct job job = {.work = work, .arguments = arguments};
    pthread_attr_t small;
    pthread_t thread;
    sigset_t during, before;

    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK_SIZE);
    stay_on_this_cpu(&small);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    mask_for_job(&before, &during);
    pthread_sigmask(SIG_SETMASK, &during, NULL);
    const int error = pthread_create(&thread, &small, do_job, &job);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&small);
    if (error)
        return fail(report, MJ_ERRNO, 0, error);
    pthread_join(thread, NULL);
    return job.status;
}

int stop_all(const struct mj_target *target, struct stopped *stopped, struct mj_report *report) {
    int status = MJ_OK;

    begin(target, stopped);
    DIR *tasks = open_tasks(target->pid);

    if (!tasks)
        status = fail(report, errno == ENOENT || errno == ESRCH ? MJ_GONE : MJ_ERRNO, target->pid,
                      errno);
    for (uint32_t found = 1; found && status == MJ_OK;) {
        status = seize_new(stopped, tasks, &found, report);
        if (status == MJ_OK)
            status = stop_seized(stopped, tasks, report);
        if (status == MJ_OK && found && are_all(stopped, tasks))
            break;
    }
    if (tasks)
        closedir(tasks);
    status = end(stopped, status, report);
    if (status == MJ_OK)
        MJ_RACE("stopped");
    return status;
}

int stop_one(const struct mj_target *target, pid_t tid, struct stopped *stopped,
             struct mj_report *report) {
    begin(target, stopped);
    int status = seize(stopped, tid, report);

    if (status == MJ_OK) {
        interrupt(stopped, 0, stopped->count);
        status = wait_for(stopped, stopped->count, report);
    }
    return end(stopped, status, report);
}

int stopped_alone(const struct stopped *all, struct stopped *one) {
    *one = *all;
    one->raised = 0;
    one->count = one->room = 1;
    one->threads = malloc(sizeof *one->threads);
    return one->threads != NULL;
}

void resume_all(struct stopped *stopped, struct mj_report *report) {
    const uint64_t from_ns = now_ns();

    for (uint32_t i = 0; i < stopped->count; i++) {
        struct stopped_thread *thread = &stopped->threads[i];

        if (!thread->stands)
            continue;
        MJ_RACE("resume");
        if (thread->followed)
            resume_followed(thread);
        else
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

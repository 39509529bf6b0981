/* SPDX-License-Identifier: MIT */
/*
 * follow.c: a process and all that it starts.
 *
 * The follower is a thread of ours that traces every thread of the family for as long as it is
 * followed. A thread has one tracer: so all that stops a member of the family is done by the
 * follower, too (in_own_thread hands it over), and threads.c interrupts what is traced already
 * instead of seizing it, and lets it go on instead of detaching it.
 *
 *   1  all threads of the first process are stopped once, so that no fork is on its way, and go on
 *   2  a new process is traced from its birth, and stops before its first instruction. One that has
 *      its parent's memory (vfork) goes on at once; another is held until it is released
 *   3  a process that executes a file stops before the first instruction of that, and is given the
 *      hold of launch.c. It goes on, and waits at its entry point until it is let go
 *   4  every other stop is ended at once: with the signal that it is for, or as a stop of job
 *      control
 *
 * A stop is looked at, and its status is taken only where the thread is to stand on: without its
 * status the kernel forgets the signal that the thread stops for, if we are killed.
 *
 * The events FORK, VFORK and CLONE themselves are not needed: a new thread or process shows itself
 * by its first stop. When we are killed, the kernel lets go of all, also those that are held.
 */

#define _GNU_SOURCE
#include "follow.h"

#include "launch.h"
#include "race.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STACK_SIZE (512 * 1024)
#define RING_AGAIN_NS 1000000

struct member {
    pid_t pid;
    int held;
    uint64_t held_since_ns;
};

struct job {
    int (*work)(void *arguments);
    void *arguments;
    int status, ends, done;
};

struct news {
    struct news *next;
    struct mj_followed what;
};

/* One at a time for our process. `lock` guards what stands below it; `asking` is held by the thread
   whose job it is. */
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct {
    pthread_t thread;
    int runs;
    struct job *job;
    struct member *members;
    uint32_t count, room;
    int32_t patience_ms;
    struct news *first, *last;
    struct mj_follow_totals totals;
    struct sigaction before; /* of the signal that wakes the follower */
} family;

static int bell(void) { return SIGRTMAX; }

static void on_bell(int number) { (void)number; /* a wait returns */ }

/* ---- members: the caller holds `lock` ----------------------------------------------------------
 */

static struct member *member_of(pid_t pid) {
    for (uint32_t i = 0; i < family.count; i++)
        if (family.members[i].pid == pid)
            return &family.members[i];
    return NULL;
}

static struct member *add_member(pid_t pid) {
    if (family.count == family.room) {
        const uint32_t room = family.room ? 2 * family.room : 64;
        void *grown = realloc(family.members, room * sizeof *family.members);

        if (!grown)
            return NULL;
        family.members = grown;
        family.room = room;
    }
    family.members[family.count] = (struct member){.pid = pid};
    return &family.members[family.count++];
}

static void note(const struct mj_followed *what) {
    struct news *news = malloc(sizeof *news);

    if (!news) { /* nobody will hear of it: so nothing may wait for that */
        family.totals.unknown++;
        return;
    }
    *news = (struct news){.what = *what};
    if (family.last)
        family.last->next = news;
    else
        family.first = news;
    family.last = news;
    pthread_cond_broadcast(&changed);
}

static struct timespec after(uint64_t ns) {
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    ns += (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    return until;
}

static void forget_news(void) {
    for (struct news *news = family.first, *next; news; news = next) {
        next = news->next;
        free(news);
    }
    family.first = family.last = NULL;
}

static void forget_members(void) {
    free(family.members);
    family.members = NULL;
    family.count = family.room = 0;
}

int is_followed(pid_t pid) {
    pthread_mutex_lock(&lock);
    const int known = member_of(pid) != NULL;
    pthread_mutex_unlock(&lock);
    return known;
}

int is_held(pid_t pid) {
    pthread_mutex_lock(&lock);
    const struct member *member = member_of(pid);
    const int held = member && member->held;
    pthread_mutex_unlock(&lock);
    return held;
}

/* ---- the follower ------------------------------------------------------------------------------
 */

/* A number of /proc/TID/status; 0 where the thread is gone. */
static long status_number(pid_t tid, const char *name) {
    char path[64], text[4096], line[32];

    snprintf(path, sizeof path, "/proc/%d/status", tid);
    snprintf(line, sizeof line, "\n%s:", name);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t size = file < 0 ? -1 : read(file, text, sizeof text - 1);

    if (file >= 0)
        close(file);
    if (size <= 0)
        return 0;
    text[size] = 0;
    const char *found = strstr(text, line);
    return found ? strtol(found + strlen(line), NULL, 10) : 0;
}

/* Whether a new process has the memory of its parent, or of another member (CLONE_PARENT). */
static int shares_memory(pid_t pid, pid_t parent) {
    int shares = !syscall(SYS_kcmp, pid, parent, KCMP_VM, 0, 0);

    pthread_mutex_lock(&lock);
    if (!member_of(parent))
        for (uint32_t i = 0; i < family.count && !shares; i++)
            shares = !syscall(SYS_kcmp, pid, family.members[i].pid, KCMP_VM, 0, 0);
    pthread_mutex_unlock(&lock);
    return shares;
}

/* It is not reported again. */
static void take_status(pid_t tid, int which) {
    siginfo_t info;

    waitid(P_PID, (id_t)tid, &info, which | WNOHANG | __WALL | __WNOTHREAD);
}

/* 2 */
static void adopt(pid_t pid) {
    const pid_t parent = (pid_t)status_number(pid, "PPid");
    const int shares = shares_memory(pid, parent);

    MJ_RACE("follow: child");
    pthread_mutex_lock(&lock);
    struct member *member = add_member(pid);

    if (member && !shares) {
        const uint64_t unknown = family.totals.unknown;
        const struct mj_followed what = {.kind = MJ_FORKED, .pid = pid, .parent = parent};

        note(&what);
        member->held = family.totals.unknown == unknown;
        member->held_since_ns = now_ns();
    } else if (member) {
        note(&(struct mj_followed){.kind = MJ_SHARING, .pid = pid, .parent = parent});
    } else {
        family.totals.unknown++;
    }
    family.totals.processes++;
    family.totals.sharing += shares;
    const int held = member && member->held;
    pthread_mutex_unlock(&lock);
    if (held)
        take_status(pid, WSTOPPED);
    else
        ptrace(PTRACE_CONT, pid, 0, 0);
}

/* 3. A thread that was not the first one has the first one's number now. Until its stop has been
   waited for, the kernel fails every ptrace request for it with ESRCH (looks_like_a_spurious_pid,
   kernel/ptrace.c). */
static void executed(pid_t pid) {
    struct mj_followed what = {.kind = MJ_EXECUTED, .pid = pid};
    struct mj_report report = {0};

    take_status(pid, WSTOPPED);
    MJ_RACE("follow: executed");
    what.parent = (int32_t)status_number(pid, "PPid");
    const int filtered = status_number(pid, "Seccomp") != 0;

    pthread_mutex_lock(&lock);
    const int32_t patience_ms = family.patience_ms;
    pthread_mutex_unlock(&lock);
    what.status = hold_stranger(pid, filtered, patience_ms, &what.hold, &report);
    what.hold.pid = pid;
    MJ_RACE("follow: held");
    pthread_mutex_lock(&lock);
    if (!member_of(pid) && !add_member(pid))
        family.totals.unknown++;
    family.totals.executed++;
    note(&what);
    pthread_mutex_unlock(&lock);
    ptrace(PTRACE_CONT, pid, 0, 0);
}

static void ended(pid_t pid, const siginfo_t *info) {
    take_status(pid, WEXITED);
    pthread_mutex_lock(&lock);
    struct member *member = member_of(pid);

    if (member) {
        const struct mj_followed what = {
            .kind = MJ_ENDED,
            .pid = pid,
            .status = info->si_code == CLD_EXITED ? info->si_status << 8 : info->si_status};

        *member = family.members[--family.count];
        note(&what);
    }
    pthread_mutex_unlock(&lock);
}

static void note_birth(void) {
    pthread_mutex_lock(&lock);
    family.totals.births++;
    pthread_mutex_unlock(&lock);
}

/* Handle a thread at its first stop, or after an interrupt whose job is over. */
static void plain_stop(pid_t tid) {
    if (is_held(tid)) {
        take_status(tid, WSTOPPED);
        return;
    }
    if (!is_followed(tid) && status_number(tid, "Tgid") == tid)
        adopt(tid);
    else
        ptrace(PTRACE_CONT, tid, 0, 0);
}

/* The thread stays stopped until it is continued; another stop shows that. */
static void listen_to(pid_t tid) {
    take_status(tid, WSTOPPED);
    ptrace(PTRACE_LISTEN, tid, 0, 0);
}

static void stopped_for(pid_t tid, int status) {
    const int signal = status & 0xff;

    switch (status >> 8) {
    case PTRACE_EVENT_EXEC:
        executed(tid);
        break;
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
    case PTRACE_EVENT_CLONE:
        MJ_RACE("follow: parent");
        note_birth();
        ptrace(PTRACE_CONT, tid, 0, 0);
        break;
    case PTRACE_EVENT_STOP:
        if (signal == SIGTRAP)
            plain_stop(tid);
        else
            listen_to(tid);
        break;
    default: /* a call that a job left unfinished shows its end, too */
        ptrace(PTRACE_CONT, tid, 0, signal == SYSCALL_STOP ? 0 : signal);
    }
}

void resume_followed(const struct stopped_thread *thread) {
    if (is_held(thread->tid))
        return;
    if (thread->executed)
        executed(thread->tid);
    else if (thread->listens)
        listen_to(thread->tid);
    else
        ptrace(PTRACE_CONT, thread->tid, 0, thread->pending_signal);
}

/* The next job. Without a job, this waits if nothing is traced any more. */
static struct job *next_job(int nothing_traced) {
    pthread_mutex_lock(&lock);
    while (nothing_traced && !family.job)
        pthread_cond_wait(&changed, &lock);
    struct job *job = family.job;
    pthread_mutex_unlock(&lock);
    return job;
}

static void *follow(void *unused) {
    sigset_t only;
    int nothing_traced = 0;

    sigfillset(&only);
    sigdelset(&only, bell());
    pthread_sigmask(SIG_SETMASK, &only, NULL);
    for (;;) {
        struct job *job = next_job(nothing_traced);

        if (job) {
            const int status = job->work ? job->work(job->arguments) : MJ_OK;
            const int ends = job->ends;

            if (ends) /* the kernel lets go of all when this thread has ended */
                return unused;
            pthread_mutex_lock(&lock);
            job->status = status;
            job->done = 1;
            family.job = NULL;
            pthread_cond_broadcast(&changed);
            pthread_mutex_unlock(&lock);
        }
        siginfo_t info = {.si_pid = 0};
        const int failed =
            waitid(P_ALL, 0, &info, WSTOPPED | WEXITED | WNOWAIT | __WALL | __WNOTHREAD) ? errno
                                                                                         : 0;

        nothing_traced = failed == ECHILD;
        if (failed || !info.si_pid)
            continue;
        if (info.si_code == CLD_TRAPPED || info.si_code == CLD_STOPPED)
            stopped_for(info.si_pid, info.si_status);
        else
            ended(info.si_pid, &info);
    }
}

/* ---- from other threads ------------------------------------------------------------------------
 */

/* The caller holds `asking`, and the follower runs. The follower's wait can begin just after our
   signal, so the signal is sent again until the job is done. */
static void ask(struct job *job) {
    pthread_mutex_lock(&lock);
    family.job = job;
    pthread_cond_broadcast(&changed);
    while (!job->done) {
        const struct timespec until = after(RING_AGAIN_NS);

        pthread_kill(family.thread, bell());
        pthread_cond_timedwait(&changed, &lock, &until);
    }
    pthread_mutex_unlock(&lock);
}

int in_follower(int (*work)(void *arguments), void *arguments) {
    struct job job = {.work = work, .arguments = arguments, .status = MJ_GONE};

    pthread_mutex_lock(&asking);
    if (family.runs)
        ask(&job);
    pthread_mutex_unlock(&asking);
    return job.status;
}

static int start(struct mj_report *report) {
    struct sigaction wakes = {.sa_handler = on_bell};
    pthread_attr_t attributes;
    sigset_t all, before;

    if (family.runs)
        return MJ_OK;
    pthread_mutex_lock(&lock);
    forget_news();
    pthread_mutex_unlock(&lock);
    sigemptyset(&wakes.sa_mask);
    sigaction(bell(), &wakes, &family.before);
    memset(&family.totals, 0, sizeof family.totals);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_SIZE);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&family.thread, &attributes, follow, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error) {
        sigaction(bell(), &family.before, NULL);
        report->error = error;
        return MJ_ERRNO;
    }
    family.runs = 1;
    return MJ_OK;
}

/* The caller holds `asking`. */
static void end(void) {
    struct job job = {.ends = 1};

    if (!family.runs)
        return;
    pthread_mutex_lock(&lock);
    family.job = &job;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_kill(family.thread, bell());
    while (pthread_tryjoin_np(family.thread, NULL)) {
        nanosleep(&(struct timespec){.tv_nsec = RING_AGAIN_NS}, NULL);
        pthread_kill(family.thread, bell());
    }
    family.runs = 0;
    sigaction(bell(), &family.before, NULL);
    pthread_mutex_lock(&lock);
    family.job = NULL;
    forget_members();
    pthread_mutex_unlock(&lock);
}

struct beginning {
    const struct mj_target *target;
    struct mj_report *report;
};

/* 1 */
static int begin(void *arguments) {
    const struct beginning *all = arguments;
    struct stopped stopped;
    const int status = stop_all(all->target, &stopped, all->report);

    if (status == MJ_OK)
        resume_all(&stopped, all->report);
    return status;
}

int mj_follow(const struct mj_target *target, int32_t patience_ms, struct mj_report *report) {
    struct beginning all = {target, report};
    struct job job = {.work = begin, .arguments = &all};

    memset(report, 0, sizeof *report);
    if (syscall(SYS_kcmp, target->pid, target->pid, KCMP_VM, 0, 0)) {
        report->error = errno;
        return errno == ESRCH ? MJ_GONE : MJ_ERRNO;
    }
    pthread_mutex_lock(&asking);
    int status = start(report);

    if (status == MJ_OK) {
        pthread_mutex_lock(&lock);
        const int known = member_of(target->pid) || add_member(target->pid);
        family.patience_ms = patience_ms;
        pthread_mutex_unlock(&lock);
        if (known)
            ask(&job);
        report->error = known ? report->error : ENOMEM;
        status = known ? job.status : MJ_ERRNO;
        if (status != MJ_OK)
            end();
    }
    pthread_mutex_unlock(&asking);
    return status;
}

static int release(void *argument) {
    const pid_t pid = *(const pid_t *)argument;
    int held = 0;

    pthread_mutex_lock(&lock);
    struct member *member = member_of(pid);

    if (member && member->held) {
        const uint64_t ns = now_ns() - member->held_since_ns;

        held = 1;
        member->held = 0;
        family.totals.held_ns += ns;
        if (ns > family.totals.longest_held_ns)
            family.totals.longest_held_ns = ns;
    }
    pthread_mutex_unlock(&lock);
    MJ_RACE("follow: release");
    if (held)
        ptrace(PTRACE_CONT, pid, 0, 0);
    return held ? MJ_OK : MJ_GONE;
}

int mj_follow_release(int32_t pid) { return in_follower(release, &(pid_t){pid}); }

int mj_follow_next(struct mj_followed *followed) {
    pthread_mutex_lock(&lock);
    struct news *news = family.first;

    if (news) {
        *followed = news->what;
        family.first = news->next;
        if (!family.first)
            family.last = NULL;
        free(news);
    }
    pthread_mutex_unlock(&lock);
    return news != NULL;
}

void mj_follow_wait(uint32_t most_ms) {
    const struct timespec until = after(most_ms * 1000000ul);

    pthread_mutex_lock(&lock);
    while (!family.first && !pthread_cond_timedwait(&changed, &lock, &until))
        ;
    pthread_mutex_unlock(&lock);
}

void mj_follow_totals(struct mj_follow_totals *totals) {
    pthread_mutex_lock(&lock);
    *totals = family.totals;
    pthread_mutex_unlock(&lock);
}

int mj_follows(int32_t pid) { return is_followed(pid); }

void mj_follow_end(void) {
    pthread_mutex_lock(&asking);
    end();
    pthread_mutex_unlock(&asking);
}

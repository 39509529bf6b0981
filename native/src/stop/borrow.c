/* SPDX-License-Identifier: MIT */
/*
 * borrow.c: system calls made by a thread of the target, on our behalf.
 *
 *   1  one thread is stopped, and taken if our interrupt stopped it in 64-bit code, with no seccomp
 *      filters but those that were asked; otherwise it goes on and the next one is tried. From
 *      inside a restartable sequence it is to go on at the abort handler, where the kernel would
 *      have sent it. The others run, because under load each switch to the borrowed thread and back
 *      can take milliseconds; unless 2 needs them to stand, or a caller does (calls.c)
 *   2  its way back is written into its memory (frame.c, lay.c): into the arena's scratch; or,
 *      while all others stand, below its stack pointer and the red zone
 *   3  it is put on that way: a harmless system call, and then `ret`
 *   4  all signals are blocked for it, so that none is delivered on borrowed registers
 *   5  each call: rip to a `syscall` instruction, orig_rax to -1 so that the kernel does not take
 *      our registers for those of an interrupted call, and PTRACE_SYSCALL through entry and exit.
 *      Not PTRACE_SINGLESTEP: its SIGTRAP would reset a blocked or ignored action of the target
 *   6  PTRACE_INTERRUPT and continue: it stops again before any instruction, at the same place in
 *      the kernel as in 1, so that with the old registers an interrupted call is restarted as
 * usual. A thread that was in no call of its own has none to be restarted, and goes on from where
 * our last call has ended: to stop it once more would be for nothing 7  old signal mask 8  old
 * registers 9  what was in the place of the frame
 *
 * When we are killed, the kernel lets the thread go. From 3 to 8 it then finishes the call that it
 * is in, and the frame brings it back, signal mask included: so 3 comes before 4, and 7 before 8.
 * Before 3 and after 8 it has its own registers and mask. The effects of finished calls remain, and
 * markerjit/session/repair.py tidies up. A thread that does not come back from a call in time is
 * left to find its way in the same manner.
 */

#define _GNU_SOURCE
#include "borrow.h"

#include "follow.h"
#include "lay.h"
#include "race.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CODE_64 0x33 /* cs of 64-bit user code */

/* Not in every sys/ptrace.h; Linux 5.13 */
#ifndef PTRACE_GET_RSEQ_CONFIGURATION
#define PTRACE_GET_RSEQ_CONFIGURATION 0x420f
#endif

/* include/uapi/linux/ptrace.h */
struct rseq_configuration {
    uint64_t address;
    uint32_t size, signature, flags, pad;
};

/* The address of a stopped thread's struct rseq; 0: none. */
static uint64_t rseq_of(pid_t tid, uint32_t *signature) {
    struct rseq_configuration area = {0};

    if (ptrace(PTRACE_GET_RSEQ_CONFIGURATION, tid, sizeof area, &area) < 0)
        return 0;
    *signature = area.signature;
    return area.address;
}

uint64_t usual_rseq_of(pid_t tid) {
    uint32_t signature = 0;
    const uint64_t address = rseq_of(tid, &signature);

    return signature == MJ_RSEQ_SIGNATURE ? address : 0;
}

/* Whether it is a sequence that the kernel would abort: rseq_get_rseq_cs in kernel/rseq.c. */
static int can_be_aborted(int mem_fd, const struct mj_restartable *sequence, uint32_t signature) {
    uint32_t before;

    return !sequence->version && !sequence->flags &&
           sequence->abort - sequence->start >= sequence->length &&
           pread(mem_fd, &before, sizeof before, (off_t)(sequence->abort - sizeof before)) ==
               sizeof before &&
           before == signature;
}

/*
 * A thread that stands inside a restartable sequence (rseq(2)) goes on at the sequence's abort
 * handler. The kernel sends it there when it has lost its CPU, which it has while it stands, but
 * sees that by its rip, and that is elsewhere for us. A thread that does nothing but execute an
 * open marker is inside of a sequence half of the time. 0 where it cannot be told.
 */
static int leave_sequence(int mem_fd, struct stopped_thread *thread) {
    struct mj_restartable sequence;
    uint32_t signature;
    uint64_t current;
    const uint64_t area = rseq_of(thread->tid, &signature);

    if (!area ||
        pread(mem_fd, &current, sizeof current, (off_t)area + MJ_RSEQ_SEQUENCE) != sizeof current ||
        !current)
        return 1;
    if (pread(mem_fd, &sequence, sizeof sequence, (off_t)current) != sizeof sequence)
        return 0;
    if (thread->regs.rip - sequence.start >= sequence.length)
        return 1;
    if (!can_be_aborted(mem_fd, &sequence, signature))
        return 0;
    thread->regs.rip = sequence.abort;
    return 1;
}

static int is_in_scratch(const struct mj_target *target, uint64_t stack_pointer) {
    return target->scratch && stack_pointer - target->scratch < MJ_SCRATCH_SIZE;
}

static int holds(const struct mj_target *target, uint64_t address, const char *code, size_t size) {
    char found[16];

    return address && pread(target->mem_fd, found, size, (off_t)address) == (ssize_t)size &&
           !memcmp(found, code, size);
}

/* The gadgets were found a while ago; their object may have been unloaded since. */
static int has_gadgets(const struct mj_target *target) {
    if (!holds(target, target->syscall_ret, "\x0f\x05\xc3", 3)) /* syscall; ret */
        return 0;
    if (!target->sigreturn)
        return holds(target, target->pop_rax_ret, "\x58\xc3", 2); /* pop %rax; ret */
    return holds(target, target->sigreturn, "\x48\xc7\xc0\x0f\0\0\0\x0f\x05", 9) ||
           holds(target, target->sigreturn, "\xb8\x0f\0\0\0\x0f\x05", 7);
}

/* How many seccomp filters a thread has; where the kernel does not count them (before Linux 5.9)
   its mode, which is 0 without any. UINT32_MAX, which is never known, for strict mode, and where
   the process has no such thread: the number is another process's by now. */
static uint32_t filters_of(pid_t pid, pid_t tid) {
    char path[64], text[4096];

    snprintf(path, sizeof path, "/proc/%d/task/%d/status", pid, tid);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t size = file < 0 ? -1 : read(file, text, sizeof text - 1);

    if (file >= 0)
        close(file);
    if (size <= 0)
        return UINT32_MAX;
    text[size] = 0;
    const char *mode = strstr(text, "\nSeccomp:"), *count = strstr(text, "\nSeccomp_filters:");
    if (!mode) /* a kernel without seccomp */
        return 0;
    if (strtoul(strchr(mode, ':') + 1, NULL, 10) == SECCOMP_MODE_STRICT)
        return UINT32_MAX;
    return (uint32_t)strtoul(strchr(count ? count : mode, ':') + 1, NULL, 10);
}

/* Whether it has the filters that were asked, and no others. They cannot change while it stands,
   but by a thread that runs and gives its own to all (SECCOMP_FILTER_FLAG_TSYNC). */
static int has_known_filters(const struct mj_target *target, pid_t tid) {
    uint32_t known = 0;

    for (uint32_t i = 0; i < target->known_count; i++)
        if (target->known[i].tid == tid)
            known = target->known[i].filters;
    return filters_of(target->pid, tid) == known;
}

/* 1 */
static int may_borrow(const struct mj_target *target, struct stopped_thread *thread) {
    if (!has_known_filters(target, thread->tid))
        return MJ_NO_THREAD;
    if (thread->regs.cs != CODE_64)
        return MJ_NOT_64_BIT;
    if (!thread->plain || !has_gadgets(target) || is_in_scratch(target, thread->regs.rsp) ||
        !leave_sequence(target->mem_fd, thread))
        return MJ_NO_THREAD;
    return MJ_OK;
}

/* A call that takes longer waits for a lock that another thread of the target holds in a page fault
   without end, or in a frozen control group. */
#define CALL_TIMEOUT_NS 5000000000ul
#define SPINS 50 /* some 15 us: what a thread needs whose CPU is awake, and free */
#define SHORTEST_PAUSE_NS 2000
#define LONGEST_PAUSE_NS 256000
#define WORTH_A_PAUSE_NS 8000

/* A thread that took so long to stop will take as long the next time: where it does not stop while
   we spin, that is in vain. Half of it, so that a thread that has become quicker is found out. */
static uint64_t pause_after(uint64_t took_ns) {
    const uint64_t half_ns = took_ns / 2 < LONGEST_PAUSE_NS ? took_ns / 2 : LONGEST_PAUSE_NS;

    return half_ns < WORTH_A_PAUSE_NS ? 0 : half_ns;
}

static int look_for(pid_t tid, int what, siginfo_t *info) {
    info->si_pid = 0;
    return waitid(P_PID, (id_t)tid, info, what | WNOHANG | __WALL) && errno != EINTR ? -1 : 0;
}

/* Wait until the thread has stopped or ended, which stays to be waited for. 0, or -1 with errno
   ETIMEDOUT. */
static int wait_for(struct borrowed *borrowed, siginfo_t *info) {
    const uint64_t from_ns = now_ns();
    const uint32_t spins = borrowed->pause_ns ? 0 : SPINS;
    struct timespec pause = {.tv_nsec =
                                 borrowed->pause_ns ? (long)borrowed->pause_ns : SHORTEST_PAUSE_NS};

    for (uint32_t looks = 0;; looks++) {
        if (look_for(borrowed->stopped.threads[0].tid, WSTOPPED | WEXITED | WNOWAIT, info))
            return -1;
        const uint64_t took_ns = now_ns() - from_ns;

        if (info->si_pid) {
            borrowed->pause_ns = looks <= SPINS && spins ? 0 : pause_after(took_ns);
            return 0;
        }
        if (took_ns > CALL_TIMEOUT_NS) {
            errno = ETIMEDOUT;
            return -1;
        }
        if (looks < spins)
            continue;
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < LONGEST_PAUSE_NS)
            pause.tv_nsec *= 2;
    }
}

/*
 * Let a thread with blocked signals run to its next stop of the wanted kind. Three things cannot be
 * blocked. SIGSTOP is taken away here and sent again in the end. A stop of the whole process, for a
 * signal that another thread took, goes on when the thread is let go. The signal of a fault is kept
 * from the thread, but by then the kernel has reset its action to the default (force_sig in
 * kernel/signal.c). MJ_OK, MJ_GONE, MJ_BUSY or MJ_FAULTED.
 */
static int run_to(struct borrowed *borrowed, enum __ptrace_request request, int wanted) {
    struct stopped_thread *thread = &borrowed->stopped.threads[0];

    for (;;) {
        siginfo_t info;

        /* Look first, and take only a stop: an end is for the parent, see wait_all. */
        if (ptrace(request, thread->tid, 0, 0))
            return MJ_GONE;
        if (wait_for(borrowed, &info)) {
            borrowed->adrift = errno == ETIMEDOUT;
            borrowed->report->tid = thread->tid;
            return borrowed->adrift ? MJ_BUSY : MJ_GONE;
        }
        if (info.si_code != CLD_TRAPPED || look_for(thread->tid, WSTOPPED, &info) || !info.si_pid)
            return MJ_GONE;
        const int event = info.si_status >> 8 == PTRACE_EVENT_STOP;

        if (info.si_status == wanted || (event && wanted == INTERRUPT_STOP))
            return MJ_OK;
        if (event)
            continue;
        if (info.si_status != SIGSTOP) { /* a fault: the code is not there any more */
            borrowed->report->tid = thread->tid;
            return MJ_FAULTED;
        }
        thread->resend_signal = SIGSTOP;
    }
}

/* The thread on its frame, about to make this call. */
static struct user_regs_struct on_frame(const struct borrowed *borrowed, uint64_t number,
                                        const uint64_t args[6]) {
    struct user_regs_struct regs = borrowed->stopped.threads[0].regs;

    regs.rip = borrowed->target->syscall_ret;
    regs.rsp = borrowed->frame.address;
    regs.orig_rax = (uint64_t)-1;
    regs.rax = number;
    regs.rdi = args[0];
    regs.rsi = args[1];
    regs.rdx = args[2];
    regs.r10 = args[3];
    regs.r8 = args[4];
    regs.r9 = args[5];
    return regs;
}

/* 2, 3, 4 */
static int take(struct borrowed *borrowed) {
    static const uint64_t no_args[6];
    const struct stopped_thread *thread = &borrowed->stopped.threads[0];
    const uint64_t all = ~0ul;

    if (ptrace(PTRACE_GETSIGMASK, thread->tid, sizeof borrowed->mask, &borrowed->mask))
        return MJ_GONE;
    MJ_RACE("borrow: signal mask");
    const int status = lay_frame(borrowed); /* 2 */

    if (status != MJ_OK)
        return status;
    MJ_RACE("borrow: frame");
    const struct user_regs_struct regs = on_frame(borrowed, SYS_getpid, no_args);

    if (ptrace(PTRACE_SETREGS, thread->tid, 0, &regs)) /* 3 */
        return MJ_GONE;
    MJ_RACE("borrow: on the way back");
    if (ptrace(PTRACE_SETSIGMASK, thread->tid, sizeof all, &all)) /* 4 */
        return MJ_GONE;
    MJ_RACE("borrow: signals blocked");
    return MJ_OK;
}

/* 1 to 4, of the thread that stands in borrowed->stopped. */
static int take_stopped(struct borrowed *borrowed) {
    int status = may_borrow(borrowed->target, &borrowed->stopped.threads[0]); /* 1 */

    if (status == MJ_OK)
        status = take(borrowed);
    borrowed->report->borrowed |= status == MJ_OK;
    return status;
}

static void prepare(const struct mj_target *target, int alone, struct borrowed *borrowed,
                    struct mj_report *report) {
    borrowed->target = target;
    borrowed->report = report;
    borrowed->adrift = borrowed->at_exit = 0;
    borrowed->pause_ns = 0;
    borrowed->alone = alone;
    memset(&borrowed->others, 0, sizeof borrowed->others);
}

/* MJ_NO_THREAD, MJ_BUSY: another one may do. */
static int borrow_one(const struct mj_target *target, pid_t tid, struct borrowed *borrowed,
                      struct mj_report *report) {
    prepare(target, 0, borrowed, report);
    int status = stop_one(target, tid, &borrowed->stopped, report);

    if (status != MJ_OK)
        return status;
    status = take_stopped(borrowed);
    if (status != MJ_OK)
        resume_all(&borrowed->stopped, report);
    return status;
}

/* Borrow one of the stopped threads, and take it out of their list. */
static int borrow_one_of(struct stopped *others, struct borrowed *borrowed) {
    int status = MJ_NO_THREAD;

    if (!stopped_alone(others, &borrowed->stopped))
        return MJ_NO_THREAD;
    for (uint32_t i = 0; i < others->count && status == MJ_NO_THREAD; i++) {
        borrowed->stopped.threads[0] = others->threads[i];
        status = take_stopped(borrowed);
        if (status == MJ_OK)
            others->threads[i] = others->threads[--others->count];
    }
    if (status != MJ_OK)
        free(borrowed->stopped.threads);
    return status;
}

int borrow_standing(const struct mj_target *target, struct stopped *standing,
                    struct borrowed *borrowed, struct mj_report *report) {
    prepare(target, 1, borrowed, report);
    return borrow_one_of(standing, borrowed);
}

int borrow_alone(const struct mj_target *target, struct borrowed *borrowed,
                 struct mj_report *report) {
    prepare(target, 1, borrowed, report);
    int status = stop_all(target, &borrowed->others, report);

    if (status != MJ_OK)
        return status;
    status = borrow_one_of(&borrowed->others, borrowed);
    if (status != MJ_OK)
        resume_all(&borrowed->others, report);
    return status;
}

/* Whether a status says that nothing was borrowed, and another thread may do; *busy counts those
   that did not stop in time. */
static int may_try_another(int status, uint32_t *busy) {
    if (status == MJ_BUSY) /* each took its time: a process that is frozen has many of them */
        return ++*busy < 3;
    return status == MJ_NO_THREAD || status == MJ_GONE;
}

int borrow_any(const struct mj_target *target, struct borrowed *borrowed,
               struct mj_report *report) {
    char path[64];
    uint32_t busy = 0;
    int status = MJ_GONE;

    /* While one thread of a followed process is borrowed, no other may execute a file: the number
       of the borrowed one could be that of the new program. */
    if (!has_free_scratch(target) || is_followed(target->pid))
        return borrow_alone(target, borrowed, report);
    snprintf(path, sizeof path, "/proc/%d/task", target->pid);
    DIR *tasks = opendir(path);
    if (!tasks) {
        report->error = errno;
        return errno == ENOENT || errno == ESRCH ? MJ_GONE : MJ_ERRNO;
    }
    for (struct dirent *entry; may_try_another(status, &busy) && (entry = readdir(tasks));)
        if (atoi(entry->d_name) > 0)
            status = borrow_one(target, atoi(entry->d_name), borrowed, report);
    closedir(tasks);
    return status;
}

/* 5 */
int borrow_call(struct borrowed *borrowed, uint64_t number, const uint64_t args[6],
                int64_t *result) {
    const pid_t tid = borrowed->stopped.threads[0].tid;
    struct user_regs_struct regs = on_frame(borrowed, number, args);

    borrowed->at_exit = 0;
    if (ptrace(PTRACE_SETREGS, tid, 0, &regs))
        return MJ_GONE;
    MJ_RACE("borrow: call");
    int status = run_to(borrowed, PTRACE_SYSCALL, SYSCALL_STOP);

    MJ_RACE("borrow: entry");
    if (status == MJ_OK)
        status = run_to(borrowed, PTRACE_SYSCALL, SYSCALL_STOP);
    if (status != MJ_OK)
        return status;
    if (ptrace(PTRACE_GETREGS, tid, 0, &regs))
        return MJ_GONE;
    MJ_RACE("borrow: exit");
    borrowed->at_exit = 1;
    *result = (int64_t)regs.rax;
    return MJ_OK;
}

/* 6. From the end of a call the kernel takes the registers as they are: it begins a call again only
   where orig_rax says that there is one. */
static int stop_again(struct borrowed *borrowed) {
    const struct stopped_thread *thread = &borrowed->stopped.threads[0];

    if (borrowed->at_exit && (int64_t)thread->regs.orig_rax < 0)
        return MJ_OK;
    if (ptrace(PTRACE_INTERRUPT, thread->tid, 0, 0))
        return MJ_GONE;
    return run_to(borrowed, PTRACE_CONT, INTERRUPT_STOP);
}

/* 6 to 9 */
static int give_back(struct borrowed *borrowed) {
    const struct stopped_thread *thread = &borrowed->stopped.threads[0];

    if (borrowed->adrift)
        return MJ_BUSY;
    const int status = stop_again(borrowed); /* 6 */

    if (status != MJ_OK)
        return status;
    if (ptrace(PTRACE_SETSIGMASK, thread->tid, sizeof borrowed->mask, &borrowed->mask)) /* 7 */
        return MJ_GONE;
    MJ_RACE("borrow: mask");
    if (ptrace(PTRACE_SETREGS, thread->tid, 0, &thread->regs)) /* 8 */
        return MJ_GONE;
    MJ_RACE("borrow: registers");
    take_frame_away(borrowed); /* 9 */
    return MJ_OK;
}

struct sending {
    const struct mj_target *target;
    pid_t tid;
    struct mj_report *report;
};

/* The look at a thread that was stopped does it: threads.c. */
static int send_home(void *arguments) {
    const struct sending *all = arguments;
    struct stopped stopped;
    const int status = stop_one(all->target, all->tid, &stopped, all->report);

    if (status == MJ_OK)
        resume_all(&stopped, all->report);
    return status;
}

int mj_send_home(const struct mj_target *target, int32_t tid, struct mj_report *report) {
    struct sending all = {target, tid, report};

    return in_own_thread(target->pid, send_home, &all, report);
}

int borrow_end(struct borrowed *borrowed) {
    const int status = give_back(borrowed);

    resume_all(&borrowed->stopped, borrowed->report);
    if (borrowed->alone)
        resume_all(&borrowed->others, borrowed->report);
    return status;
}

int stand_again(struct borrowed *borrowed, struct stopped *standing) {
    const int status = give_back(borrowed);

    if (status != MJ_OK) {
        resume_all(&borrowed->stopped, borrowed->report);
        return status;
    }
    standing->threads[standing->count++] = borrowed->stopped.threads[0]; /* it was one of them */
    free(borrowed->stopped.threads);
    return MJ_OK;
}

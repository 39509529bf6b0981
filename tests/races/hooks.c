/* SPDX-License-Identifier: MIT */
/*
 * hooks.c: what goes wrong at the points of native/src/stop/race.h.
 *
 * Linked with the helper's own sources into build/hooks/libmjstop.so. Points are counted from
 * mj_race_begin on, those in C and those that killed.py passes in Python alike, and written to a
 * log. The environment, as mj_race_begin finds it, says what is to happen:
 *
 *     MJ_RACE_LOG=path      append "NUMBER NAME" for each point
 *     MJ_TARGET=pid         whose threads are looked at before a kill: "thread TID STATE SP PC"
 *     MJ_KILL_AT=N          SIGKILL to ourselves at point N...
 *     MJ_KILL_POINT=name    N counts the points of this name only
 *     MJ_KILL_TARGET=1      ...or rather to the target; then we go on
 *     MJ_RACE_SLEEP_US=N    wait that long before, with everything as it is at the point
 *     MJ_PAUSE_POINT=name   wait MJ_PAUSE_US at each point of this name
 *     MJ_FAIL_AT=N          the Nth write fails with EIO
 *     MJ_FAIL_FROM=N        and every later one
 *     MJ_SPOIL=what         damage the way back of a borrowed thread as soon as it is on it:
 * return, register, vector, mask or eintr. For the proof that tests see it
 *     MJ_LASTS=1            at the point of the kill, "borrow: entry", the call of the borrowed
 * thread is made one that never ends: pause(2) MJ_SENT_BACK=1        the target's first thread,
 * which sleeps, is found as if its sleep had been stopped just before and not begun again yet
 *
 * mj_race_call has a function called at each point, while everything is as it is there.
 *
 * Nothing happens before mj_race_begin. One thread at a time passes points: the helper's own
 * threads are waited for by the one that made them.
 */

#define _GNU_SOURCE
#include "../../native/src/stop/race.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT void mj_race_begin(void);
EXPORT int mj_race(const char *point);
EXPORT long mj_race_passed(void);
EXPORT void mj_race_call(void (*function)(const char *point));

static long passed = -1; /* points so far; before mj_race_begin -1 */
static long writes;
static long kill_at, kill_target, sleep_us, fail_at, fail_from, sent_back, lasts;
static pid_t target;
static const char *spoil, *kill_point, *pause_point;
static long pause_us;
static long named; /* points of the name kill_point */
static void (*called)(const char *point);
static int log_fd = -1;

static long number(const char *name) {
    const char *text = getenv(name);

    return text ? atol(text) : 0;
}

void mj_race_begin(void) {
    const char *path = getenv("MJ_RACE_LOG");

    kill_at = number("MJ_KILL_AT");
    kill_target = number("MJ_KILL_TARGET");
    sleep_us = number("MJ_RACE_SLEEP_US");
    fail_at = number("MJ_FAIL_AT");
    fail_from = number("MJ_FAIL_FROM");
    target = (pid_t)number("MJ_TARGET");
    spoil = getenv("MJ_SPOIL");
    sent_back = number("MJ_SENT_BACK");
    lasts = number("MJ_LASTS");
    kill_point = getenv("MJ_KILL_POINT");
    pause_point = getenv("MJ_PAUSE_POINT");
    pause_us = number("MJ_PAUSE_US");
    log_fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    writes = named = 0;
    passed = 0;
}

long mj_race_passed(void) { return passed; }

void mj_race_call(void (*function)(const char *point)) { called = function; }

static void say(const char *line, int size) {
    if (log_fd >= 0 && size > 0)
        (void)!write(log_fd, line, (size_t)size);
}

static ssize_t read_of(pid_t tid, const char *file, char *text, size_t size) {
    char path[96];

    snprintf(path, sizeof path, "/proc/%d/task/%d/%s", target, tid, file);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = 0;
    return got;
}

/* Its state, and the last two words of /proc/.../syscall: stack pointer and program counter. */
static void look_at(pid_t tid) {
    char status[512], call[256], line[160];
    uint64_t sp = 0, pc = 0;

    if (read_of(tid, "stat", status, sizeof status) <= 0)
        return;
    const char *name_end = strrchr(status, ')');
    if (read_of(tid, "syscall", call, sizeof call) > 0) {
        char *last = strrchr(call, ' ');

        if (last) {
            pc = strtoull(last, NULL, 16);
            *last = 0;
            last = strrchr(call, ' ');
            sp = last ? strtoull(last, NULL, 16) : 0;
        }
    }
    say(line, snprintf(line, sizeof line, "thread %d %c %#lx %#lx\n", tid,
                       name_end && name_end[1] ? name_end[2] : '?', sp, pc));
}

static void each_thread(void (*what)(pid_t tid)) {
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/task", target);
    DIR *tasks = opendir(path);
    if (!tasks)
        return;
    for (struct dirent *entry; (entry = readdir(tasks));)
        if (atoi(entry->d_name) > 0)
            what(atoi(entry->d_name));
    closedir(tasks);
}

/* ---- damage -------------------------------------------------------------------------------- */

/* Offsets in the kernel's struct ucontext, with struct sigcontext at 40; see frame.c. */
enum { UC_FLAGS = 7, UC_R12 = 72, UC_RBX = 128, UC_RAX = 144, UC_RIP = 168, UC_FP = 224 };
enum { UC_MASK = 296, FP_XMM = 160 };

static void spoil_frame(pid_t tid) {
    static const uint64_t none[32];
    struct user_regs_struct regs;
    uint64_t words[4], flags, rip, fp, context;
    char path[64];

    if (ptrace(PTRACE_GETREGS, tid, 0, &regs)) /* not the borrowed one */
        return;
    snprintf(path, sizeof path, "/proc/%d/mem", target);
    const int mem = open(path, O_RDWR | O_CLOEXEC);
    if (pread(mem, words, sizeof words, (off_t)regs.rsp) == sizeof words) {
        context = regs.rsp + (words[1] == UC_FLAGS ? 8 : 24);
        if (pread(mem, &flags, 8, (off_t)context) != 8 || flags != UC_FLAGS)
            _exit(99); /* no frame here: the tests know another layout */
        if (!strcmp(spoil, "return"))
            (void)!pwrite(mem, none, 8, (off_t)regs.rsp);
        if (!strcmp(spoil, "register")) {
            (void)!pwrite(mem, none, 8, (off_t)context + UC_R12);
            (void)!pwrite(mem, none, 8, (off_t)context + UC_RBX);
        }
        if (!strcmp(spoil, "mask")) {
            const uint64_t all = ~0ul;

            (void)!pwrite(mem, &all, 8, (off_t)context + UC_MASK);
        }
        if (!strcmp(spoil, "vector") && pread(mem, &fp, 8, (off_t)context + UC_FP) == 8)
            (void)!pwrite(mem, none, sizeof none, (off_t)fp + FP_XMM);
        if (!strcmp(spoil, "eintr") && pread(mem, &rip, 8, (off_t)context + UC_RIP) == 8) {
            const int64_t interrupted = -EINTR;
            uint16_t code = 0;

            if (pread(mem, &code, 2, (off_t)rip) != 2 || code != 0x050f)
                _exit(98); /* it does not wait in the kernel */
            rip += 2;      /* behind the call that would have been begun again */
            (void)!pwrite(mem, &interrupted, 8, (off_t)context + UC_RAX);
            (void)!pwrite(mem, &rip, 8, (off_t)context + UC_RIP);
        }
    }
    close(mem);
}

/* ---- a thread that the kernel has sent back ------------------------------------------------- */

/* Stop it in its sleep, and do what the kernel would do on its way out, so that it stands before
   its `syscall` instruction with the number of restart_syscall in rax. */
static void send_back(void) {
    static const uint64_t sleeps = -516ul; /* ERESTART_RESTARTBLOCK */
    struct user_regs_struct regs;
    siginfo_t info;

    while (!ptrace(PTRACE_INTERRUPT, target, 0, 0)) { /* it is ours */
        if (waitid(P_PID, (id_t)target, &info, WSTOPPED | __WALL) ||
            ptrace(PTRACE_GETREGS, target, 0, &regs))
            _exit(97);
        if (regs.rax == sleeps) {
            regs.rax = regs.orig_rax = SYS_restart_syscall;
            regs.rip -= 2;
            ptrace(PTRACE_SETREGS, target, 0, &regs);
            return;
        }
        ptrace(PTRACE_CONT, target, 0, 0);
    }
}

/* ---- a call that does not end ---------------------------------------------------------------- */

/* Of those threads that we trace, the one that stands at the entry of a call. */
static void make_last(pid_t tid) {
    struct user_regs_struct regs;

    if (ptrace(PTRACE_GETREGS, tid, 0, &regs) || regs.rax != -(uint64_t)ENOSYS)
        return;
    regs.orig_rax = SYS_pause;
    ptrace(PTRACE_SETREGS, tid, 0, &regs);
}

/* ---- points -------------------------------------------------------------------------------- */

static void wait_us(long us) {
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

/* Until it has begun to end, so that what comes next meets it so. Its threads that we trace cannot
   all be gone before we let go of them, and then its pidfd says nothing yet. */
static void kill_the_target(void) {
    struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, target, 0), .events = POLLIN};

    kill(target, SIGKILL);
    poll(&ended, 1, 20);
    close(ended.fd);
}

int mj_race(const char *point) {
    const int is_write = !strcmp(point, "write");
    char line[128];

    if (passed < 0)
        return 0;
    passed++;
    say(line, snprintf(line, sizeof line, "%ld %s\n", passed, point));
    if (pause_point && !strcmp(point, pause_point))
        wait_us(pause_us);
    if (called)
        called(point);
    if (sent_back && !strcmp(point, "seized"))
        send_back();
    if (spoil && !strcmp(point, "borrow: on the way back"))
        each_thread(spoil_frame);
    named += !kill_point || !strcmp(point, kill_point);
    if (kill_at && named == kill_at && (!kill_point || !strcmp(point, kill_point))) {
        if (sleep_us)
            wait_us(sleep_us);
        if (lasts)
            each_thread(make_last);
        each_thread(look_at);
        if (kill_target)
            kill_the_target();
        else
            kill(getpid(), SIGKILL);
    }
    if (is_write && (++writes == fail_at || (fail_from && writes >= fail_from))) {
        errno = EIO;
        return 1;
    }
    return 0;
}

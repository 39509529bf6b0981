/* SPDX-License-Identifier: MIT */
/*
 * launch.c: start a program that waits at its entry point until it is let go.
 *
 *   1  a child is made. It waits until it is seized, and executes the program
 *   2  it stops in execve, before the program's first instruction. In the rest of the last page of
 *      the program's code, or of its loader's, where nothing is, we write a loop that waits
 *   3  a program without a loader is sent there. The loader is told that the program begins there:
 *      AT_ENTRY, a word on the stack. The loop puts it back, so it says whether the program waits
 *   4  the child is detached. The loader maps and initialises the libraries, and the program waits,
 *      traced by nobody: so its markers are switched as those of any other program
 *   5  it is let go by a word of the loop, and begins
 *
 * Each write of 2 and 3 alone leaves a program that runs as if nothing had been, so that we may be
 * killed at any moment. The loop ends by itself when our process is gone, and when its patience is
 * over. PTRACE_O_EXITKILL is not set: without us the program runs.
 *
 * The ABI gives a program only the stack pointer and rdx at its entry point, and the loop keeps
 * both ("System V ABI, AMD64 Supplement", 3.4.1).
 */

#define _GNU_SOURCE
#include "launch.h"

#include "race.h"
#include "stop.h"
#include "threads.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define CODE_32_BIT 0x23 /* the code segment of 32-bit programs */
#define MOST_HEADERS 64
#define BLIND_PATIENCE_MS 10000 /* of one that cannot ask whether our process is there */

/* The loop, with its words behind it. rax is free at an entry point. */
__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        "mj_hold_begin:\n"
        "    movl mj_hold_patience(%rip), %ebx\n"
        "1:  cmpl $0, mj_hold_released(%rip)\n"
        "    jne 2f\n"
        "    movl mj_hold_question(%rip), %eax\n"
        "    movl mj_hold_controller(%rip), %edi\n"
        "    xorl %esi, %esi\n"
        "    syscall\n"
        "mj_hold_asked:\n"
        "    cmpl mj_hold_answer(%rip), %eax\n"
        "    setne %al\n"
        "    cmpb mj_hold_waits(%rip), %al\n"
        "    jne 2f\n"
        "    movl $35, %eax\n" /* nanosleep */
        "    leaq mj_hold_pause(%rip), %rdi\n"
        "    xorl %esi, %esi\n"
        "    syscall\n"
        "mj_hold_slept:\n"
        "    decl %ebx\n"
        "    jnz 1b\n"
        "2:  movq mj_hold_entry(%rip), %rax\n"
        "    movq mj_hold_place(%rip), %rcx\n"
        "    movq %rax, (%rcx)\n"
        "    jmp *%rax\n"
        ".balign 8\n"
        "mj_hold_pause: .quad 0, 1000000\n"
        "mj_hold_entry: .quad 0\n"
        "mj_hold_place: .quad 0\n"
        "mj_hold_controller: .long 0\n"
        "mj_hold_question: .long 0\n" /* is our process there? */
        "mj_hold_answer: .long 0\n"
        "mj_hold_waits: .long 0\n"    /* 1: this answer says that it is gone; 0: another one does */
        "mj_hold_patience: .long 0\n" /* rounds of the loop, a millisecond or more each */
        "mj_hold_released: .long 0\n"
        "mj_hold_end:\n"
        ".popsection\n");

extern const char mj_hold_begin[], mj_hold_asked[], mj_hold_slept[], mj_hold_pause[],
    mj_hold_entry[], mj_hold_place[], mj_hold_controller[], mj_hold_question[], mj_hold_answer[],
    mj_hold_waits[], mj_hold_patience[], mj_hold_released[], mj_hold_end[];

/* A program as execve has left it. `place` is the address of its AT_ENTRY. */
struct image {
    int mem_fd;
    struct user_regs_struct regs;
    uint64_t headers, header_count, loader, entry, place;
};

static int fail(struct mj_report *report, int status, int error) {
    report->error = error;
    return status;
}

static int reads(int fd, void *into, size_t size, uint64_t from) {
    return pread(fd, into, size, (off_t)from) == (ssize_t)size;
}

/* ---- the child ---------------------------------------------------------------------------------
 */

/* Signals are as our caller has them: Python ignores SIGPIPE and SIGXFSZ for itself. */
static void restore_signals(const sigset_t *mask) {
    struct sigaction action;

    for (int number = 1; number < NSIG; number++)
        if (!sigaction(number, NULL, &action) &&
            (action.sa_handler != SIG_IGN || number == SIGPIPE || number == SIGXFSZ) &&
            action.sa_handler != SIG_DFL)
            signal(number, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
}

static void execute(const char *path, char *const argv[], const sigset_t *mask, int go,
                    int failure) {
    char byte;

    if (read(go, &byte, 1) == 1) {
        restore_signals(mask);
        execv(path, argv);
        const int error = errno;

        if (write(failure, &error, sizeof error) < 0)
            _exit(126);
    }
    _exit(127);
}

/* Wait until the child has executed the program. Signals on their way are delivered. */
static int wait_for_exec(pid_t pid, int failure, struct mj_report *report) {
    int status, error = 0;

    for (;;) {
        if (waitpid(pid, &status, __WALL) != pid)
            return fail(report, MJ_ERRNO, errno);
        if (!WIFSTOPPED(status)) {
            if (read(failure, &error, sizeof error) != sizeof error)
                error = ECHILD;
            return fail(report, MJ_GONE, error);
        }
        if (status >> 16 == PTRACE_EVENT_EXEC)
            return MJ_OK;
        if (status >> 16 == PTRACE_EVENT_STOP && WSTOPSIG(status) != SIGTRAP)
            ptrace(PTRACE_LISTEN, pid, 0, 0); /* stopped by job control: until it is continued */
        else
            ptrace(PTRACE_CONT, pid, 0, status >> 16 ? 0 : WSTOPSIG(status));
    }
}

/* ---- the image ---------------------------------------------------------------------------------
 */

/* The auxiliary vector stands above the arguments and the environment. */
static int find_vector(struct image *image) {
    uint64_t at = image->regs.rsp, word, pair[2];

    if (!reads(image->mem_fd, &word, sizeof word, at))
        return 0;
    at += (word + 2) * sizeof word;
    do {
        if (!reads(image->mem_fd, &word, sizeof word, at))
            return 0;
        at += sizeof word;
    } while (word);
    for (;; at += sizeof pair) {
        if (!reads(image->mem_fd, pair, sizeof pair, at))
            return 0;
        switch (pair[0]) {
        case AT_PHDR:
            image->headers = pair[1];
            break;
        case AT_PHNUM:
            image->header_count = pair[1];
            break;
        case AT_BASE:
            image->loader = pair[1];
            break;
        case AT_ENTRY:
            image->entry = pair[1];
            image->place = at + sizeof word;
            break;
        case AT_NULL:
            return image->headers && image->entry;
        }
    }
}

/* Room behind the code of an object whose program headers are at `headers`, and `offset` bytes from
   the start of its file; 0: there is none. */
static uint64_t room_behind(int mem_fd, uint64_t headers, uint64_t offset, uint64_t count,
                            size_t size) {
    Elf64_Phdr segments[MOST_HEADERS];
    uint64_t bias = 0;
    int known = 0;

    if (!count || count > MOST_HEADERS ||
        !reads(mem_fd, segments, count * sizeof *segments, headers))
        return 0;
    for (uint64_t i = 0; i < count; i++)
        if (segments[i].p_type == PT_LOAD && segments[i].p_offset <= offset &&
            offset - segments[i].p_offset < segments[i].p_filesz) {
            bias = headers - (segments[i].p_vaddr + offset - segments[i].p_offset);
            known = 1;
        }
    for (uint64_t i = 0; known && i < count; i++) {
        const Elf64_Phdr *segment = &segments[i];
        const uint64_t end = (bias + segment->p_vaddr + segment->p_memsz + 15) & ~15ul;

        if (segment->p_type == PT_LOAD && segment->p_flags & PF_X &&
            segment->p_filesz == segment->p_memsz && end % PAGE && PAGE - end % PAGE >= size)
            return end;
    }
    return 0;
}

static uint64_t find_room(const struct image *image, size_t size) {
    Elf64_Ehdr loader;
    uint64_t room =
        room_behind(image->mem_fd, image->headers, sizeof loader, image->header_count, size);

    if (!room && image->loader && reads(image->mem_fd, &loader, sizeof loader, image->loader) &&
        !memcmp(loader.e_ident, ELFMAG, SELFMAG))
        room = room_behind(image->mem_fd, image->loader + loader.e_phoff, loader.e_phoff,
                           loader.e_phnum, size);
    return room;
}

/* ---- the hold ----------------------------------------------------------------------------------
 */

struct word {
    const char *place;
    int32_t value;
};

/* A program that waits, and for how long. One that we have not made ourselves is a stranger, and
   `filtered` where it has seccomp filters. */
struct waiter {
    pid_t pid;
    int stranger, filtered;
    int32_t patience_ms;
};

static int in_our_pid_namespace(pid_t pid) {
    struct stat ours, theirs;
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/ns/pid", pid);
    return !stat("/proc/self/ns/pid", &ours) && !stat(path, &theirs) &&
           ours.st_ino == theirs.st_ino;
}

/* Our child asks for its parent, which is another one when our process has ended. A stranger asks
   for our process; kill(0, 0), where it cannot name that, always succeeds. */
static int32_t controller_of(const struct waiter *waiter) {
    return waiter->stranger && !in_our_pid_namespace(waiter->pid) ? 0 : getpid();
}

static int32_t patience_of(const struct waiter *waiter) {
    const int is_blind = !controller_of(waiter);

    return is_blind && waiter->patience_ms > BLIND_PATIENCE_MS ? BLIND_PATIENCE_MS
                                                               : waiter->patience_ms;
}

static void write_words(unsigned char *hold, const struct waiter *waiter) {
    const int stranger = waiter->stranger;
    const struct word words[] = {
        {mj_hold_controller, controller_of(waiter)},
        {mj_hold_question, stranger ? SYS_kill : SYS_getppid},
        {mj_hold_answer, stranger ? -ESRCH : getpid()},
        {mj_hold_waits, stranger},
        {mj_hold_patience, patience_of(waiter)},
    };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        memcpy(hold + (words[i].place - mj_hold_begin), &words[i].value, sizeof words[i].value);
}

/* Whether its filters allow the calls of a stranger in a hold at this address. A sleep that a stop
   has interrupted goes on by restart_syscall. */
static int may_wait(const struct waiter *waiter, uint64_t hold) {
    const uint64_t asked = hold + (uint64_t)(mj_hold_asked - mj_hold_begin);
    const uint64_t slept = hold + (uint64_t)(mj_hold_slept - mj_hold_begin);
    const uint64_t pause = hold + (uint64_t)(mj_hold_pause - mj_hold_begin);
    const struct seccomp_data calls[] = {
        {SYS_kill, AUDIT_ARCH_X86_64, asked, {(uint32_t)controller_of(waiter)}},
        {SYS_nanosleep, AUDIT_ARCH_X86_64, slept, {pause}},
        {SYS_restart_syscall, AUDIT_ARCH_X86_64, slept, {pause}},
    };

    return filters_allow(waiter->pid, calls, sizeof calls / sizeof *calls);
}

static int write_hold(const struct waiter *waiter, struct image *image,
                      struct mj_launched *launched, struct mj_report *report) {
    const size_t size = (size_t)(mj_hold_end - mj_hold_begin);
    unsigned char hold[sizeof launched->before], back[sizeof hold];

    launched->hold = find_room(image, size);
    launched->size = (uint32_t)size;
    launched->released = launched->hold + (uint64_t)(mj_hold_released - mj_hold_begin);
    if (!launched->hold || size > sizeof hold ||
        !reads(image->mem_fd, launched->before, size, launched->hold))
        return fail(report, MJ_NO_ROOM, 0);
    if (waiter->filtered && !may_wait(waiter, launched->hold))
        return fail(report, MJ_FILTERED, 0);
    memcpy(hold, mj_hold_begin, size);
    memcpy(hold + (mj_hold_entry - mj_hold_begin), &image->entry, sizeof image->entry);
    memcpy(hold + (mj_hold_place - mj_hold_begin), &image->place, sizeof image->place);
    write_words(hold, waiter);
    if (pwrite(image->mem_fd, hold, size, (off_t)launched->hold) != (ssize_t)size ||
        !reads(image->mem_fd, back, size, launched->hold) || memcmp(hold, back, size))
        return fail(report, MJ_ERRNO, errno ? errno : EIO);
    memcpy(launched->code, hold, size);
    launched->place = image->place;
    launched->patience_ms = patience_of(waiter);
    return MJ_OK;
}

static int lay_hold(const struct waiter *waiter, struct image *image, struct mj_launched *launched,
                    struct mj_report *report) {
    if (ptrace(PTRACE_GETREGS, waiter->pid, 0, &image->regs))
        return fail(report, MJ_ERRNO, errno);
    if (image->regs.cs == CODE_32_BIT)
        return fail(report, MJ_NOT_64_BIT, 0);
    if (!find_vector(image))
        return fail(report, MJ_NO_ROOM, 0);
    const int status = write_hold(waiter, image, launched, report);

    if (status != MJ_OK)
        return status;
    MJ_RACE("hold written");
    const uint64_t hold = launched->hold;

    if (!image->loader) {
        image->regs.rip = hold;
        if (ptrace(PTRACE_SETREGS, waiter->pid, 0, &image->regs))
            return fail(report, MJ_ERRNO, errno);
        MJ_RACE("sent to its hold");
    }
    return pwrite(image->mem_fd, &hold, sizeof hold, (off_t)image->place) == sizeof hold
               ? MJ_OK
               : fail(report, MJ_ERRNO, errno);
}

static int hold(const struct waiter *waiter, struct mj_launched *launched,
                struct mj_report *report) {
    struct image image = {0};
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/mem", waiter->pid);
    image.mem_fd = open(path, O_RDWR | O_CLOEXEC);
    if (image.mem_fd < 0)
        return fail(report, MJ_ERRNO, errno);
    const int status = lay_hold(waiter, &image, launched, report);

    close(image.mem_fd);
    return status;
}

int hold_stranger(pid_t pid, int filtered, int32_t patience_ms, struct mj_launched *launched,
                  struct mj_report *report) {
    const struct waiter waiter = {
        .pid = pid,
        .stranger = 1,
        .filtered = filtered,
        .patience_ms = patience_ms,
    };

    return hold(&waiter, launched, report);
}

/* Not to be left behind: it has executed no instruction of its own. */
static void end_child(pid_t pid) {
    int status;

    kill(pid, SIGKILL);
    while (waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status))
        ptrace(PTRACE_CONT, pid, 0, 0);
}

static int launch(const char *path, char *const argv[], int32_t patience_ms, const sigset_t *mask,
                  const int go[2], const int failure[2], struct mj_launched *launched,
                  struct mj_report *report) {
    const pid_t pid = fork();

    if (pid < 0)
        return fail(report, MJ_ERRNO, errno);
    if (!pid) {
        close(go[1]); /* so that it sees our end */
        execute(path, argv, mask, go[0], failure[1]);
    }
    launched->pid = pid;
    MJ_RACE("child made");
    int status = ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACEEXEC) || write(go[1], "", 1) != 1
                     ? fail(report, MJ_ERRNO, errno)
                     : wait_for_exec(pid, failure[0], report);

    if (status == MJ_GONE)
        return status; /* its status was taken */
    if (status == MJ_OK) {
        MJ_RACE("executed");
        status =
            hold(&(const struct waiter){.pid = pid, .patience_ms = patience_ms}, launched, report);
        MJ_RACE("held");
    }
    if (status == MJ_OK && ptrace(PTRACE_DETACH, pid, 0, 0))
        status = fail(report, MJ_ERRNO, errno);
    MJ_RACE("launched");
    if (status != MJ_OK)
        end_child(pid);
    return status;
}

int mj_launch(const char *path, char *const argv[], int32_t patience_ms,
              struct mj_launched *launched, struct mj_report *report) {
    int go[2], failure[2], status;
    sigset_t all, mask;

    memset(report, 0, sizeof *report);
    memset(launched, 0, sizeof *launched);
    if (pipe2(go, O_CLOEXEC))
        return fail(report, MJ_ERRNO, errno);
    if (pipe2(failure, O_CLOEXEC | O_NONBLOCK)) {
        status = fail(report, MJ_ERRNO, errno);
    } else {
        sigfillset(&all); /* a handler of ours would run in the child, too */
        pthread_sigmask(SIG_SETMASK, &all, &mask);
        status = launch(path, argv, patience_ms, &mask, go, failure, launched, report);
        pthread_sigmask(SIG_SETMASK, &mask, NULL);
        close(failure[0]);
        close(failure[1]);
    }
    close(go[0]);
    close(go[1]);
    return status;
}

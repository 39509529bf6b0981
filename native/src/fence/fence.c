/* SPDX-License-Identifier: MIT */
/*
 * fence.c: make every thread of this process execute a serialising instruction.
 *
 * membarrier, PRIVATE_EXPEDITED_SYNC_CORE. Proves: when it returns, every thread of every process
 * that shares this memory has executed a core serialising instruction since the call, or will
 * before it executes another instruction in user mode. Authority: membarrier(2), the kernel's
 * promise. Refuses: where the kernel is older than 4.16 or a filter (seccomp) forbids it.
 *
 * signals. Proves: every thread that was listed has executed `cpuid` since the call. Authority: the
 * acknowledgement, which its handler stores after the instruction; that cpuid serialises is in both
 * manuals. Refuses: threads that block the signal or do not answer. Does not reach: processes that
 * share the memory without being threads (a child of vfork). And threads that are not listed:
 *
 *   1. List all threads. Tell those that are new to us, and wait until all of them have answered.
 *   2. Again, until a complete listing holds no new one.
 *
 *   So when the last listing *begins*, every thread in it has answered. A thread T that exists at
 *   the end and was not in it was born after that. Go up from T to the first parent P that was in
 *   it: P had answered before it made its child, so the child's life began after a serialising
 *   instruction of its parent, with the change in memory; and from its first instruction it is
 *   in code that was fetched since. That the *core* on which it begins holds nothing older rests on
 *   the kernel: a new thread enters user mode by iret, which serialises. The same is true of a
 *   thread that answers on one core and goes on on another: in between is a switch of threads,
 *   which no manual lists, and which no decoded instruction of user code is known to survive.
 *   membarrier closes that gap by promise. This is why it comes first.
 *
 *   Complete: the kernel lists threads in the order of their birth, and may leave some out when
 *   others end between two reads of the directory. So a listing counts only if it is as long as
 *   the directory's number of links says, before and after.
 *
 * A signal may come late: to a thread that blocked it after we looked, or that was not scheduled
 * for half a second. Each signal carries the number of its round, and an answer is never
 * taken for one of a later round. The handler then stays installed (`kept`), as the default action
 * of a real-time signal ends the process. A signal of this number that is not ours gets that
 * action.
 */
#define _GNU_SOURCE
#include "fence.h"
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- membarrier ------------------------------------------------------------------------------ */

/* linux/membarrier.h, which musl-gcc does not find */
enum { PRIVATE_EXPEDITED_SYNC_CORE = 1 << 5, REGISTER_PRIVATE_EXPEDITED_SYNC_CORE = 1 << 6 };

static int membarrier(int command) {
    return syscall(SYS_membarrier, command, 0, 0) < 0 ? -errno : 0;
}

/* Registering by need, and not by a flag of ours, also covers a child after fork. */
int mj_fence_membarrier(void) {
    int error = membarrier(PRIVATE_EXPEDITED_SYNC_CORE);

    if (error == -EPERM && !(error = membarrier(REGISTER_PRIVATE_EXPEDITED_SYNC_CORE)))
        error = membarrier(PRIVATE_EXPEDITED_SYNC_CORE);
    return error;
}

/* ---- what the handler shares with the fence -------------------------------------------------- */

/* For each place in a batch the last round that was answered there; it only ever grows. */
static uint64_t answers[MJ_BATCH];
static uint64_t last_round;
static pid_t owner; /* the process whose fence is in progress; after fork not ours, so free */
static int kept;    /* under owner: the signal whose handler stays, or 0 */

void mj_serialise(void) {
    unsigned a = 0, b, c = 0, d;

    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d) : : "memory");
}

int64_t mj_now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void mj_pause_ns(long ns) {
    const struct timespec pause = {0, ns};

    syscall(SYS_nanosleep, &pause, NULL);
}

static pid_t self(void) { return (pid_t)syscall(SYS_getpid); }

uint64_t mj_next_round(void) { return __atomic_add_fetch(&last_round, 1, __ATOMIC_RELAXED); }

bool mj_has_answered(unsigned place, uint64_t round) {
    return __atomic_load_n(&answers[place], __ATOMIC_ACQUIRE) == round;
}

static void answer(uint64_t value) {
    uint64_t *place = &answers[value % MJ_BATCH];
    uint64_t seen = __atomic_load_n(place, __ATOMIC_RELAXED);

    while (seen < value / MJ_BATCH &&
           !__atomic_compare_exchange_n(place, &seen, value / MJ_BATCH, false, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED))
        ;
}

static void on_signal(int signal, siginfo_t *info, void *context) {
    const int saved = errno;

    (void)context;
    mj_serialise();
    if (info->si_code == SI_QUEUE && info->si_errno == MJ_OURS && info->si_pid == self()) {
        answer((uint64_t)(uintptr_t)info->si_value.sival_ptr);
    } else {
        /* what would have happened without us: blocked until we return, then the default action */
        const struct sigaction action = {.sa_handler = SIG_DFL};

        sigaction(signal, &action, NULL);
        syscall(SYS_tgkill, self(), (pid_t)syscall(SYS_gettid), signal);
    }
    errno = saved;
}

/* ---- the signal ------------------------------------------------------------------------------ */

static bool is_ours(const struct sigaction *action) {
    return action->sa_flags & SA_SIGINFO && action->sa_sigaction == on_signal;
}

static bool is_free(const struct sigaction *action) {
    return is_ours(action) || (!(action->sa_flags & SA_SIGINFO) && action->sa_handler == SIG_DFL);
}

/* Looks first: to take an action away, be it for a moment, could lose a signal of the program. */
static bool try_signal(int signal, struct sigaction *old) {
    struct sigaction action;

    if (sigaction(signal, NULL, old) || !is_free(old))
        return false;
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    sigfillset(&action.sa_mask);
    if (sigaction(signal, &action, old))
        return false;
    if (!is_free(old))
        sigaction(signal, old, NULL); /* the program was faster */
    return is_free(old);
}

/* The kept one, or from the highest downward the first that the program has no use for. */
static int install(struct mj_fence *fence, struct sigaction *old) {
    if (kept && try_signal(kept, old)) {
        fence->signal = kept;
        return 0;
    }
    kept = 0; /* the program uses it now */
    for (int signal = SIGRTMAX; signal >= SIGRTMIN; signal--)
        if (try_signal(signal, old)) {
            fence->signal = signal;
            return 0;
        }
    return -EBUSY;
}

/* Never while a signal is still to come. If the program changed the action meanwhile, it is its
   own. */
static void put_back(const struct mj_fence *fence, const struct sigaction *old) {
    struct sigaction now;

    if (fence->late)
        kept = fence->signal;
    else if (!kept && !sigaction(fence->signal, NULL, &now) && is_ours(&now))
        sigaction(fence->signal, old, NULL);
}

static int fence_once(struct mj_fence *fence) {
    struct sigaction old;
    int error = install(fence, &old);

    if (!error) {
        error = mj_tell_all(fence);
        put_back(fence, &old);
    }
    return error;
}

static bool enter(pid_t pid) {
    const int64_t deadline_ns = mj_now_ns() + 2 * MJ_PATIENCE_MS * 1000000ll;
    pid_t seen = 0;

    while (!__atomic_compare_exchange_n(&owner, &seen, pid, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
        if (seen != pid) /* it was our parent's */
            continue;
        if (mj_now_ns() > deadline_ns)
            return false;
        seen = 0;
        mj_pause_ns(50000);
    }
    return true;
}

int mj_fence_signals(pid_t *slow) {
    struct mj_fence fence = {.pid = self(), .caller = (pid_t)syscall(SYS_gettid)};
    int error;

    if (slow)
        *slow = 0;
    if (!enter(fence.pid))
        return -EBUSY;
    fence.known = mmap(NULL, MJ_KNOWN_SIZE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    fence.directory =
        (int)syscall(SYS_openat, AT_FDCWD, MJ_PROC "/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    error = fence.known == MAP_FAILED ? -ENOMEM : fence.directory < 0 ? -errno : 0;
    if (!error)
        error = fence_once(&fence);
    if (fence.directory >= 0)
        syscall(SYS_close, fence.directory);
    if (fence.known != MAP_FAILED)
        munmap(fence.known, MJ_KNOWN_SIZE);
    __atomic_store_n(&owner, 0, __ATOMIC_RELEASE);
    if (slow)
        *slow = fence.slow;
    return error;
}

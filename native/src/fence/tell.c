/* SPDX-License-Identifier: MIT */
/*
 * tell.c: the signal's way to all threads, and their answers. Knows nothing of the handler.
 *
 * No malloc, no locks: the directory is read raw into the stack, and a bitmap has the threads that
 * were told. A thread id is not given again before all others have been, so while this lasts it
 * means one thread. Everything ends: a thread has half a second, all listings together have
 * LONGEST_MS.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* libc blocks all signals for moments, above all in a new thread until it first runs. So a thread
   that blocks ours and sleeps gets less patience than one that waits for a CPU. */
enum { ASLEEP_MS = 10, LONGEST_MS = 4 * MJ_PATIENCE_MS };

static char *put_number(char *at, unsigned number) {
    if (number >= 10)
        at = put_number(at, number / 10);
    *at = (char)('0' + number % 10);
    return at + 1;
}

static const char *field_of(const char *status, const char *name) {
    const char *at = strstr(status, name);

    return at ? at + strlen(name) : NULL;
}

enum thread { GONE, BLOCKS, BLOCKS_ASLEEP, LISTENS, UNREADABLE };

/* From its status. UNREADABLE leaves the reason in errno. */
static enum thread look_at(const struct mj_fence *fence, pid_t tid) {
    char path[32], status[4096];
    uint64_t mask = 0;

    memcpy(put_number(path, (unsigned)tid), "/status", sizeof("/status"));
    const int file = (int)syscall(SYS_openat, fence->directory, path, O_RDONLY | O_CLOEXEC);
    const ssize_t size = file < 0 ? -1 : syscall(SYS_read, file, status, sizeof(status) - 1);
    if (size < 0) {
        const int error = errno;

        if (file >= 0)
            syscall(SYS_close, file);
        errno = error;
        return error == ENOENT || error == ESRCH ? GONE : UNREADABLE;
    }
    syscall(SYS_close, file);
    status[size] = '\0';
    /* the thread that main ran in stays listed, as a zombie, after pthread_exit */
    const char *state = field_of(status, "\nState:\t"), *blocked = field_of(status, "\nSigBlk:\t");
    if (!state || *state == 'Z' || *state == 'X')
        return GONE;
    for (; blocked && *blocked > ' '; blocked++)
        mask = mask << 4 | (uint64_t)(*blocked <= '9' ? *blocked - '0' : *blocked - 'a' + 10);
    if (!(mask >> (fence->signal - 1) & 1))
        return LISTENS;
    return *state == 'R' ? BLOCKS : BLOCKS_ASLEEP;
}

static int give_up(struct mj_fence *fence, pid_t slow) {
    fence->slow = slow;
    return -EAGAIN;
}

/* LISTENS, GONE, UNREADABLE, or what it was when patience ended. */
static enum thread wait_until_it_listens(const struct mj_fence *fence, pid_t tid) {
    const int64_t start_ns = mj_now_ns();

    for (;;) {
        const enum thread thread = look_at(fence, tid);
        const int64_t patience_ms = thread == BLOCKS          ? MJ_PATIENCE_MS
                                    : thread == BLOCKS_ASLEEP ? ASLEEP_MS
                                                              : -1;

        if (mj_now_ns() - start_ns > patience_ms * 1000000)
            return thread;
        mj_pause_ns(200000);
    }
}

/* 0 also for a thread that is gone. */
static int tell(struct mj_fence *fence, pid_t tid) {
    const enum thread thread = wait_until_it_listens(fence, tid);
    siginfo_t info;

    if (thread == UNREADABLE)
        return -errno;
    if (thread != LISTENS)
        return thread == GONE ? 0 : give_up(fence, tid);
    memset(&info, 0, sizeof(info));
    info.si_code = SI_QUEUE;
    info.si_errno = MJ_OURS;
    info.si_pid = fence->pid;
    info.si_value.sival_ptr = (void *)(uintptr_t)(fence->round * MJ_BATCH + fence->count);
    MJ_RACE("tell", &tid);
    if (!syscall(SYS_rt_tgsigqueueinfo, fence->pid, tid, fence->signal, &info))
        fence->told[fence->count++] = tid;
    else if (errno == EAGAIN) /* RLIMIT_SIGPENDING */
        return give_up(fence, tid);
    else if (errno != ESRCH)
        return -errno;
    else if (look_at(fence, tid) != GONE) /* a /proc that numbers threads otherwise */
        return -ESRCH;
    return 0;
}

/* A thread that ended before it came to the handler took the signal with it. */
static int wait_for_answers(struct mj_fence *fence) {
    const int64_t deadline_ns = mj_now_ns() + MJ_PATIENCE_MS * 1000000ll;
    unsigned place = 0;

    for (unsigned looks = 0; place < fence->count; looks++) {
        if (mj_has_answered(place, fence->round)) {
            place++;
        } else if (looks < 200) {
            syscall(SYS_sched_yield);
        } else if (look_at(fence, fence->told[place]) == GONE) {
            place++;
        } else if (mj_now_ns() > deadline_ns) {
            fence->late = true;
            return give_up(fence, fence->told[place]);
        } else {
            mj_pause_ns(50000);
        }
    }
    fence->count = 0;
    fence->round = mj_next_round();
    return 0;
}

struct entry { /* of getdents64(2) */
    uint64_t inode;
    int64_t next;
    uint16_t size;
    uint8_t type;
    char name[];
};

struct listing {
    unsigned long threads, strangers;
    bool caller;
};

static int tell_stranger(struct mj_fence *fence, const char *name, struct listing *listing) {
    uint32_t tid = 0;
    int error = 0;

    while (*name >= '0' && *name <= '9' && tid < MJ_HIGHEST_TID)
        tid = tid * 10 + (uint32_t)(*name++ - '0');
    if (!tid) /* . and .. */
        return 0;
    if (tid >= MJ_HIGHEST_TID)
        return -EOVERFLOW; /* PID_MAX_LIMIT of all kernels so far */
    listing->threads++;
    listing->caller |= tid == (uint32_t)fence->caller;
    if (fence->known[tid / 64] >> tid % 64 & 1)
        return 0;
    listing->strangers++;
    if (fence->count == MJ_BATCH)
        error = wait_for_answers(fence);
    if (!error)
        error = tell(fence, (pid_t)tid);
    if (!error)
        fence->known[tid / 64] |= 1ul << tid % 64;
    return error;
}

/* Goes through the directory once. */
static int tell_strangers(struct mj_fence *fence, struct listing *listing) {
    char buffer[16384] __attribute__((aligned(8)));
    long size;

    *listing = (struct listing){0, 0, false};
    if (lseek(fence->directory, 0, SEEK_SET) < 0)
        return -errno;
    while ((size = syscall(SYS_getdents64, fence->directory, buffer, sizeof(buffer))) > 0)
        for (long at = 0; at < size;) {
            const struct entry *entry = (const struct entry *)(buffer + at);
            const int error = tell_stranger(fence, entry->name, listing);

            if (error)
                return error;
            at += entry->size;
        }
    return size < 0 ? -errno : 0;
}

/* How many threads there are: links of the directory, but for its own two. */
static unsigned long count_threads(const struct mj_fence *fence) {
    struct stat status;

    return fstat(fence->directory, &status) ? 0 : (unsigned long)status.st_nlink - 2;
}

static bool is_complete(const struct mj_fence *fence, const struct listing *listing,
                        unsigned long before) {
    return listing->caller && !listing->strangers && listing->threads == before &&
           listing->threads == count_threads(fence);
}

int mj_tell_all(struct mj_fence *fence) {
    const int64_t deadline_ns = mj_now_ns() + LONGEST_MS * 1000000ll;
    struct listing listing;

    fence->round = mj_next_round();
    fence->known[fence->caller / 64] |= 1ul << fence->caller % 64;
    mj_serialise();
    for (;;) {
        const unsigned long before = count_threads(fence);
        const int error = tell_strangers(fence, &listing);
        const int answer_error = wait_for_answers(fence); /* also of those told before an error */

        if (error || answer_error)
            return error ? error : answer_error;
        MJ_RACE("listed", &listing.strangers);
        if (is_complete(fence, &listing, before))
            return 0;
        if (mj_now_ns() > deadline_ns)
            return give_up(fence, 0);
    }
}

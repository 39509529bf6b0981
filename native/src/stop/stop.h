/* SPDX-License-Identifier: MIT */
/*
 * stop.h: what has to be native on the controller's side, because a thread of the target stands
 * still meanwhile: stopping all threads, checked writes, and system calls in the target's name.
 *
 * Called from Python through ctypes; markerjit/quiesce/native.py mirrors every structure, and a
 * test compares them. Every path resumes what it stopped. ptrace belongs to the thread that
 * attached, so each call that stops works in a thread of its own, whose end frees whatever is left.
 */
#ifndef MARKERJIT_STOP_H
#define MARKERJIT_STOP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MJ_EXPORT __attribute__((visibility("default")))

enum mj_status {
    MJ_OK = 0,
    MJ_ERRNO = 1,        /* a system call failed: report->error, report->tid                     */
    MJ_GONE = 2,         /* the target ended                                                     */
    MJ_BUSY = 3,         /* a thread did not stop in time: report->tid                           */
    MJ_IN_SPAN = 4,      /* a thread stands inside an edit: report->tid, report->index           */
    MJ_UNEXPECTED = 5,   /* other bytes than expected: report->index, report->found; not written */
    MJ_NOT_VERIFIED = 6, /* read back other bytes than written: report->index; rolled back      */
    MJ_NO_THREAD = 7,    /* no thread is at a place where it may be borrowed                     */
    MJ_CALL_FAILED = 8,  /* a borrowed system call failed: report->index, report->error          */
    MJ_NOT_64_BIT = 9,   /* a thread runs 32-bit code                                            */
    MJ_NOT_UNDONE = 10,  /* an edit failed, and so did taking back an earlier one: report->index */
};

struct mj_edit {
    uint64_t address;
    uint32_t size; /* 1 to 16 */
    uint32_t reserved;
    uint8_t old_bytes[16];
    uint8_t new_bytes[16];
};

/* A system call for a borrowed thread. Argument i is args[i], plus the result of call refs[i] when
   refs[i] >= 0. */
struct mj_call {
    uint64_t number;
    uint64_t args[6];
    int8_t refs[6];
    uint8_t reserved[2];
    int64_t result;
};

struct mj_thread {
    int32_t tid;
    int32_t reserved;
    uint64_t fs_base;
};

struct mj_report {
    int32_t error; /* an errno */
    int32_t tid;
    uint32_t index;
    uint32_t threads;   /* how many were stopped */
    uint64_t stop_ns;   /* from the first thread interrupted to the last one stopped */
    uint64_t held_ns;   /* from the last one stopped to the first one resumed */
    uint64_t resume_ns; /* from the first one resumed to the last one */
    uint8_t found[16];
    uint32_t borrowed; /* a thread made calls for us */
    uint32_t reserved;
};

/* Check all edits, write all, read all back; on any failure take back what was written. The target
   runs on meanwhile: for edits of data, or where the caller knows why that is safe. */
MJ_EXPORT int mj_write(int mem_fd, const struct mj_edit *edits, uint32_t count,
                       struct mj_report *report);

/* The same in this process, where an aligned word is written by one store: for slots that other
   threads are reading. Fences the cores afterwards, so that every thread runs what is written. */
MJ_EXPORT int mj_write_own(int mem_fd, const struct mj_edit *edits, uint32_t count,
                           struct mj_report *report);

/* The same while all threads of the process are stopped and none stands inside an edit of several
   bytes. */
MJ_EXPORT int mj_write_stopped(pid_t pid, int mem_fd, const struct mj_edit *edits, uint32_t count,
                               struct mj_report *report);

/* Ids and fs bases of the first `*count` threads, taken while all are stopped. */
MJ_EXPORT int mj_threads(pid_t pid, struct mj_thread *threads, uint32_t *count,
                         struct mj_report *report);

/*
 * Have one of these threads make system calls, in order, until one fails; the others run on.
 * `syscall_address` is a `syscall` instruction in the target. Registers, signal mask and an
 * interrupted system call are as before afterwards.
 */
MJ_EXPORT int mj_borrow(pid_t pid, const struct mj_thread *threads, uint32_t thread_count,
                        int mem_fd, uint64_t syscall_address, struct mj_call *calls, uint32_t count,
                        struct mj_report *report);

/* The time stamp counter and CLOCK_MONOTONIC in nanoseconds at the same moment, as close as eight
   tries get them. */
MJ_EXPORT void mj_clock_pair(uint64_t *tsc, uint64_t *monotonic_ns);

#endif

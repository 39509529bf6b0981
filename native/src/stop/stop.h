/* SPDX-License-Identifier: MIT */
/*
 * stop.h: the native part of the controller, which works while a thread of the target is stopped:
 * stopping all threads, transactions, and system calls in the target's name.
 *
 * Called from Python through ctypes; markerjit/remote/native.py mirrors every structure, and a
 * test compares them. Every path resumes what it stopped. ptrace belongs to the thread that
 * attached, so each call that stops works in a thread of its own, whose end frees whatever is left.
 */
#ifndef MARKERJIT_STOP_H
#define MARKERJIT_STOP_H

#include "../../include/markerjit/abi.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MJ_EXPORT __attribute__((visibility("default")))

enum mj_status {
    MJ_OK = 0,
    MJ_ERRNO = 1,        /* a system call failed: report->error, report->tid                     */
    MJ_GONE = 2,         /* the target ended                                                     */
    MJ_BUSY = 3,         /* a thread did not stop in time: report->tid                           */
    MJ_IN_SPAN = 4,      /* a thread goes on inside an edit: report->tid, report->index          */
    MJ_UNEXPECTED = 5,   /* other bytes than expected: report->index, report->found; not written */
    MJ_NOT_VERIFIED = 6, /* read back other bytes than written: report->index; rolled back      */
    MJ_NO_THREAD = 7,    /* no thread is at a place where it may be borrowed                     */
    MJ_CALL_FAILED = 8,  /* a borrowed system call failed: report->index, report->error          */
    MJ_NOT_64_BIT = 9,   /* a thread runs 32-bit code                                            */
    MJ_NOT_UNDONE = 10,  /* an edit failed, and so did taking back an earlier one: report->index */
    MJ_NOT_SYNCED = 11,  /* the cores could not be synchronised: report->error, report->tid      */
    MJ_MOVED = 12,       /* something else is mapped where an edit is; not written               */
    MJ_SIGTRAP_BLOCKED = 13, /* report->tid blocks it; not written                               */
    MJ_DISTURBED = 14, /* another tool changed code near edit report->index; rolled back         */
    MJ_FAULTED = 15,   /* a borrowed thread, report->tid, met a fault; it has its registers back */
    MJ_STACK_UNKNOWN = 16, /* report->tid's stack cannot be searched for frames; not written    */
    MJ_NO_ROOM = 17,       /* a program that was launched has no room for its hold              */
    MJ_OTHER_TRAP = 18,    /* SIGTRAP has another handler than ours; not written                 */
    MJ_FILTERED = 19,      /* a hold makes calls that a seccomp filter may not allow             */
};

/* How threads are kept from harm: docs/explanation/quiescence.md says what each proves. */
enum mj_quiescence {
    MJ_STOP = 1,       /* all threads of another process are stopped for the whole transaction */
    MJ_MEMBARRIER = 2, /* they run; after each step with code, membarrier SYNC_CORE in the target */
    MJ_SIGNALS = 3,    /* our own process: after each such step, a signal handler in each thread */
    MJ_NONE = 4,       /* they run, and nothing is synchronised */
};

/* The process. In our own (its pid is ours), `mem_fd` is one of /proc/self/mem. */
struct mj_target {
    int32_t pid;
    int32_t pidfd; /* held since before the pid was looked at; < 0: there is none */
    int32_t mem_fd;
    int32_t needs_sigtrap; /* MJ_STOP: no thread may block it, there will be breakpoints */
    uint64_t syscall_ret;  /* address of `syscall; ret` in the target */
    uint64_t sigreturn;    /* of `mov $15, %eax; syscall`, or 0 */
    uint64_t pop_rax_ret;  /* of `pop %rax; ret`, used where there is no sigreturn */
    uint64_t scratch;   /* MJ_SCRATCH_SIZE bytes that are ours, or 0: there are none yet. A thread
                           that stands there was left by a controller that was killed */
    const char *mapped; /* lines of /proc/PID/maps that have to be there still, in order */
    uint64_t mapped_size;
    int32_t repeats_sleeps; /* a thread that goes on by restart_syscall begins its call again */
    uint32_t known_count;
    const struct mj_known *known; /* threads under filters that may be borrowed; no others may */
    const struct mj_move *moves;  /* MJ_STOP: for threads that stand inside */
    uint64_t move_count;
    int64_t rseq_offset; /* of a thread's struct rseq, from its fs base; 0: there is none */
    uint64_t trap;       /* MJ_STOP: the handler that SIGTRAP has to have still; 0: not asked */
    uint64_t seen_trap;  /* room for the answer, a struct sigaction of the kernel, in the target */
    int32_t is_private;  /* MJ_STOP: these edits were written before, so the pages are its own */
    int32_t is_registered; /* MJ_MEMBARRIER: the process has said before that it wants fences */
    uint64_t slots, slots_size; /* MJ_STOP: of the arena, or 0 bytes. No other process has them */
};

/* An instruction inside an edit, and its copy: that one and those behind it do the same as the
   instructions from here to the end of the edit, and lead to what stands behind it. */
struct mj_move {
    uint64_t inside, copy;
};

/* A thread whose filters allow what we do. Filters are only ever added to it. */
struct mj_known {
    int32_t tid;
    uint32_t filters; /* as /proc/PID/task/TID/status counts them */
};

#define MJ_CALL_TEXT 64 /* a multiple of 16: a stack pointer is above it */

/* A system call for a borrowed thread. Argument i is args[i], plus the result of call refs[i] when
   refs[i] >= 0. With an inode it is only made if the thread's descriptor args[0] is of that file,
   and otherwise passed over with the result 0: the program may have closed the number and given it
   to a file of its own. While others run it may do so at any moment. An argument may point to
   `text`, which stands with the thread's way back during the call. */
struct mj_call {
    uint64_t number;
    uint64_t args[6];
    int8_t refs[6];
    uint8_t text_arg; /* 1 + the number of the argument that points to `text`; 0: none does */
    uint8_t reserved;
    int64_t result;
    uint64_t device, inode; /* as stat(2) has them */
    char text[MJ_CALL_TEXT];
};

/* In the place of a system call's number: something that we do ourselves, while the thread is
   borrowed. args[0] is its descriptor of a new memfd of ours. We open that, make it args[1] bytes
   large, and the result is our own descriptor of it. The thread does not do it, because the
   target's limit of file sizes (RLIMIT_FSIZE) would kill it. -EBADF where the program has closed
   the descriptor, or put a file of its own there: another process may share the table. */
#define MJ_GROW_MEMFD (~0ul)

struct mj_thread {
    int32_t tid;
    int32_t reserved;
    uint64_t fs_base;
    uint64_t rseq; /* address of its struct rseq; 0: it has none, or one with another signature */
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
    uint32_t written;  /* edits that were written, also if they were taken back */
};

/*
 * A transaction: compare, write and read back every edit, or leave everything as it was. Several
 * bytes of code at once are for MJ_STOP (refused while a thread stands inside them, or will return
 * into them from a signal handler) or for steps that put a breakpoint on the first byte; the
 * planner (markerjit/patch/protocol) sees to that.
 */
MJ_EXPORT int mj_apply(const struct mj_target *target, int quiescence, const struct mj_edit *edits,
                       uint32_t count, struct mj_report *report);

/*
 * Have any thread make system calls, in order, until one fails. Registers, signal mask and an
 * interrupted system call are as before afterwards, also when we are killed in the middle: see
 * borrow.c.
 *
 * The others run on, unless the thread's way back can only stand on its own stack, or `threads` is
 * given: then all are stopped, and the first *thread_count of them are described there.
 */
MJ_EXPORT int mj_borrow(const struct mj_target *target, struct mj_call *calls, uint32_t count,
                        struct mj_thread *threads, uint32_t *thread_count,
                        struct mj_report *report);

struct mj_range {
    uint64_t start, size;
};

/*
 * Stop all threads of another process for a moment, and set referred[i] to 1 where a register or a
 * word on a stack is an address in ranges[i]. The ranges are in order, and none overlaps another.
 * MJ_OK, or what was found means nothing: MJ_BUSY, MJ_STACK_UNKNOWN, MJ_GONE, MJ_ERRNO.
 */
MJ_EXPORT int mj_find_references(const struct mj_target *target, const struct mj_range *ranges,
                                 uint32_t count, uint8_t *referred, struct mj_report *report);

/*
 * The same, and also any word of memory that the process may write, but for our own: a pointer to a
 * function, or a stack that no thread runs on now. MJ_STACK_UNKNOWN where there is too much of it.
 */
MJ_EXPORT int mj_find_mentions(const struct mj_target *target, const struct mj_range *ranges,
                               uint32_t count, uint8_t *mentioned, struct mj_report *report);

/*
 * Many heads put into the table of patches of an arena (struct mj_patch of abi.h), of which `fd` is
 * the file; the table begins at `offset`, a multiple of a page, and `entries` is a power of two.
 * The caller must hold the target's lock. NULL without memory. What is done to the copy is written
 * by mj_patches_write, or not at all.
 */
struct mj_patches;

MJ_EXPORT struct mj_patches *mj_patches_create(int fd, uint64_t offset, uint32_t entries);
MJ_EXPORT void mj_patches_destroy(struct mj_patches *all);

/* Have these heads in the copy. What is there of a head says no less about breakpoints afterwards.
   *used counts the entries, of which there may be `most`. MJ_OK; MJ_NO_ROOM; MJ_UNEXPECTED where a
   breakpoint of heads[report->index] led to another body before; MJ_ERRNO. */
MJ_EXPORT int mj_patches_enter(struct mj_patches *all, const struct mj_patch *heads, uint32_t count,
                               uint32_t most, uint32_t *used, struct mj_report *report);

/* Say of those of these addresses that are in the table whether a breakpoint of ours stands there.
   MJ_OK, MJ_ERRNO. */
MJ_EXPORT int mj_patches_mark(struct mj_patches *all, const uint64_t *addresses, uint32_t count,
                              int planted, struct mj_report *report);

struct mj_breakpoint {
    uint64_t address, body;
};

/* Whether breakpoints of ours stand at all these addresses, and lead to these bodies. MJ_OK;
   MJ_UNEXPECTED where one does not; MJ_ERRNO. */
MJ_EXPORT int mj_patches_planted(struct mj_patches *all, const struct mj_breakpoint *breakpoints,
                                 uint32_t count, struct mj_report *report);

/* Whether there is anything to be written; and write it. MJ_OK, MJ_ERRNO: then it was written in
   part, and the handler believes no entry that is not whole. */
MJ_EXPORT int mj_patches_changed(const struct mj_patches *all);
MJ_EXPORT int mj_patches_write(struct mj_patches *all, struct mj_report *report);

#define MJ_STACK_PIECES 4

/* Memory of a stack, copied to `offset` of the room that was given. */
struct mj_stack_piece {
    uint64_t address, size, offset;
};

/* Where a stopped thread was, and what stood on its stacks: its own, and those that the frames of
   signals lead to. `call` is the number of the system call that it was in, negative for none. */
struct mj_stack {
    int32_t tid;
    uint32_t count;
    uint64_t rip, rsp, rbp;
    int64_t call;
    struct mj_stack_piece pieces[MJ_STACK_PIECES];
};

/* Room for the bytes of stacks; `most` of each piece. */
struct mj_stack_room {
    uint8_t *bytes;
    uint64_t size, most;
};

/*
 * Stop a thread of another process for a moment, or all for a tid of 0, and copy their stacks, as
 * far as there is room: from the stack pointer up. *count is how many `stacks` there may be, and
 * becomes how many threads there were. MJ_OK, MJ_BUSY, MJ_GONE, MJ_ERRNO.
 */
MJ_EXPORT int mj_copy_stacks(const struct mj_target *target, int32_t tid, struct mj_stack *stacks,
                             uint32_t *count, const struct mj_stack_room *room,
                             struct mj_report *report);

/*
 * Stop a thread for a moment that stands in the scratch: it was borrowed by a controller that was
 * killed. If it waits in its call, and can be interrupted there, the call ends, and the thread goes
 * back to where it was. MJ_BUSY: it cannot be interrupted.
 */
MJ_EXPORT int mj_send_home(const struct mj_target *target, int32_t tid, struct mj_report *report);

#define MJ_FILTER_ROOM 32768 /* instructions in all filters of a thread: the kernel's own limit */
#define MJ_FILTERS 8192      /* more than can be, since each counts as four instructions more */

/* The seccomp filters of a thread, the oldest first: each of as many instructions (struct
   sock_filter) as its length says. */
struct mj_filters {
    uint32_t count;
    uint32_t lengths[MJ_FILTERS];
    uint64_t code[MJ_FILTER_ROOM];
};

/* Read the filters of one thread, which is stopped for that. MJ_ERRNO with EACCES: without
   CAP_SYS_ADMIN, or under seccomp ourselves; with EMEDIUMTYPE: one is not in the classic form. */
MJ_EXPORT int mj_read_filters(const struct mj_target *target, int32_t tid,
                              struct mj_filters *filters, struct mj_report *report);

#define MJ_HOLD_ROOM 160

/* A program that was launched, and waits at its entry point: in a loop of `size` bytes of code at
   `hold`, where `before` was. It is let go by 1 in the 32 bits at `released`. */
struct mj_launched {
    int32_t pid;
    int32_t patience_ms; /* how long it waits at least */
    uint32_t size;
    uint64_t hold, released;
    uint64_t place; /* of its AT_ENTRY, which is the address of the hold until it leaves that */
    uint8_t before[MJ_HOLD_ROOM], code[MJ_HOLD_ROOM];
};

/*
 * Start a program that waits, for so many milliseconds at least if nobody lets it go: see launch.c.
 * It has our descriptors, environment, process group and terminal. MJ_GONE with report->error where
 * it cannot be executed. On any other failure it was ended, before its first instruction.
 */
MJ_EXPORT int mj_launch(const char *path, char *const argv[], int32_t patience_ms,
                        struct mj_launched *launched, struct mj_report *report);

enum mj_followed_kind {
    MJ_FORKED = 1,   /* a process was made. It is held, before its first instruction          */
    MJ_EXECUTED = 2, /* a process executes a file. With `status` MJ_OK it goes to its hold    */
    MJ_ENDED = 3,    /* a process has ended; `status` is as wait(2) has it                    */
    MJ_SHARING = 4,  /* a process was made, in the memory of its parent. It goes on           */
};

struct mj_followed {
    int32_t kind;
    int32_t pid;
    int32_t parent;
    int32_t status;
    struct mj_launched hold; /* MJ_EXECUTED */
};

struct mj_follow_totals {
    uint64_t processes; /* that were made */
    uint64_t sharing;   /* of these, the ones with the memory of their parent */
    uint64_t executed;  /* files */
    uint64_t unknown;   /* processes that there was no memory to know: they were not held */
    uint64_t births;    /* stops of a thread because it had made a process or a thread */
    uint64_t held_ns;   /* how long new processes were held; in all, and the longest */
    uint64_t longest_held_ns;
};

/*
 * Follow a process and all that it starts: see follow.c. Processes that it makes from now on are
 * reported by mj_follow_next, in the order of what happened to each. mj_follow_end lets all go;
 * what has happened until then is still reported.
 * The exit status of a child of ours that is followed is in its MJ_ENDED, and nowhere else: no
 * thread of ours may wait for it. A program that is executed waits for `patience_ms` at most; the
 * last call says it for the whole family.
 */
MJ_EXPORT int mj_follow(const struct mj_target *target, int32_t patience_ms,
                        struct mj_report *report);

/* The next of what has happened. Returns 0 if there is nothing more. */
MJ_EXPORT int mj_follow_next(struct mj_followed *followed);

/* Wait until there is something, for so long at most. */
MJ_EXPORT void mj_follow_wait(uint32_t most_ms);

/* Let a process begin that is held. MJ_GONE: it is not. */
MJ_EXPORT int mj_follow_release(int32_t pid);

/* Whether a process is followed by us. */
MJ_EXPORT int mj_follows(int32_t pid);
MJ_EXPORT void mj_follow_totals(struct mj_follow_totals *totals);
MJ_EXPORT void mj_follow_end(void);

struct sock_filter;
struct seccomp_data;

/* What a filter that the kernel has accepted returns for a call. */
MJ_EXPORT uint32_t mj_run_filter(const struct sock_filter *code, uint32_t count,
                                 const struct seccomp_data *call);

/* A mapping of a process, without its name. `permissions`: 1 read, 2 write, 4 execute, 8 shared. */
struct mj_mapping {
    uint64_t start, end, permissions, offset, inode;
    uint32_t major, minor;
};

/* The mappings of a process in the order of address, as far as there is room for `most`. Returns
   their number, `most` + 1 for more; -1 where the kernel does not tell them one by one (before
   Linux 6.11), or not of this process. */
MJ_EXPORT int64_t mj_mappings(int32_t pid, struct mj_mapping *found, uint32_t most);

/* How many objects were loaded into our own process, and unloaded, up to now. */
struct mj_loads {
    uint64_t loaded, unloaded;
};

MJ_EXPORT void mj_own_loads(struct mj_loads *loads);

/* Bytes at an offset of an open file. */
struct mj_place {
    int32_t file;
    uint32_t size;
    uint64_t offset;
    const char *bytes;
};

/*
 * A process as it was. It lives, which is not asked with a pidfd below 0. Those of the `mapped`
 * mappings that have all permissions of `kind`, as mj_mappings found them, are all of that kind
 * that the process has whose /proc/PID/maps is open as `maps`. Our own process has loaded, and
 * unloaded, as many objects; NULL: not asked. Files have these bytes.
 */
struct mj_before {
    int32_t pidfd;
    int32_t maps;
    uint64_t kind;
    const char *mapped; /* struct mj_mapping */
    uint32_t mapped_count;
    uint32_t place_count;
    const struct mj_loads *loads;
    const struct mj_place *places;
};

/* Whether a process is as it was. 0 also where the kernel does not tell its mappings one by one
   (before Linux 6.11), and after it has executed another program. */
MJ_EXPORT int mj_is_as_before(const struct mj_before *before);

/* The time stamp counter and CLOCK_MONOTONIC in nanoseconds at the same moment, as close as eight
   tries get them. */
MJ_EXPORT void mj_clock_pair(uint64_t *tsc, uint64_t *monotonic_ns);

/* How long this machine takes for work like that of a probe that records two integers, in
   picoseconds of the calling thread's processor time; the best of five tries of 0.1 ms. */
MJ_EXPORT uint64_t mj_work_ps(void);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * runtime.h: what the parts of the runtime share.
 *
 * All of it is compiled for general registers only: a marker's body does not expect that any other
 * is changed. What needs vector registers is written in assembly, and saves them.
 *
 * The runtime lives in a program that is not ours. It has no libc, no data of its own, no
 * thread-local storage; it never allocates, locks or prints. A text may take a system call
 * (fetch.c), and seldom does; waiting for a reader does (wait.c), where that was asked for. It
 * finds its control block at a fixed distance from its own code.
 */
#ifndef MARKERJIT_RUNTIME_H
#define MARKERJIT_RUNTIME_H

#include "../../include/markerjit/abi.h"

extern const char mj_code_start[] __attribute__((visibility("hidden")));

static inline struct mj_control *mj_control(void) {
    return (struct mj_control *)(mj_code_start + MJ_CODE_SIZE);
}

/* A part of the arena: MJ_PART_... */
static inline void *mj_part(const struct mj_control *control, int part) {
    return (void *)(mj_code_start + control->parts[part].offset);
}

/*
 * False in the child of a fork: it shares the arena but for this page, which the kernel wipes
 * (MADV_WIPEONFORK). Executions in a child are not events of this process.
 */
static inline int mj_alive(void) {
    return *(const volatile uint64_t *)(mj_code_start + MJ_ALIVE) != 0;
}

/* The CPU that we are on, or were a moment ago: as the vDSO's getcpu, without the call. */
static inline uint32_t mj_cpu(const struct mj_control *control) {
    uint64_t node_and_cpu, cpu;

    if (control->cpu_flags & MJ_CPU_RDPID)
        __asm__ __volatile__("rdpid %0" : "=r"(node_and_cpu));
    else /* segment 15 of the GDT, ring 3; its limit holds the number */
        __asm__ __volatile__("lsl %1, %k0" : "=r"(node_and_cpu) : "r"(0x7b) : "cc");
    cpu = node_and_cpu & 0xfff; /* a division would take longer than all else */
    return cpu < control->cpus ? cpu : cpu % control->cpus;
}

/* Where the thread library keeps the kernel's id of this thread; 0 when the controller did not
   find out. */
static inline uint32_t mj_tid(const struct mj_control *control) {
    uint32_t tid;

    if (control->tid_offset < 0)
        return 0;
    __asm__ __volatile__("movl %%fs:(%1), %0" : "=r"(tid) : "r"((int64_t)control->tid_offset));
    return tid;
}

/* The id of a marker; whatever stands in its entry, a place of the table of counters. */
static inline uint32_t mj_id(const struct mj_control *control, const struct mj_marker *marker) {
    return marker->id & (control->parts[MJ_PART_MARKERS].count - 1);
}

/* The counters of a marker that go with a ring. */
static inline struct mj_count *mj_counts(const struct mj_control *control, uint32_t ring,
                                         uint32_t marker) {
    struct mj_count *counts = mj_part(control, MJ_PART_COUNTS);

    return &counts[(uint64_t)ring * control->parts[MJ_PART_MARKERS].count + marker];
}

static inline uint64_t mj_counter(void) {
    uint32_t low, high;

    __asm__ __volatile__("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

/* The head of a record of so many bytes. */
static inline uint32_t mj_head(uint32_t marker, uint64_t size) {
    return (marker & MJ_FILLER) | (uint32_t)(size / 8) << MJ_WORDS_SHIFT;
}

/* The outcomes of adding a record; restart.S has the same numbers. */
enum { MJ_DONE, MJ_FULL, MJ_ANOTHER, MJ_TURN, MJ_DEAD, MJ_OVER };

/* restart.S: on this CPU's own ring and counters. `image` is a record, `size` its bytes, a multiple
   of eight; with `stamp` its second word becomes the time stamp counter. mj_turn makes room where
   mj_append says MJ_TURN. */
int mj_turn(void);
int mj_append(const struct mj_control *control, uint64_t *image, uint64_t size, int stamp);
int mj_tally(const struct mj_control *control, uint64_t marker);

/* The same on words of an aggregate, whose ticket is at `place`: `word` is that of CPU 0.
   mj_cell_add says MJ_OVER where the sum has left 64 bits; mj_cell_set says MJ_TURN where the word
   was not `before`. */
int mj_cell_add(uint64_t *word, uint64_t stride, uint64_t value, const uint64_t *place,
                uint64_t ticket);
int mj_cell_set(uint64_t *word, uint64_t stride, uint64_t value, const uint64_t *place,
                uint64_t ticket, uint64_t before);

/* The sum of two doubles, as bits, whatever the program has in MXCSR. Hidden, so that its address
   is a distance: the linker would put in the one that it has in the image. */
__attribute__((visibility("hidden"))) uint64_t mj_float_sum(uint64_t one, uint64_t other);

/* shared.c: the same as mj_append on the shared ring; never MJ_ANOTHER or MJ_TURN. */
int mj_append_shared(const struct mj_control *control, uint64_t *image, uint64_t size, int stamp);

/* struct timespec, and record.c: a clock of the system (MJ_TIME_...), nanoseconds; 0 where the
   controller found none. */
#define MJ_MILLISECOND 1000000ul
#define MJ_CLOCK_MONOTONIC 1
struct mj_time {
    int64_t seconds;
    int64_t nanoseconds;
};
static inline uint64_t mj_nanoseconds(const struct mj_time *time) {
    return (uint64_t)time->seconds * 1000 * MJ_MILLISECOND + (uint64_t)time->nanoseconds;
}
uint64_t mj_read_clock(const struct mj_control *control, uint8_t time);

/*
 * wait.c: an event whose ring is full. mj_wait_begin: false where no reader is to be waited for,
 * and then there is no more to be done. mj_wait_turn waits a little: false when it is time to give
 * up; `shared`: the ring that was full was the shared one. mj_wait_end counts the wait.
 */
struct mj_wait {
    uint64_t began; /* CLOCK_MONOTONIC */
    uint64_t limit; /* of the shared ring, and since when it is there, and for how many passes */
    uint64_t unmoved_since;
    uint32_t passes;
    uint32_t turns;
};
int mj_wait_begin(struct mj_wait *wait, struct mj_control *control);
int mj_wait_turn(struct mj_wait *wait, const struct mj_control *control, int shared);
void mj_wait_end(const struct mj_wait *wait, struct mj_control *control);

/* The word that says that a page can be read, and its place: see MJ_READABLE_WINDOW. */
static inline uint64_t mj_readable_word(uint64_t page, uint64_t window) {
    return window << MJ_READABLE_TAG | page >> MJ_READABLE_BITS;
}

static inline uint64_t mj_readable_place(uint64_t page) {
    return (page ^ page >> MJ_READABLE_BITS) % MJ_READABLE;
}

/* Neither the first page nor one for which a word has no bits. */
static inline int mj_can_be_known(uint64_t page) {
    return page - 1 < (1ul << (MJ_READABLE_BITS + MJ_READABLE_TAG)) - 2;
}

/* Whether a page is known to be readable in a window; false says nothing. `known` is the table. */
static inline int mj_is_known(const uint64_t *known, uint64_t page, uint64_t window) {
    return mj_can_be_known(page) &&
           __atomic_load_n(&known[mj_readable_place(page)], __ATOMIC_RELAXED) ==
               mj_readable_word(page, window);
}

/* fetch.c */
#define MJ_COPY_TEXT 1u
#define MJ_COPY_CAREFUL 2u
uint64_t mj_copy(const struct mj_control *control, char *to, const char *from, uint64_t size,
                 unsigned how, int *whole);
long mj_fetch(void *to, const void *from, unsigned long size);

/* Whether the page of an address can be read now. `*counter` is the time stamp counter, read when
   it is first needed; 0 before. */
int mj_is_readable(const struct mj_control *control, uint64_t address, uint64_t *counter);

/* walk.c: the stack from these registers on, at most `depth` frames of it; where `exact` is 1,
   `rip` is to be executed, else it follows a call. Puts it into the words from `stack` on, as abi.h
   has them. Returns how many they are, 0 where it is to be thrown away; `*hash` is theirs. */
struct mj_frame {
    uint64_t rip;
    uint64_t rsp;
    uint64_t rbp;
    uint64_t exact;
};
uint32_t mj_walk(const struct mj_stacks *stacks, const struct mj_frame *from, uint64_t *stack,
                 uint32_t depth, uint64_t *hash);

/* stack.c: the number of the stack of an event, whose probe was called with these words, by a stub
   or by the body of a marker; 0 where it is not known. */
uint64_t mj_stack(uint64_t depth, const uint64_t *words, uint64_t is_stub, uint64_t rbp);

/* aggregate.c */
static inline uint64_t mj_mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    return hash ^ hash >> 32;
}
uint64_t mj_hash(const uint64_t *key, uint32_t words);
int mj_is_same(const uint64_t *words, const uint64_t *key, uint32_t count);

/* record.c: put a text at `to`, a struct mj_text and its bytes, at most `limit`; `asked` is the
   argument before it. Returns the bytes that it takes, a multiple of eight; one more than its text
   may be written. */
uint64_t mj_put_text(const struct mj_control *control, int careful, char *to, uint64_t from, int op,
                     uint64_t asked, uint64_t limit);

/* Probes, called by the body of a marker that makes an ordinary C call (call.S has those of the
   others). Safe in signal handlers and from any thread. Aligned, because the low bits of a probe's
   address have a meaning in a slot. */
void mj_record(struct mj_slot *slot, ...);
__attribute__((aligned(16))) void mj_count(struct mj_slot *slot, ...);

/* The argument registers of a C call behind the first, as call.S stores them; the doubles only
   where there are any. */
struct mj_registers {
    uint64_t general[5];
    uint64_t doubles[8];
};

/* For recorders and for probes written in C: record an event of this marker; count one that is
   recorded; count a lost one. mj_record_words gets the arguments as 64-bit words,
   mj_record_arguments gets what call.S makes of the variable arguments of mj_record_event. */
void mj_record_event(const struct mj_marker *marker, ...);
void mj_record_arguments(const struct mj_marker *marker, const struct mj_registers *registers,
                         const uint64_t *stack);
void mj_record_words(const struct mj_marker *marker, const uint64_t *words);
void mj_aggregate(const struct mj_aggregation *how, const uint64_t *words, const uint64_t *numbers);
void mj_pair(const struct mj_pairing *how, const uint64_t *words, const uint64_t *numbers);
void mj_pass(const struct mj_marker *marker);
void mj_lose(const struct mj_marker *marker);

#endif

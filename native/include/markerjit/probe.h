/* SPDX-License-Identifier: MIT */
/*
 * probe.h: the functions that a probe in C may use when markerjit loads it into a running program.
 *
 *     #include <markerjit/probe.h>
 *
 *     MJ_COUNTER(misses);
 *     MJ_HISTOGRAM(sizes);
 *
 *     void on_get(struct mj_slot *slot, const char *key, size_t size) {
 *         mj_histogram(&sizes, size);
 *         if (!size) {
 *             mj_count(&misses);
 *             mj_emit(empty_get, "key %s tid %u", key, mj_tid());
 *         }
 *     }
 *
 * A probe is a function with external linkage that returns nothing. Its parameters are the slot and
 * then the arguments of the marker, with the same types; a float arrives as a double. A probe that
 * ends with `...` fits any marker whose arguments begin like its parameters.
 *
 * It runs inside the program, on the thread that reached the marker and at the place of the marker:
 * possibly in a signal handler, on a small stack, and on several threads at once. Therefore:
 * - there is no libc and no other library to link with, only the functions below. memcpy, memmove,
 *   memset, memcmp and strlen are available, because compilers generate calls of them.
 * - pointers that the marker passes may be invalid: read through them with mj_read.
 * - variables with static storage, counters and histograms keep their values until the process
 *   ends, however often the probe is removed and connected again. A changed source file counts as
 *   another probe and has its own. All threads share variables, so use __atomic_fetch_add and the
 *   like. There are no locks: a probe may interrupt the thread that holds one.
 * - it must return soon and must not recurse without bound. This is not checked. A frame of more
 *   than 1024 bytes is refused.
 * - system calls, thread-local variables and constructors are refused.
 *
 * Everything here may be used in any thread and any signal handler, and leaves errno unchanged.
 * mj_read, mj_read_string, and mj_emit of a text may take a system call, for a page that was not
 * read within the last millisecond. docs/reference/probes-in-c.md says more.
 */
#ifndef MARKERJIT_PROBE_H
#define MARKERJIT_PROBE_H

#ifdef __cplusplus
#error "markerjit: a probe that is loaded is written in C"
#endif

/* A probe has no markers of its own: those in headers that it includes emit nothing. */
#ifndef MJ_MODE
#define MJ_MODE none
#endif

#include "marker.h"
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* ---- constants that are filled in when the probe is linked for a process -------------------- */

extern const uint64_t mj_link_cpus;      /* the number of possible CPUs */
extern const uint64_t mj_link_stride;    /* bytes of counters and histograms for each CPU */
extern const uint64_t mj_link_has_rdpid; /* 1: the processor has RDPID */
extern const int64_t mj_link_tid_offset; /* of a thread's id from its fs base; < 0: unknown */
extern const uint64_t mj_link_tick_ns;   /* nanoseconds of a tick of mj_time(), times 2^32 */

/* The runtime's functions. Use mj_emit and mj_read. */
void mj_record_event(const struct mj_marker *marker, ...);
long mj_fetch(void *to, const void *from, unsigned long size);

void *memcpy(void *to, const void *from, size_t size);
void *memmove(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);
int memcmp(const void *one, const void *other, size_t size);
size_t strlen(const char *text);

#pragma GCC visibility pop

/* ---- a function that replaces another one -----------------------------------------------------
 */

/*
 * The function that `function` replaces, with its type: `return markerjit_original(quick)(n) + 1;`.
 * It is available only in a file that is loaded by `markerjit replace`. There the entry of the old
 * function leads to the new one, which must have the same parameters and return type.
 */
#ifndef MJ_ORIGINAL_FUNCTION
#define MJ_ORIGINAL_FUNCTION markerjit_original_is_only_there_for_markerjit_replace
#endif
#define markerjit_original(function) ((__typeof__(&(function)))MJ_ORIGINAL_FUNCTION)

/* ---- where and when -------------------------------------------------------------------------- */

/* The time stamp counter, which is the time of records. */
static inline uint64_t mj_time(void) {
    uint32_t low, high;

    __asm__ __volatile__("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

/* The difference of two values of mj_time(), in nanoseconds. */
static inline uint64_t mj_ns(uint64_t ticks) {
    __extension__ typedef unsigned __int128 mj_wide;

    return (uint64_t)((mj_wide)ticks * mj_link_tick_ns >> 32);
}

/* The CPU of this thread. The thread may have moved when the caller uses the number. */
static inline uint32_t mj_cpu(void) {
    uint64_t node_and_cpu;

    if (mj_link_has_rdpid)
        __asm__ __volatile__("rdpid %0" : "=r"(node_and_cpu));
    else /* segment 15 of the GDT, ring 3, whose limit has the number */
        __asm__ __volatile__("lsl %1, %k0" : "=r"(node_and_cpu) : "r"(0x7b) : "cc");
    node_and_cpu &= 0xfff;
    return node_and_cpu < mj_link_cpus ? (uint32_t)node_and_cpu : 0;
}

/* The kernel's id of this thread; 0 where it is not known. */
static inline uint32_t mj_tid(void) {
    uint32_t tid;

    if (mj_link_tid_offset < 0)
        return 0;
    __asm__ __volatile__("movl %%fs:(%1), %0" : "=r"(tid) : "r"(mj_link_tid_offset));
    return tid;
}

/* The marker's name, of which only the first 63 bytes are kept. For a probe on several markers. */
static inline const char *mj_marker_name(const struct mj_slot *slot) {
    return ((const struct mj_marker *)slot->data)->name;
}

/* ---- memory that may be unmapped ------------------------------------------------------------- */

/* Copy `size` bytes. Returns 0, or -1 if not all can be read. May take a system call. */
static inline int mj_read(void *to, const void *from, size_t size) {
    return mj_fetch(to, from, size) == (long)size ? 0 : -1;
}

/*
 * Copy a string with its NUL into `size` bytes, truncated if it is longer. Returns the length of
 * the copy, or -1 where the string cannot be read to its end; the copy then has the readable part.
 * Bytes behind the NUL are read only on the same page, where they cannot fault.
 */
static inline long mj_read_string(char *to, const char *from, size_t size) {
    size_t length = 0;

    if (!size)
        return -1;
    while (length < size - 1) {
        const size_t to_page_end = MJ_PAGE - ((uintptr_t)(from + length) & (MJ_PAGE - 1));
        const size_t left = size - 1 - length;
        const size_t part = left < to_page_end ? left : to_page_end;
        const long got = mj_fetch(to + length, from + length, part);

        for (long i = 0; i < got; i++, length++)
            if (!to[length])
                return (long)length;
        if (got != (long)part) {
            to[length] = 0;
            return -1;
        }
    }
    to[length] = 0;
    return (long)length;
}

/* ---- counters and histograms -----------------------------------------------------------------
 *
 * Each CPU has its own copy, on its own cache lines, so counting takes an atomic add without
 * contention. The compiler sees the copy of CPU 0. The controller reserves room for the others
 * behind it, and finds all of them by struct mj_variable.
 */
#define MJ_VARIABLE_COUNTER 1
#define MJ_VARIABLE_HISTOGRAM 2

struct mj_variable {
    const char *name;
    const void *place; /* the copy of CPU 0 */
    uint32_t kind;
    uint32_t words; /* of eight bytes */
    uint64_t reserved;
} __attribute__((aligned(32))); /* its size, so that the compiler leaves no gaps */

struct mj_counter {
    uint64_t count;
};

/*
 * The number of values in each bucket. From 4 on there are four buckets from each power of two to
 * the next, so the width of a bucket is at most a quarter of its values.
 */
#define MJ_BUCKETS 252
struct mj_histogram {
    uint64_t counts[MJ_BUCKETS];
};

/* MJ_COUNTER(name); MJ_HISTOGRAM(name); outside of functions. The controller shows the name. */
#define MJ_COUNTER(name) MJ_PER_CPU(struct mj_counter, name, #name, MJ_VARIABLE_COUNTER)
#define MJ_HISTOGRAM(name) MJ_PER_CPU(struct mj_histogram, name, #name, MJ_VARIABLE_HISTOGRAM)
#define MJ_PER_CPU(type, name, text, kind)                                                         \
    static type name __attribute__((section(".bss.mj_per_cpu"), used));                            \
    static struct mj_variable name##_is_a_variable                                                 \
        __attribute__((section(".mj_variables"), used)) = {text, &name, kind, sizeof(type) / 8, 0}

/* The copy of a variable that belongs to this CPU. The asm hides from the compiler that it is not
   the variable itself. */
static inline void *mj_of_this_cpu(void *place) {
    uintptr_t own = (uintptr_t)place;

    __asm__("" : "+r"(own));
    return (void *)(own + mj_cpu() * mj_link_stride);
}

/* Add to a counter. */
static inline void mj_add(struct mj_counter *counter, uint64_t number) {
    struct mj_counter *own = (struct mj_counter *)mj_of_this_cpu(counter);

    __atomic_fetch_add(&own->count, number, __ATOMIC_RELAXED);
}

/* Add 1 to a counter. */
static inline void mj_count(struct mj_counter *counter) { mj_add(counter, 1); }

/* The bucket of a value. */
static inline uint32_t mj_bucket(uint64_t value) {
    if (value < 4)
        return (uint32_t)value;
    const uint32_t power = 63 - (uint32_t)__builtin_clzll(value);

    return (power - 1) * 4 + (uint32_t)(value >> (power - 2) & 3);
}

/* Count a value in a histogram. */
static inline void mj_histogram(struct mj_histogram *histogram, uint64_t value) {
    struct mj_histogram *own = (struct mj_histogram *)mj_of_this_cpu(histogram);

    __atomic_fetch_add(&own->counts[mj_bucket(value)], 1, __ATOMIC_RELAXED);
}

/* ---- events of the probe's own ---------------------------------------------------------------
 *
 * mj_emit(name, "format", arguments...) records an event as the marker MARK(name, "format",
 * arguments...) would, with the same rules for format, types and names of fields. Texts are copied
 * safely, whatever the pointer. An event is recorded at each execution. Once the ring is full,
 * events are lost and counted until a reader makes room. A name may be used in several places if
 * format and types are the same.
 */
struct mj_event {
    const char *name;
    const char *format;
    const char *file;
    uint32_t line;
    uint32_t argc;
    uint32_t types[3]; /* a byte for each argument, as in a marker's note */
    uint32_t reserved[3];
    const struct mj_marker *volatile marker; /* filled in at load; NULL: not recorded */
} __attribute__((aligned(64)));

#define MJ_EVENT_PLACE __attribute__((section(".mj_events"), used))
#define mj_emit(event, ...)                                                                        \
    do {                                                                                           \
        MJ_CHECK(event##_is_an_event, __VA_ARGS__)                                                 \
        MJ_TYPES(__VA_ARGS__)                                                                      \
        static MJ_EVENT_PLACE struct mj_event mj_event_ = {                                        \
            .name = #event,                                                                        \
            .format = "" MJ_FORMAT(__VA_ARGS__),                                                   \
            .file = __FILE__,                                                                      \
            .line = __LINE__,                                                                      \
            .argc = MJ_COUNT(__VA_ARGS__),                                                         \
            .types = {mj_types0_, mj_types1_, mj_types2_},                                         \
        };                                                                                         \
        const struct mj_marker *const mj_marker_ = mj_event_.marker;                               \
        if (mj_marker_)                                                                            \
            mj_record_event(mj_marker_ MJ_MAP(MJ_COMMA_ARG, __VA_ARGS__));                         \
    } while (0)

#endif

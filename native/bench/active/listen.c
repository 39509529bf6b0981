/* SPDX-License-Identifier: MIT */
/*
 * listen.c: a small loop around one site that is on, for markerjit bench.
 *
 *     BENCH_FORM     nothing, mark (as MJ_MODE says), call, call_by_pointer, function, hooked,
 *                    usdt, rdtsc, two_rdtsc, clock, nop1, nop5, lttng; store, by_hand,
 *                    by_hand_ahead, by_hand_hot: into memory of the thread's own; locked_own,
 *                    locked_shared: to a word of the thread's own, or of all threads
 *     BENCH_MARKER   for mark, function, usdt and hooked: its name, so that each object's is
 *                    switched by itself
 *     BENCH_EVENT    for mark: what is recorded, two ints where nothing is said; more of them are
 *                    the same again. ints_1, ints_3, ints_4, ints_8, text_5, text_40, text_200,
 *                    sized_5, texts_2, float; pair: two markers
 *     BENCH_HOOK     for hooked: see hooks.h
 *     BENCH_DEEP     the loop is called below 70 functions, so that its stack has frames
 *     BENCH_LINKED   the object becomes a part of crew, which finds its loop in a section
 *     BENCH_SKIP     bytes before the loop, in a page: layout alone may move a result
 *
 * The site has two ints, which the loop needs anyway. As in hot.c the rounds do not wait for each
 * other. nop1 and nop5 are places for another tool's breakpoint, at the symbol `bench_place`; what
 * would copy the place (unrolling) would not assemble. The ints are in edi and esi there.
 */
#include <stdint.h>

#define CAT2(a, b) a##b
#define CAT(a, b) CAT2(a, b)
#define STRING2(x) #x
#define STRING(x) STRING2(x)
#define SITE(a, b) CAT(SITE_, BENCH_FORM)(a, b)

#define IS_nothing 0
#define IS_mark 1
#define IS_call 2
#define IS_call_by_pointer 11
#define IS_rdtsc 0
#define IS_two_rdtsc 0
#define IS_function 8
#define IS_nop1 0
#define IS_nop5 0
#define IS_clock 3
#define IS_store 4
#define IS_by_hand 4
#define IS_by_hand_ahead 4
#define IS_by_hand_hot 4
#define IS_locked_own 5
#define IS_locked_shared 6
#define IS_lttng 7
#define IS_usdt 9
#define IS_hooked 10
#define IS_FORM CAT(IS_, BENCH_FORM)

#define PLACE(bytes)                                                                               \
    __asm__ volatile(".globl bench_place\n"                                                        \
                     "bench_place:\n\t.byte " bytes                                                \
                     :                                                                             \
                     : "D"(a), "S"(b))

#define SITE_nothing(a, b) (void)0
#define SITE_rdtsc(a, b) __asm__ volatile("rdtsc" : : : "eax", "edx")
#define SITE_two_rdtsc(a, b) __asm__ volatile("rdtsc\n\trdtsc" : : : "eax", "edx")
#define SITE_nop1(a, b) PLACE("0x90")
#define SITE_nop5(a, b) PLACE("0x0f, 0x1f, 0x44, 0, 0")

#if IS_FORM == IS_mark

#include <markerjit/marker.h>
#ifndef BENCH_EVENT
#define BENCH_EVENT ints_2
#endif
#define EVENT_ints_1(name, a, b) MARK(name, "a %d", a)
#define EVENT_ints_2(name, a, b) MARK(name, "a %d b %d", a, b)
#define EVENT_ints_3(name, a, b) MARK(name, "a %d b %d c %d", a, b, a)
#define EVENT_ints_4(name, a, b) MARK(name, "a %d b %d c %d d %d", a, b, a, b)
#define EVENT_ints_8(name, a, b)                                                                   \
    MARK(name, "a %d b %d c %d d %d e %d f %d g %d h %d", a, b, a, b, a, b, a, b)
#define EVENT_text_5(name, a, b) MARK(name, "text %s", "12345")
#define EVENT_text_40(name, a, b) MARK(name, "text %s", TEXT_40)
#define TEXT_40 "1234567890123456789012345678901234567890"
#define EVENT_text_200(name, a, b) MARK(name, "text %s", TEXT_40 TEXT_40 TEXT_40 TEXT_40 TEXT_40)
#define EVENT_sized_5(name, a, b) MARK(name, "text %.*s", 5, "12345")
#define EVENT_texts_2(name, a, b) MARK(name, "text %s other %s", "12345", "12346")
#define EVENT_float(name, a, b) MARK(name, "a %d x %g", a, (double)b)
#define EVENT_pair(name, a, b) PAIR(name, CAT(name, _end), a, b)
#define PAIR(begin, end, a, b)                                                                     \
    MARK(begin, "a %d b %d", a, b);                                                                \
    MARK(end, "a %d b %d", a, b)
#define NAMED(name, a, b) CAT(EVENT_, BENCH_EVENT)(name, a, b)
#define SITE_mark(a, b) NAMED(BENCH_MARKER, a, b)

#elif IS_FORM == IS_usdt

/* As sys/sdt.h writes it: a no-op of one byte, and a note. */
#define NOTE(name)                                                                                 \
    "990: nop\n"                                                                                   \
    ".pushsection .note.stapsdt,\"\",\"note\"\n"                                                   \
    ".balign 4\n"                                                                                  \
    ".4byte 992f-991f, 994f-993f, 3\n"                                                             \
    "991: .asciz \"stapsdt\"\n"                                                                    \
    "992: .balign 4\n"                                                                             \
    "993: .8byte 990b\n"                                                                           \
    ".8byte _.stapsdt.base\n"                                                                      \
    ".8byte 0\n"                                                                                   \
    ".asciz \"bench\"\n"                                                                           \
    ".asciz \"" name "\"\n"                                                                        \
    ".asciz \"" ARGUMENTS "\"\n"                                                                   \
    "994: .balign 4\n"                                                                             \
    ".popsection\n"
#ifdef BENCH_TEXT
#define ARGUMENTS "8@%0"
#define SITE_usdt(a, b) __asm__ volatile(NOTE(STRING(BENCH_MARKER)) : : "r"("12345"))
#else
#define ARGUMENTS "-4@%0 -4@%1"
#define SITE_usdt(a, b) __asm__ volatile(NOTE(STRING(BENCH_MARKER)) : : "nor"(a), "nor"(b))
#endif

__asm__(".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
        ".weak _.stapsdt.base\n"
        ".hidden _.stapsdt.base\n"
        "_.stapsdt.base: .space 1\n"
        ".size _.stapsdt.base, 1\n"
        ".popsection\n");

#elif IS_FORM == IS_call || IS_FORM == IS_call_by_pointer

/* In another section, as a function of another file would be. */
__attribute__((noinline, noipa, section(".text.bench_callee"))) static void bench_callee(int a,
                                                                                         int b) {
    __asm__ volatile("" : : "r"(a), "r"(b));
}
#if IS_FORM == IS_call
#define SITE_call(a, b) bench_callee(a, b)
#else
#define BEFORE                                                                                     \
    void (*callee)(int, int) = bench_callee;                                                       \
                                                                                                   \
    __asm__ volatile("" : "+r"(callee)); /* so that the compiler does not know which it calls */
#define SITE_call_by_pointer(a, b) callee(a, b)
#endif

#elif IS_FORM == IS_function || IS_FORM == IS_hooked

#if IS_FORM == IS_function
#define CALLEE BENCH_MARKER
#define HOOKED
#define BODY
#else
#include "hooks.h"
#ifdef BENCH_LINKED
#define CALLEE CAT(bench_place_, BENCH_SKIP)
#else
#define CALLEE bench_place
#endif
#endif
#ifdef __clang__
#define NOIPA
#else
#define NOIPA noipa,
#endif

/* Long enough that its entry and its exit can be open at once. Protected: it is called directly in
 * shared objects too, as in the program. Without the assembly clang would leave out calls whose
 * result nobody needs. */
__attribute__((noinline, NOIPA visibility("protected"), section(".text.bench_callee"))) HOOKED int
CALLEE(int a, int b) {
    __asm__ volatile("" : "+r"(a));
    BODY;
    return ((a + b) ^ 0x12345) * 0x54321;
}
#define SITE_function(a, b) (void)CALLEE(a, b)
#define SITE_hooked(a, b) (void)CALLEE(a, b)

#elif IS_FORM == IS_clock

#include <time.h>
#define SITE_clock(a, b) read_clock()

static inline void read_clock(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    __asm__ volatile("" : : "m"(now));
}

#elif IS_FORM == IS_store

#include <markerjit/abi.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

/* A record of two ints, as the recorder writes it, and as many bytes without a meaning. */
struct record {
    uint32_t head, tid;
    uint64_t time;
    int a, b;
};
struct words {
    uint64_t words[4];
};

/* As much memory as the ring of a CPU has; what fits into the first cache; and behind either, room
 * for what was begun at the end. */
enum { RING = 1 << 20, HOT = 1 << 14, BEHIND = 1 << 12 };

static __thread char *memory_of_thread;
static __thread uint64_t executed; /* by this thread: the next run goes on behind this one */

/* In another section, so that the loop stands where it does in the other forms. */
__attribute__((noinline, noipa, section(".text.bench_memory"))) static char *memory(void) {
    if (!memory_of_thread) {
        memory_of_thread = mmap(NULL, RING + BEHIND, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (memory_of_thread == MAP_FAILED)
            abort();
    }
    return memory_of_thread;
}

static inline void store(struct words *next, uint64_t word) {
    *next = (struct words){{word, word, word, word}};
    __asm__ volatile("" : "+m"(*next));
}

static inline void record(struct record *next, int a, int b) {
    *next =
        (struct record){1 | sizeof *next / 8 << MJ_WORDS_SHIFT, 2, __builtin_ia32_rdtsc(), a, b};
    __asm__ volatile("" : "+m"(*next));
}

/* The line that is written to some records later is asked for while the clock is read. */
static inline void record_ahead(struct record *next, int a, int b) {
    __asm__ volatile("prefetchw 512(%0)" : : "r"(next));
    record(next, a, b);
}

#define BEFORE                                                                                     \
    char *const bytes = memory();                                                                  \
    uint64_t at = executed;                                                                        \
                                                                                                   \
    executed += times;
#define NEXT(type, size) (struct type *)(bytes + (at++ * sizeof(struct type) & ((size)-1)))
#define SITE_store(a, b) store(NEXT(words, RING), (uint64_t)(unsigned)(a))
#define SITE_by_hand(a, b) record(NEXT(record, RING), a, b)
#define SITE_by_hand_ahead(a, b) record_ahead(NEXT(record, RING), a, b)
#define SITE_by_hand_hot(a, b) record(NEXT(record, HOT), a, b)

#elif IS_FORM == IS_locked_own || IS_FORM == IS_locked_shared

#if IS_FORM == IS_locked_own
static __thread uint64_t word;
#else
static uint64_t word __attribute__((aligned(128)));
#endif
#define BEFORE                                                                                     \
    uint64_t *counter = &word;                                                                     \
                                                                                                   \
    __asm__ volatile("" : "+r"(counter)); /* or its address is looked for in each round */
#define SITE_locked_own(a, b) __asm__ volatile("lock; incq %0" : "+m"(*counter))
#define SITE_locked_shared(a, b) SITE_locked_own(a, b)

#elif IS_FORM == IS_lttng

/* The event of a provider with the marker's name, so that each object has its own. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng_event.h"
#define TRACE(provider, a, b) lttng_ust_tracepoint(provider, event, a, b)
#define SITE_lttng(a, b) TRACE(BENCH_MARKER, a, b)

#endif

#ifndef BEFORE
#define BEFORE
#endif

__asm__(".text\n\t.p2align 12\n\t.skip " STRING(BENCH_SKIP));

#ifdef BENCH_LINKED
#define run CAT(run_, BENCH_SKIP)
#endif

#ifdef BENCH_DEEP
#define LOOP __attribute__((noinline, noipa)) static uint64_t loop
#else
#define LOOP __attribute__((visibility("default"), noinline, no_instrument_function)) uint64_t run
#endif

LOOP(uint64_t times, const uint64_t *data) {
    uint64_t sum = 0;

    BEFORE
    for (uint64_t i = 0; i < times; i++) {
        int a = (int)data[i & 7], b = (int)data[(i + 1) & 7];

        __asm__ volatile("" : "+r"(a), "+r"(b));
        SITE(a, b);
        sum += (uint64_t)(unsigned)(a ^ b) ^ i;
    }
    return sum;
}

#ifdef BENCH_DEEP

/* Functions that differ, so that no frame is like another one; each has more words than the last.
 */
#define LEVEL(number, callee)                                                                      \
    __attribute__((noinline, noipa)) static uint64_t level_##number(uint64_t times,                \
                                                                    const uint64_t *data) {        \
        uint64_t words[1 + 1##number % 16];                                                        \
                                                                                                   \
        __asm__ volatile("" : "=m"(words));                                                        \
        return callee(times, data) + words[0];                                                     \
    }
#define TEN(tens, callee)                                                                          \
    LEVEL(tens##0, callee)                                                                         \
    LEVEL(tens##1, level_##tens##0)                                                                \
    LEVEL(tens##2, level_##tens##1)                                                                \
    LEVEL(tens##3, level_##tens##2)                                                                \
    LEVEL(tens##4, level_##tens##3)                                                                \
    LEVEL(tens##5, level_##tens##4)                                                                \
    LEVEL(tens##6, level_##tens##5)                                                                \
    LEVEL(tens##7, level_##tens##6)                                                                \
    LEVEL(tens##8, level_##tens##7)                                                                \
    LEVEL(tens##9, level_##tens##8)

TEN(0, loop)
TEN(1, level_09)
TEN(2, level_19)
TEN(3, level_29)
TEN(4, level_39)
TEN(5, level_49)
TEN(6, level_59)

__attribute__((visibility("default"), noinline)) uint64_t run(uint64_t times,
                                                              const uint64_t *data) {
    return level_69(times, data);
}

#endif

#ifdef BENCH_LINKED
typedef uint64_t run_fn(uint64_t times, const uint64_t *data);
__attribute__((section("bench_linked"), used)) static run_fn *const linked = run;
#endif

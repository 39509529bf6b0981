/* SPDX-License-Identifier: MIT */
/*
 * flip: every shape of marker, switched by the program itself, in C and (-x c++) in C++.
 *
 * For each: dormant nothing is called and no argument evaluated; on, each pass is one hit with one
 * evaluation of each argument and the right values; off again, nothing more.
 */
#define _GNU_SOURCE 1
#include "selfpatch.h"

#define MJ_DIRECT_PROBE sp_probe
#include <markerjit/marker.h>

#ifdef WITH_STRING
#include <string>
#endif

#define NOINLINE __attribute__((noinline))
enum { PASSES = 5 };
enum plain { MINUS = -2, PLUS = 3 };
static unsigned long evaluated, inline_calls;
static volatile int one = 1, sink;

long seven(void);
long seven(void) {
    evaluated++;
    return 7;
}

NOINLINE static void ints(void) {
    volatile short changing = -300;

    MARK(ints, "a %ld b %hhd c %hhu d %hd e %hu f %d g %u h %ld i %lu j %lld k %llu l %d", seven(),
         (signed char)-5, (unsigned char)250, changing, (unsigned short)65000, -70000 * one,
         4000000000u * (unsigned)one, -5000000000l * one, 18000000000000000000ul, (long long)-one,
         ~0ull, (bool)one);
}
static const char ints_text[] =
    "s8:7 s1:-5 u1:250 s2:-300 u2:65000 s4:-70000 u4:4000000000 s8:-5000000000 "
    "u8:18000000000000000000 s8:-1 u8:18446744073709551615 b1:1";

struct bits {
    unsigned narrow : 3;
    int low : 5;
    unsigned flag : 1;
};

NOINLINE static void others(void) {
    struct bits bits = {5, -3, 1};
    char array[8] = "array";
    const unsigned char bytes[] = "bytes";
    enum plain e = one ? MINUS : PLUS;

    bits.narrow += (unsigned)one;
    MARK(others, "a %ld f %f d %g c %c p %p s %s n %.*s e %d bf %u lo %d b %p", seven(),
         0.5f * (float)one, -2.25 * one, (char)('a' + one), (void *)0x1234, array, one + 2, "part",
         e, bits.narrow, bits.low, (const void *)bytes);
    sink = bytes[0];
}
static const char others_text[] = "s8:7 f4:0.5 f8:-2.25 s1:98 p8:4660 c8:array s4:3 c8:part "
                                  "s4:-2 ";

NOINLINE static void empty(void) { MARK(empty, ""); }
NOINLINE static void plain_text(void) { MARK(plain_text, "100%% \"text\" \\ gr\303\266\303\237e"); }

/* Several sites of one name: inlined, unrolled, and in two functions. */
__attribute__((always_inline)) static inline void inlined(int i) {
    MARK(copies, "a %ld i %d", seven(), i);
    sink = i;
}
NOINLINE static void copies(void) {
    inlined(0);
    if (one)
        inlined(1);
    else
        inlined(-1);
    for (int i = 2; i < PASSES - 1; i++)
        inlined(i);
    MARK(copies, "a %ld other %d", seven(), PASSES - 1);
}

/* No braces, and an else for each if. */
NOINLINE static void dangling(void) {
    if (one)
        if (!one)
            MARK(never, "a %ld", seven());
        else
            MARK(dangling, "a %ld", seven());
    else
        MARK(never, "a %ld", seven());
}

static inline void count_inline(long a, int b) { inline_calls += (unsigned long)(a + b); }
NOINLINE static void with_inline(void) {
    MARK_INLINE(with_inline, count_inline, "a %ld b %d", seven(), one);
}

inline int shared(int x);
inline int shared(int x) {
    MARK(shared, "a %ld x %d", seven(), x);
    return x;
}
#ifndef __cplusplus
extern inline int shared(int x);

NOINLINE static void language(void) {
    static _Atomic int atomic = 4;
    const int constant = 5;
    long vla_size = one + 3;
    char vla[vla_size];

    vla[0] = 'v', vla[1] = '\0';
    MARK(language, "a %ld i %d c %d s %s e %d", seven(), atomic, constant, vla, (enum plain)PLUS);
}
static const char language_text[] = "s8:7 s4:4 s4:5 c8:v s4:3";
#else
struct Noisy { /* with a destructor, as std::string has */
    int value;
    explicit Noisy(int v) : value(v) { sink = v; }
    ~Noisy() { sink = value; }
};
enum class Scoped : short { a = -9 };
enum Unscoped { u0, u1 };

namespace outer {
namespace {
template <class T> NOINLINE void templated(T value) {
    MARK(templated, "a %ld size %zu v %d", seven(), sizeof(T), static_cast<int>(value));
}
} // namespace
struct Class {
    int member;
    static void function(int x) { MARK(function, "a %ld x %d", seven(), x); }
    void method() const { MARK(method, "a %ld m %d", seven(), member); }
    virtual void overridden() { MARK(overridden, "a %ld m %d", seven(), this->member); }
    explicit Class(int m) : member(m) { MARK(construct, "a %ld m %d", seven(), m); }
    virtual ~Class() { MARK(destruct, "a %ld m %d", seven(), member); }
};
} // namespace outer

NOINLINE static void language() {
    MARK(before, "a %ld", seven());
    Noisy noisy(one);
#ifdef WITH_STRING
    std::string text(one ? "text" : "");
#else
    struct {
        const char *c_str() { return "text"; }
    } text;
#endif
    MARK(language, "a %ld s %s v %d np %p u %d", seven(), text.c_str(), noisy.value, nullptr,
         one ? u1 : u0);
    Noisy another(noisy.value + 1);
    auto lambda = [&](int x) { MARK(lambda, "a %ld x %d v %d", seven(), x, another.value); };
    lambda(8);
    outer::templated(9);
    outer::templated(10L);
    outer::Class object(11);
    outer::Class::function(12);
    object.method();
    object.overridden();
    try {
        MARK(in_try, "a %ld", seven());
        if (one)
            throw 1;
    } catch (int caught) {
        MARK(in_catch, "a %ld x %d", seven(), caught);
    }
#if __cplusplus >= 201703L
    const struct {
        int x;
        long y;
    } pair = {13, 14};
    auto [x, y] = pair;
    MARK(bound, "a %ld x %d y %ld", seven(), x, y);
#else
    MARK(bound, "a %ld x %d y %ld", seven(), 13, 14L);
#endif
}
static const char language_text[] = "s8:7 c8:text s4:1 p8:0 u4:1";
static const char *const language_names[][2] = {
    {"before", "s8:7"},           {"lambda", "s8:7 s4:8 s4:2"}, {"function", "s8:7 s4:12"},
    {"method", "s8:7 s4:11"},     {"overridden", "s8:7 s4:11"}, {"construct", "s8:7 s4:11"},
    {"destruct", "s8:7 s4:11"},   {"in_try", "s8:7"},           {"in_catch", "s8:7 s4:1"},
    {"bound", "s8:7 s4:13 s8:14"}};
#endif

NOINLINE static void shared_twice(void) {
    shared(1);
    shared(2);
}

/* ---- the test ------------------------------------------------------------------------------ */

/* Runs `run` and checks the number of hits and evaluations; `seven() ` is the first argument. */
static void expect(const char *when, const char *name, void (*run)(void), unsigned long hits,
                   unsigned long evaluations) {
    sp_hits = evaluated = 0;
    run();
    SP_CHECK(sp_hits == hits, "%s %s: %lu hits, not %lu", name, when, sp_hits, hits);
    SP_CHECK(evaluated == evaluations, "%s %s: %lu evaluations, not %lu", name, when, evaluated,
             evaluations);
}

#if MJ_KIND == MJ_KIND_none
static void check(const char *name, void (*run)(void), unsigned long passes, const char *text) {
    (void)passes;
    (void)text;
    SP_CHECK(sp_sites(name) == 0, "%s: %d sites", name, sp_sites(name));
    expect("none", name, run, 0, 0);
}
#else
/* One run of `run` passes the marker `passes` times; `text` is how the last hit begins. */
static void check(const char *name, void (*run)(void), unsigned long passes, const char *text) {
    unsigned long evaluations = text[0] ? passes : 0;
    unsigned long always; /* what the markers in `run` evaluate while dormant */

    SP_CHECK(sp_sites(name) >= 1, "%s: %d sites", name, sp_sites(name));
    sp_hits = evaluated = 0;
    sp_current = run == ints || run == shared_twice ? name : ""; /* alone in `run` */
    run();
    always = evaluated;
    if (MJ_KIND == MJ_KIND_direct) { /* all of them are always on */
        SP_CHECK(sp_hits >= passes && always >= evaluations, "%s: %lu hits", name, sp_hits);
        SP_CHECK(strncmp(sp_text, text, strlen(sp_text)) == 0, "%s: %s", name, sp_text);
        return;
    }
    SP_CHECK(MJ_KIND == MJ_KIND_sentinel ? always >= evaluations : always == 0,
             "%s dormant: %lu evaluations", name, always);
    SP_CHECK(sp_hits == 0, "%s dormant: %lu hits", name, sp_hits);
    if (MJ_KIND == MJ_KIND_sentinel)
        evaluations = always;
    struct mj_slot *slot = sp_slot(sp_note(name));
    const uint64_t entered = slot->entered;

    for (int turn = 0; turn < 2; turn++) {
        sp_switch(name, 1, (unsigned long)sp_probe);
        expect("on", name, run, passes, evaluations);
        SP_CHECK(strncmp(sp_text, text, strlen(text)) == 0, "%s: %s, not %s", name, sp_text, text);
        sp_switch(name, 0, 0);
        expect("off", name, run, 0, always);
    }
    if (MJ_KIND == MJ_KIND_sentinel)
        return;
    SP_CHECK(slot->entered - entered == 2 * passes && slot->entered == slot->left, "%s: %lu", name,
             (unsigned long)slot->entered);
    sp_switch(name, 1, 0); /* on, and no probe: nothing happens */
    expect("without a probe", name, run, 0, 0);
    sp_switch(name, 0, 0);
    expect("off", name, run, 0, 0);
}
#endif

int main(void) {
    char text[512];

    sp_start();
    check("ints", ints, 1, ints_text);
#if defined(__cplusplus)
    snprintf(text, sizeof(text), "%su4:6 s4:-3 p8:", others_text);
#elif defined(__clang__)
    snprintf(text, sizeof(text), "%su4:6 s4:-3 p8:", others_text);
#else /* gcc: a bit-field in C has a type of its own, and travels as the int it is promoted to */
    snprintf(text, sizeof(text), "%ss4:6 s4:-3 p8:", others_text);
#endif
    check("others", others, 1, text);
    check("empty", empty, 1, "");
    check("plain_text", plain_text, 1, "");
    check("copies", copies, PASSES, "s8:7 s4:4");
    check("dangling", dangling, 1, "s8:7");
    check("with_inline", with_inline, 1, "s8:7 s4:1");
    check("shared", shared_twice, 2, "s8:7 s4:2");
    check("language", language, 1, language_text);
#ifdef __cplusplus
    for (const char *const *name : language_names)
        check(name[0], language, 1, name[1]);
    check("templated", language, 2, "s8:7 u8:8 s4:10");
#endif
#if MJ_KIND != MJ_KIND_none && MJ_KIND != MJ_KIND_direct && MJ_KIND != MJ_KIND_sentinel
    for (unsigned long counted = 0; counted < 2; counted++) {
        sp_switch("with_inline", 1, MJ_PROBE_INLINE | counted);
        inline_calls = 0;
        expect("inline", "with_inline", with_inline, 0, 1);
        SP_CHECK(inline_calls == 8, "%lu", inline_calls);
        SP_CHECK(sp_note("with_inline")->flags == (MJ_FLAG_INLINE | MJ_FLAG_BLOCK), "flags");
        sp_switch("with_inline", 0, 0);
        expect("inline off", "with_inline", with_inline, 0, 0);
        SP_CHECK(inline_calls == 8, "%lu", inline_calls);
    }
#endif
    for (int i = 0; i < sp_count; i++)
        SP_CHECK(sp_notes[i]->version == MJ_NOTE_VERSION && sp_notes[i]->kind == MJ_KIND &&
                     sp_notes[i]->size == MJ_NOTE_SIZE,
                 "%s", sp_name(sp_notes[i]));
    if (!sp_failures)
        printf("ok %d sites\n", sp_count);
    return sp_failures != 0;
}

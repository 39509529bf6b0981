/* SPDX-License-Identifier: MIT */
/*
 * marker.h: markers that cost almost nothing until they are switched on.
 *
 *     MARK(kv_get, "key %s len %zu", key, len);
 *     MARK_INLINE(kv_get, count_get, "key %s len %zu", key, len);
 *
 * The first argument names the marker. The words before the conversions name its fields; the types
 * come from the arguments. A format that does not fit them does not compile. Arguments are
 * evaluated only while the marker is on, so they must not have side effects that the program
 * needs. A marker takes at most MJ_MAX_ARGS arguments: integers, floats, pointers, strings (%s),
 * bounded strings (%.*s with an int before it; as in printf, a NUL also ends them), and raw bytes
 * (%*ph with an int before it, as in the kernel's printk).
 *
 * Nothing is linked, no thread is started, and nothing runs before main. Choose how the sites of a
 * translation unit are compiled with -DMJ_MODE=jump (the default), nop, pointer, sentinel, direct,
 * immediate, symbol or none; docs/explanation/protocol.md describes each and its cost.
 *
 * A marker may stand in a signal handler, an inline function, a template or a loop that the
 * compiler unrolls. It may not stand in a constexpr or naked function.
 *
 * The layouts are in abi.h. This file emits them and does not read them.
 */
#ifndef MARKERJIT_MARKER_H
#define MARKERJIT_MARKER_H

#include "abi.h"

#if !defined(__x86_64__) || defined(__ILP32__)
#error "markerjit: marker.h is for x86-64 with 64-bit pointers"
#endif

#ifndef MJ_MODE
#define MJ_MODE jump
#endif

#define MJ_CAT2(a, b) a##b
#define MJ_CAT(a, b) MJ_CAT2(a, b)
#define MJ_STR2(x) #x
#define MJ_STR(x) MJ_STR2(x)

#define MJ_KIND MJ_CAT(MJ_KIND_, MJ_MODE)
#if MJ_KIND < 1 || MJ_KIND > MJ_KIND_none
#error "markerjit: MJ_MODE must be jump, nop, pointer, sentinel, direct, immediate, symbol or none"
#endif

/* ---- counting and mapping arguments -------------------------------------------------------- */

/* The number of arguments after the format: 0 to 12, or 13 for up to eight too many. */
#define MJ_COUNT(...)                                                                              \
    MJ_COUNT_(__VA_ARGS__, 13, 13, 13, 13, 13, 13, 13, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1,  \
              0, 0)
#define MJ_COUNT_(f, a, b, c, d, e, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, count, ...) count

/* f(index, argument) for each argument after the format. */
#define MJ_MAP(f, ...) MJ_CAT(MJ_MAP_, MJ_COUNT(__VA_ARGS__))(f, __VA_ARGS__)
#define MJ_MAP_13(f, ...) /* MJ_CHECK refuses it */
#define MJ_MAP_0(f, fmt)
#define MJ_MAP_1(f, fmt, a) f(0, a)
#define MJ_MAP_2(f, fmt, a, b) f(0, a) f(1, b)
#define MJ_MAP_3(f, fmt, a, b, c) f(0, a) f(1, b) f(2, c)
#define MJ_MAP_4(f, fmt, a, b, c, d) f(0, a) f(1, b) f(2, c) f(3, d)
#define MJ_MAP_5(f, fmt, a, b, c, d, e) MJ_MAP_4(f, fmt, a, b, c, d) f(4, e)
#define MJ_MAP_6(f, fmt, a, b, c, d, e, g) MJ_MAP_5(f, fmt, a, b, c, d, e) f(5, g)
#define MJ_MAP_7(f, fmt, a, b, c, d, e, g, h) MJ_MAP_6(f, fmt, a, b, c, d, e, g) f(6, h)
#define MJ_MAP_8(f, fmt, a, b, c, d, e, g, h, i) MJ_MAP_7(f, fmt, a, b, c, d, e, g, h) f(7, i)
#define MJ_MAP_9(f, fmt, a, b, c, d, e, g, h, i, j) MJ_MAP_8(f, fmt, a, b, c, d, e, g, h, i) f(8, j)
#define MJ_MAP_10(f, fmt, a, b, c, d, e, g, h, i, j, k)                                            \
    MJ_MAP_9(f, fmt, a, b, c, d, e, g, h, i, j) f(9, k)
#define MJ_MAP_11(f, fmt, a, b, c, d, e, g, h, i, j, k, l)                                         \
    MJ_MAP_10(f, fmt, a, b, c, d, e, g, h, i, j, k) f(10, l)
#define MJ_MAP_12(f, fmt, a, b, c, d, e, g, h, i, j, k, l, m)                                      \
    MJ_MAP_11(f, fmt, a, b, c, d, e, g, h, i, j, k, l) f(11, m)

/* The format; the arguments with a comma before each; the arguments with commas between them. */
#define MJ_FORMAT(...) MJ_FORMAT_(__VA_ARGS__, 0)
#define MJ_FORMAT_(fmt, ...) fmt
#define MJ_COMMA_ARG(index, arg) , arg
#define MJ_LIST_ARG(index, arg) MJ_COMMA_##index arg
#define MJ_COMMA_0
#define MJ_COMMA_1 ,
#define MJ_COMMA_2 ,
#define MJ_COMMA_3 ,
#define MJ_COMMA_4 ,
#define MJ_COMMA_5 ,
#define MJ_COMMA_6 ,
#define MJ_COMMA_7 ,
#define MJ_COMMA_8 ,
#define MJ_COMMA_9 ,
#define MJ_COMMA_10 ,
#define MJ_COMMA_11 ,

/* ---- the two languages --------------------------------------------------------------------- */

#ifdef __cplusplus
#define MJ_INLINE inline __attribute__((always_inline, no_instrument_function))
#define MJ_EXTERN extern "C"
#define MJ_CAST(type, value) reinterpret_cast<type>(value)
#define MJ_NO_SLOT nullptr
#define MJ_CONSTANT(name, value) constexpr int name = value;
#define MJ_STATIC_ASSERT static_assert
#else
/* Not static: an inline function with external linkage must not use a static one. */
#define MJ_INLINE                                                                                  \
    extern __inline__ __attribute__((gnu_inline, always_inline, no_instrument_function))
#define MJ_EXTERN extern
#define MJ_CAST(type, value) ((type)(value))
#define MJ_NO_SLOT ((struct mj_slot *)0)
#define MJ_CONSTANT(name, value) enum { name = value };
#define MJ_STATIC_ASSERT _Static_assert
#endif

/* ---- types of arguments -------------------------------------------------------------------- */

#define MJ_CODE(class_, size)                                                                      \
    ((class_) << 4 | ((size) == 1 ? 0 : (size) == 2 ? 1 : (size) == 4 ? 2 : 3))

#ifdef __cplusplus
/* By-value deduction decays arrays, drops qualifiers and reads bit-fields as their type. */
template <class T, bool = __is_enum(T)> struct mj_type {
    static constexpr int code = 0; /* a type not listed below cannot be a field */
};
template <class T> struct mj_type<T, true> : mj_type<__underlying_type(T)> {};
#define MJ_TYPE_IS(type, class_)                                                                   \
    template <> struct mj_type<type> { static constexpr int code = MJ_CODE(class_, sizeof(type)); };
MJ_TYPE_IS(bool, MJ_CLASS_BOOL)
MJ_TYPE_IS(char, MJ_CLASS_SIGNED)
MJ_TYPE_IS(signed char, MJ_CLASS_SIGNED)
MJ_TYPE_IS(unsigned char, MJ_CLASS_UNSIGNED)
MJ_TYPE_IS(short, MJ_CLASS_SIGNED)
MJ_TYPE_IS(unsigned short, MJ_CLASS_UNSIGNED)
MJ_TYPE_IS(int, MJ_CLASS_SIGNED)
MJ_TYPE_IS(unsigned, MJ_CLASS_UNSIGNED)
MJ_TYPE_IS(long, MJ_CLASS_SIGNED)
MJ_TYPE_IS(unsigned long, MJ_CLASS_UNSIGNED)
MJ_TYPE_IS(long long, MJ_CLASS_SIGNED)
MJ_TYPE_IS(unsigned long long, MJ_CLASS_UNSIGNED)
MJ_TYPE_IS(float, MJ_CLASS_FLOAT)
MJ_TYPE_IS(double, MJ_CLASS_FLOAT)
MJ_TYPE_IS(char *, MJ_CLASS_CHARS)
MJ_TYPE_IS(const char *, MJ_CLASS_CHARS)
MJ_TYPE_IS(signed char *, MJ_CLASS_CHARS)
MJ_TYPE_IS(const signed char *, MJ_CLASS_CHARS)
MJ_TYPE_IS(unsigned char *, MJ_CLASS_CHARS)
MJ_TYPE_IS(const unsigned char *, MJ_CLASS_CHARS)
#undef MJ_TYPE_IS
template <class T> struct mj_type<T *, false> {
    static constexpr int code = MJ_CODE(MJ_CLASS_POINTER, sizeof(T *));
};
template <> struct mj_type<decltype(nullptr)> {
    static constexpr int code = MJ_CODE(MJ_CLASS_POINTER, sizeof(void *));
};
template <class T> mj_type<T> mj_type_of(T);
#define MJ_TYPE(arg) (decltype(mj_type_of(arg))::code)
#else
#define MJ_TYPE(arg)                                                                               \
    _Generic((arg),                                                                                \
        _Bool: MJ_CODE(MJ_CLASS_BOOL, 1),                                                          \
        char: MJ_CODE(MJ_CLASS_SIGNED, 1),                                                         \
        signed char: MJ_CODE(MJ_CLASS_SIGNED, 1),                                                  \
        unsigned char: MJ_CODE(MJ_CLASS_UNSIGNED, 1),                                              \
        short: MJ_CODE(MJ_CLASS_SIGNED, 2),                                                        \
        unsigned short: MJ_CODE(MJ_CLASS_UNSIGNED, 2),                                             \
        int: MJ_CODE(MJ_CLASS_SIGNED, 4),                                                          \
        unsigned: MJ_CODE(MJ_CLASS_UNSIGNED, 4),                                                   \
        long: MJ_CODE(MJ_CLASS_SIGNED, 8),                                                         \
        unsigned long: MJ_CODE(MJ_CLASS_UNSIGNED, 8),                                              \
        long long: MJ_CODE(MJ_CLASS_SIGNED, 8),                                                    \
        unsigned long long: MJ_CODE(MJ_CLASS_UNSIGNED, 8),                                         \
        float: MJ_CODE(MJ_CLASS_FLOAT, 4),                                                         \
        double: MJ_CODE(MJ_CLASS_FLOAT, 8),                                                        \
        char *: MJ_CODE(MJ_CLASS_CHARS, 8),                                                        \
        const char *: MJ_CODE(MJ_CLASS_CHARS, 8),                                                  \
        signed char *: MJ_CODE(MJ_CLASS_CHARS, 8),                                                 \
        const signed char *: MJ_CODE(MJ_CLASS_CHARS, 8),                                           \
        unsigned char *: MJ_CODE(MJ_CLASS_CHARS, 8),                                               \
        const unsigned char *: MJ_CODE(MJ_CLASS_CHARS, 8),                                         \
        default: MJ_TYPE_OTHER(__builtin_classify_type(arg)))
/* gcc's numbers: 5 is a pointer; 1 an integer, here a bit-field, which travels as an int. */
#define MJ_TYPE_OTHER(classified)                                                                  \
    ((classified) == 5   ? MJ_CODE(MJ_CLASS_POINTER, 8)                                            \
     : (classified) == 1 ? MJ_CODE(MJ_CLASS_SIGNED, 4)                                             \
                         : 0)
#endif

/* The types of all arguments, a byte each, in three words, because gcc prints no wider %c operand.
   They are constants outside the asm, because clang before 16 accepts no structured binding in a
   lambda. */
#define MJ_TYPES(...)                                                                              \
    MJ_CONSTANT(mj_types0_, 0 MJ_MAP(MJ_TYPE_0, __VA_ARGS__))                                      \
    MJ_CONSTANT(mj_types1_, 0 MJ_MAP(MJ_TYPE_1, __VA_ARGS__))                                      \
    MJ_CONSTANT(mj_types2_, 0 MJ_MAP(MJ_TYPE_2, __VA_ARGS__))
#define MJ_TYPE_IN(word, index, arg)                                                               \
    | ((index) / 4 == (word) ? MJ_TYPE(arg) << ((index) % 4 * 8) : 0)
/* The shape of a preserving call: the number of words, and a bit for each that is a double. */
#define MJ_SHAPE(...)                                                                              \
    (MJ_COUNT(__VA_ARGS__) |                                                                       \
     (MJ_FLOATS(mj_types0_) | MJ_FLOATS(mj_types1_) << 4 | MJ_FLOATS(mj_types2_) << 8)             \
         << MJ_SHAPE_FLOATS)
#define MJ_FLOATS(types)                                                                           \
    (MJ_IS_FLOAT(types, 0) | MJ_IS_FLOAT(types, 1) << 1 | MJ_IS_FLOAT(types, 2) << 2 |             \
     MJ_IS_FLOAT(types, 3) << 3)
#define MJ_IS_FLOAT(types, index) (((types) >> ((index)*8 + 4) & 15) == MJ_CLASS_FLOAT)
#define MJ_TYPE_0(index, arg) MJ_TYPE_IN(0, index, arg)
#define MJ_TYPE_1(index, arg) MJ_TYPE_IN(1, index, arg)
#define MJ_TYPE_2(index, arg) MJ_TYPE_IN(2, index, arg)

/* ---- compile-time checks --------------------------------------------------------------------
 *
 * Compilers name the macro in which they find an error, so these names say what is wrong.
 */
#define MJ_NAME_MUST_BE_AN_IDENTIFIER(id) typedef char(id) __attribute__((unused));
#define MJ_FORMAT_MUST_BE_A_STRING_LITERAL(fmt) MJ_STATIC_ASSERT(sizeof("" fmt) != 0, "");
#define MJ_CHECK_FORMAT_IS_THERE(fmt)                                                              \
    MJ_STATIC_ASSERT(!!(sizeof(MJ_STR(fmt)) - 1),                                                  \
                     "markerjit: a marker needs a format behind its name, "                        \
                     "such as MARK(name, \"\") or MARK(name, \"n %d\", n)");
#define MJ_CHECK_COUNT(...)                                                                        \
    MJ_STATIC_ASSERT(MJ_COUNT(__VA_ARGS__) <= MJ_MAX_ARGS,                                         \
                     "markerjit: a marker takes at most 12 arguments");
#define MJ_CHECK_TYPE(index, arg)                                                                  \
    MJ_STATIC_ASSERT(MJ_TYPE(arg) != 0, "markerjit: a field is an integer, an enumeration, a "     \
                                        "float, a double or a pointer; not this argument");

/* The compiler's own printf check, an error whatever warnings are on, except with -w. Never called.
 */
MJ_EXTERN void mj_check_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

// clang-format off
#define MJ_CHECK(id, ...)                                                                          \
    MJ_NAME_MUST_BE_AN_IDENTIFIER(id)                                                              \
    MJ_CHECK_FORMAT_IS_THERE(MJ_FORMAT(__VA_ARGS__))                                               \
    MJ_FORMAT_MUST_BE_A_STRING_LITERAL(MJ_FORMAT(__VA_ARGS__))                                     \
    MJ_CHECK_COUNT(__VA_ARGS__)                                                                    \
    _Pragma("GCC diagnostic push")                                                                 \
    _Pragma("GCC diagnostic error \"-Wformat\"")                                                   \
    _Pragma("GCC diagnostic error \"-Wformat-extra-args\"")                                        \
    _Pragma("GCC diagnostic ignored \"-Wformat-zero-length\"")                                     \
    _Pragma("GCC diagnostic ignored \"-Wpedantic\"") /* %p of any pointer */                       \
    MJ_MAP(MJ_CHECK_TYPE, __VA_ARGS__)                                                             \
    if (0)                                                                                         \
        mj_check_format("" __VA_ARGS__); /* "": no second error where there is none */             \
    _Pragma("GCC diagnostic pop")
// clang-format on

/* ---- the text: format and file, in a place that the note can point to -------------------------
 *
 * It is not inside the asm template, where every % would be an operand. It has to be a symbol
 * that the linker resolves by itself, in position-independent code too. A static of a C++ inline
 * function or template is not (it can be preempted); a static member of a hidden template is.
 */
#ifdef __cplusplus
template <unsigned long N> struct mj_chars { char chars[N]; };
template <class Tag> struct __attribute__((visibility("hidden"))) mj_note_text {
    static constexpr decltype(Tag::text()) value = Tag::text();
};
#if __cplusplus < 201703L /* later, a static constexpr member is a definition */
template <class Tag> constexpr decltype(Tag::text()) mj_note_text<Tag>::value;
#endif
#define MJ_TEXT(string)                                                                            \
    struct mj_tag {                                                                                \
        static constexpr mj_chars<sizeof(string)> text() { return {string}; }                      \
    };
#define MJ_TEXT_ADDRESS (&mj_note_text<mj_tag>::value)
#else
#define MJ_TEXT(string) static const char mj_text_[] = string;
#define MJ_TEXT_ADDRESS (mj_text_)
#endif

/* ---- the assembly of a site -------------------------------------------------------------------
 *
 * MJ_OPERANDS are seven inputs, so that in an asm goto %l7 is the body. Labels: 990 the first byte
 * of the hot path, 991 where a dormant site continues.
 */
/* These symbols differ from those of older versions, whose bodies make another kind of call,
   because objects of both may be linked together. A sentinel's slot has a third symbol: it is never
   empty, and its calls are of the old kind. */
#define MJ_SLOT(name) "__mj_block_slot_" name
#define MJ_SENTINEL_SLOT(name) "__mj_sentinel_slot_" name

#define MJ_ASM_SLOT(slot) MJ_ASM_ANY_SLOT(slot, MJ_STR(MJ_SLOT_SIZE), "0, 0, 0, 0, 0, 0, 0, 0")
#define MJ_ASM_ANY_SLOT(slot, size, content)                                                       \
    ".ifndef " slot "\n"                                                                           \
    ".pushsection .data.markerjit, \"awG\", @progbits, " slot ", comdat\n"                         \
    ".weak " slot "\n"                                                                             \
    ".hidden " slot "\n"                                                                           \
    ".type " slot ", @object\n"                                                                    \
    ".size " slot ", " size "\n"                                                                   \
    ".balign " size "\n" slot ": .quad " content "\n"                                              \
    ".popsection\n"                                                                                \
    ".endif\n"

// clang-format off
/* "?" puts the note into the comdat group of the function, if it is in one, so that both are kept
   or dropped together. [systemtap sys/sdt.h] */
#define MJ_ASM_NOTE(name, site, body, slot)                                                        \
    ".pushsection .note.markerjit, \"a?\", @note\n"                                                \
    ".balign 4\n"                                                                                  \
    ".long 993f-992f, 995f-994f, " MJ_STR(MJ_NOTE_TYPE) "\n"                                       \
    "992: .asciz \"" MJ_NOTE_OWNER "\"\n"                                                          \
    "993: .balign 4\n"                                                                             \
    "994: .byte " MJ_STR(MJ_NOTE_VERSION) ", " MJ_STR(MJ_KIND) ", %c[mj_argc], %c[mj_flags]\n"                      \
    ".short " MJ_STR(MJ_NOTE_SIZE) ", 0\n"                                                         \
    ".long " site "-.\n"                                                                           \
    ".long " body "\n"                                                                             \
    ".long 991b-.\n"                                                                               \
    ".long " slot "\n"                                                                             \
    ".long %c[mj_text]-.\n"                                                                                \
    ".long %c[mj_line]\n"                                                                                  \
    ".long %c[mj_types0], %c[mj_types1], %c[mj_types2]\n"                                         \
    ".asciz \"" name "\"\n"                                                                        \
    "995: .balign 4\n"                                                                             \
    ".popsection\n"

/* A SystemTap note lets gdb, perf and bpftrace name the body. Its address is absolute and it is not
   loaded, as in the notes that they expect. */
#define MJ_ASM_STAPSDT(name)                                                                       \
    ".pushsection .note.stapsdt, \"?\", @note\n"                                                   \
    ".balign 4\n"                                                                                  \
    ".long 8, 995f-994f, 3\n"                                                                      \
    ".asciz \"stapsdt\"\n"                                                                         \
    "994: .quad %l7, 0, 0\n"                                                                       \
    ".asciz \"markerjit\"\n"                                                                       \
    ".asciz \"" name "\"\n"                                                                        \
    ".asciz \"\"\n"                                                                                \
    "995: .balign 4\n"                                                                             \
    ".popsection\n"
// clang-format on

#define MJ_DESCRIBE(id, ...)                                                                       \
    MJ_CHECK(id, __VA_ARGS__)                                                                      \
    MJ_TYPES(__VA_ARGS__)                                                                          \
    MJ_TEXT("" MJ_FORMAT(__VA_ARGS__) "\0" __FILE__)
#define MJ_OPERANDS(flags, ...)                                                                    \
    [mj_text] "i"(MJ_TEXT_ADDRESS), [mj_types0] "i"(mj_types0_ + 0),                               \
        [mj_types1] "i"(mj_types1_ + 0), [mj_types2] "i"(mj_types2_ + 0),                          \
        [mj_argc] "i"(MJ_COUNT(__VA_ARGS__)), [mj_line] "i"(__LINE__), [mj_flags] "i"(flags)

/* ---- the body: arguments are evaluated here, and the probe is called ----------------------- */

#if defined(__clang__)
#define MJ_COLD /* clang knows the attribute only on functions */
#else
#define MJ_COLD __attribute__((cold));
#endif

/*
 * ---- arguments as words of 64 bits ----
 *
 * The empty asm keeps the compiler from converting an argument ahead of the site: an extension that
 * both the body and what follows it need is computed before both of them, for the dormant marker
 * too. docs/decisions/0096-converted-in-the-body.md
 */
#define MJ_CONVERT_HERE(value) __asm__("" : "+r"(value))

#ifdef __cplusplus
template <class T> MJ_INLINE uint64_t mj_word(T value) {
    MJ_CONVERT_HERE(value);
    return static_cast<uint64_t>(value);
}
template <class T> MJ_INLINE uint64_t mj_word(T *value) {
    return reinterpret_cast<uint64_t>(value);
}
MJ_INLINE uint64_t mj_word(decltype(nullptr)) { return 0; }
MJ_INLINE uint64_t mj_word(double value) {
    uint64_t word = 0;

    __builtin_memcpy(&word, &value, sizeof word);
    return word;
}
MJ_INLINE uint64_t mj_word(float value) { return mj_word(static_cast<double>(value)); }
#define MJ_WORD(arg) mj_word(arg)
#else
MJ_INLINE uint64_t mj_word(double value) {
    uint64_t word;

    __builtin_memcpy(&word, &value, sizeof word);
    return word;
}
/* Only one of the two is evaluated, but both must compile for any argument. */
#define MJ_WORD(arg)                                                                               \
    __builtin_choose_expr(MJ_TYPE(arg) >> 4 == MJ_CLASS_FLOAT,                                     \
                          mj_word((double)_Generic((arg), float                                    \
                                                   : (arg), double                                 \
                                                   : (arg), default : 0.0)),                       \
                          (uint64_t)MJ_UNCONVERTED(arg))
#define MJ_UNCONVERTED(arg)                                                                        \
    __extension__({                                                                                \
        __typeof__(1 ? (arg) : (arg)) mj_unconverted_ = (arg);                                     \
        MJ_CONVERT_HERE(mj_unconverted_);                                                          \
        mj_unconverted_;                                                                           \
    })
#endif

/*
 * The slot's address is taken by asm, because a declaration with an asm label is not honoured in
 * templates. volatile keeps the compiler from computing it ahead of the marker. The address is
 * looked up again where it is needed after the arguments, so that no register is kept for it.
 */
#define MJ_LOOK_UP(slot, name) __asm__ __volatile__("lea " MJ_SLOT(name) "(%%rip), %0" : "=r"(slot))

/*
 * gcc moves blocks that are never executed out of their function, to .text.unlikely. It takes a
 * block for one of those if the block begins with a call of a cold function when the profile is
 * estimated. A body is such a block, so thousands of markers do not enlarge the code that is
 * executed. The call is removed in the end, because its result is used only if `probe` is a
 * constant, which it never is (mj_callee).
 */
#if defined(__OPTIMIZE__) && !defined(__clang__)
__attribute__((cold, const, noinline, unused, no_instrument_function)) static uintptr_t
mj_never_executed(void) {
    return 0;
}
#define MJ_NEVER_EXECUTED mj_never_executed()
#else
#define MJ_NEVER_EXECUTED 0
#endif

/* The function to call now: the probe, or the adapter if the probe is a C function. NULL if there
   is nothing to call, and then the arguments are not evaluated. */
MJ_INLINE mj_adapter_fn *mj_callee(const struct mj_slot *slot, uintptr_t never_executed) {
    uintptr_t probe = MJ_CAST(uintptr_t, __atomic_load_n(&slot->probe, __ATOMIC_ACQUIRE));

    if (__builtin_constant_p(probe))
        probe |= never_executed;
    return probe & MJ_PROBE_COUNTED ? __atomic_load_n(&slot->adapter, __ATOMIC_RELAXED)
                                    : MJ_CAST(mj_adapter_fn *, probe);
}

/*
 * The call of the probe changes no register and no stack of the function. So the function saves
 * nothing for it and needs no frame, and a marker that is off costs only its site.
 * docs/decisions/0024-a-preserving-call.md; abi.h describes the words that the callee finds.
 *
 * The first instruction steps over the red zone, where the function may have its variables. From
 * then on an operand must not be memory, because its address may be relative to %rsp. Nor may it be
 * %rsp itself, which gcc uses for the address of a variable there ("r" includes it, "l" does not).
 * Up to six arguments are pushed from registers. More would leave too few registers to the
 * function, so they are stored in an array first.
 *
 * The clobber "memory" is there because a probe of the program's own may change its variables.
 */
#define MJ_CALL(name, ...)                                                                         \
    {                                                                                              \
        const uintptr_t mj_cold_ = MJ_NEVER_EXECUTED;                                              \
        struct mj_slot *mj_slot_;                                                                  \
        MJ_LOOK_UP(mj_slot_, name);                                                                \
        mj_adapter_fn *const mj_callee_ = mj_callee(mj_slot_, mj_cold_);                           \
        if (mj_callee_) {                                                                          \
            MJ_CAT(MJ_CALL_, MJ_COUNT(__VA_ARGS__))(name, __VA_ARGS__)                             \
        }                                                                                          \
    }
#define MJ_CALL_FEW(name, ...)                                                                     \
    __asm__ __volatile__ __inline__(                                                               \
        MJ_CALL_BEGIN MJ_CAT(MJ_PUSH_, MJ_COUNT(__VA_ARGS__)) MJ_CALL_END(name)                    \
        : [mj_slot] "=&r"(mj_slot_)                                                                \
        : MJ_CALL_OPERANDS(__VA_ARGS__) MJ_MAP(MJ_OPERAND, __VA_ARGS__)                            \
        : "cc", "memory");
#define MJ_CALL_MANY(name, ...)                                                                    \
    const uint64_t mj_words_[] = {MJ_MAP(MJ_ELEMENT, __VA_ARGS__)};                                \
    __asm__ __volatile__ __inline__(MJ_CALL_BEGIN MJ_CAT(MJ_COPY_, MJ_COUNT(__VA_ARGS__))          \
                                        MJ_CALL_END(name)                                          \
                                    : [mj_slot] "=&r"(mj_slot_)                                    \
                                    : MJ_CALL_OPERANDS(__VA_ARGS__), [mj_words] "l"(mj_words_)     \
                                    : "cc", "memory");
#define MJ_CALL_OPERANDS(...)                                                                      \
    [mj_callee] "l"(mj_callee_), [mj_shape] "i"(MJ_SHAPE(__VA_ARGS__)),                            \
        [mj_taken] "i"(MJ_COUNT(__VA_ARGS__) * 8 + 16)
#define MJ_OPERAND(index, arg) , [mj_word##index] "le"(MJ_WORD(arg))
#define MJ_ELEMENT(index, arg) MJ_WORD(arg),

#define MJ_CALL_BEGIN "lea -" MJ_STR(MJ_RED_ZONE) "(%%rsp), %%rsp\n"
#define MJ_CALL_END(name)                                                                          \
    "lea " MJ_SLOT(name) "(%%rip), %[mj_slot]\n"                                                   \
                         "pushq %[mj_slot]\n"                                                      \
                         "pushq %[mj_shape]\n"                                                     \
                         "call *%[mj_callee]\n"                                                    \
                         "lea " MJ_STR(MJ_RED_ZONE) " + %c[mj_taken](%%rsp), %%rsp\n"

#define MJ_CALL_0 MJ_CALL_FEW
#define MJ_CALL_1 MJ_CALL_FEW
#define MJ_CALL_2 MJ_CALL_FEW
#define MJ_CALL_3 MJ_CALL_FEW
#define MJ_CALL_4 MJ_CALL_FEW
#define MJ_CALL_5 MJ_CALL_FEW
#define MJ_CALL_6 MJ_CALL_FEW
#define MJ_CALL_7 MJ_CALL_MANY
#define MJ_CALL_8 MJ_CALL_MANY
#define MJ_CALL_9 MJ_CALL_MANY
#define MJ_CALL_10 MJ_CALL_MANY
#define MJ_CALL_11 MJ_CALL_MANY
#define MJ_CALL_12 MJ_CALL_MANY
#define MJ_CALL_13(name, ...) /* MJ_CHECK refuses it */

#define MJ_PUSH_0 ""
#define MJ_PUSH_1 "pushq %[mj_word0]\n"
#define MJ_PUSH_2 "pushq %[mj_word1]\n" MJ_PUSH_1
#define MJ_PUSH_3 "pushq %[mj_word2]\n" MJ_PUSH_2
#define MJ_PUSH_4 "pushq %[mj_word3]\n" MJ_PUSH_3
#define MJ_PUSH_5 "pushq %[mj_word4]\n" MJ_PUSH_4
#define MJ_PUSH_6 "pushq %[mj_word5]\n" MJ_PUSH_5
#define MJ_COPY_7                                                                                  \
    "pushq 48(%[mj_words])\n"                                                                      \
    "pushq 40(%[mj_words])\n"                                                                      \
    "pushq 32(%[mj_words])\n"                                                                      \
    "pushq 24(%[mj_words])\n"                                                                      \
    "pushq 16(%[mj_words])\n"                                                                      \
    "pushq 8(%[mj_words])\n"                                                                       \
    "pushq (%[mj_words])\n"
#define MJ_COPY_8 "pushq 56(%[mj_words])\n" MJ_COPY_7
#define MJ_COPY_9 "pushq 64(%[mj_words])\n" MJ_COPY_8
#define MJ_COPY_10 "pushq 72(%[mj_words])\n" MJ_COPY_9
#define MJ_COPY_11 "pushq 80(%[mj_words])\n" MJ_COPY_10
#define MJ_COPY_12 "pushq 88(%[mj_words])\n" MJ_COPY_11

/* ---- inline probes ---- */

MJ_INLINE int mj_selects_inline(const struct mj_slot *slot) {
    const uintptr_t probe = MJ_CAST(uintptr_t, __atomic_load_n(&slot->probe, __ATOMIC_SEQ_CST));

    return (probe & ~MJ_PROBE_COUNTED) == MJ_PROBE_INLINE;
}

/*
 * Whether the inline probe must run now. Such a call is always counted. The thread counts itself
 * first, and then loads the probe again: (A) the locked add before the second load pairs with (B)
 * the fence in marker_disable_probe, between its store of NULL and its reading of the counters.
 * Either the thread sees NULL, or marker_disable_probe sees the thread inside. (An adapter does the
 * same for a C function.)
 */
MJ_INLINE int mj_enter_inline(struct mj_slot *slot) {
    if (!mj_selects_inline(slot))
        return 0;
    __atomic_fetch_add(&slot->entered, 1, __ATOMIC_SEQ_CST); /* (A) */
    if (mj_selects_inline(slot))
        return 1;
    __atomic_fetch_add(&slot->left, 1, __ATOMIC_SEQ_CST);
    return 0;
}

#define MJ_BODY(name, inline_call, ...)                                                            \
    { inline_call MJ_CALL(name, __VA_ARGS__) }
#define MJ_INLINE_CALL(name, function, ...)                                                        \
    struct mj_slot *mj_inline_;                                                                    \
    MJ_LOOK_UP(mj_inline_, name);                                                                  \
    if (mj_enter_inline(mj_inline_)) {                                                             \
        function(MJ_MAP(MJ_LIST_ARG, __VA_ARGS__));                                                \
        MJ_LOOK_UP(mj_inline_, name);                                                              \
        __atomic_fetch_add(&mj_inline_->left, 1, __ATOMIC_SEQ_CST);                                \
    } else

/* ---- the kinds --------------------------------------------------------------------------------
 *
 * MJ_SITE(name, id, flags, inline_call, label, format, arguments...) for the kind of this file.
 */

#if MJ_KIND == MJ_KIND_jump || MJ_KIND == MJ_KIND_nop || MJ_KIND == MJ_KIND_symbol ||              \
    MJ_KIND == MJ_KIND_pointer

/*
 * The bytes from 990 to 991. A rel32 to the body is written as a relocation, so that no assembler
 * can choose another length.
 *
 * jump: a short jump over a jump to the body. It never crosses a cache line: if it would start on
 *       the last byte of one, a REX prefix without effect fills that byte. It is still one
 *       instruction then, and with a padding nop there would be two.
 * nop:  `test eax, imm32`, whose immediate is the displacement of the jump that it becomes when its
 *       first byte is patched. It writes only flags, which every asm clobbers.
 *       docs/decisions/0001-nop-is-test.md
 */
// clang-format off
#if MJ_KIND == MJ_KIND_jump
#define MJ_HOT(name)                                                                               \
    ".p2align 6, 0x40, 1\n"                                                                        \
    "990: .byte 0xeb, 0x05\n"                                                                      \
    ".byte 0xe9\n"                                                                                 \
    ".reloc ., R_X86_64_PC32, %l7-4\n"                                                             \
    ".long 0\n"                                                                                    \
    "991:\n"
#elif MJ_KIND == MJ_KIND_nop
#define MJ_HOT(name)                                                                               \
    "990: .byte 0xa9\n"                                                                            \
    ".reloc ., R_X86_64_PC32, %l7-4\n"                                                             \
    ".long 0\n"                                                                                    \
    "991:\n"
#elif MJ_KIND == MJ_KIND_symbol
#define MJ_HOT(name)                                                                               \
    "990: nop\n"                                                                                   \
    "991:\n"
#else
#define MJ_HOT(name)                                                                               \
    "990: cmpq $0, " MJ_SLOT(name) "(%%rip)\n"                                                     \
    "jne %l7\n"                                                                                    \
    "991:\n"
#endif
// clang-format on

#define MJ_GOTO(name, flags, label, ...)                                                           \
    __asm__ __inline__ goto(MJ_HOT(name) MJ_ASM_NOTE(name, "990b", "%l7-.", MJ_SLOT(name) "-.")    \
                                MJ_ASM_STAPSDT(name) MJ_ASM_SLOT(MJ_SLOT(name))                    \
                            : /* no outputs */                                                     \
                            : MJ_OPERANDS((flags) | MJ_FLAG_BLOCK, __VA_ARGS__)                    \
                            : "cc"                                                                 \
                            : label)

#if defined(__clang__) && __clang_major__ < 18 && defined(__cplusplus)
/* These clangs treat every label of a function as a target of each asm goto in it, and report an
   error if an object is constructed between two markers. In a lambda each asm goto is alone. */
#define MJ_SITE(name, id, flags, inline_call, label, ...)                                          \
    do {                                                                                           \
        MJ_DESCRIBE(id, __VA_ARGS__)                                                               \
        const bool mj_on_ = [&]() __attribute__((always_inline))->bool {                           \
            MJ_GOTO(name, flags, label, __VA_ARGS__);                                              \
            return false;                                                                          \
        label:                                                                                     \
            return true;                                                                           \
        }                                                                                          \
        ();                                                                                        \
        if (__builtin_expect(mj_on_, 0))                                                           \
            MJ_BODY(name, inline_call, __VA_ARGS__)                                                \
    } while (0)
#else
/* From -O2 on, gcc moves the body out of the way. At -O1 and -Os its simple order of blocks never
   moves the block behind an asm goto. There the body may follow its site, and the dormant path
   jumps once more, over the body. -freorder-blocks-algorithm=stc avoids that at -O1. No option is
   known that avoids it at -Os. */
#define MJ_SITE(name, id, flags, inline_call, label, ...)                                          \
    do {                                                                                           \
        MJ_DESCRIBE(id, __VA_ARGS__)                                                               \
        MJ_GOTO(name, flags, label, __VA_ARGS__);                                                  \
        if (0) {                                                                                   \
        label:                                                                                     \
            MJ_COLD                                                                                \
            MJ_BODY(name, inline_call, __VA_ARGS__)                                                \
        }                                                                                          \
    } while (0)
#endif

#elif MJ_KIND == MJ_KIND_immediate

/* The compiler chooses register, test and branch; the site is the immediate byte before 991. */
#define MJ_SITE(name, id, flags, inline_call, label, ...)                                          \
    do {                                                                                           \
        uint8_t mj_on_;                                                                            \
        MJ_DESCRIBE(id, __VA_ARGS__)                                                               \
        __asm__ __volatile__ __inline__(                                                           \
            "movb $0, %b[mj_on]\n"                                                                 \
            "991:\n" MJ_ASM_NOTE(name, "991b-1", "0", MJ_SLOT(name) "-.")                          \
                MJ_ASM_SLOT(MJ_SLOT(name))                                                         \
            : [mj_on] "=q"(mj_on_)                                                                 \
            : MJ_OPERANDS((flags) | MJ_FLAG_BLOCK, __VA_ARGS__));                                  \
        if (__builtin_expect(mj_on_, 0))                                                           \
            MJ_BODY(name, inline_call, __VA_ARGS__)                                                \
    } while (0)

#elif MJ_KIND == MJ_KIND_sentinel

/* The function that a dormant site calls. The assembler names it, so C++ must not mangle it. */
MJ_EXTERN __attribute__((weak, used, noinline, visibility("hidden"))) void
mj_sentinel(struct mj_slot *slot, ...);
void mj_sentinel(struct mj_slot *slot, ...) { __asm__ __volatile__("" : : "r"(slot)); }

#define MJ_SENTINEL_HOT(name) "990: lea " MJ_SENTINEL_SLOT(name) "(%%rip), %[mj_slot]\n991:\n"
#define MJ_SITE(name, id, flags, inline_call, label, ...)                                          \
    do {                                                                                           \
        struct mj_slot *mj_slot_;                                                                  \
        MJ_DESCRIBE(id, __VA_ARGS__)                                                               \
        __asm__ __volatile__ __inline__(                                                           \
            MJ_SENTINEL_HOT(name)                                                                  \
                MJ_ASM_NOTE(name, "990b", "mj_sentinel-.", MJ_SENTINEL_SLOT(name) "-.")            \
                    MJ_ASM_ANY_SLOT(MJ_SENTINEL_SLOT(name), MJ_STR(MJ_SLOT_SIZE_OF_C),             \
                                    "mj_sentinel, 0, 0, 0")                                        \
            : [mj_slot] "=r"(mj_slot_)                                                             \
            : MJ_OPERANDS(0, __VA_ARGS__));                                                        \
        mj_probe_fn *const mj_call_ = __atomic_load_n(&mj_slot_->probe, __ATOMIC_ACQUIRE);         \
        mj_call_(mj_slot_ MJ_MAP(MJ_COMMA_ARG, __VA_ARGS__));                                      \
    } while (0)

#elif MJ_KIND == MJ_KIND_direct

/* -DMJ_DIRECT_PROBE=function names another function with the signature of a probe. */
#ifndef MJ_DIRECT_PROBE
#define MJ_DIRECT_PROBE mj_direct_probe
MJ_EXTERN __attribute__((weak, noinline, visibility("hidden"))) void
mj_direct_probe(struct mj_slot *slot, ...);
void mj_direct_probe(struct mj_slot *slot, ...) { __asm__ __volatile__("" : : "r"(slot)); }
#endif
#define MJ_SITE(name, id, flags, inline_call, label, ...)                                          \
    do {                                                                                           \
        MJ_DESCRIBE(id, __VA_ARGS__)                                                               \
        __asm__ __volatile__ __inline__("990: 991:\n" MJ_ASM_NOTE(name, "990b", "0", "0")          \
                                        : /* no outputs */                                         \
                                        : MJ_OPERANDS(0, __VA_ARGS__));                            \
        MJ_DIRECT_PROBE(MJ_NO_SLOT MJ_MAP(MJ_COMMA_ARG, __VA_ARGS__));                             \
    } while (0)

#else /* none: the format is still checked, and nothing is emitted */

#define MJ_SITE(name, id, flags, inline_call, label, ...)                                          \
    do {                                                                                           \
        MJ_CHECK(id, __VA_ARGS__)                                                                  \
    } while (0)

#endif

/* ---- the two macros ------------------------------------------------------------------------ */

/* A new label for each use. The macros below make the name a string before anything can expand it.
 */
#define MJ_LABEL MJ_CAT(mj_body_, __COUNTER__)

/* MARK(name, "format", arguments...): a marker for call probes. */
#define MARK(name, ...)                                                                            \
    MJ_SITE(#name, name##_is_a_marker, 0, /* no inline probe */, MJ_LABEL, __VA_ARGS__)

/* MARK_INLINE(name, function, "format", arguments...): also holds `function(arguments...)`,
   compiled in place, as its inline probe. */
#define MARK_INLINE(name, function, ...)                                                           \
    do {                                                                                           \
        if (0)                                                                                     \
            function(MJ_MAP(MJ_LIST_ARG, __VA_ARGS__));                                            \
        MJ_SITE(#name, name##_is_a_marker, MJ_FLAG_INLINE,                                         \
                MJ_INLINE_CALL(#name, function, __VA_ARGS__), MJ_LABEL, __VA_ARGS__);              \
    } while (0)

#endif

/* SPDX-License-Identifier: MIT */
/*
 * hooks.h: hooks of a function, as compilers and other tools put them there, for markerjit bench.
 *
 *     BENCH_HOOK     none: only another tool's, if any
 *                    push: the same, and the function begins with a push
 *                    cyg: gcc's -finstrument-functions
 *                    fentry: gcc's -pg -mfentry
 *                    xray: clang's -fxray-instrument, patched before main if it has any work
 *                    called: functions for a tool that calls them, bench_entered and bench_left
 *     BENCH_EVENTS   a hook's work: 0 nothing, 1 a marker at the entry, 2 one at the exit, too
 *     BENCH_MARKER   the name of the marker; that of the exit has `_exit` behind it
 *
 * A marker that is traced is the recorder of markerjit. So all hooks have the same one, and the
 * difference between them is how a program comes to it. Its two fields are what the hook is given:
 * the two arguments (fentry, called), the function and its caller (cyg), or the number of the
 * function (xray).
 */
#include <stdint.h>

#define UNHOOKED __attribute__((no_instrument_function))
#define HOOKED
#define BODY
#define IS_HOOK_none 0
#define IS_HOOK_push 5
#define IS_HOOK_cyg 1
#define IS_HOOK_fentry 2
#define IS_HOOK_xray 3
#define IS_HOOK_called 4
#define IS_HOOK CAT(IS_HOOK_, BENCH_HOOK)

#if BENCH_EVENTS > 0
#include <markerjit/marker.h>
#define MARKED(name, a, b) MARK(name, "a %lu b %lu", a, b)
#define ENTERED(a, b) MARKED(BENCH_MARKER, a, b)
#else
#define ENTERED(a, b) ((void)(a), (void)(b))
#endif
#if BENCH_EVENTS > 1
#define LEFT(a, b) MARKED(CAT(BENCH_MARKER, _exit), a, b)
#else
#define LEFT(a, b) ((void)(a), (void)(b))
#endif

#if IS_HOOK == IS_HOOK_push

#undef BODY
#define BODY __asm__ volatile("" : : : "rbx")

#elif IS_HOOK == IS_HOOK_cyg

/* Hidden, or those of libc would be called, which do nothing; and as if they were of another file.
 */
#define CYG UNHOOKED __attribute__((visibility("hidden"), noinline, noipa))
CYG void __cyg_profile_func_enter(void *function, void *caller);
CYG void __cyg_profile_func_exit(void *function, void *caller);

void __cyg_profile_func_enter(void *function, void *caller) {
    ENTERED((uint64_t)function, (uint64_t)caller);
}

void __cyg_profile_func_exit(void *function, void *caller) {
    LEFT((uint64_t)function, (uint64_t)caller);
}

#elif IS_HOOK == IS_HOOK_fentry

/* The least that such a handler does: it saves the registers that may hold arguments. */
__asm__(".text\n"
        ".globl __fentry__\n"
        ".hidden __fentry__\n"
        ".type __fentry__, @function\n"
        "__fentry__:\n\t"
        "push %rax\n\tpush %rcx\n\tpush %rdx\n\tpush %rsi\n\t"
        "push %rdi\n\tpush %r8\n\tpush %r9\n\t"
        "sub $8, %rsp\n\t"
        "call bench_fentry\n\t"
        "add $8, %rsp\n\t"
        "pop %r9\n\tpop %r8\n\tpop %rdi\n\t"
        "pop %rsi\n\tpop %rdx\n\tpop %rcx\n\tpop %rax\n\t"
        "ret\n"
        ".size __fentry__, . - __fentry__\n");

#define FENTRY UNHOOKED __attribute__((used, visibility("hidden")))
FENTRY void bench_fentry(uint64_t a, uint64_t b);

void bench_fentry(uint64_t a, uint64_t b) { ENTERED(a, b); }

#elif IS_HOOK == IS_HOOK_xray

#undef HOOKED
#define HOOKED __attribute__((xray_always_instrument))

#if BENCH_EVENTS > 0
/* Of xray/xray_interface.h, which is for C++. */
extern int __xray_set_handler(void (*handler)(int32_t function, int type));
extern int __xray_patch(void);

static void handle(int32_t function, int type) {
    if (type == 0)
        ENTERED((uint64_t)function, 0UL);
    else
        LEFT((uint64_t)function, 0UL);
}

/* There is one handler in a process: that of the object that was linked last. */
__attribute__((constructor)) static void patch(void) {
    __xray_set_handler(handle);
    __xray_patch();
}
#endif

#elif IS_HOOK == IS_HOOK_called

#define CALLED __attribute__((visibility("default")))
CALLED void bench_entered(uint64_t a, uint64_t b);
CALLED void bench_left(uint64_t value);

void bench_entered(uint64_t a, uint64_t b) { ENTERED(a, b); }

void bench_left(uint64_t value) { LEFT(value, 0UL); }

#endif

/* SPDX-License-Identifier: MIT */
/*
 * frames: threads that signal handlers keep from going on inside a span.
 *
 *     frames KIND [DEPTH]
 *
 *     plain      the handler runs on the stack that it interrupts
 *     restorer   and returns by a restorer of the program's own
 *     alternate  it runs on an alternate stack, in .bss
 *     local      the alternate stack is an array on the same stack
 *     coroutine  what is interrupted has its stack on the heap
 *     pieces     the stack is of two mappings, one above the other; with a DEPTH of 48 KiB both
 *                are in use
 *     nested     the handler is interrupted by another, on the same stack
 *     above      and the other runs on an alternate stack
 *     below      and the first one runs on it already
 *     thread     plain, in a thread that is not the first
 *     call       no handler: the span ends with a system call that is waited in
 *     uring      no handler: a thread of the kernel is in the process, which has no stack
 *     huge       no handler: the stack is the start of 300 MiB
 *     lost       no handler: the stack pointer is no address, for good
 *
 * Prints `ready span=ADDRESS call=ADDRESS tid=TID` when the thread waits there, with DEPTH bytes of
 * stack in use. A byte on standard input ends the wait, the thread goes on, and `out` is printed.
 * At the next byte the span is executed once more and the program ends.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define STACK_BYTES (256 * 1024)
#define COROUTINE_BYTES (64 * 1024)
#define HUGE_BYTES (300ul << 20)
#define SA_RESTORER 0x04000000

/* ud2 raises SIGILL, whose frame says that the thread goes on at ud2. */
extern const char a_span[], a_restorer[];
extern void a_loop_without_stack(void);
extern long a_call(int fd, void *byte, long size);
__asm__(".text\n.balign 64\n"
        "a_span: nop; nop; ud2; ret\n"
        "a_call: mov $0, %eax; syscall; ret\n" /* read */
        "a_restorer: mov $15, %eax; syscall\n"
        "a_loop_without_stack: mov $16, %esp; 1: pause; jmp 1b\n");

static const char *kind;
static size_t depth;
static char alternate[STACK_BYTES];

static int is(const char *name) { return strcmp(kind, name) == 0; }

static void say_ready(void) {
    printf("ready span=%lu call=%lu tid=%d\n", (long)a_span, (long)a_call, gettid());
}

static void wait_for_byte(void) {
    volatile char *used = alloca(depth + 1);
    char byte;

    used[0] = 0;
    say_ready();
    if (read(0, &byte, 1) != 1)
        exit(1);
    used[depth] = 0;
}

static void on_second(int number) {
    (void)number;
    wait_for_byte();
}

static void on_span(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    if (is("nested") || is("above") || is("below"))
        raise(SIGUSR1);
    else
        wait_for_byte();
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2; /* behind ud2 */
}

static void handle(void) {
    const int on_stack = is("alternate") || is("local") || is("coroutine") || is("below");
    struct sigaction action = {.sa_sigaction = on_span,
                               .sa_flags = SA_SIGINFO | (on_stack ? SA_ONSTACK : 0)};
    struct sigaction second = {.sa_handler = on_second, .sa_flags = is("above") ? SA_ONSTACK : 0};
    const struct { /* as the kernel has it */
        void (*handler)(int number, siginfo_t *info, void *context);
        unsigned long flags;
        const char *restorer;
        unsigned long mask;
    } own = {on_span, SA_SIGINFO | SA_RESTORER, a_restorer, 0};

    sigaction(SIGILL, &action, NULL);
    sigaction(SIGUSR1, &second, NULL);
    if (is("restorer"))
        syscall(SYS_rt_sigaction, SIGILL, &own, NULL, sizeof own.mask);
}

static void use_stack(char *memory) {
    sigaltstack(&(stack_t){.ss_sp = memory, .ss_size = STACK_BYTES}, NULL);
}

static void execute(void) {
    char byte;

    if (is("call"))
        a_call(0, &byte, 1);
    else if (is("uring") || is("huge"))
        wait_for_byte();
    else if (is("lost"))
        a_loop_without_stack();
    else
        ((void (*)(void))a_span)();
}

static void *execute_in_thread(void *unused) {
    execute();
    return unused;
}

static void execute_in_coroutine(char *stack) {
    static ucontext_t here, there;

    getcontext(&there);
    there.uc_stack = (stack_t){.ss_sp = stack, .ss_size = COROUTINE_BYTES};
    there.uc_link = &here;
    makecontext(&there, execute, 0);
    swapcontext(&here, &there);
}

static char *map_pieces(void) {
    char *stack =
        mmap(NULL, COROUTINE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    mprotect(stack + COROUTINE_BYTES / 2, COROUTINE_BYTES / 2, PROT_READ | PROT_WRITE | PROT_EXEC);
    return stack;
}

/* With a thread of the kernel that looks for work; without one where io_uring is not allowed. */
static void make_uring(void) {
    struct io_uring_params wanted = {.flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 1};

    syscall(SYS_io_uring_setup, 8, &wanted);
}

static void execute_as_wanted(void) {
    pthread_t thread;

    if (is("coroutine"))
        execute_in_coroutine(malloc(COROUTINE_BYTES));
    else if (is("pieces"))
        execute_in_coroutine(map_pieces());
    else if (is("huge"))
        execute_in_coroutine(mmap(NULL, HUGE_BYTES, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    else if (is("thread")) {
        pthread_create(&thread, NULL, execute_in_thread, NULL);
        pthread_join(thread, NULL);
    } else
        execute();
}

int main(int argc, char **argv) {
    char local[STACK_BYTES];
    char byte;

    kind = argc > 1 ? argv[1] : "";
    depth = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    use_stack(is("local") ? local : alternate);
    handle();
    if (is("call") || is("lost"))
        say_ready();
    if (is("uring"))
        make_uring();
    execute_as_wanted();
    puts("out");
    if (read(0, &byte, 1) == 1)
        ((void (*)(void))a_span)();
    return 0;
}

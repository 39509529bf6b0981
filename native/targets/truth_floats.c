/* SPDX-License-Identifier: MIT */
/*
 * truth_floats: threads that notice if any part of their state is not given back.
 *
 *     truth_floats [FIRST [--alarm]]
 *
 *     floats_turn   "n %lu": once in each turn of a computing thread, at one of eight sites
 *     floats_burst  "n %lu": `burst N` passes it N times
 *
 * One thread of each kind: `floats` computes, the others wait in the kernel (epoll, nanosleep,
 * futex, read, sigtimedwait, ppoll). Each does it with a known pattern in every register, the
 * vector registers and the 128 bytes below its stack pointer included, and with a signal mask and
 * rounding mode of its own, and looks afterwards. FIRST is the kind of the process's first thread,
 * which is the one that is borrowed. With `--alarm` it gets a signal every 0.7 ms, whose handler
 * uses some stack; that is for the kinds that a handler does not interrupt: floats, futex, read.
 *
 * Every wait but nanosleep ends only when another thread wakes it, once for each round: a thread
 * that loses a wakeup makes no more rounds. Commands: counts, pause, resume, still, wake, burst N,
 * chain, trap, quit. `pause` answers when the computing thread stands still; after `still` no
 * thread is woken until `wake`. The program handles SIGTRAP from the start; `chain` installs
 * another handler, which passes on to the one that it replaces, and `trap` raises the signal. All
 * are answered by
 *
 *     counts turns=N burst=N registers=N masks=N eintr=N odd=N traps=N floats=N ...
 *
 * in which `registers` to `odd` count what should not have happened, `traps` those signals that
 * came to the first handler, and what follows are rounds.
 */
#define _GNU_SOURCE 1
#include <linux/futex.h>
#include <markerjit/marker.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

#include "truth.h"

/* ---- a call with every register known ------------------------------------------------------ */

enum { VECTORS = 32, VECTOR_SIZE = 64, RED_ZONE_WORDS = 16, KEPT = 6, ARGS = 6 };

struct image {
    uint8_t vectors[VECTORS * VECTOR_SIZE];
    uint64_t kept[KEPT];
    uint64_t red_zone[RED_ZONE_WORDS];
    uint64_t args[ARGS];
    int64_t result;
};
_Static_assert(offsetof(struct image, kept) == 2048, "hold's layout");
_Static_assert(offsetof(struct image, red_zone) == 2096, "hold's layout");
_Static_assert(offsetof(struct image, args) == 2224, "hold's layout");
_Static_assert(offsetof(struct image, result) == 2272, "hold's layout");

/* A system call, or, with turns, a loop. */
struct call {
    uint64_t number;
    uint64_t args[ARGS];
    uint64_t turns;
};

#define SIXTEEN "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"
#define THIRTY_TWO SIXTEEN ",16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31"

/* hold_SIZE(in, out, call): loads what `in` has, makes the call, stores what is there then. For
   nanosleep (35) with the number in the code, as libc has it. */
#define HOLD(SIZE, MOVE, REGISTER, LIST, CLEAN)                                                    \
    void hold_##SIZE(const struct image *in, struct image *out, const struct call *call);          \
    __asm__(".text\n.p2align 4\n"                                                                  \
            "hold_" #SIZE ":\n"                                                                    \
            "  push %rbx\n  push %rbp\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"       \
            "  push %rdi\n  push %rsi\n"                                                           \
            "  .irp n," LIST "\n  " MOVE " 64*\\n(%rdi), %" REGISTER "\\n\n  .endr\n"              \
            "  .irp n," SIXTEEN "\n"                                                               \
            "  mov 2096+8*\\n(%rdi), %rax\n  mov %rax, -128+8*\\n(%rsp)\n  .endr\n"                \
            "  mov 2048(%rdi), %rbx\n  mov 2056(%rdi), %rbp\n  mov 2064(%rdi), %r12\n"             \
            "  mov 2072(%rdi), %r13\n  mov 2080(%rdi), %r14\n  mov 2088(%rdi), %r15\n"             \
            "  mov 56(%rdx), %rcx\n  mov (%rdx), %rax\n  mov 8(%rdx), %rdi\n"                      \
            "  mov 16(%rdx), %rsi\n  mov 32(%rdx), %r10\n  mov 40(%rdx), %r8\n"                    \
            "  mov 48(%rdx), %r9\n  mov 24(%rdx), %rdx\n"                                          \
            "  test %rcx, %rcx\n  jnz 1f\n  cmp $35, %rax\n  je 3f\n  syscall\n  jmp 2f\n"         \
            "3: mov $35, %eax\n  syscall\n  jmp 2f\n"                                              \
            "1: dec %rcx\n  jnz 1b\n"                                                              \
            "2: mov (%rsp), %rcx\n  mov %rax, 2272(%rcx)\n"                                        \
            "  mov %rdi, 2224(%rcx)\n  mov %rsi, 2232(%rcx)\n  mov %rdx, 2240(%rcx)\n"             \
            "  mov %r10, 2248(%rcx)\n  mov %r8, 2256(%rcx)\n  mov %r9, 2264(%rcx)\n"               \
            "  mov %rbx, 2048(%rcx)\n  mov %rbp, 2056(%rcx)\n  mov %r12, 2064(%rcx)\n"             \
            "  mov %r13, 2072(%rcx)\n  mov %r14, 2080(%rcx)\n  mov %r15, 2088(%rcx)\n"             \
            "  .irp n," SIXTEEN "\n"                                                               \
            "  mov -128+8*\\n(%rsp), %rax\n  mov %rax, 2096+8*\\n(%rcx)\n  .endr\n"                \
            "  .irp n," LIST "\n  " MOVE " %" REGISTER "\\n, 64*\\n(%rcx)\n  .endr\n" CLEAN        \
            "  pop %rsi\n  pop %rdi\n  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n"             \
            "  pop %rbp\n  pop %rbx\n  ret\n")

HOLD(16, "movups", "xmm", SIXTEEN, "");
HOLD(32, "vmovups", "ymm", SIXTEEN, "  vzeroupper\n");
HOLD(64, "vmovups", "zmm", THIRTY_TWO, "  vzeroupper\n");

static void (*hold)(const struct image *, struct image *, const struct call *) = hold_16;
static unsigned vectors = 16, vector_size = 16;

static void choose_vectors(void) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) {
        hold = hold_64;
        vectors = 32;
        vector_size = 64;
    } else if (__builtin_cpu_supports("avx")) {
        hold = hold_32;
        vector_size = 32;
    }
}

static void fill(struct image *image, uint64_t seed) {
    uint64_t *words = (uint64_t *)image;

    for (size_t i = 0; i < offsetof(struct image, args) / sizeof *words; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        words[i] = seed;
    }
}

static bool same(const struct image *in, const struct image *out, const struct call *call) {
    for (unsigned i = 0; i < vectors; i++)
        if (memcmp(in->vectors + (size_t)i * VECTOR_SIZE, out->vectors + (size_t)i * VECTOR_SIZE,
                   vector_size))
            return false;
    return !memcmp(in->kept, out->kept, sizeof in->kept) &&
           !memcmp(in->red_zone, out->red_zone, sizeof in->red_zone) &&
           !memcmp(call->args, out->args, sizeof out->args);
}

/* ---- workers ------------------------------------------------------------------------------- */

/* Turns of the computing thread before it pauses: more where it is the first thread. */
enum { BUSY_TURNS = 32, IDLE_TURNS = 4 };
enum kind { FLOATS, EPOLL, NANOSLEEP, FUTEX, READ, SIGTIMEDWAIT, PPOLL, KINDS };
static const char *const names[KINDS] = {"floats", "epoll",        "nanosleep", "futex",
                                         "read",   "sigtimedwait", "ppoll"};

struct worker {
    enum kind kind;
    atomic_int tid;
    int fds[2]; /* what it waits on, and what wakes it */
    _Atomic uint32_t word;
    truth_count pings, rounds;
} __attribute__((aligned(64)));

static struct worker workers[KINDS];
static truth_count turns, bursts, registers, masks, eintr, odd, traps;
static struct truth_gate computing = TRUTH_GATE, waking = TRUTH_GATE;
static const struct worker *alarmed; /* NULL: none */

/* Four sites close together and four on pages of their own. */
#define PASS(I, ...)                                                                               \
    __attribute__((noinline, noclone, __VA_ARGS__)) static void pass_##I(unsigned long n) {        \
        MARK(floats_turn, "n %lu", n);                                                             \
    }
PASS(0, used)
PASS(1, used)
PASS(2, used)
PASS(3, used)
PASS(4, aligned(8192))
PASS(5, aligned(8192))
PASS(6, aligned(8192))
PASS(7, aligned(8192))
static void (*const passes[])(unsigned long) = {pass_0, pass_1, pass_2, pass_3,
                                                pass_4, pass_5, pass_6, pass_7};

/* One round of each kind. `storage` lives as long as the call. */
struct storage {
    struct epoll_event event;
    struct timespec time;
    struct pollfd poll;
    uint64_t set;
    char byte;
};

static struct call call_of(struct worker *self, struct storage *storage) {
    switch (self->kind) {
    case EPOLL:
        return (struct call){.number = SYS_epoll_wait,
                             .args = {self->fds[0], (uint64_t)&storage->event, 1, ~0ul, 5, 6}};
    case NANOSLEEP:
        storage->time = (struct timespec){.tv_nsec = 10000000}; /* longer than a borrowing */
        return (struct call){.number = SYS_nanosleep,
                             .args = {(uint64_t)&storage->time, 0, 3, 4, 5, 6}};
    case FUTEX:
        return (struct call){.number = SYS_futex,
                             .args = {(uint64_t)&self->word, FUTEX_WAIT_PRIVATE,
                                      (uint32_t)atomic_load(&self->rounds), 0, 0, 6}};
    case READ:
        return (struct call){.number = SYS_read,
                             .args = {self->fds[0], (uint64_t)&storage->byte, 1, 4, 5, 6}};
    case SIGTIMEDWAIT:
        storage->set = 1ul << (SIGRTMIN - 1);
        return (struct call){.number = SYS_rt_sigtimedwait,
                             .args = {(uint64_t)&storage->set, 0, 0, 8, 5, 6}};
    case PPOLL: /* with another mask for as long as it waits */
        storage->poll = (struct pollfd){.fd = self->fds[0], .events = POLLIN};
        storage->set = 1ul << (SIGRTMIN - 1) | 1ul << (SIGALRM - 1);
        return (struct call){
            .number = SYS_ppoll,
            .args = {(uint64_t)&storage->poll, 1, 0, (uint64_t)&storage->set, 8, 6}};
    default:
        return (struct call){.turns = 20000};
    }
}

/* Takes what woke it, so that the next wait waits. */
static void take(struct worker *self, int64_t result) {
    const int64_t wanted = self->kind == EPOLL || self->kind == READ || self->kind == PPOLL ? 1
                           : self->kind == SIGTIMEDWAIT ? SIGRTMIN
                                                        : 0;
    uint64_t taken;

    if (result == -EINTR)
        truth_add(&eintr);
    else if (self->kind != FLOATS && result != wanted &&
             !(self->kind == FUTEX && result == -EAGAIN))
        truth_add(&odd);
    if (result < 0)
        return;
    if (self->kind == EPOLL && read(self->fds[1], &taken, sizeof taken) < 0)
        truth_add(&odd);
    if (self->kind == PPOLL && read(self->fds[0], &taken, 1) < 0)
        truth_add(&odd);
}

/* A round is over when what the thread waited for has come, however often it had to wait. */
static bool is_over(const struct worker *self, int64_t result) {
    if (self->kind == FUTEX)
        return atomic_load(&self->word) != (uint32_t)atomic_load(&self->rounds);
    return result >= 0;
}

static unsigned read_rounding(void) {
    unsigned mxcsr;

    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
    return mxcsr >> 13 & 3;
}

static void write_rounding(unsigned mode) {
    unsigned mxcsr;

    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
    mxcsr = (mxcsr & ~(3u << 13)) | mode << 13;
    __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
}

/* With the thread's rounding mode, so that a lost one shows in the digits. */
static double compute(void) {
    volatile double sum = 0;

    for (int i = 1; i < 400; i++)
        sum += 1.0 / i;
    return sum;
}

static void on_alarm(int signal) {
    volatile uint8_t stack[2048];

    for (size_t i = 0; i < sizeof stack; i++)
        stack[i] = (uint8_t)signal;
}

static void start_alarm(void) {
    const struct itimerval often = {{0, 700}, {0, 700}};
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};

    if (sigaction(SIGALRM, &action, NULL) || setitimer(ITIMER_REAL, &often, NULL))
        _exit(3);
}

static void *work(void *argument) {
    struct worker *self = argument;
    const unsigned rounding = self->kind & 3;
    struct image in, out;
    sigset_t mask, now;

    sigemptyset(&mask);
    sigaddset(&mask, SIGRTMIN);
    sigaddset(&mask, SIGRTMIN + 1 + (int)self->kind);
    if (self != alarmed)
        sigaddset(&mask, SIGALRM);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    write_rounding(rounding);
    const double sum = compute();
    atomic_store(&self->tid, gettid());
    for (uint64_t n = 1;; n++) {
        struct storage storage;
        struct call call = call_of(self, &storage);

        if (self->kind == FLOATS)
            truth_pass(&computing);
        fill(&in, n << 8 | (self->kind + 1));
        memset(&out, 0, sizeof out);
        hold(&in, &out, &call);
        if (!same(&in, &out, &call) || read_rounding() != rounding || compute() != sum)
            truth_add(&registers);
        pthread_sigmask(SIG_SETMASK, NULL, &now);
        if (memcmp(&mask, &now, 8))
            truth_add(&masks);
        take(self, out.result);
        if (self->kind == FLOATS) {
            passes[n % 8](n);
            truth_add(&turns);
            if (n % (gettid() == getpid() ? BUSY_TURNS : IDLE_TURNS) == 0)
                nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
        if (is_over(self, out.result))
            truth_add(&self->rounds);
    }
    return NULL;
}

/* ---- waking them --------------------------------------------------------------------------- */

static void wake(struct worker *worker) {
    const uint64_t one = 1;
    long result = 0;

    switch (worker->kind) {
    case EPOLL:
        result = write(worker->fds[1], &one, sizeof one);
        break;
    case READ:
    case PPOLL:
        result = write(worker->fds[1], "x", 1);
        break;
    case FUTEX:
        atomic_fetch_add(&worker->word, 1);
        result = syscall(SYS_futex, &worker->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        break;
    case SIGTIMEDWAIT:
        result = syscall(SYS_tgkill, getpid(), atomic_load(&worker->tid), SIGRTMIN);
        break;
    default:
        break;
    }
    if (result < 0)
        truth_add(&odd);
}

static void *wake_all(void *argument) {
    (void)argument;
    for (;;) {
        truth_pass(&waking);
        for (int i = 0; i < KINDS; i++)
            if (atomic_load(&workers[i].tid) &&
                atomic_load(&workers[i].pings) == atomic_load(&workers[i].rounds)) {
                truth_add(&workers[i].pings);
                wake(&workers[i]);
            }
        if (nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL))
            truth_add(&eintr);
    }
    return NULL;
}

static void open_channels(struct worker *worker) {
    if (worker->kind == EPOLL) {
        struct epoll_event event = {.events = EPOLLIN};

        worker->fds[0] = epoll_create1(0);
        worker->fds[1] = eventfd(0, 0);
        if (epoll_ctl(worker->fds[0], EPOLL_CTL_ADD, worker->fds[1], &event))
            _exit(3);
    } else if (pipe(worker->fds)) {
        _exit(3);
    }
}

/* ---- traps --------------------------------------------------------------------------------- */

static struct sigaction replaced;

static void on_trap(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    truth_add(info->si_code <= 0 ? &traps : &odd); /* sent; any other is not the program's own */
}

static void pass_on(int signal, siginfo_t *info, void *context) {
    replaced.sa_sigaction(signal, info, context);
}

static void handle_traps(void (*handler)(int, siginfo_t *, void *)) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};

    if (sigaction(SIGTRAP, &action, &replaced))
        _exit(3);
}

/* ---- commands ------------------------------------------------------------------------------ */

static void burst(long times) {
    for (; times > 0; times--) {
        truth_add(&bursts);
        MARK(floats_burst, "n %lu", atomic_load(&bursts));
    }
}

static void say_counts(void) {
    char rounds[256];
    int used = 0;

    for (int i = 0; i < KINDS; i++)
        used += snprintf(rounds + used, sizeof rounds - (size_t)used, " %s=%lu", names[i],
                         atomic_load(&workers[i].rounds));
    truth_say("counts turns=%lu burst=%lu registers=%lu masks=%lu eintr=%lu odd=%lu traps=%lu%s",
              atomic_load(&turns), atomic_load(&bursts), atomic_load(&registers),
              atomic_load(&masks), atomic_load(&eintr), atomic_load(&odd), atomic_load(&traps),
              rounds);
}

static void *serve(void *argument) {
    char line[64];
    const char *rest;

    (void)argument;
    for (int i = 0; i < KINDS; i++)
        while (!atomic_load(&workers[i].rounds))
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    truth_ready();
    while (truth_next(line, sizeof line)) {
        if (truth_is(line, "pause"))
            truth_close(&computing, 1);
        else if (truth_is(line, "resume"))
            truth_open(&computing);
        else if (truth_is(line, "still"))
            truth_close(&waking, 1);
        else if (truth_is(line, "wake"))
            truth_open(&waking);
        else if ((rest = truth_is(line, "burst")))
            burst(truth_number(rest, 1));
        else if (truth_is(line, "chain"))
            handle_traps(pass_on);
        else if (truth_is(line, "trap"))
            raise(SIGTRAP);
        say_counts();
    }
    exit(0);
}

int main(int argc, char **argv) {
    int first = FLOATS;
    sigset_t blocked;

    for (int i = 0; argc > 1 && i < KINDS; i++)
        if (!strcmp(argv[1], names[i]))
            first = i;
    if (argc > 2 && !strcmp(argv[2], "--alarm")) {
        alarmed = &workers[first];
        start_alarm();
    }
    handle_traps(on_trap);
    choose_vectors();
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGRTMIN);
    sigaddset(&blocked, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    for (int i = 0; i < KINDS; i++) {
        workers[i].kind = (enum kind)i;
        open_channels(&workers[i]);
        if (i != first)
            truth_start(work, &workers[i]);
    }
    truth_start(wake_all, NULL);
    truth_start(serve, NULL);
    work(&workers[first]);
    return 0;
}

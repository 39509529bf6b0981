/*
 * calls.c: calls of a probe that Python is too slow for, or cannot be interrupted in.
 *
 * A call can be interrupted before a given instruction of the recorder: its first byte becomes an
 * int3, and the handler puts it back, does what was asked for, and goes on with the instruction.
 * So a thread comes there at full speed, as it has to in a restartable sequence. There the kernel
 * has sent it to the abort handler before the signal handler runs.
 */
#define _GNU_SOURCE
#include <markerjit/abi.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define TRAP_FLAG 0x100
#define INT3 0xcc

enum { RECORD, FORK, FORK_LATE, DIE, CHANGE_DATA };

/*
 * A preserving call, as a marker's body makes it, with values in all general registers and in all
 * vector registers, of which those with AVX have an upper half. 0: all of them, the stack pointer
 * and the red zone came back as they were.
 */
__attribute__((visibility("hidden"))) int with_avx;
int call_block(struct mj_slot *slot, uint64_t shape, const uint64_t *words);
#define EACH_VECTOR(X)                                                                             \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define SET(n) "movq %rbx, %xmm" #n "; punpcklqdq %xmm" #n ", %xmm" #n "\n"
#define CHECK(n)                                                                                   \
    "movq %xmm" #n ", %rax; cmp %rbx, %rax; jne 9f; psrldq $8, %xmm" #n "; movq %xmm" #n           \
    ", %rax; cmp %rbx, %rax; jne 9f\n"
#define SET_UPPER(n) "vinsertf128 $1, %xmm" #n ", %ymm" #n ", %ymm" #n "\n"
#define CHECK_UPPER(n)                                                                             \
    "vextractf128 $1, %ymm" #n ", %xmm" #n "\n"                                                    \
    "vmovq %xmm" #n ", %rax; cmp %rbx, %rax; jne 9f\n"                                             \
    "vpsrldq $8, %xmm" #n ", %xmm" #n "; vmovq %xmm" #n ", %rax; cmp %rbx, %rax; jne 9f\n"
__asm__(
    ".text\n"
    ".globl call_block\n"
    "call_block:\n"
    "push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
    "movzbl %sil, %ecx\n"
    "lea 8(, %rcx, 8), %rax\n"
    "push %rax\n" /* bytes below: words, and one to align in turns */
    "mov %rsp, %rbx\n"
    "mov $0x5a5a5a5a, %eax\n"
    "mov %rax, -8(%rsp); mov %rax, -128(%rsp)\n" /* the red zone of the marked function */
    "lea -128(%rsp), %rsp\n"
    "1: test %ecx, %ecx; jz 2f; dec %ecx; push (%rdx, %rcx, 8); jmp 1b\n"
    "2: push %rdi; push %rsi\n"
    "mov (%rdi), %rbp; test $1, %bpl; cmovnz 32(%rdi), %rbp\n"
    "mov $1, %eax; mov $2, %ecx; mov $3, %edx; mov $4, %esi; mov $5, %edi; mov $6, %r8d\n"
    "mov $7, %r9d; mov $8, %r10d; mov $9, %r11d; mov $10, %r12d; mov $11, %r13d\n"
    "mov $12, %r14d; mov $13, %r15d\n"
    /* clang-format off */
    EACH_VECTOR(SET)
    "cmpl $0, with_avx(%rip); je 3f\n"
    EACH_VECTOR(SET_UPPER)
    "3: call *%rbp\n"
    "cmp $1, %rax; jne 9f; cmp $2, %rcx; jne 9f; cmp $3, %rdx; jne 9f; cmp $4, %rsi; jne 9f\n"
    "cmp $5, %rdi; jne 9f; cmp $6, %r8; jne 9f; cmp $7, %r9; jne 9f; cmp $8, %r10; jne 9f\n"
    "cmp $9, %r11; jne 9f; cmp $10, %r12; jne 9f; cmp $11, %r13; jne 9f; cmp $12, %r14; jne 9f\n"
    "cmp $13, %r15; jne 9f\n"
    EACH_VECTOR(CHECK)
    "cmpl $0, with_avx(%rip); je 4f\n"
    EACH_VECTOR(CHECK_UPPER)
    "4: mov (%rbx), %rax; lea 128 + 8(%rsp, %rax), %rax; cmp %rbx, %rax; jne 9f\n"
    "cmpq $0x5a5a5a5a, -8(%rbx); jne 9f; cmpq $0x5a5a5a5a, -128(%rbx); jne 9f\n"
    "xor %eax, %eax; jmp 8f\n"
    "9: mov $1, %eax\n"
    "8: cmpl $0, with_avx(%rip); je 5f; vzeroupper\n"
    "5: lea 8(%rbx), %rsp\n"
    "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
    "ret\n");
/* clang-format on */

/* A body that comes late: it has loaded an adapter that the slot had before. */
void call_stale(struct mj_slot *slot, uint64_t adapter) {
    __asm__ __volatile__("lea -128(%%rsp), %%rsp; push $0; push %0; push $1; call *%1\n"
                         "lea 152(%%rsp), %%rsp"
                         :
                         : "l"(slot), "l"(adapter)
                         : "memory", "cc");
}

/* Slots of the test say in a word that nobody else uses how their probe is called. */
static void hit(struct mj_slot *slot, uint64_t value) {
    if (!slot->reserved[0])
        slot->probe(slot, value);
    else if (call_block(slot, 1, &value))
        _exit(5);
}

/* A probe that is a C function: its arguments as it finds them, `kinds` a letter for each: 'f' for
   a double. With `spoil` it leaves other values in all registers that it may. */
static struct {
    const char *kinds;
    int spoil;
    uint64_t words[12], calls, is_aligned;
} taken;

__attribute__((aligned(16))) void take(struct mj_slot *slot, ...) {
    va_list args;

    taken.calls++;
    taken.is_aligned = !((uint64_t)__builtin_frame_address(0) & 15);
    va_start(args, slot);
    for (int at = 0; taken.kinds[at]; at++) {
        if (taken.kinds[at] != 'f') {
            taken.words[at] = va_arg(args, uint64_t);
            continue;
        }
        const double real = va_arg(args, double);

        __builtin_memcpy(&taken.words[at], &real, sizeof real);
    }
    va_end(args);
    __asm__ __volatile__("mov $77, %%eax; mov $77, %%ecx; mov $77, %%edx; mov $77, %%esi\n"
                         "mov $77, %%edi; mov $77, %%r8d; mov $77, %%r9d; mov $77, %%r10d\n"
                         "mov $77, %%r11d"
                         :
                         :
                         : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11");
    if (taken.spoil)
        __asm__ __volatile__("pcmpeqd %%xmm0, %%xmm0; pcmpeqd %%xmm7, %%xmm7\n"
                             "pcmpeqd %%xmm14, %%xmm14; pcmpeqd %%xmm15, %%xmm15\n"
                             "fld1; fld1; fld1; fld1; fld1; fld1; fld1; fld1\n"
                             "fninit"
                             :
                             :
                             : "xmm0", "xmm7", "xmm14", "xmm15");
    if (taken.spoil && with_avx)
        __asm__ __volatile__("vzeroall" : : : "xmm0", "xmm7", "xmm14", "xmm15");
}

/* Look at the upper halves, too. */
void look_at_avx(int is_there) { with_avx = is_there; }

const uint64_t *take_as(const char *kinds, int spoil) {
    taken.kinds = kinds;
    taken.spoil = spoil;
    taken.calls = 0;
    return taken.words;
}

uint64_t times_taken(void) { return !taken.calls || taken.is_aligned ? taken.calls : ~0ul; }

void call_many(struct mj_slot *slot, uint64_t from, uint64_t to) {
    for (uint64_t i = from; i < to; i++)
        hit(slot, i);
}

/* ---- before an instruction ---- */

static struct {
    uint8_t *at, byte;
    int what, hits, go_on[2];
    pid_t child;
    struct mj_slot *inside;
    uint64_t value, times;
    void *data;
} here;

static void fork_here(void) {
    char byte;

    if (here.what == FORK_LATE && pipe(here.go_on))
        _exit(3);
    here.child = fork();
    if (here.what == FORK_LATE) {
        if (!here.child && read(here.go_on[0], &byte, 1) != 1)
            _exit(4);
    } else if (here.child) {
        waitpid(here.child, 0, 0);
    }
}

static void on_int3(int signal, siginfo_t *info, void *context) {
    greg_t *rip = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];

    (void)signal, (void)info;
    if (*rip == (greg_t)here.at + 1) /* not in a sequence, or the kernel would have changed it */
        *rip = (greg_t)here.at;
    *here.at = here.byte;
    if (here.hits++)
        return;
    if (here.what == RECORD)
        for (uint64_t i = 0; i < here.times; i++)
            hit(here.inside, here.value);
    else if (here.what == DIE)
        kill(getpid(), SIGKILL);
    else if (here.what == CHANGE_DATA)
        here.inside->data = here.data;
    else
        fork_here();
}

static void interrupted(struct mj_slot *slot, struct mj_slot *inside, uint64_t value, uint8_t *at,
                        int what) {
    struct sigaction action = {.sa_sigaction = on_int3, .sa_flags = SA_SIGINFO}, old;

    sigaction(SIGTRAP, &action, &old);
    here.at = at;
    here.byte = *at;
    here.what = what;
    here.hits = 0;
    here.child = -1;
    here.inside = inside;
    here.value = value;
    *at = INT3;
    hit(slot, value);
    if (!here.child)
        _exit(0);
    *at = here.byte;
    sigaction(SIGTRAP, &old, 0);
}

/* Whether the call came to that instruction. There a signal handler hits `inside`. */
int call_interrupted(struct mj_slot *slot, struct mj_slot *inside, uint64_t value, uint8_t *at,
                     uint64_t times) {
    here.times = times;
    interrupted(slot, inside, value, at, RECORD);
    return here.hits;
}

/* The same, with a fork there. The child goes on first, or, `late`, once `after` was hit a number
   of times. */
int call_forking(struct mj_slot *slot, uint64_t value, uint8_t *at, int late, struct mj_slot *after,
                 uint64_t times) {
    interrupted(slot, 0, value, at, late ? FORK_LATE : FORK);
    if (here.hits && late) {
        call_many(after, 0, times);
        if (write(here.go_on[1], "", 1) != 1)
            return -1;
        waitpid(here.child, 0, 0);
        close(here.go_on[0]);
        close(here.go_on[1]);
    }
    return here.hits;
}

/* The same in a child, which is killed there. It shares the arena, and `alive` makes it one whose
   events count. */
int call_dying(struct mj_slot *slot, uint64_t value, uint8_t *at, uint64_t *alive, uint64_t cpus) {
    const uint8_t byte = *at;
    int status;
    const pid_t child = fork();

    if (!child) {
        *alive = cpus;
        interrupted(slot, 0, value, at, DIE);
        _exit(0);
    }
    waitpid(child, &status, 0);
    *at = byte;
    return WIFSIGNALED(status);
}

/* The same, where a signal handler gives the slot other data. */
int call_with_other_data(struct mj_slot *slot, void *data, uint8_t *at) {
    here.data = data;
    interrupted(slot, slot, 1, at, CHANGE_DATA);
    return here.hits;
}

/* ---- after an instruction, one step at a time ---- */

static struct mj_slot *nested;
static uint64_t wanted, steps;

static void on_step(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    if (++steps < wanted)
        return;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    hit(nested, wanted);
}

/* Single-stepped up to its instruction number `after`, where `inside` is hit. Whether there were so
   many. */
int call_stepped(struct mj_slot *slot, struct mj_slot *inside, uint64_t after) {
    struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO}, old;

    nested = inside;
    wanted = after;
    steps = 0;
    sigaction(SIGTRAP, &action, &old);
    __asm__ __volatile__("pushfq; orq %0, (%%rsp); popfq" : : "i"(TRAP_FLAG) : "memory", "cc");
    hit(slot, after);
    __asm__ __volatile__("pushfq; andq %0, (%%rsp); popfq" : : "i"(~TRAP_FLAG) : "memory", "cc");
    sigaction(SIGTRAP, &old, 0);
    return steps >= wanted;
}

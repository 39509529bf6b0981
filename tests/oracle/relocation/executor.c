/*
 * Runs code twice, where it was and where it was moved to, from the same state, and compares.
 *
 * A sacrificial process: what it runs are instructions of foreign programs, with registers that are
 * not theirs. It single-steps by the trap flag until control leaves the run, or a signal ends it.
 * All state goes in and out through signal frames, so there is no assembly here.
 *
 *     executor IMAGE  <jobs  >results
 *
 * The input begins with the layout of the object: address and size of room for it and for copies,
 * `uint64_t count`, and `count` times address, offset in the file and size in the file. Then jobs,
 * of which each has one result.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define SCRATCH 0x120000000000ULL /* what registers point to */
#define SCRATCH_SIZE 0x4000
#define TRAP_FLAG 0x100
#define MAX_STEPS 64
#define TOUCHED 64
#define OPERANDS 8
#define MAX_PLACES 16

enum {
    GPR = 16,
    XMM_BYTES = 256,
    FX_BYTES = 512,
    XSAVE_HEADER = 64,
    YMM_BYTES = 256,
    FX_XMM = 160,
    FX_X87 = 32,
    XFEATURE_X87 = 1,
    XFEATURE_SSE = 2,
    XFEATURE_YMM = 4,
    XFEATURE_PKRU = 1 << 9,
};

struct job {
    uint64_t start, end;        /* the run */
    uint64_t target, size;      /* the copy, with the jump back at its end */
    uint64_t touched[OPERANDS]; /* what operands relative to rip point to; 0: nothing */
    uint64_t gpr[GPR]; /* r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp: as in ucontext */
    uint64_t flags;
    uint64_t old_places[MAX_PLACES], new_places[MAX_PLACES];
    uint8_t xmm[XMM_BYTES];
    uint8_t code[256];
};

struct outcome {
    int signal; /* 0: it left the run */
    int steps;
    uint64_t rip;
    uint64_t gpr[GPR];
    uint64_t flags;
    uint8_t x87[128];
    uint8_t xmm[XMM_BYTES];
    uint8_t ymm[YMM_BYTES];
    uint8_t scratch[SCRATCH_SIZE];
    uint8_t touched[OPERANDS][TOUCHED];
};

/* What differs, as bits of a result. */
enum { SIGNAL = 1, RIP = 2, REGISTERS = 4, FLAGS = 8, VECTORS = 16, MEMORY = 32, X87 = 64 };

struct result {
    uint32_t differs;
    int32_t signals[2];
    uint32_t steps[2];
    uint64_t rips[2];
};

static struct {
    const struct job *job;
    struct outcome *outcome;
    uint64_t from, low, high;
    ucontext_t home;
    uint8_t home_fx[1 << 14];
    size_t home_fx_size;
} now;

static size_t fx_size(const struct _libc_fpstate *fp) {
    const uint32_t *reserved = (const uint32_t *)((const uint8_t *)fp + 464);

    return reserved[0] == 0x46505853 ? reserved[4] : FX_BYTES; /* FP_XSTATE_MAGIC1, xstate_size */
}

static void copy(void *to, const void *from, size_t size) { __builtin_memcpy(to, from, size); }

/* SIGUSR1: from our own code into the run. */
static void enter(int number, siginfo_t *info, void *context) {
    ucontext_t *uc = context;
    uint8_t *fx = (uint8_t *)uc->uc_mcontext.fpregs;

    (void)number;
    (void)info;
    copy(&now.home.uc_mcontext.gregs, &uc->uc_mcontext.gregs, sizeof(gregset_t));
    now.home_fx_size = fx_size(uc->uc_mcontext.fpregs);
    copy(now.home_fx, fx, now.home_fx_size);
    copy(uc->uc_mcontext.gregs, now.job->gpr, sizeof(now.job->gpr));
    uc->uc_mcontext.gregs[REG_RIP] = (greg_t)now.from;
    uc->uc_mcontext.gregs[REG_EFL] = (greg_t)(now.job->flags | TRAP_FLAG);
    copy(fx + FX_XMM, now.job->xmm, XMM_BYTES);
    if (now.home_fx_size > FX_BYTES) {
        uint64_t features;

        /* All that is not named is loaded as zeros: the upper halves of vectors, and the registers
           of AVX-512, which the C library's memset may have used between two runs. */
        copy(&features, fx + FX_BYTES, sizeof(features));
        features = (features & (XFEATURE_X87 | XFEATURE_PKRU)) | XFEATURE_SSE;
        copy(fx + FX_BYTES, &features, sizeof(features));
    }
}

/* SIGTRAP after each instruction, and the signals of faults: goes on, or home. */
static void leave(int number, siginfo_t *info, void *context) {
    ucontext_t *uc = context;
    struct outcome *outcome = now.outcome;
    uint8_t *fx = (uint8_t *)uc->uc_mcontext.fpregs;
    uint64_t rip = (uint64_t)uc->uc_mcontext.gregs[REG_RIP];

    (void)info;
    outcome->steps++;
    if (number == SIGTRAP && rip >= now.low && rip < now.high && outcome->steps < MAX_STEPS) {
        uc->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
        return;
    }
    outcome->signal = number == SIGTRAP ? 0 : number;
    outcome->rip = rip;
    copy(outcome->gpr, uc->uc_mcontext.gregs, sizeof(outcome->gpr));
    outcome->flags = (uint64_t)uc->uc_mcontext.gregs[REG_EFL] & ~(uint64_t)(TRAP_FLAG | 0x10000);
    copy(outcome->x87, fx + FX_X87, sizeof(outcome->x87));
    copy(outcome->xmm, fx + FX_XMM, XMM_BYTES);
    memset(outcome->ymm, 0, YMM_BYTES);
    if (fx_size(uc->uc_mcontext.fpregs) > FX_BYTES && fx[FX_BYTES] & XFEATURE_YMM)
        copy(outcome->ymm, fx + FX_BYTES + XSAVE_HEADER, YMM_BYTES);
    copy(&uc->uc_mcontext.gregs, &now.home.uc_mcontext.gregs, sizeof(gregset_t));
    copy(fx, now.home_fx, now.home_fx_size);
}

static void run(const struct job *job, uint64_t from, uint64_t low, uint64_t high,
                struct outcome *outcome) {
    uint8_t saved[OPERANDS][TOUCHED];
    uint64_t *word = (uint64_t *)SCRATCH;

    for (size_t i = 0; i < SCRATCH_SIZE / 8; i++)
        word[i] = i * 0x9e3779b97f4a7c15ULL >> (i % 3 * 24);
    for (int i = 0; i < OPERANDS && job->touched[i]; i++)
        copy(saved[i], (void *)job->touched[i], TOUCHED);
    now.job = job;
    now.from = from;
    now.low = low;
    now.high = high;
    now.outcome = outcome;
    outcome->steps = 0;
    raise(SIGUSR1);
    copy(outcome->scratch, (void *)SCRATCH, SCRATCH_SIZE);
    memset(outcome->touched, 0, sizeof(outcome->touched));
    for (int i = 0; i < OPERANDS && job->touched[i]; i++)
        copy(outcome->touched[i], (void *)job->touched[i], TOUCHED);
    for (int i = 0; i < OPERANDS && job->touched[i]; i++)
        copy((void *)job->touched[i], saved[i], TOUCHED);
}

/* The place in the copy of where the original stands. A fault of both is at the same instruction.
 */
static uint64_t place(const struct job *job, uint64_t rip) {
    for (int i = 0; i < MAX_PLACES && job->new_places[i]; i++)
        if (job->old_places[i] == rip)
            return job->new_places[i];
    return rip;
}

static struct result compare(const struct job *job, const struct outcome *a,
                             const struct outcome *b) {
    struct result result = {
        .signals = {a->signal, b->signal},
        .steps = {(uint32_t)a->steps, (uint32_t)b->steps},
        .rips = {a->rip, b->rip},
    };
    uint64_t rip = a->rip >= job->start && a->rip < job->end ? place(job, a->rip) : a->rip;

    if (a->signal != b->signal)
        result.differs |= SIGNAL;
    if (rip != b->rip)
        result.differs |= RIP;
    if (memcmp(a->gpr, b->gpr, sizeof(a->gpr)))
        result.differs |= REGISTERS;
    if (a->flags != b->flags)
        result.differs |= FLAGS;
    if (memcmp(a->xmm, b->xmm, XMM_BYTES) || memcmp(a->ymm, b->ymm, YMM_BYTES))
        result.differs |= VECTORS;
    if (memcmp(a->x87, b->x87, sizeof(a->x87)))
        result.differs |= X87;
    if (memcmp(a->scratch, b->scratch, SCRATCH_SIZE))
        result.differs |= MEMORY;
    if (memcmp(a->touched, b->touched, sizeof(a->touched)))
        result.differs |= MEMORY;
    return result;
}

static void *reserve(uint64_t address, uint64_t size) {
    void *at = mmap((void *)address, size, PROT_READ | PROT_WRITE | PROT_EXEC,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);

    if (at != (void *)address) {
        perror("mmap");
        exit(2);
    }
    return at;
}

static int take(void *to, size_t size) { return fread(to, 1, size, stdin) == size; }

static void map_object(const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t count, segment[3], room[2];

    if (file < 0 || !take(room, sizeof(room)) || !take(&count, sizeof(count)))
        exit(2);
    reserve(room[0], room[1]);
    while (count--) {
        if (!take(segment, sizeof(segment)) ||
            pread(file, (void *)segment[0], segment[2], (off_t)segment[1]) != (ssize_t)segment[2])
            exit(2);
    }
    close(file);
}

static void handle(int number, void (*handler)(int, siginfo_t *, void *)) {
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};

    action.sa_sigaction = handler;
    sigaction(number, &action, NULL);
}

int main(int argc, char **argv) {
    static struct outcome original, moved;
    static struct job job;
    static uint8_t stack[1 << 16];
    stack_t alternative = {.ss_sp = stack, .ss_size = sizeof(stack)};

    if (argc != 2)
        return 2;
    map_object(argv[1]);
    reserve(SCRATCH, SCRATCH_SIZE);
    sigaltstack(&alternative, NULL);
    handle(SIGUSR1, enter);
    handle(SIGTRAP, leave);
    handle(SIGSEGV, leave);
    handle(SIGBUS, leave);
    handle(SIGFPE, leave);
    handle(SIGILL, leave);
    while (take(&job, sizeof(job))) {
        memcpy((void *)job.target, job.code, job.size);
        run(&job, job.start, job.start, job.end, &original);
        run(&job, job.target, job.target, job.target + job.size, &moved);
        struct result result = compare(&job, &original, &moved);

        fwrite(&result, sizeof(result), 1, stdout);
        fflush(stdout);
    }
    return 0;
}

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
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define TRAP_FLAG 0x100
#define INT3 0xcc

enum { RECORD, FORK, FORK_LATE, DIE };

void call_many(struct mj_slot *slot, uint64_t from, uint64_t to) {
    for (uint64_t i = from; i < to; i++)
        slot->probe(slot, i);
}

/* ---- before an instruction ---- */

static struct {
    uint8_t *at, byte;
    int what, hits, go_on[2];
    pid_t child;
    struct mj_slot *inside;
    uint64_t value, times;
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
            here.inside->probe(here.inside, here.value);
    else if (here.what == DIE)
        kill(getpid(), SIGKILL);
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
    slot->probe(slot, value);
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

/* ---- after an instruction, one step at a time ---- */

static struct mj_slot *nested;
static uint64_t wanted, steps;

static void on_step(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    if (++steps < wanted)
        return;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    nested->probe(nested, wanted);
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
    slot->probe(slot, after);
    __asm__ __volatile__("pushfq; andq %0, (%%rsp); popfq" : : "i"(~TRAP_FLAG) : "memory", "cc");
    sigaction(SIGTRAP, &old, 0);
    return steps >= wanted;
}

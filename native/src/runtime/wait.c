/* SPDX-License-Identifier: MIT */
/*
 * wait.c: waiting until a full ring has room again, for markers that are recorded so (--lossless).
 *
 * A recorder waits before it reserves anything: it is in no restartable sequence and holds nothing,
 * so it may be stopped, interrupted by a signal handler that records, or killed there. It spins for
 * some microseconds, and then sleeps for up to a millisecond at a time. It never waits
 *
 *   - for a reader that has asked for no records for MJ_READER_NS: the reader writes
 *     `wait_until_ns` when it does, and 0 when it ends. So all threads go on at full speed at the
 *     latest that long after a reader was killed, stopped, or held up
 *   - for longer than MJ_WAIT_NS for one event, while other threads take the room
 *   - for a shared ring that the reader cannot empty: it has passed the ring several times, and the
 *     limit is where it was. A record is unfinished there, perhaps of the very thread that waits,
 *     in a signal handler
 *   - in the child of a fork
 *
 * A time that cannot be (of another time namespace, or written over) is as if there were no reader.
 */

#include "runtime.h"

#define NR_nanosleep 35
#define NR_clock_gettime 228
#define SPINS 64
#define PAUSES 16 /* in a spin; 0.2 to 0.7 us */
#define FIRST_SLEEP_NS 50000l
#define DOUBLINGS 5 /* of the first sleep: more than to the longest one */
#define LONGEST_SLEEP_NS 1000000l
#define BLOCKED_PASSES 3
#define BLOCKED_NS (100 * MJ_MILLISECOND)

static uint64_t now_of(const struct mj_control *control) {
    struct mj_time now = {0, 0};
    long result;

    if (control->clock)
        return mj_read_clock(control, MJ_TIME_MONOTONIC);
    __asm__ __volatile__("syscall"
                         : "=a"(result)
                         : "a"(NR_clock_gettime), "D"((long)MJ_CLOCK_MONOTONIC), "S"(&now)
                         : "rcx", "r11", "memory");
    return result < 0 ? 0 : mj_nanoseconds(&now);
}

static void sleep_for(long nanoseconds) {
    const struct mj_time time = {0, nanoseconds};
    long result;

    /* A signal ends it sooner, and is handled. */
    __asm__ __volatile__("syscall"
                         : "=a"(result)
                         : "a"(NR_nanosleep), "D"(&time), "S"(0l)
                         : "rcx", "r11", "memory");
}

static int has_reader(const struct mj_control *control, uint64_t now) {
    const uint64_t until = __atomic_load_n(&control->wait_until_ns, __ATOMIC_RELAXED);

    return until - now - 1 < MJ_READER_NS; /* now < until <= now + MJ_READER_NS */
}

/* Whether the reader has passed the shared ring of this CPU, and could take nothing out of it. */
static int is_blocked(struct mj_wait *wait, const struct mj_control *control, uint64_t now) {
    const struct mj_ring *ring =
        (struct mj_ring *)mj_part(control, MJ_PART_HEADS) + control->cpus + mj_cpu(control);
    const uint64_t limit = __atomic_load_n(&ring->limit, __ATOMIC_RELAXED);
    const uint32_t passes = __atomic_load_n(&control->passes, __ATOMIC_RELAXED);

    if (limit != wait->limit) {
        wait->limit = limit;
        wait->passes = passes;
        wait->unmoved_since = now;
    }
    return passes - wait->passes >= BLOCKED_PASSES && now - wait->unmoved_since >= BLOCKED_NS;
}

int mj_wait_begin(struct mj_wait *wait, struct mj_control *control) {
    wait->began = now_of(control);
    wait->limit = ~0ul;
    wait->turns = 0;
    if (!has_reader(control, wait->began) || !mj_alive())
        return 0;
    __atomic_fetch_add(&control->waiting, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&control->waits, 1, __ATOMIC_RELAXED);
    return 1;
}

int mj_wait_turn(struct mj_wait *wait, const struct mj_control *control, int shared) {
    if (wait->turns++ < SPINS) {
        for (int i = 0; i < PAUSES; i++)
            __asm__ __volatile__("pause");
        return 1;
    }
    const uint32_t sleeps = wait->turns - SPINS - 1; /* before this one */
    const long sleep = FIRST_SLEEP_NS << (sleeps < DOUBLINGS ? sleeps : DOUBLINGS);
    const uint64_t now = now_of(control);

    if (now - wait->began >= MJ_WAIT_NS || !has_reader(control, now) ||
        (shared && is_blocked(wait, control, now)))
        return 0;
    sleep_for(sleep < LONGEST_SLEEP_NS ? sleep : LONGEST_SLEEP_NS);
    return 1;
}

void mj_wait_end(const struct mj_wait *wait, struct mj_control *control) {
    const uint64_t waited = now_of(control) - wait->began;

    if (!mj_alive()) /* in a fork's child, whose parent counts */
        return;
    __atomic_fetch_add(&control->waited_ns, waited, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&control->waiting, 1, __ATOMIC_RELEASE);
}

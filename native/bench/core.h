/* SPDX-License-Identifier: MIT */
/*
 * core.h: whether a core works for this thread alone, for markerjit bench.
 *
 * Two threads of a processor often share a core, and each gets about half of what it could execute
 * while both have work. The other one may belong to another program, or to another machine on the
 * same host, and nobody tells. So two loops are timed. In one each addition waits for the last: it
 * takes a cycle for each, and leaves most of the core to others. In the other one four additions
 * wait for nobody, and take a cycle as well if the core has nothing else to do. What the second
 * takes in percent of the first does not depend on the speed of the clock: about 100 where the
 * thread is alone, and up to 200 where it is not.
 */
#include <stdint.h>
#include <time.h>

#define CORE_TIMES_8(code) code code code code code code code code
#define CORE_TIMES_64(code) CORE_TIMES_8(CORE_TIMES_8(code))

enum { CORE_LAPS = 100 };

static uint64_t now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void core_chain(uint64_t laps) {
    uint64_t a = 1;

    __asm__ volatile("1:\n\t" CORE_TIMES_64("add %0, %0\n\t") "dec %1\n\tjnz 1b"
                     : "+r"(a), "+r"(laps)
                     :
                     : "cc");
}

static void core_wide(uint64_t laps) {
    uint64_t a = 1, b = 1, c = 1, d = 1;

    __asm__ volatile("1:\n\t" CORE_TIMES_64("add %0, %0\n\tadd %1, %1\n\t"
                                            "add %2, %2\n\tadd %3, %3\n\t") "dec %4\n\tjnz 1b"
                     : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(laps)
                     :
                     : "cc");
}

static unsigned core_share(void) {
    core_chain(1); /* fetched */
    core_wide(1);
    const uint64_t start = now_ns();

    core_chain(CORE_LAPS);
    const uint64_t middle = now_ns();

    core_wide(CORE_LAPS);
    const uint64_t share = 100 * (now_ns() - middle) / (middle - start + 1);

    return share < 1000 ? (unsigned)share : 1000;
}

/* SPDX-License-Identifier: MIT */
/*
 * many.c: blocks that live, however many, among blocks that come and go. `run N` makes N rounds,
 * the tenth of which leaks a block each; `drop` frees those. `asked` answers with their bytes.
 */
#include "truth.h"

static void *leaks[100000];
static unsigned long count, bytes;

__attribute__((noinline, noclone)) static void leaked(unsigned long n) {
    size_t size = 48 + n % 16;

    leaks[count++] = malloc(size);
    bytes += size;
}

__attribute__((noinline, noclone)) static void passing(unsigned long n) {
    void *block = malloc(16 + n % 64), *other = malloc(200);

    __asm__ volatile("" : "+r"(block), "+r"(other));
    free(block);
    free(other);
}

int main(void) {
    char line[64];

    truth_ready();
    while (truth_next(line, sizeof(line))) {
        const char *rest = truth_is(line, "run");

        for (unsigned long n = 0, rounds = rest ? truth_number(rest, 1) : 0; n < rounds; n++) {
            passing(n);
            if (n % 10 == 0)
                leaked(n);
        }
        if (truth_is(line, "drop"))
            while (count)
                free(leaks[--count]);
        if (truth_is(line, "asked"))
            truth_say("asked bytes=%lu", bytes);
        else
            truth_say("%s", rest ? "run" : line);
    }
    return 0;
}

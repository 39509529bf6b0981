/* SPDX-License-Identifier: MIT */
/*
 * shared.c: rings that several CPUs may write, for threads without restartable sequences and for
 * those that were just interrupted in one.
 *
 *   1  reserve: move `head` by compare-and-swap; the time is read inside the loop, so that within a
 *      ring positions follow time. The ring's mask is read after that: the reader may have enlarged
 *      the ring, and sets the mask before a limit from which on it counts (ring/raw.py)
 *   2  write the record
 *   3  commit (C): a release store of the position, pairs with (D) in ring/reader.py, which reads
 *      commit words first and the records in a later system call
 *   4  add to the page's sum of committed bytes
 *
 * A thread may be held up between any two steps. In overwrite mode no thread waits for it: a
 * thread that comes a lap later to a page with an unfinished record skips that page, by the sum. It
 * adds the page to the sum, so that the page is there again in the lap after the thread has
 * finished.
 *
 * A signal handler that interrupts this may fork. The child records nothing: it looks at `alive`
 * right before 1, which it may have passed by one instruction. Between 1 and 4 it does what its
 * parent does, in the same places.
 */

#include "runtime.h"

static inline uint64_t commit_word(uint64_t position, uint64_t size) {
    return position << 16 | size / 8;
}

/* Whether everything that was ever reserved in the page at `position` is written. The sum is larger
   where a fork's child has added, too. */
static int page_is_free(const uint64_t *sums, uint64_t position, uint64_t mask) {
    const uint64_t laps = position / (mask + 1);

    return __atomic_load_n(&sums[(position & mask) / MJ_PAGE], __ATOMIC_ACQUIRE) >= laps * MJ_PAGE;
}

/* 3 and 4 */
static void commit(char *data, uint64_t *sums, uint64_t position, uint64_t size, uint64_t mask) {
    uint64_t *word = (uint64_t *)(data + (position & mask));

    __atomic_store_n(word, commit_word(position, size), __ATOMIC_RELEASE); /* (C) */
    __atomic_fetch_add(&sums[(position & mask) / MJ_PAGE], size, __ATOMIC_RELEASE);
}

static void fill(char *data, uint64_t *sums, uint64_t position, uint64_t size, uint64_t mask) {
    struct mj_record *rest = (struct mj_record *)(data + (position & mask) + sizeof(uint64_t));

    if (size > sizeof(uint64_t)) /* else the commit word is all there is room for */
        rest->head = mj_head(MJ_FILLER, size - sizeof(uint64_t));
    commit(data, sums, position, size, mask);
}

int mj_append_shared(const struct mj_control *control, uint64_t *image, uint64_t size, int stamp) {
    const uint32_t cpu = mj_cpu(control);
    const uint64_t number = (uint64_t)control->cpus + cpu;
    const uint64_t stride = control->parts[MJ_PART_RINGS].entry_size;
    struct mj_ring *ring = (struct mj_ring *)mj_part(control, MJ_PART_HEADS) + number;
    char *data = (char *)mj_part(control, MJ_PART_RINGS) + number * stride;
    uint64_t *sums = (uint64_t *)mj_part(control, MJ_PART_COMMITS) + cpu * (stride / MJ_PAGE);
    const uint64_t whole = size + sizeof(uint64_t); /* with its commit word */
    uint64_t head = __atomic_load_n(&ring->head, __ATOMIC_RELAXED);
    uint64_t left_out = 0, mask;

    for (;;) { /* 1 */
        const uint64_t limit = __atomic_load_n(&ring->limit, __ATOMIC_ACQUIRE);

        mask = __atomic_load_n(&ring->mask, __ATOMIC_RELAXED);
        const uint64_t left = MJ_PAGE - head % MJ_PAGE;
        const uint64_t filler = left < whole ? left : 0;
        const uint64_t start = head + filler;
        /* With a reader, the limit says already that all before is written. */
        const int leave_out =
            limit == ~0ul && start % MJ_PAGE == 0 && !page_is_free(sums, start, mask);
        const uint64_t end = start + (leave_out ? MJ_PAGE : whole);

        if (end > limit || left_out == (mask + 1) / MJ_PAGE)
            return MJ_FULL;
        if (stamp)
            image[1] = mj_counter();
        if (!mj_alive())
            return MJ_DEAD;
        if (!__atomic_compare_exchange_n(&ring->head, &head, end, 0, __ATOMIC_ACQUIRE,
                                         __ATOMIC_RELAXED))
            continue;
        mask = __atomic_load_n(&ring->mask, __ATOMIC_RELAXED);
        if (filler)
            fill(data, sums, head, filler, mask);
        head = start;
        if (!leave_out)
            break;
        __atomic_fetch_add(&sums[(start & mask) / MJ_PAGE], MJ_PAGE, __ATOMIC_RELEASE);
        left_out++;
        head = end;
    }
    uint64_t *record = (uint64_t *)(data + (head & mask)) + 1;

    for (uint64_t at = 0; at < size / sizeof(uint64_t); at++)
        record[at] = image[at]; /* 2 */
    commit(data, sums, head, whole, mask);
    return MJ_DONE;
}

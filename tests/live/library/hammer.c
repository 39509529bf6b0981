/* SPDX-License-Identifier: MIT */
/* hammer.c: threads run through a marker at full speed while its probe comes and goes. */
#include "check.h"

#include <stdbool.h>

enum { THREADS = 4, PASSES = 200000 };
#ifndef CYCLES
#define CYCLES 10000
#endif

static int stop, finished;
static uint64_t inside, hits;
static pthread_t threads[THREADS];

struct page {
    uint64_t alive;
};

/* After disable returns its data is unmapped, so a late one does not survive. */
static void on_hot(struct mj_slot *slot, uint64_t n) {
    const struct page *page = slot->data;

    __atomic_fetch_add(&inside, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 20; i++)
        CHECK_EQUAL(*(const volatile uint64_t *)&page->alive, 1);
    if (n % 512 == 0)
        sched_yield(); /* inside for long now and then, also where no CPU is free */
    OPAQUE(n);
    __atomic_fetch_add(&hits, 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_sub(&inside, 1, __ATOMIC_SEQ_CST);
}

static void add_inline(uint64_t n) {
    OPAQUE(n);
    __atomic_fetch_add(&hits, 1, __ATOMIC_SEQ_CST);
}

static void *run_hot(void *unused) {
    for (uint64_t n = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); n++)
        MARK_INLINE(hot, add_inline, "n %lu", n);
    return unused;
}

static void *run_counted(void *unused) {
    for (uint64_t n = 0; n < PASSES; n++)
        MARK_INLINE(hot, add_inline, "n %lu", n);
    __atomic_fetch_add(&finished, 1, __ATOMIC_SEQ_CST);
    return unused;
}

static void start(void *(*run)(void *)) {
    for (int i = 0; i < THREADS; i++)
        CHECK_EQUAL(pthread_create(&threads[i], NULL, run, NULL), 0);
}

static void join(void) {
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static struct page *page_create(void) {
    struct page *page =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(page != MAP_FAILED);
    page->alive = 1;
    return page;
}

static bool no_hit_since(uint64_t before) {
    return __atomic_load_n(&hits, __ATOMIC_SEQ_CST) == before;
}

/* One cycle; how many hits it had. */
static uint64_t cycle(bool until_hit) {
    const uint64_t before = __atomic_load_n(&hits, __ATOMIC_SEQ_CST);
    struct page *page = page_create();

    CHECK_EQUAL(marker_set_probe_data("hot", "n %lu", MARKER_PROBE(on_hot), page, MARKER_CALL), 0);
    for (int i = 0; i < 100 && no_hit_since(before); i++)
        __asm__ volatile("pause");
    while (until_hit && no_hit_since(before))
        sched_yield();
    CHECK_EQUAL(marker_disable_probe("hot"), 0);
    CHECK_EQUAL(__atomic_load_n(&inside, __ATOMIC_SEQ_CST), 0);
    const uint64_t after = __atomic_load_n(&hits, __ATOMIC_SEQ_CST);
    munmap(page, 4096);
    return after - before;
}

static void cycles(void) {
    const uint64_t text = text_hash();
    uint64_t with_hits = 0, expected = 0;

    start(run_hot);
    for (int i = 0; i < CYCLES; i++) {
        const uint64_t cycle_hits = cycle(i % 64 == 0);

        with_hits += cycle_hits > 0;
        expected += cycle_hits;
        CHECK_EQUAL(__atomic_load_n(&inside, __ATOMIC_SEQ_CST), 0);
        CHECK_EQUAL(__atomic_load_n(&hits, __ATOMIC_SEQ_CST), expected);
    }
    join();
    CHECK_EQUAL(hits, expected);
    CHECK(with_hits >= CYCLES / 64); /* else nothing was tested */
    const struct mj_slot *slot = find_sites("hot").sites[0].slot;
    CHECK_EQUAL(slot->entered, slot->left);
    CHECK(slot->left >= hits); /* those who found NULL at the second look are counted too */
    CHECK_EQUAL(text_hash(), text);
}

/* Set before the first pass and disabled after the last: every pass is a hit. */
static void every_pass_is_a_hit(void) {
    for (int kind = MARKER_CALL; kind <= MARKER_INLINE; kind++) {
        struct page *page = page_create();

        hits = 0;
        CHECK_EQUAL(marker_set_probe_data("hot", NULL,
                                          kind == MARKER_CALL ? MARKER_PROBE(on_hot) : NULL, page,
                                          (enum marker_kind)kind),
                    0);
        start(run_counted);
        join();
        CHECK_EQUAL(marker_disable_probe("hot"), 0);
        CHECK_EQUAL(hits, (uint64_t)THREADS * PASSES);
    }
}

/* Sets that are in nobody's way, and sets of the same name: one of two wins. */
static uint64_t won, refused;

static void *set_and_disable(void *unused) {
    for (int i = 0; i < CYCLES / 10; i++) {
        const int error = marker_set_probe("hot", NULL, MARKER_INLINE);

        if (error) {
            CHECK_EQUAL(error, -EBUSY);
            __atomic_fetch_add(&refused, 1, __ATOMIC_SEQ_CST);
            continue;
        }
        __atomic_fetch_add(&won, 1, __ATOMIC_SEQ_CST);
        CHECK_EQUAL(marker_disable_probe("hot"), 0); /* only the winner gets here */
    }
    return unused;
}

static void rivals(void) {
    pthread_t rival[2], hot;

    CHECK_EQUAL(pthread_create(&hot, NULL, run_hot, NULL), 0);
    for (int i = 0; i < 2; i++)
        CHECK_EQUAL(pthread_create(&rival[i], NULL, set_and_disable, NULL), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(rival[i], NULL);
    stop = 1;
    pthread_join(hot, NULL);
    CHECK(won > 0);
    CHECK_EQUAL(won + refused, 2 * (CYCLES / 10));
}

/* ---- a probe that does not return until it is told ------------------------------------------- */

static int entered, release_it, returned;

static void on_slow(struct mj_slot *slot) {
    (void)slot;
    __atomic_store_n(&entered, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&release_it, __ATOMIC_SEQ_CST))
        usleep(100);
    usleep(1000);
    __atomic_store_n(&finished, 1, __ATOMIC_SEQ_CST);
}

__attribute__((noinline)) static void pass_slow(void) { MARK(slow, "slow"); }

static void *run_slow(void *unused) {
    pass_slow();
    return unused;
}

static void *disable_slow(void *unused) {
    CHECK_EQUAL(marker_disable_probe("slow"), 0);
    CHECK_EQUAL(__atomic_load_n(&finished, __ATOMIC_SEQ_CST), 1);
    __atomic_store_n(&returned, 1, __ATOMIC_SEQ_CST);
    return unused;
}

static void sleeping_probe(void) {
    pthread_t runner, disabler;
    const struct mj_slot *slot = find_sites("slow").sites[0].slot;

    CHECK_EQUAL(marker_set_probe("slow", MARKER_PROBE(on_slow), MARKER_CALL), 0);
    pthread_create(&runner, NULL, run_slow, NULL);
    while (!__atomic_load_n(&entered, __ATOMIC_SEQ_CST))
        sched_yield();
    pthread_create(&disabler, NULL, disable_slow, NULL);
    while (__atomic_load_n(&slot->probe, __ATOMIC_SEQ_CST))
        sched_yield();

    pass_slow(); /* closed already, so this does not wait */
    CHECK_EQUAL(__atomic_load_n(&returned, __ATOMIC_SEQ_CST), 0);
    /* while it waits, the name is taken, and others are free */
    CHECK_EQUAL(marker_set_probe("slow", MARKER_PROBE(on_slow), MARKER_CALL), -EBUSY);
    CHECK_EQUAL(marker_disable_probe("slow"), -EBUSY);
    CHECK_EQUAL(marker_set_probe("hot", NULL, MARKER_INLINE), 0);
    CHECK_EQUAL(marker_disable_probe("hot"), 0);
    CHECK_EQUAL(__atomic_load_n(&returned, __ATOMIC_SEQ_CST), 0);

    __atomic_store_n(&release_it, 1, __ATOMIC_SEQ_CST);
    pthread_join(disabler, NULL);
    pthread_join(runner, NULL);
    CHECK_EQUAL(marker_set_probe("slow", MARKER_PROBE(on_slow), MARKER_CALL), 0);
}

MAIN(CASE(cycles), CASE(every_pass_is_a_hit), CASE(rivals), CASE(sleeping_probe))

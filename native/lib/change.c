/* SPDX-License-Identifier: MIT */
/*
 * change.c: set a probe, take it away, and know when no thread is in it.
 *
 * Setting:
 *   1. look at all sites of the name, in all objects; errors are reported before any change
 *   2. slot->data and slot->adapter, then slot->probe, marked as counted
 *   3. open the sites, one byte each; tell the other cores
 *      A thread that sees an open site therefore sees the probe; one that does not goes by.
 *
 * Taking away:
 *   4. close the sites. Only the stream of new visitors ends here: a thread may be anywhere in a
 *      body, or about to be, with an instruction that it fetched before.
 *   5. slot->probe = NULL. A body that loads it from now on finds nothing to call. The data stays,
 *      for those inside.
 *   6. (B) full fence; then wait until, for each slot, entered == left.
 *
 * Why that is enough. A counted probe is called by its adapter (or by the body itself, where that
 * is of note version 1 or the probe is inline). That adds 1 to `entered`, (A) with a locked
 * instruction, loads the probe a second time and calls what it finds then; afterwards it adds 1 to
 * `left`. So what was loaded first is only a reason to
 * knock, however old it is. It does (A) add, load probe; we do (B) store
 * NULL, load entered; so at least one side sees the other:
 *   - we see its add, and wait for its `left`, whatever it calls;
 *   - or it sees NULL, and calls nothing;
 *   - or it sees a probe that was set since. Then ours had been quiet before, because setting is
 *     refused (-EBUSY) until our wait is over.
 * A thread that loaded NULL at first calls nothing. One that loaded a probe without the mark
 * runs a controller's probe, not ours; the controller has its own proof. An inline probe is the
 * mark MJ_PROBE_INLINE in the place of an address, and counted the same.
 *
 * `left` is read before `entered`. The other way round, a thread that comes and goes between the
 * two would balance one that is still inside.
 *
 * While waiting no lock is held, so a probe that we wait for may set other probes, load objects and
 * throw. That is why slots are looked up again for each look at their counters: without the
 * loader's lock their object may be gone.
 */
#define _GNU_SOURCE
#include "spot.h"

#include "../src/fence/fence.h"

#include <cpuid.h>
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- waiting --------------------------------------------------------------------------------- */

static bool is_quiet(struct mj_slot *slot) {
#ifdef MJ_TEST_NO_WAIT /* the wrong variant, which tests must catch */
    (void)slot;
    return true;
#else
    const uint64_t left = __atomic_load_n(&slot->left, __ATOMIC_SEQ_CST);
    const uint64_t entered = __atomic_load_n(&slot->entered, __ATOMIC_SEQ_CST);

    return left == entered;
#endif
}

static bool all_quiet(const struct mj_digest *digest) {
    for (size_t i = 0; i < digest->use_count; i++)
        if (!is_quiet(digest->uses[i].slot))
            return false;
    return true;
}

static int look_for_quiet(void *data) {
    struct mj_digest *digest = data;

    return !mj_digest_refresh(digest) && all_quiet(digest);
}

void mj_wait_until_quiet(struct mj_digest *digest) {
    enum { YIELDS = 16, LONGEST_NS = 1000000 };
    struct timespec pause = {0, 20000};

    for (int looks = 0; !mj_with_objects_held(look_for_quiet, digest); looks++) {
        MJ_RACE("wait", digest->name);
        if (looks < YIELDS) {
            sched_yield();
            continue;
        }
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < LONGEST_NS)
            pause.tv_nsec *= 2;
    }
}

/* ---- the fence ------------------------------------------------------------------------------- */

enum { MEMBARRIER_GLOBAL = 1 << 0 }; /* linux/membarrier.h, which musl-gcc does not find */

static enum marker_sync last_sync;

enum marker_sync mj_last_sync(void) { return __atomic_load_n(&last_sync, __ATOMIC_RELAXED); }

/* Returns when every thread has executed a serialising instruction, or as near as can be had. See
   enum marker_sync for what each proves. GLOBAL waits for some ten milliseconds. */
static enum marker_sync fence(void) {
    if (!mj_fence_membarrier())
        return MARKER_SYNC_CORE;
    if (!mj_fence_signals(NULL))
        return MARKER_SYNC_SIGNALS;
    return syscall(SYS_membarrier, MEMBARRIER_GLOBAL, 0, 0) ? MARKER_SYNC_NOTHING
                                                            : MARKER_SYNC_GLOBAL;
}

/* Only for code; slots do not need it. */
static void sync_cores(const struct mj_digest *digest) {
    if (digest->spot_count)
        __atomic_store_n(&last_sync, fence(), __ATOMIC_RELAXED);
}

/* ---- the changes, with the objects held ------------------------------------------------------ */

static uintptr_t probe_in(const struct mj_slot *slot) {
    return (uintptr_t)__atomic_load_n(&slot->probe, __ATOMIC_ACQUIRE);
}

static bool any_probe_in(const struct mj_digest *digest) {
    for (size_t i = 0; i < digest->use_count; i++)
        if (probe_in(digest->uses[i].slot))
            return true;
    return false;
}

static int judge_code(struct mj_digest *digest) {
    /* downward: writing goes upward, and begins with what was looked at last */
    for (size_t i = digest->spot_count; i-- > 0;)
        if (!mj_spot_is(&digest->spots[i], MJ_DORMANT))
            return -EILSEQ;
    mj_look_at_maps(digest);
    for (size_t i = 0; i < digest->run_count; i++)
        if (digest->runs[i].is_shared)
            return -EACCES;
    return 0;
}

/* 0, or the error that forbids setting the probe. */
static int judge(const struct mj_change *change) {
    struct mj_digest *digest = change->digest;

    if (!digest->site_count)
        return -ENOENT;
    if (!digest->all_switch)
        return -ENOTSUP;
    if (any_probe_in(digest))
        return -EBUSY;
    if (change->format && (!digest->one_format || strcmp(change->format, digest->format) != 0))
        return -EINVAL;
    /* a body without an inline probe would call the mark as if it were an address */
    if (change->kind == MARKER_INLINE && !digest->all_inline)
        return -ENODEV;
    return judge_code(digest);
}

uint32_t mj_cpu_flags;

/* Any function may come: a library's with AVX, or one that uses the x87 stack. */
static void find_cpu_flags(void) {
    unsigned eax, ebx, ecx, edx;

    if (!mj_cpu_flags && __get_cpuid(1, &eax, &ebx, &ecx, &edx) && ecx & bit_OSXSAVE)
        mj_cpu_flags = MJ_CPU_XSAVE;
}

/* A slot serves all sites of its module. Exchanged, as a controller knows no lock of ours. */
static int publish(const struct mj_change *change) {
    find_cpu_flags();
    for (size_t i = 0; i < change->digest->use_count; i++) {
        struct mj_slot *slot = change->digest->uses[i].slot;
        mj_probe_fn *none = NULL;

        if (probe_in(slot) == change->probe)
            continue;
        __atomic_store_n(&slot->data, change->data, __ATOMIC_RELAXED);
        if (change->digest->uses[i].has_adapter)
            __atomic_store_n(&slot->adapter, mj_call_saving_vectors, __ATOMIC_RELAXED);
        if (!__atomic_compare_exchange_n(&slot->probe, &none, (mj_probe_fn *)change->probe, false,
                                         __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return -EBUSY;
    }
    return 0;
}

/* Step 5 and (B), after 4. Takes only our probe out of the slots. */
static void withdraw(struct mj_change *change) {
    for (size_t i = 0; i < change->digest->use_count; i++) {
        mj_probe_fn *ours = (mj_probe_fn *)change->probe;

        __atomic_compare_exchange_n(&change->digest->uses[i].slot->probe, &ours,
                                    (mj_probe_fn *)NULL, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* (B) pairs with (A) in mj_enter */
    sync_cores(change->digest);
    change->quiet = all_quiet(change->digest);
}

int mj_apply_set(void *data) {
    struct mj_change *change = data;
    int error = mj_digest_refresh(change->digest);

    if (!error)
        error = judge(change); /* 1 */
    if (error)
        return error;

    change->published = true;
    error = publish(change); /* 2 */
    if (!error)
        error = mj_open_sites(change->digest); /* 3 */
    if (error)
        withdraw(change);
    else
        sync_cores(change->digest);
    return error;
}

/* Sites whose slot has another probe, or that came later, are not ours to close. */
static void find_ours(struct mj_change *change) {
    for (size_t i = 0; i < change->digest->use_count; i++) {
        struct mj_use *use = &change->digest->uses[i];

        use->ours = probe_in(use->slot) == change->probe;
    }
}

int mj_apply_disable(void *data) {
    struct mj_change *change = data;
    int error = mj_digest_refresh(change->digest);

    if (error)
        return error;
    change->published = true;
    find_ours(change);
    mj_look_at_maps(change->digest);
    error = mj_close_sites(change->digest); /* 4 */
    withdraw(change);
    return error;
}

bool mj_is_on(const struct mj_site *site) {
    return mj_site_state(site) == MJ_OPEN && (!site->slot || probe_in(site->slot));
}

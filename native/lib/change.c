/* SPDX-License-Identifier: MIT */
/*
 * change.c: set a probe, take it away, and know when nobody is in it.
 *
 * Setting:
 *   1. look at all sites of the name, in all objects; anything wrong is said before any change
 *   2. slot->data, then slot->probe, marked as counted
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
 * Why that is enough. A body loads the probe (mj_enter in marker.h). If it is counted, the body
 * adds 1 to `entered`, (A) with a locked instruction, loads the probe a second time and calls what
 * it finds then; afterwards it adds 1 to `left`. So what was loaded first is only a reason to
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
 * two would balance one who is still inside.
 *
 * While waiting no lock is held, so a probe that we wait for may set other probes, load objects and
 * throw. That is why slots are looked up again for each look at their counters: without the
 * loader's lock their object may be gone.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

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

static bool all_quiet(const struct mj_sites *sites) {
    for (size_t i = 0; i < sites->count; i++)
        if (mj_can_switch(&sites->items[i]) && !is_quiet(sites->items[i].slot))
            return false;
    return true;
}

static int look_for_quiet(void *data) {
    struct mj_sites *sites = data;

    return !mj_sites_read(sites) && all_quiet(sites);
}

void mj_wait_until_quiet(const char *name) {
    enum { YIELDS = 16, LONGEST_NS = 1000000 };
    struct mj_sites sites = {.name = name};
    struct timespec pause = {0, 20000};

    for (int looks = 0; !mj_with_objects_held(look_for_quiet, &sites); looks++) {
        MJ_RACE("wait", name);
        if (looks < YIELDS) {
            sched_yield();
            continue;
        }
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < LONGEST_NS)
            pause.tv_nsec *= 2;
    }
    mj_sites_deinit(&sites);
}

/* ---- the changes, with the objects held ------------------------------------------------------ */

static uintptr_t probe_of(const struct mj_site *site) {
    return (uintptr_t)__atomic_load_n(&site->slot->probe, __ATOMIC_ACQUIRE);
}

static enum marker_sync last_sync;

enum marker_sync mj_last_sync(void) { return __atomic_load_n(&last_sync, __ATOMIC_RELAXED); }

static bool changes_code(const struct mj_sites *sites) {
    for (size_t i = 0; i < sites->count; i++)
        if (sites->items[i].kind != MJ_KIND_pointer)
            return true;
    return false;
}

static void sync_cores(const struct mj_sites *sites) {
    if (changes_code(sites))
        __atomic_store_n(&last_sync, mj_sync_cores(), __ATOMIC_RELAXED);
}

/* What stands against setting the probe at this site. */
static int judge(const struct mj_change *change, const struct mj_site *site) {
    if (!mj_can_switch(site))
        return -ENOTSUP;
    if (probe_of(site))
        return -EBUSY;
    if (change->format && strcmp(change->format, site->format))
        return -EINVAL;
    /* a body without an inline probe would call the mark as if it were an address */
    if (change->kind == MARKER_INLINE && !(site->flags & MJ_FLAG_INLINE))
        return -ENODEV;
    return mj_site_state(site) == MJ_DORMANT ? 0 : -EILSEQ;
}

static int judge_all(const struct mj_change *change) {
    for (size_t i = 0; i < change->sites.count; i++) {
        const int error = judge(change, &change->sites.items[i]);

        if (error)
            return error;
    }
    return change->sites.count ? mj_refuse_shared(&change->sites) : -ENOENT;
}

/* A slot serves all sites of its module. Exchanged, as a controller knows no lock of ours. */
static int publish(const struct mj_change *change) {
    for (size_t i = 0; i < change->sites.count; i++) {
        struct mj_slot *slot = change->sites.items[i].slot;
        mj_probe_fn *none = NULL;

        if (probe_of(&change->sites.items[i]) == change->probe)
            continue;
        __atomic_store_n(&slot->data, change->data, __ATOMIC_RELAXED);
        if (!__atomic_compare_exchange_n(&slot->probe, &none, (mj_probe_fn *)change->probe, false,
                                         __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return -EBUSY;
    }
    return 0;
}

/* Steps 4, 5 and (B). Takes only our probe out of the slots. */
static int take_away(struct mj_change *change) {
    const int error = mj_close_sites(&change->sites);

    for (size_t i = 0; i < change->sites.count; i++) {
        mj_probe_fn *ours = (mj_probe_fn *)change->probe;

        __atomic_compare_exchange_n(&change->sites.items[i].slot->probe, &ours, (mj_probe_fn *)NULL,
                                    false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* (B) pairs with (A) in mj_enter */
    sync_cores(&change->sites);
    change->quiet = all_quiet(&change->sites);
    return error;
}

int mj_apply_set(void *data) {
    struct mj_change *change = data;
    int error = mj_sites_read(&change->sites);

    if (!error)
        error = judge_all(change); /* 1 */
    if (error)
        return error;

    change->published = true;
    error = publish(change); /* 2 */
    if (!error)
        error = mj_open_sites(&change->sites); /* 3 */
    if (error)
        take_away(change);
    else
        sync_cores(&change->sites);
    return error;
}

/* Sites that somebody else has the slot of, or that came later, are not ours to close. */
static void keep_ours(struct mj_change *change) {
    struct mj_sites *sites = &change->sites;
    size_t kept = 0;

    for (size_t i = 0; i < sites->count; i++)
        if (mj_can_switch(&sites->items[i]) && probe_of(&sites->items[i]) == change->probe)
            sites->items[kept++] = sites->items[i];
    sites->count = kept;
}

int mj_apply_disable(void *data) {
    struct mj_change *change = data;
    const int error = mj_sites_read(&change->sites);

    if (error)
        return error;
    change->published = true;
    keep_ours(change);
    return take_away(change);
}

bool mj_is_on(const struct mj_site *site) {
    return mj_site_state(site) == MJ_OPEN && (!site->slot || probe_of(site));
}

/* SPDX-License-Identifier: MIT */
/*
 * digest.c: the data that a switch needs of the sites of a name, cached from switch to switch.
 *
 * The contents of notes are cached; they cannot change while an object is loaded. Each switch
 * checks that the objects are the same (mj_generation_now) while they are held, so a digest in use
 * never points into an unloaded object. The bytes of sites and their mappings are not cached.
 *
 * As in notes.c, malloc is not used: we run under the loader's lock.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* Where a run is written at once, walking over this many bytes without a site is cheaper than
   another run. */
enum { LONGEST_GAP = 8 * 4096 };

void mj_digest_deinit(struct mj_digest *digest) {
    if (digest->size_bytes)
        munmap(digest->uses, digest->size_bytes);
    *digest = (struct mj_digest){.name = digest->name};
}

/* Allocates uses, spots and runs together, one of each for every site. */
static int allocate(struct mj_digest *digest, size_t count) {
    const size_t size =
        count * (sizeof(struct mj_use) + sizeof(struct mj_spot) + sizeof(struct mj_run));
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return -ENOMEM;
    digest->size_bytes = size;
    digest->uses = memory;
    digest->spots = (struct mj_spot *)(digest->uses + count);
    digest->runs = (struct mj_run *)(digest->spots + count);
    return 0;
}

/* Notes come object by object, and the sites of an object most often have the same slot, so
   comparing with the last entry is enough. A second entry for a slot would be harmless. */
static uint32_t use_of(struct mj_digest *digest, const struct mj_site *site) {
    if (!digest->use_count || digest->uses[digest->use_count - 1].slot != site->slot)
        digest->uses[digest->use_count++] =
            (struct mj_use){.slot = site->slot, .has_adapter = (site->flags & MJ_FLAG_BLOCK) != 0};
    return (uint32_t)(digest->use_count - 1);
}

static void add_site(struct mj_digest *digest, const struct mj_site *site) {
    const uint32_t use = site->slot ? use_of(digest, site) : 0;

    digest->all_switch &= mj_can_switch(site);
    digest->all_inline &= (site->flags & MJ_FLAG_INLINE) != 0;
    if (!digest->format)
        digest->format = site->format;
    digest->one_format &= digest->format == site->format || !strcmp(digest->format, site->format);
    if (mj_is_text(site)) {
        struct mj_spot *spot = &digest->spots[digest->spot_count++];

        *spot = mj_spot_of(site);
        spot->use = use & ((1u << 27) - 1);
    }
}

/* ---- by address ------------------------------------------------------------------------------ */

static void sift_down(struct mj_spot *spots, size_t root, size_t count) {
    const struct mj_spot spot = spots[root];
    size_t child;

    for (; (child = 2 * root + 1) < count; root = child) {
        child += child + 1 < count && spots[child].code < spots[child + 1].code;
        if (spots[child].code <= spot.code)
            break;
        spots[root] = spots[child];
    }
    spots[root] = spot;
}

/* Heapsort, unless the spots are in order already. glibc's qsort allocates. */
static void sort(struct mj_spot *spots, size_t count) {
    size_t sorted = 1;

    while (sorted < count && spots[sorted - 1].code <= spots[sorted].code)
        sorted++;
    if (sorted >= count)
        return;
    for (size_t root = count / 2; root-- > 0;)
        sift_down(spots, root, count);
    for (size_t end = count; end-- > 1;) {
        const struct mj_spot largest = spots[0];

        spots[0] = spots[end];
        spots[end] = largest;
        sift_down(spots, 0, end);
    }
}

/* Code folding (lld --icf) gives one site two notes. */
static void drop_twins(struct mj_digest *digest) {
    struct mj_spot *spots = digest->spots;
    size_t kept = 0;

    for (size_t i = 0; i < digest->spot_count; i++)
        if (!kept || memcmp(&spots[kept - 1], &spots[i], sizeof(*spots)) != 0)
            spots[kept++] = spots[i];
    digest->spot_count = kept;
}

static void find_runs(struct mj_digest *digest) {
    struct mj_run *run = NULL;
    const struct mj_spot *last = NULL;

    for (size_t i = 0; i < digest->spot_count; i++, run->count++) {
        const struct mj_spot *spot = &digest->spots[i];

        if (!last || spot->use != last->use || spot->code - last->code > LONGEST_GAP) {
            run = &digest->runs[digest->run_count++];
            *run = (struct mj_run){.first = i, .protection = -1};
        }
        last = spot;
    }
}

/* ---------------------------------------------------------------------------------------------- */

static int build(struct mj_digest *digest, const struct mj_sites *sites) {
    const int error = sites->count ? allocate(digest, sites->count) : 0;

    if (error)
        return error;
    digest->site_count = sites->count;
    digest->one_format = digest->all_inline = digest->all_switch = true;
    for (size_t i = 0; i < sites->count; i++)
        add_site(digest, &sites->items[i]);
    sort(digest->spots, digest->spot_count);
    drop_twins(digest);
    find_runs(digest);
    return 0;
}

static bool is_current(const struct mj_digest *digest, const struct mj_generation *now) {
    return now->is_known && digest->generation.is_known && now->loads == digest->generation.loads &&
           now->unloads == digest->generation.unloads;
}

int mj_digest_refresh(struct mj_digest *digest) {
    const struct mj_generation now = mj_generation_now();
    struct mj_sites sites = {.name = digest->name};
    int error;

    if (is_current(digest, &now))
        return 0;
    mj_digest_deinit(digest);
    error = mj_sites_read(&sites);
    if (!error)
        error = build(digest, &sites);
    mj_sites_deinit(&sites);
    if (!error)
        digest->generation = now;
    return error;
}

/* SPDX-License-Identifier: MIT */
/*
 * internal.h: what the files of libmarkerjit.a tell one another.
 *
 *  - notes.c: loaded objects -> sites
 *  - digest.c: what a switch needs of one name's sites, kept
 *  - text.c: a site's bytes: judge
 *  - maps.c: how a place in memory is mapped
 *  - write.c: change bytes, all or none
 *  - change.c: set, take away, wait
 *  - probes.c: the door, and what was set
 */
#ifndef MJ_LIB_INTERNAL_H
#define MJ_LIB_INTERNAL_H

#include <markerjit/probes.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tests fill it with what must go wrong at that point. */
#ifndef MJ_RACE
#define MJ_RACE(point, argument) ((void)(argument))
#endif

#ifndef MJ_PROC
#define MJ_PROC "/proc/self" /* tests take it away */
#endif

#define MJ_PAGE_SIZE 4096ul /* of all x86-64 */

#pragma GCC visibility push(hidden)

/* ---- notes.c --------------------------------------------------------------------------------- */

/* A site as its note describes it. All addresses are inside segments of the object, which says
   nothing yet about the bytes there. */
struct mj_site {
    const char *name, *format, *file;
    const uint8_t *code; /* the first byte of the site */
    const uint8_t *body;
    const uint8_t *end;
    struct mj_slot *slot; /* NULL only for kind direct */
    uint32_t line;
    uint8_t kind;
    uint8_t argc;
    uint8_t flags;
    bool is_writable; /* by the segment that holds the code */
    bool on;          /* for marker_for_each */
};

struct mj_sites {
    const char *name; /* look for this marker only; NULL: all */
    struct mj_site *items;
    size_t count;
    size_t capacity;
    uint64_t skipped_notes; /* all of them only if all names are looked for */
    int error;
};

/* Reads the notes of all loaded objects into `sites`, again after an earlier time. 0 or -ENOMEM. */
int mj_sites_read(struct mj_sites *sites);
void mj_sites_deinit(struct mj_sites *sites);

/* Runs work(argument) while no object can be unloaded, and returns what it returns. */
int mj_with_objects_held(int (*work)(void *argument), void *argument);

/* Which objects are loaded. Two that are known and equal, each read while objects were held: none
   was loaded or unloaded between. */
struct mj_generation {
    unsigned long long loads, unloads;
    bool is_known;
};

struct mj_generation mj_generation_now(void);

/* ---- digest.c -------------------------------------------------------------------------------- */

/* A site of code. Small, as there may be very many: a switch goes through all of them thrice. */
struct mj_spot {
    const uint8_t *code;
    int32_t relative; /* to the body, as the instruction that goes there must say it */
    uint32_t use : 27;
    uint32_t kind : 4; /* 0: the note contradicts itself, and no bytes are right */
    uint32_t is_writable : 1;
};

/* A slot that sites of the name have. */
struct mj_use {
    struct mj_slot *slot;
    bool ours; /* its sites may be closed */
};

/* Spots of one object that are near one another. */
struct mj_run {
    size_t first, count;
    int protection; /* PROT_ of all of it, or -1: not the same everywhere. See mj_look_at_maps */
    bool is_shared;
};

/* The sites of one name, boiled down. The arrays are one piece of memory. */
struct mj_digest {
    const char *name;
    struct mj_generation generation;
    size_t site_count; /* of all kinds */
    const char *format;
    bool one_format; /* all sites have this format */
    bool all_inline; /* all have an inline probe */
    bool all_switch; /* all are of a kind that we can switch */
    struct mj_use *uses;
    struct mj_spot *spots; /* by address, none twice */
    struct mj_run *runs;
    size_t use_count, spot_count, run_count;
    size_t size_bytes;
};

/* With objects held. Reads notes only if objects came or went since the last time. 0 or -ENOMEM,
   and empty then. */
int mj_digest_refresh(struct mj_digest *digest);
void mj_digest_deinit(struct mj_digest *digest);

/* ---- text.c ---------------------------------------------------------------------------------- */

enum mj_state { MJ_DORMANT, MJ_OPEN, MJ_STRANGE };

/* Whether the site is one of code, and whether it is of a kind that we can switch. */
bool mj_is_text(const struct mj_site *site);
bool mj_can_switch(const struct mj_site *site);
enum mj_state mj_site_state(const struct mj_site *site);

struct mj_spot mj_spot_of(const struct mj_site *site);

/* ---- maps.c ---------------------------------------------------------------------------------- */

/* Fills in how the runs are mapped now. Without /proc, what the segments say. */
void mj_look_at_maps(struct mj_digest *digest);

/* ---- write.c --------------------------------------------------------------------------------- */

/* All sites, which were found dormant and mapped private; or none, and the error says why. Only
   -ENOTRECOVERABLE means that something could not be taken back. */
int mj_open_sites(const struct mj_digest *digest);

/* The sites of our slots. Goes on after a failure, and returns the first. One that is dormant
   already is left alone. */
int mj_close_sites(const struct mj_digest *digest);

/* ---- change.c -------------------------------------------------------------------------------- */

struct mj_change {
    struct mj_digest *digest;
    const char *format;
    enum marker_kind kind;
    uintptr_t probe;
    void *data;
    bool published; /* it was in the slots */
    bool quiet;     /* taken away, and nobody was inside any more when we looked first */
};

/* Both take a struct mj_change, while objects are held and one change is made at a time. */
int mj_apply_set(void *change);
int mj_apply_disable(void *change);

/* With no lock held, and nobody else using the digest. */
void mj_wait_until_quiet(struct mj_digest *digest);

bool mj_is_on(const struct mj_site *site);
enum marker_sync mj_last_sync(void);

#pragma GCC visibility pop

#endif

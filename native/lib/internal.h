/* SPDX-License-Identifier: MIT */
/*
 * internal.h: the interfaces between the files of libmarkerjit.a.
 *
 *  - notes.c: finds the sites of loaded objects
 *  - digest.c: the data that a switch needs of a name's sites, cached
 *  - text.c: the state of a site by its bytes
 *  - maps.c: the mapping of a place in memory
 *  - write.c: changes bytes, all or none
 *  - change.c: sets and removes a probe, and waits
 *  - call.S: calls it
 *  - probes.c: the public functions, and the probes that are set
 */
#ifndef MJ_LIB_INTERNAL_H
#define MJ_LIB_INTERNAL_H

#include <markerjit/probes.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tests define it to inject a failure at that point. */
#ifndef MJ_RACE
#define MJ_RACE(point, argument) ((void)(argument))
#endif

#ifndef MJ_PROC
#define MJ_PROC "/proc/self" /* tests replace it */
#endif

#define MJ_PAGE_SIZE 4096ul /* of all x86-64 */

#pragma GCC visibility push(hidden)

/* ---- notes.c --------------------------------------------------------------------------------- */

/* A site as its note describes it. All addresses are inside segments of the object. The bytes there
   are not checked yet. */
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

/* A version of the set of loaded objects. If two known values, each read while objects were held,
   are equal, no object was loaded or unloaded in between. */
struct mj_generation {
    unsigned long long loads, unloads;
    bool is_known;
};

struct mj_generation mj_generation_now(void);

/* ---- digest.c -------------------------------------------------------------------------------- */

/* A site in code. It is small because a switch walks over all of them three times. */
struct mj_spot {
    const uint8_t *code;
    int32_t relative; /* to the body, as the displacement of the jump */
    uint32_t use : 27;
    uint32_t kind : 4; /* 0: the note contradicts itself, and no bytes are right */
    uint32_t is_writable : 1;
};

/* A slot that sites of the name use. */
struct mj_use {
    struct mj_slot *slot;
    bool has_adapter; /* its bodies make a preserving call */
    bool ours;        /* its sites may be closed */
};

/* Neighbouring spots of an object. */
struct mj_run {
    size_t first, count;
    int protection; /* PROT_ of all of it, or -1: not the same everywhere. See mj_look_at_maps */
    bool is_shared;
};

/* The data of the sites of a name. The arrays share an allocation. */
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

/* Updates the digest. Objects must be held. Reads notes only if the set of objects has changed.
   Returns 0, or -ENOMEM and leaves the digest empty. */
int mj_digest_refresh(struct mj_digest *digest);
void mj_digest_deinit(struct mj_digest *digest);

/* ---- text.c ---------------------------------------------------------------------------------- */

enum mj_state { MJ_DORMANT, MJ_OPEN, MJ_STRANGE };

/* Whether the site is switched by its code, and whether its kind can be switched here. */
bool mj_is_text(const struct mj_site *site);
bool mj_can_switch(const struct mj_site *site);
enum mj_state mj_site_state(const struct mj_site *site);

struct mj_spot mj_spot_of(const struct mj_site *site);

/* ---- maps.c ---------------------------------------------------------------------------------- */

/* Fills in the mappings of the runs now; without /proc, the protections of the segments. */
void mj_look_at_maps(struct mj_digest *digest);

/* ---- write.c --------------------------------------------------------------------------------- */

/* Opens all sites, which must be dormant and mapped private, or none. Returns 0 or an error. Only
   after -ENOTRECOVERABLE could something not be rolled back. */
int mj_open_sites(const struct mj_digest *digest);

/* Closes the sites of our slots. Continues after a failure, and returns the first error. Skips
   sites that are dormant already. */
int mj_close_sites(const struct mj_digest *digest);

/* ---- change.c -------------------------------------------------------------------------------- */

struct mj_change {
    struct mj_digest *digest;
    const char *format;
    enum marker_kind kind;
    uintptr_t probe;
    void *data;
    bool published; /* it was in the slots */
    bool quiet;     /* removed, and no thread was inside at the first check */
};

/* Both take a struct mj_change. Objects must be held, and the caller must serialise changes. */
int mj_apply_set(void *change);
int mj_apply_disable(void *change);

/* The caller must hold no lock, and no other thread may use the digest. */
void mj_wait_until_quiet(struct mj_digest *digest);

/* MJ_CPU_..., set before an adapter is. */
extern uint32_t mj_cpu_flags;

/* call.S: the adapter for any function. Not to be called from C. */
void mj_call_saving_vectors(void);

bool mj_is_on(const struct mj_site *site);
enum marker_sync mj_last_sync(void);

#pragma GCC visibility pop

#endif

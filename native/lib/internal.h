/* SPDX-License-Identifier: MIT */
/*
 * internal.h: what the files of libmarkerjit.a tell one another.
 *
 *     notes.c   loaded objects -> sites          text.c   a site's bytes: judge, change, fence
 *     change.c  set, take away, wait     probes.c the door, and what was set
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

#pragma GCC visibility push(hidden)

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
    uint8_t protection; /* PROT_ of the segment that holds the code */
    bool on;            /* for marker_for_each */
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

enum mj_state { MJ_DORMANT, MJ_OPEN, MJ_STRANGE };

/* Whether the site is of a kind that text.c can open. */
bool mj_can_switch(const struct mj_site *site);
enum mj_state mj_site_state(const struct mj_site *site);

/* 0, or -EACCES when one of the sites that need writing is in a shared mapping. */
int mj_refuse_shared(const struct mj_sites *sites);

/* Opening stops at the first failure; closing goes on and returns the first. A site that is already
   as asked is left alone: code folding (lld --icf) gives one site two notes. */
int mj_open_sites(const struct mj_sites *sites);
int mj_close_sites(const struct mj_sites *sites);

/* Returns when every thread has executed a serialising instruction, or as near as can be had. */
enum marker_sync mj_sync_cores(void);

struct mj_change {
    struct mj_sites sites;
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

/* With no lock held. */
void mj_wait_until_quiet(const char *name);

bool mj_is_on(const struct mj_site *site);
enum marker_sync mj_last_sync(void);

#pragma GCC visibility pop

#endif

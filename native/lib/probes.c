/* SPDX-License-Identifier: MIT */
/*
 * probes.c: the public functions, and what was set here.
 *
 * Locks: `lock` before the loader's, and neither while waiting or calling back. A name that
 * is being waited for stays in `settings`, so that no thread sets it meanwhile.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A name that was ever set here. Stays, with what is known of its sites: about a page, and for many
   sites 56 bytes each. */
struct setting {
    struct setting *next;
    uintptr_t probe; /* as in the slot; 0: none is set */
    bool leaving;    /* disabled, and waited for: only the waiting thread uses the digest */
    struct mj_digest digest;
    char name[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct setting *settings; /* under lock; the last one used first */

static struct setting *setting_create(const char *name) {
    const size_t name_size = strlen(name) + 1;
    struct setting *setting = malloc(sizeof(*setting) + name_size);

    if (setting) {
        *setting = (struct setting){.next = NULL};
        memcpy(setting->name, name, name_size);
        setting->digest.name = setting->name;
    }
    return setting;
}

static void setting_push(struct setting *setting) {
    setting->next = settings;
    settings = setting;
}

static struct setting *setting_find(const char *name) {
    for (struct setting **at = &settings; *at; at = &(*at)->next)
        if (!strcmp((*at)->name, name)) {
            struct setting *found = *at;

            *at = found->next;
            setting_push(found);
            return found;
        }
    return NULL;
}

/* The first in the list, whose name has no site. */
static void setting_drop(struct setting *setting) {
    settings = setting->next;
    mj_digest_deinit(&setting->digest);
    free(setting);
}

/* Called with the lock, which it gives back. */
static void leave_and_unlock(struct setting *setting, bool quiet) {
    if (!quiet) {
        setting->leaving = true;
        pthread_mutex_unlock(&lock);
        mj_wait_until_quiet(&setting->digest);
        pthread_mutex_lock(&lock);
        setting->leaving = false;
    }
    setting->probe = 0;
    pthread_mutex_unlock(&lock);
}

/* ---- the door -------------------------------------------------------------------------------- */

static bool is_sound(const char *name, mj_probe_fn *function, enum marker_kind kind) {
    if (!name)
        return false;
    if (kind == MARKER_INLINE)
        return !function;
    return kind == MARKER_CALL && function && !((uintptr_t)function & MJ_PROBE_COUNTED);
}

static int set_and_unlock(struct setting *setting, struct mj_change *change) {
    int error;

    if (setting->probe) {
        pthread_mutex_unlock(&lock);
        return -EBUSY;
    }
    change->digest = &setting->digest;
    error = mj_with_objects_held(mj_apply_set, change);
    if (!error || change->published)
        setting->probe = change->probe;
    if (error && change->published) {
        leave_and_unlock(setting, change->quiet);
        return error;
    }
    if (!setting->digest.site_count)
        setting_drop(setting);
    pthread_mutex_unlock(&lock);
    return error;
}

/* Cancellation is off: what we call are cancellation points, and we hold locks. */
int marker_set_probe_data(const char *name, const char *format, mj_probe_fn *function, void *data,
                          enum marker_kind kind) {
    struct mj_change change = {.format = format, .kind = kind, .data = data};
    struct setting *setting;
    int error, cancel_state;

    if (!is_sound(name, function, kind))
        return -EINVAL;
    change.probe =
        (kind == MARKER_INLINE ? MJ_PROBE_INLINE : (uintptr_t)function) | MJ_PROBE_COUNTED;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    pthread_mutex_lock(&lock);
    setting = setting_find(name);
    if (!setting && (setting = setting_create(name)))
        setting_push(setting);
    if (setting) {
        error = set_and_unlock(setting, &change);
    } else {
        error = -ENOMEM;
        pthread_mutex_unlock(&lock);
    }
    pthread_setcancelstate(cancel_state, NULL);
    return error;
}

int marker_set_probe_format(const char *name, const char *format, mj_probe_fn *function,
                            enum marker_kind kind) {
    return marker_set_probe_data(name, format, function, NULL, kind);
}

int marker_set_probe(const char *name, mj_probe_fn *function, enum marker_kind kind) {
    return marker_set_probe_data(name, NULL, function, NULL, kind);
}

int marker_disable_probe(const char *name) {
    struct mj_change change = {.digest = NULL};
    struct setting *setting;
    int error, cancel_state;

    if (!name)
        return -EINVAL;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    pthread_mutex_lock(&lock);
    setting = setting_find(name);
    if (!setting || !setting->probe) {
        error = -ENOENT;
    } else if (setting->leaving) {
        error = -EBUSY;
    } else {
        change.digest = &setting->digest;
        change.probe = setting->probe;
        error = mj_with_objects_held(mj_apply_disable, &change);
    }
    if (change.published)
        leave_and_unlock(setting, change.quiet);
    else
        pthread_mutex_unlock(&lock);
    pthread_setcancelstate(cancel_state, NULL);
    return error;
}

/* ---- looking --------------------------------------------------------------------------------- */

static int read_listing(void *data) {
    struct mj_sites *sites = data;
    const int error = mj_sites_read(sites);

    for (size_t i = 0; i < sites->count; i++)
        sites->items[i].on = mj_is_on(&sites->items[i]);
    return error;
}

static struct marker_site describe(const struct mj_site *site) {
    return (struct marker_site){
        .name = site->name,
        .format = site->format,
        .file = site->file,
        .line = site->line,
        .kind = site->kind,
        .argc = site->argc,
        .has_inline = (site->flags & MJ_FLAG_INLINE) != 0,
        .on = site->on,
        .address = site->code,
        .slot = site->slot,
    };
}

static int list_sites(struct mj_sites *sites) {
    int error, cancel_state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    error = mj_with_objects_held(read_listing, sites);
    pthread_setcancelstate(cancel_state, NULL);
    return error;
}

int marker_for_each(int (*callback)(const struct marker_site *site, void *data), void *data) {
    struct mj_sites sites = {0};
    int result = callback ? list_sites(&sites) : -EINVAL;

    for (size_t i = 0; i < sites.count && !result; i++) {
        const struct marker_site site = describe(&sites.items[i]);

        result = callback(&site, data);
    }
    mj_sites_deinit(&sites);
    return result;
}

int marker_get_statistics(struct marker_statistics *statistics) {
    struct mj_sites sites = {0};
    const int error = list_sites(&sites);

    *statistics = (struct marker_statistics){sites.count, sites.skipped_notes, mj_last_sync()};
    mj_sites_deinit(&sites);
    return error;
}

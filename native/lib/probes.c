/* SPDX-License-Identifier: MIT */
/*
 * probes.c: the public functions, and what was set here.
 *
 * Locks: `lock` before the loader's, and neither while waiting or calling back. A name that is
 * being waited for stays in `settings`, so that nobody sets it meanwhile.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A probe that was set here. */
struct setting {
    struct setting *next;
    uintptr_t probe; /* as in the slot */
    bool leaving;    /* disabled, and waited for */
    char name[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct setting *settings; /* under lock */

static struct setting *setting_create(const char *name, uintptr_t probe) {
    const size_t name_size = strlen(name) + 1;
    struct setting *setting = malloc(sizeof(*setting) + name_size);

    if (setting) {
        *setting = (struct setting){.probe = probe};
        memcpy(setting->name, name, name_size);
    }
    return setting;
}

static struct setting **setting_find(const char *name) {
    struct setting **at = &settings;

    while (*at && strcmp((*at)->name, name))
        at = &(*at)->next;
    return at;
}

/* Called with the lock, and the setting in the list. Gives back both. */
static void leave_and_unlock(struct setting *setting, bool quiet) {
    if (!quiet) {
        setting->leaving = true;
        pthread_mutex_unlock(&lock);
        mj_wait_until_quiet(setting->name);
        pthread_mutex_lock(&lock);
    }
    *setting_find(setting->name) = setting->next;
    pthread_mutex_unlock(&lock);
    free(setting);
}

/* ---- the door -------------------------------------------------------------------------------- */

static bool is_sound(const char *name, mj_probe_fn *function, enum marker_kind kind) {
    if (!name)
        return false;
    if (kind == MARKER_INLINE)
        return !function;
    return kind == MARKER_CALL && function && !((uintptr_t)function & MJ_PROBE_COUNTED);
}

/* Cancellation is off: what we call are cancellation points, and we hold locks. */
int marker_set_probe_data(const char *name, const char *format, mj_probe_fn *function, void *data,
                          enum marker_kind kind) {
    struct mj_change change = {
        .sites = {.name = name}, .format = format, .kind = kind, .data = data};
    struct setting *setting;
    int error, cancel_state;

    if (!is_sound(name, function, kind))
        return -EINVAL;
    change.probe =
        (kind == MARKER_INLINE ? MJ_PROBE_INLINE : (uintptr_t)function) | MJ_PROBE_COUNTED;
    setting = setting_create(name, change.probe);
    if (!setting)
        return -ENOMEM;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    pthread_mutex_lock(&lock);
    error = *setting_find(name) ? -EBUSY : mj_with_objects_held(mj_apply_set, &change);
    if (!error || change.published) {
        setting->next = settings;
        settings = setting;
    }
    if (error && change.published) {
        leave_and_unlock(setting, change.quiet);
    } else {
        pthread_mutex_unlock(&lock);
        if (error)
            free(setting);
    }
    mj_sites_deinit(&change.sites);
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
    struct mj_change change = {.sites = {.name = name}};
    struct setting *setting;
    int error, cancel_state;

    if (!name)
        return -EINVAL;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    pthread_mutex_lock(&lock);
    setting = *setting_find(name);
    if (!setting) {
        error = -ENOENT;
    } else if (setting->leaving) {
        error = -EBUSY;
    } else {
        change.probe = setting->probe;
        error = mj_with_objects_held(mj_apply_disable, &change);
    }
    if (change.published)
        leave_and_unlock(setting, change.quiet);
    else
        pthread_mutex_unlock(&lock);
    mj_sites_deinit(&change.sites);
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

/* SPDX-License-Identifier: MIT */
/* The keys of kvserver, and the counters that say what was done with them.
 *
 * Offers an exact, thread-safe table from byte strings to byte strings, and
 * the exact counters against which tests compare marker events. Beside every
 * increment of a counter stands the marker of the same meaning, so a marker
 * that is on for the whole run yields exactly as many events as were counted.
 *
 * Does not expire, evict or persist anything.
 */
#ifndef KV_STORE_H
#define KV_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct kv_bytes {
    const char *data;
    size_t size;
};

/* One block per thread, on cache lines of its own: a thread increments only
 * its own block, and INFO adds the blocks up. All increments are relaxed; a
 * sum is exact once the requests it should include have been answered. */
struct kv_counters {
    _Alignas(128) atomic_ulong connections_accepted; /* kv_accept: by accept4 */
    atomic_ulong connections_closed;                 /* kv_close: by either side, and at shutdown */
    atomic_ulong
        commands;        /* kv_command: complete requests, known or not; INFO counts itself first */
    atomic_ulong hits;   /* kv_hit: GETs that found their key */
    atomic_ulong misses; /* kv_miss: GETs that did not */
    atomic_ulong stores; /* kv_store: values written by SET (if NX/XX let it) and INCR */
    atomic_ulong deletes; /* kv_delete: keys really removed, by DEL and FLUSHALL */
};

static inline void kv_count(atomic_ulong *counter) {
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* An immutable value, shared by the table and the readers of the moment. */
struct kv_value {
    atomic_uint references;
    size_t size;
    char data[];
};

enum kv_set_when { KV_SET_ALWAYS, KV_SET_IF_ABSENT, KV_SET_IF_PRESENT };

struct kv_store;

struct kv_store *kv_store_create(void);
void kv_store_destroy(struct kv_store *store);

/* Every call below is safe from any thread; `counters` is the caller's block. */

/* The value, to be given back with kv_value_release, or NULL. */
struct kv_value *kv_store_get(struct kv_store *store, struct kv_counters *counters,
                              struct kv_bytes key);
void kv_value_release(struct kv_value *value);

/* False when `when` forbade it. */
bool kv_store_set(struct kv_store *store, struct kv_counters *counters, struct kv_bytes key,
                  struct kv_bytes value, enum kv_set_when when);

/* False, and nothing changes, when the value is not an integer or would overflow. */
bool kv_store_increment(struct kv_store *store, struct kv_counters *counters, struct kv_bytes key,
                        long long *result);

bool kv_store_delete(struct kv_store *store, struct kv_counters *counters, struct kv_bytes key);
bool kv_store_exists(struct kv_store *store, struct kv_bytes key);
size_t kv_store_size(struct kv_store *store);
void kv_store_clear(struct kv_store *store, struct kv_counters *counters);

/* malloc and realloc for a test target: out of memory ends the program. */
void *kv_resize(void *memory, size_t size);

#endif

/* SPDX-License-Identifier: MIT */
/* A hash table in 64 shards, each a chained table under its own mutex.
 *
 * Inside a lock only pointers move: values are built before it and freed, and
 * markers fire, after it, so tracing one thread does not make others wait.
 * The price is that events of two threads on one key may appear in the other
 * order than their effects; the counts are exact nevertheless.
 */
#include "kv_store.h"

#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <markerjit/marker.h>

enum { SHARDS = 64, FIRST_BUCKETS = 16, INTEGER_DIGITS = 20 };

struct entry {
    struct entry *next;
    uint64_t hash;
    struct kv_value *value;
    size_t key_size;
    char key[];
};

struct shard {
    _Alignas(64) pthread_mutex_t lock;
    struct entry **buckets;
    size_t bucket_count; /* a power of two */
    size_t entry_count;
};

struct kv_store {
    struct shard shards[SHARDS];
};

void *kv_resize(void *memory, size_t size) {
    void *resized = realloc(memory, size);
    if (!resized) {
        fprintf(stderr, "kvserver: out of memory for %zu bytes\n", size);
        abort();
    }
    return resized;
}

/* --- values --- */

static struct kv_value *value_create(struct kv_bytes bytes) {
    struct kv_value *value = kv_resize(NULL, sizeof(*value) + bytes.size);
    atomic_init(&value->references, 1);
    value->size = bytes.size;
    if (bytes.size)
        memcpy(value->data, bytes.data, bytes.size);
    return value;
}

static struct kv_value *value_share(struct kv_value *value) {
    atomic_fetch_add_explicit(&value->references, 1, memory_order_relaxed);
    return value;
}

void kv_value_release(struct kv_value *value) {
    /* acq_rel: the thread that frees must come after the last read of all others. */
    if (value && atomic_fetch_sub_explicit(&value->references, 1, memory_order_acq_rel) == 1)
        free(value);
}

/* Only the text that printing the integer would give: no "+1", "007" or " 1". */
static bool value_to_integer(const struct kv_value *value, long long *integer) {
    char text[INTEGER_DIGITS + 1] = "", printed[INTEGER_DIGITS + 1];

    if (value->size > INTEGER_DIGITS)
        return false;
    memcpy(text, value->data, value->size);
    *integer = strtoll(text, NULL, 10);
    size_t length = (size_t)snprintf(printed, sizeof(printed), "%lld", *integer);
    return length == value->size && memcmp(printed, value->data, length) == 0;
}

/* --- shards; the caller holds the lock --- */

/* FNV-1a, finished by a multiply so that both ends of the hash are usable:
 * the high bits choose the shard, the low bits the bucket. */
static uint64_t hash_of(struct kv_bytes key) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < key.size; i++)
        hash = (hash ^ (unsigned char)key.data[i]) * 0x100000001b3u;
    hash ^= hash >> 32;
    return hash * 0x9e3779b97f4a7c15u;
}

static struct shard *lock_shard(struct kv_store *store, uint64_t hash) {
    struct shard *shard = &store->shards[hash >> 58];
    pthread_mutex_lock(&shard->lock);
    return shard;
}

/* The link that holds the entry, or the empty link at the end of its chain. */
static struct entry **find_link(struct shard *shard, uint64_t hash, struct kv_bytes key) {
    struct entry **link = &shard->buckets[hash & (shard->bucket_count - 1)];
    for (; *link; link = &(*link)->next) {
        struct entry *entry = *link;
        if (entry->hash == hash && entry->key_size == key.size &&
            memcmp(entry->key, key.data, key.size) == 0)
            break;
    }
    return link;
}

static void empty_shard(struct shard *shard) {
    shard->bucket_count = FIRST_BUCKETS;
    shard->entry_count = 0;
    shard->buckets = kv_resize(NULL, FIRST_BUCKETS * sizeof(struct entry *));
    memset(shard->buckets, 0, FIRST_BUCKETS * sizeof(struct entry *));
}

static void double_buckets(struct shard *shard) {
    size_t old_count = shard->bucket_count, new_count = old_count * 2;
    struct entry **buckets = kv_resize(NULL, new_count * sizeof(struct entry *));

    memset(buckets, 0, new_count * sizeof(struct entry *));
    for (size_t i = 0; i < old_count; i++) {
        for (struct entry *entry = shard->buckets[i], *next; entry; entry = next) {
            struct entry **head = &buckets[entry->hash & (new_count - 1)];
            next = entry->next;
            entry->next = *head;
            *head = entry;
        }
    }
    free(shard->buckets);
    shard->buckets = buckets;
    shard->bucket_count = new_count;
}

/* Puts `value` under the key; returns the value it replaces, for release. */
static struct kv_value *put(struct shard *shard, struct entry **link, uint64_t hash,
                            struct kv_bytes key, struct kv_value *value) {
    struct entry *entry = *link;
    if (entry) {
        struct kv_value *old = entry->value;
        entry->value = value;
        return old;
    }
    entry = kv_resize(NULL, sizeof(*entry) + key.size);
    *entry = (struct entry){.hash = hash, .value = value, .key_size = key.size};
    if (key.size)
        memcpy(entry->key, key.data, key.size);
    *link = entry;
    if (++shard->entry_count > shard->bucket_count)
        double_buckets(shard);
    return NULL;
}

/* --- what is counted, each in one place --- */

static void note_store(struct kv_counters *counters, struct kv_bytes key, size_t size) {
    kv_count(&counters->stores);
    MARK(kv_store, "key %.*s size %zu", (int)key.size, key.data, size);
}

static void free_entry(struct entry *entry) {
    kv_value_release(entry->value);
    free(entry);
}

/* The entry is already out of the table, so it is ours alone. */
static void drop_entry(struct kv_counters *counters, struct entry *entry) {
    kv_count(&counters->deletes);
    MARK(kv_delete, "key %.*s", (int)entry->key_size, entry->key);
    free_entry(entry);
}

/* --- the table --- */

struct kv_store *kv_store_create(void) {
    struct kv_store *store = aligned_alloc(_Alignof(struct kv_store), sizeof(*store));
    if (!store)
        return NULL;
    for (int i = 0; i < SHARDS; i++) {
        pthread_mutex_init(&store->shards[i].lock, NULL);
        empty_shard(&store->shards[i]);
    }
    return store;
}

void kv_store_destroy(struct kv_store *store) {
    for (int i = 0; i < SHARDS; i++) {
        struct shard *shard = &store->shards[i];
        /* Not drop_entry: the end of the program deletes no key. */
        for (size_t b = 0; b < shard->bucket_count; b++)
            for (struct entry *entry = shard->buckets[b], *next; entry; entry = next) {
                next = entry->next;
                free_entry(entry);
            }
        free(shard->buckets);
        pthread_mutex_destroy(&shard->lock);
    }
    free(store);
}

struct kv_value *kv_store_get(struct kv_store *store, struct kv_counters *counters,
                              struct kv_bytes key) {
    uint64_t hash = hash_of(key);
    struct shard *shard = lock_shard(store, hash);
    struct entry *entry = *find_link(shard, hash, key);
    struct kv_value *value = entry ? value_share(entry->value) : NULL;
    pthread_mutex_unlock(&shard->lock);

    if (value) {
        kv_count(&counters->hits);
        MARK(kv_hit, "key %.*s size %zu", (int)key.size, key.data, value->size);
    } else {
        kv_count(&counters->misses);
        MARK(kv_miss, "key %.*s", (int)key.size, key.data);
    }
    return value;
}

bool kv_store_set(struct kv_store *store, struct kv_counters *counters, struct kv_bytes key,
                  struct kv_bytes bytes, enum kv_set_when when) {
    struct kv_value *value = value_create(bytes), *surplus = value;
    uint64_t hash = hash_of(key);
    struct shard *shard = lock_shard(store, hash);
    struct entry **link = find_link(shard, hash, key);
    bool allowed = when == KV_SET_ALWAYS || (when == KV_SET_IF_PRESENT) == (*link != NULL);
    if (allowed)
        surplus = put(shard, link, hash, key, value);
    pthread_mutex_unlock(&shard->lock);

    if (allowed)
        note_store(counters, key, bytes.size);
    kv_value_release(surplus);
    return allowed;
}

bool kv_store_increment(struct kv_store *store, struct kv_counters *counters, struct kv_bytes key,
                        long long *result) {
    /* Room for any integer; which one is known only inside the lock. */
    struct kv_value *value = value_create((struct kv_bytes){"-9223372036854775808", 20});
    struct kv_value *surplus = value;
    uint64_t hash = hash_of(key);
    struct shard *shard = lock_shard(store, hash);
    struct entry **link = find_link(shard, hash, key);
    long long before = 0;
    bool possible = (!*link || value_to_integer((*link)->value, &before)) && before < LLONG_MAX;
    size_t size = 0;
    if (possible) {
        char printed[INTEGER_DIGITS + 1];
        *result = before + 1;
        size = value->size = (size_t)snprintf(printed, sizeof(printed), "%lld", *result);
        memcpy(value->data, printed, size);
        surplus = put(shard, link, hash, key, value);
    }
    pthread_mutex_unlock(&shard->lock);

    if (possible)
        note_store(counters, key, size);
    kv_value_release(surplus);
    return possible;
}

bool kv_store_delete(struct kv_store *store, struct kv_counters *counters, struct kv_bytes key) {
    uint64_t hash = hash_of(key);
    struct shard *shard = lock_shard(store, hash);
    struct entry **link = find_link(shard, hash, key);
    struct entry *entry = *link;
    if (entry) {
        *link = entry->next;
        shard->entry_count--;
    }
    pthread_mutex_unlock(&shard->lock);

    if (entry)
        drop_entry(counters, entry);
    return entry != NULL;
}

bool kv_store_exists(struct kv_store *store, struct kv_bytes key) {
    uint64_t hash = hash_of(key);
    struct shard *shard = lock_shard(store, hash);
    bool exists = *find_link(shard, hash, key) != NULL;
    pthread_mutex_unlock(&shard->lock);
    return exists;
}

size_t kv_store_size(struct kv_store *store) {
    size_t size = 0;
    for (int i = 0; i < SHARDS; i++) {
        struct shard *shard = &store->shards[i];
        pthread_mutex_lock(&shard->lock);
        size += shard->entry_count;
        pthread_mutex_unlock(&shard->lock);
    }
    return size;
}

/* Shard by shard: keys set meanwhile may survive, as with any FLUSHALL race. */
void kv_store_clear(struct kv_store *store, struct kv_counters *counters) {
    for (int i = 0; i < SHARDS; i++) {
        struct shard *shard = &store->shards[i];
        pthread_mutex_lock(&shard->lock);
        struct entry **buckets = shard->buckets;
        size_t bucket_count = shard->bucket_count;
        empty_shard(shard);
        pthread_mutex_unlock(&shard->lock);

        for (size_t b = 0; b < bucket_count; b++)
            for (struct entry *entry = buckets[b], *next; entry; entry = next) {
                next = entry->next;
                drop_entry(counters, entry);
            }
        free(buckets);
    }
}

/* SPDX-License-Identifier: MIT */
/* The protocol of a kvserver connection: the requests in, the replies out.
 *
 * Offers a parser of RESP2 and inline requests, and the commands, as far as
 * the stock redis-cli and redis-benchmark use them. Knows no sockets. Does not
 * know RESP3, expiry, transactions or quotes in inline requests.
 */
#ifndef KV_PROTOCOL_H
#define KV_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>

#include "kv_store.h"

enum {
    KV_MAX_ARGS = 1024,
    KV_MAX_LINE = 64 << 10,
    KV_MAX_BULK = 16 << 20,
    KV_MAX_REQUEST = 64 << 20, /* all arguments together, so one client's input is bounded */
};

/* Bytes that wait: data[start .. end) of `capacity`. All zero is an empty one. */
struct kv_buffer {
    char *data;
    size_t start, end, capacity;
};

static inline size_t kv_buffer_size(const struct kv_buffer *buffer) {
    return buffer->end - buffer->start;
}

void kv_buffer_reserve(struct kv_buffer *buffer, size_t room);
void kv_buffer_append(struct kv_buffer *buffer, const void *data, size_t size);
/* Drops bytes from the front; a large buffer that runs empty is given back. */
void kv_buffer_consume(struct kv_buffer *buffer, size_t size);
void kv_buffer_deinit(struct kv_buffer *buffer);

enum kv_parse { KV_INCOMPLETE, KV_COMPLETE, KV_MALFORMED };

struct kv_request {
    int argc; /* 0 is possible: an empty line or array, which gets no reply */
    size_t consumed;
    const char *error;                 /* why it is malformed */
    struct kv_bytes argv[KV_MAX_ARGS]; /* into the parsed data */
};

enum kv_parse kv_parse(const char *data, size_t size, struct kv_request *request);

/* The server as its commands see it. */
struct kv_service {
    struct kv_store *store;
    struct kv_counters *counters; /* one block per thread */
    int counter_blocks;
    int threads;
    unsigned port;
};

/* The client. */
struct kv_client {
    int fd;
    bool quit; /* close once the replies are out */
    unsigned long commands;
    struct kv_counters *counters; /* of the thread that serves it */
    struct kv_buffer replies;
};

void kv_execute(const struct kv_service *service, struct kv_client *client,
                const struct kv_request *request);
void kv_reply_error(struct kv_buffer *replies, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif

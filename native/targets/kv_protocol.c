/* SPDX-License-Identifier: MIT */
/* RESP2 parsing, replies and the command table; see kv_protocol.h.
 *
 * The parser keeps no state: it starts over on the bytes of an unfinished
 * request when more arrive. Only the length lines are looked at again, never
 * the contents, so even a large request costs little.
 */
#include "kv_protocol.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <markerjit/marker.h>

/* --- buffers --- */

enum { FIRST_CAPACITY = 16 << 10, KEPT_CAPACITY = 1 << 20 };

void kv_buffer_reserve(struct kv_buffer *buffer, size_t room) {
    size_t size = kv_buffer_size(buffer), capacity = buffer->capacity;

    if (capacity - buffer->end >= room)
        return;
    if (buffer->start) {
        memmove(buffer->data, buffer->data + buffer->start, size);
        buffer->start = 0;
        buffer->end = size;
    }
    if (!capacity)
        capacity = FIRST_CAPACITY;
    while (capacity - size < room)
        capacity *= 2;
    if (capacity != buffer->capacity) {
        buffer->data = kv_resize(buffer->data, capacity);
        buffer->capacity = capacity;
    }
}

void kv_buffer_append(struct kv_buffer *buffer, const void *data, size_t size) {
    if (!size)
        return;
    kv_buffer_reserve(buffer, size);
    memcpy(buffer->data + buffer->end, data, size);
    buffer->end += size;
}

void kv_buffer_consume(struct kv_buffer *buffer, size_t size) {
    buffer->start += size;
    if (buffer->start < buffer->end)
        return;
    buffer->start = buffer->end = 0;
    if (buffer->capacity > KEPT_CAPACITY)
        kv_buffer_deinit(buffer);
}

void kv_buffer_deinit(struct kv_buffer *buffer) {
    free(buffer->data);
    *buffer = (struct kv_buffer){0};
}

/* --- requests --- */

struct cursor {
    const char *at, *end;
};

static enum kv_parse malformed(struct kv_request *request, const char *why) {
    request->error = why;
    return KV_MALFORMED;
}

/* One line without its end; \n alone ends it too, as people type it. */
static enum kv_parse take_line(struct cursor *in, struct kv_request *request,
                               struct kv_bytes *line) {
    size_t left = (size_t)(in->end - in->at);
    const char *newline = memchr(in->at, '\n', left < KV_MAX_LINE ? left : KV_MAX_LINE);

    if (!newline)
        return left < KV_MAX_LINE ? KV_INCOMPLETE : malformed(request, "line too long");
    *line = (struct kv_bytes){in->at, (size_t)(newline - in->at)};
    if (line->size && newline[-1] == '\r')
        line->size--;
    in->at = newline + 1;
    return KV_COMPLETE;
}

/* The number after the type byte: "*3", "$-1". Nine digits hold every bound. */
static bool number_of(struct kv_bytes line, long *number) {
    bool negative = line.size > 1 && line.data[1] == '-';
    size_t i = negative ? 2 : 1;

    if (i >= line.size || line.size - i > 9)
        return false;
    *number = 0;
    for (; i < line.size; i++) {
        if (!isdigit((unsigned char)line.data[i]))
            return false;
        *number = *number * 10 + (line.data[i] - '0');
    }
    if (negative)
        *number = -*number;
    return true;
}

static enum kv_parse take_bulk(struct cursor *in, struct kv_request *request,
                               struct kv_bytes *bulk) {
    struct kv_bytes line;
    long size;

    if (in->at < in->end && *in->at != '$')
        return malformed(request, "expected '$'");
    enum kv_parse got = take_line(in, request, &line);
    if (got != KV_COMPLETE)
        return got;
    if (!number_of(line, &size) || size < 0 || size > KV_MAX_BULK)
        return malformed(request, "invalid bulk length");
    if (in->end - in->at < size + 2)
        return KV_INCOMPLETE;
    if (memcmp(in->at + size, "\r\n", 2) != 0)
        return malformed(request, "expected CRLF after a bulk string");
    *bulk = (struct kv_bytes){in->at, (size_t)size};
    in->at += size + 2;
    return KV_COMPLETE;
}

static enum kv_parse split_words(struct kv_bytes line, struct kv_request *request) {
    const char *at = line.data, *end = line.data + line.size;

    for (;;) {
        while (at < end && isspace((unsigned char)*at))
            at++;
        if (at == end)
            return KV_COMPLETE;
        if (request->argc == KV_MAX_ARGS)
            return malformed(request, "too many words in an inline request");
        const char *word = at;
        while (at < end && !isspace((unsigned char)*at))
            at++;
        request->argv[request->argc++] = (struct kv_bytes){word, (size_t)(at - word)};
    }
}

enum kv_parse kv_parse(const char *data, size_t size, struct kv_request *request) {
    struct cursor in = {data, data + size};
    struct kv_bytes line;
    long count;

    request->argc = 0;
    enum kv_parse got = take_line(&in, request, &line);
    if (got != KV_COMPLETE)
        return got;
    if (line.size == 0 || line.data[0] != '*') {
        got = split_words(line, request);
    } else if (!number_of(line, &count) || count > KV_MAX_ARGS) {
        got = malformed(request, "invalid multibulk length");
    } else {
        while (got == KV_COMPLETE && request->argc < count)
            if ((got = take_bulk(&in, request, &request->argv[request->argc])) == KV_COMPLETE)
                request->argc++;
        if (got == KV_INCOMPLETE && size > KV_MAX_REQUEST)
            got = malformed(request, "request too large");
    }
    request->consumed = (size_t)(in.at - data);
    return got;
}

/* --- replies --- */

static void reply_text(struct kv_buffer *replies, const char *text) {
    kv_buffer_append(replies, text, strlen(text));
}

static void reply_ok(struct kv_buffer *replies) { reply_text(replies, "+OK\r\n"); }

static void reply_number(struct kv_buffer *replies, char type, long long number) {
    char text[32];
    int size = snprintf(text, sizeof(text), "%c%lld\r\n", type, number);
    kv_buffer_append(replies, text, (size_t)size);
}

static void reply_bulk(struct kv_buffer *replies, struct kv_bytes bulk) {
    reply_number(replies, '$', (long long)bulk.size);
    kv_buffer_append(replies, bulk.data, bulk.size);
    reply_text(replies, "\r\n");
}

static void reply_nil(struct kv_buffer *replies) { reply_text(replies, "$-1\r\n"); }

void kv_reply_error(struct kv_buffer *replies, const char *format, ...) {
    char text[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    /* The message may quote the client's bytes, which must not end the line. */
    for (char *c = text; *c; c++)
        if (!isprint((unsigned char)*c))
            *c = '?';
    reply_text(replies, "-ERR ");
    reply_text(replies, text);
    reply_text(replies, "\r\n");
}

/* --- commands: args[0] is the name --- */

struct call {
    const struct kv_service *service;
    struct kv_client *client;
    struct kv_buffer *replies;
    const struct kv_bytes *args;
    int argc;
};

static bool is_word(struct kv_bytes bytes, const char *word) {
    return bytes.size == strlen(word) && strncasecmp(bytes.data, word, bytes.size) == 0;
}

static void run_ping(struct call *call) {
    if (call->argc == 2)
        reply_bulk(call->replies, call->args[1]);
    else
        reply_text(call->replies, "+PONG\r\n");
}

static void run_echo(struct call *call) { reply_bulk(call->replies, call->args[1]); }

static void run_get(struct call *call) {
    struct kv_value *value =
        kv_store_get(call->service->store, call->client->counters, call->args[1]);
    if (!value) {
        reply_nil(call->replies);
        return;
    }
    reply_bulk(call->replies, (struct kv_bytes){value->data, value->size});
    kv_value_release(value);
}

static void run_set(struct call *call) {
    enum kv_set_when when = KV_SET_ALWAYS;

    for (int i = 3; i < call->argc; i++) {
        struct kv_bytes option = call->args[i];
        if (is_word(option, "NX") && when != KV_SET_IF_PRESENT) {
            when = KV_SET_IF_ABSENT;
        } else if (is_word(option, "XX") && when != KV_SET_IF_ABSENT) {
            when = KV_SET_IF_PRESENT;
        } else if (is_word(option, "EX") || is_word(option, "PX")) {
            /* Refused, since a key that outlives its time would be a silent lie. */
            kv_reply_error(call->replies, "expiry is not supported by this server");
            return;
        } else {
            kv_reply_error(call->replies, "syntax error");
            return;
        }
    }
    if (kv_store_set(call->service->store, call->client->counters, call->args[1], call->args[2],
                     when))
        reply_ok(call->replies);
    else
        reply_nil(call->replies);
}

static void run_incr(struct call *call) {
    long long result;
    if (kv_store_increment(call->service->store, call->client->counters, call->args[1], &result))
        reply_number(call->replies, ':', result);
    else
        kv_reply_error(call->replies, "value is not an integer or out of range");
}

static void run_del(struct call *call) {
    int deleted = 0;
    for (int i = 1; i < call->argc; i++)
        deleted += kv_store_delete(call->service->store, call->client->counters, call->args[i]);
    reply_number(call->replies, ':', deleted);
}

static void run_exists(struct call *call) {
    int found = 0;
    for (int i = 1; i < call->argc; i++)
        found += kv_store_exists(call->service->store, call->args[i]);
    reply_number(call->replies, ':', found);
}

static void run_dbsize(struct call *call) {
    reply_number(call->replies, ':', (long long)kv_store_size(call->service->store));
}

static void run_flushall(struct call *call) {
    kv_store_clear(call->service->store, call->client->counters);
    reply_ok(call->replies);
}

static unsigned long sum(const struct kv_service *service, size_t offset) {
    unsigned long total = 0;
    for (int i = 0; i < service->counter_blocks; i++) {
        const char *block = (const char *)&service->counters[i];
        total += atomic_load_explicit((const atomic_ulong *)(block + offset), memory_order_relaxed);
    }
    return total;
}

/* All sections, whichever is asked for: there are only two. */
static void run_info(struct call *call) {
    static const struct {
        const char *name;
        size_t offset;
    } counters[] = {
#define COUNTER(field) {#field, offsetof(struct kv_counters, field)}
        COUNTER(connections_accepted),
        COUNTER(connections_closed),
        COUNTER(commands),
        COUNTER(hits),
        COUNTER(misses),
        COUNTER(stores),
        COUNTER(deletes),
#undef COUNTER
    };
    const struct kv_service *service = call->service;
    char text[1024];
    int size = snprintf(text, sizeof(text),
                        "# Server\r\nredis_version:7.0.0-compatible\r\nprocess_id:%d\r\n"
                        "tcp_port:%u\r\nthreads:%d\r\n\r\n# Markerjit\r\n",
                        (int)getpid(), service->port, service->threads);

    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
        size += snprintf(text + size, sizeof(text) - (size_t)size, "%s:%lu\r\n", counters[i].name,
                         sum(service, counters[i].offset));
    reply_bulk(call->replies, (struct kv_bytes){text, (size_t)size});
}

/* redis-benchmark asks for these two, and warns when it gets no answer. */
static void run_config(struct call *call) {
    if (!is_word(call->args[1], "GET")) {
        kv_reply_error(call->replies, "only CONFIG GET is supported");
        return;
    }
    if (is_word(call->args[2], "save"))
        reply_text(call->replies, "*2\r\n$4\r\nsave\r\n$0\r\n\r\n");
    else if (is_word(call->args[2], "appendonly"))
        reply_text(call->replies, "*2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n");
    else
        reply_text(call->replies, "*0\r\n");
}

/* redis-cli asks for COMMAND DOCS when it starts; it lives without them. */
static void run_command(struct call *call) { reply_text(call->replies, "*0\r\n"); }

static void run_client(struct call *call) {
    if (is_word(call->args[1], "SETNAME") || is_word(call->args[1], "SETINFO"))
        reply_ok(call->replies);
    else
        kv_reply_error(call->replies, "only CLIENT SETNAME and SETINFO are supported");
}

static void run_select(struct call *call) {
    if (is_word(call->args[1], "0"))
        reply_ok(call->replies);
    else
        kv_reply_error(call->replies, "DB index is out of range");
}

static void run_quit(struct call *call) {
    call->client->quit = true;
    reply_ok(call->replies);
}

/* HELLO is missing on purpose: "unknown command" makes clients stay with RESP2. */
static const struct {
    const char *name;
    int min_argc, max_argc;
    void (*run)(struct call *call);
} commands[] = {
    {"GET", 2, 2, run_get},
    {"SET", 3, KV_MAX_ARGS, run_set},
    {"INCR", 2, 2, run_incr},
    {"PING", 1, 2, run_ping},
    {"DEL", 2, KV_MAX_ARGS, run_del},
    {"EXISTS", 2, KV_MAX_ARGS, run_exists},
    {"ECHO", 2, 2, run_echo},
    {"DBSIZE", 1, 1, run_dbsize},
    {"FLUSHALL", 1, 2, run_flushall}, /* 2: ASYNC or SYNC, which are one here */
    {"INFO", 1, KV_MAX_ARGS, run_info},
    {"CONFIG", 3, 3, run_config},
    {"COMMAND", 1, KV_MAX_ARGS, run_command},
    {"CLIENT", 2, KV_MAX_ARGS, run_client},
    {"SELECT", 2, 2, run_select},
    {"QUIT", 1, 1, run_quit},
};

void kv_execute(const struct kv_service *service, struct kv_client *client,
                const struct kv_request *request) {
    struct kv_bytes name = request->argv[0];
    struct call call = {service, client, &client->replies, request->argv, request->argc};

    client->commands++;
    kv_count(&client->counters->commands);
    /* args: without the name itself. */
    MARK(kv_command, "name %.*s args %d client %d", (int)name.size, name.data, request->argc - 1,
         client->fd);

    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (!is_word(name, commands[i].name))
            continue;
        if (call.argc < commands[i].min_argc || call.argc > commands[i].max_argc)
            kv_reply_error(call.replies, "wrong number of arguments for '%s' command",
                           commands[i].name);
        else
            commands[i].run(&call);
        return;
    }
    kv_reply_error(call.replies, "unknown command '%.*s'", name.size < 64 ? (int)name.size : 64,
                   name.data);
}

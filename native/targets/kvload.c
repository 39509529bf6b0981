/* SPDX-License-Identifier: MIT */
/* kvload: drives kvserver with GETs and SETs and checks every reply.
 *
 *     kvload --port P [--connections 16] [--pipeline 8] [--seconds S | --requests N]
 *            [--rate R] [--keys 1000] [--interval-ms I] [--seed X]
 *
 * One thread keeps `pipeline` requests in flight on each connection, 80 % GET
 * and 20 % SET. With a rate it sends at most R requests a second in all. The value of a key is a
 * function of the key, so a GET must bring that value or nil, and several kvloads may share a
 * server. Prints JSON lines, the last one (after SIGTERM or SIGINT too) a summary. Exit code 1
 * after errors or wrong replies, 2 for wrong usage. Latency includes the time that a request waits
 * behind those before it in its pipeline.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_CONNECTIONS = 1000,
    MAX_PIPELINE = 256,
    MAX_VALUE = 128,
    MAX_MESSAGE = 256, /* any request and any right reply is shorter */
    BUFFER_SIZE = MAX_PIPELINE * MAX_MESSAGE,
    PATIENCE_S = 5, /* for a server that takes no request, and for the last replies */
};

struct flight {
    double sent_s;
    unsigned long key;
    bool is_get;
};

struct connection {
    int fd;                    /* -1: gone */
    unsigned long first, next; /* flights[i % MAX_PIPELINE], from first to before next */
    struct flight flights[MAX_PIPELINE];
    size_t in_size;
    char in[BUFFER_SIZE];
};

static struct connection connections[MAX_CONNECTIONS];
static unsigned long port, connection_count = 16, pipeline = 8, keys = 1000, requests, run_ms,
                           interval_ms, rate, permitted, seed = 1;
static struct { unsigned long issued, answered, errors, wrong, gets, sets, hits, misses; } counts;

static volatile sig_atomic_t stop_signal;
static bool issuing = true;
static int epoll, alive;

static void on_stop_signal(int number) { stop_signal = number; }

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The key, behind zeros, so that sizes differ too. */
static size_t make_value(unsigned long key, char value[MAX_VALUE]) {
    return (size_t)snprintf(value, MAX_VALUE, "%0*lu", 16 + (int)(key * 31 % 100), key);
}

/* Latencies: a bucket is 1/16 of a power of two, so 6 % wide. */
static unsigned long latency_buckets[64 * 16];
static double latency_max_us;

static void latency_add(double seconds) {
    uint64_t ns = (uint64_t)(seconds * 1e9) | 16; /* from 16 on, 4 bits follow the first */
    int power = 63 - __builtin_clzll(ns);
    latency_buckets[power * 16 + (int)(ns >> (power - 4) & 15)]++;
    if (seconds * 1e6 > latency_max_us)
        latency_max_us = seconds * 1e6;
}

/* The upper end of the bucket in which the quantile lies. */
static double latency_us(double quantile) {
    double end_us = 0, left = quantile * (double)counts.answered;
    for (int i = 4 * 16; i < 64 * 16 && left > 0; i++) {
        left -= (double)latency_buckets[i];
        end_us = (double)(17 + i % 16) * (double)(1ull << (i / 16 - 4)) / 1000;
    }
    return end_us < latency_max_us ? end_us : latency_max_us;
}

/* Each request in flight becomes an error, since it got no answer. */
static void connection_fail(struct connection *connection, const char *why) {
    unsigned long lost = connection->next - connection->first;
    if (!counts.errors) /* the first says enough */
        fprintf(stderr, "kvload: connection lost with %lu requests in flight: %s\n", lost, why);
    counts.issued -= lost;
    counts.errors += lost ? lost : 1;
    close(connection->fd);
    connection->fd = -1;
    alive--;
}

/* Blocking, as what is in flight fits its buffers unless the server stops reading. */
static void connection_open(struct connection *connection) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
        fprintf(stderr, "kvload: cannot connect to 127.0.0.1:%lu: %s; is kvserver running there?\n",
                port, strerror(errno));
        exit(1);
    }
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){PATIENCE_S, 0},
               sizeof(struct timeval));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    connection->fd = fd;
    alive++;
}

/* Writes one request to `out`, which has room for MAX_MESSAGE; returns its size. */
static size_t make_request(struct flight *flight, char *out) {
    char key[32], value[MAX_VALUE];
    int key_size = snprintf(key, sizeof(key), "load:%lu", flight->key);

    if (flight->is_get)
        return (size_t)snprintf(out, MAX_MESSAGE, "*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", key_size,
                                key);
    int size = (int)make_value(flight->key, value);
    return (size_t)snprintf(out, MAX_MESSAGE, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%.*s\r\n",
                            key_size, key, size, size, value);
}

/* Fills the pipeline up, as far as the rate permits. */
static void connection_send(struct connection *connection) {
    static char out[BUFFER_SIZE];
    size_t size = 0;
    const double now = now_s();

    while (issuing && connection->next - connection->first < pipeline &&
           (!requests || counts.issued < requests) && (!rate || counts.issued < permitted)) {
        struct flight *flight = &connection->flights[connection->next++ % MAX_PIPELINE];
        *flight = (struct flight){now, (unsigned long)lrand48() % keys, drand48() < 0.8};
        size += make_request(flight, out + size);
        counts.issued++;
    }
    if (size && send(connection->fd, out, size, MSG_NOSIGNAL) != (ssize_t)size)
        connection_fail(connection, "it takes no more requests");
}

static void check_reply(struct flight *flight, const char *line, const char *bulk, size_t size) {
    char value[MAX_VALUE];
    latency_add(now_s() - flight->sent_s);
    counts.answered++;
    *(flight->is_get ? &counts.gets : &counts.sets) += 1;
    if (line[0] == '-')
        counts.errors++;
    else if (!flight->is_get)
        counts.wrong += strncmp(line, "+OK\r\n", 5) != 0;
    else if (strncmp(line, "$-1\r\n", 5) == 0)
        counts.misses++;
    else if (bulk && size == make_value(flight->key, value) && memcmp(bulk, value, size) == 0)
        counts.hits++;
    else
        counts.wrong++;
}

/* Takes the complete replies out of the input; false when it is not RESP. */
static bool take_replies(struct connection *connection) {
    const char *at = connection->in, *end = connection->in + connection->in_size;
    const char *newline;

    while (at < end && (newline = memchr(at, '\n', (size_t)(end - at)))) {
        const char *bulk = NULL, *next = newline + 1;
        long size = *at == '$' ? strtol(at + 1, NULL, 10) : -1;
        if (connection->first == connection->next || !memchr("+-:$", *at, 4) || size > MAX_MESSAGE)
            return false;
        if (size >= 0) {
            bulk = next;
            next += size + 2;
        }
        if (next > end)
            break;
        check_reply(&connection->flights[connection->first++ % MAX_PIPELINE], at, bulk,
                    (size_t)size);
        at = next;
    }
    connection->in_size = (size_t)(end - at);
    memmove(connection->in, at, connection->in_size);
    return true;
}

static void connection_serve(struct connection *connection) {
    ssize_t got = recv(connection->fd, connection->in + connection->in_size,
                       BUFFER_SIZE - connection->in_size, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    connection->in_size += got > 0 ? (size_t)got : 0;
    if (got <= 0)
        connection_fail(connection, got ? strerror(errno) : "the server closed it");
    else if (!take_replies(connection))
        connection_fail(connection, "this is not a reply to what was asked");
    else
        connection_send(connection);
}

static void print_interval(double elapsed, double rate) {
    printf("{\"t\": %.3f, \"requests\": %lu, \"rate\": %.0f}\n", elapsed, counts.answered, rate);
    fflush(stdout);
}

static void print_summary(double seconds) {
    printf("{\"summary\": {\"requests\": %lu, \"errors\": %lu, \"wrong\": %lu, \"gets\": %lu, "
           "\"sets\": %lu, \"hits\": %lu, \"misses\": %lu, \"seconds\": %.3f, \"rate\": %.0f, "
           "\"latency_us\": {\"p50\": %.1f, \"p99\": %.1f, \"max\": %.1f}}}\n",
           counts.answered, counts.errors, counts.wrong, counts.gets, counts.sets, counts.hits,
           counts.misses, seconds, (double)counts.answered / seconds, latency_us(0.50),
           latency_us(0.99), latency_max_us);
}

/* Permits what the rate has made due since the start. A connection that waits gets no reply that
 * would wake it up, so that all of them are looked at. */
static void permit(double elapsed) {
    permitted = (unsigned long)(elapsed * (double)rate);
    for (unsigned long i = 0; i < connection_count; i++)
        if (connections[i].fd >= 0)
            connection_send(&connections[i]);
}

static int wait_ms(void) {
    const bool often = rate > 50 || (interval_ms && interval_ms < 20);
    return often ? 1 : 20;
}

static void run(void) {
    const double start = now_s();
    double now = start, tick = start, end = run_ms ? start + (double)run_ms / 1000 : start + 1e9;
    unsigned long tick_answered = 0;
    struct epoll_event events[64];

    while (alive && (issuing || (counts.answered < counts.issued && now < end))) {
        int count = epoll_wait(epoll, events, 64, wait_ms());
        for (int i = 0; i < count; i++)
            connection_serve(events[i].data.ptr);
        now = now_s();
        if (rate)
            permit(now - start);
        if (issuing && (stop_signal || now >= end || (requests && counts.issued >= requests))) {
            issuing = false;
            end = now + PATIENCE_S;
        }
        if (interval_ms && (now - tick) * 1000 >= (double)interval_ms) {
            print_interval(now - start, (double)(counts.answered - tick_answered) / (now - tick));
            tick = now;
            tick_answered = counts.answered;
        }
    }
    counts.errors += counts.issued - counts.answered; /* those that were never answered */
    print_summary(now_s() - start);
}

static void parse_options(int argc, char **argv) {
    static const struct {
        const char *name;
        unsigned long *number, unit;
        double high;
    } options[] = {
        {"--port", &port, 1, 65535},       {"--connections", &connection_count, 1, MAX_CONNECTIONS},
        {"--requests", &requests, 1, 1e9}, {"--pipeline", &pipeline, 1, MAX_PIPELINE},
        {"--rate", &rate, 1, 1e9},         {"--seconds", &run_ms, 1000, 1e6},
        {"--keys", &keys, 1, 1e9},         {"--interval-ms", &interval_ms, 1, 1e6},
        {"--seed", &seed, 1, 1e9},         {0}};
    bool right = true;

    for (int i = 1; i < argc && right; i += 2) {
        const char *text = i + 1 < argc ? argv[i + 1] : "";
        char *end;
        double number = strtod(text, &end);
        size_t n = 0;
        while (options[n].name && strcmp(argv[i], options[n].name) != 0)
            n++;
        right = options[n].name && end > text && !*end && number > 0 && number <= options[n].high;
        if (right)
            *options[n].number = (unsigned long)(number * (double)options[n].unit);
    }
    if (!right || !port || !keys || !pipeline || !connection_count) {
        fprintf(stderr, "usage: kvload --port P [--connections C] [--pipeline D] [--keys K]"
                        " [--seconds S | --requests N] [--rate R] [--interval-ms I] [--seed X]\n");
        exit(2);
    }
}

int main(int argc, char **argv) {
    parse_options(argc, argv);
    srand48((long)seed);
    signal(SIGTERM, on_stop_signal);
    signal(SIGINT, on_stop_signal);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    for (unsigned long i = 0; i < connection_count; i++)
        connection_open(&connections[i]);
    for (unsigned long i = 0; i < connection_count; i++)
        connection_send(&connections[i]);
    run();
    return counts.errors || counts.wrong;
}

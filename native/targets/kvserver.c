/* SPDX-License-Identifier: MIT */
/* kvserver: a multi-threaded key-value server to put markers into.
 *
 *     kvserver [--port P] [--threads N]
 *
 * It speaks enough of the Redis protocol on 127.0.0.1 for the stock redis-cli
 * and redis-benchmark, prints `ready port=PORT pid=PID threads=N` once it
 * listens, and ends with exit code 0 on SIGTERM or SIGINT. INFO shows exact
 * counters that agree with the markers one by one (see kv_store.h).
 *
 * The main thread accepts and deals connections out to workers in turn; a
 * worker is an epoll loop that owns its connections until they close. Nothing
 * waits for a client: a client that does not read its replies is not read from
 * either, once OUTPUT_LIMIT bytes wait for it.
 */
#define _GNU_SOURCE 1 /* accept4 */

#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <markerjit/marker.h>

#include "kv_protocol.h"

enum { MAX_THREADS = 64, EVENTS = 64, READ_SIZE = 64 << 10, OUTPUT_LIMIT = 1 << 20 };

struct connection {
    struct connection *next, **link; /* in the worker's list */
    uint32_t interest;               /* what epoll watches for */
    bool ended;                      /* the client sends no more */
    struct kv_buffer input;
    struct kv_client client;
};

struct worker {
    pthread_t thread;
    int epoll;
    struct kv_counters *counters;
    pthread_mutex_t lock; /* the list is entered by the main thread, left by the worker */
    struct connection *connections;
};

static struct kv_service service;
static struct worker workers[MAX_THREADS];
static int listener = -1;
static atomic_bool stopping;

static void die(const char *what) {
    fprintf(stderr, "kvserver: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* --- connections --- */

static void connection_close(struct worker *worker, struct connection *connection) {
    struct kv_client *client = &connection->client;

    kv_count(&worker->counters->connections_closed);
    MARK(kv_close, "fd %d commands %lu", client->fd, client->commands);
    pthread_mutex_lock(&worker->lock);
    *connection->link = connection->next;
    if (connection->next)
        connection->next->link = connection->link;
    pthread_mutex_unlock(&worker->lock);
    /* Not left to close: the main thread may still be inside the epoll_ctl that
     * added the socket, which keeps it open, and it would be reported once more. */
    epoll_ctl(worker->epoll, EPOLL_CTL_DEL, client->fd, NULL);
    close(client->fd);
    kv_buffer_deinit(&connection->input);
    kv_buffer_deinit(&client->replies);
    free(connection);
}

/* Called by the main thread. Once epoll knows the connection, it may be closed
 * and freed by its worker at any moment, so that is the last step. */
static void connection_open(struct worker *worker, int fd) {
    struct connection *connection = kv_resize(NULL, sizeof(*connection));

    *connection = (struct connection){
        .interest = EPOLLIN,
        .client = {.fd = fd, .counters = worker->counters},
    };
    pthread_mutex_lock(&worker->lock);
    connection->next = worker->connections;
    connection->link = &worker->connections;
    if (connection->next)
        connection->next->link = &connection->next;
    worker->connections = connection;
    pthread_mutex_unlock(&worker->lock);

    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    if (epoll_ctl(worker->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        connection_close(worker, connection);
}

/* False when the connection is broken. One read at a time is fair to others. */
static bool receive(struct connection *connection) {
    struct kv_buffer *input = &connection->input;
    ssize_t got;

    kv_buffer_reserve(input, READ_SIZE);
    do
        got = recv(connection->client.fd, input->data + input->end, READ_SIZE, 0);
    while (got < 0 && errno == EINTR);
    if (got > 0)
        input->end += (size_t)got;
    else if (got == 0)
        connection->ended = true;
    return got >= 0 || errno == EAGAIN;
}

static bool send_replies(struct kv_client *client) {
    struct kv_buffer *replies = &client->replies;

    while (kv_buffer_size(replies)) {
        ssize_t sent =
            send(client->fd, replies->data + replies->start, kv_buffer_size(replies), MSG_NOSIGNAL);
        if (sent >= 0)
            kv_buffer_consume(replies, (size_t)sent);
        else if (errno != EINTR)
            return errno == EAGAIN;
    }
    return true;
}

/* True when it stopped before the end of the input because enough replies wait. */
static bool answer(struct connection *connection) {
    struct kv_client *client = &connection->client;
    struct kv_buffer *input = &connection->input;
    struct kv_request request;

    while (kv_buffer_size(input) && !client->quit) {
        if (kv_buffer_size(&client->replies) >= OUTPUT_LIMIT)
            return true;
        enum kv_parse got = kv_parse(input->data + input->start, kv_buffer_size(input), &request);
        if (got == KV_INCOMPLETE)
            break;
        if (got == KV_MALFORMED) {
            kv_reply_error(&client->replies, "Protocol error: %s", request.error);
            client->quit = true;
            break;
        }
        if (request.argc)
            kv_execute(&service, client, &request);
        kv_buffer_consume(input, request.consumed);
    }
    return false;
}

/* Closing a socket with unread input resets it, and the client might lose our
 * last words; so read a little on. A client that keeps talking is not helped. */
static void discard_input(int fd) {
    char discarded[4096];
    for (int i = 0; i < 256 && recv(fd, discarded, sizeof(discarded), 0) > 0; i++)
        continue;
}

static void connection_serve(struct worker *worker, struct connection *connection, uint32_t ready) {
    struct kv_client *client = &connection->client;
    bool more, intact = true;

    if ((ready & ~(uint32_t)EPOLLOUT) && (connection->interest & EPOLLIN))
        intact = receive(connection);
    do {
        more = answer(connection);
        intact = intact && send_replies(client);
    } while (intact && more && !kv_buffer_size(&client->replies));

    size_t waiting = kv_buffer_size(&client->replies);
    bool last = client->quit || connection->ended;
    if (!intact || (last && !waiting)) {
        if (client->quit)
            discard_input(client->fd);
        connection_close(worker, connection);
        return;
    }
    uint32_t interest = (waiting ? EPOLLOUT : 0) | (last || waiting >= OUTPUT_LIMIT ? 0 : EPOLLIN);
    if (interest != connection->interest) {
        struct epoll_event event = {.events = interest, .data.ptr = connection};
        epoll_ctl(worker->epoll, EPOLL_CTL_MOD, client->fd, &event);
        connection->interest = interest;
    }
}

/* --- threads --- */

static void *run_worker(void *argument) {
    struct worker *worker = argument;
    struct epoll_event events[EVENTS];

    for (;;) {
        int count = epoll_wait(worker->epoll, events, EVENTS, -1);
        if (count < 0 && errno != EINTR)
            die("epoll_wait");
        for (int i = 0; i < count; i++) {
            if (!events[i].data.ptr) { /* the eventfd: no more connections will come */
                while (worker->connections)
                    connection_close(worker, worker->connections);
                return NULL;
            }
            connection_serve(worker, events[i].data.ptr, events[i].events);
        }
    }
}

/* The stop signals are blocked everywhere, so they cannot interrupt accept4;
 * shutting its socket down does, and cannot come too early. */
static void *wait_for_stop(void *signals) {
    int signal;
    sigwait(signals, &signal);
    atomic_store(&stopping, true);
    shutdown(listener, SHUT_RDWR);
    return NULL;
}

static void accept_connections(struct kv_counters *counters) {
    const int on = 1;

    for (unsigned long turn = 0; !atomic_load(&stopping);) {
        struct sockaddr_in peer;
        socklen_t size = sizeof(peer);
        int fd = accept4(listener, (struct sockaddr *)&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            /* Out of descriptors or memory: give clients time to leave. */
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
            continue;
        }
        kv_count(&counters->connections_accepted);
        MARK(kv_accept, "fd %d port %u", fd, (unsigned)ntohs(peer.sin_port));
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        connection_open(&workers[turn++ % (unsigned long)service.threads], fd);
    }
}

/* --- start --- */

static unsigned listen_on(unsigned port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    const int on = 1;

    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0)
        die("socket");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(listener, (struct sockaddr *)&address, size) < 0 || listen(listener, 512) < 0)
        die("cannot listen on 127.0.0.1");
    getsockname(listener, (struct sockaddr *)&address, &size);
    return ntohs(address.sin_port);
}

static void start_worker(struct worker *worker, int stop, struct kv_counters *counters) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};

    pthread_mutex_init(&worker->lock, NULL);
    worker->counters = counters;
    worker->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (worker->epoll < 0 || epoll_ctl(worker->epoll, EPOLL_CTL_ADD, stop, &event) < 0)
        die("epoll");
    if ((errno = pthread_create(&worker->thread, NULL, run_worker, worker)))
        die("cannot start a worker thread");
}

static unsigned number_option(const char *name, unsigned long low, unsigned long high) {
    char *end;
    unsigned long number = strtoul(optarg, &end, 10);

    if (end == optarg || *end || *optarg == '-' || number < low || number > high) {
        fprintf(stderr, "kvserver: --%s %s: expected a number from %lu to %lu\n", name, optarg, low,
                high);
        exit(2);
    }
    return (unsigned)number;
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"port", required_argument, NULL, 'p'}, {"threads", required_argument, NULL, 't'}, {0}};
    sigset_t signals;
    pthread_t signal_thread;
    const uint64_t one = 1;
    unsigned port = 0;

    service.threads = 2;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'p') {
            port = number_option("port", 0, 65535);
        } else if (option == 't') {
            service.threads = (int)number_option("threads", 1, MAX_THREADS);
        } else {
            fprintf(stderr, "usage: kvserver [--port P] [--threads N]\n");
            return 2;
        }
    }

    /* Only these two are blocked, in all threads: a marker runtime in this
     * process needs the others, SIGTRAP above all. */
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);

    int stop = eventfd(0, EFD_CLOEXEC);
    service.store = kv_store_create();
    service.counter_blocks = service.threads + 1; /* the last is the main thread's */
    size_t counters_size = sizeof(struct kv_counters) * (size_t)service.counter_blocks;
    service.counters = aligned_alloc(_Alignof(struct kv_counters), counters_size);
    if (stop < 0 || !service.store || !service.counters)
        die("cannot start");
    memset(service.counters, 0, counters_size);
    service.port = listen_on(port);
    for (int i = 0; i < service.threads; i++)
        start_worker(&workers[i], stop, &service.counters[i]);
    if ((errno = pthread_create(&signal_thread, NULL, wait_for_stop, &signals)))
        die("cannot start the signal thread");

    printf("ready port=%u pid=%d threads=%d\n", service.port, (int)getpid(), service.threads);
    fflush(stdout);
    accept_connections(&service.counters[service.threads]);

    if (write(stop, &one, sizeof(one)) < 0)
        die("cannot stop the workers");
    pthread_join(signal_thread, NULL);
    for (int i = 0; i < service.threads; i++) {
        pthread_join(workers[i].thread, NULL);
        close(workers[i].epoll);
    }
    kv_store_destroy(service.store);
    free(service.counters);
    close(stop);
    close(listener);
    return 0;
}

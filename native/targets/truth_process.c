/* SPDX-License-Identifier: MIT */
/*
 * truth_process: a program that closes descriptors it does not know, drops its rights, and is not
 * to be dumped.
 *
 *     truth_process  "n %lu": at each `pass`
 *
 * Commands: `pass N`; `close`: close every descriptor from 3 on; `close-loop`: a thread does so
 * again and again, and each time opens a file of its own, as number `close-loop N`, and checks that
 * nothing else has changed it (`changed` counts), until `close-end`; `own N` does so once, and
 * `look` looks again; `become UID`; `dumpable 0` or `1`; `counts`, `quit`.
 */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <markerjit/marker.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "truth.h"

enum { OWN_SIZE = 100 };

static truth_count turns, evaluated, changed, rounds;
static struct truth_gate gate = TRUTH_GATE;
static long own_number;

static unsigned long evaluate(void) { return atomic_fetch_add(&evaluated, 1) + 1; }

__attribute__((noinline)) static void pass(void) {
    MARK(truth_process, "n %lu", evaluate());
    truth_add(&turns);
}

static void close_all(void) {
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    for (int fd = 3; fd < (int)limit.rlim_cur && fd < 1024; fd++)
        close(fd);
}

/* A file that is only ours: nothing may change its size or its content. */
static const char content[OWN_SIZE] = "ours";

static int make_own(int number) {
    const int own = memfd_create("own", 0);

    if (write(own, content, sizeof content) != (ssize_t)sizeof content)
        _exit(3);
    return number ? dup2(own, number) : own;
}

static void look_at_own(int own) {
    char found[OWN_SIZE + 1];

    if (pread(own, found, sizeof found, 0) != (ssize_t)sizeof content ||
        memcmp(found, content, sizeof content))
        truth_add(&changed);
}

static void *close_again_and_again(void *argument) {
    for (;;) {
        truth_pass(&gate);
        close_all();
        const int own = make_own((int)own_number);
        for (int look = 0; look < 20; look++)
            look_at_own(own);
        truth_add(&rounds);
    }
    return argument;
}

static bool become(uid_t uid) { return !setresgid(uid, uid, uid) && !setresuid(uid, uid, uid); }

int main(void) {
    char line[64];
    const char *rest;

    atomic_store(&gate.closed, true);
    truth_start(close_again_and_again, NULL);
    truth_close(&gate, 1);
    truth_ready();
    while (truth_next(line, sizeof line)) {
        bool ok = true;

        if ((rest = truth_is(line, "pass")))
            for (long n = truth_number(rest, 1); n > 0; n--)
                pass();
        else if (truth_is(line, "close"))
            close_all();
        else if ((rest = truth_is(line, "close-loop"))) {
            own_number = truth_number(rest, 0);
            truth_open(&gate);
        } else if ((rest = truth_is(line, "own"))) {
            close_all();
            own_number = make_own((int)truth_number(rest, 0));
        } else if (truth_is(line, "look"))
            look_at_own((int)own_number);
        else if (truth_is(line, "close-end"))
            truth_close(&gate, 1);
        else if ((rest = truth_is(line, "become")))
            ok = become((uid_t)truth_number(rest, 65534));
        else if ((rest = truth_is(line, "dumpable")))
            ok = !prctl(PR_SET_DUMPABLE, truth_number(rest, 0), 0, 0, 0);
        line[strcspn(line, " ")] = '\0';
        truth_say("%s ok=%d turns=%lu evaluated=%lu changed=%lu rounds=%lu", line, ok,
                  atomic_load(&turns), atomic_load(&evaluated), atomic_load(&changed),
                  atomic_load(&rounds));
    }
    return 0;
}

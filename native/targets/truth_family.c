/* SPDX-License-Identifier: MIT */
/*
 * truth_family: a program, its children and theirs, each with counters of its own.
 *
 *     truth_family  "who %d pid %d n %lu": in every process; who is 0 in the first one, 1 in the
 *                   child that is kept, 2 in all others; the third field counts evaluations
 *
 * Commands: `pass N`: N turns in the first process. `grow DEPTH N`: it passes N times and forks a
 * child that does the same to that depth; answered, with how many did not end well (`bad`), when
 * all are gone. `spin`: a thread forks such families, two deep, until `rest`. `keep` forks a child
 * that stays, and answers with its pid; the words after `child` are a command for it: `pass N`,
 * `grow DEPTH N`, `counts`, `quit`. `counts` has turns and evaluations by who; the counters are
 * shared by all. Built once more for each other mode that patches differently.
 */
#define _GNU_SOURCE 1
#include <markerjit/marker.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "truth.h"

enum { FIRST, KEPT, OTHER, ROLES };

static struct shared { truth_count turns[ROLES], evaluated[ROLES], bad; } * shared;
static struct truth_gate gate = TRUTH_GATE;
static int to_child = -1, from_child = -1;

static unsigned long evaluate(int who) { return atomic_fetch_add(&shared->evaluated[who], 1) + 1; }

__attribute__((noinline)) static void pass(int who, long times) {
    for (long i = 0; i < times; i++) {
        MARK(truth_family, "who %d pid %d n %lu", who, (int)getpid(), evaluate(who));
        truth_add(&shared->turns[who]);
    }
}

/* A child ends well with 0; whatever signal kills it counts as bad in its parent. */
static void grow(int who, long depth, long times) {
    int status = -1;

    pass(who, times);
    if (depth <= 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        grow(OTHER, depth - 1, times);
        pass(OTHER, times);
        _exit(0);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (status != 0)
        truth_add(&shared->bad);
    pass(who, times);
}

static void *spin(void *argument) {
    (void)argument;
    for (;;) {
        truth_pass(&gate);
        grow(FIRST, 2, 1);
    }
    return NULL;
}

static void say_counts(const char *word) {
    truth_say("%s first=%lu kept=%lu other=%lu first_evaluated=%lu kept_evaluated=%lu "
              "other_evaluated=%lu bad=%lu",
              word, atomic_load(&shared->turns[FIRST]), atomic_load(&shared->turns[KEPT]),
              atomic_load(&shared->turns[OTHER]), atomic_load(&shared->evaluated[FIRST]),
              atomic_load(&shared->evaluated[KEPT]), atomic_load(&shared->evaluated[OTHER]),
              atomic_load(&shared->bad));
}

static bool do_common(const char *line, int who) {
    const char *rest;
    char *end;

    if ((rest = truth_is(line, "pass"))) {
        pass(who, truth_number(rest, 1));
        say_counts("pass");
    } else if ((rest = truth_is(line, "grow"))) {
        const long depth = strtol(rest, &end, 10);

        grow(who, depth, strtol(end, NULL, 10));
        say_counts("grow");
    } else {
        return false;
    }
    return true;
}

/* The child reads commands where we read ours, and its answers go where ours go: so one of us
   speaks at a time, and we wait for its end of line on a pipe. */
static void be_kept(int commands, int done) {
    char line[64];

    dup2(commands, STDIN_FILENO);
    while (truth_next(line, sizeof line)) {
        if (!do_common(line, KEPT))
            say_counts(line);
        if (write(done, "", 1) < 0)
            _exit(3);
    }
    _exit(0);
}

static void keep(void) {
    int commands[2], done[2];

    if (pipe(commands) || pipe(done))
        _exit(3);
    pid_t pid = fork();
    if (pid == 0) {
        close(commands[1]);
        be_kept(commands[0], done[1]);
    }
    close(commands[0]);
    close(done[1]);
    to_child = commands[1];
    from_child = done[0];
    truth_say("keep pid=%d", (int)pid);
}

static void tell_child(const char *rest) {
    char answer;

    if (to_child < 0 || dprintf(to_child, "%s\n", rest) < 0)
        truth_say("child ok=0");
    else if (read(from_child, &answer, 1) == 0) {
        int status = -1;

        wait(&status);
        truth_say("child status=%d", status);
    }
}

int main(void) {
    char line[64];
    const char *rest;

    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 3;
    atomic_store(&gate.closed, true);
    truth_start(spin, NULL);
    truth_close(&gate, 1);
    truth_ready();
    while (truth_next(line, sizeof line))
        if (truth_is(line, "keep")) {
            keep();
        } else if ((rest = truth_is(line, "child"))) {
            tell_child(rest);
        } else if (!do_common(line, FIRST)) {
            if (truth_is(line, "spin"))
                truth_open(&gate);
            else if (truth_is(line, "rest"))
                truth_close(&gate, 1);
            say_counts(line);
        }
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * truth_texts: pointers that markers take for texts, into many kinds of memory.
 *
 *     texts_string    "at %d s %s"
 *     texts_bounded   "at %d n %d s %.*s": the third argument is its bound, told twice
 *     texts_raw       "at %d n %d s %*ph"
 *     texts_four      "at %d s %.4s"
 *     texts_changing  "n %lu s %s": a page that another thread maps and unmaps all the time
 *     texts_known     "n %lu s %s": a page that could be read when the marker was passed before
 *
 * The first field is an index into the table of places below, which `places` answers as their
 * names. Commands: `pass N`: each marker but the last is passed once for each place, with N as the
 * bound; answered with `pass bad=N`, how many errno, signals or bytes beside the texts were
 * touched. `blocked N THREADS`: the same by as many threads, with all signals blocked. `handled N`:
 * the same in a handler of SIGSEGV. `changing N`: texts_changing is passed while the page is
 * changed N times. `moment N`: the same, but not from a change until what was known of the page
 * before it holds no longer. `truncated N`: texts_known is passed with the page of a file, and
 * again with the same address when the file has been truncated and that moment has passed, N times.
 * `quit`.
 */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <markerjit/marker.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>

#include "truth.h"

enum { PAGE = 4096, MEBIBYTE = 1 << 20 };

struct place {
    const char *name;
    const char *text;
};

static struct place places[32];
static int used;

static void add(const char *name, const void *text) { places[used++] = (struct place){name, text}; }

static char *map(size_t size, int protection) {
    char *found = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (found == MAP_FAILED)
        _exit(3);
    return found;
}

/* The last bytes before a page that is not there. */
static char *before_a_gap(const char *text, size_t size) {
    char *pages = map(2 * PAGE, PROT_READ | PROT_WRITE);

    munmap(pages + PAGE, PAGE);
    return memcpy(pages + PAGE - size, text, size);
}

/* A page of a file behind its end: reading it raises SIGBUS. */
static char *behind_a_file(void) {
    const int fd = memfd_create("empty", MFD_CLOEXEC);
    char *found = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);

    if (found == MAP_FAILED)
        _exit(3);
    close(fd);
    return found;
}

/* A text in a page that is in a file, but in no page table yet. */
static char *not_yet_read(void) {
    const int fd = memfd_create("text", MFD_CLOEXEC);

    if (write(fd, "not yet read", 13) != 13)
        _exit(3);
    char *found = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);

    close(fd);
    return found;
}

static void make_places(void) {
    char *large = map(MEBIBYTE + 1, PROT_READ | PROT_WRITE);
    char *two = map(2 * PAGE, PROT_READ | PROT_WRITE);
    char *unmapped = map(PAGE, PROT_READ);
    char *no_access = map(PAGE, PROT_READ | PROT_WRITE);

    memset(large, 'm', MEBIBYTE);
    memcpy(two + PAGE - 3, "across", 7);
    munmap(unmapped, PAGE);
    memcpy(no_access, "hidden", 7);
    mprotect(no_access, PAGE, PROT_NONE);
    add("null", NULL);
    add("small", (void *)8);
    add("unmapped", unmapped);
    add("kernel", (void *)0xffff888000000000);
    add("last", (void *)-1l);
    add("not_canonical", (void *)0x0123456789abcdef);
    add("no_access", no_access);
    add("behind_file", behind_a_file());
    add("text", "a text");
    add("empty", "");
    add("mebibyte", large);
    add("across", two + PAGE - 3);
    add("not_yet_read", not_yet_read());
    add("ends_at_gap", before_a_gap("at the gap", 11));
    add("open_at_gap", before_a_gap("no end", 6));
    add("empty_at_gap", before_a_gap("", 1));
}

static void pass(int bound) {
    for (int at = 0; at < used; at++) {
        const char *text = places[at].text;

        MARK(texts_string, "at %d s %s", at, text);
        MARK(texts_bounded, "at %d n %d s %.*s", at, bound, bound, text);
        MARK(texts_raw, "at %d n %d s %*ph", at, bound, bound, text);
        MARK(texts_four, "at %d s %.4s", at, text);
    }
}

/* ---- a page that comes and goes ------------------------------------------------------------ */

/* How often the marker is passed at most before the page changes again: however long the changing
 * thread waits for a CPU, the first events of a ring are of all that the page can be. */
enum { MOST_PASSES = 128 };

static char *changing;
static bool after_a_moment;
static atomic_bool changed_enough, at_rest, resting;
static truth_count changes, passed, allowed;

/* Until nothing that was known of a page before is believed any more: MJ_READABLE_WINDOW. */
static void let_a_moment_pass(void) {
    const uint64_t begun = __builtin_ia32_rdtsc();

    while (__builtin_ia32_rdtsc() - begun <= 1ul << MJ_READABLE_WINDOW)
        sched_yield();
}

/* Until the marker was passed with the page as it is now. */
static void stay(void) {
    const unsigned long before = atomic_load(&passed);

    atomic_store(&allowed, before + MOST_PASSES);
    while (atomic_load(&passed) < before + 2 && !atomic_load(&changed_enough))
        sched_yield();
}

/* From here to `end_change` the marker is not passed, if a moment is to pass. */
static void begin_change(void) {
    atomic_store(&at_rest, after_a_moment);
    while (after_a_moment && !atomic_load(&resting) && !atomic_load(&changed_enough))
        sched_yield();
}

static void end_change(void) {
    if (after_a_moment)
        let_a_moment_pass();
    atomic_store(&at_rest, false);
    stay();
}

static void rest(void) {
    while (atomic_load(&passed) >= atomic_load(&allowed) && !atomic_load(&at_rest))
        sched_yield();
    if (!atomic_load(&at_rest))
        return;
    atomic_store(&resting, true);
    while (atomic_load(&at_rest))
        sched_yield();
    atomic_store(&resting, false);
}

static void *change(void *argument) {
    while (!atomic_load(&changed_enough)) {
        if (mmap(changing, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                 -1, 0) == MAP_FAILED)
            _exit(3);
        memset(changing, 'c', 100);
        stay();
        begin_change();
        mprotect(changing, PAGE, PROT_NONE);
        end_change();
        mprotect(changing, PAGE, PROT_READ);
        stay();
        begin_change();
        munmap(changing, PAGE);
        end_change();
        truth_add(&changes);
    }
    return argument;
}

static void pass_changing(unsigned long times, bool slowly) {
    pthread_t thread;

    changing = map(PAGE, PROT_READ);
    after_a_moment = slowly;
    atomic_store(&changed_enough, false);
    atomic_store(&changes, 0);
    atomic_store(&passed, 0);
    atomic_store(&allowed, MOST_PASSES);
    if (pthread_create(&thread, NULL, change, NULL) != 0)
        _exit(3);
    while (atomic_load(&changes) < times) {
        MARK(texts_changing, "n %lu s %s", atomic_load(&passed), changing);
        truth_add(&passed);
        rest();
        if (atomic_load(&passed) % 8 == 0) /* where both threads share a CPU */
            sched_yield();
    }
    atomic_store(&changed_enough, true);
    pthread_join(thread, NULL);
}

/* ---- a page that was known ----------------------------------------------------------------- */

static void pass_truncated(unsigned long times) {
    for (unsigned long at = 0; at < times; at++) {
        const int fd = memfd_create("short", MFD_CLOEXEC);
        char *found = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);

        if (found == MAP_FAILED || write(fd, "was there", 10) != 10)
            _exit(3);
        MARK(texts_known, "n %lu s %s", at, found);
        if (ftruncate(fd, 0) != 0)
            _exit(3);
        let_a_moment_pass();
        MARK(texts_known, "n %lu s %s", at, found);
        munmap(found, PAGE);
        close(fd);
    }
}

/* ---- where a signal would kill ------------------------------------------------------------- */

static int bound_of_all;

static void *pass_blocked(void *argument) {
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    pass(bound_of_all);
    return argument;
}

static void pass_by_threads(int bound, size_t count) {
    pthread_t threads[64];

    bound_of_all = bound;
    if (count > sizeof threads / sizeof *threads)
        _exit(3);
    for (size_t at = 0; at < count; at++)
        if (pthread_create(&threads[at], NULL, pass_blocked, NULL) != 0)
            _exit(3);
    for (size_t at = 0; at < count; at++)
        pthread_join(threads[at], NULL);
}

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)context;
    pass(bound_of_all);
    mprotect(info->si_addr, PAGE, PROT_READ);
}

/* By a load that faults, so that it is the handler of a real one. */
static void pass_in_a_handler(int bound) {
    struct sigaction before;
    char *page = map(PAGE, PROT_NONE);

    bound_of_all = bound;
    sigaction(SIGSEGV, &(struct sigaction){.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO},
              &before);
    *(volatile char *)page;
    sigaction(SIGSEGV, &before, NULL);
    munmap(page, PAGE);
}

static volatile sig_atomic_t signals;

static void on_signal(int number) {
    (void)number;
    signals++;
}

int main(void) {
    char line[512];
    const char *rest;

    sigaction(SIGSEGV, &(struct sigaction){.sa_handler = on_signal, .sa_flags = SA_RESETHAND},
              NULL);
    make_places();
    truth_ready();
    while (truth_next(line, sizeof line)) {
        errno = 77;
        if ((rest = truth_is(line, "pass"))) {
            pass((int)truth_number(rest, 10));
            truth_say("pass bad=%d", (int)signals + (errno != 77));
        } else if ((rest = truth_is(line, "changing"))) {
            pass_changing((unsigned long)truth_number(rest, 1000), false);
            truth_say("changing bad=%d passed=%lu", (int)signals + (errno != 77),
                      atomic_load(&passed));
        } else if ((rest = truth_is(line, "moment"))) {
            pass_changing((unsigned long)truth_number(rest, 100), true);
            truth_say("moment bad=%d passed=%lu", (int)signals + (errno != 77),
                      atomic_load(&passed));
        } else if ((rest = truth_is(line, "truncated"))) {
            pass_truncated((unsigned long)truth_number(rest, 10));
            truth_say("truncated bad=%d", (int)signals + (errno != 77));
        } else if ((rest = truth_is(line, "blocked"))) {
            char *end;
            const long bound = strtol(rest, &end, 10);

            pass_by_threads((int)bound, strtoul(end, NULL, 10));
            truth_say("blocked bad=%d", (int)signals + (errno != 77));
        } else if ((rest = truth_is(line, "handled"))) {
            pass_in_a_handler((int)truth_number(rest, 10));
            truth_say("handled bad=%d", (int)signals + (errno != 77));
        } else {
            line[0] = '\0';
            for (int at = 0; at < used; at++)
                sprintf(line + strlen(line), " %s", places[at].name);
            truth_say("places%s", line);
        }
    }
    return 0;
}

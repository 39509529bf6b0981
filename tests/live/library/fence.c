/* SPDX-License-Identifier: MIT */
/* fence.c: the fence by signals. Built with race.h. */
#include "check.h"

#include "../../../native/src/fence/fence.h"
#include "race.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { THREADS = 6, MOST = 4096, BIRTHS = 32 };

static int stop;
static pid_t told[MOST];
static int told_count;
static void (*when_told)(pid_t tid), (*when_listed)(unsigned long strangers);

void mj_test_race(const char *point, const void *argument) {
    if (!strcmp(point, "listed") && when_listed)
        when_listed(*(const unsigned long *)argument);
    if (strcmp(point, "tell"))
        return;
    CHECK(told_count < MOST);
    told[told_count++] = *(const pid_t *)argument;
    if (when_told)
        when_told(*(const pid_t *)argument);
}

static pid_t tid_of_caller(void) { return (pid_t)syscall(SYS_gettid); }

static bool was_told(pid_t tid) {
    for (int i = 0; i < told_count; i++)
        if (told[i] == tid)
            return true;
    return false;
}

static bool is_default(int signal) {
    struct sigaction action;

    CHECK_EQUAL(sigaction(signal, NULL, &action), 0);
    return action.sa_handler == SIG_DFL;
}

static int count_entries(const char *path) {
    DIR *directory = opendir(path);
    int count = 0;

    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

static void *run(void *unused) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        __asm__ volatile("pause");
    return unused;
}

static void *wait_long(void *unused) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        usleep(500);
    return unused;
}

static void start(pthread_t *thread, void *(*function)(void *), void *argument) {
    CHECK_EQUAL(pthread_create(thread, NULL, function, argument), 0);
}

static void every_thread_is_told_once(void) {
    const int files = count_entries("/proc/self/fd");
    pthread_t threads[THREADS];
    pid_t slow = -1;

    for (int i = 0; i < THREADS; i++)
        start(&threads[i], i % 2 ? run : wait_long, NULL);
    for (int round = 1; round <= 20; round++) {
        CHECK_EQUAL(mj_fence_signals(&slow), 0);
        CHECK_EQUAL(slow, 0);
        CHECK_EQUAL(told_count, THREADS * round);
        CHECK(is_default(SIGRTMAX));
    }
    CHECK_EQUAL(mj_fence_signals(NULL), 0);
    CHECK_EQUAL(count_entries("/proc/self/fd"), files);
    stop = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    told_count = 0;
    CHECK_EQUAL(mj_fence_signals(NULL), 0);
    CHECK_EQUAL(told_count, 0);
}

/* ---- threads that block the signal ----------------------------------------------------------- */

static pid_t blocker;
static int wish, state; /* 1: signals blocked, 2: not */

static void *block_at_wish(void *unused) {
    sigset_t all;

    sigfillset(&all);
    blocker = tid_of_caller();
    for (int done = 0; !__atomic_load_n(&stop, __ATOMIC_SEQ_CST); sched_yield()) {
        const int wanted = __atomic_load_n(&wish, __ATOMIC_SEQ_CST);

        if (wanted == done)
            continue;
        done = wanted;
        pthread_sigmask(done == 1 ? SIG_BLOCK : SIG_UNBLOCK, &all, NULL);
        __atomic_store_n(&state, done, __ATOMIC_SEQ_CST);
    }
    return unused;
}

static void make_it(int wanted) {
    __atomic_store_n(&wish, wanted, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&state, __ATOMIC_SEQ_CST) != wanted)
        sched_yield();
}

/* Where other programs take the CPUs, a thread that does not block the signal may not answer in
   half a second either. Then it is asked again. The test has a limit of its own. */
static int fence_in_time(pid_t *slow) {
    int error;

    do
        error = mj_fence_signals(slow);
    while (error == -EAGAIN);
    return error;
}

static void blocking_thread_is_named(void) {
    pthread_t thread, other;
    pid_t slow;

    start(&other, run, NULL);
    start(&thread, block_at_wish, NULL);
    make_it(1);
    CHECK_EQUAL(mj_fence_signals(&slow), -EAGAIN);
    CHECK_EQUAL(slow, blocker);
    CHECK(!was_told(blocker));
    CHECK(is_default(SIGRTMAX)); /* nothing was sent that is still to come */
    make_it(2);
    CHECK_EQUAL(fence_in_time(&slow), 0);
    CHECK_EQUAL(slow, 0);
    stop = 1;
    pthread_join(thread, NULL);
    pthread_join(other, NULL);
}

static void block_it(pid_t tid) {
    if (tid == blocker)
        make_it(1);
}

/* It blocks the signal after we looked and before it is sent. */
static void late_answer_is_harmless(void) {
    pthread_t thread;
    pid_t slow;

    start(&thread, block_at_wish, NULL);
    make_it(2);
    when_told = block_it;
    CHECK_EQUAL(mj_fence_signals(&slow), -EAGAIN);
    CHECK_EQUAL(slow, blocker);
    CHECK(!is_default(SIGRTMAX)); /* or the process would end here: */
    make_it(2);
    when_told = NULL;
    for (int i = 0; i < 5; i++)
        CHECK_EQUAL(fence_in_time(&slow), 0);
    CHECK(!is_default(SIGRTMAX));
    CHECK(is_default(SIGRTMAX - 1));

    /* an answer of an earlier round is none of this: blocked again, it is not heard */
    make_it(1);
    CHECK_EQUAL(mj_fence_signals(&slow), -EAGAIN);
    CHECK_EQUAL(slow, blocker);
    make_it(2);
    stop = 1;
    pthread_join(thread, NULL);
}

/* ---- threads that come and go ---------------------------------------------------------------- */

static pthread_t born[BIRTHS];
static int births;

static void give_birth(pid_t tid) {
    (void)tid;
    if (births < BIRTHS) {
        start(&born[births], births % 8 ? wait_long : run, NULL);
        births++;
    }
}

static void all_others_were_told(int expected) {
    DIR *directory = opendir("/proc/self/task");
    int others = 0;

    for (const struct dirent *entry; (entry = readdir(directory));) {
        const pid_t tid = atoi(entry->d_name);

        if (tid && tid != tid_of_caller()) {
            CHECK(was_told(tid));
            others++;
        }
    }
    closedir(directory);
    CHECK_EQUAL(others, expected);
    stop = 1;
    for (int i = 0; i < births; i++)
        pthread_join(born[i], NULL);
}

/* Each thread that is told makes room for a new one: all are told before the fence says so. */
static void threads_born_meanwhile_are_told(void) {
    start(&born[births++], run, NULL);
    when_told = give_birth;
    CHECK_EQUAL(mj_fence_signals(NULL), 0);
    CHECK_EQUAL(births, BIRTHS);
    all_others_were_told(BIRTHS);
}

static void give_birth_thrice(unsigned long strangers) {
    if (!strangers && births < 4)
        give_birth(0);
}

/* After a listing that found nobody new, and would have been the last: there is another one. */
static void threads_born_between_listings_are_told(void) {
    start(&born[births++], run, NULL);
    when_listed = give_birth_thrice;
    CHECK_EQUAL(mj_fence_signals(NULL), 0);
    all_others_were_told(4);
}

static void *end_at_once(void *unused) { return unused; }

static void *give_short_lives(void *unused) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        pthread_t thread;

        start(&thread, end_at_once, NULL);
        pthread_join(thread, NULL);
        __atomic_fetch_add(&births, 1, __ATOMIC_RELAXED);
    }
    return unused;
}

/* The one who makes them has all signals blocked for moments, and they end before they answer. */
static void short_lives_are_lived_with(void) {
    pthread_t mother;
    int fences = 0;

    start(&mother, give_short_lives, NULL);
    while (__atomic_load_n(&births, __ATOMIC_RELAXED) < 2000 || fences < 50) {
        const int error = mj_fence_signals(NULL);

        CHECK(error == 0 || error == -EAGAIN); /* not scheduled while it had them blocked */
        fences += !error;
        told_count = 0;
    }
    stop = 1;
    pthread_join(mother, NULL);
}

static bool has_ended(pid_t tid) {
    char path[64], status[512] = "";

    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
    const int file = open(path, O_RDONLY);
    CHECK(read(file, status, sizeof(status) - 1) > 0);
    close(file);
    return strstr(status, ") Z ") != NULL;
}

static void *fence_without_main(void *unused) {
    while (!has_ended(getpid()))
        sched_yield();
    CHECK_EQUAL(mj_fence_signals(NULL), 0);
    puts("held");
    fflush(stdout);
    _exit(0);
    return unused;
}

/* The first thread stays listed as a zombie. */
static void first_thread_has_ended(void) {
    pthread_t thread;

    start(&thread, fence_without_main, NULL);
    pthread_exit(NULL);
}

/* ---- the program's own signals --------------------------------------------------------------- */

static void on_own_signal(int signal) { (void)signal; }

static void signals_in_use_are_left_alone(void) {
    pthread_t thread;

    start(&thread, run, NULL);
    signal(SIGRTMAX, on_own_signal);
    signal(SIGRTMAX - 1, SIG_IGN);
    CHECK_EQUAL(mj_fence_signals(NULL), 0);
    CHECK(signal(SIGRTMAX, SIG_DFL) == on_own_signal);
    CHECK(signal(SIGRTMAX - 1, SIG_DFL) == SIG_IGN);
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
        signal(number, on_own_signal);
    CHECK_EQUAL(mj_fence_signals(NULL), -EBUSY);
    stop = 1;
    pthread_join(thread, NULL);
}

static void send_foreign(pid_t tid) {
    (void)tid;
    kill(getpid(), SIGRTMAX);
}

/* Sent to the process while our handler is there: does what it would have done without. */
static void foreign_signal_ends_the_process(void) {
    int status;
    const pid_t child = fork();

    if (!child) {
        pthread_t thread;

        start(&thread, run, NULL);
        when_told = send_foreign;
        mj_fence_signals(NULL);
        for (;;)
            pause();
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status));
    CHECK_EQUAL(WTERMSIG(status), SIGRTMAX);
}

static void fork_and_fence(pid_t tid) {
    int status;
    const pid_t child = fork();

    (void)tid;
    if (!child)
        _exit(-mj_fence_signals(NULL));
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
}

/* In the child nobody is in the fence. */
static void child_of_fork_has_its_own(void) {
    pthread_t thread;

    start(&thread, run, NULL);
    when_told = fork_and_fence;
    CHECK_EQUAL(mj_fence_signals(NULL), 0);
    stop = 1;
    pthread_join(thread, NULL);
}

static void *fence_often(void *unused) {
    for (int i = 0; i < 20; i++)
        CHECK_EQUAL(mj_fence_signals(NULL), 0);
    return unused;
}

static void several_at_once(void) {
    pthread_t threads[3];

    for (int i = 0; i < 3; i++)
        start(&threads[i], fence_often, NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    CHECK(is_default(SIGRTMAX));
}

static void no_proc(void) {
    CHECK_EQUAL(mj_fence_signals(NULL), -ENOENT);
    CHECK(is_default(SIGRTMAX));
}

MAIN(CASE(every_thread_is_told_once), CASE(blocking_thread_is_named), CASE(late_answer_is_harmless),
     CASE(threads_born_meanwhile_are_told), CASE(threads_born_between_listings_are_told),
     CASE(short_lives_are_lived_with), CASE(first_thread_has_ended),
     CASE(signals_in_use_are_left_alone), CASE(foreign_signal_ends_the_process),
     CASE(child_of_fork_has_its_own), CASE(several_at_once), CASE(no_proc))

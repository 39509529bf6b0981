/* SPDX-License-Identifier: MIT */
/*
 * waiting: waits in one system call, and says how that ended.
 *
 *     waiting CALL      prints `ready data=ADDRESS text=ADDRESS …`, waits, and prints
 *                       `RESULT ERRNO SIGNALS`, where SIGNALS is how often its handler ran
 *
 * What ends the wait is a byte on standard input (a socket), or SIGUSR1 where nothing else can. So
 * whoever disturbs the call shows: it returns too early, or with EINTR.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LONG_S 1000

/* For a borrowed thread: where it calls from, and two ways back. */
extern const char a_syscall[], a_sigreturn[], a_pop[];
__asm__(".text\na_syscall: syscall\nret\n"
        "a_sigreturn: mov $15, %rax\nsyscall\n"
        "a_pop: pop %rax\nret\n");

/* As the arena has one: 16 pages that nobody else uses. */
static char scratch[16 * 4096];

/* For a stopped writer: a loop whose thread is mostly behind its first instruction, of 7 bytes. */
extern char a_loop[];
__asm__(".text\n.balign 64\n"
        "a_loop: .byte 0x0f, 0x1f, 0x80, 0, 0, 0, 0\npause\njmp a_loop\n");

static struct { uint64_t words[8]; } data = {{1, 2, 3, 4, 5, 6, 7, 8}};

static volatile sig_atomic_t signals;
static int futex_word, semaphores = -1, queue = -1; /* 0 is a good identifier */
static char byte;

static void on_signal(int number) {
    (void)number;
    signals++;
}

static void handle(int number, int flags) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};

    sigaction(number, &action, NULL);
}

/* The other thread, where a byte on standard input cannot end the wait by itself. */
static void *release(void *unused) {
    struct {
        long type;
        char text[1];
    } message = {1, "x"};

    (void)unused;
    if (read(0, &byte, 1) != 1)
        exit(1);
    futex_word = 1;
    syscall(SYS_futex, &futex_word, FUTEX_WAKE, 1, NULL, NULL, 0);
    if (semaphores >= 0)
        semop(semaphores, &(struct sembuf){.sem_op = 1}, 1);
    if (queue >= 0)
        msgsnd(queue, &message, sizeof message.text, 0);
    return NULL;
}

static void other_thread(void) {
    sigset_t all, old;
    pthread_t thread;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_create(&thread, NULL, release, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static int epoll_of_stdin(void) {
    const int epoll = epoll_create1(0);

    epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &(struct epoll_event){.events = EPOLLIN});
    return epoll;
}

/* Values in all registers that a compiler would not notice to be wrong; returns what is left of
   their sum. Ends with the first signal. */
static long spin(void) {
    long wrong = 0;

    while (!signals) {
        uint64_t sum;

        __asm__ __volatile__("mov $1, %%rbx; mov $2, %%rcx; mov $4, %%rdx; mov $8, %%rsi\n"
                             "mov $16, %%rdi; mov $32, %%r8; mov $64, %%r9; mov $128, %%r10\n"
                             "mov $256, %%r11; mov $512, %%r12; mov $1024, %%r13\n"
                             "mov $2048, %%r14; mov $4096, %%r15; mov $500, %%eax\n"
                             "movq %%r15, %%xmm0; movq %%rax, %%xmm15; stc\n"
                             "1: dec %%eax; jnz 1b\n"
                             "sbb $0, %%rax\n" /* the carry, which dec leaves alone */
                             "add %%rbx, %%rax; add %%rcx, %%rax; add %%rdx, %%rax\n"
                             "add %%rsi, %%rax; add %%rdi, %%rax; add %%r8, %%rax\n"
                             "add %%r9, %%rax; add %%r10, %%rax; add %%r11, %%rax\n"
                             "add %%r12, %%rax; add %%r13, %%rax; add %%r14, %%rax\n"
                             "add %%r15, %%rax; movq %%xmm0, %%rbx; add %%rbx, %%rax\n"
                             "movq %%xmm15, %%rbx; add %%rbx, %%rax\n"
                             : "=a"(sum)
                             :
                             : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12",
                               "r13", "r14", "r15", "xmm0", "xmm15", "cc", "memory");
        wrong += sum != 8191 + 4096 + 500 - 1;
    }
    return wrong;
}

/* The same of the floating point unit and of vectors: their values, sums that go on for long, and
   the rounding mode. Returns how often something was wrong. */
static long vector(void) {
    typedef long lanes __attribute__((vector_size(32)));
    const int wide = __builtin_cpu_supports("avx");
    long wrong = 0;

    while (!signals) {
        const lanes one = {1, 20, 300, 4000};
        double sum = 0;
        long double x87;
        lanes low = {0}, high = {0};
        unsigned short control = 0, round_up = 0x0b7f;

        __asm__ __volatile__("fnstcw %0\nfldcw %1" : "=m"(control) : "m"(round_up));
        if (wide)
            __asm__ __volatile__("vmovdqu %3, %%ymm3\nvmovdqu %3, %%ymm15\nfldpi\n"
                                 "mov $500, %%eax\n1: dec %%eax\njnz 1b\n"
                                 "vmovdqu %%ymm3, %0\nvmovdqu %%ymm15, %1\nfstpt %2\nvzeroupper"
                                 : "=m"(low), "=m"(high), "=m"(x87)
                                 : "m"(one)
                                 : "eax", "xmm3", "xmm15", "st", "cc");
        for (int i = 1; i <= 1000; i++)
            sum += i * 0.5;
        unsigned short kept = 0;

        __asm__ __volatile__("fnstcw %0\nfldcw %1" : "=m"(kept) : "m"(control));
        wrong += sum != 250250 || (kept & 0x0f3f) != (round_up & 0x0f3f);
        if (wide)
            wrong += memcmp(&low, &one, sizeof one) || memcmp(&high, &one, sizeof one) ||
                     x87 < 3.14159265L || x87 > 3.14159266L;
    }
    return wrong;
}

static long wait_in(const char *call) {
    struct timespec long_time = {.tv_sec = LONG_S}, rest;
    struct timeval long_value = {.tv_sec = LONG_S};
    struct pollfd input = {.fd = 0, .events = POLLIN};
    struct epoll_event event;
    struct io_event done;
    aio_context_t context = 0;
    sigset_t none, user;
    fd_set inputs;
    int status;
    char message[64];

    sigemptyset(&none);
    sigemptyset(&user);
    sigaddset(&user, SIGUSR1);
    FD_ZERO(&inputs);
    FD_SET(0, &inputs);
#define IS(name) !strcmp(call, name)
    if (IS("read"))
        return read(0, &byte, 1);
    if (IS("recv"))
        return recv(0, &byte, 1, 0);
    if (IS("recv_timeout")) {
        setsockopt(0, SOL_SOCKET, SO_RCVTIMEO, &long_value, sizeof long_value);
        return recv(0, &byte, 1, 0);
    }
    if (IS("poll"))
        return poll(&input, 1, -1);
    if (IS("poll_timeout"))
        return poll(&input, 1, LONG_S * 1000);
    if (IS("ppoll"))
        return ppoll(&input, 1, &long_time, &none);
    if (IS("select"))
        return select(1, &inputs, NULL, NULL, &long_value);
    if (IS("pselect"))
        return pselect(1, &inputs, NULL, NULL, &long_time, &none);
    if (IS("epoll_wait"))
        return epoll_wait(epoll_of_stdin(), &event, 1, -1);
    if (IS("epoll_timeout"))
        return epoll_wait(epoll_of_stdin(), &event, 1, LONG_S * 1000);
    if (IS("epoll_pwait"))
        return epoll_pwait(epoll_of_stdin(), &event, 1, -1, &none);
    if (IS("nanosleep"))
        return nanosleep(&long_time, &rest) == -1 && rest.tv_sec > LONG_S / 2;
    if (IS("clock_nanosleep"))
        return clock_nanosleep(CLOCK_MONOTONIC, 0, &long_time, &rest);
    if (IS("pause"))
        return pause();
    if (!strncmp(call, "sig", 3)) /* a thread that runs is looked at as soon as it is ready */
        sigprocmask(SIG_BLOCK, &user, NULL);
    if (IS("sigsuspend"))
        return sigsuspend(&none);
    if (IS("sigwaitinfo"))
        return sigwaitinfo(&user, NULL);
    if (IS("sigtimedwait"))
        return sigtimedwait(&user, NULL, &long_time);
    if (IS("io_getevents")) {
        syscall(SYS_io_setup, 1, &context);
        return syscall(SYS_io_getevents, context, 1, 1, &done, NULL);
    }
    if (IS("wait4")) {
        if (!fork()) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(read(0, &byte, 1) != 1);
        }
        return wait(&status) > 0 ? status : -1;
    }
    if (IS("vfork")) {
        if (!vfork())
            _exit(read(0, &byte, 1) != 1);
        return 1;
    }
    if (IS("spin"))
        return spin();
    if (IS("vector"))
        return vector();
    if (IS("loop"))
        __asm__ __volatile__("jmp a_loop");
    other_thread();
    if (IS("futex"))
        return syscall(SYS_futex, &futex_word, FUTEX_WAIT, 0, NULL, NULL, 0);
    if (IS("futex_timeout"))
        return syscall(SYS_futex, &futex_word, FUTEX_WAIT, 0, &long_time, NULL, 0);
    if (IS("semop")) {
        semaphores = semget(IPC_PRIVATE, 1, 0600);
        const long result = semop(semaphores, &(struct sembuf){.sem_op = -1}, 1);
        semctl(semaphores, 0, IPC_RMID);
        return result;
    }
    if (IS("msgrcv")) {
        queue = msgget(IPC_PRIVATE, 0600);
        const long result = msgrcv(queue, message, 1, 0, 0);
        msgctl(queue, IPC_RMID, NULL);
        return result;
    }
    return -2;
}

int main(int argc, char **argv) {
    (void)argc;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    handle(SIGUSR1, 0);
    handle(SIGRTMIN, SA_RESTART);
    for (char **option = argv + 2; *option; option++) {
        sigset_t trap;

        sigemptyset(&trap);
        sigaddset(&trap, SIGTRAP);
        if (!strcmp(*option, "block"))
            sigprocmask(SIG_BLOCK, &trap, NULL);
        if (!strcmp(*option, "ignore"))
            signal(SIGTRAP, SIG_IGN);
        if (!strcmp(*option, "catch"))
            handle(SIGTRAP, 0);
    }
    printf("ready data=%lu text=%lu syscall_ret=%lu sigreturn=%lu pop_rax_ret=%lu scratch=%lu\n",
           (uintptr_t)&data, (uintptr_t)a_loop, (uintptr_t)a_syscall, (uintptr_t)a_sigreturn,
           (uintptr_t)a_pop, (uintptr_t)scratch);
    fflush(stdout);
    errno = 0;
    const long result = wait_in(argv[1]);
    printf("%ld %d %d\n", result, errno, (int)signals);
    return 0;
}

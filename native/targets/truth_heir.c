/* SPDX-License-Identifier: MIT */
/*
 * truth_heir: runs a program under a process id of our choice, which has to be free.
 *
 *     truth_heir PID PROGRAM [ARGS...]
 *
 * The program has our input and output, and we end as it does: with its exit code, or with 128 and
 * the signal. 125: the kernel does not let us choose (clone3(2), `set_tid`), or the number is
 * taken.
 */
#define _GNU_SOURCE 1
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    pid_t wanted = argc > 2 ? atoi(argv[1]) : 0;
    struct clone_args how = {
        .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&wanted, .set_tid_size = 1};
    int status;

    if (wanted <= 0)
        return 2;
    const long pid = syscall(SYS_clone3, &how, sizeof how);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execv(argv[2], argv + 2);
        _exit(127);
    }
    if (pid < 0) {
        perror("truth_heir");
        return 125;
    }
    /* Its end of our pipes is the only one. */
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    if (waitpid((pid_t)pid, &status, 0) < 0)
        return 125;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/*
 * Single-steps a program and prints where control went: which instruction came after which.
 *
 *     stepper STEPS PROGRAM ARGUMENT...  >transfers
 *
 * The output is the program's /proc/PID/maps, an empty line, and a line for each pair of addresses
 * that followed one another, once each. The program is killed after STEPS steps.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOTS (1 << 20)

static uint64_t pairs[SLOTS][2];

static void keep(uint64_t from, uint64_t to) {
    uint64_t slot = (from * 0x9e3779b97f4a7c15ULL ^ to * 0xc2b2ae3d27d4eb4fULL) >> 44;

    while (pairs[slot][0] && (pairs[slot][0] != from || pairs[slot][1] != to))
        slot = (slot + 1) % SLOTS;
    pairs[slot][0] = from;
    pairs[slot][1] = to;
}

static void print_maps(pid_t pid) {
    char path[64], line[4096];
    FILE *maps;

    snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    maps = fopen(path, "r");
    while (maps && fgets(line, sizeof(line), maps))
        fputs(line, stdout);
    puts("");
    if (maps)
        fclose(maps);
}

int main(int argc, char **argv) {
    struct user_regs_struct registers;
    uint64_t before = 0;
    pid_t pid;
    int status, number = 0;

    if (argc < 3)
        return 2;
    pid = fork();
    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        if (!freopen("/dev/null", "w", stdout))
            _exit(126);
        execv(argv[2], argv + 2);
        _exit(127);
    }
    for (long step = 0; step <= atol(argv[1]); step++) {
        if (waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status))
            break;
        /* A signal is delivered with the next step; what follows it is no transfer of the program.
         */
        number = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
        ptrace(PTRACE_GETREGS, pid, 0, &registers);
        if (before && !number && (registers.rip < before || registers.rip > before + 1))
            keep(before, registers.rip);
        before = number ? 0 : registers.rip;
        if (step == atol(argv[1]) / 2)
            print_maps(pid);
        if (ptrace(PTRACE_SINGLESTEP, pid, 0, number))
            break;
    }
    kill(pid, SIGKILL);
    for (size_t slot = 0; slot < SLOTS; slot++)
        if (pairs[slot][0])
            printf("%lx %lx\n", pairs[slot][0], pairs[slot][1]);
    return 0;
}

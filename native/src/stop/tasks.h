/* SPDX-License-Identifier: MIT */
/* tasks.h: the threads of a process, as /proc/PID/task lists them. */
#ifndef MARKERJIT_TASKS_H
#define MARKERJIT_TASKS_H

#include <dirent.h>
#include <stdint.h>
#include <sys/types.h>

/* NULL with errno. */
DIR *open_tasks(pid_t pid);

/* The next thread of the list, or 0 at its end: then errno is 0, or says why the list broke off. */
pid_t next_task(DIR *tasks);

/* How many threads the process has, those that have ended and are listed still with them; 0 where
   that is not known. */
uint64_t count_tasks(DIR *tasks);

/* The state of a thread as /proc has it: 'R' runs or waits for a CPU, 'S' sleeps, 'D' sleeps and
   cannot be interrupted, 'Z' and 'X' have ended. 'X' also where there is no such thread, and '?'
   where that is not known. */
char state_of_task(DIR *tasks, pid_t tid);
char state_of(pid_t pid, pid_t tid);

/* Whether a thread of this process has ended, or never was one of it. */
int is_dead(pid_t pid, pid_t tid);

/* A set of thread ids: `room` is a power of two, or 0. */
struct tids {
    pid_t *slots;
    uint32_t room, count;
};

/* 1 where it is new, 0 where the set has it, -1 without memory. */
int tids_add(struct tids *set, pid_t tid);
void tids_destroy(struct tids *set);

#endif

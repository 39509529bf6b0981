/* SPDX-License-Identifier: MIT */
/* mapped.h: what is mapped where the edits are. */
#ifndef MARKERJIT_MAPPED_H
#define MARKERJIT_MAPPED_H

#include "stop.h"

/* A descriptor of /proc/PID/maps, for still_mapped; -1 and errno. It stays with the program that
   the process runs now, as target->mem_fd does. */
int maps_open(pid_t pid);

/* MJ_MOVED when a line of target->mapped is no longer in /proc/PID/maps. `maps` is of maps_open. */
int still_mapped(const struct mj_target *target, int maps, struct mj_report *report);

/* Whether /proc/PID/maps has this name in it, or cannot be read. */
int has_mapping(const struct mj_target *target, const char *name);
/* The text of /proc/PID/maps, which the caller frees; of no size when the memory is gone. NULL and
   errno where it cannot be read. */
char *read_maps(pid_t pid, size_t *size);

#endif

/* SPDX-License-Identifier: MIT */
/* mapped.h: what is mapped where the edits are. */
#ifndef MARKERJIT_MAPPED_H
#define MARKERJIT_MAPPED_H

#include "stop.h"

/* Of a struct mj_mapping's permissions. */
enum { READABLE = 1, WRITABLE = 2, EXECUTABLE = 4, SHARED = 8 };

/* A descriptor of /proc/PID/maps, for still_mapped; -1 and errno. It stays with the program that
   the process runs now, as target->mem_fd does. */
int maps_open(pid_t pid);

/* MJ_MOVED when a line of target->mapped is no longer in /proc/PID/maps. `maps` is of maps_open. */
int still_mapped(const struct mj_target *target, int maps, struct mj_report *report);

/* The mapping that covers an address. MJ_OK; MJ_MOVED where nothing is mapped there; MJ_GONE;
   MJ_ERRNO with ENOTTY or EINVAL where the kernel does not answer for one address. */
int mapping_at(int maps, uint64_t address, struct mj_mapping *found, struct mj_report *report);

/* Whether those of these mappings that have all permissions of `kind` are all of that kind that the
   process has now. `maps` is of maps_open. 0 where the kernel does not answer for one mapping. */
int mapped_as(int maps, const struct mj_mapping *seen, uint32_t count, uint64_t kind);

/* Whether the kernel has put code of this name into the process, or does not tell. */
int has_mapping(const struct mj_target *target, const char *name);

/* The text of /proc/PID/maps, which the caller frees; of no size when the memory is gone. NULL and
   errno where it cannot be read. */
char *read_maps(pid_t pid, size_t *size);

#endif

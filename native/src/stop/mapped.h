/* SPDX-License-Identifier: MIT */
/* mapped.h: what is mapped where the edits are. */
#ifndef MARKERJIT_MAPPED_H
#define MARKERJIT_MAPPED_H

#include "stop.h"

/* MJ_MOVED when a line of target->mapped is no longer in /proc/PID/maps. */
int still_mapped(const struct mj_target *target, struct mj_report *report);

/* Whether /proc/PID/maps has this name in it, or cannot be read. */
int has_mapping(const struct mj_target *target, const char *name);
/* The text of /proc/PID/maps, which the caller frees; of no size when the memory is gone. NULL and
   errno where it cannot be read. */
char *read_maps(pid_t pid, size_t *size);

#endif

/* SPDX-License-Identifier: MIT */
/* stacks.h: instruction pointers that wait on the stacks of stopped threads. */
#ifndef MARKERJIT_STACKS_H
#define MARKERJIT_STACKS_H

#include "spans.h"

/*
 * Search the stacks of stopped threads for addresses inside a span. Statuses as leave_spans.
 */
int check_stacks(const struct mj_target *target, const struct stopped *stopped,
                 const struct spans *spans, struct mj_report *report);

#endif

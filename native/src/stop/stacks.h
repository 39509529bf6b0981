/* SPDX-License-Identifier: MIT */
/* stacks.h: instruction pointers that wait on the stacks of stopped threads. */
#ifndef MARKERJIT_STACKS_H
#define MARKERJIT_STACKS_H

#include "spans.h"

/* Where all addresses that are looked for lie. */
struct window {
    uint64_t start, size;
};

/* What is done with a word of a stack: MJ_OK, or the status with which the search ends. */
typedef int look_fn(void *subject, uint64_t word, struct mj_report *report);

/* Look at each word in the window on the stacks of stopped threads, those that signal frames lead
   to, too. MJ_OK, MJ_STACK_UNKNOWN with report->tid, MJ_ERRNO, MJ_GONE, or what `look` returns. */
int search_stacks(const struct mj_target *target, const struct stopped *stopped,
                  struct window window, look_fn *look, void *subject, struct mj_report *report);

/* The same in all memory that the process may write, except the arena: also words on no stack of a
   thread. MJ_STACK_UNKNOWN where there is more than can be searched in a moment. */
int search_everything(const struct mj_target *target, struct window window, look_fn *look,
                      void *subject, struct mj_report *report);

/* How many words of a stack show the frame of a signal, and the stack pointer that it has of what
   was interrupted; 0 where these are not of such a frame. */
#define FRAME_WORDS 4
uint64_t framed_stack(const uint64_t *words);

/*
 * Search the stacks of stopped threads for addresses inside a span. Statuses as leave_spans.
 */
int check_stacks(const struct mj_target *target, const struct stopped *stopped,
                 const struct spans *spans, struct mj_report *report);

#endif

/* SPDX-License-Identifier: MIT */
/* write.h: bytes of edits, in and out of a process. */
#ifndef MARKERJIT_WRITE_H
#define MARKERJIT_WRITE_H

#include "stop.h"

/* Which of an edit's bytes. */
enum bytes { OLD_BYTES, NEW_BYTES };

/* Fits the first caches, and our small stack. While a run is between its read and its write, a
   uprobe that is put into it is lost (runs.c): some 4 us. Four times as much is hardly faster. */
#define RUN_BYTES 16384

/* 1 when all were read; else 0 and errno, which is 0 when the process has no memory any more. */
int read_bytes(const struct mj_target *target, uint64_t address, void *bytes, size_t size);

/* How many were written, with errno as above if not all. */
size_t write_bytes(const struct mj_target *target, uint64_t address, const void *bytes,
                   size_t size);

/* The status for errno: MJ_GONE or MJ_ERRNO, with the facts in the report. */
int fault(struct mj_report *report, uint32_t index);

/* How many of these edits, from the first on, lie close together; *size is their length, with what
   stands between. At most RUN_BYTES, and no page without an edit in between. */
uint32_t run_of(const struct mj_edit *edits, uint32_t count, size_t *size);

/* Does every one of these edits find the expected bytes? MJ_OK, MJ_UNEXPECTED, MJ_ERRNO, MJ_GONE;
   report->index counts from `edits`. */
int compare_edits(const struct mj_target *target, const struct mj_edit *edits, uint32_t count,
                  enum bytes expected, struct mj_report *report);

/* Write the edits in order. `standing`: no thread of the process runs. *done says how many were
   written, the last one perhaps in part. */
int write_edits(const struct mj_target *target, const struct mj_edit *edits, uint32_t count,
                enum bytes which, int standing, uint32_t *done, struct mj_report *report);

/* Give the process its own copy of every page of code that the edits touch: the first write to a
   page is expensive, and here the threads still run. */
void privatise_pages(const struct mj_target *target, const struct mj_edit *edits, uint32_t count);

#endif

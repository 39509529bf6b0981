/* SPDX-License-Identifier: MIT */
/* file.h: the files that are mapped where the edits are. */
#ifndef MARKERJIT_FILE_H
#define MARKERJIT_FILE_H

#include "stop.h"

/* The file of one mapping, the last that was asked for. */
struct file {
    uint64_t start, end; /* of the mapping; 0: none was asked for */
    uint64_t offset;
    int fd; /* -1: it could not be opened */
};

/* Reads what the file has for these addresses. Returns 0 where they are not in one line of
   target->mapped, or the file cannot be opened, or is another one, or its pages are not in memory:
   nothing waits for a disk. Before anybody stands still. */
int file_read(struct file *file, const struct mj_target *target, uint64_t address, void *bytes,
              size_t size);
void file_close(struct file *file);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * faults: transaction.c, runs.c and write.c of native/src/stop on memory that
 * the test makes up. They are compiled with pread and pwrite renamed, and what
 * those do is a function of the test; so is the synchronisation.
 */
#include "file.h"
#include "mapped.h"
#include "transaction.h"

#include <errno.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>

typedef ssize_t access_fn(int writing, void *bytes, size_t size, off_t offset, int *error);

access_fn *mj_test_access;

static ssize_t reach(int writing, void *bytes, size_t size, off_t offset) {
    int error = errno;
    const ssize_t result = mj_test_access(writing, bytes, size, offset, &error);

    errno = error;
    return result;
}

ssize_t test_readv(pid_t pid, const struct iovec *here, unsigned long n, const struct iovec *there,
                   unsigned long m, unsigned long flags) {
    (void)pid, (void)here, (void)n, (void)there, (void)m, (void)flags;
    return -1; /* all goes by way of pread */
}

ssize_t test_writev(pid_t pid, const struct iovec *here, unsigned long n, const struct iovec *there,
                    unsigned long m, unsigned long flags) {
    ssize_t written = 0;
    int error = 0;

    (void)pid, (void)m, (void)flags;
    for (unsigned long i = 0; i < n && !error; i++) {
        const ssize_t one =
            mj_test_access(1, here[i].iov_base, here[i].iov_len, (off_t)there[i].iov_base, &error);

        if (one != (ssize_t)here[i].iov_len)
            break; /* nothing is told of a part of a word */
        written += one;
    }
    return written;
}

ssize_t test_pread(int fd, void *bytes, size_t size, off_t offset) {
    (void)fd;
    return reach(0, bytes, size, offset);
}

ssize_t test_pwrite(int fd, const void *bytes, size_t size, off_t offset) {
    (void)fd;
    return reach(1, (void *)bytes, size, offset);
}

int mj_test_has_mapping; /* whether the kernel has put calls in the place of
                            no-ops */

int has_mapping(const struct mj_target *target, const char *name) {
    (void)target, (void)name;
    return mj_test_has_mapping;
}

/* What the mapped file has from START on; NULL: it cannot be read. */
const uint8_t *mj_test_file;
int mj_test_files_left; /* open, and not closed */

enum { START = 0x1000 };

int file_read(struct file *file, const struct mj_target *target, uint64_t address, void *bytes,
              size_t size) {
    (void)target;
    mj_test_files_left += !file->end;
    file->end = 1;
    if (mj_test_file)
        memcpy(bytes, mj_test_file + (address - START), size);
    return mj_test_file != NULL;
}

void file_close(struct file *file) {
    mj_test_files_left -= !!file->end;
    file->end = 0;
}

int (*mj_test_sync)(void *unused);

uint64_t mj_test_slots_size; /* of slots, from START on */

/* How many edits each step of runs has; returns how many there are. */
int mj_test_steps_of_runs(const struct mj_edit *edits, uint32_t count, uint32_t *sizes) {
    struct steps_of_runs steps = steps_of_runs_create(edits, count);
    const int found = (int)steps.count;

    for (uint32_t i = 0; i < steps.count; i++)
        sizes[i] = steps.steps[i].edit_count;
    steps_of_runs_destroy(&steps);
    return found;
}

/* The runs that edits [first, first + in_runs) are. */
static struct steps_of_runs one_step(const struct mj_edit *edits, uint32_t first,
                                     uint32_t in_runs) {
    struct steps_of_runs runs = {.count = 0};

    if (in_runs) {
        runs.steps[0] = runs_create(&edits[first], in_runs);
        runs.count = runs.steps[0].count > 0;
    }
    return runs;
}

/* Edits [first, first + in_runs) are written as runs; `stands`: those that
   apply.c writes so while nobody runs. */
int mj_test_transact(const struct mj_edit *edits, uint32_t count, uint32_t first, uint32_t in_runs,
                     int stands, struct mj_report *report) {
    const struct mj_target target = {.slots = START, .slots_size = mj_test_slots_size};
    struct steps_of_runs runs =
        stands ? steps_of_runs_create(edits, count) : one_step(edits, first, in_runs);
    const struct transaction transaction = {.target = &target,
                                            .edits = edits,
                                            .count = count,
                                            .standing = stands,
                                            .runs = &runs,
                                            .sync = mj_test_sync,
                                            .report = report};
    int status = MJ_OK;

    for (uint32_t i = 0; i < runs.count && status == MJ_OK; i++) { /* as apply.c, before the stop */
        status = runs_compare(&target, &runs.steps[i], report);
        if (status != MJ_OK)
            report->index += (uint32_t)(runs.steps[i].edits - edits);
    }
    if (status == MJ_OK)
        status = transact(&transaction);
    steps_of_runs_destroy(&runs);
    return status;
}

/* SPDX-License-Identifier: MIT */
/*
 * faults: transaction.c, runs.c and write.c of native/src/stop on memory that the test makes up.
 * They are compiled with pread and pwrite renamed, and what those do is a function of the test; so
 * is the synchronisation.
 */
#include "mapped.h"
#include "transaction.h"

#include <errno.h>
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

ssize_t test_pread(int fd, void *bytes, size_t size, off_t offset) {
    (void)fd;
    return reach(0, bytes, size, offset);
}

ssize_t test_pwrite(int fd, const void *bytes, size_t size, off_t offset) {
    (void)fd;
    return reach(1, (void *)bytes, size, offset);
}

int mj_test_has_mapping; /* whether the kernel has put calls in the place of no-ops */

int has_mapping(const struct mj_target *target, const char *name) {
    (void)target, (void)name;
    return mj_test_has_mapping;
}

int (*mj_test_sync)(void *unused);

/* Edits [first, first + in_runs) are written as runs, as apply.c does while nobody runs. */
int mj_test_transact(const struct mj_edit *edits, uint32_t count, uint32_t first, uint32_t in_runs,
                     struct mj_report *report) {
    const struct mj_target target = {.mem_fd = 0};
    struct runs runs = {0};

    if (in_runs)
        runs = runs_create(&edits[first], in_runs);
    const struct transaction transaction = {.target = &target,
                                            .edits = edits,
                                            .count = count,
                                            .runs = &runs,
                                            .sync = mj_test_sync,
                                            .report = report};
    int status = runs_compare(&target, &runs, report); /* as apply.c does before the stop */

    if (status != MJ_OK)
        report->index += first;
    else
        status = transact(&transaction);
    runs_destroy(&runs);
    return status;
}

/* SPDX-License-Identifier: MIT */
/*
 * faults: native/src/stop/write.c on memory that the test makes up. It is compiled with pread and
 * pwrite renamed, and what they do is a function of the test.
 */
#include <errno.h>
#include <sys/types.h>

typedef ssize_t access_fn(int writing, void *bytes, size_t size, off_t offset, int *error);

access_fn *mj_test_access;

static ssize_t reach(int writing, void *bytes, size_t size, off_t offset) {
    int error = errno;
    const ssize_t result = mj_test_access(writing, bytes, size, offset, &error);

    errno = error;
    return result;
}

ssize_t test_pread(int fd, void *bytes, size_t size, off_t offset) {
    (void)fd;
    return reach(0, bytes, size, offset);
}

ssize_t test_pwrite(int fd, const void *bytes, size_t size, off_t offset) {
    (void)fd;
    return reach(1, (void *)bytes, size, offset);
}

/* SPDX-License-Identifier: MIT */
/*
 * calls: preloaded, counts calls that the helper makes.
 *
 * OLD_KERNEL in the environment: no ioctl is known. NO_LINKS: no directory says how many links it
 * has.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int ioctls, preads, pwrites, readvs, writevs, rewinds;

int ioctl(int fd, unsigned long request, ...) {
    va_list rest;

    va_start(rest, request);
    int (*real)(int, unsigned long, void *) = dlsym(RTLD_NEXT, "ioctl");
    void *argument = va_arg(rest, void *);

    va_end(rest);
    ioctls++;
    if (!getenv("OLD_KERNEL"))
        return real(fd, request, argument);
    errno = ENOTTY;
    return -1;
}

int fstat(int fd, struct stat *status) {
    int (*real)(int, struct stat *) = dlsym(RTLD_NEXT, "fstat");
    const int result = real(fd, status);

    if (getenv("NO_LINKS"))
        status->st_nlink = 1;
    return result;
}

ssize_t pread(int fd, void *bytes, size_t size, off_t offset) {
    ssize_t (*real)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread");

    preads++;
    return real(fd, bytes, size, offset);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset) {
    ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite");

    pwrites++;
    return real(fd, bytes, size, offset);
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *here, unsigned long n,
                         const struct iovec *there, unsigned long m, unsigned long flags) {
    ssize_t (*real)(pid_t, const struct iovec *, unsigned long, const struct iovec *, unsigned long,
                    unsigned long) = dlsym(RTLD_NEXT, "process_vm_readv");

    readvs++;
    return real(pid, here, n, there, m, flags);
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *here, unsigned long n,
                          const struct iovec *there, unsigned long m, unsigned long flags) {
    ssize_t (*real)(pid_t, const struct iovec *, unsigned long, const struct iovec *, unsigned long,
                    unsigned long) = dlsym(RTLD_NEXT, "process_vm_writev");

    writevs++;
    return real(pid, here, n, there, m, flags);
}

void rewinddir(DIR *directory) {
    void (*real)(DIR *) = dlsym(RTLD_NEXT, "rewinddir");

    rewinds++;
    real(directory);
}

/* Begins to count anew. */
__attribute__((visibility("default"))) void calls_clear(void) {
    ioctls = preads = pwrites = readvs = writevs = rewinds = 0;
}

__attribute__((visibility("default"))) void calls_print(void) {
    printf("ioctl=%d pread=%d pwrite=%d process_vm_readv=%d process_vm_writev=%d lists=%d\n",
           ioctls, preads, pwrites, readvs, writevs, rewinds);
    fflush(stdout);
}

/* SPDX-License-Identifier: MIT */
/*
 * fetch.c: reading memory at an address that may be anything, without a fault.
 *
 * Where the processor has memory transactions (RTM), in one of them: a fault there ends the
 * transaction and is not delivered (Intel SDM volume 1, 16.3.8.2). It ends for other reasons too,
 * such as a page that is not in memory just now. Then, and elsewhere, the kernel copies
 * (process_vm_readv(2)), which takes a system call, some half a microsecond, and tells how far it
 * got. A handler for SIGSEGV would be cheaper than that, but the program may put its own in its
 * place, or block the signal, and then a wild pointer kills it.
 */

#include "runtime.h"

#define NR_process_vm_readv 310
#define XBEGIN_STARTED ~0u

struct span { /* struct iovec */
    uint64_t address;
    uint64_t size;
};

/* Up to and without the NUL, at most `size` bytes. */
static uint64_t length_of(const char *text, uint64_t size) {
    uint64_t length = 0;

    while (length < size && text[length])
        length++;
    return length;
}

/* Bytes copied, or -1: the transaction did not come to its end. */
static long by_transaction(char *to, const char *from, uint64_t size, int text) {
    uint32_t status = XBEGIN_STARTED;
    uint64_t at = 0;

    __asm__ __volatile__(".byte 0xc7, 0xf8; .long 0" /* xbegin to the next instruction */
                         : "+a"(status)
                         :
                         : "memory");
    if (status != XBEGIN_STARTED)
        return -1;
    for (; at < size; at++) {
        const char byte = ((const volatile char *)from)[at];

        if (text && !byte)
            break;
        to[at] = byte;
    }
    __asm__ __volatile__(".byte 0x0f, 0x01, 0xd5" /* xend */ ::: "memory");
    return (long)at;
}

/* Bytes copied up to the first that cannot be read. Two spans, because the kernel promises to have
   copied whole ones only. */
static long by_kernel(uint32_t pid, char *to, const char *from, uint64_t size) {
    const uint64_t in_page = MJ_PAGE - ((uint64_t)from & (MJ_PAGE - 1));
    const uint64_t first = size < in_page ? size : in_page;
    const struct span remote[2] = {{(uint64_t)from, first}, {(uint64_t)from + first, size - first}};
    const struct span local = {(uint64_t)to, size};
    register const struct span *r10 __asm__("r10") = remote;
    register long r8 __asm__("r8") = size > first ? 2 : 1;
    register long r9 __asm__("r9") = 0;
    long result;

    __asm__ __volatile__("syscall"
                         : "=a"(result)
                         : "a"(NR_process_vm_readv), "D"((long)pid), "S"(&local), "d"(1l), "r"(r10),
                           "r"(r8), "r"(r9)
                         : "rcx", "r11", "memory");
    return result < 0 ? 0 : result;
}

/*
 * Copy up to `size` bytes, at most MJ_PAGE, with `text` up to a NUL. Returns how many; `*whole`
 * says that nothing more could have been read or was wanted: false where unreadable memory came
 * first.
 */
uint64_t mj_copy(const struct mj_control *control, char *to, const char *from, uint64_t size,
                 int text, int *whole) {
    long copied = -1;

    *whole = 1;
    if (control->cpu_flags & MJ_CPU_RTM)
        copied = by_transaction(to, from, size, text);
    if (copied >= 0)
        return (uint64_t)copied;
    copied = by_kernel(control->pid, to, from, size);
    const uint64_t length = text ? length_of(to, (uint64_t)copied) : (uint64_t)copied;

    *whole = (uint64_t)copied == size || length < (uint64_t)copied;
    return length;
}

/* The same for probes written in C: bytes that could be read. */
long mj_fetch(void *to, const void *from, unsigned long size) {
    const struct mj_control *control = mj_control();
    uint64_t done = 0;
    int whole = 1;

    while (whole && done < size) {
        const uint64_t left = size - done;

        done += mj_copy(control, (char *)to + done, (const char *)from + done,
                        left < MJ_PAGE ? left : MJ_PAGE, 0, &whole);
    }
    return (long)done;
}

/* SPDX-License-Identifier: MIT */
/*
 * fetch.c: reading memory at an address that may be anything, without a fault. All that is read for
 * an event or a probe is read here; only recorders that were assembled for a marker read a text of
 * a page that is known on their own (markerjit/probes/recorder.py).
 *
 * By plain loads from pages that are known to be readable, for as long as abi.h says of
 * MJ_READABLE_WINDOW. No load touches a page that the bytes do not reach. A page that is not known
 * is asked for: rt_sigprocmask(2) with a `how` that does not exist copies the set in first, and
 * changes nothing. A page that goes in between is the one thing that this does not survive:
 * docs/decisions/0023-strings-by-known-pages.md bounds that.
 *
 * Where plain loads are not allowed or not possible, a memory transaction (RTM) is used, if the
 * processor has them: a fault there ends the transaction and is not delivered (Intel SDM volume 1,
 * 16.3.8.2). It ends for other reasons too, such as a page that is not in memory just now, or that
 * the kernel has marked as not used (madvise(2), MADV_COLD): then it is begun again, once the
 * kernel has read there. An empty one takes 20 ns on one processor, and 60 to 150 on another.
 *
 * Then the kernel copies (process_vm_readv(2)), and tells how far it got; that takes ten times as
 * long as the question.
 */

#include "runtime.h"

#define NR_rt_sigprocmask 14
#define NR_process_vm_readv 310
#define NO_SUCH_HOW (-1l)
#define EFAULT 14
#define EINVAL 22
#define XBEGIN_STARTED ~0u
#define BLOCK sizeof(uint64_t)
#define KEYS_BUT_0                                                                                 \
    0x55555554u /* in PKRU: may not be read, as a thread has it that changed none                  \
                 */
_Static_assert(MJ_PAGE == 1 << 12, "page numbers");

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

/* ---- in a transaction ---------------------------------------------------------------------- */

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

/* ---- from pages that are known to be readable ---------------------------------------------- */

enum page { READABLE, UNREADABLE, UNKNOWN };

/* Whether what this thread can read all others can, too, as far as protection keys go: it has a
   right to none but key 0, which all have. */
static int has_no_keys(const struct mj_control *control) {
    uint32_t rights = KEYS_BUT_0, rest;

    if (control->cpu_flags & MJ_CPU_PKU)
        __asm__ __volatile__("rdpkru" : "=a"(rights), "=d"(rest) : "c"(0));
    return (rights & KEYS_BUT_0) == KEYS_BUT_0;
}

static enum page ask_for(const struct mj_control *control, uint64_t page) {
    register long r10 __asm__("r10") = 8; /* bytes of a set of signals */
    long result;

    if (!mj_can_be_known(page) || !has_no_keys(control))
        return UNKNOWN;
    __asm__ __volatile__("syscall"
                         : "=a"(result)
                         : "a"(NR_rt_sigprocmask), "D"(NO_SUCH_HOW), "S"(page * MJ_PAGE), "d"(0l),
                           "r"(r10)
                         : "rcx", "r11", "memory");
    return result == -EINVAL ? READABLE : result == -EFAULT ? UNREADABLE : UNKNOWN;
}

/* `counter` was read before the question. */
static enum page page_at(const struct mj_control *control, uint64_t address, uint64_t counter) {
    const uint64_t page = address / MJ_PAGE;
    const uint64_t window = counter >> MJ_READABLE_WINDOW;
    uint64_t *known = mj_part(control, MJ_PART_READABLE);

    if (mj_is_known(known, page, window))
        return READABLE;
    const enum page now = ask_for(control, page);

    if (now == READABLE)
        __atomic_store_n(&known[mj_readable_place(page)], mj_readable_word(page, window),
                         __ATOMIC_RELAXED);
    return now;
}

/* Have the kernel read from the pages of at most MJ_PAGE bytes, so that the processor has marked
   them as used. A transaction that would have to do so ends, each time, and process_vm_readv reads
   them elsewhere. Returns whether the first can be read. */
static int touch(const struct mj_control *control, uint64_t address, uint64_t size) {
    const uint64_t first = address / MJ_PAGE, last = (address + size - 1) / MJ_PAGE;
    const int is_readable = ask_for(control, first) == READABLE;

    if (is_readable && last != first)
        ask_for(control, last);
    return is_readable;
}

int mj_is_readable(const struct mj_control *control, uint64_t address, uint64_t *counter) {
    if (!(control->cpu_flags & MJ_CPU_TSC))
        return ask_for(control, address / MJ_PAGE) == READABLE;
    if (!*counter)
        *counter = mj_counter();
    return page_at(control, address, *counter) == READABLE;
}

/* The first bytes of a block, fewer than it has. */
static void put_first(char *to, uint64_t block, unsigned count) {
    if (count & 4) {
        __builtin_memcpy(to, &block, 4);
        block >>= 32;
        to += 4;
    }
    if (count & 2) {
        __builtin_memcpy(to, &block, 2);
        block >>= 16;
        to += 2;
    }
    if (count & 1)
        *to = (char)block;
}

/* Where the first NUL of a block is, or BLOCK. Only bytes behind a NUL may be marked wrongly. */
static unsigned nul_in(uint64_t block) {
    const uint64_t marks = (block - 0x0101010101010101) & ~block & 0x8080808080808080;

    return marks ? (unsigned)__builtin_ctzl(marks) / 8 : BLOCK;
}

/* Copy bytes of one page that can be read, with `text` up to a NUL; returns how many. */
static uint64_t from_page(char *to, const char *from, uint64_t size, int text) {
    uint64_t at = 0;

    while (at < size && ((uint64_t)(from + at) & (MJ_PAGE - 1)) <= MJ_PAGE - BLOCK) {
        uint64_t block;

        __builtin_memcpy(&block, from + at, BLOCK);
        const uint64_t left = size - at, count = left < BLOCK ? left : BLOCK;
        const unsigned nul = text ? nul_in(block) : BLOCK;

        if (nul < count) {
            put_first(to + at, block, nul);
            return at + nul;
        }
        if (count < BLOCK) {
            put_first(to + at, block, (unsigned)count);
            return size;
        }
        __builtin_memcpy(to + at, &block, BLOCK);
        at += BLOCK;
    }
    for (; at < size; at++) { /* the last bytes of the page */
        const char byte = ((const volatile char *)from)[at];

        if (text && !byte)
            break;
        to[at] = byte;
    }
    return at;
}

/* Bytes copied. `*next` says of the page behind them, where that ended it, that it cannot be read,
   or is not known; else it is READABLE. */
static uint64_t by_pages(const struct mj_control *control, char *to, const char *from,
                         uint64_t size, int text, enum page *next) {
    uint64_t done = 0;

    *next = READABLE;
    while (done < size) {
        const uint64_t address = (uint64_t)from + done, left = size - done;
        const uint64_t in_page = MJ_PAGE - (address & (MJ_PAGE - 1));
        const uint64_t part = left < in_page ? left : in_page;

        *next = page_at(control, address, mj_counter());
        if (*next != READABLE)
            break;
        const uint64_t copied = from_page(to + done, from + done, part, text);

        done += copied;
        if (copied < part)
            break;
    }
    return done;
}

/* ---- by the kernel --------------------------------------------------------------------------- */

/* Bytes copied up to the first that cannot be read. Two spans, because the kernel promises to have
   copied whole ones only. */
static uint64_t by_kernel(uint32_t pid, char *to, const char *from, uint64_t size) {
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
    return result < 0 ? 0 : (uint64_t)result;
}

/*
 * Copy up to `size` bytes, at most MJ_PAGE, with MJ_COPY_TEXT up to a NUL, with MJ_COPY_CAREFUL
 * never from a page that is only known to be there. Returns how many; `*whole` says that nothing
 * more could have been read or was wanted: false where unreadable memory came first.
 */
uint64_t mj_copy(const struct mj_control *control, char *to, const char *from, uint64_t size,
                 unsigned how, int *whole) {
    const int text = (how & MJ_COPY_TEXT) != 0;
    uint64_t done = 0;

    *whole = 1;
    if (control->cpu_flags & MJ_CPU_TSC && !(how & MJ_COPY_CAREFUL)) {
        enum page next;

        done = by_pages(control, to, from, size, text, &next);
        *whole = next != UNREADABLE;
        if (next != UNKNOWN)
            return done;
    }
    const uint64_t wanted = size - done;

    if (control->cpu_flags & MJ_CPU_RTM) {
        long length = by_transaction(to + done, from + done, wanted, text);

        if (length < 0 && touch(control, (uint64_t)from + done, wanted))
            length = by_transaction(to + done, from + done, wanted, text);
        if (length >= 0)
            return done + (uint64_t)length;
    }
    const uint64_t copied = by_kernel(control->pid, to + done, from + done, wanted);
    const uint64_t length = text ? length_of(to + done, copied) : copied;

    *whole = copied == wanted || length < copied;
    return done + length;
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

/* SPDX-License-Identifier: MIT */
/*
 * write.c: bytes into a target's text and data, and out of it.
 *
 * Through /proc/PID/mem, which writes to r-x pages by giving the process a private copy
 * (process_vm_writev cannot). One edit of one byte is one store in the kernel's copy; of several
 * bytes it is not promised to be.
 *
 * Edits that lie close together make a run, which is read by one system call. They are written one
 * by one here; many edits of code are written as runs while no thread runs (runs.c). Data is never
 * written so, because threads are not the only writers of data: the kernel writes in a system call
 * that goes on without its thread (io_uring, AIO), and other processes write to shared memory. Many
 * places of data are written by process_vm_writev, which takes a list of them. Where it cannot (a
 * page without write permission), /proc/PID/mem goes on. While threads run it is not used: it takes
 * the process by its number, and one that executes another program meanwhile would have that
 * written to.
 *
 * The slots of an arena are the exception. They are private memory that the program knows nothing
 * of, and the kernel pins a page for each place of a list, which takes 0.45 us: thousands of words
 * would have threads stand for longer than all else does. So many of them are written with what
 * stands between, which is read a moment before. One writer is left, a child that shares the memory
 * (vfork): it may count a return there whose entry was not seen, and that count may be lost.
 */

#define _GNU_SOURCE
#include "write.h"

#include "race.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    LARGEST_GAP = 4095, /* less than a page, so that there is no hole in it */
    FEWEST_IN_RUN = 4,  /* of fewer, reading the bytes between costs more than it saves */
    MOST_APART = 16,    /* places that lie apart, and are read by one call */
    FEWEST_PLACES = 16, /* of data that are written by one call, which does each by itself */
    MOST_PLACES = 256,
    EDIT_BYTES = sizeof(((struct mj_edit *)0)->old_bytes),
    PAGE_BYTES = 4096,
};

static const uint8_t *bytes_of(const struct mj_edit *edit, enum bytes which) {
    return which == OLD_BYTES ? edit->old_bytes : edit->new_bytes;
}

/* Of more than a page process_vm_readv is twice as fast, which copies once and not twice. Where it
   cannot (execute-only memory, a process that has become another program) /proc/PID/mem says so. */
int read_bytes(const struct mj_target *target, uint64_t address, void *bytes, size_t size) {
    const struct iovec here = {bytes, size}, there = {(void *)address, size};

    if (size > PAGE_BYTES && process_vm_readv(target->pid, &here, 1, &there, 1, 0) == (ssize_t)size)
        return 1;
    errno = 0;
    const ssize_t got = pread(target->mem_fd, bytes, size, (off_t)address);

    if (got > 0 && got < (ssize_t)size)
        errno = EIO;
    return got == (ssize_t)size;
}

size_t write_bytes(const struct mj_target *target, uint64_t address, const void *bytes,
                   size_t size) {
    errno = 0;
    if (MJ_FAILS("write"))
        return 0;
    const ssize_t written = pwrite(target->mem_fd, bytes, size, (off_t)address);

    MJ_RACE("written");
    if (written > 0 && written < (ssize_t)size)
        errno = EIO;
    return written > 0 ? (size_t)written : 0;
}

/* Where threads read the place while we write it: one store, in our own process. */
static size_t store(uint64_t address, const uint8_t *bytes, size_t size) {
    uint64_t word = 0;

    errno = EINVAL;
    if (MJ_FAILS("write") || address % size)
        return 0;
    memcpy(&word, bytes, size);
    switch (size) {
    case 1:
        __atomic_store_n((uint8_t *)address, (uint8_t)word, __ATOMIC_SEQ_CST);
        break;
    case 2:
        __atomic_store_n((uint16_t *)address, (uint16_t)word, __ATOMIC_SEQ_CST);
        break;
    case 4:
        __atomic_store_n((uint32_t *)address, (uint32_t)word, __ATOMIC_SEQ_CST);
        break;
    case 8:
        __atomic_store_n((uint64_t *)address, word, __ATOMIC_SEQ_CST);
        break;
    default:
        return 0;
    }
    MJ_RACE("written");
    return size;
}

/* Most edits are one byte, and there may be a hundred thousand. */
static int differs(const uint8_t *found, const struct mj_edit *edit, enum bytes which) {
    const uint8_t *expected = bytes_of(edit, which);

    return *found != *expected || (edit->size > 1 && memcmp(found, expected, edit->size));
}

int fault(struct mj_report *report, uint32_t index) {
    report->index = index;
    report->error = errno;
    return errno == ESRCH || !errno ? MJ_GONE : MJ_ERRNO;
}

uint32_t run_of(const struct mj_edit *edits, uint32_t count, size_t *size) {
    const uint64_t start = edits[0].address;
    uint64_t end = start + edits[0].size;
    uint32_t n = 1;

    while (n < count && edits[n].address >= end && edits[n].address - end <= LARGEST_GAP &&
           edits[n].code == edits[0].code &&
           edits[n].address + edits[n].size - start <= RUN_BYTES) {
        end = edits[n].address + edits[n].size;
        n++;
    }
    *size = end - start;
    return n;
}

static int compare_one(const struct mj_target *target, const struct mj_edit *edit,
                       enum bytes expected, uint32_t index, struct mj_report *report) {
    if (!read_bytes(target, edit->address, report->found, edit->size))
        return fault(report, index);
    if (!memcmp(report->found, bytes_of(edit, expected), edit->size))
        return MJ_OK;
    report->index = index;
    return MJ_UNEXPECTED;
}

/* Edits in runs of their own, by one call. 0 where it cannot read all of them. */
static int read_apart(const struct mj_target *target, const struct mj_edit *edits, uint32_t count,
                      uint8_t found[][EDIT_BYTES]) {
    struct iovec here[MOST_APART], there[MOST_APART];
    ssize_t size = 0;

    for (uint32_t i = 0; i < count; i++) {
        here[i] = (struct iovec){found[i], edits[i].size};
        there[i] = (struct iovec){(void *)edits[i].address, edits[i].size};
        size += edits[i].size;
    }
    return process_vm_readv(target->pid, here, count, there, count, 0) == size;
}

/* How many of these, from the first on, stand in runs of fewer than FEWEST_IN_RUN. */
static uint32_t count_apart(const struct mj_edit *edits, uint32_t count) {
    uint32_t apart = 0;

    while (apart < count && apart < MOST_APART) {
        size_t size;
        const uint32_t n = run_of(&edits[apart], count - apart, &size);

        if (n >= FEWEST_IN_RUN)
            return apart;
        apart += n;
    }
    return apart < MOST_APART ? apart : MOST_APART;
}

/* Edits [first, end), each by itself where they cannot be read together: there may be a hole. */
static int compare_apart(const struct mj_target *target, const struct mj_edit *edits,
                         uint32_t first, uint32_t end, enum bytes expected,
                         struct mj_report *report) {
    uint8_t found[MOST_APART][EDIT_BYTES];
    const int whole = end - first > 1 && read_apart(target, &edits[first], end - first, found);
    int status = MJ_OK;

    for (uint32_t i = first; i < end && status == MJ_OK; i++)
        if (!whole || differs(found[i - first], &edits[i], expected))
            status = compare_one(target, &edits[i], expected, i, report);
    return status;
}

static int compare_run(const struct mj_target *target, const struct mj_edit *edits, uint32_t first,
                       uint32_t end, size_t size, enum bytes expected, struct mj_report *report) {
    uint8_t image[RUN_BYTES];
    const uint64_t start = edits[first].address;
    const int whole = read_bytes(target, start, image, size);
    int status = MJ_OK;

    for (uint32_t i = first; i < end && status == MJ_OK; i++)
        if (!whole || differs(image + (edits[i].address - start), &edits[i], expected))
            status = compare_one(target, &edits[i], expected, i, report);
    return status;
}

int compare_edits(const struct mj_target *target, const struct mj_edit *edits, uint32_t count,
                  enum bytes expected, struct mj_report *report) {
    int status = MJ_OK;

    for (uint32_t i = 0, end; i < count && status == MJ_OK; i = end) {
        size_t size;

        end = i + count_apart(&edits[i], count - i);
        if (end > i) {
            status = compare_apart(target, edits, i, end, expected, report);
        } else {
            end = i + run_of(&edits[i], count - i, &size);
            status = compare_run(target, edits, i, end, size, expected, report);
        }
    }
    return status;
}

static int changes(const struct mj_edit *edit) {
    return memcmp(edit->old_bytes, edit->new_bytes, edit->size) != 0;
}

/* Data in one page, which is never written in part. */
static int is_place(const struct mj_edit *edit) {
    return !edit->code && !edit->store && edit->address % PAGE_BYTES + edit->size <= PAGE_BYTES;
}

/* Many places from the first edit on, if there are many. Nothing between two of them is written:
   others may write there. Returns how many edits are done, with those that are only compared. */
static uint32_t write_places(const struct mj_target *target, const struct mj_edit *edits,
                             uint32_t most, enum bytes which) {
    struct iovec here[MOST_PLACES], there[MOST_PLACES];
    uint32_t behind[MOST_PLACES], count = 0, done = 0;

    for (uint32_t i = 0; i < most && count < MOST_PLACES && is_place(&edits[i]); i++) {
        if (!changes(&edits[i]))
            continue;
        here[count] = (struct iovec){(void *)bytes_of(&edits[i], which), edits[i].size};
        there[count] = (struct iovec){(void *)edits[i].address, edits[i].size};
        behind[count++] = i + 1;
    }
    if (count < FEWEST_PLACES)
        return 0;
    ssize_t written = process_vm_writev(target->pid, here, count, there, count, 0);

    for (uint32_t i = 0; i < count && written >= (ssize_t)here[i].iov_len; i++) {
        written -= (ssize_t)here[i].iov_len;
        done = behind[i];
    }
    MJ_RACE("written");
    return done;
}

static int is_in_slots(const struct mj_target *target, const struct mj_edit *edit) {
    return !edit->code && !edit->store && edit->address >= target->slots &&
           edit->address - target->slots + edit->size <= target->slots_size;
}

/* Bytes of one place, a page at a time: a page is written whole or not at all, and the call says
   how many were. Returns how many bytes. */
static size_t write_pages(const struct mj_target *target, uint64_t start, uint8_t *bytes,
                          size_t size) {
    struct iovec here[RUN_BYTES / PAGE_BYTES + 1], there[RUN_BYTES / PAGE_BYTES + 1];
    unsigned long count = 0;

    for (size_t at = 0, part; at < size; at += part, count++) {
        part = PAGE_BYTES - (start + at) % PAGE_BYTES;
        if (part > size - at)
            part = size - at;
        here[count] = (struct iovec){bytes + at, part};
        there[count] = (struct iovec){(void *)(start + at), part};
    }
    const ssize_t written = process_vm_writev(target->pid, here, count, there, count, 0);

    MJ_RACE("written");
    return written > 0 ? (size_t)written : 0;
}

/* Many words of slots from the first edit on, if there are many, with what stands between them.
   Returns as above. */
static uint32_t write_slots(const struct mj_target *target, const struct mj_edit *edits,
                            uint32_t most, enum bytes which) {
    uint8_t image[RUN_BYTES];
    const uint64_t start = edits->address;
    uint32_t count = 0, done = 0;
    size_t size;

    if (is_in_slots(target, edits))
        count = run_of(edits, most, &size);
    if (count < FEWEST_PLACES || !is_in_slots(target, &edits[count - 1]) ||
        !read_bytes(target, start, image, size))
        return 0;
    for (uint32_t i = 0; i < count; i++)
        if (changes(&edits[i]))
            memcpy(image + (edits[i].address - start), bytes_of(&edits[i], which), edits[i].size);
    const uint64_t end = start + write_pages(target, start, image, size);

    while (done < count && edits[done].address + edits[done].size <= end)
        done++;
    return done;
}

int write_edits(const struct mj_target *target, const struct mj_edit *edits, uint32_t count,
                enum bytes which, int standing, uint32_t *done, struct mj_report *report) {
    for (*done = 0; *done < count; ++*done) {
        const struct mj_edit *edit = &edits[*done];
        const uint8_t *bytes = bytes_of(edit, which);

        if (!changes(edit))
            continue; /* only compared */
        uint32_t places = standing ? write_slots(target, edit, count - *done, which) : 0;

        if (standing && !places)
            places = write_places(target, edit, count - *done, which);
        if (places) { /* where that has stopped, the next one says why */
            *done += places - 1;
            continue;
        }
        const size_t written = edit->store ? store(edit->address, bytes, edit->size)
                                           : write_bytes(target, edit->address, bytes, edit->size);

        if (written == edit->size)
            continue;
        const int status = fault(report, *done);

        if (written) /* in part: it is taken back with the others */
            ++*done;
        return status;
    }
    return MJ_OK;
}

void privatise_pages(const struct mj_target *target, const struct mj_edit *edits, uint32_t count) {
    uint64_t last_page = 0;

    for (uint32_t i = 0; i < count; i++) {
        const uint64_t page = edits[i].address / PAGE_BYTES;
        uint8_t byte;

        if (!edits[i].code || page == last_page)
            continue;
        last_page = page;
        /* Errors show when the edit itself is compared and written. */
        if (read_bytes(target, edits[i].address, &byte, 1) && edits[i].old_bytes[0] == byte)
            (void)!pwrite(target->mem_fd, &byte, 1, (off_t)edits[i].address);
    }
}

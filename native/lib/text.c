/* SPDX-License-Identifier: MIT */
/*
 * text.c: a site's bytes: judge them, change the one that decides, tell the other cores.
 *
 * Only one byte of a site ever changes, and the instruction that it is in has the same length
 * before and after, so a running thread executes the old instruction or the new one and nothing
 * between. What the manuals say of that: AMD (APM volume 2, 7.6.1) allows a store inside an aligned
 * quadword to code that another processor is executing. Intel (SDM volume 3, 8.1.3) asks for a
 * serialising instruction on the other processor before it executes the new code, and calls it
 * implementation-specific otherwise. mj_sync_cores gives that after the fact; the moment between
 * store and fence rests on observation (docs/explanation, 10^8 flips on one AMD part) on Intel.
 *
 * Writing goes through /proc/self/mem: the page becomes a private copy and is never writable for
 * anybody else. Where that is not there or not permitted (proc_mem.force_override= of Linux 6.12),
 * mprotect opens the page for the moment of one store.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MJ_PROC
#define MJ_PROC "/proc/self" /* tests take it away */
#endif

/* Where the byte is that decides, and its two values. Kinds without one are switched by the slot
   alone (pointer) or not at all. */
struct shape {
    uint8_t at, dormant, open;
};

static const struct shape shapes[] = {
    [MJ_KIND_jump] = {1, 0x05, 0x00},      /* eb 05  jmp end     ->  eb 00  jmp to the next, e9 */
    [MJ_KIND_nop] = {0, 0xa9, 0xe9},       /* a9 xx  test eax, x ->  e9 xx  jmp body            */
    [MJ_KIND_immediate] = {0, 0x00, 0x01}, /* b0 00  mov al, 0   ->  b0 01  mov al, 1           */
};

static bool is_text(const struct mj_site *site) {
    return site->kind == MJ_KIND_jump || site->kind == MJ_KIND_nop ||
           site->kind == MJ_KIND_immediate;
}

/*
 * A sentinel could be switched by storing its slot, but its sites do not count who is inside, so
 * nobody could ever be told that the probe may be freed. Direct has no slot; symbol needs a
 * breakpoint, and a handler for it.
 */
bool mj_can_switch(const struct mj_site *site) {
    return is_text(site) || site->kind == MJ_KIND_pointer;
}

static uint8_t byte_at(const uint8_t *address) {
    return __atomic_load_n(address, __ATOMIC_RELAXED);
}

static bool reaches(const uint8_t *relative, const uint8_t *target) {
    int32_t distance;

    memcpy(&distance, relative, sizeof(distance));
    return (uintptr_t)(relative + sizeof(distance)) + (uintptr_t)(intptr_t)distance ==
           (uintptr_t)target;
}

/* Whether all bytes but the one that changes are what the note says. */
static bool is_shaped(const struct mj_site *site) {
    const uint8_t *code = site->code;

    switch (site->kind) {
    case MJ_KIND_jump: /* eb 05 e9 rel32 */
        return code[0] == 0xeb && code[2] == 0xe9 && reaches(code + 3, site->body) &&
               site->end == code + 7;
    case MJ_KIND_nop: /* a9 rel32 */
        return reaches(code + 1, site->body) && site->end == code + 5;
    case MJ_KIND_immediate: /* b0+r 00 */
        return (code[-1] & 0xf8) == 0xb0 && site->end == code + 1;
    default:
        return true;
    }
}

static enum mj_state text_state(const struct mj_site *site) {
    const struct shape *shape = &shapes[site->kind];
    const uint8_t byte = byte_at(site->code + shape->at);

    if (!is_shaped(site))
        return MJ_STRANGE;
    return byte == shape->dormant ? MJ_DORMANT : byte == shape->open ? MJ_OPEN : MJ_STRANGE;
}

static bool slot_holds(const struct mj_site *site, uintptr_t probe) {
    return (uintptr_t)__atomic_load_n(&site->slot->probe, __ATOMIC_RELAXED) == probe;
}

enum mj_state mj_site_state(const struct mj_site *site) {
    switch (site->kind) {
    case MJ_KIND_pointer:
        return slot_holds(site, 0) ? MJ_DORMANT : MJ_OPEN;
    case MJ_KIND_sentinel:
        return slot_holds(site, (uintptr_t)site->body) ? MJ_DORMANT : MJ_OPEN;
    case MJ_KIND_direct:
        return MJ_OPEN;
    case MJ_KIND_symbol: /* 90 nop -> cc int3 */
        return byte_at(site->code) == 0xcc ? MJ_OPEN : MJ_DORMANT;
    default:
        return text_state(site);
    }
}

/* ---- shared mappings ----------------------------------------------------------------------- */

static bool any_site_in(const struct mj_sites *sites, uintptr_t start, uintptr_t end) {
    for (size_t i = 0; i < sites->count; i++) {
        const uintptr_t code = (uintptr_t)sites->items[i].code;

        if (is_text(&sites->items[i]) && code >= start && code < end)
            return true;
    }
    return false;
}

/* "start-end rwxs ..." */
static bool is_shared_line(const struct mj_sites *sites, const char *line) {
    char *rest;
    const uintptr_t start = strtoul(line, &rest, 16);
    const uintptr_t end = *rest == '-' ? strtoul(rest + 1, &rest, 16) : 0;

    return end && strlen(rest) > 4 && rest[4] == 's' && any_site_in(sites, start, end);
}

/* The write itself is no guard: on a shared mapping that is writable it succeeds and changes the
   file. No stdio, which allocates (see notes.c). */
int mj_refuse_shared(const struct mj_sites *sites) {
    char chunk[4096], line[64];
    size_t length = 0;
    ssize_t got = 0;
    bool shared = false;
    const int maps =
        any_site_in(sites, 0, UINTPTR_MAX) ? open(MJ_PROC "/maps", O_RDONLY | O_CLOEXEC) : -1;

    while (maps >= 0 && !shared && (got = read(maps, chunk, sizeof(chunk))) > 0)
        for (ssize_t i = 0; i < got && !shared; i++) {
            if (chunk[i] != '\n') {
                if (length < sizeof(line) - 1) /* the rest is only the path */
                    line[length++] = chunk[i];
                continue;
            }
            line[length] = '\0';
            length = 0;
            shared = is_shared_line(sites, line);
        }
    if (maps >= 0)
        close(maps);
    return shared ? -EACCES : 0;
}

/* ---- writing ------------------------------------------------------------------------------- */

static int store_unprotected(const struct mj_site *site, const uint8_t *address, uint8_t byte) {
    const size_t page_size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = (void *)((uintptr_t)address & -page_size);

    if (mprotect(page, page_size, site->protection | PROT_WRITE))
        return -errno;
    __atomic_store_n((uint8_t *)(uintptr_t)address, byte, __ATOMIC_RELEASE);
    return mprotect(page, page_size, site->protection) ? -errno : 0;
}

/* Look before writing, one byte, read back. */
static int write_site(int memory, const struct mj_site *site, uint8_t old, uint8_t new) {
    const uint8_t *address = site->code + shapes[site->kind].at;

    MJ_RACE("write", site);
    if (byte_at(address) == new)
        return 0;
    if (byte_at(address) != old || !is_shaped(site))
        return -EILSEQ;
    if (memory < 0 || pwrite(memory, &new, 1, (off_t)(uintptr_t)address) != 1) {
        const int error = store_unprotected(site, address, new);

        if (error)
            return error;
    }
    return byte_at(address) == new ? 0 : -EIO;
}

static int switch_sites(const struct mj_sites *sites, bool open_them) {
    const int memory =
        any_site_in(sites, 0, UINTPTR_MAX) ? open(MJ_PROC "/mem", O_RDWR | O_CLOEXEC) : -1;
    int first_error = 0;

    for (size_t i = 0; i < sites->count && !(open_them && first_error); i++) {
        const struct mj_site *site = &sites->items[i];

        if (!is_text(site))
            continue;
        const struct shape *shape = &shapes[site->kind];
        const int error = open_them ? write_site(memory, site, shape->dormant, shape->open)
                                    : write_site(memory, site, shape->open, shape->dormant);

        if (!first_error)
            first_error = error;
    }
    if (memory >= 0)
        close(memory);
    return first_error;
}

int mj_open_sites(const struct mj_sites *sites) { return switch_sites(sites, true); }

int mj_close_sites(const struct mj_sites *sites) { return switch_sites(sites, false); }

/* ---- the fence ------------------------------------------------------------------------------- */

/* linux/membarrier.h, which musl-gcc does not find */
enum {
    GLOBAL = 1 << 0,
    PRIVATE_EXPEDITED_SYNC_CORE = 1 << 5,
    REGISTER_PRIVATE_EXPEDITED_SYNC_CORE = 1 << 6
};

static bool membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

/* Registering by need (it costs milliseconds, once) and not by a flag of ours also covers a child
   after fork. GLOBAL waits for some ten milliseconds. See enum marker_sync for what each proves. */
enum marker_sync mj_sync_cores(void) {
    if (membarrier(PRIVATE_EXPEDITED_SYNC_CORE))
        return MARKER_SYNC_CORE;
    if (membarrier(REGISTER_PRIVATE_EXPEDITED_SYNC_CORE) && membarrier(PRIVATE_EXPEDITED_SYNC_CORE))
        return MARKER_SYNC_CORE;
    return membarrier(GLOBAL) ? MARKER_SYNC_GLOBAL : MARKER_SYNC_NOTHING;
}

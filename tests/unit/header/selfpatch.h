/* SPDX-License-Identifier: MIT */
/*
 * selfpatch.h: a program that finds and switches its own markers, with nothing of ours but the
 * header, and says in words what its probe was given.
 *
 * It is for one thread: it patches where it likes. Python does the real thing.
 */
#ifndef SELFPATCH_H
#define SELFPATCH_H

#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <markerjit/abi.h>

enum { SP_MAX = 4096 };

static const struct mj_note *sp_notes[SP_MAX];
static int sp_count;
static int sp_failures;

static const char *sp_current = ""; /* for the kind direct, whose probe gets no slot */
static unsigned long sp_hits;
static char sp_text[2048]; /* the arguments of the last hit */

#define SP_CHECK(condition, ...)                                                                   \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            sp_failures++;                                                                         \
            printf("%s:%d: %s: ", __FILE__, __LINE__, #condition);                                 \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
        }                                                                                          \
    } while (0)

/* An offset of a note is relative to itself. */
#define SP_AT(note, field)                                                                         \
    ((note)->field ? (unsigned char *)(unsigned long)&(note)->field + (note)->field : NULL)

static inline const char *sp_name(const struct mj_note *note) {
    return (const char *)note + note->size;
}

static inline struct mj_slot *sp_slot(const struct mj_note *note) {
    return (struct mj_slot *)(void *)SP_AT(note, slot);
}

static inline int sp_is(const struct mj_note *note, const char *name) {
    return strcmp(sp_name(note), name) == 0;
}

/* ---- finding ------------------------------------------------------------------------------- */

static inline int sp_add_object(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    (void)data;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        const char *at = (const char *)(info->dlpi_addr + segment->p_vaddr);
        const char *end = at + segment->p_memsz;

        if (segment->p_type != PT_NOTE || segment->p_align > 4)
            continue;
        while (at + sizeof(ElfW(Nhdr)) <= end) {
            const ElfW(Nhdr) *header = (const ElfW(Nhdr) *)(const void *)at;
            const char *owner = at + sizeof(*header);
            const char *note = owner + ((header->n_namesz + 3u) & ~3u);

            if (header->n_type == MJ_NOTE_TYPE && header->n_namesz == sizeof(MJ_NOTE_OWNER) &&
                memcmp(owner, MJ_NOTE_OWNER, sizeof(MJ_NOTE_OWNER)) == 0 && sp_count < SP_MAX)
                sp_notes[sp_count++] = (const struct mj_note *)(const void *)note;
            at = note + ((header->n_descsz + 3u) & ~3u);
        }
    }
    return 0;
}

static inline int sp_sites(const char *name) {
    int sites = 0;

    for (int i = 0; i < sp_count; i++)
        sites += sp_is(sp_notes[i], name);
    return sites;
}

static inline const struct mj_note *sp_note(const char *name) {
    for (int i = 0; i < sp_count; i++)
        if (sp_is(sp_notes[i], name))
            return sp_notes[i];
    return NULL;
}

/* ---- the probe ----------------------------------------------------------------------------- */

/* Says class, size and value of each argument, as the note has the types: `s4:-1 u8:2 f8:0.5`.
   Aligned, because bit 0 of a probe's address means that it is counted; gcc -O0 aligns nothing. */
__attribute__((aligned(16))) void sp_probe(struct mj_slot *slot, ...);
void sp_probe(struct mj_slot *slot, ...) {
    const struct mj_note *note = NULL;
    size_t used = 0;
    va_list args;

    sp_hits++;
    for (int i = 0; i < sp_count && !note; i++)
        if (slot ? sp_slot(sp_notes[i]) == slot : sp_is(sp_notes[i], sp_current))
            note = sp_notes[i];
    sp_text[0] = '\0';
    if (!note)
        return;
    va_start(args, slot);
    for (int i = 0; i < note->argc; i++) {
        int type_class = note->types[i] >> 4, size = 1 << (note->types[i] & 15);
        char *out = sp_text + used;
        size_t left = sizeof(sp_text) - used;
        long value = 0;

        if (i)
            used += (size_t)snprintf(out, left, " "), out++, left--;
        if (type_class == MJ_CLASS_FLOAT) {
            used += (size_t)snprintf(out, left, "f%d:%g", size, va_arg(args, double));
            continue;
        }
        if (type_class == MJ_CLASS_CHARS) {
            used += (size_t)snprintf(out, left, "c%d:%s", size, va_arg(args, char *));
            continue;
        }
        value = va_arg(args, long);
        if (type_class == MJ_CLASS_SIGNED) {
            value = size == 1   ? (signed char)value
                    : size == 2 ? (short)value
                    : size == 4 ? (int)value
                                : value;
            used += (size_t)snprintf(out, left, "s%d:%ld", size, value);
        } else {
            unsigned long bits = (unsigned long)value & (~0ul >> (64 - 8 * size));
            char letter = type_class == MJ_CLASS_BOOL      ? 'b'
                          : type_class == MJ_CLASS_POINTER ? 'p'
                                                           : 'u';

            used += (size_t)snprintf(out, left, "%c%d:%lu", letter, size, bits);
        }
    }
    va_end(args);
}

/* ---- switching ----------------------------------------------------------------------------- */

static inline void sp_write(unsigned char *at, unsigned char expected, unsigned char value) {
    void *page = (void *)((unsigned long)at & ~4095ul);

    SP_CHECK(*at == expected, "%02x instead of %02x", *at, expected);
    if (mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) != 0 &&
        mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
        abort();
    *(volatile unsigned char *)at = value;
}

/* An int3 at a symbol site goes on in its body. */
static void sp_trap(int number, siginfo_t *info, void *context) {
    greg_t *rip = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];

    (void)number;
    (void)info;
    for (int i = 0; i < sp_count; i++)
        if (sp_notes[i]->kind == MJ_KIND_symbol && (greg_t)SP_AT(sp_notes[i], site) == *rip - 1) {
            *rip = (greg_t)SP_AT(sp_notes[i], body);
            return;
        }
    abort();
}

static inline void sp_flip(const struct mj_note *note, int on) {
    unsigned char *site = SP_AT(note, site), *body = SP_AT(note, body), *end = SP_AT(note, end);
    int rel32;

    switch (note->kind) {
    case MJ_KIND_jump:
        memcpy(&rel32, site + 3, 4);
        SP_CHECK(site[0] == 0xeb && site[2] == 0xe9 && end == site + 7, "%s", sp_name(note));
        SP_CHECK(end + rel32 == body, "%s: rel32 %d", sp_name(note), rel32);
        sp_write(site + 1, on ? 5 : 0, on ? 0 : 5);
        break;
    case MJ_KIND_nop:
        memcpy(&rel32, site + 1, 4);
        SP_CHECK(end == site + 5 && end + rel32 == body, "%s: rel32 %d", sp_name(note), rel32);
        sp_write(site, on ? 0xa9 : 0xe9, on ? 0xe9 : 0xa9);
        break;
    case MJ_KIND_immediate:
        SP_CHECK(end == site + 1, "%s", sp_name(note));
        sp_write(site, !on, (unsigned char)on);
        break;
    case MJ_KIND_symbol:
        SP_CHECK(end == site + 1, "%s", sp_name(note));
        sp_write(site, on ? 0x90 : 0xcc, on ? 0xcc : 0x90);
        break;
    default: /* the slot is all */
        break;
    }
}

/* native/src/call/call.S, which is linked to the program. */
#if defined(__cplusplus)
extern "C"
#else
extern
#endif
    void
    mj_call_saving_vectors(void);

/* `probe` is a function, or a number such as MJ_PROBE_INLINE. A preserving body calls functions
   through an adapter, which counts the calls. */
static inline void sp_switch(const char *name, int on, unsigned long probe) {
    for (int i = 0; i < sp_count; i++) {
        const struct mj_note *note = sp_notes[i];

        if (!sp_is(note, name))
            continue;
        if (note->kind == MJ_KIND_sentinel && !on)
            probe = (unsigned long)SP_AT(note, body);
        if (note->flags & MJ_FLAG_BLOCK && probe > MJ_PROBE_INLINE) {
            sp_slot(note)->adapter = mj_call_saving_vectors;
            probe |= MJ_PROBE_COUNTED;
        }
        if (sp_slot(note))
            __atomic_store_n(&sp_slot(note)->probe, (mj_probe_fn *)probe, __ATOMIC_SEQ_CST);
        sp_flip(note, on);
    }
}

static inline void sp_start(void) {
    struct sigaction action;

    memset(&action, 0, sizeof(action));
    action.sa_sigaction = sp_trap;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &action, NULL);
    dl_iterate_phdr(sp_add_object, NULL);
}

#endif

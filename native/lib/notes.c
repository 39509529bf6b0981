/* SPDX-License-Identifier: MIT */
/*
 * notes.c: the sites of all loaded objects, from their notes, static programs included.
 *
 * Every number in a note is checked against the segments of its object before it is used; a note
 * that does not hold is skipped and counted. The bytes at the sites are judged in text.c.
 *
 * Nothing here calls malloc: we run under the loader's lock, and a malloc that unwinds its callers
 * (heap profilers do) takes the two locks in the other order. The list grows by mremap.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>

enum { FIRST_BYTES = 1 << 16 };

/* The loadable segment that holds [start, start + size) and has all of `flags`, or NULL. */
static const ElfW(Phdr) *
    segment_of(const struct dl_phdr_info *object, uintptr_t start, size_t size, ElfW(Word) flags) {
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        const uintptr_t offset = start - (object->dlpi_addr + segment->p_vaddr);

        if (segment->p_type == PT_LOAD && (segment->p_flags & flags) == flags &&
            offset < segment->p_memsz && size <= segment->p_memsz - offset)
            return segment;
    }
    return NULL;
}

/* The string at `address`, if it ends before its segment does. */
static const char *string_at(const struct dl_phdr_info *object, uintptr_t address) {
    const ElfW(Phdr) *segment = segment_of(object, address, 1, PF_R);
    const char *string = (const char *)address;

    if (!segment)
        return NULL;
    const size_t left = object->dlpi_addr + segment->p_vaddr + segment->p_memsz - address;
    return memchr(string, '\0', left) ? string : NULL;
}

static bool read_texts(const struct dl_phdr_info *object, uintptr_t text, struct mj_site *site) {
    site->format = string_at(object, text);
    site->file = site->format ? string_at(object, text + strlen(site->format) + 1) : NULL;
    return site->file != NULL;
}

static bool read_code(const struct dl_phdr_info *object, uintptr_t code, struct mj_site *site) {
    const size_t size = site->kind == MJ_KIND_jump ? 7 : site->kind == MJ_KIND_nop ? 5 : 1;
    /* with the byte before, where an immediate operand has its instruction */
    const ElfW(Phdr) *segment = segment_of(object, code - 1, 1 + size, PF_R | PF_X);

    if (!segment)
        return false;
    site->code = (const uint8_t *)code;
    site->is_writable = (segment->p_flags & PF_W) != 0;
    return true;
}

static bool read_slot(const struct dl_phdr_info *object, uintptr_t slot, struct mj_site *site) {
    const size_t size = site->flags & MJ_FLAG_BLOCK ? MJ_SLOT_SIZE : MJ_SLOT_SIZE_OF_C;

    if (slot % _Alignof(struct mj_slot) || !segment_of(object, slot, size, PF_R | PF_W))
        return false;
    site->slot = (struct mj_slot *)slot;
    return true;
}

/* Offsets in a note count from their own field. */
#define TARGET(descriptor, note, field)                                                            \
    ((uintptr_t)(descriptor) + offsetof(struct mj_note, field) + (uintptr_t)(intptr_t)(note)->field)

/* The fields and the name, as far as they can be judged without looking elsewhere. */
static bool read_note(const uint8_t *descriptor, size_t size, struct mj_note *note) {
    if (size < sizeof(*note))
        return false;
    memcpy(note, descriptor, sizeof(*note));
    if (note->version < MJ_NOTE_VERSION)
        note->flags &= (uint8_t)~MJ_FLAG_BLOCK;
    return note->version >= MJ_NOTE_OLDEST && note->version <= MJ_NOTE_VERSION &&
           note->kind >= MJ_KIND_jump && note->kind <= MJ_KIND_symbol &&
           note->argc <= MJ_MAX_ARGS && note->size >= MJ_NOTE_SIZE && note->size < size &&
           memchr(descriptor + note->size, '\0', size - note->size);
}

static bool read_site(const struct dl_phdr_info *object, const uint8_t *descriptor,
                      const struct mj_note *note, struct mj_site *site) {
    *site = (struct mj_site){.name = (const char *)descriptor + note->size,
                             .body = (const uint8_t *)TARGET(descriptor, note, body),
                             .end = (const uint8_t *)TARGET(descriptor, note, end),
                             .line = note->line,
                             .kind = note->kind,
                             .argc = note->argc,
                             .flags = note->flags};
    return read_code(object, TARGET(descriptor, note, site), site) &&
           read_texts(object, TARGET(descriptor, note, text), site) &&
           (note->slot ? read_slot(object, TARGET(descriptor, note, slot), site)
                       : note->kind == MJ_KIND_direct);
}

static bool grow(struct mj_sites *sites) {
    const size_t old_bytes = sites->capacity * sizeof(*sites->items);
    const size_t bytes = old_bytes ? 2 * old_bytes : FIRST_BYTES;
    void *items =
        old_bytes ? mremap(sites->items, old_bytes, bytes, MREMAP_MAYMOVE)
                  : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (items == MAP_FAILED)
        return false;
    sites->items = items;
    sites->capacity = bytes / sizeof(*sites->items);
    return true;
}

/* Of other names than the wanted one, no more is read than that: there may be very many. */
static void add_note(const struct dl_phdr_info *object, const uint8_t *descriptor, size_t size,
                     struct mj_sites *sites) {
    struct mj_note note;
    struct mj_site site;

    if (!read_note(descriptor, size, &note)) {
        sites->skipped_notes++;
        return;
    }
    if (sites->name && strcmp(sites->name, (const char *)descriptor + note.size))
        return;
    if (!read_site(object, descriptor, &note, &site))
        sites->skipped_notes++;
    else if (sites->count == sites->capacity && !grow(sites))
        sites->error = -ENOMEM;
    else
        sites->items[sites->count++] = site;
}

/* A segment of notes is aligned to 4, or to 8 if it holds GNU properties; padding counts from the
   start of the note. */
static void read_segment(const struct dl_phdr_info *object, const ElfW(Phdr) * segment,
                         struct mj_sites *sites) {
    const size_t alignment = segment->p_align == 8 ? 8 : 4;
    const uint8_t *note = (const uint8_t *)object->dlpi_addr + segment->p_vaddr;
    size_t left = segment->p_memsz;
    ElfW(Nhdr) header;

    while (left >= sizeof(header)) {
        memcpy(&header, note, sizeof(header));
        const size_t descriptor = (sizeof(header) + header.n_namesz + alignment - 1) & -alignment;
        const size_t next = (descriptor + header.n_descsz + alignment - 1) & -alignment;

        if (descriptor + header.n_descsz > left) {
            sites->skipped_notes++; /* it leaves the segment, so the next cannot be found */
            return;
        }
        if (header.n_type == MJ_NOTE_TYPE && header.n_namesz == sizeof(MJ_NOTE_OWNER) &&
            !memcmp(note + sizeof(header), MJ_NOTE_OWNER, sizeof(MJ_NOTE_OWNER))) {
            add_note(object, note + descriptor, header.n_descsz, sites);
        }
        if (next >= left)
            return;
        note += next;
        left -= next;
    }
}

static int read_object(struct dl_phdr_info *object, size_t size, void *data) {
    struct mj_sites *sites = data;

    (void)size;
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];

        if (segment->p_type == PT_NOTE &&
            segment_of(object, object->dlpi_addr + segment->p_vaddr, segment->p_memsz, PF_R))
            read_segment(object, segment, sites);
    }
    return sites->error;
}

int mj_sites_read(struct mj_sites *sites) {
    sites->count = 0;
    sites->skipped_notes = 0;
    sites->error = 0;
    return dl_iterate_phdr(read_object, sites);
}

void mj_sites_deinit(struct mj_sites *sites) {
    if (sites->items)
        munmap(sites->items, sites->capacity * sizeof(*sites->items));
    sites->items = NULL;
    sites->count = sites->capacity = 0;
}

struct held {
    int (*work)(void *);
    void *argument;
    int result;
};

static int work_once(struct dl_phdr_info *object, size_t size, void *data) {
    struct held *held = data;

    (void)object;
    (void)size;
    held->result = held->work(held->argument);
    return 1;
}

/* glibc holds the loader's lock, which is recursive, while it calls us for the first object, and
   dlclose needs that lock to unmap. musl does not hold it, and its dlclose unmaps nothing. */
int mj_with_objects_held(int (*work)(void *argument), void *argument) {
    struct held held = {work, argument, -ENOENT};

    dl_iterate_phdr(work_once, &held);
    return held.result;
}

static int read_generation(struct dl_phdr_info *object, size_t size, void *data) {
    struct mj_generation *generation = data;

    if (size >= offsetof(struct dl_phdr_info, dlpi_subs) + sizeof(object->dlpi_subs))
        *generation = (struct mj_generation){object->dlpi_adds, object->dlpi_subs, true};
    return 1;
}

/* glibc counts loads, and unloads, under the lock under which it maps and unmaps; musl counts
   loads, and unloads nothing. */
struct mj_generation mj_generation_now(void) {
    struct mj_generation generation = {0, 0, false};

    dl_iterate_phdr(read_generation, &generation);
    return generation;
}

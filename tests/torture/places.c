/* SPDX-License-Identifier: MIT */
/*
 * places.c: code made at run time, each place with an old and a new form, at any alignment.
 *
 * Around a place everything that is not meant to be executed is `hlt`, which ends in SIGSEGV, or is
 * not mapped at all. rax is no valid address on the way in. So a thread that executes half of one
 * form and half of the other returns another value or dies at an address that shows the cause. It
 * does not stray into the program.
 *
 *     shape   old                        new                     bytes
 *     byte    eb 05  jmp over the next   eb 00  jmp to it        1 of 2
 *     nop2    66 90                      eb 20  jmp              2
 *     jmp5    0f 1f 44 00 00  nop        e9 rel32  jmp           5
 *     call5   0f 1f 44 00 00  nop        e8 rel32  call          5
 *     mov5    b8 imm32  mov eax, old     b8 imm32  mov eax, new  4 of 5
 *     span5   f3 90 f3 90 90  pause x2   e9 rel32  jmp           5: several instructions
 *     slot    address of the old         address of the new      8, data
 *
 * FAR is such that each byte of its rel32 differs from the byte that it replaces.
 */
#define _GNU_SOURCE
#include "torture.h"

#include <sys/mman.h>

enum { AREA = 32 << 20, FAR = 0x01531c2d, SLOTS = 24 << 20, PAGE = 4096, ENTRY = 16, HLT = 0xf4 };
enum { DENSE = 128 };

struct place places[MAX_PLACES];
unsigned place_count;
static uint64_t base, alias_base, first, stride;

/* Bytes put one after another. */
struct pen {
    uint8_t *at;
};

static void put(struct pen *pen, const void *bytes, size_t size) {
    memcpy(pen->at, bytes, size);
    pen->at += size;
}

static void put_with(struct pen *pen, const char *opcode, size_t size, uint64_t value,
                     size_t value_size) {
    put(pen, opcode, size);
    put(pen, &value, value_size);
}

#define PUT(pen, opcode) put(pen, opcode, sizeof(opcode) - 1)
#define PUT_WITH(pen, opcode, value, size) put_with(pen, opcode, sizeof(opcode) - 1, value, size)

static void return_value(struct pen *pen, uint32_t value) {
    PUT_WITH(pen, "\xb8", value, 4); /* mov eax, value */
    PUT(pen, "\xc3");                /* ret */
}

/* Where the code at `address` can be written. */
static uint8_t *writable(uint64_t address) { return (uint8_t *)(address - base + alias_base); }

static void forms_are(struct place *place, const char *old_bytes, const char *new_bytes,
                      size_t size) {
    place->size = (uint8_t)size;
    memcpy(place->old_bytes, old_bytes, size);
    memcpy(place->new_bytes, new_bytes, size);
}

static void far_form(struct place *place, const char *old_bytes, char opcode) {
    const char new_bytes[5] = {opcode, FAR & 0xff, FAR >> 8 & 0xff, FAR >> 16 & 0xff, FAR >> 24};

    forms_are(place, old_bytes, new_bytes, sizeof(new_bytes));
    place->trap_rip = place->at + sizeof(new_bytes) + FAR;
}

/* rax is not an address, so a torn instruction that reads or writes through it faults. */
static void begin(struct place *place) {
    struct pen pen = {writable(place->at - 10)};

    place->call = (uint32_t(*)(void))(place->at - 10);
    PUT_WITH(&pen, "\x48\xb8", 0x8badf00d00000000, 8); /* movabs rax, … */
}

static void make_byte(struct place *place) {
    struct pen pen = {writable(place->at + 2)};

    begin(place);
    forms_are(place, "\xeb\x05", "\xeb\x00", 2);
    PUT_WITH(&pen, "\xe9", 6, 4); /* jmp over the old way */
    return_value(&pen, OLD_VALUE);
    return_value(&pen, NEW_VALUE);
    place->trap_rip = place->at + 2;
}

static void make_nop2(struct place *place) {
    struct pen old_way = {writable(place->at + 2)}, new_way = {writable(place->at + 2 + 0x20)};

    begin(place);
    forms_are(place, "\x66\x90", "\xeb\x20", 2);
    return_value(&old_way, OLD_VALUE);
    return_value(&new_way, NEW_VALUE);
    place->trap_rip = place->at + 2 + 0x20;
}

static void make_jump(struct place *place, const char *old_bytes) {
    struct pen old_way = {writable(place->at + 5)}, new_way = {writable(place->at + 5 + FAR)};

    begin(place);
    far_form(place, old_bytes, '\xe9');
    return_value(&old_way, OLD_VALUE);
    return_value(&new_way, NEW_VALUE);
}

static void make_jmp5(struct place *place) { make_jump(place, "\x0f\x1f\x44\x00\x00"); }

static void make_span5(struct place *place) { make_jump(place, "\xf3\x90\xf3\x90\x90"); }

static void make_call5(struct place *place) {
    struct pen before = {writable(place->at - 5)}, after = {writable(place->at + 5)},
               callee = {writable(place->at + 5 + FAR)};

    place->call = (uint32_t(*)(void))(place->at - 5);
    PUT_WITH(&before, "\xb9", OLD_VALUE, 4); /* mov ecx, old */
    far_form(place, "\x0f\x1f\x44\x00\x00", '\xe8');
    PUT(&after, "\x89\xc8\xc3");             /* mov eax, ecx; ret */
    PUT_WITH(&callee, "\xb9", NEW_VALUE, 4); /* mov ecx, new */
    PUT(&callee, "\xc3");
    place->trap_pushes = true;
}

static void make_mov5(struct place *place) {
    struct pen after = {writable(place->at + 5)};

    begin(place);
    forms_are(place, "\xb8\x4d\x3c\x2b\x1a", "\xb8\x81\x70\x6f\x5e", 5);
    PUT(&after, "\xc3");
    place->trap_rip = place->at + 5;
    place->trap_returns = true;
}

/* The place is the slot; `at` was chosen for it, and the code has its own. */
static void make_slot(struct place *place) {
    const uint64_t code = base + (place->at - base - SLOTS);
    const uint64_t old_way = code + 9, new_way = old_way + FAR;
    struct pen pen = {writable(code)}, far_way = {writable(new_way)};

    place->call = (uint32_t(*)(void))code;
    place->code = 0;
    PUT_WITH(&pen, "\x48\x8b\x05", place->at - (code + 7), 4); /* mov rax, [rip + slot] */
    PUT(&pen, "\xff\xe0");                                     /* jmp rax */
    return_value(&pen, OLD_VALUE);
    return_value(&far_way, NEW_VALUE);
    forms_are(place, (const char *)&old_way, (const char *)&new_way, 8);
}

static const struct shape {
    const char *name;
    unsigned size;
    void (*make)(struct place *place);
} shapes[] = {
    {"byte", 2, make_byte},   {"nop2", 2, make_nop2}, {"jmp5", 5, make_jmp5},
    {"call5", 5, make_call5}, {"mov5", 5, make_mov5}, {"span5", 5, make_span5},
    {"slot", 8, make_slot},
};

/* Reserve the whole area, so that a wrong jump lands in it. Then map three parts of it. */
static bool map_parts(uint64_t used, bool alias) {
    const uint64_t parts[] = {0, FAR & -PAGE, SLOTS};
    const int fd = memfd_create("torture", MFD_CLOEXEC);
    void *whole = mmap(NULL, AREA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (fd < 0 || ftruncate(fd, AREA) || whole == MAP_FAILED)
        return false;
    base = alias_base = (uint64_t)whole;
    for (unsigned i = 0; i < 3; i++) {
        const int how = alias ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;

        if (mmap((void *)(base + parts[i]), used + 2 * PAGE, PROT_READ | PROT_WRITE,
                 how | MAP_FIXED, alias ? fd : -1, alias ? (off_t)parts[i] : 0) == MAP_FAILED)
            return false;
        memset((void *)(base + parts[i]), i < 2 ? HLT : 0, used + 2 * PAGE);
    }
    if (alias) {
        void *second = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        if (second == MAP_FAILED)
            return false;
        alias_base = (uint64_t)second;
    }
    return close(fd) == 0;
}

static bool protect_code(uint64_t used) {
    const uint64_t parts[] = {0, FAR & -PAGE};

    for (unsigned i = 0; i < 2; i++)
        if (mprotect((void *)(base + parts[i]), used + 2 * PAGE, PROT_READ | PROT_EXEC))
            return false;
    return true;
}

bool make_places(const struct layout *layout) {
    const struct shape *shape = NULL;

    for (unsigned i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        if (strcmp(shapes[i].name, layout->shape) == 0)
            shape = &shapes[i];
    if (!shape || !layout->count || layout->count > MAX_PLACES || layout->boundary > PAGE ||
        (layout->boundary && (!layout->split || layout->split >= shape->size))) {
        fprintf(stderr, "no such shape, count, boundary or split\n");
        return false;
    }
    stride = layout->boundary > 64 ? PAGE : DENSE;
    const uint64_t used = (layout->count + 1) * stride;
    /* Across 8, 16 or 32 but no more: that far into a line. Otherwise at a word's begin. */
    const uint64_t offset = layout->boundary ? layout->boundary - layout->split : 64;

    if (!map_parts(used, layout->alias)) {
        perror("cannot map the places");
        return false;
    }
    first = base + stride + offset % stride + (strcmp(shape->name, "slot") == 0 ? SLOTS : 0);
    for (unsigned i = 0; i < layout->count; i++) {
        struct place *place = &places[i];

        place->at = first + i * stride;
        place->alias = (uint64_t)writable(place->at);
        place->code = 1;
        shape->make(place);
        memcpy(writable(place->at), place->old_bytes, place->size);
    }
    place_count = layout->count;
    return protect_code(used) || (perror("cannot protect the places"), false);
}

const struct place *place_at(uint64_t address) {
    const uint64_t index = (address - first) / stride;

    return address >= first && index < place_count && places[index].at == address ? &places[index]
                                                                                  : NULL;
}

/* SPDX-License-Identifier: MIT */
/* cases.c: one thread. Compiled as C and as C++, for each kind of site. */
#include "check.h"

static int evaluations;

static int evaluated(int value) {
    evaluations++;
    return value;
}

/* ---- sites ----------------------------------------------------------------------------------- */

static int inline_sum;

static void add_inline(int value, long more) { inline_sum += value + (int)more; }

enum colour { RED = -3, BLUE = 7 };

__attribute__((noinline)) static void typed(int i, unsigned char u, float f, double d,
                                            const char *s, enum colour colour) {
    MARK(typed, "i %d u %u f %f d %f s %s n %.*s l %lld p %p colour %d", evaluated(i), u, f, d, s,
         3, s, -5ll, (void *)s, (int)colour);
}

__attribute__((noinline)) static void bare(void) { MARK(bare, "nothing"); }

__attribute__((noinline)) static void with_inline(int value, long more) {
    MARK_INLINE(with_inline, add_inline, "value %d more %ld", value, more);
}

/* two sites, and only one has an inline probe */
__attribute__((noinline)) static void half_inline(int value) {
    MARK(half_inline, "value %d", value);
    MARK_INLINE(half_inline, add_inline, "value %d more %d", value, 0);
}

/* one marker in the source, many sites in the program */
__attribute__((always_inline)) static inline void inlined(int value) {
    MARK(many, "value %d", value);
}

__attribute__((noinline)) static void many(int value) {
    inlined(value);
    inlined(value + 1);
    OPAQUE(value);
    inlined(value + 2);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        inlined(value + 10 * i);
}

/* ---- probes ---------------------------------------------------------------------------------- */

static struct {
    int calls, i;
    unsigned u;
    double f, d;
    const char *s, *n;
    long long l;
    void *p;
    int width, colour;
    void *data;
} seen;

static void on_typed(struct mj_slot *slot, int i, unsigned u, double f, double d, const char *s,
                     int width, const char *n, long long l, void *p, int colour) {
    seen.calls++;
    seen.i = i;
    seen.u = u;
    seen.f = f;
    seen.d = d;
    seen.s = s;
    seen.width = width;
    seen.n = n;
    seen.l = l;
    seen.p = p;
    seen.colour = colour;
    seen.data = slot->data;
}

static void on_typed_variadic(struct mj_slot *slot, ...) {
    va_list arguments;

    va_start(arguments, slot);
    seen.i = va_arg(arguments, int);
    seen.u = va_arg(arguments, unsigned);
    seen.f = va_arg(arguments, double);
    seen.d = va_arg(arguments, double);
    va_end(arguments);
    seen.calls++;
}

static int calls, sum;

static void on_any(struct mj_slot *slot, int value) {
    (void)slot;
    calls++;
    sum += value;
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void values(void) {
    static char key[] = "key";
    static int mine;

    typed(1, 2, 3, 4, key, BLUE);
    CHECK_EQUAL(evaluations, 0);
    CHECK_EQUAL(marker_set_probe_data("typed", NULL, MARKER_PROBE(on_typed), &mine, MARKER_CALL),
                0);
    typed(-1, 200, 1.5f, -2.25, key, RED);
    CHECK_EQUAL(evaluations, 1);
    CHECK_EQUAL(seen.calls, 1);
    CHECK_EQUAL(seen.i, -1);
    CHECK_EQUAL(seen.u, 200);
    CHECK(seen.f == 1.5 && seen.d == -2.25);
    CHECK(seen.s == key && seen.n == key && seen.p == key && seen.width == 3);
    CHECK_EQUAL(seen.l, -5);
    CHECK_EQUAL(seen.colour, RED);
    CHECK(seen.data == &mine);
    CHECK_EQUAL(marker_disable_probe("typed"), 0);
    typed(1, 2, 3, 4, key, BLUE);
    CHECK_EQUAL(evaluations, 1);
    CHECK_EQUAL(seen.calls, 1);

    CHECK_EQUAL(marker_set_probe("typed", on_typed_variadic, MARKER_CALL), 0);
    typed(8, 9, 0.5f, 0.125, key, BLUE);
    CHECK_EQUAL(marker_disable_probe("typed"), 0);
    CHECK(seen.calls == 2 && seen.i == 8 && seen.u == 9 && seen.f == 0.5 && seen.d == 0.125);
}

static void counts(void) {
    const struct found before = find_sites("bare");

    for (int round = 1; round <= 3; round++) {
        CHECK_EQUAL(marker_set_probe("bare", MARKER_PROBE(on_any), MARKER_CALL), 0);
        for (int i = 0; i < 1000; i++)
            bare();
        CHECK_EQUAL(marker_disable_probe("bare"), 0);
        for (int i = 0; i < 1000; i++)
            bare();
        CHECK_EQUAL(calls, 1000 * round);
        CHECK_EQUAL(before.sites[0].slot->entered, 1000 * round);
        CHECK_EQUAL(before.sites[0].slot->left, 1000 * round);
    }
}

static void inline_probe(void) {
    with_inline(5, 6);
    CHECK_EQUAL(marker_set_probe("with_inline", NULL, MARKER_INLINE), 0);
    with_inline(5, 6);
    CHECK_EQUAL(inline_sum, 11);
    CHECK_EQUAL(find_sites("with_inline").sites[0].slot->left, 1);
    CHECK_EQUAL(marker_disable_probe("with_inline"), 0);
    with_inline(5, 6);
    CHECK_EQUAL(inline_sum, 11);

    CHECK_EQUAL(marker_set_probe("with_inline", MARKER_PROBE(on_any), MARKER_CALL), 0);
    with_inline(7, 6);
    CHECK_EQUAL(marker_disable_probe("with_inline"), 0);
    CHECK(inline_sum == 11 && calls == 1 && sum == 7);
}

static void errors(void) {
    const uint64_t text = text_hash();
    mj_probe_fn *const probe = MARKER_PROBE(on_any);

    CHECK_EQUAL(marker_set_probe("unknown", probe, MARKER_CALL), -ENOENT);
    CHECK_EQUAL(marker_set_probe("", probe, MARKER_CALL), -ENOENT);
    CHECK_EQUAL(marker_set_probe(NULL, probe, MARKER_CALL), -EINVAL);
    CHECK_EQUAL(marker_set_probe("bare", NULL, MARKER_CALL), -EINVAL);
    CHECK_EQUAL(marker_set_probe("with_inline", probe, MARKER_INLINE), -EINVAL);
    CHECK_EQUAL(marker_set_probe("bare", probe, (enum marker_kind)2), -EINVAL);
    CHECK_EQUAL(marker_set_probe("bare", (mj_probe_fn *)((uintptr_t)probe | 1), MARKER_CALL),
                -EINVAL);
    CHECK_EQUAL(marker_set_probe("bare", NULL, MARKER_INLINE), -ENODEV);
    CHECK_EQUAL(marker_set_probe("half_inline", NULL, MARKER_INLINE), -ENODEV);
    CHECK_EQUAL(marker_set_probe_format("many", "value %u", probe, MARKER_CALL), -EINVAL);
    CHECK_EQUAL(marker_set_probe_format("half_inline", "value %d", probe, MARKER_CALL), -EINVAL);
    CHECK_EQUAL(marker_disable_probe("bare"), -ENOENT);
    CHECK_EQUAL(marker_disable_probe("unknown"), -ENOENT);
    CHECK_EQUAL(marker_disable_probe(NULL), -EINVAL);
    CHECK_EQUAL(text_hash(), text);
    bare();
    many(1);
    half_inline(1);
    CHECK(calls == 0 && inline_sum == 0);

    CHECK_EQUAL(marker_set_probe_format("many", "value %d", probe, MARKER_CALL), 0);
    CHECK_EQUAL(marker_set_probe("many", probe, MARKER_CALL), -EBUSY);
    CHECK_EQUAL(marker_set_probe("with_inline", NULL, MARKER_INLINE), 0);
    CHECK_EQUAL(marker_set_probe("with_inline", NULL, MARKER_INLINE), -EBUSY);
    CHECK_EQUAL(marker_disable_probe("with_inline"), 0);
    CHECK_EQUAL(marker_disable_probe("many"), 0);
    CHECK_EQUAL(marker_disable_probe("many"), -ENOENT);
    CHECK_EQUAL(text_hash(), text);
}

/* A controller's probe is in the slot, not counted, or counted: hands off. */
static void foreign(void) {
    struct mj_slot *slot = (struct mj_slot *)(uintptr_t)find_sites("bare").sites[0].slot;

    slot->probe = MARKER_PROBE(on_any);
    CHECK_EQUAL(marker_set_probe("bare", on_typed_variadic, MARKER_CALL), -EBUSY);
    CHECK_EQUAL(marker_disable_probe("bare"), -ENOENT);
    CHECK(slot->probe == MARKER_PROBE(on_any));
    slot->probe = NULL;

    /* taken over while ours was set: ours is gone, theirs stays */
    CHECK_EQUAL(marker_set_probe("bare", on_typed_variadic, MARKER_CALL), 0);
    slot->probe = MARKER_PROBE(on_any);
    CHECK_EQUAL(marker_disable_probe("bare"), 0);
    CHECK(slot->probe == MARKER_PROBE(on_any));
}

static void several(void) {
    const uint64_t text = text_hash();
    struct found found = find_sites("many");

    CHECK(found.count >= 4);
    CHECK_EQUAL(found.on, 0);
    CHECK_EQUAL(marker_set_probe("many", MARKER_PROBE(on_any), MARKER_CALL), 0);
    found = find_sites("many");
    CHECK_EQUAL(found.on, found.count);
    many(100);
    CHECK_EQUAL(calls, 7);
    CHECK_EQUAL(sum, 7 * 100 + 1 + 2 + 10 + 20 + 30);
    CHECK_EQUAL(marker_disable_probe("many"), 0);
    many(100);
    CHECK_EQUAL(calls, 7);
    CHECK_EQUAL(find_sites("many").on, 0);
    CHECK_EQUAL(text_hash(), text);
}

static void listing(void) {
    const struct found found = find_sites("half_inline");

    CHECK_EQUAL(found.count, 2);
    CHECK_EQUAL(found.sites[0].has_inline + found.sites[1].has_inline, 1);
    CHECK_EQUAL(found.sites[0].kind, MJ_KIND);
    CHECK_EQUAL(find_sites("typed").sites[0].argc, 10);
    CHECK(!strcmp(find_sites("bare").sites[0].format, "nothing"));
    CHECK(!strcmp(find_sites("bare").sites[0].file, __FILE__));
    CHECK(find_sites("bare").sites[0].line > 20);
    CHECK_EQUAL(marker_for_each(NULL, NULL), -EINVAL);
}

static int stop(const struct marker_site *site, void *data) {
    (void)site;
    ++*(int *)data;
    return 42;
}

static int set_it(const struct marker_site *site, void *data) {
    (void)data;
    return strcmp(site->name, "bare") ? 0
                                      : marker_set_probe("bare", MARKER_PROBE(on_any), MARKER_CALL);
}

static void callbacks(void) {
    int visits = 0;

    CHECK_EQUAL(marker_for_each(stop, &visits), 42);
    CHECK_EQUAL(visits, 1);
    CHECK_EQUAL(marker_for_each(set_it, NULL), 0);
    bare();
    CHECK_EQUAL(calls, 1);
}

static void statistics(void) {
    struct marker_statistics numbers;
    const int count = find_sites("typed").count;

    marker_get_statistics(&numbers);
    CHECK_EQUAL(count, 1);
    CHECK(numbers.sites >= 9);
    CHECK_EQUAL(numbers.skipped_notes, 0);
    CHECK_EQUAL(numbers.sync, MARKER_SYNC_UNUSED);
    CHECK_EQUAL(marker_set_probe("bare", MARKER_PROBE(on_any), MARKER_CALL), 0);
    marker_get_statistics(&numbers);
    CHECK_EQUAL(numbers.sync, MJ_KIND == MJ_KIND_pointer ? MARKER_SYNC_UNUSED : MARKER_SYNC_CORE);
}

/* Spoils all vector registers, as any function may. */
static void on_vectors(struct mj_slot *slot, ...) {
    (void)slot;
    __asm__ volatile("vzeroall" : : : "xmm0", "xmm7", "xmm15");
    calls++;
}

/* A marker's function may have values in whole vector registers around a preserving call. */
__attribute__((noinline)) static int keep_vectors(const uint64_t (*words)[4]) {
    uint64_t after[3][4];

    __asm__ volatile("vmovdqu %0, %%ymm0\nvmovdqu %0, %%ymm7\nvmovdqu %0, %%ymm15" : : "m"(*words));
    bare();
    __asm__ volatile("vmovdqu %%ymm0, %0\nvmovdqu %%ymm7, %1\nvmovdqu %%ymm15, %2\nvzeroupper"
                     : "=m"(after[0]), "=m"(after[1]), "=m"(after[2]));
    return !memcmp(after[0], words, 32) && !memcmp(after[1], words, 32) &&
           !memcmp(after[2], words, 32);
}

static void vectors(void) {
    static const uint64_t words[4] = {1, 22, 333, 4444};

    if (!__builtin_cpu_supports("avx"))
        return;
    CHECK_EQUAL(marker_set_probe("bare", MARKER_PROBE(on_vectors), MARKER_CALL), 0);
    CHECK(keep_vectors(&words));
    CHECK_EQUAL(calls, 1);
}

#if MJ_KIND != MJ_KIND_pointer

/* The address of the byte of a site that is not the one that decides, and of that one. */
static const uint8_t *other_byte(const struct marker_site *site) {
    const uint8_t *code = (const uint8_t *)site->address;

    return MJ_KIND == MJ_KIND_immediate ? code - 1 : code + 3;
}

static const uint8_t *deciding_byte(const struct marker_site *site) {
    return (const uint8_t *)site->address + (MJ_KIND == MJ_KIND_jump);
}

/* A site in the middle was altered: nothing changes anywhere. */
static void altered(void) {
    const struct found found = find_sites("many");
    const struct marker_site *middle = &found.sites[found.count / 2];
    const uint8_t *bytes[] = {other_byte(middle), deciding_byte(middle)};
    const uint64_t clean = text_hash();

    for (int i = 0; i < 2; i++) {
        const uint8_t old = alter_byte(bytes[i], *bytes[i] ^ 0x4c);
        const uint64_t text = text_hash();

        CHECK_EQUAL(marker_set_probe("many", MARKER_PROBE(on_any), MARKER_CALL), -EILSEQ);
        CHECK_EQUAL(text_hash(), text);
        CHECK(found.sites[0].slot->probe == NULL);
        alter_byte(bytes[i], old);
    }
    CHECK_EQUAL(text_hash(), clean);
    CHECK_EQUAL(marker_set_probe("many", MARKER_PROBE(on_any), MARKER_CALL), 0);

    /* altered while it is on: left alone, the rest is closed and the probe gone */
    const uint8_t old = alter_byte(bytes[1], 0xcc);
    CHECK_EQUAL(marker_disable_probe("many"), -EILSEQ);
    CHECK_EQUAL(*(const volatile uint8_t *)bytes[1], 0xcc);
    CHECK(found.sites[0].slot->probe == NULL);
    alter_byte(bytes[1], old); /* as it was while on: open, with nothing behind */
    many(1);
    CHECK_EQUAL(calls, 0);
    CHECK_EQUAL(marker_disable_probe("many"), -ENOENT);
    CHECK_EQUAL(marker_set_probe("many", MARKER_PROBE(on_any), MARKER_CALL), -EILSEQ);
}

/* Text of the program in a shared, writable mapping of a file: a write would succeed. */
static void shared(void) {
    const struct found found = find_sites("bare");
    uint8_t *page = (uint8_t *)((uintptr_t)found.sites[0].address & ~4095ul);
    const int file = memfd_create("text", 0);
    uint8_t before[8192], after[8192];

    CHECK_EQUAL(write(file, page, 8192), 8192);
    CHECK(mmap(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_SHARED | MAP_FIXED, file, 0) ==
          page);
    CHECK_EQUAL(pread(file, before, sizeof(before), 0), 8192);
    CHECK_EQUAL(marker_set_probe("bare", MARKER_PROBE(on_any), MARKER_CALL), -EACCES);
    CHECK_EQUAL(pread(file, after, sizeof(after), 0), 8192);
    CHECK(!memcmp(before, after, sizeof(before)));
    bare();
    CHECK_EQUAL(calls, 0);
}
#define TEXT_CASES , CASE(altered), CASE(shared)
#else
#define TEXT_CASES
#endif

MAIN(CASE(values), CASE(counts), CASE(inline_probe), CASE(errors), CASE(foreign), CASE(several),
     CASE(listing), CASE(callbacks), CASE(statistics), CASE(vectors) TEXT_CASES)

/* SPDX-License-Identifier: MIT */
/* A probe that uses all that probe.h has; test_probe_running.py calls each function. */
#include <markerjit/probe.h>

struct item {
    long numbers[40];
    char name[8];
};

enum color { red, green };
enum sign { minus = -1, plus = 1 };

MJ_COUNTER(hits);
MJ_COUNTER(bytes);
MJ_HISTOGRAM(sizes);

static uint64_t last[8];       /* .bss */
static uint64_t first = 41;    /* .data */
static struct item kept, copy; /* copied with memcpy */
static const char *const words[] = {"zero", "one", "two"};

void on_count(struct mj_slot *slot, uint64_t number) {
    mj_count(&hits);
    mj_add(&bytes, number);
    mj_histogram(&sizes, number);
}

/* What the test finds in `last`, by emitting it. */
void on_place(struct mj_slot *slot) {
    const uint64_t before = mj_time();

    last[0] = mj_cpu();
    last[1] = mj_tid();
    last[2] = before;
    last[3] = mj_ns(1000);
    __atomic_fetch_add(&first, 1, __ATOMIC_RELAXED);
    mj_emit(place, "cpu %u tid %u time %lu ns %lu first %lu", (unsigned)last[0], (unsigned)last[1],
            last[2], last[3], first);
    mj_emit(named, "marker %s", mj_marker_name(slot));
}

void on_emit(struct mj_slot *slot, const char *key, size_t len, double ratio, char letter) {
    mj_emit(nothing, "");
    mj_emit(got, "key %s len %zu ratio %f letter %c", key, len, ratio, letter);
    if (len > 100)
        mj_emit(got, "key %s len %zu ratio %f letter %c", "long", len, ratio, letter);
    mj_emit(twelve, "%d %d %d %d %d %d %d %d %f %f %s %p", 1, 2, 3, 4, 5, 6, 7, 8, 9.5, 10.5,
            words[len % 3], (void *)slot);
}

void on_read(struct mj_slot *slot, const char *text, size_t size) {
    char into[64];
    long numbers[2] = {0, 0};
    const long length = mj_read_string(into, text, size < sizeof into ? size : sizeof into);
    const int read = mj_read(numbers, text, sizeof numbers);

    mj_emit(read_back, "text %s length %ld read %d", into, length, read);
}

void on_item(struct mj_slot *slot, const struct item *item) {
    struct item here;

    if (mj_read(&here, item, sizeof here))
        return;
    kept = here;
    copy = kept;
    __builtin_memset(&kept, 0, sizeof kept);
    if (__builtin_memcmp(kept.name, copy.name, sizeof copy.name) != 0 && strlen(copy.name) < 8)
        mj_emit(item, "name %s number %ld", copy.name, copy.numbers[39]);
}

void on_types(struct mj_slot *slot, signed char a, unsigned short b, _Bool c, enum color d,
              enum sign e, const volatile char *f, const uint8_t *g, void *const h, float *i) {
    mj_count(&hits);
}

void on_any(struct mj_slot *slot, ...) { mj_count(&hits); }

void on_first(struct mj_slot *slot, const char *key, ...) {
    if (key)
        mj_count(&hits);
}

/* These cannot be probes. */
int returns(struct mj_slot *slot) { return slot != 0; }
void takes_no_slot(int number) { last[7] = (uint64_t)number; }

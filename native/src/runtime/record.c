/* SPDX-License-Identifier: MIT */
/*
 * record.c: the probes `record` and `count`, for any marker.
 *
 * Most markers have a recorder of their own, assembled for them (markerjit/probes/recorder.py); it
 * comes here when it is interrupted, the ring is full, or a text takes more than plain loads.
 *
 *   1  build the record on the stack: take the arguments, copy texts so that no
 *      address can do harm (fetch.c)
 *   2  add it to the ring of this CPU (restart.S), or to the shared one (shared.c); where that is
 *      full, wait for the reader if the marker is recorded so (wait.c)
 *   3  count it: what was recorded, or what was lost
 *
 * A record larger than MJ_MAX_RECORD cannot come out, whatever stands in the marker's entry, which
 * others may write while we read it: the room is taken once, and texts are cut to what is left of
 * it.
 */

#include "runtime.h"

#include <stddef.h>

#define CHECK_OFFSET(name, field)                                                                  \
    _Static_assert(offsetof(struct mj_control, field) == MJ_CONTROL_##name, #field)
CHECK_OFFSET(ARENA_SIZE, arena_size);
CHECK_OFFSET(CPUS, cpus);
CHECK_OFFSET(PARTS, parts);
CHECK_OFFSET(CPU_FLAGS, cpu_flags);
CHECK_OFFSET(RSEQ_OFFSET, rseq_offset);
CHECK_OFFSET(SEQUENCES, sequences);
_Static_assert(sizeof(struct mj_slot) == MJ_SLOT_SIZE, "slot");
_Static_assert(offsetof(struct mj_slot, adapter) == MJ_SLOT_ADAPTER, "adapter");
_Static_assert(offsetof(struct mj_marker, id) == MJ_MARKER_ID, "id");
_Static_assert(sizeof(struct mj_registers) == 104, "call.S");
_Static_assert(sizeof(struct mj_part) == MJ_PART_SIZE, "part");
_Static_assert(offsetof(struct mj_part, count) == MJ_PART_COUNT, "count");
_Static_assert(offsetof(struct mj_ring, room) == MJ_RING_ROOM, "room");
_Static_assert(offsetof(struct mj_ring, data) == MJ_RING_DATA, "data");
_Static_assert(offsetof(struct mj_ring, mask) == MJ_RING_MASK, "mask");
_Static_assert(offsetof(struct mj_ring, limit) == MJ_RING_LIMIT, "limit");
_Static_assert(sizeof(struct mj_ring) == 128 && sizeof(struct mj_count) == 16, "restart.S shifts");
_Static_assert(sizeof(struct mj_stash) <= MJ_STASH_TABLE, "stash");
_Static_assert(offsetof(struct mj_stash, lost) == MJ_STASH_LOST, "lost");
_Static_assert(sizeof(struct mj_kept) == MJ_STASH_STRIDE, "kept");
_Static_assert(MJ_STASH_TABLE + 8 * MJ_STASH_PAGES <= MJ_STASH_KEPT, "pages of stacks");
_Static_assert(sizeof(struct mj_calls) == 16 && offsetof(struct mj_calls, left) == 8, "call.S");

enum { CLOCK_OF_MONOTONIC = MJ_CLOCK_MONOTONIC, CLOCK_OF_COARSE = 6 };

static uint8_t op_and_size(const struct mj_marker *marker, unsigned i) {
    return i < MJ_MAX_ARGS ? marker->ops[i] : marker->more_ops[i - MJ_MAX_ARGS];
}

static int op_of(const struct mj_marker *marker, unsigned i) { return op_and_size(marker, i) & 15; }

static int is_text(int op) { return op >= MJ_OP_STRING && op <= MJ_OP_RAW; }

/* Whatever stands in the entry: a text behind those that have one gets no bytes. */
static uint64_t text_limit(const struct mj_marker *marker, unsigned i) {
    return i < MJ_MAX_ARGS ? marker->limits[i] : 0;
}

/* The head, the time and the stack pointer; and the room that any argument may take besides a
   text's bytes: filling up to its place, the head of a text, and filling up its end, where one more
   byte is looked at. */
#define ROOM_OF_ARG 24ul
#define ROOM_OF_HEAD 24ul
_Static_assert(ROOM_OF_HEAD + MJ_MAX_WORDS * ROOM_OF_ARG < MJ_MAX_RECORD, "texts have room");

/* Bytes that a record of this marker may need. */
static uint64_t room_for(const struct mj_marker *marker, unsigned argc) {
    uint64_t room = ROOM_OF_HEAD + argc * ROOM_OF_ARG;

    for (unsigned i = 0; i < argc; i++)
        if (is_text(op_of(marker, i)))
            room += text_limit(marker, i);
    return room < MJ_MAX_RECORD ? room : MJ_MAX_RECORD;
}

/* The limit of a text at `at`, so that the arguments behind it have room, too. */
static uint64_t limit_of(const struct mj_marker *marker, unsigned i, unsigned argc, uint64_t at,
                         uint64_t room) {
    const uint64_t taken = at + (argc - i) * ROOM_OF_ARG, limit = text_limit(marker, i);
    const uint64_t left = taken < room ? room - taken : 0;

    return limit < left ? limit : left;
}

/* How many bytes a text may have, and `*cut` if it has more for sure. `asked` is the argument
   before it: an int that is the most bytes of a `%.*s`, where a negative one is none at all. */
static uint64_t bound_of(int op, uint64_t asked, uint64_t limit, int *cut) {
    const int32_t most = (int32_t)asked;

    *cut = 0;
    if (op != MJ_OP_BYTES && op != MJ_OP_RAW)
        return limit;
    if (most >= 0 && (uint64_t)most <= limit)
        return (uint64_t)most;
    if (op == MJ_OP_RAW && most < 0)
        return 0;
    *cut = 1;
    return limit;
}

uint64_t mj_put_text(const struct mj_control *control, int careful, char *to, uint64_t from, int op,
                     uint64_t asked, uint64_t limit) {
    struct mj_text *head = (struct mj_text *)to;
    char *bytes = to + sizeof *head;
    int open_end, whole;
    const uint64_t bound = bound_of(op, asked, limit, &open_end);
    /* Is there more? Only where a NUL has to come. With %.8s what is behind need not be ours. */
    const int look_behind = op == MJ_OP_STRING || (op == MJ_OP_BYTES && open_end);

    head->length = 0;
    head->state = MJ_TEXT_NULL;
    if (from < MJ_PAGE)
        return sizeof *head;
    uint64_t length =
        mj_copy(control, bytes, (const char *)from, bound + (uint64_t)look_behind,
                (op != MJ_OP_RAW ? MJ_COPY_TEXT : 0) | (careful ? MJ_COPY_CAREFUL : 0), &whole);

    head->state = MJ_TEXT_WHOLE;
    if (length > bound) {
        length = bound;
        head->state = MJ_TEXT_CUT;
    }
    if (op == MJ_OP_RAW && open_end)
        head->state = MJ_TEXT_CUT;
    if (!whole)
        head->state = length ? MJ_TEXT_CUT : MJ_TEXT_UNREADABLE;
    head->length = (uint32_t)length;
    for (uint64_t at = length; at % 8; at++)
        bytes[at] = 0;
    return sizeof *head + ((length + 7) & ~7ul);
}

static uint64_t put_number(char *image, uint64_t at, unsigned log2_size, uint64_t value) {
    const uint64_t size = 1ul << log2_size;

    at = (at + size - 1) & -size;
    switch (log2_size) {
    case 0:
        *(uint8_t *)(image + at) = (uint8_t)value;
        break;
    case 1:
        *(uint16_t *)(image + at) = (uint16_t)value;
        break;
    case 2:
        *(uint32_t *)(image + at) = (uint32_t)value;
        break;
    default:
        *(uint64_t *)(image + at) = value;
    }
    return at + size;
}

/* A duration, of which the word may have the beginning only. Another CPU's counter may be some
   ticks behind. */
static uint64_t since(const struct mj_control *control, uint64_t word) {
    const uint64_t began = word & ~(1ul << MJ_SINCE_TICKS), now = mj_counter();

    if (began == word)
        return word;
    return now > began ? (uint64_t)((unsigned __int128)(now - began) * control->ns_per_tick >> 32)
                       : 0;
}

/* The fields behind the head of `image`, which has `room`; returns the size of the whole record. */
static uint64_t put_fields(const struct mj_control *control, const struct mj_marker *marker,
                           unsigned argc, char *image, uint64_t room, const uint64_t *words) {
    const unsigned to_stack = marker->to_stack;
    uint64_t at = marker->time ? 16 : 8, before = 0;

    if (to_stack)
        at = put_number(image, at, 3, (uint64_t)words + to_stack * sizeof *words);
    for (unsigned i = 0; i < argc; i++) {
        const int op = op_of(marker, i);

        if (is_text(op)) {
            const uint64_t limit = limit_of(marker, i, argc, at, room);

            at = (at + 7) & ~7ul;
            at += mj_put_text(control, marker->careful, image + at, words[i], op, before, limit);
        } else if (op == MJ_OP_GP || op == MJ_OP_FP) {
            at = put_number(image, at, op_and_size(marker, i) >> 4 & 3, words[i]);
        } else if (op == MJ_OP_SINCE) {
            at = put_number(image, at, op_and_size(marker, i) >> 4 & 3, since(control, words[i]));
        }
        before = words[i];
    }
    while (at % 8)
        image[at++] = 0;
    return at;
}

uint64_t mj_read_clock(const struct mj_control *control, uint8_t time) {
    struct mj_time now = {0, 0};

    if (control->clock)
        ((int (*)(int, struct mj_time *))control->clock)(
            time == MJ_TIME_COARSE ? CLOCK_OF_COARSE : CLOCK_OF_MONOTONIC, &now);
    return mj_nanoseconds(&now);
}

/* The counters that go with a shared ring. Locked instructions may not be used on a CPU's own. */
static struct mj_count *shared_counts(const struct mj_control *control,
                                      const struct mj_marker *marker) {
    return mj_counts(control, control->cpus + mj_cpu(control), mj_id(control, marker));
}

/* The place is known before the look: a signal handler may fork in between. */
static void add_one(uint64_t *count) {
    __asm__ __volatile__("" : "+r"(count));
    if (mj_alive())
        __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
}

static void count_passed(const struct mj_control *control, const struct mj_marker *marker) {
    int counted = MJ_ANOTHER;

    if (control->rseq_offset)
        counted = mj_tally(control, mj_id(control, marker));
    if (counted == MJ_ANOTHER)
        add_one(&shared_counts(control, marker)->passed);
}

/* `*shared`: the outcome is that of the shared ring. */
static int append(const struct mj_control *control, const struct mj_marker *marker, uint64_t *image,
                  uint64_t size, int *shared) {
    const int stamp = marker->time == MJ_TIME_TSC;
    int done = MJ_ANOTHER;

    if (marker->time > MJ_TIME_TSC)
        image[1] = mj_read_clock(control, marker->time);
    if (control->rseq_offset) {
        do
            done = mj_append(control, image, size, stamp);
        while (done == MJ_TURN && (done = mj_turn()) == MJ_DONE);
    }
    *shared = done == MJ_ANOTHER;
    if (*shared) /* perhaps because a signal handler forked, and we are the child */
        done = mj_alive() ? mj_append_shared(control, image, size, stamp) : MJ_DEAD;
    return done;
}

/* 2. The time of an event that waited is that of its record, so that a ring is in order of time. */
static int append_or_wait(struct mj_control *control, const struct mj_marker *marker,
                          uint64_t *image, uint64_t size) {
    struct mj_wait wait;
    int shared;
    int done = append(control, marker, image, size, &shared);

    if (done != MJ_FULL || !marker->waits || !mj_wait_begin(&wait, control))
        return done;
    while (done == MJ_FULL && mj_wait_turn(&wait, control, shared))
        done = append(control, marker, image, size, &shared);
    mj_wait_end(&wait, control);
    return done;
}

/* Whatever stands in the marker's entry. */
static unsigned argc_of(const struct mj_marker *marker) {
    const unsigned argc = *(const volatile uint8_t *)&marker->argc;

    return argc < MJ_MAX_WORDS ? argc : MJ_MAX_WORDS;
}

void mj_record_words(const struct mj_marker *marker, const uint64_t *words) {
    struct mj_control *control = mj_control();

    if (!mj_alive())
        return;
    const unsigned argc = argc_of(marker);
    const uint64_t room = room_for(marker, argc);
    uint64_t image[room / 8 + 1];
    struct mj_record *head = (struct mj_record *)image;
    const uint64_t size = put_fields(control, marker, argc, (char *)image, room, words); /* 1 */

    head->head = mj_head(marker->id, size);
    head->tid = marker->tid ? mj_tid(control) : 0;
    const int done = append_or_wait(control, marker, image, size);

    if (done == MJ_DONE && marker->counted) /* 3 */
        count_passed(control, marker);
    else if (done == MJ_FULL)
        mj_lose(marker);
}

void mj_record_arguments(const struct mj_marker *marker, const struct mj_registers *registers,
                         const uint64_t *stack) {
    const unsigned argc = argc_of(marker);
    unsigned generals = 0, doubles = 0;
    uint64_t words[MJ_MAX_WORDS];

    for (unsigned i = 0; i < argc; i++) {
        const int op = op_of(marker, i);

        if (op == MJ_OP_FP || op == MJ_OP_SKIP_FP)
            words[i] = doubles < 8 ? registers->doubles[doubles++] : *stack++;
        else
            words[i] = generals < 5 ? registers->general[generals++] : *stack++;
    }
    mj_record_words(marker, words);
}

void mj_lose(const struct mj_marker *marker) {
    const struct mj_control *control = mj_control();

    add_one(&shared_counts(control, marker)->lost);
}

void mj_pass(const struct mj_marker *marker) {
    const struct mj_control *control = mj_control();

    if (mj_alive())
        count_passed(control, marker);
}

void mj_count(struct mj_slot *slot, ...) { mj_pass(slot->data); }

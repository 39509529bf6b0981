/* SPDX-License-Identifier: MIT */
/*
 * flip.c: a controller inside the victim: plans edits and has mj_apply make them.
 *
 *     flip TRANSACTIONS PROTOCOL VIA QUIESCENCE
 *
 *     PROTOCOL    byte   the bytes that differ, one edit of one byte each, all in one step
 *                 whole  the whole instruction, one edit
 *                 word   the aligned word of 2 or 8 bytes that holds it, one store
 *                 int3   breakpoint, tail, first byte: three steps
 *                 first  wrong on purpose: first byte, then tail
 *     VIA         mem (/proc/self/mem), store (aligned stores through the alias), or raw: the same
 *                 stores one right behind the other, with no mj_apply, which reads back what it
 *                 wrote and by that puts a microsecond between two steps
 *     QUIESCENCE  membarrier, signals, none
 *
 * It makes the plan that it is asked for, right or wrong. Leaving a protocol out shows that it is
 * needed. mj_apply is that of libmjstop.so, the same objects.
 */
#define _GNU_SOURCE
#include "torture.h"

#include "../../native/src/fence/fence.h"
#include "../../native/src/stop/stop.h"

#include <fcntl.h>

enum { MOST_EDITS = 10, SPINS_WITH_LINE = 100 };

struct flipper {
    bool store;
    bool raw;
    struct mj_edit edits[MAX_PLACES * MOST_EDITS];
    uint32_t count;
};

static struct flipper flipper;
static uint64_t random_state = 0x9e3779b97f4a7c15;

static unsigned random_below(unsigned limit) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)(random_state >> 33) % limit;
}

/* One place and its way from one form to the other. */
struct change {
    const struct place *place;
    uint64_t address; /* of its first byte, where it is written */
    const uint8_t *from, *to;
};

static struct mj_edit *add_edit(const struct change *change, unsigned first, unsigned size,
                                unsigned step) {
    struct mj_edit *edit = &flipper.edits[flipper.count++];

    *edit = (struct mj_edit){.address = change->address + first,
                             .size = (uint8_t)size,
                             .step = (uint8_t)step,
                             .code = change->place->code,
                             .store = flipper.store};
    memcpy(edit->old_bytes, change->from + first, size);
    memcpy(edit->new_bytes, change->to + first, size);
    return edit;
}

/* A store must be aligned and of a whole word; so through the alias these go byte by byte. */
static void add_bytes(const struct change *change, unsigned first, unsigned step) {
    if (!flipper.store)
        add_edit(change, first, change->place->size - first, step);
    else
        for (unsigned i = first; i < change->place->size; i++)
            add_edit(change, i, 1, step);
}

static void plan_byte(const struct change *change) {
    for (unsigned i = 0; i < change->place->size; i++)
        if (change->from[i] != change->to[i])
            add_edit(change, i, 1, 0);
}

static void plan_whole(const struct change *change) { add_edit(change, 0, change->place->size, 0); }

/* The bytes beside the place in its word are written again as they are. */
static void plan_word(const struct change *change) {
    const unsigned size = change->place->size == 2 ? 2 : 8;
    const uint64_t word = change->address / size * size;
    struct mj_edit *edit = add_edit(change, 0, change->place->size, 0);

    edit->address = word;
    edit->size = (uint8_t)size;
    memcpy(edit->old_bytes, (const void *)word, size);
    memcpy(edit->new_bytes, (const void *)word, size);
    memcpy(edit->old_bytes + (change->address - word), change->from, change->place->size);
    memcpy(edit->new_bytes + (change->address - word), change->to, change->place->size);
}

static void plan_first(const struct change *change) {
    add_edit(change, 0, 1, 0);
    add_bytes(change, 1, 1);
}

static void plan_int3(const struct change *change) {
    static const uint8_t breakpoint = 0xcc;

    add_edit(change, 0, 1, 0)->new_bytes[0] = breakpoint;
    add_bytes(change, 1, 1);
    struct mj_edit *last = add_edit(change, 0, 1, 2);

    last->again = 1;
    last->old_bytes[0] = breakpoint;
}

static const struct protocol {
    const char *name;
    void (*plan)(const struct change *change);
    unsigned steps;
} protocols[] = {{"byte", plan_byte, 1},
                 {"whole", plan_whole, 1},
                 {"word", plan_word, 1},
                 {"int3", plan_int3, 3},
                 {"first", plan_first, 2}};

static int by_step(const void *a, const void *b) {
    const struct mj_edit *one = a, *other = b;

    return one->step != other->step        ? one->step - other->step
           : one->address < other->address ? -1
                                           : one->address > other->address;
}

/* Some neighbours, each to its other form. Returns how many. */
static unsigned plan_some(const struct protocol *protocol, bool alias, unsigned *start) {
    const unsigned count = 1 + random_below(place_count);

    *start = random_below(place_count - count + 1);
    flipper.count = 0;
    for (unsigned i = *start; i < *start + count; i++) {
        const struct place *place = &places[i];
        struct change change = {place, alias ? place->alias : place->at, place->old_bytes,
                                place->new_bytes};

        if (forms[i]) {
            change.from = place->new_bytes;
            change.to = place->old_bytes;
        }
        protocol->plan(&change);
    }
    if (protocol->steps > 1)
        qsort(flipper.edits, flipper.count, sizeof(*flipper.edits), by_step);
    return count;
}

/*
 * Takes the line with the end of the last place away from the others, for a moment: a thread that
 * comes to the place has its first bytes at hand and must wait for the rest. The stores tear only
 * in that window, which is rarely open otherwise.
 */
static void take_line(void) {
    const struct mj_edit *tail = &flipper.edits[flipper.count - 2]; /* the first byte is last */
    volatile uint8_t *byte = (volatile uint8_t *)tail->address;

    *byte = *byte;
    for (volatile unsigned spins = 0; spins < SPINS_WITH_LINE; spins++)
        ;
}

/* The stores of mj_apply, with none of its safety except the fence, where the variant has it. */
static int apply_raw(int quiescence) {
    int error = 0;

    take_line();
    for (uint32_t i = 0; i < flipper.count && !error; i++) {
        const struct mj_edit *edit = &flipper.edits[i];
        uint64_t word = 0;

        memcpy(&word, edit->new_bytes, edit->size);
        if (edit->size == 1)
            __atomic_store_n((uint8_t *)edit->address, (uint8_t)word, __ATOMIC_RELEASE);
        else if (edit->size == 2)
            __atomic_store_n((uint16_t *)edit->address, (uint16_t)word, __ATOMIC_RELEASE);
        else
            __atomic_store_n((uint64_t *)edit->address, word, __ATOMIC_RELEASE);
        if (quiescence == MJ_MEMBARRIER && (i + 1 == flipper.count || edit[1].step != edit->step))
            error = mj_fence_membarrier();
    }
    return error ? MJ_NOT_SYNCED : MJ_OK;
}

struct flipped {
    unsigned long transactions, places, refused;
    int status;
};

/*
 * Wait until some thread has visited all places once, so that the next change comes while that
 * thread runs. On a loaded machine all the others may be without a CPU for milliseconds. Then we go
 * on, and no thread sees the change; `transitions` shows this. Raw stores do not wait, because the
 * fault that they show is rare, and they are cheap.
 */
static void wait_for_crowd(void) {
    const unsigned long before = crowd_progress();

    for (unsigned looks = 0; looks < 1u << 12; looks++)
        if (crowd_progress() - before >= place_count)
            return;
}

/*
 * N transactions. (A) pairs with (A) in crowd.c: the number is odd while a transaction works, and
 * the forms change only then.
 */
static struct flipped flip_many(long transactions, const struct protocol *protocol, bool alias,
                                int quiescence, struct mj_report *report) {
    const struct mj_target target = {
        .pid = getpid(), .pidfd = -1, .mem_fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC)};
    struct flipped flipped = {0};

    if (change_sequence % 2)
        atomic_fetch_add(&change_sequence, 1);
    while (transactions-- > 0 && flipped.status == MJ_OK) {
        unsigned start;

        if (!flipper.raw)
            wait_for_crowd();
        const unsigned count = plan_some(protocol, alias, &start);

        atomic_fetch_add(&change_sequence, 1); /* (A) */
        flipped.status = flipper.raw
                             ? apply_raw(quiescence)
                             : mj_apply(&target, quiescence, flipper.edits, flipper.count, report);
        for (unsigned i = start; flipped.status == MJ_OK && i < start + count; i++)
            forms[i] ^= 1;
        atomic_fetch_add(&change_sequence, 1); /* (A) */
        if (flipped.status == MJ_OK) {
            flipped.transactions++;
            flipped.places += count;
        } else if (flipped.status == MJ_NOT_SYNCED) { /* taken back, so it may be tried again */
            flipped.refused++;
            flipped.status = MJ_OK;
        }
    }
    close(target.mem_fd);
    return flipped;
}

static int quiescence_named(const char *name) {
    return strcmp(name, "membarrier") == 0 ? MJ_MEMBARRIER
           : strcmp(name, "signals") == 0  ? MJ_SIGNALS
                                           : MJ_NONE;
}

void flip(const char *arguments) {
    char name[16] = "", via[16] = "", quiescence[16] = "";
    const struct protocol *protocol = NULL;
    struct mj_report report = {0};
    long transactions = 0;

    sscanf(arguments, "%ld %15s %15s %15s", &transactions, name, via, quiescence);
    for (unsigned i = 0; i < sizeof(protocols) / sizeof(*protocols); i++)
        if (strcmp(protocols[i].name, name) == 0)
            protocol = &protocols[i];
    if (!protocol) {
        truth_say("flip status=-1 no such protocol");
        return;
    }
    flipper.raw = strcmp(via, "raw") == 0;
    flipper.store = flipper.raw || strcmp(via, "store") == 0;
    const struct flipped flipped =
        flip_many(transactions, protocol, flipper.store, quiescence_named(quiescence), &report);

    truth_say("flip status=%d error=%d index=%u transactions=%lu places=%lu refused=%lu",
              flipped.status, report.error, report.index, flipped.transactions, flipped.places,
              flipped.refused);
}

/* SPDX-License-Identifier: MIT */
/*
 * walk.c: the frames of a stack, by the tables of unwind rules that a controller has put beside the
 * arena. markerjit/unwind/walk.py does the same from outside, and says how:
 *
 *   1  find the rule of the frame: of the instruction that is to be executed, and of a caller by
 *      the last byte of its call
 *   2  compute the CFA, and read the return address and the caller's frame pointer
 *   3  go on with the caller, if that makes sense: its stack pointer is above, and the return
 *      address is in code. So every walk has an end, whatever stands on the stack
 *
 * Most frames need no table: where one has the rule of an address, a word beside it keeps it for
 * the next walk that comes there (recent.h), and (1) is one load.
 *
 * Memory is read without a fault. The page of the stack pointer can be read, because the program
 * has just written there, and pages that follow it without a gap are the thread's own stack: these
 * are read by plain loads, each page when the kernel has said so within the last window (fetch.c).
 * What is elsewhere, such as the stack that a signal has interrupted or what a wild frame pointer
 * shows, is read by a transaction or by the kernel.
 *
 * A table is used only if its object is still there: that says a word of its own, its mark. The
 * page of that is a known one, too. An object that was unloaded less than a window ago, and that a
 * stack leads to all the same, is one that the program would go back to. A frame in code whose
 * object is another one by now, or was never in the directory, says so (MJ_FRAME_UNKNOWN).
 */

#include "recent.h"

#include <stddef.h>

#define WORD sizeof(uint64_t)
#define BLOCK_BITS 8
#define LARGEST_RULES (1u << 25)
#define MOST_PAGES 64 /* that are looked at for one word */
#define LATE 11       /* from this byte of a stub of a linkage table on, it has pushed a word */

enum { SIGNAL_RIP = 168, SIGNAL_RSP = 160, SIGNAL_RBP = 120 }; /* from the handler's return on */

/* markerjit/unwind/rules.py */
enum kind { NONE, STACK, FRAME, STACK_WORD, FRAME_WORD, LINKAGE, SIGNAL, OUTERMOST, OTHER };

_Static_assert(sizeof(struct mj_code) * MJ_MAX_CODES == MJ_DIRECTORY_SIZE, "directories");
_Static_assert(sizeof(struct mj_unwind) * MJ_UNWINDS == MJ_STACKS_DIRECTORIES - MJ_STACKS_TABLES,
               "tables");
_Static_assert(sizeof(struct mj_stacks) <= MJ_PAGE, "stacks");

struct walk {
    const struct mj_control *control;
    const struct mj_stacks *stacks;
    uint64_t directory;
    const struct mj_code *codes; /* in the order of their addresses */
    uint64_t count;
    const struct mj_code *code;  /* the last one that was found */
    const struct mj_code *whole; /* the last one whose mark was right */
    uint64_t low;                /* from here up to `high` memory can be read */
    uint64_t high;
    const uint64_t *known; /* pages that can be read */
    uint64_t counter;      /* the time stamp counter, when the walk began; 0: it is no clock */
    uint64_t epoch;
    uint64_t unknown; /* MJ_FRAME_UNKNOWN: the last rule was looked for in code of another object */
    uint64_t wholes[MJ_RECENT_CODES / 64]; /* a bit for each of the first codes, as `whole` */
};

/* ---- memory ---------------------------------------------------------------------------------- */

static int read_elsewhere(const struct walk *walk, uint64_t address, uint64_t *value) {
    int whole;

    if (address < MJ_PAGE || address >> 47)
        return 0;
    return mj_copy(walk->control, (char *)value, (const char *)address, WORD, MJ_COPY_CAREFUL,
                   &whole) == WORD;
}

/* Whether the page of an address can be read. */
static inline int is_readable(struct walk *walk, uint64_t address) {
    return (walk->counter &&
            mj_is_known(walk->known, address / MJ_PAGE, walk->counter >> MJ_READABLE_WINDOW)) ||
           mj_is_readable(walk->control, address, &walk->counter);
}

/* Have the pages from `high` on up to an address, where these can be read. */
static void go_up(struct walk *walk, uint64_t address) {
    for (unsigned pages = 0; pages < MOST_PAGES && walk->high < address; pages++) {
        if (!is_readable(walk, walk->high))
            return;
        walk->high += MJ_PAGE;
    }
}

/* Read a word. Returns whether it can be read. */
static int read_word(struct walk *walk, uint64_t address, uint64_t *value) {
    const uint64_t end = address + WORD;

    if (address >= walk->low && end > walk->high && end > address &&
        end - walk->high <= MOST_PAGES * MJ_PAGE)
        go_up(walk, end);
    if (address < walk->low || end > walk->high || end < address)
        return read_elsewhere(walk, address, value);
    *value = *(const volatile uint64_t *)address;
    return 1;
}

/* Begin anew at this stack pointer. `is_ours`: a stack of which it is known that it is there. */
static void begin_at(struct walk *walk, uint64_t rsp, int is_ours) {
    walk->low = rsp & -(uint64_t)MJ_PAGE;
    walk->high = walk->low + (is_ours ? MJ_PAGE : 0);
}

/* ---- code ------------------------------------------------------------------------------------ */

/* The code at an address; NULL where none is known to be. */
static const struct mj_code *code_at(struct walk *walk, uint64_t address) {
    uint64_t low = 0, high = walk->count;

    if (walk->code && address - walk->code->start < walk->code->stop - walk->code->start)
        return walk->code;
    while (low < high) {
        const uint64_t middle = (low + high) / 2;

        if (walk->codes[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low || address >= walk->codes[low - 1].stop)
        return NULL;
    return walk->code = &walk->codes[low - 1];
}

static uint64_t directory_now(const struct walk *walk) {
    return __atomic_load_n(&walk->stacks->directory, __ATOMIC_ACQUIRE);
}

/* Whether the object that this code is of is still there. */
static int is_whole(struct walk *walk, const struct mj_code *code) {
    uint64_t value;

    if (code == walk->whole)
        return 1;
    if (code->mark % MJ_PAGE > MJ_PAGE - WORD || code->mark < MJ_PAGE || code->mark >> 47)
        return 0;
    if (is_readable(walk, code->mark))
        value = *(const volatile uint64_t *)code->mark;
    else if (!read_elsewhere(walk, code->mark, &value))
        return 0;
    if (value != code->value)
        return 0;
    walk->whole = code;
    return 1;
}

/* Keep the rule of an address as a recent one, if a word can say it. */
static void keep(const struct walk *walk, const struct mj_code *code, uint64_t address,
                 uint32_t rule) {
    const uint32_t kind = rule & 15, saved = rule >> 20;
    const uint64_t number = (uint64_t)(code - walk->codes);
    uint64_t words = (uint16_t)(rule >> 4), word = 0;

    if (address + 1 >= code->stop || number >= MJ_RECENT_CODES)
        return;
    if (kind == STACK || kind == FRAME) {
        if (!words || words > MJ_RECENT_MOST_WORDS || saved == 1 || saved > MJ_RECENT_MOST_SAVED)
            return;
        word = words << 4 | (saved ? saved - 1 : 0) << 1 | (kind == FRAME);
    } else if (kind != OUTERMOST) {
        return;
    }
    word |= number << 14 | mj_recent_key(address, walk->directory) << MJ_RECENT_KEY;
    if (mj_alive() && directory_now(walk) == walk->directory)
        __atomic_store_n(mj_recent_place(walk->stacks, address), word, __ATOMIC_RELAXED);
}

/* 1. The rule at an address: 0, of the kind NONE, where no table has it. Whatever is written over a
   table, nothing behind it is read. */
static uint32_t rule_at(struct walk *walk, uint64_t address) {
    const struct mj_code *code = code_at(walk, address);

    walk->unknown = !code || (code->mark && !is_whole(walk, code)) ? MJ_FRAME_UNKNOWN : 0;
    if (walk->unknown || code->rules < MJ_STACKS_RULES ||
        code->rules > MJ_STACKS_RECENT - MJ_PAGE || !is_whole(walk, code))
        return NONE;
    const struct mj_rules *rules =
        (const struct mj_rules *)((const char *)walk->stacks + code->rules);
    const uint64_t place = address - code->bias, size = rules->high - rules->low;
    const uint64_t blocks = (size >> BLOCK_BITS) + 2, at = place - rules->low;
    const uint32_t *index = (const uint32_t *)(rules + 1);
    const uint32_t *starts = index + blocks, *words = starts + rules->count;

    if (at >= size || size >> 32 || rules->count > LARGEST_RULES ||
        code->rules + sizeof *rules + 4 * (blocks + 2ul * rules->count) > MJ_STACKS_RECENT)
        return NONE;
    uint32_t low = index[at >> BLOCK_BITS], high = index[(at >> BLOCK_BITS) + 1];

    if (low > high || high >= rules->count)
        return NONE;
    while (low < high) { /* the last one that begins at the address, or before it */
        const uint32_t middle = high - (high - low) / 2;

        if (starts[middle] <= at)
            low = middle;
        else
            high = middle - 1;
    }
    keep(walk, code, address, words[low]);
    return words[low];
}

/* ---- frames ---------------------------------------------------------------------------------- */

enum outcome { WENT_ON = -1, LOOK_UP = -2 }; /* or MJ_END_... */

static int is_code(struct walk *walk, uint64_t address) { return code_at(walk, address) != NULL; }

/* What a return address that is not in code says of the stack. It may be in code that was mapped
   since the directory was made. */
static __attribute__((noinline)) int not_code(struct walk *walk, uint64_t address) {
    uint64_t bytes;

    return read_elsewhere(walk, address, &bytes) ? MJ_END_ELSEWHERE : MJ_END_DAMAGED;
}

/* By the frame pointer, where that shows a frame above the stack pointer. */
static int by_frame_pointer(struct walk *walk, struct mj_frame *frame) {
    const uint64_t rbp = frame->rbp;
    uint64_t saved, rip;

    if (rbp < frame->rsp || rbp % WORD)
        return MJ_END_NO_TABLE;
    if (!read_word(walk, rbp, &saved) || !read_word(walk, rbp + WORD, &rip) || !is_code(walk, rip))
        return MJ_END_NO_TABLE;
    *frame = (struct mj_frame){rip, rbp + 2 * WORD, saved, 0};
    return WENT_ON;
}

static int by_signal(struct walk *walk, struct mj_frame *frame) {
    struct mj_frame caller = {0, 0, 0, 1};

    if (!read_word(walk, frame->rsp + SIGNAL_RIP, &caller.rip) ||
        !read_word(walk, frame->rsp + SIGNAL_RSP, &caller.rsp) ||
        !read_word(walk, frame->rsp + SIGNAL_RBP, &caller.rbp))
        return MJ_END_DAMAGED;
    if (!is_code(walk, caller.rip))
        return not_code(walk, caller.rip);
    if (caller.rsp < walk->low || caller.rsp >= walk->high)
        begin_at(walk, caller.rsp, 0);
    *frame = caller;
    return WENT_ON;
}

/* Whether the CFA can be computed. */
static int find_cfa(struct walk *walk, enum kind kind, int64_t distance,
                    const struct mj_frame *frame, uint64_t *cfa) {
    switch (kind) {
    case STACK:
        *cfa = frame->rsp + (uint64_t)distance;
        return 1;
    case FRAME:
        *cfa = frame->rbp + (uint64_t)distance;
        return 1;
    case STACK_WORD:
        if (!read_word(walk, frame->rsp + (uint64_t)distance, cfa))
            return 0;
        *cfa += WORD;
        return 1;
    case FRAME_WORD:
        return read_word(walk, frame->rbp + (uint64_t)distance, cfa);
    default: /* LINKAGE */
        *cfa = frame->rsp + (frame->rip % 16 >= LATE ? 2 * WORD : WORD);
        return 1;
    }
}

/* 2. The frame that has called this one, or what ends the walk. */
static __attribute__((noinline)) int go_to_caller(struct walk *walk, struct mj_frame *frame) {
    const uint32_t rule = rule_at(walk, frame->rip - !frame->exact);
    const enum kind kind = rule & 15;
    const int64_t distance = (int16_t)(rule >> 4) * (int64_t)WORD;
    const uint64_t saved = rule >> 20;
    uint64_t cfa, rip, rbp = frame->rbp;

    if (kind == OUTERMOST)
        return MJ_END_OUTERMOST;
    if (kind >= OTHER)
        return MJ_END_NO_TABLE;
    if (kind == NONE)
        return by_frame_pointer(walk, frame);
    if (kind == SIGNAL)
        return by_signal(walk, frame);
    if (!find_cfa(walk, kind, distance, frame, &cfa) || cfa <= frame->rsp || cfa % WORD) /* 3 */
        return MJ_END_DAMAGED;
    if (!read_word(walk, cfa - WORD, &rip))
        return MJ_END_DAMAGED;
    if (!rip)
        return MJ_END_OUTERMOST;
    if (!is_code(walk, rip))
        return not_code(walk, rip);
    if (kind == FRAME_WORD ? !read_word(walk, frame->rbp, &rbp)
                           : saved && !read_word(walk, cfa - WORD * saved, &rbp))
        return MJ_END_DAMAGED;
    *frame = (struct mj_frame){rip, cfa, rbp, 0};
    return WENT_ON;
}

/* Whether memory can be read up to a CFA, now that more pages were looked at. */
static __attribute__((noinline)) int reaches(struct walk *walk, uint64_t cfa) {
    if (cfa - walk->high <= MOST_PAGES * MJ_PAGE)
        go_up(walk, cfa);
    return cfa <= walk->high;
}

/* Whether the object of a code is still there: the first time that a recent rule is of it. */
static __attribute__((noinline)) int becomes_whole(struct walk *walk, uint64_t number) {
    if (number >= walk->count || !is_whole(walk, &walk->codes[number]))
        return 0;
    walk->wholes[number / 64] |= 1ul << number % 64;
    return 1;
}

/* The same by a recent rule; LOOK_UP where its table is needed after all. Whether the return
   address is in code is not known yet. */
static inline int by_recent(struct walk *walk, struct mj_frame *frame, uint64_t word) {
    const uint64_t number = mj_recent_code(word);
    const uint64_t cfa =
        (word & MJ_RECENT_FRAME ? frame->rbp : frame->rsp) + mj_recent_distance(word);
    const uint64_t saved = cfa - mj_recent_saved(word);

    if (!(walk->wholes[number / 64] >> number % 64 & 1) && !becomes_whole(walk, number))
        return LOOK_UP;
    /* Behind the instruction that restores the frame pointer, its place is below the stack
       pointer, and rows still name it: so at the return of nearly every function. */
    if (cfa <= frame->rsp || cfa <= saved || saved < walk->low || cfa % WORD ||
        (cfa > walk->high && !reaches(walk, cfa)))
        return mj_recent_is_outermost(word) ? MJ_END_OUTERMOST : LOOK_UP;
    const uint64_t rip = ((const volatile uint64_t *)cfa)[-1];
    const uint64_t value = *(const volatile uint64_t *)saved;

    if (!rip)
        return MJ_END_OUTERMOST;
    frame->rip = rip;
    frame->rsp = cfa;
    frame->rbp = mj_recent_is_saved(word) ? value : frame->rbp;
    frame->exact = 0;
    return WENT_ON;
}

/* By a table. The frame is copied, so that it is in registers for as long as none is needed. */
static inline int look_up(struct walk *walk, struct mj_frame *frame) {
    struct mj_frame copy = *frame;
    const int outcome = go_to_caller(walk, &copy);

    *frame = copy;
    return outcome;
}

/* Field by field, because a compiler erases a whole structure by a string instruction, which takes
   as long as a frame. */
static inline void begin(struct walk *walk, const struct mj_stacks *stacks, uint64_t directory,
                         uint64_t rsp) {
    const uint64_t place = directory % MJ_DIRECTORIES, entries = stacks->counts[place];

    walk->control = mj_control();
    walk->stacks = stacks;
    walk->directory = directory;
    walk->codes = (const struct mj_code *)((const char *)stacks + MJ_STACKS_DIRECTORIES +
                                           place * MJ_DIRECTORY_SIZE);
    walk->count = entries < MJ_MAX_CODES ? entries : MJ_MAX_CODES;
    walk->epoch = stacks->epochs[place];
    walk->code = walk->whole = NULL;
    walk->known = mj_part(walk->control, MJ_PART_READABLE);
    walk->counter = walk->control->cpu_flags & MJ_CPU_TSC ? mj_counter() : 0;
    for (unsigned at = 0; at < MJ_RECENT_CODES / 64; at++)
        *(volatile uint64_t *)&walk->wholes[at] = 0;
    begin_at(walk, rsp, 1);
}

uint32_t mj_walk(const struct mj_stacks *stacks, const struct mj_frame *from, uint64_t *stack,
                 uint32_t depth, uint64_t *hash) {
    const uint64_t directory = __atomic_load_n(&stacks->directory, __ATOMIC_ACQUIRE);
    struct mj_frame frame = *from;
    uint64_t word = mj_recent(stacks, frame.rip - !frame.exact, directory), mixed = 0;
    uint32_t count = 0;
    int outcome;
    struct walk walk;

    begin(&walk, stacks, directory, frame.rsp);
    for (;;) {
        stack[++count] = frame.rip | frame.exact * MJ_FRAME_EXACT;
        outcome = word ? by_recent(&walk, &frame, word) : LOOK_UP;
        if (outcome == LOOK_UP) {
            outcome = look_up(&walk, &frame);
            stack[count] |= walk.unknown;
        }
        mixed = mj_mix(mixed, stack[count]);
        if (outcome != WENT_ON)
            break;
        word = mj_recent(stacks, frame.rip - !frame.exact, directory);
        if (!word && !is_code(&walk, frame.rip)) {
            outcome = not_code(&walk, frame.rip);
            break;
        }
        if (count == depth) {
            if (!word) /* so that the next walk knows that this is in code */
                rule_at(&walk, frame.rip - !frame.exact);
            outcome = MJ_END_DEEPER;
            break;
        }
    }
    stack[0] = count | (uint64_t)outcome << MJ_STACK_END | walk.epoch << MJ_STACK_EPOCH;
    *hash = mj_mix(mixed, stack[0]);
    /* The walk is of another directory's entries by now. */
    if (directory_now(&walk) - directory >= MJ_DIRECTORIES - 1)
        return 0;
    return 1 + count;
}

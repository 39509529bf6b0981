/* SPDX-License-Identifier: MIT */
/*
 * heap.c: the blocks of an allocator, step by step, added up by the site that asked for them.
 *
 * Between the return of malloc and the begin of free a block belongs to the program. So the steps
 * of one address come one after the other, whatever threads there are, and need no order but that.
 *
 *   1  an allocation puts its block into the table, with the site, the time, the thread and the CPU
 *   2  a free takes it out, and adds its lifetime to the numbers of its site
 *   3  a reallocation does both. Its block is kept by the thread from its begin to its return: one
 *      that has failed puts it back
 *   4  an allocating function may end with a jump to another one. What was asked for is kept by the
 *      thread until that returns
 *
 * A function that has called another one for its block has a step behind that of the other: what
 * the other one has added is taken back, since its caller is not the one who asked.
 *
 * A block is at one of MJ_PLACES_OF_KEY places. Those of blocks that are near each other are near
 * each other, so the table has memory and cache lines as the heap has them. Where all of these are
 * taken it is at one of as many other places; `spilled` says how many are. What finds no room is
 * counted, and is not live. Places are taken and published as those of pairs (aggregate.h).
 */

#include "aggregate.h"

#define NEAR 16 /* bits of an address: blocks with the same upper ones are near each other */
#define KEPT_JUMP (MJ_BLOCK_KEPT | MJ_BLOCK_JUMP)
#define PAGE_MASK (MJ_PAGE - 1ul)

_Static_assert(sizeof(struct mj_block) == MJ_BLOCK_WORDS * sizeof(uint64_t), "abi.h");

struct heap {
    const struct mj_table *table;
    const struct mj_pairing *how;
    struct mj_cells missed;
    uint64_t *states;
    struct mj_block *blocks;
    uint64_t mask;
    uint64_t now;
    uint32_t tid;
};

/* The facts about an allocation that are known at its step. */
struct asked {
    unsigned kind;
    uint64_t block;
    uint64_t asked;
    uint64_t header;
    uint64_t site; /* its number, or MJ_NO_SITE */
};

__attribute__((noinline)) static void add(const struct heap *heap, uint64_t site, unsigned word,
                                          uint64_t value) {
    const struct mj_table *table = heap->table;
    const struct mj_cells cells = {table, heap->missed.words + MJ_MISSED + site * table->words};

    if (site < table->room)
        mj_add(&cells, word, value);
}

/* ---- the table ------------------------------------------------------------------------------- */

static uint64_t near_place(uint64_t key) {
    const uint64_t area = key >> NEAR;

    return mj_hash(&area, 1) + (key >> 4 & ((1ul << (NEAR - 4)) - 1));
}

static uint64_t *spilled(const struct heap *heap) { return &heap->table->aggregate->spilled; }

/* Add to a word that all CPUs share; what it is then. A child that a signal handler has forked
   changes nothing of its parent's: 0. */
__attribute__((noinline)) static uint64_t change_shared(uint64_t *word, uint64_t by) {
    return mj_alive() ? __atomic_add_fetch(word, by, __ATOMIC_RELAXED) : 0;
}

/* Take the block with this key out of some places. */
__attribute__((noinline)) static int take_from(const struct heap *heap, uint64_t from,
                                               uint64_t hash, uint64_t key,
                                               struct mj_block *block) {
    for (uint64_t tries = 0; tries < MJ_PLACES_OF_KEY; tries++) {
        const uint64_t at = (from + tries) & heap->mask;
        uint64_t *word = &heap->states[at];
        uint64_t state = __atomic_load_n(word, __ATOMIC_ACQUIRE);

        if (!mj_has_tag(state, hash) || heap->blocks[at].key != key ||
            !mj_take_place(word, &state, hash))
            continue;
        *block = heap->blocks[at];
        mj_publish_place(word, state, hash, MJ_PLACE_FREE);
        return 1;
    }
    return 0;
}

__attribute__((noinline)) static int take_out(const struct heap *heap, uint64_t key,
                                              struct mj_block *block) {
    const uint64_t hash = mj_hash(&key, 1);

    if (take_from(heap, near_place(key), hash, key, block))
        return 1;
    if (!__atomic_load_n(spilled(heap), __ATOMIC_RELAXED) ||
        !take_from(heap, hash, hash, key, block))
        return 0;
    change_shared(spilled(heap), -1ul);
    return 1;
}

__attribute__((noinline)) static int put_into(const struct heap *heap, uint64_t from, uint64_t hash,
                                              const struct mj_block *block) {
    for (uint64_t tries = 0; tries < MJ_PLACES_OF_KEY; tries++) {
        const uint64_t at = (from + tries) & heap->mask;
        uint64_t *word = &heap->states[at];
        uint64_t state = __atomic_load_n(word, __ATOMIC_ACQUIRE);

        if (mj_kind_of(state) != MJ_PLACE_FREE || !mj_take_place(word, &state, hash))
            continue;
        if (!mj_alive()) /* a child that comes late: it may be another's place by now */
            return 1;
        heap->blocks[at] = *block;
        mj_publish_place(word, state, hash, MJ_PLACE_FULL);
        return 1;
    }
    return 0;
}

__attribute__((noinline)) static int put(const struct heap *heap, const struct mj_block *block) {
    const uint64_t hash = mj_hash(&block->key, 1);

    if (put_into(heap, near_place(block->key), hash, block))
        return 1;
    change_shared(spilled(heap), 1); /* before anybody can look for it */
    if (put_into(heap, hash, hash, block))
        return 1;
    change_shared(spilled(heap), -1ul);
    return 0;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* malloc_usable_size, by the rules of allocators: those of glibc stand in malloc/malloc.c
   (request2size, sysmalloc_mmap), and those of jemalloc in its manual ("IMPLEMENTATION NOTES"). */
static uint64_t given(const struct heap *heap, const struct asked *asked) {
    const uint64_t size = asked->asked;

    if (heap->how->header_at) { /* glibc's word before the block: its flags, and 2: a mapping */
        const uint64_t whole = asked->header & -8ul, own = asked->header & 2 ? 16 : 8;

        return whole >= size + own ? whole - own : size;
    }
    if (heap->how->gives == MJ_GIVES_GLIBC) {
        const uint64_t chunk = size + 23 < 32 ? 32 : (size + 23) & -16ul;

        if (size >= 128 << 10 && (asked->block & PAGE_MASK) == 16)
            return ((chunk + 8 + PAGE_MASK) & ~PAGE_MASK) - 16;
        return chunk - 8;
    }
    if (heap->how->gives == MJ_GIVES_JEMALLOC) {
        if (size <= 8)
            return 8;
        const uint64_t bits = mj_bits_of(size - 1);
        const uint64_t step = size <= 128 ? 16 : 1ul << (bits - 3);

        return (size + step - 1) & -step;
    }
    return size;
}

/* The bytes that are live in all have changed. All CPUs share the word, so that its maximum is one
   that there was. */
__attribute__((noinline)) static void change_live(const struct heap *heap, uint64_t by) {
    struct mj_aggregate *aggregate = heap->table->aggregate;
    const uint64_t live = change_shared(&aggregate->live, by);
    uint64_t most = __atomic_load_n(&aggregate->most, __ATOMIC_RELAXED);

    while ((int64_t)live > (int64_t)most && mj_alive())
        if (__atomic_compare_exchange_n(&aggregate->most, &most, live, 0, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
            __atomic_store_n(&aggregate->most_at, heap->now, __ATOMIC_RELAXED);
            break;
        }
}

/* ---- steps ----------------------------------------------------------------------------------- */

static uint64_t site_of(const struct mj_block *block) { return block->where & MJ_NO_SITE; }

/* This thread and CPU, and a site. */
static uint64_t where(const struct heap *heap, uint64_t site) {
    return (uint64_t)heap->tid << 32 | (uint64_t)(uint16_t)mj_cpu(heap->table->control) << 16 |
           site;
}

/* 2 */
__attribute__((noinline)) static void end(const struct heap *heap, const struct mj_block *block) {
    const struct mj_table *table = heap->table;
    const uint64_t site = site_of(block);
    const struct mj_cells cells = {table, heap->missed.words + MJ_MISSED + site * table->words};
    const uint64_t ticks = (int64_t)(heap->now - block->time) < 0 ? 0 : heap->now - block->time;
    const uint64_t life = (uint64_t)((unsigned __int128)ticks * table->tick_ns >> 32);
    const uint64_t elsewhere = block->where ^ where(heap, site);
    const uint64_t bits = mj_bits_of(life), most = MJ_BLOCK_COUNTS - MJ_BLOCK_LIVES - 1;

    if (site >= table->room)
        return;
    mj_add(&cells, MJ_BLOCK_FREES, 1);
    if (elsewhere >> 32)
        mj_add(&cells, MJ_BLOCK_THREADS, 1);
    if (elsewhere >> 16 & 0xffff)
        mj_add(&cells, MJ_BLOCK_CPUS, 1);
    mj_add(&cells, MJ_BLOCK_LIFE, life);
    mj_change(&cells, MJ_BLOCK_LONGEST, life, mj_larger);
    mj_add(&cells, (unsigned)(MJ_BLOCK_LIVES + (bits < most ? bits : most)), 1);
    change_live(heap, -block->given);
}

static uint64_t kept(const struct heap *heap, uint64_t what) { return what | heap->tid; }

__attribute__((noinline)) static int take_kept(const struct heap *heap, uint64_t what,
                                               struct mj_block *block) {
    return take_out(heap, kept(heap, what), block);
}

__attribute__((noinline)) static void miss(const struct heap *heap, unsigned word) {
    mj_add(&heap->missed, word, 1);
}

/* Put back a block that was taken out for a while. If others have taken its room meanwhile, the
   block does not count as live any more. */
__attribute__((noinline)) static void put_back(const struct heap *heap,
                                               const struct mj_block *block) {
    if (put(heap, block))
        return;
    if (site_of(block) == MJ_NO_SITE) {
        miss(heap, MJ_MISSED_UNKNOWN);
        return;
    }
    add(heap, site_of(block), MJ_BLOCK_UNTRACKED, 1);
    change_live(heap, -block->given);
}

/* What stands where this block is to be: of a function that was called for it, or its free was not
   seen. */
static void make_way(const struct heap *heap, const struct asked *asked) {
    struct mj_block before;

    if (!take_out(heap, asked->block, &before))
        return;
    if (asked->kind != MJ_STEP_ALLOC && before.where >> 32 == heap->tid) {
        add(heap, site_of(&before), MJ_BLOCK_ALLOCATIONS, -1ul);
        add(heap, site_of(&before), MJ_BLOCK_ASKED, -before.asked);
        add(heap, site_of(&before), MJ_BLOCK_GIVEN, -before.given);
    } else {
        add(heap, site_of(&before), MJ_BLOCK_REUSED, 1);
    }
    change_live(heap, -before.given);
}

/* 1 */
static void allocate(const struct heap *heap, const struct asked *asked) {
    const uint64_t bytes = given(heap, asked);
    const struct mj_block block = {
        asked->block, heap->now, asked->asked, bytes, where(heap, asked->site), 0};

    make_way(heap, asked);
    if (asked->site == MJ_NO_SITE) {
        miss(heap, MJ_MISSED_FULL);
        return;
    }
    add(heap, asked->site, MJ_BLOCK_ALLOCATIONS, 1);
    add(heap, asked->site, MJ_BLOCK_ASKED, asked->asked);
    add(heap, asked->site, MJ_BLOCK_GIVEN, bytes);
    if (put(heap, &block))
        change_live(heap, bytes);
    else
        add(heap, asked->site, MJ_BLOCK_UNTRACKED, 1);
}

/* A failure inside a reallocation belongs to the reallocation, which reports it itself. */
static void fail(const struct heap *heap, const struct asked *asked) {
    struct mj_block block;

    if (asked->kind != MJ_STEP_MOVED && take_kept(heap, MJ_BLOCK_KEPT, &block)) {
        put_back(heap, &block);
        return;
    }
    add(heap, asked->site, MJ_BLOCK_FAILED, 1);
}

/* A reallocation is over, and its block is freed, or as before. */
__attribute__((noinline)) static void end_move(const struct heap *heap, const struct asked *asked) {
    struct mj_block block;

    if (!take_kept(heap, MJ_BLOCK_KEPT, &block))
        return;
    block.key = block.old;
    block.old = 0;
    if (!asked || asked->block || !asked->asked) {
        if (site_of(&block) == MJ_NO_SITE)
            miss(heap, MJ_MISSED_UNKNOWN);
        else
            end(heap, &block);
    } else if (site_of(&block) != MJ_NO_SITE) {
        put_back(heap, &block);
    }
}

static void jump(const struct heap *heap, const struct asked *asked) {
    struct mj_block block = {kept(heap, KEPT_JUMP),    heap->now,  asked->asked, 0,
                             where(heap, asked->site), asked->kind};
    struct mj_block before;

    if (take_kept(heap, KEPT_JUMP, &before))
        miss(heap, MJ_MISSED_UNSEEN);
    if (!put(heap, &block))
        miss(heap, MJ_MISSED_UNSEEN);
}

/* An allocating function has returned. */
__attribute__((noinline)) static void finish(const struct heap *heap, struct asked *asked) {
    const uint64_t block = asked->block;

    if (block == MJ_BLOCK_UNSEEN)
        miss(heap, MJ_MISSED_UNSEEN);
    if (block == MJ_BLOCK_UNSEEN || block == MJ_BLOCK_OWN)
        asked->block = asked->asked = 0;
    if (asked->kind == MJ_STEP_MOVED)
        end_move(heap, asked);
    if (asked->block)
        allocate(heap, asked);
    else if (block == 0 && (asked->kind != MJ_STEP_MOVED || asked->asked))
        fail(heap, asked);
}

static void free_block(const struct heap *heap, uint64_t key) {
    struct mj_block block;

    if (take_out(heap, key, &block)) {
        end(heap, &block);
        return;
    }
    if (take_kept(heap, MJ_BLOCK_KEPT, &block)) {
        const int is_moved = block.old == key; /* by a reallocation that has called us */

        put_back(heap, &block);
        if (is_moved)
            return;
    }
    miss(heap, MJ_MISSED_UNKNOWN);
}

/* 3 */
static void move(const struct heap *heap, uint64_t key) {
    struct mj_block block = {0, 0, 0, 0, MJ_NO_SITE, 0}, before;

    if (take_kept(heap, MJ_BLOCK_KEPT, &before)) {
        put_back(heap, &before);
        if (before.old == key) /* one function for the other */
            return;
        end_move(heap, 0);
    }
    take_out(heap, key, &block);
    block.key = kept(heap, MJ_BLOCK_KEPT);
    block.old = key;
    put_back(heap, &block);
}

static void note_thread(const struct heap *heap) {
    uint64_t *words = (uint64_t *)(heap->blocks + heap->mask + 1);
    uint64_t *word = &words[heap->tid / 64 & heap->mask], bit = 1ul << heap->tid % 64;

    if (mj_alive() && !(__atomic_load_n(word, __ATOMIC_RELAXED) & bit))
        __atomic_fetch_or(word, bit, __ATOMIC_RELAXED);
}

static uint64_t number_of_site(const struct heap *heap, const uint64_t *numbers) {
    const struct mj_pairing *how = heap->how;
    const uint64_t stack = how->stack_at ? numbers[how->stack_at - 1] : 0;
    const uint64_t marker = mj_id(heap->table->control, (const struct mj_marker *)how->marker);
    /* The innermost frame of a function is its own, and of a marker that of the caller. */
    const uint64_t key = stack        ? MJ_SITE_STACK | stack | (numbers[2] ? 0 : MJ_SITE_MARKER)
                         : numbers[2] ? numbers[2]
                                      : MJ_SITE_MARKER | marker;
    const int64_t number = mj_number_of(heap->table, &key);

    return number < 0 ? MJ_NO_SITE : (uint64_t)number;
}

static void step(const struct heap *heap, const uint64_t *numbers) {
    const struct mj_pairing *how = heap->how;
    const uint64_t header = how->header_at ? numbers[how->header_at - 1] : 0;
    struct asked asked = {how->step, numbers[0], numbers[1], header, MJ_NO_SITE};
    struct mj_block block;

    if (how->step == MJ_STEP_FREE || how->step == MJ_STEP_MOVE) {
        if (asked.block && how->step == MJ_STEP_FREE)
            free_block(heap, asked.block);
        else if (asked.block)
            move(heap, asked.block);
        return;
    }
    if (how->step == MJ_STEP_RESULT) { /* 4 */
        if (asked.block == MJ_BLOCK_CONTINUED || !take_kept(heap, KEPT_JUMP, &block))
            return;
        asked.kind = (unsigned)block.old;
        asked.asked = block.asked;
        asked.site = site_of(&block);
        finish(heap, &asked);
        return;
    }
    asked.site = number_of_site(heap, numbers);
    if (asked.block == MJ_BLOCK_CONTINUED)
        jump(heap, &asked);
    else
        finish(heap, &asked);
}

void mj_step(const struct mj_table *table, const struct mj_pairing *how, uint64_t now,
             const uint64_t *numbers) {
    const uint64_t count = table->slow_room;
    uint64_t *states = (uint64_t *)(mj_code_start + table->slow);
    const struct heap heap = {
        .table = table,
        .how = how,
        .missed = {table, (uint64_t *)(mj_code_start + table->values)},
        .states = states,
        .blocks = (struct mj_block *)(states + count),
        .mask = count - 1,
        .now = now,
        .tid = (uint32_t)mj_tid(table->control),
    };

    /* The entry may name an aggregate that was made for other markers. */
    if (table->words != MJ_BLOCK_COUNTS || table->slow_words != MJ_BLOCK_WORDS + 2 || !count ||
        count & (count - 1) || table->key_words != 1)
        return;
    struct mj_calls *calls = mj_go_in(table);

    if (!calls)
        return;
    note_thread(&heap);
    step(&heap, numbers);
    mj_go_out(calls);
}

/* SPDX-License-Identifier: MIT */
/*
 * stacks.c: instruction pointers that wait on the stacks of stopped threads.
 *
 * A thread in a signal handler has left its instruction pointer in the frame that the kernel put on
 * its stack, and rt_sigreturn(2) takes it from there. So every stack is searched from the stack
 * pointer to the end of its memory, and any word there that is an address inside a span counts.
 * Nothing is asked of what stands around the word: so neither the layout of a frame nor the
 * restorer matters, and a return address, a context that swapcontext(3) saved or the leftover of an
 * old frame in an array counts as well. A leftover refuses an edit that would have been harmless;
 * the other way round there would be harm. references.c looks for other addresses in the same way.
 *
 * Below the stack pointer nothing is alive: the kernel puts a frame below the stack pointer and the
 * red zone of what it interrupts, and runs the handler below the frame.
 *
 * A handler may run on an alternate stack. Then the interrupted stack is found by the frame's saved
 * stack pointer, and here the layout counts: arch/x86/include/uapi/asm/sigcontext.h has rsp, rip,
 * eflags and the segments in a row. Words that look like these are followed, so again a leftover
 * costs time only. Handlers that interrupt handlers are links of the same chain.
 *
 * Frames to which no stack pointer leads are not found. A handler that leaves its stack by itself
 * (swapcontext out of a handler) hides the frame, as does a scheduler that parks the code that a
 * signal interrupted. Nor are frames of 32-bit code found, whose words are smaller.
 */

#include "stacks.h"

#include "mapped.h"
#include "write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* While all threads stand; a stack is searched in some microseconds. Only a stack in the middle of
   a large heap, or thousands of deep ones, come to this. */
#define MOST_BYTES (256ul << 20)

#define CODE_64 0x33 /* cs of 64-bit user code */

enum { PAGE_BYTES = 4096, PIECE = 32 * 1024 };

/* Words of a frame by which it is recognised. */
enum { SAVED_RSP, SAVED_RIP, SAVED_EFLAGS, SAVED_SEGMENTS, SAVED_WORDS };
_Static_assert(SAVED_WORDS == FRAME_WORDS, "words of a frame");

enum {
    EFLAGS_ALWAYS = 0x202, /* bit 1, and interrupts enabled */
    EFLAGS_BITS = 22,
    SEGMENT_BITS = 48, /* cs, gs, fs; above them ss, or 0 from old kernels */
};

/* Of more threads the kernel is not asked for the memory of each stack: the text of all mappings is
   read at once. */
enum { MOST_ASKED = 256 };

/* Memory in which stacks may lie: writable mappings of a kind without a gap between them. */
struct memory {
    uint64_t start, end;
    uint64_t wanted;   /* is to be searched from here on */
    uint64_t searched; /* was searched from here on */
    struct memory *next;
    struct memory *next_asked;
    char kind; /* p, private, or s, shared */
};

struct search {
    const struct mj_target *target;
    look_fn *look;
    void *subject;
    struct window window;
    int maps;                /* of maps_open; < 0: `memories` has all that there are */
    struct memory *asked;    /* those that the kernel was asked for */
    struct memory *memories; /* in order of address */
    uint32_t count;
    struct memory *queue; /* those with something left to search */
    uint64_t bytes;       /* searched so far */
    struct mj_report *report;
};

/* ---- where stacks may lie -------------------------------------------------------------------- */

/* Of the arena, only the scratch may hold a frame. */
static uint64_t without_arena(const struct mj_target *target, uint64_t start, uint64_t end) {
    const uint64_t scratch = target->scratch;

    return scratch >= start && scratch < end && end - scratch > MJ_SCRATCH_SIZE
               ? scratch + MJ_SCRATCH_SIZE
               : end;
}

/* A line of /proc/PID/maps: `START-END rwxp …`. */
static void add_mapping(struct search *search, const char *line) {
    char *rest;
    const uint64_t start = strtoull(line, &rest, 16);
    const uint64_t end = without_arena(search->target, start, strtoull(rest + 1, &rest, 16));
    const char write = rest[2], kind = rest[4];
    struct memory *last = search->count ? &search->memories[search->count - 1] : NULL;

    if (write != 'w')
        return;
    if (last && last->end == start && last->kind == kind)
        last->end = last->wanted = last->searched = end;
    else
        search->memories[search->count++] = (struct memory){
            .start = start, .end = end, .wanted = end, .searched = end, .kind = kind};
}

static uint32_t count_lines(const char *text) {
    uint32_t lines = 0;

    for (; (text = strchr(text, '\n')); text++)
        lines++;
    return lines;
}

static int find_memories(struct search *search) {
    size_t size;
    char *maps = read_maps(search->target->pid, &size);
    int status = MJ_OK;

    if (!maps)
        return fault(search->report, 0);
    search->memories = malloc((count_lines(maps) + 1) * sizeof *search->memories);
    if (!search->memories)
        status = fault(search->report, 0);
    else if (!size) /* killed, and its memory is gone */
        status = MJ_GONE;
    else
        for (const char *line = maps; *line; line = strchr(line, '\n') + 1)
            add_mapping(search, line);
    free(maps);
    return status;
}

/* A stack that is empty begins where its memory ends. */
static struct memory *memory_of(const struct search *search, uint64_t stack_pointer) {
    uint32_t low = 0, high = search->count;

    while (low < high) { /* the first that ends above */
        const uint32_t middle = low + (high - low) / 2;

        if (search->memories[middle].end <= stack_pointer)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < search->count && search->memories[low].start <= stack_pointer)
        return &search->memories[low];
    return low && search->memories[low - 1].end == stack_pointer ? &search->memories[low - 1]
                                                                 : NULL;
}

/* ---- the same, one by one --------------------------------------------------------------------

   The kernel writes the text of a hundred mappings in the time of all else that a switch of many
   sites does while threads stand. Since Linux 6.11 it can be asked for those of the stacks. */

static struct memory *asked_before(const struct search *search, uint64_t start, uint64_t end) {
    struct memory *memory = search->asked;

    while (memory && !(memory->start <= start && end <= memory->end))
        memory = memory->next_asked;
    return memory;
}

/* Whether `mapping` goes on where memory of this kind ends. */
static int continues(const struct mj_mapping *mapping, uint64_t end, char kind) {
    return mapping->start == end && mapping->permissions & WRITABLE &&
           kind == (mapping->permissions & SHARED ? 's' : 'p');
}

/* What continues it upwards, until that ends, or memory begins that was asked for before: then it
   is the lower part of that. */
static int join_upwards(struct search *search, const struct mj_mapping *mapping,
                        struct memory *memory, struct memory **joined) {
    struct mj_mapping next = *mapping;
    int status = MJ_OK;

    *joined = NULL;
    while (status == MJ_OK && continues(&next, memory->end, memory->kind)) {
        memory->end = without_arena(search->target, next.start, next.end);
        if (memory->end != next.end)
            return MJ_OK;
        for (*joined = search->asked; *joined; *joined = (*joined)->next_asked)
            if ((*joined)->start == memory->end && (*joined)->kind == memory->kind)
                return MJ_OK;
        status = mapping_at(search->maps, memory->end, &next, search->report);
    }
    return status == MJ_MOVED ? MJ_OK : status;
}

/* The memory that covers [start, end), a byte of it; NULL where that is not memory of stacks. */
static int ask_for_memory(struct search *search, uint64_t start, uint64_t end,
                          struct memory **found) {
    struct mj_mapping mapping;
    struct memory *joined;
    int status;

    *found = asked_before(search, start, end);
    if (*found)
        return MJ_OK;
    status = mapping_at(search->maps, start, &mapping, search->report);
    if (status == MJ_MOVED || (status == MJ_OK && !(mapping.permissions & WRITABLE)))
        return MJ_OK;
    if (status != MJ_OK)
        return status;
    struct memory memory = {.start = mapping.start,
                            .end = mapping.start,
                            .kind = mapping.permissions & SHARED ? 's' : 'p'};

    status = join_upwards(search, &mapping, &memory, &joined);
    if (status != MJ_OK || end > memory.end)
        return status;
    if (joined) {
        joined->start = memory.start;
        *found = joined;
        return MJ_OK;
    }
    memory.wanted = memory.searched = memory.end;
    memory.next_asked = search->asked;
    *found = malloc(sizeof **found);
    if (!*found)
        return fault(search->report, 0);
    **found = memory;
    search->asked = *found;
    return MJ_OK;
}

/* Whether the kernel does not answer for one address: before Linux 6.11. */
static int is_unknown_question(const struct mj_report *report) {
    return report->error == ENOTTY || report->error == EINVAL;
}

static int find_memory(struct search *search, uint64_t stack_pointer, struct memory **found) {
    int status = MJ_OK;

    *found = NULL;
    if (search->maps >= 0) {
        status = ask_for_memory(search, stack_pointer, stack_pointer + 1, found);
        if (status == MJ_OK && !*found)
            status = ask_for_memory(search, stack_pointer - 1, stack_pointer, found);
        if (status != MJ_ERRNO || search->asked || !is_unknown_question(search->report))
            return status;
        close(search->maps);
        search->maps = -1;
        status = find_memories(search);
    }
    *found = memory_of(search, stack_pointer);
    return status;
}

/* ---- searching ------------------------------------------------------------------------------- */

/* MJ_STACK_UNKNOWN when this is not an address of a stack. */
static int add_stack(struct search *search, uint64_t stack_pointer) {
    struct memory *memory;
    const int status = find_memory(search, stack_pointer, &memory);

    if (status != MJ_OK || !memory)
        return status != MJ_OK ? status : MJ_STACK_UNKNOWN;
    if (stack_pointer >= memory->wanted)
        return MJ_OK;
    if (memory->wanted == memory->searched) {
        memory->next = search->queue;
        search->queue = memory;
    }
    memory->wanted = stack_pointer & -sizeof(uint64_t);
    return MJ_OK;
}

uint64_t framed_stack(const uint64_t *words) {
    const int is_frame = (words[SAVED_SEGMENTS] & ((1ul << SEGMENT_BITS) - 1)) == CODE_64 &&
                         (words[SAVED_EFLAGS] & EFLAGS_ALWAYS) == EFLAGS_ALWAYS &&
                         !(words[SAVED_EFLAGS] >> EFLAGS_BITS);

    return is_frame ? words[SAVED_RSP] : 0;
}

/* A stack pointer of a frame that leads to no stack is a leftover. */
static int follow_frame(struct search *search, uint64_t stack_pointer) {
    const int status = add_stack(search, stack_pointer);

    return status == MJ_STACK_UNKNOWN ? MJ_OK : status;
}

static int may_be_frame(const uint64_t *words) {
    return (words[SAVED_SEGMENTS] & ((1ul << SEGMENT_BITS) - 1)) == CODE_64;
}

static int is_in(struct window window, uint64_t word) { return word - window.start < window.size; }

/* The next word that is in the window, or may begin a frame. There may be millions of words, such
   as those of a heap that begins where a stack ends, and nearly all are neither. */
static size_t next_of_interest(struct window window, const uint64_t *words, size_t at,
                               size_t count) {
    while (at + SAVED_WORDS <= count && !(is_in(window, words[at]) | may_be_frame(&words[at])))
        at++;
    while (at + SAVED_WORDS > count && at < count && !is_in(window, words[at]))
        at++;
    return at;
}

static int search_words(struct search *search, const uint64_t *words, size_t count) {
    const struct window window = search->window;
    int status = MJ_OK;

    for (size_t i = next_of_interest(window, words, 0, count); i < count && status == MJ_OK;
         i = next_of_interest(window, words, i + 1, count)) {
        const uint64_t framed = i + SAVED_WORDS <= count ? framed_stack(&words[i]) : 0;

        if (is_in(window, words[i]))
            status = search->look(search->subject, words[i], search->report);
        if (status == MJ_OK && framed)
            status = follow_frame(search, framed);
    }
    return status;
}

/* A mapping that cannot be read as a whole is read page by page. A page that cannot be read is not
   a stack: its file has become shorter. */
static int search_piece(struct search *search, uint64_t address, size_t size) {
    uint64_t words[PIECE / sizeof(uint64_t)];
    int status = MJ_OK;

    if (read_bytes(search->target, address, words, size))
        return search_words(search, words, size / sizeof *words);
    if (fault(search->report, 0) == MJ_GONE)
        return MJ_GONE;
    for (const uint64_t end = address + size; address < end && status == MJ_OK; address += size) {
        size = PAGE_BYTES - address % PAGE_BYTES;
        if (size > end - address)
            size = end - address;
        if (read_bytes(search->target, address, words, size))
            status = search_words(search, words, size / sizeof *words);
    }
    return status;
}

/* The part that is not searched yet, in pieces that overlap: a frame may lie across two of them. */
static int search_memory(struct search *search, struct memory *memory) {
    const uint64_t overlap = (SAVED_WORDS - 1) * sizeof(uint64_t);
    uint64_t at = memory->wanted;
    const uint64_t end =
        memory->end - memory->searched > overlap ? memory->searched + overlap : memory->end;
    int status = MJ_OK;

    memory->searched = memory->wanted; /* a frame in it may lead to the same memory again */
    for (size_t size; status == MJ_OK; at += size - overlap) {
        size = end - at < PIECE ? end - at : PIECE;
        search->bytes += size;
        if (search->bytes > MOST_BYTES)
            return MJ_STACK_UNKNOWN;
        status = search_piece(search, at, size);
        if (at + size == end)
            break;
    }
    return status;
}

/* The stacks of one thread: its own, and those that frames lead to. */
static int search_thread(struct search *search, const struct user_regs_struct *regs) {
    int status;

    if (!regs->rip && !regs->rsp) /* the kernel's own thread in the process (io_uring) */
        return MJ_OK;
    status = add_stack(search, regs->rsp);
    while (search->queue && status == MJ_OK) {
        struct memory *memory = search->queue;

        search->queue = memory->next;
        status = search_memory(search, memory);
    }
    return status;
}

static void end_search(struct search *search) {
    for (struct memory *asked = search->asked, *next; asked; asked = next) {
        next = asked->next_asked;
        free(asked);
    }
    free(search->memories);
    if (search->maps >= 0)
        close(search->maps);
}

static struct search search_of(const struct mj_target *target, struct window window, look_fn *look,
                               void *subject, struct mj_report *report) {
    return (struct search){.target = target,
                           .look = look,
                           .subject = subject,
                           .window = window,
                           .report = report,
                           .maps = -1};
}

int search_stacks(const struct mj_target *target, const struct stopped *stopped,
                  struct window window, look_fn *look, void *subject, struct mj_report *report) {
    struct search search = search_of(target, window, look, subject, report);
    int status = MJ_OK;

    if (stopped->count <= MOST_ASKED)
        search.maps = maps_open(target->pid);
    if (search.maps < 0)
        status = find_memories(&search);
    for (uint32_t i = 0; i < stopped->count && status == MJ_OK; i++) {
        report->tid = stopped->threads[i].tid;
        status = search_thread(&search, &stopped->threads[i].regs);
    }
    end_search(&search);
    return status;
}

/* ---- all memory ------------------------------------------------------------------------------ */

/* Documentation/admin-guide/mm/pagemap.rst: of a private page that is neither in memory nor in swap
   the process has written nothing. */
#define WRITTEN (3ul << 62)

enum { PAGES = PIECE / PAGE_BYTES };

static int pagemap_open(pid_t pid) {
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/pagemap", pid);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* A piece of private memory, of so many pages at most: as many bytes of it as have to be read in a
   row, from `*address` on; 0 where there are none. */
static size_t next_written(int pagemap, uint64_t *address, uint64_t end) {
    const size_t size = sizeof(uint64_t) * PAGES;
    uint64_t pages[PAGES], at = *address, stop;
    const size_t room = end - at < PIECE ? end - at : PIECE;
    size_t first = 0, behind;

    if (pread(pagemap, pages, size, (off_t)(at / PAGE_BYTES * sizeof *pages)) != (ssize_t)size)
        return room;
    while (first * PAGE_BYTES < room && !(pages[first] & WRITTEN))
        first++;
    behind = first;
    while (behind * PAGE_BYTES < room && pages[behind] & WRITTEN)
        behind++;
    stop = at + behind * PAGE_BYTES;
    *address = at += first * PAGE_BYTES;
    if (at > end)
        *address = at = end;
    return (stop < end ? stop : end) - at;
}

static int search_all_of(struct search *search, const struct memory *memory, int pagemap) {
    int status = MJ_OK;

    for (uint64_t at = memory->start; at < memory->end && status == MJ_OK;) {
        size_t size = memory->end - at < PIECE ? memory->end - at : PIECE;

        if (memory->kind == 'p')
            size = next_written(pagemap, &at, memory->end);
        search->bytes += size;
        if (search->bytes > MOST_BYTES)
            return MJ_STACK_UNKNOWN;
        if (size)
            status = search_piece(search, at, size);
        at += size;
    }
    return status;
}

int search_everything(const struct mj_target *target, struct window window, look_fn *look,
                      void *subject, struct mj_report *report) {
    struct search search = search_of(target, window, look, subject, report);
    int status = find_memories(&search);
    const int pagemap = pagemap_open(target->pid);

    for (uint32_t i = 0; i < search.count && status == MJ_OK; i++)
        status = search_all_of(&search, &search.memories[i], pagemap);
    if (pagemap >= 0)
        close(pagemap);
    end_search(&search);
    return status;
}

static struct window window_of(const struct spans *spans) {
    if (!spans->count)
        return (struct window){0};
    return (struct window){.start = spans->spans[0].address, .size = spans->reach};
}

static int look_for_span(void *subject, uint64_t word, struct mj_report *report) {
    const struct span *span = span_around(subject, word);

    if (!span)
        return MJ_OK;
    report->index = span->index;
    return MJ_IN_SPAN;
}

int check_stacks(const struct mj_target *target, const struct stopped *stopped,
                 const struct spans *spans, struct mj_report *report) {
    return search_stacks(target, stopped, window_of(spans), look_for_span, (void *)spans, report);
}

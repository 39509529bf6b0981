/* SPDX-License-Identifier: MIT */
/*
 * ask.c: what a question asks of texts, memory and the clock (markerjit/probes/question.py).
 *
 * The text is taken as the recorder takes it, so that it has the same beginning in the process and
 * in a trace: the first MJ_MAX_ASKED bytes, up to a NUL or as many as the format says. A text that
 * is NULL or cannot be read is missing: it passes no test, and has no bytes. Nothing is asked in
 * the child of a fork. A number is read in the same way, and missing if a byte of it cannot be
 * read.
 */

#include "runtime.h"

#define ROOM (sizeof(struct mj_text) + MJ_MAX_ASKED + 2 * sizeof(uint64_t))

struct part {
    const char *bytes;
    uint64_t length;
    int missing;
};

static uint64_t least(uint64_t one, uint64_t other) { return one < other ? one : other; }

/* Whatever stands in the question: arguments and bytes are those of a call. */
static struct part part_of(const struct mj_asked *asked, const struct mj_asked_text *text,
                           const uint64_t *words, char *room) {
    const int64_t arg = text->arg < MJ_MAX_ARGS ? text->arg : 0;
    const uint64_t before = arg > 0 ? words[arg - 1] : 0;
    const struct mj_text *head = (const struct mj_text *)room;

    mj_put_text(mj_control(), asked->careful, room, words[arg], text->op, before,
                least(text->limit, MJ_MAX_ASKED));
    const int missing = head->state == MJ_TEXT_NULL || head->state == MJ_TEXT_UNREADABLE;
    const uint64_t length = missing ? 0 : head->length;
    const uint64_t high = least(text->high, length), low = least(text->low, high);

    return (struct part){room + sizeof *head + low, high - low, missing};
}

static int begins_with(const char *bytes, const char *wanted, uint64_t size) {
    uint64_t at = 0;

    while (at < size && bytes[at] == wanted[at])
        at++;
    return at == size;
}

static int contains(const struct part *text, const char *wanted, uint64_t size) {
    for (uint64_t at = 0; at + size <= text->length; at++)
        if (begins_with(text->bytes + at, wanted, size))
            return 1;
    return 0;
}

uint64_t mj_ask(const struct mj_asked *asked, const uint64_t *words) {
    const char *constant = (const char *)(asked + 1);
    char room[ROOM] __attribute__((aligned(8)));

    if (!mj_alive())
        return 0;
    const struct part text = part_of(asked, &asked->text, words, room);

    switch (asked->test) {
    case MJ_ASK_LENGTH:
        return text.length;
    case MJ_ASK_MISSING:
        return (uint64_t)text.missing;
    case MJ_ASK_EQUALS:
        return !text.missing && text.length == asked->size &&
               begins_with(text.bytes, constant, asked->size);
    case MJ_ASK_STARTS:
        return !text.missing && text.length >= asked->size &&
               begins_with(text.bytes, constant, asked->size);
    case MJ_ASK_CONTAINS:
        return !text.missing && contains(&text, constant, asked->size);
    case MJ_ASK_SAME: {
        char more[ROOM] __attribute__((aligned(8)));
        const struct part other = part_of(asked, &asked->other, words, more);

        return !text.missing && !other.missing && text.length == other.length &&
               begins_with(text.bytes, other.bytes, text.length);
    }
    default:
        return 0;
    }
}

/* Whether the number was read; `*word` says how many bytes it has, and gets it. It is never read
   from a page that is only known to be there. */
uint64_t mj_load(uint64_t address, uint64_t *word) {
    const struct mj_control *control = mj_control();
    const uint64_t size = least(*word, sizeof *word);
    int whole;

    *word = 0;
    if (address < MJ_PAGE || !mj_alive())
        return 0;
    return mj_copy(control, (char *)word, (const char *)address, size, MJ_COPY_CAREFUL, &whole) ==
           size;
}

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t mj_clock(void) { return mj_read_clock(mj_control(), MJ_TIME_MONOTONIC); }

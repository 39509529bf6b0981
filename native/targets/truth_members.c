/* SPDX-License-Identifier: MIT */
/*
 * truth_members: functions that take pointers to structures, of which debugging information says
 * the members.
 *
 *     handled  (struct request *req, const struct node *node): returns req
 *     wild     (const struct request *req): a pointer that leads nowhere, for odd turns
 *     counted  (const int *numbers, short **rows, const char *text)
 *     opaque   (struct hidden *hidden): a structure of which only the name is known
 *     packed   (const struct packed *packed): bit-fields that cross their units
 *     other    (struct node *req): the same name for another type
 *
 * Command: `run N` calls each of them N times, with values that follow from the number of the turn.
 */
#include <stdbool.h>

#include "truth.h"

#define FUNCTION __attribute__((noinline, noclone, noipa))

enum state { IDLE = -1, BUSY = 1 };
struct address {
    unsigned char host[4];
    unsigned short port;
};
struct node {
    struct node *next;
    long key;
};
struct request {
    unsigned method : 3;
    int delta : 5;
    unsigned long long wide : 40;
    bool done : 1;
    bool open;
    enum state state;
    long id;
    const char *url;
    char name[8];
    struct address addr;
    struct address *peer;
    struct node *first;
    int vec[4];
    struct address pair[2];
    union {
        unsigned raw;
        struct {
            unsigned short low, high;
        };
    };
    double load;
    void *anything;
    float ratio, ratios[2];
    long double exact;
};
struct hidden;
struct packed {
    unsigned char before : 6;
    unsigned middle : 30;
    long long far : 62;
} __attribute__((packed));

FUNCTION struct request *handled(struct request *req, const struct node *node) {
    __asm__ volatile(".nops 16" ::"r"(req), "r"(node) : "memory"); /* room for entry and exit */
    return req;
}

FUNCTION void wild(const struct request *req) { __asm__ volatile("" ::"r"(req) : "memory"); }

FUNCTION void counted(const int *numbers, short **rows, const char *text) {
    __asm__ volatile("" ::"r"(numbers), "r"(rows), "r"(text) : "memory");
}

FUNCTION void opaque(struct hidden *hidden) { __asm__ volatile("" ::"r"(hidden) : "memory"); }

FUNCTION void packed(const struct packed *packed) { __asm__ volatile("" ::"r"(packed) : "memory"); }

FUNCTION void other(struct node *req) { __asm__ volatile("" ::"r"(req) : "memory"); }

static void call_each(int i) {
    static const char *const urls[] = {"/", "/index", "/a/b", NULL};
    static short row[3];
    short *rows[] = {row, row + 1};
    struct node last = {NULL, i + 2}, middle = {&last, i + 1}, first = {&middle, i};
    struct address peer = {{127, 0, 0, (unsigned char)i}, (unsigned short)(9000 + i)};
    struct request request = {
        .method = (unsigned)i % 8,
        .delta = i % 32 - 16,
        .wide = 0xf000000000ull + (unsigned)i,
        .done = i % 2,
        .open = i % 3 == 0,
        .state = i % 2 ? BUSY : IDLE,
        .id = -i,
        .url = urls[i % 4],
        .addr = {{10, 0, 0, (unsigned char)i}, (unsigned short)(8000 + i)},
        .peer = i % 5 ? &peer : NULL,
        .first = &first,
        .vec = {i, 2 * i, 3 * i, 4 * i},
        .pair = {{{1, 2, 3, 4}, 1}, {{5, 6, 7, 8}, (unsigned short)i}},
        .raw = 0x10000u * (unsigned)i + 7,
        .load = i / 2.0,
        .anything = &first,
        .ratio = 0.1f * (float)i,
        .ratios = {0, -0.25f * (float)i},
        .exact = i,
    };
    const int numbers[] = {i, -i};
    const struct packed narrow = {(unsigned char)(i % 64), 0x20000000u + (unsigned)i, -5 - i};

    for (unsigned at = 0; at < sizeof request.name; at++) /* as long as it is: without a NUL */
        request.name[at] = (char)('a' + (i + (int)at) % 26);
    row[1] = (short)-i;
    handled(&request, &first);
    wild(i % 2 ? (const struct request *)(unsigned long)(8 * i) : &request);
    counted(numbers, rows, "text");
    opaque((struct hidden *)&request);
    packed(&narrow);
    other(&last);
}

int main(void) {
    char line[64];
    const char *rest;

    truth_ready();
    while (truth_next(line, sizeof line)) {
        if ((rest = truth_is(line, "run"))) {
            const long turns = truth_number(rest, 0);

            for (int i = 0; i < turns; i++)
                call_each(i);
            truth_say("run turns=%ld", turns);
        } else if (truth_is(line, "quit")) {
            break;
        }
    }
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * torture.h: what the parts of the victim share: places in code that it made itself, the crowd of
 * threads that executes them, and what is counted.
 *
 * It is a program for tests: it runs code that is changed under it, and reports the forms that were
 * executed. Its driver knows whether a change is right, and it does not.
 */
#ifndef TORTURE_H
#define TORTURE_H

#include <markerjit/abi.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../native/targets/truth.h"

enum { MAX_PLACES = 256, MAX_WORKERS = 64, INSTRUCTION = 8 };

/* The values that a call of a place returns. All four bytes differ, so half of each is neither. */
#define OLD_VALUE 0x1a2b3c4du
#define NEW_VALUE 0x5e6f7081u

/* One instruction (or span, or slot) with two forms. */
struct place {
    uint64_t at;
    uint64_t alias; /* the same byte in a writable mapping, or `at` itself */
    uint32_t (*call)(void);
    uint8_t size;
    uint8_t code; /* 0: a slot, which is data */
    uint8_t old_bytes[INSTRUCTION];
    uint8_t new_bytes[INSTRUCTION];
    /* A thread that meets int3 does this instead, the new form. */
    uint64_t trap_rip;
    bool trap_pushes;  /* the address behind the instruction, as a call does */
    bool trap_returns; /* NEW_VALUE in rax, as the mov does */
};

struct layout {
    const char *shape;
    unsigned boundary; /* the place lies across a multiple of this; 0: inside an aligned word */
    unsigned split;    /* bytes before the boundary */
    unsigned count;
    bool alias;
};

extern struct place places[MAX_PLACES];
extern unsigned place_count;

/* False, with a line on stderr, for an unknown shape or size. */
bool make_places(const struct layout *layout);

/* The place that begins here, or NULL. */
const struct place *place_at(uint64_t address);

/* The observations of one thread. Written by that thread alone. */
struct tally {
    truth_count executions; /* counted before the call, the rest after it */
    truth_count old_forms;
    truth_count new_forms;
    truth_count torn;        /* returned neither */
    truth_count stale;       /* returned a form that was gone: see flip.c */
    truth_count transitions; /* another form than the time before: flips seen, not flips issued */
    uint8_t last[MAX_PLACES];
};

void visit_all(struct tally *tally);

/* Number of times that a thread met int3 at a place and went on by our handler. */
extern truth_count trapped;
void install_handlers(void);

struct crowd {
    int workers;
    bool births;
    bool signals;
    const char *plugin;
};

void crowd_start(const struct crowd *crowd);
void crowd_pause(void);
void crowd_resume(void);
void crowd_say(const char *word);
unsigned long crowd_progress(void);

/*
 * The forms that the controller inside has left. Odd while it works, and before it ever did; a form
 * that is read between two equal even numbers must have been executed in between.
 */
extern _Atomic uint64_t change_sequence;
extern _Atomic uint8_t forms[MAX_PLACES];

/* `flip N PROTOCOL VIA QUIESCENCE`: N transactions, each of some places. Answers with one line. */
void flip(const char *arguments);

#endif

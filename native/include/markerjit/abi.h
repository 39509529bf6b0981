/* SPDX-License-Identifier: MIT */
/*
 * abi.h: every layout that a marked program, the runtime and the controller agree on.
 *
 * Three things are laid down here: the note by which a site describes itself, the slot through
 * which a site finds its probe, and the arena that the controller puts into the target. The
 * Python side mirrors them in markerjit/elf/notes.py and markerjit/abi.py; a test compiles
 * this file and compares every offset and constant with those mirrors.
 *
 * How it may grow. A note says its version. A reader accepts the versions that it knows and names
 * the others. Within a version, fields are only appended before the name, and `size` tells where
 * the name starts. Numbers of enumerations are never reused. MJ_ARENA_VERSION changes with any
 * change of the arena's layout or of what it means. A controller switches markers on only in an
 * arena of its own version; it reads, switches off and repairs an older one, and reads a newer one
 * (markerjit/arena/versions.py).
 */
#ifndef MARKERJIT_ABI_H
#define MARKERJIT_ABI_H

/* ---- the note ------------------------------------------------------------------------------ */

#define MJ_NOTE_OWNER "markerjit"
#define MJ_NOTE_TYPE 1
#define MJ_NOTE_VERSION 2
#define MJ_NOTE_OLDEST 1 /* the same fields; its bodies make an ordinary C call */
#define MJ_NOTE_SIZE 44  /* bytes of the descriptor before the name */
#define MJ_MAX_ARGS 12
#define MJ_MAX_WORDS 20 /* of an event: arguments of a marker, or registers at an instruction */

/* How a site is compiled. The number is in the note. */
#define MJ_KIND_jump 1      /* eb 05 (dormant) / eb 00, followed by e9 rel32 to the body       */
#define MJ_KIND_nop 2       /* a9 imm32 (dormant: test eax, imm32) / e9 rel32 to the body      */
#define MJ_KIND_pointer 3   /* cmpq $0, slot.probe; jne body                                  */
#define MJ_KIND_sentinel 4  /* always calls slot.probe, an empty function while dormant       */
#define MJ_KIND_direct 5    /* always calls one function; never dormant                       */
#define MJ_KIND_immediate 6 /* movb $0, reg; test; jne body: the immediate byte is patched    */
#define MJ_KIND_symbol 7    /* one-byte nop, for a breakpoint                                 */
#define MJ_KIND_none 8      /* nothing at all is emitted                                      */

#define MJ_FLAG_INLINE 1 /* the body also holds an inline probe */
#define MJ_FLAG_BLOCK 2  /* the body makes a preserving call, see struct mj_slot */

/*
 * The type of an argument, one byte: class in the high nibble, log2 of the size in the low one.
 * Zero is no argument. The class comes from the C type, never from the format.
 */
#define MJ_CLASS_SIGNED 1
#define MJ_CLASS_UNSIGNED 2
#define MJ_CLASS_FLOAT 3
#define MJ_CLASS_POINTER 4
#define MJ_CLASS_CHARS 5 /* char *, signed or unsigned char * */
#define MJ_CLASS_BOOL 6

/* What MARK's asm writes, as a C reader of notes sees it. Offsets are relative to their own field.
 */
#ifndef __ASSEMBLER__
#include <stdint.h>

struct mj_note {
    uint8_t version;
    uint8_t kind;
    uint8_t argc;
    uint8_t flags;
    uint16_t size; /* MJ_NOTE_SIZE: where the name starts */
    uint16_t reserved;
    int32_t site; /* first byte of the hot path's instruction; immediate: the byte itself */
    int32_t body; /* where the arguments are evaluated and the probe is called; sentinel: the empty
                     function called while dormant; 0: immediate, direct */
    int32_t end;  /* where a dormant site goes on */
    int32_t slot; /* 0: has none */
    int32_t text; /* format NUL source file NUL */
    uint32_t line;
    uint8_t types[MJ_MAX_ARGS];
    /* char name[], NUL-terminated */
};

/*
 * The slot: one for each marker name in each module, hidden, in writable data. The body loads
 * `probe`; NULL means that there is nothing to call. The note says how the body calls:
 *
 * A preserving call (MJ_FLAG_BLOCK). The body steps over the red zone and pushes its arguments, the
 * last one first, each as a word of 64 bits. The callee finds, from %rsp on:
 *
 *     0    the return address
 *     8    the shape: the number of words, and from bit MJ_SHAPE_FLOATS on a bit for each word that
 *          is a double
 *     16   the address of the slot
 *     24   the words: integers extended to 64 bits, pointers, the bits of doubles
 *
 * It leaves every register and the stack as they were; only the flags may change. %rsp is a
 * multiple of eight and no more. A probe that is a C function has bit 0 set in `probe`. Then the
 * body calls `adapter`, which counts the call and makes a C call of it.
 *
 * An ordinary C call, of sentinel sites and of all sites of notes of version 1: the probe gets the
 * slot and the arguments, as variable ones. Such a slot has 32 bytes, and no `adapter`.
 *
 * Bit 0 of `probe` asks for the call to be counted, so that whoever takes the probe away can wait
 * until no thread is inside: in `entered` and `left`, or in struct mj_calls by the controller's
 * adapters. MJ_PROBE_INLINE selects the inline probe of the body. So a probe's own address is a
 * multiple of four.
 */
struct mj_slot;
typedef void mj_probe_fn(struct mj_slot *slot, ...);
typedef void mj_adapter_fn(void); /* not for a call from C */

struct mj_slot {
    mj_probe_fn *probe;
    void *data; /* the probe's own; set before `probe`, constant while `probe` is set */
    uint64_t entered;
    uint64_t left;
    mj_adapter_fn *adapter; /* set before a `probe` with bit 0; its code stays where it is */
    uint64_t reserved[3];
};

#define MJ_PROBE_COUNTED 1ul
#define MJ_PROBE_INLINE 2ul

#endif /* !__ASSEMBLER__ */

#define MJ_SLOT_SIZE 64
#define MJ_SLOT_SIZE_OF_C 32 /* of one whose bodies make an ordinary C call */
#define MJ_SLOT_DATA 8
#define MJ_SLOT_ENTERED 16
#define MJ_SLOT_LEFT 24
#define MJ_SLOT_ADAPTER 32
#define MJ_SLOT_OWNER 40 /* of a slot in an arena */
/* Of such a slot of a function's entry: what says that its arguments are kept, 0 while they are
   not; and the struct mj_stash where. Of one of its exits: returns whose entry was not seen, and
   what its probe takes of what was kept: the probe itself in MJ_SLOT_TAKES says that it takes
   nothing, the probe + MJ_TAKES_TIME that it takes the time of the entry and makes the duration of
   that, and any other number that it takes the duration. A stub compares it with the probe that it
   calls. docs/decisions/0038-what-an-entry-leaves-for-the-exits.md */
#define MJ_SLOT_TOKEN 48
#define MJ_SLOT_STASH 56
#define MJ_SLOT_UNMATCHED 48
#define MJ_SLOT_TAKES 56
#define MJ_TAKES_TIME 1 /* with the address of an own recorder, which is aligned to 32 */

/* What the entries of functions keep for their exits: struct mj_stash in a page of its own, which a
   fork's child has, too; the table of pages of stacks; and from MJ_STASH_KEPT on, for each of these
   pages MJ_STASH_STRIDE bytes for each of its words. */
#define MJ_STASH_BITS 12
#define MJ_STASH_PAGES (1 << MJ_STASH_BITS)
#define MJ_STASH_TRIES 32 /* places where a page may be */
#define MJ_STASH_STRIDE_BITS 7
#define MJ_STASH_STRIDE (1 << MJ_STASH_STRIDE_BITS)
#define MJ_STASH_ARGS 9
#define MJ_STASH_KEPT (9 * MJ_PAGE)
#define MJ_STASH_SIZE (MJ_STASH_KEPT + MJ_STASH_PAGES * (MJ_PAGE / 8) * MJ_STASH_STRIDE)
#define MJ_STASH_LOST 24
#define MJ_STASH_TABLE MJ_PAGE
#define MJ_STASH_SPREAD 0x9e3779b97f4a7c15 /* 2 ** 64 / 1.618: spreads numbers that follow */

/* Stacks: frames at most, bits of the first word of one, and what ended it. An address of a frame
   has MJ_FRAME_EXACT where it is an instruction that was to be executed; others follow a call. It
   has MJ_FRAME_UNKNOWN where the object of the directory was not there any more. */
#define MJ_MAX_STACK_DEPTH 256
#define MJ_STACK_END 16
#define MJ_STACK_FRAMES ((1 << MJ_STACK_END) - 1) /* mask */
#define MJ_STACK_EPOCH 32                         /* from this bit on */
#define MJ_FRAME_EXACT (1ul << 63)
#define MJ_FRAME_UNKNOWN (1ul << 62)
#define MJ_END_OUTERMOST 0
#define MJ_END_NO_TABLE 1
#define MJ_END_DAMAGED 2
#define MJ_END_DEEPER 3
#define MJ_END_ELSEWHERE 4 /* the return address is in memory that is not known to be code */
#define MJ_DIRECTORIES 16
#define MJ_MAX_CODES 8192
#define MJ_DIRECTORY_SIZE (MJ_MAX_CODES * 48)
#define MJ_UNWINDS 8192
#define MJ_STACK_PLACES (1 << 17)
#define MJ_STACK_WORDS (1 << 22)
#define MJ_STACK_TRIES 16 /* places where a stack may be */
#define MJ_STACKS_TABLES MJ_PAGE
#define MJ_STACKS_DIRECTORIES (MJ_STACKS_TABLES + MJ_UNWINDS * 24)
#define MJ_STACKS_PLACES (MJ_STACKS_DIRECTORIES + MJ_DIRECTORIES * MJ_DIRECTORY_SIZE)
#define MJ_STACKS_WORDS (MJ_STACKS_PLACES + MJ_STACK_PLACES * 8)
#define MJ_STACKS_RULES (MJ_STACKS_WORDS + MJ_STACK_WORDS * 8)
#define MJ_STACKS_SIZE (MJ_STACKS_RULES + (256 << 20))
#define MJ_STACKS_RECENT_BITS 13
#define MJ_STACKS_RECENT (MJ_STACKS_SIZE - (8 << MJ_STACKS_RECENT_BITS))
#define MJ_STACKS_RECENT_DIRECTORIES 64 /* after so many all recent rules are erased */

/* Behind the arena the memfd has more, of which nothing is mapped in front of it: from the arena's
   end and MJ_APART on the struct mj_stacks, when it is first needed, and MJ_APART behind that the
   bytes of islands, MJ_ISLANDS_SIZE at most. */
#define MJ_APART (16 * MJ_PAGE)
#define MJ_ISLANDS_SIZE (256 << 20)

/* What an instruction behind a stub's call of a probe names (`movabs`, %rax is free there): the
   site, MJ_SITE_ABOVE: how many words are between the last one of the call and the program's stack,
   and whether a call has pushed a return address there, from which the stack is walked. */
#define MJ_SITE_ABOVE 48
#define MJ_SITE_CALLED (1ul << 63)

#define MJ_RED_ZONE 128
#define MJ_SHAPE_FLOATS 8
#define MJ_CALL_SHAPE 8
#define MJ_CALL_SLOT 16
#define MJ_CALL_WORDS 24

/* ---- the arena -------------------------------------------------------------------------------
 *
 * A memfd that the target makes and maps as one piece. It begins with, for all time:
 *
 *     code      MJ_CODE_SIZE bytes, r-x: the runtime, position-independent, and behind it what is
 *               made for this process: recorders, questions, and probes written in C
 *     control   one page: struct mj_control
 *     alive     a page that is not of the memfd but private, and wiped in the child of a fork
 *     readable  uint64_t[MJ_READABLE]: pages that can be read, in private memory like `alive`
 *     slots     struct mj_slot of sites that no compiler prepared; private, too, so that those of a
 *               fork's child are empty. MJ_SLOT_OWNER has the name_hash of the marker
 *
 * The other parts are where the table in the control block says, `count` entries of `entry_size`
 * bytes each:
 *
 *     markers   struct mj_marker
 *     counts    struct mj_count[2 * cpus][markers]
 *     calls     struct mj_calls[2 * cpus][markers]
 *     patches   struct mj_patch, an open-addressing hash table
 *     edits     struct mj_edit, of the journal
 *     heads     struct mj_ring[2 * cpus]
 *     commits   uint64_t[cpus][bytes of a ring / MJ_PAGE], of the shared rings
 *     rings     [2 * cpus], of each of which as many bytes are used as its mask says
 *     units     struct mj_unit
 *     islands   struct mj_island
 *     scratch   where a borrowed thread finds its way back from
 *     data      the variables of probes
 *     aggregates  struct mj_aggregate[MJ_AGGREGATES], and behind them the memory of their tables
 *
 * The tables are large; the memfd has holes where nothing was ever written.
 *
 * A structure of the control block or of a table keeps its fields where they are, and gets new ones
 * at its end. A reader takes `entry_size` as the distance between entries: it leaves a tail alone
 * that it does not know, and what a shorter entry does not have reads as zeros. The runtime is of
 * its arena's version, always, and need not ask.
 *
 * All offsets in the control block count from the start of the arena. Everything from `control` on
 * is writable by the target, so a controller believes nothing in it: it checks every number against
 * what it mapped.
 */
#define MJ_ARENA_MAGIC 0x74696a72656b726d /* "mrkerjit" in memory */
#define MJ_ARENA_VERSION 9
#define MJ_ARENA_NAME "markerjit"
#define MJ_PAGE 4096
#define MJ_CODE_SIZE (2048 * MJ_PAGE)
#define MJ_RUNTIME_SIZE (7 * MJ_PAGE) /* of the code; what is made for the process comes behind */
/* Offset of a word of eight bytes: 0 in a fork's child. Its lower half is `cpus`, or 0 where no
   CPU's own ring is to be written any more; then the upper half is 1. */
#define MJ_ALIVE (MJ_CODE_SIZE + MJ_PAGE)
#define MJ_SCRATCH_SIZE (16 * MJ_PAGE)
#define MJ_DATA_SIZE (8192 * MJ_PAGE)

#define MJ_CPU_RDPID 1u /* rdpid works; otherwise the CPU number is read with lsl */
#define MJ_CPU_RTM 2u   /* memory transactions work: a read in one cannot fault */
#define MJ_CPU_TSC 4u   /* the time stamp counter is the same on all CPUs */
#define MJ_CPU_PKU 8u   /* pages may have protection keys, and rdpkru works */
#define MJ_CPU_XSAVE 16 /* the system uses XSAVE; without a suffix, for assembly */

/* Restartable sequences of restart.S, in `sequences` of the control block. */
#define MJ_SEQUENCE_APPEND 0
#define MJ_SEQUENCE_TURN 1
#define MJ_SEQUENCE_TALLY 2
#define MJ_SEQUENCE_COUNT 3
#define MJ_SEQUENCE_ENTER 4
#define MJ_SEQUENCE_LEAVE 5
#define MJ_SEQUENCE_ENTER_SAVING 6
#define MJ_SEQUENCE_LEAVE_SAVING 7
#define MJ_SEQUENCES 8
/* More of them, in `cell_sequences`. */
#define MJ_CELL_ADD 0
#define MJ_CELL_SET 1
#define MJ_CELL_SEQUENCES 2
#define MJ_RSEQ_SIGNATURE 0x53053053 /* before an abort handler; glibc's, on x86 */

/* No event waits for a reader that has asked for no records for MJ_READER_NS, and none waits longer
   than MJ_WAIT_NS for room in its ring. docs/decisions/0026-growing-rings.md */
#define MJ_READER_NS 2000000000ul
#define MJ_WAIT_NS 10000000000ul

/* Parts of the arena, by their places in the table of the control block. */
#define MJ_PART_MARKERS 0
#define MJ_PART_COUNTS 1
#define MJ_PART_PATCHES 2
#define MJ_PART_EDITS 3
#define MJ_PART_HEADS 4
#define MJ_PART_COMMITS 5
#define MJ_PART_RINGS 6
#define MJ_PART_UNITS 7
#define MJ_PART_ISLANDS 8
#define MJ_PART_SCRATCH 9
#define MJ_PART_DATA 10
#define MJ_PART_CALLERS 11
#define MJ_PART_READABLE 12
#define MJ_PART_CALLS 13
#define MJ_PART_SLOTS 14
#define MJ_PART_AGGREGATES 15
#define MJ_PARTS 16

/* Whether the runtime's handler is the action for SIGTRAP, in `trap_installed`. It is INSTALLING
   from before the call that makes it so. The flags of `old_trap` have MJ_TRAP_NOT_YET until the
   kernel has made that call and has written there what it replaced. */
#define MJ_TRAP_NONE 0
#define MJ_TRAP_INSTALLED 1
#define MJ_TRAP_INSTALLING 2
#define MJ_TRAP_NOT_YET (1ul << 63)
/*
 * Pages that could be read a moment ago. The word at MJ_READABLE_PLACE of the page's number is its
 * upper bits, and above them the time stamp counter without its lower MJ_READABLE_WINDOW bits, when
 * the kernel said so. So a word holds for some 0.7 ms, in which the counter's upper bits are those.
 * Each is one aligned store; one that is lost, or that another page replaces, costs a question.
 * docs/decisions/0023-strings-by-known-pages.md
 */
#define MJ_READABLE_BITS 10
#define MJ_READABLE (1 << MJ_READABLE_BITS)
#define MJ_READABLE_TAG 25 /* bits of a page's number above those: addresses have 47 */
#define MJ_READABLE_WINDOW 21

/* The first four bytes of a record: its marker's index, and from MJ_WORDS_SHIFT on its size in
   words of eight bytes. No record has more than a page, so ten bits are enough for that. */
#define MJ_WORDS_SHIFT 22
#define MJ_FILLER ((1 << MJ_WORDS_SHIFT) - 1) /* in the place of the index: fills a page */

/* Aggregates. A ticket's remainder by MJ_AGGREGATES is its entry. */
#define MJ_AGGREGATES 256
#define MJ_AGGREGATE_SIZE 192
#define MJ_MAX_KEY_PARTS 6
#define MJ_MAX_KEY_WORDS 64
#define MJ_KEY_NUMBER 0
#define MJ_KEY_TEXT 1
#define MJ_KEY_CONSTANT 2
#define MJ_KEY_TEXT_AT 3 /* a text whose address is the next of the numbers */
#define MJ_VALUE_NONE 0
#define MJ_VALUE_SIGNED 1
#define MJ_VALUE_UNSIGNED 2
#define MJ_VALUE_FLOAT 3

/* The words of a key: with HIST or QUANTILES its buckets, and nothing else; otherwise the number of
   events, then for SUM two words, for MIN and MAX one each. A sum is the first word, signed, and
   2 ** 64 times the second, or a double. That of MAX is larger where the value is, and 0 for none;
   that of MIN has the opposite bits. */
#define MJ_DOES_SUM 1
#define MJ_DOES_MIN 2
#define MJ_DOES_MAX 4
#define MJ_DOES_HIST 8
#define MJ_DOES_QUANTILES 16

/* Words before those of the first key: events that were not added, since */
#define MJ_MISSED_FULL 0       /* there was no room for another key, */
#define MJ_MISSED_LONG 1       /* a text of the key was too long, */
#define MJ_MISSED_NAN 2        /* or the value was no number, */
#define MJ_MISSED_UNREADABLE 3 /* or a number of it could not be read */
/* And of pairs: begins that */
#define MJ_MISSED_REPLACED 4       /* another one replaced, */
#define MJ_MISSED_FORGOTTEN 5      /* or that gave their place to another one after a long time; */
#define MJ_MISSED_ALONE 6          /* ends without a begin, */
#define MJ_MISSED_END_LONG 7       /* and those whose key had no room, */
#define MJ_MISSED_END_UNREADABLE 8 /* or could not be read; */
#define MJ_MISSED_UNSHOWN 9        /* slow pairs for which there was no room in the list */
/* And of blocks: */
#define MJ_MISSED_UNKNOWN 10 /* frees of what was not seen to be allocated, */
#define MJ_MISSED_UNSEEN 11  /* and allocations whose address is not known */
#define MJ_MISSED 16

/* Pairs: the state of a place, from the lowest bit on: one of these, how often the place was given,
   and from MJ_PLACE_TAG on the upper bits of the key's hash. */
#define MJ_PLACE_FREE 0
#define MJ_PLACE_BUSY 1 /* a thread writes or takes it */
#define MJ_PLACE_FULL 2
#define MJ_PLACE_STATE 3 /* mask */
#define MJ_PLACE_TAG 48
#define MJ_PLACES_OF_KEY 16 /* one behind the other, where a key may be */
#define MJ_MAX_FIELD_PARTS 12
/* Words of a begin that waits, before its fields: its time, the thread with the marker above, and
   the number of its group + 1, or 0. */
#define MJ_HELD_WORDS 3
#define MJ_MAX_FIELD_WORDS 128 /* of one end of a pair */
/* Words of a slow pair, before its fields: its number + 1 when all else is written, the time of the
   begin, nanoseconds, the thread and marker of both ends, and the number of the begin's group + 1,
   or 0. Of a marker with `took_at` the time is that of the end, and the number that of its key. */
#define MJ_SLOW_WORDS 6
/* Blocks: words of one, and what is counted for each site. */
#define MJ_BLOCK_WORDS 6 /* struct mj_block */
#define MJ_BLOCK_ALLOCATIONS 0
#define MJ_BLOCK_ASKED 1
#define MJ_BLOCK_GIVEN 2
#define MJ_BLOCK_FAILED 3     /* allocations that gave no block */
#define MJ_BLOCK_FREES 4      /* with the next four */
#define MJ_BLOCK_THREADS 5    /* by another thread, */
#define MJ_BLOCK_CPUS 6       /* or on another CPU, than the allocation */
#define MJ_BLOCK_LIFE 7       /* nanoseconds in all */
#define MJ_BLOCK_LONGEST 8    /* and at most */
#define MJ_BLOCK_REUSED 9     /* addresses that were given out again without a free */
#define MJ_BLOCK_UNTRACKED 10 /* blocks for which there was no room */
#define MJ_BLOCK_LIVES 11     /* lifetimes by the number of their bits, from here on */
#define MJ_BLOCK_COUNTS (MJ_BLOCK_LIVES + 48)
/* Bits of a key that no address has: the key is of what the thread with this number has begun, a
   reallocation, or, with both bits, an allocation that another function finishes. */
#define MJ_BLOCK_KEPT (1ul << 63)
#define MJ_BLOCK_JUMP (1ul << 62)
#define MJ_NO_SITE 0xffff /* the number of a block's site that is not known; and a mask */
/* Steps of an allocator: markerjit/allocations/steps.py. */
#define MJ_STEP_FREE 1
#define MJ_STEP_MOVE 2
#define MJ_STEP_ALLOC 3
#define MJ_STEP_OUTER 4
#define MJ_STEP_MOVED 5
#define MJ_STEP_RESULT 6
/* In the place of a block. */
#define MJ_BLOCK_UNSEEN 1
#define MJ_BLOCK_CONTINUED 2
#define MJ_BLOCK_OWN 3
/* How many bytes an allocator gives for what was asked. */
#define MJ_GIVES_ASKED 0
#define MJ_GIVES_GLIBC 1
#define MJ_GIVES_JEMALLOC 2

/* Buckets: of powers of two, or finer, 2 ** MJ_PARTS_BITS to a power of two. That of 0 is the first
   for values without a sign, otherwise the one in the middle. */
#define MJ_PARTS_BITS 5
#define MJ_EXPONENTS_BELOW 32 /* of doubles: from 2 ** -32, and what is smaller counts as 0, */
#define MJ_EXPONENTS_ABOVE 64 /* up to 2 ** 64 */
#define MJ_MIDDLE 64
#define MJ_MIDDLE_FINE 1920
#define MJ_MIDDLE_FLOAT 96
#define MJ_MIDDLE_FINE_FLOAT 3072

#ifndef __ASSEMBLER__
/* struct sigaction as the kernel has it: rt_sigaction(2), arch/x86/include/uapi/asm/signal.h */
struct mj_sigaction {
    uint64_t handler;
    uint64_t flags;
    uint64_t restorer;
    uint64_t mask;
};

/*
 * A controller. A pid alone is given away again, so the moment of its start goes with it (field 22
 * of /proc/PID/stat), and the pid namespace in which the number counts (inode of
 * /proc/PID/ns/pid).
 */
struct mj_owner {
    uint32_t pid; /* 0: none */
    uint32_t pid_namespace;
    uint64_t started;
};

/*
 * What a controller is about to write, so that the next one can finish it or take it back. The
 * edits are in the journal before `state` is MJ_JOURNAL_OPEN, and that is before the first of them
 * is written; it is MJ_JOURNAL_EMPTY again when all are written or all are taken back. A journal
 * that is open while the target's lock is free belongs to a controller that died, or that has
 * paused between two steps: then `until` says for how long the change is left to it.
 */
#define MJ_JOURNAL_EMPTY 0
#define MJ_JOURNAL_OPEN 1
struct mj_journal {
    uint32_t state;
    uint32_t edits;
    uint32_t since; /* CLOCK_REALTIME, seconds */
    uint32_t until; /* of a change that is made in steps, CLOCK_MONOTONIC, seconds; otherwise 0 */
    struct mj_owner owner;
};

/*
 * One place to change. Edits with the same step are written together, and steps in their order,
 * with the cores synchronised after each that changes code.
 */
struct mj_edit {
    uint64_t address;
    uint8_t size;  /* 1 to 16 */
    uint8_t step;  /* never smaller than that of the edit before */
    uint8_t code;  /* threads execute these bytes */
    uint8_t again; /* an earlier step writes here too: not compared before that */
    uint8_t store; /* by one aligned store of 1, 2, 4 or 8 bytes; only in our own process, where
                      the address is writable */
    uint8_t reserved[3];
    uint8_t old_bytes[16];
    uint8_t new_bytes[16];
};

/*
 * A restartable sequence, as the kernel reads it: rseq(2), include/uapi/linux/rseq.h. A thread that
 * is interrupted between `start` and `start + length` goes on at `abort`.
 */
struct mj_restartable {
    uint32_t version;
    uint32_t flags;
    uint64_t start;
    uint64_t length;
    uint64_t abort;
} __attribute__((aligned(32)));

/* A part of the arena. One that there is not has a count of 0. */
struct mj_part {
    uint64_t offset;
    uint32_t entry_size;
    uint32_t count;
};

struct mj_control {
    /* What stands so for all time, whatever the version: */
    uint64_t magic;
    uint32_t version;
    uint32_t control_size; /* bytes of this structure */
    uint64_t arena_size;
    uint32_t cpus;      /* how many CPU numbers there can be; two rings for each */
    uint32_t ring_size; /* of rings at first, a power of two; changes while nothing is recorded */
    struct mj_part parts[MJ_PARTS];
    /* and what may be longer in another one: */
    uint64_t runtime_id; /* a hash of the runtime's code */
    uint32_t cpu_flags;
    uint32_t pid;          /* as the process itself has it */
    int32_t tid_offset;    /* where a thread's id stands, from its fs base; < 0: not found */
    int32_t rseq_offset;   /* where struct rseq does; 0: there is none to be used */
    uint64_t clock;        /* address of the vDSO's clock_gettime; 0: none was found */
    struct mj_owner owner; /* its maker, and when: CLOCK_REALTIME, seconds */
    uint64_t owner_since;
    struct mj_sigaction old_trap;  /* the target's own SIGTRAP action, to pass on to */
    struct mj_sigaction seen_trap; /* for the controller: where the target's kernel puts an answer,
                                      and finds the new action */
    uint32_t trap_installed;       /* MJ_TRAP_... */
    uint32_t markers_used;
    uint32_t patches_used;    /* entries of the table that have an address */
    uint32_t patches_changed; /* how often what the table says of heads was changed */
    uint32_t units_used;
    uint32_t code_used; /* by the runtime and recorders; all other code is at the other end */
    uint32_t data_used; /* bytes of the data that were ever used */
    uint32_t reading;   /* how often the rings were claimed by a reader: the last claim's number */
    struct mj_owner reader; /* the process that takes records out */
    uint64_t lease_ns;      /* until when, CLOCK_MONOTONIC; 0: for ever */
    struct mj_journal journal;
    uint32_t callers_used;
    struct mj_restartable sequences[MJ_SEQUENCES];
    uint64_t wait_until_ns; /* until when events may wait for the reader, CLOCK_MONOTONIC, written
                               by it; 0: they do not */
    uint32_t passes;        /* by the reader: how often it has been through all rings */
    uint32_t waiting;       /* threads that wait */
    uint64_t waits;         /* events that have waited, and for how long in all */
    uint64_t waited_ns;
    uint64_t until_ns; /* the earliest `until_ns` of all markers; 0: all of those are 0 */
    struct mj_restartable cell_sequences[MJ_CELL_SEQUENCES];
    uint64_t aggregates_made;   /* how many there ever were: a part of their tickets */
    uint64_t questions_changed; /* how often the code of a question came or went */
    uint64_t stash;             /* address of the struct mj_stash; 0: there is none */
    uint64_t stash_tokens;      /* the last token that a slot has got */
    uint64_t ns_per_tick;       /* of the time stamp counter, 32 binary places; with the stash */
    uint64_t stacks;            /* address of the struct mj_stacks; 0: there is none */
    uint64_t stacks_at;         /* and its offset in the memfd */
};

/*
 * How the recorder takes an argument from the call: one of these, and log2 of its size in a record
 * in the high nibble.
 */
#define MJ_OP_SKIP 0    /* a general register that is not recorded                           */
#define MJ_OP_GP 1      /* a general register                                                */
#define MJ_OP_FP 2      /* a double                                                          */
#define MJ_OP_STRING 3  /* char *, to its NUL, at most `limit` bytes                         */
#define MJ_OP_BYTES 4   /* char *, to its NUL, as long as the argument before says, or `limit` */
#define MJ_OP_PREFIX 5  /* char *, to its NUL or `limit` bytes, and nothing is behind (%.8s) */
#define MJ_OP_RAW 6     /* as many bytes as the argument before says, or `limit` (%*ph)      */
#define MJ_OP_SKIP_FP 7 /* a double that is not recorded                                     */
#define MJ_OP_SINCE                                                                                \
    8 /* a duration, nanoseconds; with bit MJ_SINCE_TICKS the time stamp counter                   \
         when it began, and then the recorder computes the duration           */
#define MJ_SINCE_TICKS 63

/* Where the time of a record comes from. */
#define MJ_TIME_NONE 0      /* it has none */
#define MJ_TIME_TSC 1       /* the time stamp counter */
#define MJ_TIME_MONOTONIC 2 /* CLOCK_MONOTONIC, nanoseconds */
#define MJ_TIME_COARSE 3    /* CLOCK_MONOTONIC_COARSE, nanoseconds */

/*
 * What the runtime needs to know of a marker; its index is the id in the records. A marker has an
 * entry for each way in which it was recorded. What is for the controllers only is written by the
 * one that holds the target's lock, but for `delivered`.
 */
struct mj_marker {
    uint64_t name_hash; /* FNV-1a of the marker's signature, to find it again; 0: free */
    uint64_t since;     /* switched on at, CLOCK_REALTIME seconds; 0: off */
    uint32_t by;        /* pid of the controller that switched it last; 0: off */
    uint32_t id;
    uint8_t argc;
    uint8_t mode;     /* how it is on, for people; 0: off */
    uint8_t asks;     /* what stands behind its question: MJ_ASKS_...; 0: it has none */
    uint8_t to_stack; /* words from its first one to the program's stack pointer, which is recorded
                         behind the time; 0: it is not. Only of calls of stubs */
    uint8_t ops[MJ_MAX_ARGS];
    uint16_t limits[MJ_MAX_ARGS]; /* of texts, bytes */
    uint16_t size;                /* bytes of a record, its texts empty */
    uint8_t time;                 /* MJ_TIME_... */
    uint8_t tid;                  /* 1: record the thread's id */
    uint32_t recorder;            /* offset of the code made for it; 0: none, mj_record does it */
    uint32_t held;                /* the `reading` that it records for; 0: none */
    uint64_t passed_before; /* its counters, added up, when the trace or flight recorder began */
    uint64_t lost_before;
    uint64_t delivered;     /* written by the reader: records that it took out of the rings */
    uint64_t calls;         /* of probes in C, but for the one that is connected now */
    uint64_t calls_before;  /* calls that its slots had counted when that was connected */
    uint64_t hits_before;   /* hits of all entries with its signature when it was switched on */
    uint64_t losses_before; /* and how many of them were not recorded */
    uint8_t counted;        /* 1: each execution is counted as `passed`; 0: the reader counts */
    uint8_t calling;        /* 1: a probe in C is connected, and its slots count the calls */
    uint8_t careful;        /* 1: texts are never read from a page that is only known to be there */
    uint8_t waits;          /* 1: where its ring is full, it waits for the reader: wait_until_ns */
    uint32_t recorder_of_c; /* as `recorder`, for slots whose bodies make an ordinary C call */
    char name[64];          /* cut when it is longer; for people */
    uint64_t question;      /* FNV-1a of the question, to find it again */
    uint32_t question_text; /* offset and bytes of its text, in UTF-8: it stands behind the code */
    uint32_t question_size;
    uint64_t until_ns;  /* it is to be off by then, CLOCK_MONOTONIC; 0: it stays */
    uint64_t aggregate; /* the ticket of the one that it adds to; 0: none */
    uint8_t more_ops[MJ_MAX_WORDS - MJ_MAX_ARGS]; /* of the words behind `ops`: numbers */
};

/* `recorder` of an entry with a question is the code of that, which jumps to the probe or returns.
   Up to the end of the text all is of that question: its code, a recorder, the text. Without code
   the entry is free for another question about the same marker: nothing leads to it.
   docs/decisions/0033-questions-before-probes.md */
#define MJ_ASKS_NOTHING 0
#define MJ_ASKS_BEFORE_COUNT 1
#define MJ_ASKS_BEFORE_RECORD 2
#define MJ_ASKS_AGGREGATE 3 /* its code adds to an aggregate, and returns */

/* One for each ring and marker, so that CPUs do not share a line. */
struct mj_count {
    uint64_t passed; /* executions of the probe, but for those lost and those the reader counts */
    uint64_t lost;   /* not recorded: the ring was full */
};

/*
 * Calls of probes in C through the adapters of the runtime: one for each ring and marker, as above.
 * A thread may leave on another CPU than that on which it entered, so only the sums over all rings
 * mean something. No thread is inside where the sum of `left`, read first, is that of `entered`.
 * docs/decisions/0025-who-is-inside.md
 */
struct mj_calls {
    uint64_t entered;
    uint64_t left;
};

/* An entry that asks before a probe has other words there, for its brakes. In the row of a CPU's
   own ring: the state of a generator, which only this CPU changes, but for a thread that just came
   from it; and how many events were held back. In the row of the first shared ring: the time of the
   next event, and the highest number of the generator that takes one.
   docs/decisions/0045-brakes.md */

/*
 * A head: bytes of code that are ours to change. The table says what of ours may stand where; with
 * an empty journal a head that is open is in it, and whether it is open the code says. Only of a
 * breakpoint the code does not say whose it is: `planted` does. An entry stays when its head is
 * closed. docs/decisions/0019-one-table-of-patches.md
 *
 * A thread that comes to a breakpoint goes on at `body`, as if it had executed the instruction
 * there. The entry keeps its `body`, because a thread may be on its way here, and because the child
 * of a fork shares the table and may still have the code.
 *
 * `body` and `gone` are for both sides, all else is for controllers. It changes only while the
 * journal is open, or under the lock to what stands in the code.
 */
struct mj_patch {
    uint64_t address; /* of the head; 0: free */
    uint64_t body;    /* 0: no breakpoint of ours ever stood here */
    uint64_t slot;    /* of the site; 0: it has none */
    uint8_t gone;     /* the code of `body` was unloaded; but a fork's child may have it */
    uint8_t mode;     /* how it is opened, for people */
    uint8_t size;     /* bytes of the head, up to 16; 0: the head is gone */
    uint8_t kind;     /* MJ_PATCH_* */
    uint8_t planted;  /* the breakpoint stands in the code of this process */
    uint8_t covers;   /* bytes of the instructions that are lost with the head; 0: those of it */
    int8_t reach;     /* the displacement of the short jump, of MJ_PATCH_SHORT */
    uint8_t reserved;
    uint8_t before[16]; /* the head while it is closed, and while it is open */
    uint8_t after[16];
};
#define MJ_PATCH_HEAD 0
#define MJ_PATCH_SHORT 1 /* a head that a short jump opens, to the last five bytes of a hole */
#define MJ_PATCH_HOLE 2  /* no head: what a short jump leads to, while its head is open so */

/*
 * A file of probes that was put into the arena. Its names stand behind its variables, as JSON
 * (markerjit/probes/loaded.py). What is not of a unit, a question or a recorder is free: `state` is
 * written last when a unit comes, and first when it goes.
 * docs/decisions/0021-giving-back-and-islands.md
 */
struct mj_unit {
    uint64_t code; /* offsets */
    uint64_t data;
    uint64_t about;
    uint32_t code_size;
    uint32_t data_size;
    uint32_t state;
    uint32_t order;     /* 1, 2, ...: no other unit of this arena ever has the same */
    uint8_t digest[32]; /* of what was compiled */
};
#define MJ_UNIT_FREE 0
#define MJ_UNIT_READY 1
#define MJ_UNIT_KEPT 2     /* as READY; but not all its callers are known, so it never goes */
#define MJ_UNIT_REPLACES 3 /* as READY; but nobody counts who is inside */

/* A slot that may hold a probe of a unit, or may have held one. It is written before the slot gets
   the probe. One whose unit is not there any more is free. */
struct mj_caller {
    uint64_t slot; /* an address */
    uint64_t unit; /* its `order` */
};

/* Code of ours within 2 GiB of an object: bytes of the memfd behind the arena, mapped there and
   nowhere else; `size` 0: none. It is written before it is mapped.
   docs/decisions/0061-islands-behind-the-arena.md */
struct mj_island {
    uint64_t start; /* an address */
    uint64_t size;
    uint64_t used;
    uint64_t offset; /* in the memfd */
};

/*
 * The head of a ring. Positions count bytes from the start of the trace and never wrap; the bytes
 * of position p are at p & mask.
 *
 * Ring c, of CPU c, is written by threads on that CPU only, in restartable sequences: nothing but
 * the store of `head`, the last of a sequence, makes a record part of it. `room` is the end of the
 * page, or what the reader's limit was: with the head in it, only every page needs a look at that.
 * The reader may make a ring twice as large while it is written: it sets the mask where the old and
 * the new one mean the same places, and moves the limit only then.
 * docs/decisions/0026-growing-rings.md
 *
 * Ring cpus + c is the shared one, for threads without restartable sequences and for those that
 * were just interrupted in one; several CPUs may write it, by compare-and-swap of `head`.
 */
struct mj_ring {
    uint64_t head __attribute__((aligned(64))); /* written by the runtime; shared: reserved up to */
    uint64_t room;                              /* a record may end here, and no further */
    uint64_t data;                              /* address of the ring's bytes */
    uint64_t mask;                              /* its size, a power of two, - 1 */
    uint64_t limit
        __attribute__((aligned(64))); /* written by the reader: no further; ~0: overwrite */
    uint64_t begun;                   /* the same: what is older belongs to an earlier trace */
};

/*
 * A record: marker, size, thread, then the time if its marker has one, and the fields, each at a
 * multiple of its size (markerjit/ring/types.py has all rules). It never crosses a page: what is
 * left of one is filled by a record of id MJ_FILLER.
 *
 * In a shared ring a commit word stands before each record, and is written last. It says the
 * position, so that a word left over from an earlier lap is never taken for it; its size counts
 * the word itself. MJ_FILLER is then a commit word whose record, if there is room for one, says so.
 */
struct mj_record {
    uint32_t head; /* marker, and from MJ_WORDS_SHIFT on the size in words of eight bytes */
    uint32_t tid;
    /* uint64_t time; payload */
};
#define MJ_MAX_RECORD (MJ_PAGE - 8)

/* A text in a record: this, then its bytes; at a multiple of eight, and so is what comes after. */
struct mj_text {
    uint32_t length;
    uint32_t state;
};
#define MJ_TEXT_WHOLE 0
#define MJ_TEXT_CUT 1        /* it is longer */
#define MJ_TEXT_NULL 2       /* the pointer was NULL, or in the first page */
#define MJ_TEXT_UNREADABLE 3 /* nothing can be read there */

/* A text that a question is about: as the recorder takes it (MJ_OP_..., limits), and of that the
   bytes from `low` up to, and without, `high`. `arg` is the number of an argument, or negative: a
   word of the question's own, so many below the arguments, that has the text's address. */
struct mj_asked_text {
    int8_t arg;
    uint8_t op;
    uint16_t limit;
    uint16_t low;
    uint16_t high;
};

/* What a question asks of a text, behind its code: native/src/runtime/ask.c. A constant follows. */
struct mj_asked {
    uint8_t test; /* MJ_ASK_... */
    uint8_t careful;
    uint16_t size; /* of the constant, bytes */
    uint32_t unused;
    struct mj_asked_text text;
    struct mj_asked_text other;
};
#define MJ_ASK_LENGTH 0
#define MJ_ASK_MISSING 1
#define MJ_ASK_EQUALS 2
#define MJ_ASK_STARTS 3
#define MJ_ASK_CONTAINS 4
#define MJ_ASK_SAME 5    /* as another text */
#define MJ_MAX_ASKED 256 /* bytes of a text that are looked at */

/*
 * An aggregate: keys, and for each key some words that are counted up while markers are executed.
 * Its memory is behind the entries of all aggregates:
 *
 *     keys     [mask + 1], an open-addressing hash table: a word that is 0 where the place is free,
 *              1 where it is claimed, else the upper half of the hash and the number + 2; then the
 *              words of the key
 *     values   for each ring MJ_MISSED words, and then `words` for each number of a key
 *
 * The words of ring c are those of CPU c, those of ring cpus + c are shared, as rings are. A ticket
 * is the number of the entry and, times MJ_AGGREGATES, how many aggregates there were: none is
 * given twice. It is written last when an aggregate comes, and first when it goes. Then `went` has
 * it, and the memory belongs to nobody else until no thread is inside.
 *
 * Pairs have in the place of `keys` the begins that wait:
 *
 *     states   [mask + 1]: MJ_PLACE_...
 *     places   [mask + 1]: the words of the key, then `held_words`
 *     groups   [group_mask + 1], where pairs are divided by what their begins say: keys as above
 *     values   as above, for the pairs without a group and then for each group: fine buckets of
 *              nanoseconds, their sum, the largest
 *     slow     [slow_room]: pairs that took long
 *
 * Blocks of an allocator have keys and values as an aggregate, for the sites that have asked for
 * them: MJ_BLOCK_COUNTS words for each. In the place of the slow pairs stand the blocks:
 *
 *     states   [slow_room]: MJ_PLACE_..., as those of pairs
 *     blocks   struct mj_block[slow_room]
 *     threads  [slow_room] words: a bit for each thread that was seen, by its number
 *
 * docs/decisions/0040-aggregates.md, 0043-latencies.md, 0064-pairs-are-divided-at-the-begin.md and
 * 0065-blocks-in-the-target.md
 */
struct mj_aggregate {
    uint64_t ticket; /* 0: free */
    uint32_t key_words;
    uint32_t mask;
    uint32_t room; /* keys at most, half as many as there are places for them */
    uint32_t words;
    uint64_t keys;   /* offsets */
    uint64_t values; /* of ring 0 */
    uint64_t stride; /* bytes from ring to ring */
    struct mj_owner owner;
    uint64_t used
        __attribute__((aligned(64))); /* keys that have a number; written by the runtime */
    uint64_t offset;                  /* of its memory, */
    uint64_t size;                    /* bytes, whole pages; 0: it has none */
    uint64_t went;                    /* the ticket that it had, while a thread may be inside */
    uint32_t held_words;              /* of pairs: words of a begin behind its key; 0: no pairs */
    uint32_t slow_words;              /* of a slow pair */
    uint64_t slow;                    /* offset of the list of slow pairs, */
    uint32_t slow_room;               /* which has room for so many, a power of two; 0: none */
    uint32_t lost;                    /* 1: a thread stayed inside, and the memory is nobody's */
    uint32_t group_words;             /* of the key of a group of pairs; 0: there are none */
    uint32_t group_mask;              /* there is room for half as many groups as places */
    uint64_t slow_head __attribute__((aligned(64))); /* how many there were; by the runtime */
    uint64_t slow_read;                              /* and how many were taken; by the reader */
    uint64_t tick_ns; /* nanoseconds of a tick of the clock of pairs, times 2 ** 32 */
    uint64_t forget;  /* ticks, after which a begin gives its place to another one */
    uint64_t live;    /* bytes of all blocks, as they were given, */
    uint64_t most;    /* how many these were at most, */
    uint64_t most_at; /* and when */
    uint64_t spilled; /* blocks that are not where they were looked for first */
};

/* A block, or what a thread has begun and not ended, which has a key that no block has. */
struct mj_block {
    uint64_t key; /* the address */
    uint64_t time;
    uint64_t asked;
    uint64_t given;
    uint64_t where; /* the thread << 32 | CPU << 16 | the number of the site */
    uint64_t old;   /* of what was begun: the block that is moved, or the kind of step */
};

/* A part of a key: a number; a text, of an argument or at an address: its length, ~0 for one that
   is missing, its bytes and zeros; or words that stand behind the code. */
struct mj_key_part {
    uint8_t kind; /* MJ_KEY_... */
    uint8_t words;
    uint16_t constant; /* bytes from the struct mj_aggregation on */
    struct mj_asked_text text;
};

/* What the code of a marker adds, and to which key; it stands behind the code. */
struct mj_aggregation {
    uint64_t marker; /* address of its entry */
    uint8_t does;    /* MJ_DOES_... */
    uint8_t value;   /* MJ_VALUE_... */
    uint8_t careful;
    uint8_t parts;
    uint16_t key_words;
    uint16_t value_at; /* its place among the numbers that the code has computed */
    struct mj_key_part part[MJ_MAX_KEY_PARTS];
    uint16_t missing_at; /* place + 1 of a number that is not 0 where one could not be read */
    uint16_t reserved[3];
};

/* A key of a site: the number of a stack, a return address, or the number of a marker. */
#define MJ_SITE_STACK (1ul << 63)
#define MJ_SITE_MARKER (1ul << 62)

/* The same of a marker that begins or ends a pair. Its parts are those of its group, which only a
   begin has, then those of the key, then fields.

   Where `took_at` is not 0 it ends a pair by itself: the return of a function, which knows when
   that was entered. Its aggregate has keys and no begins, and for each key fine buckets of
   nanoseconds, their sum and the largest; and the list of slow pairs. */
struct mj_pairing {
    uint64_t marker;
    uint64_t slower_ns; /* pairs that take as long are put into the list */
    uint8_t ends;
    uint8_t time; /* MJ_TIME_TSC or MJ_TIME_MONOTONIC */
    uint8_t careful;
    uint8_t parts;
    uint8_t fields;
    uint8_t took_at; /* place + 1 of the nanoseconds, among the numbers */
    uint16_t key_words;
    uint16_t field_words;
    uint16_t missing_at;
    uint8_t step;     /* MJ_STEP_...: no pair, but a step of an allocator. Its numbers are block, */
    uint8_t gives;    /* bytes asked for, and caller; then, where they are there, the number of */
    uint8_t stack_at; /* a stack and the word before the block: places + 1. MJ_GIVES_... */
    uint8_t header_at; /* says what is given where there is no such word */
    uint16_t group_parts;
    uint16_t group_words;
    uint16_t group_missing_at;
    uint16_t reserved;
    struct mj_key_part part[MJ_MAX_KEY_PARTS + MJ_MAX_FIELD_PARTS];
};

/*
 * Where the entries of functions keep their arguments for the exits, in private memory. A place
 * belongs to a word of a stack: the one that rsp leads to at the entry, and at the exit again. A
 * page of a stack gets its places when the first entry on it keeps something, and has them for
 * good.
 */
struct mj_stash {
    uint64_t claim; /* addresses of functions of the runtime: native/src/runtime/stash.S */
    uint64_t find;
    uint64_t ns_per_tick; /* of the time stamp counter, and 32 binary places */
    uint64_t lost;        /* entries that found no place */
    uint64_t reserved[4];
    /* uint64_t pages[MJ_STASH_PAGES]: numbers of pages of stacks; 0: free */
};

/* A place. The token is written last, and is 0 when an exit has taken the rest. */
struct mj_kept {
    uint64_t token;
    uint64_t time; /* the time stamp counter, at the entry */
    uint64_t args[MJ_STASH_ARGS];
    uint64_t reserved[5];
};

/*
 * What the runtime needs to walk stacks, and the stacks that it has seen: a piece of the memfd
 * behind the arena, mapped elsewhere when it is first needed. From its start, in this order:
 *
 *     header       struct mj_stacks, one page
 *     tables       struct mj_unwind[MJ_UNWINDS]: which tables of unwind rules there are, for
 *                  controllers
 *     directories  MJ_DIRECTORIES of them, MJ_DIRECTORY_SIZE bytes each: struct mj_code[]
 *     places       uint64_t[places_mask + 1]: 0 for a free one, 1 where it is claimed, else the
 *                  upper half of the stack's hash and its number
 *     words        uint64_t[words_room]: the stacks. The number of a stack is that of its first
 *                  word: how many frames, from MJ_STACK_END on what ended it, and from
 *                  MJ_STACK_EPOCH on the epoch. The frames follow, the innermost first
 *     rules        the tables, each as markerjit/unwind/table.py has it
 *     recent       uint64_t[1 << MJ_STACKS_RECENT_BITS], at the end: rules by the addresses of
 *                  frames, as the runtime found them last (native/src/runtime/recent.h). A
 * controller only erases them
 *
 * A directory is written when it is nobody's, and is in force when `directory` has its number; that
 * of number n is in the place n % MJ_DIRECTORIES. So a walk that finds, at its end, that as many
 * were made meanwhile is thrown away.
 *
 * An address is of one object in all directories of an epoch. So where another object comes to an
 * address, a new epoch begins, and stacks that lead there have other numbers from then on.
 *
 * docs/decisions/0048-stacks-in-the-target.md
 */
struct mj_stacks {
    uint64_t directory;              /* 0: none yet */
    uint64_t counts[MJ_DIRECTORIES]; /* entries of each */
    uint64_t rules_used;
    uint64_t words_room;
    uint64_t places_mask;
    uint64_t seen;                                    /* FNV-1a of what the directory was made of */
    uint64_t words_used __attribute__((aligned(64))); /* by the runtime, from here on */
    uint64_t lost;                                    /* stacks that found no room */
    uint64_t epochs[MJ_DIRECTORIES] __attribute__((aligned(64))); /* of each directory */
};

/* Addresses that can be executed. An object is believed to be there for as long as `mark` has
   `value`: so code that is mapped in its place later has no table. */
struct mj_code {
    uint64_t start;
    uint64_t stop;
    uint64_t rules; /* offset of the table; 0: it has none */
    uint64_t bias;  /* the object's addresses are those of its file and this */
    uint64_t mark;  /* an address */
    uint64_t value;
};

/* A table that is there: what it is known by, and where. */
struct mj_unwind {
    uint64_t digest;
    uint64_t offset;
    uint64_t size;
};

/* The header of a table: markerjit/unwind/table.py. Behind it are the index, where rules begin, and
   the rules (markerjit/unwind/rules.py). */
struct mj_rules {
    char magic[8];
    uint32_t version;
    uint32_t count;
    uint64_t low;
    uint64_t high;
};

/* Where the runtime's functions are: the first words of its code, as offsets from its start. */
struct mj_entry {
    uint64_t magic; /* MJ_ARENA_MAGIC */
    uint32_t version;
    uint32_t size; /* bytes of code */
    uint32_t record;
    uint32_t count;
    uint32_t trap;
    uint32_t restorer;
    uint32_t record_event; /* for recorders and probes: mj_record with a struct mj_marker * */
    uint32_t pass;
    uint32_t turn;
    uint32_t lose;
    uint32_t fetch;
    uint32_t record_block; /* `record` and `count`, reached by a preserving call */
    uint32_t count_block;
    uint32_t call; /* adapters: for C functions that use general registers only, and any others */
    uint32_t call_saving_vectors;
    uint32_t gate_record; /* for recorders that are reached so: native/src/runtime/call.S */
    uint32_t gate_pass;
    uint32_t gate_lose;
    uint32_t gate_ask; /* for questions */
    struct {
        uint32_t start, end, abort;
    } sequences[MJ_SEQUENCES];
    uint32_t gate_load; /* for questions, too */
    uint32_t gate_clock;
    uint32_t gate_aggregate;
    struct {
        uint32_t start, end, abort;
    } cell_sequences[MJ_CELL_SEQUENCES];
    uint32_t gate_pair;
    uint32_t stash_claim; /* for stubs of entries, and of exits */
    uint32_t stash_find;
    uint32_t gate_stack; /* for questions, too */
};

#endif /* !__ASSEMBLER__ */

/* Offsets for restart.S and recorders; record.c compares them with the structures. */
#define MJ_CONTROL_ARENA_SIZE 16
#define MJ_CONTROL_CPUS 24
#define MJ_CONTROL_PARTS 32
#define MJ_PART_SIZE 16
#define MJ_PART_COUNT 12
#define MJ_CONTROL_CPU_FLAGS 296
#define MJ_CONTROL_RSEQ_OFFSET 308
#define MJ_CONTROL_SEQUENCES 512
#define MJ_CONTROL_CELL_SEQUENCES 832
#define MJ_MARKER_ID 20
#define MJ_RING_ROOM 8
#define MJ_RING_DATA 16
#define MJ_RING_MASK 24
#define MJ_RING_LIMIT 64
#define MJ_RSEQ_CPU 4      /* struct rseq: cpu_id */
#define MJ_RSEQ_SEQUENCE 8 /* struct rseq: rseq_cs */

#endif

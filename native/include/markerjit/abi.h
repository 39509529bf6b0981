/* SPDX-License-Identifier: MIT */
/*
 * abi.h: every layout that a marked program, the runtime and the controller share.
 *
 * There are three: the note by which a site describes itself, the slot through which a site finds
 * its probe, and the arena that the controller puts into the target. The Python side mirrors them
 * in markerjit/elf/notes.py and markerjit/abi.py. A test compiles this file and compares every
 * offset and constant with those mirrors.
 *
 * Compatibility. A note has its version. A reader accepts the versions that it knows and reports
 * the others. Within a version, fields are only appended before the name, and `size` tells where
 * the name starts. Numbers of enumerations are never reused. MJ_ARENA_VERSION changes with any
 * change of the arena's layout or meaning. A controller switches markers on only in an arena of its
 * own version. It reads, switches off and repairs an older arena, and reads a newer one
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
#define MJ_MAX_WORDS 20 /* in an event: arguments of a marker, or registers at an instruction */

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
 * Zero means that there is no argument. The class comes from the C type, never from the format.
 */
#define MJ_CLASS_SIGNED 1
#define MJ_CLASS_UNSIGNED 2
#define MJ_CLASS_FLOAT 3
#define MJ_CLASS_POINTER 4
#define MJ_CLASS_CHARS 5 /* char *, signed or unsigned char * */
#define MJ_CLASS_BOOL 6

/* The descriptor that MARK's asm writes. Offsets are relative to their own field. */
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
    int32_t end;  /* where a dormant site continues */
    int32_t slot; /* 0: the site has none */
    int32_t text; /* format NUL source file NUL */
    uint32_t line;
    uint8_t types[MJ_MAX_ARGS];
    /* char name[], NUL-terminated */
};

/*
 * The slot: one for each marker name in each module, hidden, in writable data. The body loads
 * `probe`. NULL means that there is nothing to call. The note says which kind of call it makes:
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
 * Bit 0 of `probe` asks for the call to be counted, in `entered` and `left`, or in struct mj_calls
 * by the controller's adapters. So the remover of a probe can wait until no thread is inside.
 * MJ_PROBE_INLINE selects the inline probe of the body. Therefore a probe's own address is a
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
    mj_adapter_fn *adapter; /* set before a `probe` with bit 0; its code is never removed */
    uint64_t reserved[3];
};

#define MJ_PROBE_COUNTED 1ul
#define MJ_PROBE_INLINE 2ul

#endif /* !__ASSEMBLER__ */

#define MJ_SLOT_SIZE 64
#define MJ_SLOT_SIZE_OF_C 32 /* of a slot whose bodies make an ordinary C call */
#define MJ_SLOT_DATA 8
#define MJ_SLOT_ENTERED 16
#define MJ_SLOT_LEFT 24
#define MJ_SLOT_ADAPTER 32
#define MJ_SLOT_OWNER 40 /* of a slot in an arena */
/*
 * A slot in an arena for a function's entry has a token, which is 0 while no arguments are kept,
 * and the address of the struct mj_stash that keeps them. The slot of one of its exits has the
 * number of returns whose entry was not seen, and in MJ_SLOT_TAKES what its probe takes of the kept
 * data:
 *
 *     the probe itself          nothing
 *     the probe + MJ_TAKES_TIME the time of the entry, of which the probe makes the duration
 *     anything else             the duration
 *
 * A stub compares this with the probe that it calls.
 * docs/decisions/0038-what-an-entry-leaves-for-the-exits.md
 */
#define MJ_SLOT_TOKEN 48
#define MJ_SLOT_STASH 56
#define MJ_SLOT_UNMATCHED 48
#define MJ_SLOT_TAKES 56
#define MJ_TAKES_TIME 1 /* with the address of an own recorder, which is aligned to 32 */

/* The stash, in which the entries of functions keep data for their exits: struct mj_stash in a page
   of its own, which the child of a fork also has; the table of stack pages; and from MJ_STASH_KEPT
   on, MJ_STASH_STRIDE bytes for each word of each of these pages. */
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

/* Stacks: the most frames, the bits of a stack's first word, and the reasons why a stack ends. The
   address of a frame has MJ_FRAME_EXACT if it is the instruction that was to be executed; otherwise
   it is a return address. It has MJ_FRAME_UNKNOWN if the directory's object was not there any more.
 */
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
#define MJ_STACKS_RECENT_DIRECTORIES 64 /* after this many, all recent rules are erased */

/* The memfd continues behind the arena. The struct mj_stacks begins MJ_APART behind the arena's
   end, once it is needed. The bytes of islands begin MJ_APART behind that, at most MJ_ISLANDS_SIZE.
   They are mapped elsewhere, and never as a part of the arena. */
#define MJ_APART (16 * MJ_PAGE)
#define MJ_ISLANDS_SIZE (256 << 20)

/* The operand of an instruction behind a stub's call of a probe (`movabs`; %rax is free there). It
   has the site; from MJ_SITE_ABOVE on, the number of words between the last word of the call and
   the program's stack; and whether a call has pushed a return address there, from which the stack
   is walked. */
#define MJ_SITE_ABOVE 48
#define MJ_SITE_CALLED (1ul << 63)

#define MJ_RED_ZONE 128
#define MJ_SHAPE_FLOATS 8
#define MJ_CALL_SHAPE 8
#define MJ_CALL_SLOT 16
#define MJ_CALL_WORDS 24

/* ---- the arena -------------------------------------------------------------------------------
 *
 * A memfd that the target makes and maps as one piece. In every version it begins with:
 *
 *     code      MJ_CODE_SIZE bytes, r-x: the runtime, position-independent, and behind it the code
 *               made for this process: recorders, questions, and probes written in C
 *     control   one page: struct mj_control
 *     alive     a page that is not of the memfd but private, and wiped in the child of a fork
 *     readable  uint64_t[MJ_READABLE]: pages that can be read, in private memory like `alive`
 *     slots     struct mj_slot of sites that no compiler prepared; also private, so that those of a
 *               fork's child are empty. MJ_SLOT_OWNER has the name_hash of the marker
 *
 * The table in the control block has the places of the other parts, `count` entries of `entry_size`
 * bytes each:
 *
 *     markers   struct mj_marker
 *     counts    struct mj_count[2 * cpus][markers]
 *     calls     struct mj_calls[2 * cpus][markers]
 *     patches   struct mj_patch, an open-addressing hash table
 *     edits     struct mj_edit, of the journal
 *     heads     struct mj_ring[2 * cpus]
 *     commits   uint64_t[cpus][bytes of a ring / MJ_PAGE], of the shared rings
 *     rings     [2 * cpus]; the mask of each says how many of its bytes are used
 *     units     struct mj_unit
 *     islands   struct mj_island
 *     scratch   the stack of a borrowed thread, from which it finds its way back
 *     data      the variables of probes
 *     aggregates  struct mj_aggregate[MJ_AGGREGATES], and behind them the memory of their tables
 *
 * The tables are large. The memfd has holes where nothing was ever written.
 *
 * A structure of the control block or of a table keeps its fields in their places, and new ones are
 * appended. A reader takes `entry_size` as the distance between entries. It ignores a tail that it
 * does not know, and reads the missing fields of a shorter entry as zeros. The runtime always has
 * the version of its arena and need not check.
 *
 * All offsets in the control block count from the start of the arena. Everything from `control` on
 * is writable by the target, so a controller trusts nothing in it, and checks every number against
 * the memory that it mapped.
 */
#define MJ_ARENA_MAGIC 0x74696a72656b726d /* "mrkerjit" in memory */
#define MJ_ARENA_VERSION 9
#define MJ_ARENA_NAME "markerjit"
#define MJ_PAGE 4096
#define MJ_CODE_SIZE (2048 * MJ_PAGE)
#define MJ_RUNTIME_SIZE (7 * MJ_PAGE) /* of the code; the code made for the process follows */
/* Offset of a word of eight bytes, which is 0 in the child of a fork. Its lower half is `cpus`.
   Once no CPU's own ring is to be written any more, the lower half is 0 and the upper half is 1. */
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
/* More restartable sequences, in `cell_sequences`. */
#define MJ_CELL_ADD 0
#define MJ_CELL_SET 1
#define MJ_CELL_SEQUENCES 2
#define MJ_RSEQ_SIGNATURE 0x53053053 /* before an abort handler; the one of glibc on x86 */

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

/* Whether the runtime's handler is the action for SIGTRAP, in `trap_installed`. INSTALLING is set
   before the system call that installs it. The flags of `old_trap` have MJ_TRAP_NOT_YET until the
   kernel has executed that call and has written the replaced action there. */
#define MJ_TRAP_NONE 0
#define MJ_TRAP_INSTALLED 1
#define MJ_TRAP_INSTALLING 2
#define MJ_TRAP_NOT_YET (1ul << 63)
/*
 * Pages that could be read a moment ago. A page's word, at MJ_READABLE_PLACE of its number, has the
 * upper bits of that number. Above them it has the time stamp counter, without its lower
 * MJ_READABLE_WINDOW bits, of the moment when the kernel found the page readable. So a word is
 * valid until these bits of the counter change, within about 0.7 ms. Each word is one aligned
 * store. If a word is lost, or replaced by that of another page, the kernel is asked again.
 * docs/decisions/0023-strings-by-known-pages.md
 */
#define MJ_READABLE_BITS 10
#define MJ_READABLE (1 << MJ_READABLE_BITS)
#define MJ_READABLE_TAG 25 /* the bits of a page's number above those: addresses have 47 bits */
#define MJ_READABLE_WINDOW 21

/* The first four bytes of a record: its marker's index, and from MJ_WORDS_SHIFT on its size in
   words of eight bytes. No record has more than a page, so ten bits are enough for that. */
#define MJ_WORDS_SHIFT 22
#define MJ_FILLER ((1 << MJ_WORDS_SHIFT) - 1) /* in the place of the index: fills a page */

/* Aggregates. The remainder of a ticket by MJ_AGGREGATES is the number of its entry. */
#define MJ_AGGREGATES 256
#define MJ_AGGREGATE_SIZE 192
/* The hash of a key is the sum of its words, each times a factor: that of the first word, and what
   each factor is times the one before it. The order of the bytes is then turned round, since the
   upper ones depend on all bits of the words. */
#define MJ_HASH_FACTOR 0x9e3779b97f4a7c15
#define MJ_HASH_STEP 0xd1342543de82ef95
#define MJ_MAX_KEY_PARTS 6
#define MJ_MAX_KEY_WORDS 64
#define MJ_KEY_NUMBER 0
#define MJ_KEY_TEXT 1
#define MJ_KEY_CONSTANT 2
#define MJ_KEY_TEXT_AT 3 /* a text whose address is the next number */
#define MJ_VALUE_NONE 0
#define MJ_VALUE_SIGNED 1
#define MJ_VALUE_UNSIGNED 2
#define MJ_VALUE_FLOAT 3

/* The words of a key. With HIST or QUANTILES these are its buckets, and nothing else. Otherwise
   they are the number of events, then two words for SUM, and one each for MIN and MAX. A sum is the
   first word, signed, plus 2 ** 64 times the second, or it is a double. The word of MAX grows with
   the value, and is 0 for none. The word of MIN has the inverted bits. */
#define MJ_DOES_SUM 1
#define MJ_DOES_MIN 2
#define MJ_DOES_MAX 4
#define MJ_DOES_HIST 8
#define MJ_DOES_QUANTILES 16

/* Words before those of the first key count the events that were not added, by reason: */
#define MJ_MISSED_FULL 0       /* there was no room for another key */
#define MJ_MISSED_LONG 1       /* a text of the key was too long */
#define MJ_MISSED_NAN 2        /* the value was not a number */
#define MJ_MISSED_UNREADABLE 3 /* a number of the key or the value could not be read */
/* For pairs they also count: */
#define MJ_MISSED_REPLACED 4       /* begins that another begin replaced */
#define MJ_MISSED_FORGOTTEN 5      /* begins that gave their place to another after a long time */
#define MJ_MISSED_ALONE 6          /* ends without a begin */
#define MJ_MISSED_END_LONG 7       /* ends with a text too long for the key */
#define MJ_MISSED_END_UNREADABLE 8 /* ends with a number of the key that could not be read */
#define MJ_MISSED_UNSHOWN 9        /* slow pairs for which there was no room in the list */
/* For blocks they also count: */
#define MJ_MISSED_UNKNOWN 10 /* frees of blocks whose allocation was not seen */
#define MJ_MISSED_UNSEEN 11  /* allocations whose address is not known */
#define MJ_MISSED 16

/* Pairs: the state of a place has, from the lowest bit on, one of these values, the number of times
   that the place was given, and from MJ_PLACE_TAG on the upper bits of the key's hash. */
#define MJ_PLACE_FREE 0
#define MJ_PLACE_BUSY 1 /* a thread writes or takes it */
#define MJ_PLACE_FULL 2
#define MJ_PLACE_STATE 3 /* mask */
#define MJ_PLACE_TAG 48
#define MJ_PLACES_OF_KEY 16 /* consecutive places in which a key may be */
#define MJ_MAX_FIELD_PARTS 12
/* Words of a waiting begin, before its fields: its time; the thread, with the marker in the upper
   half; and the number of its group + 1, or 0. */
#define MJ_HELD_WORDS 3
#define MJ_MAX_FIELD_WORDS 128 /* of one end of a pair */
/* Words of a slow pair, before its fields: its number + 1, written last; the time of the begin; the
   duration in nanoseconds; the thread and marker of both ends; and the number of the begin's group
   + 1, or 0. For a marker with `took_at` the time is that of the end, and the last number is that
   of its key. */
#define MJ_SLOW_WORDS 6
/* Blocks: the words of one, and the counts of each site. */
#define MJ_BLOCK_WORDS 6 /* struct mj_block */
#define MJ_BLOCK_ALLOCATIONS 0
#define MJ_BLOCK_ASKED 1
#define MJ_BLOCK_GIVEN 2
#define MJ_BLOCK_FAILED 3     /* allocations that gave no block */
#define MJ_BLOCK_FREES 4      /* blocks that were freed; the next four are about these */
#define MJ_BLOCK_THREADS 5    /* freed by another thread than allocated */
#define MJ_BLOCK_CPUS 6       /* freed on another CPU than allocated */
#define MJ_BLOCK_LIFE 7       /* the sum of their lifetimes, nanoseconds */
#define MJ_BLOCK_LONGEST 8    /* the longest lifetime, nanoseconds */
#define MJ_BLOCK_REUSED 9     /* addresses that were given out again without a free */
#define MJ_BLOCK_UNTRACKED 10 /* blocks for which there was no room */
#define MJ_BLOCK_LIVES 11     /* lifetimes by the number of their bits, from here on */
#define MJ_BLOCK_COUNTS (MJ_BLOCK_LIVES + 48)
/* Bits that no address has. A key with the first bit belongs to a reallocation that the thread with
   this number has begun. A key with both bits belongs to an allocation that the thread has begun
   and that another function finishes. */
#define MJ_BLOCK_KEPT (1ul << 63)
#define MJ_BLOCK_JUMP (1ul << 62)
#define MJ_NO_SITE 0xffff /* the number of an unknown site, and the mask of a site's number */
/* Steps of an allocator: markerjit/allocations/steps.py. */
#define MJ_STEP_FREE 1
#define MJ_STEP_MOVE 2
#define MJ_STEP_ALLOC 3
#define MJ_STEP_OUTER 4
#define MJ_STEP_MOVED 5
#define MJ_STEP_RESULT 6
/* Values in the place of a block's address: markerjit/allocations/steps.py. */
#define MJ_BLOCK_UNSEEN 1
#define MJ_BLOCK_CONTINUED 2
#define MJ_BLOCK_OWN 3
/* The rules for the bytes that an allocator gives for a request. */
#define MJ_GIVES_ASKED 0
#define MJ_GIVES_GLIBC 1
#define MJ_GIVES_JEMALLOC 2

/* Buckets of powers of two, or finer ones, 2 ** MJ_PARTS_BITS to a power of two. The bucket of 0 is
   the first one for unsigned values, and the middle one for others. */
#define MJ_PARTS_BITS 5
#define MJ_EXPONENTS_BELOW 32 /* of doubles: from 2 ** -32, and what is smaller counts as 0, */
#define MJ_EXPONENTS_ABOVE 64 /* up to 2 ** 64; what is larger is in one more bucket */
#define MJ_MIDDLE 64
#define MJ_MIDDLE_FINE 1920
#define MJ_MIDDLE_FLOAT 97
#define MJ_MIDDLE_FINE_FLOAT 3073

#ifndef __ASSEMBLER__
/* struct sigaction as the kernel has it: rt_sigaction(2), arch/x86/include/uapi/asm/signal.h */
struct mj_sigaction {
    uint64_t handler;
    uint64_t flags;
    uint64_t restorer;
    uint64_t mask;
};

/*
 * A controller. Pids are reused, so the start time of the process goes with its pid (field 22 of
 * /proc/PID/stat), and so does the pid namespace in which the pid is valid (inode of
 * /proc/PID/ns/pid).
 */
struct mj_owner {
    uint32_t pid; /* 0: none */
    uint32_t pid_namespace;
    uint64_t started;
};

/*
 * The edits that a controller is about to write, so that the next one can finish them or take them
 * back. All edits are in the journal before `state` becomes MJ_JOURNAL_OPEN, and `state` is open
 * before the first edit is written to its place. It is MJ_JOURNAL_EMPTY again when all edits are
 * written or all are taken back. A journal that is open while the target's lock is free belongs to
 * a controller that died, or that has paused between two steps. In the latter case `until` says how
 * long the change is reserved for it.
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
 * One place to change. Edits of the same step are written together. Steps are written in order, and
 * the cores are synchronised after each step that changes code.
 */
struct mj_edit {
    uint64_t address;
    uint8_t size;  /* 1 to 16 */
    uint8_t step;  /* never smaller than that of the edit before */
    uint8_t code;  /* threads execute these bytes */
    uint8_t again; /* an earlier step writes here too: not compared before that step */
    uint8_t store; /* write it by one aligned store of 1, 2, 4 or 8 bytes; only in our own process,
                      where the address is writable */
    uint8_t early; /* a word of a slot in the arena to which no thread has ever come: it may be
                      written before threads are stopped */
    uint8_t reserved[2];
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

/* A part of the arena. A part that does not exist has a count of 0. */
struct mj_part {
    uint64_t offset;
    uint32_t entry_size;
    uint32_t count;
};

struct mj_control {
    /* The same in every version: */
    uint64_t magic;
    uint32_t version;
    uint32_t control_size; /* bytes of this structure */
    uint64_t arena_size;
    uint32_t cpus;      /* the number of possible CPU numbers; each has two rings */
    uint32_t ring_size; /* initial bytes of a ring, a power of two; changes while nothing records */
    struct mj_part parts[MJ_PARTS];
    /* Other versions may have fewer or more of these: */
    uint64_t runtime_id; /* a hash of the runtime's code */
    uint32_t cpu_flags;
    uint32_t pid;                 /* in the process's own pid namespace */
    int32_t tid_offset;           /* of a thread's id from its fs base; < 0: not found */
    int32_t rseq_offset;          /* of struct rseq from the fs base; 0: there is none to be used */
    uint64_t clock;               /* address of the vDSO's clock_gettime; 0: none was found */
    struct mj_owner owner;        /* the controller that made the arena */
    uint64_t owner_since;         /* the time of that, CLOCK_REALTIME, seconds */
    struct mj_sigaction old_trap; /* the target's own SIGTRAP action, to pass on to */
    struct mj_sigaction seen_trap; /* for system calls of the controller: the kernel reads the new
                                      action here, and writes its answer here */
    uint32_t trap_installed;       /* MJ_TRAP_... */
    uint32_t markers_used;
    uint32_t patches_used;    /* entries of the table that have an address */
    uint32_t patches_changed; /* another number after each change of the table; odd meanwhile */
    uint32_t units_used;
    uint32_t code_used; /* by the runtime and recorders; all other code is at the other end */
    uint32_t data_used; /* bytes of the data that were ever used */
    uint32_t reading;   /* the number of times that a reader claimed the rings: the last claim */
    struct mj_owner reader; /* the process that takes records out */
    uint64_t lease_ns;      /* the end of its lease, CLOCK_MONOTONIC; 0: there is no end */
    struct mj_journal journal;
    uint32_t callers_used;
    struct mj_restartable sequences[MJ_SEQUENCES];
    uint64_t wait_until_ns; /* events may wait for the reader until then, CLOCK_MONOTONIC, written
                               by the reader; 0: they do not wait */
    uint32_t passes;        /* the number of the reader's passes through all rings; by the reader */
    uint32_t waiting;       /* threads that wait */
    uint64_t waits;         /* events that have waited */
    uint64_t waited_ns;     /* the sum of their waiting times */
    uint64_t until_ns;      /* the earliest `until_ns` of all markers; 0: all of those are 0 */
    struct mj_restartable cell_sequences[MJ_CELL_SEQUENCES];
    uint64_t aggregates_made;   /* the number of all that were ever made: a part of their tickets */
    uint64_t questions_changed; /* the number of changes to the code of questions */
    uint64_t stash;             /* address of the struct mj_stash; 0: there is none */
    uint64_t stash_tokens;      /* the last token that was given to a slot */
    uint64_t ns_per_tick;       /* of the time stamp counter, 32 binary places; with the stash */
    uint64_t stacks;            /* address of the struct mj_stacks; 0: there is none */
    uint64_t stacks_at;         /* its offset in the memfd */
};

/*
 * The way in which the recorder takes an argument from the call: one of these, with log2 of the
 * argument's size in a record in the high nibble.
 */
#define MJ_OP_SKIP 0    /* a general register that is not recorded                           */
#define MJ_OP_GP 1      /* a general register                                                */
#define MJ_OP_FP 2      /* a double                                                          */
#define MJ_OP_STRING 3  /* char *, to its NUL, at most `limit` bytes                         */
#define MJ_OP_BYTES 4   /* char *, to its NUL, at most the previous argument or `limit` bytes */
#define MJ_OP_PREFIX 5  /* char *, to its NUL or `limit` bytes; nothing is read behind (%.8s) */
#define MJ_OP_RAW 6     /* as many bytes as the previous argument says, at most `limit` (%*ph) */
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
 * The runtime's data of a marker. The index of the entry is the id in the records. A marker has an
 * entry for each way in which it was recorded. To write the fields that only controllers use, a
 * controller must hold the target's lock, except for `delivered`.
 */
struct mj_marker {
    uint64_t name_hash; /* FNV-1a of the marker's signature, to find it again; 0: free */
    uint64_t since;     /* switched on at, CLOCK_REALTIME seconds; 0: off */
    uint32_t by;        /* pid of the controller that switched it last; 0: off */
    uint32_t id;
    uint8_t argc;
    uint8_t mode;     /* the mode in which it is on, to be shown; 0: off */
    uint8_t asks;     /* what follows its question: MJ_ASKS_...; 0: it has none */
    uint8_t to_stack; /* words from its first word to the program's stack pointer, which is recorded
                         behind the time; 0: it is not recorded. Only in calls of stubs */
    uint8_t ops[MJ_MAX_ARGS];
    uint16_t limits[MJ_MAX_ARGS]; /* of texts, bytes */
    uint16_t size;                /* bytes of a record, its texts empty */
    uint8_t time;                 /* MJ_TIME_... */
    uint8_t tid;                  /* 1: record the thread's id */
    uint32_t recorder;            /* offset of the code made for it; 0: none, mj_record records */
    uint32_t held;                /* the `reading` for which it records; 0: none */
    uint64_t passed_before;       /* sums of its counters when the trace or flight recorder began */
    uint64_t lost_before;
    uint64_t delivered;     /* written by the reader: records that it took out of the rings */
    uint64_t calls;         /* of probes in C, without the one that is connected now */
    uint64_t calls_before;  /* calls that its slots had counted when that one was connected */
    uint64_t hits_before;   /* hits of all entries with its signature when it was switched on */
    uint64_t losses_before; /* the number of these hits that were not recorded */
    uint8_t counted;        /* 1: each execution is counted as `passed`; 0: the reader counts */
    uint8_t calling;        /* 1: a probe in C is connected, and its slots count the calls */
    uint8_t careful;        /* 1: texts are never read on the word of `readable` alone */
    uint8_t waits;          /* 1: where its ring is full, it waits for the reader: wait_until_ns */
    uint32_t recorder_of_c; /* as `recorder`, for slots whose bodies make an ordinary C call */
    char name[64];          /* truncated if it is longer; to be shown */
    uint64_t question;      /* FNV-1a of the question, to find it again */
    uint32_t question_text; /* offset and bytes of its text, in UTF-8, which follows the code */
    uint32_t question_size;
    uint64_t until_ns;  /* it must be off by then, CLOCK_MONOTONIC; 0: it stays on */
    uint64_t aggregate; /* the ticket of the aggregate that it adds to; 0: none */
    uint8_t more_ops[MJ_MAX_WORDS - MJ_MAX_ARGS]; /* of the words behind `ops`: numbers */
};

/* In an entry with a question, `recorder` is the question's code, which jumps to the probe or
   returns. Everything up to the end of the text belongs to the question: its code, a recorder, the
   text. An entry without code is free for another question about the same marker, because nothing
   leads to it. The question of an aggregate leaves its entry to those of aggregates alone: their
   words in struct mj_calls are counts. docs/decisions/0033-questions-before-probes.md */
#define MJ_ASKS_NOTHING 0
#define MJ_ASKS_BEFORE_COUNT 1
#define MJ_ASKS_BEFORE_RECORD 2
#define MJ_ASKS_AGGREGATE 3 /* the code adds to an aggregate, and returns */

/* The counters of one ring and marker, so that CPUs do not share a cache line. */
struct mj_count {
    uint64_t passed; /* executions of the probe, without those lost and those the reader counts */
    uint64_t lost;   /* not recorded: the ring was full */
};

/*
 * Calls of probes in C through the adapters of the runtime, for one ring and marker, as above. A
 * thread may leave on another CPU than it entered on, so only the sums over all rings are
 * meaningful. No thread is inside if the sum of `left`, read first, equals the sum of `entered`.
 * docs/decisions/0025-who-is-inside.md
 */
struct mj_calls {
    uint64_t entered;
    uint64_t left;
};

/* An entry with a question before a probe uses these words for its brakes. In the row of a CPU's
   own ring they are the state of a generator and the number of events held back. Only this CPU
   changes them, and a thread that has just left it. In the row of the first shared ring they are
   the time of the next event, and the highest number of the generator for which an event is taken.
   docs/decisions/0045-brakes.md */

/*
 * A head: bytes of code that are ours to change. The table has all places where code of ours may
 * be. While the journal is empty, every open head is in the table, and the code itself says whether
 * a head is open. The code of a breakpoint does not say whose it is, so `planted` does. An entry
 * stays when its head is closed. docs/decisions/0019-one-table-of-patches.md
 *
 * A thread that meets a breakpoint goes on at `body`, as if it had executed the instruction there.
 * The entry keeps its `body`, because a thread may be on its way to the handler, and because the
 * child of a fork shares the table and may still have the breakpoint.
 *
 * Both sides use `body` and `gone`. Only controllers use the rest, which changes only while the
 * journal is open, or, under the lock, to match the code.
 */
struct mj_patch {
    uint64_t address; /* of the head; 0: free */
    uint64_t body;    /* 0: no breakpoint of ours ever stood here */
    uint64_t slot;    /* of the site; 0: it has none */
    uint8_t gone;     /* the code of `body` was unloaded, although a fork's child may have it */
    uint8_t mode;     /* the mode in which it is opened, to be shown */
    uint8_t size;     /* bytes of the head, up to 16; 0: the head is gone */
    uint8_t kind;     /* MJ_PATCH_* */
    uint8_t planted;  /* the breakpoint stands in the code of this process */
    uint8_t covers;   /* bytes of the instructions that the head overwrites; 0: as `size` */
    int8_t reach;     /* the displacement of the short jump, of MJ_PATCH_SHORT */
    uint8_t reserved;
    uint8_t before[16]; /* the head while it is closed, and while it is open */
    uint8_t after[16];
};
#define MJ_PATCH_HEAD 0
#define MJ_PATCH_SHORT 1 /* a head that a short jump opens, to the last five bytes of a hole */
#define MJ_PATCH_HOLE 2  /* no head: the target of a short jump, while that opens its head */

/*
 * A file of probes that was put into the arena. Its names follow its variables, as JSON
 * (markerjit/probes/loaded.py). Memory that belongs to no unit, question or recorder is free.
 * `state` is written last when a unit is added, and first when it is removed.
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
#define MJ_UNIT_KEPT 2     /* as READY, but not all its callers are known, so it is never removed */
#define MJ_UNIT_REPLACES 3 /* as READY, but the threads inside are not counted */

/* A slot that may hold a probe of a unit, or may have held one. The entry is written before the
   slot gets the probe. An entry whose unit was removed is free. */
struct mj_caller {
    uint64_t slot; /* an address */
    uint64_t unit; /* its `order` */
};

/* Code of ours within 2 GiB of an object: bytes of the memfd behind the arena, mapped there and
   nowhere else. A `size` of 0 means that there is none. The entry is written before the island is
   mapped.
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
 * Only threads on CPU c write ring c, in restartable sequences. The store of `head`, the last store
 * of a sequence, is what makes a record part of the ring. `room` is the end of the page, or the
 * reader's limit as it was read last. It is on the cache line of `head`, so the limit itself is
 * read only once a page. The reader may double a ring while it is written: it sets the mask at a
 * position where the old mask and the new one mean the same places, and moves the limit only after
 * that. docs/decisions/0026-growing-rings.md
 *
 * Ring cpus + c is the shared one, for threads without restartable sequences and for those that
 * were just interrupted in one; several CPUs may write it, by compare-and-swap of `head`.
 */
struct mj_ring {
    uint64_t head __attribute__((aligned(64))); /* by the runtime; shared ring: reserved up to it */
    uint64_t room;                              /* a record may end here, and no further */
    uint64_t data;                              /* address of the ring's bytes */
    uint64_t mask;                              /* its size, a power of two, - 1 */
    uint64_t limit
        __attribute__((aligned(64))); /* by the reader: the end for records; ~0: overwrite */
    uint64_t begun;                   /* by the reader: older records are of an earlier trace */
};

/*
 * A record: marker, size, thread, then the time if its marker has one, and the fields, each at a
 * multiple of its size (markerjit/ring/types.py has all rules). A record never crosses a page. The
 * rest of a page is filled by a record of id MJ_FILLER.
 *
 * In a shared ring a commit word precedes each record, and is written last. It has the position, so
 * that a word left over from an earlier lap is never taken for it. Its size includes the word
 * itself. At the end of a page a commit word without a record, or with one of MJ_FILLER, fills it.
 */
struct mj_record {
    uint32_t head; /* marker, and from MJ_WORDS_SHIFT on the size in words of eight bytes */
    uint32_t tid;
    /* uint64_t time; payload */
};
#define MJ_MAX_RECORD (MJ_PAGE - 8)

/* A text in a record: this header, then its bytes. It is at a multiple of eight, and so is the next
   field. */
struct mj_text {
    uint32_t length;
    uint32_t state;
};
#define MJ_TEXT_WHOLE 0
#define MJ_TEXT_CUT 1        /* it is longer */
#define MJ_TEXT_NULL 2       /* the pointer was NULL, or in the first page */
#define MJ_TEXT_UNREADABLE 3 /* nothing can be read there */

/* A text that a question is about: the text as the recorder takes it (MJ_OP_..., limits), and of
   that the bytes from `low` up to, but not including, `high`. `arg` is the number of an argument. A
   negative `arg` is the place, below the arguments, of the question's own word that has the text's
   address. */
struct mj_asked_text {
    int8_t arg;
    uint8_t op;
    uint16_t limit;
    uint16_t low;
    uint16_t high;
};

/* The test of a question on a text, behind its code: native/src/runtime/ask.c. A constant follows.
 */
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
#define MJ_ASK_SAME 5    /* equal to the other text */
#define MJ_MAX_ASKED 256 /* bytes of a text that are looked at */

/*
 * An aggregate: keys, and for each key some words that are updated while markers are executed.
 * Its memory is behind the entries of all aggregates:
 *
 *     keys     [mask + 1], an open-addressing hash table: a word that is 0 where the place is free,
 *              1 where it is claimed, else the upper half of the hash and the number + 2; then the
 *              words of the key
 *     values   for each ring MJ_MISSED words, and then `words` for each number of a key
 *
 * As with rings, the words of ring c belong to CPU c, and those of ring cpus + c are shared. A
 * ticket is the number of the entry plus MJ_AGGREGATES times the number of aggregates made before,
 * so none is given twice. It is written last when an aggregate is added, and first when it is
 * removed. Then `went` has it, and the memory is not reused until no thread is inside.
 *
 * Pairs have the waiting begins in the place of `keys`:
 *
 *     states   [mask + 1]: MJ_PLACE_...
 *     places   [mask + 1]: the words of the key, then `held_words`
 *     groups   [group_mask + 1], where pairs are divided by values of their begins: keys as above
 *     values   as above, for the pairs without a group and then for each group: fine buckets of
 *              nanoseconds, their sum, the largest
 *     slow     [slow_room]: pairs that took long
 *
 * Blocks of an allocator have keys and values as an aggregate does, for the sites that asked for
 * them, with MJ_BLOCK_COUNTS words for each site. The blocks are in the place of the slow pairs:
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
    uint32_t room; /* the most keys, half the number of places for them */
    uint32_t words;
    uint64_t keys;   /* offsets */
    uint64_t values; /* of ring 0 */
    uint64_t stride; /* bytes from ring to ring */
    struct mj_owner owner;
    uint64_t used
        __attribute__((aligned(64))); /* keys that have a number; written by the runtime */
    uint64_t offset;                  /* of its memory */
    uint64_t size;                    /* bytes of its memory, whole pages; 0: it has none */
    uint64_t went;                    /* its former ticket, while a thread may be inside */
    uint32_t held_words;              /* of pairs: words of a begin behind its key; 0: no pairs */
    uint32_t slow_words;              /* words of a slow pair */
    uint64_t slow;                    /* offset of the list of slow pairs */
    uint32_t slow_room;               /* the most slow pairs in it, a power of two; 0: none */
    uint32_t lost;                    /* MJ_MEMORY_...: whether a thread may be inside */
    uint32_t group_words;             /* of the key of a group of pairs; 0: there are none */
    uint32_t group_mask;              /* there is room for half as many groups as places */
    uint64_t slow_head __attribute__((aligned(64))); /* slow pairs so far; by the runtime */
    uint64_t slow_read;                              /* slow pairs taken so far; by the reader */
    uint64_t tick_ns; /* nanoseconds of a tick of the clock of pairs, times 2 ** 32 */
    uint64_t forget;  /* ticks, after which a begin gives its place to another one */
    uint64_t live;    /* bytes given for all live blocks */
    uint64_t most;    /* the highest value of `live` */
    uint64_t most_at; /* the time of that */
    uint64_t spilled; /* blocks that are not in the place that is searched first */
};
/* Of memory of an ended aggregate. A marker that added to it may name another one only where a look
   has decided between the last two. */
#define MJ_MEMORY_WENT 0 /* markers that name it may have threads inside */
#define MJ_MEMORY_LOST 1 /* a thread stayed inside, and the memory is abandoned */
#define MJ_MEMORY_LEFT 2 /* none is inside by locked instructions, so a stop of all is enough */

/* A block, or an operation that a thread has begun and not ended, whose key no block can have. */
struct mj_block {
    uint64_t key; /* the address */
    uint64_t time;
    uint64_t asked;
    uint64_t given;
    uint64_t where; /* the thread << 32 | CPU << 16 | the number of the site */
    uint64_t old;   /* of an operation that was begun: the block it moves, or the kind of step */
};

/* A part of a key: a number; or a text, of an argument or at an address, as its length (~0 for a
   missing one), its bytes and zeros; or constant words from behind the code. */
struct mj_key_part {
    uint8_t kind; /* MJ_KEY_... */
    uint8_t words;
    uint16_t constant; /* bytes from the struct mj_aggregation on */
    struct mj_asked_text text;
};

/* The value that the code of a marker adds to an aggregate, and its key. It follows the code. */
struct mj_aggregation {
    uint64_t marker; /* address of its entry */
    uint8_t does;    /* MJ_DOES_... */
    uint8_t value;   /* MJ_VALUE_... */
    uint8_t careful;
    uint8_t parts;
    uint16_t key_words;
    uint16_t value_at; /* its place among the numbers that the code has computed */
    struct mj_key_part part[MJ_MAX_KEY_PARTS];
    uint16_t missing_at; /* place + 1 of a number that is not 0 if one could not be read; or 0 */
    uint16_t reserved[3];
};

/* The key of a site: the number of a stack, a return address, or the number of a marker. */
#define MJ_SITE_STACK (1ul << 63)
#define MJ_SITE_MARKER (1ul << 62)

/* The begin or end of a pair that the code of a marker adds. Its parts are those of its group,
   which only a begin has, then those of the key, then fields.

   A marker whose `took_at` is not 0 ends a pair by itself: it is the return of a function, with the
   time of the entry. Its aggregate has keys and no begins. Each key has fine buckets of
   nanoseconds, their sum and the largest. It also has the list of slow pairs. */
struct mj_pairing {
    uint64_t marker;
    uint64_t slower_ns; /* pairs that take at least this long are put into the list */
    uint8_t ends;
    uint8_t time; /* MJ_TIME_TSC or MJ_TIME_MONOTONIC */
    uint8_t careful;
    uint8_t parts;
    uint8_t fields;
    uint8_t took_at; /* place + 1 of the nanoseconds, among the numbers; or 0 */
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
 * The memory in which the entries of functions keep their arguments for the exits. It is private. A
 * place belongs to a word of a stack, to which rsp points at the entry and again at the exit. A
 * page of a stack gets its places when the first entry on it keeps something, and never loses them.
 */
struct mj_stash {
    uint64_t claim; /* addresses of functions of the runtime: native/src/runtime/stash.S */
    uint64_t find;
    uint64_t ns_per_tick; /* of the time stamp counter, with 32 binary places */
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
 * The data with which the runtime walks stacks, and the stacks that it has seen: a piece of the
 * memfd behind the arena, mapped elsewhere when it is first needed. From its start, in this order:
 *
 *     header       struct mj_stacks, one page
 *     tables       struct mj_unwind[MJ_UNWINDS]: the list of the tables of unwind rules, for
 *                  controllers
 *     directories  MJ_DIRECTORIES of them, MJ_DIRECTORY_SIZE bytes each: struct mj_code[]
 *     places       uint64_t[places_mask + 1]: 0 for a free one, 1 where it is claimed, else the
 *                  upper half of the stack's hash and its number
 *     words        uint64_t[words_room]: the stacks. The number of a stack is that of its first
 *                  word, which has the number of frames, from MJ_STACK_END on the reason why the
 *                  stack ends, and from MJ_STACK_EPOCH on the epoch. The frames follow, the
 *                  innermost first
 *     rules        the tables, in the format of markerjit/unwind/table.py
 *     recent       uint64_t[1 << MJ_STACKS_RECENT_BITS], at the end: rules by the addresses of
 *                  frames, as the runtime found them last (native/src/runtime/recent.h). A
 *                  controller only erases them
 *
 * A directory is written while it is not in force. It is in force when `directory` has its number.
 * Directory n is in the place n % MJ_DIRECTORIES. So a walk is thrown away if it finds, at its end,
 * that this many directories were made meanwhile.
 *
 * Within an epoch an address belongs to the same object in all directories. So a new epoch begins
 * when another object comes to an address, and stacks through it have other numbers from then on.
 *
 * docs/decisions/0048-stacks-in-the-target.md
 */
struct mj_stacks {
    uint64_t directory;              /* 0: none yet */
    uint64_t counts[MJ_DIRECTORIES]; /* entries of each */
    uint64_t rules_used;
    uint64_t words_room;
    uint64_t places_mask;
    uint64_t seen;                                    /* FNV-1a of the source of the directory */
    uint64_t words_used __attribute__((aligned(64))); /* by the runtime, from here on */
    uint64_t lost;                                    /* stacks that found no room */
    uint64_t epochs[MJ_DIRECTORIES] __attribute__((aligned(64))); /* of each directory */
};

/* Addresses of code. An object is taken to be there as long as the word at `mark` has `value`, so
   code that is mapped in its place later has no table. */
struct mj_code {
    uint64_t start;
    uint64_t stop;
    uint64_t rules; /* offset of the table; 0: it has none */
    uint64_t bias;  /* the object's addresses are those of its file plus this */
    uint64_t mark;  /* an address */
    uint64_t value;
};

/* A table of unwind rules: its digest, by which it is found again, and its place. */
struct mj_unwind {
    uint64_t digest;
    uint64_t offset;
    uint64_t size;
};

/* The header of a table: markerjit/unwind/table.py. The index, the starts of rules, and the rules
   themselves follow (markerjit/unwind/rules.py). */
struct mj_rules {
    char magic[8];
    uint32_t version;
    uint32_t count;
    uint64_t low;
    uint64_t high;
};

/* The places of the runtime's functions, as offsets from the start of its code. This structure is
   the beginning of that code. */
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

/* SPDX-License-Identifier: MIT */
/*
 * abi.h: every layout that a marked program, the runtime and the controller agree on.
 *
 * Three things are laid down here: the note by which a site describes itself, the slot through
 * which a site finds its probe, and the arena that the controller puts into the target. The
 * Python side mirrors them in markerjit/elf/notes.py and markerjit/ring/layout.py; a test compiles
 * this file and compares every offset and constant with those mirrors.
 *
 * How it may grow. A note says its version. A reader accepts the versions that it knows and names
 * the others. Within a version, fields are only appended before the name, and `size` tells where
 * the name starts. Numbers of enumerations are never reused. The arena is private to one runtime
 * build and its controller: MJ_ARENA_VERSION changes with any change of layout, and a controller
 * refuses an arena of another version.
 */
#ifndef MARKERJIT_ABI_H
#define MARKERJIT_ABI_H

/* ---- the note ------------------------------------------------------------------------------ */

#define MJ_NOTE_OWNER "markerjit"
#define MJ_NOTE_TYPE 1
#define MJ_NOTE_VERSION 1
#define MJ_NOTE_SIZE 44 /* bytes of the descriptor before the name */
#define MJ_MAX_ARGS 12

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
 * `probe` and calls it with the slot and the arguments. Bit 0 of the pointer asks for the call to
 * be counted (`entered`, `left`), so that whoever takes the probe away can wait until no thread is
 * inside; MJ_PROBE_INLINE selects the inline probe of the body. So a probe's own address is a
 * multiple of four.
 */
struct mj_slot;
typedef void mj_probe_fn(struct mj_slot *slot, ...);

struct mj_slot {
    mj_probe_fn *probe;
    void *data; /* the probe's own; set before `probe`, constant while `probe` is set */
    uint64_t entered;
    uint64_t left;
};

#define MJ_PROBE_COUNTED 1ul
#define MJ_PROBE_INLINE 2ul

/* ---- the arena -------------------------------------------------------------------------------
 *
 * A memfd that the target makes and maps as one piece:
 *
 *     code      MJ_CODE_SIZE bytes, r-x: the runtime, position-independent
 *     control   one page: struct mj_control
 *     scratch   MJ_SCRATCH_SIZE bytes: where a borrowed thread finds its way back from
 *     markers   struct mj_marker[max_markers]
 *     counts    struct mj_count[rings][max_markers]
 *     sites     struct mj_trap_site[max_sites], an open-addressing hash table
 *     journal   struct mj_edit[max_edits]
 *     rings     each a page of struct mj_ring and ring_size bytes of records
 *
 * and behind it one private page, of which a fork's child gets a zeroed one (see `alive`).
 * The tables are large; the memfd has holes where nothing was ever written.
 *
 * The runtime finds everything at fixed distances from its own code. All offsets in the control
 * block count from the start of the arena. Everything from `control` on is writable by the target,
 * so a controller believes nothing in it: it checks every number against what it mapped.
 */
#define MJ_ARENA_MAGIC 0x74696a72656b726d /* "mrkerjit" in memory */
#define MJ_ARENA_VERSION 2
#define MJ_ARENA_NAME "markerjit"
#define MJ_PAGE 4096
#define MJ_CODE_SIZE (2 * MJ_PAGE)
#define MJ_SCRATCH_SIZE (16 * MJ_PAGE)

#define MJ_CPU_RDPID 1u /* rdpid works; otherwise the CPU number is read with lsl */

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
    uint32_t pid; /* 0: nobody */
    uint32_t pid_namespace;
    uint64_t started;
};

/*
 * What a controller is about to write, so that the next one can finish it or take it back. The
 * edits are in the journal before `state` is MJ_JOURNAL_OPEN, and that is before the first of them
 * is written; it is MJ_JOURNAL_EMPTY again when all are written or all are taken back. A journal
 * that is open while nobody holds the target's lock belongs to a controller that died.
 */
#define MJ_JOURNAL_EMPTY 0
#define MJ_JOURNAL_OPEN 1
struct mj_journal {
    uint32_t state;
    uint32_t edits;
    uint64_t since; /* CLOCK_REALTIME, seconds */
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

struct mj_control {
    uint64_t magic;
    uint32_t version;
    uint32_t cpu_flags;
    uint64_t runtime_id; /* FNV-1a of the runtime's code */
    uint64_t arena_size;
    uint32_t rings;     /* one for each possible CPU */
    uint32_t ring_size; /* a power of two */
    uint32_t max_markers;
    uint32_t max_sites; /* a power of two */
    uint32_t max_edits;
    int32_t tid_offset; /* where a thread's id stands, from its fs base; < 0: not found */
    uint64_t markers;   /* offsets of the parts */
    uint64_t counts;
    uint64_t sites;
    uint64_t journal_edits;
    uint64_t ring;
    uint64_t ring_stride;
    uint64_t alive; /* address of a page that a fork wipes: a word that is 1 in this process only */
    struct mj_owner owner; /* who made the arena, and when: CLOCK_REALTIME, seconds */
    uint64_t owner_since;
    struct mj_sigaction old_trap; /* the target's own SIGTRAP action, to pass on to */
    struct mj_sigaction
        seen_trap; /* for the controller: where the target's kernel puts an answer */
    uint32_t trap_installed;
    uint32_t markers_used;
    struct mj_owner reader; /* who takes records out of the rings */
    uint64_t lease;         /* time stamp counter until which the reader has them; 0: for ever */
    uint64_t lease_ns;      /* the same moment in CLOCK_MONOTONIC, for other controllers */
    struct mj_journal journal;
};

/* How the recorder takes an argument from the call. */
#define MJ_OP_GP 1 /* a general register: eight bytes as passed                              */
#define MJ_OP_FP 2 /* a double                                                               */
#define MJ_OP_STRING                                                                               \
    3 /* char *, to its NUL, at most `limit` bytes                                */
#define MJ_OP_PREFIX                                                                               \
    5                 /* char *, to its NUL or `limit` bytes, and nothing is read behind (%.8s)   */
#define MJ_OP_BYTES 4 /* char *, to its NUL, as long as the argument before says, or `limit` */

/* What the runtime needs to know of a marker; its index is the id in the records. */
struct mj_marker {
    uint64_t name_hash; /* FNV-1a of the marker's signature, to find it again; 0: free */
    uint64_t since;     /* switched on at, CLOCK_REALTIME seconds; 0: off */
    uint32_t by;        /* pid of the controller that switched it on */
    uint16_t id;
    uint8_t argc;
    uint8_t mode; /* how it is on, for people; 0: off */
    uint8_t ops[MJ_MAX_ARGS];
    uint16_t limits[MJ_MAX_ARGS]; /* of strings; at most MJ_MAX_STRING */
    uint8_t reserved[4];
    char name[64]; /* cut when it is longer; for people */
};

/* One for each ring and marker, so that CPUs do not share a line. */
struct mj_count {
    uint64_t hits; /* executions of the probe, recorded or not */
    uint64_t lost; /* of these, not recorded: the ring was full, or its reader gone */
};

/*
 * Where a thread goes on that comes to a breakpoint, as if it had executed the instruction there:
 * at `body`, and for a call with `pushed` on its stack.
 */
struct mj_trap_site {
    uint64_t address; /* of the int3; 0: free */
    uint64_t body;
    uint64_t pushed; /* 0: nothing */
    uint64_t gone;   /* the code was unloaded; but a fork's child, which shares this, may have it */
};

/* Positions count bytes from the start of the trace and never wrap. */
struct mj_ring {
    uint64_t reserved __attribute__((aligned(64))); /* written by the runtime */
    uint64_t consumed __attribute__((aligned(64))); /* written by the reader  */
};

/*
 * A record: this header and its fields, eight bytes each; a string is a word with its length and
 * then its bytes, padded to eight. `commit` is written last, and says the position, so that a word
 * left over from an earlier lap is never taken for it. A record does not wrap: what is left at the
 * end of the ring is filled with one of id MJ_FILLER, of which only `commit` and `marker` count.
 */
struct mj_record {
    uint64_t commit; /* position << 16 | size in words; what an earlier lap left, until then */
    uint64_t time;   /* time stamp counter */
    uint32_t tid;
    uint16_t marker;
    uint16_t reserved;
    /* uint64_t payload[] */
};
#define MJ_FILLER 0xffff
#define MJ_MAX_STRING 4096
/* flags beside the length in a string's word */
#define MJ_STRING_CUT (1ul << 32)  /* it was longer */
#define MJ_STRING_NULL (1ul << 33) /* the pointer was NULL, or in the first page */

/* Where the runtime's functions are: the first words of its code, as offsets from its start. */
struct mj_entry {
    uint64_t magic; /* MJ_ARENA_MAGIC */
    uint32_t version;
    uint32_t size; /* bytes of code */
    uint32_t record;
    uint32_t count;
    uint32_t trap;
    uint32_t restorer;
};

#endif /* !__ASSEMBLER__ */
#endif

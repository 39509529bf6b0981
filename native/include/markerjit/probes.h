/* SPDX-License-Identifier: MIT */
/*
 * probes.h: set and take away probes from inside the program. Link libmarkerjit.a.
 *
 *     static void on_get(struct mj_slot *slot, const char *key, size_t size) { ... }
 *
 *     marker_set_probe("kv_get", MARKER_PROBE(on_get), MARKER_CALL);
 *     ...
 *     marker_disable_probe("kv_get");      // no thread is in on_get any more
 *
 * This is the interface of the Linux Kernel Markers of 2006 (0.5 to 0.7), in user space. What
 * differs: errors are negative; disabling says whether there was anything to disable; one name may
 * have many sites in many objects, which are switched all or not at all.
 *
 * Every function may be called from any thread, and from inside a probe except where said
 * otherwise. None may be called from a signal handler. None prints, exits or sets errno to
 * anything that means something.
 *
 * What it does not do:
 * - objects loaded later (dlopen) are not covered by a probe that is already set: disable, and set
 *   again. Other link namespaces (dlmopen) are not seen. An object may be unloaded (dlclose) with
 *   its markers on, under the usual condition that no thread is in its code.
 * - sites of kind sentinel, direct and symbol cannot be switched from here (-ENOTSUP).
 * - it stays out of the way of a controller (markerjit on PID): who comes second gets -EBUSY. Two
 *   who come in the very same instant may lose the data word of the one who wins.
 * - fork while another thread is in a probe leaves that probe counted as busy in the child for
 *   ever: do not disable there. In such a child, as ever, only exec is safe.
 */
#ifndef MARKERJIT_PROBES_H
#define MARKERJIT_PROBES_H

#include "abi.h"

#ifdef __cplusplus
extern "C" {
#endif

enum marker_kind {
    MARKER_CALL,  /* call a function with the arguments of the marker */
    MARKER_INLINE /* run the function that MARK_INLINE compiled into the site */
};

/*
 * A function with parameters of its own as a probe: the slot, then the arguments after the default
 * promotions (float arrives as double, char and short as int). Others take (slot, ...) and va_arg.
 */
#define MARKER_PROBE(function) ((mj_probe_fn *)(void (*)(void))(function))

/*
 * Run `function` at every site of the marker `name` in every loaded object. A probe must return:
 * one that leaves by longjmp, an exception or the end of its thread is counted as inside for ever.
 * It reads its data from slot->data (NULL unless set by marker_set_probe_data).
 *
 * 0, or: nothing is changed, and
 *   -ENOENT  no loaded object has such a marker
 *   -EBUSY   it has a probe, from here or from a controller, or one is being disabled just now
 *   -EINVAL  MARKER_CALL without a function or MARKER_INLINE with one; a function at an odd
 *            address, as gcc -Os makes them (bit 0 has another use: align it); no such kind
 *   -ENODEV  MARKER_INLINE, and a site has no inline probe
 *   -ENOTSUP a site is of a kind that cannot be switched from inside
 *   -EILSEQ  a site does not hold the bytes that its note says; has another tool patched it?
 *   -EACCES  a site is in a shared mapping, where writing would change the file (looked up in
 *            /proc when setting; loaders map text private, and without /proc that is relied on)
 *   -EIO, -EPERM, -ENOMEM or what mprotect(2) says: the code could not be written
 * Where a write failed in the middle, all that was written was taken back, in reverse; threads may
 * have run the probe meanwhile; none is in it now. And the one exception:
 *   -ENOTRECOVERABLE  that, and not all could be taken back. The probe is gone; a site may be open,
 *            which costs time and is harmless (marker_for_each finds it no longer on, and setting
 *            says -EILSEQ), or its page writable
 */
int marker_set_probe(const char *name, mj_probe_fn *function, enum marker_kind kind);

/* The same, and -EINVAL where a site's format is not `format`, character for character. (The
   original returned EPERM, which here is for what the system does not permit.) */
int marker_set_probe_format(const char *name, const char *format, mj_probe_fn *function,
                            enum marker_kind kind);

/* The same, with `data` for the probe in slot->data. A NULL `format` is not compared. */
int marker_set_probe_data(const char *name, const char *format, mj_probe_fn *function, void *data,
                          enum marker_kind kind);

/*
 * Take away the probe that was set here. When it returns 0, -EILSEQ or another error about bytes,
 * no thread is in the probe and none can enter it: its code and data may be freed. It waits for as
 * long as the probe runs, so it must not be called from the probe itself, nor by somebody whom the
 * probe waits for. (Not detected: only the sites know who is inside, and they do not say who.)
 *
 * 0, or
 *   -ENOENT  no probe was set here. (The original was silent, having no result at all; it found
 *            ENOENT for an unknown marker and threw it away.)
 *   -EBUSY   another thread is disabling it and still waits
 *   -EINVAL  no name
 *   -ENOMEM  nothing is changed
 *   -EILSEQ  a site was changed by somebody else; it is left as it is, the probe is gone
 *   -EIO, -EPERM ... a site could not be written and stays open, which costs time and is harmless
 */
int marker_disable_probe(const char *name);

struct marker_site {
    const char *name; /* the strings are the object's: valid while it is loaded */
    const char *format;
    const char *file;
    unsigned line;
    int kind; /* MJ_KIND_jump ... */
    int argc;
    int has_inline;
    int on; /* a thread that comes by would reach a probe */
    const void *address;
    const struct mj_slot *slot; /* NULL: has none */
};

/*
 * Call `callback` for every site of every loaded object, without any lock held. It stops at the
 * first one that returns nonzero, and returns that; else 0, or -ENOMEM before the first call.
 */
int marker_for_each(int (*callback)(const struct marker_site *site, void *data), void *data);

/* How other cores learn of changed code. Tried in this order: CORE, SIGNALS, GLOBAL. (The numbers
   are in the order of their invention.) */
enum marker_sync {
    MARKER_SYNC_UNUSED,  /* no code was changed yet */
    MARKER_SYNC_CORE,    /* membarrier, SYNC_CORE: every thread has executed a serialising
                            instruction since the change. What the manuals ask for. */
    MARKER_SYNC_GLOBAL,  /* membarrier, GLOBAL: every CPU has gone through the scheduler or an
                            interrupt since; serialising in practice, by no promise of Linux */
    MARKER_SYNC_NOTHING, /* none allowed: rests on the change being one byte (native/lib/spot.h) */
    MARKER_SYNC_SIGNALS  /* every thread has executed a serialising instruction in a signal handler
                            of ours; some of their system calls may have returned EINTR
                            (native/src/fence/fence.c) */
};

struct marker_statistics {
    uint64_t sites;         /* of all names, now */
    uint64_t skipped_notes; /* corrupt, or of a version not known here */
    enum marker_sync sync;  /* used for the last change */
};

/* 0 or -ENOMEM. */
int marker_get_statistics(struct marker_statistics *statistics);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: MIT */
/*
 * probes.h: set and remove probes from inside the program. Link libmarkerjit.a.
 *
 *     static void on_get(struct mj_slot *slot, const char *key, size_t size) { ... }
 *
 *     marker_set_probe("kv_get", MARKER_PROBE(on_get), MARKER_CALL);
 *     ...
 *     marker_disable_probe("kv_get");      // no thread is in on_get any more
 *
 * This is the interface of the Linux Kernel Markers of 2006 (0.5 to 0.7), in user space, with
 * these differences. Errors are negative. Disabling returns whether a probe was set. A name may
 * have many sites in many objects, and either all of them are switched or none.
 *
 * Thread-safety: every function may be called from any thread, and from inside a probe unless its
 * comment says otherwise. Signal-safety: none may be called from a signal handler. No function
 * prints or exits. The value of errno after a call is undefined.
 *
 * Limitations:
 * - a probe that is set does not cover objects loaded later (dlopen): disable it, and set it
 *   again. Other link namespaces (dlmopen) are not seen. An object may be unloaded (dlclose) with
 *   its markers on, under the usual condition that no thread is in its code.
 * - sites of kind sentinel, direct and symbol cannot be switched from here (-ENOTSUP).
 * - a marker has one probe, set here or by a controller (markerjit on PID). The second request gets
 *   -EBUSY. If both come at the same instant, the data word of the one that succeeds may be lost.
 * - after a fork while another thread was in a probe, the child counts that probe as busy for ever:
 *   do not disable it there. As always, only exec is safe in such a child.
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
 * promotions (float arrives as double, char and short as int). Any other probe takes (slot, ...)
 * and uses va_arg.
 */
#define MARKER_PROBE(function) ((mj_probe_fn *)(void (*)(void))(function))

/*
 * Run `function` at every site of the marker `name` in every loaded object. A probe must return: if
 * it leaves by longjmp or the end of its thread, it counts as running for ever. It must not throw:
 * the compiler does not know of the call, so an exception may end the program. It may use all
 * registers that a function may use, except the tiles of AMX. It reads its data from slot->data
 * (NULL unless set by marker_set_probe_data).
 *
 * Returns 0, or an error, and then nothing is changed:
 *   -ENOENT  no loaded object has such a marker
 *   -EBUSY   it has a probe, from here or from a controller, or a probe is just being disabled
 *   -EINVAL  MARKER_CALL without a function or MARKER_INLINE with one; a function at an odd
 *            address, as gcc -Os makes them (bit 0 has another use: align it); no such kind
 *   -ENODEV  MARKER_INLINE, and a site has no inline probe
 *   -ENOTSUP a site is of a kind that cannot be switched from inside
 *   -EILSEQ  a site does not hold the bytes that its note says; has another tool patched it?
 *   -EACCES  a site is in a shared mapping, where writing would change the file (looked up in
 *            /proc when setting; loaders map text private, and without /proc that is relied on)
 *   -EIO, -EPERM, -ENOMEM or another error of mprotect(2): the code could not be written
 * If a write failed in the middle, everything written was rolled back in reverse order. Threads
 * may have run the probe meanwhile; none is in it now. The exception is
 *   -ENOTRECOVERABLE  a write failed, and not everything could be rolled back. The probe is gone. A
 *            site may be open, which takes time and is harmless (marker_for_each reports it as not
 *            on, and setting a probe returns -EILSEQ), or its page may be writable
 */
int marker_set_probe(const char *name, mj_probe_fn *function, enum marker_kind kind);

/* As marker_set_probe, and -EINVAL where a site's format differs from `format` in any character.
   (The original returned EPERM, which here means that the system did not permit a write.) */
int marker_set_probe_format(const char *name, const char *format, mj_probe_fn *function,
                            enum marker_kind kind);

/* As marker_set_probe_format, with `data` in slot->data. A NULL `format` is not compared. */
int marker_set_probe_data(const char *name, const char *format, mj_probe_fn *function, void *data,
                          enum marker_kind kind);

/*
 * Remove the probe that was set here. After 0, -EILSEQ or another error about bytes, no thread is
 * in the probe and none can enter it: its code and data may be freed. The call waits until the
 * probe has returned in all threads. It must not be called from the probe itself, or from a thread
 * that the probe waits for. (That is not detected: sites count the threads inside without
 * identifying them.)
 *
 * Returns 0, or
 *   -ENOENT  no probe was set here. (The original returned nothing: it found ENOENT for an unknown
 *            marker, and dropped it.)
 *   -EBUSY   another thread is disabling it and still waits
 *   -EINVAL  no name
 *   -ENOMEM  nothing is changed
 *   -EILSEQ  another tool changed a site; the site is left as it is, and the probe is gone
 *   -EIO, -EPERM ... a site could not be written and stays open, which takes time and is harmless
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
    int on; /* a thread at the site would reach a probe */
    const void *address;
    const struct mj_slot *slot; /* NULL: the site has none */
};

/*
 * Call `callback` for every site of every loaded object, with no lock held. Stops at the first call
 * that returns nonzero, and returns its value. Otherwise returns 0, or -ENOMEM before any call.
 */
int marker_for_each(int (*callback)(const struct marker_site *site, void *data), void *data);

/* The methods by which other cores are made to see changed code. They are tried in the order CORE,
   SIGNALS, GLOBAL. (The numbers are in the order in which the methods were added.) */
enum marker_sync {
    MARKER_SYNC_UNUSED,  /* no code was changed yet */
    MARKER_SYNC_CORE,    /* membarrier, SYNC_CORE: every thread has executed a serialising
                            instruction since the change, as the manuals require */
    MARKER_SYNC_GLOBAL,  /* membarrier, GLOBAL: every CPU has gone through the scheduler or an
                            interrupt since; serialising in practice, without a promise of Linux */
    MARKER_SYNC_NOTHING, /* none permitted: relies on one-byte changes (native/lib/spot.h) */
    MARKER_SYNC_SIGNALS  /* every thread has executed a serialising instruction in a signal handler
                            of ours; some of their system calls may have returned EINTR
                            (native/src/fence/fence.c) */
};

struct marker_statistics {
    uint64_t sites;         /* of all names, now */
    uint64_t skipped_notes; /* corrupt, or of a version not known here */
    enum marker_sync sync;  /* used for the last change */
};

/* Fills in the statistics. Returns 0 or -ENOMEM. */
int marker_get_statistics(struct marker_statistics *statistics);

#ifdef __cplusplus
}
#endif

#endif

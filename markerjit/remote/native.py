"""The native helper, libmjstop.so: its structures and functions as stop.h declares them.

A single native call does everything that happens while a thread of the target is stopped. A test
compares the structures here with those in C.
"""

from __future__ import annotations

import ctypes
import os
import time
from functools import cache

from markerjit.abi import EditEntry, PatchEntry
from markerjit.errors import MarkerError, refuse_own_shortage

OK = 0
ERRNO = 1
GONE = 2
BUSY = 3
IN_SPAN = 4
UNEXPECTED = 5
NOT_VERIFIED = 6
NO_THREAD = 7
CALL_FAILED = 8
NOT_64_BIT = 9
NOT_UNDONE = 10
NOT_SYNCED = 11
MOVED = 12
SIGTRAP_BLOCKED = 13
DISTURBED = 14
FAULTED = 15
STACK_UNKNOWN = 16
NO_ROOM = 17
OTHER_TRAP = 18
FILTERED = 19

STOP = 1
MEMBARRIER = 2
SIGNALS = 3
NONE = 4

MAX_EDIT = 16
CALL_TEXT = 64
GROW_MEMFD = (1 << 64) - 1


HOLD_ROOM = 160

FORKED = 1
EXECUTED = 2
ENDED = 3
SHARING = 4

STACK_PIECES = 4

FILTERS = 8192
FILTER_ROOM = 32768


class KnownThread(ctypes.Structure):
    """struct mj_known."""

    _fields_ = [("tid", ctypes.c_int32), ("filters", ctypes.c_uint32)]


class Filters(ctypes.Structure):
    """struct mj_filters."""

    _fields_ = [
        ("count", ctypes.c_uint32),
        ("lengths", ctypes.c_uint32 * FILTERS),
        ("code", ctypes.c_uint64 * FILTER_ROOM),
    ]


class Range(ctypes.Structure):
    """struct mj_range."""

    _fields_ = [("start", ctypes.c_uint64), ("size", ctypes.c_uint64)]


class StackPiece(ctypes.Structure):
    """struct mj_stack_piece."""

    _fields_ = [
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
    ]


class CopiedStack(ctypes.Structure):
    """struct mj_stack."""

    _fields_ = [
        ("tid", ctypes.c_int32),
        ("count", ctypes.c_uint32),
        ("rip", ctypes.c_uint64),
        ("rsp", ctypes.c_uint64),
        ("rbp", ctypes.c_uint64),
        ("call", ctypes.c_int64),
        ("pieces", StackPiece * STACK_PIECES),
    ]


class StackRoom(ctypes.Structure):
    """struct mj_stack_room."""

    _fields_ = [
        ("bytes", ctypes.c_void_p),
        ("size", ctypes.c_uint64),
        ("most", ctypes.c_uint64),
    ]


class Move(ctypes.Structure):
    """struct mj_move."""

    _fields_ = [("inside", ctypes.c_uint64), ("copy", ctypes.c_uint64)]


class Breakpoint(ctypes.Structure):
    """struct mj_breakpoint."""

    _fields_ = [("address", ctypes.c_uint64), ("body", ctypes.c_uint64)]


class NativeTarget(ctypes.Structure):
    """struct mj_target."""

    _fields_ = [
        ("pid", ctypes.c_int32),
        ("pidfd", ctypes.c_int32),
        ("mem_fd", ctypes.c_int32),
        ("needs_sigtrap", ctypes.c_int32),
        ("syscall_ret", ctypes.c_uint64),
        ("sigreturn", ctypes.c_uint64),
        ("pop_rax_ret", ctypes.c_uint64),
        ("scratch", ctypes.c_uint64),
        ("mapped", ctypes.c_char_p),
        ("mapped_size", ctypes.c_uint64),
        ("repeats_sleeps", ctypes.c_int32),
        ("known_count", ctypes.c_uint32),
        ("known", ctypes.POINTER(KnownThread)),
        ("moves", ctypes.POINTER(Move)),
        ("move_count", ctypes.c_uint64),
        ("rseq_offset", ctypes.c_int64),
        ("trap", ctypes.c_uint64),
        ("seen_trap", ctypes.c_uint64),
        ("is_private", ctypes.c_int32),
        ("is_registered", ctypes.c_int32),
        ("slots", ctypes.c_uint64),
        ("slots_size", ctypes.c_uint64),
    ]


class NativeCall(ctypes.Structure):
    """struct mj_call."""

    _fields_ = [
        ("number", ctypes.c_uint64),
        ("args", ctypes.c_uint64 * 6),
        ("refs", ctypes.c_int8 * 6),
        ("text_arg", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8),
        ("result", ctypes.c_int64),
        ("device", ctypes.c_uint64),
        ("inode", ctypes.c_uint64),
        ("text", ctypes.c_uint8 * CALL_TEXT),
    ]


class NativeThread(ctypes.Structure):
    """struct mj_thread."""

    _fields_ = [
        ("tid", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("fs_base", ctypes.c_uint64),
        ("rseq", ctypes.c_uint64),
    ]


class Launched(ctypes.Structure):
    """struct mj_launched."""

    _fields_ = [
        ("pid", ctypes.c_int32),
        ("patience_ms", ctypes.c_int32),
        ("size", ctypes.c_uint32),
        ("hold", ctypes.c_uint64),
        ("released", ctypes.c_uint64),
        ("place", ctypes.c_uint64),
        ("before", ctypes.c_uint8 * HOLD_ROOM),
        ("code", ctypes.c_uint8 * HOLD_ROOM),
    ]


class Followed(ctypes.Structure):
    """struct mj_followed."""

    _fields_ = [
        ("kind", ctypes.c_int32),
        ("pid", ctypes.c_int32),
        ("parent", ctypes.c_int32),
        ("status", ctypes.c_int32),
        ("hold", Launched),
    ]


class FollowTotals(ctypes.Structure):
    """struct mj_follow_totals."""

    _fields_ = [
        ("processes", ctypes.c_uint64),
        ("sharing", ctypes.c_uint64),
        ("executed", ctypes.c_uint64),
        ("unknown", ctypes.c_uint64),
        ("births", ctypes.c_uint64),
        ("held_ns", ctypes.c_uint64),
        ("longest_held_ns", ctypes.c_uint64),
    ]


class NativeMapping(ctypes.Structure):
    """struct mj_mapping."""

    _fields_ = [
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("permissions", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("inode", ctypes.c_uint64),
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
    ]


class Loads(ctypes.Structure):
    """struct mj_loads."""

    _fields_ = [("loaded", ctypes.c_uint64), ("unloaded", ctypes.c_uint64)]


class NativePlace(ctypes.Structure):
    """struct mj_place."""

    _fields_ = [
        ("file", ctypes.c_int32),
        ("size", ctypes.c_uint32),
        ("offset", ctypes.c_uint64),
        ("bytes", ctypes.c_char_p),
    ]


class NativeBefore(ctypes.Structure):
    """struct mj_before."""

    _fields_ = [
        ("pidfd", ctypes.c_int32),
        ("maps", ctypes.c_int32),
        ("kind", ctypes.c_uint64),
        ("mapped", ctypes.c_char_p),
        ("mapped_count", ctypes.c_uint32),
        ("place_count", ctypes.c_uint32),
        ("loads", ctypes.POINTER(Loads)),
        ("places", ctypes.POINTER(NativePlace)),
    ]


class Report(ctypes.Structure):
    """struct mj_report."""

    _fields_ = [
        ("error", ctypes.c_int32),
        ("tid", ctypes.c_int32),
        ("index", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("stop_ns", ctypes.c_uint64),
        ("held_ns", ctypes.c_uint64),
        ("resume_ns", ctypes.c_uint64),
        ("found", ctypes.c_uint8 * MAX_EDIT),
        ("borrowed", ctypes.c_uint32),
        ("written", ctypes.c_uint32),
    ]


def package_file(name: str) -> str:
    """The path of a compiled file of the package."""
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), "_native", name)


@cache
def library() -> ctypes.CDLL:
    """The helper, loaded once. Raises MarkerError where the native part was not built."""
    try:
        loaded = ctypes.CDLL(package_file("libmjstop.so"))
    except OSError as error:
        refuse_own_shortage(error)
        raise MarkerError(f"the native part cannot be loaded: {error}; was it built?") from None
    target = ctypes.POINTER(NativeTarget)
    report = ctypes.POINTER(Report)
    u32, u64 = ctypes.c_uint32, ctypes.c_uint64
    edits = ctypes.POINTER(EditEntry)
    loaded.mj_apply.argtypes = [target, ctypes.c_int, edits, u32, report]
    threads = ctypes.POINTER(NativeThread)
    calls = ctypes.POINTER(NativeCall)
    loaded.mj_borrow.argtypes = [target, calls, u32, threads, ctypes.POINTER(u32), report]
    loaded.mj_read_filters.argtypes = [target, ctypes.c_int32, ctypes.POINTER(Filters), report]
    ranges, referred = ctypes.POINTER(Range), ctypes.POINTER(ctypes.c_uint8)
    loaded.mj_find_references.argtypes = [target, ranges, u32, referred, report]
    loaded.mj_find_mentions.argtypes = [target, ranges, u32, referred, report]
    stacks, room = ctypes.POINTER(CopiedStack), ctypes.POINTER(StackRoom)
    loaded.mj_copy_stacks.argtypes = [
        target, ctypes.c_int32, stacks, ctypes.POINTER(u32), room, report,
    ]  # fmt: skip
    loaded.mj_send_home.argtypes = [target, ctypes.c_int32, report]
    words = ctypes.POINTER(ctypes.c_char_p)
    loaded.mj_launch.argtypes = [
        ctypes.c_char_p, words, ctypes.c_int32, ctypes.POINTER(Launched), report,
    ]  # fmt: skip
    loaded.mj_follow.argtypes = [target, ctypes.c_int32, report]
    loaded.mj_follow_next.argtypes = [ctypes.POINTER(Followed)]
    loaded.mj_follow_wait.argtypes = [u32]
    loaded.mj_follow_wait.restype = None
    loaded.mj_follow_release.argtypes = [ctypes.c_int32]
    loaded.mj_follow_totals.argtypes = [ctypes.POINTER(FollowTotals)]
    loaded.mj_follow_totals.restype = None
    loaded.mj_follow_end.restype = None
    loaded.mj_follows.argtypes = [ctypes.c_int32]
    loaded.mj_mappings.argtypes = [ctypes.c_int32, ctypes.POINTER(NativeMapping), u32]
    loaded.mj_mappings.restype = ctypes.c_int64
    loaded.mj_is_as_before.argtypes = [ctypes.POINTER(NativeBefore)]
    loaded.mj_is_as_before.restype = ctypes.c_int
    loaded.mj_own_loads.argtypes = [ctypes.POINTER(Loads)]
    loaded.mj_own_loads.restype = None
    patches = ctypes.POINTER(PatchEntry)
    loaded.mj_patches_create.argtypes = [ctypes.c_int, u64, u32]
    loaded.mj_patches_create.restype = ctypes.c_void_p
    loaded.mj_patches_destroy.argtypes = [ctypes.c_void_p]
    loaded.mj_patches_destroy.restype = None
    loaded.mj_patches_enter.argtypes = [
        ctypes.c_void_p, patches, u32, u32, ctypes.POINTER(u32), report,
    ]  # fmt: skip
    loaded.mj_patches_mark.argtypes = [
        ctypes.c_void_p, ctypes.POINTER(u64), u32, ctypes.c_int, report,
    ]  # fmt: skip
    loaded.mj_patches_planted.argtypes = [
        ctypes.c_void_p, ctypes.POINTER(Breakpoint), u32, report,
    ]  # fmt: skip
    loaded.mj_patches_changed.argtypes = [ctypes.c_void_p]
    loaded.mj_patches_write.argtypes = [ctypes.c_void_p, report]
    loaded.mj_clock_pair.argtypes = [ctypes.POINTER(u64), ctypes.POINTER(u64)]
    loaded.mj_clock_pair.restype = None
    loaded.mj_work_ps.argtypes = []
    loaded.mj_work_ps.restype = u64
    return loaded


def own_loads() -> bytes:
    """Bytes that are other ones as soon as an object is loaded into our process, or unloaded."""
    loads = Loads()
    library().mj_own_loads(loads)
    return bytes(loads)


def is_followed(pid: int) -> bool:
    """Whether the follower of this process traces it (follow.c)."""
    return bool(library().mj_follows(pid))


def tsc_frequency(baseline_s: float = 0.05) -> int:
    """The measured frequency of the time stamp counter, in Hz."""
    first = clock_pair()
    time.sleep(baseline_s)
    last = clock_pair()
    return (last[0] - first[0]) * 1_000_000_000 // (last[1] - first[1])


def work_ns() -> float:
    """How long this machine takes for work like that of a probe that records two integers."""
    return int(library().mj_work_ps()) / 1000


def clock_pair() -> tuple[int, int]:
    """The time stamp counter and CLOCK_MONOTONIC (ns), read at the same moment."""
    tsc, monotonic = ctypes.c_uint64(), ctypes.c_uint64()
    library().mj_clock_pair(ctypes.byref(tsc), ctypes.byref(monotonic))
    return tsc.value, monotonic.value

"""The native helper, libmjstop.so: its structures and functions as stop.h declares them.

One native call does all that happens while a thread of the target stands still. A test compares the
structures here with the C ones.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

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

MAX_EDIT = 16


class NativeEdit(ctypes.Structure):
    """struct mj_edit."""

    _fields_ = [
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("old_bytes", ctypes.c_uint8 * MAX_EDIT),
        ("new_bytes", ctypes.c_uint8 * MAX_EDIT),
    ]


class NativeCall(ctypes.Structure):
    """struct mj_call."""

    _fields_ = [
        ("number", ctypes.c_uint64),
        ("args", ctypes.c_uint64 * 6),
        ("refs", ctypes.c_int8 * 6),
        ("reserved", ctypes.c_uint8 * 2),
        ("result", ctypes.c_int64),
    ]


class NativeThread(ctypes.Structure):
    """struct mj_thread."""

    _fields_ = [
        ("tid", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("fs_base", ctypes.c_uint64),
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
        ("reserved", ctypes.c_uint32),
    ]


def package_file(name: str) -> str:
    """The path of a built file of the package."""
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), "_native", name)


@cache
def library() -> ctypes.CDLL:
    """The helper, loaded once. Raises OSError when the native part was not built."""
    loaded = ctypes.CDLL(package_file("libmjstop.so"))
    edits = ctypes.POINTER(NativeEdit)
    report = ctypes.POINTER(Report)
    u32, u64, pid = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int
    loaded.mj_write.argtypes = [ctypes.c_int, edits, u32, report]
    loaded.mj_write_own.argtypes = [ctypes.c_int, edits, u32, report]
    loaded.mj_write_stopped.argtypes = [pid, ctypes.c_int, edits, u32, report]
    threads = ctypes.POINTER(NativeThread)
    loaded.mj_threads.argtypes = [pid, threads, ctypes.POINTER(u32), report]
    calls = ctypes.POINTER(NativeCall)
    loaded.mj_borrow.argtypes = [pid, threads, u32, ctypes.c_int, u64, calls, u32, report]
    loaded.mj_clock_pair.argtypes = [ctypes.POINTER(u64), ctypes.POINTER(u64)]
    loaded.mj_clock_pair.restype = None
    return loaded


def clock_pair() -> tuple[int, int]:
    """The time stamp counter and CLOCK_MONOTONIC (ns) at the same moment."""
    tsc, monotonic = ctypes.c_uint64(), ctypes.c_uint64()
    library().mj_clock_pair(ctypes.byref(tsc), ctypes.byref(monotonic))
    return tsc.value, monotonic.value

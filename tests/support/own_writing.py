"""Transactions in this process, and a page of code for them."""

from __future__ import annotations

import ctypes
import mmap
import os

from markerjit.arena.pack import as_native, pack
from markerjit.model import Edit
from markerjit.remote import native


class Own:
    """Changes of this process, by each quiescence that it has."""

    def __init__(self, quiescence: int, mem_fd: int) -> None:
        self._quiescence = quiescence
        self._target = native.NativeTarget(pid=os.getpid(), pidfd=-1, mem_fd=mem_fd)

    def apply(self, *edits: Edit) -> int:
        packed, self.report = pack(edits), native.Report()
        return int(
            native.library().mj_apply(
                self._target, self._quiescence, as_native(packed), len(edits), self.report
            )
        )


def address_of_code() -> int:
    """A page of zeros, r-x, private and anonymous. Python's own mmap gives no such address."""
    function = ctypes.CDLL(None).mmap
    function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_void_p, *[ctypes.c_size_t] * 5]
    return int(function(None, mmap.PAGESIZE, 5, 0x22, (1 << 64) - 1, 0))

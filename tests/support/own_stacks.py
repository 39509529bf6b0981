"""Stacks of this process, walked by the real runtime and, from copies, by the walker in Python."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import markerjit.abi as abi
from markerjit.abi import CONTROL, Control, Stacks
from markerjit.arena.stacks import StackMemory
from markerjit.arena.store import MemoryStore
from markerjit.errors import MemoryFault
from markerjit.memory import ProcessMemory, read_maps
from markerjit.model import RemoteAddress
from markerjit.unwind.objects import ProcessCode
from markerjit.unwind.walk import Code, Registers, Stack, StackEnd, walk
from tests.support.own_arena import OwnArena, OwnMemory, address_of
from tests.support.programs import ROOT

ROOM = 1 << 20
ENDS = (StackEnd.OUTERMOST, StackEnd.NO_TABLE, StackEnd.DAMAGED, StackEnd.DEEPER, StackEnd.DAMAGED)
"""By MJ_END_*. The walker in Python does not tell apart what is no code."""


class Copy(ctypes.Structure):
    _fields_ = [
        ("start", ctypes.c_uint64), ("size", ctypes.c_uint64), ("bytes", ctypes.c_ubyte * ROOM)
    ]  # fmt: skip


class Seen(ctypes.Structure):
    """struct seen of seen.c."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("gate", "depth", "limit", "number")),
        *((name, ctypes.c_uint64) for name in ("rip", "rsp", "rbp")),
        ("here", Copy),
        ("other", Copy),
    ]

    @property
    def registers(self) -> Registers:
        return Registers(self.rip, self.rsp, self.rbp)

    def word(self, address: int) -> int:
        """A word of the copies. Raises MemoryFault elsewhere."""
        for copy in (self.here, self.other):
            at = address - copy.start
            if 0 <= at <= copy.size - 8:
                return int.from_bytes(bytes(copy.bytes[at : at + 8]), "little")
        raise MemoryFault(RemoteAddress(address), 8, "read", "it was not copied")


def compiled(folder: Path) -> ctypes.CDLL:
    """seen.c."""
    source = ROOT / "tests" / "unit" / "walk" / "seen.c"
    command = ["gcc", "-O2", "-shared", "-fPIC", "-o", folder / "seen.so", source]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(folder / "seen.so"))
    library.walk_from.restype = ctypes.c_uint64
    library.walk_from.argtypes = [ctypes.c_uint64] * 5 + [ctypes.c_int]
    return library


class OwnStacks:
    """The memory of stacks in this process, beside an arena with the runtime."""

    def __init__(self, **control: int) -> None:
        self.own = OwnArena(**control)  # type: ignore[arg-type]
        self._memory = mmap.mmap(-1, abi.STACKS_SIZE, flags=mmap.MAP_SHARED)
        self.address = RemoteAddress(address_of(self._memory))
        # Never unmapped: a thread may be in it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._memory))
        self.store = MemoryStore(OwnMemory(self._memory), self.address)
        self.stacks = StackMemory(self.store, 0)
        self.stacks.begin()
        self.own.store.write(CONTROL + Control.stacks.offset, self.address.to_bytes(8, "little"))
        self.gate = self.own.base + self.own.arena.entry.gate_stack
        self.reading = ProcessMemory(os.getpid())

    def refresh(self) -> ProcessCode:
        """Have the tables of what is mapped now."""
        maps = read_maps("self")
        self.stacks.refresh(self.reading.read, maps)
        return ProcessCode(self.reading.read, maps)

    def enter(self, codes: Sequence[abi.CodeEntry]) -> None:
        """Have these codes in a directory of their own."""
        self.stacks.enter(codes, 0)

    @property
    def directory(self) -> int:
        """The number of the directory in force."""
        return int(Stacks.from_buffer_copy(self.store.read(0, ctypes.sizeof(Stacks))).directory)

    def write_word(self, field: Any, value: int) -> None:
        """Write a number of the header."""
        self.store.write(field.offset, value.to_bytes(8, "little"))

    def seen(self, depth: int = 64) -> Seen:
        """A place for a look of this thread."""
        return Seen(gate=self.gate, depth=depth, limit=end_of_stack())

    def stack(self, number: int) -> Stack | None:
        """The stack with a number, its end as the walker in Python calls it."""
        stack = self.stacks.stack(number)
        if stack is None:
            return None
        head = self.store.read(abi.STACKS_WORDS + 8 * number, 8)
        ends = abi.STACK_END // 8
        return stack._replace(end=ENDS[int.from_bytes(head[ends : ends + 2], "little")])


def end_of_stack() -> int:
    """Where the stack of this thread ends, upwards."""
    libc = ctypes.CDLL(None)
    libc.pthread_self.restype = ctypes.c_void_p
    attributes = ctypes.create_string_buffer(64)
    start, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert not libc.pthread_getattr_np(ctypes.c_void_p(libc.pthread_self()), attributes)
    libc.pthread_attr_getstack(attributes, ctypes.byref(start), ctypes.byref(size))
    libc.pthread_attr_destroy(attributes)
    return (start.value or 0) + size.value


def expected(code: Code, seen: Seen) -> Stack:
    """What the walker in Python makes of a look."""
    return walk(code, seen.word, seen.registers, seen.depth)

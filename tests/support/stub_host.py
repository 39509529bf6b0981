"""A site in the test's own process, whose stub the test makes and executes with registers that it
chooses (tests/unit/stub/site.S)."""

from __future__ import annotations

import ctypes
import mmap
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

from markerjit.model import CType, Operand, RemoteAddress, Signature
from markerjit.probes.before import BEFORE_STUB
from markerjit.probes.fast import Fast
from markerjit.probes.stub import (
    LARGEST,
    Displaced,
    Stub,
    make_exit_stub,
    make_stub,
)
from markerjit.sites.operands import parse_operands
from tests.support.own_arena import Slot
from tests.support.parts import check_parts
from tests.support.programs import ROOT

SITE = ROOT / "tests" / "unit" / "stub" / "site.S"
NAMES = (
    *("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi"),
    *(f"r{number}" for number in range(8, 16)),
)
VALUES = {name: 0x8182_8384_8586_8788 ^ number * 0x0101_0101_0101_0101
          for number, name in enumerate(NAMES)}  # fmt: skip
FLAGS = 0x8D7
"""All that arithmetic sets. The direction is clear in compiled code."""
STATE = struct.Struct("<16QQ256s")


MAP_NORESERVE, MAP_FIXED_NOREPLACE = 0x4000, 0x100000
MAP_FAILED = 2**64 - 1


class Outcome(NamedTuple):
    """What a probe was given, and how the registers were behind the site."""

    words: tuple[int, ...]
    shape: int
    slot: int
    registers: dict[str, int]
    flags: int
    vectors: bytes
    stack: int


def free_page_near(address: int) -> int:
    """The nearest page where nothing is mapped. Tests before may have mapped gigabytes around."""
    with open("/proc/self/maps") as file:
        bounds = [line.split()[0].split("-") for line in file]
    starts = [int(start, 16) for start, _ in bounds]
    ends = [int(end, 16) for _, end in bounds]
    gaps = [pair for pair in zip(ends, starts[1:], strict=False) if pair[0] < pair[1]]
    pages = [page for end, start in gaps for page in (end, start - 4096)]
    return min(pages, key=lambda page: abs(page - address))


class Host:
    """site.S, a stack, and room for a stub near it."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.site = self.address("site")
        self.size = self.address("site_end") - self.site
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        access = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED_NOREPLACE
        page = libc.mmap(free_page_near(self.site), 4096, access, flags, -1, 0)
        assert page != MAP_FAILED
        self.room = RemoteAddress(page + BEFORE_STUB)
        assert abs(self.room - self.site) < 1 << 30
        self.stack = ctypes.create_string_buffer(1 << 16)
        self.slot = Slot()
        self.fast: Fast | None = None

    def address(self, name: str) -> RemoteAddress:
        return RemoteAddress(ctypes.addressof(ctypes.c_char.in_dll(self.library, name)))

    def run(
        self, operands: tuple[Operand, ...], args: tuple[CType, ...], *,
        registers: dict[str, int] | None = None, vectors: bytes = bytes(range(256)),
        on: bool = True, keeps: bool = False, entry: Slot | None = None,
    ) -> Outcome | None:  # fmt: skip
        """Execute the site with the probe of site.S, or without one. None where the probe was not
        called."""
        self.slot.probe = self.address("probe") if on else 0
        calls = ctypes.c_uint64.in_dll(self.library, "calls")
        calls.value = 0
        after = self.execute(
            operands, args, registers=registers, vectors=vectors, keeps=keeps, entry=entry
        )
        if not on:
            assert not calls.value
            return None
        assert calls.value == 1
        block = struct.unpack("<16Q", ctypes.string_at(self.address("block"), 128))
        return Outcome(block[2:], block[0], block[1], *after)

    def execute(
        self, operands: tuple[Operand, ...], args: tuple[CType, ...], *,
        registers: dict[str, int] | None = None, vectors: bytes = bytes(range(256)),
        keeps: bool = False, entry: Slot | None = None,
    ) -> tuple[dict[str, int], int, bytes, int]:  # fmt: skip
        """Execute the site with these operands, as an exit of the function with this `entry`.
        Returns the registers behind it, which are as before, the flags, the vectors, and where the
        stack is."""
        top = ctypes.addressof(self.stack) + (1 << 15) & -16
        before = {**VALUES, "rsp": top, **(registers or {})}
        state = STATE.pack(*(before[name] for name in NAMES), FLAGS, vectors)
        ctypes.memmove(self.address("before"), state, len(state))
        slot = RemoteAddress(ctypes.addressof(self.slot))
        displaced = Displaced(self.site, ctypes.string_at(self.site, self.size))
        signature = Signature("made:one", "", args)
        if entry is None:
            stub = make_stub(
                signature, operands, slot, displaced, self.room, keeps=keeps, fast=self.fast
            )
        else:
            stub = make_exit_stub(
                signature, operands, slot, displaced, self.room, is_asked=True,
                entry=RemoteAddress(ctypes.addressof(entry)), fast=self.fast,
            )  # fmt: skip
        assert isinstance(stub, Stub) and len(stub.code) < LARGEST
        check_parts(stub.parts, self.room, stub.code)
        ctypes.memmove(self.room - BEFORE_STUB, stub.before, len(stub.before))
        ctypes.memmove(self.room, stub.code, len(stub.code))
        self.library.run_site(ctypes.c_void_p(self.room))
        *after, flags, seen = STATE.unpack(ctypes.string_at(self.address("after"), STATE.size))
        named = dict(zip(NAMES, after, strict=True))
        named["r15"] -= 1  # the copy of the site's own instruction
        assert named == before
        assert seen == vectors
        return named, flags, seen, top


def build_host(folder: Path) -> Host:
    """site.S, compiled into a folder."""
    path = folder / "site.so"
    options = ["gcc", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-o", path, SITE]
    subprocess.run([str(word) for word in options], check=True)
    return Host(path)


class NoNames:
    """No symbols."""

    fixed_address = False


def parsed(text: str) -> tuple[tuple[Operand, ...], tuple[CType, ...]]:
    arguments = parse_operands(text, NoNames())  # type: ignore[arg-type]
    return tuple(argument.operand for argument in arguments), tuple(
        argument.ctype for argument in arguments
    )

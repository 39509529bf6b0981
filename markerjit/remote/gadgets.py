"""The search for instructions in the target's own code that a borrowed thread runs: see borrow.c.

They are `syscall; ret`, and a sequence that leads from there to rt_sigreturn, so that a thread
returns by itself when its controller is killed. C libraries have both. This module only reads
memory.

The code must not be unmapped while a thread runs it, and other threads may run meanwhile. The C
library, the loader, the vDSO and the program itself are never unloaded. Any other library may be
(dlclose), and so may a second C library (dlmopen). Memory without a file often belongs to a JIT
compiler, which unmaps it. The code is checked again when a thread is borrowed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Mapping as Map
from contextlib import suppress
from functools import lru_cache

from markerjit.errors import MemoryFault, Unsupported
from markerjit.memory import Mapping
from markerjit.model import RemoteAddress
from markerjit.tuples import NamedTuple
from markerjit.x86.forms import POP_RAX_RET, SIGRETURN, SYSCALL_RET

_PIECE = 1 << 20
_OVERLAP = 16  # more than a pattern has
_FILES = 64
_PATTERNS = {
    "syscall_ret": (SYSCALL_RET,),
    "sigreturn": SIGRETURN,
    "pop_rax_ret": (POP_RAX_RET,),
}
_LONGEST = max(len(pattern) for patterns in _PATTERNS.values() for pattern in patterns)
_ENOUGH = frozenset(("syscall_ret", "sigreturn"))
"""Once these are known, the search reads no more code."""


class Gadgets(NamedTuple):
    """Addresses in the target, 0 where there is none. `syscall_ret` and one other are never 0."""

    syscall_ret: RemoteAddress
    sigreturn: RemoteAddress
    pop_rax_ret: RemoteAddress


def find_gadgets(read: Callable[[RemoteAddress, int], bytes], maps: Sequence[Mapping]) -> Gadgets:
    """The gadgets in the executable mappings. Raises Unsupported where one is missing."""
    addresses: dict[str, RemoteAddress] = {}
    executable = [
        mapping for mapping in maps if mapping.executable and mapping.path != "[vsyscall]"
    ]
    most_permanent_first = sorted(executable, key=lambda mapping: _transience(mapping.path))
    for mapping in most_permanent_first:
        for name, offset in _offsets_in(read, mapping).items():
            addresses.setdefault(name, RemoteAddress(mapping.start + offset))
        if addresses.keys() >= _ENOUGH:
            break
    none = RemoteAddress(0)
    gadgets = Gadgets(
        addresses.get("syscall_ret", none),
        addresses.get("sigreturn", none),
        addresses.get("pop_rax_ret", none),
    )
    if not gadgets.syscall_ret or not (gadgets.sigreturn or gadgets.pop_rax_ret):
        raise Unsupported(
            "the process has no code from which a borrowed thread could return by itself "
            "(syscall; ret, and rt_sigreturn), so none is borrowed; is it linked without a C "
            "library?"
        )
    return gadgets


def _offsets_in(read: Callable[[RemoteAddress, int], bytes], mapping: Mapping) -> dict[str, int]:
    """The gadgets of a mapping, from its start. In a file they are looked for once: in the next
    process they are there, or it is another file."""
    if not mapping.inode:
        return _search(read, mapping)
    offsets = _known(mapping.device, mapping.inode, mapping.path, mapping.offset, mapping.size)
    if not _are_there(read, mapping, offsets):
        offsets.clear()
        offsets.update(_search(read, mapping))
    return offsets


@lru_cache(_FILES)
def _known(device: str, inode: int, path: str, offset: int, size: int) -> dict[str, int]:
    """The places of the gadgets in this part of a file, as the search found them in the last
    process."""
    return {}


def _are_there(
    read: Callable[[RemoteAddress, int], bytes], mapping: Mapping, offsets: Map[str, int]
) -> bool:
    """Whether a mapping has enough of them, and each of these."""
    try:
        return offsets.keys() >= _ENOUGH and all(
            read(RemoteAddress(mapping.start + offset), _LONGEST).startswith(_PATTERNS[name])
            for name, offset in offsets.items()
        )
    except MemoryFault:
        return False


def _search(read: Callable[[RemoteAddress, int], bytes], mapping: Mapping) -> dict[str, int]:
    """The gadgets in the mapping's code. The search reads no more code than it needs."""
    offsets: dict[str, int] = {}
    for start, code in _pieces(read, mapping):
        for name, patterns in _PATTERNS.items():
            at = _first(code, patterns)
            if at is not None:
                offsets.setdefault(name, start + at - mapping.start)
        if offsets.keys() >= _ENOUGH:
            break
    return offsets


def _pieces(
    read: Callable[[RemoteAddress, int], bytes], mapping: Mapping
) -> Iterator[tuple[RemoteAddress, bytes]]:
    """The readable parts of a mapping, in pieces, since it may be larger than our memory.

    Pieces overlap, so that a pattern at a border is whole in the second piece.
    """
    for at in range(mapping.start, mapping.end, _PIECE):
        start = RemoteAddress(max(mapping.start, at - _OVERLAP))
        with suppress(MemoryFault):
            yield start, read(start, min(at + _PIECE, mapping.end) - start)


_C_LIBRARY = r"""
      libc (\.so | -\d[\d.]*\.so) (\.\d+)*      # libc.so.6, libc-2.31.so, Android's libc.so
    | (ld | libc) [.-] musl - \w+ \.so (\.\d+)*  # ld-musl-x86_64.so.1, which is musl's libc
    | ld - (linux-x86-64 | \d[\d.]*) \.so (\.\d+)*  # glibc's loader: the same, or ld-2.31.so
    """
"""Compiled when a name is compared with it: most commands borrow no thread."""


@lru_cache(_FILES)
def _transience(path: str) -> int:
    """How likely a mapping of this path is to be unmapped while the process runs; the least likely
    sorts first.

    The sort is stable and the program is lower in memory than its libraries, so it comes first of
    the files.
    """
    if re.fullmatch(_C_LIBRARY, os.path.basename(path), re.VERBOSE):
        return 0
    if path == "[vdso]":
        return 1
    return 2 if path.startswith("/") else 3


def _first(code: bytes, patterns: Iterable[bytes]) -> int | None:
    """The first place of any of these patterns. The search ends at the first match: a C library has
    only one, and to prove that there is no other takes as long as everything else."""
    first, end = None, len(code)
    for pattern in patterns:
        at = code.find(pattern, 0, end)
        if at >= 0:
            first = at if first is None else min(first, at)
            end = first + _OVERLAP
    return first

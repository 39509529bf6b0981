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
from contextlib import suppress

from markerjit.errors import MemoryFault, Unsupported
from markerjit.memory import Mapping
from markerjit.model import RemoteAddress
from markerjit.tuples import NamedTuple
from markerjit.x86.forms import POP_RAX_RET, SIGRETURN, SYSCALL_RET

_PIECE = 1 << 20
_OVERLAP = 16  # more than a pattern has


class Gadgets(NamedTuple):
    """Addresses in the target, 0 where there is none. `syscall_ret` and one other are never 0."""

    syscall_ret: RemoteAddress
    sigreturn: RemoteAddress
    pop_rax_ret: RemoteAddress


def find_gadgets(read: Callable[[RemoteAddress, int], bytes], maps: Sequence[Mapping]) -> Gadgets:
    """The gadgets in the executable mappings. Raises Unsupported where one is missing."""
    addresses: dict[str, RemoteAddress] = {}
    for start, code in _code(read, maps):
        for name, patterns in (
            ("syscall_ret", (SYSCALL_RET,)),
            ("sigreturn", SIGRETURN),
            ("pop_rax_ret", (POP_RAX_RET,)),
        ):
            at = _first(code, patterns)
            if at is not None:
                addresses.setdefault(name, RemoteAddress(start + at))
        if "syscall_ret" in addresses and "sigreturn" in addresses:
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


def _code(
    read: Callable[[RemoteAddress, int], bytes], maps: Sequence[Mapping]
) -> Iterator[tuple[RemoteAddress, bytes]]:
    """The code of the executable mappings, the most permanent ones first."""
    executable = [
        mapping for mapping in maps if mapping.executable and mapping.path != "[vsyscall]"
    ]
    for mapping in sorted(executable, key=_transience):
        yield from _pieces(read, mapping)


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


def _transience(mapping: Mapping) -> int:
    """A rank of how likely the mapping goes while the process runs, the least likely first.

    The sort is stable and the program is lower in memory than its libraries, so it comes first of
    the files.
    """
    if re.fullmatch(_C_LIBRARY, os.path.basename(mapping.path), re.VERBOSE):
        return 0
    if mapping.path == "[vdso]":
        return 1
    return 2 if mapping.path.startswith("/") else 3


def _first(code: bytes, patterns: Iterable[bytes]) -> int | None:
    """The first place of any of these. None is looked for behind one that was found: a C library
    has only one of them, and to find out that it has no other takes as long as all the rest."""
    first, end = None, len(code)
    for pattern in patterns:
        at = code.find(pattern, 0, end)
        if at >= 0:
            first = at if first is None else min(first, at)
            end = first + _OVERLAP
    return first

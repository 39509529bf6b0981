"""Instructions of the target's own that a borrowed thread runs: see borrow.c.

`syscall; ret`, and what leads from there to rt_sigreturn, so that a thread finds its way back also
when its controller is killed. C libraries have both. Reads memory only.

The code must not go while a thread is on it, and other threads may run meanwhile. The C library,
the loader and the vDSO are never unloaded, and the program itself is not. Any other library may be
(dlclose), and so may a second C library (dlmopen); memory without a file is often a compiler's,
which comes and goes. Whether the code is still there is asked once more when a thread is borrowed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from markerjit.errors import MemoryFault, Unsupported
from markerjit.memory import Mapping
from markerjit.model import RemoteAddress
from markerjit.x86.forms import POP_RAX_RET, SIGRETURN, SYSCALL_RET

_PIECE = 1 << 20
_OVERLAP = 16  # more than a pattern has


class Gadgets(NamedTuple):
    """Addresses in the target; 0 for what it has not. `syscall_ret` and one of the others are
    there."""

    syscall_ret: RemoteAddress
    sigreturn: RemoteAddress
    pop_rax_ret: RemoteAddress


def find_gadgets(read: Callable[[RemoteAddress, int], bytes], maps: Sequence[Mapping]) -> Gadgets:
    """Look through the executable mappings. Raises Unsupported when something is missing."""
    found: dict[str, RemoteAddress] = {}
    for start, code in _code(read, maps):
        for name, patterns in (
            ("syscall_ret", (SYSCALL_RET,)),
            ("sigreturn", SIGRETURN),
            ("pop_rax_ret", (POP_RAX_RET,)),
        ):
            at = _first(code, patterns)
            if at is not None:
                found.setdefault(name, RemoteAddress(start + at))
        if "syscall_ret" in found and "sigreturn" in found:
            break
    none = RemoteAddress(0)
    gadgets = Gadgets(
        found.get("syscall_ret", none),
        found.get("sigreturn", none),
        found.get("pop_rax_ret", none),
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
    """Executable mappings, those first that stay."""
    executable = [one for one in maps if one.executable and one.path != "[vsyscall]"]
    for mapping in sorted(executable, key=_transience):
        yield from _pieces(read, mapping)


def _pieces(
    read: Callable[[RemoteAddress, int], bytes], mapping: Mapping
) -> Iterator[tuple[RemoteAddress, bytes]]:
    """As far as it can be read; a program may map more than we have memory for. A pattern that is
    in two pieces is whole in the second."""
    for at in range(mapping.start, mapping.end, _PIECE):
        start = RemoteAddress(max(mapping.start, at - _OVERLAP))
        with suppress(MemoryFault):
            yield start, read(start, min(at + _PIECE, mapping.end) - start)


_C_LIBRARY = re.compile(
    r"""
      libc (\.so | -\d[\d.]*\.so) (\.\d+)*      # libc.so.6, libc-2.31.so, Android's libc.so
    | (ld | libc) [.-] musl - \w+ \.so (\.\d+)*  # ld-musl-x86_64.so.1, which is musl's libc
    | ld - (linux-x86-64 | \d[\d.]*) \.so (\.\d+)*  # glibc's loader: the same, or ld-2.31.so
    """,
    re.VERBOSE,
)


def _transience(mapping: Mapping) -> int:
    """How likely it goes while the process runs: less first. The program stands lower in memory
    than its libraries, and so comes first of the files."""
    if _C_LIBRARY.fullmatch(os.path.basename(mapping.path)):
        return 0
    if mapping.path == "[vdso]":
        return 1
    return 2 if mapping.path.startswith("/") else 3


def _first(code: bytes, patterns: Iterable[bytes]) -> int | None:
    places = [at for at in map(code.find, patterns) if at >= 0]
    return min(places, default=None)

"""Instructions of the target's own that a borrowed thread runs: see borrow.c.

`syscall; ret`, and what leads from there to rt_sigreturn, so that a thread finds its way back also
when its controller is killed. C libraries have both. Reads memory only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from markerjit.errors import MemoryFault, Unsupported
from markerjit.memory import Mapping
from markerjit.model import RemoteAddress
from markerjit.x86.templates import POP_RAX_RET, SIGRETURN, SYSCALL_RET


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
    """Executable mappings, the C library's first, which has all of it."""
    executable = [one for one in maps if one.executable and one.path != "[vsyscall]"]
    for mapping in sorted(executable, key=lambda one: "libc" not in one.path):
        try:
            yield mapping.start, read(mapping.start, mapping.size)
        except MemoryFault:
            continue


def _first(code: bytes, patterns: Iterable[bytes]) -> int | None:
    places = [at for at in map(code.find, patterns) if at >= 0]
    return min(places, default=None)

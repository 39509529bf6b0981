"""What holds for the parts of any code that is assembled."""

from __future__ import annotations

from collections.abc import Sequence

from markerjit.probes.parts import Name, Role, role_of
from markerjit.x86.assemble import Part
from markerjit.x86.decode import disassemble


def check_parts(parts: Sequence[Part], address: int, code: bytes) -> None:
    """Each byte belongs to exactly one part, in order, and no instruction to two of them."""
    assert [part.start for part in parts] == [address, *(part.end for part in parts[:-1])]
    assert parts[-1].end == address + len(code)
    assert all(part.start < part.end for part in parts)
    for part in parts:
        if role_of(part.name) is Role.DATA or part.name == Name.MOVED:
            continue  # a moved call has its return address among its code
        piece = code[part.start - address : part.end - address]
        assert b"".join(each.code for each in disassemble(piece, part.start)) == piece

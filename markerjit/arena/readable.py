"""What the runtime knows of the process's pages: which of them could be read a moment ago.

It is private memory of the process, not of the memfd. abi.h says what stands in it, and when a word
of it holds; docs/decisions/0023-strings-by-known-pages.md says why.
"""

from __future__ import annotations

from markerjit.abi import PART_READABLE
from markerjit.arena.arena import Arena
from markerjit.memory import Memory
from markerjit.model import RemoteAddress


def forget_pages(memory: Memory, arena: Arena) -> None:
    """Nothing is known any more of any page. Of an older arena nothing ever was."""
    part = arena.geometry.parts[PART_READABLE]
    if part.size:
        memory.write(RemoteAddress(arena.base + part.offset), bytes(part.size))

"""The blocks of an allocator in the memory of an aggregate, as the runtime keeps them
(native/src/runtime/heap.c), copied.

What this does not do: say what the numbers of sites mean (allocations/heap.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

import markerjit.abi as abi
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    import numpy.typing as npt

    from markerjit.arena.store import FileStore, MemoryStore

_WORD = 8
_BLOCK = ctypes.sizeof(abi.BlockEntry)
PLACE_WORDS = 2 + abi.BLOCK_WORDS
"""Words of a place: its state, the block, and one of the bits of threads."""
_AT_ONCE = 1 << 16


class Blocks(NamedTuple):
    """A copy of all.

    keys     of the sites with their numbers, in no order; a key may have more than one
    rings    the words of each ring: those of what was missed, then those of the numbers in use
    blocks   struct mj_block one behind the other, of those that are live and of what threads have
             begun
    threads  how many threads were seen
    most     bytes that were live at most, and `most_at` when, as the clock of pairs counts
    """

    keys: Sequence[tuple[bytes, int]]
    rings: Sequence[bytes]
    blocks: bytes
    threads: int
    most: int
    most_at: int


def blocks_in(store: FileStore | MemoryStore, states_at: int, places: int) -> tuple[bytes, int]:
    """The blocks of a table of so many places, and how many threads were seen. While the program
    runs a block may be half written; the reader leaves out what makes no sense."""
    blocks_at = states_at + _WORD * places
    threads_at = blocks_at + _BLOCK * places
    parts: list[bytes] = []
    for at, states in _words(store, states_at, places):
        full = np.flatnonzero((states & np.uint64(abi.PLACE_STATE)) == abi.PLACE_FULL)
        if len(full):
            first, last = int(full[0]), int(full[-1]) + 1
            data = store.read(blocks_at + (at + first) * _BLOCK, (last - first) * _BLOCK)
            rows = np.frombuffer(data, np.uint64).reshape(-1, abi.BLOCK_WORDS)
            parts.append(rows[full - first].tobytes())
    threads = sum(int(bits.sum()) for bits in _bits(store, threads_at, places))
    return b"".join(parts), threads


def _bits(store: FileStore | MemoryStore, start: int, count: int) -> Iterator[npt.NDArray]:  # type: ignore[type-arg]
    for _, words in _words(store, start, count):
        yield np.unpackbits(words.view(np.uint8))


def _words(
    store: FileStore | MemoryStore, start: int, count: int
) -> Iterator[tuple[int, npt.NDArray[np.uint64]]]:
    """The words from an offset on, in runs in which something was written: the number of the first
    one, and the words."""
    end = start + _WORD * count
    runs = [*store.used(start, end - start)]
    if not runs and not store.gives_back:  # our own process, without a way to ask
        runs = [(start, end)]
    for begin, behind in runs:
        begin, behind = max(begin, start), min(behind, end)
        for at in range(begin, behind, _WORD * _AT_ONCE):
            size = min(_WORD * _AT_ONCE, behind - at)
            yield (at - start) // _WORD, np.frombuffer(store.read(at, size), np.uint64)

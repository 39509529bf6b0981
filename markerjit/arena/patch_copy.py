"""A copy of the table of patches, in which very many heads are put, or marked, at once.

The work is that of patches.py, done by native/src/stop/patches.c. Nothing of it is written before
`write`, so what is refused changes nothing.
"""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Sequence
from itertools import chain
from types import TracebackType

from markerjit.abi import Part, PatchEntry
from markerjit.arena.store import FileStore, reason
from markerjit.errors import MarkerError
from markerjit.model import RemoteAddress
from markerjit.remote import native
from markerjit.tuples import NamedTuple

_U64 = ctypes.c_uint64


class NotEntered(NamedTuple):
    """Why heads were not put into the copy: `head` is the number of one whose breakpoint led
    elsewhere before; None where the table is full."""

    head: int | None


class PatchCopy:
    """The copy, until the context ends. The caller must hold the target's lock. Raises MarkerError,
    as everything here does where the file cannot be read or written."""

    def __init__(self, store: FileStore, part: Part) -> None:
        self._library = native.library()
        self._report = native.Report()
        self._copy = self._library.mj_patches_create(store.fileno(), part.offset, part.entries)
        if not self._copy:
            raise MarkerError("markerjit has no memory left for the table of patches")

    def __enter__(self) -> PatchCopy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        self._library.mj_patches_destroy(self._copy)
        self._copy = None

    def enter(self, heads: bytearray, used: int, most: int) -> int | NotEntered:
        """Have these heads, packed as entries, in the table, which has so many entries and may have
        `most`. The result is how many it has then."""
        count = len(heads) // ctypes.sizeof(PatchEntry)
        entries = (PatchEntry * count).from_buffer(heads)
        now = ctypes.c_uint32(used)
        status = self._library.mj_patches_enter(self._copy, entries, count, most, now, self._report)
        if status == native.NO_ROOM:
            return NotEntered(None)
        if status == native.UNEXPECTED:
            return NotEntered(int(self._report.index))
        self._check(status)
        return now.value

    def mark(self, addresses: Sequence[RemoteAddress], *, planted: bool) -> None:
        """Say of those of these addresses that are in the table whether a breakpoint stands
        there."""
        column = (_U64 * len(addresses)).from_buffer(array("Q", addresses))
        self._check(
            self._library.mj_patches_mark(self._copy, column, len(addresses), planted, self._report)
        )

    def have_planted(self, breakpoints: Sequence[tuple[RemoteAddress, RemoteAddress]]) -> bool:
        """Whether breakpoints of ours stand at these addresses, and lead to these bodies."""
        words = array("Q", chain.from_iterable(breakpoints))
        places = (native.Breakpoint * len(breakpoints)).from_buffer(words)
        status = self._library.mj_patches_planted(
            self._copy, places, len(breakpoints), self._report
        )
        if status != native.UNEXPECTED:
            self._check(status)
        return bool(status == native.OK)

    @property
    def is_changed(self) -> bool:
        """Whether there is something to be written."""
        return bool(self._library.mj_patches_changed(self._copy))

    def write(self) -> None:
        """All that was changed; of new entries the addresses last."""
        self._check(self._library.mj_patches_write(self._copy, self._report))

    def _check(self, status: int) -> None:
        if status != native.OK:
            error = OSError(self._report.error, os.strerror(self._report.error))
            raise MarkerError(f"cannot read or write the table of patches: {reason(error)}")

"""Edits that change nothing: a plan that has them is applied only when no thread is among these
bytes, and no signal handler returns to one of them (native/src/stop/spans.c)."""

from __future__ import annotations

from collections.abc import Iterator

from markerjit.model import Edit, RemoteAddress

_EDIT = 16
"""Bytes that an edit has at most. A thread at the first one is not inside."""


def with_nobody_inside(before: RemoteAddress, code: bytes, what: str) -> Iterator[Edit]:
    """The edits for bytes of code, of which the first stands `before` those that are meant. Each
    begins at the last byte of the one before it, so that a thread is inside wherever it is."""
    for start in range(0, len(code) - 1, _EDIT - 1):
        piece = code[start : start + _EDIT]
        yield Edit(RemoteAddress(before + start), piece, piece, what, code=True)

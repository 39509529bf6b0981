"""Parts of the arena that a thread of the process may be in, or on its way to (references.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from markerjit.remote import native
from markerjit.remote.outcome import explain_failure


def referred(target: native.NativeTarget, ranges: Sequence[tuple[int, int]]) -> list[bool]:
    """Whether a register of a thread or a word on a stack is an address in each of these ranges: a
    start and a size, in order. All threads are stopped for a moment.

    Raises MarkerError where that cannot be said now.
    """
    made = (native.Range * len(ranges))(*(native.Range(*each) for each in ranges))
    answers = (ctypes.c_uint8 * len(ranges))()
    report = native.Report()
    status = native.library().mj_find_references(target, made, len(ranges), answers, report)
    if status != native.OK:
        raise explain_failure(target.pid, status, report)
    return [bool(answer) for answer in answers]

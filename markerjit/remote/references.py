"""Whether a thread of the process may be in parts of the arena, or on its way there
(references.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from markerjit.remote import native
from markerjit.remote.outcome import explain_failure


def referred(target: native.NativeTarget, ranges: Sequence[tuple[int, int]]) -> list[bool]:
    """Whether a register of a thread or a word on a stack is an address in each of these ranges: a
    start and a size, in order. All threads are stopped for a moment.

    Raises MarkerError where that cannot be said now.
    """
    return _answers(native.library().mj_find_references, target, ranges)


def mentioned(target: native.NativeTarget, ranges: Sequence[tuple[int, int]]) -> list[bool]:
    """Whether writable memory of the process, other than the arena, holds an address in each of
    these ranges. Raises as `referred` does, and also if there is too much memory to search in a
    moment."""
    return _answers(native.library().mj_find_mentions, target, ranges)


def _answers(
    find: Callable[..., int], target: native.NativeTarget, ranges: Sequence[tuple[int, int]]
) -> list[bool]:
    made = (native.Range * len(ranges))(*(native.Range(*each) for each in ranges))
    answers = (ctypes.c_uint8 * len(ranges))()
    report = native.Report()
    status = find(target, made, len(ranges), answers, report)
    if status != native.OK:
        raise explain_failure(target.pid, status, report)
    return [bool(answer) for answer in answers]

"""Where records start in an array of words: the indices, or a slice where all records have one
size. numpy reads a slice several times as fast as it gathers by indices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from markerjit.ring.batch import Array, Starts


def compact(starts: Array) -> Starts:
    """These indices, as a slice where they are at one distance."""
    if not len(starts):
        return starts
    step = int(starts[1] - starts[0]) if len(starts) > 1 else 1
    first, last = int(starts[0]), int(starts[-1])
    even = step > 0 and last - first == step * (len(starts) - 1) and (np.diff(starts) == step).all()
    return slice(first, last + 1, step) if even else starts


def starts_of(sizes: Array) -> Starts:
    """The starts of records of these sizes, one behind the other. Sizes are in words."""
    if len(sizes) and (sizes == sizes[0]).all():
        size = int(sizes[0])
        return slice(0, size * len(sizes), size)
    starts: Array = np.cumsum(sizes, dtype=np.intp) - sizes
    return starts


def indices(starts: Starts) -> Array:
    """The same as an array: int64."""
    if isinstance(starts, slice):
        return np.arange(starts.start, starts.stop, starts.step)
    return starts


def behind(starts: Starts, words: int) -> Starts:
    """The places so many words behind these starts."""
    if isinstance(starts, slice):
        return slice(starts.start + words, starts.stop + words, starts.step)
    return starts + words


def joined(parts: Sequence[Starts], words: Sequence[int]) -> Starts:
    """The starts in several arrays that are joined. `words` are the lengths of these arrays."""
    step, *others = {
        part.step if isinstance(part, slice) and part.start == 0 else 0 for part in parts
    }
    if step and not others and not any(size % step for size in words):
        return slice(0, sum(words), step)
    before = accumulate(words, initial=0)
    return np.concatenate([indices(part) + at for part, at in zip(parts, before, strict=False)])

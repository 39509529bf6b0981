"""Finding the records of a packet that was read from a file; a packet from a ring says where its
records start. Each record tells only where the next one is, and a packet has no pages where a
search could begin in many places at once (walk.py). So places are guessed:

  1  If the first record's size leads from header to header up to the end, all have that size.
  2  Otherwise the packet is cut into lanes. Each lane starts at the first word behind its cut that
     looks like the header of a record which others follow. All lanes go on a record at a time.
  3  A lane must end where the next one started. Where it does not, the guess was wrong, and the
     records are followed one by one up to a start that was right.

The time that this takes depends on the guesses. The answer does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from markerjit.ring.types import HEAD, Head

if TYPE_CHECKING:
    from markerjit.ring.batch import Array, Starts
    from markerjit.ring.by_marker import ByMarker

_LANE = 256
"""Words from one cut to the next."""
_GUESSES = 16
"""Words behind a cut that are considered."""
_FEW = 16 * _LANE
_LARGEST = 1 << 16


def find_records(words: Array, least: ByMarker, head: Head = HEAD) -> tuple[Starts, bool]:
    """Where records start, in words, and whether they make up the whole packet.

    words   uint64
    least   the smallest size by marker, as least_words makes it
    head    how the heads of the records are divided

    The starts are a slice where all records have one size of two words or more. That size need not
    be one that their markers have.
    """
    heads = words.view(np.uint32)[::2]
    first = head.words(int(heads[0])) if len(words) else 0
    if first > 1 and not len(words) % first:
        every = slice(0, len(words), first)
        if (head.words(heads[every]) == first).all():
            return every, True
    sizes = _possible(head.words(heads), least.of(heads, head))
    if len(words) < _FEW:
        starts, end = _one_by_one(sizes, 0, set())
        return np.array(starts, np.intp), end == len(words)
    seen = np.zeros(len(sizes), np.bool_)
    end = _lanes(sizes, seen)
    return np.flatnonzero(seen[:end]), end == len(words)


def _possible(sizes: Array, least: Array) -> Array:
    """The size of a record that would start at each word, and at the end; 0 where none can."""
    possible = np.zeros(len(sizes) + 1, np.uint16)
    np.multiply(sizes, sizes >= least, out=possible[:-1], casting="unsafe")
    late = possible[-_LARGEST:]  # here a size may be larger than the rest of the packet
    late *= late < np.arange(len(late), 0, -1)
    return possible


def _lanes(sizes: Array, seen: Array) -> int:
    """Marks in `seen` where records start. Returns the end of the last."""
    firsts = _guesses(sizes)
    stops = np.append(firsts[1:], len(sizes) - 1)
    at = firsts.copy()
    while True:
        within = at < stops
        steps = sizes[at] * within
        if not steps.any():
            break
        seen[np.where(within, at, firsts)] = True
        at += steps
    return _put_right(sizes, seen, firsts, stops, at)


def _put_right(sizes: Array, seen: Array, firsts: Array, stops: Array, ends: Array) -> int:
    """Marks the records anew from where a lane did not end at the start of the next, up to a start
    that is right. Returns the end of the last record."""
    starts = set(firsts.tolist())
    end = 0
    for lane in np.flatnonzero(ends != stops).tolist():
        stop = int(stops[lane])
        if stop <= end:
            continue  # this lane began at a wrong start, and has been put right
        if ends[lane] < stop:
            return int(ends[lane])
        records, end = _one_by_one(sizes, int(ends[lane]), starts)
        seen[stop:end] = False
        seen[records] = True
        if end not in starts:
            return end
    return len(sizes) - 1


def _one_by_one(sizes: Array, at: int, stops: set[int]) -> tuple[list[int], int]:
    """The starts of records from `at` on, up to a stop or to where no record can start, and that
    end."""
    view = sizes.data
    starts = []
    while view[at] and at not in stops:
        starts.append(at)
        at += view[at]
    return starts, at


def _guesses(sizes: Array) -> Array:
    """The start of the packet, and a likely start for each lane that has one."""
    ends = len(sizes) - 1
    cuts = np.arange(_LANE, ends - _GUESSES, _LANE)
    places = cuts[:, None] + np.arange(_GUESSES)
    good = sizes[places] > 0
    after = places
    for _ in range(2):
        after = after + sizes[after]
        good &= (sizes[after] > 0) | (after == ends)
    lanes = good.any(axis=1)
    return np.append(0, cuts[lanes] + good[lanes].argmax(axis=1))

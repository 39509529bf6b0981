"""Finding the records of a packet that was read from a file; a packet from a ring says where its
records start. Each record tells only where the next one is, and a packet has no pages where a
search could begin in many places at once (walk.py). So places are guessed:

  1  where the first record's size leads from one good header to the next, up to the end, all have
     that size
  2  otherwise the packet is cut into lanes, and each starts at the first word behind its cut that
     looks like the header of a record which others follow; all lanes go on a record at a time
  3  a lane must end where the next one started. Where it does not, the guess was wrong, and we go
     on record by record up to a start that was right

So the answer never depends on a guess, only the time that it takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from markerjit.ring.batch import Array, Starts

_LANE = 256
"""Words from one cut to the next."""
_GUESSES = 16
"""So many words behind a cut are looked at."""
_FEW = 16 * _LANE
_LARGEST = 1 << 16


def find_records(words: Array, least: Array) -> tuple[Starts, bool]:
    """At which words records begin, and whether they make up the whole packet.

    words   uint64
    least   the smallest size by marker, as least_words makes it

    The answer is a slice where all have one size, of two words or more, which need not be one that
    their markers have.
    """
    halves = words.view(np.uint16)
    markers, sizes = halves[::4], halves[1::4]
    first = int(sizes[0]) if len(words) else 0
    if first > 1 and not len(words) % first:
        every = slice(0, len(words), first)
        if (sizes[every] == first).all():
            return every, True
    sizes = _possible(markers, sizes, least)
    if len(words) < _FEW:
        found, end = _one_by_one(sizes, 0, set())
        return np.array(found, np.intp), end == len(words)
    seen = np.zeros(len(sizes), np.bool_)
    end = _lanes(sizes, seen)
    return np.flatnonzero(seen[:end]), end == len(words)


def _possible(markers: Array, sizes: Array, least: Array) -> Array:
    """The size of a record that would begin at each word, and at the end; 0 where none can."""
    found = np.zeros(len(sizes) + 1, np.uint16)
    good = sizes >= least.take(markers)
    np.multiply(sizes, good, out=found[:-1])
    late = found[-_LARGEST:]  # here it may be larger than what is left
    late *= late < np.arange(len(late), 0, -1)
    return found


def _lanes(sizes: Array, seen: Array) -> int:
    """Mark where records begin; returns where that ends."""
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
    """Where a lane did not end at the next one's start, mark the records up to a right start."""
    starts = set(firsts.tolist())
    end = 0
    for lane in np.flatnonzero(ends != stops).tolist():
        stop = int(stops[lane])
        if stop <= end:
            continue  # this lane began at a wrong start, and has been put right
        if ends[lane] < stop:
            return int(ends[lane])
        found, end = _one_by_one(sizes, int(ends[lane]), starts)
        seen[stop:end] = False
        seen[found] = True
        if end not in starts:
            return end
    return len(sizes) - 1


def _one_by_one(sizes: Array, at: int, stops: set[int]) -> tuple[list[int], int]:
    """The records from one on, up to one of the stops or to where there is none."""
    view = sizes.data
    found = []
    while view[at] and at not in stops:
        found.append(at)
        at += view[at]
    return found, at


def _guesses(sizes: Array) -> Array:
    """The packet's start, and one for each lane that has a promising one."""
    ends = len(sizes) - 1
    cuts = np.arange(_LANE, ends - _GUESSES, _LANE)
    places = cuts[:, None] + np.arange(_GUESSES)
    good = sizes[places] > 0
    after = places
    for _ in range(2):
        after = after + sizes[after]
        good &= (sizes[after] > 0) | (after == ends)
    some = good.any(axis=1)
    return np.append(0, cuts[some] + good[some].argmax(axis=1))

"""The parts of a stub in the order in which they are executed.

A stub has a straight line, and with a fast path a tail behind that (probes/fast.py). The probe in
the slot decides which parts of both an execution runs through.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from markerjit.probes.parts import Name
from markerjit.probes.reached import Piece
from markerjit.tuples import NamedTuple


class Way(Enum):
    """The way of an execution through a stub: it counts, or records, by itself, or the probe is
    called."""

    COUNTS = "counts"
    RECORDS = "records"
    CALLS = "calls"


class Arranged(NamedTuple):
    """The parts of a stub that are executed before the slot's words are used, and behind; and the
    others."""

    before: tuple[Piece, ...]
    behind: tuple[Piece, ...]
    rest: tuple[Piece, ...] = ()


_LEAVING = (Name.MOVED, Name.INTO_PROGRAM)


def arranged(pieces: Sequence[Piece], way: Way) -> Arranged:
    """These parts of a stub, as they stand in memory, in the order of an execution."""
    names = [piece.name for piece in pieces]
    tail_at = max(at for at, name in enumerate(names) if name in _LEAVING) + 1
    straight, tail = pieces[:tail_at], pieces[tail_at:]
    if not tail:  # it has no fast path
        at = names.index(Name.CALL) + 1
        return Arranged(tuple(straight[:at]), tuple(straight[at:]))
    asked = names.index(Name.IS_COUNT) + 1
    begin = list(straight[:asked])
    if way is Way.COUNTS:
        return Arranged(tuple(begin), tuple(straight[asked:]), tuple(tail))
    back = names.index(Name.BACK)
    in_tail = [piece.name for piece in tail]
    if way is Way.RECORDS:
        end = in_tail.index(Name.BACK) + 1
        behind = (*tail[:end], *straight[back:])
        return Arranged(tuple(begin), behind, (*straight[asked:back], *tail[end:]))
    begin += tail[: in_tail.index(Name.IS_RECORD) + 1] if Name.IS_RECORD in in_tail else ()
    slow, called = in_tail.index(Name.SLOW), in_tail.index(Name.CALL) + 1
    restored = names.index(Name.RESTORED)
    before = (*begin, *tail[slow:called])
    behind = (*tail[called:], *straight[restored:])
    executed = {piece.address for piece in (*before, *behind)}
    return Arranged(before, behind, tuple(each for each in pieces if each.address not in executed))

"""How an address of foreign code can be opened: the bytes that would become a jump, best way first.

    NO_OP    a no-op of five bytes or more, or several: nothing is lost by a jump over them
    JUMP     a jump of five bytes over whole instructions, which are displaced
    PADDING  the same, over instructions and the padding behind the last one
    HOLE     a jump of two bytes, to padding within its reach that holds the long jump
    INT3     a breakpoint; the slowest, and possible where one instruction can be moved

`best_opening` returns a value and reads no process. Whether the copy reaches everything from where
it will stand is known when that place is: relocate() says it again then.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from markerjit.spans.code import Code, TargetKind
from markerjit.x86.flow import is_padding
from markerjit.x86.forms import NEAR_LENGTH
from markerjit.x86.relocate import Obstacle, Unmovable, relocate
from markerjit.x86.run import Run, whole_instructions

SHORT_LENGTH = 2
_REACH = 127
_NEARBY = 1 << 24
"""Where a copy is tried: near, so that only what can never be moved is refused."""


class Way(Enum):
    """A way of opening, the best first."""

    NO_OP = "jump over no-ops"
    JUMP = "jump"
    PADDING = "jump into padding"
    HOLE = "short jump to a hole"
    INT3 = "int3"

    def __str__(self) -> str:
        return self.value


class Why(Enum):
    """Why a way is not possible, where it is neither an obstacle nor a target."""

    SHORT = "the instructions end before, and no padding is behind them"
    NO_HOLE = "no padding is within reach"
    NOT_COVERED = "no function is known there"
    NO_START = "it is not the start of an instruction"
    UNEXPLAINED = "an indirect jump of the function may lead anywhere in it"

    def __str__(self) -> str:
        return self.value


class TurnedDown(NamedTuple):
    """A way that is not possible at an address, why, and the address of the reason."""

    way: Way
    reason: Obstacle | TargetKind | Why
    address: int

    def __str__(self) -> str:
        return f"{self.way}: {self.reason} at {self.address:#x}"


class Opening(NamedTuple):
    """How an address can be opened.

    address      of the jump; behind an endbr64 that stood there
    code         the whole instructions that are displaced
    size         how many bytes change at `address`
    hole         the address of the long jump, of five bytes of padding; None where none is needed
    turned_down  the better ways
    """

    way: Way
    address: int
    code: bytes
    size: int
    hole: int | None
    turned_down: tuple[TurnedDown, ...]


class Closed(NamedTuple):
    """An address that cannot be opened, and why not, for each way."""

    address: int
    turned_down: tuple[TurnedDown, ...]


def best_opening(code: Code, address: int) -> Opening | Closed:
    """The best way to open an address, which is the start of an instruction."""
    function = code.functions.index(address)
    wrong = _unknown(code, function, address)
    if function is None or wrong:
        reason = wrong or Why.NOT_COVERED
        return Closed(address, tuple(TurnedDown(way, reason, address) for way in Way))
    end = int(code.functions.ends[function])
    body = code.read(address, min(end - address, 64))
    run = whole_instructions(body, address)
    if run.endbr:
        address += run.endbr
        run = whole_instructions(body[run.endbr :], address)
    turned_down: list[TurnedDown] = []
    for opening in _openings(code, run):
        if isinstance(opening, Opening):
            return opening._replace(turned_down=tuple(turned_down))
        turned_down.append(opening)
    return Closed(address, tuple(turned_down))


def _unknown(code: Code, function: int | None, address: int) -> Why | None:
    if function is None:
        return Why.NOT_COVERED
    if address not in code.flow(function).starts:
        return Why.NO_START
    if not code.is_explained(function):
        return Why.UNEXPLAINED
    return None


def _openings(code: Code, run: Run) -> Iterator[Opening | TurnedDown]:
    """Each way in its order: the opening, or why it is none."""
    near = run.first(NEAR_LENGTH)
    no_ops = run.no_ops()
    if len(no_ops) >= NEAR_LENGTH:
        yield _tried(code, Way.NO_OP, run.address, near, NEAR_LENGTH)
    if len(near) >= NEAR_LENGTH:
        yield _tried(code, Way.JUMP, run.address, near, NEAR_LENGTH)
    else:
        yield TurnedDown(Way.JUMP, run.obstacle or Why.SHORT, run.address + len(near))
        yield _into_padding(code, run, near)
    yield _by_hole(code, run)
    if run.codes:
        yield _tried(code, Way.INT3, run.address, run.first(1), 1)
    else:
        yield TurnedDown(Way.INT3, run.obstacle or Why.SHORT, run.address)


def _tried(code: Code, way: Way, address: int, displaced: bytes, size: int) -> Opening | TurnedDown:
    """The opening, if its instructions can be moved and nothing leads behind its first byte."""
    moved = relocate(displaced, address, address + _NEARBY)
    if isinstance(moved, Unmovable):
        return TurnedDown(way, moved.obstacle, moved.address)
    if size > 1:  # behind a breakpoint, the bytes stay what they are
        for target in code.targets(address + 1, address + max(size, len(displaced))):
            return TurnedDown(way, target.kind, target.address)
    return Opening(way, address, displaced, size, None, ())


def _into_padding(code: Code, run: Run, near: bytes) -> Opening | TurnedDown:
    behind = run.address + len(near)
    missing = NEAR_LENGTH - len(near)
    if not run.ends or not _is_free(code, behind, missing):
        return TurnedDown(Way.PADDING, Why.SHORT, behind)
    return _tried(code, Way.PADDING, run.address, near, NEAR_LENGTH)


def _is_free(code: Code, address: int, size: int) -> bool:
    """Whether these bytes are padding behind a block, to which nothing leads."""
    padding = code.read(address, size)
    beyond = code.read(address, size + 16)
    return (
        len(padding) == size
        and any(is_padding(beyond[:length]) for length in range(size, len(beyond) + 1))
        and not code.targets(address, address + size)
    )


def _by_hole(code: Code, run: Run) -> Opening | TurnedDown:
    short = run.first(SHORT_LENGTH)
    if len(short) < SHORT_LENGTH:
        return TurnedDown(Way.HOLE, run.obstacle or Why.SHORT, run.address)
    opening = _tried(code, Way.HOLE, run.address, short, SHORT_LENGTH)
    if isinstance(opening, TurnedDown):
        return opening
    from_ = run.address + SHORT_LENGTH
    for gap in code.gaps(from_ - _REACH - 1, from_ + _REACH + NEAR_LENGTH):
        hole = min(gap.stop - NEAR_LENGTH, from_ + _REACH)
        is_padded = is_padding(code.read(gap.start, len(gap)))
        if is_padded and not code.targets(hole, hole + NEAR_LENGTH):
            return opening._replace(hole=hole)
    return TurnedDown(Way.HOLE, Why.NO_HOLE, run.address)

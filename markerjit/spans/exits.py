"""Where a function is left, and how each exit can be opened.

A function is left by a return, or by a jump out of it while the stack pointer is what it was at the
entry: its last call, which returns to its caller (a tail call). The unwind rows say where that is,
so that jumps to the function's own parts, and through its jump tables, are told from tail calls.

    parts      what a compiler has split off: jumped to from the function, or from its other parts,
               and entered in no other way
    exits      of the function and its parts. Each is opened by itself. One that lies inside what
               the entry displaces cannot be open together with that
    unbounded  it is not known where the function ends, so it has no exits here: an indirect jump
               that is not explained, code that it shares with another function, a return where the
               stack pointer is not what it was

An exit is opened, best way first, by

    TARGET     another displacement in a tail jump
    PADDING    a jump over the exit, and padding behind it
    BEFORE     a jump over the exit, and instructions before it
    HOLE       a short jump over as much as it needs, to a hole; or to one that is MADE
    INT3       a breakpoint

What this does not do: find exits by exceptions, longjmp or signals, which need no instruction of
the function; or read a process.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from markerjit.abi import PAGE
from markerjit.model import Memory
from markerjit.spans.alone import COLD, MOST_PARTS, Alone
from markerjit.spans.code import Code
from markerjit.spans.openings import (
    Closed,
    Opening,
    TurnedDown,
    Way,
    best_opening,
    by_hole,
    is_free,
    tried,
)
from markerjit.tuples import NamedTuple
from markerjit.x86.flow import Flow
from markerjit.x86.forms import NEAR_LENGTH, SHORT_LENGTH, is_near_jump, jumps_always
from markerjit.x86.jumps import jump_target
from markerjit.x86.run import whole_instructions

_NOWHERE = -1, -1
_LEADING = 16
"""Instructions before an exit that are looked at: five bytes are needed."""


class ExitKind(Enum):
    """The way in which a function is left."""

    RETURN = "return"
    TAIL = "tail call"

    def __str__(self) -> str:
        return self.value


class Unbounded(Enum):
    """The reason why the exits of a function are not known."""

    NOT_COVERED = "no unwind table has it"
    UNEXPLAINED = "an indirect jump may lead anywhere"
    UNDECODED = "bytes in it cannot be decoded"
    SHARED = "another function jumps into a part of it"
    INSIDE = "it jumps into the middle of another function"
    STACK = "the stack is not what it was at the entry where it returns"
    PARTS = "it has too many parts"

    def __str__(self) -> str:
        return self.value


class Exit(NamedTuple):
    """An instruction by which a function is left.

    opening  how it is opened; `code` ends with the instruction. Of a function that has nothing but
             its exit it is that of the entry. Closed where there is no way
    """

    address: int
    kind: ExitKind
    opening: Opening | Closed


class Exits(NamedTuple):
    """The exits of a function, in the order of their addresses.

    entry      where the function is entered, and how that is opened
    exits      none where the function never returns, or where `unbounded` says that they are not
               known
    at         the address of the reason
    again      a jump inside leads to where it is entered, so it may be entered more often than left
    """

    entry: Opening | Closed
    exits: tuple[Exit, ...]
    unbounded: Unbounded | None = None
    at: int = 0
    again: bool = False


class _Left(Exception):
    """A function turned out to be unbounded."""

    def __init__(self, reason: Unbounded, at: int) -> None:
        super().__init__(reason, at)
        self.reason = reason
        self.at = at


def has_bytes_of_entry(exits: Exits, leaving: Exit) -> bool:
    """Whether an exit and the entry need the same bytes, and so are not open together."""
    entry, opening = exits.entry, leaving.opening
    if not isinstance(entry, Opening) or not isinstance(opening, Opening):
        return False
    ends = (each.address + max(each.size, len(each.code)) for each in (entry, opening))
    of_entry, of_exit = ends
    return entry.address < of_exit and opening.address < of_entry


def exits_of(code: Code, address: int) -> Exits:
    """The exits of the function that is entered at this address."""
    entry = best_opening(code, address)
    alone = code.alone.get(address)
    if alone and _is_left_by(code, alone):
        known = [(at, ExitKind.RETURN) for at in alone.returns]
        known += [(at, ExitKind.TAIL) for at in alone.tails]
        return Exits(entry, tuple(_opened(code, entry, known)), again=alone.again)
    try:
        bodies = _bodies(code, address)
        exits = [each for body in bodies for each in _exits(code, body, bodies)]
    except _Left as left:
        return Exits(entry, (), left.reason, left.at)
    again = _begins_again(code, address, bodies)
    return Exits(entry, tuple(_opened(code, entry, exits)), again=again)


def _is_left_by(code: Code, alone: Alone) -> bool:
    """Whether the stack pointer is that of the entry at all exits, and at no other jump."""
    leaves, stays = (*alone.returns, *alone.tails), alone.jumps
    return all(map(code.is_entry_row, leaves)) and not any(map(code.is_entry_row, stays))


def _begins_again(code: Code, address: int, bodies: list[int]) -> bool:
    start = int(code.functions.starts[bodies[0]])
    targets = (target for body in bodies for _, target in code.flow(body).leaps)
    return any(start <= target <= address for target in targets)


# ---- the function and its parts ------------------------------------------------------------------


def _bodies(code: Code, address: int) -> list[int]:
    """The function and its parts, by their places in the code's functions."""
    first = code.functions.index(address)
    if first is None:
        raise _Left(Unbounded.NOT_COVERED, address)
    bodies = [first]
    for body in bodies:  # which grows
        if len(bodies) > MOST_PARTS:
            raise _Left(Unbounded.PARTS, address)
        _check(code, body)
        for part in _parts_beside(code, body, bodies):
            if part not in bodies:
                bodies.append(part)
    for part in bodies[1:]:
        _check_own(code, part, bodies)
    return bodies


def _check(code: Code, body: int) -> None:
    flow = code.flow(body)
    if flow.end < int(code.functions.ends[body]):
        raise _Left(Unbounded.UNDECODED, flow.end)
    if not code.is_explained(body):
        raise _Left(Unbounded.UNEXPLAINED, flow.jumps[0])


def _parts_beside(code: Code, body: int, bodies: list[int]) -> Iterator[int]:
    """Parts that this body jumps to, and those that jump into its middle."""
    functions = code.functions
    start, end = int(functions.starts[body]), int(functions.ends[body])
    for at, target, other in code.leaving(body):
        if other in bodies:
            continue
        if _is_part_of(code, other, target, body):
            assert other is not None
            yield other
        elif not code.is_entry_row(at):
            raise _Left(Unbounded.INSIDE, at)
    own = range(start, end)
    for jump in code.jumps_from_parts(start + 1, end, own):
        if jump.function != body and not jump.is_call:
            yield jump.function


def _is_part_of(code: Code, other: int | None, target: int, body: int) -> bool:
    """Whether the target of a jump is a part. It is if its first unwind row says so, or if only
    conditional jumps of this body lead to its start."""
    functions = code.functions
    if other is None or code.is_linkage(target):
        return False
    if functions.parts[other]:
        return True
    start = int(functions.starts[other])
    names = code.names.names.get(start, ())
    if target != start or names:
        return target == start and all(COLD in name for name in names)
    sources = code.jumped_from(start)
    return sources is not None and sources <= {body}


def _check_own(code: Code, part: int, bodies: list[int]) -> None:
    """Raise _Left where others jump into a part."""
    functions = code.functions
    start, end = int(functions.starts[part]), int(functions.ends[part])
    for jump in code.jumps_into(start, end):
        if jump.function not in bodies:
            raise _Left(Unbounded.SHARED, jump.target)


# ---- their exits ---------------------------------------------------------------------------------


def _exits(code: Code, body: int, bodies: list[int]) -> Iterator[tuple[int, ExitKind]]:
    flow = code.flow(body)
    for at in flow.rets:
        if not code.is_entry_row(at):
            raise _Left(Unbounded.STACK, at)
        yield at, ExitKind.RETURN
    for at, _, other in code.leaving(body):
        if other not in bodies:
            yield at, ExitKind.TAIL
    for at in flow.jumps:
        if code.is_entry_row(at) and _is_tail(code, body, at):
            yield at, ExitKind.TAIL
    for at in flow.imports:
        if not code.is_entry_row(at):
            raise _Left(Unbounded.UNEXPLAINED, at)
        yield at, ExitKind.TAIL


def _is_tail(code: Code, body: int, at: int) -> bool:
    """Whether an indirect jump leaves the function, where the stack pointer is that of the entry. A
    function without a frame may have its jump tables there. Raises _Left where it may be both."""
    if not code.leads_inside(body):
        return True
    size = code.flow(body).starts[at]
    operand = jump_target(code.read(at, size), at)
    if isinstance(operand, Memory):
        return not operand.scaled
    raise _Left(Unbounded.UNEXPLAINED, at)


def _opened(
    code: Code, entry: Opening | Closed, exits: list[tuple[int, ExitKind]]
) -> Iterator[Exit]:
    """Each exit with its opening. No two openings have a byte in common."""
    displaced = range(0)
    if isinstance(entry, Opening):
        size = max(entry.size, len(entry.code))
        displaced = range(entry.address, entry.address + size)
    taken = 0
    for at, kind in sorted(exits):
        if at == displaced.start and isinstance(entry, Opening):
            yield Exit(at, kind, entry)
            continue
        low = 0
        if at >= displaced.start:
            low = displaced.start + 1 if at in displaced else displaced.stop
        opening = _best(code, at, max(low, taken))
        yield Exit(at, kind, opening)
        if isinstance(opening, Opening):
            taken = opening.address + max(opening.size, len(opening.code))


def best_exit(code: Code, at: int) -> Opening | Closed:
    """The best way to open a conditional jump that leaves its function. It needs no byte before the
    jump."""
    return _best(code, at, at)


def _best(code: Code, at: int, low: int) -> Opening | Closed:
    """The best opening of an exit that changes no byte before `low`."""
    if at in code.straight.tails:
        return Opening(Way.TARGET, at, code.read(at, NEAR_LENGTH), NEAR_LENGTH, (), ())
    start, end = code.straight.exits.get(at, _NOWHERE)
    if start >= low:
        way = Way.PADDING if start == at else Way.BEFORE
        return Opening(way, start, code.read(start, end - start), NEAR_LENGTH, (), ())
    turned_down: list[TurnedDown] = []
    for opening in _ways(code, at, low):
        if isinstance(opening, Opening):
            return opening._replace(turned_down=tuple(turned_down))
        turned_down.append(opening)
    return Closed(at, tuple(turned_down))


def _ways(code: Code, at: int, low: int) -> Iterator[Opening | TurnedDown]:
    function = code.functions.index(at)
    assert function is not None
    flow = code.flow(function)
    end = at + flow.starts[at]
    own = code.read(at, end - at)
    if is_near_jump(own) and not crosses_page(at, end):
        yield tried(code, Way.TARGET, at, own, len(own))
    falls_through = end in flow.branches and not jumps_always(own)
    start = at
    for _ in range(_LEADING):
        missing = NEAR_LENGTH - (end - start)
        way = Way.PADDING if start == at else Way.BEFORE
        fits = missing <= 0 or (not falls_through and is_free(code, end, missing))
        if fits and not crosses_page(start, start + NEAR_LENGTH):
            yield tried(code, way, start, code.read(start, end - start), NEAR_LENGTH)
        before = _before(flow, start)
        if missing <= 0 or before is None or before < low:
            break
        start = before
    yield from _by_hole(code, flow, at, low)
    yield tried(code, Way.INT3, at, own, 1)


def _by_hole(code: Code, flow: Flow, at: int, low: int) -> Iterator[Opening | TurnedDown]:
    """A short jump over the exit, or over the instruction before it, too."""
    end = at + flow.starts[at]
    start: int | None = at
    if end - at < SHORT_LENGTH:
        start = _before(flow, at)
    if start is None or start < low or crosses_page(start, start + SHORT_LENGTH):
        return
    run = whole_instructions(code.read(start, end - start), start)
    if b"".join(run.codes[: 2 if start < at else 1]) != code.read(start, end - start):
        return
    for opening in by_hole(code, run):
        if isinstance(opening, Opening):
            opening = opening._replace(code=code.read(start, end - start))
            if any(code.targets(start + 1, end)):
                continue
        yield opening


def _before(flow: Flow, at: int) -> int | None:
    """The instruction that is executed before the one at an address, where it goes on there."""
    for start in range(at - 1, at - 16, -1):
        size = flow.starts.get(start)
        if size is not None:
            jumps = start in flow.rets or start in flow.jumps or start in flow.imports
            return start if start + size == at and not jumps else None
    return None


def crosses_page(start: int, end: int) -> bool:
    """Whether a write of these bytes could be interrupted, at the border of two pages."""
    return start // PAGE != (end - 1) // PAGE

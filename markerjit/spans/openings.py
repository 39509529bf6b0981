"""How an address of foreign code can be opened: the bytes that would become a jump, best way first.

    NO_OP    a no-op of five bytes or more, or several: nothing is lost by a jump over them
    JUMP     a jump of five bytes over whole instructions, which are displaced
    PADDING  the same, over instructions and the padding behind the last one
    HOLE     a jump of two bytes, to padding within its reach that holds the long jump
    MADE     a jump of two bytes, to five bytes in its reach that are made free: ten bytes of whole
             instructions become a jump to their copies, and the hole behind that jump
    INT3     a breakpoint; the slowest, and possible where one instruction can be moved

`best_opening` returns a value and reads no process. Whether the copy reaches everything from where
it will stand is known when that place is: relocate() says it again then.

A finder with heads of its own, of two bytes or more, asks `by_hole` for the last two ways by a
jump: it gives a run of instructions that begins with its head, and gets an Opening whose `holes`
are places to choose from, the best first. None of them is reserved by that. The session takes the
first one that no other site of the process has (session/stubs.py), and an Opening needs nothing
else to be made, switched, journalled and repaired.

The exits of functions (exits.py) have two more ways, TARGET and BEFORE; calls (calls.py) the first
of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from itertools import islice

from markerjit.spans.code import Code, TargetKind
from markerjit.tuples import NamedTuple
from markerjit.x86.decode import decoder
from markerjit.x86.flow import is_padding, padding_ends
from markerjit.x86.forms import HOLE_SIZES, NEAR_LENGTH, SHORT_LENGTH
from markerjit.x86.relocate import Obstacle, Relocated, ends_block, obstacle_to, relocate
from markerjit.x86.run import Run, whole_instructions

_FORWARD, _BACKWARD = 127, 128
_MOST_PADDED, _MOST_MADE, _ENOUGH = 8, 4, 3
"""Places that are offered for a hole; none has to be made where enough are padding."""
_LONGEST_RUN = 64
_ENTRY = 16
"""The bytes at the start of a function that its entry may need."""
_NEARBY = 1 << 24
"""The address at which a copy is tried. It is near, so that only code that can never be moved is
refused."""


class Way(Enum):
    """A way of opening, the best first."""

    NO_OP = "jump over no-ops"
    JUMP = "jump"
    PADDING = "jump into padding"
    TARGET = "another target"
    BEFORE = "jump from before"
    HOLE = "short jump to a hole"
    MADE = "short jump to a made hole"
    INT3 = "int3"

    def __str__(self) -> str:
        return self.value


class Why(Enum):
    """The reason why a way is not possible, apart from obstacles and targets."""

    SHORT = "the instructions end before, and no padding is behind them"
    NO_HOLE = "no padding is within reach"
    NO_ROOM = "no instructions within reach can give room"
    NOT_COVERED = "no unwind table has it"
    NO_START = "it is not the start of an instruction"
    RESTARTABLE = "it is in a restartable sequence, which may not be executed elsewhere"
    UNEXPLAINED = "an indirect jump of the function may lead anywhere in it"

    def __str__(self) -> str:
        return self.value


class TurnedDown(NamedTuple):
    """A way that is not possible at an address, with the reason and its address."""

    way: Way
    reason: Obstacle | TargetKind | Why
    address: int

    def __str__(self) -> str:
        return f"{self.way}: {self.reason} at {self.address:#x}"


class HolePlace(NamedTuple):
    """A place for the long jump that a short one leads to: its last five bytes that change.

    address  of the first byte that counts as changed
    code     of padding: the byte before it, which stays, and five that change. So an edit of these
             has the long jump inside, and a thread that is about to execute that is found there.
             Of a made hole: whole instructions, the first ten bytes of which change
    made     which of the two it is
    """

    address: int
    code: bytes
    made: bool

    @property
    def size(self) -> int:
        """How many bytes count as changed."""
        return HOLE_SIZES[self.made]

    @property
    def jump(self) -> int:
        """The address of the long jump."""
        return self.address + self.size - NEAR_LENGTH


class Opening(NamedTuple):
    """How an address can be opened.

    address      of the jump; behind an endbr64 that stood there
    code         the whole instructions that are displaced
    size         how many bytes change at `address`
    holes        where the long jump may stand, the best place first; () where none is needed
    turned_down  the better ways
    """

    way: Way
    address: int
    code: bytes
    size: int
    holes: tuple[HolePlace, ...]
    turned_down: tuple[TurnedDown, ...]


class Closed(NamedTuple):
    """An address that cannot be opened, and the reason for each way."""

    address: int
    turned_down: tuple[TurnedDown, ...]


def best_opening(code: Code, address: int) -> Opening | Closed:
    """The best way to open an address, which is the start of an instruction."""
    size = code.straight.entries.get(address)
    if size:
        return Opening(Way.JUMP, address, code.read(address, size), NEAR_LENGTH, (), ())
    function = code.functions.index(address)
    reason = against(code, address)
    if function is None or reason:
        reason = reason or Why.NOT_COVERED
        return Closed(address, tuple(TurnedDown(way, reason, address) for way in Way))
    end = int(code.functions.ends[function])
    body = code.read(address, min(end - address, _LONGEST_RUN))
    run = whole_instructions(body, address, NEAR_LENGTH)
    if run.endbr:
        address += run.endbr
        run = whole_instructions(body[run.endbr :], address, NEAR_LENGTH)
    turned_down: list[TurnedDown] = []
    for opening in _openings(code, run):
        if isinstance(opening, Opening):
            return opening._replace(turned_down=tuple(turned_down))
        turned_down.append(opening)
    return Closed(address, tuple(turned_down))


def against(code: Code, address: int) -> Why | None:
    """Why nothing at an address is opened in any way, or None."""
    function = code.functions.index(address)
    if function is None:
        return Why.NOT_COVERED
    if address not in code.flow(function).starts:
        return Why.NO_START
    if not code.is_explained(function):
        return Why.UNEXPLAINED
    return None


def _openings(code: Code, run: Run) -> Iterator[Opening | TurnedDown]:
    """Each way in its order: the opening, or the reason why there is none."""
    near = run.first(NEAR_LENGTH)
    no_ops = run.no_ops()
    if len(no_ops) >= NEAR_LENGTH:
        yield tried(code, Way.NO_OP, run.address, near, NEAR_LENGTH)
    if len(near) >= NEAR_LENGTH:
        yield tried(code, Way.JUMP, run.address, near, NEAR_LENGTH)
    else:
        yield TurnedDown(Way.JUMP, run.obstacle or Why.SHORT, run.address + len(near))
        yield _into_padding(code, run, near)
    yield from by_hole(code, run)
    if run.codes:
        yield tried(code, Way.INT3, run.address, run.first(1), 1)
    else:
        yield TurnedDown(Way.INT3, run.obstacle or Why.SHORT, run.address)


def tried(code: Code, way: Way, address: int, displaced: bytes, size: int) -> Opening | TurnedDown:
    """The opening, if its instructions can be moved and nothing leads behind its first byte."""
    if code.is_restartable(address, address + len(displaced)):
        return TurnedDown(way, Why.RESTARTABLE, address)
    unmovable = obstacle_to(displaced, address, address + _NEARBY)
    if unmovable:
        return TurnedDown(way, unmovable.obstacle, unmovable.address)
    if size > 1:  # behind a breakpoint, the bytes stay what they are
        for target in code.targets(address + 1, address + max(size, len(displaced))):
            return TurnedDown(way, target.kind, target.address)
    return Opening(way, address, displaced, size, (), ())


def _into_padding(code: Code, run: Run, near: bytes) -> Opening | TurnedDown:
    behind = run.address + len(near)
    missing = NEAR_LENGTH - len(near)
    if not run.ends or not is_free(code, behind, missing):
        return TurnedDown(Way.PADDING, Why.SHORT, behind)
    return tried(code, Way.PADDING, run.address, near, NEAR_LENGTH)


def is_free(code: Code, address: int, size: int) -> bool:
    """Whether these bytes are padding behind a block, with no way into them."""
    beyond = code.read(address, size + 16)
    if len(beyond) < size:
        return False
    # Behind a function stand the same few paddings again and again, as far as the next function.
    gap = beyond[: code.functions.next_start(address) - address]
    return any(
        end >= size for each in (gap, beyond) for end in padding_ends(each)
    ) and not code.targets(address, address + size)


# ---- holes ---------------------------------------------------------------------------------------


def by_hole(code: Code, run: Run) -> Iterator[Opening | TurnedDown]:
    """The opening by a short jump at the start of a run, or why there is none, for each of the two
    ways: to padding, then to a hole that is made."""
    short = run.first(SHORT_LENGTH)
    if len(short) < SHORT_LENGTH:
        yield TurnedDown(Way.HOLE, run.obstacle or Why.SHORT, run.address)
        return
    opening = tried(code, Way.HOLE, run.address, short, SHORT_LENGTH)
    if isinstance(opening, TurnedDown):
        yield opening
        return
    from_ = run.address + SHORT_LENGTH
    reach = range(from_ - _BACKWARD, from_ + _FORWARD + 1)
    padded = tuple(islice(_padded(code, reach), _MOST_PADDED))
    made: tuple[HolePlace, ...] = ()
    if len(padded) < _ENOUGH:
        lost = range(run.address, run.address + len(short))
        made = tuple(islice(_made(code, reach, lost), _MOST_MADE))
    if padded:
        yield opening._replace(holes=padded + made)
        return
    yield TurnedDown(Way.HOLE, Why.NO_HOLE, run.address)
    if made:
        yield opening._replace(way=Way.MADE, holes=made)
    else:
        yield TurnedDown(Way.MADE, Why.NO_ROOM, run.address)


def _padded(code: Code, reach: range) -> Iterator[HolePlace]:
    """Padding between functions, which nothing enters, and over which no function runs on. Two
    places in one gap have no byte in common, nor the bytes before."""
    for gap in code.gaps(reach.start, reach.stop - 1 + NEAR_LENGTH):
        if not is_padding(code.read(gap.start, len(gap))) or not _is_behind_end(code, gap.start):
            continue
        for jump in range(gap.stop - NEAR_LENGTH, gap.start - 1, -1 - NEAR_LENGTH):
            if jump in reach and not code.targets(jump, jump + NEAR_LENGTH):
                content = code.read(jump - 1, 1 + NEAR_LENGTH)
                if len(content) == 1 + NEAR_LENGTH:
                    yield HolePlace(jump - 1, content, made=False)


def _is_behind_end(code: Code, address: int) -> bool:
    """Whether the function before an address ends there, and does not run on. A call at its end
    does not count: that it never returns is the compiler's knowledge and not ours."""
    function = code.functions.index(address - 1)
    if function is None:
        return False
    flow = code.flow(function)
    last = next(reversed(flow.starts), None)
    if flow.end != address or last is None:
        return False
    return all(map(ends_block, decoder().disasm(code.read(last, address - last), last)))


def _made(code: Code, reach: range, lost: range) -> Iterator[HolePlace]:
    """Instructions that can give room, those behind the site first, without those that are `lost`.
    They are entered only at the first one, and include no call and no function's entry."""
    for at in _starts(code, reach, lost.start):
        content = room(code, at)
        if content and not (at < lost.stop and lost.start < at + len(content)):
            yield HolePlace(at, content, made=True)


def room(code: Code, at: int) -> bytes:
    """The instructions at an address that can give room, b"" where they cannot."""
    end = code.straight.rooms.get(at)
    if end is not None:
        return code.read(at, end - at) if end else b""
    run = whole_instructions(code.read(at, _LONGEST_RUN), at, 2 * NEAR_LENGTH)
    content = run.first(2 * NEAR_LENGTH)
    end = at + len(content)
    if len(content) < 2 * NEAR_LENGTH or code.is_restartable(at, end):
        return b""
    if code.targets(at + 1, end):
        return b""
    moved = relocate(content, at, at + _NEARBY)
    return content if isinstance(moved, Relocated) and not moved.calls else b""


def _starts(code: Code, reach: range, site: int) -> Iterator[int]:
    """Instructions from which a made hole is in reach, those behind the site first; and last those
    where a function begins, which a site of its own may need."""
    low, high = reach.start - NEAR_LENGTH, reach.stop - NEAR_LENGTH
    first, last = code.functions.between(low, high)
    starts = [
        (at < entry + _ENTRY, at < site, at)
        for function in range(first, last)
        if code.is_explained(function)
        for entry in (int(code.functions.starts[function]),)
        for at in code.flow(function).starts
        if low <= at < high and at != entry and not code.is_named(at)
    ]
    return (at for *_, at in sorted(starts))

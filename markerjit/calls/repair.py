"""Steps of one thread, made a sequence in which each exit leaves the call that was entered last.

The stack pointer of a call is the address of its return address. A stack grows downwards, so on one
stack every call has a lower one than its caller. So a step tells this of the calls that are open:

    a step on the same stack at a higher address    the call was left without an exit of its own, by
                                                    longjmp or an exception: CUT
    an entry at the very address                    the same
    an exit at the address of a call of another     the function was left by a part of that one: CUT
    function
    a step on another stack, where calls below it   the thread has left the stack that the innermost
    are open                                        calls are on, of a coroutine or a signal
                                                    handler: PARK
    a step on a stack with calls that are parked    they go on: AGAIN, or they are gone
    an exit of a call that is not open              its entry was before all, or lost: it is left
                                                    out and counted
    the same of one that was cut                    it had not been left: the stacks of two
                                                    coroutines are one area so far. The border
                                                    between them is learned (areas.py), and AGAIN
    the same of one that was given up               the calls below it are open still: AGAIN for
                                                    each

Only steps that do not fit come here, since each is looked at by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from markerjit.calls.areas import PAGE, Areas
from markerjit.calls.steps import AGAIN, CUT, ENTER, FRAME, PARK
from markerjit.tuples import NamedTuple

_MOST_CUT = 4096
_FAR = 4 * PAGE


class Open(NamedTuple):
    """A call: its function, and its stack pointer."""

    function: int
    stack: int


class Cut(NamedTuple):
    """A call that was cut, by a step at this address, one of so many."""

    function: int
    by: int
    turn: int


class Apart:
    """The state of a thread beside the calls that are open.

    given_up   calls that were given up since events were lost, the outermost first
    parked     calls on stacks that the thread has left, the outermost of each first
    cut        calls that were cut, by their stack pointers, the last one last
    """

    def __init__(self) -> None:
        self.given_up: list[Open] = []
        self.parked: list[Open] = []
        self.cut: dict[int, Cut] = {}
        self._turn = 0

    @property
    def is_empty(self) -> bool:
        """Whether there are no such calls."""
        return not (self.given_up or self.parked or self.cut)

    def give_up(self, calls: Sequence[Open], areas: Areas) -> None:
        """These calls are given up. Those that were before, and are not above them, are left."""
        first = calls[0].stack
        area = areas.of(first)
        self.given_up = [
            call for call in self.given_up
            if call.stack > first or areas.of(call.stack) != area
        ]  # fmt: skip
        self.given_up += calls

    def note_cut(self, calls: Sequence[Open], by: int) -> None:
        """These calls were cut together, by a step at this address."""
        self._turn += bool(calls)
        for call in calls:
            self.cut.pop(call.stack, None)
            self.cut[call.stack] = Cut(call.function, by, self._turn)
        while len(self.cut) > _MOST_CUT:
            del self.cut[next(iter(self.cut))]

    def has_cut(self, call: Open) -> bool:
        """Whether this call was cut, and nothing has been at its place since."""
        known = self.cut.get(call.stack)
        return known is not None and known.function == call.function

    def taken_back(self, call: Open, areas: Areas) -> list[Open]:
        """This call, which has not been left, and those above it that were cut with it. The border
        to the stack whose step has cut them is learned."""
        of = self.cut[call.stack]
        alike = [
            (stack, each.function) for stack, each in self.cut.items()
            if each.turn == of.turn and stack >= call.stack
        ]  # fmt: skip
        back = [Open(function, stack) for stack, function in sorted(alike, reverse=True)]
        for each in back:
            del self.cut[each.stack]
        areas.learn(back[0].stack, of.by)
        return back


def _learn_from_gaps(places: Sequence[int], stack: int, areas: Areas) -> None:
    """Learn the borders of the stack with one of these addresses, which are in order. The gap
    between calls on two stacks is larger than the frame of nearly every function."""
    gaps = [(low, high) for low, high in pairwise(places) if high - low > _FAR]
    below = [gap for gap in gaps if gap[1] <= stack][-1:]
    above = [gap for gap in gaps if gap[0] >= stack][:1]
    for gap in below + above:
        areas.learn(*gap)


class Repaired(NamedTuple):
    """Steps that fit.

    rows           for each the row of the step that it is, or whose time it has
    functions      the function of each
    kinds          the kind of each
    stacks         the stack pointer of each
    without_entry  exits that were left out, by function
    cut            calls that were left without an exit, by function: those that were found to be
                   only when their stack was used again, less those that had not been after all
    """

    rows: list[int]
    functions: list[int]
    kinds: list[int]
    stacks: list[int]
    without_entry: Counter[int]
    cut: Counter[int]


def repaired(
    functions: Sequence[int],
    kinds: Sequence[int],
    stacks: Sequence[int],
    apart: Apart,
    areas: Areas,
) -> Repaired:
    """The steps of a thread with these functions, kinds and stack pointers, in order."""
    thread = _Thread(apart, areas)
    for row, (function, kind, stack) in enumerate(zip(functions, kinds, stacks, strict=True)):
        thread.row = row
        call = Open(function, stack)
        if kind == FRAME:
            thread.open(call, FRAME)
        elif kind == ENTER:
            thread.enter(call)
        else:
            thread.leave(call, kind)
    return thread.made


class _Thread:
    """A thread while its steps are repaired.

    calls  the open calls, the outermost first
    row    the row of the current step
    """

    def __init__(self, apart: Apart, areas: Areas) -> None:
        self.calls: list[Open] = []
        self.row = 0
        self.made = Repaired([], [], [], [], Counter(), Counter())
        self._apart, self._areas = apart, areas

    def open(self, call: Open, kind: int) -> None:
        """Open a call, below those that are open."""
        self.calls.append(call)
        self._put(call, kind)

    def enter(self, call: Open) -> None:
        """The entry of a function."""
        self._come_to(call.stack)
        self._cut(call.stack, at_it=True)
        self._apart.cut.pop(call.stack, None)
        self.open(call, ENTER)

    def leave(self, call: Open, kind: int) -> None:
        """The exit of a function."""
        self._come_to(call.stack)
        self._cut(call.stack)
        if not self._is_last(call):
            if self._apart.has_cut(call):
                self._go_on(self._apart.taken_back(call, self._areas))
            elif call in self._apart.given_up:
                self._take_up(call)
                return
        if self._is_last(call):
            self.calls.pop()
            self._put(call, kind)
            return
        self._cut(call.stack, at_it=True)
        self.made.without_entry[call.function] += 1

    def _put(self, call: Open, kind: int) -> None:
        made = self.made
        made.rows.append(self.row)
        made.functions.append(call.function)
        made.kinds.append(kind)
        made.stacks.append(call.stack)

    def _is_last(self, call: Open) -> bool:
        return bool(self.calls) and self.calls[-1] == call

    def _come_to(self, stack: int) -> None:
        """The thread is on the stack with this address now."""
        areas = self._areas
        area = areas.of(stack)
        if self.calls and areas.of(self.calls[-1].stack) != area:
            depth = len(self.calls)
            while depth and areas.of(self.calls[depth - 1].stack) != area:
                depth -= 1
            if depth:
                left = self.calls[depth:]
                del self.calls[depth:]
                for call in reversed(left):
                    self._put(call, PARK)
                self._apart.parked += left
        if self._apart.parked:
            self._unpark(area, stack)

    def _unpark(self, area: int, stack: int) -> None:
        """The calls that are parked on this stack go on, or are gone."""
        areas, parked = self._areas, self._apart.parked
        here = {call.stack for call in parked if areas.of(call.stack) == area}
        if not here:
            return
        _learn_from_gaps(sorted({*here, stack}), stack, areas)
        area = areas.of(stack)
        back = [call for call in parked if areas.of(call.stack) == area]
        self._apart.parked = [call for call in parked if areas.of(call.stack) != area]
        for call in back:
            if call.stack >= stack:
                self.open(call, AGAIN)
        gone = [call for call in back if call.stack < stack]
        self.made.cut.update(call.function for call in gone)
        self._apart.note_cut(gone, stack)

    def _cut(self, stack: int, *, at_it: bool = False) -> None:
        """The calls at lower addresses of this stack are left, and a call at the very address."""
        area, below = self._areas.of(stack), stack + at_it
        left: list[Open] = []
        while self.calls and self.calls[-1].stack < below:
            if self._areas.of(self.calls[-1].stack) != area:
                break
            left.append(self.calls.pop())
            self._put(left[-1], CUT)
        self._apart.note_cut(left, stack)

    def _go_on(self, calls: Sequence[Open]) -> None:
        """These calls had not been left. What is open is on another stack, or below them."""
        self._come_to(calls[-1].stack)
        for call in calls:
            self.made.cut[call.function] -= 1
            self.open(call, AGAIN)

    def _take_up(self, call: Open) -> None:
        """An exit of a call that was given up, at which those below it are open still."""
        for each in reversed(self.calls):
            self._put(each, CUT)
        given_up = self._apart.given_up
        at = len(given_up) - 1 - given_up[::-1].index(call)
        self.calls.clear()
        self._apart.given_up = []
        area = self._areas.of(call.stack)
        for below in given_up[:at]:
            if below.stack > call.stack or self._areas.of(below.stack) != area:
                self.open(below, AGAIN)

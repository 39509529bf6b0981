"""The allocations of a running process, followed for a while: blocks by call site.

    1  what allocates is found, and what has to be recorded of it (allocators.py)
    2  it is recorded as a trace (trace.py), and at the end all of it is off again
    3  events become steps, steps blocks, and blocks are added up by site (markerjit/allocations)
    4  sites get their names as soon as they are seen (allocation_sites.py)

Where events were lost it is not known which blocks were freed. A block whose free was lost is live
until its address is given out again; then it counts as freed unseen.

What this does not do: follow processes that the program starts (only say that there are some).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np

from markerjit.allocations.continued import Continued
from markerjit.allocations.given import RULES, by_header
from markerjit.allocations.heap import Heap
from markerjit.allocations.sites import Sums
from markerjit.allocations.steps import NO_STEPS, Kind, Steps, steps_of
from markerjit.allocations.summary import Allocations, sites_of
from markerjit.events.bounds import Bounds
from markerjit.events.ranked import FAR, RankedPoll, RankedRecords
from markerjit.events.stream import EventStream
from markerjit.ring.columns import monotonic
from markerjit.session.allocation_sites import Sites
from markerjit.session.allocators import Recorded
from markerjit.session.clock import EarlyClock
from markerjit.session.flight import FlightRecorder
from markerjit.session.recording import Recording
from markerjit.session.switch import Switcher
from markerjit.session.target import Target
from markerjit.session.trace import Asked, traced
from markerjit.session.walked import WalkedStacks
from markerjit.sites import parse_name
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.batch import Array, Columns

POLL_S = 0.02
_AT_ONCE = 4
"""Blocks are put together when there are as many new steps as live blocks, divided by this."""
_LONGEST_S = 0.5
"""And at least so often."""


class AskedAllocations(NamedTuple):
    """A request to follow allocations. `read`: the given bytes are read in the process."""

    recorded: Recorded
    recording: Recording
    growth: int
    clock: EarlyClock
    read: bool
    limit: int | None
    duration: float | None


class AllocationTrace:
    """The allocations of a process while they are followed, and afterwards."""

    def __init__(
        self,
        stream: EventStream,
        target: Target,
        asked: AskedAllocations,
        stacks: WalkedStacks | None = None,
    ) -> None:
        """`stacks` where blocks are added up by them."""
        self._stream = stream
        self._records, self._kept = RankedRecords(stream), NO_STEPS
        self._target = target
        self._asked = asked
        self._command = target.command
        self._continued = Continued(self._given)
        self._heap, self._sums = Heap(), Sums()
        self._sites = Sites(target, stacks, asked.recorded.depth)
        self._waiting: list[Steps] = []
        self._threads: set[int] = set()
        self._events = self._made = self._lost = 0
        self._began_ns = self._now = time.monotonic_ns()
        self._put_together_at = time.monotonic()
        self._children = _children_of(target.pid)
        self._new_children: set[int] = set()
        self._ended = False

    # ---- while it lasts --------------------------------------------------------------------------

    def poll(self) -> int:
        """Take what has come since the last poll; returns how many events that were."""
        self._now = time.monotonic_ns()
        count = self._take(self._records.poll())
        waiting = sum(steps.rows for steps in self._waiting)
        overdue = time.monotonic() - self._put_together_at > _LONGEST_S
        if waiting and (overdue or waiting * _AT_ONCE >= self._heap.live.rows):
            self._put_together()
        if self._asked.limit is not None and self._made >= self._asked.limit:
            self._stream.stop()
        return count

    def wait(self) -> None:
        """Follow allocations until the end: the time is over, there are as many as were asked for,
        the process has ended, or `stop` was called."""
        while not self.is_over():
            if not self.poll():
                time.sleep(POLL_S)

    def stop(self) -> None:
        """End it. Safe to call from a signal handler."""
        self._stream.stop()

    def is_over(self) -> bool:
        """Whether nothing more will come than what was recorded already."""
        return self._ended or self._stream.is_over()

    @property
    def target_ended(self) -> bool:
        """Whether it ended because the process did."""
        return self._stream.target_ended

    @property
    def dispossessed(self) -> bool:
        """Whether it ended because another controller has taken the rings or all functions."""
        return self._stream.dispossessed or self._stream.all_taken

    @property
    def waits(self) -> tuple[int, float]:
        """With `lossless`: how many events waited, and for how many seconds in all threads."""
        waits = self._stream.waits()
        return waits.events, waits.ns / 1e9

    def allocations(self) -> Allocations:
        """All allocations so far."""
        self._put_together()
        recorded, sums = self._asked.recorded, self._sums
        return Allocations(
            (self._now - self._began_ns) / 1e9,
            sites_of(sums, self._heap, self._sites.sites, self._now),
            sums.most_given, max(sums.most_at - self._began_ns, 0) / 1e9,
            sums.unknown_frees, sums.unseen, self._events, self._lost, self._stream.unmatched,
            len(self._threads), recorded.allocator, self._asked.read,
            tuple(sorted(recorded.kinds)), tuple(each.sentence for each in self._stream.unswitched),
            len(self._new_children), self._target.pid, self._command,
            recorded.depth, self._sites.lost,
        )  # fmt: skip

    # ---- its end ---------------------------------------------------------------------------------

    def note_end(self) -> None:
        """What is recorded is about to be switched off."""
        self._now = max(self._now, time.monotonic_ns())
        self._look_at_children()

    def finish(self) -> None:
        """Take the rest: everything is off."""
        self._take(self._records.rest(), last=True)
        self._put_together(last=True)
        self._ended = True

    # ---- steps -----------------------------------------------------------------------------------

    def _take(self, poll: RankedPoll, *, last: bool = False) -> int:
        self._lost = self._records.lost()
        parts = [self._steps(ranked.columns) for ranked in poll.records]
        places = [ranked.places for ranked in poll.records]
        new = Steps.joined(parts)
        if parts:
            new = new.picked(np.argsort(np.concatenate(places), kind="stable"))
        steps = Steps.joined([self._kept, new])
        steps = steps.picked(np.argsort(steps.time.view(np.uint64), kind="stable"))
        steps, self._kept = _before(steps, poll.until)
        if steps.rows:
            time_ns = monotonic(steps.time.view(np.uint64), poll.clock)
            steps = steps._replace(time=time_ns)
            self._now = max(self._now, int(time_ns[-1]))
        self._events += steps.rows
        steps = self._continued.completed(steps, last=last)
        self._made += int((steps.kind >= Kind.ALLOC).sum())
        self._threads.update(np.unique(steps.tid).tolist())
        self._waiting.append(steps)
        return new.rows

    def _steps(self, columns: Columns) -> Steps:
        """The steps of these records, with their times as recorded."""
        fields, kind = columns.fields, self._asked.recorded.kinds[columns.type.marker]
        numbers: dict[str, Array] = {name: np.asarray(column) for name, column in fields.items()}
        block = numbers["block"].astype(np.uint64)
        asked = numbers["asked"].astype(np.int64)
        kinds = np.full(len(block), kind, np.uint8)
        given = asked
        if kind >= Kind.ALLOC:
            given = RULES[self._asked.recorded.allocator](asked, block)
            if "header" in numbers:
                given = by_header(numbers["header"].astype(np.uint64), asked)
        site = self._sites.numbers(
            numbers["caller"].astype(np.uint64), columns.type.marker, kind, numbers.get("stack")
        )
        time_then = columns.time.view(np.int64)
        return steps_of(kinds, columns.tid, columns.cpu, time_then, block, asked, given, site)

    def _given(self, steps: Steps, by_results: Array) -> Array:
        """The bytes of allocations that another function has finished."""
        asked = self._asked
        if asked.read:
            return np.maximum(by_results, steps.asked)
        return RULES[asked.recorded.allocator](steps.asked, steps.block)

    def _put_together(self, *, last: bool = False) -> None:
        if not self._ended:
            self._sites.look()
        if not self._waiting and not last:
            return
        blocks = self._heap.advance(Steps.joined(self._waiting), last=last)
        self._waiting = []
        self._sums.add(blocks, len(self._sites.sites))
        self._put_together_at = time.monotonic()
        self._look_at_children()

    def _look_at_children(self) -> None:
        self._new_children |= _children_of(self._target.pid) - self._children


@contextmanager
def followed(
    switcher: Switcher, flights: FlightRecorder, asked: AskedAllocations
) -> Iterator[AllocationTrace]:
    """Allocations, followed for the length of the context. Raises what a trace raises."""
    _load(asked.recorded.kinds)
    request = Asked(
        parse_name(asked.recorded.names), asked.recording.read(), False, POLL_S, asked.clock,
        asked.growth, Bounds(asked.duration, None),
    )  # fmt: skip
    with traced(switcher, flights, request) as stream:
        stacks = WalkedStacks(switcher) if asked.recorded.depth else None
        trace = AllocationTrace(stream, switcher.target, asked, stacks)
        yield trace
        trace.note_end()
    trace.finish()


def _load(kinds: Mapping[str, Kind]) -> None:
    """Load what the first events need, before they come: parts of numpy are loaded when they are
    used."""
    heap, sums = Heap(), Sums()
    kind = [Kind.ALLOC, Kind.FREE, *[Kind.ALLOC for _ in kinds]]
    numbers = [*range(len(kind))]
    sums.add(heap.advance(steps_of(kind, *[numbers] * 7)), len(kind))


def _before(steps: Steps, until: int | None) -> tuple[Steps, Steps]:
    """The steps before a time, as records count it, and the others."""
    if until is None:
        return steps, NO_STEPS
    times = steps.time.view(np.uint64)
    later = (times >= np.uint64(until)) & (times - np.uint64(until) < FAR)
    return steps.picked(~later), steps.picked(later)


def _children_of(pid: int) -> set[int]:
    """The children of a process that are there now."""
    children: set[int] = set()
    with suppress(OSError):
        for tid in os.listdir(f"/proc/{pid}/task"):
            path = f"/proc/{pid}/task/{tid}/children"
            with suppress(OSError), open(path, encoding="ascii") as file:
                children.update(map(int, file.read().split()))
    return children

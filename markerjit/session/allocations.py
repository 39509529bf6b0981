"""The allocations of a running process, followed for a while: blocks by call site.

    1  what allocates is found, and what has to be recorded of it (allocators.py)
    2  it is recorded as a trace (trace.py), and at the end all of it is off again
    3  events become steps, steps blocks, and blocks are added up by site (markerjit/allocations)
    4  call sites get their names as soon as they are seen: a library may be unloaded, and at the
       end the process may be gone

Where events were lost it is not known which blocks were freed. A block whose free was lost is live
until its address is given out again; then it counts as freed unseen.

What this does not do: follow processes that the program starts (only say that there are some), or
look behind the immediate caller.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np

from markerjit.allocations.given import RULES, by_header
from markerjit.allocations.heap import Heap
from markerjit.allocations.sites import Sums
from markerjit.allocations.steps import NO_STEPS, Kind, Steps, steps_of
from markerjit.allocations.summary import Allocations, CallSite, sites_of
from markerjit.elf.demangle import demangled
from markerjit.errors import MarkerError
from markerjit.events.bounds import Bounds
from markerjit.events.ranked import FAR, RankedPoll, RankedRecords
from markerjit.events.stream import EventStream
from markerjit.ring.columns import monotonic
from markerjit.session.allocators import UNSEEN, Recorded
from markerjit.session.clock import EarlyClock
from markerjit.session.flight import FlightRecorder
from markerjit.session.recording import Recording
from markerjit.session.switch import Switcher
from markerjit.session.target import Target
from markerjit.session.trace import Asked, traced
from markerjit.sites import parse_name
from markerjit.tuples import NamedTuple
from markerjit.unwind.names import FrameNames
from markerjit.unwind.objects import ProcessCode

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

    def __init__(self, stream: EventStream, target: Target, asked: AskedAllocations) -> None:
        self._stream = stream
        self._records, self._kept = RankedRecords(stream), NO_STEPS
        self._target = target
        self._asked = asked
        self._command = target.command
        self._heap, self._sums = Heap(), Sums()
        self._sites = _Sites(target)
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
        )  # fmt: skip

    # ---- its end ---------------------------------------------------------------------------------

    def note_end(self) -> None:
        """What is recorded is about to be switched off."""
        self._now = max(self._now, time.monotonic_ns())
        self._look_at_children()

    def finish(self) -> None:
        """Take the rest: everything is off."""
        self._take(self._records.rest())
        self._put_together(last=True)
        self._ended = True

    # ---- steps -----------------------------------------------------------------------------------

    def _take(self, poll: RankedPoll) -> int:
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
        unseen = block == UNSEEN
        kinds = np.full(len(block), kind, np.uint8)
        if kind == Kind.MOVED:  # another function does it in its place, and has steps of its own
            block, asked = np.where(unseen, 0, block), np.where(unseen, 0, asked)
        else:
            kinds[unseen] = Kind.UNSEEN
        given = asked
        if kind >= Kind.ALLOC:
            given = RULES[self._asked.recorded.allocator](asked, block)
            if "header" in numbers:
                given = by_header(numbers["header"].astype(np.uint64), asked)
        site = self._sites.numbers(numbers["caller"].astype(np.uint64), columns.type.marker, kind)
        time_then = columns.time.view(np.int64)
        return steps_of(kinds, columns.tid, columns.cpu, time_then, block, asked, given, site)

    def _put_together(self, *, last: bool = False) -> None:
        if not self._waiting and not last:
            return
        blocks = self._heap.advance(Steps.joined(self._waiting), last=last)
        self._waiting = []
        self._sums.add(blocks, len(self._sites.sites))
        self._put_together_at = time.monotonic()
        self._look_at_children()

    def _look_at_children(self) -> None:
        self._new_children |= _children_of(self._target.pid) - self._children


class _Sites:
    """The call sites that were seen, by number. The first one is that of frees, which have none."""

    def __init__(self, target: Target) -> None:
        self.sites = [CallSite(0, "")]
        self._target = target
        self._known: dict[int | str, int] = {}
        self._maps_text = ""
        self._names: FrameNames | None = None
        with suppress(MarkerError):  # so that objects are known if the process ends soon
            self._look()

    def numbers(self, callers: Array, marker: str, kind: Kind) -> Array:
        """The number of each site; `marker` stands for those without a caller."""
        if kind < Kind.ALLOC:
            return np.zeros(len(callers), np.int64)
        addresses, places = np.unique(callers, return_inverse=True)
        numbers = [self._number(address or marker) for address in addresses.tolist()]
        sites: Array = np.array(numbers, np.int64)[places]
        return sites

    def _number(self, key: int | str) -> int:
        if key not in self._known:
            self._known[key] = len(self.sites)
            self.sites.append(CallSite(0, key) if isinstance(key, str) else self._site(key))
        return self._known[key]

    def _site(self, address: int) -> CallSite:
        with suppress(MarkerError, OSError):  # the process has ended, and so its names
            for _ in range(2):
                if self._names:
                    frame = self._names.frame(address, exact=False)
                    if frame.object:
                        label = demangled(frame.function) or frame.label
                        return CallSite(address, label, frame.offset, frame.object)
                if not self._look():
                    break
        return CallSite(address, f"{address:#x}")

    def _look(self) -> bool:
        """Look at what is mapped now; whether something came or went since the last look."""
        target = self._target
        target.look()
        if self._names and target.seen.maps_text == self._maps_text:
            return False
        self._maps_text = target.seen.maps_text
        code = ProcessCode(target.memory.read, target.seen.maps)
        self._names = FrameNames(target.pid, code)
        return True


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
        trace = AllocationTrace(stream, switcher.target, asked)
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

"""The allocations of a running process, followed for a while: blocks by call site.

    1  what allocates is found, and what its events have to say (allocators.py)
    2  the runtime adds up blocks by site, in memory of the arena, and keeps those that are live
       (native/src/runtime/heap.c); at the end all of it is off again (held.py)
    3  sites get their names as soon as they are seen (allocation_sites.py)

Nothing depends on a reader that keeps up.

What this does not do: follow processes that the program starts (only say that there are some).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import markerjit.abi as abi
from markerjit.allocations.heap import Heap, heap_of
from markerjit.allocations.steps import GIVES
from markerjit.allocations.summary import Allocations, CallSite, sites_of
from markerjit.arena.aggregates import Aggregate, Size, Words
from markerjit.arena.blocks import PLACE_WORDS, Blocks
from markerjit.errors import Refused
from markerjit.events.bounds import Bounds
from markerjit.patch.request import HeapStep, Request
from markerjit.probes.asking import scope_of_marker
from markerjit.probes.recorders import Recorders
from markerjit.proc.children import children_of
from markerjit.questions.selection import select
from markerjit.ring.clock import Calibration
from markerjit.ring.types import Time
from markerjit.session.allocation_sites import Sites
from markerjit.session.allocators import Recorded
from markerjit.session.asking import divide, rest_of
from markerjit.session.clock import EarlyClock
from markerjit.session.held import Leg, Source, held, make
from markerjit.session.holding import refuse_added_up, take
from markerjit.session.pair_clock import check_clock, clock_of_pairs, ticks_of
from markerjit.session.switch import Switcher
from markerjit.session.target import Target
from markerjit.session.turn import Turn
from markerjit.session.unasked import give_back_memory
from markerjit.session.walked import WalkedStacks
from markerjit.sites import parse_name
from markerjit.tuples import NamedTuple

POLL_S = 0.02
_LOOK_S = 0.5
"""So often at least sites are looked for that have no name yet."""
MOST_SITES = 8192
MOST_BLOCKS = 1 << 21
"""Places of the table of live blocks, if there is room for as many."""
_LEAST_BLOCKS = 1 << 10


class AskedAllocations(NamedTuple):
    """A request to follow allocations. `read`: the given bytes are read in the process; `on` is how
    what allocates is switched on."""

    recorded: Recorded
    on: Request
    clock: EarlyClock
    read: bool
    limit: int | None
    duration: float | None


class _Prepared(NamedTuple):
    """What is switched, and what is read. `markers` are names by their numbers."""

    recorders: Recorders
    legs: tuple[Leg]
    source: Source[Blocks]
    markers: Mapping[int, str]


class AllocationTrace:
    """The allocations of a process while they are followed, and afterwards. `sums` copies what is
    added up, without the blocks that are live."""

    def __init__(
        self,
        source: Source[Blocks],
        target: Target,
        asked: AskedAllocations,
        clock: Calibration,
        sites: Sites,
        sums: Callable[[Aggregate], Words],
    ) -> None:
        self._source = source
        self._target = target
        self._asked = asked
        self._clock = clock
        self._sites = sites
        self._sums = sums
        self._command = target.command
        self._bounds = Bounds(asked.duration, None)
        self._began_ns = self._now = time.monotonic_ns()
        self._looked_at = 0.0
        self._children = children_of(target.pid)
        self._new_children: set[int] = set()
        self._seen = 0
        self._stopped = self._dispossessed = False
        self._target_ended: bool | None = None  # known when the memory may be closed
        self._last: Allocations | None = None

    def __repr__(self) -> str:
        state = "over" if self._source.is_over else "going on"
        return f"<AllocationTrace of process {self._source.pid}, {state}>"

    # ---- while it lasts --------------------------------------------------------------------------

    def begin(self) -> None:
        """All is on: the time runs from now on."""
        self._began_ns = time.monotonic_ns()
        self._bounds.begin()

    def poll(self) -> int:
        """See what has come since the last poll; returns how many allocations that were."""
        if self._source.is_over:
            return 0
        self._now = time.monotonic_ns()
        if self._asked.limit is None and time.monotonic() - self._looked_at < _LOOK_S:
            return 0
        self._looked_at = time.monotonic()
        heap = self._look()
        before, self._seen = self._seen, heap.made if heap else self._seen
        self._look_at_children()
        return self._seen - before

    def wait(self) -> None:
        """Follow allocations until the end: the time is over, there are as many as were asked for,
        the process has ended, or `stop` was called."""
        while not self.is_over():
            self.poll()
            time.sleep(POLL_S)

    def stop(self) -> None:
        """End it. Safe to call from a signal handler."""
        self._stopped = True

    def is_over(self) -> bool:
        """Whether nothing more will come than what was added up already."""
        limit = self._asked.limit
        is_enough = limit is not None and self._seen >= limit
        return (
            self._source.is_over or self._stopped or self._dispossessed or is_enough
            or self._bounds.left_s(1) <= 0 or self.target_ended
        )  # fmt: skip

    @property
    def target_ended(self) -> bool:
        """Whether it ended because the process did."""
        if self._target_ended is None:
            return not self._source.is_alive()
        return self._target_ended

    @property
    def dispossessed(self) -> bool:
        """Whether it ended because another controller has taken the functions."""
        return self._dispossessed or bool(self._source.taken)

    def allocations(self) -> Allocations:
        """All allocations so far."""
        if self._last is not None:
            return self._last
        self._now = time.monotonic_ns()
        return self._allocations()

    def _allocations(self) -> Allocations:
        copy = self._source.copy()
        heap = heap_of(copy)
        recorded, monotonic = self._asked.recorded, self._clock.monotonic
        seconds = (self._now - self._began_ns) / 1e9
        most_s = (monotonic(copy.most_at) - self._began_ns) / 1e9 if copy.most else 0.0
        return Allocations(
            seconds,
            sites_of(heap, self._named(heap), self._now, monotonic),
            copy.most, min(max(most_s, 0.0), seconds),
            heap.unknown, heap.unseen + heap.begun * self._source.is_over, heap.no_site,
            sum(self._source.unmatched.values()), copy.threads, recorded.allocator,
            self._asked.read, tuple(sorted(recorded.kinds)),
            tuple(each.sentence for each in self._source.unswitched),
            len(self._new_children), self._target.pid, self._command, recorded.depth,
            self._sites.lost,
        )  # fmt: skip

    def _look(self) -> Heap | None:
        """Find the names of sites that are new; the sums of now, None where the memory is
        another's. The table of blocks is left alone: there may be two million."""
        self._sites.look()
        try:
            heap = heap_of(self._source.look(self._sums))
        except Refused:
            self._dispossessed = True
            return None
        self._named(heap)
        return heap

    def _named(self, heap: Heap) -> dict[int, CallSite]:
        return {number: self._sites.of(key) for number, key in heap.keys.items()}

    # ---- its end ---------------------------------------------------------------------------------

    def note_end(self) -> None:
        """What is on is about to be switched off."""
        self._now = time.monotonic_ns()
        self._look_at_children()

    def finish(self) -> None:
        """Everything is off."""
        self._target_ended = not self._source.is_alive()
        self._sites.look()
        with suppress(Refused):
            self._last = self._allocations()

    def _look_at_children(self) -> None:
        self._new_children |= children_of(self._target.pid) - self._children


@contextmanager
def followed(switcher: Switcher, asked: AskedAllocations) -> Iterator[AllocationTrace]:
    """Allocations, followed for the length of the context. Raises what a switch raises, and Refused
    where another reader holds what allocates, or there is no room."""
    clock = clock_of_pairs(asked.clock)
    with held(switcher, lambda turn: _prepare(turn, switcher, asked, clock)) as prepared:
        depth = asked.recorded.depth
        stacks = WalkedStacks(switcher) if depth else None
        sites = Sites(switcher.target, stacks, depth, prepared.markers)
        sums = prepared.recorders.arena.aggregates.copy
        trace = AllocationTrace(prepared.source, switcher.target, asked, clock, sites, sums)
        trace.begin()
        yield trace
        trace.note_end()
    trace.finish()


def _prepare(
    turn: Turn, switcher: Switcher, asked: AskedAllocations, clock: Calibration
) -> _Prepared:
    recorded = asked.recorded
    name = parse_name(recorded.names)
    probe = HeapStep.of(
        recorded.select, recorded.kinds, GIVES[recorded.allocator],
        counter=clock.time is Time.TSC, by=recorded.by,
    )  # fmt: skip
    request = asked.on._replace(probe=probe)
    switcher.need_stubs(turn, name, request)
    matching = turn.target.matching(name)
    signatures = list(dict.fromkeys(site.signature for site in matching))
    answers = select(recorded.select, [*map(scope_of_marker, signatures)])
    left_out = divide(matching, signatures, answers).left_out
    sites = rest_of(matching, left_out)
    take(turn.target, switcher.recorders, name, request)
    recorders = switcher.need_arena(turn, sites, request)
    refuse_added_up(turn.target, recorders, sites)
    arena = recorders.arena
    check_clock(arena, clock)
    leg = Leg(name, sites, request)
    size = Size(1, abi.BLOCK_COUNTS, MOST_SITES, slow_words=PLACE_WORDS)
    give_back_memory(turn, arena)  # an earlier table has most of the room
    places = arena.aggregates.most_blocks(size, MOST_BLOCKS)
    size = size._replace(slow_room=max(places, _LEAST_BLOCKS))
    aggregate = make(turn, recorders, [leg], size, ticks_of(clock))
    source = Source(arena, aggregate, arena.aggregates.copy_blocks, turn.target.memory.alive)
    source.unswitched = tuple(left_out.values())
    markers = {
        marker: signature.name
        for signature in {site.signature for site in sites}
        if (marker := recorders.find(signature, probe)) is not None
    }
    return _Prepared(recorders, (leg,), source, markers)

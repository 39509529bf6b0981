"""The budget of a stream's probes: a part of the processor time of the process.

A few times a second the events of each marker are counted that its brakes have let through or held
back since the last look. The time of the marker's probe is this number times a price. Events that
were sampled away have a smaller price. If the sum exceeds the budget's part of the processor time
that the process has used meanwhile, the sample of the marker with the largest share is halved until
it does not. If the sum still exceeds it at the next look, and no sample can be halved any more, the
budget is spent.

The prices are measured on this machine, when the stream begins: the controller times work like that
of a probe in its own process. They are not measured in the process itself, since that would take
time of its probes. Events that a condition rejects are not counted, and have no price here.

docs/decisions/0045-brakes.md
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from heapq import heapify, heappop, heapreplace

from markerjit.arena.arena import Arena
from markerjit.model import Mode
from markerjit.remote.native import work_ns
from markerjit.ring.brakes import WHOLE, Sample
from markerjit.ring.types import RecordType
from markerjit.tuples import NamedTuple

_TAKEN, _LEFT_OUT = 2.5, 0.25
"""Prices, in times of the work of recording two integers: fields may be texts, and come from a
return. What is sampled away takes a tenth (docs/results/active.md)."""
MOST_HALVINGS = 10
_INTERVAL_NS = 200_000_000
_LEAST_NS = 5_000_000
"""The least processor time for which a share is meaningful."""
_OF_PROCESS = 2
_MODES = tuple(Mode)


class Prices(NamedTuple):
    """What an event takes of the processor, in nanoseconds.

    taken       that is recorded
    left_out    that is sampled away
    breakpoint  besides, at a breakpoint: an exception and a signal of the kernel
    """

    taken: float
    left_out: float
    breakpoint: float = 2_500

    @classmethod
    def measured(cls) -> Prices:
        """Those of this machine."""
        work = work_ns()
        return cls(_TAKEN * work, _LEFT_OUT * work)


class Cut(NamedTuple):
    """What was done because probes took too large a part of the processor time.

    time_ns  when, CLOCK_MONOTONIC
    percent  how much they took, estimated
    marker   whose sample was made smaller; None where the stream is ended instead
    sample   what it is from then on, such as "1/8"; None where the stream is ended
    """

    time_ns: int
    percent: float
    marker: str | None = None
    sample: str | None = None


class _Share:
    """A marker's share."""

    def __init__(self, kind: RecordType, counted: int, prices: Prices) -> None:
        self.kind = kind
        self._prices = prices
        self.counted = counted
        self.halvings = 0
        self.arrived = 0.0
        self.at_breakpoint = False

    @property
    def sample(self) -> Sample:
        return self.kind.brakes.first.halved(self.halvings)

    @property
    def chance(self) -> float:
        return (self.sample.highest + 1) / WHOLE

    @property
    def spent_ns(self) -> float:
        """The time of the probe, if as many events arrive as between the last two looks."""
        taken, left_out, breakpoint_ns = self._prices
        price = self.chance * taken + (1 - self.chance) * left_out
        return self.arrived * (price + self.at_breakpoint * breakpoint_ns)


class Budget:
    """The budget of the markers of a stream, whose records have these types. `waiting` says how
    many records are in the rings that nobody has counted yet."""

    def __init__(
        self,
        arena: Arena,
        types: Mapping[int, RecordType],
        waiting: Callable[[], Mapping[int, int]] = dict,
        *,
        processor_ns: Callable[[int], int] | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
        prices: Callable[[], Prices] | None = None,
    ) -> None:
        self.cuts: list[Cut] = []
        self.is_spent = False
        self._arena = arena
        self._waiting = waiting
        self._processor_ns = processor_ns or _processor_ns
        self._now_ns = now_ns
        kinds = {id: kind for id, kind in types.items() if kind.brakes.budget}
        self._began = self._processor_ns(arena.pid) if kinds else 0
        counted = self._counted(kinds)
        self._shares: dict[int, _Share] = {}
        if kinds:
            at = (prices or Prices.measured)()
            self._shares = {id: _Share(kind, counted[id], at) for id, kind in kinds.items()}
        self._percent = min((kind.brakes.budget or 0 for kind in kinds.values()), default=0.0)
        self._due = now_ns() + _INTERVAL_NS

    def look(self) -> None:
        """Check that the probes keep to the budget, if it is time for that."""
        now = self._now_ns()
        if not self._shares or self.is_spent or now < self._due:
            return
        self._due = now + _INTERVAL_NS
        began = self._processor_ns(self._arena.pid)
        if began - self._began >= _LEAST_NS:
            self._note_arrivals()
            # This thread may have been without a CPU while it counted: all of that is in the time.
            self._keep(self._processor_ns(self._arena.pid) - self._began, now)
            self._began = began

    def _counted(self, markers: Collection[int]) -> dict[int, int]:
        if not markers:
            return {}
        counters, held_back = self._arena.counters.of_all(markers), self._arena.braking.held_back
        waiting = self._waiting()  # of another sample by the time that they are taken out
        return {id: counters[id].hits + held_back(id) + waiting.get(id, 0) for id in markers}

    def _note_arrivals(self) -> None:
        for id, counted in self._counted(self._shares).items():
            share = self._shares[id]
            share.arrived = max(counted - share.counted, 0) / share.chance
            share.counted = counted
            mode = int(self._arena.markers.entry(id).mode)
            share.at_breakpoint = 0 < mode <= len(_MODES) and _MODES[mode - 1] is Mode.INT3

    def _keep(self, used_ns: int, now: int) -> None:
        """Halve samples until the probes would have kept to it."""
        allowed = self._percent / 100 * used_ns
        spent_ns = sum(share.spent_ns for share in self._shares.values())
        percent = round(100 * spent_ns / used_ns, 2)
        if spent_ns <= allowed:
            return
        thinned = self._halve(spent_ns - allowed)
        for id in thinned:
            self._arena.braking.set_highest(id, self._shares[id].sample.highest)
        for id, counted in self._counted(thinned).items():
            # What came until now was of the larger sample: each stands for fewer events.
            share = self._shares[id]
            share.counted = counted
            self.cuts.append(Cut(now, percent, share.kind.marker, str(share.sample)))
        if not thinned:
            self.is_spent = True
            self.cuts.append(Cut(now, percent))

    def _halve(self, excess_ns: float) -> list[int]:
        """Halve the sample of the marker with the largest share, until nothing of the excess is
        left. Returns the markers in the order of their first halving. Of thousands of markers each
        is looked at once, and then only the largest."""
        largest = [(-share.spent_ns, id) for id, share in self._shares.items()
                   if share.halvings < MOST_HALVINGS and share.arrived]  # fmt: skip
        heapify(largest)
        thinned: dict[int, None] = {}
        while excess_ns > 0 and largest:
            before, id = largest[0]
            share = self._shares[id]
            share.halvings += 1
            thinned[id] = None
            after = -share.spent_ns
            excess_ns += before - after
            if share.halvings < MOST_HALVINGS:
                heapreplace(largest, (after, id))
            else:
                heappop(largest)
        return list(thinned)


def _processor_ns(pid: int) -> int:
    """The processor time of a process so far; 0 where it has ended. The number of its clock is made
    of its pid (include/linux/posix-timers.h, CPUCLOCK_SCHED)."""
    try:
        return time.clock_gettime_ns(~pid << 3 | _OF_PROCESS)
    except OSError:
        return 0

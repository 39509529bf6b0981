"""What aggregates and latencies share: markers that add to memory of the arena, for one reader.

    1  the memory is taken, and each marker's entry gets its ticket
    2  the markers are switched on
    3  whatever happens, they are switched off again, markers that only counted before count again,
       and what others have taken meanwhile is left alone
    4  threads that are still adding get a moment, the memory is read for the last time, and it is
       given back

Killed between 1 and 4 a controller leaves an aggregate whose owner is gone. In the turn of the next
controller its markers are switched off, and the memory is given back (left_aggregates.py).

What this does not do: know what the memory means (aggregate.py, latency.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic, sleep
from typing import Generic, Protocol, TypeVar

from markerjit.arena.aggregates import NO_TICKS, Aggregate, Size, Ticks
from markerjit.arena.arena import Arena
from markerjit.errors import MarkerError, NoSuchProcess, Reason, Refused, TargetGone
from markerjit.model import RemoteAddress, Site
from markerjit.patch.plan import SiteState
from markerjit.patch.request import Request
from markerjit.patch.switchable import LeftOut
from markerjit.probes.recorders import Recorders
from markerjit.proc.owner import ourselves
from markerjit.session.counting import Counting, count_again, counting
from markerjit.session.holding import is_bound
from markerjit.session.insist import insist
from markerjit.session.notes import left_out_by_notes
from markerjit.session.status import unmatched
from markerjit.session.switch import Switcher, tell_of_markers
from markerjit.session.turn import Turn
from markerjit.session.unasked import MOST_ENDED, give_back_memory
from markerjit.sites import ProbeName
from markerjit.tuples import NamedTuple

T = TypeVar("T")
U = TypeVar("U")


class TakeRows(Protocol):
    """Takes what is handed out once."""

    def __call__(self, aggregate: Aggregate, *, is_over: bool = False) -> list[bytes]:
        """What was not taken before; at the end all of it."""


_LOOK_S = 0.002
_GRACE_S = 0.2
"""A thread that was stopped while it was adding goes on at once, unless the machine is busy."""


class Source(Generic[T]):
    """The memory of an aggregate, as it is while markers add to it, and as it was at the end.

    `unswitched` are markers that matched and are left as they were, `taken` those that another
    controller has taken, and `gone` those whose code was unloaded, or switched off by others, at
    some of their sites. Known at the end are `unmatched`, the returns by slot that were not added,
    since their entries were not seen, and `target_ended`. `take_rows` takes rows once.
    """

    def __init__(
        self,
        arena: Arena,
        aggregate: Aggregate,
        copy: Callable[[Aggregate], T],
        is_alive: Callable[[], bool],
        take_rows: TakeRows | None = None,
    ) -> None:
        self.aggregate = aggregate
        self.size = aggregate.size
        self.unswitched: tuple[LeftOut, ...] = ()
        self.taken: tuple[str, ...] = ()
        self.gone: tuple[str, ...] = ()
        self.unmatched: dict[RemoteAddress, int] = {}
        self.is_over = self.target_ended = False
        self._arena = arena
        self._copy = copy
        self.is_alive = is_alive
        self._take_rows = take_rows
        self._last: T | None = None
        self._rows: list[bytes] = []

    def copy(self) -> T:
        """All that is in the memory. Raises Refused where it is another's."""
        return self.look(self._copy) if self._last is None else self._last

    @property
    def pid(self) -> int:
        """Of the process that has it."""
        return self._arena.pid

    def look(self, copy: Callable[[Aggregate], U]) -> U:
        """What `copy` takes of the memory. Raises Refused where it is another's."""
        content = copy(self.aggregate)
        self._check_ours()
        return content

    def take(self) -> list[bytes]:
        """The rows that were not handed out before, while it goes on and once afterwards. Raises
        Refused where the memory is another's."""
        rows, self._rows = self._rows, []
        if self._take_rows and not self.is_over:
            self._check_ours()  # taking writes down how far it came
            rows = self._take_rows(self.aggregate)
            self._check_ours()
        return rows

    def _check_ours(self) -> None:
        """After a read: what went in the middle of it may have been another's already."""
        if not self._arena.aggregates.find(self.aggregate.ticket):
            raise Refused(
                "the aggregate is gone: another controller has taken its markers, or the process "
                "has overwritten it"
            )

    def finish(self) -> None:
        """Read for the last time, when no thread has added anything for a moment."""
        with suppress(TargetGone, Refused):
            last, until = self.copy(), monotonic() + _GRACE_S
            while self.is_alive() and monotonic() < until:
                sleep(_LOOK_S)
                before, last = last, self.copy()
                if last == before:
                    break
            self._last = last
            if self._take_rows:
                rows = self._take_rows(self.aggregate, is_over=True)
                self._check_ours()
                self._rows = rows
        self.target_ended = not self.is_alive()
        self.is_over = True


class Gathering(Generic[T]):
    """What is read of an aggregate or a latency besides its numbers."""

    def __init__(self, source: Source[T]) -> None:
        self._source = source

    def __repr__(self) -> str:
        state = "over" if self.ended else "going on"
        return f"<{type(self).__name__} of process {self._source.pid}, {state}>"

    @property
    def unswitched(self) -> tuple[LeftOut, ...]:
        """Markers that matched and are left as they were."""
        return self._source.unswitched

    @property
    def taken(self) -> tuple[str, ...]:
        """Markers that another controller has taken meanwhile."""
        return self._source.taken

    @property
    def gone(self) -> tuple[str, ...]:
        """At the end: markers with sites that were unloaded meanwhile, or switched off by others.
        A site that is loaded again is off."""
        return self._source.gone

    @property
    def unmatched(self) -> int:
        """At the end: returns of functions that count for nothing, since their entries were not
        seen."""
        return sum(self._source.unmatched.values())

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self._source.is_over

    @property
    def target_ended(self) -> bool:
        """Whether the process has ended; once all is over, whether it had at that time."""
        source = self._source
        return source.target_ended if source.is_over else not source.is_alive()


class Leg(NamedTuple):
    """Sites that are switched by one request, and their pattern."""

    name: ProbeName
    sites: Sequence[Site]
    request: Request


class Prepared(Protocol[T]):
    """Markers that are ready to be switched on: in the order of the legs, and off in the opposite
    one."""

    @property
    def recorders(self) -> Recorders:
        """The recorders that have their code."""

    @property
    def legs(self) -> Sequence[Leg]:
        """What is switched."""

    @property
    def source(self) -> Source[T]:
        """What is read."""


P = TypeVar("P", bound=Prepared)  # type: ignore[type-arg]


@contextmanager
def held(switcher: Switcher, prepare: Callable[[Turn], P]) -> Iterator[P]:
    """Have the markers on, until the context ends."""
    prepared: P | None = None
    before: list[Counting] = []
    switched = 0
    try:
        with switcher.turn() as turn:
            prepared = prepare(turn)
            source = prepared.source
            before = [counting(turn, prepared.recorders, leg.sites) for leg in prepared.legs]
            for leg in prepared.legs:
                switched += 1  # or partly, whatever interrupts us: only an error has undone it
                try:
                    done = switcher.switch(turn, leg.sites, leg.request)
                except MarkerError:
                    switched -= 1
                    raise
                notes = left_out_by_notes(turn.target, leg.name)
                source.unswitched = (*source.unswitched, *notes, *done.applied.left_out)
        yield prepared
    finally:
        if prepared and prepared.source.aggregate.owner == ourselves():  # no child of a fork
            with ExitStack() as ends:  # each is tried, also where another one fails
                for leg, counted in zip(prepared.legs[:switched], before, strict=False):
                    ends.callback(_Ending(switcher, prepared, leg, counted).finish)
            prepared.source.finish()
            # Without the lock the memory might be another's before it is released here.
            with suppress(TargetGone), switcher.target.memory.locked():
                arena = prepared.recorders.arena
                arena.aggregates.free(prepared.source.aggregate.ticket)


def make(
    turn: Turn,
    recorders: Recorders,
    legs: Sequence[Leg],
    size: Size,
    ticks: Ticks = NO_TICKS,
) -> Aggregate:
    """The memory, and the markers' entries, which have its ticket. Raises Refused where there is no
    room."""
    arena = recorders.arena
    if arena.aggregates.ended >= MOST_ENDED:
        give_back_memory(turn, arena)
    try:
        aggregate = arena.aggregates.make(size, ticks)
    except Refused:
        give_back_memory(turn, arena)
        aggregate = arena.aggregates.make(size, ticks)
    try:
        markers: dict[int, None] = {}
        for leg in legs:
            tell_of_markers(turn, leg.sites, leg.request, recorders, keep=markers)
            signatures = {site.signature for site in leg.sites}
            ids = (recorders.find(signature, leg.request.probe) for signature in signatures)
            markers |= dict.fromkeys(marker for marker in ids if marker is not None)
        _part(turn, arena, markers)
        for marker in markers:
            arena.markers.set_aggregate(marker, aggregate.ticket)
    except BaseException:
        arena.aggregates.free(aggregate.ticket)
        raise
    return aggregate


def _part(turn: Turn, arena: Arena, markers: Iterable[int]) -> None:
    """Have markers ready to add to another aggregate than before. Threads are stopped for that only
    if one of them is on its way through the memory of the one before."""
    entries = arena.markers.entries_of(markers).values()
    tickets = [*filter(arena.aggregates.has_gone, {int(entry.aggregate) for entry in entries})]
    if any(map(arena.is_entered, tickets)):
        give_back_memory(turn, arena)
    for ticket in tickets:
        arena.aggregates.part(ticket, arena.is_entered)


class _Ending(Generic[T]):
    """The end of a leg: attempts at it, of which each knows what the earlier ones have done."""

    def __init__(
        self, switcher: Switcher, prepared: Prepared[T], leg: Leg, before: Counting
    ) -> None:
        self._switcher = switcher
        self._prepared = prepared
        self._leg = leg
        self._before = before
        self._again: set[Site] = set()  # that count again
        self._ours: set[Site] = set()  # that were still ours

    def finish(self) -> None:
        """Switch off. Where it cannot be switched off, the aggregate stays for whoever switches it
        off later."""
        with suppress(TargetGone, NoSuchProcess):
            insist(self._switcher, self._leg.name, self._attempt)

    def _attempt(self, turn: Turn) -> None:
        """Switch off what is still ours."""
        recorders, source = self._prepared.recorders, self._prepared.source
        mapped = set(turn.seen.sites)  # objects may have been unloaded since
        gone = {site for site in self._leg.sites if site not in mapped}
        mapped -= self._again
        ours: list[Site] = []
        taken: set[str] = set()
        for state in turn.target.states([site for site in self._leg.sites if site in mapped]):
            adds = _adds_to(recorders.arena, state, source.aggregate)
            if adds and is_bound(state, self._leg.request, recorders):
                ours += state.lot.sites()
            elif state.mode:
                taken.add(state.site.marker)
            else:
                gone.update(state.lot.sites())
        self._ours.update(ours)
        _tell_of_gone(source, gone - self._ours)
        source.taken = tuple(sorted({*source.taken, *taken}))
        source.unmatched |= unmatched(turn.target.states(ours))  # as an earlier attempt did, too
        count_again(turn, self._switcher, recorders, ours, self._before, self._again)
        rest = [site for site in ours if site not in self._again]
        done = self._switcher.switch(turn, rest, self._switcher.planner.off())
        for state in done.states:
            if state.problem:  # another tool has patched it: it was left as it is
                raise state.problem


def _tell_of_gone(source: Source[T], sites: Iterable[Site]) -> None:
    # Of a probe some notes may be understood, and others not.
    never_on = {each.marker for each in source.unswitched if each.reason is not Reason.BAD_NOTE}
    names = {site.marker for site in sites} - never_on
    source.gone = tuple(sorted({*source.gone, *names}))


def _adds_to(arena: Arena, state: SiteState, aggregate: Aggregate) -> bool:
    adds = arena.aggregate(state.probe, state.data)
    return adds is not None and adds.ticket == aggregate.ticket

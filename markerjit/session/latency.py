"""A latency: the time from one marker to the next with the same key, paired in the process.

The markers where it ends are switched on first, and those where it begins are switched off first
(held.py). So an end may have no begin, and no begin is taken for another's because its own end was
not seen.

What divides the times of pairs (`per`) is of their begins. It has a table of its own behind that of
the begins which wait.

Of calls of functions only the returns are switched, which know how long each call took. They are
added up by key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, Generic, TypeVar

import markerjit.abi as abi
from markerjit.arena.aggregates import ROOM_WITHOUT_KEY, Aggregate, Size
from markerjit.errors import MarkerError, Reason, Refused
from markerjit.events.call_latencies import (
    SumsOfCalls,
    latencies_of_calls,
    slow_calls,
    sums_of_calls,
)
from markerjit.events.latencies import (
    Known,
    Latencies,
    LatencyRow,
    SlowPair,
    Sums,
    latencies_of,
    number_of,
    slow_pairs,
    sums_of,
)
from markerjit.events.latency_rows import row_of_key, rows_of
from markerjit.model import Signature, Site
from markerjit.patch.request import Pair, Request
from markerjit.patch.switchable import LeftOut
from markerjit.probes.recorders import Recorders
from markerjit.questions import Lack
from markerjit.questions.aggregates import KeyPart
from markerjit.questions.latencies import WORDS, Pairing, Side, Timed
from markerjit.questions.scope import NAME, hidden
from markerjit.ring.clock import Calibration
from markerjit.ring.types import Time
from markerjit.session.asking import divide, rest_of
from markerjit.session.clock import EarlyClock
from markerjit.session.held import Gathering, Leg, Source, held, make
from markerjit.session.holding import refuse_added_up, take
from markerjit.session.latency_names import KeyNames
from markerjit.session.pair_clock import check_clock, clock_of_pairs, ticks_of
from markerjit.session.switch import Switcher
from markerjit.session.turn import Turn
from markerjit.sites import ProbeName
from markerjit.sites.names import SUFFIX, written_name
from markerjit.tuples import NamedTuple

DEFAULT_ROOM = 2048
"""Begins that may wait at a time."""
TOOK = "dur"
"""The field of a function's return that says how long the call took."""
_KEYS = 64
"""Keys of calls: the times of one take 15 KiB for each CPU, twice."""
_SLOW_ROOM = 256
"""Pairs that took long, between two looks."""


class Timing(NamedTuple):
    """A request to time: the markers where it begins and where it ends (of functions' calls their
    returns), the question, how they are switched on, how many begins may wait or keys there may be
    (None: as many as usual), after how many seconds a begin may be forgotten, and how many keys
    there may be that divide pairs."""

    begins: ProbeName
    ends: ProbeName
    timed: Timed
    on: Request
    room: int | None
    forget_s: float
    clock: EarlyClock
    keys: int | None = None


S = TypeVar("S")
T = TypeVar("T")


class Reader(NamedTuple, Generic[S]):
    """What the copies of a latency say, and its rows of slow pairs. `nothing` are the sums of
    nothing."""

    sums_of: Callable[[Any], S]
    latencies_of: Callable[[S, S | None], Latencies]
    slow_of: Callable[[Sequence[bytes]], list[SlowPair]]
    nothing: S


class Latency(Gathering[Any]):
    """The times between markers of a process, or the durations of functions' calls, while these are
    on, and all of them afterwards."""

    def __init__(
        self, source: Source[Any], reader: Reader[Any], tail_jumps: tuple[str, ...] = ()
    ) -> None:
        super().__init__(source)
        self._reader = reader
        self._tail_jumps = tail_jumps
        self._before = reader.nothing
        self._bad_pairs = 0

    def read(self) -> Latencies:
        """All times so far. It goes on."""
        reader = self._reader
        return reader.latencies_of(reader.sums_of(self._source.copy()), None)

    def take(self) -> Latencies:
        """The times since the last `take`. `waiting` are all begins that wait now. The longest time
        of an interval is not known: it is None."""
        now = self._reader.sums_of(self._source.copy())
        before, self._before = self._before, now
        return self._reader.latencies_of(now, before)

    def slow(self) -> list[SlowPair]:
        """The pairs that took at least `slower` and were not handed out before, in the order of
        their ends. Empty if `slower` was not given. Raises Refused if another controller has taken
        the markers, and the memory is its own now."""
        rows = self._source.take()
        pairs = self._reader.slow_of(rows)
        self._bad_pairs += len(rows) - len(pairs)
        return pairs

    @property
    def tail_jumps(self) -> tuple[str, ...]:
        """Of calls: the functions that may end by a jump to another one, as their last call. Such a
        call is timed up to that jump."""
        return self._tail_jumps

    @property
    def bad_pairs(self) -> int:
        """Pairs that `slow` has left out because they made no sense: the program has overwritten
        them."""
        return self._bad_pairs


_NO_PAIRS = Sums((0,) * abi.MISSED, (0,) * (WORDS - 2), 0, 0, 0)
_NO_CALLS = SumsOfCalls((0,) * abi.MISSED, {})


class _Prepared(NamedTuple):
    """The legs of a latency, and what is read."""

    recorders: Recorders
    legs: Sequence[Leg]
    source: Source[Any]
    reader: Reader[Any]
    has_names: bool = False
    tail_jumps: tuple[str, ...] = ()


@contextmanager
def timed(switcher: Switcher, timing: Timing) -> Iterator[Latency]:
    """The latency, which ends with the context. Raises what a switch raises, BadQuestion, and
    Refused where another reader holds one of the markers, or there is no room."""
    clock = clock_of_pairs(timing.clock)  # may wait, which nobody else has to wait for
    prepare = _prepare_calls if timing.timed.took else _prepare
    with (
        ExitStack() as behind,
        held(switcher, lambda turn: prepare(turn, switcher, timing, clock)) as prepared,
    ):
        latency = Latency(prepared.source, prepared.reader, prepared.tail_jumps)
        if prepared.has_names:
            _look_up(latency)  # what is mapped now, in case the process ends soon
            behind.callback(_look_up, latency)  # when the markers are off
        yield latency


def _look_up(latency: Latency) -> None:
    """At the end, as long as there is a session: find the names of the last keys."""
    with suppress(MarkerError):
        latency.read()


def _signatures(sites: Sequence[Site]) -> list[Signature]:
    return list(dict.fromkeys(site.signature for site in sites))


class _Way(NamedTuple):
    """The sites of one way, and their sides."""

    sites: Sequence[Site]
    sides: Mapping[Signature, Side]
    left_out: Sequence[LeftOut]


def _prepare(turn: Turn, switcher: Switcher, timing: Timing, clock: Calibration) -> _Prepared:
    from markerjit.probes.pairing import ask_markers

    for name in (timing.begins, timing.ends):
        switcher.need_stubs(turn, name, timing.on)
    begins, ends = (turn.target.matching(name) for name in (timing.begins, timing.ends))
    _refuse_both(timing, begins, ends)
    first, last = map(_signatures, (begins, ends))
    pairing = ask_markers(timing.timed, first, last)
    ways = (_way(begins, first, pairing.begins), _way(ends, last, pairing.ends))
    options = timing.on.probe.options
    is_counter = clock.time is Time.TSC
    probes = [
        Pair.of(
            timing.timed, pairing.key, options, ends=ends, counter=is_counter, group=pairing.group
        )
        for ends in (False, True)
    ]
    legs = [
        Leg(name, way.sites, timing.on._replace(probe=probe))
        for name, way, probe in zip((timing.begins, timing.ends), ways, probes, strict=True)
    ]
    recorders = _need(turn, switcher, legs)
    check_clock(recorders.arena, clock)
    size = _size(timing, pairing, ways)
    legs.reverse()  # on from the end, and off from the begin
    aggregate = make(turn, recorders, legs, size, ticks_of(clock, timing.forget_s))
    copy_pairs = recorders.arena.aggregates.copy_pairs
    source = _source(turn, recorders, aggregate, copy_pairs, ways)
    markers = _markers(recorders, zip(ways, probes, strict=True))
    begin_words = size.held_words - abi.HELD_WORDS
    names_of = KeyNames(turn, switcher, pairing.group)

    def latencies(now: Sums, before: Sums | None) -> Latencies:
        times = latencies_of(now, before)
        if not pairing.group:
            return times
        rows = rows_of(now.groups, None if before is None else before.groups, pairing.group)
        undivided = max(0, times.pairs - sum(row.calls for row in rows))
        times = times._replace(rows=tuple(rows), undivided=undivided)
        return names_of.named(times, is_over=source.is_over)

    slow = partial(
        _slow_pairs, markers, begin_words, clock, _Divided(source, names_of, pairing.group)
    )
    reader = Reader(sums_of, latencies, slow, _NO_PAIRS)
    return _Prepared(recorders, legs, source, reader, names_of.has_any)


class _Divided:
    """The keys that divide slow pairs, by their numbers: each is looked up once."""

    def __init__(
        self,
        source: Source[Any],
        names_of: KeyNames,
        parts: Sequence[KeyPart],
        are_names: Sequence[bool] = (),
    ) -> None:
        self._source = source
        self._names_of = names_of
        self._parts = parts
        self._are_names = are_names
        self._rows: dict[int, LatencyRow] = {}

    def of(self, slow: Sequence[bytes]) -> Mapping[int, LatencyRow]:
        """The keys of these rows of slow pairs. Raises Refused where the memory is another's."""
        new = {*map(number_of, slow)} - {0, *self._rows}
        if self._parts and new:
            rows = {
                number + 1: row_of_key(words, self._parts, self._are_names)
                for words, number in self._source.copy().keys
                if number + 1 in new
            }
            self._rows |= self._names_of.named_each(rows, is_over=self._source.is_over)
        return self._rows


def _slow_pairs(
    markers: Mapping[int, Known],
    begin_words: int,
    clock: Calibration,
    divided: _Divided,
    rows: Sequence[bytes],
) -> list[SlowPair]:
    return slow_pairs(rows, markers, begin_words, clock, divided.of(rows))


def _prepare_calls(turn: Turn, switcher: Switcher, timing: Timing, clock: Calibration) -> _Prepared:
    """The returns of functions, which know how long the calls took."""
    from markerjit.probes.pairing import ask_markers

    name = timing.ends
    switcher.need_stubs(turn, name, timing.on)
    matching = turn.target.matching(name)
    signatures = _signatures(matching)
    names = {signature.name for signature in signatures}
    timed = timing.timed
    if not timed.by and len(names) > 1:
        timed = timed._replace(by=hidden(NAME))
    pairing = ask_markers(timed, [], signatures)
    way = _way(matching, signatures, pairing.ends)
    probe = Pair.of(
        timed, pairing.key, timing.on.probe.options, ends=True, counter=clock.time is Time.TSC
    )
    leg = Leg(name, way.sites, timing.on._replace(probe=probe))
    recorders = _need(turn, switcher, [leg])
    check_clock(recorders.arena, clock)
    room = timing.room or max(len(names), _KEYS)
    slow_words = abi.SLOW_WORDS + max(side.field_words for side in way.sides.values())
    size = Size(pairing.key_words, WORDS, room if timed.by else ROOM_WITHOUT_KEY)
    if timed.slower_ns is not None:
        size = size._replace(slow_words=slow_words, slow_room=_SLOW_ROOM)
    aggregate = make(turn, recorders, [leg], size, ticks_of(clock, timing.forget_s))
    source = _source(turn, recorders, aggregate, recorders.arena.aggregates.copy, [way])
    markers = _markers(recorders, [(way, probe)])
    are_names = [part.is_name for part in pairing.key]
    names_of = KeyNames(turn, switcher, pairing.key)
    divided = _Divided(source, names_of, pairing.key, are_names)

    def latencies(now: SumsOfCalls, before: SumsOfCalls | None) -> Latencies:
        times = latencies_of_calls(now, before, pairing.key, are_names)
        return names_of.named(times, is_over=source.is_over)

    def slow(rows: Sequence[bytes]) -> list[SlowPair]:
        return slow_calls(rows, markers, clock, divided.of(rows))

    reader = Reader(sums_of_calls, latencies, slow, _NO_CALLS)
    return _Prepared(recorders, [leg], source, reader, names_of.has_any, _tail_jumps(way.sites))


def _tail_jumps(sites: Sequence[Site]) -> tuple[str, ...]:
    """The functions that are left by a jump at one of these exits."""
    from markerjit.session.exits import is_tail  # numpy and capstone, which pairs do not need

    tails = {site.marker for site in sites if is_tail(site.signature)}
    return tuple(sorted(name.removesuffix(SUFFIX) for name in tails))


def _need(turn: Turn, switcher: Switcher, legs: Sequence[Leg]) -> Recorders:
    """The recorders of the legs, whose markers can be held."""
    for leg in legs:
        take(turn.target, switcher.recorders, leg.name, leg.request)
    for leg in legs:
        recorders = switcher.need_arena(turn, leg.sites, leg.request)
        refuse_added_up(turn.target, recorders, leg.sites)
    return recorders


def _source(
    turn: Turn,
    recorders: Recorders,
    aggregate: Aggregate,
    copy: Callable[[Aggregate], T],
    ways: Sequence[_Way],
) -> Source[T]:
    arena = recorders.arena
    alive = turn.target.memory.alive
    source = Source(arena, aggregate, copy, alive, arena.aggregates.take_slow)
    source.unswitched = tuple(left_out for way in ways for left_out in way.left_out)
    return source


def _markers(recorders: Recorders, ways: Iterable[tuple[_Way, Pair]]) -> dict[int, Known]:
    """What is known of each marker, by its number."""
    return {
        marker: Known(signature.name, side, probe.ends)
        for way, probe in ways
        for signature, side in way.sides.items()
        if (marker := recorders.find(signature, probe)) is not None
    }


def _refuse_both(timing: Timing, begins: Sequence[Site], ends: Sequence[Site]) -> None:
    both = sorted({site.marker for site in begins} & {site.marker for site in ends})
    if both:
        raise Refused(
            f"{both[0]} would both begin and end a pair, and a marker can do only one; leave it "
            f"out of one end, as in '{timing.ends},!{both[0]}', or name another marker there",
            reason=Reason.NO_QUESTION,
        )


def _lacks(signature: Signature, lack: Lack) -> str:
    name = written_name(signature.name)
    if lack.name != TOOK:
        return f"{name} has no field {lack.name}"
    return (
        f"calls of {name.removesuffix(SUFFIX)} cannot be timed: its entry and its ends "
        "cannot be open together, as where it is little more than a jump to another function"
    )


def _way(
    sites: Sequence[Site], signatures: Sequence[Signature], asked: Sequence[Side | Lack]
) -> _Way:
    sides, left_out = divide(sites, signatures, asked, _lacks)
    return _Way(rest_of(sites, left_out), sides, tuple(left_out.values()))


def _size(timing: Timing, pairing: Pairing, ways: Sequence[_Way]) -> Size:
    begin, end = (max(side.field_words for side in way.sides.values()) for way in ways)
    size = Size(pairing.key_words, WORDS, timing.room or DEFAULT_ROOM, abi.HELD_WORDS + begin)
    if timing.timed.slower_ns is not None:
        slow_words = abi.SLOW_WORDS + begin + end
        size = size._replace(slow_words=slow_words, slow_room=_SLOW_ROOM)
    if pairing.group:
        room = 1 << ((timing.keys or _KEYS) - 1).bit_length()
        size = size._replace(group_words=pairing.group_words, group_room=room)
    return size

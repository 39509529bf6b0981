"""Pictures of the markers of a session, for a notebook: `session.plot`. matplotlib draws them (the
extra `plot`), and is imported with the first picture.

Each method looks at the process for some seconds, and returns the matplotlib Axes that it has drawn
on: `axes`, if these are given. Markers that were off are off afterwards. Markers that were on and
counted do so again, until the same deadline. If the process ends meanwhile, the picture has what
came until then.

What this does not do: follow a process live (that is `watch`), or draw traces in files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from markerjit.arguments import check_int, check_seconds, check_text
from markerjit.errors import BadArgument, NoSuchProcess, TargetGone
from markerjit.trace.missing import missing
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.events.aggregates import Answers
    from markerjit.events.stream import EventStream
    from markerjit.model import Event
    from markerjit.session.aggregate import AddingUp
    from markerjit.session.status import MarkerStatus

_LEASE_S = 60.0
"""So long after its end a marker goes off if we are killed meanwhile."""
_SMALLEST_S = 0.01
_LOOK_S = 0.05


class Drawn(Protocol):
    """What a picture needs of a Session, whose module needs this one."""

    @property
    def pid(self) -> int: ...
    @property
    def is_gone(self) -> bool: ...
    def statistics(self, pattern: str) -> Sequence[MarkerStatus]: ...
    def last_statistics(self) -> Sequence[MarkerStatus]: ...
    def trace(
        self, pattern: str, *, duration: float | None, limit: int | None
    ) -> AbstractContextManager[EventStream]: ...
    def aggregate(
        self, pattern: str, what: str, *, where: str | None
    ) -> AbstractContextManager[AddingUp]: ...


class Rates(NamedTuple):
    """Hits in a second by marker, at the ends of intervals: seconds since the beginning."""

    times: Sequence[float]
    rates: Mapping[str, Sequence[float]]


Counting = Callable[[str, float], AbstractContextManager[None]]
"""Has the markers of a pattern count within, and for so many seconds at most."""


class Plots:
    """The pictures of a session. See the module."""

    def __init__(self, session: Drawn, counting: Counting) -> None:
        self._session = session
        self._counting = counting

    def rate(
        self,
        pattern: str = "*",
        *,
        duration: float = 5.0,
        every: float = 0.25,
        axes: Any = None,
    ) -> Any:
        """Draw a line for each marker that matches: its hits per second. The runtime counts. Its
        counters are read every `every` seconds for `duration` seconds, or until the process ends.
        Raises what `on` raises, and Unsupported without matplotlib."""
        check_text("pattern", pattern)
        check_seconds("duration", duration)
        check_seconds("every", every)
        _check_axes(axes)
        with self._counting(pattern, duration + _LEASE_S):
            rates = rates_of(self._session, pattern, duration, max(every, _SMALLEST_S))
        axes = _axes(axes)
        for name, values in rates.rates.items():
            axes.plot(rates.times, values, label=name, drawstyle="steps-pre")
        axes.set_xlabel("seconds")
        axes.set_ylabel("hits in a second")
        axes.set_ylim(bottom=0)
        return _finished(axes, f"{pattern} of process {self._session.pid}", legend=rates.rates)

    def histogram(
        self,
        pattern: str,
        value: str,
        *,
        duration: float = 5.0,
        where: str | None = None,
        axes: Any = None,
    ) -> Any:
        """Draw how often an expression of a marker's fields has values between two powers of two,
        such as `histogram("kv_store", "size")`. The events are added up in the process for
        `duration` seconds. Raises what `aggregate` raises, and Unsupported without matplotlib."""
        check_text("value", value)
        check_seconds("duration", duration)
        _check_axes(axes)
        answers = _added_up(self._session, pattern, f"hist({value})", where, duration)
        axes = _axes(axes)
        buckets = [bucket for row in answers.rows for bucket in row.answer.buckets()]  # type: ignore[union-attr]
        axes.bar(range(len(buckets)), [bucket.number for bucket in buckets], width=0.9)
        labels = [
            f"{each.low:g}" if each.low == each.high else f"{each.low:g} – {each.high:g}"
            for each in buckets
        ]
        axes.set_xticks(range(len(buckets)), labels, rotation=45, ha="right")
        axes.set_xlabel(value)
        axes.set_ylabel("events")
        events = f"{answers.events:,} events"
        return _finished(axes, f"{pattern} of process {self._session.pid}, {events}")

    def timeline(
        self,
        pattern: str = "*",
        *,
        duration: float = 1.0,
        limit: int = 100_000,
        axes: Any = None,
    ) -> Any:
        """Draw the events of `duration` seconds, `limit` at most, over time: a row for each thread,
        a colour for each marker. Raises what `trace` raises, and Unsupported without matplotlib."""
        check_seconds("duration", duration)
        check_int("limit", limit, 1)
        _check_axes(axes)
        with self._session.trace(pattern, duration=duration, limit=limit) as stream:
            events = list(stream)
            lost = stream.statistics().lost
        axes = _axes(axes)
        threads = sorted({event.tid for event in events})
        for name, points in _points(events).items():
            rows = [threads.index(tid) for _, tid in points]
            axes.plot([at for at, _ in points], rows, "|", label=name, markersize=12)
        axes.set_yticks(range(len(threads)), [str(tid) for tid in threads])
        axes.set_xlabel("seconds")
        axes.set_ylabel("thread")
        title = f"{len(events):,} events of process {self._session.pid}, {lost:,} lost"
        return _finished(axes, title, legend=_points(events))

    def __repr__(self) -> str:
        return f"<plots of process {self._session.pid}: rate, histogram, timeline>"


def rates_of(session: Drawn, pattern: str, duration: float, every: float) -> Rates:
    """Look at the counters of the runtime for some seconds, or until the process ends: the hits
    until then are in the last interval."""
    times: list[float] = []
    rates: dict[str, list[float]] = {}
    began = last = time.monotonic()
    before = _totals(session.statistics(pattern))
    is_gone = False
    while last - began < duration and not is_gone:
        time.sleep(min(every, max(began + duration - last, _SMALLEST_S)))
        try:
            statuses = session.statistics(pattern)
        except (TargetGone, NoSuchProcess):
            statuses, is_gone = session.last_statistics(), True
        now, totals = time.monotonic(), _totals(statuses)
        times.append(now - began)
        for name, total in totals.items():
            more = max(0, total - before.get(name, total)) / (now - last)
            # An object that came meanwhile: its markers had no hits before.
            rates.setdefault(name, [0.0] * (len(times) - 1)).append(more)
        last, before = now, totals
    return Rates(times, rates)


def _totals(statuses: Sequence[MarkerStatus]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for marker in statuses:
        totals[marker.name] = totals.get(marker.name, 0) + marker.total
    return totals


def _added_up(
    session: Drawn, pattern: str, what: str, where: str | None, duration: float
) -> Answers:
    with session.aggregate(pattern, what, where=where) as adding:
        until = time.monotonic() + duration
        while not adding.target_ended and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_S))
    return adding.read()


def _points(events: Sequence[Event]) -> dict[str, list[tuple[float, int]]]:
    """By marker, the seconds since the first event and the thread of each event."""
    points: dict[str, list[tuple[float, int]]] = {}
    first = events[0].time if events else 0
    for event in events:
        points.setdefault(event.name, []).append(((event.time - first) / 1e9, event.tid))
    return points


def _check_axes(axes: Any) -> None:
    """Check that there can be a picture, before anything is measured for it."""
    if axes is not None and not hasattr(axes, "set_xlabel"):
        raise BadArgument("axes", axes, "Axes of matplotlib")
    try:
        import matplotlib.pyplot  # noqa: F401
    except ImportError:
        raise missing("a picture", "matplotlib", "plot") from None


def _axes(axes: Any) -> Any:
    """The axes that were given, or those of a new figure: pyplot keeps it, so there is none of what
    could not be measured."""
    if axes is not None:
        return axes
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(8, 4), layout="constrained")[1]


def _finished(axes: Any, title: str, *, legend: Mapping[str, object] | None = None) -> Any:
    axes.set_title(title)
    if legend:
        axes.legend(loc="upper left", fontsize="small")
    return axes

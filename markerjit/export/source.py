"""The markers of processes that are exported: switched on, read, and switched off at the end.

Without series the markers count, and nothing else is done in the processes. With series they
record, and a stream is read: then a lease switches them off, too, where we are killed.

What this does not do: wait for anybody, or know what is made of the numbers.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress

import markerjit
from markerjit.export.openmetrics import Marker
from markerjit.export.series import Series
from markerjit.tuples import NamedTuple

AT_ONCE = 20_000
_RATE_S = 1.0
_SHARE = 10
"""A look at all hits may take this part of the time between two of them."""
_TRY_AGAIN_S = 10
_ENDED = (markerjit.TargetGone, markerjit.NoSuchProcess, markerjit.MemoryFault)


class Reading(NamedTuple):
    """Records of one process that were read together."""

    pid: int
    batch: markerjit.Batch


class Source:
    """The markers of a fleet that match a pattern, and what has come of them. `recent` are the last
    events, as lines of JSON."""

    def __init__(
        self, fleet: markerjit.Fleet, pattern: str, series: Series | None, recent: int
    ) -> None:
        self.fleet = fleet
        self.series = series
        self.recent: deque[bytes] = deque(maxlen=recent)
        self._pattern = pattern
        self._programs = {
            pid: os.path.basename(session.command.split(" ")[0])
            for pid, session in fleet.sessions.items()
        }
        self._before: dict[tuple[int, str], int] = {}
        self._rates: dict[tuple[int, str], float] = {}
        self._rated_at = self._took_s = 0.0

    def read(self) -> Iterator[Reading]:
        """The records that have come since the last call, and count them. No more than AT_ONCE of
        each process: the next ones by the next call."""
        for pid, stream in self.fleet.streams.items():
            batch = stream.poll_batch(most=AT_ONCE)
            if batch is None or batch.clock is None:
                continue
            for columns in batch.columns:
                if self.series is not None:
                    self.series.add(pid, columns, batch.clock)
            if self.recent.maxlen:
                lines = markerjit.event_lines(batch.columns, batch.clock, json=True)
                self.recent.extend(lines.splitlines()[-self.recent.maxlen :])
            yield Reading(pid, batch)

    def count(self) -> int:
        """Number of markers of all processes, without a look at their hits."""
        number = 0
        for session in self.fleet.sessions.values():
            with suppress(*_ENDED):
                sites = session.sites(self._pattern)
                number += len({site.signature.name for site in sites})
        return number

    def markers(self) -> list[Marker]:
        """The markers of all processes now. A process that has ended is left out."""
        markers = []
        for pid, session in self.fleet.sessions.items():
            try:
                statuses = session.status(self._pattern, look=False)
            except _ENDED:
                continue
            for status in statuses:
                rate = self._rates.get((pid, status.name))
                markers.append(
                    Marker(pid, self._programs[pid], status.name, status.hits, status.lost, rate)
                )
        return _joined(markers)

    def update_rates(self) -> None:
        """Once a second: the rates since the last time. Less often where a look takes long, as at
        all functions of several programs: it shall not take all of a CPU."""
        now = time.monotonic()
        since = now - self._rated_at
        if since < max(_RATE_S, _SHARE * self._took_s):
            return
        hits = {(marker.pid, marker.name): marker.hits for marker in self.markers()}
        if self._before:
            self._rates = {
                key: max(0, count - self._before.get(key, count)) / since
                for key, count in hits.items()
            }
        self._before, self._rated_at = hits, now
        self._took_s = time.monotonic() - now

    def is_over(self) -> bool:
        """Whether all processes have ended, or others have taken all markers."""
        streams = self.fleet.streams
        if streams:
            return all(stream.is_over() for stream in streams.values())
        return all(session.is_gone for session in self.fleet.sessions.values())


@contextmanager
def switched_on(
    fleet: markerjit.Fleet,
    pattern: str,
    trace: Callable[[markerjit.Session], AbstractContextManager[markerjit.EventStream]] | None,
    where: str | None,
) -> Iterator[Sequence[markerjit.LeftOut]]:
    """Keep the markers on within the block: recorded by this trace, or else counted. Markers that
    were already counting stay on afterwards. Gives those that were left out."""
    if trace is not None:
        try:
            streams = fleet.trace(trace)
            yield [left for stream in streams.values() for left in stream.unswitched]
        finally:
            fleet.end_traces()
        return
    ours: dict[int, str] = {}
    left_out: list[markerjit.LeftOut] = []

    def count(session: markerjit.Session) -> None:
        states = session.states(session.sites(pattern))
        on = [state.site.signature.name for state in states if state.mode]
        ours[session.pid] = ",".join([pattern, *(f"!{name}" for name in dict.fromkeys(on))])
        try:
            left_out.extend(session.on(ours[session.pid], where=where).left_out)
        except markerjit.UnknownMarker:
            ours[session.pid] = ""
            if not on:
                raise

    try:
        fleet.each(count)
        yield left_out
    finally:
        for pid, session in fleet.sessions.items():
            _switch_off(session, ours.get(pid, ""))


def _switch_off(session: markerjit.Session, pattern: str) -> None:
    """Switches off, and tries again where that may help: another controller is at work."""
    deadline = time.monotonic() + _TRY_AGAIN_S
    while pattern:
        try:
            session.off(pattern)
            return
        except (markerjit.TargetGone, markerjit.NoSuchProcess):
            return
        except markerjit.Refused as error:
            if not error.try_again or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def _joined(markers: Sequence[Marker]) -> list[Marker]:
    """One of each name: markers with one name and several formats are summed up."""
    joined: dict[tuple[int, str], Marker] = {}
    for marker in markers:
        key = marker.pid, marker.name
        if (same := joined.get(key)) is not None:
            marker = marker._replace(hits=marker.hits + same.hits, lost=marker.lost + same.lost)
        joined[key] = marker
    return [*joined.values()]

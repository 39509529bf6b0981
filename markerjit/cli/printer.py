"""Events of a `trace` that are printed, or that a function in Python is called with: a part at a
time, so that an end never waits for events that are to be shown.

Lines are made of columns (trace/rows.py), as those in files are. Only a function gets objects.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import markerjit
from markerjit.cli.end import End, Output
from markerjit.cli.output import names_of_stacks, shown_events

if TYPE_CHECKING:
    from markerjit.lowlevel import RecordType

POLL_S = 0.02
_CALLS_AT_ONCE = 1000
_LINES_AT_ONCE = 10_000
_AFTERWARDS = 200_000
"""Events that are printed at most once the markers are off. A file has all of them."""


class Printer:
    """Prints the events of streams, or calls a function with each. Lines have the pids that are
    given for the types of records.

    count       events that were printed
    left_out    events that were recorded and not printed
    """

    def __init__(
        self,
        options: argparse.Namespace,
        streams: list[markerjit.EventStream],
        pids: Mapping[RecordType, int] | None,
        callback: Callable[[markerjit.Event], object] | None,
        end: End,
        output: Output,
    ) -> None:
        self.count = self.left_out = 0
        self._options = options
        self._streams = streams
        self._callback = callback
        self._end = end
        self._output = output
        self._merger = markerjit.Merger(streams)
        self._clock: markerjit.Calibration | None = None
        self._pids = pids
        self._unseen: list[markerjit.Merged] = []
        self._template: markerjit.LineTemplate | None = None
        self._sources: Mapping[str, str] = {}

    def use(
        self,
        template: markerjit.LineTemplate,
        pids: Mapping[RecordType, int],
        sources: Mapping[str, str],
    ) -> None:
        """Print lines as a template says. Raises Refused where it names what no event has."""
        template.check([*pids])
        self._template, self._pids, self._sources = template, pids, sources

    def add(self, stream: markerjit.EventStream) -> None:
        """Print the events of another stream, too."""
        self._streams.append(stream)
        self._merger.add(stream)

    def take_finished(self) -> list[markerjit.EventStream]:
        """The streams of which all events were printed, and no more will come."""
        return [self._streams[number] for number in self._merger.take_finished()]

    def print_until_end(
        self,
        after_poll: Callable[[], None],
        *,
        is_over: Callable[[], bool] = lambda: True,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """Print events while the markers are on. `is_over` says whether no more streams will be
        added, and `wait` waits for what may be done in `after_poll`."""
        while not self._end.has_come and not self._is_enough():
            if self._merger.over and is_over():
                break
            if self._callback:
                events = self._merger.poll(_CALLS_AT_ONCE)
                after_poll()
                self._call(self._callback, events)
                count = len(events)
            else:
                batches = self._merger.poll_columns(_LINES_AT_ONCE)
                after_poll()
                count = self._print(batches)
            if not count:
                wait(POLL_S)

    def print_rest(self) -> None:
        """Print the events that came before the markers were off, but not for as long as that may
        take."""
        self._end.note_markers_off()
        self._merger.find_rest()
        if self._callback:
            self._call_with_rest(self._callback)
        else:
            self._print_rest()
        unwritten = self._output.unwritten()
        self.count -= unwritten
        self.left_out += unwritten + len(self._unseen) + self._merger.waiting

    def _is_enough(self) -> bool:
        return bool(self._options.events) and self.count >= self._options.events

    def _is_over(self) -> bool:
        return self._is_enough() or self._end.is_hurried

    def _most(self, count: int) -> int:
        """The number of events that are still wanted of `count`."""
        events = self._options.events
        return count if events is None else min(count, events - self.count)

    # ---- lines ----

    def _print_rest(self) -> None:
        self._output.write(b"")  # what the end has cut off
        remaining = _AFTERWARDS
        while remaining > 0 and not self._is_over():
            printed = self._print(self._merger.hand_out_columns(min(_LINES_AT_ONCE, remaining)))
            if not printed:
                break
            remaining -= printed

    def _print(self, batches: Sequence[Sequence[markerjit.Columns]]) -> int:
        """Print the events of these columns, and return their number."""
        count = sum(len(columns.time) for batch in batches for columns in batch)
        if count:
            lines = b"".join(map(self._lines, batches))
            most = self._most(count)
            if most < count:
                lines = b"".join(lines.splitlines(keepends=True)[:most])
                self.left_out += count - most
            self.count += most
            self._output.write(self._shown(lines, batches))
        return count

    def _lines(self, batch: Sequence[markerjit.Columns]) -> bytes:
        """Lines as `read` prints them. Those of several processes begin with the pid, and their
        JSON objects have it. The clock is known only when there is an event."""
        self._clock = self._clock or self._streams[0].clock()
        if self._template:
            return self._template.lines(batch, self._clock, pids=self._pids, sources=self._sources)
        json = self._options.json
        return markerjit.event_lines(batch, self._clock, json=json, pids=self._pids)

    def _shown(self, lines: bytes, batches: Sequence[Sequence[markerjit.Columns]]) -> bytes:
        """Lines as standard output gets them, where they are not for a program or as a template
        says."""
        if self._template or self._options.json:
            return lines
        types = (columns.type for batch in batches for columns in batch)
        return shown_events(lines, names_of_stacks(types))

    # ---- calls ----

    def _call_with_rest(self, callback: Callable[[markerjit.Event], object]) -> None:
        events, self._unseen = self._unseen, []
        while True:
            self._call(callback, events)
            if self._is_over():
                break
            events = self._merger.hand_out(_CALLS_AT_ONCE)
            if not events:
                break

    def _call(
        self, callback: Callable[[markerjit.Event], object], events: Sequence[markerjit.Merged]
    ) -> None:
        most = self._most(len(events))
        self.left_out += len(events) - most
        for at, (_, event) in enumerate(events[:most]):
            if self._end.is_now:
                self._unseen += events[at:most]
                return
            callback(event)
            self.count += 1
            for stream in self._streams:
                stream.keep()  # a function that takes its time does not lose us the rings

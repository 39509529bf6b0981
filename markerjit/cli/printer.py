"""Events of a `trace` that are printed, or that a function in Python is called with: a part at a
time, so that an end never waits for events that are to be shown."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

import markerjit
from markerjit.cli.end import End, Output
from markerjit.cli.output import line_of_process

POLL_S = 0.02
_AT_ONCE = 1000
_AFTERWARDS = 50_000
"""Events that are printed at most once the markers are off. A file has all of them."""


class Printer:
    """Prints the events of streams.

    count       events that were printed
    left_out    events that were recorded and not printed
    """

    def __init__(
        self,
        options: argparse.Namespace,
        streams: Sequence[markerjit.EventStream],
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
        self._formatters: list[Callable[[markerjit.Event], str]] = []
        self._unseen: list[markerjit.Merged] = []

    def print_until_end(self, after_poll: Callable[[], None]) -> None:
        """Print events while the markers are on."""
        while not self._end.has_come and not self._merger.over and not self._is_enough():
            batch = self._merger.poll(_AT_ONCE)
            after_poll()
            if batch:
                self._print(batch)
            else:
                time.sleep(POLL_S)

    def print_rest(self) -> None:
        """Print the events that came before the markers were off, but not for as long as that may
        take."""
        self._end.note_markers_off()
        self._merger.find_rest()
        unseen, self._unseen = self._unseen, []
        self._print(unseen)
        most = sys.maxsize if self._callback else _AFTERWARDS
        while most > 0 and not self._is_enough() and not self._end.is_hurried:
            batch = self._merger.hand_out(min(_AT_ONCE, most))
            if not batch:
                break
            most -= len(batch)
            self._print(batch)
        unwritten = self._output.unwritten()
        self.count -= unwritten
        self.left_out += unwritten + len(self._unseen) + self._merger.waiting

    def _is_enough(self) -> bool:
        return bool(self._options.events) and self.count >= self._options.events

    def _print(self, batch: Sequence[markerjit.Merged]) -> None:
        most = len(batch) if self._options.events is None else self._options.events - self.count
        first = batch[:most]
        self.left_out += len(batch) - len(first)
        if self._callback:
            self._call(self._callback, first)
        elif first:
            self.count += len(first)
            self._output.write(self._text(first).encode(errors="backslashreplace"))

    def _call(
        self, callback: Callable[[markerjit.Event], object], batch: Sequence[markerjit.Merged]
    ) -> None:
        for at, (_, event) in enumerate(batch):
            if self._end.is_now:
                self._unseen += batch[at:]
                return
            callback(event)
            self.count += 1
            for stream in self._streams:
                stream.keep()  # a function that takes its time does not lose us the rings

    def _text(self, batch: Sequence[markerjit.Merged]) -> str:
        """Lines as `read` prints them. Those of several processes begin with the pid, and their
        JSON objects have it. The clock is known only when there is an event."""
        if not self._formatters:
            self._formatters = [
                markerjit.line_formatter(
                    stream.fields, json=self._options.json, clock=stream.clock()
                )
                for stream in self._streams
            ]
        pids = self._options.pids
        lines = [(pids[number], self._formatters[number](event)) for number, event in batch]
        if len(pids) == 1:
            return "".join(f"{line}\n" for _, line in lines)
        json = self._options.json
        return "".join(line_of_process(pid, line, json=json) for pid, line in lines)

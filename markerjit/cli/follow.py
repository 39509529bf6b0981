"""`markerjit trace --follow` and `--new`: events of programs that come and go.

The trace ends as any other does, and with the last process of a family. Its processes go on then,
with their markers off.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import markerjit
from markerjit.cli import launching, output, recording, several
from markerjit.cli.end import End, Output
from markerjit.cli.gather import Remarks, gathered, price_of
from markerjit.cli.printer import POLL_S, Printer
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.cli.gather import Programs, Request
    from markerjit.lowlevel import RecordType

    Traced = Programs[markerjit.EventStream]


class Followed(NamedTuple):
    """A trace that is over. `programs` is the number of those that had such markers."""

    streams: Sequence[markerjit.EventStream]
    printed: int
    left_out: int
    printing: Output
    price: markerjit.Price | None
    programs: int
    plain: int
    failed: bool


def print_programs(
    options: argparse.Namespace,
    end: End,
    callback: Callable[[markerjit.Event], object] | None,
    request: Request[markerjit.EventStream],
    pids: Sequence[int],
    program: markerjit.Launched | None,
) -> Followed:
    """Print events until the end. A program that waits is let go when its markers are on."""
    with ExitStack() as stack:
        programs = begun(stack, options, end, request, pids, program)
        streams = [member.begun for member in programs.members]
        by_type: dict[RecordType, int] = {}
        printing = Output(end, streams)
        printer = Printer(options, streams, by_type, callback, end, printing)
        follow = _Follow(programs, options.pattern, printer, by_type)
        end.arm(streams, options.duration)
        follow.begin(programs.members)
        follow.remarks.print_new()
        printer.print_until_end(follow.step, is_over=follow.is_over, wait=programs.wait)
        follow.step()
    printer.print_rest()
    follow.remarks.print_new()
    return Followed(
        streams, printer.count, printer.left_out, printing, follow.price, follow.programs,
        programs.plain, bool(programs.failed),
    )  # fmt: skip


def write_programs(
    options: argparse.Namespace,
    end: End,
    request: Request[markerjit.EventStream],
    pids: Sequence[int],
    program: markerjit.Launched | None,
) -> Followed:
    """Write events into files until the end."""
    progress = recording.Progress()
    with ExitStack() as stack:
        programs = begun(stack, options, end, request, pids, program)
        quota = recording.Quota(options.events)
        files = several.files_of(options.output, options, quota, are_coming=True)
        writing = _Writing(programs, options.pattern, files)
        stack.callback(programs.close)
        after = stack.enter_context(ExitStack())  # is left when the markers are off
        after.callback(writing.close)
        after.callback(programs.end_requests)
        writing.begin(programs.members)
        writing.remarks.print_new()
        end.arm(writing.streams, options.duration)
        while not end.has_come and not (programs.is_over and writing.is_done):
            busy = writing.step()
            events, lost = writing.counts()
            progress.show(quota.count(events), lost)
            if quota.is_used_up:
                break
            if not busy:
                programs.wait(POLL_S)
        writing.remarks.print_new()
        price = price_of(programs)
    progress.end()
    return Followed(
        writing.streams, quota.count(writing.counts()[0]), 0, Output(end, writing.streams), price,
        len(writing.streams), programs.plain, bool(programs.failed),
    )  # fmt: skip


class _Writing:
    """Programs on their way into files."""

    def __init__(self, traced: Traced, pattern: str, files: several.Files) -> None:
        self.streams: list[markerjit.EventStream] = []
        self.remarks = _remarks(traced, pattern)
        self._traced = traced
        self._files = files
        self._left = 0  # programs that are not over

    @property
    def is_done(self) -> bool:
        """Whether all that there is was written."""
        return not self._left

    def begin(self, members: list[markerjit.Member[markerjit.EventStream]]) -> None:
        """Take programs."""
        for member in members:
            self._files.add(member.session, member.begun)
            self.streams.append(member.begun)
            self._left += 1

    def step(self) -> bool:
        """Take what is new, write, and leave behind what is over. Returns whether there were new
        events."""
        self.begin(self._traced.poll())
        self.remarks.print_new()
        busy = self._files.poll()
        finished = self._files.take_finished()
        for member in self._traced.members:
            if member.begun in finished:
                self._left -= 1
                self._traced.retire(member)
        return busy

    def counts(self) -> tuple[int, int]:
        """The events so far, and the lost ones."""
        statistics = [stream.statistics() for stream in self.streams]
        return sum(each.events for each in statistics), sum(each.lost for each in statistics)

    def close(self) -> None:
        """Write what is left, and end the files."""
        self._files.close()


def begun(
    stack: ExitStack,
    options: argparse.Namespace,
    end: End,
    request: Request[markerjit.EventStream],
    pids: Sequence[int],
    program: markerjit.Launched | None,
) -> Traced:
    """The programs, with their traces, which end with the stack. A program that waits is let go."""
    stack.callback(end.disarm)
    programs = gathered(options, request, pids, program)
    stack.callback(programs.close)
    stack.callback(programs.end_requests)
    if not programs.members:
        output.say(
            f"no markers here match '{options.pattern}' yet; what is started will be looked at",
            error=True,
        )
    launching.let_go(program)
    return programs


def _remarks(traced: Traced, pattern: str) -> Remarks[markerjit.EventStream]:
    return Remarks(traced, pattern, lambda stream: stream.unswitched)


class _Follow:
    """Programs on their way through the printer."""

    def __init__(
        self, traced: Traced, pattern: str, printer: Printer, pids: dict[RecordType, int]
    ) -> None:
        self.programs = 0
        self.price = price_of(traced)
        self.remarks = _remarks(traced, pattern)
        self._traced = traced
        self._printer = printer
        self._pids = pids

    def begin(self, members: list[markerjit.Member[markerjit.EventStream]]) -> None:
        """Take programs whose streams the printer has."""
        for member in members:
            self.programs += 1
            self._pids.update(dict.fromkeys(member.begun.types.values(), member.pid))

    def step(self) -> None:
        """Take what is new, and leave behind what is over."""
        new = self._traced.poll()
        for member in new:
            self._printer.add(member.begun)
        self.begin(new)
        self.remarks.print_new()
        finished = self._printer.take_finished()
        for member in self._traced.members:
            if member.begun in finished:
                self._traced.retire(member)
        self.price = price_of(self._traced)

    def is_over(self) -> bool:
        """Whether no more programs will come."""
        return self._traced.is_over

"""`count` and its kin with --follow or --new: what programs that come and go add up, as one answer.

What a program has added is taken when it ends, and its memory is let go.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import reduce
from typing import TYPE_CHECKING, Protocol

import markerjit
from markerjit.cli import gather, launching, output
from markerjit.cli.end import End
from markerjit.printable import counted

if TYPE_CHECKING:
    from markerjit import AddingUp, Answers

    Request = Callable[[markerjit.Session], AbstractContextManager[AddingUp]]
    Member = markerjit.Member[AddingUp]

_WAIT_S = 0.05


class Together:
    """The answers of all programs, those that have ended among them."""

    def __init__(self) -> None:
        self.programs = 0
        self.unknown = 0
        self._now: list[AddingUp] = []
        self._ended: list[Answers] = []
        self._interval: list[Answers] = []  # of those that have ended in it

    def add(self, members: Sequence[Member]) -> None:
        """Take programs that have come."""
        self.programs += len(members)
        self._now += [member.begun for member in members]

    def finish(self, member: Member) -> None:
        """Take the last answer of a program whose markers are off."""
        self._now.remove(member.begun)
        try:
            self._interval.append(member.begun.take())
            self._ended = [_joined([*self._ended, member.begun.read()])]
        except markerjit.MarkerError:
            self.unknown += 1

    def read(self) -> Answers:
        """All that was added up so far."""
        return _joined([*self._ended, *(adding.read() for adding in self._now)])

    def take(self) -> Answers:
        """What was added up since the last `take`."""
        ended, self._interval = self._interval, []
        return _joined([*ended, *(adding.take() for adding in self._now)])


class Shown(Protocol):
    """What shows the answers of all programs again and again."""

    picture: output.Picture
    period: float

    def show_all_meanwhile(self, together: Together) -> None:
        """Show them while they go on."""


def _joined(parts: Iterable[Answers]) -> Answers:
    none = markerjit.Answers((), markerjit.Missed(), 0, 0)
    return reduce(lambda left, right: left.plus(right), parts, none)


def add_up(
    options: argparse.Namespace,
    end: End,
    request: Request,
    pids: Sequence[int],
    view: Shown,
    program: markerjit.Launched | None = None,
) -> tuple[Together, bool]:
    """Until the end, with a view of what there is meanwhile. Returns what was added up, all markers
    being off, and whether some program could not be switched."""
    together = Together()
    with ExitStack() as stack:
        stack.callback(end.disarm)
        programs = gather.gathered(options, request, pids, program)
        stack.callback(programs.close)
        remarks = gather.Remarks(programs, options.pattern, lambda adding: adding.unswitched)
        end.arm((), options.duration)
        together.add(programs.members)
        launching.let_go(program)
        remarks.print_new()
        next_at = time.monotonic() + view.period
        while not end.has_come and not programs.is_over:
            for ended in programs.take_ended():
                programs.retire(ended.member)
                together.finish(ended.member)
            with view.picture.above():
                together.add(programs.poll())
                remarks.print_new()
            if time.monotonic() >= next_at:
                next_at = max(next_at + view.period, time.monotonic())
                view.show_all_meanwhile(together)
            programs.wait(_WAIT_S)
        price, still = gather.price_of(programs), programs.members
        programs.end_requests()
        for member in still:
            together.finish(member)
    with view.picture.above():
        remarks.print_new()
        if together.unknown:
            output.say(
                f"what {counted(together.unknown, 'program')} added up is not known: another "
                "controller took the markers, or the process wrote over the memory",
                error=True,
            )
        gather.print_price(price, together.programs, programs.plain)
    return together, bool(programs.failed)

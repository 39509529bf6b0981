"""`markerjit trace --follow`: events of a process and of all that it starts.

The trace ends as any other does, and with the last process of the family. Its processes go on then,
with their markers off.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, NamedTuple

import markerjit
from markerjit.cli import output
from markerjit.cli.end import End, Output
from markerjit.cli.printer import Printer
from markerjit.printable import counted

if TYPE_CHECKING:
    from markerjit.lowlevel import RecordType


class Printed(NamedTuple):
    """A trace of a family that is over."""

    printer: Printer
    streams: Sequence[markerjit.EventStream]
    printing: Output
    family: markerjit.Family
    price: markerjit.Price
    programs: int


def trace_family(
    options: argparse.Namespace,
    end: End,
    callback: Callable[[markerjit.Event], object] | None,
    request: Callable[[markerjit.Session], AbstractContextManager[markerjit.EventStream]],
    pids: Sequence[int],
    program: markerjit.Launched | None,
    print_failed: Callable[[Iterable[markerjit.Failed]], None],
) -> Printed:
    """Print events until the end. A program that waits is let go when its markers are on."""
    with ExitStack() as stack:
        stack.callback(end.disarm)
        family = stack.enter_context(
            markerjit.Family(
                pids,
                request,
                program=program,
                ring_size=options.ring_size,
                seccomp=options.seccomp,
            )
        )
        stack.callback(family.end_traces)
        if not family.members:
            output.say(
                f"no markers here match '{options.pattern}' yet; what is started will be looked at",
                error=True,
            )
        streams = [member.stream for member in family.members]
        end.arm(streams, options.duration)
        if program and not program.go():
            output.say("the program had begun before its markers were on", error=True)
        for stream in streams:
            output.print_left_out(stream.unswitched)
        by_type: dict[RecordType, int] = {}
        printing = Output(end, streams)
        printer = Printer(options, streams, by_type, callback, end, printing)
        follow = _Follow(family, printer, by_type, print_failed)
        follow.begin(family.members)
        printer.print_until_end(follow.step, is_over=follow.is_over, wait=family.wait)
        follow.step()
    printer.print_rest()
    follow.print_new()
    return Printed(printer, streams, printing, family, follow.price, follow.programs)


class _Follow:
    """The programs of a family, on their way through the printer."""

    def __init__(
        self,
        family: markerjit.Family,
        printer: Printer,
        pids: dict[RecordType, int],
        print_failed: Callable[[Iterable[markerjit.Failed]], None],
    ) -> None:
        self.family = family
        self.programs = 0
        self.price: markerjit.Price = family.price()
        self._printer = printer
        self._pids = pids
        self._print_failed = print_failed
        self._failed = self._missed = 0

    def begin(self, members: list[markerjit.Member]) -> None:
        """Take programs whose streams the printer has."""
        for member in members:
            self.programs += 1
            self._pids.update(dict.fromkeys(member.stream.types.values(), member.pid))

    def step(self) -> None:
        """Take what is new, and leave behind what is over."""
        new = self.family.poll()
        for member in new:
            self._printer.add(member.stream)
        self.begin(new)
        finished = self._printer.take_finished()
        for member in self.family.members:
            if member.stream in finished:
                self.family.retire(member)
        self.price = self.family.price()
        self.print_new()

    def is_over(self) -> bool:
        """Whether no more programs will come."""
        return self.family.is_over

    def print_new(self) -> None:
        """Say what could not be traced since the last call."""
        failed, missed = self.family.failed, self.family.missed
        self._print_failed(failed[self._failed :])
        for sentence in missed[self._missed :]:
            output.say(f"markerjit: {sentence}", error=True)
        self._failed, self._missed = len(failed), len(missed)


def print_price(printed: Printed) -> None:
    """Say how many programs were followed, and what they have paid for it."""
    price, family = printed.price, printed.family
    output.say(
        f"followed {counted(printed.programs, 'program')} with such markers and {family.plain} "
        f"without; {price.processes} made by fork or vfork, {price.executed} by exec",
        error=True,
    )
    held = price.processes - price.sharing
    if held:
        output.say(
            f"new processes waited {price.held / held * 1e3:.1f} ms for their markers, "
            f"{price.longest_held * 1e3:.1f} ms at most; {counted(price.births, 'time')} a thread "
            "stopped for a moment because it had made a process or a thread",
            error=True,
        )

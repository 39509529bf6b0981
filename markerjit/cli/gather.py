"""The programs of a command that goes on while programs come and go: --follow and --new."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Generic, TypeVar

import markerjit
from markerjit.cli import arguments, output, targets
from markerjit.printable import counted

T = TypeVar("T")
Request = Callable[[markerjit.Session], AbstractContextManager[T]]

if TYPE_CHECKING:
    Programs = markerjit.Family[T] | markerjit.Newcomers[T]


def add_coming(parser: argparse.ArgumentParser) -> None:
    """--follow and --new."""
    parser.add_argument(
        "--follow",
        action="store_true",
        help="also everything that the process starts from now on, by fork and exec, each from its "
        "first instruction. MAKES A FORK SLOWER: each new process waits until its markers are on",
    )
    parser.add_argument(
        "--new",
        action="store_true",
        help="also processes that start later, each from the moment it is seen; for a name, --exe, "
        "--cgroup, --container and --user",
    )


def are_coming(options: argparse.Namespace) -> bool:
    """Whether programs come and go meanwhile."""
    return bool(options.follow or options.new)


def check_coming(options: argparse.Namespace) -> None:
    """Refuse what cannot be both."""
    if options.follow and options.new:
        raise markerjit.Refused("--follow and --new are not possible together; leave out one")
    if options.new and (
        getattr(options, "program", None) or isinstance(getattr(options, "targets", None), list)
    ):
        raise markerjit.Refused(
            "--new is for processes that are known by a name, --exe, --cgroup, --container or "
            "--user; --follow is for all that a process starts"
        )


def gathered(
    options: argparse.Namespace,
    request: Request[T],
    pids: Sequence[int] = (),
    program: markerjit.Launched | None = None,
) -> Programs[T]:
    """The programs that the options choose, with the request begun for those that run. `pids` are
    the processes that are followed."""
    size = getattr(options, "ring_size", None)
    if options.new:
        newcomers = markerjit.Newcomers(
            targets.requested(options), request, ring_size=size, **arguments.vouched(options)
        )
        output.say(
            f"those that start later are seen by {newcomers.way}",
            error=True,
        )
        return newcomers
    vouched = arguments.vouched(options)
    return markerjit.Family(pids, request, program=program, ring_size=size, **vouched)


class Remarks(Generic[T]):
    """What could not be done for some programs, what they have left out, and what is to be said of
    the USDT probes of the pattern there, each said once on standard error."""

    def __init__(
        self,
        programs: Programs[T],
        pattern: str,
        left_out: Callable[[T], Iterable[markerjit.LeftOut]],
    ) -> None:
        """`left_out` has the markers that a request, which has begun, left as they were."""
        self._programs = programs
        self._pattern = pattern
        self._left_out_by = left_out
        self._left_out_of_all = output.LeftOutOfAll()
        self._failed = self._missed = 0
        self._seen: set[markerjit.Session] = set()
        self._said: set[str] = set()
        self._reasons: dict[str, int] = {}

    @property
    def left_out(self) -> tuple[markerjit.LeftOut, ...]:
        """What the programs have left out so far."""
        return self._left_out_of_all.markers

    def print_new(self) -> None:
        """Say what is new."""
        failed, missed = self._programs.failed, self._programs.missed
        targets.print_failed(failed[self._failed :], self._reasons)
        for sentence in missed[self._missed :]:
            output.say(f"markerjit: {sentence}", error=True)
        self._failed, self._missed = len(failed), len(missed)
        members = self._programs.members
        new = [member for member in members if member.session not in self._seen]
        self._left_out_of_all.print(
            left for member in new for left in self._left_out_by(member.begun)
        )
        remarks = {
            remark
            for member in new
            for remark in output.usdt_remarks(member.session, self._pattern)
        }
        output.print_remarks(remarks - self._said)
        self._seen = {member.session for member in members}
        self._said |= remarks


def price_of(programs: Programs[T]) -> markerjit.Price | None:
    """What a family has paid so far; None for newcomers, which pay nothing."""
    return programs.price() if isinstance(programs, markerjit.Family) else None


def print_price(price: markerjit.Price | None, programs: int, plain: int) -> None:
    """Say how many programs were seen, and what they have paid for it."""
    if price is None:
        output.say(
            f"{counted(programs, 'program')} with such markers, and {plain:,} without", error=True
        )
        return
    output.say(
        f"followed {counted(programs, 'program')} with such markers and {plain:,} "
        f"without; {price.processes:,} made by fork or vfork, {price.executed:,} by exec",
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

"""`on` and `flight start` with --follow or --new: what is started later is switched on, too.

There is no daemon, so the command stays. It ends by Ctrl-C or SIGTERM, after --duration, and with
the last process of a family. The markers stay on then, as these commands leave them; with
--off-at-end they are switched off. The hits of all programs are added up, also of those that have
ended meanwhile.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import markerjit
from markerjit.cli import arguments, gather, output, targets
from markerjit.facts.fleet import Hits, Stayed, staying_facts
from markerjit.printable import counted

if TYPE_CHECKING:  # most commands that may stay do not
    from markerjit.cli.end import End

    Switch = Callable[[markerjit.Session], markerjit.Applied]
    Finish = Callable[[markerjit.Member[markerjit.Applied], markerjit.Ending | None], None]

_WAIT_S = 0.05
_PIDS_SHOWN = 8


def add_staying(parser: argparse.ArgumentParser) -> None:
    """--follow, --new, and how the command ends then."""
    gather.add_coming(parser)
    parser.add_argument(
        "-d",
        "--duration",
        metavar="S",
        type=arguments.seconds,
        help="with --follow or --new: end after S, such as 10s",
    )
    parser.add_argument(
        "--off-at-end",
        action="store_true",
        help="with --follow or --new: switch off at the end (default: leave on)",
    )


def check_staying(options: argparse.Namespace) -> None:
    """Refuse options that need the command to stay where it does not, or that exclude another."""
    if gather.are_coming(options):
        gather.check_coming(options)
        return
    why = "no command stays without"
    if options.program:
        why = "what is started without ends on its own, and its markers with it"
    for name, is_given in {"-d": options.duration, "--off-at-end": options.off_at_end}.items():
        if is_given:
            raise markerjit.Refused(f"{name} is for --follow and --new; {why}")


def off_at_end(
    options: argparse.Namespace,
) -> Callable[[markerjit.Session], markerjit.Applied] | None:
    """Switches a session off at the end; None where the markers stay on."""
    if not options.off_at_end:
        return None
    return lambda session: session.disable(options.pattern)


def stay(
    options: argparse.Namespace,
    end: End,
    switch: Switch,
    switch_off: Callable[[markerjit.Session], object] | None,
    finish: Finish = lambda member, ending: None,
    program: markerjit.Launched | None = None,
) -> int:
    """Switch on what there is and what comes, until the end; returns the exit code. `switch_off` is
    called at the end for what is there still. `finish` is called with each program: with its
    ending, or with None where it has executed another file or is there at our end. A `program` that
    waits is let go, and is followed."""
    from markerjit.cli.launching import let_go

    tally = _Tally()

    @contextmanager
    def request(session: markerjit.Session) -> Iterator[markerjit.Applied]:
        applied = switch(session)
        session.statistics(options.pattern, look=False)
        yield applied
        if switch_off:
            with suppress(markerjit.TargetGone, markerjit.NoSuchProcess):
                switch_off(session)

    with ExitStack() as stack:
        stack.callback(end.disarm)
        if program:
            pids = [program.pid]
        elif options.new:
            pids = []
        else:
            pids = targets.chosen(options).pids
        programs = gather.gathered(options, request, pids, program)
        stack.callback(programs.close)
        remarks = gather.Remarks(programs, options.pattern, lambda applied: applied.left_out)
        end.arm([], options.duration)
        tally.add(programs.members)
        let_go(program)
        _say_begin(options, programs.members, _rest(options, pids))
        remarks.print_new()
        while not end.has_come and not programs.is_over:
            for ended in programs.take_ended():
                finish(ended.member, ended.ending)
                tally.finish(ended.member)
                programs.retire(ended.member)
            tally.add(programs.poll())
            remarks.print_new()
            programs.wait(_WAIT_S)
        tally.price = gather.price_of(programs)
        still = programs.members
        programs.end_requests()
        for member in still:
            finish(member, member.session.ending())
            tally.finish(member)
        tally.on = (
            [] if switch_off else [member.pid for member in still if not member.session.is_gone]
        )
    remarks.print_new()
    if options.json:
        output.print_json(staying_facts(tally.outcome(programs, remarks.left_out)))
    else:
        _print_end(tally.outcome(programs, remarks.left_out), options.pattern)
    return int(bool(programs.failed))


class _Tally:
    """The hits of each marker, over all programs."""

    def __init__(self) -> None:
        self.price: markerjit.Price | None = None
        self.on: list[int] = []
        self._programs = 0
        self._rows: dict[str, Hits] = {}
        self._unknown = 0

    def add(self, members: Sequence[markerjit.Member[markerjit.Applied]]) -> None:
        """Take programs that have come."""
        self._programs += len(members)

    def finish(self, member: markerjit.Member[markerjit.Applied]) -> None:
        """Add the hits of a program, which may be over."""
        try:
            markers = member.session.last_statistics()
        except markerjit.MarkerError:
            self._unknown += 1
            return
        for marker in markers:
            if marker.mode:  # it was not left out
                before = self._rows.get(marker.name, Hits(0, 0, 0))
                self._rows[marker.name] = Hits(
                    before.programs + 1, before.hits + marker.hits, before.lost + marker.lost
                )

    def outcome(
        self, programs: gather.Programs[markerjit.Applied], left_out: Sequence[markerjit.LeftOut]
    ) -> Stayed:
        """All of it, with what could not be switched."""
        return Stayed(
            dict(sorted(self._rows.items())), self._programs, programs.plain, self._unknown,
            self.on, programs.failed, programs.missed, self.price, left_out,
        )  # fmt: skip


def _say_begin(
    options: argparse.Namespace, members: Sequence[markerjit.Member[markerjit.Applied]], rest: str
) -> None:
    names: set[str] = set()
    for member in members:
        with suppress(markerjit.MarkerError):
            statuses = member.session.last_statistics()
            names.update(marker.name for marker in statuses if marker.mode)
    on = "nothing is on yet"
    if names:
        on = f"{counted(len(names), 'marker')} on in {counted(len(members), 'process')}"
    output.say(f"{on}; {rest}", error=True)


def _rest(options: argparse.Namespace, pids: Sequence[int]) -> str:
    """What comes later, and until when."""
    if options.program and options.duration is None:
        return "what the program starts is followed until all of it has ended"
    until = "until Ctrl-C" if options.duration is None else f"for {options.duration:g} s"
    if options.new:
        return f"others are awaited {until}"
    they = f"process {pids[0]} starts" if len(pids) == 1 else "they start"
    they = "the program starts" if options.program else they
    return f"what {they} is followed {until}"


def _print_end(stayed: Stayed, pattern: str) -> None:
    if stayed.hits:
        rows = [(name, *map("{:,}".format, hits)) for name, hits in stayed.hits.items()]
        output.print_table(("MARKER", "PROGRAMS", "HITS", "LOST"), rows)
    if stayed.unknown:
        output.say(
            f"the hits of {counted(stayed.unknown, 'program')} are not known: our descriptor was "
            "closed there",
            error=True,
        )
    gather.print_price(stayed.price, stayed.programs, stayed.plain)
    if stayed.on:
        from shlex import quote  # few commands leave anything on

        more = ",…" if len(stayed.on) > _PIDS_SHOWN else ""
        pids = ",".join(map(str, stayed.on[:_PIDS_SHOWN])) + more
        processes = counted(len(stayed.on), "process")
        output.say(f"still on in {processes}; markerjit off {pids} {quote(pattern)}")

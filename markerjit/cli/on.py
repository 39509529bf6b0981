"""`markerjit on TARGET PATTERN`: switch markers on and leave them on, or for a time with --for."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import markerjit
from markerjit.cli import (
    arguments,
    gather,
    output,
    progress,
    recording,
    signals,
    stay,
    targets,
)
from markerjit.facts import words
from markerjit.facts.process import switch_facts
from markerjit.printable import counted
from markerjit.tuples import NamedTuple
from markerjit.uncollected import uncollected

if TYPE_CHECKING:  # most switches are over at once
    from markerjit.cli.end import End


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    targets.add_targets(parser)
    arguments.add_pattern(parser)
    arguments.add_mode(parser)
    arguments.add_breakpoints(parser)
    arguments.add_quiesce(parser)
    arguments.add_force(parser)
    parser.add_argument(
        "--probe",
        metavar="PROBE",
        type=recording.probe_name("count", "record", ".c"),
        default="count",
        help="count: count executions, which `status` shows (default); record: record into the "
        "rings, without a reader; FILE.c:function: run a probe in C",
    )
    recording.add_strings(parser)
    recording.add_where(parser)
    recording.add_brakes(parser)
    recording.add_budget(parser)
    recording.add_stack(parser)
    parser.add_argument(
        "--for",
        dest="for_s",
        metavar="S",
        type=arguments.seconds,
        help="switch them off again after this time, such as 10m, by a background process",
    )
    stay.add_staying(parser)
    arguments.add_seccomp(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Switch on, and say what that took."""
    if options.where is not None and options.probe.is_in_c:
        raise markerjit.Refused("a probe in C has its own conditions; leave out --where")
    recording.refuse_brakes_of_c(options)
    if options.stack is not None and options.probe.name != "record":
        raise markerjit.Refused("a stack is part of a recorded event; --stack needs --probe record")
    if options.budget is not None:
        raise markerjit.Refused(
            "a budget is kept by a command that reads the events: markerjit trace --budget; use "
            "--sample, --at-most or --for with `on`"
        )
    stay.check_staying(options)
    if options.for_s is not None and gather.are_coming(options):
        raise markerjit.Refused(
            "--for is for a command that ends at once; with --follow or --new use -d S --off-at-end"
        )
    if options.for_s is not None and options.program:
        raise markerjit.Refused(
            "--for is for a command that ends at once, and this one waits for the program; trace, "
            "count and others take -d S"
        )
    mode = markerjit.Mode(options.mode) if options.mode else None
    probe = recording.probe_of(options.probe)

    def switch(session: markerjit.Session) -> markerjit.Applied:
        return session.enable(
            options.pattern,
            mode=mode,
            probe=probe,
            quiesce=options.quiesce,
            force=options.force,
            strings=options.strings or "fast",
            where=options.where,
            sample=options.sample,
            at_most=options.at_most,
            stack=options.stack,
            for_s=options.for_s,
        )

    if options.program or gather.are_coming(options):
        return _go_on(options, switch)
    with uncollected():
        return switch_each(options, switch)


def _go_on(
    options: argparse.Namespace, switch: Callable[[markerjit.Session], markerjit.Applied]
) -> int:
    """Switch on, and stay there for a program that is started, or for those that come."""
    from markerjit.cli.end import End

    end = End()
    if options.program:
        from markerjit.cli.launching import run_program

        return run_program(options, end, partial(_on_until_its_end, options, end, switch))
    return stay.stay(options, end, switch, stay.off_at_end(options))


def _on_until_its_end(
    options: argparse.Namespace,
    end: End,
    switch: Callable[[markerjit.Session], markerjit.Applied],
    processes: targets.Chosen,
    program: markerjit.Launched,
) -> None:
    """Switch on, let the program go, and say at its end how often it came by each marker."""
    if gather.are_coming(options):
        stay.stay(options, end, switch, stay.off_at_end(options), program=program)
        return
    from markerjit.cli.launching import let_go

    (pid,) = processes.pids
    with markerjit.attach(pid, **arguments.vouched(options)) as session:
        applied = switch(session)
        session.statistics(options.pattern, look=False)
        let_go(program)
        output.print_left_out(applied.left_out)
        program.wait()
        markers = session.last_statistics()
    if options.json:
        output.print_json(switch_facts(pid, markers, applied))
        return
    rows = [
        (words.name_words(each.name), f"{each.hits:,}", f"{each.lost:,}")
        for each in markers
        if each.mode
    ]
    output.print_table(("MARKER", "HITS", "LOST"), rows)


class Switched(NamedTuple):
    """The outcome of a switch of one process: its markers afterwards, and those that a flight
    recorder keeps still, where it was ended for others; what is to be said of its USDT probes; and
    what else is on that was not meant."""

    markers: Sequence[markerjit.MarkerStatus]
    applied: markerjit.Applied
    kept: Sequence[str]
    remarks: Sequence[str] = ()
    others: Sequence[str] = ()


def switch_each(
    options: argparse.Namespace,
    change: Callable[[markerjit.Session], markerjit.Applied],
    show: Callable[[int, Switched], None] | None = None,
) -> int:
    """Switch markers of each process, and say what that took, or have a function `show` it; shared
    by `on`, `off` and `flight stop`. Returns the exit code. What was done is not printed while
    signals are held: the reader of our output may take as long as it likes."""

    verb = "on" if options.command in ("on", "replace") else "off"

    def switch(session: markerjit.Session) -> Switched:
        before = [] if options.pattern else session.status()  # some are off, and not in it, later
        names = ",".join(dict.fromkeys(marker.name for marker in before))
        applied = change(session)
        markers = session.status(options.pattern or names, look=False)
        remarks = output.usdt_remarks(session, options.pattern) if verb == "on" else ()
        others: list[str] = []
        if verb == "off" and options.pattern and ":" not in options.pattern:
            # `*` is of markers, and what else is on has its status, too.
            others = [marker.name for marker in markers if marker.mode and ":" in marker.name]
        return Switched(markers, applied, still_kept(session, applied), remarks, others)

    processes = targets.chosen(options)
    clock: int | None = None
    with signals.EndsWait() as end:
        with (
            markerjit.Fleet(processes.pids, **arguments.vouched(options)) as fleet,
            progress.timed(f"switching {verb} {options.pattern}".rstrip()),
        ):
            switched = fleet.each(switch)
        if switched and getattr(options, "for_s", None):
            clock = _leave_clock(options, switched, end)
            if not clock:
                return 0
    print_switched(options, processes, switched, fleet.failed, show)
    if clock and not options.json:
        _print_until(options, switched, clock)
    return end.code or bool(fleet.failed)


def print_switched(
    options: argparse.Namespace,
    processes: targets.Chosen,
    switched: Mapping[int, Switched],
    failed: Sequence[markerjit.Failed],
    show: Callable[[int, Switched], None] | None = None,
) -> None:
    """Say what was switched, and what was not; shared with `flight start`."""
    targets.print_failed(failed)
    output.print_left_out(left for done in switched.values() for left in done.applied.left_out)
    output.print_remarks(each for done in switched.values() for each in done.remarks)
    if options.json:
        documents = (
            switch_facts(pid, done.markers, done.applied) for pid, done in switched.items()
        )
        targets.print_documents(processes, documents, failed)
    else:
        show = show or _print
        targets.print_each(processes, switched, lambda pid: show(pid, switched[pid]))


def _leave_clock(
    options: argparse.Namespace, switched: Mapping[int, Switched], end: signals.EndsWait
) -> int:
    """Leave a process in the background that switches off what was switched on. Returns its pid,
    and in that process 0, when it has. It is forked before anybody can know of it, with handlers
    that have a signal switch off: one may come as soon as its pid is printed."""
    from markerjit.cli.background import go_into_background
    from markerjit.cli.later import wait_and_switch_off

    sys.stdout.flush()
    deadline = time.monotonic() + options.for_s
    came, end.code = end.code, 0  # before, and so for the command
    child = go_into_background()
    if child:
        end.code = end.code or came
    else:
        wait_and_switch_off(switched, options.pattern, deadline, end, seccomp=options.seccomp)
    return child


def _print_until(options: argparse.Namespace, switched: Mapping[int, Switched], clock: int) -> None:
    # The time that `status` says: the process itself has it.
    times = (marker.until for done in switched.values() for marker in done.markers)
    until = max(times, default=0) or time.time() + options.for_s
    output.say(f"off again at {output.moment(until)}, by process {clock} in the background")


def still_kept(session: markerjit.Session, applied: markerjit.Applied) -> list[str]:
    """The markers that a flight recorder keeps still, where it was ended for others."""
    statuses = session.statistics(look=False) if applied.ended else []
    return [marker.name for marker in statuses if marker.held == "flight"]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(words.name_words, names))


def _print(pid: int, switched: Switched) -> None:
    """Print what was switched in a process, and for how long it stood still."""
    markers, applied, kept, _, others = switched
    for marker in markers:
        if marker.name in others:
            continue
        sites = counted(len(marker.sites), "site")
        state = f"{words.state_words(marker)}{words.where_words(marker)}"
        output.say(f"{words.name_words(marker.name)}: {state}, {sites}")
    if applied.taken:
        output.say(f"taken from its holder: {_listed(applied.taken)}")
    if applied.ended:
        rest = f"it goes on with {_listed(kept)}" if kept else "it has no marker left"
        output.say(f"the flight recorder of {_listed(applied.ended)} is ended; {rest}")
    print_stop(applied)
    if others:
        output.say(
            f"still on: {_listed(others)}; the pattern names markers. Without a pattern `off` "
            "switches off whatever is on"
        )


_LONG_STOP_US = 20_000
"""A stop that is longer than this has its reason told."""


def _parts_of_stop(applied: markerjit.Applied) -> str:
    """What a stop took long for: its threads, or the change."""
    return (
        f"{applied.stop / 1000:,.0f} until the last one stood, {applied.held / 1000:,.0f} for the "
        f"change, {applied.resume / 1000:,.0f} until the last one went on"
    )


def print_stop(applied: markerjit.Applied) -> None:
    """Say for how long a process stood still, or that it did not."""
    if applied.threads:
        stopped_us = (applied.stop + applied.held + applied.resume) / 1000
        was = "was" if applied.threads == 1 else "were"
        threads = counted(applied.threads, "thread")
        parts = f": {_parts_of_stop(applied)}" if stopped_us > _LONG_STOP_US else ""
        output.say(f"{threads} {was} stopped, for at most {stopped_us:,.0f} µs{parts}")
    elif not applied.written:
        output.say("nothing had to be written")

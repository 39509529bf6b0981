"""`markerjit on TARGET PATTERN`: switch markers on and leave them on."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import markerjit
from markerjit.cli import arguments, output, recording, signals, targets
from markerjit.facts import words
from markerjit.facts.process import switch_facts
from markerjit.printable import counted


@contextmanager
def uncollected() -> Iterator[None]:
    """Within, the collector of reference cycles rests. A hundred thousand sites become values
    without cycles, and it would go through all of them again and again: a sixth of the time. It is
    for a whole function, whose values have gone when the collector works again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    targets.add_targets(parser)
    arguments.add_pattern(parser)
    arguments.add_mode(parser)
    arguments.add_quiesce(parser)
    arguments.add_force(parser)
    parser.add_argument(
        "--probe",
        metavar="PROBE",
        type=recording.probe_name("count", "record", ".c"),
        default="count",
        help="count: hits only, see `status` (default); record: into the rings, for nobody yet; "
        "FILE.c:function: a probe in C",
    )
    recording.add_strings(parser)
    recording.add_where(parser)
    arguments.add_seccomp(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


@uncollected()
def run(options: argparse.Namespace) -> int:
    """Switch on, and say what that took."""
    if options.where is not None and options.probe.is_in_c:
        raise markerjit.Refused("a probe in C asks for itself; leave out --where")
    mode = markerjit.Mode(options.mode) if options.mode else None
    probe = recording.probe_of(options.probe)
    return switch_each(
        options,
        lambda session: session.enable(
            options.pattern,
            mode=mode,
            probe=probe,
            quiesce=options.quiesce,
            force=options.force,
            strings=options.strings or "fast",
            where=options.where,
        ),
    )


class Switched(NamedTuple):
    """The outcome of a switch of one process: its markers afterwards, and those that a flight
    recorder keeps still, where it was ended for others."""

    markers: Sequence[markerjit.MarkerStatus]
    applied: markerjit.Applied
    kept: Sequence[str]


def switch_each(
    options: argparse.Namespace, change: Callable[[markerjit.Session], markerjit.Applied]
) -> int:
    """Switch markers of each process, and say what that took; shared by `on` and `off`. Returns the
    exit code. What was done is not printed while signals are held: the reader of our output may
    take as long as it likes."""

    def switch(session: markerjit.Session) -> Switched:
        applied = change(session)
        markers = session.statistics(options.pattern, look=False)
        return Switched(markers, applied, still_kept(session, applied))

    processes = targets.chosen(options)
    with (
        signals.Held() as held,
        markerjit.Fleet(processes.pids, seccomp=options.seccomp) as fleet,
    ):
        switched = fleet.each(switch)
    print_switched(options, processes, switched, fleet.failed)
    return held.code or bool(fleet.failed)


def print_switched(
    options: argparse.Namespace,
    processes: targets.Chosen,
    switched: Mapping[int, Switched],
    failed: Sequence[markerjit.Failed],
) -> None:
    """Say what was switched, and what was not; shared with `record`."""
    targets.print_failed(failed)
    for done in switched.values():
        output.print_left_out(done.applied.left_out)
    if options.json:
        documents = (
            switch_facts(pid, done.markers, done.applied) for pid, done in switched.items()
        )
        targets.print_documents(processes, documents, failed)
    else:
        targets.print_each(processes, switched, lambda pid: _print(switched[pid]))


def still_kept(session: markerjit.Session, applied: markerjit.Applied) -> list[str]:
    """The markers that a flight recorder keeps still, where it was ended for others."""
    statuses = session.statistics(look=False) if applied.ended else []
    return [marker.name for marker in statuses if marker.held == "flight"]


def _print(switched: Switched) -> None:
    """Print what was switched in a process, and for how long it stood still."""
    markers, applied, kept = switched
    for marker in markers:
        sites = counted(len(marker.sites), "site")
        state = f"{words.state_words(marker)}{words.where_words(marker)}"
        output.say(f"{marker.name}: {state}, {sites}")
    if applied.taken:
        output.say(f"taken from a trace: {', '.join(applied.taken)}")
    if applied.ended:
        rest = f"it goes on with {', '.join(kept)}" if kept else "it has no marker left"
        output.say(f"the flight recorder of {', '.join(applied.ended)} is ended; {rest}")
    if applied.threads:
        stopped_us = (applied.stop + applied.held + applied.resume) / 1000
        threads = "1 thread was" if applied.threads == 1 else f"{applied.threads} threads were"
        output.say(f"{threads} stopped, for at most {stopped_us:.0f} µs")
    elif not applied.written:
        output.say("nothing had to be written")

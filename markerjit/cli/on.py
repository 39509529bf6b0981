"""`markerjit on PID PATTERN`: switch markers on and leave them on."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import markerjit
from markerjit.cli import arguments, output, recording, signals
from markerjit.facts import words
from markerjit.facts.process import switch_facts
from markerjit.printable import counted


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.add_pid(parser)
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
    arguments.add_seccomp(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Switch on, and say what that took."""
    mode = markerjit.Mode(options.mode) if options.mode else None
    probe = recording.probe_of(options.probe)
    with (
        signals.Held() as held,
        uncollected(),
        markerjit.attach(options.pid, seccomp=options.seccomp) as session,
    ):
        applied = session.enable(
            options.pattern,
            mode=mode,
            probe=probe,
            quiesce=options.quiesce,
            force=options.force,
            strings=options.strings or "fast",
        )
        markers = session.statistics(options.pattern, look=False)
        kept = still_kept(session, applied)
    report(options, markers, applied, kept)
    return held.code


@contextmanager
def uncollected() -> Iterator[None]:
    """Within, the collector of reference cycles rests. A hundred thousand sites become values
    without cycles, and it would go through all of them again and again: a sixth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def still_kept(session: markerjit.Session, applied: markerjit.Applied) -> list[str]:
    """The markers that a flight recorder keeps still, where it was ended for others."""
    statuses = session.statistics(look=False) if applied.ended else []
    return [marker.name for marker in statuses if marker.held == "flight"]


def report(
    options: argparse.Namespace,
    markers: Sequence[markerjit.MarkerStatus],
    applied: markerjit.Applied,
    kept: Sequence[str] = (),
) -> None:
    """What was switched and for how long the process stood still; shared by `on` and `off`. Not
    printed while signals are held: the reader of our output may take as long as it likes."""
    output.print_left_out(applied.left_out)
    if options.json:
        output.print_json(switch_facts(options.pid, markers, applied))
        return
    for marker in markers:
        sites = counted(len(marker.sites), "site")
        output.say(f"{marker.name}: {words.state_words(marker)}, {sites}")
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

"""`markerjit on PID PATTERN`: switch markers on and leave them on."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import markerjit
from markerjit.cli import common, recording, signals


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    common.add_pid(parser)
    common.add_pattern(parser)
    common.add_mode(parser)
    common.add_quiesce(parser)
    common.add_force(parser)
    parser.add_argument(
        "--probe",
        metavar="PROBE",
        type=recording.one_of("count", "record", ".c"),
        default="count",
        help="count: hits only, see `status` (default); record: into the rings, for nobody yet; "
        "FILE.c:function: a probe in C",
    )
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Switch on, and say what that took."""
    mode = markerjit.Mode(options.mode) if options.mode else None
    probe = recording.probe_of(options.probe)
    with signals.Held() as held, markerjit.attach(options.pid) as session:
        applied = session.enable(
            options.pattern,
            mode=mode,
            probe=probe,
            quiesce=options.quiesce,
            force=options.force,
        )
        markers = session.statistics(options.pattern)
        kept = still_kept(session, applied)
    report(options, markers, applied, kept)
    return held.code


def still_kept(session: markerjit.Session, applied: markerjit.Applied) -> list[str]:
    """The markers that a flight recorder keeps still, where it was ended for others."""
    statuses = session.statistics() if applied.ended else []
    return [marker.name for marker in statuses if marker.held == "flight"]


def report(
    options: argparse.Namespace,
    markers: Sequence[markerjit.MarkerStatus],
    applied: markerjit.Applied,
    kept: Sequence[str] = (),
) -> None:
    """What was switched and for how long the process stood still; shared by `on` and `off`. Not
    printed while signals are held: the reader of our output may take as long as it likes."""
    common.print_left_out(applied.left_out)
    if options.json:
        document = {
            "pid": options.pid,
            "markers": [common.marker_json(marker) for marker in markers],
            "threads": applied.threads,
            "stopped_ns": applied.stop + applied.held + applied.resume,
            "left_out": common.left_out_json(applied.left_out),
            "taken": applied.taken,
            "ended": applied.ended,
        }
        common.print_json(document)
        return
    for marker in markers:
        sites = common.counted(len(marker.sites), "site")
        common.say(f"{marker.name}: {common.state_text(marker)}, {sites}")
    if applied.taken:
        common.say(f"taken from a trace: {', '.join(applied.taken)}")
    if applied.ended:
        rest = f"it goes on with {', '.join(kept)}" if kept else "it has no marker left"
        common.say(f"the flight recorder of {', '.join(applied.ended)} is ended; {rest}")
    if applied.threads:
        stopped_us = (applied.stop + applied.held + applied.resume) / 1000
        threads = "1 thread was" if applied.threads == 1 else f"{applied.threads} threads were"
        common.say(f"{threads} stopped, for at most {stopped_us:.0f} µs")
    elif not applied.written:
        common.say("nothing had to be written")

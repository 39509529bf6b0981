"""`markerjit flight start|dump|stop TARGET`: a flight recorder, which keeps the newest events.

`dump` saves them while it goes on, and also after `stop`, until something else uses the rings. What
`start` does is in flight_start.py.
"""

from __future__ import annotations

import argparse

import markerjit
from markerjit.cli import arguments, flight_start, output, recording, signals, stay, targets
from markerjit.cli.on import Switched, print_stop, switch_each
from markerjit.cli.streamed import saved_to_standard_output

_NAMED = 3
"""Markers that a line names."""

START, DUMP, STOP = ACTIONS = ("start", "dump", "stop")


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of the action that is given; without one, those of all."""
    words = parser.get_default("given") or ()
    action = next((word for word in words if word in ACTIONS), None)
    parser.add_argument(
        "action",
        metavar="ACTION",
        choices=ACTIONS,
        help="start: switch markers on and keep their newest events; dump: save what was kept, "
        "with -o FILE; stop: switch its markers off",
    )
    if parser.get_default("program") and action in (DUMP, STOP):
        parser.error("a program is started by flight start; dump and stop are for one that runs")
    targets.add_targets(parser)
    if action != DUMP:
        arguments.add_pattern(parser, may_be_left_out=action != START)
        arguments.add_quiesce(parser)
        arguments.add_seccomp(parser)
    if action in (START, None):
        arguments.add_mode(parser)
        arguments.add_breakpoints(parser)
        recording.add_probe(parser, ".c")
        recording.add_parts(parser)
        recording.add_budget(parser)
        parser.add_argument(
            "--on-crash",
            action="store_true",
            help="with -o: wait in the background, and save if a signal ends the process",
        )
        stay.add_staying(parser)
    if action != STOP:
        recording.add_output(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Do what the action says."""
    return {START: flight_start.run, DUMP: _dump, STOP: _stop}[options.action](options)


def _dump(options: argparse.Namespace) -> int:
    """Take a picture of the rings, and save it."""
    if not options.output:
        raise markerjit.Refused(
            "no file is named; name it with -o FILE, whose suffix says the format"
        )
    if "{" in (options.format or ""):
        raise markerjit.Refused("a template is for lines that are printed: read FILE --format")
    pids = targets.chosen(options).pids
    if len(pids) > 1:
        raise markerjit.Refused(
            f"-o saves the events of one process, and these are {len(pids)}: "
            f"{', '.join(map(str, pids))}"
        )
    with saved_to_standard_output(options) as options.is_on_output:
        markerjit.check_output(options.output, force=options.force)
        with signals.Raised(), markerjit.attach(pids[0]) as session:
            picture = recording.write_picture(
                session, session.flight(), options.output, force=options.force
            )
    recording.print_picture(picture, options)
    return 0


def _stop(options: argparse.Namespace) -> int:
    """Switch off the markers that it keeps still. What was kept stays in the rings."""

    def stop(session: markerjit.Session) -> markerjit.Applied:
        arena = session.arena()
        if not arena or not arena.flight:
            raise markerjit.Refused(f"no flight recorder is on in process {session.pid}")
        return session.end_record(options.pattern or None)

    return switch_each(options, stop, _print_stopped)


def _print_stopped(pid: int, switched: Switched) -> None:
    """A line, however many markers it had."""
    ended = switched.applied.ended
    if not ended:
        output.say("the flight recorder keeps no such marker; nothing was switched off")
        return
    shown = ", ".join(ended[:_NAMED]) + (f" and {len(ended) - _NAMED} more" * (len(ended) > _NAMED))
    kept = ", ".join(switched.kept)
    rest = f"it goes on with {kept}" if kept else "it has no marker left"
    output.say(f"the flight recorder of {shown} is ended; {rest}")
    if not kept:
        output.say(f"markerjit flight dump {pid} -o FILE saves what it has kept")
    print_stop(switched.applied)

"""`markerjit flight start TARGET PATTERN`: keep the newest events, without a reader.

The markers stay on, and the rings in the process keep the newest of their events. `flight dump`
saves a picture of them at any time. With -o we wait, and save when the process ends, because the
rings outlive it, or at Ctrl-C. With --on-crash a process in the background waits. It saves only if
the process was ended by a signal, and is silent unless it could not.

`flight start PATTERN -- COMMAND ARGS...` starts a program. The command ends with the program, and
has its exit code. With -o, what was kept is saved then; without it, save it before by `dump`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import markerjit
from markerjit.cli import (
    arguments,
    directories,
    gather,
    launching,
    output,
    progress,
    recording,
    signals,
    stay,
    targets,
)
from markerjit.cli.background import go_into_background
from markerjit.cli.end import End
from markerjit.cli.on import Switched, print_switched
from markerjit.printable import counted


def run(options: argparse.Namespace) -> int:
    """Switch on. With -o, wait and save."""
    if options.on_crash and not options.output:
        raise markerjit.Refused("--on-crash saves into a file; name it with -o FILE")
    if options.output == "-" or options.format:
        raise markerjit.Refused("-o - is for flight dump; flight start saves into a file")
    if options.budget is not None:
        raise markerjit.Refused(
            "a budget is kept by a command that reads the events, and nobody stays to watch a "
            "flight recorder; use --sample or --at-most, or markerjit trace --budget"
        )
    stay.check_staying(options)
    if options.output and not gather.are_coming(options):
        markerjit.check_output(options.output, force=options.force)
    if options.program:
        return _record_program(options, End())
    if gather.are_coming(options):
        return _record_coming(options, End())
    processes = targets.chosen(options)
    if options.output and len(processes.pids) > 1:
        raise markerjit.Refused(
            f"-o saves the events of one process, and these are {len(processes.pids)}; without it "
            "each keeps its own, and markerjit flight dump PID -o FILE saves them"
        )
    begin = _recorder(options)

    def record(session: markerjit.Session) -> Switched:
        applied = begin(session)
        remarks = output.usdt_remarks(session, options.pattern)
        return Switched(session.statistics(options.pattern), applied, (), remarks)

    with (
        signals.EndsWait() as end,
        markerjit.Fleet(
            processes.pids, ring_size=options.ring_size, **arguments.vouched(options)
        ) as fleet,
    ):
        with progress.timed(f"switching on {options.pattern}"):
            switched = fleet.each(record)
        next_lines = [_what_is_next(session) for session in fleet.sessions.values()]
        if options.output:
            (session,) = fleet.sessions.values()
            try:
                watch = session.watch_flight()
            except markerjit.Refused:
                session.end_record(options.pattern)  # there would be no process that waits
                raise
            child = go_into_background() if options.on_crash else 0
            if not child:
                if not options.on_crash:
                    output.print_left_out(switched[session.pid].applied.left_out)
                return _wait_and_save(session, watch, options, end)
            next_lines = [f"waiting for a crash in the background, as process {child}"]
    print_switched(options, processes, switched, fleet.failed)
    if not options.json:
        for line in next_lines:
            output.say(line)
    return end.code or bool(fleet.failed)


def _recorder(options: argparse.Namespace) -> Callable[[markerjit.Session], markerjit.Applied]:
    """Begins the flight recorder of a session."""
    mode = markerjit.Mode(options.mode) if options.mode else None
    parts = recording.parts(options)
    return lambda session: session.record(
        options.pattern, mode=mode, quiesce=options.quiesce, **parts
    )


def _record_program(options: argparse.Namespace, end: End) -> int:
    """Start a program, and return its exit code."""
    if not gather.are_coming(options):
        return launching.run_program(options, end, partial(_record_until_its_end, options))
    return launching.run_program(
        options, end, lambda processes, program: _record_coming(options, end, program)
    )


def _record_until_its_end(
    options: argparse.Namespace, processes: targets.Chosen, program: markerjit.Launched
) -> None:
    """Keep the events of a program that waits, let it go, and save them when it has ended."""
    begin = _recorder(options)
    with program.attach(ring_size=options.ring_size, **arguments.vouched(options)) as session:
        applied = begin(session)
        watch = session.watch_flight() if options.output else None
        output.print_left_out(applied.left_out)
        if not watch:
            output.say(_what_is_next(session), error=True)
        launching.let_go(program)
        if watch:
            _save_at_end(session, watch, options)


def _save_at_end(
    session: markerjit.Session, watch: markerjit.Watch, options: argparse.Namespace
) -> None:
    ending = watch.wait()
    assert ending
    if options.on_crash and not ending.signal:
        return
    picture = recording.write_picture(session, watch.flight, options.output, force=options.force)
    recording.print_picture(picture, options)
    output.say(f"process {session.pid} {ending}", error=True)


def _record_coming(
    options: argparse.Namespace, end: End, program: markerjit.Launched | None = None
) -> int:
    """Stay while programs come and go. With -o each is saved when it is over, and all others at our
    end, when there is nobody who would save them; with --on-crash only those that crash."""
    begin = _recorder(options)
    if not options.output:
        return stay.stay(options, end, begin, stay.off_at_end(options), program=program)
    saver = _Saver(options)

    def record(session: markerjit.Session) -> markerjit.Applied:
        applied = begin(session)
        saver.watch(session)
        return applied

    return stay.stay(
        options, end, record, lambda session: session.end_record(options.pattern), saver.save,
        program,
    )  # fmt: skip


class _Saver:
    """Saves flight recorders into a directory, a trace for each program."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._directory = directories.Directory(options.output, force=options.force)
        self._flights: dict[int, markerjit.Flight] = {}

    def watch(self, session: markerjit.Session) -> None:
        """Have what is needed to save it when it is over. Raises Refused where its rings would end
        with it."""
        self._flights[id(session)] = session.watch_flight().flight

    def save(
        self, member: markerjit.Member[markerjit.Applied], ending: markerjit.Ending | None
    ) -> None:
        """Save a program that is over, or that we leave."""
        flight = self._flights.pop(id(member.session))
        crashed = ending is not None and bool(ending.signal)
        if self._options.on_crash and not crashed:
            return
        path = self._directory.path_for(member.pid)
        picture = recording.write_picture(member.session, flight, path, force=self._options.force)
        if not self._options.json:
            events = sum(len(columns.time) for columns in picture.batch.columns)
            ended = f"process {member.pid} {ending}: " if ending else ""
            output.say(f"{ended}{counted(events, 'event')} in {path}")


def _what_is_next(session: markerjit.Session) -> str:
    return (
        f"the newest {session.ring_size >> 10} KiB of events per CPU are kept; "
        f"markerjit flight dump {session.pid} -o FILE saves them, "
        f"markerjit flight stop {session.pid} ends it"
    )


def _wait_and_save(
    session: markerjit.Session,
    watch: markerjit.Watch,
    options: argparse.Namespace,
    end: signals.EndsWait,
) -> int:
    try:
        ending = end.wait(lambda: watch.wait(until_off=options.on_crash))
        interrupted = False
    except signals.Interrupted:
        ending, interrupted = None, True
    crashed = ending is not None and ending.signal != 0
    if options.on_crash and not crashed:
        return 0
    try:
        picture = recording.write_picture(
            session, watch.flight, options.output, force=options.force
        )
    finally:
        if interrupted:
            session.end_record(options.pattern)
    recording.print_picture(picture, options)
    if ending is not None and not options.on_crash:
        output.say(f"process {session.pid} {ending}", error=True)
    return 0

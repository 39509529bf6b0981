"""`markerjit record TARGET PATTERN --flight`: keep the newest events, without a reader.

The markers stay on, and the rings in the process keep the newest of their events. `dump` saves a
picture of them at any time. With -o we wait, and save when the process ends, because the rings
outlive it, or at Ctrl-C. With --on-crash a process in the background waits. It saves only if the
process was ended by a signal, and is silent unless it could not.
"""

from __future__ import annotations

import argparse
import io
import os
import stat
import sys
import syslog
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

import markerjit
from markerjit.cli import arguments, output, recording, signals, targets
from markerjit.cli.on import Switched, print_switched

T = TypeVar("T")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    targets.add_targets(parser)
    arguments.add_pattern(parser)
    arguments.add_mode(parser)
    arguments.add_quiesce(parser)
    parser.add_argument(
        "--flight", action="store_true", required=True, help="a flight recorder (trace -o streams)"
    )
    parser.add_argument(
        "--on-crash",
        action="store_true",
        help="save into FILE when the process is ended by a signal; waits in the background",
    )
    recording.add_probe(parser, ".c")
    recording.add_parts(parser)
    recording.add_output(parser)
    arguments.add_seccomp(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Switch on. With -o, wait and save."""
    if options.on_crash and not options.output:
        raise markerjit.Refused("--on-crash saves into a file; name it with -o FILE")
    if options.output:
        markerjit.check_output(options.output, force=options.force)
    processes = targets.chosen(options)
    if options.output and len(processes.pids) > 1:
        raise markerjit.Refused(
            f"-o saves the events of one process, and these are {len(processes.pids)}; without it "
            "each keeps its own, and markerjit dump PID -o FILE saves them"
        )
    mode = markerjit.Mode(options.mode) if options.mode else None
    parts = recording.parts(options)

    def record(session: markerjit.Session) -> Switched:
        applied = session.record(options.pattern, mode=mode, quiesce=options.quiesce, **parts)
        return Switched(session.statistics(options.pattern), applied, ())

    with (
        _End() as end,
        markerjit.Fleet(
            processes.pids, ring_size=options.ring_size, seccomp=options.seccomp
        ) as fleet,
    ):
        switched = fleet.each(record)
        next_lines = [_what_is_next(session) for session in fleet.sessions.values()]
        if options.output:
            (session,) = fleet.sessions.values()
            try:
                watch = session.watch_flight()
            except markerjit.Refused:
                session.end_record(options.pattern)  # there would be no process that waits
                raise
            child = _go_into_background() if options.on_crash else 0
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


def _what_is_next(session: markerjit.Session) -> str:
    return (
        f"the newest {session.ring_size >> 10} KiB of events per CPU are kept; "
        f"markerjit dump {session.pid} -o FILE saves them, "
        f"markerjit off {session.pid} '*' ends it"
    )


def _go_into_background() -> int:
    """Returns 0 in the process that waits, and its pid in the process that goes back to the
    shell."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nothing, number)
    if not _may_stay_open(2):
        os.dup2(nothing, 2)
        sys.stderr = _SystemLog()
    return 0


def _may_stay_open(descriptor: int) -> bool:
    """True of a terminal and a file. The reader of a pipe, such as ssh or a shell with `$(...)`,
    waits until we close it."""
    try:
        return os.isatty(descriptor) or stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:  # closed
        return False


class _SystemLog(io.TextIOBase):
    """Standard error of a process in the background that has none. Each line goes to syslog(3)."""

    def write(self, text: str) -> int:
        for line in filter(None, text.splitlines()):
            syslog.syslog(syslog.LOG_ERR, line)
        return len(text)


def _wait_and_save(
    session: markerjit.Session, watch: markerjit.Watch, options: argparse.Namespace, end: _End
) -> int:
    try:
        ending = end.wait(lambda: watch.wait(until_off=options.on_crash))
        interrupted = False
    except KeyboardInterrupt:
        ending, interrupted = None, True
    crashed = ending is not None and ending.signal != 0
    if options.on_crash and not crashed:
        return 0
    try:
        picture = recording.write_picture(session, watch.flight, options)
    finally:
        if interrupted:
            session.end_record(options.pattern)
    recording.print_picture(picture, options)
    if ending is not None and not options.on_crash:
        output.say(f"process {session.pid} {ending}", error=True)
    return 0


class _End(signals.Held):
    """Signals end the waiting and nothing else. A switch or a write in progress is finished, and so
    is the save afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting = False

    def wait(self, wait: Callable[[], T]) -> T:
        """Call `wait`. Raises KeyboardInterrupt at a signal, also at one that has come before."""
        try:
            self._waiting = True
            if self.code:
                raise KeyboardInterrupt
            return wait()
        finally:
            self._waiting = False

    def _handler(self, number: int, frame: FrameType | None) -> None:
        super()._handler(number, frame)
        if self._waiting:
            raise KeyboardInterrupt

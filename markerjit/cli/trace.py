"""`markerjit trace PID PATTERN`: switch on, stream events, switch off at the end.

The end is --duration, --events, Ctrl-C, SIGTERM, the process's own end, or that nobody reads our
output any more. In all of them but a SIGKILL the markers are off afterwards.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys

import markerjit
from markerjit.cli import common

_READER_MS = 500


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    common.add_pid(parser)
    common.add_pattern(parser)
    common.add_mode(parser)
    common.add_quiesce(parser)
    parser.add_argument("--duration", metavar="S", type=common.seconds, help="end after S seconds")
    parser.add_argument("--events", metavar="N", type=common.positive, help="end after N events")
    parser.add_argument(
        "--ring-size",
        metavar="MIB",
        type=_mebibytes,
        default=1 << 20,
        help="room for records per CPU, a power of two (default 1), if the process has none yet",
    )
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Stream until the end."""
    mode = markerjit.Mode(options.mode) if options.mode else None
    end = _End()
    with (
        markerjit.attach(options.pid, ring_size=options.ring_size) as session,
        session.trace(options.pattern, mode=mode, quiesce=options.quiesce) as stream,
    ):
        end.arm(stream, options.duration)
        shown = _print_events(stream, options, end)
    _print_summary(shown, stream.statistics(), options, end)
    if stream.dispossessed:
        raise markerjit.Refused(
            f"another controller took the rings of process {options.pid}: we did not read them for "
            "too long"
        )
    if stream.target_ended:
        raise markerjit.TargetGone(options.pid)
    return 0


def _print_events(stream: markerjit.EventStream, options: argparse.Namespace, end: _End) -> int:
    """Print events until the end; returns how many."""
    to_line = markerjit.line_formatter(stream.fields, json=options.json)
    shown = 0
    for batch in stream.batches():
        wanted = batch if options.events is None else batch[: options.events - shown]
        text = "".join(f"{to_line(event)}\n" for event in wanted)
        if not end.write(text.encode(errors="backslashreplace")):
            break
        shown += len(wanted)
        if shown == options.events:
            break
    return shown


class _End:
    """Signals end the stream. Their handlers stand before anything is switched on, so that none can
    end us in between and leave it on. They also end our waiting for a reader that reads no more."""

    def __init__(self) -> None:
        self.unread = False
        self._wanted = False
        self._stream: markerjit.EventStream | None = None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                signal.signal(number, self._on_signal)

    def arm(self, stream: markerjit.EventStream, duration: float | None) -> None:
        """From now on signals end this stream, and so does the time."""
        self._stream = stream
        if self._wanted:
            stream.stop()
        if duration is not None:
            signal.setitimer(signal.ITIMER_REAL, duration)

    def write(self, data: bytes) -> bool:
        """Write it all, past Python's buffer, which would be flushed when we end. False: we are to
        end, and the reader takes nothing."""
        output = sys.stdout.fileno()
        ready = select.poll()
        ready.register(output, select.POLLOUT)
        while data:
            if ready.poll(_READER_MS):
                # So much never waits once poll says that there is room: pipe(7).
                data = data[os.write(output, data[: select.PIPE_BUF]) :]
            elif self._wanted:
                self.unread = True
                return False
            elif self._stream:
                self._stream.keep()  # a reader that pauses us does not lose us the rings
        return True

    def _on_signal(self, *_: object) -> None:
        self._wanted = True
        if self._stream:
            self._stream.stop()


def _print_summary(
    shown: int, seen: markerjit.StreamStatistics, options: argparse.Namespace, end: _End
) -> None:
    if options.json and not end.unread:
        import json

        print(json.dumps({"summary": {"events": shown, "lost": seen.lost}}))
        return
    print(f"{common.counted(shown, 'event')}, {seen.lost} lost", file=sys.stderr)
    if seen.lost:
        print(
            "lost events found their ring full: trace fewer markers, or use a larger --ring-size "
            "with a process that was not traced before",
            file=sys.stderr,
        )
    if seen.bad_records or seen.damaged_rings:
        print(
            f"{seen.bad_records} records and {seen.damaged_rings} rings made no sense; "
            "is the process overwriting its memory?",
            file=sys.stderr,
        )


def _mebibytes(text: str) -> int:
    number = common.positive(text)
    if number & number - 1 or number > 1024:
        raise argparse.ArgumentTypeError(f"{text} is not a power of two up to 1024")
    return number << 20

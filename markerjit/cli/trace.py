"""`markerjit trace PID PATTERN`: switch on, stream events or write a file, switch off at the end.

The end is --duration, --events, Ctrl-C, SIGTERM, the process's own end, or that nobody reads our
output any more. In all of them but a SIGKILL the markers are off afterwards. Several processes are
traced together, `PID,PID`, and their events come in one order of time.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import markerjit
from markerjit.cli import common, recording

_READER_MS = 500
_POLL_S = 0.02


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("pids", metavar="PID", type=_pids, help="a process, or several: PID,PID")
    common.add_pattern(parser)
    common.add_mode(parser)
    common.add_quiesce(parser)
    parser.add_argument("--duration", metavar="S", type=common.seconds, help="end after S seconds")
    parser.add_argument("--events", metavar="N", type=common.positive, help="end after N events")
    recording.add_probe(parser, ".c", ".py")
    recording.add_what(parser)
    recording.add_output(parser)
    parser.add_argument(
        "--resume", action="store_true", help="begin with what a reader left that died"
    )
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Stream until the end."""
    end = _End()
    if len(options.pids) > 1 and options.time == "none":
        raise markerjit.Refused("without a time (--time none) several processes have no order")
    if options.output:
        _check_output(options)
    callback = recording.callback_of(options.probe)
    if callback and options.output:
        raise markerjit.Refused("a function in Python is called with the events; leave out -o")
    with ExitStack() as stack:
        stack.callback(end.disarm)
        sessions = [
            stack.enter_context(markerjit.attach(pid, ring_size=options.ring_size))
            for pid in options.pids
        ]
        after = stack.enter_context(ExitStack())  # is left when the markers are off
        what = recording.what(options)
        mode = markerjit.Mode(options.mode) if options.mode else None
        streams = [
            stack.enter_context(
                session.trace(
                    options.pattern,
                    mode=mode,
                    quiesce=options.quiesce,
                    resume=options.resume,
                    **what,
                )
            )
            for session in sessions
        ]
        end.arm(streams, options.duration)
        for stream in streams:
            common.print_left_out(stream.unswitched)
        _say_what_was_dropped(streams)
        if callback:
            shown = _call(callback, streams, options)
        elif options.output:
            shown = 0
            _write_files(sessions, streams, options, end, after)
        elif len(streams) == 1:
            shown = _print_events(streams[0], options, end)
        else:
            shown = _print_merged(options.pids, streams, options, end)
    if options.output:
        shown = sum(stream.statistics().events for stream in streams)
    elif not options.events and not end.unread:
        rest = _rest(streams)
        if callback:
            for _, event in rest:
                callback(event)
        elif not _print_batch(options.pids, streams, rest, options, end):
            rest = []
        shown += len(rest)
    _print_summary(shown, streams, options, end)
    for session, stream in zip(sessions, streams, strict=True):
        if stream.dispossessed:
            raise markerjit.Refused(
                f"another controller took the rings of process {session.pid}: we did not read them "
                "for too long"
            )
        if stream.target_ended:
            raise markerjit.TargetGone(session.pid)
    return 0


def _say_what_was_dropped(streams: Sequence[markerjit.EventStream]) -> None:
    dropped = sum(stream.dropped_bytes for stream in streams)
    if dropped:
        common.say(
            f"{-(-dropped >> 10)} KiB of events that an earlier reader left were dropped; "
            "--resume begins with them",
            error=True,
        )


def _call(
    callback: Callable[[markerjit.Event], object],
    streams: Sequence[markerjit.EventStream],
    options: argparse.Namespace,
) -> int:
    """Have a function look at each event; returns how many."""
    shown = 0
    for batch in markerjit.merge(streams):
        for _, event in batch:
            callback(event)
            shown += 1
            if shown == options.events:
                return shown
            for stream in streams:
                stream.keep()  # a function that takes its time does not lose us the rings
    return shown


def _print_events(stream: markerjit.EventStream, options: argparse.Namespace, end: _End) -> int:
    """Print events until the end; returns how many."""
    to_line, shown = None, 0
    for batch in stream.batches():
        to_line = to_line or _formatter(stream, options)
        wanted = batch if options.events is None else batch[: options.events - shown]
        text = "".join(f"{to_line(event)}\n" for event in wanted)
        if not end.write(text.encode(errors="backslashreplace")):
            break
        shown += len(wanted)
        if shown == options.events:
            break
    return shown


def _formatter(
    stream: markerjit.EventStream, options: argparse.Namespace
) -> Callable[[markerjit.Event], str]:
    """As `read` has it. Asked for when there is an event: only then the clock is known."""
    return markerjit.line_formatter(stream.fields, json=options.json, clock=stream.clock())


def _print_merged(
    pids: Sequence[int],
    streams: Sequence[markerjit.EventStream],
    options: argparse.Namespace,
    end: _End,
) -> int:
    """The same of several processes: each line begins with the pid, each object has it."""
    shown = 0
    for batch in markerjit.merge(streams):
        wanted = batch if options.events is None else batch[: options.events - shown]
        if not _print_batch(pids, streams, wanted, options, end):
            break
        shown += len(wanted)
        if shown == options.events:
            break
    return shown


def _rest(streams: Sequence[markerjit.EventStream]) -> list[tuple[int, markerjit.Event]]:
    """What came while the markers were switched off."""
    found = [(number, event) for number, stream in enumerate(streams) for event in stream.drain()]
    if len(streams) > 1:
        found.sort(key=lambda one: one[1].time)
    return found


def _print_batch(
    pids: Sequence[int],
    streams: Sequence[markerjit.EventStream],
    batch: Sequence[tuple[int, markerjit.Event]],
    options: argparse.Namespace,
    end: _End,
) -> bool:
    formatters = [_formatter(stream, options) for stream in streams] if batch else []
    lines = [(pids[number], formatters[number](event)) for number, event in batch]
    if len(pids) == 1:
        text = "".join(f"{line}\n" for _, line in lines)
    else:
        text = "".join(common.line_of_process(*one, json=options.json) for one in lines)
    return end.write(text.encode(errors="backslashreplace"))


def _write_files(
    sessions: Sequence[markerjit.Session],
    streams: Sequence[markerjit.EventStream],
    options: argparse.Namespace,
    end: _End,
    closing: ExitStack,
) -> None:
    """Write a file, or for several processes a directory of traces. The files are ended by who
    leaves `closing`, when nothing more can come."""
    progress = recording.Progress()
    for stream in streams[1:]:
        stream.use_clock_of(streams[0])  # so that the traces have one order of time
    writers = []
    for session, stream in zip(sessions, streams, strict=True):
        writer = recording.Writer(session, stream, _path_for(session.pid, options), options)
        closing.callback(writer.close)
        writers.append(writer)
    while not end.wanted and not all(stream.is_over() for stream in streams):
        found = sum(writer.poll() for writer in writers)
        events = sum(stream.statistics().events for stream in streams)
        progress.show(events, sum(stream.statistics().lost for stream in streams))
        if options.events is not None and events >= options.events:
            break
        if not found:
            time.sleep(_POLL_S)
    progress.end()


def _path_for(pid: int, options: argparse.Namespace) -> str:
    if len(options.pids) == 1:
        return str(options.output)
    return os.path.join(options.output, f"pid-{pid}.ctf")


def _check_output(options: argparse.Namespace) -> None:
    """Before anything is switched on."""
    if len(options.pids) == 1:
        markerjit.check_output(options.output, force=options.force)
    elif options.output.rstrip("/").endswith(".ctf"):
        if not os.path.isdir(options.output):
            markerjit.check_output(options.output)
            os.mkdir(options.output)
        for pid in options.pids:
            markerjit.check_output(_path_for(pid, options), force=options.force)
    else:
        raise markerjit.Refused(
            "several processes are written as CTF: name a directory that ends in .ctf, and viewers "
            "show all of it in one order of time"
        )


class _End:
    """Signals end the stream. Their handlers stand before anything is switched on, so that none can
    end us in between and leave it on. They also end our waiting for a reader that reads no more."""

    def __init__(self) -> None:
        self.unread = False
        self.wanted = False
        self._streams: Sequence[markerjit.EventStream] = ()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                signal.signal(number, self._on_signal)

    def arm(self, streams: Sequence[markerjit.EventStream], duration: float | None) -> None:
        """From now on signals end these streams, and so does the time."""
        self._streams = streams
        if self.wanted:
            self._stop()
        if duration is not None:
            signal.setitimer(signal.ITIMER_REAL, duration)

    def disarm(self) -> None:
        """The time has no meaning any more. Its signal would end the interpreter while that ends by
        itself, when handlers are gone already."""
        signal.setitimer(signal.ITIMER_REAL, 0)

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
            elif self.wanted:
                self.unread = True
                return False
            else:
                for stream in self._streams:
                    stream.keep()  # a reader that pauses us does not lose us the rings
        return True

    def _on_signal(self, *_: object) -> None:
        self.wanted = True
        self._stop()

    def _stop(self) -> None:
        for stream in self._streams:
            stream.stop()


def _print_summary(
    shown: int,
    streams: Sequence[markerjit.EventStream],
    options: argparse.Namespace,
    end: _End,
) -> None:
    seen = [stream.statistics() for stream in streams]
    lost = sum(one.lost for one in seen)
    left_out = sum(stream.left_out for stream in streams) if options.resume else 0
    if left_out:
        common.say(
            f"{left_out} events that an earlier reader left were recorded with another time or "
            "thread id, and are left out",
            error=True,
        )
    bad, damaged = (sum(one[index] for one in seen) for index in (2, 3))
    if bad or damaged:
        common.say(
            f"{bad} records and {damaged} rings made no sense; "
            "is the process overwriting its memory?",
            error=True,
        )
    if end.unread:
        common.say("our output is not read: what came last is not shown", error=True)
    if options.json and not end.unread:
        summary: common.Json = {"events": shown, "lost": lost}
        unswitched = [marker for stream in streams for marker in stream.unswitched]
        if unswitched:
            summary["left_out"] = common.left_out_json(unswitched)
        common.print_json({"summary": summary})
        return
    where = f" in {options.output}" if options.output else ""
    common.say(f"{common.counted(shown, 'event')}{where}, {lost} lost", error=True)
    if lost:
        for stream in streams:
            recording.print_losses(stream.lost())
        common.say(
            "lost events found their ring full: trace fewer markers, or use a larger --ring-size",
            error=True,
        )


def _pids(text: str) -> list[int]:
    pids = [common.process_id(one) for one in text.split(",")]
    if len({*pids}) < len(pids):
        raise argparse.ArgumentTypeError(f"{text} names a process twice")
    return pids

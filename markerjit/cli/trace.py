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
_LOOK_UP_MS = 20
_POLL_S = 0.02
_AT_ONCE = 1000
_AFTERWARDS = 50_000
"""So many events are printed at most when the markers are off: who wants all writes a file."""


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
        taken = _Taken(options.pids, streams)
        if options.output:
            _write_files(sessions, streams, options, end, taken, after)
        else:
            shown = _Shown(options, streams, callback, end)
            shown.until_the_end(taken)
    taken.tell()
    if not options.output:
        shown.rest()
        count = shown.count, shown.left_out
    else:
        count = sum(stream.statistics().events for stream in streams), 0
    _print_summary(*count, streams, options, end)
    for session, stream in zip(sessions, streams, strict=True):
        if stream.dispossessed:
            raise markerjit.Refused(
                f"another controller took the rings of process {session.pid}: we did not read them "
                "for too long"
            )
        if stream.all_taken:
            raise markerjit.Refused(
                f"another controller took all markers of this trace of process {session.pid}"
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


class _Taken:
    """Says of each marker once that somebody else has taken it."""

    def __init__(self, pids: Sequence[int], streams: Sequence[markerjit.EventStream]) -> None:
        self._streams = dict(zip(pids, streams, strict=True))
        self._told: set[tuple[int, str]] = set()

    def tell(self) -> None:
        """Look, and say what is new."""
        for pid, stream in self._streams.items():
            for marker in stream.statistics().taken:
                if (pid, marker) not in self._told:
                    self._told.add((pid, marker))
                    common.say(
                        f"markerjit: another controller took {marker} of process {pid}: its "
                        "events end here",
                        error=True,
                    )


class _Shown:
    """Events that are printed, or that a function looks at: a part at a time, so that an end never
    waits for what is to be shown. `count` were shown, `left_out` were recorded and not shown."""

    def __init__(
        self,
        options: argparse.Namespace,
        streams: Sequence[markerjit.EventStream],
        callback: Callable[[markerjit.Event], object] | None,
        end: _End,
    ) -> None:
        self.count = self.left_out = 0
        self._options = options
        self._streams = streams
        self._callback = callback
        self._end = end
        self._merger = markerjit.Merger(streams)
        self._formatters: list[Callable[[markerjit.Event], str]] = []
        self._unseen: list[markerjit.Merged] = []

    def until_the_end(self, taken: _Taken) -> None:
        """Show events while the markers are on."""
        while not self._end.wanted and not self._merger.over and not self._is_enough():
            batch = self._merger.poll(_AT_ONCE)
            taken.tell()
            if batch:
                self._show(batch)
            else:
                time.sleep(_POLL_S)

    def rest(self) -> None:
        """Show what came until the markers were off; but not for as long as it may take."""
        self._end.markers_are_off()
        self._merger.find_rest()
        unseen, self._unseen = self._unseen, []
        self._show(unseen)
        most = sys.maxsize if self._callback else _AFTERWARDS
        while most > 0 and not self._is_enough() and not self._end.hurried:
            batch = self._merger.hand_out(min(_AT_ONCE, most))
            if not batch:
                break
            most -= len(batch)
            self._show(batch)
        unwritten = self._end.unwritten()
        self.count -= unwritten
        self.left_out += unwritten + len(self._unseen) + self._merger.waiting

    def _is_enough(self) -> bool:
        return bool(self._options.events) and self.count >= self._options.events

    def _show(self, batch: Sequence[markerjit.Merged]) -> None:
        most = len(batch) if self._options.events is None else self._options.events - self.count
        wanted = batch[:most]
        self.left_out += len(batch) - len(wanted)
        if self._callback:
            self._call(self._callback, wanted)
        elif wanted:
            self.count += len(wanted)
            self._end.write(self._text(wanted).encode(errors="backslashreplace"))

    def _call(
        self, callback: Callable[[markerjit.Event], object], batch: Sequence[markerjit.Merged]
    ) -> None:
        for at, (_, event) in enumerate(batch):
            if self._end.is_now:
                self._unseen += batch[at:]
                return
            callback(event)
            self.count += 1
            for stream in self._streams:
                stream.keep()  # a function that takes its time does not lose us the rings

    def _text(self, batch: Sequence[markerjit.Merged]) -> str:
        """Lines as `read` has them; of several processes each begins with the pid, each object has
        it. Only when there is an event the clock is known."""
        if not self._formatters:
            self._formatters = [
                markerjit.line_formatter(
                    stream.fields, json=self._options.json, clock=stream.clock()
                )
                for stream in self._streams
            ]
        pids = self._options.pids
        lines = [(pids[number], self._formatters[number](event)) for number, event in batch]
        if len(pids) == 1:
            return "".join(f"{line}\n" for _, line in lines)
        json = self._options.json
        return "".join(common.line_of_process(pid, line, json=json) for pid, line in lines)


def _write_files(
    sessions: Sequence[markerjit.Session],
    streams: Sequence[markerjit.EventStream],
    options: argparse.Namespace,
    end: _End,
    taken: _Taken,
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
        found = 0
        for writer in writers:
            found += not end.wanted and writer.poll()
        taken.tell()
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
    end us in between and leave it on. They also end our waiting for a reader that reads no more: we
    come back to what is not written when the markers are off. A second signal ends that, too."""

    def __init__(self) -> None:
        self.unread = False
        self._signals = 0
        self._off = False
        self._data = b""
        self._cut = False
        self._streams: Sequence[markerjit.EventStream] = ()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                signal.signal(number, self._on_signal)

    @property
    def wanted(self) -> bool:
        """Whether the end has come."""
        return self._signals > 0

    @property
    def hurried(self) -> bool:
        """Whether it was asked for again."""
        return self._signals > 1

    @property
    def is_now(self) -> bool:
        """Whether to let go of what is being done: for switching off, and then for good."""
        return self.hurried if self._off else self.wanted

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

    def markers_are_off(self) -> None:
        """There is time now, as long as somebody reads."""
        self.disarm()
        self._off = True

    def write(self, data: bytes) -> None:
        """Write it all, past Python's buffer, which would be flushed when we end; unless that is
        now. What is not written then comes with the next call."""
        self._data += data
        output = sys.stdout.fileno()
        ready = select.poll()
        ready.register(output, select.POLLOUT)
        while self._data and not self.is_now and not self.unread:
            if ready.poll(_READER_MS if self._off else _LOOK_UP_MS):
                # So much never waits once poll says that there is room: pipe(7).
                written = os.write(output, self._data[: select.PIPE_BUF])
                self._cut = self._data[written - 1 : written] != b"\n"
                self._data = self._data[written:]
            elif self._off and self.wanted:
                self.unread = True
            else:
                for stream in self._streams:
                    stream.keep()  # a reader that pauses us does not lose us the rings

    @property
    def separator(self) -> str:
        """What has to stand before another line."""
        return "\n" if self._cut else ""

    def unwritten(self) -> int:
        """Lines that were to be written and are not."""
        return self._data.count(b"\n")

    def _on_signal(self, *_: object) -> None:
        self._signals += 1
        self._stop()

    def _stop(self) -> None:
        for stream in self._streams:
            stream.stop()


def _print_summary(
    shown: int,
    left_out: int,
    streams: Sequence[markerjit.EventStream],
    options: argparse.Namespace,
    end: _End,
) -> None:
    seen = [stream.statistics() for stream in streams]
    lost = sum(one.lost for one in seen)
    others = sum(stream.left_out for stream in streams) if options.resume else 0
    if others:
        common.say(
            f"{others} events that an earlier reader left were recorded with another time or "
            "thread id, and are left out",
            error=True,
        )
    bad = sum(one.bad_records for one in seen)
    damaged = sum(one.damaged_rings for one in seen)
    if bad or damaged:
        common.say(
            f"{bad} records and {damaged} rings made no sense; "
            "is the process overwriting its memory?",
            error=True,
        )
    if end.unread:
        common.say("our output is not read: what came last is not shown", error=True)
    if left_out and not options.events:
        common.say(
            f"{common.counted(left_out, 'more event')} were recorded and not printed: "
            "-o FILE keeps all of them",
            error=True,
        )
    if options.json and not end.unread:
        taken = [name for one in seen for name in one.taken]
        summary: common.Json = {
            "events": shown,
            "lost": lost,
            "not_shown": left_out,
            "taken": taken,
        }
        unswitched = [marker for stream in streams for marker in stream.unswitched]
        if unswitched:
            summary["left_out"] = common.left_out_json(unswitched)
        sys.stdout.write(end.separator)
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

"""What `trace`, `record` and `dump` share: what is recorded of an event, and files of events."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import markerjit
from markerjit.cli import arguments, files, output, signals
from markerjit.facts.process import picture_facts
from markerjit.printable import counted

_PROGRESS_S = 1.0
_AT_ONCE = 10_000
"""So many events are written into a file before somebody looks whether that is the end."""


def add_what(parser: argparse.ArgumentParser) -> None:
    """What is recorded of an event, and how much room there is for it."""
    parser.add_argument(
        "--time",
        choices=("tsc", "monotonic", "coarse", "none"),
        help="where an event's time comes from: the time stamp counter (default, where it can be "
        "used), the system's clocks, or nowhere: then only the order on each CPU is known, and it "
        "costs least",
    )
    parser.add_argument(
        "--no-thread-id", action="store_true", help="do not record which thread it was"
    )
    parser.add_argument(
        "--fields",
        metavar="A,B",
        type=_fields,
        help="record only these fields (default: all)",
    )
    parser.add_argument(
        "--text",
        metavar="BYTES",
        type=arguments.positive,
        help="the most bytes of a string (default 256)",
    )
    parser.add_argument(
        "--ring-size",
        metavar="MIB",
        type=_mebibytes,
        help="room for records per CPU, a power of two (default: what the process has, or 1)",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """A file for the events."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=arguments.file_name,
        help="write the events to FILE; its suffix says how: .ctf/ .ctf2/ (directories), .parquet, "
        ".arrow, .pftrace (Perfetto), .json (Chrome), .jsonl, .txt",
    )
    parser.add_argument("--force", action="store_true", help="overwrite FILE")


def add_probe(parser: argparse.ArgumentParser, *known: str) -> None:
    """Who decides what is recorded."""
    parser.add_argument(
        "--probe",
        metavar="FILE:FUNCTION",
        type=one_of("record", *known),
        default="record",
        help="FILE.c: a probe in C, inside the process; what it emits is traced, and not the "
        "markers themselves. FILE.py (trace): a function that is called with each event, here",
    )


def one_of(*known: str) -> Callable[[str], str]:
    """An argument that is the name of a probe, or a function of a FILE with a suffix."""

    def checked(text: str) -> str:
        file, _, function = text.rpartition(":")
        if text in known or (file.endswith(known) and "." in file and function.isidentifier()):
            return text
        names = [f"FILE{one}:FUNCTION" if one.startswith(".") else one for one in known]
        raise argparse.ArgumentTypeError(f"'{text}' is no probe; there are {', '.join(names)}")

    return checked


def probe_of(text: str) -> str | markerjit.Compiled:
    """The probe that is meant, one in C compiled; what the compiler warns of goes to standard
    error."""
    if ".c:" not in text:
        return text
    with signals.Raised():  # the compiler's folder is taken away
        compiled = markerjit.compiled_probe(text)
    assert compiled
    if compiled.warnings:
        for line in compiled.warnings.rstrip().split("\n"):
            output.say(line, error=True)
    return compiled


def callback_of(text: str) -> Callable[[markerjit.Event], object] | None:
    """The function of `FILE.py:function`; None where none is meant."""
    file, _, name = text.rpartition(":")
    if not file.endswith(".py"):
        return None
    import runpy

    files.check_file(file)
    function = _with_own_frames(runpy.run_path, file, file).get(name)
    if not callable(function):
        raise markerjit.Refused(f"{file} has no function {name}")
    return lambda event: _with_own_frames(function, event, file)


def _with_own_frames(function: Callable[..., Any], argument: object, file: str) -> Any:
    """Call what somebody wrote in a file. An exception is shown from its first frame in that file
    on, and Refused is raised in its place."""
    try:
        return function(argument)
    except BrokenPipeError:  # it prints, and nobody reads
        raise
    except Exception as error:
        import traceback

        frames = error.__traceback__
        while frames and frames.tb_frame.f_code.co_filename != file:
            frames = frames.tb_next
        for line in "".join(traceback.format_exception(None, error, frames)).splitlines():
            output.say(line, error=True)
        raise markerjit.Refused(f"{file} raised {type(error).__name__}") from None


def what(options: argparse.Namespace) -> dict[str, Any]:
    """The same for `Session.trace` and `Session.record`."""
    in_python = ".py:" in options.probe
    given = (options.time, options.no_thread_id, options.fields, options.text)
    if ".c:" in options.probe and any(given):
        raise markerjit.Refused(
            "what a probe in C emits is recorded whole, with the time stamp counter and the thread "
            "id: leave out --time, --no-thread-id, --fields and --text"
        )
    text = {"text": options.text} if options.text else {}
    return text | {
        "probe": "record" if in_python else probe_of(options.probe),
        "time": options.time,
        "thread_id": not options.no_thread_id,
        "fields": options.fields,
    }


class Writer:
    """The file of one stream, while it is written."""

    def __init__(
        self,
        session: markerjit.Session,
        stream: markerjit.EventStream,
        path: str,
        options: argparse.Namespace,
    ) -> None:
        info = session.trace_info(tuple(stream.types.values()), stream.clock())
        self._stream = stream
        self._sink = markerjit.open_sink(path, info, force=options.force)

    def poll(self) -> bool:
        """Write what is new, or a part of it, so that nobody waits long for us; whether there was
        something."""
        return self._write(partial(self._stream.poll_batch, most=_AT_ONCE))

    def close(self) -> None:
        """Write what is left in the rings, and end the file: as well as can be where the disk is
        full."""
        try:
            if self._stream.keep():
                self._write(self._stream.rest)
        finally:
            self._sink.close(self._stream.lost())

    def _write(self, take: Callable[..., markerjit.Batch | None]) -> bool:
        packets = markerjit.takes_packets(self._sink)
        batch = take(packets=packets, columns=not packets)
        if batch:
            self._sink.write(batch)
        return batch is not None


class Progress:
    """A line on standard error that is written anew every second, where a person sees it."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._begun = self._last = time.monotonic()

    def show(self, events: int, lost: int) -> None:
        """Once a second."""
        now = time.monotonic()
        if self._shown and now - self._last >= _PROGRESS_S:
            self._last = now
            since = now - self._begun
            text = f"{since:.0f} s, {counted(events, 'event')}, {lost} lost"
            output.print_progress(text)

    def end(self) -> None:
        """Leave the line."""
        if self._shown:
            output.print_progress("")


def print_losses(lost: Mapping[tuple[int, str], int]) -> None:
    """Which markers lost events, the worst first."""
    by_marker: dict[str, int] = {}
    for (_, marker), count in lost.items():
        by_marker[marker] = by_marker.get(marker, 0) + count
    for marker, count in sorted(by_marker.items(), key=lambda one: -one[1])[:5]:
        output.say(f"  {marker} lost {count}", error=True)


def write_picture(
    session: markerjit.Session, flight: markerjit.Flight, options: argparse.Namespace
) -> markerjit.Picture:
    """What a flight recorder has, into the file. Raises MarkerError where the disk is full."""
    picture = flight.picture()
    info = session.trace_info(tuple(flight.types.values()), picture.clock)
    try:
        sink = markerjit.open_sink(options.output, info, force=options.force)
        try:
            sink.write(picture.batch)
        finally:
            sink.close(picture.batch.lost)
    except OSError as error:
        if error.errno not in files.DISK_ERRORS:
            raise  # a bug of ours
        raise markerjit.MarkerError(
            f"{options.output}: {error.strerror}; it has at most a part of what process "
            f"{options.pid} had recorded"
        ) from error
    return picture


def print_picture(picture: markerjit.Picture, options: argparse.Namespace) -> None:
    """What was saved, and what was not."""
    facts = picture_facts(options.output, picture)
    if options.json:
        output.print_json(facts)
        return
    keys = ("name", "events", "overwritten", "lost")
    rows = [[str(marker[key]) for key in keys] for marker in facts["markers"]]
    if rows:
        output.print_table(("MARKER", "EVENTS", "OVERWRITTEN", "LOST"), rows)
    events = sum(marker["events"] for marker in facts["markers"])
    output.say(f"{counted(events, 'event')} in {options.output}")


def _fields(text: str) -> tuple[str, ...]:
    fields = tuple(text.split(","))
    if not all(fields):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of fields, such as key,size")
    return fields


def _mebibytes(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number.bit_count() != 1 or number > 1024:
        raise argparse.ArgumentTypeError(f"'{text}' is not a power of two up to 1024")
    return number << 20

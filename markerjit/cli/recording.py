"""Recording, as `trace` and `flight` share it: probes, the parts of an event that are recorded, and
files of events."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import markerjit
from markerjit.cli import arguments, files, output, signals
from markerjit.facts.process import picture_facts
from markerjit.printable import counted
from markerjit.tuples import NamedTuple

SUFFIXES = {
    "text": ".txt",
    "jsonl": ".jsonl",
    "arrow": ".arrow",
    "ctf": ".ctf",
    "ctf2": ".ctf2",
    "perfetto": ".pftrace",
    "chrome": ".json",
    "parquet": ".parquet",
}
"""The formats that --format names, and how files of them end."""
_PROGRESS_S = 1.0
_MOST_PER_S = 10_000_000
_MOST_GROWTH_MIB = 1 << 20
_DEPTH, _MOST_DEPTH = 64, 256
"""Frames of a stack."""
_AT_ONCE = 10_000
"""Events that are written into a file at once. Between two pieces the end is looked for."""


def add_parts(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the parts of an event, and the size of the rings."""
    parser.add_argument(
        "--time",
        choices=("tsc", "monotonic", "coarse", "none"),
        help="the clock of the events: tsc, the time stamp counter (default, if it can be used); "
        "monotonic or coarse, the system's; none, which costs least and keeps only the order on "
        "each CPU",
    )
    parser.add_argument("--no-thread-id", action="store_true", help="do not record the thread id")
    arguments.add_fields(parser, "record only these fields (default: all)")
    parser.add_argument(
        "--text",
        metavar="BYTES",
        type=arguments.positive,
        help="the most bytes of a string (default 256)",
    )
    add_strings(parser)
    add_where(parser)
    add_brakes(parser)
    parser.add_argument(
        "--select",
        metavar="EXPRS",
        help="record named expressions in place of the fields, such as 'ms=dur/1e6, key'; they are "
        "computed in the process",
    )
    add_stack(parser)
    add_ring_size(parser)


def add_stack(parser: argparse.ArgumentParser) -> None:
    """Add --stack."""
    parser.add_argument(
        "--stack",
        metavar="DEPTH",
        nargs="?",
        const=_DEPTH,
        type=_depth,
        help=f"record the stack of each event, of at most DEPTH frames, up to {_MOST_DEPTH} "
        f"(default {_DEPTH})",
    )


def add_ring_size(parser: argparse.ArgumentParser) -> None:
    """Add --ring-size."""
    arguments.section(parser, arguments.HOW).add_argument(
        "--ring-size",
        metavar="MIB",
        type=_mebibytes,
        help="room for records for each CPU, a power of two, such as 4MiB (default: what the "
        "process has, or 1)",
    )


def add_strings(parser: argparse.ArgumentParser) -> None:
    """Add --strings."""
    arguments.section(parser, arguments.HOW).add_argument(
        "--strings",
        choices=("fast", "careful"),
        help="how strings are read. fast: from pages that could be read within the last "
        "millisecond (default); careful: in memory transactions if the processor has them, and "
        "otherwise by the kernel, with a system call for each string",
    )


def add_where(parser: argparse.ArgumentParser) -> None:
    """Add --where, a condition that is asked in the process."""
    parser.add_argument(
        "--where",
        metavar="EXPR",
        help="only events that meet a condition, such as 'size > 100'; it is evaluated in the "
        "process, before the probe",
    )


def add_brakes(parser: argparse.ArgumentParser) -> None:
    """Add --sample and --at-most."""
    parser.add_argument(
        "--sample",
        metavar="PART",
        type=_sample,
        help="only a share of the events, such as 1/100, chosen at random in the process after "
        "--where",
    )
    parser.add_argument(
        "--at-most",
        metavar="RATE",
        type=_rate,
        help="at most this many events of each marker in any second, such as 1000/s; the others "
        "are held back in the process, and counted as held back",
    )


def add_budget(parser: argparse.ArgumentParser) -> None:
    """Add --budget."""
    parser.add_argument(
        "--budget",
        metavar="PERCENT",
        help="the share of the process's processor time that the probes may take, such as 1%%. "
        "Beyond it they are thinned, and at last switched off",
    )


def _depth(text: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= _MOST_DEPTH:
        return int(text)
    raise argparse.ArgumentTypeError(
        f"'{text}' is not a number of frames from 1 to {_MOST_DEPTH}; if another word follows "
        f"--stack, write --stack={_DEPTH}"
    )


def refuse_brakes_of_c(options: argparse.Namespace) -> None:
    """Raise Refused for brakes before a probe in C."""
    for option, value in {"--sample": options.sample, "--at-most": options.at_most}.items():
        if options.probe.is_in_c and value is not None:
            raise markerjit.Refused(f"a probe in C chooses what it emits; leave out {option}")


def _sample(text: str) -> str:
    try:
        return str(markerjit.Sample.of(text))
    except markerjit.BadArgument:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a share such as 1/100, above 0 and at most 1"
        ) from None


def _rate(text: str) -> int:
    digits, slash, unit = text.partition("/")
    if not slash or unit == "s":
        with suppress(argparse.ArgumentTypeError):
            number = arguments.positive(digits)
            if number <= _MOST_PER_S:
                return number
    raise argparse.ArgumentTypeError(
        f"'{text}' is not a rate such as 1000/s or 10k/s, from 1 to {_MOST_PER_S}"
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add -o, the file for the events, and --force."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=arguments.file_name,
        help="write the events to FILE, in the format of its suffix: .ctf/ .ctf2/ (directories), "
        ".parquet, .arrow, .pftrace (Perfetto), .json (Chrome), .jsonl, .txt; - is standard output",
    )
    add_format(parser)
    parser.add_argument("--force", action="store_true", help="overwrite FILE")


def add_format(parser: argparse.ArgumentParser) -> None:
    """Add --format, for -o -, or a template for the lines that are printed."""
    parser.add_argument(
        "--format",
        metavar="FORMAT",
        type=_format,
        help="with -o -, the format: text (default), jsonl, arrow, ctf or ctf2 (a tar archive), "
        "perfetto, chrome, parquet. Otherwise a template for the lines that are printed, such as "
        "'{time} {name} {fields.key}'",
    )


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add --columns, the parts of the lines that are printed."""
    parser.add_argument(
        "--columns",
        metavar="C,D",
        type=_columns,
        help="print these parts of each event: time, date, since (the first event), delta (since "
        "the last one of the thread), cpu, tid, pid, name, source, fields, fields.NAME",
    )


def template_of(options: argparse.Namespace) -> markerjit.LineTemplate | None:
    """The template of the lines that are printed; None for the usual ones. Raises Refused for one
    that makes no sense, or has nothing to print."""
    text = options.format if "{" in (options.format or "") else None
    columns = options.columns
    if columns and arguments.is_preset(options, "columns"):
        is_else = options.json or options.output or getattr(options, "stats", False)
        columns = None if is_else or text else columns
    if text is None and columns is None:
        return None
    given = "--format" if text else "--columns"
    if text and columns:
        raise markerjit.Refused("--columns and a template both arrange a line; leave out one")
    for option, is_given in {
        "--json": options.json, "-o": options.output, "--stats": getattr(options, "stats", False),
    }.items():  # fmt: skip
        if is_given:
            raise markerjit.Refused(f"{given} is for lines that are printed; leave out {option}")
    if text:
        return markerjit.LineTemplate(text)
    return markerjit.LineTemplate.of_columns(columns)


def _format(text: str) -> str:
    if "{" in text or text in SUFFIXES:
        return text
    raise argparse.ArgumentTypeError(
        f"{text!r} is neither a template such as '{{time}} {{name}} {{fields}}' nor one of "
        f"{', '.join(SUFFIXES)}"
    )


def _columns(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(
            f"{text!r} has an empty name in it; columns are such as time,name,fields.size"
        )
    return names


def add_probe(parser: argparse.ArgumentParser, *suffixes: str) -> None:
    """Add --probe, for functions of files with these suffixes."""
    parser.add_argument(
        "--probe",
        metavar="FILE:FUNCTION",
        type=probe_name("record", *suffixes),
        default="record",
        help="FILE.c: a probe in C, which runs inside the process; the events that it emits are "
        "traced, and the markers themselves are not. FILE.py (trace only): a function that this "
        "command calls with each event",
    )


class Choice(NamedTuple):
    """A probe as an argument names it: one of the runtime's, or a function of a file."""

    name: str
    file: str = ""
    function: str = ""

    @property
    def is_in_c(self) -> bool:
        """Whether the probe runs inside the process."""
        return self.file.endswith(".c")

    @property
    def is_in_python(self) -> bool:
        """Whether the probe runs here, with each event."""
        return self.file.endswith(".py")


def probe_name(*probes: str) -> Callable[[str], Choice]:
    """The type of an argument that names a probe: one of `probes`, or, for those that are a suffix,
    `FILE.suffix:FUNCTION`."""

    def checked(text: str) -> Choice:
        if text in probes:
            return Choice(text)
        file, _, function = text.rpartition(":")
        if file.endswith(probes) and "." in file and function.isidentifier():
            return Choice(text, file, function)
        names = [f"FILE{probe}:FUNCTION" if probe.startswith(".") else probe for probe in probes]
        raise argparse.ArgumentTypeError(f"'{text}' is not a probe; there are {', '.join(names)}")

    return checked


def probe_of(choice: Choice) -> str | markerjit.Compiled:
    """The probe that an argument names. A probe in C is compiled, and warnings of the compiler go
    to standard error. A probe in Python gets what is recorded."""
    if choice.is_in_python:
        return "record"
    if not choice.is_in_c:
        return choice.name
    with signals.Raised():  # removes the compiler's folder
        compiled = markerjit.compiled_probe(choice.name)
    assert compiled
    if compiled.warnings:
        for line in compiled.warnings.rstrip().split("\n"):
            output.say(line, error=True)
    return compiled


def callback_of(choice: Choice) -> Callable[[markerjit.Event], object] | None:
    """The function of `FILE.py:function`, None for any other probe."""
    if not choice.is_in_python:
        return None
    _, file, name = choice
    import runpy

    files.check_file(file)
    function = _with_own_frames(runpy.run_path, file, file).get(name)
    if not callable(function):
        raise markerjit.Refused(f"{file} has no function {name}")
    return lambda event: _with_own_frames(function, event, file)


def _with_own_frames(function: Callable[..., Any], argument: object, file: str) -> Any:
    """Call a function of a user's file. Its exception is shown from the first frame in that file
    on, and Refused is raised in its place."""
    try:
        return function(argument)
    except BrokenPipeError:  # it prints, and the reader of our output is gone
        raise
    except Exception as error:
        import traceback

        frames = error.__traceback__
        while frames and frames.tb_frame.f_code.co_filename != file:
            frames = frames.tb_next
        for line in "".join(traceback.format_exception(None, error, frames)).splitlines():
            output.say(line, error=True)
        raise markerjit.Refused(f"{file} raised {type(error).__name__}") from None


def parts(options: argparse.Namespace) -> dict[str, Any]:
    """The probe and the parts of an event, as arguments of `Session.trace` and `Session.record`.
    Raises Refused for a choice of parts with a probe in C."""
    chosen = (options.time, options.no_thread_id, options.fields, options.text, options.strings)
    if options.probe.is_in_c and options.where is not None:
        raise markerjit.Refused("a probe in C has its own conditions; leave out --where")
    refuse_brakes_of_c(options)
    if options.probe.is_in_c and options.select is not None:
        raise markerjit.Refused("a probe in C chooses what it emits; leave out --select")
    if options.probe.is_in_c and options.stack is not None:
        raise markerjit.Refused("a probe in C chooses what it emits; leave out --stack")
    if options.select is not None and options.fields:
        raise markerjit.Refused("a selection is in place of the fields; leave out --fields")
    if options.probe.is_in_c and any(chosen):
        raise markerjit.Refused(
            "events of a probe in C are recorded whole, with the time stamp counter and the thread "
            "id; leave out --time, --no-thread-id, --fields, --text and --strings"
        )
    text = {"text": options.text} if options.text else {}
    return text | {
        "probe": probe_of(options.probe),
        "time": options.time,
        "thread_id": not options.no_thread_id,
        "fields": options.fields,
        "strings": options.strings or "fast",
        "where": options.where,
        "select": options.select,
        "sample": options.sample,
        "at_most": options.at_most,
        "stack": options.stack,
    }


class Writer:
    """Writes the events of one stream into a file."""

    def __init__(
        self,
        session: markerjit.Session,
        stream: markerjit.EventStream,
        path: str,
        options: argparse.Namespace,
        quota: Quota,
    ) -> None:
        info = session.trace_info(tuple(stream.types.values()), stream.clock())
        self._stream = stream
        self._quota = quota
        self._sink = markerjit.open_sink(
            path, info, force=options.force, of_columns=quota.is_bounded
        )

    def poll(self) -> bool:
        """Write new events, not too many at once. Returns whether there were any."""
        return self._write(partial(self._stream.poll_batch, most=_AT_ONCE))

    def close(self) -> None:
        """Write the events that are left in the rings, and end the file, as well as a full disk
        allows."""
        try:
            if self._stream.keep():
                self._write(self._stream.rest)
        finally:
            self._sink.close(self._stream.lost())

    def _write(self, take: Callable[..., markerjit.Batch | None]) -> bool:
        packets = markerjit.takes_packets(self._sink)
        batch = take(packets=packets, columns=not packets)
        if batch:
            self._sink.write(self._quota.of(batch))
        return batch is not None


class Quota:
    """The most events that the files of a trace may have together, -n; None for any number."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._written = 0

    @property
    def is_bounded(self) -> bool:
        """Whether there is such a number."""
        return self._most is not None

    @property
    def is_used_up(self) -> bool:
        """Whether the files have as many."""
        return self._most is not None and self._written >= self._most

    def count(self, read: int) -> int:
        """The number of events in files, of so many that were read."""
        return read if self._most is None else self._written

    def of(self, batch: markerjit.Batch) -> markerjit.Batch:
        """What may be written of a batch: its first records."""
        if self._most is None:
            return batch
        batch = batch.first(self._most - self._written)
        self._written += batch.records
        return batch


def close_all(writers: Iterable[Writer]) -> None:
    """Close all of them, also where one raises OSError, which is raised then."""
    with ExitStack() as stack:
        for writer in writers:
            stack.callback(writer.close)


class Progress:
    """A line on standard error that is replaced every second. Only a terminal gets it."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._begun = self._last = time.monotonic()

    def show(self, events: int, lost: int) -> None:
        """Replace the line, if a second has passed."""
        now = time.monotonic()
        if self._shown and now - self._last >= _PROGRESS_S:
            self._last = now
            since = now - self._begun
            text = f"{since:.0f} s, {counted(events, 'event')}, {lost:,} lost"
            output.print_progress(text)

    def end(self) -> None:
        """Remove the line."""
        if self._shown:
            output.print_progress("")


def print_losses(lost: Mapping[tuple[int, str], int]) -> None:
    """Name the five markers that lost most events."""
    by_marker: dict[str, int] = {}
    for (_, marker), count in lost.items():
        by_marker[marker] = by_marker.get(marker, 0) + count
    for marker, count in sorted(by_marker.items(), key=lambda loss: -loss[1])[:5]:
        output.say(f"  {marker} lost {count:,}", error=True)


def write_picture(
    session: markerjit.Session, flight: markerjit.Flight, path: str, *, force: bool
) -> markerjit.Picture:
    """Save a picture of a flight recorder. Raises MarkerError where the disk is full."""
    picture = flight.picture()
    info = session.trace_info(tuple(flight.types.values()), picture.clock)
    try:
        sink = markerjit.open_sink(path, info, force=force)
        try:
            sink.write(picture.batch)
        finally:
            sink.close(picture.batch.lost)
    except OSError as error:
        if error.errno not in files.DISK_ERRORS:
            raise  # a bug of ours
        raise markerjit.MarkerError(
            f"{path}: {error.strerror}; the file has at most a part of what process "
            f"{session.pid} had recorded"
        ) from error
    return picture


def print_picture(picture: markerjit.Picture, options: argparse.Namespace) -> None:
    """Say how many events of each marker were saved, and how many were not."""
    if getattr(options, "is_on_output", False):
        events = sum(marker.events for marker in picture.kept.values())
        output.say(f"{counted(events, 'event')} on standard output", error=True)
        return
    facts = picture_facts(options.output, picture)
    if options.json:
        output.print_json(facts)
        return
    keys = ("events", "overwritten", "lost")
    rows = [[marker["name"], *(f"{marker[key]:,}" for key in keys)] for marker in facts["markers"]]
    if rows:
        output.print_table(("MARKER", "EVENTS", "OVERWRITTEN", "LOST"), rows)
    events = sum(marker["events"] for marker in facts["markers"])
    output.say(f"{counted(events, 'event')} in {options.output}")


def add_growth(parser: argparse.ArgumentParser) -> None:
    """Add --ring-growth."""
    arguments.section(parser, arguments.HOW).add_argument(
        "--ring-growth",
        metavar="MIB",
        type=_growth,
        help="the memory by which all rings together may grow while this command falls behind, up "
        "to 16 MiB a ring; given back at the end (default 64; 0: none)",
    )


def _growth(text: str) -> int:
    number = arguments.mebibytes(text)
    if number is None or number > _MOST_GROWTH_MIB:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a number of MiB up to {_MOST_GROWTH_MIB}, such as 64 or 64MiB"
        )
    return number << 20


def _mebibytes(text: str) -> int:
    number = arguments.mebibytes(text)
    if number is None or number.bit_count() != 1 or number > 1024:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a power of two of MiB up to 1024, such as 4 or 4MiB"
        )
    return number << 20

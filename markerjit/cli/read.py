"""`markerjit read FILE`: a trace in a file, printed, summed up or converted."""

from __future__ import annotations

import argparse
import heapq
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING

import markerjit
from markerjit.cli import arguments, output, pager, progress, signals
from markerjit.cli.directories import Directory
from markerjit.cli.recording import add_columns, add_format, template_of
from markerjit.cli.selected import add_selection, computed, selected
from markerjit.cli.streamed import saved_to_standard_output
from markerjit.printable import counted

if TYPE_CHECKING:
    from markerjit import MarkerSummary, NumberSummary, Summary, Trace, ValueSummary

_LINES_AT_ONCE = 2000
_TEXT_SHOWN = 40
_FLAMES = (".html", ".svg", ".speedscope.json", ".folded", ".collapsed")


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "file",
        metavar="FILE",
        type=arguments.file_name,
        help="a trace, in the format of its suffix; or -, for standard input",
    )
    parser.add_argument(
        "--marker", metavar="PATTERN", help="only markers that match, such as 'kv_*,!kv_hit'"
    )
    add_selection(parser)
    arguments.add_fields(parser, "only these fields of each event (default: all)")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--stats", action="store_true", help="sum up each marker, print no events")
    group.add_argument(
        "-o",
        "--output",
        metavar="OTHER",
        type=arguments.file_name,
        help="convert it to the format of this suffix; - is standard output. .html or .svg (a "
        "flame graph), .speedscope.json and .folded are for the stacks that its events have",
    )
    group.add_argument(
        "-n", "--events", metavar="N", type=arguments.positive, help="print at most N events"
    )
    add_format(parser)
    add_columns(parser)
    parser.add_argument("--force", action="store_true", help="overwrite OTHER")
    parser.add_argument(
        "--no-pager",
        dest="pager",
        action="store_false",
        help="print events on a terminal without a pager (MARKERJIT_PAGER, PAGER, or less)",
    )
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print, sum up or convert the trace."""
    if options.file != "-":
        return _read(options, options.file)
    from markerjit.cli.standard_input import spooled

    with signals.Raised(), spooled() as path:  # removes the file
        return _read(options, path)


def _read(options: argparse.Namespace, path: str) -> int:
    with saved_to_standard_output(options) as options.is_on_output:
        return _read_trace(options, path)


def _read_trace(options: argparse.Namespace, path: str) -> int:
    template_of(options)  # refuses one that makes no sense
    files: Sequence[Trace] = markerjit.open_traces(path)
    matches = _matching(files, options.marker)
    traces = selected(files, matches, options)
    if options.select is not None:
        if options.fields:
            raise markerjit.Refused("a selection is in place of the fields; leave out --fields")
        traces = computed(traces, options.select)
    if options.fields:
        traces = [markerjit.only_fields(trace, options.fields) for trace in traces]
    try:
        if options.output or options.stats:
            with progress.shown(files):
                if options.output and options.output.endswith(_FLAMES):
                    _write_flames(traces, matches, options)
                elif options.output:
                    _convert(traces, matches, options)
                else:
                    _print_statistics(traces, matches, options)
        else:
            if template_of(options):
                lines = _templated(traces, matches, options)
            elif len(traces) == 1:
                lines = _lines(traces[0], matches, options.json)
            else:
                lines = _merged(traces, matches, options)
            # The first line may be far in the file, and a pager would leave no room for progress.
            with progress.shown(files):
                first = [*islice(lines, 1)]
            lines = islice(chain(first, lines), options.events)
            with pager.paged() if options.pager else nullcontext():
                _print_events(lines, traces, matches, options.json)
    finally:
        sys.stdout.flush()
        for trace in traces:
            for problem in trace.problems:
                name = "standard input" if options.file == "-" else trace.path
                output.say(f"markerjit: {name}: {problem}", error=True)
    return 0


def _matching(traces: Sequence[Trace], pattern: str | None) -> Callable[[str], bool]:
    """Whether a marker's name matches. Raises what `matching_names` raises."""
    if pattern is None:
        return lambda name: True
    names = sorted({kind.marker for trace in traces for kind in trace.info.types})
    return markerjit.matching_names(pattern, names).__contains__


def _convert(
    traces: Sequence[Trace], matches: Callable[[str], bool], options: argparse.Namespace
) -> None:
    with signals.Raised():  # the file gets its end
        if len(traces) == 1:
            count = markerjit.convert(traces[0], options.output, matches, force=options.force)
        elif markerjit.is_joint(options.output):
            count = markerjit.join_traces(traces, options.output, matches, force=options.force)
        else:
            directory = Directory(options.output, force=options.force)
            paths = [directory.path_for(trace.info.pid) for trace in traces]
            count = sum(
                markerjit.convert(trace, path, matches, force=options.force)
                for trace, path in zip(traces, paths, strict=True)
            )
    lost = _lost(traces, matches)
    if options.is_on_output:
        output.say(f"{counted(count, 'event')} on standard output, {lost:,} lost", error=True)
    elif options.json:
        output.print_json({"file": options.output, "events": count, "lost": lost})
    else:
        output.say(f"{options.output}: {counted(count, 'event')}, {lost:,} lost")


def _write_flames(
    traces: Sequence[Trace], matches: Callable[[str], bool], options: argparse.Namespace
) -> None:
    markerjit.check_calls_file(options.output, force=options.force, slices=False)
    stacks = markerjit.weigh_stacks(traces, matches)
    markerjit.write_calls(stacks, options.output, force=options.force)
    count, lost = stacks.nodes[0].samples, _lost(traces, matches)
    if options.json:
        output.print_json({"file": options.output, "events": count, "lost": lost})
    else:
        output.say(f"{options.output}: {counted(count, 'stack')}, {lost:,} lost")


def _lines(trace: Trace, matches: Callable[[str], bool], json: bool) -> Iterator[str]:
    """The lines that `trace` prints."""
    to_line = trace.formatter(json=json)
    return (f"{to_line(event)}\n" for event in trace.events() if matches(event.name))


def _merged(
    traces: Sequence[Trace], matches: Callable[[str], bool], options: argparse.Namespace
) -> Iterator[str]:
    """The lines that `trace` prints of several processes, in the order of time."""
    _refuse_without_order(traces)

    def stamped(trace: Trace) -> Iterator[tuple[int, str]]:
        offset, to_line = trace.info.clock.wall_offset_ns, trace.formatter(json=options.json)
        for event in trace.events():
            if matches(event.name):
                line = output.line_of_process(trace.info.pid, to_line(event), json=options.json)
                yield event.time + offset, line

    return (line for _, line in heapq.merge(*map(stamped, traces), key=itemgetter(0)))


def _templated(
    traces: Sequence[Trace], matches: Callable[[str], bool], options: argparse.Namespace
) -> Iterator[str]:
    """The lines of a template, those of several traces in the order of time."""

    def stamped(trace: Trace) -> Iterator[tuple[int, str]]:
        info, template = trace.info, template_of(options)
        assert template
        template.check(info.types)
        pids = dict.fromkeys(info.types, info.pid)
        for batch in trace.batches():
            columns = [of_type for of_type in batch if matches(of_type.type.marker)]
            times = markerjit.times_of(columns, info.clock)
            lines = template.lines(columns, info.clock, pids=pids, sources=info.sources)
            text = lines.decode("utf-8", "backslashreplace")
            yield from zip(times, text.splitlines(keepends=True), strict=True)

    _refuse_without_order(traces)
    return (line for _, line in heapq.merge(*map(stamped, traces), key=itemgetter(0)))


def _refuse_without_order(traces: Sequence[Trace]) -> None:
    if len(traces) > 1 and any(str(trace.info.clock.time) == "none" for trace in traces):
        names = ", ".join(trace.path for trace in traces)
        raise markerjit.Refused(f"without times there is no order; read one of {names}")


def _print_events(
    source: Iterator[str], traces: Sequence[Trace], matches: Callable[[str], bool], json: bool
) -> None:
    """What comes before a place that makes no sense is printed."""
    printed = 0
    lines: list[str] = []
    types = () if json else (type_ for trace in traces for type_ in trace.info.types)
    stacks = output.names_of_stacks(types)
    try:
        for line in source:
            lines.append(line)
            if len(lines) == _LINES_AT_ONCE:
                _write(lines, stacks, json=json)
                printed += len(lines)
                lines = []
    finally:
        _write(lines, stacks, json=json)
    printed += len(lines)
    lost = _lost(traces, matches)
    if json:
        output.print_json({"summary": {"events": printed, "lost": lost}})
    else:
        sys.stdout.flush()
        output.say(f"{counted(printed, 'event')}, {lost:,} lost", error=True)


def _lost(traces: Sequence[Trace], matches: Callable[[str], bool]) -> int:
    return sum(
        count
        for trace in traces
        for (_, name), count in trace.lost.items()
        if not name or matches(name)
    )


def _write(lines: list[str], stacks: Collection[str], *, json: bool) -> None:
    """Past the encoding of standard output, which may not know all characters."""
    data = "".join(lines).encode(errors="backslashreplace")
    sys.stdout.buffer.write(data if json else output.shown_events(data, stacks))


def _print_statistics(
    traces: Sequence[Trace], matches: Callable[[str], bool], options: argparse.Namespace
) -> None:
    sums = [(trace, markerjit.summarise(trace, matches)) for trace in traces]
    if options.json:
        from markerjit.facts.traces import trace_facts

        documents = [trace_facts(trace, summary) for trace, summary in sums]
        output.print_json(documents[0] if len(sums) == 1 else {"traces": documents})
        return
    some = [pair for pair in sums if pair[1].events or pair[1].lost] or sums[:1]
    for number, (trace, summary) in enumerate(some):
        if number:
            output.say("")
        _print_summary(trace, summary)
    if len(some) < len(sums):
        rest = counted(len(sums) - len(some), "other process")
        output.say("")
        output.say(f"{rest} without an event")


def _print_summary(trace: Trace, summary: Summary) -> None:
    info = trace.info
    output.say(
        f"{counted(summary.events, 'event')}, {summary.lost:,} lost"
        + _seconds(summary)
        + (f"; process {info.pid} ({info.command}) on {info.host}" if info.pid else "")
    )
    output.say("")
    rows = [
        (
            marker.name,
            f"{marker.events:,}",
            "-" if marker.rate_hz is None else f"{marker.rate_hz:,.1f}",
            f"{marker.lost:,}",
            _clock(trace, marker.first_ns),
            _clock(trace, marker.last_ns),
        )
        for marker in summary.markers
    ]
    output.print_table(("MARKER", "EVENTS", "RATE/S", "LOST", "FIRST", "LAST"), rows)
    _print_brakes(summary)
    for marker in summary.markers:
        if marker.events and marker.fields:
            _print_fields(marker)


def _print_brakes(summary: Summary) -> None:
    """Say of which markers only a part was recorded."""
    names: dict[str, list[str]] = {}
    for marker in summary.markers:
        sample = f"sampled {marker.sample}" if marker.sample else ""
        rate = f"at most {marker.at_most}/s" if marker.at_most else ""
        budget = f"thinned to a budget of {marker.budget}" if marker.budget else ""
        if brakes := " ".join(filter(None, (sample, rate, budget))):
            names.setdefault(brakes, []).append(marker.name)
    for brakes, markers in names.items():
        output.say(f"{brakes}: {', '.join(markers)}; the numbers are of what was recorded")


def _print_fields(marker: MarkerSummary) -> None:
    numbers = [field for field in marker.fields if isinstance(field, markerjit.NumberSummary)]
    others = [field for field in marker.fields if isinstance(field, markerjit.ValueSummary)]
    if numbers:
        output.say("")
        output.say(marker.name)
        rows = [
            (
                summary.field.name,
                *map(_number, _row(summary)),
                _method(summary),
            )
            for summary in numbers
        ]
        output.print_table(
            ("FIELD", "MIN", "P50", "P90", "P99", "MAX", "MEAN", "PERCENTILES"), rows
        )
    for summary in others:
        output.say("")
        output.say(f"{marker.name} {_of_values(summary)}")
        rows = [(_cut(text), f"{count:,}") for text, count in summary.shown()]
        output.print_table((summary.field.name.upper(), "TIMES"), rows)


def _row(summary: NumberSummary) -> tuple[float | None, ...]:
    percentiles = summary.p50, summary.p90, summary.p99
    return summary.least, *percentiles, summary.largest, summary.mean


def _of_values(summary: ValueSummary) -> str:
    """The number of different values, and of NULLs."""
    parts = [f"{summary.field.name}:"]
    if summary.distinct is None:
        parts.append(f"many different values, counts up to {summary.missed:,} too low")
    else:
        parts.append(counted(summary.distinct, "different value"))
    if summary.nulls:
        parts.append(f"({summary.nulls:,} NULL)")
    return " ".join(parts)


def _method(summary: NumberSummary) -> str:
    text = f"within {summary.error:.0%}" if summary.error else "exact"
    return f"{text}, {summary.nans:,} nan" if summary.nans else text


def _number(number: float | None) -> str:
    if number is None:
        return "-"
    return f"{number:,}" if isinstance(number, int) else f"{number:.6g}"


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]}…"


def _clock(trace: Trace, when: int | None) -> str:
    return "-" if when is None else trace.time_of_day(when)


def _seconds(summary: Summary) -> str:
    if summary.first_ns is None or summary.last_ns is None:
        return ""
    return f", in {(summary.last_ns - summary.first_ns) / 1e9:.6f} s"

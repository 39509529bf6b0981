"""`markerjit export TARGET PATTERN`: markers as metrics for Prometheus, and as OTLP, for a while.

Markers only count, unless events are asked for: by --by, --histogram, --recent or --otlp. It ends
after --duration, by Ctrl-C or SIGTERM, or with the process. The markers are off afterwards.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING

import markerjit
from markerjit.cli import arguments, output, recording, targets
from markerjit.cli.end import End
from markerjit.printable import counted

if TYPE_CHECKING:
    from markerjit.export.otlp import Otlp
    from markerjit.export.server import Server
    from markerjit.export.source import Reading, Source
    from markerjit.export.spans import Spans

_POLL_S = 0.05
_MOST_SERIES = 10_000


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    targets.add_targets(parser)
    arguments.add_pattern(parser, default="*")
    arguments.add_duration(parser, "1h")
    parser.add_argument(
        "--port",
        metavar="N",
        type=arguments.port,
        help="this port of 127.0.0.1, or the next free one (default 7622)",
    )
    parser.add_argument("--by", metavar="FIELD", help="count the events by the values of a field")
    parser.add_argument(
        "--histogram", metavar="FIELD", help="a histogram of a field of numbers, by powers of two"
    )
    parser.add_argument(
        "--recent",
        metavar="N",
        type=arguments.positive,
        help="the last N events as lines of JSON at /events (10,000 at most)",
    )
    parser.add_argument(
        "--series",
        metavar="N",
        type=arguments.positive,
        default=1000,
        help="how many values of --by are counted singly; later ones are counted together "
        "(default 1000)",
    )
    parser.add_argument(
        "--otlp",
        metavar="URL",
        help="also send counts, and spans of pairs of markers such as job_start and job_done, to "
        "an OTLP endpoint: http://127.0.0.1:4318",
    )
    recording.add_where(parser)
    arguments.add_breakpoints(parser)
    arguments.add_seccomp(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until the end."""
    from markerjit.export.series import Series
    from markerjit.export.server import ADDRESS, PORT, Server
    from markerjit.export.source import Source, switched_on

    _check(options)
    end = End()
    processes = targets.chosen(options)
    records = bool(options.by or options.histogram or options.recent or options.otlp)
    series = Series(options.series, by=options.by, histogram=options.histogram)
    with ExitStack() as stack:
        stack.callback(end.disarm)
        sender = _sender(options.otlp, stack)
        server = Server(options.port or PORT)
        stack.callback(server.close)
        fleet = stack.enter_context(markerjit.Fleet(processes.pids, **arguments.vouched(options)))
        request = _trace_of(options) if records else None
        left_out = stack.enter_context(switched_on(fleet, options.pattern, request, options.where))
        source = Source(fleet, options.pattern, series if records else None, options.recent or 0)
        targets.print_failed(fleet.failed)
        output.print_remarks_of(fleet.sessions.values(), options.pattern)
        output.print_left_out(left_out)
        _check_fields(options, fleet.streams)
        end.arm([*fleet.streams.values()], options.duration)
        url = f"http://{ADDRESS}:{server.port}/metrics"
        if options.json:
            output.print_json({"url": url, "pids": [*fleet.sessions]})
        else:
            until = f"for {options.duration:g} s" if options.duration else "until Ctrl-C"
            output.say(f"{counted(source.count(), 'marker')} at {url}, {until}")
        sys.stdout.flush()
        _serve(source, server, sender, end)
        over = source.is_over() and not end.has_come
    if sender is not None and sender.dropped:
        output.say(f"markerjit: {counted(sender.dropped, 'span')} could not be sent", error=True)
    if sender is not None and sender.failed:
        output.say(
            f"markerjit: {options.otlp} did not take all; does a collector listen there?",
            error=True,
        )
    if over and processes.is_single:
        raise markerjit.TargetGone(processes.pids[0])
    return bool(fleet.failed)


def _serve(source: Source, server: Server, sender: Otlp | None, end: End) -> None:
    """Read, and answer each request, until the end."""
    spans: dict[int, Spans] = {}
    while not end.has_come and not source.is_over():
        busy = False
        for reading in source.read():
            busy = True
            if sender is not None:
                _send_spans(reading, spans, sender)
        source.update_rates()
        if sender is not None:
            sender.update(source.markers())
        server.answer(lambda path: _text(source, path))
        if not busy:
            server.wait(_POLL_S)
            server.answer(lambda path: _text(source, path))


def _text(source: Source, path: str) -> bytes:
    """The answer to a request."""
    from markerjit.export.openmetrics import render

    if path == "/events":
        return b"".join(line + b"\n" for line in source.recent)
    return render(source.markers(), source.series).encode()


def _send_spans(reading: Reading, spans: dict[int, Spans], sender: Otlp) -> None:
    """Send the spans that end with these records."""
    from markerjit.export.spans import Spans

    pid, batch = reading
    if pid not in spans:
        spans[pid] = Spans(kind.marker for kind in batch.types)
    of_pairs = spans[pid].markers
    columns = [part for part in batch.columns if part.type.marker in of_pairs]
    events = batch._replace(columns=columns).events()
    for span in spans[pid].add(events):
        offset = span.begin.origin.wall_offset_ns
        attributes: dict[str, bool | int | float | str] = {"pid": pid, "thread.id": span.begin.tid}
        for event in (span.begin, span.end):
            attributes.update(
                (f"{event.name}.{name}", value)
                for name, value in event.fields.items()
                if isinstance(value, (bool, int, float, str)) and not _is_too_large(value)
            )
        sender.add_span(span.name, span.begin.time + offset, span.end.time + offset, attributes)


def _is_too_large(value: object) -> bool:
    """Whether a number does not fit the protocol's 64 bits with a sign."""
    return isinstance(value, int) and value >= 1 << 63


def _trace_of(
    options: argparse.Namespace,
) -> Callable[[markerjit.Session], AbstractContextManager[markerjit.EventStream]]:
    """The trace that brings what was asked for, and no more than that."""
    names = [name for name in (options.by, options.histogram) if name]
    whole = options.recent or options.otlp
    fields = None if whole else [*dict.fromkeys(names)]
    return lambda session: session.trace(options.pattern, fields=fields, where=options.where)


def _sender(url: str | None, stack: ExitStack) -> Otlp | None:
    if url is None:
        return None
    from markerjit.export.otlp import Otlp

    sender = Otlp(url)
    stack.callback(sender.close)
    return sender


def _check(options: argparse.Namespace) -> None:
    """Refuse what cannot be, before anything is switched on."""
    if options.series > _MOST_SERIES:
        raise markerjit.Refused(f"--series is at most {_MOST_SERIES}: each is kept by the scraper")
    if (options.recent or 0) > _MOST_SERIES:
        raise markerjit.Refused(f"--recent is at most {_MOST_SERIES}")
    if options.otlp is not None and not options.otlp.startswith(("http://", "https://")):
        raise markerjit.Refused("--otlp is the address of an endpoint: http://127.0.0.1:4318")


def _check_fields(
    options: argparse.Namespace, streams: Mapping[int, markerjit.EventStream]
) -> None:
    """Refuse a histogram of a field that is no number."""
    if options.histogram is None:
        return
    kinds = {
        str(field.type)
        for stream in streams.values()
        for fields in stream.fields.values()
        for field in fields
        if field.name == options.histogram
    }
    if not kinds & {"int", "float", "bool"}:
        raise markerjit.Refused(f"{options.histogram} is not a number, so it has no histogram")

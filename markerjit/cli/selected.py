"""The options of `read` that choose events: by a condition, a thread, a CPU, a time."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import markerjit
from markerjit.cli import arguments, output
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from typing import Any, Protocol

    from markerjit import Trace

    class Lacking(Protocol):
        """A trace that is asked of some markers only."""

        @property
        def lacks(self) -> Sequence[Any]: ...


_MARKERS_NAMED = 5
_DAY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?")
_NS = 1_000_000_000


class Moment(NamedTuple):
    """A time of a trace, as it was given.

    since_first  ns since the first event, or None
    of_day       ns since midnight, local time, of the day of the first event, or None
    since_1970   ns, or None
    """

    since_first: int | None = None
    of_day: int | None = None
    since_1970: int | None = None


def add_selection(parser: argparse.ArgumentParser) -> None:
    """--where, --tid, --cpu, --from, --to."""
    parser.add_argument(
        "--where",
        metavar="EXPR",
        help="only events that meet a condition, such as 'size > 100 and key != \"\"'",
    )
    parser.add_argument(
        "--select",
        metavar="EXPRS",
        help="named expressions in place of the fields, such as 'ms=dur/1e6, key'",
    )
    parser.add_argument("--tid", metavar="N,…", type=_numbers, help="only events of these threads")
    parser.add_argument("--cpu", metavar="N,…", type=_numbers, help="only events on these CPUs")
    for name, which in (("from", "since"), ("to", "before")):
        parser.add_argument(
            f"--{name}",
            metavar="TIME",
            dest=f"{name}_",
            type=_moment,
            help=f"only events {which} then: +500ms after the first event, 14:03:05.25, or "
            "2026-11-23T14:03:05",
        )


def selected(
    traces: Sequence[Trace], matches: Callable[[str], bool], options: argparse.Namespace
) -> Sequence[Trace]:
    """The events that the options choose. Says which markers do not have a name of a condition."""
    asked = (options.where, options.tid, options.cpu, options.from_, options.to_)
    if asked == (None,) * len(asked):
        return traces
    selections = [
        markerjit.where(
            trace, "True" if options.where is None else options.where, matches,
            tids=options.tid, cpus=options.cpu,
            since=_time_in(trace, options.from_), before=_time_in(trace, options.to_),
        )
        for trace in traces
    ]  # fmt: skip
    _say_lacks(selections, "no event of {} meets the condition: no {}")
    return selections


def computed(traces: Sequence[Trace], select: str) -> Sequence[Trace]:
    """The events with expressions in place of their fields. Says which markers are left out."""
    made = [markerjit.select_fields(trace, select) for trace in traces]
    _say_lacks(made, "{} is left out: no {}")
    return made


def _say_lacks(traces: Sequence[Lacking], sentence: str) -> None:
    """Say which markers do not have which names."""
    lacking: dict[str, dict[str, None]] = {}
    for trace in traces:
        for lack in trace.lacks:
            lacking.setdefault(lack.name, {})[lack.marker] = None
    for name, markers in lacking.items():
        shown = ", ".join(list(markers)[:_MARKERS_NAMED])
        more = f" and {len(markers) - _MARKERS_NAMED} more" if len(markers) > _MARKERS_NAMED else ""
        output.say(f"markerjit: {sentence.format(shown + more, name)}", error=True)


def _time_in(trace: Trace, moment: Moment | None) -> int | None:
    """A moment by the clock of the trace's events; None for none."""
    if moment is None:
        return None
    ahead = trace.info.clock.wall_offset_ns
    if moment.since_1970 is not None:
        return moment.since_1970 - ahead
    first = next((event.time for event in trace.events()), 0)
    if moment.since_first is not None:
        return first + moment.since_first
    assert moment.of_day is not None
    day = datetime.fromtimestamp((first + ahead) // _NS)
    midnight = day.replace(hour=0, minute=0, second=0, microsecond=0)
    return int(midnight.timestamp()) * _NS + moment.of_day - ahead


def _numbers(text: str) -> list[int]:
    numbers = text.split(",")
    if not all(number.isascii() and number.isdigit() and len(number) < 20 for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor a list such as 1,2")
    return [int(number) for number in numbers]


def _moment(text: str) -> Moment:
    if text.startswith("+"):
        return Moment(since_first=round(arguments.distance(text[1:]) * _NS))
    match = _DAY.fullmatch(text)
    if match:
        hours, minutes, seconds, fraction = match.groups(default="0")
        of_day = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
        if int(hours) < 24 and int(minutes) < 60 and int(seconds) < 60:
            return Moment(of_day=of_day * _NS + int(fraction.ljust(9, "0")))
    else:
        try:
            return Moment(since_1970=round(datetime.fromisoformat(text).timestamp() * 1e6) * 1000)
        except (ValueError, OverflowError, OSError):
            pass
    raise argparse.ArgumentTypeError(
        f"{text!r} is no time such as +500ms, 14:03:05.25 or 2026-11-23T14:03:05"
    )

"""`markerjit top TARGET [PATTERN]`: hits per second, by marker, thread or field, again and again.

By marker, the runtime counts. By anything else the events are recorded and counted here, as `trace`
gets them. An end before the first look is looked at, too. What was off before is off afterwards.
Killed by SIGKILL, it leaves markers that count with a deadline of a minute (`on --for`), and
markers that record with the lease of a trace.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import markerjit
from markerjit.cli import arguments, output, targets
from markerjit.cli.end import End
from markerjit.printable import counted
from markerjit.tuples import NamedTuple

_EVERY_S = 1.0
_POLL_S = 0.05
_LEASE_S, _RENEW_S = 60.0, 20.0
_ROWS_IN_PIPE = 20
_AT_ONCE = 10_000
_NAMES = {"marker": "name", "thread": "tid"}
"""Keys as people say them, by the names that lines of events have for them."""
_IN_LINES = ("name", "tid", "cpu", "source")


class Look(NamedTuple):
    """Hits by key since the last look, so many seconds ago, and events that were lost."""

    seconds: float
    hits: Mapping[str, int]
    lost: int = 0


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    targets.add_targets(parser)
    arguments.add_pattern(parser, default="*")
    parser.add_argument(
        "--by",
        metavar="KEY",
        default="marker",
        help="group by marker (default; counted in the process), thread, cpu, source or a field, "
        "or by several: marker,key. For all but marker the events are recorded, as by trace",
    )
    parser.add_argument(
        "--every", metavar="S", type=arguments.seconds, default=_EVERY_S,
        help="look every S seconds (1), such as 500ms",
    )  # fmt: skip
    arguments.add_duration(parser)
    parser.add_argument("--rows", metavar="N", type=arguments.positive, help="print at most N rows")
    arguments.add_seccomp(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Look until the end, which a signal or the time is."""
    pids = targets.chosen(options).pids
    if len(pids) > 1:
        raise markerjit.Refused(
            f"top works on one process; name one of these {len(pids)}: {', '.join(map(str, pids))}"
        )
    keys = [_NAMES.get(key, key) for key in options.by.split(",")]
    if not all(keys):
        raise markerjit.Refused(
            f"--by {options.by!r} has an empty name in it; keys are such as thread, or marker,size"
        )
    end = End()
    looks = _counted if keys == ["name"] else _recorded
    with markerjit.attach(pids[0], seccomp=options.seccomp) as session:
        totals: Counter[str] = Counter()
        picture = output.Picture()
        for look in looks(session, keys, options, end):
            totals.update(look.hits)
            if options.json:
                output.print_json(_facts(session.pid, look, totals, options))
            elif sys.stdout.isatty():
                with picture.drawn():
                    _print(session.pid, look, totals, options)
            else:
                _print(session.pid, look, totals, options)
                output.say("")
            sys.stdout.flush()
    return 0


# ---- by marker -----------------------------------------------------------------------------------


def _counted(
    session: markerjit.Session, keys: list[str], options: argparse.Namespace, end: End
) -> Iterator[Look]:
    """Looks at the counters of the runtime."""
    with _switched_on(session, options.pattern) as renew:
        end.arm((), options.duration)
        last, before = time.monotonic(), _totals(session, options.pattern)
        is_first = True
        while (goes_on := _wait(end, last + options.every)) or is_first:
            if goes_on:
                renew()
            now, totals = time.monotonic(), _totals(session, options.pattern)
            hits = {name: total - before.get(name, 0) for name, total in totals.items()}
            yield Look(now - last, hits)
            last, before, is_first = now, totals, False
        end.disarm()


def _totals(session: markerjit.Session, pattern: str) -> Counter[str]:
    totals: Counter[str] = Counter()
    for marker in session.statistics(pattern):
        totals[marker.name] += marker.total
    return totals


@contextmanager
def _switched_on(session: markerjit.Session, pattern: str) -> Iterator[_Renewal]:
    """Within, all that match count; afterwards those are off that were off before."""
    if "func:" in pattern or ":" in pattern:
        markers = []  # sites that nobody prepared are known once they are switched on
        for_us = pattern
        with suppress(markerjit.MarkerError):
            markers = [marker.name for marker in session.statistics(pattern) if marker.mode]
        if markers:
            for_us += "".join(f",!{name}" for name in markers)
    else:
        statuses = session.statistics(pattern)
        off = dict.fromkeys(marker.name for marker in statuses if not marker.mode)
        for_us = pattern if len(off) == len({status.name for status in statuses}) else ",".join(off)
    renewal = _Renewal(session, for_us)
    if for_us:
        output.print_left_out(session.enable(for_us, for_s=_LEASE_S).left_out)
        output.print_needs_of([session], pattern)
    try:
        yield renewal
    finally:
        with suppress(markerjit.TargetGone, markerjit.NoSuchProcess):
            if for_us:
                session.disable(for_us)


class _Renewal:
    """Renews the deadline of markers, from time to time."""

    def __init__(self, session: markerjit.Session, pattern: str) -> None:
        self._session = session
        self._pattern = pattern
        self._at = time.monotonic()

    def __call__(self) -> None:
        now = time.monotonic()
        if self._pattern and now - self._at > _RENEW_S:
            self._session.enable(self._pattern, for_s=_LEASE_S)
            self._at = now


# ---- by anything else ----------------------------------------------------------------------------


def _recorded(
    session: markerjit.Session, keys: list[str], options: argparse.Namespace, end: End
) -> Iterator[Look]:
    """Looks at what was recorded since. The key of an event is the line that a template makes."""
    fields = [key for key in keys if key not in _IN_LINES]
    template = markerjit.LineTemplate(
        "\\t".join(f"{{{key if key in _IN_LINES else f'fields.{key}'}}}" for key in keys)
    )
    with session.trace(options.pattern, fields=fields or None) as stream:
        end.arm((stream,), options.duration)
        output.print_needs_of([session], options.pattern)
        sources = {kind.marker: "" for kind in stream.types.values()}
        if "source" in keys:
            info = session.trace_info(tuple(stream.types.values()), stream.clock())
            sources = dict(info.sources)
        last, lost, is_first = time.monotonic(), 0, True
        hits: Counter[str] = Counter()
        while not (is_over := end.has_come or stream.is_over()) or is_first:
            batch = stream.poll_batch(most=_AT_ONCE, columns=True)
            if batch:
                lines = template.lines(batch.columns, stream.clock(), sources=sources)
                hits.update(line.decode("utf-8", "replace") for line in lines.splitlines())
            now = time.monotonic()
            if now - last >= options.every or is_over:
                lost_now = stream.statistics().lost
                yield Look(now - last, hits, lost_now - lost)
                last, lost, hits, is_first = now, lost_now, Counter(), False
            elif not batch:
                time.sleep(_POLL_S)
        end.disarm()
        if stream.target_ended:
            raise markerjit.TargetGone(session.pid)


def _wait(end: End, until: float) -> bool:
    """Wait until a time of CLOCK_MONOTONIC; False where the end came first."""
    while not end.has_come and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _POLL_S))
    return not end.has_come


# ---- what is printed -----------------------------------------------------------------------------


def _rows(look: Look, totals: Mapping[str, int]) -> list[str]:
    """The keys, the most frequent ones of now first."""
    return sorted(totals, key=lambda key: (-look.hits.get(key, 0), -totals[key], key))


def _facts(
    pid: int, look: Look, totals: Mapping[str, int], options: argparse.Namespace
) -> dict[str, object]:
    keys = options.by.split(",")
    return {
        "pid": pid, "seconds": round(look.seconds, 3), "lost": look.lost,
        "rows": [
            {
                **dict(zip(keys, key.split("\t"), strict=True)),
                "rate": round(look.hits.get(key, 0) / look.seconds, 1), "hits": totals[key],
            }
            for key in _rows(look, totals)[: options.rows]
        ],
    }  # fmt: skip


def _print(pid: int, look: Look, totals: Mapping[str, int], options: argparse.Namespace) -> None:
    rows, keys = _rows(look, totals), options.by.split(",")
    rates = {key: look.hits.get(key, 0) / look.seconds for key in rows}
    all_hits = sum(rates.values())
    lost = f", {look.lost:,} lost" if look.lost else ""
    output.say(f"process {pid}: {all_hits:,.0f} hits/s of {counted(len(rows), 'key')}{lost}")
    room = output.height() - 4 if sys.stdout.isatty() else _ROWS_IN_PIPE
    shown = rows[: options.rows or max(0, room)]
    if shown:
        output.print_table(
            [*map(str.upper, keys), "HITS/S", "HITS"],
            [[*_cells(pid, keys, key), f"{rates[key]:,.0f}", f"{totals[key]:,}"] for key in shown],
        )
    if len(rows) > len(shown):
        output.say(f"and {len(rows) - len(shown):,} more")


def _cells(pid: int, keys: list[str], key: str) -> list[str]:
    """The parts of a key. A thread is shown with its name."""
    return [
        _thread(pid, part) if name == "thread" else part
        for name, part in zip(keys, key.split("\t"), strict=True)
    ]


def _thread(pid: int, tid: str) -> str:
    try:
        with open(f"/proc/{pid}/task/{tid}/comm", errors="replace") as file:
            return f"{tid} ({file.read().rstrip()})"
    except OSError:  # it has ended
        return tid

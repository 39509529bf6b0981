"""`markerjit top TARGET [PATTERN]`: hits per second, by marker, thread or field, again and again.

The hits of several processes are added up, unless a key is the process. By marker, the runtime
counts. By anything else the events are recorded and counted here, as `trace` gets them. An end
before the first look is looked at, too. What was off before is off afterwards. Killed by SIGKILL,
it leaves markers that count with a deadline of a minute (`on --for`), and markers that record with
the lease of a trace.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress

import markerjit
from markerjit.cli import arguments, output, progress, targets
from markerjit.cli.end import End
from markerjit.facts.words import name_words
from markerjit.printable import counted
from markerjit.tuples import NamedTuple

_EVERY_S = 1.0
_POLL_S = 0.05
_LEASE_S, _RENEW_S = 60.0, 20.0
_ROWS_IN_PIPE = 20
_AT_ONCE = 10_000
_NAMES = {"marker": "name", "thread": "tid", "process": "pid"}
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
        help="group by marker (default), process, thread, cpu, source or a field, or by several: "
        "marker,key. For all but marker and process the events are recorded, as by trace",
    )
    parser.add_argument(
        "--every", metavar="S", type=arguments.seconds, default=_EVERY_S,
        help="look every S seconds (1), such as 500ms",
    )  # fmt: skip
    arguments.add_duration(parser)
    parser.add_argument("--rows", metavar="N", type=arguments.positive, help="print at most N rows")
    arguments.add_breakpoints(parser)
    arguments.add_seccomp(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Look until the end, which a signal or the time is."""
    processes = targets.chosen(options)
    keys = [_NAMES.get(key, key) for key in options.by.split(",")]
    if not all(keys):
        raise markerjit.Refused(
            f"--by {options.by!r} has an empty name in it; keys are such as thread, or marker,size"
        )
    end = End()
    looks = _counted if {*keys} <= {"name", "pid"} else _recorded
    with markerjit.Fleet(processes.pids, **arguments.vouched(options)) as fleet:
        totals: Counter[str] = Counter()
        picture = output.Picture()
        for look in looks(fleet, keys, options, end):
            pids = [*fleet.sessions]
            totals.update(look.hits)
            if options.json:
                output.print_json(_facts(pids, look, totals, options))
            elif sys.stdout.isatty():
                with picture.drawn():
                    _print(pids, look, totals, options)
            else:
                _print(pids, look, totals, options)
                output.say("")
            sys.stdout.flush()
    return bool(fleet.failed)


# ---- by marker -----------------------------------------------------------------------------------


def _counted(
    fleet: markerjit.Fleet, keys: list[str], options: argparse.Namespace, end: End
) -> Iterator[Look]:
    """Looks at the counters of the runtime. Raises TargetGone when all processes have ended."""
    renewals: dict[int, _Renewal] = {}
    with ExitStack() as stack:

        def begin(session: markerjit.Session) -> None:
            renewals[session.pid] = stack.enter_context(_switched_on(session, options.pattern))

        with progress.timed(f"switching on {options.pattern}"):
            fleet.each(begin)
        targets.print_failed(fleet.failed)
        end.arm((), options.duration)
        last, before = time.monotonic(), _totals_of(fleet, renewals, options.pattern)
        is_first = True
        while (goes_on := _wait(end, last + options.every)) or is_first:
            for renew in renewals.values() if goes_on else ():
                with suppress(markerjit.TargetGone, markerjit.NoSuchProcess):  # seen below
                    renew()
            now, totals = time.monotonic(), _totals_of(fleet, renewals, options.pattern)
            hits: Counter[str] = Counter()
            for (pid, name), total in totals.items():
                words = {"name": name, "pid": str(pid)}
                hits["\t".join(words[key] for key in keys)] += total - before.get((pid, name), 0)
            yield Look(now - last, hits)
            last, before, is_first = now, totals, False
        end.disarm()


def _totals_of(
    fleet: markerjit.Fleet, renewals: dict[int, _Renewal], pattern: str
) -> dict[tuple[int, str], int]:
    """The counts by process and marker. Processes that have ended are left out from now on. Raises
    TargetGone where there is none left."""
    totals: dict[tuple[int, str], int] = {}
    gone: markerjit.MarkerError | None = None
    for pid in [*renewals]:
        try:
            by_name = _totals(fleet.sessions[pid], pattern)
        except (markerjit.TargetGone, markerjit.NoSuchProcess) as error:
            gone = error
            del renewals[pid]
        else:
            totals |= {(pid, name): total for name, total in by_name.items()}
    if gone and not renewals:
        raise gone
    return totals


def _totals(session: markerjit.Session, pattern: str) -> Counter[str]:
    totals: Counter[str] = Counter()
    for marker in session.statistics(pattern):
        totals[marker.name] += marker.total
    return totals


@contextmanager
def _switched_on(session: markerjit.Session, pattern: str) -> Iterator[_Renewal]:
    """Within, all that match count; afterwards those are off that were off before."""
    try:
        statuses = session.statistics(pattern)
    except markerjit.MarkerError:
        if ":" not in pattern:
            raise
        statuses = []  # of what nobody prepared: it is known once it is switched on
    on = dict.fromkeys(marker.name for marker in statuses if marker.mode)
    for_us = ",".join([pattern, *(f"!{name}" for name in on)])
    try:
        output.print_left_out(session.enable(for_us, for_s=_LEASE_S).left_out)
    except markerjit.UnknownMarker:
        if not on:
            raise
        for_us = ""  # all of them are on
    else:
        output.print_remarks_of([session], pattern)
    try:
        yield _Renewal(session, for_us)
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
    fleet: markerjit.Fleet, keys: list[str], options: argparse.Namespace, end: End
) -> Iterator[Look]:
    """Looks at what was recorded since. The key of an event is the line that a template makes, with
    the pid of its process where that is asked for."""
    in_line = [key for key in keys if key != "pid"]
    fields = [key for key in in_line if key not in _IN_LINES]
    template = markerjit.LineTemplate(
        "\\t".join(f"{{{key if key in _IN_LINES else f'fields.{key}'}}}" for key in in_line)
    )
    with progress.timed(f"switching on {options.pattern}"):
        streams = fleet.trace(
            lambda session: session.trace(options.pattern, fields=fields or None)
        )  # fmt: skip
    targets.print_failed(fleet.failed)
    end.arm((*streams.values(),), options.duration)
    output.print_left_out(left for stream in streams.values() for left in stream.unswitched)
    output.print_remarks_of(fleet.sessions.values(), options.pattern)
    sources = {pid: _sources(fleet.sessions[pid], stream, keys) for pid, stream in streams.items()}
    last, lost, is_first = time.monotonic(), 0, True
    hits: Counter[str] = Counter()

    def is_over() -> bool:
        return end.has_come or all(stream.is_over() for stream in streams.values())

    while not (ends := is_over()) or is_first:
        is_busy = False
        for pid, stream in streams.items():
            if batch := stream.poll_batch(most=_AT_ONCE, columns=True):
                is_busy = True
                lines = template.lines(batch.columns, stream.clock(), sources=sources[pid])
                text = lines.decode("utf-8", "replace")
                hits.update(_with_pid(line, pid, keys) for line in text.splitlines())
        now = time.monotonic()
        if now - last >= options.every or ends:
            lost_now = sum(stream.statistics().lost for stream in streams.values())
            yield Look(now - last, hits, lost_now - lost)
            last, lost, hits, is_first = now, lost_now, Counter(), False
        elif not is_busy:
            time.sleep(_POLL_S)
    end.disarm()
    if not end.has_come and (ended := [pid for pid in streams if streams[pid].target_ended]):
        raise markerjit.TargetGone(ended[0])


def _sources(
    session: markerjit.Session, stream: markerjit.EventStream, keys: list[str]
) -> dict[str, str]:
    """The source of each marker; "" where nobody asks for it."""
    if "source" not in keys:
        return {kind.marker: "" for kind in stream.types.values()}
    return dict(session.trace_info(tuple(stream.types.values()), stream.clock()).sources)


def _with_pid(line: str, pid: int, keys: list[str]) -> str:
    """A key as a template makes it, and the pid in its place."""
    if "pid" not in keys:
        return line
    parts = line.split("\t")
    parts.insert(keys.index("pid"), str(pid))
    return "\t".join(parts)


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
    pids: list[int], look: Look, totals: Mapping[str, int], options: argparse.Namespace
) -> dict[str, object]:
    keys = options.by.split(",")
    return {
        **({"pid": pids[0]} if len(pids) == 1 else {"pids": pids}),
        "seconds": round(look.seconds, 3), "lost": look.lost,
        "rows": [
            {
                **dict(zip(keys, key.split("\t"), strict=True)),
                "rate": round(look.hits.get(key, 0) / look.seconds, 1), "hits": totals[key],
            }
            for key in _rows(look, totals)[: options.rows]
        ],
    }  # fmt: skip


def _print(
    pids: list[int], look: Look, totals: Mapping[str, int], options: argparse.Namespace
) -> None:
    rows, keys = _rows(look, totals), options.by.split(",")
    rates = {key: look.hits.get(key, 0) / look.seconds for key in rows}
    all_hits = sum(rates.values())
    lost = f", {look.lost:,} lost" if look.lost else ""
    what = f"process {pids[0]}" if len(pids) == 1 else counted(len(pids), "process")
    noun = "marker" if keys == ["marker"] else "key"
    output.say(f"{what}: {all_hits:,.0f} hits/s of {counted(len(rows), noun)}{lost}")
    room = output.height() - 4 if sys.stdout.isatty() else _ROWS_IN_PIPE
    shown = rows[: options.rows or max(0, room)]
    if shown:
        output.print_table(
            [*map(str.upper, keys), "HITS/S", "HITS"],
            [[*_cells(keys, key), f"{rates[key]:,.0f}", f"{totals[key]:,}"] for key in shown],
        )
    if len(rows) > len(shown):
        output.say(f"and {len(rows) - len(shown):,} more")


def _cells(keys: list[str], key: str) -> list[str]:
    """The parts of a key. A thread is shown with its name, a function as its source writes it."""
    show = {"thread": _thread, "marker": name_words}
    return [show.get(name, str)(part) for name, part in zip(keys, key.split("\t"), strict=True)]


def _thread(tid: str) -> str:
    try:
        with open(f"/proc/{tid}/comm", errors="replace") as file:
            return f"{tid} ({file.read().rstrip()})"
    except OSError:  # it has ended
        return tid

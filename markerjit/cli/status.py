"""`markerjit status TARGET`: what is on, since when, by which process, hits and losses."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import markerjit
from markerjit.cli import arguments, output, targets
from markerjit.facts import words
from markerjit.facts.process import status_facts
from markerjit.printable import counted
from markerjit.tuples import NamedTuple

_BAR = 35
"""Characters of the longest bar of a histogram."""
_EVERY_S = 1.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    targets.add_targets(parser)
    arguments.add_pattern(parser, default="*")
    parser.add_argument(
        "--watch", action="store_true", help="refresh it until Ctrl-C, with the hits per second"
    )  # fmt: skip
    parser.add_argument(
        "--every", metavar="S", type=arguments.seconds, help="with --watch: look every S seconds "
        "(1), such as 500ms"
    )  # fmt: skip
    arguments.add_json(parser)
    parser.set_defaults(run=run)


class Look(NamedTuple):
    """A process, as it was seen at a time of CLOCK_MONOTONIC, in seconds."""

    pid: int
    time: float
    arena: markerjit.ArenaStatus | None
    markers: Sequence[markerjit.MarkerStatus]
    values: Sequence[markerjit.Values]
    strays: Sequence[markerjit.StrayHead]


def run(options: argparse.Namespace) -> int:
    """Print what is on; with --json all markers."""
    is_given = options.every is not None and not arguments.is_preset(options, "every")
    if is_given and not options.watch:
        raise markerjit.Refused("--every says how often --watch looks; give both")
    if options.watch:
        return _watch(options, options.every or _EVERY_S)
    return bool(_look_at_all(options, {}).failed)


def _watch(options: argparse.Namespace, every: float) -> int:
    """Look until a signal comes, which is the end that is meant, or until the process ends."""
    from markerjit.cli import signals

    before: Mapping[int, Look] = {}
    picture = output.Picture()
    is_drawn = sys.stdout.isatty() and not options.json
    try:
        with signals.Raised():
            while True:
                if before and not is_drawn and not options.json:
                    output.say("")
                with picture.drawn() if is_drawn else nullcontext():
                    before = _look_at_all(options, before).seen
                sys.stdout.flush()
                time.sleep(every)
    except signals.Interrupted:
        return 0


class _Looks(NamedTuple):
    """The processes as they were seen, and those that could not be looked at."""

    seen: Mapping[int, Look]
    failed: Sequence[markerjit.Failed]


def _look_at_all(options: argparse.Namespace, before: Mapping[int, Look]) -> _Looks:
    """Look at each process and print it, beside what was seen before."""
    processes = targets.chosen(options)
    seen, failed = targets.look_at_each(processes, lambda pid: _look(pid, options.pattern))
    targets.print_failed(failed)
    if options.json:
        documents = (
            status_facts(look.pid, look.arena, look.markers, look.values, look.strays)
            for look in seen.values()
        )
        targets.print_documents(processes, documents, failed)
    else:
        rates = {pid: _rates(look, before.get(pid)) for pid, look in seen.items()}
        targets.print_each(
            processes, seen, lambda pid: _print(seen[pid], rates[pid] if options.watch else None)
        )
    return _Looks(seen, failed)


def _rates(now: Look, before: Look | None) -> Mapping[tuple[str, str], float]:
    """The hits of each marker in a second since it was seen before, by name and format."""
    if before is None or now.time <= before.time:
        return {}
    totals = {(marker.name, marker.format): marker.total for marker in before.markers}
    return {
        (marker.name, marker.format): (marker.total - totals[marker.name, marker.format])
        / (now.time - before.time)
        for marker in now.markers
        if (marker.name, marker.format) in totals
    }


def _look(pid: int, pattern: str) -> Look:
    with markerjit.View(pid) as view:
        markers = view.statistics(pattern)
        moment = time.monotonic()
        look = Look(pid, moment, view.arena(), markers, view.probe_values(), view.stray_heads())
        output.offer_repair(view)
    return look


def _print(look: Look, rates: Mapping[tuple[str, str], float] | None) -> None:
    """Print a process; with `rates` also the hits of each marker in a second."""
    pid, _, arena, markers, values, strays = look
    shown = [marker for marker in markers if marker.mode or marker.hits or marker.altered]
    if shown:
        rated = [] if rates is None else ["HITS/S"]
        output.print_table(
            ["MARKER", "STATE", "SINCE", "BY", *rated, "HITS", "LOST"],
            [
                [
                    words.name_words(marker.name),
                    words.state_words(marker),
                    f"{words.age_words(marker.since)} ago" if marker.since else "-",
                    words.holder_words(marker),
                    *([] if rates is None else [_rate(rates.get((marker.name, marker.format)))]),
                    output.grouped(marker.hits),
                    output.grouped(marker.lost),
                ]
                for marker in shown
            ],
        )
    output.print_questions(markers)
    output.print_deadlines(markers)
    for marker in markers:
        if marker.held_back:
            held_back = f"{counted(marker.held_back, 'event')} held back"
            name = words.name_words(marker.name)
            output.say(f"{name}:{words.brakes_words(marker)}, {held_back}")
        if marker.unmatched:
            name = words.name_words(marker.name)
            output.say(f"{name}: {words.unmatched_words(marker.unmatched)}")
    output.print_altered(markers)
    output.print_strays(strays)
    off = sum(not marker.mode and len(marker.altered) < len(marker.sites) for marker in markers)
    if markers:
        is_off = "is" if len(markers) == 1 else "are"
        output.say(f"{off:,} of {counted(len(markers), 'marker')} {is_off} off")
    else:
        output.say("no markers")
    for of_file in values:
        _print_values(of_file)
    if arena:
        _print_arena(pid, arena)


def _rate(rate: float | None) -> str:
    return "-" if rate is None else output.grouped(rate)


def _print_arena(pid: int, arena: markerjit.ArenaStatus) -> None:
    output.say(f"runtime: there for {words.age_words(arena.since)}, put by pid {arena.owner.pid}")
    if arena.flight:
        output.say(
            f"flight recorder: on; markerjit flight dump {pid} -o FILE saves what it has kept"
        )
    if arena.pause and not arena.pause.over:
        left_s = arena.pause.left_s
        output.say(f"in stages: a change by {arena.pause.owner}, paused, lease {left_s:.0f} s")
    if arena.reader:
        lease_s = arena.reader.left_s
        lease = "" if lease_s is None else f", lease {max(lease_s, 0):.0f} s"
        output.say(f"recording: for pid {arena.reader.owner.pid}{lease}")


def _print_values(values: markerjit.Values) -> None:
    for name, number in values.counters.items():
        output.say(f"{values.source}: {name} = {output.grouped(number)}")
    for name, histogram in values.histograms.items():
        total = histogram.total
        percentiles = ", ".join(
            f"{percent} % <= {histogram.percentile(percent)}" for percent in (50, 90, 99) if total
        )
        shown = f": {percentiles}" if total else ""
        output.say(f"{values.source}: {name}, {counted(total, 'value')}{shown}")
        buckets = list(histogram.buckets())
        most = max((bucket.number for bucket in buckets), default=1)
        for bucket in buckets:
            bar = "#" * max(1, round(bucket.number * _BAR / most))
            count = output.grouped(bucket.number)
            output.say(f"  {bucket.low:>12} ... {bucket.high:<12} {count:>11} {bar}")

"""`markerjit status TARGET`: what is on, since when, by which process, hits and losses."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import markerjit
from markerjit.cli import arguments, output, targets
from markerjit.facts import words
from markerjit.facts.process import status_facts

_BAR = 40
"""Characters of the longest bar of a histogram."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    targets.add_targets(parser)
    arguments.add_pattern(parser, default="*")
    arguments.add_json(parser)
    parser.set_defaults(run=run)


class Look(NamedTuple):
    """A process, as it was seen."""

    pid: int
    arena: markerjit.ArenaStatus | None
    markers: Sequence[markerjit.MarkerStatus]
    values: Sequence[markerjit.Values]
    strays: Sequence[markerjit.StrayHead]


def run(options: argparse.Namespace) -> int:
    """Print what is on; with --json all markers."""
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
        targets.print_each(processes, seen, lambda pid: _print(seen[pid]))
    return bool(failed)


def _look(pid: int, pattern: str) -> Look:
    with markerjit.View(pid) as view:
        markers = view.statistics(pattern)
        look = Look(pid, view.arena(), markers, view.probe_values(), view.stray_heads())
        output.offer_repair(view)
    return look


def _print(look: Look) -> None:
    pid, arena, markers, values, strays = look
    shown = [marker for marker in markers if marker.mode or marker.hits or marker.altered]
    if shown:
        output.print_table(
            ["MARKER", "STATE", "SINCE", "BY", "HITS", "LOST"],
            [
                [
                    marker.name,
                    words.state_words(marker),
                    f"{words.age_words(marker.since)} ago" if marker.since else "-",
                    words.holder_words(marker),
                    str(marker.hits),
                    str(marker.lost),
                ]
                for marker in shown
            ],
        )
    output.print_questions(markers)
    output.print_altered(markers)
    output.print_strays(strays)
    off = sum(not marker.mode and len(marker.altered) < len(marker.sites) for marker in markers)
    if markers:
        output.say(f"{off} of {len(markers)} markers are off")
    else:
        output.say(f"process {pid} has no markers")
    for of_file in values:
        _print_values(of_file)
    if arena:
        _print_arena(pid, arena)


def _print_arena(pid: int, arena: markerjit.ArenaStatus) -> None:
    output.say(f"runtime: there for {words.age_words(arena.since)}, put by pid {arena.owner.pid}")
    if arena.flight:
        output.say(f"flight recorder: on; markerjit dump {pid} -o FILE saves what it has kept")
    if arena.pause and not arena.pause.over:
        left_s = arena.pause.left_s
        output.say(f"in steps: a change by {arena.pause.owner}, paused, lease {left_s:.0f} s")
    if arena.reader:
        lease_s = arena.reader.left_s
        lease = "" if lease_s is None else f", lease {max(lease_s, 0):.0f} s"
        output.say(f"recording: for pid {arena.reader.owner.pid}{lease}")


def _print_values(values: markerjit.Values) -> None:
    for name, number in values.counters.items():
        output.say(f"{values.source}: {name} = {number}")
    for name, histogram in values.histograms.items():
        total = histogram.total
        percentiles = ", ".join(
            f"{percent} % <= {histogram.percentile(percent)}" for percent in (50, 90, 99) if total
        )
        output.say(f"{values.source}: {name}, {total} values{f': {percentiles}' if total else ''}")
        buckets = list(histogram.buckets())
        most = max((bucket.number for bucket in buckets), default=1)
        for bucket in buckets:
            bar = "#" * max(1, round(bucket.number * _BAR / most))
            output.say(f"  {bucket.low:>12} ... {bucket.high:<12} {bucket.number:>10} {bar}")

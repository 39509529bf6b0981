"""`markerjit status PID`: what is on, since when, by whom, hits and losses."""

from __future__ import annotations

import argparse

import markerjit
from markerjit.cli import common

_BAR = 40  # characters of the longest


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    common.add_pid(parser)
    common.add_pattern(parser, default="*")
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print what is on; with --json all markers."""
    with markerjit.View(options.pid) as view:
        markers = view.statistics(options.pattern)
        arena = view.arena()
        values = view.probe_values()
        common.offer_repair(view)
    if options.json:
        document = {
            "pid": options.pid,
            "arena": common.arena_json(arena),
            "markers": [common.marker_json(marker) for marker in markers],
            "probes": [_values_json(one) for one in values],
        }
        common.print_json(document)
        return 0
    known = [marker for marker in markers if marker.mode or marker.hits or marker.altered]
    if known:
        common.print_table(
            ["MARKER", "STATE", "SINCE", "BY", "HITS", "LOST"],
            [
                [
                    marker.name,
                    common.state_text(marker),
                    f"{common.ago(marker.since)} ago" if marker.since else "-",
                    _by(marker),
                    str(marker.hits),
                    str(marker.lost),
                ]
                for marker in known
            ],
        )
    common.print_altered(markers)
    off = sum(not marker.mode and len(marker.altered) < len(marker.sites) for marker in markers)
    common.say(f"{off} of {len(markers)} markers are off")
    for one in values:
        _print_values(one)
    if arena:
        common.say(f"runtime: there for {common.ago(arena.since)}, put by pid {arena.owner.pid}")
        if arena.flight:
            common.say(
                f"flight recorder: on; markerjit dump {options.pid} -o FILE saves what it has kept"
            )
        if arena.reader:
            lease = arena.reader.left_s
            until = "" if lease is None else f", lease {max(lease, 0):.0f} s"
            common.say(f"recording: for pid {arena.reader.owner.pid}{until}")
    return 0


def _by(marker: markerjit.MarkerStatus) -> str:
    """Who switched it on, and what for."""
    holder = f"pid {marker.by}" if marker.by else "-"
    return f"{holder} ({marker.held})" if marker.held else holder


def _values_json(values: markerjit.Values) -> common.Json:
    return {
        "source": values.source,
        "counters": dict(values.counters),
        "histograms": {
            name: [bucket._asdict() for bucket in one.buckets()]
            for name, one in values.histograms.items()
        },
    }


def _print_values(values: markerjit.Values) -> None:
    for name, number in values.counters.items():
        common.say(f"{values.source}: {name} = {number}")
    for name, histogram in values.histograms.items():
        total = histogram.total
        percentiles = ", ".join(
            f"{percent} % <= {histogram.percentile(percent)}" for percent in (50, 90, 99) if total
        )
        shown = f": {percentiles}" if total else ""
        common.say(f"{values.source}: {name}, {total} values{shown}")
        rows = list(histogram.buckets())
        most = max((row.number for row in rows), default=1)
        for row in rows:
            bar = "#" * max(1, round(row.number * _BAR / most))
            common.say(f"  {row.low:>12} ... {row.high:<12} {row.number:>10} {bar}")

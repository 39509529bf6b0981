"""`markerjit list PID|FILE [PATTERN]`: the markers, and how they are."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import markerjit
from markerjit.cli import common


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    common.add_target(parser)
    common.add_pattern(parser, default="*")
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the markers of a process or a file."""
    pid = common.pid_or_file(options.target)
    if pid is not None:
        with markerjit.View(pid) as view:
            markers = view.statistics(options.pattern)
            problems: Sequence[Exception] = view.problems
            common.offer_repair(view)
    else:
        markers, problems = markerjit.list_file(options.target, options.pattern)
    if options.json:
        _print_json(options.target, pid, markers, problems)
    else:
        _print_text(markers, running=pid is not None)
    for problem in problems:
        common.say(f"markerjit: left out: {problem}", error=True)
    return 0


def _print_json(
    target: str,
    pid: int | None,
    markers: Sequence[markerjit.MarkerStatus],
    problems: Sequence[Exception],
) -> None:
    document: common.Json = {"pid": pid} if pid is not None else {"file": target}
    document["markers"] = [common.marker_json(marker) for marker in markers]
    document["problems"] = [str(problem) for problem in problems]
    common.print_json(document)


def _print_text(markers: Sequence[markerjit.MarkerStatus], *, running: bool) -> None:
    header = ["MARKER", "KIND", *(["STATE"] if running else []), "SITES", "FIELDS", "SOURCE"]
    rows = []
    for marker in markers:
        site = marker.sites[0]
        gone = " (deleted)" if site.object.deleted else ""
        more = f" and {len(marker.sites) - 1} more" if len(marker.sites) > 1 else ""
        rows.append(
            [
                marker.name,
                str(marker.kind),
                *([common.state_text(marker)] if running else []),
                str(len(marker.sites)),
                common.fields_text(marker.fields) or "-",
                f"{site.source}{more} in {common.short_path(site.object.path)}{gone}",
            ]
        )
    common.print_table(header, rows)
    common.print_altered(markers)

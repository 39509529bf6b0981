"""`markerjit status PID`: what is on, since when, by whom, hits and losses."""

from __future__ import annotations

import argparse
import os

import markerjit
from markerjit.cli import common


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    common.add_pid(parser)
    common.add_pattern(parser, default="*")
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print what is on; with --json all markers."""
    with markerjit.View(options.pid) as session:
        markers = session.statistics(options.pattern)
    if options.json:
        import json

        document = {
            "pid": options.pid,
            "markers": [common.marker_json(marker) for marker in markers],
        }
        print(json.dumps(document, ensure_ascii=False))
        return 0
    known = [marker for marker in markers if marker.mode or marker.hits]
    if known:
        common.print_table(
            ["MARKER", "STATE", "SINCE", "BY", "HITS", "LOST"],
            [
                [
                    marker.name,
                    common.state_text(marker),
                    f"{common.ago(marker.since)} ago" if marker.since else "-",
                    f"pid {marker.by}" if marker.by else "-",
                    str(marker.hits),
                    str(marker.lost),
                ]
                for marker in known
            ],
        )
    off = len(markers) - sum(marker.mode is not None for marker in markers)
    print(f"{off} of {len(markers)} markers are off")
    if any(marker.probe == "record" and not _runs(marker.by) for marker in markers):
        print(f"recording for a controller that is gone: markerjit off {options.pid} '*' ends it")
    return 0


def _runs(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")

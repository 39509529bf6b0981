"""`markerjit doctor [PID]`: what will work here, and why not."""

from __future__ import annotations

import argparse

from markerjit.cli import common
from markerjit.doctor import WALL, examine_machine, examine_process


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("pid", metavar="PID", type=common.positive, nargs="?", help="a process")
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the findings; 1 when the job cannot work."""
    findings = list(examine_machine())
    if options.pid is not None:
        findings += examine_process(options.pid)
    walls = sum(finding.level == WALL for finding in findings)
    if options.json:
        import json

        told = [finding._asdict() for finding in findings]
        print(json.dumps({"pid": options.pid, "works": not walls, "findings": told}))
        return 1 if walls else 0
    for finding in findings:
        print(f"{finding.level:<8} {finding.what:<12} {finding.found}")
    subject = f"process {options.pid}" if options.pid else "this machine"
    print(f"{subject}: " + (f"{walls} in the way" if walls else "markerjit can work"))
    return 1 if walls else 0

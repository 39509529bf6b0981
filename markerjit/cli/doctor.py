"""`markerjit doctor [PID]`: what will work here, and why not."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from markerjit.cli import common
from markerjit.doctor import Finding, examine_machine, examine_process, verdict, works


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("pid", metavar="PID", type=common.process_id, nargs="?", help="a process")
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the findings; 1 when the job cannot work."""
    findings = list(examine_machine())
    if options.pid is not None:
        findings += examine_process(options.pid)
    if options.json:
        told = [finding._asdict() for finding in findings]
        common.print_json({"pid": options.pid, "works": works(findings), "findings": told})
    else:
        _print(findings)
        subject = f"process {options.pid}" if options.pid else "this machine"
        common.say(f"{subject}: {verdict(findings)}")
    return 0 if works(findings) else 1


def _print(findings: Sequence[Finding]) -> None:
    """A line each, and the way round below it."""
    for finding in findings:
        common.say(f"{finding.level:<8} {finding.what:<12} {finding.found}")
        if finding.way_round:
            common.say(f"{'':<22}way round: {finding.way_round}")

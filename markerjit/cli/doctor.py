"""`markerjit doctor [PID]`: what will work here, and why not."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import markerjit
from markerjit.cli import arguments, output
from markerjit.doctor import Finding, examine_machine, examine_process, verdict, works
from markerjit.facts.findings import doctor_facts

_INDENT = 22
"""The column in which what was found begins."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "pid",
        metavar="PID",
        type=arguments.process_id,
        nargs="?",
        help="a process: its number, or the name of its program",
    )
    arguments.add_seccomp(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the findings. Returns 1 when the job cannot work."""
    findings = list(examine_machine())
    if options.pid is not None:
        findings += examine_process(options.pid, seccomp=markerjit.Seccomp(options.seccomp))
    if options.json:
        output.print_json(doctor_facts(options.pid, findings))
    else:
        _print(findings)
        subject = f"process {options.pid}" if options.pid else "this machine"
        output.say(f"{subject}: {verdict(findings)}")
    return 0 if works(findings) else 1


def _print(findings: Sequence[Finding]) -> None:
    """Print a line for each finding, and the way round below it."""
    for finding in findings:
        output.say(f"{finding.level:<8} {finding.what:<12} {finding.found}", hanging=_INDENT)
        if finding.way_round:
            output.say(f"{'':<{_INDENT}}way round: {finding.way_round}", hanging=_INDENT)

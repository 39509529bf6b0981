"""`markerjit repair PID`: after an accident, finish or take back what a controller left."""

from __future__ import annotations

import argparse

import markerjit
from markerjit.cli import arguments, output, signals


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.add_pid(parser)
    arguments.add_seccomp(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Repair, and say what was found and done."""
    with signals.Held() as held:
        repaired = markerjit.repair(options.pid, seccomp=options.seccomp)
    if options.json:
        owner = repaired.owner.pid if repaired.owner else None
        document = {
            "pid": options.pid,
            "repaired": repaired.anything,
            "journal": repaired.journal,
            "owner": owner,
            "since": repaired.since or None,
            "places": repaired.places,
            "written": repaired.written,
            "left_alone": list(repaired.left_alone),
            "switched_off": list(repaired.switched_off),
            "removed": repaired.removed,
            "closed": repaired.closed,
            "forgotten": repaired.forgotten,
            "overdue": list(repaired.overdue),
            "sent_back": [thread._asdict() for thread in repaired.sent_back],
        }
        output.print_json(document)
    else:
        for line in list(repaired.sentences()) or [f"process {options.pid} needs no repair"]:
            output.say(line)
    return held.code

"""What truth_values says of its turns, and the same as recorded events."""

from __future__ import annotations

from collections.abc import Sequence

import markerjit
from markerjit import Event
from tests.support.programs import Target

TURNS = 16


def lines_of(program: Target) -> list[str]:
    """A line for each marker and turn, in the order in which they are passed."""
    lines = []
    for turn in range(TURNS):
        line = program.command(f"tell {turn}")
        while line != "told":
            lines.append(line)
            line = program.read_line()
    assert len(set(lines)) > 300
    return lines


def shown(events: Sequence[Event], stream: markerjit.EventStream) -> list[str]:
    """`name field=value ...` of each event, as `trace` prints it."""
    to_line = markerjit.line_formatter(stream.fields)
    return [to_line(event).split(" ", 3)[3] for event in events]

"""A real marker among the places, switched by the public door while everything else is changed too.

The victim counts how often the marker's arguments were evaluated, which is how often it was on. It
knows nothing of rings.
"""

from __future__ import annotations

from dataclasses import dataclass

import markerjit
from tests.torture.victims import Victim

MARK = "torture_real"


@dataclass
class Marked:
    """The counts of the controller, and those of the victim."""

    switches: int = 0
    hits: int = 0
    evaluated: int = 0
    recorded_and_lost: int = 0
    evaluated_while_read: int = 0

    @property
    def adds_up(self) -> bool:
        """Every hit was counted, and every record was read or counted as lost."""
        counted = (self.hits, self.recorded_and_lost)
        return counted == (self.evaluated, self.evaluated_while_read) and min(counted) > 0


def switch_marks(target: Victim, rounds: int, flip: str) -> Marked:
    """Switch the marker on and off `rounds` times, with a `flip` of the victim's own between. Then
    trace it once, and read to the last event while the threads stand at their gate."""
    marked = Marked()
    with markerjit.attach(target.pid) as session:
        before = target.ask("resume")["evaluated"]
        for _ in range(rounds):
            with session.trace(MARK):
                target.ask(flip)
            target.ask(flip)
            marked.switches += 2
        marked.evaluated = target.ask("pause")["evaluated"] - before
        marked.hits = _status(session).total

        with session.trace(MARK) as events:
            target.ask("resume")
            target.ask(flip)
            recorded = len(events.poll())
            after = target.ask("pause")["evaluated"]
            recorded += len(events.drain())
        marked.recorded_and_lost = recorded + _status(session).lost
        marked.evaluated_while_read = after - before - marked.evaluated
    return marked


def _status(session: markerjit.Session) -> markerjit.MarkerStatus:
    (status,) = (marker for marker in session.statistics() if marker.name == MARK)
    return status

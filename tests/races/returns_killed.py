"""Controllers of functions' returns that are killed: what each kill did, as a line of JSON.

    python tests/races/returns_killed.py [--every]

As usdt_killed.py (without --every the last scenario only), for exits whose events have the
arguments of the entry. After `repair` the program has to run on, an entry must not be open without
an exit that needs it, and a trace has to have the arguments of its own calls.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from killed import ROOT, Scenario, control, use_hooked_library
from usdt_killed import Victim, chosen, victim

import markerjit

PROGRAM = ROOT / "build/targets/truth_returns"
EVERY = "func:truth_returns:rare:return"
MANY = "func:truth_returns:*,func:truth_returns:*:return"
TURNS = 10


def trace(pid: int) -> None:
    with markerjit.attach(pid, breakpoints=True) as session, session.trace(EVERY) as events:
        events.keep()
        events.poll()


def entry_and_trace(pid: int) -> None:
    with markerjit.attach(pid, breakpoints=True) as session:
        session.on("func:truth_returns:rare")
        with session.trace(EVERY) as events:
            events.poll()
            session.off("func:truth_returns:rare")


def many(pid: int) -> None:
    """The words of so many slots are written by runs, but for the first time."""
    with markerjit.attach(pid, breakpoints=True) as session:
        session.on(MANY)
        session.off(MANY)


SCENARIOS = (
    Scenario("many again", many, many),
    Scenario("first trace", lambda pid: None, trace),
    Scenario("trace", trace, trace),
    Scenario("trace beside the entry", trace, entry_and_trace),
)


def points_of(scenario: Scenario) -> list[str]:
    with victim(PROGRAM) as target:
        scenario.prepare(target.pid)
        ending = control(scenario, target.pid)
        assert not ending.signal and not ending.error, ending
        return list(ending.points)


def harm_of(scenario: Scenario, point: str, occurrence: int) -> tuple[bool, str, list[str]]:
    """Whether the controller died there, what repair did, and what is wrong."""
    with victim(PROGRAM) as target:
        before = target.code()
        scenario.prepare(target.pid)
        ending = control(scenario, target.pid, kill_point=point, kill_at=occurrence)
        target.ask("run 3")
        repaired = markerjit.repair(target.pid)
        harm = [f"left alone: {why}" for why in repaired.left_alone]
        harm += _looked_at(target)
        if target.code() != before:
            harm.append("code is not as it was")
    return ending.signal == signal.SIGKILL, repaired.journal, harm


def _looked_at(target: Victim) -> list[str]:
    harm = []
    with markerjit.attach(target.pid) as session:
        states = session.states(session.sites("func:truth_returns:rare"))
        if any(state.code_mode and not state.mode for state in states):
            harm.append("an entry is open for nobody")
        if session.stray_heads():
            harm.append("stray heads")
        first = target.ask("counts")["turns"]
        with session.trace(EVERY) as stream:
            target.ask(f"run {TURNS}")
            events = [(event.fields["arg0"], event.fields["ret"]) for event in stream.drain()]
        if events != [(n, n - n % 2) for n in range(first, first + TURNS)] or stream.unmatched:
            harm.append(f"events {events}, {stream.unmatched} unmatched")
        for name in (EVERY, "func:truth_returns:rare", MANY):
            session.off(name)
    return harm


def main() -> int:
    use_hooked_library()
    wrong = 0
    for scenario in SCENARIOS if "--every" in sys.argv else SCENARIOS[-1:]:
        for point, occurrence in chosen(points_of(scenario), every="--every" in sys.argv):
            died, journal, harm = harm_of(scenario, point, occurrence)
            outcome = (scenario.name, point, occurrence, died, journal, harm)
            names = ("scenario", "point", "occurrence", "died", "journal", "harm")
            print(json.dumps(dict(zip(names, outcome, strict=True))), flush=True)
            wrong += bool(harm)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

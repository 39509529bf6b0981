"""Controllers of USDT probes that are killed: what each kill did, as a line of JSON.

    python tests/races/usdt_killed.py [--every] [--spacing N]

For each scenario and each name of a point (its first or its last time, in turn; with --every each
time; with --spacing 3 each name in one scenario, and a third of the rest): a target of its own, a
controller that is killed there, and a look at everything. The target has to run on. `repair` has to
leave each site open with its semaphore raised, or closed with it lowered. On, off and trace have to
work again, and the code has to be byte for byte as it was.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from killed import ROOT, Scenario, control, thinned, use_hooked_library

import markerjit
from tests.support.timing import Limited

PROGRAM = ROOT / "build/targets/truth_usdt"
EVERY = "truth:*"
TURNS = 20


class Victim:
    """A truth program, and what is known of it."""

    def __init__(self, program: Path = PROGRAM) -> None:
        pipe = subprocess.PIPE
        self.program = program
        self.process = Limited([program], stdin=pipe, stdout=pipe, text=True, bufsize=1)
        assert self.process.stdout
        assert self.process.stdout.readline().startswith("ready ")
        self.pid = self.process.pid

    def ask(self, line: str) -> dict[str, int]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{line}\n")
        _, *pairs = self.process.stdout.readline().split()
        return {name: int(value) for name, value in (pair.split("=") for pair in pairs)}

    def code(self) -> bytes:
        with markerjit.View(self.pid) as view:
            spans = [
                (each.start, each.end) for each in view._target.seen.maps
                if each.executable and each.path == str(self.program)
            ]  # fmt: skip
            return b"".join(view.read(start, end - start) for start, end in spans)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def victim(program: Path = PROGRAM) -> Iterator[Victim]:
    made = Victim(program)
    try:
        yield made
    finally:
        made.end()


def on(pid: int) -> None:
    with markerjit.attach(pid, breakpoints=True) as session:
        session.enable(EVERY)


def off(pid: int) -> None:
    with markerjit.attach(pid, breakpoints=True) as session:
        session.disable(EVERY)


def on_and_off(pid: int) -> None:
    on(pid)
    off(pid)


def on_again(pid: int) -> None:
    """The last switch is a prepared one, and a thread asks for the SIGTRAP handler in its stop."""
    with markerjit.attach(pid, breakpoints=True) as session:
        for _ in range(3):
            session.enable(EVERY, mode="int3")
            session.disable(EVERY)
        session.enable(EVERY, mode="int3")


def trace(pid: int) -> None:
    with markerjit.attach(pid, breakpoints=True) as session, session.trace(EVERY) as events:
        events.keep()
        events.poll()


SCENARIOS = (
    Scenario("first use", lambda pid: None, on),
    Scenario("on", on_and_off, on),
    Scenario("off", on, off),
    Scenario("on again", lambda pid: None, on_again),
    Scenario("trace", on_and_off, trace),
)


def points_of(scenario: Scenario) -> list[str]:
    with victim() as target:
        scenario.prepare(target.pid)
        ending = control(scenario, target.pid)
        assert not ending.signal and not ending.error, ending
        return list(ending.points)


def chosen(points: list[str], *, every: bool) -> list[tuple[str, int]]:
    """Names of points, and the times that each is passed."""
    times: dict[str, int] = {}
    for name in points:
        times[name] = times.get(name, 0) + 1
    if every:
        return [(name, at) for name, count in times.items() for at in range(1, count + 1)]
    return [(name, (1, count)[turn % 2]) for turn, (name, count) in enumerate(times.items())]


def harm_of(scenario: Scenario, point: str, occurrence: int) -> tuple[bool, str, list[str]]:
    """Whether the controller died there, what repair did, and what is wrong."""
    harm = []
    with victim() as target:
        before = target.code()
        scenario.prepare(target.pid)
        ending = control(scenario, target.pid, kill_point=point, kill_at=occurrence)
        target.ask("run 3")
        repaired = markerjit.repair(target.pid)
        counts = target.ask(f"run {TURNS}")
        with markerjit.attach(target.pid, breakpoints=True) as session:
            states = {status.name: bool(status.mode) for status in session.statistics(EVERY)}
            for name in ("turn", "guarded"):
                probe = {"turn": "turns", "guarded": "guarded"}[name]
                if counts[f"{probe}_raised"] != states[f"truth:{name}"]:
                    harm.append(f"semaphore of {name}: {counts[f'{probe}_raised']}")
            if repaired.left_alone:
                harm.append(f"left alone: {repaired.left_alone}")
            if session.stray_heads():
                harm.append("stray heads")
            with session.trace("truth:turn") as stream:
                target.ask(f"run {TURNS}")
                events = list(stream.drain())
            if [event.fields["arg0"] for event in events] != [*range(TURNS)]:
                harm.append(f"{len(events)} events")
            session.disable(EVERY)
        after = target.ask("counts")
        if after["turns_raised"] or after["guarded_raised"]:
            harm.append("semaphores stay raised")
        if target.code() != before:
            harm.append("code is not as it was")
    return ending.signal == signal.SIGKILL, repaired.journal, harm


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--spacing", type=int, default=1)
    options = parser.parse_args()
    use_hooked_library()
    work = [
        ((scenario, point, occurrence), point)
        for scenario in SCENARIOS
        for point, occurrence in chosen(points_of(scenario), every=options.every)
    ]
    wrong = 0
    for scenario, point, occurrence in thinned(work, options.spacing):
        died, journal, harm = harm_of(scenario, point, occurrence)
        outcome = (scenario.name, point, occurrence, died, journal, harm)
        names = ("scenario", "point", "occurrence", "died", "journal", "harm")
        print(json.dumps(dict(zip(names, outcome, strict=True))), flush=True)
        wrong += bool(harm)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

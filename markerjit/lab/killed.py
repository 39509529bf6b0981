"""(j) The controller killed between the steps of a switch, and what it leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from markerjit.errors import MarkerError
from markerjit.lab.child import ALIVE
from markerjit.lab.experiment import Experiment, Picture, Run, Tell
from markerjit.lab.program import LIMIT_S, Program
from markerjit.model import Mode, RemoteAddress
from markerjit.session.repair import Repaired, repair
from markerjit.session.session import attach

MARKER = "lab_turn"
PASSES = 100
SWITCHES = (("off", "jump"), ("int3", "jump"))
"""How the marker is on before, and how it is to be on."""


def controller(pid: int, mode: str, steps: int) -> None:
    """Make some steps of a switch, say how many there are in all, and die. Never returns."""
    with attach(pid) as session, session.stepping(MARKER, mode=mode) as stepper:
        for _ in range(steps):
            stepper.step()
        print(len(stepper.stages.stages), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def killed_after(pid: int, mode: str, steps: int) -> int:
    """Run a controller that is killed after so many steps. The number of steps in all."""
    arguments = [str(Path(__file__).parents[2]), str(pid), mode, str(steps)]
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from markerjit.lab import killed; "
        "killed.controller(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))"
    )
    made = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S,
        start_new_session=True, check=False,  # Ctrl-C is for the lab; it ends by itself
    )  # fmt: skip
    if made.returncode != -signal.SIGKILL:
        raise MarkerError(f"the controller to be killed ended before: {made.stderr.strip()[-200:]}")
    return int(made.stdout)


def status_of(pid: int) -> str:
    """The line of `status` about what is left to repair; empty where there is nothing."""
    with attach(pid) as session:
        arena = session.arena()
        return (arena.to_mend if arena else None) or ""


def passes_since(program: Program) -> int:
    """The turns of the program's threads from now on, until there are PASSES or time is up."""
    before, deadline = program.turns(), time.monotonic() + LIMIT_S
    while program.is_alive() and time.monotonic() < deadline:
        passes = program.turns() - before
        if passes >= PASSES:
            return passes
        time.sleep(0.001)
    return 0


def run_of(before: str, mode: str, steps: int) -> tuple[Run, int]:
    """A child whose controller is killed, and the number of steps that the switch has."""
    with Program("lab_turns") as program:
        with attach(program.pid) as session:
            if before != "off":
                session.enable(MARKER, mode=before)
            (site,) = session.sites(MARKER)
        at, size = site.address, len(site.form.head)
        old = program.read(at, size)
        total = killed_after(program.pid, mode, steps)
        left, passes = program.read(at, size), passes_since(program)
        status = status_of(program.pid)
        repaired = repair(program.pid)
        now = program.read(at, size)
        later, ending = passes_since(program), program.ending()
        still = status_of(program.pid)
    is_whole = steps == total
    new = site.form.ways[Mode(mode)] if is_whole else old
    wrong = [
        now != new, not passes, not later, bool(still),
        bool(status) is is_whole, repaired.anything is is_whole,
    ]  # fmt: skip
    run = Run(
        f"from {before} to {mode}, killed after {steps} of {total} steps",
        "",
        1,
        {"passes after the kill": passes, "passes after repair": later},
        sum(wrong),
        ending,
        pictures_of(at, old, left, now),
        story_of(status, repaired, ending),
    )
    return run, total


def pictures_of(at: RemoteAddress, old: bytes, left: bytes, now: bytes) -> tuple[Picture, ...]:
    """The head of the site, three times."""
    return (
        Picture("before", at, old),
        Picture("after the kill", at, left),
        Picture("after repair", at, now),
    )


def story_of(status: str, repaired: Repaired, ending: str) -> str:
    """What status and repair said, and what became of the program."""
    repairs = "; ".join(repaired.sentences()) or "nothing to repair"
    story = f"status: {status or 'nothing is left'}. repair: {repairs}."
    if ending == ALIVE:
        return f"The program ran on. {story}"
    return f"{story} The program died by {ending}."


def runs(tell: Tell) -> Iterator[Run]:
    """A controller killed after each number of steps of two switches."""
    for before, mode in SWITCHES:
        steps = total = 0
        while steps <= total:
            tell(f"from {before} to {mode}", steps, total + 1)
            run, total = run_of(before, mode, steps)
            yield run
            steps += 1


EXPERIMENT = Experiment(
    letter="j",
    title="the controller killed between the steps of a switch",
    question="A controller switches a marker, and is killed by SIGKILL after some of the steps. "
    "Two threads of the program execute the marker all the time. What becomes of the program?",
    choices=(
        "it runs on after each of the steps, and repair makes the bytes whole",
        "after some of the steps it dies, or its bytes stay half changed",
    ),
    conduct=runs,
    happened=lambda runs: int(not all(run.went_well for run in runs)),
    forgiven="",
    explanation=(
        "The steps are ordered so that a process can live with every state between two of them "
        "for any time: data before the code that uses it, and a breakpoint before a second byte "
        "changes. A thread that meets the breakpoint is sent on by the handler in the program.",
        "The target itself has the journal of the change: each place, its old bytes and its new "
        "ones. The kernel takes the lock from a controller that dies, so an open journal under a "
        "free lock is one that was left. `status` says so, and `repair` takes the change back. "
        "The next controller that switches does the same.",
        "Here each kill is between two steps. The tests kill a controller at each write inside "
        "them too, and while it holds a thread of the target.",
    ),
    references=(
        "docs/explanation/faults.md",
        "docs/decisions/0007-journal-in-the-target.md",
        "docs/decisions/0028-a-switch-in-stages.md",
    ),
)

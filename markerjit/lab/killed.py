"""(j) The controller killed between the steps of a switch, and the state that it leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from markerjit.errors import MarkerError
from markerjit.lab.experiment import Experiment, Picture, Run, Tell
from markerjit.lab.processes import ALIVE
from markerjit.lab.program import LIMIT_S, Program
from markerjit.model import Mode, Site
from markerjit.printable import counted
from markerjit.session.repair import repair
from markerjit.session.session import Session

MARKER = "lab_turn"
PASSES = 100
DIES_S = 10
SWITCHES = (("off", "jump"), ("int3", "jump"))
"""The mode of the marker before the switch, and the mode that it is switched to."""


def controller(pid: int, mode: str, steps: int) -> None:
    """Make some steps of a switch, each a stage of a `Stepper`, print the number of all steps, and
    die. Never returns."""
    with Session(pid) as session, session.stepping(MARKER, mode=mode) as stepper:
        for _ in range(steps):
            stepper.step()
        print(len(stepper.stages.stages), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def killed_after(pid: int, mode: str, steps: int) -> int:
    """Run a controller that is killed after this many steps. Returns the number of all steps.
    Raises MarkerError where the controller ends earlier, or takes too long."""
    arguments = [str(Path(__file__).parents[2]), str(pid), mode, str(steps)]
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from markerjit.lab import killed; "
        "killed.controller(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))"
    )
    try:
        made = subprocess.run(
            [sys.executable, "-P", "-c", code, *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S,
            start_new_session=True, check=False,  # Ctrl-C is for the lab; it ends by itself
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise MarkerError(
            f"the controller to be killed did not come so far in {LIMIT_S} seconds"
        ) from None
    if made.returncode != -signal.SIGKILL:
        raise MarkerError(f"the controller to be killed ended before: {made.stderr.strip()[-200:]}")
    return int(made.stdout)


def status_of(pid: int) -> str:
    """The line of `status` about a change that is left to repair; empty where there is none."""
    with Session(pid) as session:
        arena = session.arena()
        return (arena.to_mend if arena else None) or ""


def passes_since(program: Program) -> int:
    """The turns of the program's threads from now on, once they are PASSES or more; 0 if time is up
    before that."""
    before, deadline = program.turns(), time.monotonic() + LIMIT_S
    while program.is_alive() and time.monotonic() < deadline:
        passes = program.turns() - before
        if passes >= PASSES:
            return passes
        time.sleep(0.001)
    return 0


class Trial:
    """A program whose controller is killed after some steps, with the observations so far.

    moment    the phase of the trial, in words
    steps     the number of steps after which the controller is killed
    total     the number of steps of the whole switch, None before that is known
    pictures  the head of the site at several moments
    passes    the turns of the threads after the kill, and after repair
    faults    the number of observations that are not as they must be
    """

    def __init__(self, program: Program, before: str, mode: str, steps: int) -> None:
        self._program, self._before, self._mode, self.steps = program, before, mode, steps
        self.moment = "before the controller began"
        self.total: int | None = None
        self.pictures: list[Picture] = []
        self.passes = {"passes after the kill": 0, "passes after repair": 0}
        self.faults = 0

    def make(self) -> str:
        """Kill a controller, and repair. Returns the story. Raises MarkerError where the program
        dies."""
        program = self._program
        with Session(program.pid) as session:
            if self._before != "off":
                session.enable(MARKER, mode=self._before)
            (site,) = session.sites(MARKER)
        old = self._look(site, "before")
        self.moment = "while the controller made its steps"
        self.total = killed_after(program.pid, self._mode, self.steps)
        self.moment = "after the controller was killed"
        self._look(site, "after the kill")
        self.passes["passes after the kill"] = passes_since(program)
        status = status_of(program.pid)
        self.moment = "while it was repaired"
        repaired = repair(program.pid)
        self.moment = "after repair"
        now = self._look(site, "after repair")
        self.passes["passes after repair"] = passes_since(program)
        still = status_of(program.pid)
        is_whole = self.steps == self.total
        new = site.form.ways[Mode(self._mode)] if is_whole else old
        self.faults = sum([
            now != new, not all(self.passes.values()), bool(still),
            bool(status) is is_whole, repaired.anything is is_whole,
        ])  # fmt: skip
        repairs = "; ".join(repaired.sentences()) or "nothing to repair"
        return f"status: {status or 'nothing is left'}. repair: {repairs}."

    def _look(self, site: Site, caption: str) -> bytes:
        code = self._program.read(site.address, len(site.form.head))
        self.pictures.append(Picture(caption, site.address, code))
        return code


def run_of(before: str, mode: str, steps: int) -> tuple[Run, int | None]:
    """The run of a program whose controller is killed, and the number of all steps of the switch,
    None where the program died before that was known."""
    with Program("lab_turns") as program:
        trial = Trial(program, before, mode, steps)
        try:
            story = trial.make()
            ending = program.ending()
        except MarkerError:
            ending, story = program.ending(DIES_S), ""
            if ending == ALIVE:
                raise
    if ending == ALIVE:
        story = f"The program ran on. {story}"
    else:
        story = f"{story} The program died by {ending} {trial.moment}.".lstrip()
    made = counted(steps, "step") if trial.total is None else f"{steps} of {trial.total} steps"
    run = Run(
        f"from {before} to {mode}, killed after {made}",
        "",
        1,
        trial.passes,
        trial.faults + (ending != ALIVE),
        ending,
        tuple(trial.pictures),
        story,
    )
    return run, trial.total


def runs(tell: Tell) -> Iterator[Run]:
    """A controller killed after each number of steps of two switches."""
    for before, mode in SWITCHES:
        steps, total = 0, 0
        while steps <= total:
            tell(f"from {before} to {mode}", steps, total + 1)
            run, steps_in_all = run_of(before, mode, steps)
            yield run
            if steps_in_all is None:
                break
            steps, total = steps + 1, steps_in_all


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

"""One marker of a running program switched on: as each mechanism does it, counting or recording.

Every run of a form is a process of its own: it waits before main, a session switches the marker on,
the program does all of its work, and the session reads how often the marker was hit before it
switches it off again. That number has to be the one that the program counts itself when it is built
to do so. Recording is into the rings of a flight recorder, with nobody who reads meanwhile: what
shows is what the program pays.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import markerjit
from markerjit import Mode
from markerjit.apps.bench.api import AGAIN, BASELINE, Form
from markerjit.errors import MarkerError
from real.programs import Workload
from real.running import Child, started


class Switch(NamedTuple):
    """A form of an active marker: the build that it runs in, and how the marker is on; `mode` None
    for a marker that stays off, `probe` "" where nobody attaches at all."""

    form: Form
    build: str
    mode: Mode | None = None
    probe: str = ""


def _on(build: str, mode: Mode, probe: str) -> Switch:
    doing = {"count": "counting", "record": "recording"}[probe]
    return Switch(Form(f"{mode.value}, {doing}", (), f"on, {doing}"), build, mode, probe)


MOST_TRAPS = 1_000_000
"""A breakpoint takes one or two microseconds; a run should not take many seconds."""
SWITCHES = (
    Switch(Form(BASELINE, (), "nobody attaches"), BASELINE),
    Switch(Form(AGAIN, (), "the same once more: its difference is the noise"), AGAIN),
    Switch(Form("jump, off", (), "on and off again before the work"), "jump", None, "count"),
    *(
        _on(build, mode, probe)
        for build, mode in (
            ("jump", Mode.JUMP), ("nop", Mode.NOP), ("pointer", Mode.POINTER), ("jump", Mode.INT3)
        )
        for probe in ("count", "record")
    ),
)  # fmt: skip


def switches(passed: int) -> list[Switch]:
    """Those for a marker that is passed so often in a run."""
    return [switch for switch in SWITCHES if switch.mode is not Mode.INT3 or passed <= MOST_TRAPS]


def timed_run(
    path: Path, workload: Workload, marker: str, switch: Switch, cpu: int, passed: int
) -> float:
    """Seconds of a CPU, of a run in which the marker is on. Raises MarkerError where it was not hit
    `passed` times, which is how often the work passes it."""
    with started(path, workload.arguments, cpu=cpu, gated=True) as child:
        if not switch.probe:
            child.go()
            took = child.report().cpu
        else:
            with markerjit.attach(child.pid) as session:
                took = _with_session(session, child, marker, switch, passed)
        child.go()
        child.wait()
        return took


def _with_session(
    session: markerjit.Session, child: Child, marker: str, switch: Switch, passed: int
) -> float:
    if switch.probe == "record":
        session.record(marker, mode=switch.mode)
    else:
        session.enable(marker, mode=switch.mode)
    if switch.mode is None:
        session.disable(marker)
        passed = 0
    child.go()
    took = child.report().cpu
    hits = sum(statistic.total for statistic in session.statistics(marker))
    session.disable("*")
    if hits != passed:
        raise MarkerError(
            f"{marker} was hit {hits} times as {switch.form.name}, and passed {passed} times"
        )
    return took

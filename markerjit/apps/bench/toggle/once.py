"""The work that is done once for a process or for a session, beside a switch that was made before.

Each round has a new process, and two sessions with it one after the other: the first finds no
arena, the second finds the one of the first. The cache of verified builds knows the program, except
where a command is asked to find it empty. Threads run meanwhile, as the setting says.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

import markerjit
from markerjit.apps.bench.toggle import crowd as crowds
from markerjit.apps.bench.toggle.door import Outside
from markerjit.apps.bench.toggle.enough import is_over
from markerjit.apps.bench.toggle.program import MARKER, Program
from markerjit.apps.bench.toggle.ways import DEFAULT, OFF, ON
from markerjit.errors import MarkerError

BEFORE, BEFORE_AGAIN = "a switch made before", "a switch made before, again"
DONE = "a switch that finds it done"
ATTACH = "attach"
FIRST = "first switch of a process"
LIVE = f"attach and {FIRST}"
NEXT = "first switch of a session"
UNSEEN = "markerjit on, program not seen before"
STATUS = "markerjit status"

WHATS = {
    BEFORE: f"{DEFAULT.name}, on, which this session has planned before",
    BEFORE_AGAIN: "the same once more: its difference is the noise",
    DONE: "it takes the lock, looks at everything, and has nothing to write",
    ATTACH: "a session with a process that no controller has touched",
    FIRST: "it makes the arena, plans, and writes",
    LIVE: "from no session to markers that are on",
    NEXT: "it finds the arena, plans, and writes",
    UNSEEN: "the whole command, with an empty cache of verified builds, in a new process",
    STATUS: "the whole command",
}
"""These forms with their descriptions. A run has them where one of them is asked for."""
_COMMANDS = {UNSEEN, STATUS}
_PRIMING = 2

Kept = dict[str, list[float]]
"""The times of each round by form, in ns."""


def measure(
    program: Program, sites: int, threads: int, load: str, seconds: float, forms: Collection[str]
) -> Kept:
    """Measure rounds for some seconds. Raises CannotStart, NotPermitted, Refused, MarkerError."""
    samples: Kept = {}
    began, rounds = time.monotonic(), -1
    while rounds < 0 or not is_over(rounds, time.monotonic() - began, seconds):
        if rounds < 1:
            samples.clear()  # the first round verifies the program, which the others find verified
            began = time.monotonic()
        for name, ns in _round(program, sites, threads, load).items():
            samples.setdefault(name, []).append(ns)
        if _COMMANDS & set(forms):
            for name, ns in _commands(program, threads, load).items():
                samples.setdefault(name, []).append(ns)
        rounds += 1
    return {name: samples[name] for name in WHATS if name in samples}


def _round(program: Program, sites: int, threads: int, load: str) -> dict[str, int]:
    took = {}
    with crowds.start(program.program, threads, load) as crowd:
        crowd.go()
        start = time.perf_counter_ns()
        door = Outside(DEFAULT, crowd.pid)
        took[ATTACH] = time.perf_counter_ns() - start
        try:
            took[FIRST] = door.switch(ON).call
            took[LIVE] = took[ATTACH] + took[FIRST]
            crowd.rest()
            _prove(crowd, door, sites)
            door.switch(OFF)
        finally:
            door.close()
        crowd.go()
        door = Outside(DEFAULT, crowd.pid)
        try:
            took[NEXT] = door.switch(ON).call
            for _ in range(_PRIMING):  # slots that were used are planned anew once
                door.switch(OFF)
                door.switch(ON)
            for name in (BEFORE, BEFORE_AGAIN):
                door.switch(OFF)
                took[name] = door.switch(ON).call
            took[DONE] = door.find_done()
            door.switch(OFF)
        finally:
            door.close()
        crowd.rest()
        crowd.end()
    return took


def _prove(crowd: crowds.Crowd, door: Outside, sites: int) -> None:
    """Check, with the threads at rest, that a way through all sites hits each of them once."""
    before = door.hits()
    walk = crowd.walk()
    hits = door.hits() - before
    if (walk.sites, walk.wrong, hits) != (sites, 0, sites):
        raise MarkerError(
            f"the first switch: {walk.sites} sites were passed and hit {hits} times, not {sites}; "
            f"{walk.wrong} had a wrong result"
        )


def _commands(program: Program, threads: int, load: str) -> dict[str, int]:
    with (
        crowds.start(program.program, threads, load) as crowd,
        tempfile.TemporaryDirectory(dir=program.program.parent) as cache,
    ):
        crowd.go()
        took = {
            UNSEEN: _timed(["on", str(crowd.pid), MARKER], cache),
            STATUS: _timed(["status", str(crowd.pid)], cache),
        }
        with markerjit.attach(crowd.pid) as session:
            session.disable(MARKER)
        crowd.rest()
        crowd.end()
    return took


def _timed(arguments: list[str], cache: str) -> int:
    root = str(Path(markerjit.__file__).parent.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "markerjit.cli.main", *arguments]
    start = time.perf_counter_ns()
    process = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": cache},
        stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )  # fmt: skip
    took = time.perf_counter_ns() - start
    if process.returncode:
        complaint = process.stderr.decode(errors="replace").strip()
        raise MarkerError(f"markerjit {arguments[0]}: {complaint}")
    return took

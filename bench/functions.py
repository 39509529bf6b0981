"""All functions of a program switched on at once, at entry and exits: what it costs the controller.

    python -m bench.functions [--rounds 3] [cpython] [postgres]

For each round a program is started: Debian's python3, and a backend of PostgreSQL (apt-get install
postgresql). In one process of the controller its functions are planned, with an empty cache; in
another one they are planned from the cache of the first, and then switched on, off, on, and off.
All that can be open without a breakpoint are, and are counted.

Printed are seconds of processor time of the controller, the lowest of the rounds with the highest
in brackets, and for how long the program's threads stood. Processor time disregards other work,
but for caches and the other thread of a core: the machine and its load are printed, too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import markerjit
from bench.postgresql import SERVER, Cluster, as_user, cluster
from markerjit.session.called import plan_functions
from markerjit.session.openings import silent
from markerjit.sites import parse_name

PYTHON = Path("/usr/bin/python3")
STAGES = ("plan, first", "plan, cached", "on", "off", "on again", "off again")
BOTH = ("", ":return")


class Running(NamedTuple):
    """A program, and the file whose functions are switched."""

    pid: int
    path: str


@contextmanager
def cpython() -> Iterator[Running]:
    """An interpreter that waits for a line."""
    command = [PYTHON, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            yield Running(process.pid, os.path.realpath(PYTHON))
        finally:
            process.kill()


@contextmanager
def postgres() -> Iterator[Running]:
    """A backend of a server, whose client waits."""
    with cluster() as server, client(server) as pid:
        yield Running(pid, str(SERVER))


@contextmanager
def client(server: Cluster) -> Iterator[int]:
    """A client of a server: the backend that serves it."""
    command = [*as_user(), "psql", *server.socket, "-XAtq", "bench"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write("select pg_backend_pid();\n")
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


PROGRAMS = {"cpython": cpython, "postgres": postgres}


# ---- in a process of its own ---------------------------------------------------------------------


def planned(session: markerjit.Session, path: str) -> Any:
    """How the functions of a file can be opened."""
    return plan_functions(
        session._target, parse_name(f"func:{path}:*"), breakpoints=False, progress=silent
    )


def measure(pid: int, path: str, what: str) -> dict[str, Any]:
    """The stages of one process of the controller."""
    result: dict[str, Any] = {}

    def timed(stage: str, work: Callable[[], Any]) -> Any:
        before = time.process_time()
        done = work()
        result[stage] = time.process_time() - before
        return done

    with markerjit.attach(pid) as session:
        stage = STAGES[0] if what == "plan" else STAGES[1]
        plan = timed(stage, lambda: planned(session, path))
        result["functions"] = len({each.entry.address for each in plan.functions})
        result["others"] = len(plan.not_opened)
        if what == "plan":
            return result
        names = sorted({each.name for each in plan.not_opened})
        parts = [f"func:{path}:*{behind}" for behind in BOTH]
        pattern = ",".join([*parts, *(f"!func:{name}{each}" for name in names for each in BOTH)])
        for number, stage in enumerate(STAGES[2:]):
            switch = session.off if number % 2 else session.on
            applied = timed(stage, lambda switch=switch: switch(pattern))
            result[f"{stage}, stood"] = applied.held
            result[f"{stage}, places"] = applied.written
    return result


def in_own_process(running: Running, what: str, cache: str) -> dict[str, Any]:
    """The same, with this cache."""
    own = ["--measure", what, str(running.pid), running.path]
    done = subprocess.run(
        [sys.executable, "-m", "bench.functions", *own],
        env={**os.environ, "XDG_CACHE_HOME": cache}, check=True, text=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def round_of(program: str) -> dict[str, Any]:
    """One round."""
    folder = tempfile.TemporaryDirectory(prefix="mj-functions-")
    with folder as cache, PROGRAMS[program]() as running:
        first = in_own_process(running, "plan", cache)
        return {**first, **in_own_process(running, "switch", cache)}


# ---- the table -----------------------------------------------------------------------------------


def shown(values: list[float], unit: float = 1.0, places: int = 2) -> str:
    """The lowest and the highest."""
    low, high = (f"{value / unit:,.{places}f}" for value in (min(values), max(values)))
    return f"{low} ({high})"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        what, pid, path = options.measure
        print(json.dumps(measure(int(pid), path, what)))
        return
    if unknown := set(options.programs).difference(PROGRAMS):
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(PROGRAMS)}")
    print(f"{processor()}, {os.cpu_count()} CPUs, Linux {platform.release()}")
    print(f"load {os.getloadavg()[0]:.0f} at the start, {options.rounds} rounds")
    print(f"| object | functions | {' | '.join(STAGES)} | stood, on, ms | stood, off, ms |")
    print("| --- |" + " ---: |" * (len(STAGES) + 3))
    for program in options.programs or PROGRAMS:
        values: defaultdict[str, list[float]] = defaultdict(list)
        for _ in range(options.rounds):
            for key, value in round_of(program).items():
                values[key].append(value)
        cells = [program, f"{values['functions'][0] + values['others'][0]:,.0f}"]
        cells += [shown(values[stage]) for stage in STAGES]
        cells += [shown(values[f"{stage}, stood"], 1e6, 0) for stage in ("on", "off")]
        print(f"| {' | '.join(cells)} |", flush=True)
        places = (f"{values[f'{stage}, places'][0]:,.0f}" for stage in ("on", "off"))
        print(f"  {values['functions'][0]:,.0f} opened; places on, off: {', '.join(places)}")
    print(f"load {os.getloadavg()[0]:.0f} at the end")


def processor() -> str:
    """What the kernel calls it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.partition(": ")[2] for line in lines if line.startswith("model name"))


if __name__ == "__main__":
    main()

"""All functions of a program switched on at once, at entry and exits: what it costs the controller.

    python -m bench.functions [--rounds 3] [--calls | --all] [cpython] [postgres]

For each round a program is started: Debian's python3, and a backend of PostgreSQL (apt-get install
postgresql). In one process of the controller its functions are planned, with an empty cache; in
another one they are planned from the cache of the first, and then switched on and off four times
in one session. All that can be open without a breakpoint are, and are counted. With --all the
pattern is of all functions, so that each `on` leaves some out. With --calls all calls of them are
followed in its place, twice in one process, which rests.

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import markerjit
from bench.postgresql import SERVER, Cluster, as_user, cluster
from markerjit.abi import RUNTIME_SIZE
from markerjit.session.called import plan_functions
from markerjit.session.openings import silent
from markerjit.sites import parse_name

PYTHON = Path("/usr/bin/python3")
STAGES = (
    "plan, first", "plan, cached", "on", "off", "on again", "off again", "third on", "third off",
    "fourth on", "fourth off",
)  # fmt: skip
OF_CALLS = ("calls, on", "calls, off", "calls, on again", "calls, off again")
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


def timed(result: dict[str, Any], stage: str, work: Callable[[], Any]) -> Any:
    """Do it, and enter the processor time that it took."""
    before = time.process_time()
    done = work()
    result[stage] = time.process_time() - before
    return done


def measure(pid: int, path: str, what: str) -> dict[str, Any]:
    """The stages of one process of the controller."""
    result: dict[str, Any] = {}
    with markerjit.attach(pid) as session:
        stage = STAGES[0] if what == "plan" else STAGES[1]
        plan = timed(result, stage, lambda: planned(session, path))
        result["functions"] = len({each.address for each in plan.entries})
        result["others"] = len(plan.not_opened)
        if what == "plan":
            return result
        names = sorted({each.name for each in plan.not_opened})
        parts = [f"func:{path}:*{behind}" for behind in BOTH]
        without = [f"!func:{name}{each}" for name in names for each in BOTH]
        pattern = ",".join(parts if what == "all" else [*parts, *without])
        for number, stage in enumerate(STAGES[2:]):
            switch = session.off if number % 2 else session.on
            applied = timed(result, stage, lambda switch=switch: switch(pattern))
            result[f"{stage}, stood"] = applied.held
            result[f"{stage}, places"] = applied.written
    return result


def measure_calls(pid: int) -> dict[str, Any]:
    """The stages of following all calls, from the cache; how many functions, and bytes of stubs and
    of recorders there are."""
    result: dict[str, Any] = {}
    with markerjit.attach(pid) as session:
        for on, off in (OF_CALLS[:2], OF_CALLS[2:]):
            following = session.trace_calls("*")
            trace = timed(result, on, following.__enter__)
            result["functions"], result["others"] = len(trace.opened), len(trace.not_opened)
            timed(result, off, lambda following=following: following.__exit__(None, None, None))
        arena = session._target.seen.arena
        result["stubs"] = sum(island.used for island in arena.islands.entries())
        result["recorders"] = int(arena.control.now().code_used) - RUNTIME_SIZE
    return result


def in_own_process(running: Running, what: str, cache: str) -> dict[str, Any]:
    """The same, with this cache."""
    own = ["--measure", what, str(running.pid), running.path]
    done = subprocess.run(
        [sys.executable, "-m", "bench.functions", *own],
        env={**os.environ, "XDG_CACHE_HOME": cache}, check=True, text=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def round_of(program: str, what: str) -> dict[str, Any]:
    """One round."""
    folder = tempfile.TemporaryDirectory(prefix="mj-functions-")
    with folder as cache, PROGRAMS[program]() as running:
        first = in_own_process(running, "plan", cache)
        return {**first, **in_own_process(running, what, cache)}


# ---- the table -----------------------------------------------------------------------------------


def shown(values: list[float], unit: float = 1.0, places: int = 2) -> str:
    """The lowest and the highest."""
    low, high = (f"{value / unit:,.{places}f}" for value in (min(values), max(values)))
    return f"{low} ({high})"


def cells_of_switches(values: Mapping[str, list[float]]) -> Iterator[str]:
    """Seconds, milliseconds, and places that were written."""
    yield from (shown(values[stage]) for stage in STAGES)
    yield from (shown(values[f"{stage}, stood"], 1e6, 0) for stage in STAGES[2:])
    yield from (f"{values[f'{stage}, places'][0]:,.0f}" for stage in ("on", "off"))


def cells_of_following(values: Mapping[str, list[float]]) -> Iterator[str]:
    """Seconds, and MiB."""
    yield from (shown(values[stage]) for stage in OF_CALLS)
    yield from (f"{values[what][-1] / (1 << 20):.1f}" for what in ("stubs", "recorders"))


OF_SWITCHES = (
    (*STAGES, *(f"stood, {stage}, ms" for stage in STAGES[2:]), "places, on", "places, off"),
    cells_of_switches,
)  # fmt: skip
OF_FOLLOWING = ((*OF_CALLS, "stubs, MiB", "recorders, MiB"), cells_of_following)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=3)
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument(
        "--calls",
        action="store_const",
        const="calls",
        dest="what",
        default="switch",
        help="follow all calls",
    )
    ways.add_argument(
        "--all",
        action="store_const",
        const="all",
        dest="what",
        help="name those, too, that cannot be open",
    )
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        what, pid, path = options.measure
        done = measure_calls(int(pid)) if what == "calls" else measure(int(pid), path, what)
        print(json.dumps(done))
        return
    if unknown := set(options.programs).difference(PROGRAMS):
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(PROGRAMS)}")
    print(f"{processor()}, {os.cpu_count()} CPUs, Linux {platform.release()}")
    print(f"load {os.getloadavg()[0]:.0f} at the start, {options.rounds} rounds")
    columns, cells_of = OF_SWITCHES
    if options.what == "calls":
        columns, cells_of = OF_FOLLOWING
    print(f"| object | functions | opened | {' | '.join(columns)} |")
    print("| --- |" + " ---: |" * (len(columns) + 2))
    for program in options.programs or PROGRAMS:
        values: defaultdict[str, list[float]] = defaultdict(list)
        for _ in range(options.rounds):
            for key, value in round_of(program, options.what).items():
                values[key].append(value)
        opened, others = values["functions"][-1], values["others"][-1]
        cells = [program, f"{opened + others:,.0f}", f"{opened:,.0f}", *cells_of(values)]
        print(f"| {' | '.join(cells)} |", flush=True)
    print(f"load {os.getloadavg()[0]:.0f} at the end")


def processor() -> str:
    """What the kernel calls it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.partition(": ")[2] for line in lines if line.startswith("model name"))


if __name__ == "__main__":
    main()

"""How long switching takes: from Python, in an open session, and from the shell.

Each figure is the median over rounds with the 5th and 95th percentile, on the bundled server (four
threads), idle and under its load. `python -c pass` stands beside the commands: it is what any
Python command costs on this machine now.

    python bench/latency.py [--rounds N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import markerjit
from markerjit.apps import showcase

Samples = dict[str, list[float]]


def timed(samples: Samples, name: str, action: Callable[[], object]) -> None:
    """Do it and keep how long it took, in milliseconds."""
    start = time.perf_counter_ns()
    action()
    samples.setdefault(name, []).append((time.perf_counter_ns() - start) / 1e6)


def python_door(samples: Samples, rounds: int, *, loaded: bool) -> None:
    """A new server each round, so that the first switch is really the first."""
    label = "loaded" if loaded else "idle"
    for _ in range(rounds):
        with (
            showcase.server("kvserver") as server,
            showcase.load(server, 60) if loaded else nullcontext(),
        ):
            start = time.perf_counter_ns()
            session = markerjit.attach(server.pid)
            session.enable("kv_hit")
            took = (time.perf_counter_ns() - start) / 1e6
            samples.setdefault(f"{label}: attach to first marker live", []).append(took)
            with session:
                for _ in range(20):
                    timed(samples, f"{label}: one marker off", partial(session.disable, "kv_hit"))
                    timed(samples, f"{label}: one marker on", partial(session.enable, "kv_hit"))


def shell(samples: Samples, rounds: int) -> None:
    """The commands as processes. The cache of verified build ids is ours and starts empty."""
    command = [sys.executable, "-m", "markerjit.cli.main"]
    with showcase.server("kvserver") as server, tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "XDG_CACHE_HOME": cache}

        def call(*arguments: str) -> None:
            subprocess.run(arguments, env=environment, check=True, stdout=subprocess.DEVNULL)

        pid = str(server.pid)
        timed(samples, "shell: on, first time", lambda: call(*command, "on", pid, "kv_hit"))
        for _ in range(rounds):
            timed(samples, "shell: python -c pass", lambda: call(sys.executable, "-c", "pass"))
            timed(samples, "shell: status", lambda: call(*command, "status", pid))
            timed(samples, "shell: off", lambda: call(*command, "off", pid, "kv_hit"))
            timed(samples, "shell: on", lambda: call(*command, "on", pid, "kv_hit"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", metavar="FILE", help="keep every sample")
    options = parser.parse_args()
    samples: Samples = {}
    with showcase.server("kvserver") as warm_up, markerjit.attach(warm_up.pid) as session:
        session.enable("*")
    for loaded in (False, True):
        python_door(samples, options.rounds, loaded=loaded)
    shell(samples, options.rounds)
    if options.json:
        Path(options.json).write_text(json.dumps(samples))
    print(f"{'ms':<40}{'median':>9}{'5 %':>9}{'95 %':>9}")
    for name, values in samples.items():
        low, *_, high = statistics.quantiles(values, n=20) if len(values) > 1 else values * 2
        print(f"{name:<40}{statistics.median(values):>9.2f}{low:>9.2f}{high:>9.2f}")


if __name__ == "__main__":
    main()

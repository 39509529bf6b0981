"""In which order threads are stopped: none stands while one that runs is waited for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import state_of
from tests.support.programs import ROOT, make
from tests.support.timing import wait_until

pytestmark = [pytest.mark.races, pytest.mark.live]

ORDERED = Path(__file__).with_name("ordered.py")
THREADS = 8


def test_all_are_seized_first_and_one_that_runs_stands_before_others_are_interrupted(
    target: Callable,
) -> None:
    make("build/hooks/libmjstop.so")
    program = target("truth_many", str(THREADS), "--run")
    tids = [int(task.name) for task in Path(f"/proc/{program.pid}/task").iterdir()]
    states = ["R", *["S"] * THREADS]
    wait_until(lambda: sorted(map(state_of, tids)) == states, "all but one to sleep")
    runs = next(tid for tid in tids if state_of(tid) == "R")

    done = subprocess.run(
        [sys.executable, ORDERED, str(program.pid), str(runs)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["points"] == ["seized"] * len(tids) + ["interrupted"] * len(tids)
    # It runs on until it gets to its stop, and is waited for. Then the others are interrupted.
    assert seen["states"][1:] == ["t"] * THREADS

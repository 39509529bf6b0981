"""The coverage-guided harnesses, each for a short while: they run, get inside, and find nothing.

atheris hooks the interpreter and ends the process, so each runs in a process of its own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fuzz.every import HARNESSES

RUNS = 1200


@pytest.mark.slow
@pytest.mark.parametrize("name", HARNESSES)
def test_a_guided_run_reaches_its_decoder_and_finds_nothing(name: str, repo: Path) -> None:
    if find_spec("atheris") is None:
        pytest.skip("needs atheris (pip install atheris)")

    runs = RUNS // HARNESSES[name].weight

    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.guided", name, "--runs", str(runs)],
        cwd=repo,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["tried"] == runs
    assert summary["found"]["accepted"] > 0
    assert len(summary["found"]) > 1
    first, *_, last = map(int, re.findall(r" cov: (\d+)", done.stderr))
    assert last > first > 0, "the decoder is not instrumented, or no input got further"

"""A controller of functions' returns that is killed leaves a program that runs, and no entry open
for nobody. What each kill is checked for is in returns_killed.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import ROOT, make

pytestmark = [pytest.mark.races, pytest.mark.live, pytest.mark.slow]

SCRIPT = Path(__file__).with_name("returns_killed.py")


def test_a_killed_controller_leaves_no_entry_open_and_no_stale_arguments() -> None:
    make("native", "build/hooks/libmjstop.so", "build/targets/truth_returns")

    done = subprocess.run(
        [sys.executable, "-B", str(SCRIPT)],
        cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip

    assert done.returncode in (0, 1), done.stderr
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert not [each for each in outcomes if each["harm"]]
    died = [each for each in outcomes if each["died"]]
    assert len(died) > 0.9 * len(outcomes)
    assert {each["journal"] for each in died} == {"nothing", "finished", "rolled back"}

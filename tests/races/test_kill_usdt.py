"""A controller of USDT probes that is killed leaves a program that runs, and what repair can put
back: heads and semaphores together. What each kill is checked for is in usdt_killed.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.choice import spacing
from tests.support.programs import ROOT, make

pytestmark = [pytest.mark.races, pytest.mark.live, pytest.mark.slow]

SCRIPT = Path(__file__).with_name("usdt_killed.py")


@pytest.fixture(scope="module")
def outcomes() -> list[SimpleNamespace]:
    make("native", "build/hooks/libmjstop.so", "build/targets/truth_usdt")
    command = [sys.executable, "-B", str(SCRIPT), "--spacing", str(spacing(6))]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return [SimpleNamespace(**json.loads(line)) for line in done.stdout.splitlines()]


def test_a_killed_controller_harms_no_program_and_no_semaphore(
    outcomes: list[SimpleNamespace],
) -> None:
    wrong = [(each.scenario, each.point, each.harm) for each in outcomes if each.harm]

    assert not wrong


def test_controllers_die_in_all_scenarios_and_leave_all_kinds_of_journals(
    outcomes: list[SimpleNamespace],
) -> None:
    died = [each for each in outcomes if each.died]

    assert len(died) > 0.95 * len(outcomes)
    assert {each.scenario for each in died} == {"first use", "on", "off", "on again", "trace"}
    assert {each.journal for each in died} == {"nothing", "finished", "rolled back"}

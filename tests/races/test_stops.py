"""How often a process is stopped as a whole: no more often than what is done needs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import ROOT, make

pytestmark = [pytest.mark.races, pytest.mark.live]

STOPS_AND_BORROWINGS = {
    "first use, stop": (2, 1),  # to make and map a memfd, and to switch
    "first use, membarrier": (1, 2),
    "first use, breakpoints": (2, 3),  # and twice to ask for the action for SIGTRAP and to set it
    "on, stop": (1, 0),
    "on, membarrier": (0, 1),
    "jump to int3, stop": (1, 2),
    "off, membarrier, after a kill": (1, 1),  # the scratch is taken
}


def test_a_process_is_stopped_as_a_whole_only_where_it_has_to_be() -> None:
    make("native", "build/hooks/libmjstop.so", "build/targets/truth_floats")

    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("stops.py"), *STOPS_AND_BORROWINGS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    counted = {name: tuple(counts) for name, counts in json.loads(done.stdout).items()}
    assert counted == STOPS_AND_BORROWINGS

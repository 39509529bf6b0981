"""kvload, which drives the bundled server: the rate that it is told."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.timing import HANG_S

pytestmark = pytest.mark.live

REQUESTS = 60
RATE = 300


@pytest.mark.parametrize("connections", ["1", "16"])
def test_no_more_requests_are_sent_than_the_rate_permits_and_all_are_answered(
    target: Callable, build: Path, connections: str
) -> None:
    program = target("kvserver")
    command = [build / "kvload", "--port", program.ready["port"], "--connections", connections]

    done = subprocess.run(
        [*command, "--rate", str(RATE), "--requests", str(REQUESTS)],
        check=True, capture_output=True, text=True, timeout=HANG_S,
    )  # fmt: skip

    summary = json.loads(done.stdout)["summary"]
    assert (summary["requests"], summary["errors"], summary["wrong"]) == (REQUESTS, 0, 0)
    assert RATE * summary["seconds"] >= REQUESTS


def test_a_rate_of_nothing_is_wrong_usage(build: Path) -> None:
    done = subprocess.run(
        [build / "kvload", "--port", "1", "--rate", "0"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 2
    assert "--rate R" in done.stderr

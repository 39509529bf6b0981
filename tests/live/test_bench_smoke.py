"""That the benchmarks of transactions run and account for all they did. Their figures are nobody's
business here: this machine may do something else meanwhile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def run(script: str, directory: Path, *arguments: str) -> tuple[str, list[dict[str, Any]]]:
    """The table that a benchmark prints, and the samples that it keeps."""
    kept = directory / "samples.json"
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / script, *arguments, "--json", kept],
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(directory)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(kept.read_text())["samples"]


@pytest.fixture(scope="module")
def samples(build: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Of the smallest run of transactions.py."""
    directory = tmp_path_factory.mktemp("transactions")
    return run("transactions.py", directory, "--quick", "--rounds", "1")[1]


def test_every_switch_has_a_look_beside_it(samples: list[dict[str, Any]]) -> None:
    switches = [one for one in samples if one["kind"] != "attach"]

    assert {one["where"] for one in switches} == {"outside", "inside"}
    assert {one["strategy"] for one in switches} == {"stop", "membarrier", "none"}
    assert all(one["call"] > 0 and one["look"] > 0 for one in switches)


def test_only_a_stop_stops(samples: list[dict[str, Any]]) -> None:
    switches = [one for one in samples if one["kind"] != "attach"]

    assert all((one["stopped"] > 0) == (one["strategy"] == "stop") for one in switches)
    assert all(one["held"] <= one["stopped"] <= one["call"] for one in switches)


def test_switches_are_made_again_under_every_strategy(samples: list[dict[str, Any]]) -> None:
    again = {one["strategy"] for one in samples if one["kind"] == "again"}

    assert again == {"stop", "membarrier", "none"}


def test_no_request_fails_while_the_servers_markers_flip(
    build: Path, needs_tool: Callable[[str, str], str], tmp_path: Path
) -> None:
    needs_tool("redis-benchmark", "redis-tools")

    table, slices = run("redis_minute.py", tmp_path, "--seconds", "0.2")

    assert "byte flip" in table
    assert sum(one["completed"] for one in slices) > 0
    assert [one for one in slices if one["failed"]] == []
    assert all((one["flips"] > 0) == (one["way"][:5] != "quiet") for one in slices)

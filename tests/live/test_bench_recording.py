"""That the benchmark of recording runs, accounts for every event, and leaves nothing behind. Its
figures are nobody's business here: this machine may do something else meanwhile.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BENCH = [sys.executable, str(ROOT / "bench/recording.py"), "--quick"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def run(directory: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    """The table that it prints, and what it keeps."""
    kept = directory / "samples.json"
    command = [*BENCH, *arguments, "--json", str(kept)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(kept.read_text())


def named(samples: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    found = [one for one in samples if one["way"] == name]
    assert found
    return found


@pytest.fixture(scope="module")
def own(build: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Two rounds of our own recorder, and of what stands beside it."""
    directory = tmp_path_factory.mktemp("recording")
    ways = ("rdtsc", "markerjit dormant", "markerjit count only", "markerjit 2 ints", "*all lost")
    only = [word for way in ways for word in ("--only", way)]
    samples: list[dict[str, Any]] = run(directory, "--rounds", "2", *only)[1]["samples"]
    return samples


@pytest.fixture
def lttng(build: Path, needs_tool: Callable[[str, str], str]) -> None:
    """LTTng and the program that reads its traces."""
    for tool, package in (("lttng", "lttng-tools"), ("babeltrace2", "babeltrace2")):
        needs_tool(tool, package)
    if subprocess.run(
        ["cc", "-fsyntax-only", "-x", "c", "-"],
        input=b"#include <lttng/tracepoint.h>\n",
        capture_output=True,
        check=False,
    ).returncode:
        pytest.skip(
            "lttng/tracepoint.h is missing; install it with: apt-get install liblttng-ust-dev"
        )


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that `nobody` can enter; pytest's own are closed. And what LTTng left in shared
    memory, because a killed bench could not, is taken away."""
    notes = set(Path("/dev/shm").glob("lttng-ust-wait-*"))
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
    for note in set(Path("/dev/shm").glob("lttng-ust-wait-*")) - notes:
        note.unlink()


def test_every_block_has_the_clock_beside_it(own: list[dict[str, Any]]) -> None:
    assert {one["way"] for one in own} >= {"rdtsc", "markerjit dormant", "markerjit 2 ints"}
    assert all(len(one["ticks"]) == len(one["rdtsc_ticks"]) == one["threads"] for one in own)
    assert all(min(one["ticks"] + one["rdtsc_ticks"] + one["ns"]) > 0 for one in own)


def test_events_passed_are_events_recorded(own: list[dict[str, Any]]) -> None:
    recorded = named(own, "markerjit 2 ints")

    assert all(one["passed"] > one["events"] * one["threads"] for one in recorded)
    assert all(one["recorded"] == one["passed"] and one["lost"] == 0 for one in recorded)


def test_events_passed_are_events_counted(own: list[dict[str, Any]]) -> None:
    assert all(one["recorded"] == one["passed"] for one in named(own, "markerjit count only"))


def test_a_full_ring_loses_every_event(own: list[dict[str, Any]]) -> None:
    lost = named(own, "markerjit ring full, all lost")

    assert all(one["lost"] == one["passed"] and one["recorded"] == 0 for one in lost)


def test_a_ring_that_is_too_small_is_noticed(build: Path) -> None:
    size = ("--rounds", "1", "--events", "22000", "--ring-size", "65536")
    command = [*BENCH[:2], *size, "--only", "markerjit 1 int"]

    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "WRONG markerjit 1 int" in done.stdout


def test_lttng_accounts_for_every_event_and_its_daemon_ends(lttng: None, place: Path) -> None:
    table, kept = run(place, "--rounds", "1", "--only", "LTTng*")

    assert kept["skipped"] == {}
    whole = kept["accounts"]["LTTng 2 ints"]
    assert whole["recorded"] + whole["discarded"] == whole["passed"]
    assert whole["recorded"] > 0
    assert all(one["right"] for one in kept["accounts"].values())
    assert "LTTng 2 ints, overwrite" in table
    assert not Path(f"/proc/{kept['daemon']}").exists()


def test_events_that_lttng_discards_are_counted_and_said(lttng: None, place: Path) -> None:
    kept = place / "samples.json"
    size = ("--rounds", "1", "--events", "2200000", "--ring-size", str(1 << 15))

    done = subprocess.run(
        [*BENCH[:2], *size, "--only", "LTTng 2 ints", "--json", kept],
        env={**ENVIRONMENT, "TMPDIR": str(place)}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    account = json.loads(kept.read_text())["accounts"]["LTTng 2 ints"]
    assert account["discarded"] > 0
    assert account["recorded"] + account["discarded"] == account["passed"]
    assert f"{account['discarded']:,} discarded, which are cheaper" in done.stdout


def test_the_daemon_ends_when_the_bench_is_killed(lttng: None, place: Path) -> None:
    bench = subprocess.Popen(
        [*BENCH, "--only", "LTTng 2 ints"],
        env={**ENVIRONMENT, "TMPDIR": str(place)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert bench.stderr
    said = next(line for line in bench.stderr if line.startswith("lttng-sessiond"))
    daemon = Path(f"/proc/{said.split()[-1]}")

    bench.send_signal(signal.SIGKILL)
    bench.wait()
    bench.stderr.close()

    deadline = time.monotonic() + 60
    while daemon.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not daemon.exists()

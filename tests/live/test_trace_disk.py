"""Files that cannot be written: the disk is full, something is there already, or nobody reads. The
trace ends with one sentence, the markers are off, and what is there can be read."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

import markerjit
from tests.support.commands import CLI, ENVIRONMENT, cli, one_line
from tests.support.markers import modes_of
from tests.support.timing import HANG_S
from tests.support.turns import by_thread

# Pieces of a file that are written whole are larger in some formats: a full ring, 65536 events.
SUFFIXES = [
    ("ctf", 4 << 20),
    ("txt", 1 << 18),
    *(
        pytest.param(suffix, size, marks=[pytest.mark.slow, *([pytest.mark.long] * is_long)])
        for suffix, size, is_long in (
            *(("ctf2", 4 << 20, True), ("arrow", 4 << 20, False)),
            *(("pftrace", 1 << 18, False), ("json", 1 << 18, True), ("jsonl", 1 << 18, True)),
        )
    ),
]


@pytest.fixture
def full_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A directory for little. A limit of the size of files would keep us from the arena, too."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={request.param}", "tmpfs", disk]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs to mount a tmpfs: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize(("suffix", "full_disk"), SUFFIXES, indirect=["full_disk"])
def test_full_disk_ends_the_trace_in_one_sentence_and_what_is_there_can_be_read(
    target: Callable, full_disk: Path, suffix: str
) -> None:
    program = target("truth_threads", "2", "--rate", "200000")
    path = full_disk / f"events.{suffix}"

    done = cli("trace", program.pid, "truth_loop", "-o", path)

    one_line(done, "No space left")
    assert set(modes_of(program.pid).values()) == {None}
    assert program.ask("counts")["truth_loop"] > 0
    events = list(islice(markerjit.open_trace(str(path)).events(), 5000))
    if suffix == "txt":
        events.pop()  # its line may be cut: test_trace_files.py
    turns = by_thread([tuple(event.fields.values()) for event in events])
    assert len(events) > 100
    assert set(turns) <= {0, 1}
    for numbers in turns.values():
        assert numbers == sorted(set(numbers))


@pytest.mark.slow
@pytest.mark.parametrize("full_disk", [1 << 18], indirect=True)
def test_full_disk_costs_all_of_a_parquet_file_and_that_is_said(
    target: Callable, full_disk: Path
) -> None:
    program = target("truth_threads", "2", "--rate", "400000")
    path = full_disk / "events.parquet"

    one_line(cli("trace", program.pid, "truth_loop", "-o", path), "No space left")

    assert set(modes_of(program.pid).values()) == {None}
    one_line(cli("read", path), "did not close it, and then it cannot be read")


@pytest.mark.parametrize("command", ["trace", "flight dump"])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("there.txt", "exists"),
        ("full.ctf", "exists|empty"),
        ("directory.txt", "exists|directory"),
        ("none/events.parquet", "no directory"),
        ("events.xyz", r"\.parquet.*\.jsonl|no trace format"),
    ],
)
def test_file_that_cannot_be_written_is_refused_before_anything_is_on(
    target: Callable, tmp_path: Path, name: str, reason: str, command: str
) -> None:
    pid = target("truth_threads", "1", "--rate", "100").pid
    (tmp_path / "there.txt").write_text("precious")
    (tmp_path / "full.ctf").mkdir()
    (tmp_path / "full.ctf" / "precious").write_text("precious")
    (tmp_path / "directory.txt").mkdir()
    pattern = ["truth_loop"] if command == "trace" else []

    done = cli(*command.split(), pid, *pattern, "-o", tmp_path / name)

    one_line(done, reason)
    assert name.rpartition("/")[2] in done.stderr
    assert (tmp_path / "there.txt").read_text() == "precious"
    assert [path.name for path in (tmp_path / "full.ctf").iterdir()] == ["precious"]
    with markerjit.View(pid) as view:
        assert not view.has_runtime


def test_force_overwrites_a_trace_and_never_other_files(target: Callable, tmp_path: Path) -> None:
    pid = target("truth_threads", "1", "--rate", "5000").pid
    (tmp_path / "other.ctf").mkdir()
    (tmp_path / "other.ctf" / "precious").write_text("precious")

    paths = [tmp_path / name for name in ("a.txt", "a.ctf")]
    for path in paths:
        first = cli("trace", pid, "truth_loop", "--events", 10, "-o", path)
        second = cli("trace", pid, "truth_loop", "--events", 500, "-o", path, "--force")
        assert (first.returncode, second.returncode) == (0, 0), second.stderr
        shown = int(re.match(r"[\d,]+", second.stderr)[0].replace(",", ""))
        assert sum(1 for _ in markerjit.open_trace(str(path)).events()) == shown >= 500
    done = cli("trace", pid, "truth_loop", "-o", tmp_path / "other.ctf", "--force")

    one_line(done, "left alone")
    assert (tmp_path / "other.ctf" / "precious").read_text() == "precious"


def test_nobody_takes_the_events_and_the_trace_ends_all_the_same(
    target: Callable, tmp_path: Path
) -> None:
    program = target("truth_threads", "2", "--rate", "20000")

    with open("/dev/full", "w") as full:
        command = [*CLI, "trace", str(program.pid), "truth_loop"]
        done = subprocess.run(
            command, env=ENVIRONMENT, stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=HANG_S, check=False,
        )  # fmt: skip

    assert done.returncode == 1
    assert "No space left" in done.stderr and len(done.stderr.splitlines()) == 1
    assert set(modes_of(program.pid).values()) == {None}
    assert os.listdir(tmp_path) == []

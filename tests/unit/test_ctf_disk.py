"""CTF directories whose disk is full, or whose writer is killed: what was written before stays."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from markerjit.ring.batch import Packet
from markerjit.trace.ctf import CtfSink, read_ctf
from tests.support.ctf import INFO, batch, numbers, tick
from tests.support.programs import ROOT


class Full:
    """os.pwrite of a disk that has only so much room left, and writes as much as it can."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._pwrite = os.pwrite

    def __call__(self, file: int, data: bytes, at: int) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "no space left on device")
        some = memoryview(data)[: self.room]
        self.room -= len(some)
        return self._pwrite(file, some, at)


@pytest.mark.parametrize("room", [0, 10, 100, 300, 400, 1000, 2000, 20_000])
def test_full_disk_leaves_what_was_written_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    disk = Full(room)
    monkeypatch.setattr(os, "pwrite", disk)
    sink = CtfSink(tmp_path / "t", INFO)
    written: list[int] = []

    with pytest.raises(OSError, match="no space left"):
        for n in range(100):
            sink.write(batch(Packet(0, 0, tick(n, n) * 50)))
            written += [n] * 50
    assert numbers(tmp_path / "t") == written
    disk.room = 100_000
    sink.write(batch(Packet(0, 0, tick(1000, 1000))))
    sink.close({})

    assert numbers(tmp_path / "t") == [*written, 1000]


def test_disk_that_is_full_at_the_end_keeps_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = CtfSink(tmp_path / "t", INFO)
    sink.write(batch(Packet(0, 0, tick(1, 1)), lost={(0, "tick"): 1}))
    monkeypatch.setattr(os, "pwrite", Full(0))

    with pytest.raises(OSError, match="no space left"):
        sink.close({(0, "tick"): 5, (1, "tick"): 2})

    assert numbers(tmp_path / "t") == [1]
    assert (tmp_path / "t" / "ring_0").stat().st_size < 1000


def test_limit_on_the_size_of_files_is_like_a_full_disk(tmp_path: Path) -> None:
    limit = 3 << 20
    program = """
import sys
sys.path.insert(0, sys.argv[1])
import resource
from tests.support.ctf import INFO, CtfSink, Packet, batch, tick
limit = int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
sink = CtfSink(sys.argv[2], INFO)
n = 0
try:
    while True:
        data = b"".join(tick(time, n) for time in range(n * 10_000, (n + 1) * 10_000))
        sink.write(batch(Packet(0, 0, data)))
        n += 1
except OSError as error:
    print(n, error.errno)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, ROOT, tmp_path / "t", str(limit)],
        capture_output=True,
        text=True,
        check=True,
    )

    count, error = map(int, done.stdout.split())
    assert error == errno.EFBIG
    assert count == (limit - 256) // 240_128
    assert len(numbers(tmp_path / "t")) == count * 10_000


class Killed(BaseException):
    """The end of the process, in a test."""


@pytest.mark.parametrize("call", ["pwrite", "ftruncate", "open", "rename", "replace"])
def test_writer_may_be_killed_before_any_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    large = b"".join(tick(n, n) for n in range(10, 60_000))
    real = getattr(os, call)
    seen = set()

    for number in range(100):
        left = number

        def dying(*args: object, **more: object) -> object:
            nonlocal left
            if not left:
                raise Killed
            left -= 1
            return real(*args, **more)

        path = tmp_path / f"t{number}"
        try:
            sink = CtfSink(path, INFO)
            monkeypatch.setattr(os, call, dying)
            sink.write(batch(Packet(0, 0, tick(1, 1)), lost={(0, "tick"): 1}))
            sink.write(batch(Packet(0, 0, tick(2, 2)), Packet(1, 1, tick(3, 3))))
            sink.write(batch(Packet(0, 0, large)))
            sink.close({(0, "tick"): 2, (7, "tick"): 1})
        except Killed:
            monkeypatch.undo()
        else:
            break
        seen.add(len(numbers(path)))
        assert read_ctf(path)[2].get((0, ""), 0) <= 2
    monkeypatch.undo()

    assert numbers(path)[:3] == [1, 2, 3]
    assert seen <= {0, 1, 2, 3, 3 + 59_990}
    assert call in {"open", "rename", "replace"} or len(seen) > 1

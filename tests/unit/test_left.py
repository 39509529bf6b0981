"""A thread that was left in a borrowed call is known by its stack pointer, while it waits."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from markerjit.abi import SCRATCH_SIZE
from markerjit.memory import FakeMemory
from markerjit.model import RemoteAddress
from markerjit.remote.left import find_left


class Sleeper:
    """A thread of ours that waits in read(2)."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        self._thread = threading.Thread(target=os.read, args=(self._reading, 1))
        self._thread.start()
        assert self._thread.native_id
        self.tid = self._thread.native_id
        path = Path(f"/proc/self/task/{self.tid}/syscall")
        while (words := path.read_text().split())[0] != "0":
            pass
        self.stack_pointer = int(words[-2], 16)

    def end(self) -> None:
        os.write(self._writing, b"x")
        self._thread.join()
        os.close(self._reading)
        os.close(self._writing)


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    sleeper = Sleeper()
    yield sleeper
    sleeper.end()


def scratch_of(user: int, at: int) -> tuple[FakeMemory, RemoteAddress]:
    return FakeMemory({at: user.to_bytes(8, "little")}), RemoteAddress(at)


@pytest.mark.parametrize(
    ("below", "is_left"),
    [(0, True), (SCRATCH_SIZE - 1, True), (SCRATCH_SIZE, False), (-1, False)],
)
def test_a_thread_that_waits_on_the_scratch_is_left(
    sleeper: Sleeper, below: int, is_left: bool
) -> None:
    memory, scratch = scratch_of(sleeper.tid, sleeper.stack_pointer - below)

    assert find_left(os.getpid(), memory, scratch) == ((sleeper.tid, 0) if is_left else None)


def test_a_scratch_that_nobody_has_leaves_nobody(sleeper: Sleeper) -> None:
    memory, scratch = scratch_of(0, sleeper.stack_pointer)

    assert find_left(os.getpid(), memory, scratch) is None


def test_a_thread_that_runs_is_on_its_way() -> None:
    memory, scratch = scratch_of(threading.get_native_id(), 4096)  # /proc calls it "running"

    assert find_left(os.getpid(), memory, scratch) is None


@pytest.mark.parametrize("user", [1 << 40, (1 << 64) - 1])
def test_a_number_that_is_no_thread_leaves_nobody(user: int) -> None:
    memory, scratch = scratch_of(user, 4096)

    assert find_left(os.getpid(), memory, scratch) is None


def test_memory_that_cannot_be_read_leaves_nobody() -> None:
    assert find_left(os.getpid(), FakeMemory(), RemoteAddress(4096)) is None

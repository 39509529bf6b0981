"""The target's lock, as its holder sees it; between processes: tests/live/test_commands.py."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from markerjit.memory import ProcessMemory


@pytest.fixture
def other() -> Iterator[ProcessMemory]:
    with ProcessMemory(os.getpid()) as memory:
        yield memory


def test_to_ask_whether_it_is_locked_leaves_us_our_lock(
    memory: ProcessMemory, other: ProcessMemory
) -> None:
    with memory.locked() as got:
        assert got
        assert memory.is_locked()
        assert memory.is_locked()
        assert other.is_locked()
    assert not memory.is_locked()
    assert not other.is_locked()


def test_a_lock_that_we_hold_is_not_given_a_second_time(
    memory: ProcessMemory, other: ProcessMemory
) -> None:
    with memory.locked():
        with memory.locked() as again:
            assert not again
        assert other.is_locked()
    assert not other.is_locked()


def test_a_lock_ends_with_an_error_too(memory: ProcessMemory, other: ProcessMemory) -> None:
    with pytest.raises(KeyError), memory.locked():
        raise KeyError

    assert not other.is_locked()

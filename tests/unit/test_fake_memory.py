"""The fake memory behaves as the real one does, where the tests of others rely on it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.errors import MemoryFault
from markerjit.memory import FakeMemory, Memory
from markerjit.model import RemoteAddress

A = RemoteAddress(0x1000)
B = RemoteAddress(0x1004)


def test_it_is_a_memory() -> None:
    memory: Memory = FakeMemory({0x1000: b"abcd"})

    assert memory.read(A, 4) == b"abcd"


def test_neighbouring_segments_read_and_write_as_one() -> None:
    memory = FakeMemory({0x1004: b"5678", 0x1000: b"1234"})

    memory.write(RemoteAddress(0x1002), b"xxYY")

    assert memory.read(A, 8) == b"12xxYY78"
    assert memory.segments[A] == b"12xx"


@pytest.mark.parametrize(("address", "size"), [(0xFFF, 2), (0x1003, 2), (0, 1), (0x1000, 5)])
def test_span_that_leaves_the_segments_is_a_fault(address: int, size: int) -> None:
    memory = FakeMemory({0x1000: b"1234"})

    with pytest.raises(MemoryFault):
        memory.read(RemoteAddress(address), size)
    with pytest.raises(MemoryFault):
        memory.write(RemoteAddress(address), bytes(size))

    assert memory.read(A, 4) == b"1234"
    assert memory.writes == []


def test_writes_are_recorded_in_order() -> None:
    memory = FakeMemory({0x1000: bytes(8)})

    memory.write(B, b"b")
    memory.write(A, b"aa")

    assert memory.writes == [(B, b"b"), (A, b"aa")]


def test_nth_write_fails_once_and_writes_nothing() -> None:
    memory = FakeMemory({0x1000: bytes(2)})
    memory.write(A, b"1")
    memory.fail_write(2, "the test says so")

    memory.write(A, b"2")
    with pytest.raises(MemoryFault, match="the test says so"):
        memory.write(A, b"3")
    memory.write(RemoteAddress(0x1001), b"4")

    assert memory.read(A, 2) == b"24"
    assert [data for _, data in memory.writes] == [b"1", b"2", b"4"]


def test_overlapping_segments_are_refused() -> None:
    memory = FakeMemory({0x1000: b"1234"})

    with pytest.raises(ValueError, match="overlaps"):
        memory.add(RemoteAddress(0x0FFE), b"123")


def test_content_is_copied() -> None:
    content = bytearray(b"1234")
    memory = FakeMemory({0x1000: content})

    memory.write(A, b"X")

    assert content == b"1234"


@given(st.lists(st.tuples(st.integers(0, 63), st.binary(max_size=32))))
def test_it_agrees_with_one_flat_buffer(writes: list[tuple[int, bytes]]) -> None:
    flat = bytearray(64)
    memory = FakeMemory({0x1000 + i * 16: bytes(16) for i in range(4)})

    for offset, data in writes:
        if offset + len(data) <= 64:
            flat[offset : offset + len(data)] = data
            memory.write(RemoteAddress(0x1000 + offset), data)

    assert memory.read(A, 64) == flat

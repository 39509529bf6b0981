"""Edits of code that lie close together are written at once while nobody runs."""

from __future__ import annotations

import ctypes
import errno

import pytest

from markerjit.model import Edit
from markerjit.remote import native
from tests.support.faulty_memory import (
    READ,
    START,
    SYNC,
    WRITE,
    FaultyMemory,
    close_together,
    edit,
    zeros_and,
)


def test_code_that_lies_close_together_is_written_at_once_while_nobody_runs(
    faulty_library: ctypes.CDLL,
) -> None:
    edits = close_together(100, 64)
    between = bytearray(b"\x90" * 6400)
    for change in edits:
        between[change.address - START] = 0
    memory = FaultyMemory(faulty_library, bytes(between))

    assert memory.apply(edits, nobody_runs=True) == native.OK

    assert memory.content == zeros_and(edits, between)
    assert [what for what, _ in memory.steps] == [READ, READ, WRITE, READ, SYNC]


@pytest.mark.parametrize("code", [True, False])
def test_under_threads_that_run_every_edit_is_written_by_itself(
    faulty_library: ctypes.CDLL, code: bool
) -> None:
    """Not only threads write what stands between: the kernel does, and other processes."""
    edits = close_together(100, 64, code=code)
    memory = FaultyMemory(faulty_library, bytes(6400))

    assert memory.apply(edits) == native.OK

    assert memory.of(WRITE) == [change.address for change in edits]
    assert {memory.sizes[i] for i, step in enumerate(memory.steps) if step[0] == WRITE} == {1}


def test_data_before_and_behind_a_run_is_written_by_itself(faulty_library: ctypes.CDLL) -> None:
    edits = close_together(20, 64)
    for n, change in enumerate(edits):
        data = n < 5 or n >= 15
        edits[n] = change._replace(code=not data, step=(n >= 5) + (n >= 15))
    memory = FaultyMemory(faulty_library, bytes(20 * 64))

    assert memory.apply(edits, nobody_runs=True) == native.OK

    data = [change.address for change in edits if not change.code]
    assert memory.of(WRITE) == [*data[:5], edits[5].address, *data[5:]]
    assert memory.content == zeros_and(edits, bytes(20 * 64))


@pytest.mark.parametrize("code_behind", [0, 1, 4])
def test_a_step_that_runs_are_only_a_part_of_is_written_whole(
    faulty_library: ctypes.CDLL, code_behind: int
) -> None:
    """Two objects in one step: code, data, and code again."""
    edits = close_together(6 + code_behind, 64)
    edits[5] = edits[5]._replace(code=False)
    memory = FaultyMemory(faulty_library, bytes(6400))

    assert memory.apply_runs(edits, first=0, count=5) == native.OK

    assert memory.content == zeros_and(edits, bytes(6400))


@pytest.mark.parametrize("number", [3, 4])
def test_three_are_too_few_to_be_written_at_once(faulty_library: ctypes.CDLL, number: int) -> None:
    memory = FaultyMemory(faulty_library, bytes(4 * 64))

    assert memory.apply(close_together(number, 64), nobody_runs=True) == native.OK
    assert len(memory.of(WRITE)) == (1 if number == 4 else 3)


def test_nothing_longer_than_16_kib_is_written_at_once(faulty_library: ctypes.CDLL) -> None:
    edits = close_together(200, 1024)
    memory = FaultyMemory(faulty_library, bytes(200 * 1024))

    assert memory.apply(edits, nobody_runs=True) == native.OK

    assert max(memory.sizes) <= 1 << 14
    assert len(memory.of(WRITE)) == 13
    assert memory.content == zeros_and(edits, bytes(200 * 1024))


def test_what_lies_far_apart_is_not_written_at_once(faulty_library: ctypes.CDLL) -> None:
    edits = close_together(8, 3 * 4096)
    memory = FaultyMemory(faulty_library, bytes(8 * 3 * 4096))

    assert memory.apply(edits, nobody_runs=True) == native.OK
    assert len(memory.of(WRITE)) == 8


@pytest.mark.parametrize("nobody_runs", [True, False])
def test_a_hole_between_edits_is_not_touched(
    faulty_library: ctypes.CDLL, nobody_runs: bool
) -> None:
    """An unmapped page between the last byte of one page and the first of the next but one."""
    edits = [edit(START + at, b"\0", b"\1", code=True) for at in (4093, 4094, 4095, 8192, 8193)]
    memory = FaultyMemory(faulty_library, bytes(3 * 4096))
    memory.hole = range(START + 4096, START + 8192)

    assert memory.apply(edits, nobody_runs=nobody_runs) == native.OK
    assert memory.content == zeros_and(edits, bytes(3 * 4096))


@pytest.mark.parametrize("wrong", [0, 1, 57, 99])
def test_one_unexpected_byte_in_a_run_is_named(faulty_library: ctypes.CDLL, wrong: int) -> None:
    edits = close_together(100, 64)
    memory = FaultyMemory(faulty_library, bytes(6400))
    memory.content[64 * wrong] = 0x55
    seen = bytes(memory.content)

    assert memory.apply(edits, nobody_runs=True) == native.UNEXPECTED
    assert (memory.report.index, memory.report.found[0]) == (wrong, 0x55)
    assert memory.content == seen


@pytest.mark.parametrize("at", [0, 64, 6336])
def test_a_run_that_reads_back_otherwise_is_taken_back(
    faulty_library: ctypes.CDLL, at: int
) -> None:
    memory = FaultyMemory(faulty_library, bytes(6400))
    memory.sneak[3] = (START + at, 0x55)

    assert memory.apply(close_together(100, 64), nobody_runs=True) == native.NOT_VERIFIED
    assert memory.content == bytes(6400)


def test_an_edit_in_a_run_that_was_written_in_part_is_taken_back(
    faulty_library: ctypes.CDLL,
) -> None:
    edits = [edit(START + 64 * n, bytes(4), b"four", code=True) for n in range(10)]
    memory = FaultyMemory(faulty_library, bytes(640))
    memory.faults[2] = -(64 * 3 + 2)

    assert memory.apply(edits, nobody_runs=True) == native.ERRNO

    assert memory.of(WRITE)[1:] == [change.address for change in edits[:4]]
    assert memory.report.index == 3
    assert memory.content == bytes(640)


@pytest.mark.parametrize("written", [0, 1, 64, 65, 4096, 6335, 6336])
def test_only_as_much_of_a_run_as_was_written_is_taken_back(
    faulty_library: ctypes.CDLL, written: int
) -> None:
    """The rest may be where nothing can be written, and then nothing could be taken back."""
    edits = close_together(100, 64)
    memory = FaultyMemory(faulty_library, bytes(6400))
    memory.faults[2] = -written or errno.EIO

    assert memory.apply(edits, nobody_runs=True) == native.ERRNO

    reached = [change.address for change in edits if change.address < START + written]
    assert memory.of(WRITE)[1:] == reached
    assert memory.report.index == len(reached)
    assert memory.report.written == len(reached)
    assert memory.content == bytes(6400)


def test_every_access_of_many_edits_may_fail_and_all_is_as_it_was(
    faulty_library: ctypes.CDLL,
) -> None:
    edits = [
        *close_together(5, 8, code=False),
        *(edit(START + 0x100 + at * 1024, b"\0", b"\1", 1, code=True) for at in range(150)),
        *(edit(START + 0x40 + at * 8, b"\0", b"\1", 2) for at in range(5)),
    ]
    content = bytes(152 * 1024)
    undisturbed = FaultyMemory(faulty_library, content)
    assert undisturbed.apply(edits, nobody_runs=True) == native.OK
    assert undisturbed.content == zeros_and(edits, content)

    for number, (what, _) in enumerate(undisturbed.steps):
        half = -(undisturbed.sizes[number] // 2)
        for fault in (errno.EIO, half or errno.EIO):
            memory = FaultyMemory(faulty_library, content)
            memory.faults[number] = fault

            status = memory.apply(edits, nobody_runs=True)

            assert status in (native.OK, native.ERRNO, native.NOT_SYNCED)
            # A comparison that cannot be made at once is made edit by edit.
            done = status == native.OK and what == READ
            assert memory.content == (undisturbed.content if done else content)


# ---- several steps -------------------------------------------------------------------------------


def in_steps(*steps: int) -> list[Edit]:
    """Eight edits of each of these steps, which lie between those of the others."""
    edits = close_together(8 * len(steps), 64)
    return [
        change._replace(step=step) for step in sorted(steps) for change in edits[step :: len(steps)]
    ]


def test_holes_and_the_jumps_to_them_are_two_steps_that_are_written_at_once(
    faulty_library: ctypes.CDLL,
) -> None:
    edits = in_steps(0, 1)
    memory = FaultyMemory(faulty_library, bytes(1024))

    assert memory.steps_of_runs(edits) == [8, 8]
    assert memory.apply(edits, nobody_runs=True) == native.OK

    assert memory.content == zeros_and(edits, bytes(1024))
    assert len(memory.of(WRITE)) == 2


def test_the_first_step_is_taken_back_where_the_second_one_finds_another_byte(
    faulty_library: ctypes.CDLL,
) -> None:
    edits = in_steps(0, 1)
    memory = FaultyMemory(faulty_library, bytes(1024))
    memory.sneak[5] = (edits[12].address, 0x55)

    assert memory.apply(edits, nobody_runs=True) == native.UNEXPECTED

    assert memory.report.index == 12
    expected = bytearray(1024)
    expected[edits[12].address - START] = 0x55
    assert memory.content == expected


@pytest.mark.parametrize(
    "odd", [{"code": False}, {"again": True}], ids=["data", "written by an earlier step"]
)
def test_a_step_with_anything_else_in_it_is_not_written_as_runs(
    faulty_library: ctypes.CDLL, odd: dict[str, bool]
) -> None:
    edits = in_steps(0, 1, 2)
    edits[9] = edits[9]._replace(**odd)

    assert FaultyMemory(faulty_library, bytes(2048)).steps_of_runs(edits) == [8, 8]


def test_only_so_many_steps_are_written_as_runs_as_there_is_room_for(
    faulty_library: ctypes.CDLL,
) -> None:
    edits = in_steps(0, 1, 2, 3, 4)
    memory = FaultyMemory(faulty_library, bytes(4096))

    assert memory.steps_of_runs(edits) == [8, 8, 8, 8]
    assert memory.apply(edits, nobody_runs=True) == native.OK
    assert memory.content == zeros_and(edits, bytes(4096))

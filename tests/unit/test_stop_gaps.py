"""What stands between edits that are written at once: another tool may change it meanwhile.

All threads of the target stand then, but the kernel puts uprobes into it and takes them out all the
same. The accesses of a run are numbered: 0 compares before the stop, 1 reads and compares in it, 2
writes, 3 reads back.
"""

from __future__ import annotations

import ctypes

import pytest

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

INT3, CALL, NOP = 0xCC, 0xE8, 0x90
AGAIN, WRITTEN, READ_BACK = 1, 2, 3
EDITS = close_together(100, 64)
BETWEEN = START + 64 * 40 + 3
SIZE = 64 * 100


@pytest.fixture
def memory(faulty_library: ctypes.CDLL) -> FaultyMemory:
    return FaultyMemory(faulty_library, bytes(SIZE))


def test_an_int3_that_goes_before_the_write_is_not_written_back(memory: FaultyMemory) -> None:
    """A uprobe that was taken out: the next thread there would die of its int3."""
    memory.content[BETWEEN - START] = INT3
    memory.sneak[WRITTEN] = (BETWEEN, NOP)

    memory.apply(EDITS, nobody_runs=True)

    assert INT3 not in memory.content
    assert all(INT3 not in state for state in memory.states)


def test_a_gap_with_an_int3_is_left_out_and_all_edits_are_written(memory: FaultyMemory) -> None:
    gaps = {BETWEEN, BETWEEN + 1, START + 1, START + 63, START + 64 * 99 - 1}
    for gap in gaps:
        memory.content[gap - START] = INT3
    expected = zeros_and(EDITS, memory.content)

    assert memory.apply(EDITS, nobody_runs=True) == native.OK

    assert memory.content == expected
    written = [
        range(at, at + size)
        for (what, at), size in zip(memory.steps, memory.sizes, strict=True)
        if what == WRITE
    ]
    assert len(written) == 4
    assert not any(gap in piece for gap in gaps for piece in written)


def test_an_int3_that_the_file_has_is_the_programs_own_and_written_back(
    faulty_library: ctypes.CDLL, memory: FaultyMemory
) -> None:
    """The kernel puts no uprobe there."""
    for gap in (BETWEEN, BETWEEN + 1, START + 63):
        memory.content[gap - START] = INT3
    memory.file = bytes(memory.content)
    expected = zeros_and(EDITS, memory.content)

    assert memory.apply(EDITS, nobody_runs=True) == native.OK

    assert memory.content == expected
    assert [what for what, _ in memory.steps] == [READ, READ, WRITE, READ, SYNC]
    assert ctypes.c_int.in_dll(faulty_library, "mj_test_files_left").value == 0


@pytest.mark.parametrize("in_file", [NOP, CALL])
def test_an_int3_where_the_file_has_another_byte_is_left_out(
    memory: FaultyMemory, in_file: int
) -> None:
    """Beside one of the program's own."""
    own = START + 64 * 70 + 9
    memory.content[own - START] = INT3
    memory.file = bytes(memory.content[: BETWEEN - START]) + bytes([in_file])
    memory.file += bytes(memory.content[len(memory.file) :])
    memory.content[BETWEEN - START] = INT3
    expected = zeros_and(EDITS, memory.content)

    assert memory.apply(EDITS, nobody_runs=True) == native.OK

    assert memory.content == expected
    first, second = memory.of(WRITE)
    assert first < BETWEEN < second < own


@pytest.mark.parametrize("before", [NOP, CALL])
def test_an_int3_that_came_after_the_file_was_compared_is_left_out(
    faulty_library: ctypes.CDLL, memory: FaultyMemory, before: int
) -> None:
    """What the file has was compared with what stood there before the stop."""
    memory.content[BETWEEN - START] = before
    memory.file = bytes(memory.content)
    memory.sneak[AGAIN] = (BETWEEN, INT3)
    has_mapping = ctypes.c_int.in_dll(faulty_library, "mj_test_has_mapping")

    has_mapping.value = 1
    try:
        assert memory.apply(EDITS, nobody_runs=True) == native.OK
    finally:
        has_mapping.value = 0

    assert memory.content[BETWEEN - START] == INT3
    assert all(INT3 in state for state in memory.states)
    assert len(memory.of(WRITE)) == 2


def test_a_call_that_the_file_has_is_written_back_where_the_kernel_calls_uprobes(
    faulty_library: ctypes.CDLL, memory: FaultyMemory
) -> None:
    """The kernel puts its calls in the place of no-ops alone."""
    memory.content[BETWEEN - START] = CALL
    memory.file = bytes(memory.content)
    has_mapping = ctypes.c_int.in_dll(faulty_library, "mj_test_has_mapping")

    has_mapping.value = 1
    try:
        assert memory.apply(EDITS, nobody_runs=True) == native.OK
    finally:
        has_mapping.value = 0

    assert len(memory.of(WRITE)) == 1


@pytest.mark.parametrize("there_are_some", [False, True])
def test_a_gap_with_a_call_is_left_out_where_the_kernel_calls_uprobes(
    faulty_library: ctypes.CDLL,
    memory: FaultyMemory,
    there_are_some: bool,
) -> None:
    """Where it does not, a call is the program's own: there are many."""
    memory.content[BETWEEN - START] = CALL
    expected = zeros_and(EDITS, memory.content)
    has_mapping = ctypes.c_int.in_dll(faulty_library, "mj_test_has_mapping")

    has_mapping.value = there_are_some
    try:
        assert memory.apply(EDITS, nobody_runs=True) == native.OK
    finally:
        has_mapping.value = 0

    assert memory.content == expected
    assert len(memory.of(WRITE)) == 1 + there_are_some


def test_an_int3_of_our_own_ends_no_run(faulty_library: ctypes.CDLL) -> None:
    on = [edit(START + 64 * n, b"\0", bytes([INT3]), code=True) for n in range(100)]
    off = [edit(START + 64 * n, bytes([INT3]), b"\0", code=True) for n in range(100)]
    memory = FaultyMemory(faulty_library, bytes(SIZE))

    assert memory.apply(on, nobody_runs=True) == native.OK
    assert memory.content.count(INT3) == 100
    assert memory.apply(off, nobody_runs=True) == native.OK

    assert memory.content == bytes(SIZE)
    assert [what for what, _ in memory.steps] == [READ, READ, WRITE, READ, SYNC] * 2


def test_a_write_behind_an_int3_that_fails_takes_back_what_stands_before_it(
    memory: FaultyMemory,
) -> None:
    memory.content[BETWEEN - START] = INT3
    before = bytes(memory.content)
    memory.faults[WRITTEN + 1] = 5  # EIO, of the second piece

    assert memory.apply(EDITS, nobody_runs=True) == native.ERRNO

    assert memory.content == before
    assert (memory.report.index, memory.report.written) == (41, 41)


def test_a_change_in_a_gap_before_the_stop_is_left_as_it_is(memory: FaultyMemory) -> None:
    """Threads ran at the comparison before it, so that says nothing of gaps."""
    memory.sneak[AGAIN] = (BETWEEN, INT3)
    expected = bytearray(zeros_and(EDITS, memory.content))
    expected[BETWEEN - START] = INT3

    assert memory.apply(EDITS, nobody_runs=True) == native.OK

    assert memory.content == expected
    assert all(state[BETWEEN - START] == INT3 for state in memory.states)


def test_a_change_in_a_gap_after_the_write_is_noticed_and_all_is_taken_back(
    memory: FaultyMemory,
) -> None:
    """Its maker may have made another one that we have written over."""
    memory.sneak[READ_BACK] = (BETWEEN, INT3)

    assert memory.apply(EDITS, nobody_runs=True) == native.DISTURBED

    assert memory.report.index == 41
    expected = bytearray(SIZE)
    expected[BETWEEN - START] = INT3  # which is not ours to undo
    assert memory.content == expected
    assert len(memory.of(WRITE)) == 101


def test_an_edit_that_changes_between_the_comparison_and_the_write_is_not_written(
    memory: FaultyMemory,
) -> None:
    memory.sneak[AGAIN] = (EDITS[7].address, INT3)

    assert memory.apply(EDITS, nobody_runs=True) == native.UNEXPECTED

    assert (memory.report.index, memory.report.found[0]) == (7, INT3)
    assert memory.of(WRITE) == []


@pytest.mark.parametrize(
    ("when", "at", "status"),
    [(2 + 3, 64 * 300, native.UNEXPECTED), (2 + 3 + 2, 64 * 300 + 5, native.DISTURBED)],
)
def test_a_change_in_a_later_run_takes_back_the_runs_before_it(
    faulty_library: ctypes.CDLL, when: int, at: int, status: int
) -> None:
    """`when` begins with two comparisons before the stop, and the three accesses of a whole run."""
    edits = close_together(400, 64)
    memory = FaultyMemory(faulty_library, bytes(400 * 64))
    memory.sneak[when] = (START + at, INT3)

    assert memory.apply(edits, nobody_runs=True) == status

    assert memory.content.count(1) == 0
    assert memory.report.index in (300, 301)

"""Where the threads of a target have their ids and their areas for restartable sequences."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from markerjit.abi import (
    PAGE,
)
from markerjit.arena import facts
from markerjit.arena.facts import find_rseq_offset, find_tid_offset
from markerjit.memory import FakeMemory
from markerjit.model import RemoteAddress
from markerjit.remote.calls import Thread

# ---- where a thread's id stands ------------------------------------------------------------------


def tcb(*ids: tuple[int, int], size: int = 2 * PAGE) -> bytes:
    block = bytearray(size)
    for offset, tid in ids:
        block[offset : offset + 4] = tid.to_bytes(4, "little")
    return bytes(block)


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Threads of process 7 that have ended; all others are there, by the number that they have."""
    gone: set[int] = set()
    paths = SimpleNamespace(exists=lambda path: int(path.rsplit("/", 1)[1]) not in gone)
    monkeypatch.setattr(facts, "os", SimpleNamespace(path=paths))
    monkeypatch.setattr(facts, "tid_inside", lambda pid, tid: tid)
    return gone


FIRST, SECOND = Thread(812, RemoteAddress(0x10000)), Thread(813, RemoteAddress(0x20100))


@pytest.mark.parametrize(
    ("first", "second", "offset"),
    [
        ([(0x2D0, 812)], [(0x2D0, 813)], 0x2D0),  # glibc
        ([(0x30, 812)], [(0x30, 813)], 0x30),  # musl
        ([(0x10, 812), (0x2D0, 812)], [(0x10, 813), (0x2D0, 813)], 0x2D0),  # a known one first
        ([(0x10, 812), (0x20, 812)], [(0x20, 813), (0x40, 813)], 0x20),  # what they have in common
        ([(0x40, 812), (0x50, 812)], [(0x50, 813), (0x40, 813)], 0x40),
        ([(0x10, 812)], [(0x20, 813)], -1),
        ([(0x12, 812)], [(0x12, 813)], -1),  # an int stands where an int may stand
        ([(0xFFC, 812)], [(0xFFC, 813)], 0xFFC),
        ([(0x1000, 812)], [(0x1000, 813)], -1),
        ([], [], -1),
    ],
)
def test_thread_id_is_found_where_all_threads_have_it(
    first: list[tuple[int, int]], second: list[tuple[int, int]], offset: int
) -> None:
    memory = FakeMemory({FIRST.fs_base: tcb(*first), SECOND.fs_base: tcb(*second)})

    assert find_tid_offset(memory, 7, [FIRST, SECOND]) == offset


def test_a_thread_that_has_ended_meanwhile_is_not_asked(ended: set[int]) -> None:
    memory = FakeMemory({FIRST.fs_base: tcb((0x2D0, 812)), SECOND.fs_base: tcb()})

    assert find_tid_offset(memory, 7, [FIRST, SECOND]) == -1
    ended.add(SECOND.tid)
    assert find_tid_offset(memory, 7, [FIRST, SECOND]) == 0x2D0


def test_a_thread_knows_itself_by_its_number_in_its_own_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(facts, "tid_inside", lambda pid, tid: tid - 800)
    memory = FakeMemory({FIRST.fs_base: tcb((0x2D0, 12), (0x30, 812))})

    assert find_tid_offset(memory, 7, [FIRST]) == 0x2D0


def test_a_thread_control_block_may_end_with_its_page() -> None:
    at_end = Thread(812, RemoteAddress(0x10000 + PAGE - 0x400))
    memory = FakeMemory({0x10000: bytes(PAGE - 0x400) + tcb((0x2D0, 812), size=0x400)})

    assert find_tid_offset(memory, 7, [at_end]) == 0x2D0


def test_no_thread_or_none_with_a_base_is_no_place() -> None:
    assert find_tid_offset(FakeMemory(), 7, []) == -1
    assert find_tid_offset(FakeMemory(), 7, [FIRST]) == -1
    assert find_tid_offset(FakeMemory(), 7, [Thread(812, RemoteAddress(0))]) == -1


# ---- where a thread's struct rseq stands ---------------------------------------------------------


def glibc_thread(tid: int, fs_base: int, offset: int | None) -> Thread:
    return Thread(tid, RemoteAddress(fs_base), RemoteAddress(fs_base + offset if offset else 0))


def control_blocks(*threads: Thread) -> FakeMemory:
    """As glibc has them: the first and the third word are their own address."""
    own = {thread.fs_base: thread.fs_base.to_bytes(8, "little") for thread in threads}
    return FakeMemory({at: word + bytes(8) + word + bytes(8) for at, word in own.items()})


@pytest.mark.parametrize("offset", [-0x40, 0x9C0, 0x20, -0xFE0])
def test_restartable_sequences_are_had_where_all_threads_have_them(offset: int) -> None:
    threads = [glibc_thread(812 + n, 0x10000 * (n + 1), offset) for n in range(3)]

    assert find_rseq_offset(FakeMemory(), threads) == offset


@pytest.mark.parametrize(
    "offsets",
    [
        (-0x40, -0x60),
        (None, None),
        (-0x48, -0x48),  # the kernel wants multiples of 32
        (-0x2000, -0x2000),  # too far to be a part of the control block
    ],
)
def test_restartable_sequences_in_other_places_are_not_used(offsets: tuple[int | None]) -> None:
    threads = [glibc_thread(812 + n, 0x10000 * (n + 1), offset) for n, offset in enumerate(offsets)]

    assert find_rseq_offset(control_blocks(*threads), threads) == 0


def test_a_thread_that_was_just_born_will_have_them_too() -> None:
    old, new = glibc_thread(812, 0x10000, -0x40), glibc_thread(813, 0x20000, None)

    assert find_rseq_offset(control_blocks(old, new), [old, new]) == -0x40


def test_a_thread_with_the_variables_of_another_has_none() -> None:
    """Made by clone(2) alone. What it would read is where the other runs."""
    old, raw = glibc_thread(812, 0x10000, -0x40), glibc_thread(813, 0x10000, None)

    assert find_rseq_offset(control_blocks(old), [old, raw]) == 0


def test_a_thread_that_is_not_the_librarys_has_none() -> None:
    """What it has in that place is not to be written to."""
    old, foreign = glibc_thread(812, 0x10000, -0x40), glibc_thread(813, 0x20000, None)

    assert find_rseq_offset(FakeMemory({0x20000: bytes(PAGE)}), [old, foreign]) == 0
    assert find_rseq_offset(FakeMemory(), [old, foreign]) == 0
    assert find_rseq_offset(FakeMemory(), []) == 0

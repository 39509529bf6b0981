"""Making an arena, in this process and with its own system calls, each of which may fail.

Whatever fails, afterwards there is nothing: no descriptor, no mapping.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from markerjit.abi import ALIVE, CODE_SIZE, CONTROL, PAGE, RING_HEAD_SIZE, Head
from markerjit.arena import create, find
from markerjit.arena.store import MemoryStore
from markerjit.errors import MarkerError, MemoryFault, TargetGone, Unsupported
from markerjit.memory import ProcessMemory, read_maps
from markerjit.model import RemoteAddress
from markerjit.remote.calls import Call, CallFailed
from tests.support.own_arena import OwnArena, own_clock, own_rseq_offset, own_tid_offset
from tests.support.own_calls import (
    FailingThread,
    arena_mappings,
    descriptors,
    make_own_arena,
    take_down,
)

CALLS = 9  # at most, of a creation, with what we do ourselves in between


def check_nothing_left(before: set[tuple[str, str]], thread: FailingThread) -> None:
    assert descriptors() == before
    assert thread.mapped == {}
    assert arena_mappings() == []


@pytest.fixture
def thread() -> Iterator[FailingThread]:
    """Makes all calls, until a test sets `fail_at`. What a test leaves is removed."""
    yield (thread := FailingThread())
    take_down(thread)


def test_an_arena_is_made_and_found_again(
    build: Path, memory: ProcessMemory, thread: FailingThread
) -> None:
    before = descriptors()
    arena = make_own_arena(memory, thread)

    attached, _, probes, *_ = find.find_arenas(os.getpid(), memory, read_maps("self"))

    assert attached is not None
    assert attached.base == arena.base
    assert arena.count_probe(preserving=True) in probes
    assert RemoteAddress(arena.base + arena.entry.record) in probes
    assert RemoteAddress(arena.base + CODE_SIZE) not in probes
    assert bytes(attached.facts) == bytes(arena.facts)
    assert arena.facts.tid_offset == own_tid_offset()
    assert arena.facts.rseq_offset == own_rseq_offset()
    assert arena.facts.clock == own_clock()
    assert arena.facts.pid == os.getpid()
    mapped = [line.split()[1] for line in arena_mappings()]
    assert mapped == ["r-xs", "rw-s", "rw-s"], "with a private page in the middle"
    assert len(thread.made) <= CALLS
    take_down(thread)
    check_nothing_left(before, thread)


@pytest.mark.parametrize("fail_at", range(CALLS))
def test_a_creation_in_which_a_call_fails_leaves_nothing(
    build: Path, memory: ProcessMemory, thread: FailingThread, fail_at: int
) -> None:
    before = descriptors()
    thread.fail_at = fail_at
    try:
        make_own_arena(memory, thread)
    except CallFailed as failed:
        assert failed.error == errno.ENOMEM
    except MarkerError as error:
        assert thread.made[fail_at] == "growing the memfd"
        assert "for the runtime: Cannot allocate memory" in str(error)
    else:
        take_down(thread)  # there was another way, or there is no such call
    check_nothing_left(before, thread)


def test_the_first_error_is_told_when_undoing_fails_too(
    build: Path, memory: ProcessMemory, thread: FailingThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = thread.run

    def fail_to_undo(calls: Sequence[Call]) -> list[int]:
        if calls[0].name in ("munmap", "close"):
            raise TargetGone(os.getpid())
        return run(calls)

    thread.fail_at = 6
    monkeypatch.setattr(thread, "run", fail_to_undo)

    with pytest.raises(CallFailed):
        make_own_arena(memory, thread)
    monkeypatch.undo()


class NoDescriptor:
    """os.open of /proc/PID/fd fails, as it does for a controller without descriptors left."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open = os.open
        monkeypatch.setattr(create.os, "open", self)

    def __call__(self, path: str, flags: int, *rest: int) -> int:
        if "/fd/" in path:
            raise OSError(errno.EMFILE, "Too many open files")
        return self._open(path, flags, *rest)


def test_a_controller_without_descriptors_leaves_nothing(
    build: Path, memory: ProcessMemory, thread: FailingThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()
    NoDescriptor(monkeypatch)

    with pytest.raises((MarkerError, OSError)):
        make_own_arena(memory, thread)
    monkeypatch.undo()
    check_nothing_left(before, thread)


@pytest.mark.parametrize("name", ["read", "write"])
def test_memory_that_cannot_be_reached_leaves_nothing(
    build: Path, memory: ProcessMemory, thread: FailingThread, name: str
) -> None:
    class Broken:
        """Fails once the arena is mapped."""

        def __getattr__(self, attribute: str) -> object:
            if attribute == name and thread.mapped:
                raise MemoryFault(0, 8, name, "injected")
            return getattr(memory, attribute)

    before = descriptors()

    with pytest.raises(MemoryFault):
        make_own_arena(Broken(), thread)  # type: ignore[arg-type]
    check_nothing_left(before, thread)


def test_code_that_did_not_arrive_leaves_nothing(
    build: Path, memory: ProcessMemory, thread: FailingThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()
    read = memory.read
    monkeypatch.setattr(memory, "read", lambda a, n: bytes(n) if a in thread.mapped else read(a, n))

    with pytest.raises(MarkerError, match="did not arrive"):
        make_own_arena(memory, thread)
    check_nothing_left(before, thread)


@pytest.fixture
def namesake() -> Iterator[mmap.mmap]:
    """Memory that only has the name of an arena."""
    descriptor = os.memfd_create("markerjit")
    os.ftruncate(descriptor, CONTROL + 4 * PAGE)
    mapping = mmap.mmap(descriptor, CONTROL + 4 * PAGE)
    yield mapping
    mapping.close()
    take_down(FailingThread())  # the descriptor, and what was leaked of it


def test_what_only_has_the_name_of_an_arena_is_a_problem_and_let_go_of(
    memory: ProcessMemory, namesake: mmap.mmap
) -> None:
    before = descriptors()
    namesake[CONTROL] = 1

    arena, _, probes, *_ = find.find_arenas(os.getpid(), memory, read_maps("self"))

    assert arena is None
    assert isinstance(probes.problem, Unsupported)
    assert "not an arena of ours" in str(probes.problem)
    assert probes.are_unknown(probes.bases[0])
    assert descriptors() == before


def test_an_arena_is_let_go_of_when_its_process_ends_meanwhile(
    build: Path, memory: ProcessMemory, thread: FailingThread
) -> None:
    make_own_arena(memory, thread)
    before = descriptors()

    class Ending:
        """It ends before it is asked whether the arena is its own."""

        def read(self, address: RemoteAddress, size: int) -> bytes:
            raise TargetGone(os.getpid())

        write = read

    with pytest.raises(TargetGone):
        find.find_arenas(os.getpid(), cast(Any, Ending()), read_maps("self"))
    assert descriptors() == before


def test_an_arena_in_the_making_is_none_yet(memory: ProcessMemory, namesake: mmap.mmap) -> None:
    before = descriptors()

    arenas = find.find_arenas(os.getpid(), memory, read_maps("self"))

    assert arenas[:4] == (None, (), arenas.probes, True)
    assert arenas.probes.bases == ()
    assert descriptors() == before


def test_a_process_without_an_arena_has_none(memory: ProcessMemory) -> None:
    arena, _, probes, *_ = find.find_arenas(os.getpid(), memory, read_maps("self"))

    assert arena is None
    assert probes.bases == ()


def test_the_arena_of_these_tests_is_laid_out_as_one_that_is_made(
    build: Path, memory: ProcessMemory, thread: FailingThread
) -> None:
    """own_arena.py says on its own what a control block holds; here it is compared."""
    made = make_own_arena(memory, thread)

    own = OwnArena(made.geometry).arena

    different = {
        name
        for name, kind in type(made.facts)._fields_
        if not issubclass(kind, ctypes.Structure | ctypes.Array)
        and getattr(made.facts, name) != getattr(own.facts, name)
    }
    assert different <= {"owner_since"}
    assert made.facts.sequences[0].length > 0
    for of_made, of_own in zip(made.facts.sequences, own.facts.sequences, strict=True):
        assert (of_made.version, of_made.flags, of_made.length) == (
            of_own.version,
            of_own.flags,
            of_own.length,
        )
        assert of_made.start - made.base == of_own.start - own.base
        assert of_made.abort - made.base == of_own.abort - own.base
    for ring in range(made.geometry.rings):
        heads = [
            Head.from_buffer_copy(
                arena.store.read(arena.geometry.head_offset(ring), RING_HEAD_SIZE)
            )
            for arena in (made, own)
        ]
        heads[0].data -= made.base - own.base
        assert bytes(heads[0]) == bytes(heads[1])
    alive = MemoryStore(memory, made.base).read(ALIVE, 8)
    assert alive == own.store.read(ALIVE, 8) == made.geometry.cpus.to_bytes(8, "little")
    assert bytes(own.entry) == bytes(made.entry)

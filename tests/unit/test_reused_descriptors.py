"""A program closes a descriptor that it does not know, and gives the number to a file of its own.

It does so between our look and our call, as it may at any moment before all its threads stand.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from markerjit.arena import create
from markerjit.arena.create import remove_unfinished
from markerjit.arena.find import find_unfinished
from markerjit.errors import MarkerError
from markerjit.memory import ProcessMemory, read_maps
from markerjit.remote import native
from markerjit.remote.calls import SYS_CLOSE, Call, Thread
from tests.support.children import Start
from tests.support.own_calls import (
    FailingThread,
    arena_mappings,
    descriptors,
    make_own_arena,
    take_down,
)

SYS_DUP = 32


class Reusing(FailingThread):
    """Our own calls. Before those that close a descriptor while all stand, the program gives that
    number to its own file."""

    def __init__(self, fail_at: int, own_file: int) -> None:
        super().__init__(fail_at)
        self.own_file = own_file
        self.reused: set[int] = set()

    def run_alone(self, calls: Sequence[Call]) -> tuple[list[int], list[Thread]]:
        for call in calls:
            if call.number == SYS_CLOSE and isinstance(call.args[0], int):
                os.dup2(self.own_file, call.args[0])
                self.reused.add(call.args[0])
        return super().run_alone(calls)


@pytest.fixture
def own_file(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "own", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def check_still_open(numbers: set[int], own_file: int) -> None:
    assert numbers
    for number in numbers:
        assert os.path.sameopenfile(number, own_file)
        os.close(number)


@pytest.mark.parametrize("fail_at", [2, 3, 4, 5, 6, 7, 8])
def test_undoing_a_creation_closes_no_file_of_the_program(
    build: Path,
    memory: ProcessMemory,
    own_file: int,
    fail_at: int,
) -> None:
    thread = Reusing(fail_at, own_file)

    with pytest.raises(MarkerError):
        make_own_arena(memory, thread)

    check_still_open(thread.reused, own_file)
    assert arena_mappings() == []
    take_down(thread)


def test_removing_an_unfinished_arena_closes_no_file_of_the_program(
    memory: ProcessMemory,
    own_file: int,
) -> None:
    os.memfd_create("markerjit")
    thread = Reusing(-1, own_file)
    (left,) = find_unfinished(os.getpid(), memory, no_helper(read_maps("self")))

    remove_unfinished(thread, left)

    check_still_open(thread.reused, own_file)
    take_down(thread)


def no_helper(maps: Sequence) -> list:
    """As of a process that is no controller."""
    return [mapping for mapping in maps if not mapping.path.endswith("/libmjstop.so")]


def test_an_unfinished_arena_whose_descriptor_is_still_its_own_is_removed(
    memory: ProcessMemory,
) -> None:
    before = descriptors()
    os.memfd_create("markerjit")
    (left,) = find_unfinished(os.getpid(), memory, no_helper(read_maps("self")))

    remove_unfinished(FailingThread(), left)

    assert descriptors() == before


def test_a_descriptor_that_is_another_file_when_it_is_looked_at_is_not_closed_at_all(
    own_file: int,
) -> None:
    assert create._close(os.getpid(), [own_file]) == []


@pytest.mark.live
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(
    ("change", "closed"),
    [(lambda _: None, True), (lambda call: setattr(call, "inode", call.inode + 1), False),
     (lambda call: setattr(call, "device", call.device + 1), False)],
)  # fmt: skip
def test_a_borrowed_thread_closes_a_descriptor_only_if_it_is_of_that_file(
    start: Start,
    change: Callable[[native.NativeCall], None],
    closed: bool,
    alone: bool,
) -> None:
    child = start("read")
    assert child.borrow((SYS_DUP, 0)) == native.OK
    (copy,) = child.results
    path = f"/proc/{child.pid}/fd/{copy}"
    file = os.stat(path)
    call = native.NativeCall(number=SYS_CLOSE, device=file.st_dev, inode=file.st_ino)
    call.args[0] = copy
    call.refs[:] = [-1] * 6
    change(call)

    assert child.borrow_prepared([call], alone=alone) == native.OK

    assert child.results == [0]
    assert os.path.exists(path) != closed

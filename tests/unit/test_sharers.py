"""Which processes may execute what stands in an arena of another."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from markerjit.memory import Mapping, read_maps
from markerjit.memory.stat import read_proc, stat_fields
from markerjit.proc import sharers
from markerjit.proc.sharers import find_sharer, share_memory
from tests.support.timing import Limited, reaped


@pytest.fixture
def made() -> int:
    """When the mapping was made, or earlier. What others have started before is not looked at."""
    return now()


@pytest.fixture
def piece(made: int) -> Iterator[Mapping]:
    """A shared mapping of ours of a memfd."""
    file = os.memfd_create("markerjit")
    os.ftruncate(file, mmap.PAGESIZE)
    with mmap.mmap(file, mmap.PAGESIZE) as mapping:
        os.close(file)
        start = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        yield next(mapping for mapping in read_maps("self") if mapping.start == start)


@pytest.fixture
def child(piece: Mapping) -> Iterator[int]:
    """A child that waits."""
    pid = os.fork()
    if not pid:
        signal.pause()
        os._exit(0)
    yield pid
    end(pid)


def started(pid: int) -> int:
    """In clock ticks after boot."""
    return int(stat_fields(f"/proc/{pid}")[19])


def now() -> int:
    """In the same."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def end(pid: int) -> None:
    with contextlib.suppress(ChildProcessError, ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        reaped(pid)


def test_nobody_shares_what_was_just_mapped(piece: Mapping, made: int) -> None:
    assert find_sharer(os.getpid(), piece, made) is None


def test_the_child_of_a_fork_does_until_it_ends(piece: Mapping, made: int, child: int) -> None:
    sharer = find_sharer(os.getpid(), piece, made)

    assert sharer is not None
    assert sharer.pid == child
    assert sharer.why == f"process {child} is a child that may still run it"
    end(child)
    assert find_sharer(os.getpid(), piece, made) is None


def test_a_child_that_has_become_another_program_does_not(piece: Mapping, made: int) -> None:
    with Limited(["sleep", "60"]) as program:
        assert find_sharer(os.getpid(), piece, made) is None
        program.kill()


def test_a_child_that_ended_and_was_not_waited_for_does_not(piece: Mapping, made: int) -> None:
    with Limited(["true"]) as program:
        os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
        assert find_sharer(os.getpid(), piece, made) is None


def test_a_parent_is_asked_by_its_child_too(piece: Mapping, made: int, child: int) -> None:
    """The parent is older than the child, and cannot have what the child has mapped since."""
    sharer = find_sharer(child, piece, made)

    assert sharer is None or sharer.pid != os.getpid()


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The processes that may not be looked at: those that a test adds."""
    pids: set[int] = set()

    def opened(path: str, *args: object, **named: object) -> object:
        if path.endswith("/maps") and int(path.split("/")[2]) in pids:
            raise PermissionError(13, "Permission denied", path)
        return open(path, *args, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(sharers, "open", opened, raising=False)
    return pids


def test_a_process_that_may_not_be_looked_at_counts(
    piece: Mapping, made: int, child: int, hidden: set[int]
) -> None:
    hidden.add(child)

    sharer = find_sharer(os.getpid(), piece, made)

    assert sharer is not None
    assert sharer.why == f"process {child} may not be looked at, and may be its child"


@pytest.fixture
def program() -> Iterator[int]:
    """A child that executes another file, and has begun with it."""
    with Limited(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as cat:
        assert cat.stdin is not None and cat.stdout is not None
        cat.stdin.write(b"!")
        cat.stdout.read(1)
        yield cat.pid
        cat.stdin.close()


def test_a_process_that_may_not_be_looked_at_does_not_where_it_executes_another_file(
    piece: Mapping, made: int, program: int, hidden: set[int]
) -> None:
    hidden.add(program)

    assert find_sharer(os.getpid(), piece, made) is None


def test_a_process_that_may_not_be_looked_at_does_not_where_it_has_ended(
    piece: Mapping, made: int, hidden: set[int]
) -> None:
    """The kernel answers for an ended process as if it belonged to another user."""
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    hidden.add(child)

    assert find_sharer(os.getpid(), piece, made) is None
    end(child)


@pytest.mark.parametrize("content", [b"", b"0 0 0 0 0 0 0\n", None])
def test_a_process_that_may_not_be_looked_at_counts_where_its_size_is_not_told(
    piece: Mapping,
    made: int,
    program: int,
    hidden: set[int],
    monkeypatch: pytest.MonkeyPatch,
    content: bytes | None,
) -> None:
    def read(path: str) -> bytes:
        if path != f"/proc/{program}/statm":
            return read_proc(path)
        if content is None:
            raise PermissionError(13, "Permission denied", path)
        return content

    hidden.add(program)
    monkeypatch.setattr(sharers, "read_proc", read)

    sharer = find_sharer(os.getpid(), piece, made)

    assert sharer is not None
    assert sharer.pid == program


@pytest.fixture
def nephew(child: int) -> Iterator[tuple[int, int]]:
    """Another child of ours, and a child of that one, which is younger by more than a tick."""
    reading, writing = os.pipe()
    parent = os.fork()
    if not parent:
        while now() <= started(os.getpid()) + 1:
            pass
        grandchild = os.fork()
        if not grandchild:
            signal.pause()
            os._exit(0)
        os.write(writing, grandchild.to_bytes(4, "little"))
        signal.pause()
        os._exit(0)
    other = int.from_bytes(os.read(reading, 4), "little")
    os.close(reading)
    os.close(writing)
    yield parent, other
    os.kill(other, signal.SIGKILL)
    end(parent)


def test_one_whose_parent_is_older_and_no_ancestor_is_no_descendant(
    piece: Mapping, child: int, nephew: tuple[int, int], hidden: set[int]
) -> None:
    parent, other = nephew
    hidden.update((parent, other))

    assert find_sharer(child, piece, since=started(other)) is None
    assert find_sharer(child, piece) is not None, "the parent may be a brother that was cloned"


def test_one_whose_parent_is_the_first_of_a_namespace_may_have_been_given_to_it(
    piece: Mapping,
    child: int,
    nephew: tuple[int, int],
    hidden: set[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parent, other = nephew
    hidden.update((parent, other))
    monkeypatch.setattr(sharers, "tid_inside", lambda pid, tid: 1 if tid == parent else tid)

    sharer = find_sharer(child, piece, since=started(other))

    assert sharer is not None
    assert sharer.pid == other


def test_an_orphan_may_be_a_descendant(
    piece: Mapping, made: int, child: int, nephew: tuple[int, int], hidden: set[int]
) -> None:
    """An ancestor of `child` has become its parent."""
    parent, orphan = nephew
    hidden.add(orphan)
    end(parent)

    sharer = find_sharer(child, piece, made)

    assert sharer is not None
    assert sharer.pid == orphan


def test_a_process_that_was_started_before_the_arena_was_made_is_not_asked(
    piece: Mapping, child: int
) -> None:
    assert find_sharer(os.getpid(), piece, since=1 << 62) is None


@pytest.mark.parametrize(
    ("options", "hidden"),
    [("rw", False), ("rw,hidepid=0", False), ("rw,hidepid=off", False), ("rw,hidepid=2", True),
     ("rw,gid=5,hidepid=invisible", True), ("rw,hidepid=ptraceable", True)],
)  # fmt: skip
def test_where_proc_hides_processes_nobody_knows(
    piece: Mapping,
    made: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    options: str,
    hidden: bool,
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda rw,hidepid=2\n"
        f"22 1 0:21 / /proc rw,nosuid shared:5 - proc proc {options}\n"
    )

    def opened(path: str, *args: object, **named: object) -> object:
        path = str(mounts) if path == "/proc/self/mountinfo" else path
        return open(path, *args, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(sharers, "open", opened, raising=False)
    monkeypatch.setattr(sharers, "has_capability", lambda number: False)

    sharer = find_sharer(os.getpid(), piece, made)

    assert (sharer is not None) == hidden
    assert sharer is None or "hidepid" in sharer.why


def test_what_a_process_left_behind_that_vanished_is_looked_at(
    piece: Mapping, made: int, child: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = iter([["1", "812"], ["812", str(child)]])
    seen = []

    def look(pid: int, other: int, *rest: object) -> object:
        seen.append(other)
        if other == 812:
            raise sharers._Vanished
        return sharers.Sharer(other, "found") if other == child else None

    monkeypatch.setattr(sharers, "_look", look)
    monkeypatch.setattr(sharers.os, "listdir", lambda path: next(listed))

    sharer = find_sharer(os.getpid(), piece, made)

    assert sharer == (child, "found")
    assert seen == [1, 812, child], "each only once"


def test_all_is_begun_anew_where_numbers_were(
    piece: Mapping, made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter([10, 9, 9, 12])
    monkeypatch.setattr(sharers, "_last_number", numbers.__next__)

    assert find_sharer(os.getpid(), piece, made) is None
    assert next(numbers, None) is None


def test_where_processes_come_and_go_all_the_time_nobody_knows(
    piece: Mapping, made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter(range(100, 0, -1))
    monkeypatch.setattr(sharers, "_last_number", numbers.__next__)

    sharer = find_sharer(os.getpid(), piece, made)

    assert sharer is not None
    assert "come and go" in sharer.why


def test_only_one_memory_is_the_same_memory(piece: Mapping, child: int) -> None:
    assert share_memory(os.getpid(), os.getpid())
    assert not share_memory(os.getpid(), child)
    assert not share_memory(os.getpid(), 1 << 22)

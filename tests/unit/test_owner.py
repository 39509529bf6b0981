"""Who a controller is, and whether it still runs: by pid, start and pid namespace."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from markerjit.abi import OwnerEntry
from markerjit.proc.owner import NOBODY, Owner, from_entry, is_gone, ourselves
from tests.support.timing import Limited, reaped


def started(pid: int) -> int:
    """Field 22 of /proc/PID/stat; the name before it may have spaces and parentheses."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with Limited(["cat"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def owner_of(pid: int) -> Owner:
    return Owner(pid, ourselves().pid_namespace, started(pid))


def test_we_are_who_we_are_and_not_gone() -> None:
    assert ourselves() == owner_of(os.getpid())
    assert ourselves().pid_namespace == os.stat("/proc/self/ns/pid").st_ino & 0xFFFFFFFF
    assert not is_gone(ourselves())


def test_an_owner_is_the_same_after_its_way_through_the_arena() -> None:
    owner = Owner((1 << 32) - 1, (1 << 32) - 2, (1 << 64) - 1)

    assert from_entry(OwnerEntry.from_buffer_copy(bytes(owner.entry()))) == owner


def test_nobody_is_gone() -> None:
    assert from_entry(OwnerEntry()) == NOBODY
    assert is_gone(NOBODY)


def test_another_process_that_runs_is_not_gone(child: subprocess.Popen[bytes]) -> None:
    assert not is_gone(owner_of(child.pid))


def test_a_pid_that_was_given_to_another_process_is_gone(child: subprocess.Popen[bytes]) -> None:
    owner = owner_of(child.pid)

    assert is_gone(owner._replace(started=owner.started - 1))


def test_a_zombie_is_gone(child: subprocess.Popen[bytes]) -> None:
    owner = owner_of(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert Path(f"/proc/{child.pid}/stat").exists()
    assert is_gone(owner)


def test_a_process_that_was_waited_for_is_gone(child: subprocess.Popen[bytes]) -> None:
    owner = owner_of(child.pid)
    child.kill()
    child.wait()

    assert is_gone(owner)


@pytest.mark.parametrize("pid", [1, 1 << 30])
def test_of_a_process_of_another_namespace_nothing_is_claimed(pid: int) -> None:
    """Its number means somebody else here, or nobody."""
    other = Owner(pid, ourselves().pid_namespace ^ 1, 5)

    assert not is_gone(other)


def test_a_child_of_a_fork_is_another_controller() -> None:
    read, write = os.pipe()
    ourselves()
    child = os.fork()
    if not child:
        os.write(write, b"%d" % ourselves().pid)
        os._exit(0)
    reaped(child)

    assert int(os.read(read, 32)) == child
    os.close(read)
    os.close(write)


def test_a_name_like_a_line_of_numbers_misleads_nobody() -> None:
    name = ") S 1 2 3"
    code = (
        f"open('/proc/self/comm', 'w').write({name!r}); "
        "import sys; print(flush=True); sys.stdin.read()"
    )
    python = ["python3", "-S", "-c", code]
    with Limited(python, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert Path(f"/proc/{process.pid}/comm").read_text() == f"{name}\n"

        assert not is_gone(owner_of(process.pid))
        process.kill()

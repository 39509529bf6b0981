"""Memory through /proc/PID/mem: our own, another process's, and one that ends meanwhile."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from markerjit.errors import (
    MarkerError,
    MemoryFault,
    NoSuchProcess,
    NotPermitted,
    TargetGone,
    Unsupported,
)
from markerjit.memory import Memory, ProcessMemory
from markerjit.model import RemoteAddress
from tests.support.timing import HANG_S, Limited, joined

CHILD = """
import ctypes, sys
buffer = ctypes.create_string_buffer(b"truth", 64)
print(ctypes.addressof(buffer), flush=True)
for line in sys.stdin:
    print(buffer.value.decode(), flush=True)
"""


class Child:
    """Another process that tells where its buffer is, and what it holds."""

    def __init__(self) -> None:
        self.process = Limited(
            [sys.executable, "-S", "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.pid = self.process.pid
        self.buffer = RemoteAddress(int(self.process.stdout.readline()))

    def content(self) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child()
    yield child
    child.kill()


@pytest.fixture
def two_pages() -> Iterator[RemoteAddress]:
    """The address of a readable page that an unreadable one follows."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.munmap.argtypes = libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = libc.mmap(None, ctypes.c_size_t(8192), mmap.PROT_READ, flags, -1, 0)
    assert libc.munmap(address + 4096, 4096) == 0
    yield RemoteAddress(address)
    libc.munmap(address, 4096)


def test_own_memory_is_read_and_written() -> None:
    buffer = ctypes.create_string_buffer(b"before", 64)
    address = RemoteAddress(ctypes.addressof(buffer))

    with ProcessMemory(os.getpid()) as memory:
        read = memory.read(address, 6)
        memory.write(address, b"after\0")

    assert read == b"before"
    assert buffer.value == b"after"


def test_other_process_is_read_and_written(child: Child) -> None:
    with ProcessMemory(child.pid) as memory:
        read = memory.read(child.buffer, 5)
        memory.write(child.buffer, b"TRUTH")

        assert read == b"truth"
        assert child.content() == "TRUTH"


def test_write_goes_through_page_protection(two_pages: RemoteAddress) -> None:
    with ProcessMemory(os.getpid()) as memory:
        memory.write(two_pages, b"\x01\x02")

        assert memory.read(two_pages, 3) == b"\x01\x02\x00"


def test_it_is_a_memory() -> None:
    with ProcessMemory(os.getpid()) as memory:
        as_protocol: Memory = memory

        assert as_protocol.read(RemoteAddress(0x1000), 0) == b""


def test_last_byte_before_a_hole_is_readable_and_the_next_is_not(two_pages: RemoteAddress) -> None:
    with ProcessMemory(os.getpid()) as memory:
        assert memory.read(RemoteAddress(two_pages + 4095), 1) == b"\0"
        with pytest.raises(MemoryFault) as caught:
            memory.read(RemoteAddress(two_pages + 4095), 2)

    assert (caught.value.address, caught.value.size) == (two_pages + 4095, 2)


@pytest.mark.parametrize(
    ("address", "size"),
    [(0, 1), (8, 1 << 20), (-1, 1), (0x1000, -1), ((1 << 64) - 1, 8), (1 << 63, 1), (1 << 80, 8)],
)
def test_addresses_that_cannot_be_are_a_fault(address: int, size: int) -> None:
    with ProcessMemory(os.getpid()) as memory, pytest.raises(MemoryFault):
        memory.read(RemoteAddress(address), size)


def test_write_to_a_hole_is_a_fault(two_pages: RemoteAddress) -> None:
    with ProcessMemory(os.getpid()) as memory, pytest.raises(MemoryFault, match="cannot write"):
        memory.write(RemoteAddress(two_pages + 4094), b"1234")


def test_process_that_ended_is_gone(child: Child) -> None:
    with ProcessMemory(child.pid) as memory:
        alive = memory.alive()
        child.kill()

        assert (alive, memory.alive()) == (True, False)
        with pytest.raises(TargetGone):
            memory.read(child.buffer, 1)
        with pytest.raises(TargetGone):
            memory.write(child.buffer, b"x")


def test_zombie_is_not_alive(child: Child) -> None:
    with ProcessMemory(child.pid) as memory:
        child.process.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

        assert not memory.alive()
        with pytest.raises(TargetGone, match="ended"):
            memory.read(child.buffer, 1)
    with pytest.raises(MarkerError):  # which one depends on the kernel; not a traceback of ours
        ProcessMemory(child.pid)


def test_process_that_starts_another_program_is_gone_and_alive() -> None:
    process = Limited(
        ["sh", "-c", "echo; read line; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    with ProcessMemory(process.pid) as memory:
        process.stdin.write(b"\necho\n")
        process.stdin.flush()
        process.stdout.readline()  # cat has answered, so the shell is no more

        with pytest.raises(TargetGone, match="another program"):
            memory.read(RemoteAddress(0x1000), 1)
        assert memory.alive()
    process.communicate()


def test_number_without_process_is_named() -> None:
    process = Limited(["true"])
    process.wait()

    for pid in (process.pid, 0, -5, 1 << 22, 1 << 40):
        with pytest.raises(NoSuchProcess) as caught:
            ProcessMemory(pid)
        assert caught.value.pid == pid


def test_lock_of_another_thread_is_told_from_our_own(child: Child) -> None:
    went_in, may_go = threading.Event(), threading.Event()

    with ProcessMemory(child.process.pid) as memory:

        def hold() -> None:
            with memory.locked() as locked:
                assert locked
                went_in.set()
                assert may_go.wait(HANG_S)

        thread = threading.Thread(target=hold)
        thread.start()
        assert went_in.wait(HANG_S)
        with memory.locked() as locked:
            assert not locked
            assert memory.is_locked_elsewhere()
            assert memory.is_locked()
        may_go.set()
        joined(thread)

        with memory.locked() as locked, memory.locked() as again:
            assert (locked, again) == (True, False)
            assert not memory.is_locked_elsewhere()
        assert not memory.is_locked()


def test_thread_number_is_refused() -> None:
    numbers: list[int] = []
    started, end = threading.Event(), threading.Event()

    def run() -> None:
        numbers.append(threading.get_native_id())
        started.set()
        assert end.wait(HANG_S)

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(HANG_S)
    with pytest.raises(Unsupported, match="is a thread"):
        ProcessMemory(numbers[0])
    end.set()
    joined(thread)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_memory_that_may_only_be_read_is_opened_for_reading(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    real = os.open

    def open_(path: str, flags: int) -> int:
        if flags & os.O_RDWR:
            raise OSError(number, os.strerror(number))
        return real(path, flags)

    monkeypatch.setattr(os, "open", open_)
    buffer = ctypes.create_string_buffer(b"same")
    address = RemoteAddress(ctypes.addressof(buffer))

    with ProcessMemory(os.getpid()) as memory:
        assert not memory.writable
        assert memory.read(address, 4) == b"same"
        with pytest.raises(NotPermitted):
            memory.write(address, b"diff")
    assert buffer.value == b"same"


def test_refusal_has_the_sentence_that_was_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, flags: int) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)

    with pytest.raises(NotPermitted, match="not permitted"):
        ProcessMemory(os.getpid())
    with pytest.raises(NotPermitted, match="because of rule 7"):
        ProcessMemory(os.getpid(), why_not=lambda pid: "because of rule 7")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become nobody")
def test_other_users_process_is_not_permitted(child: Child) -> None:
    script = (
        "import os, sys; from markerjit.memory import *; from markerjit.errors import *\n"
        "os.setuid(65534)\n"
        f"for look in ProcessMemory, read_maps:\n"
        f"    try: look({child.pid}); print('allowed')\n"
        "    except NotPermitted: print('refused')\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )

    assert done.stdout.split() == ["refused", "refused"], done.stderr


def test_nothing_stays_open_after_success_or_failure() -> None:
    before = os.listdir("/proc/self/fd")

    with ProcessMemory(os.getpid()) as memory:
        assert os.readlink(f"/proc/self/fd/{memory.fileno()}").endswith("/mem")
    memory.close()
    with pytest.raises(NoSuchProcess):
        ProcessMemory(1 << 21)

    assert os.listdir("/proc/self/fd") == before
    assert not memory.alive()


def test_use_after_close_is_our_own_bug() -> None:
    memory = ProcessMemory(os.getpid())
    memory.close()

    with pytest.raises(OSError) as caught:
        memory.read(RemoteAddress(0x1000), 1)

    assert caught.value.errno == errno.EBADF


def test_large_read_is_complete() -> None:
    size = 32 << 20
    buffer = ctypes.create_string_buffer(size)
    buffer[size - 1] = b"!"

    with ProcessMemory(os.getpid()) as memory:
        data = memory.read(RemoteAddress(ctypes.addressof(buffer)), size)

    assert len(data) == size
    assert data[-1:] == b"!"

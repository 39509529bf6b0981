"""Processes whose threads are stopped and borrowed: each waits in a call, or is in a handler.

Their sources are in tests/unit/stop/. The fixture `start_child` compiles and starts them.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from markerjit.arena.pack import as_native, pack
from markerjit.model import Edit, RemoteAddress
from markerjit.proc.permission import read_status
from markerjit.remote import native
from tests.support.programs import ROOT
from tests.support.timing import HANG_S, Limited, Wait, wait_until

SOURCES = ROOT / "tests" / "unit" / "stop"
SYS_GETPID, SYS_GETPPID = 39, 110
EINTR = 4

# The call, and what it says after a byte on its input: result, errno, signals handled.
ENDED_BY_A_BYTE = {
    **dict.fromkeys(("read", "recv", "recv_timeout"), "1 0 0"),
    **dict.fromkeys(("poll", "poll_timeout", "ppoll", "select", "pselect"), "1 0 0"),
    **dict.fromkeys(("epoll_wait", "epoll_timeout", "epoll_pwait", "msgrcv"), "1 0 0"),
    **dict.fromkeys(("wait4", "futex", "futex_timeout", "semop"), "0 0 0"),
}
# The same after SIGUSR1, which has a handler that does not restart calls.
ENDED_BY_A_SIGNAL = {
    "nanosleep": f"1 {EINTR} 1",
    "clock_nanosleep": f"{EINTR} 0 1",
    **dict.fromkeys(("pause", "sigsuspend", "io_getevents"), f"-1 {EINTR} 1"),
    **dict.fromkeys(("sigwaitinfo", "sigtimedwait"), f"{int(signal.SIGUSR1)} 0 0"),
    **dict.fromkeys(("spin", "vector"), "0 0 1"),
}
RUNNING = ("spin", "vector", "loop")
WAITS = {**ENDED_BY_A_BYTE, **ENDED_BY_A_SIGNAL}


class Child:
    """A process that a test controls.

    input   the other end of its standard input
    places  the addresses and numbers of its first line, by name
    memory  a descriptor of its memory
    """

    source: ClassVar[Path]

    def __init__(self, program: Path, *options: str) -> None:
        self.input, theirs = socket.socketpair()
        self.process = Limited([program, *options], stdin=theirs, stdout=subprocess.PIPE)
        theirs.close()
        self.pid = self.process.pid
        assert self.process.stdout is not None
        self.output = self.process.stdout
        words = dict(word.split("=") for word in self.line().split()[1:])
        self.places = {name: int(number) for name, number in words.items()}
        self.memory = os.open(f"/proc/{self.pid}/mem", os.O_RDWR)
        self.target = native.NativeTarget(pid=self.pid, pidfd=-1, mem_fd=self.memory)

    def line(self, timeout_s: float = HANG_S) -> str:
        Wait(f"a line of {self.pid}", timeout_s).for_input(self.output)
        return self.output.readline().decode().strip()

    def wait_state(self, state: str) -> None:
        for _ in range(1_000_000):
            if read_status(self.pid).state == state:
                return
            os.sched_yield()
        raise AssertionError(f"is {read_status(self.pid).state}, not {state}")

    def apply(
        self,
        edits: Sequence[Edit],
        quiescence: int = native.STOP,
        library: ctypes.CDLL | None = None,
    ) -> int:
        """A transaction; the status. The report is in `report`."""
        self.report = native.Report()
        status: int = (library or native.library()).mj_apply(
            ctypes.byref(self.target), quiescence, as_native(pack(edits)), len(edits),
            ctypes.byref(self.report),
        )  # fmt: skip
        return status

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.output.close()
        self.input.close()
        os.close(self.memory)


class Waiting(Child):
    """A process that waits in a call."""

    source = SOURCES / "waiting.c"

    def __init__(self, program: Path, call: str, *options: str) -> None:
        super().__init__(program, call, *options)
        self.data, self.text = self.places["data"], self.places["text"]
        for gadget in ("syscall_ret", "sigreturn", "pop_rax_ret", "scratch"):
            setattr(self.target, gadget, self.places[gadget])
        self.wait_state("R" if call in RUNNING else "D" if call == "vfork" else "S")

    def borrow(self, *calls: tuple[int, ...], alone: bool = False) -> int:
        """Make system calls by one of its threads. The results are then in `results`; with `alone`
        the threads in `threads`."""
        prepared = (native.NativeCall * len(calls))()
        for call, (number, *args) in zip(prepared, calls, strict=True):
            call.number = number
            call.args[: len(args)] = args
            call.refs[:] = [-1] * 6
        return self.borrow_prepared(prepared, alone=alone)

    def borrow_prepared(self, calls: Sequence[native.NativeCall], *, alone: bool = False) -> int:
        prepared = (native.NativeCall * len(calls))(*calls)
        threads, count = (native.NativeThread * 8)(), ctypes.c_uint32(8)
        self.report = native.Report()
        status: int = native.library().mj_borrow(
            self.target, prepared, len(calls),
            threads if alone else None, ctypes.byref(count), self.report,
        )  # fmt: skip
        self.results = [call.result for call in prepared]
        self.threads = threads[: count.value]
        return status

    def write(
        self, *edits: tuple[int, bytes, bytes], quiescence: int = native.STOP, code: bool = True
    ) -> int:
        """A transaction: address, old and new bytes of each edit."""
        return self.apply(
            [Edit(RemoteAddress(at), old, new, "", code) for at, old, new in edits], quiescence
        )

    def stack_below(self) -> bytes:
        """The four pages below the stack pointer and the red zone of its first thread, once that
        waits in its system call: while it runs the kernel does not say where its stack is."""
        path = Path(f"/proc/{self.pid}/syscall")
        wait_until(lambda: path.read_text() != "running\n", "the thread's system call")
        pointer = int(path.read_text().split()[-2], 16)
        return os.pread(self.memory, 4 * 4096, pointer - 128 - 4 * 4096)

    def word(self, index: int) -> bytes:
        return os.pread(self.memory, 8, self.data + 8 * index)

    def end_wait(self, call: str) -> None:
        if call in ENDED_BY_A_SIGNAL:
            self.signal(signal.SIGUSR1)
        else:
            self.input.send(b"x")

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def is_silent(self) -> bool:
        return not select.select([self.output], [], [], 0)[0]

    def result(self, timeout_s: float = HANG_S) -> str:
        """How the call ended: its result, errno, and how many signals were handled."""
        return self.line(timeout_s)

    def signal_masks(self) -> list[str]:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        names = ("SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "TracerPid")
        return [line for line in lines if line.startswith(names)]


Start = Callable[..., Waiting]
"""The fixture `start`: the call that is waited in, and options of waiting.c."""


def word(number: int) -> bytes:
    return number.to_bytes(8, "little")

"""Holding a thread of a program at an address of its code, as a debugger does."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from pathlib import Path

from markerjit.proc.permission import read_status
from tests.support.programs import Target
from tests.support.timing import wait_until

_LIBC = ctypes.CDLL(None, use_errno=True)
_CONT, _GETREGS, _SETREGS, _ATTACH, _DETACH = 7, 12, 13, 16, 17
_RIP = 16
INT3 = b"\xcc"


class _Registers(ctypes.Structure):
    """struct user_regs_struct."""

    _fields_ = [("words", ctypes.c_ulong * 27)]


def _ptrace(request: int, pid: int, data: object = None) -> None:
    _LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    if _LIBC.ptrace(request, pid, None, data):
        raise OSError(ctypes.get_errno(), f"ptrace {request}")


def stop_at(
    program: Target, address: int, arrive: Callable[[], object], *, behind: int | None = None
) -> None:
    """Have the first thread of a program stand at this address, stopped by SIGSTOP. `arrive` makes
    it come by, and does not wait for it. If the address is that of a jump, the thread may stand
    `behind` it, where it leads."""
    pid = program.pid
    _ptrace(_ATTACH, pid)
    os.waitpid(pid, 0)
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        before = memory.read(1)
        memory.seek(address)
        memory.write(INT3)
        _ptrace(_CONT, pid)
        arrive()
        status = os.waitpid(pid, 0)[1]
        assert os.WSTOPSIG(status) == signal.SIGTRAP, status
        memory.seek(address)
        memory.write(before)
    registers = _Registers()
    _ptrace(_GETREGS, pid, ctypes.addressof(registers))
    assert registers.words[_RIP] == address + 1
    registers.words[_RIP] = address if behind is None else behind
    _ptrace(_SETREGS, pid, ctypes.addressof(registers))
    _ptrace(_DETACH, pid, signal.SIGSTOP)
    wait_until(lambda: read_status(pid).state == "T", f"{pid} stopped")


def rip_of(pid: int) -> int:
    """The instruction pointer of the first thread, which is stopped."""
    path = Path(f"/proc/{pid}/syscall")
    wait_until(lambda: path.read_text() != "running\n", f"{pid} stopped")
    return int(path.read_text().split()[-1], 16)

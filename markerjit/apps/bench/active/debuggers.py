"""Breakpoints from outside, by ptrace: gdb, and our own minimal tracer
(native/bench/active/tracer.c).

Both are processes that end when we do. Most of their cost is the switch of the kernel from one
process to the other and back. With one thread, our tracer is bound to that thread's CPU. Otherwise
a stop costs five times as much whenever the kernel runs the tracer on another CPU. With several
threads no CPU is near to all of them, and the kernel chooses. gdb runs as a user would run it.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from markerjit.apps.bench.sampling.child import Child, end
from markerjit.errors import MarkerError, NotPermitted, Unsupported

_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_GDB_SCRIPT = """set pagination off
set confirm off
set breakpoint pending off
{breakpoints}shell echo ready
continue
info breakpoints
"""
_GDB_BREAKPOINT = """break *{address:#x}
commands
silent
continue
end
"""
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_READY_S, _END_S = 60, 20


class Tracer(Child):
    """A process that counts breakpoints at one-byte no-ops. Raises NotPermitted. After it is
    closed, the traced process runs on, and any breakpoint left in it is fatal."""

    def __init__(self, program: Path, pid: int, places: Sequence[int]) -> None:
        try:
            super().__init__("tracer", [program, pid, *(f"{address:x}" for address in places)])
        except MarkerError as error:
            raise NotPermitted(f"{error}{_yama()}") from None
        self._cpus = os.sched_getaffinity(self.pid)

    def stay_beside(self, threads: int, cpu: int) -> None:
        """Prepare for a run of this number of threads, the first of which is bound to that CPU."""
        os.sched_setaffinity(self.pid, {cpu} if threads == 1 else self._cpus)

    def hits(self) -> list[int]:
        """The hits of each place."""
        return [int(word) for word in self.ask("hits").split()]


class Gdb:
    """gdb, attached to a process, with a breakpoint at each place. Its commands and its output are
    files in a directory. (gdb prints at most stops. On a full pipe it would block in the middle of
    one.) Raises Unsupported, NotPermitted."""

    def __init__(self, pid: int, places: Sequence[int], directory: Path) -> None:
        program = shutil.which("gdb")
        if program is None:
            raise Unsupported("gdb is not here; apt-get install gdb")
        self._places = len(places)
        self._output = directory / "gdb.output"
        script = directory / "gdb.script"
        script.write_text(
            _GDB_SCRIPT.format(
                breakpoints="".join(_GDB_BREAKPOINT.format(address=address) for address in places)
            )
        )
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [program, "-nx", "-q", "-batch", "-p", str(pid), "-x", script],
                env={**os.environ, "DEBUGINFOD_URLS": "", "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=_end_with_us,
            )
        self._wait_ready()

    def hits(self) -> list[int]:
        """The hits of each place, once the program has ended. Raises MarkerError."""
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            raise MarkerError("gdb did not end with its program") from None
        return hits_in(self._output.read_text(errors="replace"), self._places)

    def close(self) -> None:
        """End gdb. The traced process runs on, and any breakpoint left in it is fatal."""
        end(self._process)

    def _wait_ready(self) -> None:
        """Wait until gdb is about to resume the process, which waits for the rest of gdb's work."""
        deadline = time.monotonic() + _READY_S
        while "ready" not in (lines := self._output.read_text(errors="replace").splitlines()):
            is_over = self._process.poll() is not None
            if is_over or time.monotonic() > deadline:
                self.close()
                why = lines[-1] if lines and is_over else "does not come to an end of its start"
                raise NotPermitted(f"gdb: {why}{_yama()}")
            time.sleep(0.02)


def hits_in(text: str, places: int) -> list[int]:
    """The hits of each breakpoint in gdb's `info breakpoints`, in the order of their numbers from 1
    on."""
    hits = dict.fromkeys(range(1, places + 1), 0)
    number = 0
    for line in text.splitlines():
        if row := re.match(r"(\d+)\s+breakpoint\b", line):
            number = int(row[1])
        elif count := re.match(r"\s+breakpoint already hit (\d+) time", line):
            hits[number] = int(count[1])
    return [hits[number] for number in range(1, places + 1)]


def _end_with_us() -> None:
    """Have the kernel end this child when we end, even if we are killed."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _yama() -> str:
    """A possible reason why ptrace is not permitted."""
    try:
        scope = _YAMA.read_text().strip()
    except OSError:
        return ""
    return f" (kernel.yama.ptrace_scope is {scope})" if scope != "0" else ""

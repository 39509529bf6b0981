"""Conditions that are waited for, and actions that may hang.

A limit is for hangs only, so it is far beyond what a busy machine needs. When it is over, the
failure says what was waited for, and what our processes did meanwhile: one that had no CPU was
slow, one that had much of it, or slept, is wrong.
"""

from __future__ import annotations

import io
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil

from markerjit.memory import stat_fields

LONGEST_PAUSE_S = 0.2
HANG_S = 300.0
_SAMPLE_S = 1.0

_Input = TypeVar("_Input")


class Hangs(AssertionError):
    """A limit is over."""


class Wait:
    """A wait for something, which has a limit."""

    def __init__(self, what: str, timeout_s: float = HANG_S) -> None:
        self._what = what
        self._timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s

    def left_s(self) -> float:
        """The time that is left. Raises Hangs where there is none."""
        left_s = self._end - time.monotonic()
        if left_s <= 0:
            raise Hangs(f"waited {self._timeout_s:g} s for {self._what}\n{progress()}")
        return left_s

    def for_input(self, *files: _Input) -> list[_Input]:
        """Wait until some of these files can be read. Raises Hangs."""
        with selectors.DefaultSelector() as selector:
            for file in files:
                selector.register(file, selectors.EVENT_READ)  # type: ignore[arg-type]
            while True:
                ready = selector.select(self.left_s())
                if ready:
                    return [key.fileobj for key, _ in ready]  # type: ignore[misc]


class _Pipe(io.RawIOBase):
    """What a process writes. Each read waits as long as a limit says; then Hangs is raised."""

    def __init__(self, raw: io.RawIOBase, writer: int, limit_s: float) -> None:
        self._raw = raw
        self._writer = writer
        self._limit_s = limit_s

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def readinto(self, buffer: Any) -> int | None:
        Wait(f"what process {self._writer} writes", self._limit_s).for_input(self._raw)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _limited(stream: Any, writer: int, limit_s: float) -> Any:
    """The stream, each read of which has a limit."""
    if isinstance(stream, io.TextIOWrapper):
        encoding, errors = stream.encoding, stream.errors
        return io.TextIOWrapper(_limited(stream.detach(), writer, limit_s), encoding, errors)
    if isinstance(stream, io.BufferedReader):
        return io.BufferedReader(_Pipe(stream.detach(), writer, limit_s))
    return stream and _Pipe(stream, writer, limit_s)


class Limited(subprocess.Popen[Any]):
    """A process that is waited for as long as a limit says, and so is what it writes; then Hangs is
    raised. `limit_s` is that of each read."""

    def __init__(self, *args: Any, limit_s: float | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        limit_s = HANG_S if limit_s is None else limit_s
        self.stdout = _limited(self.stdout, self.pid, limit_s)
        self.stderr = _limited(self.stderr, self.pid, limit_s)

    def wait(self, timeout: float | None = None) -> int:
        timeout_s = HANG_S if timeout is None else timeout
        try:
            return super().wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self._hangs(timeout_s) from None

    @contextmanager
    def reaped(self) -> Iterator[None]:
        """Wait for its end beside what is done here, as the shell does that has started it. Until
        then a killed process is there still, for those that ask the kernel."""
        reaper = threading.Thread(target=self.wait, daemon=True)
        reaper.start()
        yield
        reaper.join()

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        timeout_s = HANG_S if timeout is None else timeout
        try:
            return super().communicate(input, timeout_s)
        except subprocess.TimeoutExpired:
            raise self._hangs(timeout_s) from None

    def _hangs(self, timeout_s: float) -> Hangs:
        return Hangs(f"waited {timeout_s:g} s for the end of {self.pid}\n{progress()}")


def reaped(pid: int, timeout_s: float = HANG_S) -> int:
    """The status of a child that we have forked, once it has ended. Raises Hangs, and kills it."""
    descriptor = os.pidfd_open(pid)
    try:
        Wait(f"the end of {pid}", timeout_s).for_input(descriptor)
    except Hangs:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
    return status


def joined(*threads: threading.Thread) -> None:
    """Wait for the ends of threads. Raises Hangs."""
    for thread in threads:
        thread.join(HANG_S)
        if thread.is_alive():
            raise Hangs(f"waited {HANG_S:g} s for the end of {thread.name}\n{progress()}")


def wait_until(
    condition: Callable[[], Any], what: str, timeout_s: float = HANG_S, every_s: float = 0.002
) -> None:
    """Wait for a condition. Raises Hangs. One that takes long to ask is asked more seldom: what it
    waits for needs the CPU, too."""
    wait = Wait(what, timeout_s)
    while True:
        asked_at = time.monotonic()
        if condition():
            return
        wait.left_s()
        took_s = time.monotonic() - asked_at
        time.sleep(max(every_s, min(2 * took_s, LONGEST_PAUSE_S)))


def within(seconds: float, action: Callable[[], object]) -> None:
    """Do something that may hang in native code: then the test fails, and pytest goes on. (The
    thread is freed when the target is killed.)"""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise Hangs(f"it hangs, {seconds} s after it began\n{progress()}")
    if raised:
        raise raised[0]


def progress(of: psutil.Process | None = None) -> str:
    """What a process and those that it started do, in a second: a line for each. None: this one."""
    first = of or psutil.Process()
    ours = [first, *first.children(recursive=True)]
    before = {process.pid: _cpu_s(process.pid) for process in ours}
    idle, began = psutil.cpu_times().idle, time.monotonic()
    time.sleep(_SAMPLE_S)
    took = time.monotonic() - began
    idle = (psutil.cpu_times().idle - idle) / took
    lines = [
        f"load {os.getloadavg()[0]:.1f}; of {os.cpu_count()} CPUs {max(idle, 0):.1f} were idle. "
        f"Our processes, with their CPU time in all and in {took:.1f} s:"
    ]
    for process in ours:
        after = _cpu_s(process.pid)
        try:
            state = stat_fields(f"/proc/{process.pid}")[0].decode()
            where = Path(f"/proc/{process.pid}/wchan").read_text()
            command = " ".join(process.cmdline())[:100]
        except (OSError, psutil.Error):
            continue
        more = after - before[process.pid]
        lines.append(f"  {process.pid} {state} {after:.2f} s, {more:.2f} s, {where}: {command}")
    return "\n".join(lines)


def _cpu_s(pid: int) -> float:
    """The CPU time of all its threads, 0 of a process that is gone."""
    try:
        fields = stat_fields(f"/proc/{pid}")
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

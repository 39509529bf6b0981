"""A sacrificial child in the hands of its parent: started, watched, written to, and always ended.

`poke` is the dangerous way, which only writes bytes. `change` is the product's own way: its
protocols plan, and its `apply` stops or fences, compares, writes and reads back.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from markerjit.errors import MarkerError, Refused
from markerjit.lab.image import CODE, DATA, DATA_SIZE, ENTRY, SCRATCH, WORDS, Image
from markerjit.lab.processes import end, ending_of, start
from markerjit.memory.process import ProcessMemory
from markerjit.model import Change, RemoteAddress
from markerjit.patch.apply import apply
from markerjit.patch.plan import Plan
from markerjit.patch.protocol import Context, Refusal, plan_change
from markerjit.quiesce.strategies import STOP, Strategy
from markerjit.remote.native import NativeTarget

_LIMIT_S = 300


class Child:
    """A process that executes an image. It is killed at the end of the `with`. Entering raises
    MarkerError where it does not start."""

    def __init__(self, image: Image, threads: int = 1) -> None:
        self._image = image
        with ExitStack() as ends:
            self._code_fd = os.memfd_create("markerjit-lab-code")
            ends.callback(os.close, self._code_fd)
            self._data_fd = os.memfd_create("markerjit-lab-words")
            ends.callback(os.close, self._data_fd)
            os.write(self._code_fd, image.bytes)
            os.truncate(self._data_fd, DATA_SIZE)
            self._words = ends.enter_context(mmap.mmap(self._data_fd, DATA_SIZE))
            self._process = self._start(threads)
            ends.callback(end, self._process)
            self._ends = ends.pop_all()

    def __enter__(self) -> Self:
        try:
            assert self._process.stdout
            if self._process.stdout.readline() != b"ready\n":
                raise MarkerError("the child of this experiment did not start")
            self._memory = self._ends.enter_context(ProcessMemory(self.pid))
        except BaseException:
            self._ends.close()
            raise
        self._target = NativeTarget(
            pid=self.pid, pidfd=self._memory.pidfd, mem_fd=self._memory.fileno(),
            scratch=SCRATCH, **self._image.gadgets,
        )  # fmt: skip
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.close()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def word(self, name: str) -> int:
        """The value of one of the image's words."""
        offset = 8 * WORDS.index(name)
        return int.from_bytes(self._words[offset : offset + 8], "little")

    def set_word(self, name: str, value: int) -> None:
        """Set one of the image's words."""
        offset = 8 * WORDS.index(name)
        self._words[offset : offset + 8] = value.to_bytes(8, "little")

    def counts(self, *names: str) -> dict[str, int]:
        """The values of some of the image's words, by name."""
        return {name: self.word(name) for name in names}

    def wait_for(self, name: str, count: int, limit_s: float, tell: Callable[[int], None]) -> None:
        """Wait until a word has reached a count, the child has died, or time is up. Calls `tell`
        with the word meanwhile."""
        deadline = time.monotonic() + limit_s
        while self.word(name) < count and self.is_alive() and time.monotonic() < deadline:
            tell(self.word(name))
            time.sleep(0.001)

    def is_alive(self) -> bool:
        """Whether the child has not died yet."""
        return self._process.poll() is None

    def ending(self, wait_s: float = 0) -> str:
        """`alive`, or the name of the signal that the child died of. Waits up to `wait_s` for its
        death."""
        return ending_of(self._process, wait_s)

    def in_memory(self, address: int, size: int) -> bytes:
        """Bytes of the child's memory. Raises TargetGone when it has died."""
        return self._memory.read(RemoteAddress(address), size)

    def in_file(self, address: int, size: int) -> bytes:
        """Bytes of the file from which the code is mapped, by their address in the child."""
        return os.pread(self._code_fd, size, address - CODE)

    def poke(self, address: int, data: bytes) -> bool:
        """Write bytes with a single call, whatever threads do. Returns False where the child has
        died."""
        try:
            return os.pwrite(self._memory.fileno(), data, address) == len(data)
        except OSError:
            if self.is_alive():
                raise
            return False

    def change(
        self,
        address: int,
        old: bytes,
        new: bytes,
        *,
        strategy: Strategy = STOP,
        goes_on: int | None = None,
    ) -> None:
        """Change bytes of code by the product's protocols and its `apply`.

        A thread that meets a breakpoint goes on at `goes_on`; with None no breakpoint is used.
        Raises Refused where the change is refused, as for any program.
        """
        completion = None if goes_on is None else RemoteAddress(goes_on)
        if goes_on is not None:
            self.set_word("goes_on", goes_on)
        change = Change(RemoteAddress(address), old, new, "the site", True, completion=completion)
        edits = plan_change(change, Context(strategy, handler=completion is not None))
        if isinstance(edits, Refusal):
            raise Refused(edits.sentence, reason=edits.reason, try_again=edits.try_again)
        apply(Plan("the site", edits, strategy), self._target, None)

    def _start(self, threads: int) -> subprocess.Popen[bytes]:
        numbers: Sequence[int] = (
            os.getpid(), self._code_fd, self._data_fd, CODE, DATA, ENTRY,
            self._image.handler, threads, _LIMIT_S,
        )  # fmt: skip
        host = Path(__file__).with_name("host.py")
        return start(
            [sys.executable, "-I", "-S", str(host), *map(str, numbers)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(self._code_fd, self._data_fd),
        )

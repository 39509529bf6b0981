"""A sacrificial child, held by its parent: started, watched, written to, and ended in any case.

`poke` is the dangerous way: bytes are written and nothing else. `change` is the product's own:
its protocols plan, its `apply` stops or fences, compares, writes and reads back.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
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
    """A process that executes an image; killed at the end of the `with`."""

    def __init__(self, image: Image, threads: int = 1) -> None:
        self._image = image
        self._code_fd = os.memfd_create("markerjit-lab-code")
        self._data_fd = os.memfd_create("markerjit-lab-words")
        try:
            os.write(self._code_fd, image.bytes)
            os.truncate(self._data_fd, DATA_SIZE)
            self._words = mmap.mmap(self._data_fd, DATA_SIZE)
            self._process = self._start(threads)
        except BaseException:
            os.close(self._code_fd)
            os.close(self._data_fd)
            raise

    def __enter__(self) -> Self:
        try:
            assert self._process.stdout
            if self._process.stdout.readline() != b"ready\n":
                raise MarkerError("the child of this experiment did not start")
            self._memory = ProcessMemory(self.pid)
        except BaseException:
            self._end()
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
        self._memory.close()
        self._end()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def word(self, name: str) -> int:
        """One of the words that the image counts in."""
        offset = 8 * WORDS.index(name)
        return int.from_bytes(self._words[offset : offset + 8], "little")

    def set_word(self, name: str, value: int) -> None:
        """Set one of the words."""
        offset = 8 * WORDS.index(name)
        self._words[offset : offset + 8] = value.to_bytes(8, "little")

    def counts(self, *names: str) -> dict[str, int]:
        """Some of the words."""
        return {name: self.word(name) for name in names}

    def wait_for(self, name: str, count: int, limit_s: float, tell: Callable[[int], None]) -> None:
        """Return when a word has reached a count, the child has died, or time is up; `tell` is
        called with the word meanwhile."""
        deadline = time.monotonic() + limit_s
        while self.word(name) < count and self.is_alive() and time.monotonic() < deadline:
            tell(self.word(name))
            time.sleep(0.001)

    def is_alive(self) -> bool:
        """Whether it has not died yet."""
        return self._process.poll() is None

    def ending(self, wait_s: float = 0) -> str:
        """`alive`, or the name of the signal that it died of, for which this waits so long."""
        return ending_of(self._process, wait_s)

    def in_memory(self, address: int, size: int) -> bytes:
        """Bytes of its memory. Raises TargetGone when it has died."""
        return self._memory.read(RemoteAddress(address), size)

    def in_file(self, address: int, size: int) -> bytes:
        """Bytes of the file that the code is mapped from."""
        return os.pread(self._code_fd, size, address - CODE)

    def poke(self, address: int, data: bytes) -> bool:
        """Write bytes with a single call, whatever threads do. False: the child has died."""
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

        `goes_on` is where a thread goes on that meets a breakpoint; None where none can be used.
        Raises Refused where the change has to wait, as for any program.
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

    def _end(self) -> None:
        end(self._process)
        self._words.close()
        os.close(self._code_fd)
        os.close(self._data_fd)

"""Programs that say `r` when they are ready and give every byte back: who still answers, lives."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.support.timing import Limited


class Answering:
    """A program that gives every byte back."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self.process = process
        assert process.stdout is not None
        self.ready = process.stdout.read(1)

    def answers(self, byte: bytes = b"?") -> bool:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(byte)
            return self.process.stdout.read(1) == byte
        return False


@contextmanager
def started(*command: object, **kwargs: Any) -> Iterator[Answering]:
    with Limited(
        list(map(str, command)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        **kwargs,
    ) as process:
        try:
            yield Answering(process)
        finally:
            process.kill()

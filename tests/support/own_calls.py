"""An arena in this process, made by the process's own system calls, each of which may fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from markerjit.abi import PAGE
from markerjit.arena.arena import Arena
from markerjit.arena.create import create_arena
from markerjit.memory import ProcessMemory, read_maps
from markerjit.remote.calls import (
    SYS_CLOSE,
    SYS_MMAP,
    SYS_MUNMAP,
    Call,
    CallFailed,
    OwnThread,
    Result,
)


class FailingThread(OwnThread):
    """Our own calls; number `fail_at` (from 0) fails instead of being made. Only close(2), where
    it fails, has given the descriptor back all the same.

    mapped  what calls have mapped and not unmapped
    """

    def __init__(self, fail_at: int = -1) -> None:
        self.made: list[str] = []
        self.mapped: dict[int, int] = {}
        self.fail_at = fail_at

    def run(self, calls: Sequence[Call]) -> list[int]:
        results: list[int] = []
        for call in calls:
            args = tuple(
                results[arg.of] + arg.plus if isinstance(arg, Result) else arg for arg in call.args
            )
            self.made.append(call.name)
            if len(self.made) - 1 == self.fail_at:
                if call.number == SYS_CLOSE:
                    super().run([call._replace(args=args)])
                raise CallFailed(call, errno.ENOMEM, results)
            try:
                results += super().run([call._replace(args=args)])
            except CallFailed as failed:
                raise CallFailed(call, failed.error, results) from None
            if call.number == SYS_MMAP:
                self.mapped[results[-1]] = max(args[1], self.mapped.get(results[-1], 0))
            if call.number == SYS_MUNMAP:
                assert self.mapped[args[0]] == args[1]
                # and what was mapped into the middle of it
                inside = range(args[0], args[0] + args[1])
                self.mapped = {at: size for at, size in self.mapped.items() if at not in inside}
        return results


def descriptors() -> set[tuple[str, str]]:
    files = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            files.add((name, os.readlink(f"/proc/self/fd/{name}")))
        except FileNotFoundError:
            continue  # the one that reads the directory
    return files


def arena_mappings() -> list[str]:
    return [
        line
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "memfd:markerjit" in line
    ]


def make_own_arena(memory: ProcessMemory, caller: OwnThread) -> Arena:
    return create_arena(os.getpid(), memory, caller, maps=read_maps(os.getpid()), ring_size=PAGE)


def take_down(caller: FailingThread) -> None:
    """What the product never does: remove an arena that is there, ours and its descriptor."""
    caller.fail_at = -1
    while caller.mapped:
        start = min(caller.mapped)
        caller.run([Call("munmap", SYS_MUNMAP, (start, caller.mapped[start]))])
    for name, path in descriptors():
        if "memfd:markerjit" in path:
            os.close(int(name))

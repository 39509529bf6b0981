"""The processes that /proc shows, with what a person knows of them.

Processes come and go while they are listed: one that has ended is not listed. Kernel threads and
zombies have no program, and are not listed either.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from markerjit.errors import NoSuchProcess, NotPermitted, refuse_own_shortage
from markerjit.proc.cgroup import Group, groups_of
from markerjit.proc.permission import read_status
from markerjit.tuples import NamedTuple

_NAME_BYTES = 15
"""The kernel cuts off the rest of a name."""


class Process(NamedTuple):
    """A process with a program. `exe` is "" where we may not know it."""

    pid: int
    name: str
    uid: int
    exe: str

    def is_named(self, name: str) -> bool:
        """Whether a person would call it so: by its file, or by its name in ps."""
        shown = os.fsencode(name)[:_NAME_BYTES]
        return os.path.basename(self.exe) == name or os.fsencode(self.name) == shown

    def executes(self, path: str) -> bool:
        """Whether it executes this file, or one that was there before and was replaced."""
        if self.exe == os.path.realpath(path):
            return True
        try:
            return os.path.samefile(f"/proc/{self.pid}/exe", path)
        except OSError as error:
            refuse_own_shortage(error)
            return False

    def groups(self) -> tuple[Group, ...]:
        """Its control groups, none where it has ended."""
        return groups_of(_text(f"/proc/{self.pid}/cgroup"))

    def command(self) -> str:
        """Its command line."""
        return _text(f"/proc/{self.pid}/cmdline").rstrip("\0").replace("\0", " ") or self.name


def processes() -> Iterator[Process]:
    """All processes that have a program, but not this one, by pid."""
    ours = os.getpid()
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()):
        if pid != ours and (process := process_of(pid)):
            yield process


def process_of(pid: int) -> Process | None:
    """A process; None where it has ended, has no program or is hidden from us."""
    try:
        status = read_status(pid)
    except (NoSuchProcess, NotPermitted):
        return None
    if not status.has_memory or status.state in "ZX":
        return None
    try:
        exe = os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
    except OSError as error:
        refuse_own_shortage(error)
        exe = ""
    return Process(pid, status.name, status.uid, exe)


def _text(path: str) -> str:
    try:
        with open(path, "rb", buffering=0) as file:
            return os.fsdecode(file.read())
    except OSError as error:
        refuse_own_shortage(error)
        return ""

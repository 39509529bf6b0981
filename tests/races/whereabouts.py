"""Where a thread is, in words, for the report of a thread that was harmed.

Stops nobody: what is not readable without that, or not for an ordinary user, is left out.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

_STACK_WORDS = 48
_PAGE = 4096
_UTIME, _STIME = 11, 12


def whereabouts(pid: int, tid: int, scratch: int = 0) -> str:
    """State, CPU time, what it waits for, registers that /proc shows, mappings, stack, and who uses
    the arena's scratch."""
    task = Path(f"/proc/{pid}/task/{tid}")
    words = [f"thread {tid}"]
    with contextlib.suppress(OSError):
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        words.append(f"state {fields[0]}, ticks {fields[_UTIME]}+{fields[_STIME]}")
    for name in ("wchan", "syscall", "stack", "schedstat"):
        with contextlib.suppress(OSError):
            words.append(f"{name} {' '.join((task / name).read_text().split())}")
    with contextlib.suppress(OSError, ValueError):
        *_, stack_pointer, counter = (task / "syscall").read_text().split()
        words += [f"{_mapping(pid, int(at, 16))}" for at in (counter, stack_pointer)]
        words.append(f"on its stack {_words(pid, int(stack_pointer, 16), _STACK_WORDS)}")
    with contextlib.suppress(OSError):
        words += [
            f"{line}" for line in (task / "status").read_text().splitlines()
            if line.startswith(("TracerPid", "SigQ", "SigPnd", "ShdPnd", "SigBlk", "SigIgn",
                                "SigCgt", "voluntary", "nonvoluntary"))
        ]  # fmt: skip
    with contextlib.suppress(OSError):
        if scratch:
            words.append(f"scratch at {scratch:#x} {_words(pid, scratch, 8)}")
    return "; ".join(words)


def _words(pid: int, address: int, count: int) -> str:
    """From there to the end of what is mapped, at most so many. Raises OSError."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        try:
            data = os.pread(memory.fileno(), 8 * count, address)
        except OSError:
            data = os.pread(memory.fileno(), min(8 * count, -address % _PAGE), address)
    return " ".join(f"{word:x}" for (word,) in struct.iter_unpack("<Q", data[: len(data) & -8]))


def _mapping(pid: int, address: int) -> str:
    """The line of its mapping, shortened. Raises OSError."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        start, _, end = line.split()[0].partition("-")
        if int(start, 16) <= address < int(end, 16):
            return f"{address:#x} is {address - int(start, 16):#x} into {' '.join(line.split())}"
    return f"{address:#x} is not mapped"

"""What the kernel says about a process: its state, and the code that it has mapped."""

from __future__ import annotations

import re
from pathlib import Path


def state_of(pid: int) -> str:
    """The letter of its state: R, S, D, T, t, Z or X."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def states_of_threads(pid: int) -> set[str]:
    """The letters of the states that its threads have."""
    return {state_of(int(task.name)) for task in Path(f"/proc/{pid}/task").iterdir()}


def resident_kb(pid: int) -> int:
    """The memory of it that is there, in KiB."""
    (size,) = re.findall(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
    return int(size)


def text_of(pid: int) -> dict[tuple[int, str], bytes]:
    """The code of every mapped object, but for our own arena."""
    text = {}
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            span, permissions, _, _, inode, path = (line + " ").split(" ", 5)
            path = path.strip()
            if "x" in permissions and inode != "0" and not path.startswith("/memfd:markerjit"):
                start, end = (int(number, 16) for number in span.split("-"))
                memory.seek(start)
                text[start, path] = memory.read(end - start)
                assert len(text[start, path]) == end - start
    assert text
    return text


def is_gone(pid: int) -> bool:
    """Ended, though perhaps nobody has asked how."""
    try:
        return state_of(pid) in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True

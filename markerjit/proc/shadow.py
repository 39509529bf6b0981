"""Whether a process uses shadow stacks, which know where each call returns to."""

from __future__ import annotations


def uses_shadow_stacks(pid: int) -> bool:
    """Whether the first thread of a process has one. Kernels before 6.6 know of none. False for a
    process that has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return has_shadow_stack(file.read())
    except OSError:
        return False


def has_shadow_stack(status: str) -> bool:
    """The same from the text of /proc/PID/status: `x86_Thread_features: shstk wrss`."""
    lines = (line.partition(":") for line in status.splitlines())
    return any(name == "x86_Thread_features" and "shstk" in rest.split() for name, _, rest in lines)

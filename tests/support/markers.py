"""The markers of a process as a session sees them, and a site with a wrong byte."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import markerjit
from markerjit.arena.mapped import MAPPING_PATH
from tests.support.timing import wait_until


def modes_of(pid: int) -> dict[str, str | None]:
    """How every marker is on."""
    with markerjit.View(pid) as view:
        return {
            statistic.name: str(statistic.mode) if statistic.mode else None
            for statistic in view.statistics()
        }


def has_arena(pid: int) -> bool:
    """Whether an arena is in a process. To see it in the list of its mappings takes a hundredth of
    what a View takes, so this is asked first where a marker is waited for."""
    return MAPPING_PATH in Path(f"/proc/{pid}/maps").read_text()


def wait_until_on(pid: int, is_on: Callable[[], Any]) -> None:
    """Wait until this is true of a process, once an arena is in it. Raises Hangs."""
    wait_until(lambda: has_arena(pid), "an arena")
    wait_until(is_on, "it is on", every_s=0.02)


def wait_on(pid: int, marker: str, tracer: subprocess.Popen[str]) -> None:
    """Wait until a marker is on; a tracer that has ended will not switch it on. A process that was
    just started may not have its program yet: execve(2) closes descriptors before it maps that."""
    wait_until(lambda: tracer.poll() is not None or has_arena(pid), "an arena")
    wait_until(lambda: tracer.poll() is not None or modes_of(pid).get(marker), f"{marker} on")
    assert tracer.poll() is None, tracer.communicate()


def wait_switched(pid: int) -> None:
    """Wait until nobody is at a change of the process: who is killed then has left it half done,
    and who is stopped keeps all others from changes, also behind the last line of its journal."""

    def is_done() -> bool:
        with markerjit.View(pid) as view:
            arena = view.arena()
            is_open = arena is None or arena.writer is not None
            return not is_open and not view._target.memory.is_locked()

    wait_until(is_done, "the change to be done")


def losses(session: markerjit.Session) -> Counter[str]:
    """How many hits of each marker were lost, by its name."""
    return Counter({marker.name: marker.lost for marker in session.statistics()})


@contextmanager
def altered(pid: int, address: int, index: int = 0) -> Iterator[bytes]:
    """Another byte in a site; gives what the site's first two bytes are then."""
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(address + index)
        (right,) = memory.read(1)
        memory.seek(address + index)
        memory.write(bytes([right ^ 0x10]))
        memory.seek(address)
        yield memory.read(2)
        memory.seek(address + index)
        memory.write(bytes([right]))

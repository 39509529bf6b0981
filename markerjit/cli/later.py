"""The process in the background that `on --for` leaves: it waits, and switches off.

It is only an alarm clock. The target itself has the time by which a marker is to be off. So a
marker whose time was extended is left alone, and if this process is killed, the next command
switches off. A signal that asks this process to end makes it switch off before the time.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable
from contextlib import suppress

import markerjit
from markerjit.cli import output, signals

_AGAIN_S = 1.0
_LATE_S = 60.0
"""So long after its time it tries again where another controller or tracer is at work."""


def wait_and_switch_off(
    pids: Iterable[int], pattern: str, deadline: float, end: signals.EndsWait, *, seccomp: str
) -> None:
    """Wait for the time, CLOCK_MONOTONIC, or until all these processes have ended, or for a signal.
    Those of `end` count from the fork on."""
    early: str | None = None
    try:
        left = end.wait(lambda: _wait(pids, deadline))
    except signals.Interrupted:
        early, left = pattern, [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    for pid in left:
        _switch_off(pid, early, seccomp)


def _wait(pids: Iterable[int], deadline: float) -> list[int]:
    """The processes that are there still at that time."""
    ends = select.poll()
    left: dict[int, int] = {}
    for pid in pids:
        with suppress(ProcessLookupError):
            ends.register(descriptor := os.pidfd_open(pid), select.POLLIN)
            left[descriptor] = pid
    while left and (remaining := deadline - time.monotonic()) > 0:
        # A little late: the deadlines have passed then.
        for descriptor, _ in ends.poll(remaining * 1000 + 1):
            ends.unregister(descriptor)
            os.close(descriptor)
            del left[descriptor]
    return [*left.values()]


def _switch_off(pid: int, early: str | None, seccomp: str) -> None:
    """Switch off, and try again for a minute where that may help."""
    until = time.monotonic() + _LATE_S
    while True:
        try:
            with markerjit.attach(pid, seccomp=seccomp) as session:
                session.switch_off_overdue(early=early)
            return
        except (markerjit.NoSuchProcess, markerjit.TargetGone):
            return
        except markerjit.MarkerError as error:
            passing = isinstance(error, markerjit.NotPermitted) or getattr(
                error, "try_again", False
            )
            if not passing or time.monotonic() > until:
                output.say(f"markerjit: {error}; STILL ON in process {pid}", error=True)
                return
        time.sleep(_AGAIN_S)

"""Waiting beside a flight recorder until its process ends, to save what it has kept.

How a process ended is told to its parent. Anybody else asks the kernel by a pidfd (Linux 6.15), or
looks at /proc/PID/stat before the parent has taken notice; where neither tells, it is not known.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct

from markerjit.arena.arena import Arena
from markerjit.arena.store import FileStore
from markerjit.arguments import check_flag, check_int, check_is
from markerjit.errors import Refused
from markerjit.events.flight import Flight
from markerjit.memory import stat_fields
from markerjit.session.status import arena_status
from markerjit.tuples import NamedTuple

_LOOK_AGAIN_S = 1.0
# include/uapi/linux/pidfd.h: PIDFD_GET_INFO, of struct pidfd_info as it was first
_GET_INFO = 0xC040FF0B
_INFO_EXIT = 1 << 3
_INFO = struct.Struct("<Q8x44xi")


class Ending(NamedTuple):
    """How a process ended: by a signal (0: by none), with a code; None when that is not known."""

    signal: int | None
    code: int | None

    def __str__(self) -> str:
        if self.signal is None:
            return "ended"
        if self.signal:
            names = {
                number.value: number.name for number in signal.Signals
            }  # not of every real-time one
            return f"was ended by {names.get(self.signal, f'signal {self.signal}')}"
        return f"ended with exit code {self.code}"


class Watch:
    """On the process of `flight`, by its pidfd. Raises Refused where the rings end with it."""

    def __init__(self, flight: Flight, arena: Arena, pidfd: int) -> None:
        check_is("flight", flight, Flight)
        check_is("arena", arena, Arena)
        check_int("pidfd", pidfd, 0, (1 << 31) - 1)
        if not isinstance(arena.store, FileStore):
            raise Refused(
                f"process {arena.pid} has closed its descriptor of the rings: they end with it"
            )
        self.flight = flight
        self._arena = arena
        self._pidfd = pidfd

    def __repr__(self) -> str:
        return f"<Watch on {self._arena.pid}>"

    def wait(self, *, until_off: bool = False) -> Ending | None:
        """Wait until the process has ended; with `until_off` also until no marker of it is on, and
        then None."""
        check_flag("until_off", until_off)
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        while not poll.poll(_LOOK_AGAIN_S * 1000):
            if until_off and not self._is_on():
                return None
        return ending_of(self._arena.pid, self._pidfd)

    def _is_on(self) -> bool:
        return arena_status(self._arena, locked=True).flight


def ending_of(pid: int, pidfd: int) -> Ending:
    """How a process has ended."""
    for status in (_status_by_pidfd(pidfd), _status_by_proc(pid), _status_by_pidfd(pidfd)):
        if status is not None:
            return Ending(status & 0x7F, status >> 8 & 0xFF)
    return Ending(None, None)


def _status_by_pidfd(pidfd: int) -> int | None:
    info = bytearray(_INFO.pack(_INFO_EXIT, 0))
    with contextlib.suppress(OSError):
        fcntl.ioctl(pidfd, _GET_INFO, info)
        mask, status = _INFO.unpack(info)
        if mask & _INFO_EXIT:
            return int(status)
    return None


def _status_by_proc(pid: int) -> int | None:
    """The exit status of a zombie. A reader that may not trace it gets 0, as if it had ended well
    (proc(5)). One that may is allowed to look at its program, though there is none any more."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = stat_fields(f"/proc/{pid}")
        if fields[0] in (b"Z", b"X"):
            with contextlib.suppress(FileNotFoundError):
                os.readlink(f"/proc/{pid}/exe")
            return int(fields[-1])
    return None

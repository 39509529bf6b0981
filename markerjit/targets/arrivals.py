"""Processes that come to be what a request means: started, or executing another file.

The kernel tells of each birth and each execution by its process connector (connector.rst), to those
who may ask: mostly root, with CAP_NET_ADMIN, outside of containers. Without it, /proc is listed
every tenth of a second, and what lives for less is missed. Nobody is held: a process is seen when
it runs already.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol

from markerjit.arguments import check_is
from markerjit.targets.find import matches
from markerjit.targets.processes import process_of
from markerjit.targets.request import Targets

_LOOK_AGAIN_S = 0.1
_YOUNG_S = 2.0
"""A process that was born so lately may still execute its file: it is looked at each time."""
_OLD_S = 1.0
"""The time between two looks at any other."""

# include/uapi/linux/netlink.h, connector.h, cn_proc.h
_NETLINK_CONNECTOR = 11
_CN_IDX_PROC, _CN_VAL_PROC = 1, 1
_LISTEN = 1
_NLMSG_DONE = 3
_NETLINK_HEADER = struct.Struct("=IHHII")
_CONNECTOR_HEADER = struct.Struct("=IIIIHH")
_EVENT_HEADER = struct.Struct("=IIQ")
_EVENT_AT = _NETLINK_HEADER.size + _CONNECTOR_HEADER.size
_DATA_AT = _EVENT_AT + _EVENT_HEADER.size
_ACKNOWLEDGED, _FORK, _EXEC, _UID, _COMM, _EXIT = 0, 0x1, 0x2, 0x4, 0x200, 0x80000000
_RECEIVE_BUFFER = 4 << 20
_MESSAGE = 1 << 16
_ANSWER_S = 0.5


class _Source(Protocol):
    """Says which processes have changed, and whether each executes another file since."""

    way: str

    def changed(self) -> dict[int, bool]: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...


class Arrivals:
    """Processes that come to be what `targets` means, from now on. Those that are it already are
    not among them.

    way  how they are seen, in a few words
    """

    def __init__(self, targets: Targets) -> None:
        check_is("targets", targets, Targets)
        self._is_meant = matches(targets)
        self._known: set[int] = set()
        self._source: _Source = _connector() or _Listing()
        self.way = self._source.way
        self._known = {pid for pid in _pids() if self._is_one(pid)}

    @property
    def first(self) -> list[int]:
        """The processes that are it now."""
        return sorted(self._known)

    def poll(self) -> list[int]:
        """The pids of those that have come since the last call. One that executes another file is
        among them again."""
        come = []
        for pid, executes in sorted(self._source.changed().items()):
            if not self._is_one(pid):
                self._known.discard(pid)
            elif executes or pid not in self._known:
                self._known.add(pid)
                come.append(pid)
        return come

    def forget(self, pid: int) -> None:
        """A process has ended, or executes another file: it may come again."""
        self._known.discard(pid)

    def wait(self, most_s: float) -> None:
        """Wait until something has happened, for so long at most."""
        descriptor = self._source.fileno()
        if descriptor < 0:
            time.sleep(most_s)
        else:
            with suppress(InterruptedError):
                select.select([descriptor], [], [], most_s)

    def close(self) -> None:
        """See no more. May be called again."""
        self._source.close()

    def _is_one(self, pid: int) -> bool:
        process = process_of(pid)
        return process is not None and self._is_meant(process)


class _Connector:
    """The kernel's process connector."""

    way = "the kernel's process connector"

    def __init__(self, listening: socket.socket) -> None:
        self._socket = listening

    def changed(self) -> dict[int, bool]:
        changed: dict[int, bool] = {}
        while True:
            try:
                message = self._socket.recv(_MESSAGE)
            except BlockingIOError:
                return changed
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                return {pid: changed.get(pid, False) for pid in _pids()}  # we were told too much
            for pid, executes in _changed_by(message):
                changed[pid] = executes or changed.get(pid, False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


class _Listing:
    """/proc, listed again and again."""

    way = "/proc, ten times a second"

    def __init__(self) -> None:
        self._files: dict[int, str] = {}
        self._born: dict[int, float] = {}
        self._looked_at = self._all_at = 0.0

    def changed(self) -> dict[int, bool]:
        now = time.monotonic()
        if now - self._looked_at < _LOOK_AGAIN_S:
            return {}
        self._looked_at = now
        pids = _pids()
        self._born = {pid: self._born.get(pid, now) for pid in pids}
        self._files = {pid: file for pid, file in self._files.items() if pid in self._born}
        if now - self._all_at >= _OLD_S:
            self._all_at = now
        else:
            pids = [pid for pid in pids if now - self._born[pid] < _YOUNG_S]
        return {pid: self._executes_another(pid) for pid in pids}

    def _executes_another(self, pid: int) -> bool:
        try:
            file = os.readlink(f"/proc/{pid}/exe")
        except OSError:
            return False
        before, self._files[pid] = self._files.get(pid, file), file
        return file != before

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        pass


def _connector() -> _Connector | None:
    """None where we may not have it."""
    try:
        listening = socket.socket(
            socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_CONNECTOR
        )
    except OSError:
        return None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        listening.bind((0, _CN_IDX_PROC))
        body = _CONNECTOR_HEADER.pack(_CN_IDX_PROC, _CN_VAL_PROC, 0, 0, 4, 0)
        size = _NETLINK_HEADER.size + len(body) + 4
        head = _NETLINK_HEADER.pack(size, _NLMSG_DONE, 0, 0, os.getpid())
        listening.send(head + body + struct.pack("=I", _LISTEN))
        if _is_answered(listening):
            listening.setblocking(False)
            return _Connector(listening)
    except OSError:
        pass
    listening.close()
    return None


def _is_answered(listening: socket.socket) -> bool:
    """Whether the kernel has begun to tell us. It answers nothing in another namespace of pids or
    users."""
    until = time.monotonic() + _ANSWER_S
    while (left := until - time.monotonic()) > 0:
        if not select.select([listening], [], [], left)[0]:
            return False
        message = listening.recv(_MESSAGE)
        if len(message) < _DATA_AT + 4:
            continue
        (what, _, _) = _EVENT_HEADER.unpack_from(message, _EVENT_AT)
        if what == _ACKNOWLEDGED:
            (error,) = struct.unpack_from("=I", message, _DATA_AT)
            return not error
    return False


def _changed_by(message: bytes) -> Iterator[tuple[int, bool]]:
    """The process that an event is about, and whether it executes a file. Threads are left out."""
    if len(message) < _DATA_AT + 8:
        return
    (what, _, _) = _EVENT_HEADER.unpack_from(message, _EVENT_AT)
    if what == _FORK and len(message) >= _DATA_AT + 16:
        pid, process = struct.unpack_from("=II", message, _DATA_AT + 8)
    elif what in (_EXEC, _UID, _COMM, _EXIT):
        pid, process = struct.unpack_from("=II", message, _DATA_AT)
    else:
        return
    if pid == process or what == _EXEC:
        yield process, what == _EXEC


def _pids() -> list[int]:
    ours = os.getpid()
    return [pid for name in os.listdir("/proc") if name.isdecimal() and (pid := int(name)) != ours]

"""The memory of a process, another one or our own, through /proc/PID/mem.

Writes ignore page protection, as those of a debugger do: the kernel first gives the target a
private copy of a text page. A shared mapping is not copied, so a write into it would change the
file. The planner, which knows the mapping, refuses that.

Authority: proc_pid_mem(5), pidfd_open(2). Linux 6.12 and later can forbid such writes with the boot
parameter proc_mem.force_override; they then raise MemoryFault.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import time
import warnings
from _thread import allocate_lock, get_ident
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from markerjit.errors import (
    MarkerError,
    MemoryFault,
    NoSuchProcess,
    NotPermitted,
    TargetGone,
    Unsupported,
)
from markerjit.memory.base import WhyNot, has_ended, plain_refusal, proc_error
from markerjit.model import RemoteAddress

_ADDRESS_END = 1 << 63
"""pread takes a signed offset, so higher addresses (the vsyscall page) cannot be read."""

_LOCK_TIMEOUT_S = 5
_LOCK_POLL_S = 0.0005


class ProcessMemory:
    """The memory of a process, open until `close`.

    A pidfd holds the process from the start, so that a new process with the same number is never
    taken for it. `writable` is False where the kernel grants only reading.

    Raises NoSuchProcess; NotPermitted with the sentence of `why_not`; Unsupported where `pid` is a
    kernel thread or a thread other than its process's first.
    """

    def __init__(self, pid: int, *, why_not: WhyNot = plain_refusal) -> None:
        self.pid = pid
        self._memory = self._maps = -1
        self._turn = allocate_lock()
        self._holder = 0
        self._pidfd = _open_pidfd(pid, why_not)
        try:
            self._memory, self.writable = _open_memory(pid, why_not)
            # A pid is not reused while its process lives. If the process lives now, the memory
            # that we have just opened by the pid is its own.
            if not self.alive():
                raise NoSuchProcess(pid, ended=True)
        except BaseException as error:
            self.close()
            if isinstance(error, NotPermitted) and has_ended(pid):
                raise NoSuchProcess(pid, ended=True) from None
            raise

    def read(self, address: RemoteAddress, size: int) -> bytes:
        """Exactly `size` bytes. Raises MemoryFault, or TargetGone once the process has ended."""
        self._check_span(address, size, "read")
        parts: list[bytes] = []
        missing = size
        while missing:  # a read stops early before an unmapped page, and after 2 GiB
            try:
                part = os.pread(self._memory, missing, address + size - missing)
            except OSError as error:
                raise self._error(error, address, size, "read") from None
            if not part:
                raise self._gone()
            parts.append(part)
            missing -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, address: RemoteAddress, data: bytes) -> None:
        """Write all of `data`, without reading back. Raises MemoryFault, NotPermitted, TargetGone.

        After a fault in the middle, the bytes before it stay written.
        """
        self.check_writable()
        size = len(data)
        self._check_span(address, size, "write")
        done = 0
        while done < size:
            try:
                count = os.pwrite(self._memory, data[done:] if done else data, address + done)
            except OSError as error:
                raise self._error(error, address, size, "write") from None
            if not count:
                raise self._gone()
            done += count

    def check_writable(self) -> None:
        """Raise NotPermitted where the kernel grants only reading."""
        if not self.writable:
            raise NotPermitted(
                f"process {self.pid} may be looked at but not changed: its memory does not open "
                "for writing (is /proc mounted read-only?)"
            )

    def fileno(self) -> int:
        """The descriptor of /proc/PID/mem, for native helpers and os functions. Do not close it."""
        return self._memory

    def maps_fileno(self) -> int:
        """The descriptor of /proc/PID/maps, for native helpers; opened when it is asked for first.
        Do not close it. Raises OSError."""
        if self._maps < 0:
            self._maps = os.open(f"/proc/{self.pid}/maps", os.O_RDONLY | os.O_CLOEXEC)
        return self._maps

    @property
    def pidfd(self) -> int:
        """The pidfd of the process, for native helpers. Do not close it."""
        return self._pidfd

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Hold the target's lock, which excludes other controllers. Yields whether it was acquired.

        It is not acquired after a timeout, or where this object holds it already: for another
        thread, or for a signal handler in the middle. It is a lock of the file /proc/PID/mem
        (flock(2)), so the kernel releases it when its holder ends in any way. A controller that
        sees the process through another mount of /proc has another file, and is not excluded.
        """
        # The lock is the file's: the kernel would give it to both, and the first release end it.
        if not self._turn.acquire(blocking=False):
            yield False
            return
        acquired = False
        try:
            self._holder = get_ident()
            acquired = self._lock()
            yield acquired
        finally:
            self._holder = 0
            if acquired:
                fcntl.flock(self._memory, fcntl.LOCK_UN)
            self._turn.release()

    def is_locked_elsewhere(self) -> bool:
        """Whether another thread of this process holds the target's lock by this object, or waits
        for it."""
        return self._holder not in (0, get_ident())

    def is_locked(self) -> bool:
        """Whether a controller, which may be this one, holds the target's lock now."""
        if self._turn.locked():  # asking the kernel would make our lock a shared one and release it
            return True
        try:
            fcntl.flock(self._memory, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._memory, fcntl.LOCK_UN)
        return False

    def _lock(self) -> bool:
        deadline = time.monotonic() + _LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(self._memory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(_LOCK_POLL_S)

    def alive(self) -> bool:
        """Whether the process has not ended. A zombie counts as ended."""
        if self._pidfd < 0:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return not poll.poll(0)

    def is_gone(self) -> bool:
        """Whether the process has ended, is exiting, or has executed another program."""
        if not self.alive():
            return True
        try:
            if not os.pread(self._memory, 1, 0):  # end of file instead of a fault: no memory
                return True
        except OSError:
            pass
        return has_ended(self.pid)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Turn a MarkerError or OSError of the block into TargetGone if the process is gone.

        For a process that is ending, /proc reports no such file, no such process, an input or
        output error, or permission denied, since the files of a process without memory belong to
        root. Data that is read meanwhile may be inconsistent, too.
        """
        try:
            yield
        except (TargetGone, NoSuchProcess):
            raise
        except (MarkerError, OSError):
            if self.is_gone():
                raise self._gone() from None
            raise

    def has_program(self, address: RemoteAddress) -> bool:
        """Whether the process still runs the program that it ran when this object was made.

        `address` is one that the program had mapped. execve takes the memory of the old program
        away, and a read at any address then gives nothing instead of a fault.
        """
        try:
            return bool(os.pread(self._memory, 1, address))
        except OSError:
            return True

    def close(self) -> None:
        """Close all descriptors. May be called again."""
        for descriptor in (self._memory, self._maps, self._pidfd):
            if descriptor >= 0:
                os.close(descriptor)
        self._memory = self._maps = self._pidfd = -1

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._pidfd < 0

    def __del__(self) -> None:
        """Warn (python -X dev) and close, as an unclosed file does."""
        if "_pidfd" in vars(self) and not self.closed:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ProcessMemory of {self.pid}{', closed' if self.closed else ''}>"

    def _check_span(self, address: RemoteAddress, size: int, doing: str) -> None:
        if not 0 <= address <= address + size <= _ADDRESS_END:
            raise MemoryFault(address, size, doing, "no such addresses")

    def _error(self, error: OSError, address: RemoteAddress, size: int, doing: str) -> Exception:
        match error.errno:
            case errno.ESRCH:
                return self._gone()
            case errno.EIO | errno.EFAULT:
                return MemoryFault(address, size, doing, "not mapped, or not accessible")
            case errno.EBADF:
                return error  # closed: a bug of the caller, not a fact about the target
            case _:
                return MemoryFault(address, size, doing, error.strerror or str(error))

    def _gone(self) -> TargetGone:
        """The error for lost memory, which goes a moment before the process counts as ended."""
        if not self.alive() or has_ended(self.pid):
            return TargetGone(self.pid)
        return TargetGone(self.pid, "has started another program")


def _open_pidfd(pid: int, why_not: WhyNot) -> int:
    if pid <= 0:
        raise NoSuchProcess(pid)
    try:
        return os.pidfd_open(pid)
    except OverflowError:
        raise NoSuchProcess(pid) from None
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise Unsupported("markerjit needs pidfd_open, of Linux 5.3 and later") from None
        # A thread that is not the first of its process: EINVAL, and ENOENT since Linux 6.14 or so.
        if error.errno in (errno.EINVAL, errno.ENOENT) and os.path.exists(f"/proc/{pid}"):
            raise Unsupported(f"{pid} is a thread; name the process that it belongs to") from None
        if error.errno in (errno.ESRCH, errno.EINVAL):
            raise NoSuchProcess(pid) from None
        raise proc_error(pid, error, why_not) from None


def _open_memory(pid: int, why_not: WhyNot) -> tuple[int, bool]:
    """A descriptor of the memory, and whether it is writable."""
    # "self" is right even where /proc belongs to another pid namespace than ours.
    path = "/proc/self/mem" if pid == os.getpid() else f"/proc/{pid}/mem"
    try:
        return os.open(path, os.O_RDWR), True
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise proc_error(pid, error, why_not) from None
    try:
        return os.open(path, os.O_RDONLY), False
    except OSError as error:
        raise proc_error(pid, error, why_not) from None

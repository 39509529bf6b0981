"""The memory of a process through /proc/PID/mem: another one's or our own, by the same path.

Writes go through page protection, as a debugger's do: the kernel gives the target a private copy
of a text page first. A shared mapping is not copied, so a write into it would change the file;
refusing that is up to the planner, who knows the mapping.

Authority: proc_pid_mem(5), pidfd_open(2). Linux 6.12 and later can forbid such writes by the boot
parameter proc_mem.force_override; they then end as a MemoryFault.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import time
import warnings
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
"""pread takes a signed offset; what lies above (the vsyscall page) cannot be read this way."""

_LOCK_TIMEOUT_S = 5
_LOCK_POLL_S = 0.0005


class ProcessMemory:
    """A process's memory, open for as long as this object is.

    The process is held by a pidfd from the start, so that a new process with the same number is
    never taken for it. `writable` is False where the kernel let us only read.

    Raises NoSuchProcess; NotPermitted with the sentence of `why_not`; Unsupported where `pid` is a
    thread of a process or a kernel thread.
    """

    def __init__(self, pid: int, *, why_not: WhyNot = plain_refusal) -> None:
        self.pid = pid
        self._memory = -1
        self._holding = False
        self._pidfd = _open_pidfd(pid, why_not)
        try:
            self._memory, self.writable = _open_memory(pid, why_not)
            # The number cannot be given away while its process lives. So if that one lives now,
            # what we have just opened by the number is its.
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
        """All of `data`, or MemoryFault, or TargetGone. Does not read back.

        A fault in the middle leaves what stands before it written.
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
        """Raise NotPermitted where the kernel let us only read."""
        if not self.writable:
            raise NotPermitted(
                f"process {self.pid} may be looked at but not changed: its memory does not open "
                "for writing (is /proc mounted read-only?)"
            )

    def fileno(self) -> int:
        """The descriptor of /proc/PID/mem, for native helpers and os functions. Still ours."""
        return self._memory

    @property
    def pidfd(self) -> int:
        """The descriptor that holds the process, for native helpers. Still ours."""
        return self._pidfd

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Hold the target's lock: of all who have its memory open, one has it. False: not got, also
        where we hold it already (a signal handler that comes in between).

        It is a lock of the file /proc/PID/mem (flock(2)), so it ends with its holder, however that
        ends, and nothing is left behind. Who sees the process through another mount of /proc has
        another file, and is not kept out.
        """
        if self._holding:  # the lock is the file's: whoever ended first would end it for both
            yield False
            return
        self._holding = got = self._lock()
        try:
            yield got
        finally:
            self._holding = False
            if got:
                fcntl.flock(self._memory, fcntl.LOCK_UN)

    def is_locked(self) -> bool:
        """Whether somebody holds the target's lock now. (We too, if we do.)"""
        if self._holding:  # to ask the kernel would turn our lock into a shared one, and end it
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
        """Whether the process has not ended. A zombie has."""
        if self._pidfd < 0:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return not poll.poll(0)

    def is_gone(self) -> bool:
        """Whether the process has ended, is ending, or has become another program."""
        if not self.alive():
            return True
        try:
            if not os.pread(self._memory, 1, 0):  # nothing at all, not even a fault
                return True
        except OSError:
            pass
        return has_ended(self.pid)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Within, every error of ours and of the system is TargetGone if the process is gone.

        /proc says of a process that ends: no such file, no such process, an input or output error,
        and to all but root permission denied, since the files of a process without memory are
        root's. What is read of it halfway makes no sense, either.
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
        """Whether it still runs the program that it ran when we came, which had memory there. A
        program that becomes another (execve) takes the old one's memory away."""
        try:
            return bool(os.pread(self._memory, 1, address))
        except OSError:
            return True

    def close(self) -> None:
        """Let go of the process. May be called again."""
        for descriptor in (self._memory, self._pidfd):
            if descriptor >= 0:
                os.close(descriptor)
        self._memory = self._pidfd = -1

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._pidfd < 0

    def __del__(self) -> None:
        """Like a file that was not closed: it is said (python -X dev), and closed."""
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
        """No memory any more. It is taken away a moment before the process counts as ended."""
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
    """A descriptor of the memory, and whether it takes writes."""
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

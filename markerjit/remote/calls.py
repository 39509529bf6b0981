"""System calls made inside the target: by a borrowed thread, or in our own process by the caller.

A `Call` may refer to the result of an earlier call of its list: a memfd is created and then mapped.
One thing in such a list is done by the controller itself, at its place among the calls: a new memfd
is made as large as it has to be. x86-64 system call numbers are those of
arch/x86/entry/syscalls/syscall_64.tbl.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from typing import Protocol

from markerjit.errors import MarkerError
from markerjit.memory import FileId, file_at
from markerjit.model import RemoteAddress
from markerjit.proc.priority import raised_priority
from markerjit.remote import native
from markerjit.remote.outcome import explain_failure
from markerjit.tuples import NamedTuple

SYS_CLOSE = 3
SYS_MMAP = 9
SYS_MPROTECT = 10
SYS_MUNMAP = 11
SYS_RT_SIGACTION = 13
SYS_MADVISE = 28
SYS_FCNTL = 72
SYS_MUNLOCK = 150
SYS_ARCH_PRCTL = 158
SYS_MEMFD_CREATE = 319

_ARCH_GET_FS = 0x1003
_MAX_THREADS = 256


class Result(NamedTuple):
    """A reference to the result of an earlier call of the list, plus an offset."""

    of: int
    plus: int = 0


class Text(NamedTuple):
    """Bytes that a call points to, at most native.CALL_TEXT; one in a call."""

    content: bytes


class Call(NamedTuple):
    """A system call; `name` is for messages.

    With a `file` the call is made only if its first argument is a descriptor of that file. It is
    skipped otherwise, with the result 0. This is safe only in `run_alone`: other threads that run
    may close the descriptor at any moment, and open another file under its number.
    """

    name: str
    number: int
    args: tuple[int | Result | Text, ...]
    file: FileId | None = None


def grow_memfd(descriptor: Result, size: int) -> Call:
    """In the place of a call: we open the memfd of ours that was just made, by this descriptor of
    the target's, and make it so large. The result is a descriptor of our own, for the caller to
    close. The target does not do it, because its limit of file sizes (RLIMIT_FSIZE) would kill it.

    For `run_alone`. Fails with EBADF where the program has closed the descriptor, or opened a file
    of its own there: another process may share its table.
    """
    return Call("growing the memfd", native.GROW_MEMFD, (descriptor, size))


class Thread(NamedTuple):
    """A thread of the target: the addresses of its control block and its struct rseq (0: none)."""

    tid: int
    fs_base: RemoteAddress
    rseq: RemoteAddress = RemoteAddress(0)


class CallFailed(MarkerError):
    """A system call made in the target, of this pid if it is another process, failed. `results` are
    those of the earlier calls."""

    def __init__(self, call: Call, error: int, results: list[int], pid: int = 0) -> None:
        advice = f"; markerjit doctor {pid} may know the reason" if pid else ""
        super().__init__(f"{call.name} failed in the target: {os.strerror(error)}{advice}")
        self.call = call
        self.error = error
        self.results = results


class Caller(Protocol):
    """Makes system calls in the target."""

    def run(self, calls: Sequence[Call]) -> list[int]:
        """Make the calls and return their results. Raises CallFailed."""

    def run_alone(self, calls: Sequence[Call]) -> tuple[list[int], list[Thread]]:
        """Make the calls with all other threads stopped; return the results and some threads.

        The threads of our own process are not stopped.
        """


class BorrowedThread:
    """Makes calls with a stopped thread of another process. borrow.c describes how."""

    def __init__(self, target: native.NativeTarget) -> None:
        self._target = target

    def run(self, calls: Sequence[Call]) -> list[int]:
        """Borrow a thread, make the calls, and release it.

        The other threads run, unless the signal frame that restores the thread has to be on its own
        stack. Raises CallFailed, Refused, TargetGone.
        """
        return self._borrow(calls, None, None)

    def run_alone(self, calls: Sequence[Call]) -> tuple[list[int], list[Thread]]:
        """Stop all threads, make the calls with one of them, and release them all.

        Also returns the first threads, as they were during that stop. Raises CallFailed, Refused,
        TargetGone.
        """
        threads = (native.NativeThread * _MAX_THREADS)()
        count = ctypes.c_uint32(_MAX_THREADS)
        results = self._borrow(calls, threads, ctypes.byref(count))
        return results, [
            Thread(thread.tid, RemoteAddress(thread.fs_base), RemoteAddress(thread.rseq))
            for thread in threads[: count.value]
        ]

    def _borrow(self, calls: Sequence[Call], threads: object, count: object) -> list[int]:
        prepared = (native.NativeCall * len(calls))(*map(_prepare, calls))
        report = native.Report()
        with raised_priority():
            status = native.library().mj_borrow(
                self._target, prepared, len(calls), threads, count, report
            )
        results = [call.result for call in prepared]
        if status == native.CALL_FAILED:
            earlier = results[: report.index]
            raise CallFailed(calls[report.index], report.error, earlier, self._target.pid)
        if status != native.OK:
            for call, result in zip(calls, results, strict=True):
                if call.number == native.GROW_MEMFD and result >= 0:
                    os.close(result)
            raise explain_failure(self._target.pid, status, report)
        return results


def _prepare(call: Call) -> native.NativeCall:
    prepared = native.NativeCall(number=call.number, result=-1)  # until it is made
    if call.file:
        prepared.device, prepared.inode = call.file
    args, refs = [0] * 6, [-1] * 6
    for index, arg in enumerate(call.args):
        if isinstance(arg, Result):
            refs[index], args[index] = arg
        elif isinstance(arg, Text):
            prepared.text[: len(arg.content)] = arg.content
            prepared.text_arg = index + 1
        else:
            args[index] = arg
    prepared.refs[:] = refs
    prepared.args[:] = args  # those below 0 as their complement
    return prepared


class OwnThread:
    """Makes calls with the calling thread, where the target is this process."""

    def run_alone(self, calls: Sequence[Call]) -> tuple[list[int], list[Thread]]:
        """The results of `run`, since our own threads cannot be stopped, and the calling thread."""
        return self.run(calls), [self._thread()]

    def _thread(self) -> Thread:
        base = ctypes.c_uint64()
        _system_call(SYS_ARCH_PRCTL, [_ARCH_GET_FS, ctypes.addressof(base)])
        fs_base = RemoteAddress(base.value)
        import threading  # `on` of another process does without

        return Thread(threading.get_native_id(), fs_base, _own_rseq(fs_base))

    def run(self, calls: Sequence[Call]) -> list[int]:
        """Make the calls and return their results, in order. Raises CallFailed."""
        results: list[int] = []
        for call in calls:
            texts = [
                ctypes.create_string_buffer(arg.content, native.CALL_TEXT)
                for arg in call.args
                if isinstance(arg, Text)
            ]
            args = [_own_argument(arg, results, texts) for arg in call.args]
            if call.file and file_at(f"/proc/self/fd/{args[0]}") != call.file:
                results.append(0)
                continue
            own = call.number == native.GROW_MEMFD
            result, error = _grow(*args) if own else _system_call(call.number, args)
            if result < 0:
                raise CallFailed(call, error, results)
            results.append(result)
        return results


def _grow(descriptor: int, size: int) -> tuple[int, int]:
    """`grow_memfd` of a descriptor of our own: a copy of it, and an error where that is -1."""
    try:
        opened = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        return -1, error.errno or errno.EBADF
    try:
        os.ftruncate(opened, size)
    except OSError as error:
        os.close(opened)
        return -1, error.errno or errno.EBADF
    return opened, 0


def _own_argument(
    arg: int | Result | Text, results: Sequence[int], texts: Sequence[ctypes.Array[ctypes.c_char]]
) -> int:
    if isinstance(arg, Text):
        return ctypes.addressof(texts[0])
    return results[arg.of] + arg.plus if isinstance(arg, Result) else arg


def _own_rseq(fs_base: RemoteAddress) -> RemoteAddress:
    """The address of the calling thread's struct rseq, as glibc 2.35 and later export it; or 0."""
    libc = ctypes.CDLL(None)
    try:
        offset = ctypes.c_ssize_t.in_dll(libc, "__rseq_offset").value
        size = ctypes.c_uint.in_dll(libc, "__rseq_size").value
    except ValueError:
        return RemoteAddress(0)
    return RemoteAddress(fs_base + offset if size else 0)


def _system_call(number: int, args: Sequence[int]) -> tuple[int, int]:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    result = function(ctypes.c_long(number), *(ctypes.c_uint64(arg) for arg in args))
    return int(result), ctypes.get_errno()

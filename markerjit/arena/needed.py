"""The system calls that are made in a target: by a borrowed thread, and by the runtime.

A filter of the target (seccomp) is asked about each of them. A call that is missing here could kill
a program; tests/live/test_filters.py runs one whose filter allows these and no others.

What this does not do: make them. The arguments are those of arena/create.py, arena/islands.py,
arena/trap.py, native/src/stop/ and native/src/runtime/.
"""

from __future__ import annotations

from markerjit.remote import calls
from markerjit.remote.filters import NeededCall

_SYS_RT_SIGPROCMASK, _SYS_RT_SIGRETURN, _SYS_NANOSLEEP, _SYS_GETPID = 14, 15, 35, 39
_SYS_RESTART_SYSCALL, _SYS_CLOCK_GETTIME = 219, 228
_SYS_PROCESS_VM_READV, _SYS_MEMBARRIER = 310, 324
_CLOCK_MONOTONIC = 1

_READ_WRITE, _READ_EXEC = 1 | 2, 1 | 4  # PROT_*; the module mmap takes time to import
_SHARED, _PRIVATE, _FIXED, _ANONYMOUS, _FIXED_NOREPLACE = 1, 2, 0x10, 0x20, 0x100000
_NORESERVE = 0x4000
_SIGSET_SIZE = 8
_NO_SUCH_HOW = -1
_DONTDUMP, _WIPEONFORK = 16, 18
_F_DUPFD_CLOEXEC = 1030
_MFD_CLOEXEC = 1
_SIGTRAP = 5
_FENCE, _REGISTER_FENCE = 32, 64


def _mmap(
    access: int, flags: int, descriptor: int | None, address: int | None = None
) -> NeededCall:
    args = (address, None, access, flags, descriptor, None)
    return NeededCall("mmap", calls.SYS_MMAP, args)


NEEDED: tuple[NeededCall, ...] = (
    # A thread that sleeps with a timeout makes it after any stop. An error would be passed on to
    # the program; with `trust` it does not make the call (repeats_sleeps in stop.h).
    NeededCall("restart_syscall", _SYS_RESTART_SYSCALL, ()),
    # The way back of a borrowed thread, and of the handler of breakpoints.
    NeededCall("rt_sigreturn", _SYS_RT_SIGRETURN, (), must_succeed=True),
    NeededCall("getpid", _SYS_GETPID, (0, 0, 0, 0, 0, 0)),
    NeededCall("memfd_create", calls.SYS_MEMFD_CREATE, (None, _MFD_CLOEXEC)),
    NeededCall("fcntl(F_DUPFD_CLOEXEC)", calls.SYS_FCNTL, (None, _F_DUPFD_CLOEXEC)),
    NeededCall("close", calls.SYS_CLOSE, ()),
    _mmap(_READ_WRITE, _SHARED, None, 0),
    _mmap(_READ_EXEC, _SHARED | _FIXED, None),
    _mmap(_READ_EXEC, _SHARED | _FIXED_NOREPLACE, None),
    _mmap(_READ_WRITE, _PRIVATE | _ANONYMOUS | _FIXED, -1),
    NeededCall("munmap", calls.SYS_MUNMAP, ()),
    NeededCall("madvise", calls.SYS_MADVISE, (None, None, _WIPEONFORK)),
    NeededCall("madvise", calls.SYS_MADVISE, (None, None, _DONTDUMP)),
    NeededCall("rt_sigaction", calls.SYS_RT_SIGACTION, (_SIGTRAP, None, None, _SIGSET_SIZE)),
    NeededCall("membarrier", _SYS_MEMBARRIER, (_FENCE, 0, 0, 0, 0, 0)),
    NeededCall("membarrier", _SYS_MEMBARRIER, (_REGISTER_FENCE, 0, 0, 0, 0, 0)),
    # Given an error, the runtime asks in the other way, and then says that a text is unreadable.
    NeededCall(
        "rt_sigprocmask",
        _SYS_RT_SIGPROCMASK,
        (_NO_SUCH_HOW, None, 0, _SIGSET_SIZE),
        may_fail=True,
    ),
    NeededCall("process_vm_readv", _SYS_PROCESS_VM_READV, (None, None, 1, None), may_fail=True),
)

KEEPING: tuple[NeededCall, ...] = (
    _mmap(0, _PRIVATE | _ANONYMOUS | _NORESERVE, -1, 0),
    NeededCall("munlock", calls.SYS_MUNLOCK, ()),
    NeededCall("mprotect", calls.SYS_MPROTECT, (None, None, _READ_WRITE)),
)
"""Those for the memory where entries of functions keep their arguments for the exits (stash.py),
besides the others."""

UNLOCKED: tuple[NeededCall, ...] = (
    _mmap(0, _SHARED, None, 0),
    NeededCall("munlock", calls.SYS_MUNLOCK, ()),
    NeededCall("mprotect", calls.SYS_MPROTECT, (None, None, _READ_WRITE)),
)
"""Those for shared memory that a process does not lock with all of its own, besides the others: of
stacks (stacks.py), and of an arena where a process locks its memory (create.py)."""

WAITING: tuple[NeededCall, ...] = (
    # native/src/runtime/wait.c. Given errors, it does not wait, or without sleeping.
    NeededCall("nanosleep", _SYS_NANOSLEEP, (None, 0), may_fail=True),
    NeededCall("clock_gettime", _SYS_CLOCK_GETTIME, (_CLOCK_MONOTONIC, None), may_fail=True),
)
"""Those of a thread that waits for the reader of a `--lossless` trace."""

"""A program that is started here and waits at its entry point until its markers are switched.

Its libraries are mapped and initialised there. What it runs itself, its constructors and `main`,
comes afterwards, so that no execution of a marker of its own is missed. It is traced by nobody
while it waits (native/src/stop/launch.c), and it begins by itself when this process is gone.

It has our descriptors, environment, process group and terminal.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import stat
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from types import TracebackType
from typing import Self

from markerjit.arguments import can_be_passed, check_all, check_int, check_seconds
from markerjit.errors import (
    BadArgument,
    MarkerError,
    NotPermitted,
    Refused,
    Unsupported,
    refuse_own_shortage,
    shown,
)
from markerjit.fleet.hold import Hold
from markerjit.model import Seccomp
from markerjit.printable import printable
from markerjit.proc.permission import CAP_SYS_PTRACE, has_capability
from markerjit.remote import native
from markerjit.session.session import Session

_PATIENCE_S = 10.0
_POLL_S = 0.001
_REMOVE_S = 2
_MOST_MS = (1 << 31) - 1


def launch(command: Sequence[str], *, patience: float = _PATIENCE_S) -> Launched:
    """Start a program, and wait until it is at its entry point. There it waits for `patience`
    seconds, if nobody lets it go. Raises what Launched raises, and Refused for a program that ends
    before that, for example because a library is missing."""
    program = Launched(command, patience=patience)
    try:
        if program.wait_until_held():
            return program
        raise Refused(f"{command[0]} ended before its entry point, with code {program.code}")
    except BaseException:
        program.close()
        raise


class Launched:
    """A program that waits. It is to be let go by `go`, and otherwise killed at the end of the
    `with`. `pid` is its process, a child of this one; `has_begun` says whether it was let go.
    Should this process hang, it begins by itself after `patience` seconds. So do programs that it
    executes and that are followed (Family).

    Raises Refused for what cannot be executed, or has rights that we have not; NotPermitted;
    Unsupported for a 32-bit program, and for one without room for a few instructions.
    """

    def __init__(self, command: Sequence[str], *, patience: float = _PATIENCE_S) -> None:
        check_all("command", command, str)
        check_seconds("patience", patience)
        patience_ms = round(patience * 1000)
        check_int("patience in milliseconds", patience_ms, 1, _MOST_MS)
        if not command or not all(map(can_be_passed, command)):
            raise BadArgument("command", command, "a program and its arguments, without NUL")
        self._path = program_path(command[0])
        _refuse_more_rights(self._path)
        launched = native.Launched()
        self._code: int | None = None
        self.has_begun = False
        report = native.Report()
        words = (ctypes.c_char_p * (len(command) + 1))(*map(os.fsencode, command))
        status = native.library().mj_launch(
            os.fsencode(self._path),
            words,
            patience_ms,
            ctypes.byref(launched),
            ctypes.byref(report),
        )
        if status != native.OK:
            raise _reason(self._path, status, report)
        self.pid: int = launched.pid
        self.patience = patience
        self._hold = Hold(launched)
        self._pidfd = _open_pidfd(self.pid)

    def attach(
        self,
        *,
        ring_size: int | None = None,
        seccomp: Seccomp | str = "read",
        breakpoints: bool = False,
    ) -> Session:
        """Open a session with the program, as the function `attach` does."""
        return Session(self.pid, ring_size=ring_size, seccomp=seccomp, breakpoints=breakpoints)

    @property
    def code(self) -> int | None:
        """The exit code as a shell has it, 128 and its number for a signal; None while it runs."""
        if self._code is None:
            with suppress(ChildProcessError):  # a signal handler of ours has asked meanwhile
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self._code = _as_shell(status)
        return self._code

    def wait_until_held(self) -> bool:
        """Wait until the program is at its entry point, or has begun by itself. Returns False if it
        ends before that, for example because a library is missing."""
        return self._comes_to_hold(inf)

    def _comes_to_hold(self, most_s: float) -> bool:
        until = time.monotonic() + most_s
        while not self._hold.is_waiting() and not self._hold.has_begun():
            if self.code is not None or time.monotonic() > until:
                return False
            time.sleep(_POLL_S)
        return True

    def go(self) -> bool:
        """Let the program begin. Returns False where it may have begun by itself, because its
        patience was over."""
        self.has_begun = True
        is_waiting = False
        self._comes_to_hold(_REMOVE_S)  # what is on its way there needs it
        with suppress(MarkerError), self._hold.open_memory() as memory:
            is_waiting = self._hold.release(memory)
            until = time.monotonic() + _REMOVE_S
            while time.monotonic() < until:
                time.sleep(_POLL_S)
                if self._hold.try_to_remove(memory):
                    break
        return is_waiting

    def note_end(self, status: int) -> None:
        """Its exit status, as wait(2) has it, for a program whose end another has seen."""
        check_int("status", status, 0, 0xFFFF)
        self._code = _as_shell(status)

    def wait(self) -> int:
        """Wait until the program ends. Returns its exit code, as `code` has it."""
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        code = self.code
        assert code is not None
        return code

    def send(self, number: int) -> None:
        """Send a signal to the program, unless it has ended. Safe to call from a signal handler."""
        check_int("number", number, 0, signal.NSIG - 1)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def close(self) -> None:
        """Kill the program if it was not let go. May be called again."""
        if self._pidfd < 0:
            return
        if not self.has_begun and self.code is None:
            self.send(signal.SIGKILL)
            self.wait()
        os.close(self._pidfd)
        self._pidfd = -1

    def __repr__(self) -> str:
        state = "waits" if not self.has_begun else "runs" if self.code is None else "has ended"
        return f"<Launched {self.pid} ({printable(self._path)[:60]}), {state}>"

    def __del__(self) -> None:
        """Warn (python -X dev) and close, as for a file that was not closed."""
        if getattr(self, "_pidfd", -1) >= 0:
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


def _open_pidfd(pid: int) -> int:
    """A descriptor of our child, which is killed where we have none left."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        refuse_own_shortage(error)
        raise


def program_path(name: str) -> str:
    """The path of a program as a shell finds it. Raises Refused with the reason."""
    if "/" in name:
        return _checked(name)
    for folder in os.get_exec_path():
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise Refused(
        f"there is no program '{shown(name)}' on the path; give a path for one elsewhere: ./x"
    )


def _checked(path: str) -> str:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise Refused(f"cannot execute {path}: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        raise Refused(f"cannot execute {path}: it is not a regular file")
    if not os.access(path, os.X_OK):
        raise Refused(f"cannot execute {path}: no permission (chmod +x makes a file executable)")
    return path


def _refuse_more_rights(path: str) -> None:
    """Raise Refused for a program that has rights that we do not have. Under ptrace the kernel
    would not give it those, and it would be another program; under that of a tracer with
    CAP_SYS_PTRACE it does (cap_bprm_creds_from_file in security/commoncap.c)."""
    if has_capability(CAP_SYS_PTRACE):
        return
    file = os.stat(path)
    rights = {
        "set-user-ID": file.st_mode & stat.S_ISUID and {file.st_uid} != {*os.getresuid()},
        "set-group-ID": (
            file.st_mode & stat.S_ISGID
            and file.st_mode & stat.S_IXGRP
            and {file.st_gid} != {*os.getresgid()}
        ),
        "given capabilities by its file": _has_capabilities(path),
    }
    for kind, has in rights.items():
        if has:
            raise Refused(
                f"{path} is {kind}, and would run without those rights; run markerjit as root, or "
                "start the program as usual and trace it by its PID as root"
            )


def _has_capabilities(path: str) -> bool:
    try:
        return bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False


def _reason(path: str, status: int, report: native.Report) -> MarkerError:
    """Why a program could not be launched. It has not run."""
    text = os.strerror(report.error)
    if status == native.GONE:
        script = " (a script needs #! and an interpreter)" if report.error == errno.ENOEXEC else ""
        return Refused(f"cannot execute {path}: {text}{script}")
    if status == native.NOT_64_BIT:
        return Unsupported(f"{path} is a 32-bit program; markerjit supports 64-bit ones")
    if status == native.NO_ROOM:
        return Unsupported(
            f"{path} leaves no room behind its code for the instructions with which it would wait; "
            "start it, and trace it by its PID"
        )
    if report.error in (errno.EPERM, errno.EACCES):
        return NotPermitted(
            f"{path} may not be traced by us ({text}): can its file not be read, or is "
            "kernel.yama.ptrace_scope 3?"
        )
    return MarkerError(f"cannot launch {path}: {text}")


def _as_shell(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code

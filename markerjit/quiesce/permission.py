"""Why we may not, or must not, stop a process: the rules of ptrace(2), read beforehand.

Everything here only reads /proc. Lines of /proc/PID/status are explained in proc(5); the checks
are those of "Ptrace access mode checking" in ptrace(2) and of
Documentation/admin-guide/LSM/Yama.rst.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from markerjit.errors import NoSuchProcess, NotPermitted, Unsupported

CAP_SYS_PTRACE = 19


class ProcessStatus(NamedTuple):
    """What /proc/PID/status says, as far as it matters here."""

    pid: int
    name: str
    state: str
    uid: int
    tracer: int
    seccomp: int
    threads: int
    descriptor_slots: int
    kernel_thread: bool


def read_status(pid: int) -> ProcessStatus:
    """Read /proc/PID/status. Raises NoSuchProcess."""
    text = _status_text(pid)
    state = _line(text, "State", "?")[:1]
    return ProcessStatus(
        pid=pid,
        name=_line(text, "Name", "?"),
        state=state,
        uid=int(_line(text, "Uid", "-1").split()[0]),
        tracer=int(_line(text, "TracerPid", "0")),
        seccomp=int(_line(text, "Seccomp", "0")),
        threads=int(_line(text, "Threads", "0")),
        descriptor_slots=int(_line(text, "FDSize", "0")),
        kernel_thread="\nVmSize:" not in text and state not in "ZX",
    )


def _status_text(pid: int, task: str = "") -> str:
    try:
        with open(f"/proc/{pid}/{task}status", "rb", buffering=0) as file:
            return "\n" + file.read().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        raise NoSuchProcess(pid) from None
    except PermissionError:
        raise _hidden(pid) from None


def _hidden(pid: int) -> NotPermitted:
    return NotPermitted(
        f"process {pid} is hidden from us (/proc is mounted with hidepid); run markerjit as its "
        "user, or with sudo"
    )


def _line(text: str, name: str, missing: str) -> str:
    """The value of one line; not all of them, since this is read before every stop."""
    start = text.find(f"\n{name}:")
    if start < 0:
        return missing
    start += len(name) + 2
    return text[start : text.find("\n", start)].strip()


def threads_blocking_sigtrap(pid: int) -> list[int]:
    """Threads that a breakpoint would kill: the kernel ends a process whose blocked SIGTRAP is
    forced (force_sig in kernel/signal.c)."""
    blocking = []
    for tid in _threads(pid):
        try:
            mask = int(_line(_status_text(pid, f"task/{tid}/"), "SigBlk", "0"), 16)
        except NoSuchProcess:
            continue
        if mask & 1 << 5 - 1:
            blocking.append(tid)
    return blocking


def yama_scope() -> int | None:
    """kernel.yama.ptrace_scope, or None where the kernel has no Yama."""
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def has_capability(number: int) -> bool:
    """Whether we have a capability (in our own user namespace)."""
    return bool(int(_line(_status_text(os.getpid()), "CapEff", "0"), 16) & 1 << number)


def check_before_looking(pid: int) -> ProcessStatus:
    """Raise for what has no program to look at: NoSuchProcess, Unsupported."""
    status = read_status(pid)
    if status.state in "ZX":
        raise Unsupported(f"process {pid} has ended and waits for its parent (a zombie)")
    if status.kernel_thread:
        raise Unsupported(f"{pid} is a kernel thread ({status.name}); it has no program to trace")
    return status


def check_before_stopping(pid: int) -> None:
    """Raise what a stop would run into, before anything is touched.

    Also NotPermitted (another tracer) and Unsupported (seccomp). Ourselves we never stop.
    """
    status = check_before_looking(pid)
    if pid == os.getpid():
        return
    if status.tracer:
        raise NotPermitted(
            f"process {pid} is being traced by process {status.tracer} "
            f"({_name(status.tracer)}); end that first, only one tracer is possible"
        )
    if status.seccomp:
        raise _under_seccomp(f"process {pid}", status.seccomp)


def check_seccomp_of_threads(pid: int, known: set[int]) -> None:
    """Raise Unsupported when a thread runs under seccomp; a filter is each thread's own.

    Threads in `known` are passed over; those that were asked are added.
    """
    for tid in _threads(pid):
        if tid in known or pid == os.getpid():
            continue
        try:
            mode = int(_line(_status_text(pid, f"task/{tid}/"), "Seccomp", "0"))
        except NoSuchProcess:
            continue
        if mode:
            raise _under_seccomp(f"thread {tid} of process {pid}", mode)
        known.add(tid)


def _under_seccomp(subject: str, mode: int) -> Unsupported:
    return Unsupported(
        f"{subject} runs under seccomp (mode {mode}): its filter may kill it at the first system "
        "call made for us, or after any stop, so markerjit does not touch it"
    )


def _threads(pid: int) -> list[int]:
    try:
        return sorted(map(int, os.listdir(f"/proc/{pid}/task")))
    except (FileNotFoundError, ProcessLookupError):
        raise NoSuchProcess(pid) from None
    except PermissionError:
        raise _hidden(pid) from None


def why_not(pid: int, tid: int = 0) -> str:
    """Which rule forbids ptrace on `pid`, and the way round. For after an EPERM."""
    try:
        status = read_status(pid)
    except NoSuchProcess:
        return f"process {pid} has ended"
    subject = f"process {pid}" if tid in (0, pid) else f"thread {tid} of process {pid}"
    if status.tracer:
        return (
            f"cannot stop {subject}: process {status.tracer} ({_name(status.tracer)}) "
            "traces it already; end that first"
        )
    if has_capability(CAP_SYS_PTRACE):
        return (
            f"cannot stop {subject}: forbidden although we have CAP_SYS_PTRACE; a security module "
            "or another user namespace stands in the way"
        )
    if status.uid != os.getuid():
        return (
            f"cannot stop {subject}: it belongs to uid {status.uid} and we are {os.getuid()}; "
            "run markerjit as that user, or with sudo"
        )
    scope = yama_scope()
    if scope:
        return (
            f"cannot stop {subject}: kernel.yama.ptrace_scope is {scope}; run markerjit with sudo"
            + (", or set it to 0 with sudo sysctl kernel.yama.ptrace_scope=0" if scope < 3 else "")
        )
    return (
        f"cannot stop {subject}: it has made itself untraceable (PR_SET_DUMPABLE, or it changed "
        "its uid or capabilities); run markerjit with sudo"
    )


def _name(pid: int) -> str:
    try:
        return read_status(pid).name
    except NoSuchProcess:
        return "gone"

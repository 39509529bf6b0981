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
_SECCOMP_FILTER = 2
_SECCOMP_STRICT = 1


class ProcessStatus(NamedTuple):
    """What /proc/PID/status says, as far as it matters here."""

    pid: int
    name: str
    state: str
    uid: int
    tracer: int
    seccomp: int
    threads: int
    kernel_thread: bool


def read_status(pid: int) -> ProcessStatus:
    """Read /proc/PID/status. Raises NoSuchProcess."""
    fields = _status_fields(pid)
    return ProcessStatus(
        pid=pid,
        name=fields.get("Name", "?"),
        state=fields.get("State", "?")[:1],
        uid=int(fields.get("Uid", "-1").split()[0]),
        tracer=int(fields.get("TracerPid", "0")),
        seccomp=int(fields.get("Seccomp", "0")),
        threads=int(fields.get("Threads", "0")),
        kernel_thread="VmSize" not in fields and fields.get("State", "?")[:1] not in "ZX",
    )


def _status_fields(pid: int, task: str = "") -> dict[str, str]:
    try:
        with open(f"/proc/{pid}/{task}status", encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        raise NoSuchProcess(pid) from None
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def threads_blocking_sigtrap(pid: int) -> list[int]:
    """Threads that a breakpoint would kill: the kernel ends a process whose blocked SIGTRAP is
    forced (force_sig in kernel/signal.c)."""
    blocking = []
    for tid in sorted(int(name) for name in os.listdir(f"/proc/{pid}/task")):
        try:
            mask = int(_status_fields(pid, f"task/{tid}/").get("SigBlk", "0"), 16)
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
    return bool(int(_status_fields(os.getpid()).get("CapEff", "0"), 16) & 1 << number)


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
    if status.seccomp in (_SECCOMP_STRICT, _SECCOMP_FILTER):
        raise Unsupported(
            f"process {pid} runs under seccomp (mode {status.seccomp}): its filter may kill it at "
            "the first system call made for us, so markerjit does not touch it"
        )


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

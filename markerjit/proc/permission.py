"""Checks, before a stop, whether we may stop a process: the rules of ptrace(2).

Everything here only reads /proc and /sys, while the target runs. An answer may be out of date when
the stop comes; the stop then fails with the sentence of `why_not`. Lines of /proc/PID/status are
explained in proc(5). The checks are those of "Ptrace access mode checking" in ptrace(2) and of
Documentation/admin-guide/LSM/Yama.rst.
"""

from __future__ import annotations

import os

from markerjit.errors import (
    NoSuchProcess,
    NotPermitted,
    Refused,
    Unsupported,
    refuse_own_shortage,
)
from markerjit.memory import has_ended
from markerjit.memory.stat import read_proc, stat_fields
from markerjit.proc.cgroup import frozen_by
from markerjit.tuples import NamedTuple

CAP_SYS_PTRACE = 19

_START_TIME = 22 - 3  # of the fields that stat_fields returns

_WHOLE_RANGE = ["0", "0", str(2**32 - 1)]
"""The uid_map of the initial user namespace: every id maps to itself."""


class ProcessStatus(NamedTuple):
    """The lines of /proc/PID/status that matter here."""

    pid: int
    name: str
    state: str
    uid: int
    tracer: int
    seccomp: int
    threads: int
    descriptor_slots: int
    has_memory: bool
    shadow_stack: bool = False
    locks_memory: bool = False


class Credentials(NamedTuple):
    """The credentials of a process: real, effective, saved and file system ids, capabilities."""

    uids: tuple[int, ...]
    gids: tuple[int, ...]
    permitted: int
    dumpable: bool


def read_status(pid: int) -> ProcessStatus:
    """The status of a process. Raises NoSuchProcess, NotPermitted."""
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
        has_memory="\nVmSize:" in text,
        shadow_stack="shstk" in _line(text, "x86_Thread_features", "").split(),
        locks_memory=_line(text, "VmLck", "0").split()[0] != "0",
    )


def read_credentials(pid: int) -> Credentials:
    """The credentials of a process. Raises NoSuchProcess, NotPermitted."""
    text = _status_text(pid)
    uids = tuple(map(int, _line(text, "Uid", "-1").split()))
    try:
        # Files of a process that is not dumpable belong to root: proc(5).
        owner = os.stat(f"/proc/{pid}/status").st_uid
    except (FileNotFoundError, ProcessLookupError):
        raise NoSuchProcess(pid) from None
    except PermissionError:
        raise _hidden(pid) from None
    return Credentials(
        uids=uids,
        gids=tuple(map(int, _line(text, "Gid", "-1").split())),
        permitted=int(_line(text, "CapPrm", "0"), 16),
        dumpable=owner == uids[min(1, len(uids) - 1)],
    )


def _status_text(pid: int, task: str = "") -> str:
    try:
        return "\n" + read_proc(f"/proc/{pid}/{task}status").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        if task:
            raise NoSuchProcess(pid) from None
        raise _not_there(pid) from None
    except PermissionError:
        raise _hidden(pid) from None
    except OSError as error:
        refuse_own_shortage(error)
        raise


def _not_there(pid: int) -> NoSuchProcess | NotPermitted:
    """The error for a missing /proc/PID: no process, or one that /proc does not show."""
    trouble = proc_trouble()
    if trouble:
        return NotPermitted(trouble)
    try:
        os.kill(pid, 0)
    except PermissionError:
        return _hidden(pid)
    except (OSError, OverflowError):
        pass
    return NoSuchProcess(pid)


def proc_trouble() -> str:
    """The reason why /proc cannot be used for any process; "" if it can."""
    try:
        number = os.readlink("/proc/self")
    except OSError:
        return "/proc is not mounted here, and markerjit reads everything about a process there"
    if number != str(os.getpid()):
        return (
            f"/proc belongs to another pid namespace (we are {os.getpid()}, {number} there): its "
            "numbers mean other processes; mount our own: unshare --mount-proc, or mount -t proc "
            "proc /proc"
        )
    return ""


def _hidden(pid: int) -> NotPermitted:
    return NotPermitted(
        f"process {pid} is hidden from us (/proc is mounted with hidepid); run markerjit as its "
        "user, or with sudo"
    )


def _line(text: str, name: str, missing: str) -> str:
    """The value of a line. Lines are not parsed in advance: this runs before every stop."""
    start = text.find(f"\n{name}:")
    if start < 0:
        return missing
    start += len(name) + 2
    return text[start : text.find("\n", start)].strip()


def tid_inside(pid: int, tid: int) -> int:
    """The id of a thread in its own pid namespace, as gettid returns it there."""
    try:
        return int(_line(_status_text(pid, f"task/{tid}/"), "NSpid", str(tid)).split()[-1])
    except NoSuchProcess:
        return tid


def threads_blocking_sigtrap(pid: int) -> list[int]:
    """The threads that block SIGTRAP, where a breakpoint would kill the process.

    The kernel ends a process that blocks a signal which is forced on it (force_sig in
    kernel/signal.c).
    """
    blocking = []
    for tid in _threads(pid):
        try:
            mask = int(_line(_status_text(pid, f"task/{tid}/"), "SigBlk", "0"), 16)
        except NoSuchProcess:
            continue
        # A mask that blocks signal 32 as well is libc's own: programs cannot block that signal
        # through libc. glibc 2.36 sets it while a thread is created or ends, and no code of the
        # program runs then.
        if mask & 1 << 5 - 1 and not mask & 1 << 32 - 1:
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
    try:
        with open("/proc/self/status", "rb", buffering=0) as file:
            text = "\n" + file.read().decode(errors="replace")
    except OSError:
        return False
    return bool(int(_line(text, "CapEff", "0"), 16) & 1 << number)


def in_user_namespace() -> bool:
    """Whether we are in a user namespace other than the initial one, which bounds capabilities."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            return file.read().split() != _WHOLE_RANGE
    except OSError:
        return False


def security_modules() -> list[str]:
    """The active security modules that may forbid ptrace; none where the list cannot be read."""
    try:
        with open("/sys/kernel/security/lsm", encoding="ascii") as file:
            return [name for name in file.read().strip().split(",") if name != "capability"]
    except OSError:
        return []


def check_before_looking(pid: int) -> ProcessStatus:
    """The status of a process with a program. Raises NoSuchProcess, NotPermitted, Unsupported.

    For a process that ends meanwhile, the last two mean nothing.
    """
    trouble = proc_trouble()
    if trouble:
        raise NotPermitted(trouble)
    status = read_status(pid)
    if not status.has_memory:
        if has_ended(pid):
            raise NoSuchProcess(pid, ended=True)
        if status.state in "ZX":
            raise Unsupported(
                f"the first thread of process {pid} has ended, so its memory can no longer be "
                "reached (the other threads continue)"
            )
        raise Unsupported(f"{pid} is a kernel thread ({status.name}); it has no program to trace")
    return status


def check_before_stopping(pid: int, *, is_followed: bool = False) -> None:
    """Raise the error that a stop would meet, before anything is changed. `is_followed` says that
    the process's tracer is our own thread, which would stop it.

    Also raises NotPermitted (another tracer). Our own process passes: it is never stopped. Seccomp
    is asked about elsewhere (markerjit/remote/filters.py).
    """
    status = check_before_looking(pid)
    if pid == os.getpid():
        return
    if status.tracer and not is_followed:
        raise NotPermitted(
            f"process {pid} is being traced by process {status.tracer} "
            f"({_name(status.tracer)}); end that first, since a process has at most one tracer"
        )


def check_before_writing(pid: int) -> None:
    """Raise Unsupported for a process that does not execute its own code.

    Valgrind executes a translation, which it has made before, so that what is written into the code
    may have no effect. And it gives out all memory itself: a jump into ours ends the program, and
    the program's next mapping may be put over it. Such a process has a tool of valgrind's as its
    executable.
    """
    try:
        folder, name = os.path.split(os.readlink(f"/proc/{pid}/exe"))
    except OSError:  # hidden: then it cannot be written either
        return
    if os.path.basename(folder) == "valgrind" and name.endswith("-linux"):
        raise Unsupported(
            f"process {pid} is executed by valgrind ({name}), which would not see the "
            "change, or end the program; run the program without valgrind"
        )


def check_before_borrowing(pid: int) -> None:
    """Raise Refused (try again) where a borrowed thread would not run: stopped, or frozen.

    Sites can still be switched where the runtime is in the process already, because that takes a
    stop and no borrowed thread. A freezer of version 1 prevents the stop, too.
    """
    if read_status(pid).state == "T":
        raise Refused(
            f"process {pid} is stopped (SIGSTOP), so no thread of it can be borrowed to put the "
            f"runtime in; continue it with kill -CONT {pid} and try again",
            try_again=True,
        )
    frozen = frozen_by(pid)
    if frozen:
        raise Refused(
            f"process {pid} is frozen by its control group (cgroup freezer, version {frozen}; "
            "docker pause?); thaw it and try again",
            try_again=True,
        )


class Filtered(NamedTuple):
    """A thread under seccomp, identified by its start time too: a number is used again.

    mode     1 strict, 2 with filters
    filters  their count; where the kernel does not count them (before Linux 5.9), the mode
    """

    tid: int
    started: int
    mode: int
    filters: int
    counted: bool


def filtered_threads(pid: int, plain: set[int]) -> list[Filtered]:
    """The threads under seccomp. Each thread has its own filters.

    Threads in `plain` are skipped; threads without seccomp are added to it. Raises NoSuchProcess.
    """
    filtered = []
    for tid in _threads(pid):
        if tid in plain:
            continue
        try:
            text = _status_text(pid, f"task/{tid}/")
            mode = int(_line(text, "Seccomp", "0"))
            if not mode:
                plain.add(tid)
                continue
            started = _started(pid, tid)
        except NoSuchProcess:
            continue
        count = _line(text, "Seccomp_filters", "")
        filtered.append(Filtered(tid, started, mode, int(count or mode), bool(count)))
    return filtered


def _started(pid: int, tid: int) -> int:
    """The start time of a thread in clock ticks. Raises NoSuchProcess."""
    try:
        return int(stat_fields(f"/proc/{pid}/task/{tid}")[_START_TIME])
    except (OSError, IndexError):
        raise NoSuchProcess(pid) from None


def _threads(pid: int) -> list[int]:
    try:
        return sorted(map(int, os.listdir(f"/proc/{pid}/task")))
    except (FileNotFoundError, ProcessLookupError):
        raise NoSuchProcess(pid) from None
    except PermissionError:
        raise _hidden(pid) from None


def why_not(pid: int, tid: int = 0) -> str:
    """A sentence with the rule that forbids ptrace on `pid`, and a remedy. For use after EPERM."""
    try:
        return _why_not(pid, tid)
    except NoSuchProcess:
        return str(NoSuchProcess(pid, ended=True))
    except NotPermitted as hidden:
        return str(hidden)


def _why_not(pid: int, tid: int) -> str:
    if has_ended(pid):  # its files belong to root by now
        raise NoSuchProcess(pid, ended=True)
    status = read_status(pid)
    subject = f"process {pid}" if tid in (0, pid) else f"thread {tid} of process {pid}"
    if status.tracer:
        return (
            f"{subject} may not be traced: process {status.tracer} ({_name(status.tracer)}) "
            "traces it already; end that first"
        )
    return f"{subject} may not be traced: {_rule_against(pid, status)}"


def _rule_against(pid: int, status: ProcessStatus) -> str:
    """The first rule of ptrace(2), "Ptrace access mode checking", that forbids it, and a remedy."""
    scope = yama_scope()
    if has_capability(CAP_SYS_PTRACE):
        return _rule_against_the_capable(scope)
    credentials = read_credentials(pid)
    if status.uid != os.getuid():
        return (
            f"it belongs to uid {status.uid} and we are {os.getuid()}; "
            "run markerjit as that user, or with sudo"
        )
    if {*credentials.uids[:3]} != {os.getuid()} or {*credentials.gids[:3]} != {os.getgid()}:
        return (
            "it runs with ids that are not ours (a set-user-ID program?); run markerjit with sudo"
        )
    if credentials.permitted & ~read_credentials(os.getpid()).permitted:
        return "it has capabilities that we do not have; run markerjit with sudo"
    if not credentials.dumpable:
        return (
            "it has made itself untraceable (PR_SET_DUMPABLE, or it changed its uid or "
            "capabilities, or its file may not be read); run markerjit with sudo"
        )
    if scope:
        return f"kernel.yama.ptrace_scope is {scope}; {round_yama(scope)}"
    return (
        "it has made itself untraceable, or it is in a user namespace that is not ours, or a "
        f"security module forbids it{_named_modules()}; run markerjit with sudo"
    )


def _rule_against_the_capable(scope: int | None) -> str:
    if scope == 3:
        return f"kernel.yama.ptrace_scope is 3; {round_yama(3)}"
    if in_user_namespace():
        return (
            "our CAP_SYS_PTRACE holds in our own user namespace, and the process is outside of it; "
            "run markerjit outside too"
        )
    return (
        "forbidden although we have CAP_SYS_PTRACE: a security module stands in the way"
        f"{_named_modules()}; see its log (dmesg, journalctl)"
    )


def _named_modules() -> str:
    modules = security_modules()
    return f" (active: {', '.join(modules)})" if modules else ""


def round_yama(scope: int) -> str:
    """The remedy for a value of kernel.yama.ptrace_scope."""
    if scope >= 3:
        return "no process may be traced until the machine is rebooted without it"
    return "run markerjit with sudo, or set it to 0 with sudo sysctl kernel.yama.ptrace_scope=0"


def _name(pid: int) -> str:
    """The name of another process, for a message about this one."""
    try:
        return read_status(pid).name
    except NoSuchProcess:
        return "gone"
    except NotPermitted:
        return "hidden from us"

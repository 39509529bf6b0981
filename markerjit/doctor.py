"""What will work here, and on a process, and why not: asked beforehand, by reading only.

Each finding is good, a warning (something less will do) or a wall (the job cannot work), and says
the way round.
"""

from __future__ import annotations

import os
import platform
import pwd
from collections.abc import Iterator
from typing import NamedTuple

from markerjit.errors import MarkerError
from markerjit.patch.plan import counted
from markerjit.quiesce.native import package_file
from markerjit.quiesce.permission import (
    CAP_SYS_PTRACE,
    check_before_stopping,
    check_seccomp_of_threads,
    has_capability,
    read_status,
    threads_blocking_sigtrap,
    yama_scope,
)
from markerjit.view import View

GOOD = "good"
WARNING = "warning"
WALL = "wall"

_BUILT = ("libmjstop.so", "runtime.bin", "include/markerjit/marker.h")


class Finding(NamedTuple):
    """One thing that was looked at. `level` is GOOD, WARNING or WALL."""

    level: str
    what: str
    found: str


def examine_machine() -> Iterator[Finding]:
    """The machine, and markerjit's own installation."""
    machine, system = platform.machine(), platform.system()
    fits = (machine, system) == ("x86_64", "Linux")
    yield Finding(GOOD if fits else WALL, "machine", f"{system} {platform.release()}, {machine}")
    missing = [name for name in _BUILT if not os.path.exists(package_file(name))]
    if missing:
        yield Finding(WALL, "native part", f"{missing[0]} is missing; run make native")
    else:
        yield Finding(GOOD, "native part", "built")
    yield _ptrace_rule()
    yield _clock()
    membarrier = "SYNC_CORE is there" if _has_sync_core() else "no SYNC_CORE: own process only"
    yield Finding(GOOD if _has_sync_core() else WARNING, "membarrier", membarrier)


def examine_process(pid: int) -> Iterator[Finding]:
    """A process: may we stop it, must we not, what is in it. Raises NoSuchProcess."""
    status = read_status(pid)
    threads = counted(status.threads, "thread")
    yield Finding(GOOD, "process", f"{pid} ({_command(pid)}) of {_user(status.uid)}, {threads}")
    try:
        check_before_stopping(pid)
        check_seccomp_of_threads(pid, set())
        yield Finding(GOOD, "stopping", "no tracer, no seccomp filter")
    except MarkerError as error:
        yield Finding(WALL, "stopping", str(error))
    try:
        with View(pid) as view:
            yield Finding(GOOD, "access", "its memory can be read and written")
            yield from _examine_markers(view)
    except MarkerError as error:
        yield Finding(WALL, "markers", str(error))
    blocking = threads_blocking_sigtrap(pid)
    if blocking:
        yield Finding(
            WARNING,
            "mode int3",
            f"thread {blocking[0]} blocks SIGTRAP: a breakpoint would kill the process; "
            "use the mode that the sites were compiled for",
        )
    else:
        yield Finding(GOOD, "mode int3", "no thread blocks SIGTRAP now")


def _command(pid: int) -> str:
    import psutil  # 18 ms, and only here

    try:
        process = psutil.Process(pid)
        line = " ".join(process.cmdline()) or str(process.name())
    except psutil.Error as error:
        return str(error)
    return line.replace("\n", "\\n")[:100]


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _examine_markers(view: View) -> Iterator[Finding]:
    sites = view.sites()
    names = {site.marker for site in sites}
    yield Finding(GOOD, "markers", f"{len(names)} at {counted(len(sites), 'site')}")
    for problem in view.problems:
        yield Finding(WARNING, "note", str(problem))
    for path in sorted({site.object.path for site in sites if site.object.deleted}):
        yield Finding(WARNING, "object", f"{path} was deleted or replaced since it was loaded")
    for path in sorted({mapping.path for mapping in view.shared_code()}):
        changes = f"the code of {path} is mapped shared: writing changes the file"
        yield Finding(WALL, "object", changes)
    has = "is there" if view.has_runtime else "is not there yet; `on` puts it there"
    yield Finding(GOOD, "runtime", has)


def _ptrace_rule() -> Finding:
    scope = yama_scope()
    if has_capability(CAP_SYS_PTRACE):
        return Finding(GOOD, "ptrace", "we have CAP_SYS_PTRACE")
    if not scope:
        return Finding(GOOD, "ptrace", "allowed for processes of our own user")
    round_it = "use sudo" + (", or sudo sysctl kernel.yama.ptrace_scope=0" if scope < 3 else "")
    return Finding(
        WALL, "ptrace", f"kernel.yama.ptrace_scope is {scope}: only our own children; {round_it}"
    )


def _clock() -> Finding:
    source = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    try:
        with open(source, encoding="ascii") as file:
            name = file.read().strip()
    except OSError:
        name = "unknown"
    if name == "tsc" or name.startswith("kvm"):
        return Finding(GOOD, "clock", f"the kernel trusts the time stamp counter ({name})")
    return Finding(
        WARNING, "clock", f"the kernel's clock is {name}: times of events may be wrong between CPUs"
    )


def _has_sync_core() -> bool:
    """Whether the kernel offers it: MEMBARRIER_CMD_QUERY, membarrier(2)."""
    import ctypes

    commands = ctypes.CDLL(None).syscall(324, 0, 0, 0)
    return commands > 0 and bool(commands & 1 << 5)

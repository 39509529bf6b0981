"""One process: its permissions, its state, its markers, and the room for the runtime.

The checks are those of `on`, by the same functions, in the same order, but they go on after the
first refusal. So the two agree, as long as the process stays as it is.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Sequence

from markerjit.arena.mapped import is_arena
from markerjit.arena.needed import NEEDED
from markerjit.doctor.finding import GOOD, WALL, WARNING, Finding, split
from markerjit.doctor.machine import forced_writes, writes_are_forbidden
from markerjit.doctor.room import examine_room
from markerjit.errors import (
    MarkerError,
    NoSuchProcess,
    NotPermitted,
    Refused,
    TargetGone,
    Unsupported,
)
from markerjit.memory import Mapping, ProcessMemory, has_ended, read_maps
from markerjit.model import RemoteAddress, Seccomp, Site
from markerjit.printable import counted, printable
from markerjit.proc.cgroup import frozen_by
from markerjit.proc.permission import (
    ProcessStatus,
    check_before_borrowing,
    check_before_looking,
    check_before_stopping,
    check_before_writing,
    filtered_threads,
    read_status,
    threads_blocking_sigtrap,
    tid_inside,
    why_not,
)
from markerjit.remote.filters import Filters
from markerjit.session.strays import Remedy, StrayHead
from markerjit.session.view import View
from markerjit.sites.vforks import may_share_memory

_NAMESPACES = ("user", "pid", "mnt", "net")


def examine_process(pid: int, *, seccomp: Seccomp = Seccomp.READ) -> Iterator[Finding]:
    """The findings about a process; `seccomp` is as for `attach`.

    Raises NoSuchProcess, also where it ends meanwhile, because no finding holds then.
    """
    was_there = False
    try:
        for finding in _examine(pid, seccomp):
            was_there = True
            yield finding
    except (NoSuchProcess, TargetGone):
        if was_there:
            raise NoSuchProcess(pid, ended=True) from None
        raise
    if has_ended(pid):
        raise NoSuchProcess(pid, ended=True)


def _examine(pid: int, seccomp: Seccomp) -> Iterator[Finding]:
    try:
        status = check_before_looking(pid)
    except Unsupported as error:
        yield Finding(WALL, "process", str(error), "name a process that runs a program")
        return
    except NotPermitted as error:
        yield split(WALL, "process", str(error))
        return
    threads = counted(status.threads, "thread")
    yield Finding(GOOD, "process", f"{pid} ({_command(pid)}) of {_user(status.uid)}, {threads}")
    try:
        check_before_writing(pid)
    except Unsupported as error:
        yield split(WALL, "program", str(error))
    yield _stopping(pid)
    try:
        with ProcessMemory(pid, why_not=why_not) as memory:
            yield from _seccomp(memory, seccomp)
            yield _access(memory)
    except (NoSuchProcess, TargetGone):
        raise
    except MarkerError as error:
        yield split(WALL, "access", str(error))
        return  # the other checks need the same permission
    yield from _namespaces(pid)
    try:
        with View(pid) as view:
            yield from _examine_markers(view)
            yield from _strays(view)
            yield from _rings(view)
            yield from _state(pid, status, view.has_runtime)
            arena = view.arena()
            if view.runtime_problem:
                yield split(WALL, "runtime", str(view.runtime_problem))
            elif arena and arena.abandoned:
                yield Finding(WALL, "runtime", str(arena.to_mend), f"markerjit repair {pid}")
            elif arena and arena.to_mend:
                yield Finding(WARNING, "runtime", arena.to_mend, f"markerjit repair {pid}")
            elif arena:
                yield Finding(GOOD, "runtime", "is there")
            else:
                yield Finding(GOOD, "runtime", "is not there yet; `on` puts it there")
                yield from examine_room(pid, read_maps(pid, why_not=why_not))
    except (NoSuchProcess, TargetGone):
        raise
    except MarkerError as error:
        yield split(WALL, "markers", str(error))
    yield _breakpoints(pid)


def _stopping(pid: int) -> Finding:
    try:
        check_before_stopping(pid)
    except NoSuchProcess:
        raise
    except MarkerError as error:
        return split(WALL, "tracer", str(error))
    return Finding(GOOD, "tracer", "none")


def _seccomp(memory: ProcessMemory, seccomp: Seccomp) -> Iterator[Finding]:
    """A wall for each thread that is refused would say the same: the first is named."""
    plain: set[int] = set()
    if not filtered_threads(memory.pid, plain):
        yield Finding(GOOD, "seccomp", "no filter")
        return
    filters = Filters(memory.pid, lambda: NEEDED, trust=seccomp is Seccomp.TRUST_ERRNO)
    try:
        with memory.locked() as locked:  # our stop would look like a debugger to its owner
            if not locked:
                raise Refused("another controller changes the process now; try again")
            filters.check(plain)
    except (NoSuchProcess, TargetGone):
        raise
    except MarkerError as error:
        yield split(WALL, "seccomp", str(error))
        return
    threads = counted(len(filters.allowed), "thread")
    if seccomp is Seccomp.TRUST_ERRNO:
        yield Finding(
            WARNING,
            "seccomp",
            f"{threads} under filters, which are trusted to answer with an error",
            "leave out --seccomp where we may read them (as root)",
        )
    else:
        yield Finding(
            GOOD, "seccomp", f"{threads} under filters, which allow all that markerjit does"
        )


def _access(memory: ProcessMemory) -> Finding:
    if memory.writable:
        return Finding(GOOD, "access", "its memory can be read and written")
    return Finding(
        WALL,
        "access",
        "its memory can be read and not written: is /proc mounted read-only?",
        "run markerjit where /proc is writable, outside of this container",
    )


def _namespaces(pid: int) -> Iterator[Finding]:
    other = [name for name in _NAMESPACES if _namespace(pid, name) != _namespace("self", name)]
    if not other:
        yield Finding(GOOD, "namespaces", "the same as ours")
        return
    fact = f"{', '.join(other)} of its own"
    if "pid" in other:
        yield Finding(
            WARNING,
            "namespaces",
            f"{fact}: it is process {tid_inside(pid, pid)} in there, and thread ids in its events "
            "are those in there, or 0",
            "run markerjit inside (nsenter) where they matter",
        )
    else:
        yield Finding(GOOD, "namespaces", f"{fact}, which does not matter")


def _namespace(pid: int | str, name: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/{name}")
    except OSError:
        return ""  # hidden, or this kernel has no such namespaces


def _state(pid: int, status: ProcessStatus, has_runtime: bool) -> Iterator[Finding]:
    """Whether the process stands still already. One that has the runtime can be switched all the
    same."""
    try:
        check_before_borrowing(pid)
    except Refused as refused:
        if not has_runtime or frozen_by(pid) == 1:
            yield split(WALL, "state", str(refused))
            return
        yield Finding(
            WARNING,
            "state",
            "stopped (SIGSTOP), or frozen: markers can be switched, and it stays stopped; nothing "
            "can be put into it (breakpoints)",
            f"kill -CONT {pid}, or thaw its control group, for modes that it has not had yet",
        )
        return
    if status.state == "D":
        yield Finding(
            WARNING,
            "state",
            "it waits in the kernel where nothing interrupts it (vfork, disk)",
            "if `on` is refused, try again",
        )
    else:
        yield Finding(GOOD, "state", "it can be stopped")


def _examine_markers(view: View) -> Iterator[Finding]:
    sites = view.sites()
    if not sites:
        detail = f": {view.problems[0]}" if view.problems else ""
        probes = len(view.usdt().probes)
        others = f"its {counted(probes, 'USDT probe')} and " if probes else "its "
        yield Finding(
            WARNING,
            "markers",
            f"process {view.pid} has no markers{detail}",
            f"{others}functions can be switched on, such as func:malloc; for markers build it with "
            "marker.h, and not with MJ_MODE=none",
        )
        return
    names = {site.marker for site in sites}
    yield Finding(GOOD, "markers", f"{len(names):,} at {counted(len(sites), 'site')}")
    for problem in view.problems:
        yield Finding(WARNING, "note", str(problem), "its markers are not offered; build it again")
    for path in sorted({site.object.path for site in sites if site.object.deleted}):
        yield Finding(
            WARNING,
            "object",
            f"{path} was deleted or replaced since it was loaded",
            "markers are taken from memory; restart the program to run the new file",
        )
    yield from _writable_code(sites, read_maps(view.pid, why_not=why_not))
    yield from _altered(view, sites)


def _strays(view: View) -> Iterator[Finding]:
    """A warning for each remedy of stray heads."""
    by_remedy: dict[Remedy, list[StrayHead]] = {}
    for stray in view.stray_heads():
        by_remedy.setdefault(stray.remedy, []).append(stray)
    for strays in by_remedy.values():
        more = f", and {len(strays) - 1} more" if len(strays) > 1 else ""
        yield Finding(WARNING, "stray head", strays[0].sentence + more, strays[0].advice)


def _rings(view: View) -> Iterator[Finding]:
    """A warning where recording is slower than elsewhere."""
    if may_share_memory(view.pid, view.read, read_maps(view.pid, why_not=why_not)):
        yield Finding(
            WARNING,
            "rings",
            "it calls vfork or clone, whose child has our memory and no restartable sequences: an "
            "event takes three times as long",
            "call posix_spawn instead",
        )


def _writable_code(sites: Sequence[Site], maps: tuple[Mapping, ...]) -> Iterator[Finding]:
    """Whether the places that `on` would write can be written. It is a wall where none is left."""
    switched = [site for site in sites if site.form.ways]
    if not switched:
        yield Finding(
            WALL,
            "markers",
            "all are compiled as direct: they always call their probe",
            "build the program with another MJ_MODE",
        )
        return
    shared = [mapping for mapping in maps if mapping.shared and not is_arena(mapping)]
    refused = [
        site for site in switched if any(_within(mapping, _written(site)) for mapping in shared)
    ]
    for path in sorted({site.object.path for site in refused}):
        yield Finding(
            WALL if len(refused) == len(switched) else WARNING,
            "object",
            f"the code of {path} is mapped shared: writing changes the file",
            "load it privately (MAP_PRIVATE, as the dynamic loader does)",
        )
    by_code = [site for site in switched if not site.form.is_decided_by_slot]
    if by_code and not forced_writes() and writes_are_forbidden():
        yield Finding(
            WALL if len(by_code) == len(switched) else WARNING,
            "code writes",
            "the kernel was started with proc_mem.force_override=never: code cannot be written",
            "start it without that, or build the program with MJ_MODE=pointer",
        )


def _written(site: Site) -> Sequence[RemoteAddress]:
    code = () if site.form.is_decided_by_slot else (site.address,)
    return (*code, site.slot) if site.slot else code


def _within(mapping: Mapping, addresses: Sequence[RemoteAddress]) -> bool:
    return any(mapping.start <= address < mapping.end for address in addresses)


def _altered(view: View, sites: Sequence[Site]) -> Iterator[Finding]:
    altered = [(state.site.marker, state.problem) for state in view.states(sites) if state.problem]
    if altered:
        names = ", ".join(sorted({marker for marker, _ in altered}))
        yield Finding(
            WALL if len(altered) == len(sites) else WARNING,
            "markers",
            f"{counted(len(altered), 'site')} (of {names}) hold other bytes than expected: "
            f"{altered[0][1].fact}",
            "take away what another tool has patched there; the other markers can be switched",
        )


def _breakpoints(pid: int) -> Finding:
    blocking = threads_blocking_sigtrap(pid)
    if blocking:
        return Finding(
            WARNING,
            "mode int3",
            f"thread {blocking[0]} blocks SIGTRAP: a breakpoint would kill the process",
            "use the mode that the sites were compiled for",
        )
    return Finding(GOOD, "mode int3", "no thread blocks SIGTRAP now")


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:
            words = file.read(4096).rstrip(b"\0").split(b"\0")
    except OSError:
        words = []
    line = b" ".join(words).decode(errors="replace") or read_status(pid).name
    return printable(line)[:100]


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"

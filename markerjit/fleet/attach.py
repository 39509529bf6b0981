"""The way in: a session with a process, or a fleet of sessions with several."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import overload

from markerjit.arguments import check_pid
from markerjit.errors import BadArgument
from markerjit.fleet.fleet import Fleet
from markerjit.model import Seccomp
from markerjit.session.session import Session


@overload
def attach(  # type: ignore[overload-overlap]  # a str can be gone through, too
    pid: int | str | None = None,
    *,
    ring_size: int | None = None,
    seccomp: Seccomp | str = "read",
    breakpoints: bool = False,
) -> Session: ...


@overload
def attach(
    pid: Iterable[int | str],
    *,
    ring_size: int | None = None,
    seccomp: Seccomp | str = "read",
    breakpoints: bool = False,
) -> Fleet: ...


def attach(
    pid: int | str | Iterable[int | str] | None = None,
    *,
    ring_size: int | None = None,
    seccomp: Seccomp | str = "read",
    breakpoints: bool = False,
) -> Session | Fleet:
    """Open a session with a process, by its number or the name of its program; without either with
    this process. A list of them is a Fleet, of all processes with these names.

    `ring_size` is the bytes of records for each CPU, a power of two; without it what the process
    has already, or 1 MiB. `seccomp` says what is done about the filters of the process: "read" runs
    them on each call that is needed; "trust-errno" takes your word that they answer with an error
    and never kill. `breakpoints` takes your word that no thread blocks SIGTRAP where only a
    breakpoint opens what was named; without it that is left out. Raises NoSuchProcess,
    NotPermitted, Unsupported; NoMatch for a name that no
    program has, and Refused, with the processes to choose from, for one that several have.
    """
    if isinstance(pid, Iterable) and not isinstance(pid, (str, bytes, Mapping)):
        pids = _pids_of(pid)
        return Fleet(pids, ring_size=ring_size, seccomp=seccomp, breakpoints=breakpoints)
    if pid is None:
        pid = os.getpid()
    elif isinstance(pid, str):
        pid = _only(pid)
    check_pid(pid)
    assert isinstance(pid, int)
    return Session(pid, ring_size=ring_size, seccomp=seccomp, breakpoints=breakpoints)


def _only(target: str) -> int:
    """The one process that a text means."""
    from markerjit.targets.find import choose_one
    from markerjit.targets.request import parse_targets

    targets = parse_targets(target)
    if len(targets.pids) > 1:
        raise BadArgument("pid", target, "one process; for several give a list of numbers")
    return choose_one(targets)


def _pids_of(targets: Iterable[int | str]) -> list[int]:
    """The processes that numbers and names mean. A process is not taken twice because it has a
    name, too."""
    from markerjit.targets.find import find_processes
    from markerjit.targets.request import parse_targets

    pids: list[int] = []
    for target in targets:
        if isinstance(target, str):
            meant = find_processes(parse_targets(target))
            pids += [pid for pid in meant if pid not in pids]
        else:
            pids.append(target)
    return pids

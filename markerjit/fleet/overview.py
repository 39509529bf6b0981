"""A look at all processes: which have markers or USDT probes, and what is on in them. Nothing is
changed, and no thread is stopped."""

from __future__ import annotations

import os
from contextlib import closing

from markerjit.arguments import check_flag
from markerjit.errors import MarkerError, NoSuchProcess, TargetGone
from markerjit.fleet.failed import Failed
from markerjit.printable import counted
from markerjit.session.status import ArenaStatus, MarkerStatus, arena_status, marker_statuses
from markerjit.session.target import Target
from markerjit.targets.processes import Process, processes
from markerjit.tuples import NamedTuple, brief


class ProcessOverview(NamedTuple):
    """A process that has something to be probed.

    uid      of its user
    command  its command line
    markers  its markers, and the USDT probes and functions that are on
    arena    the runtime in it, or None
    usdt     how many USDT probes it has; None where they were not counted
    """

    pid: int
    uid: int
    command: str
    markers: tuple[MarkerStatus, ...]
    arena: ArenaStatus | None
    usdt: int | None

    def __repr__(self) -> str:
        return brief(self)


class Overview(NamedTuple):
    """The processes that have something to be probed, by pid, and those that could not be looked
    at, with the reason."""

    processes: tuple[ProcessOverview, ...]
    failed: tuple[Failed, ...]

    def __repr__(self) -> str:
        pids = ", ".join(str(each.pid) for each in self.processes)
        return f"<Overview of {counted(len(self.processes), 'process')} ({pids})>"


def overview(*, everyone: bool = False, usdt: bool = False) -> Overview:
    """Look at all processes of our user, or of everyone; without markers, and without USDT probes
    where `usdt` asks for those, a process is left out. Raises BadArgument."""
    check_flag("everyone", everyone)
    check_flag("usdt", usdt)
    views: list[ProcessOverview] = []
    failed: list[Failed] = []
    ours = os.geteuid()
    for process in processes():
        if not everyone and process.uid != ours:
            continue
        try:
            seen = _look(process, usdt=usdt)
        except (NoSuchProcess, TargetGone):
            continue  # it has ended meanwhile
        except MarkerError as error:
            failed.append(Failed(process.pid, error))
            continue
        if seen.markers or seen.arena or seen.usdt:
            views.append(seen)
    return Overview(tuple(views), tuple(failed))


def _look(process: Process, *, usdt: bool) -> ProcessOverview:
    with closing(Target(process.pid, glance=True)) as target:
        seen = target.seen
        states = target.states(target.all_sites())
        probes = _usdt_probes(target) if usdt else None
        return ProcessOverview(
            process.pid, process.uid, target.command,
            tuple(marker_statuses(states, seen.arena, seen.probes, target.calls)),
            arena_status(seen.arena, locked=target.memory.is_locked()) if seen.arena else None,
            probes,
        )  # fmt: skip


def _usdt_probes(target: Target) -> int:
    from markerjit.session.usdt import usdt_of  # seldom asked for
    from markerjit.sites import parse_name

    return len(usdt_of(target, parse_name("*")).probes)

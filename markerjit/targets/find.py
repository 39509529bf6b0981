"""The pids of the processes that a request means, or a sentence that says what to do.

Without `user` the processes are those of the caller, and for root those of all users.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Sequence

from markerjit.arguments import check_is
from markerjit.errors import BadArgument, NoMatch, Refused, shown
from markerjit.targets.containers import containers_of, in_container, in_group, paths_of_group
from markerjit.targets.processes import Process, processes
from markerjit.targets.request import Targets

MOST = 150
"""Processes of one request. Each takes five descriptors of ours, and the limit is often 1024."""

_SHORTEST_ID = 4
_MOST_DIGITS = 10
_LISTED = 5
"""Processes that a sentence lists."""

_Test = Callable[[Process], bool]


def find_processes(targets: Targets) -> list[int]:
    """The pids of the processes that are meant. Given pids are not looked for.

    Raises NoMatch where there is none, Refused for more than MOST, and BadArgument for a user or a
    file that does not exist, or what is no ID of a container.
    """
    check_is("targets", targets, Targets)
    if targets.pids:
        return list(targets.pids)
    matching = _matching(targets)
    if len(matching) > MOST:
        raise Refused(
            f"{len(matching)} processes are {targets}, and a command takes {MOST} at most; narrow "
            "them down by --name, --user, --exe, --cgroup or --container, or list some: PID,PID"
        )
    return [process.pid for process in matching]


def choose_one(targets: Targets) -> int:
    """The pid of the one process that is meant. Raises what find_processes raises, and Refused,
    with a list to choose from, where there are several."""
    check_is("targets", targets, Targets)
    if len(targets.pids) == 1:
        return targets.pids[0]
    matching = [] if targets.pids else _matching(targets)
    if len(matching) == 1:
        return matching[0].pid
    if targets.pids:
        raise Refused(f"this is for one process at a time, and not for {targets}")
    listed = [f"{process.pid} ({process.command()[:60]})" for process in matching[:_LISTED]]
    rest = len(matching) - len(listed)
    listed += [f"and {rest} more"] if rest else []
    raise Refused(
        f"{len(matching)} processes are {targets}, and this is for one: {', '.join(listed)}; give "
        "its PID"
    )


def matches(targets: Targets) -> Callable[[Process], bool]:
    """Whether a process is one that is meant, by its criteria. Raises BadArgument as
    find_processes does."""
    check_is("targets", targets, Targets)
    tests = [_of_user(targets.user), *_criteria(targets)]
    return lambda process: all(test(process) for test in tests)


def _criteria(targets: Targets) -> list[_Test]:
    """A test for each criterion but the user."""
    tests: list[_Test] = []
    if targets.name:
        tests.append(lambda process: process.is_named(targets.name))
    if targets.exe:
        if not os.path.exists(targets.exe):
            raise BadArgument("exe", targets.exe, "the path of a file that exists")
        tests.append(lambda process: process.executes(targets.exe))
    if targets.cgroup:
        paths = paths_of_group(targets.cgroup, _mountinfo())
        tests.append(lambda process: in_group(process.groups(), paths))
    if start := targets.container:
        if len(start) < _SHORTEST_ID or {*start} - {*"0123456789abcdef"}:
            raise BadArgument(
                "container", start, "an ID, or its start, as docker ps and podman ps show it"
            )
        tests.append(lambda process: in_container(process.groups(), start))
    return tests


def _matching(targets: Targets) -> list[Process]:
    is_meant = matches(targets)
    everyone = list(processes())
    matching = list(filter(is_meant, everyone))
    if not matching:
        raise NoMatch(_none_is(targets, everyone))
    if targets.container:
        _check_container(targets.container, matching)
    return matching


def _check_container(start: str, matching: Sequence[Process]) -> None:
    """Raise Refused where the start of an ID is that of several containers."""
    containers = {
        container
        for process in matching
        for container in containers_of(process.groups())
        if container.startswith(start)
    }
    if len(containers) > 1:
        names = ", ".join(sorted(container[:12] for container in containers))
        raise Refused(f"{len(containers)} containers have an ID that starts so: {names}")


def _of_user(user: str) -> _Test:
    if not user:
        return _is_callers
    try:
        is_number = user.isascii() and user.isdigit() and len(user) <= _MOST_DIGITS
        uid = int(user) if is_number else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise BadArgument("user", user, "the name or the number of a user") from None
    return lambda process: process.uid == uid


def _is_callers(process: Process) -> bool:
    caller = os.geteuid()
    return caller in (0, process.uid)


def _none_is(targets: Targets, everyone: Sequence[Process]) -> str:
    """The sentence for a request that means no process, with what may have been meant."""
    none = f"no process is {targets}"
    if not targets.user and os.geteuid():
        tests = _criteria(targets)
        others = sum(all(test(process) for test in tests) for process in everyone)
        if others:
            return (
                f"{none} and ours, and {others} of other users would be; run markerjit with sudo, "
                "or as that user"
            )
    if not targets.name:
        return f"{none}; ps -e -o pid,user,cgroup,args lists all"
    import difflib  # only where it is of use: its import takes time

    names = {name for process in everyone for name in (process.name, os.path.basename(process.exe))}
    nearest = difflib.get_close_matches(targets.name, names - {""}, 3)
    if nearest:
        return f"{none}; did you mean {' or '.join(nearest)}?"
    from shlex import quote  # as for a sentence that is seldom needed

    looked_for = quote(shown(targets.name))
    return f"{none}; pgrep -l -f {looked_for} looks for it in command lines, too"


def _mountinfo() -> str:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return file.read()

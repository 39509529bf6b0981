"""The processes that a command is for, as its arguments name them: a pid, several, a program's
name, or options such as --user. The lists that one command prints of several processes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import markerjit
from markerjit.cli import arguments, output
from markerjit.printable import counted
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.facts import Json

T = TypeVar("T")

# In the order of Targets.
_CRITERIA = {
    "name": ("NAME", "all of a program, by the name of its file or the one that ps shows"),
    "exe": ("PATH", "all that execute this file"),
    "cgroup": ("PATH", "all in this control group or below it, such as nginx.service"),
    "container": ("ID", "all in this container of Docker, podman or Kubernetes"),
    "user": ("NAME", "all of this user (default: yours; for root, everybody's)"),
}


_PIDS = 8
"""Of those that are left out for one reason, as many as a line names."""


class Chosen(NamedTuple):
    """The processes that a command is for. `by_pid` says that each was named by its number."""

    pids: list[int]
    by_pid: bool

    @property
    def is_single(self) -> bool:
        """Whether it is for one process, as its arguments say and not as it happens to be."""
        return self.by_pid and len(self.pids) == 1


def add_targets(parser: argparse.ArgumentParser) -> None:
    """TARGET: a process, several, or the name of a program; or options that say which, instead. It
    is left out, too, where a program is started."""
    given = parser.get_default("given") or ()
    has_criteria = any(_is_criterion(word) for word in given)
    if has_criteria and parser.get_default("program"):
        parser.error("a program that is started is the target: leave out the others")
    if not has_criteria and not parser.get_default("program"):
        parser.add_argument(
            "targets",
            metavar="TARGET",
            type=_targets,
            help="one process or several: PID, or PID,PID, or the name of a program. Leave it out "
            "where options choose the processes (below)",
        )
    options = arguments.section(parser, "processes, in place of TARGET")
    for name, (metavar, meaning) in _CRITERIA.items():
        options.add_argument(f"--{name}", metavar=metavar, type=_criterion, help=meaning)


def chosen(options: argparse.Namespace) -> Chosen:
    """The processes that are there now. Raises Refused where there is none, or too many."""
    targets = getattr(options, "targets", None)
    if isinstance(targets, list):
        return Chosen(targets, by_pid=True)
    return Chosen(markerjit.find_processes(requested(options)), by_pid=False)


def requested(options: argparse.Namespace) -> markerjit.Targets:
    """The request for processes, of which nothing is looked up."""
    targets = getattr(options, "targets", None)
    if isinstance(targets, list):
        return markerjit.Targets(tuple(targets))
    if isinstance(targets, markerjit.Targets):
        return targets
    return markerjit.Targets((), *(getattr(options, name) or "" for name in _CRITERIA))


def look_at_each(
    processes: Chosen, look: Callable[[int], T]
) -> tuple[dict[int, T], list[markerjit.Failed]]:
    """What `look` returns for each process, and the processes that could not be looked at. Raises
    the reason where it is the only one."""
    seen: dict[int, T] = {}
    failed: list[markerjit.Failed] = []
    for pid in processes.pids:
        try:
            seen[pid] = look(pid)
        except markerjit.MarkerError as error:
            if len(processes.pids) == 1:
                raise
            failed.append(markerjit.Failed(pid, error))
    return seen, failed


def print_workers(processes: Chosen, views: Iterable[markerjit.Session]) -> None:
    """Say on standard error which processes have workers that are not among those named."""
    for view in views if processes.by_pid else ():
        others = set(view.workers) - set(processes.pids)
        if others:
            number = counted(len(others), "process")
            output.say(
                f"markerjit: left out: {number} of the same program, started by process "
                f"{view.pid}; --follow takes all",
                error=True,
            )


def print_failed(failed: Iterable[markerjit.Failed], reasons: dict[str, int] | None = None) -> None:
    """Say on standard error which processes were left out, and why: a reason once. `reasons` has
    those that were said before, each with its process, and gets the new ones."""
    reasons = {} if reasons is None else reasons
    alike: dict[int, list[int]] = {}
    for process in failed:
        reason = re.sub(rf"\b{process.pid}\b", "", process.sentence)
        if reason in reasons:
            alike.setdefault(reasons[reason], []).append(process.pid)
        else:
            reasons[reason] = process.pid
            output.say(f"markerjit: left out: {process.sentence}", error=True)
    for first, pids in alike.items():
        noun = "process" if len(pids) == 1 else "processes"
        listed = ", ".join(map(str, pids[:_PIDS]))
        more = f" and {len(pids) - _PIDS:,} more" if len(pids) > _PIDS else ""
        output.say(f"markerjit: left out like process {first}: {noun} {listed}{more}", error=True)


def print_documents(
    processes: Chosen, documents: Iterable[Json], failed: Sequence[markerjit.Failed]
) -> None:
    """Print a document for each process: for one, the document itself."""
    listed = list(documents)
    if processes.is_single:
        output.print_json(listed[0])
    else:
        from markerjit.facts.fleet import failed_facts

        output.print_json({"processes": listed, "failed": failed_facts(failed)})


def print_each(processes: Chosen, pids: Iterable[int], show: Callable[[int], None]) -> None:
    """Show each process, below a line with its pid where there may be several."""
    for pid in pids:
        if not processes.is_single:
            output.say(f"process {pid}:")
        show(pid)


def _is_criterion(word: str) -> bool:
    """Whether a word is one of the options, or short for it, as argparse takes that."""
    option = word.partition("=")[0]
    return len(option) > 2 and any(f"--{name}".startswith(option) for name in _CRITERIA)


def _criterion(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("it cannot be empty")
    return text


def _targets(text: str) -> list[int] | markerjit.Targets:
    """The pids, or the request that has to be looked up; the usual case needs no room for that."""
    words = text.split(",")
    pids = [pid for word in words if (pid := arguments.as_pid(word)) is not None]
    if len(pids) == len({*words}):
        return pids
    try:
        return markerjit.parse_targets(text)
    except markerjit.BadArgument as error:
        raise argparse.ArgumentTypeError(str(error)) from None

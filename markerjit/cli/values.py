"""The values that may stand for an argument, for the completion of a command line: processes,
markers, objects, users. Each kind of argument is known by the name that usage lines give it.

Processes are looked at as `ps` and `list` do: nothing is changed, and no thread is stopped. What
cannot be looked at has no values.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import markerjit
from markerjit.cli.arguments import as_pid
from markerjit.cli.recording import SUFFIXES
from markerjit.tuples import NamedTuple

Given = Mapping[str, Sequence[str]]
"""The values of the arguments before, by their names in the parser."""
Values = Iterable[tuple[str, str]]
"""Values, and what each means."""

_COLUMNS = ["time", "date", "since", "delta", "cpu", "tid", "pid", "name", "source", "fields"]
"""Of lines of events. trace/template.py, which has them, needs numpy."""
_MOST_PROCESSES = 4
"""Processes of a name whose markers are looked up."""


class Kind(NamedTuple):
    """A kind of argument: a function of the word, and of what was given before, that returns
    its values; whether it may be a file; and characters that end a value in a list."""

    values: Callable[[str, Given], Values] | None = None
    files: bool = False
    separators: str = ""

    def candidates(self, word: str, given: Given) -> tuple[str, Values]:
        """The start of the word that is no part of its last value, and the values for the rest."""
        at = max((word.rfind(character) for character in self.separators), default=-1) + 1
        if self.values is None:
            return word[:at], ()
        try:
            return word[:at], list(self.values(word[at:], given))
        except (markerjit.MarkerError, OSError):
            return word[:at], ()


def _pids(word: str, given: Given) -> Values:
    """Processes with markers, and their programs; others where no such process begins so."""
    begun = [pid for pid in _all() if str(pid).startswith(word)]
    marked = markerjit.find_marked(begun)
    pids = marked or (begun if word.isdigit() else [])
    return [(str(pid), _name(pid)) for pid in pids]


def _targets(word: str, given: Given) -> Values:
    """Pids, or names of programs."""
    if word[:1].isdigit():
        return _pids(word, given)
    if word:
        return _programs(word, given)
    marked = _pids("", given)
    return [*marked, *((name, "a program") for _, name in marked)]


def _programs(word: str, given: Given) -> Values:
    """Names of the programs of processes with markers. To look for markers takes longer than to ask
    for a name, and most words here are names of files."""
    names = {pid: name for pid in _all() if (name := _name(pid)).startswith(word)}
    return [(names[pid], "a program") for pid in markerjit.find_marked(names)]


def _users(word: str, given: Given) -> Values:
    import pwd

    return [(user.pw_name, "") for user in pwd.getpwall()]


def _patterns(word: str, given: Given) -> Values:
    """Markers, and USDT probes where a word has the colon of one, or where there is no marker."""
    usdt = ":" in word and not word.startswith("func:")
    for place in _places(given):
        markers = [] if usdt else _markers_of(place)
        yield from markers
        if not markers:
            yield from _usdt_of(place)


def _recipes(word: str, given: Given) -> Values:
    """Recipes that are here."""
    from markerjit.cli.recipe import recipes_here

    return [(recipe.name, recipe.about) for recipe in recipes_here().recipes]


def _objects(word: str, given: Given) -> Values:
    """The files that have markers."""
    for place in _places(given):
        for marker in _statuses(place):
            for site in marker.sites:
                yield os.path.basename(site.object.path), ""


def _markers_of(place: int | str) -> list[tuple[str, str]]:
    return [
        (marker.name, ", ".join(field.name for field in marker.fields))
        for marker in _statuses(place)
    ]


def _statuses(place: int | str) -> Sequence[markerjit.MarkerStatus]:
    if isinstance(place, str):
        return markerjit.list_file(place)[0]
    with markerjit.View(place) as view:
        return view.statistics()


def _usdt_of(place: int | str) -> Values:
    if isinstance(place, str):
        probes = markerjit.list_file_usdt(place)[0]
    else:
        with markerjit.View(place) as view:
            probes = view.usdt().probes
    return [(probe.name, "a USDT probe") for probe in probes]


def _places(given: Given) -> Iterator[int | str]:
    """The processes or the file that the command line names."""
    words = [*given.get("pid", ()), *given.get("targets", ()), *given.get("target", ())]
    words += given.get("name", ())
    for word in words:
        if "target" in given and as_pid(word) is None and os.path.lexists(word):
            yield word
            continue
        for part in word.split(","):
            pid = as_pid(part)
            if pid is not None:
                yield pid
            elif part:
                yield from markerjit.find_processes(markerjit.parse_targets(part))[:_MOST_PROCESSES]


def _all() -> Iterator[int]:
    """The other processes of our user, for root those of everyone, by pid."""
    user, ours = os.geteuid(), os.getpid()
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            if pid != ours and (not user or os.stat(f"/proc/{pid}").st_uid == user):
                yield pid
        except OSError:
            continue  # it has ended


def _name(pid: int) -> str:
    """The name of a process, as `ps` shows it; empty for one that has ended."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            return os.fsdecode(file.read()).rstrip("\n")
    except OSError:
        return ""


def _listed(*names: str) -> Callable[[str, Given], Values]:
    return lambda word, given: [(name, "") for name in names]


def _letters(word: str, given: Given) -> Values:
    from markerjit.lab import EXPERIMENTS

    return [(letter, experiment.title) for letter, experiment in EXPERIMENTS.items()]


KINDS = {
    "PID": Kind(_pids),
    "TARGET": Kind(_targets, separators=","),
    "PID|FILE": Kind(_targets, files=True),
    **dict.fromkeys(("PATTERN", "FROM", "TO", "FUNCTION"), Kind(_patterns, separators=",!")),
    "OBJECT": Kind(_objects),
    "--name": Kind(_programs),
    "--user": Kind(_users),
    "--exe": Kind(files=True),
    "FILE": Kind(files=True),
    "OTHER": Kind(files=True),
    "FILE.c": Kind(files=True),
    "FILE:FUNCTION": Kind(files=True),
    "CC": Kind(files=True),
    "PROBE": Kind(_listed("count", "record"), files=True),
    "WHAT": Kind(_listed("dormant", "active", "toggle", "reading", "check", "compare"), files=True),
    "LETTER": Kind(_letters),
    "RECIPE": Kind(_recipes),
    "KEY": Kind(_listed("marker", "thread", "cpu", "source"), separators=","),
    "FORMAT": Kind(lambda word, given: [(name, "") for name in SUFFIXES]),
    "C,D": Kind(_listed(*_COLUMNS), separators=","),
    "PART": Kind(_listed("1/10", "1/100", "1/1000")),
    "RATE": Kind(_listed("100/s", "1k/s", "10k/s")),
    "PERCENT": Kind(_listed("0.1%", "1%", "5%")),
}
"""The kinds of arguments whose values can be named, by their options or names in usage lines."""

FREE = {
    *("S", "N", "N,…", "BYTES", "MIB", "A,B", "TIME", "EXPR", "EXPR,…", "ID", "NAME", "PATH"),
    *("FORM", "EXPRS", "FUNC"),
    *("SECONDS", "LAYOUTS", "FIELD", "URL", "DEPTH"),
}
"""The names of other arguments: numbers, and texts that nobody can guess."""

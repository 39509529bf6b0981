"""A request for processes, as it was written. Nothing is looked up here."""

from __future__ import annotations

from markerjit.arguments import check_text
from markerjit.errors import BadArgument, shown
from markerjit.tuples import NamedTuple

_MOST_DIGITS = 40
"""Of the number of a process, far more than one has. Of thousands int() raises ValueError."""


class Targets(NamedTuple):
    """The processes that are meant: those of all these criteria, or those with these pids.

    name       the name of a program: of its file, or the one that ps shows
    exe        the path of the file that is executed
    cgroup     the path of a control group; those below it count, too
    container  the ID of a container, or its first digits
    user       the name or the number of a user
    """

    pids: tuple[int, ...] = ()
    name: str = ""
    exe: str = ""
    cgroup: str = ""
    container: str = ""
    user: str = ""

    def __str__(self) -> str:
        """The criteria, in words."""
        if self.pids:
            return ",".join(map(str, self.pids))
        words = {
            "named": self.name,
            "executing": self.exe,
            "in control group": self.cgroup,
            "in container": self.container,
            "of user": self.user,
        }
        return " ".join(f"{word} {shown(value)}" for word, value in words.items() if value)


def parse_targets(text: str) -> Targets:
    """The request that a word means: `PID`, `PID,PID` or the name of a program.

    A name has a letter, and no comma. Raises BadArgument for a text that is no pid and no name, and
    for a pid that is there twice.
    """
    check_text("target", text)
    if "," in text or not any(character.isalpha() for character in text):
        pids = tuple(map(_pid, text.split(",")))
        if 0 in pids:
            raise BadArgument("target", text, "a pid, several as PID,PID, or a program's name")
        if len({*pids}) < len(pids):
            raise BadArgument("target", text, "pids that are all different")
        return Targets(pids)
    if "/" in text:
        raise BadArgument("target", text, "a name; a path is given as --exe PATH")
    return Targets(name=text)


def _pid(text: str) -> int:
    """The number, or 0 for what is no pid."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if is_number else 0

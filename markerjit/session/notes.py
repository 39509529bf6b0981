"""The USDT probes of a name whose notes are not understood: no request can switch them.

What this does not do: read notes (markerjit/elf/stapsdt.py), or say what is wrong with the file of
a note.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from markerjit.errors import BadNote, Reason
from markerjit.patch.switchable import LeftOut
from markerjit.session.target import Target
from markerjit.sites import NameKind, ProbeName


def problems_of_notes(target: Target, name: ProbeName) -> tuple[BadNote, ...]:
    """What is wrong with the notes of the USDT probes that a name is of. Raises TargetGone."""
    globs = name.usdt_globs
    if not globs:
        return ()  # and nothing is imported
    from markerjit.sites.usdt import problems_of

    without = [part.name for part in name.without if part.kind is NameKind.USDT]
    with target.memory.watched():
        return tuple(
            problem
            for problem in problems_of(target.usdt(), globs)
            if not any(fnmatchcase(problem.name, glob) for glob in without)
        )


def left_out_by_notes(target: Target, name: ProbeName) -> tuple[LeftOut, ...]:
    """The same, as what a switch leaves out. Raises TargetGone."""
    return tuple(
        LeftOut(problem.name, Reason.BAD_NOTE, str(problem), lasts=True)
        for problem in problems_of_notes(target, name)
    )

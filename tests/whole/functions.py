"""The functions of a program that both runs open: their pattern, their counts and their code."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

import markerjit
from markerjit.calls.graph import NotOpened
from markerjit.session.called import plan_functions
from markerjit.session.openings import silent
from markerjit.sites import parse_name
from tests.whole.programs import Running

BOTH = ("", ":return")


def all_of(
    session: markerjit.Session, running: Running, select: str = "*"
) -> tuple[str, list[NotOpened]]:
    """A pattern of all functions with such names that can be open at the entry and at every exit at
    once, without breakpoints, which a thread that blocks their signal would not survive; and the
    others."""
    entries = ",".join(f"func:{each}:{select}" for each in running.objects)
    name = parse_name(entries)
    planned = plan_functions(session._target, name, breakpoints=False, progress=silent)
    closed = sorted({each.name for each in planned.not_opened})
    parts = [f"func:{each}:{select}{behind}" for each in running.objects for behind in BOTH]
    parts += [f"!func:{each}{behind}" for each in closed for behind in BOTH]
    return ",".join(parts), list(planned.not_opened)


def hits_of(
    states: list[markerjit.MarkerStatus],
) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """By the name of the function, how often it was entered and left, and how many exits it has, of
    those that are open."""
    entered: Counter[str] = Counter()
    left: Counter[str] = Counter()
    exits: Counter[str] = Counter()
    for state in states:
        if not state.mode:
            continue
        name = state.name.removeprefix("func:")
        if name.endswith(":return"):
            name = name.removesuffix(":return")
            left[name] += state.hits
            exits[name] += len(state.sites)
        else:
            entered[name] += state.hits
    return entered, left, exits


def code_of(running: Running) -> bytes:
    """The bytes of the code of the objects that are opened."""
    parts = []
    proc = Path(f"/proc/{running.pid}")
    with (proc / "maps").open() as maps, (proc / "mem").open("rb") as memory:
        for text in maps:
            fields = text.split(maxsplit=5)
            path = fields[5].strip() if len(fields) > 5 else ""
            if "x" in fields[1] and any(
                fnmatch(path, each) or fnmatch(Path(path).name, each) for each in running.objects
            ):
                start, end = (int(number, 16) for number in fields[0].split("-"))
                memory.seek(start)
                parts.append(memory.read(end - start))
    assert parts
    return b"".join(parts)

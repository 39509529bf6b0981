"""The bounds of functions' code in a process, by name, including the parts that a compiler has
split off.

What this does not do: say where a function is entered (functions.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from markerjit.elf import Read
from markerjit.elf.function_names import function_names
from markerjit.elf.functions import Functions, NoFunctions
from markerjit.errors import BadFile, UnknownMarker
from markerjit.memory import Mapping
from markerjit.sites.functions import COLD, files_of_process
from markerjit.sites.names import nearest
from markerjit.sites.selection import is_named


def bounds_of_process(
    pid: int, read: Read, maps: Sequence[Mapping], glob: str
) -> tuple[range, ...]:
    """The code of all functions that a glob names, in every object mapped into a process, sorted.

    Raises UnknownMarker, with the nearest names, where there is none; and what `read` raises when
    the process ends.
    """
    bounds: set[tuple[int, int]] = set()
    others: list[set[str]] = []
    problems: list[BadFile] = []
    for image, mapped in files_of_process(pid, read, maps, problems, lambda path: True):
        names = function_names(image).names
        entries = [
            address
            for address, texts in names.items()
            if any(is_named(glob, text.partition(COLD)[0]) for text in texts)
        ]
        if not entries:
            others.append({text for texts in names.values() for text in texts})
            continue
        try:
            functions = Functions(image)
        except NoFunctions:
            continue
        around = filter(None, map(functions.at, entries))
        bounds |= {(each.start + mapped.bias, each.stop + mapped.bias) for each in around}
    if not bounds:
        raise UnknownMarker(glob, nearest(glob, *others), what="function")
    return tuple(range(*each) for each in sorted(bounds))

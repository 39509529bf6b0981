"""How much of the code of a file, or of objects of a process, can be opened (spans/coverage.py).

Nothing is changed, and no thread is stopped. Of a process the files are read that it has mapped.
"""

from __future__ import annotations

import os

from markerjit.arguments import check_callable, check_int, check_path, check_pid, check_text
from markerjit.elf import FileImage
from markerjit.elf.function_names import function_names
from markerjit.elf.functions import Functions, NoFunctions
from markerjit.errors import BadFile, UnknownMarker
from markerjit.session.openings import exits_of_functions
from markerjit.session.target import Target
from markerjit.sites.functions import files_of_process
from markerjit.sites.selection import is_of_object
from markerjit.spans.code import Code
from markerjit.spans.coverage import (
    Progress,
    Share,
    entries_of,
    share_of_instructions,
    shares_of_functions,
)
from markerjit.tuples import NamedTuple, brief

MOST_INSTRUCTIONS = 1 << 24


class Coverage(NamedTuple):
    """How much of an object's code can be opened. `problem` says why that is not known; "" where
    it is."""

    path: str
    build_id: str | None
    shares: tuple[Share, ...]
    problem: str = ""

    def __repr__(self) -> str:
        return brief(self)


def _silent(what: str, done: float) -> None:
    """Report no progress."""


def coverage_of_file(
    path: str, *, instructions: int | None = 0, progress: Progress = _silent
) -> Coverage:
    """The coverage of an executable or shared object: of its functions' entries and exits, and of
    this many instructions, chosen at random; None is all. Raises BadFile, Unsupported."""
    check_path("path", path)
    _check(instructions, progress)
    with FileImage(os.fspath(path)) as image:
        return _of_image(image, instructions, progress)


def coverage_of_process(
    pid: int, mapped: str = "", *, instructions: int | None = 0, progress: Progress = _silent
) -> list[Coverage]:
    """The coverage of the mapped objects of a process whose names or paths match a glob; "" is the
    program itself. Raises UnknownMarker if there is none, and what attaching raises."""
    check_pid(pid)
    check_text("mapped", mapped)
    _check(instructions, progress)
    target = Target(pid)
    try:
        read, maps = target.memory.read, target.seen.maps
        program = os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
        problems: list[BadFile] = []

        def is_meant(path: str) -> bool:
            return is_of_object(mapped, path) if mapped else path == program

        objects = []
        for image, _ in files_of_process(pid, read, maps, problems, is_meant):
            objects.append(_of_image(image, instructions, progress))
        if problems and not objects:
            raise problems[0]
        if not objects:
            raise UnknownMarker(mapped or program, (), what="object")
        return objects
    finally:
        target.close()


def _check(instructions: object, progress: object) -> None:
    check_callable("progress", progress)
    if instructions is not None:
        check_int("instructions", instructions, 0, MOST_INSTRUCTIONS)


def _of_image(image: FileImage, instructions: int | None, progress: Progress) -> Coverage:
    name = os.path.basename(image.name)

    def report(what: str, done: float) -> None:
        progress(f"{name}, {what}", done)

    report("reading", 0)
    try:
        entries = entries_of(Functions(image), function_names(image))
        report("entries", 0)
        exits = exits_of_functions(image, entries, progress)
        shares: tuple[Share, ...] = shares_of_functions(exits, entries)
        if instructions != 0:
            shares = (*shares, share_of_instructions(Code(image), instructions, report))
    except NoFunctions as problem:
        return Coverage(image.name, image.build_id(), (), str(problem))
    return Coverage(image.name, image.build_id(), shares)

"""Putting markers into somebody else's source.

A place is found by a line of the function that it is in. A version of the program where that line
is not there, or is there twice, is refused: a marker somewhere else would measure something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from markerjit.errors import Refused


class Mark(NamedTuple):
    """A marker (`line`) for a file: in the function whose definition begins with `function`, as the
    line after `after`. Lines are compared without the space around them."""

    file: str
    function: str
    after: str
    line: str


def apply(marks: Iterable[Mark], tree: Path) -> None:
    """Put them in. Raises Refused, and has then written nothing of the file in question."""
    by_file: dict[str, list[Mark]] = {}
    for mark in marks:
        by_file.setdefault(mark.file, []).append(mark)
    for name, of_file in by_file.items():
        path = tree / name
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise Refused(f"cannot put markers into {path}: {error.strerror}") from None
        path.write_text(with_marks(text, of_file), encoding="utf-8")


def with_marks(text: str, marks: Iterable[Mark]) -> str:
    """The text of a source with these markers in it. Raises Refused."""
    lines = text.splitlines()
    places = [(_place(lines, mark), mark.line) for mark in marks]
    for place, line in sorted(places, reverse=True):
        lines.insert(place, line)
    return "\n".join(lines) + "\n"


def _place(lines: list[str], mark: Mark) -> int:
    """The number of lines before the marker. A function ends at a brace in the first column."""
    begins = _only(
        [at for at, line in enumerate(lines)
         if line.startswith(mark.function) and not line.rstrip().endswith(";")],
        mark, mark.function,
    )  # fmt: skip
    ends = next((at for at in range(begins, len(lines)) if lines[at].startswith("}")), len(lines))
    inside = [at for at in range(begins, ends) if lines[at].strip() == mark.after]
    return _only(inside, mark, mark.after) + 1


def _only(places: list[int], mark: Mark, what: str) -> int:
    if len(places) == 1:
        return places[0]
    times = f"{len(places)} times" if places else "not"
    raise Refused(
        f"{mark.file} has {what!r} {times} where a marker is to stand: this version of the program "
        "is not the one that we know"
    )

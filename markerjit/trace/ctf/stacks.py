"""The stacks of a CTF trace: a file beside those of the records, which have the numbers of stacks.

It is `.stacks.jsonl` in the directory of the trace: viewers take no hidden file for one of records.
Each line is `{"stack": NUMBER, "frames": […], "end": ""}`, as markerjit/frames.py has a stack. A
line is written before the packet of the first record that has its number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

from markerjit.frames import StackText
from markerjit.trace.header import LARGEST, parse_json, whole
from markerjit.trace.reading import open_to_read

FILE = ".stacks.jsonl"
_LONGEST = 1 << 20
"""Characters of a line that are read."""


class StackFile:
    """The file of a trace that is being written; made when the first stack comes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: TextIO | None = None
        self._written: set[int] = set()

    def add(self, stacks: Mapping[int, str]) -> None:
        """Have these stacks in the file, by their numbers. Raises OSError."""
        new = {number: text for number, text in stacks.items() if number not in self._written}
        if not new:
            return
        if self._file is None:
            self._file = (self._folder / FILE).open("x", encoding="utf-8")
        for number, text in new.items():
            if StackText(text).frames:
                self._file.write(f'{{"stack":{number},{text[1:]}\n')
        self._file.flush()
        self._written |= new.keys()

    def close(self) -> None:
        """End it."""
        if self._file:
            self._file.close()


def read_stacks(folder: Path, complain: Callable[[str], None]) -> dict[int, StackText]:
    """The stacks of a trace, by their numbers; none where it has no such file. Raises BadTrace for
    a file that cannot be read."""
    path = folder / FILE
    if not path.exists():
        return {}
    stacks: dict[int, StackText] = {}
    with open(open_to_read(str(path)), encoding="utf-8", errors="backslashreplace") as file:
        while line := file.readline(_LONGEST):
            try:
                document = parse_json(line)
                number = whole(document["stack"], 1, LARGEST)
                stacks[number] = StackText.of_document(document)
            except (ValueError, TypeError, KeyError):
                complain("a stack of it makes no sense, or is cut off")
    return stacks

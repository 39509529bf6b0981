"""Files of the kernel as text."""

from __future__ import annotations

from markerjit.errors import refuse_own_shortage


def text_of(path: str) -> str:
    """The text of a file, "" where it cannot be read. Raises MarkerError where we lack descriptors
    or memory, which says nothing about the file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as error:
        refuse_own_shortage(error)
        return ""

"""Text for people: what a terminal shows as it stands, and counts.

Names, formats, paths and command lines come out of a target or a trace file. One of them may hold
an escape sequence, which would move the cursor or change the window's title, or a newline, which
would forge a line of ours. Everything that is printed for people passes through here; JSON has
escapes of its own.
"""

from __future__ import annotations


def printable(text: str) -> str:
    r"""The text with every character that is not printable as a Python escape, such as `\x1b`.

    Control and format characters, all white space but the plain space, surrogates, and code points
    without a character count as not printable (str.isprintable). The result has one line.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def counted(number: int, noun: str) -> str:
    """`1 site`, `2 sites`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")

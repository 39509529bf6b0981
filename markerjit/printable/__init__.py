"""Text that is safe to print on a terminal, and numbers with their nouns.

Names, formats, paths and command lines come from a target or a trace file. They may hold an escape
sequence, which would move the cursor or change the window's title, or a newline, which would forge
a line of ours. Everything that is printed as text passes through here; JSON has escapes of its own.
Tables for notebooks are in `html`, which nothing else imports.
"""

from __future__ import annotations


def printable(text: str) -> str:
    r"""The text on one line, with a Python escape such as `\x1b` for each unprintable character.

    Unprintable are control and format characters, all white space but the plain space, surrogates,
    and unassigned code points (str.isprintable).
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def counted(number: int, noun: str) -> str:
    """A number with its noun, and separators of thousands: `1 site`, `2,000 sites`."""
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")

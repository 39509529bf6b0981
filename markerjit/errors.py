"""Every exception that markerjit raises on purpose.

Their common base is `MarkerError`. An error carries its facts as attributes. Its message says in
one line what happened, where, and what to do about it. The command line prints that line and exits
with 1. Any other exception that escapes is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

import errno
from enum import Enum

from markerjit.printable import printable

_BEFORE_CARET = 60
"""Characters of an expression that are shown before a place in it, and from that place on."""
_MOST_SHOWN = 200
"""Characters of a name that are shown."""
_MOST_FIELDS = 20
"""Names of fields that are shown, where none of them is like the one that is asked for."""


class Reason(Enum):
    """Why a site is not switched, as a class that can be counted; the sentence is separate."""

    ALWAYS_ON = "always on"
    PROGRAMS_PROBE = "a probe of the program's own"
    SHARED_CODE = "code in a shared mapping"
    TWO_FORMATS = "two formats for one slot"
    ALTERED_CODE = "altered code"
    FOREIGN_BREAKPOINT = "a breakpoint of another tool"
    OTHER_MODE = "a mode that the site does not have"
    QUIESCENCE = "the strategy does not cover it"
    NOT_ITS_CHANGE = "a change that the protocol is not for"
    NO_PROTOCOL = "no protocol covers it"
    NO_OPENING = "no way to open it"
    NO_STUB = "no stub yet"
    NEEDS_BREAKPOINT = "a breakpoint that nobody asked for"
    NO_QUESTION = "the question cannot be asked of it"
    BAD_NOTE = "a note that is not understood"
    HELD = "held by a reader or a flight recorder"
    OTHER = "other"

    def __str__(self) -> str:
        return self.value


class MarkerError(Exception):
    """The base of all errors: something could not be done, and the target is unchanged."""

    def __str__(self) -> str:
        return printable(super().__str__())  # a name or a path in it may be anybody's


class BadArgument(MarkerError, ValueError):
    """An argument has the wrong type, or is out of range. Nothing was read or opened."""

    def __init__(self, name: str, value: object, expected: str) -> None:
        super().__init__(f"{name} is {_short(value)}; it must be {expected}")
        self.name = name
        self.value = value


def _short(value: object) -> str:
    """Any value as one short printable line."""
    try:
        text = repr(value)
    except Exception:  # __repr__ of a foreign type may raise anything
        text = f"a {type(value).__name__}"
    return _cut(text, 60)


def shown(name: str) -> str:
    """A name of any length as a message shows it."""
    return _cut(name, _MOST_SHOWN)


def _cut(text: str, most: int) -> str:
    return f"{text[:most]}…" if len(text) > most else text


def _printable(text: str) -> str:
    """The text with one cell for each character, so that carets stand below the right ones."""
    return "".join(char if char.isprintable() else "?" for char in text)


class NoSuchProcess(MarkerError):
    """There is no process with this pid. `ended` is True where it is known to have existed."""

    def __init__(self, pid: int, *, ended: bool = False) -> None:
        message = f"process {pid} has ended" if ended else f"no process {pid}; has it ended?"
        super().__init__(message)
        self.pid = pid
        self.ended = ended


class NotPermitted(MarkerError):
    """The kernel does not permit reading or stopping the target. The message names the rule."""


class Unsupported(MarkerError):
    """The target, or a place named in it, is of a kind that markerjit does not support.

    Examples are 32-bit programs, seccomp, and functions.
    """


class NoMarkers(MarkerError):
    """The process or file has no markers."""


class UnknownMarker(MarkerError):
    """No marker, or no USDT probe, has a name that matches the pattern."""

    def __init__(
        self, pattern: str, nearest: tuple[str, ...] = (), *, what: str = "marker", advice: str = ""
    ) -> None:
        hint = f"; did you mean {' or '.join(nearest)}?" if nearest else advice and f"; {advice}"
        super().__init__(f"no {what} matches '{shown(pattern)}'{hint}")
        self.pattern = pattern
        self.nearest = nearest


class BadMaps(MarkerError):
    """A line of /proc/PID/maps is not as proc(5) specifies it."""

    def __init__(self, line: str) -> None:
        super().__init__(f"cannot understand this line of /proc/PID/maps: {line!r}")
        self.line = line


class BadFile(MarkerError):
    """A file or a mapped object is not a valid ELF object of the expected kind."""


class BadNote(MarkerError):
    """A marker's note is truncated, corrupt or of an unknown version.

    name  the USDT probe, `provider:name`, that the note is of; "" where that is not known
    """

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class BadTrace(MarkerError):
    """A file is not a trace, or does not conform to its format."""


class BadQuestion(MarkerError):
    """An expression cannot be asked: it is malformed, or does not fit the fields that exist.

    The message is one sentence. The expression with carets under the place, and the names that
    exist, are notes of the exception, a line each.

    text        the expression
    start, end  the place in it, in characters
    names       the names that exist; () where they do not matter
    """

    def __init__(
        self, sentence: str, text: str, start: int, end: int, names: tuple[str, ...] = ()
    ) -> None:
        super().__init__(sentence)
        self.text = text
        self.start = start
        self.end = end
        self.names = names
        if not text.strip():
            return
        low = max(0, start - _BEFORE_CARET)
        before, marked, behind = (
            _printable(part) for part in (text[low:start], text[start:end], text[end:])
        )
        behind = behind[: max(0, _BEFORE_CARET - len(marked))]
        self.add_note(f"  {before}{marked[:_BEFORE_CARET]}{behind}")
        carets = "^" * max(1, _cells(marked[:_BEFORE_CARET]))
        self.add_note(f"  {' ' * _cells(before)}{carets}")
        if names:
            self.add_note(f"names: {_printable(', '.join(names))}")


def _cells(text: str) -> int:
    """The cells of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(char) else 1 + (east_asian_width(char) in ("W", "F")) for char in text
    )


class MemoryFault(MarkerError):
    """An address of the target cannot be read or written."""

    def __init__(self, address: int, size: int, doing: str, reason: str) -> None:
        super().__init__(f"cannot {doing} {size} bytes at {address:#x}: {reason}")
        self.address = address
        self.size = size


class UnexpectedBytes(MarkerError):
    """A site does not hold the bytes that its note says; nothing was written there.

    `fact` is the message without the advice. `is_breakpoint` is True where the first byte is a
    breakpoint that is not ours.
    """

    def __init__(
        self,
        address: int,
        found: bytes,
        expected: bytes,
        where: str = "",
        *,
        is_breakpoint: bool = False,
    ) -> None:
        at = f"{address:#x} ({where})" if where else f"{address:#x}"
        if is_breakpoint:
            self.fact = (
                f"{at} holds {found[:1].hex()}: a breakpoint of another tool (gdb? a uprobe?)"
            )
            advice = "remove it there and try again"
        else:
            self.fact = f"{at} holds {found.hex(' ')}, expected {expected.hex(' ')}"
            advice = "has another tool patched it?"
        super().__init__(f"{self.fact}; {advice}")
        self.is_breakpoint = is_breakpoint
        self.reason = Reason.FOREIGN_BREAKPOINT if is_breakpoint else Reason.ALTERED_CODE
        self.address = address
        self.found = found
        self.expected = expected


class Refused(MarkerError):
    """A request was refused.

    `sentence` is the message, `reason` its class, which can be counted. `try_again` says whether
    the same request may succeed later.
    """

    def __init__(
        self, sentence: str, *, reason: Reason = Reason.OTHER, try_again: bool = False
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.reason = reason
        self.try_again = try_again


class NoMatch(Refused):
    """No process matches the request."""


class UnknownField(Refused):
    """No marker that is meant has a field of this name. `names` are the fields that there are."""

    def __init__(self, field: str, names: tuple[str, ...], *, of: str = "") -> None:
        from difflib import get_close_matches

        near = get_close_matches(field, names)
        others = f" and {len(names) - _MOST_FIELDS} more" if len(names) > _MOST_FIELDS else ""
        known = ", ".join(sorted(names)[:_MOST_FIELDS]) or "none"
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {known}{others}"
        super().__init__(f"no marker{of} has a field {shown(field)}; {hint}")
        self.field = field
        self.names = names


class ChangeFailed(MarkerError):
    """The system prevented a change of the target; what had been written was rolled back.

    `index` is the edit that failed.
    """

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


class NotVerified(ChangeFailed):
    """An edit did not read back as it was written; all was rolled back. `found` is what was
    read."""

    def __init__(self, index: int, found: bytes) -> None:
        super().__init__(
            f"edit {index} read back as {found.hex(' ')} after writing; all was rolled back", index
        )
        self.found = found


class NotRolledBack(ChangeFailed):
    """An edit could not be rolled back, so the change is half done.

    The journal in the target has all of it, for `markerjit repair`.
    """

    def __init__(self, pid: int, index: int, reason: str) -> None:
        super().__init__(
            f"edit {index} COULD NOT be rolled back ({reason}); what was to be written is in the "
            f"journal: markerjit repair {pid}",
            index,
        )
        self.pid = pid


class TargetGone(MarkerError):
    """The target ended while we worked on it, or executed another program."""

    def __init__(self, pid: int, how: str = "has ended") -> None:
        super().__init__(f"process {pid} {how}")
        self.pid = pid


def refuse_own_shortage(error: OSError) -> None:
    """Raise MarkerError for an error that is about our own resources and not about the file.

    A controller without a free descriptor can open nothing, whatever the file. Call this before
    taking an OSError for an answer such as "it does not exist".
    """
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        lack = "memory" if error.errno == errno.ENOMEM else "file descriptors"
        raise MarkerError(
            f"markerjit has no {lack} left ({error.strerror}); free some, or raise the limit "
            "(ulimit), and try again"
        ) from None

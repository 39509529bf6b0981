"""Every exception that markerjit raises on purpose.

One root, `MarkerError`. An error carries its facts as attributes; its message says what happened,
where, and what to do about it, in one line. The command line prints that line and exits with 1.
Anything else that escapes is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

import errno
from enum import Enum


class Reason(Enum):
    """Why a site is not switched: what can be counted, beside the sentence that says it."""

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
    HELD = "held by a reader or a flight recorder"
    OTHER = "other"

    def __str__(self) -> str:
        return self.value


class MarkerError(Exception):
    """The root: something could not be done, and the target is as it was."""


class BadArgument(MarkerError, ValueError):
    """An argument of the wrong type, or out of range. Nothing was looked at or opened."""

    def __init__(self, name: str, value: object, wanted: str) -> None:
        super().__init__(f"{name} is {_short(value)}; it has to be {wanted}")
        self.name = name
        self.value = value


def _short(value: object) -> str:
    """A value in one printable line, whatever it is."""
    try:
        shown = repr(value)
    except Exception:  # of somebody else's type
        shown = f"a {type(value).__name__}"
    shown = _printable(shown)
    return f"{shown[:60]}…" if len(shown) > 60 else shown


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else "?" for one in text)


class NoSuchProcess(MarkerError):
    """There is no process with this number, or it has ended: `ended`, where that is known."""

    def __init__(self, pid: int, *, ended: bool = False) -> None:
        said = f"process {pid} has ended" if ended else f"no process {pid}; has it ended?"
        super().__init__(said)
        self.pid = pid
        self.ended = ended


class NotPermitted(MarkerError):
    """The kernel does not let us look at or stop the target; the message says which rule."""


class Unsupported(MarkerError):
    """The target, or what is named in it, is of a kind that markerjit does not work on (32-bit,
    seccomp; functions …)."""


class NoMarkers(MarkerError):
    """The process or file has no markers."""


class UnknownMarker(MarkerError):
    """No marker has a name that matches the pattern."""

    def __init__(self, pattern: str, nearest: tuple[str, ...] = ()) -> None:
        hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
        super().__init__(f"no marker matches '{_printable(pattern)}'{hint}")
        self.pattern = pattern
        self.nearest = nearest


class BadMaps(MarkerError):
    """A line of /proc/PID/maps is not as proc(5) lays it down."""

    def __init__(self, line: str) -> None:
        super().__init__(f"cannot understand this line of /proc/PID/maps: {line!r}")
        self.line = line


class BadFile(MarkerError):
    """A file or a mapped object is not the ELF that it should be."""


class BadNote(MarkerError):
    """A marker's note is truncated, corrupt or of an unknown version."""


class BadTrace(MarkerError):
    """A file is not a trace, or is not as its format lays it down."""


class MemoryFault(MarkerError):
    """An address of the target cannot be read or written."""

    def __init__(self, address: int, size: int, doing: str, reason: str) -> None:
        super().__init__(f"cannot {doing} {size} bytes at {address:#x}: {reason}")
        self.address = address
        self.size = size


class UnexpectedBytes(MarkerError):
    """A site does not hold what its note says; nothing was written there.

    `fact` is the message without the advice. `is_breakpoint`: the first byte is a breakpoint that
    is not ours.
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
    """A request was refused: the sentence, the reason in a word that can be counted, and whether
    the same request may succeed later."""

    def __init__(
        self, sentence: str, *, reason: Reason = Reason.OTHER, try_again: bool = False
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.reason = reason
        self.try_again = try_again


class ChangeFailed(MarkerError):
    """The system did not let a change of the target be made; what had been written was rolled back.

    `index` is the edit at which it was given up.
    """

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


class NotVerified(ChangeFailed):
    """An edit did not read back as it was written; all was rolled back. `found` was there."""

    def __init__(self, index: int, found: bytes) -> None:
        super().__init__(
            f"edit {index} read back as {found.hex(' ')} after writing; all was rolled back", index
        )
        self.found = found


class NotRolledBack(ChangeFailed):
    """The one change that is left half done: an edit could not be taken back. The journal in the
    target has all of it, for `markerjit repair`."""

    def __init__(self, pid: int, index: int, reason: str) -> None:
        super().__init__(
            f"edit {index} COULD NOT be rolled back ({reason}); what was to be written is in the "
            f"journal: markerjit repair {pid}",
            index,
        )
        self.pid = pid


class TargetGone(MarkerError):
    """The target ended while we worked on it, or gave its memory up for another program."""

    def __init__(self, pid: int, how: str = "has ended") -> None:
        super().__init__(f"process {pid} {how}")
        self.pid = pid


def refuse_own_shortage(error: OSError) -> None:
    """Raise MarkerError for an error that is about us and not about what was looked at.

    A controller without a free descriptor can open nothing, which says nothing of the file. Call
    this before an OSError is taken for an answer such as "it is not there".
    """
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        lack = "memory" if error.errno == errno.ENOMEM else "file descriptors"
        raise MarkerError(
            f"markerjit has no {lack} left to look with ({error.strerror}); close some, or raise "
            "the limit (ulimit), and try again"
        ) from None

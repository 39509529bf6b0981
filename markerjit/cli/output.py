"""Lines, tables and JSON on standard output, and remarks on standard error.

What comes from a target or a file may be in any of it, so that everything is made printable here.
"""

from __future__ import annotations

import io
import os
import re
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import TYPE_CHECKING

from markerjit.errors import MarkerError
from markerjit.facts.markers import left_out_lines
from markerjit.printable import printable

if TYPE_CHECKING:
    from typing import TextIO

    from markerjit import LeftOut, MarkerStatus, StrayHead, View
    from markerjit.lowlevel import RecordType

_NARROWEST = 8
"""Characters that are left of a column, however narrow the terminal is."""
_NARROWEST_FOLDED = 20
"""Characters of a column whose texts are folded."""
_STRAYS = 20
"""Lines of stray heads at most: an object may have had thousands."""


COLOURS = ("auto", "always", "never")
"""When --color has colours: where they are shown, always, never."""
HEAD, GOOD, BAD, DIM, NAME = "1", "32", "31", "2", "36"
"""Roles, as parameters of SGR: bold, green, red, faint, cyan."""
_colour = "auto"
_is_paged = False
"""Whether standard output is a terminal by way of a pager."""
_EVENT = rb"^((?:\d+ )?[\d:.#]+ cpu\d+ \d+) (\S+)"
"""Compiled when it is used: few commands print events."""
_NUMBER = re.compile(r"[-+]?\d[-+\d.,]*(?:e[-+]?\d+)?(?:%| \(\d[\d.]*%\))?")
"""Also a part in percent, alone or behind a number: `12 (0.3%)`."""
_SGR = re.compile(r"\x1b\[[\d;]*m")


def set_colour(when: str) -> None:
    """Have colours as --color says."""
    global _colour
    _colour = when


def say(line: str, *, error: bool = False, style: str = "", hanging: int | None = None) -> None:
    """Print a line on standard output, or on standard error. A terminal gets it in as many lines as
    it needs, broken at blanks; those behind the first one are indented by `hanging`, or else by two
    more than the first. `style` is the parameters of SGR, the sequence that sets a
    terminal's colours (ECMA-48, 8.3.117), for this line."""
    stream = sys.stderr if error else sys.stdout
    for part in folded(printable(line), width(stream), hanging):
        print(f"\x1b[{style}m{part}\x1b[0m" if style else part, file=stream)


def folded(line: str, room: int | None, hanging: int | None = None) -> list[str]:
    """The line in lines that have room, broken at blanks. A word that has no room alone is whole,
    so that it can be copied."""
    if room is None or len(line) <= room:
        return [line]
    import textwrap

    indent = " " * (len(line) - len(line.lstrip()) + 2 if hanging is None else hanging)
    return textwrap.wrap(
        line, room, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def print_checked(*texts: str) -> None:
    """Print text that is our own, or of which each character was checked before."""
    print(*texts, sep="\n")


class Picture:
    """Lines on a terminal that are drawn again and again in their own place. What stood above them
    stays, and so does what has left the screen."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    @contextmanager
    def drawn(self, *, whole: bool = False) -> Iterator[None]:
        """What is printed within replaces the picture, as far as the terminal has lines: those at
        the end are left away. The last picture may be `whole`, and scroll."""
        lines = _OnTerminal()
        with redirect_stdout(lines), ExitStack() as remarks:
            if is_one_terminal():  # else a remark would move the picture
                remarks.enter_context(redirect_stderr(lines))
            yield
        shown = lines.getvalue().splitlines()
        rows = sum(map(_rows, shown))
        while shown and not whole and rows >= height():
            rows -= _rows(shown.pop())
        self._replace(shown)

    @contextmanager
    def above(self) -> Iterator[None]:
        """What is said within on standard error stands above the picture, on its terminal."""
        if not self._lines or not is_one_terminal():
            yield
            return
        remarks = _OnTerminal()
        try:
            with redirect_stderr(remarks):
                yield
        finally:
            if text := remarks.getvalue():
                picture, terminal = self._lines, sys.stderr
                self._replace([])
                print(text, end="", file=terminal, flush=True)
                self._replace(picture)

    def _replace(self, lines: list[str]) -> None:
        """Draw these lines in the place of the picture."""
        rows = sum(map(_rows, self._lines))
        up = f"\x1b[{rows}F" if rows else ""  # CPL: up, to the first column
        # EL clears a line before it is written, since it would take its last character behind it.
        drawn = "".join(f"\x1b[K{line}\n" for line in lines)
        print(f"{up}{drawn}\x1b[J", end="", flush=True)  # ED: all that is below
        self._lines = lines


def _rows(line: str) -> int:
    """The rows of the terminal that a line takes."""
    return max(1, -(-_columns(_SGR.sub("", line)) // _size(sys.stdout).columns))


def _columns(text: str) -> int:
    """The columns of the terminal that a text takes: some letters have two, and some none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(1 + (east_asian_width(char) in "WF") for char in text if not combining(char))


class _OnTerminal(io.StringIO):
    """Text for the terminal that standard output is."""

    def __init__(self) -> None:
        super().__init__()
        self._terminal = sys.stdout

    def isatty(self) -> bool:
        return self._terminal.isatty()

    def fileno(self) -> int:
        return self._terminal.fileno()


def is_one_terminal() -> bool:
    """Whether standard output and standard error are the same terminal, where the one is written
    over the other."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        return False
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):
        return sys.stdout is sys.stderr


def is_coloured() -> bool:
    """Whether standard output takes colours: as --color says, or else a terminal, unless NO_COLOR
    is set."""
    if _colour != "auto":
        return _colour == "always"
    dumb = os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not dumb and not os.environ.get("NO_COLOR")


@contextmanager
def as_on_terminal() -> Iterator[None]:
    """Within, standard output goes to a terminal by way of a pager, with colours as there."""
    global _colour, _is_paged
    before = _colour
    _colour, _is_paged = "always" if is_coloured() else "never", True
    try:
        yield
    finally:
        _colour, _is_paged = before, False


def shown_events(lines: bytes, stacks: Collection[str] = ()) -> bytes:
    """Lines of events as standard output gets them: each cut to the width of a terminal, and with
    colours where those are taken. `stacks` names the fields that are stacks: a terminal gets their
    frames below the event, each on a line of its own."""
    room = width()
    if stacks and (room is not None or _is_paged):
        lines = b"".join(_unfolded(line, stacks) for line in lines.splitlines(keepends=True))
    if room is not None:
        lines = re.sub(b"[^\n]{%d,}" % (room + 1), lambda long: _cut_line(long[0], room), lines)
    if not is_coloured():
        return lines
    return re.sub(_EVENT, b"\x1b[2m\\1\x1b[0m \x1b[36m\\2\x1b[0m", lines, flags=re.MULTILINE)


def names_of_stacks(types: Iterable[RecordType]) -> frozenset[str]:
    """The fields of these types that are stacks."""
    return frozenset(
        field.name for type_ in types for field in type_.fields if str(field.type) == "stack"
    )


def _unfolded(line: bytes, stacks: Collection[str]) -> bytes:
    """The line of an event, and a line for each frame of its stacks."""
    for name in stacks:
        field = re.search(b' %s="((?:[^"\\\\]|\\\\.)*)"' % re.escape(name).encode(), line)
        if field:
            *frames, last = field[1].split(b" < ")
            below = [*frames, *re.split(rb" (?=\[)", last)]
            line = line[: field.start()] + line[field.end() :]
            line += b"".join(b"    %s\n" % each for each in below)
    return line


def _cut_line(line: bytes, room: int) -> bytes:
    """A line of UTF-8, cut to so many characters."""
    text = line.decode(errors="replace")
    return _cut(text, room).encode() if len(text) > room else line


def width(stream: TextIO | None = None) -> int | None:
    """The columns of the terminal that a stream is, standard output if none is given; None where it
    is none: nothing is cut or folded then."""
    stream = stream or sys.stdout
    return _size(stream).columns if stream.isatty() else None


def height() -> int:
    """The lines of the terminal that standard output is."""
    return _size(sys.stdout).lines


def _size(stream: TextIO) -> os.terminal_size:
    """The size of a terminal, or what COLUMNS and LINES say in its place. Some terminals have no
    size: that is 80 columns and 24 lines. shutil has the same, with all kinds of compression."""
    columns, lines = (os.environ.get(name, "") for name in ("COLUMNS", "LINES"))
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        size = os.terminal_size((0, 0))
    return os.terminal_size(
        (
            (int(columns) if columns.isdecimal() else 0) or size.columns or 80,
            (int(lines) if lines.isdecimal() else 0) or size.lines or 24,
        )
    )


def print_json(document: object) -> None:
    """Print a document on one line, in ASCII: a terminal obeys other characters, and an encoding
    may not have them. It is written at once, since a program that was started may write, too."""
    import json

    sys.stdout.write(json.dumps(document) + "\n")


def print_progress(text: str) -> None:
    """Replace the line on standard error, which has to be a terminal; "" removes it."""
    shown = _cut(printable(text), _size(sys.stderr).columns - 1)
    print(f"\r{shown}\x1b[K", end="", file=sys.stderr, flush=True)


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    may_be_cut: Sequence[int] | None = None,
    fold_last: bool = False,
) -> None:
    """Print columns as wide as they need, a column of numbers aligned to the right.

    Where a terminal has no room the ends of texts are left away, of the widest column first: all
    but those of numbers, or those that `may_be_cut`, by their places. Of a source, which ends in
    its file and line, the beginning is left away. With `fold_last` the texts of the last column are
    sentences: nothing of them is left away, they get more lines. Where even that is not enough,
    each row is printed as lines of a name and a value."""
    rows = [[printable(cell) for cell in row] for row in rows]
    columns = list(zip(header, *rows, strict=True))
    numeric = [_are_numbers(column[1:]) for column in columns]
    texts = [place for place, is_numeric in enumerate(numeric) if not is_numeric]
    widths = [max(map(len, column)) for column in columns]
    if fold_last:
        _narrow_last(widths)
    elif not _fit(widths, texts if may_be_cut is None else may_be_cut):
        _print_blocks(header, rows)
        return
    for number, row in enumerate((header, *rows)):
        last = folded(row[-1], widths[-1]) if fold_last else [row[-1]]
        _print_row([*row[:-1], last[0]], header, widths, numeric, is_header=not number)
        for more in last[1:]:
            print_checked(" " * (sum(widths[:-1]) + 2 * (len(widths) - 1)) + more)


def _print_row(
    row: Sequence[str],
    header: Sequence[str],
    widths: Sequence[int],
    numeric: Sequence[bool],
    *,
    is_header: bool,
) -> None:
    shown = [
        _shortened(name, cell, width) for name, cell, width in zip(header, row, widths, strict=True)
    ]
    cells = [
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(shown, widths, numeric, strict=True)
    ]
    cells[-1] = cells[-1].rstrip()
    if is_coloured():
        roles = [
            HEAD if is_header else _role(name, cell) for name, cell in zip(header, row, strict=True)
        ]
        cells = [
            f"\x1b[{role}m{cell}\x1b[0m" if role else cell
            for role, cell in zip(roles, cells, strict=True)
        ]
    print_checked("  ".join(cells).rstrip())


def _print_blocks(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    names = max(map(len, header))
    for number, row in enumerate(rows):
        if number:
            print_checked("")
        for name, cell in zip(header, row, strict=True):
            say(f"{name.ljust(names)}  {cell}".rstrip())


def _role(column: str, cell: str) -> str:
    """The colour of a cell: of what is on and what is wrong, and of names."""
    if column in ("MARKER", "PROBE", "FUNCTION"):
        return NAME
    if column != "STATE":
        return ""
    if "altered" in cell or "not all" in cell:
        return BAD
    return GOOD if cell.startswith("on") else DIM


def _fit(widths: list[int], may_be_cut: Sequence[int]) -> bool:
    """Make columns narrower until a terminal has room for them. Returns whether it has."""
    room = width()
    while room is not None and sum(widths) + 2 * (len(widths) - 1) > room:
        widest = max(may_be_cut, key=widths.__getitem__, default=None)
        if widest is None or widths[widest] <= _NARROWEST:
            return False
        widths[widest] -= 1
    return True


def _narrow_last(widths: list[int]) -> None:
    """Leave the last column what a terminal has room for beside the others."""
    room = width()
    if room is not None:
        left = room - sum(widths[:-1]) - 2 * (len(widths) - 1)
        widths[-1] = min(widths[-1], max(left, _NARROWEST_FOLDED))


def _shortened(column: str, cell: str, width: int) -> str:
    """A cell with room in its column."""
    if column == "SOURCE" and len(cell) > width:
        return f"…{cell[len(cell) - width + 1 :]}"
    return _cut(cell, width)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def line_of_process(pid: int, line: str, *, json: bool) -> str:
    """The line of an event, with its pid and its newline, where several processes have events."""
    return f'{{"pid": {pid}, {line[1:]}\n' if json else f"{pid} {line}\n"


class LeftOutOfAll:
    """The markers that matched and were left as they were, in one process or in several that come
    together or one after the other. What is left out alike is said once, on standard error."""

    def __init__(self) -> None:
        self._said: dict[LeftOut, None] = {}

    @property
    def markers(self) -> tuple[LeftOut, ...]:
        """All of them so far."""
        return tuple(self._said)

    def print(self, left_out: Iterable[LeftOut]) -> None:
        """Say what was not said before."""
        new = [marker for marker in dict.fromkeys(left_out) if marker not in self._said]
        self._said |= dict.fromkeys(new)
        for line in left_out_lines(new):
            say(f"markerjit: left out: {line}", error=True)


def print_left_out(left_out: Iterable[LeftOut]) -> None:
    """Say what all processes of a request have left out, where no others come."""
    LeftOutOfAll().print(left_out)


def usdt_remarks(session: View, pattern: str) -> Sequence[str]:
    """What is to be said of the USDT probes of a pattern that are on in vain in a process, in
    sentences. Nothing where it has ended."""
    with suppress(MarkerError):
        return [
            f"the program passes {name} only while {other} is on, too: '{name},{other}'"
            for name, other in session.usdt_needs(pattern)
        ]
    return ()


def print_remarks_of(sessions: Iterable[View], pattern: str) -> None:
    """Say the same of the processes that are open."""
    print_remarks(each for session in sessions for each in usdt_remarks(session, pattern))


def print_remarks(remarks: Iterable[str]) -> None:
    """Say these sentences on standard error, of all processes once."""
    for remark in sorted(set(remarks)):
        say(f"markerjit: {remark}", error=True)


def print_questions(markers: Iterable[MarkerStatus]) -> None:
    """Print a line for each question that is asked before probes, with its markers, and for each
    aggregate."""
    from markerjit.facts.words import brakes_words, name_words  # they are there anyway

    asked: dict[str, list[str]] = {}
    for marker in markers:
        question = f"where {marker.where}" if marker.where else ""
        if marker.select:
            question = f"select {marker.select} {question}".rstrip()
        question = f"{brakes_words(marker)} {question}".strip()
        if question:
            asked.setdefault(question, []).append(marker.name)
        if marker.aggregate:
            asked.setdefault(f"added up, {marker.aggregate}", []).append(marker.name)
    for question, names in asked.items():
        say(f"{question}: {', '.join(map(name_words, names))}")


def print_deadlines(markers: Iterable[MarkerStatus]) -> None:
    """Print a line for each time at which markers will be off again, with them."""
    from markerjit.facts.words import name_words  # with the markers it is there anyway

    by_time: dict[int, list[str]] = {}
    for marker in markers:
        if marker.until:
            by_time.setdefault(marker.until, []).append(marker.name)
    for until, names in sorted(by_time.items()):
        say(f"until {moment(until)}: {', '.join(map(name_words, names))}")


def moment(seconds: float) -> str:
    """A time of CLOCK_REALTIME as a reader of today needs it: `14:03:05`, with its date where that
    is another day's, as ISO 8601 has it."""
    at, now = time.localtime(seconds), time.localtime()
    form = "%H:%M:%S" if at[:3] == now[:3] else "%Y-%m-%dT%H:%M:%S"
    return time.strftime(form, at)


def print_altered(markers: Iterable[MarkerStatus]) -> None:
    """Say what stands at sites whose code is neither off nor on, a line each."""
    for marker in markers:
        for problem in marker.altered:
            say(f"altered: {problem.fact}")


def print_strays(strays: Sequence[StrayHead]) -> None:
    """Say which heads belong to no marker, and what to do about each, a line each."""
    for stray in strays[:_STRAYS]:
        say(f"stray head: {stray.sentence}; {stray.advice}")
    if len(strays) > _STRAYS:
        say(f"stray head: {len(strays) - _STRAYS} more; --json shows all")


def offer_repair(view: View) -> None:
    """Say on standard error what a dead controller left, or why the runtime that is there cannot be
    used, and what to do."""
    if view.runtime_problem:
        say(f"markerjit: {view.runtime_problem}", error=True)
    status = view.arena()
    if status and status.to_mend:
        say(f"markerjit: {status.to_mend}: markerjit repair {view.pid}", error=True)


def grouped(value: int | float) -> str:
    """A number as people read it, with separators of thousands; a float without its fraction."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}"


def _are_numbers(cells: Sequence[str]) -> bool:
    """Whether a column is of numbers; `-` stands where there is none."""
    numbers = [cell for cell in cells if cell != "-"]
    return all(map(_is_number, numbers)) and (bool(numbers) or not cells)


def _is_number(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text))

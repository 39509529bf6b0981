"""The contents of a live view as lines of text. Each piece of a line has a role, and the terminal
has a style for each role. Colour alone never tells a role.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum

from markerjit.printable import counted, printable
from markerjit.tuples import NamedTuple
from markerjit.watch.model import Detail, Piece, Row, Shown

_BARS = "▁▂▃▄▅▆▇█"
_UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_INDENT = " " * 4
_ROOMY = 24
_MOST_BARS = 40


class Role(StrEnum):
    """The role of a piece of text."""

    PLAIN = "plain"
    TITLE = "title"
    FAINT = "faint"
    ON = "on"
    BAD = "bad"
    LIT = "lit"
    NEXT = "next"


class Span(NamedTuple):
    """A piece of a line."""

    text: str
    role: Role = Role.PLAIN


Line = tuple[Span, ...]


def number(value: float | None) -> str:
    """A number in at most five characters: `12.3k`; `-` where there is none."""
    if value is None:
        return "-"
    for size, unit in _UNITS:
        if value >= size * 0.9995:
            scaled = value / size
            return f"{scaled:.0f}{unit}" if scaled >= 99.95 else f"{scaled:.1f}{unit}"
    return f"{value:.0f}"


def sparkline(rates: Sequence[float], width: int) -> str:
    """The last rates as bars on a scale up to the highest of them, with a dot for a rate of 0.
    Empty where all rates are 0."""
    shown = rates[-width:] if width > 0 else ()
    most = max(shown, default=0.0)
    if not any(shown):
        return ""
    return "".join(
        _BARS[min(int(rate / most * len(_BARS)), len(_BARS) - 1)] if rate > 0 else "·"
        for rate in shown
    ).rjust(width)


def state_of(row: Row) -> Span:
    """The state of a marker: `off`, or its mode and probe. A star means that this view has switched
    it on, and a plus that it stays on when the view ends."""
    mark = "" if not row.is_mine else "+" if row.is_kept else "*"
    if row.is_altered:
        return Span(f"! {row.state}{mark}", Role.BAD)
    return Span(f"● {row.state}{mark}", Role.ON) if row.is_on else Span("○ off", Role.FAINT)


def heading(shown: Shown, command: str, width: int) -> str:
    """The first line: the process, and the number of markers that are on."""
    on = sum(row.is_on for row in shown.rows)
    counts = f"{on} of {counted(len(shown.rows), 'marker')} on"
    process = f"pid {shown.pid}"
    room = width - len(counts) - 2
    if room < len(process):
        return process[:width]
    return f"{f'{process} {printable(command)}'[:room]:<{room}}  {counts}"


def detail_lines(detail: Detail | None, width: int, height: int) -> list[Line]:
    """A marker in detail: sections, each with a title that says what it has. Where there are few
    lines, only the writing steps of a switch are shown."""
    if detail is None:
        return [(Span("no marker is chosen", Role.FAINT),)]
    lines = [
        *_facts(detail),
        *_counts(detail),
        *_code(detail),
        *_steps(detail, brief=height < _ROOMY),
        *_slots(detail),
        *_events(detail),
    ]
    return [piece for line in lines for piece in wrapped(line, width)]


def wrapped(line: Line, width: int) -> Iterator[Line]:
    """The lines that a line makes in this width, in characters. It is broken between words where
    possible, and the lines after the first are indented."""
    part: list[Span] = []
    room = max(width, len(_INDENT) + 1)
    width = room
    for span in line:
        text = span.text
        while len(text) > room:
            at = text.rfind(" ", 1, room + 1)
            at = at if at > 0 else 0 if part and len(text) <= width - len(_INDENT) else room
            part.append(Span(text[:at].rstrip(), span.role))
            yield tuple(part)
            part, text = [Span(_INDENT)], text[at:].lstrip()
            room = width - len(_INDENT)
        part.append(Span(text, span.role))
        room -= len(text)
    yield tuple(part)


def _facts(detail: Detail) -> Iterator[Line]:
    row = detail.row
    more = f" and {counted(detail.more_sites, 'more site')}" if detail.more_sites else ""
    yield (
        Span(printable(row.name), Role.TITLE),
        Span(f'  "{printable(detail.format)}"', Role.FAINT),
    )
    yield (Span(f"{printable(detail.source)}{more}, compiled as {detail.kind}"),)
    yield (state_of(row), Span(f"  {who(detail)}"))
    yield (
        Span(f"hits {row.hits:,}  lost {row.lost:,}", Role.BAD if row.lost else Role.PLAIN),
        Span("" if row.cost_ns is None else f"  {row.cost_ns:.1f} ns a hit (bench)"),
        Span("  journal ", Role.FAINT),
        Span(detail.journal),
    )


def who(detail: Detail) -> str:
    """The controller that has switched a marker on, the time of that, and when it ends. Empty for
    a marker that is off."""
    if not detail.row.is_on:
        return ""
    since = _time_of_day(detail.since)
    if detail.row.is_mine:
        end = "stays on" if detail.row.is_kept else "off"
        return f"by this view since {since}; {end} when it ends"
    return f"by {detail.holder or 'the program'} since {since}"


def _counts(detail: Detail) -> Iterator[Line]:
    """Counters and histograms of the probe in C. A bar is a bucket with values in it."""
    counts = detail.counts
    if counts is None:
        return
    yield (
        Span("PROBE", Role.TITLE),
        Span(f"  {printable(counts.source)}, in C: what it has counted so far", Role.FAINT),
    )
    for name, value in counts.counters:
        yield (Span(f" {printable(name)} {value:,}"),)
    for histogram in counts.histograms:
        total = sum(histogram.numbers)
        yield (
            Span(f" {printable(histogram.name)} "),
            Span(_histogram_bars(histogram.numbers)),
            Span(
                f" {counted(total, 'value')} from {histogram.low:,} to {histogram.high:,}",
                Role.FAINT,
            ),
        )


def _histogram_bars(numbers: Sequence[int]) -> str:
    """A bar for each bucket, or for each group of neighbours where there are too many buckets."""
    size = -(-len(numbers) // _MOST_BARS)
    sums = [sum(numbers[at : at + size]) for at in range(0, len(numbers), size)]
    return sparkline(sums, len(sums))


def _time_of_day(seconds: int) -> str:
    """Local time as `12:34:56`; `?` for 0, and for a number that is not a time, which the process
    may have written."""
    if seconds:
        with suppress(OverflowError, OSError):
            return time.strftime("%H:%M:%S", time.localtime(seconds))
    return "?"


def _steps(detail: Detail, *, brief: bool) -> Iterator[Line]:
    if not detail.stages:
        return
    made = sum(stage.is_made for stage in detail.stages) - 1
    yield (
        Span("STEPS", Role.TITLE),
        Span(f"  {made} of {counted(len(detail.stages) - 1, 'stage')} made", Role.NEXT),
        Span("; the process runs between them", Role.FAINT),
    )
    for stage in detail.stages:
        mark, role = ("✓", Role.FAINT) if stage.is_made else (" ", Role.PLAIN)
        if stage.number == made + 1:
            mark, role = "▶", Role.NEXT
        for step in stage.steps:
            if step.writes or not brief:
                yield (Span(f" {mark} {step.sentence}", role),)


def _code(detail: Detail) -> Iterator[Line]:
    for place in detail.places:
        yield (
            Span("CODE", Role.TITLE),
            Span(f"  in memory, at {printable(place.source)}", Role.FAINT),
            *_legend(place.code),
        )
        yield from map(_code_line, place.code)


def _slots(detail: Detail) -> Iterator[Line]:
    """The slots, each once: sites of one marker in one object share a slot."""
    for slot in dict.fromkeys(place.slot for place in detail.places if place.slot):
        yield (
            Span("SLOT", Role.TITLE),
            Span("  where the marker's body finds its probe", Role.FAINT),
            *_legend(slot),
        )
        yield from map(_slot_line, slot)


def _legend(pieces: Sequence[Piece]) -> Line:
    """The meaning of brackets, where there are any."""
    if not any(byte.lit for piece in pieces for byte in piece.data):
        return ()
    return Span("  "), Span("[ ] just changed", Role.LIT)


def _bytes(piece: Piece) -> Iterator[Span]:
    """The bytes of a piece. A changed byte is in brackets, so that it is seen without colour."""
    for byte in piece.data:
        text = f"{byte.value:02x}"
        yield Span(f"[{text}]", Role.LIT) if byte.lit else Span(f" {text} ")


def _code_line(piece: Piece) -> Line:
    room = max(5 - len(piece.data), 0) * 4
    return (
        Span(f" {piece.address:12x} ", Role.FAINT),
        *_bytes(piece),
        Span(" " * room + f" {piece.text}"),
    )


def _slot_line(piece: Piece) -> Line:
    value = int.from_bytes(bytes(byte.value for byte in piece.data), "little")
    lit = any(byte.lit for byte in piece.data)
    shown = f"{value:#x}" if value else "0, nothing"
    return (
        Span(f" {piece.address:12x} ", Role.FAINT),
        Span(f" {piece.text:5} "),
        Span(f"[{shown}]" if lit else f" {shown} ", Role.LIT if lit else Role.PLAIN),
    )


def _events(detail: Detail) -> Iterator[Line]:
    if detail.events is None:
        yield (Span("EVENTS", Role.TITLE), Span("  e records them", Role.FAINT))
        return
    yield (Span("EVENTS", Role.TITLE), Span("  the last ones, the newest first", Role.FAINT))
    if not detail.events:
        yield (Span(" none yet", Role.FAINT),)
    for event in reversed(detail.events):
        yield (Span(f" {event}"),)

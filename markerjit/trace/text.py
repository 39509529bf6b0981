"""Lines of text for people, and a reader that turns them into events again.

    # trace {…}                                          the header of the trace (header.py)
    # process 812 (kvserver) on here, since 2023-11-14 22:13:25 +0000
    # marker kv_get "key %s len %zu" kv.c:12             for people, as the line before
    # at 1700000005000000010 ns since 1970               the time of the next event
    22:13:25.000000010 cpu0 812 kv_get key="a" len=1
    # 1 event, 2 lost: 2 kv_get on cpu0
    # summary {…}                                        the summary, as in JSON lines

The offset of the time of day from UTC is the same in all of a file: that of the start of the trace.
Where markers of one name have different fields, the number of an event's type is behind the name,
as in `kv_get#3`.

`trace` prints events on a terminal without the lines that begin with `#`. Such output has neither
dates nor the types of fields. It can still be read, and `problems` says what was guessed. Numbers
are read as they were shown: a float has no more digits than its format gave it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from markerjit.errors import BadTrace
from markerjit.model import Event, Field
from markerjit.printable import printable
from markerjit.ring.clock import NS
from markerjit.ring.types import Time
from markerjit.trace.batch import Batch
from markerjit.trace.files import WholeWriter, last_lines, read_lines, whole_lines
from markerjit.trace.header import (
    LONGEST_TIME,
    for_reading,
    from_json,
    nanoseconds,
    parse_json,
    to_json,
    whole,
)
from markerjit.trace.jsonl import dump, losses_of, summary_to_json
from markerjit.trace.kinds import KIND_MARK, Kinds, ambiguous
from markerjit.trace.lines import DAY_NS
from markerjit.trace.parse import from_text
from markerjit.trace.reading import EventTrace
from markerjit.trace.sink import TraceInfo

if TYPE_CHECKING:
    from markerjit.ring.batch import Columns
    from markerjit.trace.guess import Guess

_TRACE, _SUMMARY = "# trace ", "# summary "
_AT = re.compile(r"# at (-?[0-9]{1,19}) ns since 1970")
_SHIFT = "utc_shift_s"
"""The key of the header for the offset of the time of day from UTC."""


class TextSink:
    """Writes lines of text."""

    def __init__(self, path: str, info: TraceInfo, *, force: bool = False) -> None:
        self._info = info
        self._events = 0
        self._numbered = ambiguous(info.types)
        self._shift_s = time.localtime(info.started_ns // NS).tm_gmtoff
        self._latest: int | None = None
        self._file = WholeWriter(path, whole_lines, force=force)
        header = dump({**to_json(info), _SHIFT: self._shift_s})
        self._write([f"{_TRACE}{header}", *_for_people(info)])

    def write(self, batch: Batch) -> None:
        """Add the events of a batch."""
        from markerjit.trace.records import pieces
        from markerjit.trace.rows import text_lines

        clock = self._info.clock
        for piece in pieces(batch.columns, clock):
            lines = text_lines(piece, clock, self._numbered, shift_s=self._shift_s, bracketed=True)
            self._events += sum(len(columns.time) for columns in piece)
            self._file.write(_with_dates(lines, self._far_apart(piece)))

    def close(self, lost: Mapping[tuple[int, str], int]) -> None:
        """Add the losses and the summary."""
        losses = [f"{count} {name} on cpu{cpu}" for (cpu, name), count in lost.items() if count]
        plural = "" if self._events == 1 else "s"
        line = f"# {self._events} event{plural}, {sum(lost.values())} lost"
        summary = dump(summary_to_json(self._events, lost))
        try:
            self._write(
                [": ".join([line, *filter(None, [", ".join(losses)])]), f"{_SUMMARY}{summary}"]
            )
        finally:
            self._file.close()

    def _write(self, lines: Sequence[str]) -> None:
        self._file.write_text("".join(f"{line}\n" for line in lines))

    def _far_apart(self, piece: Sequence[Columns]) -> list[tuple[int, int]]:
        """The rows of events that need a line with their time since 1970, and these times.

        They are the first event, and events half a day or more from the previous one: their time of
        day does not give the day.
        """
        from markerjit.trace.records import in_order

        if self._info.clock.time is Time.NONE:
            return []
        times, order = in_order(piece, self._info.clock)
        times = times[order]
        offset = self._info.clock.wall_offset_ns
        rows = (abs(times[1:] - times[:-1]) >= DAY_NS // 2).nonzero()[0] + 1
        dated = [(row, int(times[row]) + offset) for row in rows.tolist()]
        first = int(times[0])
        if self._latest is None or abs(first - self._latest) >= DAY_NS // 2:
            dated.insert(0, (0, first + offset))
        self._latest = int(times[-1])
        return dated


def _with_dates(lines: bytes, dates: Sequence[tuple[int, int]]) -> bytes:
    """The lines, with a line before each of these rows that has its time since 1970."""
    pieces, written, row = [], 0, 0
    for before, when in dates:
        at = written
        for _ in range(before - row):
            at = lines.index(b"\n", at) + 1
        pieces += [lines[written:at], f"# at {when} ns since 1970\n".encode()]
        written, row = at, before
    return b"".join([*pieces, lines[written:]])


def _for_people(info: TraceInfo) -> Iterator[str]:
    since = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(info.started_ns // NS))
    yield printable(f"# process {info.pid} ({info.command}) on {info.host}, since {since}")
    if info.clock.time is Time.NONE:
        yield "# no time was recorded: #n is the number of an event in its ring"
    for kind in info.types:
        if kind.format or not kind.fields:
            format_ = json.dumps(kind.format, ensure_ascii=False)
            source = info.sources.get(kind.marker, "")
            yield printable(f"# marker {kind.marker} {format_} {source}".rstrip())


class TextTrace(EventTrace):
    """Lines of text."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._shift_ns = 0
        self._guess: Guess | None = None
        self._fields: dict[str, Sequence[Field]] = {}
        self.info = self._read_header()
        self._kinds = Kinds(self.info.types)
        if not self._has_header:
            self._guess = self._guessed()
            types = self._guess.types(self.info.clock.time)
            self.info = self.info._replace(types=types)
        self._lost = self._read_end()

    @property
    def lost(self) -> Mapping[tuple[int, str], int]:
        return self._lost

    def events(self) -> Iterator[Event]:
        offset = self.info.clock.wall_offset_ns
        now = self.info.started_ns - offset
        for number, (line, is_whole) in enumerate(read_lines(self.path), 1):
            if line.startswith("# "):
                if is_whole and (at := _AT.fullmatch(line)):
                    now = max(min(int(at[1]), LONGEST_TIME), -LONGEST_TIME) - offset
                continue
            if not is_whole:  # its last number may be cut off, too
                self.complain("it is cut off in the middle of a line")
                return
            event = self._event(line)
            if event is None:
                raise BadTrace(f"{self.path}:{number} is not an event: {line[:60]!r}")
            if self.info.clock.time is not Time.NONE:
                # Within half a day of the previous event, in either direction, over midnight too.
                of_day = (now + offset + self._shift_ns) % DAY_NS
                now += (event.time - of_day + DAY_NS // 2) % DAY_NS - DAY_NS // 2
                event = event._replace(time=now)
            yield self._with_origin(self._guess.fitted(event) if self._guess else event)

    def _event(self, line: str) -> Event | None:
        event = from_text(line, self._fields)
        if event is None:
            return None
        name, mark, digits = event.name.partition(KIND_MARK)
        try:
            number = int(digits) if mark else None
            kind = self._kinds.find(name, number if self._has_header else None)
        except ValueError:
            return None
        return self._kinds.marked(event._replace(name=name) if mark else event, kind)

    def _read_header(self) -> TraceInfo:
        self._has_header = False
        clock = Time.MONOTONIC
        for line, is_whole in read_lines(self.path):
            if line.startswith(_TRACE) and is_whole:
                return self._from_header(line.removeprefix(_TRACE))
            if not line.startswith("# "):
                clock = Time.NONE if line.startswith("#") else clock
                break
        if clock is not Time.NONE:
            self.complain("the date is not known, times count from midnight")
        return TraceInfo((), nanoseconds(0, clock), 0, "", "", 0, {})

    def _from_header(self, text: str) -> TraceInfo:
        try:
            header = parse_json(text)
            self._shift_ns = whole(header[_SHIFT], -DAY_NS // NS, DAY_NS // NS) * NS
        except (KeyError, TypeError, ValueError) as error:
            raise BadTrace(f"the header of {self.path} makes no sense: {error!r}") from error
        info = for_reading(from_json(header, self.path))
        self._has_header = True
        numbered = ambiguous(info.types)
        for kind in info.types:
            number = f"{KIND_MARK}{kind.id}" if kind.id in numbered else ""
            self._fields[f"{kind.marker}{number}"] = kind.fields
        return info

    def _read_end(self) -> Mapping[tuple[int, str], int]:
        last = next(iter(last_lines(self.path, 1)), "")
        try:
            summary = parse_json(last.removeprefix(_SUMMARY)) if last.startswith(_SUMMARY) else None
        except ValueError:
            summary = None
        if not isinstance(summary, dict):
            self.complain("it has no end: more may have been lost than is known")
            return {}
        return losses_of(summary, self.path)

    def _guessed(self) -> Guess:
        from markerjit.trace.guess import Guess

        guess = Guess()
        for event in self.events():
            guess.look_at(event)
        self.complain("it does not say what its fields are: types are guessed from their values")
        return guess

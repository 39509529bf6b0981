"""JSON lines: a header, each event as a line as `trace --json` prints it, and a summary.

    {"trace": {…}}                                      the header of the trace (header.py)
    {"time": …, "cpu": …, "tid": …, "name": …, "fields": {…}}
    {"summary": {"events": 2, "lost": 0, "losses": []}}

Where markers of one name have different fields, an event also has the number of its type, as
`kind`. The output of `trace --json` has no header. It can still be read; it is then read twice,
first to guess the types of the records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markerjit.errors import BadTrace
from markerjit.frames import StackText
from markerjit.model import Event, FieldType
from markerjit.ring.types import Time
from markerjit.trace.batch import Batch
from markerjit.trace.files import (
    WholeWriter,
    decoded,
    first_lines,
    last_lines,
    pieces_of_lines,
    read_lines,
    whole_lines,
)
from markerjit.trace.header import (
    checked,
    for_reading,
    from_json,
    is_joint,
    losses_from_json,
    losses_of_process,
    losses_to_json,
    nanoseconds,
    of_several,
    parse_json,
    to_json,
)
from markerjit.trace.kinds import Kinds, ambiguous, fields_of
from markerjit.trace.reading import EVENTS_AT_ONCE, UNKNOWN, EventTrace
from markerjit.trace.sink import TraceInfo
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.batch import Columns
    from markerjit.trace.guess import Guess
    from markerjit.trace.jsonl_columns import Parser

_HEADER = '{"trace": '


class JsonLinesSink:
    """Writes JSON lines."""

    def __init__(self, path: str, info: TraceInfo, *, force: bool = False) -> None:
        self._info = info
        self._events = 0
        self._numbered = ambiguous(info.types)
        self._file = WholeWriter(path, whole_lines, force=force)
        self._file.write_text(f"{dump({'trace': to_json(info)})}\n")

    def write(self, batch: Batch) -> None:
        """Add the events of a batch."""
        from markerjit.trace.records import pieces
        from markerjit.trace.rows import json_lines

        for piece in pieces(batch.columns, self._info.clock):
            self._file.write(json_lines(piece, self._info.clock, self._numbered))
            self._events += sum(len(columns.time) for columns in piece)

    def close(self, lost: Mapping[tuple[int, str], int]) -> None:
        """Add the summary."""
        summary = summary_to_json(self._events, lost)
        try:
            self._file.write_text(f"{dump({'summary': summary})}\n")
        finally:
            self._file.close()


def joint_lines(path: str) -> list[JsonLinesTrace]:
    """The traces of a file of several processes (joint.py), in order; none for any other file."""
    pids = dict.fromkeys(info.pid for info in _joint_headers(path))
    return [JsonLinesTrace(path, pid) for pid in pids]


def _joint_headers(path: str) -> Iterator[TraceInfo]:
    if not is_joint(_object("".join(first_lines(path, 1))).get("trace")):
        return
    for line, _ in read_lines(path):
        if line.startswith(_HEADER) and is_joint(header := _object(line).get("trace")):
            yield from_json(header, path)


class JsonLinesTrace(EventTrace):
    """JSON lines, with a header or without. Of a file of several processes those of `pid`."""

    def __init__(self, path: str, pid: int | None = None) -> None:
        super().__init__(path)
        self._guess: Guess | None = None
        self._has_header = False
        self._pid = pid
        document = _object("".join(first_lines(path, 1)))
        if not _is_known(document):
            raise BadTrace(f"{path} is not a trace: it does not begin with an event in JSON")
        if pid is None and is_joint(document.get("trace")):
            raise of_several(path)
        if pid is not None:
            self._has_header = True
            infos = [info for info in _joint_headers(path) if info.pid == pid]
            types = tuple(kind for info in infos for kind in info.types)
            self.info = for_reading(infos[-1]._replace(types=types))
        elif "trace" in document:
            self._has_header = True
            self.info = for_reading(from_json(document["trace"], path))
        else:
            self.complain("it has no header: types are guessed, and the time of day is not known")
            self.info = TraceInfo((), nanoseconds(0), 0, "", "", 0, {})
        self._kinds = Kinds(self.info.types)
        self._floats = fields_of(self.info.types, FieldType.FLOAT)
        if not self._has_header:
            self._guess = self._guessed()
            self.info = self.info._replace(types=self._guess.types())
        summary = (_object_if_whole(last_lines(path, 1)[-1]) or {}).get("summary")
        if not isinstance(summary, dict):
            self.complain("it has no end: more may have been lost than is known")
        if isinstance(summary, dict) and pid is not None:
            summary = {"losses": losses_of_process(summary.get("losses"), pid)}
        self._lost = losses_of(summary, path) if isinstance(summary, dict) else {}

    @property
    def lost(self) -> Mapping[tuple[int, str], int]:
        return self._lost

    def events(self) -> Iterator[Event]:
        """All events. Those that are in order of time are made of columns, which is faster."""
        parser = self._parser()
        if parser is None or not self._is_by_time:
            yield from self._events_of(_numbered(self.path))
            return
        from markerjit.trace.jsonl_columns import in_order
        from markerjit.trace.records import to_events

        for piece in _pieces(self.path):
            pieces, irregular = parser.parse(piece.data)
            if in_order(pieces) and self._are_no_events(piece, irregular):
                columns = [part.columns for part in pieces]
                for events in to_events(columns, self.info.clock, self.info.pid):
                    yield from events
            else:
                yield from self._events_of(line for _, line in piece.lines())

    def batches(self) -> Iterator[Sequence[Columns]]:
        parser = self._parser()
        if parser is None:
            yield from super().batches()
            return
        from markerjit.trace.collect import Collector
        from markerjit.trace.jsonl_columns import LineColumns, together

        collector = Collector(self.info.types)
        for piece in _pieces(self.path):
            pieces, irregular = parser.parse(piece.data)
            numbers: dict[int, int] = {}
            others = []
            for row, line in piece.lines(irregular):
                for event in self._events_of([line]):
                    numbers[id(event)] = row
                    others.append(event)
            for columns, events in collector.columns_with_events(others):
                pieces.append(LineColumns(columns, [numbers[id(event)] for event in events]))
            if pieces:
                yield together(pieces)

    def _are_no_events(self, piece: _Piece, rows: Sequence[int]) -> bool:
        """Whether these lines hold no event, but are a header, or a summary."""
        try:
            return not any(self._events_of(line for _, line in piece.lines(rows)))
        except BadTrace:
            return False

    def _parser(self) -> Parser | None:
        """The finder of columns in lines. None while the types are not known, and for lines of
        several processes."""
        if self._pid is not None or not self.info.types:
            return None
        from markerjit.trace.jsonl_columns import Parser

        numbered = ambiguous(self.info.types) if self._has_header else ()
        return Parser(self.info.types, numbered, self.info.clock.time)

    @property
    def _is_by_time(self) -> bool:
        """Whether events made of columns equal events made of lines: the times give the order, and
        the values give the types."""
        types = self.info.types
        has_bytes = any(field.type is FieldType.BYTES for kind in types for field in kind.fields)
        return self.info.clock.time is not Time.NONE and not has_bytes and not ambiguous(types)

    def _events_of(self, lines: Iterable[_Line]) -> Iterator[Event]:
        prefix = "" if self._pid is None else f'{{"pid": {self._pid}, '
        for number, line, whole in lines:
            if prefix and whole and not line.startswith(prefix):
                continue
            document = _object(line) if whole else _object_if_whole(line)
            if document is None:
                self.complain("it is cut off in the middle of a line")
                return
            if "name" in document:
                event = self._event(document, number)
                yield self._with_origin(self._guess.fitted(event) if self._guess else event)
            elif not _is_known(document):
                raise BadTrace(f"{self.path}:{number} is not an event: {line[:60]!r}")

    def _event(self, document: dict[str, Any], number: int) -> Event:
        try:
            fields = {key: _value(value) for key, value in document["fields"].items()}
            name = str(document["name"])
            event = Event(document["time"], document["cpu"], document["tid"], name, fields)
            checked(event, self.info.clock.time)
            kind = self._kinds.find(name, document.get("kind") if self._has_header else None)
            if kind is not None:
                for key in self._floats[kind.id]:
                    if type(fields.get(key)) in (str, int):  # as with columns: 0 is 0.0 there
                        fields[key] = float(fields[key])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise BadTrace(f"{self.path}:{number} is not an event: {error!r}") from error
        return self._kinds.marked(event, kind)

    def _guessed(self) -> Guess:
        from markerjit.trace.guess import Guess

        guess = Guess()
        for event in self.events():
            guess.look_at(event)
        return guess


def _value(value: Any) -> Any:
    return StackText.of_document(value) if isinstance(value, dict) else value


_Line = tuple[int, str, bool]
"""The number of a line, the line, and whether it is whole."""


class _Piece(NamedTuple):
    """Some lines of a file: the whole lines, the last line if the file was cut, and the number of
    the first line."""

    data: bytes
    cut: bytes
    first: int

    def lines(self, rows: Sequence[int] | None = None) -> Iterator[tuple[int, _Line]]:
        """The lines with their rows, all or only these. A line that was cut is always included."""
        if rows == [] and not self.cut:  # nearly always: the others are in columns
            return
        whole = self.data.split(b"\n")[:-1]
        for row in range(len(whole)) if rows is None else rows:
            yield row, (self.first + row, decoded(whole[row]), True)
        if self.cut:
            yield len(whole), (self.first + len(whole), decoded(self.cut), False)


def _pieces(path: str) -> Iterator[_Piece]:
    """The lines of a file, some thousand at a time."""
    first = 1
    for lines in pieces_of_lines(path, EVENTS_AT_ONCE):
        cut = b"" if lines[-1].endswith(b"\n") else lines.pop()
        yield _Piece(b"".join(lines), cut, first)
        first += len(lines)


def _numbered(path: str) -> Iterator[_Line]:
    return ((number, line, whole) for number, (line, whole) in enumerate(read_lines(path), 1))


def dump(value: Any) -> str:
    """The value as JSON, on one line."""
    return json.dumps(value, ensure_ascii=False)


def summary_to_json(events: int, lost: Mapping[tuple[int, str], int]) -> dict[str, Any]:
    """The summary at the end of a file, as JSON."""
    return {"events": events, "lost": sum(lost.values()), "losses": losses_to_json(lost)}


def losses_of(summary: Mapping[str, Any], path: str) -> dict[tuple[int, str], int]:
    """The losses from the end of a file. The output of `trace --json` has only the total."""
    cpu, name = UNKNOWN
    losses = [{"cpu": cpu, "name": name, "lost": summary.get("lost", 0)}]
    counts = losses_from_json(summary.get("losses", losses), path)
    return {key: count for key, count in counts.items() if count}


def _is_known(document: dict[str, Any]) -> bool:
    return not {"trace", "summary", "name"}.isdisjoint(document)


def _object(line: str) -> dict[str, Any]:
    """The JSON object of a line; empty where the line is not an object."""
    return _object_if_whole(line) or {}


def _object_if_whole(line: str) -> dict[str, Any] | None:
    try:
        document = parse_json(line)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None

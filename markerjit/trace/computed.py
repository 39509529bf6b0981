"""A trace with named expressions in place of its fields, as `--select` records them. Needs numpy.

The expressions are computed of columns, whatever the format, in the types that they would be
recorded in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from markerjit.arguments import check_is
from markerjit.elf import parse_format
from markerjit.errors import Refused
from markerjit.model import CType, Event, Field, FieldType, TypeClass
from markerjit.questions import Lack
from markerjit.questions.columns import TextColumn, values
from markerjit.questions.ir import Node, Slice, Value, whole_text
from markerjit.questions.selection import Selected, Selection, select
from markerjit.questions.types import RECORDED, Type
from markerjit.ring.batch import Columns, Texts
from markerjit.ring.to_events import events as events_of
from markerjit.ring.types import RecordType, TextState
from markerjit.trace.collect import Collector
from markerjit.trace.reading import EVENTS_AT_ONCE, EventTrace, Trace
from markerjit.trace.where import columns_by_name, scope_of_type

if TYPE_CHECKING:
    from markerjit.questions.columns import Array
    from markerjit.ring.batch import Column

_INT = CType(TypeClass.SIGNED, 4)
_CHARS = CType(TypeClass.CHARS, 8)


def select_fields(trace: Trace, text: str) -> Computed:
    """The events of a trace with named expressions, such as "ms=us/1000, key[:8]", in place of
    their fields (docs/reference/questions.md). Markers that lack a name of them have no event in
    it. Raises BadQuestion, and Refused where all markers lack one."""
    check_is("trace", trace, Trace)
    check_is("text", text, str)
    return Computed(trace, text)


class Computed(Trace):
    """The events of another trace with other fields. Its losses are those of the whole trace.

    lacks  the types that do not have a name of the expressions, whose events are left out
    """

    def __init__(self, trace: Trace, text: str) -> None:
        super().__init__(trace.path)
        self.problems = trace.problems
        self._trace = trace
        types = trace.info.types
        selections = select(text, [scope_of_type(kind) for kind in types])
        self.lacks = tuple(each for each in selections if isinstance(each, Lack))
        self._selections: dict[int, tuple[RecordType, Selection]] = {
            kind.id: (_type_of(kind, selection), selection)
            for kind, selection in zip(types, selections, strict=True)
            if not isinstance(selection, Lack)
        }
        if types and not self._selections:
            lack = self.lacks[0]
            raise Refused(f"{lack.marker} has no field {lack.name}, and no other marker has all")
        made = tuple(kind for kind, _ in self._selections.values())
        self.info = trace.info._replace(types=made)

    @property
    def lost(self) -> Mapping[tuple[int, str], int]:
        return self._trace.lost

    def batches(self) -> Iterator[Sequence[Columns]]:
        for batch in self._trace.batches():
            made = [self._computed(part) for part in batch if part.type.id in self._selections]
            if made:
                yield made

    def events(self) -> Iterator[Event]:
        if isinstance(self._trace, EventTrace):
            yield from self._in_their_order(self._trace.events())
            return
        from markerjit.trace.records import to_events

        for batch in self.batches():
            for events in to_events(batch, self.info.clock, self.info.pid):
                yield from events

    def _in_their_order(self, events: Iterator[Event]) -> Iterator[Event]:
        """These events with the other fields."""
        collector = Collector(self._trace.info.types)
        while piece := list(islice(events, EVENTS_AT_ONCE)):
            made: dict[int, Mapping[str, object]] = {}
            for columns, of_kind in collector.columns_with_events(piece):
                if columns.type.id not in self._selections:
                    continue
                computed = events_of([self._computed(columns)], self.info.clock, self.info.pid)
                for event, other in zip(of_kind, computed, strict=True):
                    made[id(event)] = other.fields
            for event in piece:
                if id(event) in made:
                    yield event._replace(fields=made[id(event)])  # type: ignore[arg-type]

    def _computed(self, columns: Columns) -> Columns:
        kind, selection = self._selections[columns.type.id]
        known = columns_by_name(columns, self._trace.info.clock)
        fields = {each.name: _column(each.node, known, columns) for each in selection}
        return columns._replace(type=kind, fields=fields)


def _column(node: Node, known: Mapping[str, Array | TextColumn], columns: Columns) -> Column:
    whole = whole_text(node)
    if node.type is not Type.TEXT:
        return values(node, known, len(columns.time))
    assert isinstance(whole, Value)
    texts = columns.fields[whole.name]
    assert isinstance(texts, Texts)
    return texts if not isinstance(node, Slice) else _beginning(texts, node.high)


def _beginning(texts: Texts, high: int | None) -> Texts:
    """The first bytes of each text. One that was cut behind them is whole now."""
    if high is None:
        return texts
    lengths = np.diff(texts.offsets)
    kept = np.minimum(lengths, high)
    ends = np.cumsum(kept)
    offsets = np.concatenate([np.zeros(1, np.int64), ends])
    ahead = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - kept, kept)
    data = texts.data[np.repeat(texts.offsets[:-1], kept) + ahead]
    was_cut = (texts.states == TextState.CUT) & (lengths >= high)
    return Texts(offsets, data, np.where(was_cut, TextState.WHOLE, texts.states).astype(np.uint8))


def _type_of(kind: RecordType, selection: Selection) -> RecordType:
    """The type of the events with these fields."""
    known = {field.name: field for field in kind.fields}
    words: list[str] = []
    args: list[CType] = []
    for each in selection:
        conversion, ctypes = _conversion(each, known)
        words.append(f"{each.name}={conversion}")
        args += ctypes
    format_ = " ".join(words)
    return RecordType(
        kind.id, kind.marker, format_, parse_format(format_, tuple(args)), time=kind.time,
        tid=kind.tid, brakes=kind.brakes,
    )  # fmt: skip


def _conversion(each: Selected, known: Mapping[str, Field]) -> tuple[str, tuple[CType, ...]]:
    node = each.node
    if each.as_is and node.type is not Type.TEXT:
        field = known[each.name]
        return f"%{field.conversion}", (field.ctype,)
    if node.type is not Type.TEXT:
        conversion, ctype = RECORDED[node.type]
        return conversion, (ctype,)
    whole = whole_text(node)
    assert isinstance(whole, Value)
    field = known[whole.name]
    if field.type is FieldType.STACK and not isinstance(node, Slice):
        return f"%{field.conversion}", (field.ctype,)
    if field.type is FieldType.BYTES:
        return ("%*ph" if field.conversion == "ph" else "%.*s"), (_INT, _CHARS)
    return "%s", (_CHARS,)

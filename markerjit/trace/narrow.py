"""A trace with some of its fields: all events, and less of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from markerjit.arguments import check_all, check_is
from markerjit.errors import UnknownField
from markerjit.model import Event
from markerjit.ring.types import RecordType
from markerjit.trace.reading import Trace

if TYPE_CHECKING:
    from markerjit.ring.batch import Columns

T = TypeVar("T")


def only_fields(trace: Trace, names: Sequence[str]) -> Trace:
    """The events of a trace with the fields of these names alone, in the order of each marker's
    format. Raises UnknownField for a name that no marker has."""
    check_is("trace", trace, Trace)
    check_all("names", names, str)
    known = {field.name: None for kind in trace.info.types for field in kind.fields}
    for name in names:
        if known and name not in known:
            raise UnknownField(name, tuple(known), of=" of the trace")
    return _Narrow(trace, frozenset(names))


class _Narrow(Trace):
    """The same trace; only fields of these names are handed on."""

    def __init__(self, trace: Trace, names: frozenset[str]) -> None:
        super().__init__(trace.path)
        self.problems = trace.problems
        self._trace = trace
        self._names = names
        self._types = {kind.id: self._narrow(kind) for kind in trace.info.types}
        self.info = trace.info._replace(types=tuple(self._types.values()))

    @property
    def lost(self) -> Mapping[tuple[int, str], int]:
        return self._trace.lost

    def batches(self) -> Iterator[Sequence[Columns]]:
        for batch in self._trace.batches():
            yield [
                columns._replace(
                    type=self._types[columns.type.id], fields=self._chosen(columns.fields)
                )
                for columns in batch
            ]

    def events(self) -> Iterator[Event]:
        for event in self._trace.events():
            yield event._replace(fields=self._chosen(event.fields))

    def _chosen(self, fields: Mapping[str, T]) -> dict[str, T]:
        return {name: value for name, value in fields.items() if name in self._names}

    def _narrow(self, kind: RecordType) -> RecordType:
        fields = [field for field in kind.fields if field.name in self._names]
        return RecordType(
            kind.id, kind.marker, kind.format, fields, time=kind.time, tid=kind.tid,
            brakes=kind.brakes,
        )  # fmt: skip

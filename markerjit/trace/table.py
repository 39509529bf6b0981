"""The columns of a trace as a table, for Parquet and Arrow.

    time   when, UTC; without a clock, the number of the event in its ring
    pid    which process: only where there are several (joint_arrow.py)
    cpu, tid, name
    kind   the number of the record's type: only where markers of one name have different fields
    …      a column for each field. Markers whose fields of one name have the same type share it;
           others have columns of their own, `field_marker`. Null in rows without the field

This module handles names and types only, and needs neither numpy nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markerjit.model import Field, FieldType
from markerjit.ring.types import RecordType, Time, number_code
from markerjit.tuples import NamedTuple

HEAD = ("time", "cpu", "tid", "name")
JOINT_HEAD = ("time", "pid", "cpu", "tid", "name")
"""Of the events of several processes."""
KIND = "kind"


class Layout(NamedTuple):
    """The columns of a table, in their order.

    numbered   whether events have numbers instead of times
    has_kind   whether there is a column `kind`
    columns    (name, sort) of each field's column; `sort_of` gives the sorts
    places     for each type of the trace, the names of the columns of its fields, in order
    """

    numbered: bool
    has_kind: bool
    columns: tuple[tuple[str, str], ...]
    places: tuple[tuple[str, ...], ...]


def sort_of(field: Field) -> str:
    """The sort of a field's column: numpy's code, or "bool", "char", "string" or "bytes"."""
    match field.type:
        case FieldType.BOOL | FieldType.CHAR | FieldType.STRING:
            return str(field.type)
        case FieldType.BYTES:
            return "bytes" if field.conversion == "ph" else "string"
        case FieldType.STACK:
            return "string"
        case _:
            return number_code(field)


def layout(types: Sequence[RecordType], head: Sequence[str] = HEAD) -> Layout:
    """The columns of a trace with these records, behind those that all of them have."""
    sorts: dict[str, set[str]] = {}
    for kind in types:
        for field in kind.fields:
            sorts.setdefault(field.name, set()).add(sort_of(field))
    markers = [kind.marker for kind in types]
    has_kind = len(set(markers)) < len(markers)
    taken = {*head, KIND} if has_kind else {*head}
    columns: dict[str, str] = {}
    shared = {name for name, variants in sorts.items() if len(variants) == 1} - taken
    own: dict[tuple[str, str, str], str] = {}
    places = []
    taken |= shared
    for kind in types:
        names = []
        for field in kind.fields:
            sort = sort_of(field)
            name = field.name
            if name not in shared:
                key = (field.name, kind.marker, sort)
                if key not in own:
                    own[key] = _free(f"{field.name}_{kind.marker}", taken)
                    taken.add(own[key])
                name = own[key]
            columns[name] = sort
            names.append(name)
        places.append(tuple(names))
    numbered = any(kind.time is Time.NONE for kind in types)
    return Layout(numbered, has_kind, tuple(columns.items()), tuple(places))


def _free(name: str, taken: Iterable[str]) -> str:
    """The name, with a number behind it where it is taken."""
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free

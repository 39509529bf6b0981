"""JSON lines read by columns: the same as read line by line, whatever stands in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from markerjit.errors import BadTrace
from markerjit.model import CType, Event, Field, FieldType, TypeClass
from markerjit.ring.batch import Columns, Texts
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.types import RecordType, Time
from markerjit.trace import jsonl
from markerjit.trace.header import to_json
from markerjit.trace.jsonl import JsonLinesTrace
from markerjit.trace.reading import EventTrace
from markerjit.trace.sink import TraceInfo
from tests.support.choice import examples

INT4 = CType(TypeClass.SIGNED, 4)
KINDS = (
    RecordType(1, "ints", "", [
        Field("a", FieldType.INT, INT4, 0, "d"),
        Field("b", FieldType.INT, CType(TypeClass.UNSIGNED, 8), 1, "u"),
        Field("c", FieldType.INT, CType(TypeClass.SIGNED, 8), 2, "d"),
    ], time=Time.MONOTONIC),
    RecordType(2, "nothing", "", [], time=Time.MONOTONIC),
    RecordType(3, "mixed", "", [
        Field("text", FieldType.STRING, CType(TypeClass.POINTER, 8), 0, "s"),
        Field("real", FieldType.FLOAT, CType(TypeClass.FLOAT, 8), 1, "g"),
        Field("flag", FieldType.BOOL, CType(TypeClass.BOOL, 1), 2, "d"),
        Field("char", FieldType.CHAR, INT4, 3, "c"),
        Field("p", FieldType.POINTER, CType(TypeClass.POINTER, 8), 4, "p"),
    ], time=Time.MONOTONIC),
    RecordType(4, "twice", "", [Field("x", FieldType.INT, INT4, 0, "d")], time=Time.MONOTONIC),
    RecordType(5, "twice", "", [Field("x", FieldType.INT, CType(TypeClass.SIGNED, 8), 0, "d")],
               time=Time.MONOTONIC),
)  # fmt: skip
INFO = TraceInfo(KINDS, Calibration(Time.MONOTONIC, 0, 0, NS, 5), 9, "p", "", 0, {})

whole = st.integers(-(1 << 66), 1 << 66)
sane = st.integers(-(1 << 31), (1 << 31) - 1)
texts = st.one_of(
    st.none(), st.text(max_size=12), st.sampled_from(['"', "\\", "\n", "é", "", "a}}"])
)
VALUES: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "ints": {
        "a": sane, "b": st.integers(0, (1 << 64) - 1), "c": st.integers(-(1 << 63), (1 << 63) - 1),
    },
    "nothing": {},
    "mixed": {
        "text": texts, "real": st.floats(), "flag": st.booleans(),
        "char": st.characters(max_codepoint=255), "p": st.integers(0, (1 << 64) - 1),
    },
    "twice": {"x": sane},
}  # fmt: skip
wrong = st.one_of(whole, texts, st.booleans(), st.floats(allow_nan=False), st.just([]))


def line_of(name: str, fields: dict[str, Any], time: int, cpu: int, tid: int, style: int) -> str:
    fields = {
        key: str(value) if isinstance(value, float) and value - value != 0 else value
        for key, value in fields.items()
    }
    kind = {"kind": 4 + time % 2} if name == "twice" else {}
    document = {"time": time, "cpu": cpu, "tid": tid, "name": name, **kind, "fields": fields}
    separators = (",", ":") if style == 1 else None
    return json.dumps(document, ensure_ascii=style == 2, separators=separators)


@st.composite
def lines(draw: st.DrawFn, values: st.SearchStrategy[Any] | None = None) -> str:
    name = draw(st.sampled_from(sorted(VALUES)))
    fields = {
        key: draw(values if values is not None and draw(st.integers(0, 9)) == 0 else value)
        for key, value in VALUES[name].items()
    }
    time = draw(st.one_of(st.integers(0, 50), st.integers(-(1 << 62), 1 << 62)))
    cpu, tid = draw(st.integers(0, 0xFFFF)), draw(st.integers(0, 0xFFFF_FFFF))
    return line_of(name, fields, time, cpu, tid, draw(st.sampled_from([0, 0, 0, 1, 2])))


def written(directory: Path, own: Sequence[str], *, header: bool = True, end: str = "\n") -> str:
    """A file of these lines. Its header has two types of one name where a line is of these."""
    path = directory / "x.jsonl"
    ambiguous = any('"twice"' in line for line in own)
    info = INFO if ambiguous else INFO._replace(types=KINDS[:3])
    first = [json.dumps({"trace": to_json(info)}, ensure_ascii=False)] if header else []
    last = [json.dumps({"summary": {"events": len(own), "lost": 0, "losses": []}})]
    path.write_text("\n".join([*first, *own, *last]) + end, "utf-8", errors="surrogateescape")
    return str(path)


class ByLine(JsonLinesTrace):
    """The same file, read with `json` alone."""

    def _parser(self) -> None:
        return None

    def batches(self):
        return EventTrace.batches(self)


def flat(columns: Columns) -> tuple[Any, ...]:
    fields = [
        (name, *(part.tolist() for part in (column if isinstance(column, Texts) else [column])),
         str(column[0].dtype if isinstance(column, Texts) else column.dtype))
        for name, column in columns.fields.items()
    ]  # fmt: skip
    heads = columns[1:4]
    return (columns.type.id, [(each.tolist(), str(each.dtype)) for each in heads], repr(fields))


def outcome(read) -> Any:
    try:
        return read()
    except BadTrace as error:
        return str(error)


def both(path: str) -> None:
    """Read a file in both ways. Of several faults in one piece either may meet another first."""
    opened = outcome(lambda: JsonLinesTrace(path)), outcome(lambda: ByLine(path))
    if isinstance(opened[0], str):
        assert opened[0] == opened[1]
        return
    fast, slow = opened
    columns = [
        outcome(lambda t=t: [flat(c) for batch in t.batches() for c in batch]) for t in opened
    ]
    refused = [isinstance(each, str) for each in columns]
    assert refused[0] == refused[1]
    assert columns[0] == columns[1] or all(refused)
    events = [
        outcome(lambda t=t: [repr((type(e).__name__, *e)) for e in t.events()]) for t in opened
    ]
    assert events[0] == events[1]
    assert fast.problems == slow.problems


common = settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@common
@given(st.lists(lines(), max_size=12), st.booleans())
def test_what_the_writer_can_write_is_read_the_same_by_columns(
    tmp_path: Path, own: list[str], header: bool
) -> None:
    if own or header:
        both(written(tmp_path, own, header=header))


@common
@given(st.lists(lines(wrong), min_size=1, max_size=6))
def test_values_that_do_not_fit_are_refused_the_same(tmp_path: Path, own: list[str]) -> None:
    both(written(tmp_path, own))


@common
@given(st.lists(lines(), min_size=1, max_size=4), st.data())
def test_damaged_lines_are_read_the_same(
    tmp_path: Path, own: list[str], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(own) - 1))
    line = own[at]
    place = data.draw(st.integers(0, len(line)))
    other = data.draw(
        st.sampled_from(["", "0", '"', "\\", "}", " ", "\t", "-", "\udcff", "1e5", "\n"])
    )
    gone = data.draw(st.integers(0, 3))
    own[at] = line[:place] + other + line[place + gone :]
    both(written(tmp_path, own, end=data.draw(st.sampled_from(["\n", ""]))))


def test_a_whole_number_in_a_field_of_floats_is_a_float(tmp_path: Path) -> None:
    mixed = {"text": None, "flag": False, "char": "c", "p": 0}
    path = written(tmp_path, [line_of("mixed", {**mixed, "real": 7}, 0, 0, 0, 0)])

    both(path)
    (event,) = JsonLinesTrace(path).events()

    assert repr(event.fields["real"]) == "7.0"


def test_a_whole_number_that_no_float_holds_is_refused(tmp_path: Path) -> None:
    mixed = {"text": None, "flag": False, "char": "c", "p": 0}
    path = written(tmp_path, [line_of("mixed", {**mixed, "real": 10**400}, 0, 0, 0, 0)])

    for trace in (JsonLinesTrace(path), ByLine(path)):
        with pytest.raises(BadTrace, match="is not an event"):
            list(trace.events())
        with pytest.raises(BadTrace, match="is not an event"):
            list(trace.batches())


def test_regular_lines_never_reach_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a million lines all but header and summary are found by columns."""
    own = [line_of("ints", {"a": n, "b": n * n, "c": -n}, n, n % 4, n, 0) for n in range(1000)]
    own += [line_of("mixed", {"text": f"t {n}", "real": n / 3, "flag": n % 2 == 0, "char": "c",
                              "p": n << 40}, 1000 + n, 0, 1, 0) for n in range(1000)]  # fmt: skip
    trace = JsonLinesTrace(written(tmp_path, own))
    parsed: list[str] = []
    real = jsonl.parse_json
    monkeypatch.setattr(jsonl, "parse_json", lambda text: parsed.append(text) or real(text))

    rows = sum(len(columns.time) for batch in trace.batches() for columns in batch)

    assert rows == 2000
    assert len(parsed) == 2


def test_order_of_a_piece_is_that_of_its_lines_where_times_are_equal(tmp_path: Path) -> None:
    """One of the lines has an escape, and is read by itself."""
    names = ["a", "\n", "b", "\n", "c"]
    own = [
        line_of("mixed", {"text": text, "real": 1.5, "flag": True, "char": "x", "p": n}, 7, 0, 1, 0)
        for n, text in enumerate(names)
    ]

    ((columns,),) = JsonLinesTrace(written(tmp_path, own)).batches()

    assert columns.fields["p"].tolist() == [0, 1, 2, 3, 4]
    assert isinstance(columns.fields["p"], np.ndarray)


def test_events_are_made_of_columns_and_know_their_origin(tmp_path: Path) -> None:
    own = [line_of("ints", {"a": n, "b": 1, "c": 2}, n, 0, 1, 0) for n in range(3)]

    events = list(JsonLinesTrace(written(tmp_path, own)).events())

    assert [event.fields["a"] for event in events] == [0, 1, 2]
    assert all(isinstance(event, Event) and event.origin.pid == 9 for event in events)

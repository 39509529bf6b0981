"""Lines by column: byte for byte what a plain program makes of each event."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from markerjit.elf import parse_format
from markerjit.model import CType, Event, TypeClass
from markerjit.ring.batch import Columns, Texts
from markerjit.ring.clock import Calibration
from markerjit.ring.to_events import events
from markerjit.ring.types import RecordType, TextState, Time, number_code
from markerjit.trace import cells, line_formatter, rows
from markerjit.trace.records import split
from markerjit.trace.rows import json_lines, text_lines
from tests.support.choice import examples
from tests.support.made_traces import BOOL, CHARS, F64, POINTER, WALL_NS, make_batch, make_info

SIGNED, UNSIGNED = TypeClass.SIGNED, TypeClass.UNSIGNED
I32 = CType(SIGNED, 4)
ODD_BYTES = [
    b"", b"plain", b'a "quoted" \\ text', b"\0", b"a\0b", b"tab\tline\nend", b"\x1b[31m", b"\x7f",
    "äöü €".encode(), "\x9b0m".encode(), "\u2028\u200b".encode(), "𝄞".encode(), b"\xff\xfe",
    b"cut \xc3", b"\xa4 begins inside", b"\xed\xa0\x80", b"%s %d %%", b"{}", b"x" * 300,
]  # fmt: skip
FLOATS = [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 0.1, 1e16, -2.5]
CLOCKS = {
    Time.TSC: Calibration(Time.TSC, 10**12, 5 * 10**12, 2_999_999_999, WALL_NS),
    Time.MONOTONIC: Calibration(Time.MONOTONIC, 0, 0, 10**9, WALL_NS),
    Time.NONE: Calibration(Time.NONE, 0, 0, 10**9, WALL_NS),
}

INTEGERS = [
    (f"n {conversion}", CType(sign, size))
    for conversion in ("%d", "%u", "%x", "%#x", "%X", "%#X", "%o", "%#o")
    for sign in (SIGNED, UNSIGNED)
    for size in (1, 2, 4, 8)
]
REST = [
    ("c %c", I32), ("yes %d", BOOL), ("at %p", POINTER), ("x %g", F64), ("x %.17e", F64),
    ("x %a", F64), ("x %.0f", F64), ("s %s", CHARS), ("s %.7s", CHARS), ("b %.*s", I32, CHARS),
    ("r %*ph", I32, CHARS),
]  # fmt: skip
FORMATS = [*INTEGERS, *REST]


def drawn_fields(draw: st.DrawFn, kind: RecordType, count: int) -> dict[str, np.ndarray | Texts]:
    """The fields of so many records. Half of their values are the extremes of their types."""
    fields: dict[str, np.ndarray | Texts] = {}
    for place in kind.places:
        if not place.code:
            texts = draw(
                st.lists(
                    st.sampled_from(ODD_BYTES) | st.binary(max_size=20)
                    | st.text(max_size=10).map(lambda text: text.encode("utf-8", "replace")),
                    min_size=count, max_size=count,
                )
            )  # fmt: skip
            states = draw(st.lists(st.sampled_from([*TextState]), min_size=count, max_size=count))
            before = draw(st.binary(max_size=3))  # bytes that belong to no text
            offsets = len(before) + np.cumsum([0, *map(len, texts)], dtype=np.int64)
            data = np.frombuffer(before + b"".join(texts) + b"behind", np.uint8)
            fields[place.field.name] = Texts(offsets, data, np.array(states, np.uint8))
        elif place.code == "f8":
            numbers = st.sampled_from(FLOATS) | st.floats()
            drawn = draw(st.lists(numbers, min_size=count, max_size=count))
            fields[place.field.name] = np.array(drawn, np.float64)
        else:
            limits = np.iinfo(number_code(place.field))
            least, most = int(limits.min), int(limits.max)
            edges = [0, 1, 9_999, 10_000, least, most, most // 2, 255, 10**16]
            integers = st.sampled_from([edge for edge in edges if least <= edge <= most])
            drawn = draw(
                st.lists(integers | st.integers(least, most), min_size=count, max_size=count)
            )
            column = np.array(drawn, number_code(place.field))
            is_bool = place.field.ctype.type_class is TypeClass.BOOL
            fields[place.field.name] = column != 0 if is_bool else column
    return fields


@st.composite
def batches(draw: st.DrawFn, time: Time) -> list[Columns]:
    """Records of up to three types, each in order of time."""
    batch = []
    for number in range(draw(st.integers(1, 3))):
        chosen = draw(st.lists(st.sampled_from(FORMATS), max_size=4))
        format_ = " ".join(text for text, *_ in chosen)
        ctypes = tuple(ctype for _, *of_one in chosen for ctype in of_one)
        name = draw(
            st.sampled_from(["kv_get", "a%sb", 'quo"te', "esc\x1b", "ä\x9b", "back\\slash"])
        )
        kind = RecordType(number, name, format_, parse_format(format_, ctypes), time=time)
        count = draw(st.integers(1, 12))
        times = draw(st.lists(st.integers(0, 1 << 60), min_size=count, max_size=count))
        cpus = draw(st.lists(st.integers(0, 0xFFFF), min_size=count, max_size=count))
        tids = draw(st.lists(st.integers(0, (1 << 32) - 1), min_size=count, max_size=count))
        batch.append(
            Columns(
                kind, np.sort(np.array(times, np.uint64)), np.array(cpus, np.uint16),
                np.array(tids, np.uint32), drawn_fields(draw, kind, count),
            )
        )  # fmt: skip
    return batch


def plain_json(event: Event) -> str:
    """The event's line as json.dumps makes it."""
    document = event._asdict()
    document["fields"] = {}
    for name, value in event.fields.items():
        if isinstance(value, bytes):
            value = value.hex()
        elif isinstance(value, float) and not math.isfinite(value):
            value = repr(value)
        document["fields"][name] = value
    line = json.dumps(document, ensure_ascii=False)
    return re.sub("[\x7f-\x9f]", lambda control: f"\\u{ord(control[0]):04x}", line)


def plain_text(batch: Sequence[Columns], clock: Calibration) -> list[str]:
    """The events' lines as their own types' formats show them."""
    marked = [(columns.type, event) for columns in batch for event in events([columns], clock)]
    lines = [
        line_formatter({event.name: kind.fields}, clock=clock)(event) for kind, event in marked
    ]
    order = rows.in_order(batch, clock)[1]
    return [lines[row] for row in order.tolist()]


@pytest.mark.parametrize("time", CLOCKS)
@given(st.data())
def test_lines_are_those_of_each_event(time: Time, data: st.DataObject) -> None:
    batch, clock = data.draw(batches(time)), CLOCKS[time]

    as_json, as_text = json_lines(batch, clock), text_lines(batch, clock)

    expected = [plain_json(event) for event in events(batch, clock)]
    assert as_json.decode() == "".join(f"{line}\n" for line in expected)
    assert as_text.decode() == "".join(f"{line}\n" for line in plain_text(batch, clock))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", (as_json + as_text).decode())


@pytest.mark.parametrize("time", [Time.TSC, Time.NONE])
@given(st.data(), st.integers(1, 5))
@settings(max_examples=examples(20))
def test_lines_do_not_depend_on_how_many_are_made_at_once(
    time: Time, data: st.DataObject, most: int
) -> None:
    batch, clock = data.draw(batches(time)), CLOCKS[time]
    whole = json_lines(batch, clock), text_lines(batch, clock)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_AT_ONCE", most)
        by_piece = json_lines(batch, clock), text_lines(batch, clock)

    assert by_piece == whole


def test_lines_with_long_texts_are_made_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    info = make_info()
    long = {"id": 1, "text": "t" * 1000}
    batch = make_batch(info, [Event(time, 0, 1, "query_start", long) for time in range(20)])
    sizes = []

    def table(parts: Sequence[bytes | np.ndarray], count: int) -> np.ndarray:
        sizes.append(count)
        return as_before(parts, count)

    as_before = cells.table
    monkeypatch.setattr(cells, "table", table)
    monkeypatch.setattr(rows, "_TABLE", 3000)

    lines = text_lines(batch.columns, info.clock)

    assert lines.count(b"\n") == sum(sizes) == 20
    assert max(sizes) == 3


def test_lines_of_several_processes_begin_with_theirs() -> None:
    info = make_info()
    batch = make_batch(info).columns
    pids = {columns.type: 100 + columns.type.id for columns in batch}
    by_marker = {
        columns.type.marker: pid for columns, pid in zip(batch, pids.values(), strict=True)
    }

    objects = json_lines(batch, info.clock, pids=pids).decode().splitlines()
    texts = text_lines(batch, info.clock, pids=pids).decode().splitlines()

    alone = json_lines(batch, info.clock).decode().splitlines()
    of_each = [by_marker[json.loads(line)["name"]] for line in alone]
    assert objects == [
        f'{{"pid": {pid}, {line[1:]}' for pid, line in zip(of_each, alone, strict=True)
    ]
    alone = text_lines(batch, info.clock).decode().splitlines()
    assert texts == [f"{pid} {line}" for pid, line in zip(of_each, alone, strict=True)]


def test_events_of_the_same_time_stay_in_the_order_of_their_types() -> None:
    info = make_info()
    tick = Event(5_000_000_000, 0, 1, "tick", {})
    batch = make_batch(info, [tick, tick._replace(name="query_done", fields={"id": 1, "rows": 2})])

    names = [
        json.loads(line)["name"] for line in json_lines(batch.columns, info.clock).splitlines()
    ]

    assert names == ["tick", "query_done"]


@pytest.mark.parametrize("bracketed", [False, True])
def test_raw_bytes_have_brackets_in_a_file_only(bracketed: bool) -> None:
    fields = parse_format("r %*ph", (I32, CHARS))
    kind = RecordType(0, "raw", "r %*ph", fields, time=Time.MONOTONIC)
    offsets, data = np.array([0, 2, 2, 3]), np.frombuffer(b"\x00\x1f\xff", np.uint8)
    cpus = np.ones(3, np.uint8)
    texts = Texts(
        offsets, data, np.array([TextState.WHOLE, TextState.WHOLE, TextState.CUT], np.uint8)
    )
    batch = [Columns(kind, np.zeros(3, np.uint64), cpus, cpus, {"r": texts})]

    lines = text_lines(batch, CLOCKS[Time.MONOTONIC], bracketed=bracketed).decode().splitlines()

    shown = [line.partition("r=")[2] for line in lines]
    assert shown == (["<00 1f>", "<>", "<ff>"] if bracketed else ["00 1f", "", "ff"])


# ---- cells ---------------------------------------------------------------------------------------


def as_texts(table: bytes | np.ndarray) -> list[str]:
    if isinstance(table, bytes):
        return [table.decode()]
    return [row.tobytes().replace(b"\0", b"").decode() for row in table]


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1))
@example([0])
@example([-1, 0, 9999, 10_000, 99_999_999, 100_000_000, -(1 << 63), (1 << 63) - 1])
def test_integers_in_decimal(numbers: list[int]) -> None:
    shown = as_texts(cells.decimal(np.array(numbers, np.int64)))

    assert shown == [str(n) for n in (numbers if len({*numbers}) > 1 else numbers[:1])]


@given(st.lists(st.integers(0, (1 << 64) - 1), min_size=1))
@example([0])
@example([0xFF, 0x100, 0x10000, (1 << 64) - 1])
def test_integers_in_hexadecimal_and_without_a_sign(numbers: list[int]) -> None:
    column = np.array(numbers, np.uint64)

    assert as_texts(cells.hexadecimal(column)) == [f"{n:x}" for n in numbers]
    shown = as_texts(cells.decimal(column))
    assert shown == [str(n) for n in (numbers if len({*numbers}) > 1 else numbers[:1])]


@given(st.lists(st.integers(0, 999_999_999), min_size=1))
@example([0, 1, 10_000, 100_000_000, 999_999_999])
def test_nanoseconds_have_nine_digits(numbers: list[int]) -> None:
    assert as_texts(cells.nanoseconds(np.array(numbers, np.int64))) == [f"{n:09d}" for n in numbers]


def test_split_gives_each_type_its_rows() -> None:
    batch = make_batch(make_info()).columns
    sizes = [len(columns.time) for columns in batch]

    assert [len(part) for part in split(np.arange(sum(sizes)), batch)] == sizes

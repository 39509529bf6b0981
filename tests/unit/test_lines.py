"""Events as lines: text for people, JSON for programs."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.elf import parse_format, show
from markerjit.model import CType, Event, TypeClass, Value
from markerjit.ring.types import Time, fields_by_marker
from markerjit.trace import as_json, as_text, line_formatter
from markerjit.trace import lines as lines_module
from markerjit.trace.parse import from_shown, from_text
from markerjit.trace.rows import json_lines, text_lines
from tests.support.made_traces import EVENTS, WALL_NS, make_batch, make_info

INT = CType(TypeClass.SIGNED, 4)
CHARS = CType(TypeClass.CHARS, 8)
FIELDS = parse_format("key %s flags %#x body %.*s", (CHARS, INT, INT, CHARS))
EVENT = Event(1_000_000_042, 3, 812, "kv_get", {"key": "a b", "flags": 255, "body": b"\0\xff"})
MIDNIGHT_NS = 1_700_006_400_000_000_000  # 2023-11-15 00:00:00 UTC


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `time` itself, which is one for all modules."""
    monkeypatch.setattr(lines_module.time, "localtime", lines_module.time.gmtime)


def test_text_has_time_cpu_thread_marker_and_fields_as_the_format_shows_them() -> None:
    assert as_text(EVENT, FIELDS, MIDNIGHT_NS) == (
        '00:00:01.000000042 cpu3 812 kv_get key="a b" flags=0xff body=<00 ff>'
    )


def test_text_of_an_event_without_fields_ends_with_its_name() -> None:
    event = Event(0, 0, 0, "tick", {})

    assert as_text(event, (), MIDNIGHT_NS) == "00:00:00.000000000 cpu0 0 tick"


def test_text_is_one_line_whatever_is_in_a_string() -> None:
    event = EVENT._replace(fields={"key": 'x\n"\r', "flags": -1, "body": "ok"})

    assert as_text(event, FIELDS, MIDNIGHT_NS).endswith(r'key="x\n\"\r" flags=0xffffffff body="ok"')


def test_a_null_string_is_shown_as_printf_does() -> None:
    event = EVENT._replace(fields={**EVENT.fields, "key": None})

    assert "key=(null)" in as_text(event, FIELDS, MIDNIGHT_NS)


def test_the_nanoseconds_carry_into_the_seconds() -> None:
    event = EVENT._replace(time=999_999_999)

    assert as_text(event, FIELDS, MIDNIGHT_NS + 1).startswith("00:00:01.000000000 ")


def test_json_is_one_object_on_one_line() -> None:
    line = as_json(EVENT._replace(fields={**EVENT.fields, "key": "ä\n"}))

    assert "\n" not in line
    assert "ä" in line
    assert json.loads(line) == {
        "time": 1_000_000_042,
        "cpu": 3,
        "tid": 812,
        "name": "kv_get",
        "fields": {"key": "ä\n", "flags": 255, "body": "00ff"},
    }


@pytest.mark.parametrize("value", [None, True, 0.5, -1, "", (1 << 64) - 1])
def test_json_keeps_numbers_truths_and_nulls(value: object) -> None:
    event = EVENT._replace(fields={"value": value})  # type: ignore[dict-item]

    decoded = json.loads(as_json(event))["fields"]["value"]

    assert decoded == value
    assert type(decoded) is type(value)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_json_of_a_float_that_json_has_no_number_for_can_still_be_read(number: float) -> None:
    """RFC 8259 has neither NaN nor Infinity; a strict reader refuses the whole line."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    json.loads(as_json(EVENT._replace(fields={"x": number})), parse_constant=refuse)


def test_formatter_knows_the_fields_of_each_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "wall_offset", lambda: MIDNIGHT_NS)
    to_line = line_formatter({"kv_get": FIELDS})

    assert to_line(EVENT) == as_text(EVENT, FIELDS, MIDNIGHT_NS)
    assert to_line(Event(0, 0, 0, "other", {"n": 1})).endswith("cpu0 0 other")


def test_formatter_gives_json_when_asked() -> None:
    assert line_formatter({}, json=True)(EVENT) == as_json(EVENT)


def test_wall_offset_turns_the_monotonic_clock_into_the_time_of_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines_module.time, "time_ns", lambda: 5_000)
    monkeypatch.setattr(lines_module.time, "monotonic_ns", lambda: 3_000)

    assert lines_module.wall_offset() == 2_000


def test_formatter_takes_the_time_of_day_from_the_clock_of_a_trace() -> None:
    info = make_info()
    to_line = line_formatter(fields_by_marker(info.types), clock=info.clock)

    assert to_line(EVENTS[4]) == "00:00:05.000000031 cpu0 812 tick"


def test_without_a_time_a_line_begins_with_the_number() -> None:
    info = make_info(Time.NONE)
    to_line = line_formatter(fields_by_marker(info.types), clock=info.clock)

    assert to_line(EVENTS[4]._replace(time=7)) == "#7 cpu0 812 tick"


# ---- lines of many records -----------------------------------------------------------------------

FLOATS = st.floats()
STRINGS = st.none() | st.text(st.characters(exclude_categories=["Cs"]))


@given(FLOATS, FLOATS, STRINGS, st.booleans(), st.integers(0, 255), st.integers(-128, 127))
def test_lines_of_many_records_are_those_of_each_event(
    x: float, y: float, text: str | None, yes: bool, char: int, cpu: int
) -> None:
    info = make_info()
    odd = {**EVENTS[6].fields, "x": x, "y": y, "yes": yes, "c": chr(char), "name": text}
    get = {**EVENTS[1].fields, "key": text, "cpu": cpu}
    events = [*EVENTS[:3], EVENTS[6]._replace(fields=odd), EVENTS[-1]._replace(fields=get)]
    columns = make_batch(info, events).columns
    to_text = line_formatter(fields_by_marker(info.types), clock=info.clock)

    to_json = line_formatter({}, json=True)
    assert json_lines(columns, info.clock).decode() == "".join(f"{to_json(e)}\n" for e in events)
    assert text_lines(columns, info.clock).decode() == "".join(f"{to_text(e)}\n" for e in events)


# ---- lines as events again -----------------------------------------------------------------------


def test_a_line_of_text_is_the_event_again() -> None:
    line = as_text(EVENT, FIELDS, MIDNIGHT_NS)

    assert from_text(line, {"kv_get": FIELDS}) == EVENT._replace(time=1_000_000_042)
    assert from_text(line, {}) == EVENT._replace(time=1_000_000_042)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello world",
        "00:00:00.000000000 cpu0 0",
        "00:00:00.000000000 cpu0 x tick",
        "00:00:00.00000000 cpu0 0 tick",
        "00:00:00.000000000 cpu0 0 tick n",
        "00:00:00.000000000 cpu0 0 tick n=",
        "00:00:00.000000000 cpu0 0 tick  n=1",
        '00:00:00.000000000 cpu0 0 tick s="a',
        '00:00:00.000000000 cpu0 0 tick s="a"b',
        "00:00:00.000000000 cpu0 0 tick b=<0g>",
        "00:00:00.000000000 cpu0 0 tick b=<0>",
    ],
)
def test_a_line_that_is_none_is_no_event(line: str) -> None:
    fields = parse_format("s %s b %.*s", (CHARS, INT, CHARS))

    assert from_text(line, {"tick": fields}) is None


@pytest.mark.parametrize(
    ("shown", "value"),
    [("7", 7), ("-7", -7), ("0x1f", 31), ("1.5", 1.5), ("inf", math.inf), ("(null)", None),
     ("true", True), ("'x'", "x"), ('"\\n\\"\\\\"', '\n"\\'), ("<00 ff>", b"\0\xff"), ("ff", "ff")],
)  # fmt: skip
def test_without_a_type_a_value_is_what_it_looks_like(shown: str, value: Value) -> None:
    event = from_text(f"00:00:00.000000000 cpu0 0 tick n={shown}", {})

    assert event is not None
    assert event.fields == {"n": value}


@given(
    st.sampled_from(["%d", "%i", "%u", "%x", "%X", "%#x", "%o", "%#o"]),
    st.sampled_from([1, 2, 4, 8]),
    st.booleans(),
    st.integers(0, (1 << 64) - 1),
)
def test_a_number_is_read_from_how_its_format_shows_it(
    conversion: str, size: int, signed: bool, bits: int
) -> None:
    value = bits % (1 << 8 * size)
    if signed and value >> (8 * size - 1):
        value -= 1 << 8 * size
    ctype = CType(TypeClass.SIGNED if signed else TypeClass.UNSIGNED, size)
    (field,) = parse_format(f"n {conversion}", (ctype,))

    shown = show(field, value)

    assert from_shown(field, shown) == value


@given(st.text())
def test_any_text_is_read_from_how_it_is_shown(text: str) -> None:
    """But for half characters, of which C has none: they are shown as the bytes that they stood
    for."""
    (field,) = parse_format("s %s", (CHARS,))

    shown = show(field, text)

    assert from_shown(field, shown) == text.encode("utf-8", "surrogatepass").decode(
        "utf-8", "replace"
    ) or any(0xD800 <= ord(char) < 0xE000 for char in text)


@given(st.floats(allow_nan=False))
def test_a_float_in_full_is_read_again(number: float) -> None:
    for format_ in ("%a", "%.17g"):
        (field,) = parse_format(f"x {format_}", (CType(TypeClass.FLOAT, 8),))

        assert from_shown(field, show(field, number)) == number


def test_the_clock_is_that_of_the_trace_not_of_now() -> None:
    info = make_info()

    assert text_lines(make_batch(info, EVENTS[:1]).columns, info.clock).startswith(b"00:00:05.")
    assert info.clock.wall_offset_ns == WALL_NS

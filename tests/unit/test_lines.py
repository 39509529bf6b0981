"""Events as lines: text for people, JSON for programs."""

from __future__ import annotations

import json

import pytest

from markerjit.elf import parse_format
from markerjit.model import CType, Event, TypeClass
from markerjit.trace import as_json, as_text, line_formatter
from markerjit.trace import lines as lines_module

INT = CType(TypeClass.SIGNED, 4)
CHARS = CType(TypeClass.CHARS, 8)
FIELDS = parse_format("key %s flags %#x body %.*s", (CHARS, INT, INT, CHARS))
EVENT = Event(1_000_000_042, 3, 812, "kv_get", {"key": "a b", "flags": 255, "body": b"\0\xff"})
MIDNIGHT_NS = 1_700_006_400_000_000_000  # 2023-11-15 00:00:00 UTC


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
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

    found = json.loads(as_json(event))["fields"]["value"]

    assert found == value
    assert type(found) is type(value)


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

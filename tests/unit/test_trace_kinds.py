"""Sites of one marker with different formats, and files that do not say what their fields are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from markerjit.elf import parse_format
from markerjit.errors import BadTrace
from markerjit.model import CType, Event, TypeClass, Value
from markerjit.ring.types import Time, fields_by_marker
from markerjit.trace import line_formatter
from markerjit.trace.convert import convert
from markerjit.trace.encode import with_packets
from markerjit.trace.guess import Guess
from markerjit.trace.kinds import EventOfKind, Kinds
from markerjit.trace.open import open_sink, open_trace, takes_packets
from markerjit.trace.reading import Trace
from markerjit.trace.sink import TraceInfo
from markerjit.trace.statistics import summarise
from tests.support.made_traces import (
    CHARS,
    EVENTS,
    F64,
    I32,
    POINTER,
    START_NS,
    U64,
    make_batch,
    make_info,
    make_type,
    put,
)

SUFFIXES = ("txt", "jsonl", "json", "pftrace", "parquet", "arrow", "ctf", "ctf2")
EVENT_SUFFIXES = SUFFIXES[:4]
FORMATS: tuple[tuple[str, CType, Value, str], ...] = (
    ("n %d", I32, -1, "-1"),
    ("n %lu", U64, (1 << 64) - 1, "18446744073709551615"),
    ("n %x", I32, 16, "10"),
    ("n %.1f", F64, 1.5, "1.5"),
    ("n %.2f", F64, float("inf"), "inf"),
    ("n %p", POINTER, 255, "0xff"),
    ("n %s", CHARS, "inf", '"inf"'),
    ("n %c", I32, "A", "'A'"),
    ("n %d", CType(TypeClass.BOOL, 1), True, "true"),
    ("n %lx", U64, 255, "ff"),
)


@pytest.fixture(autouse=True)
def _needed() -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow from PyPI")
    pytest.importorskip("perfetto", reason="needs perfetto from PyPI")


def made(turn: int = 0) -> tuple[TraceInfo, list[Event]]:
    """A trace of sites of one name; whichever type is the last must not have its way."""
    rows = (*FORMATS[turn:], *FORMATS[:turn])
    kinds = tuple(
        make_type(number * 2, "same", format_, ctype, time=Time.MONOTONIC, tid=True)
        for number, (format_, ctype, _, _) in enumerate(rows)
    )
    known = Kinds(kinds)
    some = [
        known.marked(Event(START_NS + 10 * n, 0, 1, "same", {"n": value}), kind)
        for n, (kind, (_, _, value, _)) in enumerate(zip(kinds, rows, strict=True))
    ]
    return make_info()._replace(types=kinds), some


def put_all(path: Path, info: TraceInfo, *events: Event) -> Trace:
    sink = open_sink(str(path), info)
    batch = make_batch(info, events)
    sink.write(with_packets(batch) if takes_packets(sink) else batch)
    sink.close({(0, "same"): 3})
    return open_trace(str(path))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_events_of_one_name_keep_their_types(suffix: str, tmp_path: Path) -> None:
    info, some = made()

    trace = put_all(tmp_path / f"a.{suffix}", info, *some)

    assert list(trace.events()) == some
    ids = {columns.type.id for batch in trace.batches() for columns in batch}
    assert ids == {kind.id for kind in info.types}
    assert [repr(event.fields["n"]) for event in trace.events()] == [
        repr(event.fields["n"]) for event in some
    ]


@pytest.mark.parametrize("turn", range(len(FORMATS)))
def test_events_of_one_name_are_printed_with_their_values(turn: int) -> None:
    """The stream of a session knows only the fields of each name."""
    info, some = made(turn)
    to_line = line_formatter(fields_by_marker(info.types), clock=info.clock)

    for event, (_, _, value, as_shown) in zip(
        some, (*FORMATS[turn:], *FORMATS[:turn]), strict=True
    ):
        shown = to_line(Event(*event)).split("n=")[1]
        assert to_line(event).endswith(f" n={as_shown}")
        if isinstance(value, int) and not isinstance(value, bool):
            assert value in _numbers(shown)
        elif isinstance(value, str):
            assert shown[1:-1] == value
        elif isinstance(value, float):
            assert float(shown) == value
        else:
            assert shown == "true"


def _numbers(shown: str) -> list[int]:
    """Those that this can mean: in hexadecimal, too, and negative ones by their bits."""
    number = int(shown, 16)
    return [number, number - (1 << 32), *([int(shown)] if shown.lstrip("-").isdecimal() else [])]


@pytest.mark.parametrize("suffix", EVENT_SUFFIXES)
def test_files_of_events_print_each_with_its_own_format(suffix: str, tmp_path: Path) -> None:
    info, some = made()

    trace = put_all(tmp_path / f"a.{suffix}", info, *some)
    to_line = trace.formatter()

    assert [to_line(event).split("n=")[1] for event in trace.events()] == [
        as_shown for *_, as_shown in FORMATS
    ]


@pytest.mark.parametrize("target", SUFFIXES)
@pytest.mark.parametrize("source", ["txt", "jsonl", "parquet"])
def test_events_of_one_name_are_converted(source: str, target: str, tmp_path: Path) -> None:
    info, some = made()
    trace = put_all(tmp_path / f"a.{source}", info, *some)

    convert(trace, str(tmp_path / f"b.{target}"))

    again = open_trace(str(tmp_path / f"b.{target}"))
    assert list(again.events()) == some
    assert {columns.type.id for batch in again.batches() for columns in batch} == {
        kind.id for kind in info.types
    }


def test_a_type_of_another_marker_is_refused() -> None:
    info, some = made()
    kinds = Kinds(info.types)

    assert kinds.find("same", 2) is info.types[1]
    assert kinds.find("same") is None
    assert isinstance(kinds.marked(some[0], info.types[0]), EventOfKind)
    for wrong in (1, "2", True, 2.0):
        with pytest.raises(ValueError, match="no such same"):
            kinds.find("same", wrong)
    with pytest.raises(ValueError, match="no such other"):
        kinds.find("other", 2)


def test_losses_of_a_name_are_counted_once(tmp_path: Path) -> None:
    info, some = made()
    trace = put_all(tmp_path / "a.jsonl", info, *some, some[3]._replace(time=START_NS + 999))

    summary = summarise(trace)

    assert summary.lost == 3
    assert [marker.lost for marker in summary.markers] == [3] + [0] * (len(FORMATS) - 1)


# ---- files that do not say -----------------------------------------------------------------------


def headless(path: Path, *fields: dict[str, Value], tid: int = 1) -> Trace:
    lines = [
        json.dumps({"time": n, "cpu": 0, "tid": tid, "name": "a", "fields": values})
        for n, values in enumerate(fields)
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    return open_trace(str(path))


def test_what_is_a_number_and_a_text_is_a_text(tmp_path: Path) -> None:
    values: list[Value] = [5, "x", None, 0.5, True, -1]
    trace = headless(tmp_path / "a.jsonl", *({"n": value} for value in values))
    expected = ["5", "x", None, "0.5", "true", "-1"]

    to_line = trace.formatter()
    assert [event.fields["n"] for event in trace.events()] == expected
    assert [to_line(event).split("n=")[1] for event in trace.events()][:3] == [
        '"5"',
        '"x"',
        "(null)",
    ]
    for target in SUFFIXES:
        convert(trace, str(tmp_path / f"b.{target}"))
        again = open_trace(str(tmp_path / f"b.{target}"))
        assert [event.fields["n"] for event in again.events()] == expected


def test_a_marker_with_several_sets_of_fields_has_several_types(tmp_path: Path) -> None:
    fields: list[dict[str, Value]] = [{"n": 5}, {"n": "x", "m": 1}, {}, {"n": 7}, {"m": 2.5}]
    trace = headless(tmp_path / "a.jsonl", *fields)

    assert len(trace.info.types) == 4
    assert summarise(trace).events == 5
    for target in SUFFIXES:
        convert(trace, str(tmp_path / f"b.{target}"))
        again = open_trace(str(tmp_path / f"b.{target}"))
        assert [event.fields for event in again.events()] == fields


def test_text_of_a_terminal_with_numbers_and_texts_can_be_converted(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    shown = ["5", '"x"', "(null)", "1.5", "00 1f ff", "<ff>", "10"]
    path.write_text(
        "".join(f"00:00:0{n}.000000000 cpu0 1 a n={text} m={n}\n" for n, text in enumerate(shown))
    )
    trace = open_trace(str(path))

    assert [event.fields["n"] for event in trace.events()] == [
        "5", "x", None, "1.5", b"\0\x1f\xff", b"\xff", "10",
    ]  # fmt: skip
    assert [event.fields["m"] for event in trace.events()] == [*range(7)]
    convert(trace, str(tmp_path / "b.jsonl"))


def test_numbers_below_0_and_beyond_63_bits_are_texts() -> None:
    guess = Guess()
    some = [Event(0, 0, 1, "a", {"n": number}) for number in (-1, 1 << 63)]
    for event in some:
        guess.look_at(event)
    guess.types()

    assert [guess.fitted(event).fields["n"] for event in some] == ["-1", str(1 << 63)]


def test_types_that_are_guessed_have_an_end() -> None:
    guess = Guess()

    with pytest.raises(BadTrace, match="too many"):
        for number in range((1 << 16) + 1):
            guess.look_at(Event(0, 0, 1, "a", {f"n{number}": 1}))
    with pytest.raises(BadTrace, match="odd names"):
        guess.look_at(Event(0, 0, 1, "a", {"n m": 1}))


def test_text_without_a_clock_stays_without_one(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"#{n} cpu{n % 2} 1 a n={n}\n" for n in range(4)))

    convert(open_trace(str(path)), str(tmp_path / "b.ctf"))

    again = open_trace(str(tmp_path / "b.ctf"))
    assert again.info.clock.time is Time.NONE
    assert {kind.time for kind in again.info.types} == {Time.NONE}
    assert sorted(event.fields["n"] for event in again.events()) == [0, 1, 2, 3]  # type: ignore[type-var]


@pytest.mark.parametrize("suffix", ["json", "pftrace"])
def test_without_a_clock_there_are_no_spans_and_no_times(suffix: str, tmp_path: Path) -> None:
    info = make_info(Time.NONE)
    numbered = [event._replace(time=n, cpu=0) for n, event in enumerate(EVENTS)]
    path = tmp_path / f"a.{suffix}"
    put(open_sink(str(path), info), info, numbered)

    if suffix == "json":
        assert {entry["ph"] for entry in json.loads(path.read_text())} == {"i", "M"}
        return
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Packets

    packets = Packets.FromString(path.read_bytes()).packet
    events = [packet for packet in packets if packet.HasField("track_event")]
    assert {event.track_event.type for event in events} == {3}
    assert max(event.timestamp for event in events) == len(EVENTS) - 1


def test_a_field_named_by_a_format_of_another_site_is_left_out() -> None:
    fields = parse_format("n %d m %d", (I32, I32))

    line = line_formatter({"a": fields})(Event(0, 0, 1, "a", {"m": 1.5}))

    assert line.endswith(" a m=1.5")

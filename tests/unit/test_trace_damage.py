"""Traces that were made to harm, or damaged: each ends in a MarkerError, or is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from markerjit.errors import BadTrace, MarkerError
from markerjit.ring.types import Time
from markerjit.trace.convert import convert
from markerjit.trace.header import parse_json
from markerjit.trace.open import open_sink, open_trace
from markerjit.trace.statistics import summarise
from tests.support.made_traces import EVENTS, make_batch, make_info, put

LOST = {(0, "kv_get"): 3}
DEEP = "[" * 100_000


@pytest.fixture(autouse=True)
def _needed() -> None:
    pytest.importorskip("perfetto", reason="needs perfetto from PyPI")


def write(path: Path) -> Path:
    info = make_info()
    sink = open_sink(str(path), info)
    sink.write(make_batch(info))
    sink.close(LOST)
    return path


def use(path: Path) -> None:
    """Do with a trace all that can be done."""
    trace = open_trace(str(path))
    to_text, to_json = trace.formatter(), trace.formatter(json=True)
    for event in trace.events():
        to_text(event)
        to_json(event)
    assert trace.lost is not None
    summarise(trace)
    convert(trace, str(path.with_suffix(".again.jsonl")), force=True)


def test_a_trace_that_is_whole_can_be_used(tmp_path: Path) -> None:
    for suffix in ("txt", "jsonl", "json", "pftrace"):
        use(write(tmp_path / f"a.{suffix}"))


# ---- the header ----------------------------------------------------------------------------------


def _field(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document["types"][3]["fields"][1][key] = value

    return change


def _of_type(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["types"][3].update({key: value})


def _clock(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["clock"].update({key: value})


def _top(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.update({key: value})


@pytest.mark.parametrize("suffix", ["txt", "jsonl", "json"])
@pytest.mark.parametrize(
    "change",
    [
        _field("conversion", "q"), _field("conversion", ""), _field("conversion", "s"),
        _field("conversion", ".99999f"), _field("conversion", 3), _field("type", "char"),
        _field("ctype", "f64"), _field("ctype", "u7"), _field("ctype", ""), _field("ctype", []),
        _field("name", "key"), _field("name", "a b"), _field("name", ""), _field("name", None),
        _field("arg", -1), _field("arg", 1e999), _field("limit", "x"), _field("limit", -1),
        _of_type("id", 0), _of_type("id", -1), _of_type("id", 1 << 40), _of_type("id", "3"),
        _of_type("marker", "a\nb"), _of_type("marker", []), _of_type("time", "tsc"),
        _of_type("time", []), _of_type("fields", None), _of_type("format", 1),
        _clock("wall_offset_ns", 10**26), _clock("wall_offset_ns", 1e999),
        _clock("frequency_hz", 0), _clock("counter", -1), _clock("time", "later"),
        _top("pid", 1e999), _top("pid", -1), _top("pid", 10**4000), _top("started_ns", 10**26),
        _top("version", "x"), _top("version", None), _top("sources", []), _top("types", {"a": 1}),
        _top("command", None), _top("sources", {"a": 1}),
    ],
)  # fmt: skip
def test_a_header_that_makes_no_sense_is_a_bad_trace(
    suffix: str, change: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    path = write(tmp_path / f"a.{suffix}")
    lines = path.read_text().splitlines(keepends=True)
    row = 1 if suffix == "json" else 0
    line = lines[row].removeprefix("# trace ").rstrip(",\n")
    document = json.loads(line)
    change({"jsonl": document.get("trace"), "json": document.get("args"), "txt": document}[suffix])
    before, after = {"json": ("", ","), "jsonl": ("", ""), "txt": ("# trace ", "")}[suffix]
    lines[row] = f"{before}{json.dumps(document)}{after}\n"
    path.write_text("".join(lines))

    with pytest.raises(BadTrace, match=r"header of .* makes no sense"):
        use(path)


def test_half_a_character_in_a_header_is_spelled_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl")
    path.write_text(path.read_text().replace('"kvserver"', r'"\ud800"', 1))

    assert open_trace(str(path)).info.command == r"\ud800"
    use(path)


# ---- lines ---------------------------------------------------------------------------------------

HEAD = '"time": 1, "cpu": 0, "tid": 1, "name": "kv_get"'
FIELDS = '"fields": {"key": "a", "len": 1, "flags": 1, "cpu": 1}'


@pytest.mark.parametrize(
    "line",
    [
        f"{{{HEAD.replace('1,', '1e999,', 1)}, {FIELDS}}}",
        f"{{{HEAD.replace('1,', f'{10**26},', 1)}, {FIELDS}}}",
        f"{{{HEAD.replace('0', '1e999')}, {FIELDS}}}",
        f"{{{HEAD.replace('0', '70000')}, {FIELDS}}}",
        f"{{{HEAD}, {FIELDS.replace('1', '[]')}}}",
        f"{{{HEAD}, {FIELDS.replace('1', '9' * 4000)}}}",
        f"{{{HEAD}, {FIELDS.replace('1', DEEP)}}}",
        f'{{{HEAD}, "fields": [[1, 2]]}}',
        f'{{{HEAD}, "fields": {DEEP}',
        f"{{{HEAD.replace('kv_get', 'a b')}, {FIELDS}}}",
        f'{{{HEAD}, "kind": 0, {FIELDS}}}',
        f'{{{HEAD}, "kind": [], {FIELDS}}}',
        DEEP,
    ],
)
@pytest.mark.parametrize("headed", [True, False])
def test_a_json_line_that_there_cannot_be_is_a_bad_trace(
    line: str, headed: bool, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    lines[4] = f"{line}\n"
    path.write_text("".join(lines if headed else lines[1:]))

    if '"kind"' in line and not headed:
        use(path)  # nothing says what it would mean
        return
    with pytest.raises(BadTrace, match="is not an event"):
        use(path)


def test_a_number_in_a_ring_is_not_below_0(tmp_path: Path) -> None:
    info = make_info(Time.NONE)
    path = tmp_path / "a.jsonl"
    put(open_sink(str(path), info), info, [EVENTS[4]._replace(time=0, cpu=0)])
    path.write_text(path.read_text().replace('"time": 0', '"time": -1'))

    with pytest.raises(BadTrace, match="is not an event"):
        use(path)


@pytest.mark.parametrize("value", ['"one"', "null", "true", "0.5", "-1", "18446744073709551615"])
@pytest.mark.parametrize("key", ["id", "c", "yes", "at", "x", "name", "key", "len"])
def test_a_value_that_does_not_fit_its_field_is_printed(
    key: str, value: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    info = make_info()
    put(open_sink(str(path), info), info)
    lines = path.read_text().splitlines(keepends=True)
    for row, line in enumerate(lines):
        document = json.loads(line)
        if key in document.get("fields", {}):
            document["fields"][key] = json.loads(value)
            lines[row] = f"{json.dumps(document)}\n"
    path.write_text("".join(lines))

    try:
        trace = open_trace(str(path))
        to_line = trace.formatter()
        shown = [to_line(event) for event in trace.events() if key in event.fields]
    except BadTrace as error:
        assert (key, value) == ("x", '"one"'), error
    else:
        assert shown


@pytest.mark.parametrize(
    "summary",
    ['{"lost": "x"}', '{"lost": 1e999}', '{"lost": -1}', '{"losses": null}', '{"losses": [1]}',
     '{"losses": [{"cpu": 1e999, "name": "a", "lost": 1}]}',
     '{"losses": [{"cpu": 0, "name": [], "lost": 1}]}'],
)  # fmt: skip
@pytest.mark.parametrize("suffix", ["txt", "jsonl"])
def test_losses_that_make_no_sense_are_a_bad_trace(
    suffix: str, summary: str, tmp_path: Path
) -> None:
    path = write(tmp_path / f"a.{suffix}")
    *lines, _ = path.read_text().splitlines(keepends=True)
    end = f"# summary {summary}\n" if suffix == "txt" else f'{{"summary": {summary}}}\n'
    path.write_text("".join([*lines, end]))

    with pytest.raises(BadTrace, match="the losses in"):
        use(path)


@pytest.mark.parametrize("args", ["", ', "args": 3', ', "args": {"losses": [3]}'])
def test_losses_of_chrome_that_make_no_sense_are_a_bad_trace(args: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.json")
    *lines, _, end = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, f'{{"ph": "M", "name": "markerjit_losses"{args}}}\n', end]))

    with pytest.raises(BadTrace, match="the losses in"):
        use(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"cpu_2":1,', '"cpu_2":1e999,'), ('"cpu_2":1', '"cpu_2":"GET"'),
        ('"tid":813', '"tid":1e999'), ('"tid":813', f'"tid":{10**26}'),
        ('"ts":5000000.020', f'"ts":{10**23}.020'), ('"len":9223372036854775808', f'"len":{DEEP}'),
        ('"len":9223372036854775808', '"len":[1]'),
    ],
)  # fmt: skip
def test_a_line_of_chrome_that_there_cannot_be_is_a_bad_trace(
    old: str, new: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.json")
    whole = path.read_text()
    if old.endswith(","):
        old, new = old[:-1], new[:-1]
    assert old in whole
    path.write_text(whole.replace(old, new, 1))

    with pytest.raises(BadTrace, match="is not an event"):
        use(path)


@pytest.mark.parametrize(
    "line",
    [
        f"00:00:05.000000000 cpu{'9' * 5000} 1 tick",
        "00:00:05.000000000 cpu70000 1 tick",
        f"#{'9' * 5000} cpu0 1 tick",
        f"00:00:05.000000000 cpu0 1 query_done id=0x{'f' * 5000} rows=1",
        f"00:00:05.000000000 cpu0 1 kv_get flags=0x{'f' * 5000}",
        "00:00:05.000000000 cpu0 1 kv_get#3 len=1",
        "00:00:05.000000000 cpu0 1 kv_get#x len=1",
    ],
)
def test_a_line_of_text_that_there_cannot_be_is_a_bad_trace(line: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt")
    whole = path.read_text().splitlines(keepends=True)
    whole.insert(-2, f"{line}\n")
    path.write_text("".join(whole))

    with pytest.raises(BadTrace, match=r"is not an event|has fields that its marker does not have"):
        use(path)
    (tmp_path / "b.txt").write_text(f"{line}\n")
    if "#3" in line:  # nothing says what it would mean
        use(tmp_path / "b.txt")
        return
    try:
        use(tmp_path / "b.txt")
    except MarkerError as error:
        assert "is not an event" in str(error)


def test_a_date_that_there_cannot_be_is_none(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt")
    whole = path.read_text()
    for number in ("9" * 19, "-" + "9" * 19, "9" * 5000):
        path.write_text(whole.replace("# at 17", f"# at {number}17"[:24], 1))
        use(path)


# ---- Perfetto ------------------------------------------------------------------------------------


def packets_of(path: Path) -> Any:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    return Trace.FromString(path.read_bytes())


@pytest.mark.parametrize("damage", ["cpu", "cpu_number", "nested", "ended", "told", "time"])
def test_a_packet_that_there_cannot_be_is_a_bad_trace(damage: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pftrace")
    trace = packets_of(path)
    event = [packet for packet in trace.packet if packet.track_event.source_location_iid][1]
    ended = next(packet for packet in trace.packet if packet.track_event.name == "trace ended")
    began = next(packet for packet in trace.packet if packet.track_event.name == "trace began")
    match damage:
        case "cpu":
            event.track_event.debug_annotations[0].string_value = "GET"
        case "cpu_number":
            event.track_event.debug_annotations[0].double_value = float("inf")
        case "nested":
            event.track_event.debug_annotations[1].nested_value.int_value = 3
        case "ended":
            ended.track_event.debug_annotations[0].string_value = DEEP
        case "told":
            began.track_event.debug_annotations[0].string_value = DEEP
        case "time":
            event.timestamp = 1 << 63
    path.write_bytes(trace.SerializeToString())

    with pytest.raises(BadTrace, match=r"a\.pftrace"):
        use(path)


def test_what_a_damaged_perfetto_trace_had_is_kept_by_a_conversion(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pftrace")
    trace = packets_of(path)
    ended = next(packet for packet in trace.packet if packet.track_event.name == "trace ended")
    ended.track_event.debug_annotations[0].string_value = "{"
    path.write_bytes(trace.SerializeToString())

    for suffix in ("parquet", "arrow", "txt"):
        if suffix != "txt":
            pytest.importorskip("pyarrow")
        output = tmp_path / f"b.{suffix}"
        source = open_trace(str(path))
        source.batches = _then_damaged(source.batches)  # type: ignore[method-assign]
        with pytest.raises(BadTrace):
            convert(source, str(output))

        assert list(open_trace(str(output)).events()) == list(EVENTS)


def _then_damaged(batches: Callable[[], Any]) -> Callable[[], Any]:
    """All batches before the damage: a trace has the last ones at once with it."""

    def damaged() -> Any:
        info = make_info()
        yield make_batch(info).columns
        yield from batches()

    return damaged


def test_json_that_goes_too_deep_is_none() -> None:
    with pytest.raises(ValueError, match="too deep"):
        parse_json(DEEP)

"""Traces of every format: written, read again, cut off, overwritten, on a full disk, damaged."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from markerjit.errors import BadTrace, MarkerError, Refused, Unsupported
from markerjit.model import Event
from markerjit.ring.batch import Texts
from markerjit.ring.clock import NS
from markerjit.ring.types import RecordType, TextState, Time
from markerjit.trace import files
from markerjit.trace import open as open_module
from markerjit.trace.batch import Batch
from markerjit.trace.encode import with_packets
from markerjit.trace.open import (
    FORMATS,
    check_output,
    format_of,
    open_sink,
    open_trace,
    takes_packets,
)
from markerjit.trace.reading import UNKNOWN, Trace
from markerjit.trace.sink import TraceInfo
from tests.support.choice import examples, share
from tests.support.made_traces import (
    CHARS,
    EVENTS,
    F64,
    I32,
    START_NS,
    WALL_NS,
    make_batch,
    make_info,
    make_type,
    put,
)

SUFFIXES = ("txt", "jsonl", "json", "pftrace", "parquet", "arrow", "ctf", "ctf2")
FILES = SUFFIXES[:-2]
STREAMING = ("txt", "jsonl", "json", "pftrace", "arrow")
"""Those that can be read up to where they were cut off."""
NAMES = (
    "postgresql:query__start", "func:libc.so.6:malloc:return", "insn:main+0x1f", "call:main->puts",
    "func:Json::Value::operator[](char const*) const", "func:type:.eq.struct { F uintptr; n int }",
    "func:std::operator==<char>(a, b)", "func:kvserver+0x3a90",
)  # fmt: skip
"""USDT probes, functions, instructions and calls. Go has symbols with blanks."""
LOST = {(0, "kv_get"): 3, (1, "odd"): 1}


@pytest.fixture(autouse=True)
def _needed() -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow from PyPI")
    pytest.importorskip("perfetto", reason="needs perfetto from PyPI")


def write(
    path: Path, info: TraceInfo, *batches: Batch, lost: dict[tuple[int, str], int] | None = None
) -> Path:
    """A whole trace."""
    sink = open_sink(str(path), info)
    for batch in batches:
        sink.write(with_packets(batch) if takes_packets(sink) else batch)
    sink.close(lost or {})
    return path


def events_of(path: Path) -> list[Event]:
    return list(open_trace(str(path)).events())


# ---- there and back ------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_was_written_is_read_again(suffix: str, tmp_path: Path) -> None:
    info = make_info()

    path = write(tmp_path / f"a.{suffix}", info, make_batch(info, EVENTS[:4]),
                 make_batch(info, EVENTS[4:], LOST), lost=LOST)  # fmt: skip
    trace = open_trace(str(path))

    assert list(trace.events()) == list(EVENTS)
    assert trace.lost == LOST
    assert trace.problems == []
    facts = trace.info
    assert (facts.pid, facts.command, facts.host) == (info.pid, info.command, info.host)
    assert (facts.started_ns, facts.sources) == (info.started_ns, info.sources)
    assert facts.clock.wall_offset_ns == WALL_NS
    assert [(kind.marker, kind.fields) for kind in facts.types] == [
        (kind.marker, kind.fields) for kind in info.types
    ]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_marker_has_its_name_again(name: str, suffix: str, tmp_path: Path) -> None:
    def renamed(marker: str) -> str:
        return name if marker == "kv_get" else marker

    made = make_info()
    info = made._replace(
        types=tuple(
            RecordType(
                kind.id, renamed(kind.marker), kind.format, kind.fields, time=kind.time, tid=True
            )
            for kind in made.types
        )
    )
    events = [event._replace(name=renamed(event.name)) for event in EVENTS]

    path = write(tmp_path / f"a.{suffix}", info, make_batch(info, events))

    assert events_of(path) == events


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_trace_can_be_read_twice_and_as_columns(suffix: str, tmp_path: Path) -> None:
    info = make_info()
    trace = open_trace(str(write(tmp_path / f"a.{suffix}", info, make_batch(info))))

    first, again = list(trace.events()), list(trace.events())
    rows = sum(len(columns.time) for batch in trace.batches() for columns in batch)

    assert first == again
    assert rows == len(first)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_trace_is_a_trace(suffix: str, tmp_path: Path) -> None:
    trace = open_trace(str(write(tmp_path / f"a.{suffix}", make_info())))

    assert list(trace.events()) == []
    assert not trace.lost
    assert trace.problems == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_counter_becomes_nanoseconds(suffix: str, tmp_path: Path) -> None:
    info = make_info(Time.TSC)
    counted = [event._replace(time=1_000_000 + 3 * index) for index, event in enumerate(EVENTS)]

    path = write(tmp_path / f"a.{suffix}", info, make_batch(info, counted))

    assert [event.time - START_NS for event in events_of(path)] == list(range(len(EVENTS)))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_without_a_clock_events_have_numbers(suffix: str, tmp_path: Path) -> None:
    info = make_info(Time.NONE)
    numbered = [event._replace(time=index, cpu=0) for index, event in enumerate(EVENTS)]

    trace = open_trace(str(write(tmp_path / f"a.{suffix}", info, make_batch(info, numbered))))

    assert list(trace.events()) == numbered
    assert trace.info.clock.time is Time.NONE
    assert trace.formatter()(numbered[0]).startswith("#0 cpu0 812 query_start")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_without_threads_there_are_no_spans(suffix: str, tmp_path: Path) -> None:
    info = make_info(tid=False)
    nobodys = [event._replace(tid=0) for event in EVENTS]

    path = write(tmp_path / f"a.{suffix}", info, make_batch(info, nobodys))

    assert events_of(path) == nobodys
    if suffix == "json":
        assert {entry["ph"] for entry in json.loads(path.read_text())} == {"i", "M"}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_markers_of_one_name_may_have_different_fields(suffix: str, tmp_path: Path) -> None:
    kinds = tuple(
        make_type(number, "same", *description, time=Time.MONOTONIC, tid=True)  # type: ignore[arg-type]
        for number, description in enumerate([("n %d", I32), ("n %d x %f", I32, F64)])
    )
    info = make_info()._replace(types=kinds)
    some = [
        Event(START_NS + 1, 0, 1, "same", {"n": 1}),
        Event(START_NS + 2, 0, 1, "same", {"n": 2, "x": 0.5}),
        Event(START_NS + 3, 0, 1, "same", {"n": 3}),
    ]

    path = write(tmp_path / f"a.{suffix}", info, make_batch(info, some))

    assert events_of(path) == some


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan"), -0.0, 5e-324])
def test_odd_floats_survive(suffix: str, number: float, tmp_path: Path) -> None:
    info = make_info()
    event = EVENTS[6]._replace(fields={**EVENTS[6].fields, "x": number})

    path = write(tmp_path / f"a.{suffix}", info, make_batch(info, [event]))

    assert repr(events_of(path)[0].fields["x"]) == repr(number)


TEXTS = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
MADE = st.lists(
    st.one_of(
        st.builds(
            lambda key, n, flags: ("kv_get", {"key": key, "len": n, "flags": flags, "cpu": -n % 9}),
            TEXTS, st.integers(0, (1 << 64) - 1), st.integers(0, 65535),
        ),
        st.builds(
            lambda id_, text: ("query_start", {"id": id_, "text": text}),
            st.integers(-(1 << 31), (1 << 31) - 1), TEXTS,
        ),
        st.builds(
            lambda id_, rows: ("query_done", {"id": id_, "rows": rows}),
            st.integers(-(1 << 31), (1 << 31) - 1), st.integers(0, (1 << 64) - 1),
        ),
        st.just(("tick", {})),
    ),
    max_size=30,
)  # fmt: skip


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(made=MADE, tids=st.lists(st.integers(0, 3), min_size=30, max_size=30))
def test_any_events_are_read_again(
    suffix: str, made: list[tuple[str, dict[str, Any]]], tids: list[int], tmp_path: Path
) -> None:
    info = make_info()
    some = [
        Event(START_NS + 7 * index, tid % 2, tid, name, fields)
        for index, ((name, fields), tid) in enumerate(zip(made, tids, strict=False))
    ]
    path = tmp_path / f"a.{suffix}"
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)

    write(path, info, make_batch(info, some[:9]), make_batch(info, some[9:]))

    assert events_of(path) == some


# ---- texts ---------------------------------------------------------------------------------------


def with_texts(
    texts: list[bytes], states: list[TextState], *, length: bool = False
) -> tuple[TraceInfo, Batch]:
    """A batch of one marker whose field holds these bytes."""
    format_, args = ("key %.*s", (I32, CHARS)) if length else ("key %s", (CHARS,))
    kind = make_type(0, "a", format_, *args, time=Time.MONOTONIC, tid=True)
    info = make_info()._replace(types=(kind,))
    some = [Event(START_NS + n, 0, 1, "a", {"key": ""}) for n in range(len(texts))]
    batch = make_batch(info, some)
    offsets = np.cumsum([0, *map(len, texts)])
    column = Texts(offsets, np.frombuffer(b"".join(texts), np.uint8), np.array(states, np.uint8))
    return info, batch._replace(columns=[batch.columns[0]._replace(fields={"key": column})])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_texts_that_were_cut_or_are_no_utf8_are_shown_as_trace_shows_them(
    suffix: str, tmp_path: Path
) -> None:
    info, batch = with_texts(
        [b"cut", b"\xff\xc3", b"\xc3", b"\xa4", b"", b""],
        [TextState.CUT, *[TextState.WHOLE] * 3, TextState.NULL, TextState.UNREADABLE],
    )

    path = write(tmp_path / f"a.{suffix}", info, batch)

    assert [event.fields["key"] for event in events_of(path)] == [
        "cut…", "\\xff\\xc3", "\\xc3", "\\xa4", None, "<unreadable>",
    ]  # fmt: skip


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_bytes_that_are_no_text_stay_bytes_or_become_digits(suffix: str, tmp_path: Path) -> None:
    info, batch = with_texts([b"\0\xff", b"text"], [TextState.WHOLE] * 2, length=True)

    events = events_of(write(tmp_path / f"a.{suffix}", info, batch))

    shown = {
        "jsonl": "00ff",
        "json": "00ff",
        "pftrace": "00ff",
        "parquet": b"\0\\xff",
        "arrow": b"\0\\xff",
    }
    assert [event.fields["key"] for event in events] == [shown.get(suffix, b"\0\xff"), "text"]


def test_text_in_a_line_never_makes_a_second_line(tmp_path: Path) -> None:
    info = make_info()
    event = EVENTS[1]._replace(fields={**EVENTS[1].fields, "key": "a\n# 3 events, 9 lost\u2028\r"})

    for suffix in ("txt", "jsonl", "json"):
        path = write(tmp_path / f"a.{suffix}", info, make_batch(info, [event]))
        assert events_of(path) == [event]
        assert not open_trace(str(path)).lost


# ---- a file that can be watched, and one that was cut off ----------------------------------------


@pytest.mark.parametrize("suffix", STREAMING)
def test_what_was_written_can_be_read_before_the_trace_ends(suffix: str, tmp_path: Path) -> None:
    info = make_info()
    path = tmp_path / f"a.{suffix}"
    sink = open_sink(str(path), info)
    sink.write(make_batch(info, lost={(0, "tick"): 2}))

    trace = open_trace(str(path))

    assert list(trace.events()) == list(EVENTS)
    assert len(trace.problems) == 1
    assert "more may have been lost" in trace.problems[0]
    sink.close({})


@pytest.mark.parametrize("suffix", STREAMING)
def test_a_file_that_was_cut_anywhere_is_read_up_to_there(suffix: str, tmp_path: Path) -> None:
    info = make_info()
    path = tmp_path / f"a.{suffix}"
    sink = open_sink(str(path), info)
    header = path.stat().st_size
    sink.write(make_batch(info))
    sink.close({})
    whole = path.read_bytes()
    seen = set()

    for size in share(range(len(whole) - 1, 0, -13), 3, 0):
        path.write_bytes(whole[:size])
        try:
            trace = open_trace(str(path))
            events = list(trace.events())
        except MarkerError:
            assert size < header + 2  # in what it says of itself
            continue
        if suffix == "txt" and events and events != list(EVENTS[: len(events)]):
            events = events[:-1]  # a line of text that was cut may still look like one
        assert events == list(EVENTS[: len(events)])
        if len(events) < len(EVENTS):
            assert trace.problems
        seen.add(len(events))

    assert 0 in seen
    assert max(seen) == len(EVENTS)


def test_chrome_json_is_json_when_closed_and_an_open_array_before(tmp_path: Path) -> None:
    info = make_info()
    path = tmp_path / "a.json"
    sink = open_sink(str(path), info)
    sink.write(make_batch(info))

    before = json.loads(path.read_text() + "]")
    sink.close({})
    after = json.loads(path.read_text())

    assert after[: len(before)] == before
    assert {entry["ph"] for entry in after} == {"M", "B", "E", "i"}


def test_a_parquet_file_that_was_not_closed_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", make_info())
    path.write_bytes(path.read_bytes()[:-9])

    with pytest.raises(BadTrace, match="did not close"):
        open_trace(str(path))


class FullDisk(io.FileIO):
    """A file on a disk with room for some bytes."""

    room = 20_000

    def write(self, data: Any) -> int:
        written = super().write(memoryview(data)[: self.room])
        self.room -= written
        if not written:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written


@pytest.mark.parametrize("suffix", FILES)
def test_a_full_disk_is_an_oserror_and_leaves_what_was_written(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = make_info()
    path = tmp_path / f"a.{suffix}"
    monkeypatch.setattr(
        files, "open", lambda path, mode: io.BufferedWriter(FullDisk(path, mode)), raising=False
    )
    sink = open_sink(str(path), info)

    with pytest.raises(OSError) as caught:
        for _ in range(1000):
            sink.write(make_batch(info))
            if suffix == "parquet":
                sink._file._flush()  # type: ignore[attr-defined]
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(OSError):
        sink.close({})

    monkeypatch.undo()
    if suffix in STREAMING:
        events = list(open_trace(str(path)).events())
        assert len(events) >= len(EVENTS)
        assert events[: len(EVENTS)] == list(EVENTS)


# ---- names of files ------------------------------------------------------------------------------


def test_the_suffix_says_the_format() -> None:
    names = {suffix: format_.name for format_ in FORMATS for suffix in format_.suffixes}

    assert {suffix: format_of(f"a{suffix}").name for suffix in names} == names
    assert format_of("A.PARQUET").name == "Parquet"


@pytest.mark.parametrize("path", ["a/", "a", "dir.d/a", "a.d/"])
def test_a_directory_or_no_suffix_means_ctf(path: str) -> None:
    assert format_of(path).name == "CTF 1.8"


def test_an_unknown_suffix_is_refused_with_all_known_ones() -> None:
    with pytest.raises(Refused) as caught:
        format_of("a.csv")

    for format_ in FORMATS:
        for suffix in format_.suffixes:
            assert suffix in str(caught.value)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_exists_is_refused_unless_it_may_go(suffix: str, tmp_path: Path) -> None:
    info = make_info()
    path = write(tmp_path / f"a.{suffix}", info, make_batch(info))

    for refuse in (lambda: open_sink(str(path), info), lambda: check_output(str(path))):
        with pytest.raises(Refused, match=r"exists already; .*--force"):
            refuse()
    assert events_of(path) == list(EVENTS)

    check_output(str(path), force=True)
    assert events_of(path) == list(EVENTS)
    open_sink(str(path), info, force=True).close({})
    assert events_of(path) == []


def test_a_directory_of_other_files_is_never_emptied(tmp_path: Path) -> None:
    (tmp_path / "metadata").touch()
    (tmp_path / "thesis.doc").touch()

    for attempt in (lambda: open_sink(f"{tmp_path}/", make_info(), force=True),
                    lambda: check_output(f"{tmp_path}/", force=True)):  # fmt: skip
        with pytest.raises(Refused, match="left alone"):
            attempt()
    assert len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_directory_that_is_not_there_is_refused(suffix: str, tmp_path: Path) -> None:
    path = str(tmp_path / "none" / f"a.{suffix}")

    with pytest.raises(Refused, match="cannot write"):
        check_output(path)
    if suffix in FILES:
        with pytest.raises(Refused, match="No such file or directory"):
            open_sink(path, make_info())


@pytest.mark.parametrize("suffix", FILES)
def test_a_directory_in_the_place_of_a_file_is_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    path.mkdir()

    for attempt in (lambda: open_sink(str(path), make_info(), force=True),
                    lambda: check_output(str(path), force=True)):  # fmt: skip
        with pytest.raises(Refused):
            attempt()
    with pytest.raises(BadTrace):
        open_trace(str(path))


def test_a_missing_package_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_module, "find_spec", lambda name: None)

    with pytest.raises(Unsupported, match=r"needs pyarrow: .*pip install pyarrow$"):
        check_output(str(tmp_path / "a.parquet"))


# ---- files that are no traces --------------------------------------------------------------------


@pytest.fixture(params=SUFFIXES)
def suffix(request: pytest.FixtureRequest) -> Iterator[str]:
    return request.param  # type: ignore[no-any-return]


def test_a_file_that_is_not_there_is_no_trace(suffix: str, tmp_path: Path) -> None:
    with pytest.raises(MarkerError) as caught:
        open_trace(str(tmp_path / f"none.{suffix}"))

    assert "none" in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0", b"\n", b"hello\nworld\n", b"[]", b"{}", b"[\n{}\n]\n", bytes(range(256)) * 9,
     b"PAR1" + bytes(100) + b"PAR1", b"ARROW1\0\0" + bytes(100), b"\x0a\xff\xff\xff\xff\xff",
     b'{"trace": {}}\n', b'{"trace": null}\n', b'{"summary": {}}\n',
     b'{"trace": {"version": 99}}\n',
     b'[\n{"name": "markerjit", "args": {}},\n', b"\x0a\x02\x0a\x00"],
)  # fmt: skip
def test_other_files_are_no_traces(suffix: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(content)

    try:
        events = list(open_trace(str(path)).events())
    except MarkerError as error:
        assert str(path) in str(error)
    else:
        assert events == []
        assert suffix in ("txt", "jsonl")


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(where=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255))
def test_a_damaged_byte_never_ends_in_a_traceback(
    suffix: str, where: float, byte: int, tmp_path: Path
) -> None:
    info = make_info()
    path = tmp_path / f"a.{suffix}"
    if not path.exists():
        write(path, info, make_batch(info), lost=LOST)
    for file in path.iterdir() if path.is_dir() else [path]:
        whole = file.read_bytes()
        damaged = bytearray(whole)
        damaged[int(where * len(whole))] = byte
        file.write_bytes(damaged)
        try:
            trace: Trace = open_trace(str(path))
            to_text, to_json = trace.formatter(), trace.formatter(json=True)
            for event in trace.events():
                to_text(event)
                to_json(event)
            list(trace.batches())
            assert trace.lost is not None
        except MarkerError:
            pass
        finally:
            file.write_bytes(whole)


# ---- lines that trace printed --------------------------------------------------------------------


def test_what_trace_printed_as_json_can_be_read(tmp_path: Path) -> None:
    info = make_info()
    path = write(tmp_path / "a.jsonl", info, make_batch(info))
    lines = path.read_text().splitlines(keepends=True)[1:-1]
    path.write_text("".join(lines) + '{"summary": {"events": 10, "lost": 4}}\n')

    trace = open_trace(str(path))

    assert list(trace.events()) == list(EVENTS)
    assert trace.lost == {UNKNOWN: 4}
    assert len(trace.problems) == 1
    assert sum(len(columns.time) for batch in trace.batches() for columns in batch) == len(EVENTS)


def test_what_trace_printed_as_text_can_be_read(tmp_path: Path) -> None:
    info = make_info()
    path = write(tmp_path / "a.txt", info, make_batch(info))
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    path.write_text("".join(f"{line}\n" for line in lines))

    trace = open_trace(str(path))
    events = list(trace.events())

    assert [event.fields for event in events] == [
        {**event.fields, **({"x": 0.1} if "x" in event.fields else {})} for event in EVENTS
    ]
    assert [event.time % NS for event in events] == [event.time % NS for event in EVENTS]
    assert len(trace.problems) == 3


def test_text_goes_over_midnight(tmp_path: Path) -> None:
    info = make_info()
    day = 86_400 * NS
    times = [START_NS + n * day // 4 for n in range(9)]
    some = [EVENTS[4]._replace(time=time) for time in times]

    path = write(tmp_path / "a.txt", info, make_batch(info, some))

    assert events_of(path) == some


def test_a_number_that_is_shown_as_its_bits_is_read_as_it_was(tmp_path: Path) -> None:
    formats = ("n %x", "n %#o", "n %u", "n %X", "n %d")
    kinds = tuple(
        make_type(number, f"m{number}", format_, I32, time=Time.MONOTONIC, tid=True)
        for number, format_ in enumerate(formats)
    )
    info = make_info()._replace(types=kinds)
    some = [
        Event(START_NS + 10 * number + value, 0, 1, kind.marker, {"n": value})
        for number, kind in enumerate(kinds)
        for value in (-1, 0, 7)
    ]

    path = write(tmp_path / "a.txt", info, make_batch(info, some))

    assert sorted(events_of(path)) == sorted(some)


def test_put_writes_a_whole_trace(tmp_path: Path) -> None:
    info = make_info()

    put(open_sink(str(tmp_path / "a.json"), info), info, EVENTS[:2], EVENTS[2:])

    assert events_of(tmp_path / "a.json") == list(EVENTS)

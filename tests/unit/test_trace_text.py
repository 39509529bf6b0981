"""Files of text: what is in them, and that they are read again whatever is in them."""

from __future__ import annotations

import errno
import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from markerjit.model import Event
from markerjit.ring.clock import NS
from markerjit.ring.types import RecordType, Time
from markerjit.trace import files
from markerjit.trace.convert import convert
from markerjit.trace.open import open_sink, open_trace
from markerjit.trace.reading import UNKNOWN
from markerjit.trace.sink import TraceInfo
from tests.support.made_traces import (
    CHARS,
    EVENTS,
    I32,
    START_NS,
    U64,
    WALL_NS,
    make_batch,
    make_info,
    make_type,
    put,
)

DAY_NS = 86_400 * NS
LOST = {(0, "kv_get"): 3, UNKNOWN: 4, (-1, "tick"): 1}


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def put_all(
    path: Path, info: TraceInfo, *events: Event, lost: dict[tuple[int, str], int] | None = None
) -> Path:
    sink = open_sink(str(path), info)
    sink.write(make_batch(info, events))
    sink.close(lost or {})
    return path


def test_a_file_says_for_people_what_it_is(tmp_path: Path, berlin: None) -> None:
    path = put_all(tmp_path / "a.txt", make_info(), *EVENTS[:2], lost=LOST)

    lines = path.read_text().splitlines()

    assert lines[0].startswith('# trace {"version": 1, "pid": 812, ')
    assert lines[0].endswith(', "utc_shift_s": 3600}')
    assert lines[1] == "# process 812 (kvserver) on here, since 2023-11-15 01:00:05 +0100"
    assert lines[5] == '# marker kv_get "key %s len %zu flags %#x cpu %hhd" kv.c:12'
    assert lines[8] == f"# at {START_NS + WALL_NS + 10} ns since 1970"
    assert lines[9].startswith("01:00:05.000000010 cpu0 812 query_start ")
    assert lines[-2] == "# 2 events, 8 lost: 3 kv_get on cpu0, 4  on cpu-1, 1 tick on cpu-1"
    assert lines[-1].startswith('# summary {"events": 2, "lost": 8, "losses": [')


@pytest.mark.parametrize("suffix", ["txt", "jsonl", "json", "pftrace"])
def test_losses_of_no_marker_are_read_again(suffix: str, tmp_path: Path) -> None:
    if suffix == "pftrace":
        pytest.importorskip("perfetto")

    trace = open_trace(str(put_all(tmp_path / f"a.{suffix}", make_info(), lost=LOST)))

    assert trace.lost == LOST
    assert trace.problems == []


def test_some_fields_of_a_marker_are_read_again(tmp_path: Path) -> None:
    """`trace --fields` leaves out others, but the format is whole."""
    whole = make_info().types[3]
    kind = RecordType(0, "kv_get", whole.format, whole.fields[1:3], time=Time.MONOTONIC)
    info = make_info()._replace(types=(kind,))
    event = Event(START_NS, 0, 1, "kv_get", {"len": 1 << 63, "flags": 7})

    trace = open_trace(str(put_all(tmp_path / "a.txt", info, event)))

    assert list(trace.events()) == [event]
    assert trace.info.types[0].fields == kind.fields


@pytest.mark.parametrize("value", [b"\0\x1f\xff", b"a", b"", b"10", None])
def test_raw_bytes_are_read_again(value: bytes | None, tmp_path: Path) -> None:
    kind = make_type(0, "a", "n %d body %*ph m %d", I32, I32, CHARS, I32, time=Time.MONOTONIC,
                     tid=True)  # fmt: skip
    info = make_info()._replace(types=(kind,))
    event = Event(START_NS, 0, 1, "a", {"n": 1, "body": value, "m": 2})

    path = put_all(tmp_path / "a.txt", info, event)

    assert list(open_trace(str(path)).events()) == [event]
    if value:
        assert f" body=<{value.hex(' ')}> m=2\n" in path.read_text()
        assert open_trace(str(path)).formatter()(event).endswith(f" body={value.hex(' ')} m=2")


@pytest.mark.parametrize("name", ["a\nb", "a\r\u2028", "# trace {}", ")", "\udc80", "ä"])
def test_any_name_of_a_process_is_read_again(name: str, tmp_path: Path) -> None:
    info = make_info()._replace(command=name, host=f"{name}{name}", sources={"tick": name})

    for suffix in ("txt", "jsonl"):
        trace = open_trace(str(put_all(tmp_path / f"a.{suffix}", info, *EVENTS)))

        assert trace.info.command == name.replace("\udc80", r"\udc80")
        assert list(trace.events()) == list(EVENTS)
        assert trace.problems == []


# ---- dates ---------------------------------------------------------------------------------------


def at(when: int) -> Event:
    return Event(when, 0, 1, "tick", {})


def test_the_clock_that_is_put_back_goes_on_in_a_file(tmp_path: Path, berlin: None) -> None:
    """2023-10-29 01:00 UTC: three o'clock in summer becomes two o'clock."""
    change = 1_698_541_200 * NS
    info = make_info()._replace(started_ns=change - 3600 * NS)
    some = [at(change - WALL_NS + n * 1800 * NS) for n in (-2, -1, 0, 1, 2, 50)]

    path = put_all(tmp_path / "a.txt", info, *some)

    assert list(open_trace(str(path)).events()) == some
    shown = [line[:8] for line in path.read_text().splitlines() if not line.startswith("#")]
    assert shown == ["02:00:00", "02:30:00", "03:00:00", "03:30:00", "04:00:00", "04:00:00"]
    to_line = open_trace(str(path)).formatter()
    assert [to_line(event)[:8] for event in some][:4] == [
        "02:00:00", "02:30:00", "02:00:00", "02:30:00",
    ]  # fmt: skip


@pytest.mark.parametrize("hours", [-30, -13, -12, -11, 0, 11, 12, 13, 100])
def test_events_long_before_or_after_the_beginning_keep_their_day(
    hours: int, tmp_path: Path
) -> None:
    first = START_NS + hours * 3600 * NS
    some = [at(first), at(first + 1), at(first + 3 * DAY_NS), at(first + 4 * DAY_NS)]

    path = put_all(tmp_path / "a.txt", make_info(), *some)

    assert list(open_trace(str(path)).events()) == some


def test_batches_that_are_days_apart_keep_their_days(tmp_path: Path) -> None:
    info = make_info()
    days = [[at(START_NS + n * DAY_NS + m) for m in range(3)] for n in (5, 3, 4, 4, 9)]

    put(open_sink(str(tmp_path / "a.txt"), info), info, *days)

    path = tmp_path / "a.txt"
    assert list(open_trace(str(path)).events()) == [event for some in days for event in some]
    assert path.read_text().count("# at ") == 4


# ---- a full disk ---------------------------------------------------------------------------------


class Disk(io.FileIO):
    """A file on a disk that is full for a while."""

    room: int | None = None

    def write(self, data: Any) -> int:
        if Disk.room is None:
            return super().write(data) or 0
        written = super().write(memoryview(data)[: Disk.room]) or 0
        Disk.room -= written
        if not written:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written


@pytest.mark.product
@pytest.mark.parametrize("room", [0, 1, 2, 3, 50, 99, 200, 333, 600])
@pytest.mark.parametrize("suffix", ["txt", "jsonl", "json", "pftrace"])
def test_what_did_not_fit_is_taken_back_and_nothing_comes_behind_it(
    suffix: str, room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if suffix == "pftrace":
        pytest.importorskip("perfetto")
    monkeypatch.setattr(
        files, "open", lambda path, mode: io.BufferedWriter(Disk(path, mode)), raising=False
    )
    monkeypatch.setattr(Disk, "room", None)
    info = make_info()
    path = tmp_path / f"a.{suffix}"
    sink = open_sink(str(path), info)
    sink.write(make_batch(info))
    before = path.read_bytes()

    Disk.room = room
    with pytest.raises(OSError, match="No space"):
        sink.write(make_batch(info))
    left = path.read_bytes()
    assert len(before) <= len(left) <= len(before) + room
    Disk.room = None  # there is room again
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            sink.write(make_batch(info))
    with pytest.raises(OSError, match="No space"):
        sink.close({})

    assert path.read_bytes() == left
    monkeypatch.undo()
    trace = open_trace(str(path))
    events = list(trace.events())
    assert events == [*EVENTS, *EVENTS][: len(events)]
    assert len(events) >= len(EVENTS) + (room > 300)
    assert len(trace.problems) == 1
    assert "it has no end" in trace.problems[0]


# ---- conversions ---------------------------------------------------------------------------------


def test_losses_of_a_cpu_below_0_are_added_where_there_is_none(tmp_path: Path) -> None:
    info = make_info()
    lost = {(-1, "tick"): 1, (0, "tick"): 2, UNKNOWN: 4}
    trace = open_trace(str(put_all(tmp_path / "a.jsonl", info, *EVENTS, lost=lost)))

    convert(trace, str(tmp_path / "b.ctf"))

    losses = open_trace(str(tmp_path / "b.ctf")).lost
    assert sum(losses.values()) == 7
    assert losses[0, "tick"] == 3


def test_numbers_are_as_large_as_fields_are(tmp_path: Path) -> None:
    kind = make_type(0, "a", "n %lu m %lx", U64, U64, time=Time.MONOTONIC, tid=True)
    event = Event(START_NS, 65535, (1 << 32) - 1, "a", {"n": (1 << 64) - 1, "m": (1 << 64) - 1})

    path = put_all(tmp_path / "a.txt", make_info()._replace(types=(kind,)), event)

    assert list(open_trace(str(path)).events()) == [event]

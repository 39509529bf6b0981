"""A Perfetto trace read as columns is the same as read event by event, also where it is damaged."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("perfetto", reason="needs perfetto from PyPI")

from markerjit.errors import BadTrace
from markerjit.model import Event
from markerjit.ring.types import Time
from markerjit.trace import wire
from markerjit.trace.perfetto_read import PerfettoTrace
from markerjit.trace.reading import EventTrace
from markerjit.trace.records import to_events
from markerjit.trace.wire_read import Bytes, Messages
from tests.support.made_traces import EVENTS, START_NS, make_info, put, write_trace
from tests.support.made_traces import open_sink as open_made

LATIN = Event(
    START_NS + 3_000_000_000,
    65_535,
    1,
    "odd",
    {"c": "ÿ", "yes": False, "at": 0, "x": float("inf"), "y": -0.0, "name": "größer 漢"},
)


def read(trace: EventTrace, *, whole: bool) -> tuple[list[list[Any]], str]:
    """The events by batch as text, which has nan equal to itself, and how it ended."""
    batches = trace.batches() if whole else EventTrace.batches(trace)
    events: list[Any] = []
    try:
        for batch in batches:
            for of_batch in to_events(batch, trace.info.clock):
                events += map(repr, of_batch)
    except BadTrace as error:
        return events, str(error)
    return events, f"{trace.problems} {trace.lost}"


def events_of(trace: EventTrace) -> Iterator[str]:
    """The events before the first malformed place."""
    with suppress(BadTrace):
        yield from map(repr, trace.events())


def count_slow(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pieces that are read event by event, from here on."""
    slow: list[int] = []
    one_by_one = PerfettoTrace._one_by_one

    def counted(self: PerfettoTrace, piece: Any, reading: Any) -> Any:
        slow.append(len(piece.starts))
        return one_by_one(self, piece, reading)

    monkeypatch.setattr(PerfettoTrace, "_one_by_one", counted)
    return slow


@pytest.mark.parametrize("time", [Time.MONOTONIC, Time.NONE])
def test_columns_are_those_of_the_events(
    time: Time, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = make_info(time)
    path = str(tmp_path / "a.pftrace")
    events = [*EVENTS, LATIN]
    if time is Time.NONE:
        events = [event._replace(time=number) for number, event in enumerate(events)]
    with_lost = open_made(path, info)
    put(with_lost, info, events[:4], events[4:])
    slow = count_slow(monkeypatch)

    trace = PerfettoTrace(path)

    assert read(trace, whole=True) == read(trace, whole=False)
    assert len(read(trace, whole=True)[0]) == len(events)
    assert slow == []


def test_a_packet_is_whole_wherever_a_piece_of_the_file_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_trace(tmp_path / "a.pftrace", EVENTS, {(1, "kv_get"): 3})
    whole = read(PerfettoTrace(path), whole=True)

    for size in (1, 2, 63, 64, 65, 200, 1000):
        monkeypatch.setattr("markerjit.trace.perfetto_read._READ", size)
        assert read(PerfettoTrace(path), whole=True) == whole


def test_every_cut_and_every_edit_is_seen_as_event_by_event(tmp_path: Path) -> None:
    path = Path(write_trace(tmp_path / "a.pftrace", [*EVENTS, LATIN], {(1, "kv_get"): 3}))
    data = path.read_bytes()
    begin = data.index(b"trace began")
    chance = random.Random(17)
    kinds = set()
    for turn in range(300):
        edited = bytearray(data)
        if turn % 4 == 0:
            del edited[chance.randrange(begin, len(data)) :]
        for _ in range(turn % 4):
            edited[chance.randrange(begin, len(edited))] = chance.randrange(256)
        path.write_bytes(edited)
        try:
            trace = PerfettoTrace(str(path))
        except BadTrace:
            continue
        by_event, its_end = read(PerfettoTrace(str(path)), whole=False)
        by_piece, end = read(trace, whole=True)
        if end.startswith("["):  # and not what a BadTrace says
            assert (by_piece, end) == (by_event, its_end)
        else:  # of what comes before a malformed place, both leave some out
            assert not its_end.startswith("[")
            assert {*by_piece} <= {*events_of(PerfettoTrace(str(path)))}
        kinds.add(end[:40])
    assert len(kinds) > 3


@pytest.mark.parametrize("bits", range(65))
def test_varints_of_every_length_are_read(bits: int) -> None:
    values = sorted({max(0, (1 << bits) - 1), 1 << bits >> 1, (1 << bits) // 3})
    texts = [wire.one_varint(value) for value in values]
    starts = np.cumsum([0, *map(len, texts)])

    read_again, ends, ok = Bytes(b"".join(texts)).varints(starts[:-1])

    assert read_again.tolist() == values
    assert ends.tolist() == starts[1:].tolist()
    assert ok.all()


def test_a_varint_without_an_end_is_none() -> None:
    _, _, ok = Bytes(b"\xff" * 12).varints(np.array([0, 2]))

    assert not ok[0]


def test_malformed_messages_are_flagged_and_the_others_are_read() -> None:
    good = wire.field(3, 1 << 40) + wire.field(4, "text") + wire.field(5, 1.5)
    bad = (b"\x1b", b"\x22\x7f", b"\x29\x00", b"\x00\x01", b"\xff" * 11, b"\x22")
    pieces = [good, *bad, good, b""]
    ends = np.cumsum([*map(len, pieces)])
    messages = Messages(Bytes(b"".join(pieces)), ends - [*map(len, pieces)], ends)

    steps = [step.numbers[step.rows == len(bad) + 1].tolist() for step in messages.steps()]

    assert messages.wrong.tolist() == [False, *[True] * len(bad), False, False]
    assert [number for numbers in steps for number in numbers] == [3, 4, 5]

"""CTF directories as traces: read in order of time, saying what is missing, refused where they hold
what no trace holds, and overwritten only where they hold nothing else."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from markerjit.errors import BadTrace, Refused
from markerjit.ring.batch import Columns, Packet
from markerjit.ring.clock import Calibration
from markerjit.ring.decode import decode
from markerjit.ring.types import Time
from markerjit.trace.batch import Batch
from markerjit.trace.ctf import CtfSink
from markerjit.trace.ctf_trace import CtfTrace, in_order
from markerjit.trace.open import check_output, open_sink, open_trace
from tests.support.made_records import CHARS, I32, make_info, make_type, record

CLOCK = Calibration(Time.MONOTONIC, 0, 0, 1_000_000_000, 1_700_000_000_000_000_000)
TICK = make_type(4, "tick", "n %d", I32, time=Time.MONOTONIC)
PUT = make_type(7, "put", "key %s n %d", CHARS, I32, time=Time.MONOTONIC)
INFO = make_info(TICK, PUT, clock=CLOCK)


def tick(time: int) -> bytes:
    return record(TICK, time, 812, time)


def put(time: int) -> bytes:
    return record(PUT, time, 812, b"x" * (time % 5), time)


def write(path: Path, *batches: Sequence[Packet]) -> CtfSink:
    """A trace that has not ended yet."""
    sink = CtfSink(path, INFO)
    for packets in batches:
        sink.write(Batch(packets, [], {}))
    return sink


def test_a_batch_that_begins_before_the_last_one_ends_is_read_in_order(tmp_path: Path) -> None:
    write(
        tmp_path / "t",
        [Packet(0, 0, tick(10)), Packet(1, 1, put(12) + tick(30))],
        [Packet(0, 0, tick(20) + put(40)), Packet(1, 1, tick(35))],
        [Packet(1, 1, tick(50))],
    ).close({})

    events = [
        (event.time, event.name, event.cpu, event.fields["n"])
        for event in CtfTrace(str(tmp_path / "t")).events()
    ]

    assert events == [
        (10, "tick", 0, 10),
        (12, "put", 1, 12),
        (20, "tick", 0, 20),
        (30, "tick", 1, 30),
        (35, "tick", 1, 35),
        (40, "put", 0, 40),
        (50, "tick", 1, 50),
    ]


def test_rings_that_are_polled_one_after_the_other_are_read_in_order(tmp_path: Path) -> None:
    random_ = random.Random(3)
    waiting: list[list[bytes]] = [[], [], []]
    batches: list[list[Packet]] = []
    now = 0
    for _ in range(40):
        batches.append([])
        for ring in range(3):
            for _ in range(random_.randrange(6)):
                now += 1
                waiting[random_.randrange(3)].append(random_.choice([tick, put])(now))
            if waiting[ring]:
                batches[-1].append(Packet(ring, ring, b"".join(waiting[ring])))
                waiting[ring] = []
    batches.append([Packet(n, n, b"".join(some)) for n, some in enumerate(waiting) if some])

    write(tmp_path / "t", *batches).close({})

    numbers = [event.fields["n"] for event in CtfTrace(str(tmp_path / "t")).events()]
    assert numbers == [*range(1, now + 1)]


def test_numbers_in_the_place_of_times_are_left_in_their_batches(tmp_path: Path) -> None:
    type_ = make_type(4, "tick", "n %d", I32, time=Time.NONE)
    sink = CtfSink(tmp_path / "t", make_info(type_, clock=CLOCK._replace(time=Time.NONE)))
    for n in range(3):
        data = record(type_, 0, 1, n)
        sink.write(Batch([Packet(0, 0, data), Packet(1, 1, data)], [], {}))
    sink.close({})

    batches = [*CtfTrace(str(tmp_path / "t")).batches()]

    assert [batch[0].time.tolist() for batch in batches] == [[0, 0], [1, 1], [2, 2]]


def test_what_is_kept_back_does_not_grow() -> None:
    rows, held = 40_000, 0
    most = 0
    block = b"".join(tick(time) for time in range(rows))

    def batches() -> Iterator[list[Columns]]:
        nonlocal held
        for _ in range(12):  # each has something as old as can be
            held += rows
            yield decode([Packet(0, 0, block)], {TICK.id: TICK})

    for batch in in_order(batches()):
        most = max(most, held)
        held -= sum(len(columns.time) for columns in batch)

    assert held == 0
    assert most <= 4 * rows


def test_a_trace_whose_writer_was_killed_says_that_it_has_no_end(tmp_path: Path) -> None:
    sink = write(tmp_path / "t", [Packet(0, 0, tick(1))])

    trace = open_trace(str(tmp_path / "t"))

    assert [event.time for event in trace.events()] == [1]
    assert trace.problems == ["it has no end: more may have been lost than is known"]
    sink.close({})
    trace = open_trace(str(tmp_path / "t"))
    assert [event.time for event in trace.events()] == [1]
    assert trace.problems == []


@pytest.mark.parametrize(
    ("size", "problem"),
    [
        (128 + 128 + 50, "ring_0 is cut off in the head of a packet"),
        (128 + 128 + 100, "ring_0 is cut off in the middle of a packet"),
    ],
)
def test_a_trace_that_was_cut_within_a_packet_says_so(
    size: int, problem: str, tmp_path: Path
) -> None:
    write(tmp_path / "t", [Packet(0, 0, tick(1))], [Packet(0, 0, tick(2))]).close({})
    os.truncate(tmp_path / "t" / "ring_0", size)

    trace = open_trace(str(tmp_path / "t"))

    assert [event.time for event in trace.events()] == [1]
    assert trace.problems == [problem]


def test_room_that_was_cut_off_holds_no_records_and_is_no_cut(tmp_path: Path) -> None:
    write(tmp_path / "t", [Packet(0, 0, tick(1))])
    os.truncate(tmp_path / "t" / "ring_0", 4096)

    trace = open_trace(str(tmp_path / "t"))

    assert [event.time for event in trace.events()] == [1]
    assert trace.problems == ["it has no end: more may have been lost than is known"]


@pytest.mark.parametrize("name", ["metadata", "ring_1"])
@pytest.mark.parametrize("kind", ["directory", "pipe", "dangling"])
def test_what_is_no_file_is_refused_and_not_waited_for(
    name: str, kind: str, tmp_path: Path
) -> None:
    write(tmp_path / "t", [Packet(0, 0, tick(1))]).close({})
    path = tmp_path / "t" / name
    path.unlink(missing_ok=True)
    match kind:
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "dangling":
            path.symlink_to("nowhere")

    with pytest.raises(BadTrace, match=f"{name}"):
        list(open_trace(str(tmp_path / "t")).events())


@pytest.mark.parametrize("name", ["metadata", "ring_0"])
def test_a_file_that_may_not_be_read_is_refused_with_the_reason(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "t", [Packet(0, 0, tick(1))]).close({})
    real = os.open

    def forbidden(path: str, *args: int) -> int:
        if str(path).endswith(f"/{name}"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *args)

    monkeypatch.setattr(os, "open", forbidden)

    with pytest.raises(BadTrace, match=f"cannot open .*/{name}: Permission denied"):
        list(open_trace(str(tmp_path / "t")).events())


def test_a_trace_may_have_more_files_than_may_be_open(tmp_path: Path) -> None:
    count = 200
    write(tmp_path / "t", [Packet(n, n, tick(n)) for n in range(count)]).close({})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))

    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 20, hard))
    try:
        times = [event.time for event in open_trace(str(tmp_path / "t")).events()]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert times == [*range(count)]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.EACCES, "Permission denied"),
        (errno.EROFS, "Read-only file system"),
        (errno.ENOENT, "No such file or directory"),
    ],
)
@pytest.mark.parametrize("call", ["mkdir", "listdir", "replace"])
def test_a_directory_that_may_not_be_written_is_refused_with_the_reason(
    call: str, code: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if call == "listdir":
        (tmp_path / "t").mkdir()

    def forbidden(*args: object, **more: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, forbidden)

    with pytest.raises(Refused, match=f"cannot write .*/t: {reason}"):
        open_sink(str(tmp_path / "t"), INFO)


def test_a_directory_in_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(Refused, match=r"cannot write .*: No such file"):
        CtfSink(tmp_path / "none" / "t", INFO)
    with pytest.raises(Refused, match=r"cannot write .*: Not a directory"):
        CtfSink(tmp_path / "file" / "t", INFO)


def test_a_full_disk_is_no_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "mkdir", full)

    with pytest.raises(OSError, match="No space left"):
        CtfSink(tmp_path / "t", INFO)


@pytest.mark.parametrize(
    "name",
    [
        "metadata.bak",
        "metadata_of_my_thesis",
        ".metadata.swp",
        "..metadata",
        "ring_finger.jpg",
        "ring_0.csv",
        "ring_0_late",
        "ring_",
        "ring_0\n",
        "lost_cpu",
        "lost_cpu3.txt",
        "link/ring_7",
        "pipe/ring_7",
        "directory/ring_7",
    ],
)
def test_nothing_is_deleted_where_one_file_is_not_ours(name: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(path, [Packet(0, 0, tick(1))]).close({(3, "tick"): 1})
    kind, _, own = name.rpartition("/")
    match kind:
        case "link":
            (path / own).symlink_to(tmp_path / "elsewhere")
        case "pipe":
            os.mkfifo(path / own)
        case "directory":
            (path / own).mkdir()
        case _:
            (path / own).write_text("mine")
    names = sorted(os.listdir(path))

    for attempt in (
        lambda: open_sink(str(path), INFO, force=True),
        lambda: check_output(str(path), force=True),
    ):
        with pytest.raises(Refused, match="left alone"):
            attempt()

    assert sorted(os.listdir(path)) == names


def test_all_files_of_a_trace_may_go(tmp_path: Path) -> None:
    path = tmp_path / "t"
    late = [[Packet(0, 0, tick(time))] for time in (9, 5, 3)]
    write(path, *late).close({(3, "tick"): 1, (-1, ""): 2})
    (path / ".metadata").touch()
    (path / ".ring_8").touch()
    assert {"ring_0_late2", "lost_cpu-1", "lost_cpu3"} <= {*os.listdir(path)}

    open_sink(str(path), INFO, force=True).close({})

    assert os.listdir(path) == ["metadata"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("counter", -1),
        ("counter", 1 << 64),
        ("frequency_hz", 0),
        ("frequency_hz", -1),
        ("frequency_hz", 1 << 34),
        ("frequency_hz", 1 << 62),
        ("monotonic_ns", 1 << 63),
        ("wall_offset_ns", 1 << 70),
        ("wall_offset_ns", float("inf")),
    ],
)
def test_a_clock_that_there_cannot_be_is_refused(name: str, value: float, tmp_path: Path) -> None:
    path = tmp_path / "t"
    type_ = make_type(4, "tick", "n %d", I32, time=Time.TSC)
    info = make_info(type_, clock=Calibration(Time.TSC, 10**13, 10**12, 3_000_000_000, 10**18))
    sink = CtfSink(path, info, version="2")
    sink.write(Batch([Packet(0, 0, record(type_, 10**13 + 5, 1, 0))], [], {}))
    sink.close({})
    separator, *fragments = re.split("\x1e", (path / "metadata").read_text())
    trace_class = json.loads(fragments[1])
    document = json.loads(trace_class["environment"]["markerjit_trace"])
    document["clock"][name] = value
    trace_class["environment"]["markerjit_trace"] = json.dumps(document)
    fragments[1] = json.dumps(trace_class)
    (path / "metadata").write_text("\x1e".join([separator, *fragments]))

    with pytest.raises(BadTrace, match="metadata"):
        open_trace(str(path))


def test_losses_of_no_known_cpu_are_so_without_an_end_too(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(path, [Packet(0, 0, tick(1))]).close({(-1, ""): 2, (0, "tick"): 3})
    text = (path / "metadata").read_text()
    (path / "metadata").write_text(re.sub("\tmarkerjit_lost.*\n", "", text))

    assert open_trace(str(path)).lost == {(-1, ""): 2, (0, ""): 3}

"""Our CTF traces as babeltrace2 sees them, which is the reference reader of CTF.

Version 2.0, which Debian bookworm has, reads CTF 1.8; 2.1, which trixie has, reads CTF 2 too. What
should be shown is written down here by hand, and times are computed with the calibration.
"""

from __future__ import annotations

import errno
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import markerjit
from markerjit.frames import Frame, StackText
from markerjit.ring.batch import Packet
from markerjit.ring.clock import Calibration
from markerjit.ring.types import FILLER, TextState, Time
from markerjit.trace.batch import Batch
from markerjit.trace.ctf import CtfSink, read_ctf
from markerjit.trace.sink import TraceInfo
from tests.support.ctf import MONOTONIC, TICK, WALL_NS, Version, tick
from tests.support.made_records import (
    BOOL,
    CHARS,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    POINTER,
    U8,
    U16,
    U32,
    U64,
    make_info,
    make_type,
    record,
    whole,
)
from tests.support.programs import ROOT
from tests.support.timing import HANG_S, Limited

pytestmark = pytest.mark.oracle

NONE = MONOTONIC._replace(time=Time.NONE)


class Seen(NamedTuple):
    """What babeltrace2 printed: events without their time, their times since 1970, warnings."""

    events: list[str]
    times_ns: list[int]
    warnings: list[str]

    @property
    def discarded(self) -> list[int]:
        return [int(word) for line in self.warnings for word in line.split()[3:4]]


Look = Callable[[Path], Seen]
BROUGHT = ROOT / "build" / "babeltrace2" / "babeltrace2"


@pytest.fixture(scope="session")
def newest(needs_tool: Callable[[str, str], str]) -> str:
    """The babeltrace2 that get_babeltrace.sh has brought, or else the system's."""
    return str(BROUGHT) if BROUGHT.exists() else needs_tool("babeltrace2", "babeltrace2")


@pytest.fixture(params=["1.8", "2"])
def version(request: pytest.FixtureRequest, newest: str) -> Version:
    if request.param == "2":
        shown = subprocess.run([newest, "--version"], capture_output=True, text=True, check=True)
        match = re.match(r"Babeltrace (\d+)\.(\d+)", shown.stdout)
        if not match or (int(match[1]), int(match[2])) < (2, 1):
            pytest.skip("needs babeltrace2 2.1 to read CTF 2 (tests/oracle/get_babeltrace.sh)")
    return request.param


@pytest.fixture
def look(newest: str) -> Look:
    """Show a trace. Anything on standard error but a warning of lost events fails the test."""

    def look(trace: Path) -> Seen:
        done = subprocess.run(
            [newest, "--clock-seconds", "--no-delta", trace],
            capture_output=True,
            check=False,
            timeout=HANG_S,
        )
        errors = done.stderr.decode(errors="replace").splitlines()
        warnings = [line for line in errors if line.startswith("WARNING: Tracer discarded")]
        assert done.returncode == 0 and warnings == [line for line in errors if line], errors
        events, times = [], []
        for line in done.stdout.decode("utf-8", "surrogateescape").splitlines():
            seconds, nanoseconds, event = re.fullmatch(
                r"(?:\[(\d+)\.(\d{9})\] )?(.*)", line
            ).groups()  # type: ignore[union-attr]
            times += [int(seconds) * 10**9 + int(nanoseconds)] if seconds else []
            events.append(event.removeprefix("here:kvserver:(812) "))
        return Seen(events, times, warnings)

    return look


def write(
    path: Path, info: TraceInfo, version: Version, *packets: list[Packet] | Packet
) -> list[Packet]:
    """A whole trace, a batch for each list."""
    path.parent.mkdir(exist_ok=True)
    sink = CtfSink(path, info, version=version)
    for some in packets:
        sink.write(Batch([some] if isinstance(some, Packet) else some, [], {}))
    sink.close({})
    return [packet for some in packets for packet in ([some] if isinstance(some, Packet) else some)]


ids = st.integers(0, 70_000) | st.sampled_from([65_535, 65_536, 3_000_000, FILLER - 1])


@pytest.mark.product
@pytest.mark.parametrize("time", [Time.MONOTONIC, Time.NONE])
@pytest.mark.parametrize("tid", [True, False])
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chosen=st.lists(ids, min_size=1, max_size=5, unique=True))
def test_ids_of_any_size_are_shown(
    tmp_path_factory: pytest.TempPathFactory,
    version: Version,
    look: Look,
    time: Time,
    tid: bool,
    chosen: list[int],
) -> None:
    types = [make_type(id_, f"m{id_}", "n %d", I32, time=time, tid=tid) for id_ in chosen]
    trace = tmp_path_factory.mktemp("ids") / "t"
    data = b"".join(record(type_, n, 7 * tid, n) for n, type_ in enumerate(types * 3))

    (written,) = write(
        trace, make_info(*types, clock=MONOTONIC._replace(time=time)), version, Packet(3, 3, data)
    )

    thread = "{ tid = 7 }, " if tid else ""
    assert look(trace).events == [
        f"{type_.marker}: {{ cpu_id = 3 }}, {thread}{{ n = {n} }}"
        for n, type_ in enumerate(types * 3)
    ]
    assert [packet for batch in read_ctf(trace)[1] for packet in batch] == [written]


def test_a_stack_is_its_number_beside_a_file_of_names(
    tmp_path: Path, version: Version, look: Look
) -> None:
    kind = make_type(1, "hit", "n %d stack %pB", I32, U64, time=Time.MONOTONIC)
    trace, number = tmp_path / "t", (1 << 63) + 5
    stack = StackText.of([Frame(94, "/bin/x", 4, "leaf", 1)], "[deeper]")
    sink = CtfSink(trace, make_info(kind, clock=MONOTONIC), version=version)
    packet = Packet(0, 0, record(kind, 1, 7, -3, number))

    sink.write(Batch([packet], [], {}, stacks={number: stack}))
    sink.close({})

    assert look(trace).events == [
        f"hit: {{ cpu_id = 0 }}, {{ tid = 7 }}, {{ n = -3, stack = {number} }}"
    ]
    (event,) = markerjit.open_trace(f"{trace.rename(tmp_path / 't.ctf')}").events()
    assert (event.stack, event.stack_end) == (stack.frames, "[deeper]")


def test_every_kind_of_field_is_shown(tmp_path: Path, version: Version, look: Look) -> None:
    numbers = make_type(
        1,
        "numbers",
        "a %hhd b %hd c %d d %ld e %hhu f %hu g %u h %lu i %#x j %o k %x l %u",
        *(I8, I16, I32, I64, U8, U16, U32, U64, U32, U16, I32, I8),
        time=Time.MONOTONIC,
    )
    others = make_type(
        2,
        "others",
        "yes %d c %c d %c e %c no %d x %f y %g z %e at %p of %p",
        *(BOOL, I8, I32, I32, BOOL, F64, F32, F64, POINTER, CHARS),
        time=Time.MONOTONIC,
    )
    extremes = record(
        numbers,
        5,
        1,
        *(-(1 << 7), -(1 << 15), -(1 << 31), -(1 << 63)),
        *((1 << 8) - 1, (1 << 16) - 1, (1 << 32) - 1, (1 << 64) - 1),
        *(0xABC, 0o17, -1, -2),
    )
    rest = record(
        others, 6, 4_000_000, 1, 97, 98, 99, 0, -0.5, 2.5, 1e300, 0xFFFF_8000_0000_0000, 0
    )

    info = make_info(numbers, others, clock=MONOTONIC)
    write(tmp_path / "t", info, version, Packet(3, 0, extremes + rest))

    # `d` is an int, and three bytes are skipped before it: no text can stand there.
    yes, no = ("1", "0") if version == "1.8" else ("true", "false")
    assert look(tmp_path / "t").events == [
        "numbers: { cpu_id = 3 }, { tid = 1 }, { a = -128, b = -32768, c = -2147483648, "
        "d = -9223372036854775808, e = 255, f = 65535, g = 4294967295, "
        "h = 18446744073709551615, i = 0xABC, j = 017, k = 0xFFFFFFFF, l = 254 }",
        f"others: {{ cpu_id = 3 }}, {{ tid = 4000000 }}, {{ yes = {yes}, "
        f'c = "a", d = 98, e = "c", no = {no}, x = -0.5, y = 2.5, z = 1e+300, '
        "at = 0xFFFF800000000000, of = 0x0 }",
    ]


def test_texts_are_shown_in_every_state(tmp_path: Path, version: Version, look: Look) -> None:
    type_ = make_type(
        7, "put", "key %s n %hhd val %.*s m %d", CHARS, I8, I32, CHARS, I32, time=Time.MONOTONIC
    )
    records = [
        record(type_, 1, 1, b"", -1, b"v", 1),
        record(type_, 2, 1, whole("größe €\U0001f409"), -2, b"12345678", 2),
        record(type_, 3, 1, (b"abc", TextState.CUT), -3, b"", 3),
        record(type_, 4, 1, (b"", TextState.NULL), -4, (b"", TextState.UNREADABLE), 4),
        record(type_, 5, 1, b"bad \xff\xc3", -5, b"x" * 3000, 5),
    ]

    write(
        tmp_path / "t", make_info(type_, clock=MONOTONIC), version, Packet(0, 0, b"".join(records))
    )

    def shown(key: str, state: str, n: int, value: str, other: str = "whole = 0") -> str:
        def text(name: str, text: str, state: str) -> str:
            label, number = state.split(" = ")
            size = len(text.encode("utf-8", "surrogateescape"))
            return (
                f'_{name}_length = {size}, _{name}_state = ( "{label}" : container = {number} ), '
                f'{name} = "{text}"'
            )

        return (
            f"put: {{ cpu_id = 0 }}, {{ tid = 1 }}, {{ {text('key', key, state)}, n = {-n}, "
            f"{text('val', value, other)}, m = {n} }}"
        )

    assert look(tmp_path / "t").events == [
        shown("", "whole = 0", 1, "v"),
        shown("größe €\U0001f409", "whole = 0", 2, "12345678"),
        shown("abc", "cut = 1", 3, ""),
        shown("", "null = 2", 4, "", "unreadable = 3"),
        shown("bad \udcff\udcc3", "whole = 0", 5, "x" * 3000),
    ]


def test_raw_bytes_are_shown_as_such(tmp_path: Path, version: Version, look: Look) -> None:
    type_ = make_type(1, "peer", "peer %*ph n %d", I32, POINTER, I32, time=Time.MONOTONIC)
    data = record(type_, 1, 1, b"\x00\xffA", 5)

    write(tmp_path / "t", make_info(type_, clock=MONOTONIC), version, Packet(0, 0, data))

    (event,) = look(tmp_path / "t").events
    if version == "1.8":
        assert "peer = [ [0] = 0x0, [1] = 0xFF, [2] = 0x41 ], n = 5 }" in event
    else:
        assert "peer = { 00 ff 41 }, n = 5 }" in event


def test_names_may_be_words_of_the_metadata(tmp_path: Path, version: Version, look: Look) -> None:
    type_ = make_type(
        1,
        "event",
        "int %d struct %s struct_length %d _struct_length %d é %d stream %d é %d",
        *(I32, CHARS, I32, I32, I32, I32, I32),
        time=Time.MONOTONIC,
    )
    data = record(type_, 1, 1, 1, b"x", 2, 3, 4, 5, 6)
    info = make_info(type_, clock=MONOTONIC)._replace(
        command='a "quoted" \\ path/*\n\udcff', sources={"event": "a*/b\n.c:1"}
    )

    write(tmp_path / "t", info, version, Packet(0, 0, data))

    (event,) = look(tmp_path / "t").events
    assert "int = 1, " in event
    assert 'struct = "x", struct_length = 2, _struct_length = 3, _ = 4, stream = 5' in event


def test_events_have_the_ids_of_their_markers(
    tmp_path: Path, version: Version, newest: str
) -> None:
    types = [make_type(id_, f"m{id_}", "", time=Time.MONOTONIC) for id_ in (0, 5, 0xFFFE)]
    data = b"".join(record(type_, 1, 1) for type_ in types)
    write(tmp_path / "t", make_info(*types, clock=MONOTONIC), version, Packet(0, 0, data))

    done = subprocess.run(
        [newest, tmp_path / "t", "-c", "sink.text.details"],
        capture_output=True,
        text=True,
        check=True,
    )

    classes = set(re.findall(r"Event class `(m\d+)` \(ID ([\d,]+)\)", done.stdout))
    assert classes == {("m0", "0"), ("m5", "5"), ("m65534", "65,534")}


@pytest.mark.parametrize("frequency_hz", [999_999_999, 1_000_000_000, 2_299_998_413, 4_812_345_678])
@pytest.mark.parametrize("uptime_s", [1, 40 * 365 * 86400])
def test_times_are_those_of_the_calibration(
    tmp_path: Path, version: Version, look: Look, frequency_hz: int, uptime_s: int
) -> None:
    type_ = make_type(1, "tick", "", time=Time.TSC)
    clock = Calibration(
        Time.TSC,
        uptime_s * frequency_hz + 12_345,
        uptime_s * 10**9 + 987_654_321,
        frequency_hz,
        WALL_NS + 7,
    )
    after_s = (0, 1e-9, 2e-9, 3e-6, 0.1, 1, 59.999999999, 3600, 86_400)
    times = [clock.counter + int(seconds * frequency_hz) + 1 for seconds in after_s]

    write(
        tmp_path / "t",
        make_info(type_, clock=clock),
        version,
        Packet(0, 0, b"".join(record(type_, time, 1) for time in times)),
    )

    expected = [clock.monotonic(time) + clock.wall_offset_ns for time in times]
    for seen, right in zip(look(tmp_path / "t").times_ns, expected, strict=True):
        # Viewers compute with doubles, and cut off; they may miss the last nanosecond.
        assert right - 1 <= seen <= right + (frequency_hz < 10**9)


@pytest.mark.parametrize("time", [Time.MONOTONIC, Time.COARSE])
def test_times_in_nanoseconds_are_exact(
    tmp_path: Path, version: Version, look: Look, time: Time
) -> None:
    type_ = make_type(1, "tick", "", time=time)
    clock = MONOTONIC._replace(time=time, wall_offset_ns=WALL_NS + 123_456_789)
    times = [1, 2, 999_999_999, 40 * 365 * 86_400 * 10**9 + 1]

    write(
        tmp_path / "t",
        make_info(type_, clock=clock),
        version,
        Packet(0, 0, b"".join(record(type_, time, 1) for time in times)),
    )

    assert look(tmp_path / "t").times_ns == [time + clock.wall_offset_ns for time in times]


def test_flight_recorder_may_be_older_than_its_calibration(
    tmp_path: Path, version: Version, look: Look
) -> None:
    type_ = make_type(1, "tick", "", time=Time.TSC)
    clock = Calibration(Time.TSC, 10**16, 10**15, 3 * 10**9, WALL_NS)
    month = 30 * 86_400 * clock.frequency_hz
    times = [clock.counter - month, clock.counter - 3, clock.counter + 3]

    write(
        tmp_path / "t",
        make_info(type_, clock=clock),
        version,
        Packet(0, 0, b"".join(record(type_, time, 1) for time in times)),
    )

    shown = look(tmp_path / "t").times_ns
    assert shown == [clock.monotonic(time) + clock.wall_offset_ns for time in times]


def test_trace_without_times_keeps_the_order_of_each_cpu(
    tmp_path: Path, version: Version, look: Look
) -> None:
    type_ = make_type(1, "m", "n %d s %s", I32, CHARS, time=Time.NONE, tid=False)
    data = [record(type_, 0, 0, n, b"x" * (n % 9)) for n in range(50)]
    packets = [Packet(0, 0, b"".join(data[:20])), Packet(0, 0, b"".join(data[20:]))]

    write(tmp_path / "t", make_info(type_, clock=NONE), version, *packets)

    seen = look(tmp_path / "t")
    assert seen.times_ns == []
    assert [int(re.search(r"n = (\d+)", event)[1]) for event in seen.events] == [*range(50)]  # type: ignore[index]


@pytest.mark.parametrize("time", [Time.MONOTONIC, Time.NONE])
@pytest.mark.parametrize("tid", [True, False])
def test_thread_id_and_time_are_optional(
    tmp_path: Path, version: Version, look: Look, time: Time, tid: bool
) -> None:
    type_ = make_type(1, "m", "a %hhd b %hd", I8, I16, time=time, tid=tid)
    info = make_info(type_, clock=MONOTONIC._replace(time=time))

    write(tmp_path / "t", info, version, Packet(2, 0, record(type_, 9, 7 if tid else 0, -1, -2)))

    context = "{ tid = 7 }, " if tid else ""
    assert look(tmp_path / "t").events == [f"m: {{ cpu_id = 2 }}, {context}{{ a = -1, b = -2 }}"]


def test_rings_are_merged_in_order_of_time(tmp_path: Path, version: Version, look: Look) -> None:
    random_ = random.Random(4)
    cpus = [random_.randrange(5) for _ in range(600)]
    batches = [
        [
            Packet(cpu, cpu, data)
            for cpu in range(5)
            if (data := b"".join(tick(n, n) for n in range(low, low + 100) if cpus[n] == cpu))
        ]
        for low in range(0, 600, 100)
    ]

    write(tmp_path / "t", make_info(TICK, clock=MONOTONIC), version, *batches)

    assert look(tmp_path / "t").events == [
        f"tick: {{ cpu_id = {cpu} }}, {{ tid = 812 }}, {{ n = {n} }}" for n, cpu in enumerate(cpus)
    ]


def test_traces_of_processes_are_merged_in_order_of_time(
    tmp_path: Path, version: Version, look: Look
) -> None:
    type_ = make_type(4, "tick", "n %d", I32, time=Time.TSC)
    clock = Calibration(Time.TSC, 3 * 10**12, 10**12, 3 * 10**9, WALL_NS)
    for pid in (812, 813):
        info = make_info(type_, clock=clock)._replace(pid=pid)
        data = [record(type_, clock.counter + 30 * n, pid, n) for n in range(pid % 2, 600, 2)]
        write(tmp_path / "both" / str(pid), info, version, Packet(0, 0, b"".join(data)))

    seen = look(tmp_path / "both")
    assert [int(event.rsplit(" ", 2)[1]) for event in seen.events] == [*range(600)]


def test_events_out_of_order_are_shown_in_order(
    tmp_path: Path, version: Version, look: Look
) -> None:
    batches = [[5, 3, 9], [2, 10, 1], [4, 11], [0]]
    packets = [Packet(0, 0, b"".join(tick(n, n) for n in some)) for some in batches]

    write(tmp_path / "t", make_info(TICK, clock=MONOTONIC), version, *packets)

    seen = look(tmp_path / "t")
    assert [time - WALL_NS for time in seen.times_ns] == [*range(6), 9, 10, 11]
    assert seen.discarded == []


def test_losses_are_told(tmp_path: Path, version: Version, look: Look) -> None:
    sink = CtfSink(tmp_path / "t", make_info(TICK, clock=MONOTONIC), version=version)
    lost = {(0, "tick"): 2}
    sink.write(Batch([Packet(0, 0, tick(10, 1)), Packet(1, 1, tick(11, 1))], [], lost))
    lost = {(0, "tick"): 5, (0, "tock"): 4, (1, "tick"): 0}
    sink.write(Batch([Packet(0, 0, tick(20, 2)), Packet(0, 2, tick(21, 3))], [], lost))
    running = look(tmp_path / "t")
    sink.close({**lost, (1, "tick"): 100, (7, "tick"): 1000})

    closed = look(tmp_path / "t")

    assert running.discarded == [2, 7]
    assert sorted(closed.discarded) == [2, 7, 100, 1000]
    assert len(closed.events) == 4


def test_records_that_make_no_sense_are_left_out(
    tmp_path: Path, version: Version, look: Look
) -> None:
    text = make_type(7, "put", "key %s", CHARS, time=Time.MONOTONIC)
    good = record(text, 5, 1, b"key")
    too_long = good[:16] + (1 << 31).to_bytes(4, "little") + good[20:]
    unknown = b"\x63\x00" + good[2:]
    data = good + too_long + tick(1 << 63, 1) + good + unknown + good

    info = make_info(TICK, text, clock=MONOTONIC)
    sink = CtfSink(tmp_path / "t", info, version=version)
    sink.write(Batch([Packet(0, 0, data)], [], {}))
    sink.close({})

    seen = look(tmp_path / "t")
    assert len(seen.events) == 2  # what is behind an unknown marker cannot be found
    assert seen.discarded == [3]


def test_many_types_and_long_formats(tmp_path: Path, version: Version, look: Look) -> None:
    types = [
        make_type(id_, f"m{id_}", "x" * 2000 + '"\\ %d', I32, time=Time.MONOTONIC)
        for id_ in range(200)
    ]
    data = b"".join(record(type_, type_.id, 1, type_.id) for type_ in types)

    write(tmp_path / "t", make_info(*types, clock=MONOTONIC), version, Packet(0, 0, data))

    assert len(look(tmp_path / "t").events) == 200


def test_large_packets(tmp_path: Path, version: Version, look: Look) -> None:
    data = b"".join(tick(n, n) for n in range(100_000))

    write(
        tmp_path / "t",
        make_info(TICK, clock=MONOTONIC),
        version,
        *[Packet(0, 0, data[:-24]), Packet(0, 0, data[-24:])],
    )

    seen = look(tmp_path / "t")
    assert [time - WALL_NS for time in seen.times_ns] == [*range(100_000)]


def test_trace_opens_after_any_write_of_a_killed_writer(
    tmp_path: Path, version: Version, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    pwrite, counts = os.pwrite, []

    for writes in range(1, 100):
        left = writes

        def dying(*args: object) -> int:
            nonlocal left
            if not left:
                raise Killed
            left -= 1
            return pwrite(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(os, "pwrite", dying)
        trace = tmp_path / f"t{writes}"
        sink = CtfSink(trace, make_info(TICK, clock=MONOTONIC), version=version)
        try:
            for n in range(3):
                sink.write(Batch([Packet(0, 0, tick(n, n)), Packet(1, 1, tick(n, n))], [], {}))
        except Killed:
            counts.append(len(look(trace).events))
        else:
            break

    assert counts == sorted(counts)
    assert set(counts) == {*range(6)}


@pytest.mark.parametrize("call", ["pwrite", "ftruncate"])
def test_trace_opens_where_the_disk_was_full(
    tmp_path: Path, version: Version, look: Look, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    real = getattr(os, call)
    left = 1 if call == "ftruncate" else 20

    def full(*args: object) -> object:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "no space left on device")
        return real(*args)

    monkeypatch.setattr(os, call, full)
    sink = CtfSink(tmp_path / "t", make_info(TICK, clock=MONOTONIC), version=version)
    written = 0
    with pytest.raises(OSError, match="no space left"):
        for n in range(20):
            data = b"".join(tick(n * 10_000 + i, i) for i in range(10_000))
            sink.write(Batch([Packet(0, 0, data)], [], {}))
            written += 10_000

    full_disk = look(tmp_path / "t")
    monkeypatch.undo()
    sink.close({})

    assert 0 < written == len(full_disk.events) == len(look(tmp_path / "t").events)


def test_trace_of_a_writer_that_was_killed_opens(
    tmp_path: Path, version: Version, look: Look
) -> None:
    program = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.support.ctf import MONOTONIC, TICK, Batch, CtfSink, Packet, make_info, tick
sink = CtfSink(sys.argv[2], make_info(TICK, clock=MONOTONIC), version=sys.argv[3])
for n in range(100_000):
    data = b"".join(tick(n * 1000 + i, n) for i in range(1000))
    sink.write(Batch([Packet(0, 0, data), Packet(1, 1, data)], [], {}))
    print(n + 1, flush=True)
"""
    trace = tmp_path / "t"
    with Limited(
        [sys.executable, "-c", program, ROOT, trace, version], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        for _ in range(100):
            written = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)

    seen = look(trace)
    assert len(seen.events) >= written * 2000
    assert len(seen.events) % 1000 == 0
    read = [packet for batch in read_ctf(trace)[1] for packet in batch]
    assert sum(len(packet.data) for packet in read) == len(seen.events) * len(tick(0, 0))

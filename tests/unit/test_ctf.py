"""CTF directories: their bytes and metadata, reading them back, and records that make no sense.

Full disks and writers that are killed are in test_ctf_disk.py, damaged files in test_ctf_damage.py.
What other readers see is tested in oracle/test_babeltrace.py.
"""

from __future__ import annotations

import json
import os
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from markerjit.ring.batch import Packet
from markerjit.ring.types import TextState, Time
from markerjit.trace.batch import Batch
from markerjit.trace.ctf import CtfSink, read_ctf
from markerjit.trace.header import to_json
from markerjit.trace.sink import TraceInfo
from tests.support.choice import examples
from tests.support.ctf import (
    ID,
    INFO,
    MONOTONIC,
    PUT,
    TSC,
    VERSIONS,
    Version,
    batch,
    numbers,
    packets,
    split,
    tick,
    write,
)
from tests.support.heads import head_of, marker_and_words
from tests.support.made_records import (
    BOOL,
    CHARS,
    F64,
    I8,
    I16,
    I32,
    I64,
    POINTER,
    U16,
    U64,
    make_info,
    make_type,
    record,
)


def test_bytes_of_a_small_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("markerjit.trace.ctf.sink.uuid4", lambda: ID)

    write(
        tmp_path / "t",
        INFO,
        [batch(Packet(3, 9, tick(70, -1) + record(PUT, 80, 5, b"abc", 2)), lost={(3, "tick"): 6})],
    )

    def head(
        size: int, content: int, number: int, lost: int, begin: int, end: int, n: int
    ) -> bytes:
        known = struct.pack("<I16sIQ", 0xC1FC1FC1, ID.bytes, 0, 9)
        words = (size * 8, content * 8, number, lost, begin, end)
        return known + struct.pack("<6QII", *words, 3, n)

    assert (tmp_path / "t" / "ring_9").read_bytes() == b"".join(
        (
            head(128, 84, 0, 0, 70, 70, 0),
            bytes(40),
            head(256, 88 + 24 + 36, 1, 6, 70, 80, 1),
            struct.pack("<QIIi4x", 70, head_of(4, 3), 812, -1),
            struct.pack("<QIIII3s5xi4x", 80, head_of(7, 5), 5, 3, 0, b"abc", 2),
            bytes(256 - 88 - 24 - 40),
        )
    )
    assert sorted(os.listdir(tmp_path / "t")) == ["metadata", "ring_9"]


def test_metadata_of_ctf_1_8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("markerjit.trace.ctf.sink.uuid4", lambda: ID)
    info = INFO._replace(sources={"put": "kv.c:12"}, clock=MONOTONIC._replace(wall_offset_ns=2**60))

    write(tmp_path / "t", info, [])

    lines = (tmp_path / "t" / "metadata").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("\ttracer_", "\tmarkerjit_trace"))]
    u8, u32, u64 = (
        f"integer {{ size = {bits}; align = {bits}; signed = false; }}" for bits in (8, 32, 64)
    )
    u22 = u32.replace("size = 32", "size = 22")
    i32, aligned = (
        u32.replace("false", "true"),
        u32.replace("align = 32", "align = 64"),
    )
    time = u64.replace("; }", "; map = clock.monotonic.value; }")
    states = '{ "whole" = 0, "cut" = 1, "null" = 2, "unreadable" = 3 }'
    assert (
        kept
        == f"""/* CTF 1.8 */
trace {{
\tmajor = 1;
\tminor = 8;
\tuuid = "{ID}";
\tbyte_order = le;
\tpacket.header := struct {{
\t\t{u32} magic;
\t\t{u8} uuid[16];
\t\t{u32} stream_id;
\t\t{u64} stream_instance_id;
\t}};
}};
env {{
\thostname = "here";
\tprocname = "kvserver";
\tvpid = 812;
\tcommand = "/opt/kvserver --port 7";
\tmarkerjit_lost = "[]";
}};
clock {{
\tname = monotonic;
\tdescription = "CLOCK_MONOTONIC";
\tfreq = 1000000000;
\toffset_s = 1152921504;
\toffset = 606846976;
\tabsolute = TRUE;
}};
stream {{
\tid = 0;
\tpacket.context := struct {{
\t\t{u64} packet_size;
\t\t{u64} content_size;
\t\t{u64} packet_seq_num;
\t\t{u64} events_discarded;
\t\t{time} timestamp_begin;
\t\t{time} timestamp_end;
\t\t{u32} cpu_id;
\t}};
\tevent.header := struct {{
\t\t{time} timestamp;
\t\t{u22} id;
\t}} align(64);
\tevent.context := struct {{
\t\t{u32} tid;
\t}};
}};
event {{
\tname = "tick";
\tid = 4;
\tstream_id = 0;
\tfields := struct {{
\t\t{i32} _n;
\t}} align(64);
}};
/* kv.c:12 */
event {{
\tname = "put";
\tid = 7;
\tstream_id = 0;
\tfields := struct {{
\t\t{aligned} __key_length;
\t\tenum : {u32} {states} __key_state;
\t\t{u8.replace("; }", "; encoding = UTF8; }")} _key[__key_length];
\t\t{i32.replace("align = 32", "align = 64")} _n;
\t}} align(64);
}};""".splitlines()
    )


def test_metadata_of_ctf_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("markerjit.trace.ctf.sink.uuid4", lambda: ID)
    info = INFO._replace(sources={"put": "kv.c:12"})

    write(tmp_path / "t", info, [], "2")

    def number(name: str, bits: int, align: int = 0, **more: object) -> dict[str, object]:
        known = {"length": bits, "alignment": align or bits, "byte-order": "little-endian"}
        unsigned = {"type": "fixed-length-unsigned-integer"}
        return {"name": name, "field-class": {**unsigned, **known, **more}}

    def role(name: str, bits: int, role: str, align: int = 0) -> dict[str, object]:
        return number(name, bits, align, roles=[role])

    def structure(*members: object, align: int = 1) -> dict[str, object]:
        known = {"type": "structure", "minimum-alignment": align}
        return {**known, "member-classes": list(members)}

    def event(id_: int, name: str, *members: object, **more: object) -> dict[str, object]:
        fields = structure(*members, align=64)
        known = {"type": "event-record-class", "id": id_, "data-stream-class-id": 0, "name": name}
        return {**known, "payload-field-class": fields, **more}

    text = (tmp_path / "t" / "metadata").read_text()
    fragments = [json.loads(fragment) for fragment in text.split("\x1e")[1:]]
    environment = fragments[1].pop("environment")
    blob = {"type": "static-length-blob", "length": 16, "roles": ["metadata-stream-uuid"]}
    string = {
        "type": "dynamic-length-string",
        "encoding": "utf-8",
        "length-field-location": {"path": ["_key_length"]},
    }
    states = {"whole": [[0, 0]], "cut": [[1, 1]], "null": [[2, 2]], "unreadable": [[3, 3]]}
    signed = {"type": "fixed-length-signed-integer"}
    assert text.startswith("\x1e{") and text.endswith("}\n")
    assert {**environment, "vpid": 812, "hostname": "here"} == environment
    assert fragments == [
        {"type": "preamble", "version": 2, "uuid": list(ID.bytes)},
        {
            "type": "trace-class",
            "uid": str(ID),
            "packet-header-field-class": structure(
                role("magic", 32, "packet-magic-number"),
                {"name": "uuid", "field-class": blob},
                role("stream_id", 32, "data-stream-class-id"),
                role("stream_instance_id", 64, "data-stream-id"),
            ),
        },
        {
            "type": "clock-class",
            "id": "monotonic",
            "name": "monotonic",
            "description": "CLOCK_MONOTONIC",
            "frequency": 1_000_000_000,
            "offset-from-origin": {"seconds": 1_700_000_000, "cycles": 0},
            "origin": "unix-epoch",
        },
        {
            "type": "data-stream-class",
            "id": 0,
            "default-clock-class-id": "monotonic",
            "packet-context-field-class": structure(
                role("packet_size", 64, "packet-total-length"),
                role("content_size", 64, "packet-content-length"),
                role("packet_seq_num", 64, "packet-sequence-number"),
                role("events_discarded", 64, "discarded-event-record-counter-snapshot"),
                role("timestamp_begin", 64, "default-clock-timestamp"),
                role("timestamp_end", 64, "packet-end-default-clock-timestamp"),
                number("cpu_id", 32),
            ),
            "event-record-header-field-class": structure(
                role("timestamp", 64, "default-clock-timestamp"),
                role("id", 22, "event-record-class-id", align=32),
                align=64,
            ),
            "event-record-common-context-field-class": structure(number("tid", 32)),
        },
        event(4, "tick", number("n", 32, **signed)),
        event(
            7,
            "put",
            number("_key_length", 32, 64),
            number("_key_state", 32, mappings=states),
            {"name": "key", "field-class": string},
            number("n", 32, 64, **signed),
            attributes={"markerjit": {"source": "kv.c:12"}},
        ),
    ]


def test_small_packets_of_a_ring_become_one(tmp_path: Path) -> None:
    some = [Packet(n % 2, n % 2, tick(n, n)) for n in range(10)]

    write(tmp_path / "t", INFO, [batch(*some)])

    assert [len(packet.data) for packet in packets(tmp_path / "t")] == [5 * 24, 5 * 24]


def test_large_packets_are_left_alone(tmp_path: Path) -> None:
    large = b"".join(tick(n, n) for n in range(40_000))
    some = [Packet(0, 0, large), Packet(0, 0, tick(40_000)), Packet(0, 0, large[:240_000])]
    times = np.frombuffer(some[2].data, np.uint64).copy()
    times[1::3] += np.uint64(50_000)
    some[2] = Packet(0, 0, times.tobytes())

    write(tmp_path / "t", INFO, [batch(*some)])

    assert [len(packet.data) for packet in packets(tmp_path / "t")] == [960_024, 240_000]


KINDS = (
    ((), ""),
    ((I8, I16, I32, I64), "a %hhd b %hd c %d d %ld"),
    ((CHARS, I8, CHARS, U64), "s %s a %hhd t %s u %lu"),
    ((BOOL, F64, POINTER, I32, CHARS, U16), "y %d f %f p %p %.*s w %hu"),
)
VALUES = {
    I8: st.integers(-128, 127),
    I16: st.integers(-(1 << 15), (1 << 15) - 1),
    I32: st.integers(-(1 << 31), (1 << 31) - 1),
    I64: st.integers(-(1 << 63), (1 << 63) - 1),
    U16: st.integers(0, (1 << 16) - 1),
    U64: st.integers(0, (1 << 64) - 1),
    BOOL: st.integers(0, 1),
    F64: st.floats(allow_nan=False),
    POINTER: st.integers(0, (1 << 64) - 1),
    CHARS: st.tuples(st.binary(max_size=30), st.sampled_from(TextState)),
}


@st.composite
def traces(draw: st.DrawFn) -> tuple[TraceInfo, list[Batch]]:
    """A trace in which the records of each ring are in order of time."""
    time, tid = draw(st.sampled_from(Time)), draw(st.booleans())
    types = [
        make_type(id_ * 3, f"m{id_}", format_, *args, time=time, tid=tid)
        for id_, (args, format_) in enumerate(KINDS)
    ]
    now = TSC.counter
    batches = []
    for _ in range(draw(st.integers(0, 4))):
        some = []
        for ring in draw(st.sets(st.integers(0, 3))):
            data = b""
            for _ in range(draw(st.integers(1, 6))):
                type_ = draw(st.sampled_from(types))
                now += draw(st.integers(0, 1000))
                values = [draw(VALUES[field.ctype]) for field in type_.fields]
                data += record(type_, now, draw(st.integers(0, 1 << 31)) if tid else 0, *values)
            some.append(Packet(ring % 2, ring, data))
        lost = {(cpu, "m1"): len(batches) for cpu in range(2) if batches}
        batches.append(Batch(some, [], lost))
    return make_info(*types, clock=TSC._replace(time=time)), batches


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=examples(60), deadline=None)
@given(trace=traces())
def test_trace_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    version: Version,
    trace: tuple[TraceInfo, list[Batch]],
) -> None:
    info, batches = trace
    path = tmp_path_factory.mktemp("trace") / "t"

    lost = write(path, info, batches, version)

    read, parts, losses = read_ctf(path)
    assert to_json(read) == to_json(info)
    assert [sorted(some) for some in parts] == [sorted(b.packets) for b in batches if b.packets]
    assert losses == lost


def test_all_of_a_trace_is_kept_where_viewers_get_a_part(tmp_path: Path) -> None:
    info = INFO._replace(
        command='a "b" \\ \n\udcff/*', sources={"tick": "*/ \u202e.c"}, clock=MONOTONIC
    )

    for version in VERSIONS:
        write(tmp_path / version, info, [], version)

        # But half a character, which other formats cannot have, is spelled out.
        kept = info._replace(command=info.command.replace("\udcff", "\\udcff"))
        assert to_json(read_ctf(tmp_path / version)[0]) == to_json(kept)


@pytest.mark.parametrize("version", VERSIONS)
def test_trace_can_be_read_while_it_is_written(tmp_path: Path, version: Version) -> None:
    sink = CtfSink(tmp_path / "t", INFO, version=version)

    for n in range(5):
        assert numbers(tmp_path / "t") == [*range(n)]
        assert read_ctf(tmp_path / "t")[2] == ({(1, ""): n - 1} if n > 1 else {})
        sink.write(batch(Packet(1, 1, tick(n, n)), lost={(1, "tick"): n}))
    sink.close({(1, "tick"): 9})

    assert read_ctf(tmp_path / "t")[2] == {(1, "tick"): 9}


@pytest.mark.parametrize(("count", "files"), [(3, 4), (40, 9)])
def test_events_out_of_order_are_all_kept(tmp_path: Path, count: int, files: int) -> None:
    random_ = random.Random(7)
    times = [[random_.randrange(1000) for _ in range(20)] for _ in range(count)]
    some = [[record(PUT, t, 1, b"x" * (t % 5), t) for t in lot] for lot in times]

    write(tmp_path / "t", INFO, [batch(Packet(0, 0, b"".join(lot))) for lot in some])

    # With too many files even for these times, the last one of them gets what is left, with a
    # time that is not its own.
    names = {"metadata", "ring_0", *(f"ring_0_late{n}" for n in range(1, files - 1))}
    assert set(os.listdir(tmp_path / "t")) == names
    read = [record for packet in packets(tmp_path / "t") for record in split(packet.data)]
    kept = slice(None) if files < 9 else slice(16, None)
    assert sorted(record[kept] for record in read) == sorted(
        record[kept] for part in some for record in part
    )


def test_records_that_make_no_sense_are_left_out_and_counted(tmp_path: Path) -> None:
    good = [record(PUT, n, 1, b"key", n) for n in range(4)]
    lengths = [4, 9, 4096, (1 << 32) - 1]
    bad = [good[0][:16] + struct.pack("<I", length) + good[0][20:] for length in lengths]
    bad += [tick(1 << 63), tick((1 << 64) - 1)]
    data = b"".join(record for pair in zip(good, bad, strict=False) for record in pair) + b"".join(
        bad[4:]
    )

    sink = CtfSink(tmp_path / "t", INFO)
    sink.write(batch(Packet(5, 0, data), lost={(5, "put"): 10}))
    of_another = struct.pack("<II", head_of(99, 2), 0) + bytes(8)
    sink.write(batch(Packet(5, 0, good[3] + of_another + good[3])))
    sink.close({(5, "put"): 10})

    # A length of 4 fits the room of 3, and is not for us to doubt.
    _, read, lost = read_ctf(tmp_path / "t")
    kept = [good[0], bad[0], good[1], good[2], good[3]]
    assert [packet.data for some in read for packet in some] == [b"".join(kept), good[3]]
    assert lost == {(5, "put"): 10, (5, ""): 5 + 1}


@pytest.mark.parametrize("time", [Time.MONOTONIC, Time.NONE])
def test_packets_of_nonsense_are_counted(tmp_path: Path, time: Time) -> None:
    types = [
        make_type(4, "tick", "", time=time, tid=False),
        make_type(7, "put", "key %s n %d", CHARS, I32, time=time, tid=False),
    ]
    random_ = random.Random(5)
    likely = [*range(9), *(head_of(*head) for head in [(0, 1), (4, 1), (4, 2), (7, 4), (7, 5)])]
    for number in range(examples(300)):
        words = [random_.choice(likely) for _ in range(random_.choice([1, 2, 3, 9, 100, 6000]))]
        words = words if random_.random() < 0.9 else [words[0]] * len(words)
        info = make_info(*types, clock=MONOTONIC._replace(time=time))

        write(
            tmp_path / str(number),
            info,
            [batch(Packet(0, 0, np.array(words, np.uint64).tobytes()))],
        )

        _, read, lost = read_ctf(tmp_path / str(number))
        kept = sum(len(split(packet.data)) for some in read for packet in some)
        assert kept or lost[0, ""]


def test_losses_of_no_known_cpu_are_kept(tmp_path: Path) -> None:
    lost = {(-1, ""): 5, (0, "tick"): 2}

    assert write(tmp_path / "t", INFO, [batch(Packet(0, 0, tick(1)), lost=lost)]) == lost

    assert read_ctf(tmp_path / "t")[2] == lost
    assert "lost_cpu-1" in os.listdir(tmp_path / "t")


def test_words_that_no_field_needs_are_left_out(tmp_path: Path) -> None:
    def longer(data: bytes) -> bytes:
        head, tid = struct.unpack_from("<II", data)
        marker, words = marker_and_words(head)
        return struct.pack("<II", head_of(marker, words + 2), tid) + data[8:] + bytes(16)

    good = [record(PUT, 1, 1, b"key", 1), tick(2, 2), tick(3, 3)]

    write(tmp_path / "t", INFO, [batch(Packet(0, 0, good[0] + longer(good[1]) + good[2]))])

    assert packets(tmp_path / "t") == [Packet(0, 0, b"".join(good))]


def test_record_may_be_older_than_the_clock_and_all_before(tmp_path: Path) -> None:
    type_ = make_type(4, "tick", "n %d", I32, time=Time.TSC)
    times = [TSC.counter + 5, TSC.counter + 9, TSC.counter - 100_000]
    data = [record(type_, time, 1, 0) for time in times]

    write(
        tmp_path / "t", make_info(type_, clock=TSC), [batch(Packet(0, 0, piece)) for piece in data]
    )

    assert [packet.data for packet in packets(tmp_path / "t")] == data


def test_times_before_all_others_do_not_hide_the_rest(tmp_path: Path) -> None:
    type_ = make_type(4, "tick", "n %d", I32, time=Time.TSC)
    times = [0, TSC.counter + 5, TSC.counter + 6]
    data = [record(type_, time, 1, 0) for time in times]

    write(
        tmp_path / "t", make_info(type_, clock=TSC), [batch(Packet(0, 0, piece)) for piece in data]
    )

    assert [packet.data for packet in packets(tmp_path / "t")] == data

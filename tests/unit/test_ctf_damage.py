"""CTF directories that make no sense, wholly or in part: they are read or refused."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest

from markerjit.errors import BadTrace, Refused
from markerjit.ring.batch import Packet
from markerjit.trace.ctf import CtfSink, read_ctf
from tests.support.choice import examples
from tests.support.ctf import INFO, PUT, VERSIONS, Version, batch, numbers, packets, tick, write
from tests.support.made_records import record


def test_stream_that_was_cut_ends_with_its_last_whole_packet(tmp_path: Path) -> None:
    write(tmp_path / "t", INFO, [batch(Packet(0, 0, tick(n, n) * 9)) for n in range(4)])
    file = tmp_path / "t" / "ring_0"
    data = file.read_bytes()

    for size in [*range(0, len(data), 97), len(data)]:
        file.write_bytes(data[:size])

        assert numbers(tmp_path / "t") == [
            n for n in range(max(0, size - 128) // 384) for _ in range(9)
        ]


def test_directory_that_has_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    write(tmp_path / "t", INFO, [])  # an empty one is good

    with pytest.raises(Refused, match="is not empty"):
        CtfSink(tmp_path / "t", INFO)
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="is not a directory"):
        CtfSink(tmp_path / "file", INFO)


def test_what_is_no_trace_of_ours_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    with pytest.raises(BadTrace, match="is not a CTF trace"):
        read_ctf(folder)
    folder.mkdir()
    with pytest.raises(BadTrace, match="is not a CTF trace"):
        read_ctf(folder)
    for text in (
        "",
        "/* CTF 1.8 */\n",
        "/* CTF 1.9 */\n",
        '\x1e{"type": "preamble", "version": 2}\n',
        "\x1e[]\n\x1e[]",
        "\x1e" + "[" * 100_000,
        '\x1e{"uuid": [1]}\n\x1e{"environment": {"markerjit_trace": "{}"}}',
        '/* CTF 1.8 */\n\tuuid = "------------------------------------";\n',
    ):
        (folder / "metadata").write_text(text)
        with pytest.raises(BadTrace):
            read_ctf(folder)


@pytest.mark.parametrize("version", VERSIONS)
def test_changed_metadata_are_read_or_refused(tmp_path: Path, version: Version) -> None:
    write(tmp_path / "t", INFO, [batch(Packet(0, 0, tick(1, 1)), lost={(0, "x"): 1})], version)
    file = tmp_path / "t" / "metadata"
    text = file.read_bytes()
    random_ = random.Random(3)

    for _ in range(examples(1500)):
        changed = bytearray(text)
        for _ in range(random_.choice([1, 2, 20])):
            changed[random_.randrange(len(changed))] = random_.choice(b'09az"\\{}[],-:\x1e\xff')
        file.write_bytes(changed[: random_.choice([len(changed), random_.randrange(len(changed))])])
        try:
            packets(tmp_path / "t")
        except BadTrace as error:
            assert str(tmp_path) in str(error)


def test_changed_streams_are_read_or_refused(tmp_path: Path) -> None:
    some = [batch(Packet(0, 0, tick(n, n) + record(PUT, n, 1, b"key", n))) for n in range(3)]
    write(tmp_path / "t", INFO, some)
    file = tmp_path / "t" / "ring_0"
    data = file.read_bytes()
    random_ = random.Random(3)
    refused = 0

    for _ in range(examples(1500)):
        changed = bytearray(data)
        for _ in range(random_.choice([1, 2, 20])):
            changed[random_.randrange(len(changed))] = random_.choice([0, 1, 0xFF, 0x80, 7])
        file.write_bytes(changed)
        try:
            packets(tmp_path / "t")
        except BadTrace as error:
            refused += 1
            assert "ring_0" in str(error)
    assert refused > examples(100)


def test_file_that_claims_a_packet_of_its_hole_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "t", INFO, [batch(Packet(0, 0, tick(1, 1)))])
    file = tmp_path / "t" / "ring_0"
    data = bytearray(file.read_bytes())
    data[128 + 32 : 128 + 48] = struct.pack("<QQ", 1 << 43, 1 << 43)
    file.write_bytes(data)
    os.truncate(file, (1 << 40) + 128)

    with pytest.raises(BadTrace, match="too large"):
        packets(tmp_path / "t")

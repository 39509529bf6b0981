"""CTF traces of markerjit 0.5 and before are read: their ids have 16 bits, and so have sizes."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from markerjit.errors import BadTrace
from markerjit.ring.types import HEAD_OF_16, Time
from markerjit.trace.convert import convert
from markerjit.trace.ctf import read_ctf
from markerjit.trace.ctf.info import dump, load
from markerjit.trace.open import open_trace
from tests.support.ctf import INFO
from tests.support.programs import ROOT

TRACES = ROOT / "tests" / "traces" / "ids_of_16_bits.tar.xz"
"""Written by markerjit 0.5: 1.8.ctf has times, and 2.ctf has none. One of the texts is larger than
a record of today."""
LENGTHS = [0, 4, 8, 12, 9000, 20]


@pytest.fixture(params=["1.8.ctf", "2.ctf"])
def older(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    trace = tmp_path / str(request.param)
    trace.mkdir()
    with tarfile.open(TRACES) as archive:
        for name in ("metadata", "ring_0"):
            file = archive.extractfile(f"{request.param}/{name}")
            assert file is not None
            (trace / name).write_bytes(file.read())
    return trace


def test_an_older_trace_is_read(older: Path) -> None:
    trace = open_trace(str(older))

    timed = trace.info.clock.time is not Time.NONE
    events = [(event.time, event.tid, event.name, event.fields) for event in trace.events()]
    keys = ["abcd" * (length // 4) for length in LENGTHS]
    apart, behind = (10, 5) if timed else (2, 1)
    assert events == [
        event
        for n, key in enumerate(keys)
        for event in (
            (apart * n, 812, "tick", {"n": n}),
            (apart * n + behind, 812, "put", {"key": key, "n": -n}),
        )
    ]
    assert [type_.id for type_ in trace.info.types] == [4, 0xFFFE]
    assert trace.lost == {(0, "tick"): 3}


def test_packets_of_an_older_trace_say_how_their_heads_are_divided(older: Path) -> None:
    _, batches, _ = read_ctf(older)

    assert {packet.head for batch in batches for packet in batch} == {HEAD_OF_16}


def test_an_older_trace_becomes_one_of_today_and_a_text_too_large_for_it_is_cut(
    older: Path, tmp_path: Path
) -> None:
    assert convert(open_trace(str(older)), str(tmp_path / "new.ctf")) == 12

    before = [event.fields for event in open_trace(str(older)).events()]
    after = [event.fields for event in open_trace(str(tmp_path / "new.ctf")).events()]
    assert after[:9] + after[10:] == before[:9] + before[10:]
    whole, cut = str(before[9]["key"]), str(after[9]["key"])
    assert cut == whole[: len(cut) - 1] + "…"
    assert 8000 < len(cut) < 1024 * 8


@pytest.mark.parametrize("bits", [0, 15, 32, -1, "22", None])
def test_heads_that_no_version_has_are_a_bad_trace(bits: object) -> None:
    document = {**json.loads(dump(INFO, None)), "marker_bits": bits}

    with pytest.raises(BadTrace, match="contradicts itself"):
        load(json.dumps(document), "here")

"""Words of the arena that nobody can have meant: the program that records by them lives, and what
does not fit a page is cut."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

import markerjit
from markerjit.abi import MAX_ARGS, MAX_RECORD, MarkerEntry
from markerjit.errors import MarkerError
from markerjit.probes.recorder import Shape, make_recorder
from markerjit.ring.by_marker import ByMarker
from markerjit.ring.walk import walk_packet
from tests.support.programs import Target

ROUNDS = 40
ALL_STRINGS = {
    "argc": 255,
    "ops": bytes([3] * MAX_ARGS),
    "limits": struct.pack(f"<{MAX_ARGS}H", *[0xFFFF] * MAX_ARGS),
    "size": bytes(2),
}


@pytest.fixture(params=["1", "0"], ids=["own rings", "shared rings"])
def program(
    request: pytest.FixtureRequest, target: Callable, monkeypatch: pytest.MonkeyPatch
) -> Target:
    monkeypatch.setenv("GLIBC_TUNABLES", f"glibc.pthread.rseq={request.param}")
    program: Target = target("truth_texts")
    return program


def write_words(session: markerjit.Session, words: dict[str, bytes | int]) -> None:
    """Into the entries of all its markers."""
    arena = session._target.seen.arena
    assert arena is not None
    for entry in arena.markers.entries():
        for name, value in words.items():
            content = value if isinstance(value, bytes) else bytes([value])
            place = arena.geometry.marker_offset(int(entry.id)) + getattr(MarkerEntry, name).offset
            arena.store.write(place, content)


def longest(events: markerjit.EventStream) -> int:
    """Bytes of the longest record in the rings, which are emptied."""
    batch = events.rest(packets=True)
    packets = batch.packets if batch else []
    import numpy as np

    any_size = ByMarker({}, np.uint16, others=1, filler=1)
    walks = [walk_packet(packet, any_size) for packet in packets]
    return max((int(walked.words.max()) * 8 for walked in walks if len(walked.words)), default=0)


@pytest.mark.live
@pytest.mark.parametrize("limit", [0xFFFF, MAX_RECORD, 0x8000])
def test_a_limit_that_no_page_has_room_for_cuts_the_text(program: Target, limit: int) -> None:
    limits = struct.pack("<H", limit) * MAX_ARGS
    with markerjit.attach(program.pid) as session, session.trace("texts_string") as events:
        write_words(session, {"limits": limits})

        assert program.command("pass 100") == "pass bad=0"
        texts = [event.fields["s"] for event in events.drain()]

    assert max(len(text) for text in texts if text is not None) > 3000
    assert events.statistics()[1:] == (0, 0, 0, ())


@pytest.mark.live
def test_no_words_of_an_entry_make_a_record_that_outgrows_its_page(program: Target) -> None:
    random_ = random.Random(7)
    with markerjit.attach(program.pid) as session, session.trace("texts_*") as events:
        for _ in range(ROUNDS):
            words = {
                name: random_.choice([content, random_.randbytes(len(content))])
                if isinstance(content, bytes)
                else random_.choice([content, random_.randrange(256)])
                for name, content in ALL_STRINGS.items()
            }
            write_words(session, words | {"time": random_.randrange(5)})

            assert program.command("pass 100").startswith("pass bad=")
            assert longest(events) <= MAX_RECORD
    assert program.process.poll() is None


def test_no_recorder_is_made_for_a_record_that_no_page_has_room_for() -> None:
    shape = Shape(1, 0, b"", MAX_RECORD + 8, timed=True, tid=True)

    with pytest.raises(MarkerError, match="no page has room"):
        make_recorder(shape, None, 1 << 20)  # type: ignore[arg-type]

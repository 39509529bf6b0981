"""Texts that a marker's own code puts into the ring: which those are, that they share a page with
other records, and that an interruption at any instruction loses nothing and harms no register."""

from __future__ import annotations

import ctypes
import mmap
import random
from ctypes import c_char_p, c_double, c_int, c_uint64
from pathlib import Path

import pytest

from markerjit.abi import CPU_RTM, CPU_TSC, PAGE
from markerjit.ring.types import Options, Time
from tests.support.own_arena import (
    AS_USUAL,
    ASSEMBLED,
    CHARS,
    DOUBLE,
    INT,
    LONG,
    OwnArena,
    Slot,
    address_of,
    cpu_flags,
    geometry_of,
    marker_id,
)
from tests.support.recorder_code import Calls, compile_calls, instructions


@pytest.fixture(scope="module")
def calls(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Calls:
    return compile_calls(tmp_path_factory.mktemp("calls"))


def arena(ring_size: int = 1 << 16) -> OwnArena:
    flags = cpu_flags()
    if not flags & CPU_TSC:
        pytest.skip("the time stamp counter is not the same on all CPUs")
    geometry = geometry_of(ring_size=ring_size, max_markers=64)
    return OwnArena(geometry, way=ASSEMBLED, cpu_flags=flags & ~CPU_RTM)


@pytest.fixture
def own(build: Path) -> OwnArena:
    return arena()


def text_marker(own: OwnArena, options: Options = AS_USUAL) -> Slot:
    """A marker with a text, which has code of its own."""
    slot = own.marker("s %s", CHARS, options=options)
    assert own.arena.markers.entry(marker_id(own, slot)).recorder
    return slot


def general_recorder_cuts(own: OwnArena, slot: Slot) -> None:
    """From now on mj_record keeps no byte of a text; the marker's own code knows another limit."""
    marker = marker_id(own, slot)
    entry = own.arena.markers.entry(marker)
    entry.limits[0] = 0
    own.store.write(own.geometry.marker_offset(marker), bytes(entry))


@pytest.mark.parametrize("length", [0, 1, 5, 7, 8, 15, 16, 17, 40, 200, 255, 256])
def test_a_text_in_a_known_page_takes_only_the_markers_own_code(own: OwnArena, length: int) -> None:
    slot, memory = text_marker(own), mmap.mmap(-1, PAGE)
    memory[: length + 1] = b"x" * length + b"\0"
    general_recorder_cuts(own, slot)
    for _ in range(100):
        slot.hit(c_uint64(address_of(memory)))

    texts = [event.fields["s"] for event in own.records()]

    assert set(texts) <= {"x" * length, "…"}  # a window ended, or the sequence was interrupted
    assert texts.count("x" * length) > 50


def test_texts_and_numbers_come_out_as_they_went_in(own: OwnArena) -> None:
    slot = own.marker(
        "a %s b %d c %g d %s e %ld f %s g %d h %g i %s j %d",
        CHARS, INT, DOUBLE, CHARS, LONG, CHARS, INT, DOUBLE, CHARS, INT,
    )  # fmt: skip
    assert own.arena.markers.entry(0).recorder
    draw = random.Random(7)
    for number in range(500):
        texts = ["t" * draw.randrange(60) for _ in range(4)]
        slot.hit(
            c_char_p(texts[0].encode()), c_int(number), c_double(number / 4),
            c_char_p(texts[1].encode()), c_uint64(number << 33), c_char_p(texts[2].encode()),
            c_int(-number), c_double(-number), c_char_p(texts[3].encode()), c_int(7),
        )  # fmt: skip

        (event,) = own.records()
        expected = [texts[0], number, number / 4, texts[1], number << 33, texts[2], -number,
                  -float(number), texts[3], 7]  # fmt: skip
        assert list(event.fields.values()) == expected


@pytest.mark.parametrize("time", [Time.TSC, Time.NONE])
@pytest.mark.parametrize("overwrite", [False, True])
def test_texts_of_all_lengths_fill_pages_and_touch_no_other_record(
    build: Path, time: Time, overwrite: bool
) -> None:
    own = arena(ring_size=4 * PAGE)
    slot = text_marker(own, Options(time))
    own.start(overwrite=overwrite)
    draw = random.Random(3)
    expected, texts = [], []
    for _ in range(200):
        for _ in range(20):
            text = "".join(draw.choices("abc", k=draw.choice([0, 5, 17, 40, 256])))
            slot.hit(c_char_p(text.encode()))
            expected.append(text)
        if not overwrite:
            texts += [event.fields["s"] for event in own.records()]
    if not overwrite:
        assert sorted(texts) == sorted(expected)
        assert own.counted() == (len(expected), 0)
    newest = [event.fields["s"] for event in own.picture()] if overwrite else []
    assert all(text in expected for text in newest)
    assert len(newest) > 20 or not overwrite
    assert own.damaged == 0


def test_a_signal_handler_may_record_before_any_instruction_that_puts_a_text(
    own: OwnArena, calls: Calls
) -> None:
    outer, inner = text_marker(own), own.marker("n %ld", LONG, name="inner")
    text = ctypes.create_string_buffer(b"a text of more than one block, and of two")
    address = ctypes.addressof(text)
    came = 0
    for place in instructions(own, outer):
        hit = calls.interrupted(outer, inner, address, place)
        came += hit
        records = own.records()
        assert [e.fields["s"] for e in records if e.name == "m"] == [text.value.decode()], hex(
            place
        )
        assert [e.fields["n"] for e in records if e.name == "inner"] == [address] * hit

    assert came > 60
    assert own.damaged == 0


def test_a_full_ring_and_an_address_that_is_no_text_change_no_register(build: Path) -> None:
    own = arena(ring_size=4 * PAGE)
    slot = text_marker(own)
    slot.hit(c_uint64(0))
    slot.hit(c_uint64(1 << 63))
    for _ in range(100):
        slot.hit(c_char_p(b"x" * 256))

    hits, lost = own.counted()
    assert hits == 102
    assert lost > 0

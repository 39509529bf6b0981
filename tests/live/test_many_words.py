"""Words of many slots, which a switch writes with what stands between them."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

import markerjit
from markerjit.model import RemoteAddress
from markerjit.patch.slots import SLOT_ADAPTER, SLOT_ENTERED, SLOT_LEFT

pytestmark = pytest.mark.live

PROGRAM = "truth_returns"
EVERY = f"func:{PROGRAM}:*,func:{PROGRAM}:*:return"
FEWEST = 16
"""Of fewer, each word is written by itself."""


def between(session: markerjit.Session) -> dict[RemoteAddress, bytes]:
    """What the slots of functions have besides the words that a switch writes: the counts of a
    probe in C, and whose the slot is."""
    slots = {site.slot for site in session._target.seen.opened}
    assert len(slots) > FEWEST
    read = session._target.memory.read
    return {
        slot: read(RemoteAddress(slot + SLOT_ENTERED), SLOT_ADAPTER - SLOT_ENTERED)
        + read(RemoteAddress(slot + SLOT_ADAPTER + 8), 8)
        for slot in slots
    }


def test_what_stands_between_words_of_slots_stays(target: Callable) -> None:
    program = target(PROGRAM)
    with markerjit.attach(program.pid) as session:
        session.on(EVERY)
        for number, slot in enumerate(between(session)):
            assert SLOT_LEFT == SLOT_ENTERED + 8
            counts = struct.pack("<QQ", number, number)
            session._target.memory.write(RemoteAddress(slot + SLOT_ENTERED), counts)
        before = between(session)

        for switch in (session.off, session.on, session.off):
            assert switch(EVERY).written >= len(before)
            assert between(session) == before
        with session.trace(EVERY) as stream:
            program.ask("run 3")
            events = list(stream.drain())

        assert between(session) == before
        assert {event.name.endswith(":return") for event in events} == {False, True}
        assert stream.unmatched == 0

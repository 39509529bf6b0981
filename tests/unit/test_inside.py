"""The counters of calls: what a thread that comes and goes while they are read does not hide."""

from __future__ import annotations

import markerjit.abi as abi
from markerjit.arena.calls import Calls
from markerjit.arena.markers import Markers
from tests.support.made_arena import geometry_of, make_arena

GEOMETRY = geometry_of()


class Busy:
    """A store in which, between any two reads, a thread enters on one CPU and leaves on another;
    and another thread has been inside all the time."""

    def __init__(self) -> None:
        self.words: dict[int, int] = {GEOMETRY.calls_offset(0, 0): 1}

    def read(self, offset: int, size: int) -> bytes:
        data = b"".join(
            self.words.get(at, 0).to_bytes(8, "little") for at in range(offset, offset + size, 8)
        )
        for place in (GEOMETRY.calls_offset(0, 0), GEOMETRY.calls_offset(1, 0) + 8):
            self.words[place] = self.words.get(place, 0) + 1
        return data


def test_a_thread_that_comes_and_goes_does_not_hide_one_that_is_inside() -> None:
    arena = make_arena(GEOMETRY)
    calls = Calls(Busy(), arena.control, GEOMETRY, arena.markers)  # type: ignore[arg-type]

    assert all(calls.is_entered([0]) for _ in range(5))


def test_an_arena_that_has_no_such_counters_says_that_nobody_was_counted() -> None:
    arena = make_arena(GEOMETRY)
    parts = list(GEOMETRY.parts)
    parts[abi.PART_CALLS] = abi.Part(0, 0, 0)
    geometry = GEOMETRY._replace(parts=tuple(parts))
    calls = Calls(arena.store, arena.control, geometry, arena.markers)

    assert isinstance(arena.markers, Markers)
    assert not calls.is_entered([0])
    assert calls.of_run(range(3)) == [0, 0, 0]

"""Islands: where one may be, and what is left when making it fails or is broken off."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from markerjit.abi import CODE_SIZE, ISLANDS_SIZE, PAGE, STACKS_SIZE, IslandEntry, UnitEntry
from markerjit.arena import find, islands
from markerjit.arena.arena import Arena
from markerjit.arena.find import find_arenas, process_of
from markerjit.arena.islands import (
    GUARD,
    HEAP_ROOM,
    REACH,
    SIZE,
    STACK_ROOM,
    Filling,
    Island,
    Span,
    is_near,
    place_near,
)
from markerjit.arena.mapped import Probes
from markerjit.arena.stacks import make_stacks, stacks_of
from markerjit.arena.store import MemoryStore
from markerjit.errors import Refused
from markerjit.memory import Mapping, ProcessMemory, read_maps
from markerjit.model import RemoteAddress
from markerjit.remote.calls import SYS_MMAP, Call, CallFailed
from tests.support.own_calls import (
    FailingThread,
    arena_mappings,
    descriptors,
    make_own_arena,
    take_down,
)

PIE, LIBRARY = 0x55D0_0000_0000, 0x7F00_0000_0000
TEXT = Span(RemoteAddress(PIE + PAGE), RemoteAddress(PIE + 9 * PAGE))


def mapping(start: int, end: int, path: str = "/bin/program") -> Mapping:
    return Mapping(
        RemoteAddress(start), RemoteAddress(end), True, False, True, False, 0, "08:01", 7, path,
        False,
    )  # fmt: skip


# ---- where ---------------------------------------------------------------------------------------


def place(span: Span, maps: Sequence[Mapping], heap: int = 0, size: int = SIZE) -> int | None:
    """Where an island would be, which is in reach and out of everybody's way."""
    start = place_near(span, size, maps, heap)
    if start is not None:
        assert not start % PAGE
        assert is_near(Island(0, start, size, 0, 0), span)
        for mapping in maps:
            assert start + size <= mapping.start - GUARD or start >= mapping.end + GUARD
    return start


def test_it_is_below_a_program_that_has_its_heap_above() -> None:
    program, heap = mapping(PIE, PIE + 16 * PAGE), PIE + 32 * PAGE

    for maps in ([program, mapping(heap, heap + PAGE, "[heap]")], [program]):
        assert place(TEXT, maps, heap) == PIE - GUARD - SIZE


def test_it_is_between_the_libraries_for_a_library() -> None:
    span = Span(RemoteAddress(LIBRARY), RemoteAddress(LIBRARY + PAGE))
    maps = [
        mapping(LIBRARY - (4 << 30), LIBRARY),
        mapping(LIBRARY, LIBRARY + PAGE),
        mapping(LIBRARY + (64 << 20), LIBRARY + (4 << 30)),
    ]

    assert place(span, maps) == LIBRARY + PAGE + GUARD


def test_a_program_that_is_linked_to_one_place_has_little_room_below() -> None:
    span = Span(RemoteAddress(0x401000), RemoteAddress(0x402000))

    start = place(span, [mapping(0x400000, 0x403000)], 0x500000)

    assert start == 0x400000 - GUARD - SIZE


@pytest.mark.parametrize(
    ("path", "room"), [("[heap]", HEAP_ROOM), ("/bin/program", GUARD), ("", GUARD)]
)
def test_the_heap_can_grow_above_its_end(path: str, room: int) -> None:
    below = mapping(PIE - (4 << 30), PIE, "/full")
    maps = [below, mapping(PIE, PIE + 16 * PAGE), mapping(PIE + 16 * PAGE, PIE + 17 * PAGE, path)]

    assert place(TEXT, maps) == PIE + 17 * PAGE + room


def test_a_stack_can_grow_below_its_start() -> None:
    stack = PIE + (1 << 30)
    maps = [
        mapping(PIE - (4 << 30), PIE),
        mapping(PIE, stack - STACK_ROOM - 2 * GUARD),
        mapping(stack, stack + (4 << 30), "[stack]"),
    ]

    assert place(TEXT, maps) == stack - STACK_ROOM - GUARD
    assert place(TEXT, [*maps[:2], mapping(stack - GUARD, stack), maps[2]]) is not None
    full = mapping(PIE, stack - STACK_ROOM - GUARD)
    assert place(TEXT, [maps[0], full, maps[2]]) is None


@pytest.mark.parametrize("free", [2 * GUARD, 2 * GUARD + SIZE - PAGE])
def test_there_is_no_place_where_all_is_full(free: int) -> None:
    """A mapping every so many bytes, with less between them than an island takes."""
    step = (1 << 20) + free
    starts = range(PIE - 3 * REACH // 2, PIE + 3 * REACH // 2, step)
    maps = [mapping(start, start + (1 << 20)) for start in starts]

    assert place(TEXT, maps) is None


def test_every_byte_reaches_every_byte() -> None:
    span = Span(RemoteAddress(PIE), RemoteAddress(PIE + (1 << 30)))
    low = PIE - REACH + (1 << 30)

    assert is_near(Island(0, RemoteAddress(low), SIZE, 0, 0), span)
    assert not is_near(Island(0, RemoteAddress(low - 1), SIZE, 0, 0), span)
    assert is_near(Island(0, RemoteAddress(PIE + REACH - SIZE), SIZE, 0, 0), span)
    assert not is_near(Island(0, RemoteAddress(PIE + REACH - SIZE + 1), SIZE, 0, 0), span)
    maps = [mapping(PIE - (8 << 30), low - GUARD), mapping(low + SIZE + GUARD, PIE + (8 << 30))]
    assert place_near(span, SIZE, maps, 0) == low
    assert place_near(span, SIZE + PAGE, maps, 0) is None


# ---- made, in this process -----------------------------------------------------------------------


@pytest.fixture
def thread() -> Iterator[FailingThread]:
    """Makes all calls, until a test sets `fail_at`. What a test leaves is removed."""
    yield (thread := FailingThread())
    take_down(thread)


@pytest.fixture
def arena(build: Path, memory: ProcessMemory, thread: FailingThread) -> Arena:
    return make_own_arena(memory, thread)


def own_text() -> Span:
    """The code of this program."""
    program = os.path.realpath(sys.executable)
    mapping = next(
        mapping for mapping in read_maps("self") if mapping.executable and mapping.path == program
    )
    return Span(mapping.start, mapping.end)


def near(arena: Arena, thread: FailingThread, size: int = 100) -> Island:
    return arena.islands.near(own_text(), size, process_of(arena, thread))


def test_an_island_is_mapped_and_its_code_runs(arena: Arena, thread: FailingThread) -> None:
    code = bytes.fromhex("b8 12 27 00 00 c3")  # mov eax, 10002; ret
    before, room = arena.code.room, arena.islands.room

    island = near(arena, thread)
    address = arena.islands.put(island, code)

    assert is_near(island, own_text())
    assert ctypes.CFUNCTYPE(ctypes.c_int)(address)() == 10002
    assert arena.islands.entries() == [island._replace(used=len(code))]
    assert arena.code.room == before, "recorders, questions and probes in C keep theirs"
    assert (room, room - arena.islands.room) == (ISLANDS_SIZE, SIZE)
    assert island.offset >= arena.geometry.size, "it is no part of what is mapped as the arena"
    lines = [line for line in arena_mappings() if f"{island.start:x}-" in line]
    assert [line.split()[1] for line in lines] == ["r-xs"]


def test_an_island_is_used_until_it_is_full(arena: Arena, thread: FailingThread) -> None:
    first = near(arena, thread)
    arena.islands.put(first, b"\xc3" * (SIZE - 100))

    assert near(arena, thread).start == first.start
    second = near(arena, thread, 101)

    assert second.start != first.start
    assert near(arena, thread, SIZE).start == second.start
    with pytest.raises(Refused, match="has no room for 101 bytes"):
        arena.islands.put(arena.islands.entries()[0], b"\xc3" * 101)


def test_code_for_an_island_is_written_at_once_where_each_piece_was_to_stand(
    arena: Arena, thread: FailingThread
) -> None:
    island = near(arena, thread)
    arena.islands.put(island, b"\x90" * 5)
    (used,) = arena.islands.entries()
    filling = Filling(arena.islands, used)
    places = []
    for number in range(20):
        places.append(filling.place)
        filling.add(bytes([number + 1]) * (number + 1))

    filling.written()

    (written,) = arena.islands.entries()
    code = ctypes.string_at(island.start, written.used)
    assert places[0] == island.start + 16
    for number, at in enumerate(places):
        start = at - island.start
        assert at % 16 == 0
        assert code[start : start + number + 1] == bytes([number + 1]) * (number + 1)
    assert written.used == places[-1] + 20 - island.start
    with pytest.raises(ValueError, match="no room for"):
        filling.add(bytes(filling.room + 1))


def test_a_large_island_is_made_where_it_is_wanted_and_a_small_one_where_it_cannot_be(
    arena: Arena, thread: FailingThread
) -> None:
    span, process = Span(arena.base, RemoteAddress(arena.base + PAGE)), process_of(arena, thread)

    large = arena.islands.near(span, 100, process, preferred=3 * SIZE + 1)
    arena.islands.put(large, bytes(large.size))
    small = arena.islands.near(span, 100, process, preferred=2 * ISLANDS_SIZE)

    assert (large.size, small.size) == (3 * SIZE + PAGE, SIZE)


def test_an_island_far_away_is_no_part_of_the_arenas_size(
    arena: Arena, thread: FailingThread, memory: ProcessMemory
) -> None:
    island = near(arena, thread)

    own, beside, probes, unfinished, _ = find_arenas(os.getpid(), memory, read_maps("self"))

    assert own is not None
    assert (own.base, beside, unfinished) == (arena.base, (), False)
    assert probes.problem is None
    assert island.start in probes
    assert RemoteAddress(island.start + island.size - 1) in probes
    assert RemoteAddress(island.start + island.size) not in probes
    assert RemoteAddress(island.start - 1) not in probes
    assert island.start not in Probes([arena.base])
    assert find.find_unfinished(os.getpid(), memory, read_maps("self")) == []
    own.close()


@pytest.mark.parametrize("fail_at", [0, 1])
def test_an_island_in_whose_making_a_call_fails_is_not_there(
    arena: Arena, thread: FailingThread, fail_at: int
) -> None:
    before, mapped = arena.islands.room, arena_mappings()
    thread.fail_at = len(thread.made) + fail_at

    with pytest.raises(CallFailed):
        near(arena, thread)

    assert arena_mappings() == mapped
    assert arena.islands.entries() == []
    assert arena.islands.room == before


class Dies(FailingThread):
    """The controller is killed before or after the calls."""

    def __init__(self, thread: FailingThread, *, before: bool) -> None:
        super().__init__()
        self.mapped = thread.mapped
        self._before = before

    def run(self, calls: Sequence[Call]) -> list[int]:
        if not self._before:
            super().run(calls)
        raise KeyboardInterrupt


def test_an_island_that_was_not_mapped_any_more_leaves_no_trace(
    arena: Arena, thread: FailingThread
) -> None:
    before = arena.islands.room
    with pytest.raises(KeyboardInterrupt):
        near(arena, Dies(thread, before=True))
    assert len(arena.islands.entries()) == 1

    island = near(arena, thread)

    assert arena.islands.entries() == [island]
    assert before - arena.islands.room == SIZE


def test_an_island_that_was_mapped_is_taken_over(arena: Arena, thread: FailingThread) -> None:
    with pytest.raises(KeyboardInterrupt):
        near(arena, Dies(thread, before=False))
    mapped, (left,) = arena_mappings(), arena.islands.entries()

    assert near(arena, thread) == left
    assert arena_mappings() == mapped


class OldKernel(FailingThread):
    """Linux before 4.17: an unknown flag is passed over, and what is taken already means that the
    mapping is elsewhere."""

    def __init__(self, thread: FailingThread, taken: int) -> None:
        super().__init__()
        self.mapped, self._taken = thread.mapped, taken

    def run(self, calls: Sequence[Call]) -> list[int]:
        changed = []
        for call in calls:
            args = call.args
            if call.number == SYS_MMAP:
                assert isinstance(args[3], int)
                args = (self._taken, *args[1:3], args[3] & ~0x100000, *args[4:])
            changed.append(call._replace(args=args))
        return super().run(changed)


def test_what_a_kernel_maps_elsewhere_is_unmapped(arena: Arena, thread: FailingThread) -> None:
    mapped = arena_mappings()

    with pytest.raises(Refused, match=r"did not map the runtime's code at 0x.* as it was"):
        near(arena, OldKernel(thread, arena.base))

    assert arena_mappings() == mapped
    assert arena.islands.entries() == []


def test_a_place_that_was_taken_meanwhile_is_looked_for_anew(
    arena: Arena, thread: FailingThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[int] = []
    place_near = islands.place_near

    def first_a_taken_one(span: Span, *args: object) -> RemoteAddress | None:
        start = place_near(span, *args) if starts else span.start  # type: ignore[arg-type]
        starts.append(start or 0)
        return start

    monkeypatch.setattr(islands, "place_near", first_a_taken_one)

    island = near(arena, thread)

    assert len(starts) == 2
    assert island.start == starts[1]
    assert arena.islands.entries() == [island]


def test_without_a_gap_it_is_refused(
    arena: Arena, thread: FailingThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(islands, "place_near", lambda *args: None)

    with pytest.raises(Refused, match=r"has no gap of 64 KiB within 2 GiB of 0x[0-9a-f]+-0x"):
        near(arena, thread)

    assert arena.islands.entries() == []


def test_islands_have_room_where_the_arenas_code_has_none(
    arena: Arena, thread: FailingThread
) -> None:
    arena.units.add(UnitEntry(code=0, code_size=CODE_SIZE))
    assert not arena.code.room.code

    islands = []
    for _ in range(3):
        islands.append(near(arena, thread))
        arena.islands.put(islands[-1], b"\xc3" * SIZE)

    first = arena.geometry.islands_at
    assert [island.offset for island in islands] == [first, first + SIZE, first + 2 * SIZE]
    assert ctypes.CFUNCTYPE(None)(islands[-1].end - 1)() is None


def put_entry(arena: Arena, number: int, entry: IslandEntry) -> None:
    arena.store.write(arena.geometry.islands.at(number), bytes(entry))


def test_without_room_behind_the_arena_it_is_refused(arena: Arena, thread: FailingThread) -> None:
    start = arena.geometry.islands_at
    put_entry(arena, 7, IslandEntry(PAGE, ISLANDS_SIZE - SIZE, 1, start + SIZE))
    near(arena, thread)
    assert not arena.islands.room

    with pytest.raises(Refused, match="no room for 68 KiB of code near an object; restart"):
        near(arena, thread, SIZE + 1)


@pytest.mark.parametrize(
    ("offset", "size"),
    [(0, PAGE), (1 << 63, 1 << 63), ((1 << 64) - 1, (1 << 64) - 1), (PAGE, (1 << 20) - PAGE)],
)
def test_what_a_program_writes_into_the_table_costs_room_at_most(
    arena: Arena, thread: FailingThread, offset: int, size: int
) -> None:
    put_entry(arena, 0, IslandEntry(PAGE, size, 1, offset))

    island = near(arena, thread)

    assert island.number == 1
    assert arena.geometry.islands_at <= island.offset < arena.geometry.islands_at + ISLANDS_SIZE
    assert os.stat(f"/proc/self/fd/{own_descriptor()}").st_size < 1 << 40


def own_descriptor() -> int:
    return next(int(name) for name, path in descriptors() if "memfd:markerjit" in path)


def test_the_memory_of_stacks_and_islands_are_behind_each_other_in_any_order(
    arena: Arena, thread: FailingThread
) -> None:
    code = b"\xc3" * 100
    address = arena.islands.put(near(arena, thread), code)

    stacks = make_stacks(arena, process_of(arena, thread))

    geometry = arena.geometry
    assert geometry.stacks_at >= geometry.size
    assert geometry.islands_at >= geometry.stacks_at + STACKS_SIZE
    assert stacks.lost == 0
    assert ctypes.string_at(address, len(code)) == code, "the memfd is not cut off again"


def test_without_a_descriptor_of_ours_nothing_is_written_behind_the_arena(
    arena: Arena, thread: FailingThread, memory: ProcessMemory
) -> None:
    """There is memory of the process."""
    near(arena, thread)
    make_stacks(arena, process_of(arena, thread))
    store = MemoryStore(memory, arena.base)
    other = Arena(os.getpid(), arena.base, store, arena.geometry.size)
    (island,) = other.islands.entries()

    with pytest.raises(Refused, match="has closed its descriptor of the runtime's memory"):
        other.islands.put(island, b"\xc3")
    with pytest.raises(Refused, match="has closed its descriptor of the runtime's memory"):
        near(other, thread, SIZE + 1)
    assert other.islands.entries() == [island]
    assert stacks_of(arena) is not None
    assert stacks_of(other) is None


def test_without_the_targets_descriptor_it_is_refused(arena: Arena, thread: FailingThread) -> None:
    process = process_of(arena, thread)._replace(descriptor=None)

    with pytest.raises(Refused, match="has closed its descriptor of the runtime's memory"):
        arena.islands.near(own_text(), 100, process)


def test_a_number_that_is_another_files_by_now_is_not_mapped(
    arena: Arena, thread: FailingThread, tmp_path: Path
) -> None:
    path = tmp_path / "another"
    path.write_bytes(bytes(CODE_SIZE))
    with path.open("rb") as file:
        process = process_of(arena, thread)._replace(descriptor=file.fileno())

        with pytest.raises(Refused, match="did not map"):
            arena.islands.near(own_text(), 100, process)

    assert str(path) not in Path("/proc/self/maps").read_text()
    assert errno.EEXIST == islands._EEXIST

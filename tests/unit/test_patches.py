"""The table of patches, as controllers write it: what stands in it, and what that costs."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest

from markerjit.abi import PatchEntry, patch_place
from markerjit.arena.arena import Arena
from markerjit.arena.patches import Head, Pages
from markerjit.arena.store import MemoryStore
from markerjit.errors import MarkerError, Refused
from markerjit.model import Mode, RemoteAddress
from tests.support.calls import calls_of
from tests.support.made_arena import geometry_of, make_arena, make_store

SLOT, BODY = RemoteAddress(0x5000), RemoteAddress(0x6000)
NO_BODY = RemoteAddress(0)


class Store(MemoryStore):
    """It counts reads and writes, and fails at one."""

    reads = writes = 0
    fail_at = -1

    def read(self, offset: int, size: int) -> bytes:
        self.reads += 1
        return super().read(offset, size)

    def write(self, offset: int, data: bytes) -> None:
        if self.writes == self.fail_at:
            raise MarkerError("injected")
        self.writes += 1
        super().write(offset, data)


def arena_of(patches: int) -> tuple[Arena, Store]:
    geometry = geometry_of(max_patches=patches)
    store = make_store(geometry, Store)
    assert isinstance(store, Store)
    return make_arena(geometry, store), store


def head(address: int, *, mode: Mode = Mode.JUMP, body: RemoteAddress = NO_BODY) -> Head:
    after = b"\xcc\5" if mode is Mode.INT3 else b"\xeb\0"
    return Head(RemoteAddress(address), b"\xeb\5", after, mode, SLOT, body)


def entry_at(arena: Arena, address: int) -> PatchEntry:
    entry = arena.patches.at(RemoteAddress(address))
    assert entry is not None
    return entry


def test_a_head_is_in_the_table_with_what_stands_there_closed_and_open() -> None:
    arena, _ = arena_of(64)

    arena.patches.put([head(0x1000)])

    entry = entry_at(arena, 0x1000)
    assert (entry.address, entry.slot, entry.body) == (0x1000, SLOT, 0)
    assert list(Mode)[entry.mode - 1] is Mode.JUMP
    assert bytes(entry.before)[: entry.size] == b"\xeb\5"
    assert bytes(entry.after)[: entry.size] == b"\xeb\0"
    assert arena.patches.at(RemoteAddress(0x1001)) is None


def test_whether_the_table_has_heads_is_read_from_it_and_not_remembered() -> None:
    arena, store = arena_of(64)
    heads = [head(0x1000 + 0x40 * number) for number in range(20)]

    arena.patches.put(heads)

    assert arena.patches.have(heads)
    assert arena.patches.have([])
    assert not arena.patches.have([*heads, head(0x9000)])
    assert not arena.patches.have([heads[0]._replace(slot=RemoteAddress(SLOT + 64))])
    part = arena.geometry.patches
    slot = PatchEntry.slot.offset
    for index in range(part.entries):
        at = part.at(index)
        if store.read(at, 8) == heads[7].address.to_bytes(8, "little"):
            store.write(at + slot, bytes(8))
    assert not arena.patches.have(heads)
    assert arena.patches.have(heads[:7])


def test_a_head_that_was_marked_as_gone_or_planted_says_more() -> None:
    arena, _ = arena_of(64)
    trap = head(0x1000, mode=Mode.INT3, body=BODY)
    arena.patches.put([trap])
    assert arena.patches.have([trap])

    arena.patches.mark(planted=[trap.address])

    assert not arena.patches.have([trap])


def test_a_head_that_is_opened_otherwise_keeps_where_its_breakpoint_led() -> None:
    arena, _ = arena_of(64)
    arena.patches.put([head(0x1000, mode=Mode.INT3, body=BODY)])

    arena.patches.put([head(0x1000)])

    entry = entry_at(arena, 0x1000)
    assert (entry.body, bytes(entry.after)[:2]) == (BODY, b"\xeb\0")
    with pytest.raises(Refused, match="led to code that process 7 has unloaded"):
        arena.patches.put([head(0x1000, mode=Mode.INT3, body=RemoteAddress(BODY + 16))])
    assert entry_at(arena, 0x1000).body == BODY


def test_a_head_that_was_forgotten_is_none_any_more_and_its_breakpoint_is_for_others() -> None:
    arena, _ = arena_of(64)
    arena.patches.put([head(0x1000, mode=Mode.INT3, body=BODY)])
    arena.patches.mark(planted=[RemoteAddress(0x1000)])

    arena.patches.forget([RemoteAddress(0x1000), RemoteAddress(0x2000)])

    entry = entry_at(arena, 0x1000)
    assert (entry.gone, entry.size, entry.planted, entry.body) == (1, 0, 0, BODY)
    arena.patches.put([head(0x1000)])  # of what was loaded there since
    assert (entry_at(arena, 0x1000).gone, entry_at(arena, 0x1000).size) == (1, 2)


def test_only_our_own_marks_leave_the_number_of_the_heads() -> None:
    arena, store = arena_of(64)
    other = make_arena(geometry_of(max_patches=64), store)
    address = RemoteAddress(0x1000)
    arena.patches.put([head(0x1000, mode=Mode.INT3, body=BODY)])
    numbers = [arena.patches.heads]

    for change in (
        lambda: arena.patches.mark(planted=[address]),
        lambda: arena.patches.mark(removed=[address]),
        lambda: other.patches.mark(planted=[address]),  # we cannot know what it did
        lambda: arena.patches.mark(removed=[address]),
        lambda: arena.patches.put([head(0x2000)]),
        lambda: arena.patches.forget([address]),
    ):
        change()
        numbers.append(arena.patches.heads)

    steps = [after - before for before, after in itertools.pairwise(numbers)]
    assert steps == [0, 0, 1, 0, 1, 1]


def test_many_heads_take_few_reads_and_writes() -> None:
    """Those that are close together are so in the table."""
    arena, store = arena_of(1 << 14)
    heads = [head(0x400000 + 64 * number) for number in range(2000)]
    store.reads = store.writes = 0

    arena.patches.put(heads)
    first = store.reads, store.writes
    arena.patches.mark([head.address for head in heads])
    arena.patches.put(heads)  # as it is already

    assert max(first) < 600
    assert store.reads - first[0] <= 4, "only whether the table was changed"
    assert store.writes - first[1] < 300
    assert all(entry_at(arena, head.address).planted for head in heads[::100])


def test_a_head_among_thousands_takes_a_few_calls() -> None:
    """Also where heads are so close that an entry is far from its first place."""
    arena, _ = arena_of(1 << 14)
    heads = [head(0x400000 + 28 * number) for number in range(5000)]

    calls = calls_of(lambda: arena.patches.put(heads))

    assert calls < 16 * len(heads)


def test_heads_so_close_that_all_places_between_are_taken_are_found_again() -> None:
    """In another order, and among others: each is entered once."""
    arena, _ = arena_of(1 << 14)
    heads = [head(0x400000 + 8 * number) for number in range(3000)]

    arena.patches.put(heads[::2])
    arena.patches.put([*reversed(heads)])

    assert arena.control.now().patches_used == len(heads)
    assert all(arena.patches.at(head.address) for head in heads)


def test_heads_of_several_kinds_have_each_their_own_entry() -> None:
    arena, _ = arena_of(64)
    heads = [
        head(0x1000),
        head(0x1100, mode=Mode.INT3, body=BODY),
        head(0x1200),
        head(0x1300, mode=Mode.INT3, body=RemoteAddress(BODY + 32)),
        head(0x1400, mode=Mode.INT3, body=RemoteAddress(BODY + 32)),
    ]

    arena.patches.put(heads)

    for each in heads:
        entry = entry_at(arena, each.address)
        assert (entry.address, entry.body, entry.slot) == (each.address, each.body, SLOT)
        assert list(Mode)[entry.mode - 1] is each.mode
        assert bytes(entry.after)[: entry.size] == each.after


def test_heads_that_begin_at_one_place_are_found_behind_the_end_of_the_table() -> None:
    """The search goes on in the next piece of the table, and at its beginning."""
    arena, store = arena_of(128)
    addresses = [at for at in range(0x1000, 0x100000, 64) if patch_place(at, 127) == 120][:80]
    arena.patches.put([head(address) for address in addresses[:79]])

    fresh = make_arena(arena.geometry, store)

    assert len(addresses) == 80
    assert [entry_at(fresh, address).address for address in addresses[:79]] == addresses[:79]
    assert fresh.patches.at(RemoteAddress(addresses[79])) is None
    indices = [fresh.patches.look().find(address) for address in addresses]
    assert indices == [((120 + away) % 128, away == 79) for away in range(80)]


def test_a_full_table_has_no_place_for_another_head() -> None:
    arena, store = arena_of(16)
    used = arena.geometry.patches
    for index in range(16):
        store.write(used.at(index), (0x1000 + index).to_bytes(8, "little"))

    assert arena.patches.look().find(0x5000) == (None, False)


def test_whoever_changed_the_table_meanwhile_is_seen() -> None:
    arena, store = arena_of(64)
    other = make_arena(arena.geometry, store)
    arena.patches.put([head(0x1000, mode=Mode.INT3, body=BODY)])
    before = arena.patches.changed

    other.patches.mark(planted=[RemoteAddress(0x1000)])
    arena.patches.put([head(0x2000)])

    assert arena.patches.changed == before + 2 * 2  # odd while each was written
    assert entry_at(arena, 0x1000).planted


@pytest.mark.parametrize("fail_at", range(6))
def test_a_write_that_fails_leaves_no_half_entry_and_is_made_again(fail_at: int) -> None:
    arena, store = arena_of(64)
    store.writes, store.fail_at = 0, fail_at
    new = head(0x1000, mode=Mode.INT3, body=BODY)
    try:
        arena.patches.put([new])
    except MarkerError:
        entry = arena.patches.at(new.address)
        assert entry is None or entry.body == BODY
    store.fail_at = -1

    arena.patches.put([new])

    assert entry_at(arena, 0x1000).body == BODY
    assert entry_at(arena, 0x1000).size == 2


def test_a_plan_that_is_refused_changes_nothing() -> None:
    arena, store = arena_of(16)
    store.writes = 0

    with pytest.raises(Refused, match="room for 12 places"):
        arena.patches.put([head(0x1000 * number) for number in range(1, 14)])

    assert store.writes == 0
    arena.patches.put([head(0x1000 * number) for number in range(1, 13)])
    assert arena.control.now().patches_used == 12


@pytest.mark.parametrize("dies", [False, True])
def test_who_looks_while_the_table_is_written_looks_again(
    monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """A view reads without the lock: at each step of a change it may see a part of it."""
    arena, store = arena_of(64)
    writer, reader = arena.patches, make_arena(geometry_of(max_patches=64), store).patches
    seen: dict[int, bool] = {}

    class Died(Exception):
        """The controller, between two writes."""

    def written(pages: Pages) -> None:
        seen[reader.heads] = reader.have([head(0x1000)])
        if dies:
            raise Died
        write(pages)
        seen[reader.heads] = reader.have([head(0x1000)])

    write = Pages.write
    monkeypatch.setattr(Pages, "write", written)
    before = reader.heads
    with suppress(Died):
        writer.put([head(0x1000)])

    after = reader.heads
    assert after not in seen and before not in seen
    assert set(seen.values()) == ({False} if dies else {False, True})
    assert (reader.heads == after) is not dies

"""The journal in a made-up arena: what it holds at each moment, and what is not believed of it."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import markerjit.abi as abi
from markerjit.abi import CONTROL, JOURNAL_OPEN, Control, EditEntry, JournalHead
from markerjit.arena import journal as journal_module
from markerjit.arena.arena import Arena
from markerjit.arena.journal import Journal
from markerjit.arena.pack import SIZE, as_native, pack, unpack
from markerjit.arena.store import MemoryStore
from markerjit.errors import MarkerError, Refused, Unsupported
from markerjit.model import Edit, RemoteAddress
from markerjit.patch import apply as apply_module
from markerjit.patch.apply import apply
from markerjit.patch.plan import Plan
from markerjit.proc.owner import Owner, ourselves
from markerjit.remote import native
from tests.support.made_arena import BASE, SparseMemory, control_block, geometry_of, make_arena

GEOMETRY = geometry_of(max_edits=40_000)
HEAD = CONTROL + Control.journal.offset
EDITS = (
    Edit(RemoteAddress(0x1000), b"\xeb", b"\xcc", "journal", True),
    Edit(RemoteAddress(0x9000), bytes(8), b"eight by", "journal", False, 1, False, True, True),
    Edit(RemoteAddress(0x1000), b"\xcc", b"\x90", "journal", True, 2, True),
)


class RecordingStore(MemoryStore):
    """A store with an arena in it, that remembers where it was written, and what was given back."""

    def __init__(self) -> None:
        super().__init__(SparseMemory(GEOMETRY.size), BASE)
        super().write(CONTROL, control_block(GEOMETRY))
        self.writes: list[tuple[int, int]] = []
        self.released: list[tuple[int, int]] = []

    def write(self, offset: int, data: bytes) -> None:
        self.writes.append((offset, len(data)))
        super().write(offset, data)

    def release(self, offset: int, size: int) -> None:
        self.released.append((offset, size))


@pytest.fixture
def store() -> RecordingStore:
    return RecordingStore()


@pytest.fixture
def arena(store: RecordingStore) -> Arena:
    return make_arena(GEOMETRY, store)


def write_head(store: MemoryStore, **facts: int) -> None:
    store.write(HEAD, bytes(JournalHead(**facts)))


# ---- packing -------------------------------------------------------------------------------------

some_bytes = st.integers(1, 16).flatmap(
    lambda size: st.tuples(*[st.binary(min_size=size, max_size=size)] * 2)
)
some_edits = st.builds(
    lambda at, pair, *flags: Edit(RemoteAddress(at), *pair, "journal", *flags),
    st.integers(0, (1 << 64) - 1), some_bytes,
    st.booleans(), st.integers(0, 255), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(some_edits, max_size=20))
def test_edits_that_are_packed_are_unpacked_as_they_were(edits: list[Edit]) -> None:
    packed = pack(edits)

    assert len(packed) == SIZE * len(edits)
    assert unpack(packed) == edits


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(some_edits, min_size=1, max_size=5))
def test_packed_edits_are_what_the_native_part_reads(edits: list[Edit]) -> None:
    for edit, entry in zip(edits, as_native(pack(edits)), strict=True):
        assert (entry.address, entry.size, entry.step) == (edit.address, len(edit.old), edit.step)
        flags = (entry.code, entry.again, entry.store)
        assert flags == (edit.code, edit.again, edit.store)
        assert bytes(entry.old_bytes) == edit.old.ljust(16, b"\0")
        assert bytes(entry.new_bytes) == edit.new.ljust(16, b"\0")


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(min_size=SIZE, max_size=4 * SIZE))
def test_any_bytes_can_be_unpacked(data: bytes) -> None:
    whole = data[: len(data) // SIZE * SIZE]

    assert len(unpack(whole)) == len(whole) // SIZE


# ---- open, left, closed --------------------------------------------------------------------------


def test_a_journal_that_nobody_opened_has_nothing_left(arena: Arena) -> None:
    assert Journal(arena).left() is None


def test_what_was_opened_is_left_for_the_next_controller(
    arena: Arena, store: RecordingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module.time, "time", lambda: 1234.5)

    Journal(arena).open(pack(EDITS))
    left = Journal(make_arena(GEOMETRY, store)).left()

    assert left is not None
    assert (left.owner, left.since, left.edits) == (ourselves(), 1234, EDITS)


def test_the_word_that_it_is_open_is_written_last(arena: Arena, store: RecordingStore) -> None:
    Journal(arena).open(pack(EDITS))

    word = (HEAD, JournalHead.state.size)
    assert store.writes[0] == (GEOMETRY.edits.offset, len(EDITS) * SIZE)
    assert store.writes[-1] == word
    assert store.writes.count(word) == 1
    assert all(not at <= HEAD < at + size for at, size in store.writes[:-1])


def test_a_controller_that_died_while_it_opened_a_journal_left_nothing(
    arena: Arena, store: RecordingStore
) -> None:
    Journal(arena).open(pack(EDITS))
    count = len(store.writes)

    for done in range(count):
        write_head(store, state=abi.JOURNAL_EMPTY)
        store.write(GEOMETRY.edits.offset, bytes(len(EDITS) * SIZE))

        def write(offset: int, data: bytes, left: list[int] = [done]) -> None:  # noqa: B006
            left[0] -= 1
            if left[0] < 0:
                raise MarkerError("killed")
            RecordingStore.write(store, offset, data)

        store.write = write  # type: ignore[method-assign]
        with pytest.raises(MarkerError, match="killed"):
            Journal(arena).open(pack(EDITS))
        del store.write
        assert Journal(arena).left() is None


def test_a_journal_that_was_closed_has_nothing_left_and_can_be_opened_again(arena: Arena) -> None:
    journal = Journal(arena)

    journal.open(pack(EDITS))
    journal.close()

    assert journal.left() is None
    journal.open(pack(EDITS[:1]))
    left = journal.left()
    assert left is not None
    assert left.edits == EDITS[:1]


def test_closing_is_one_write_of_one_word(arena: Arena, store: RecordingStore) -> None:
    Journal(arena).open(pack(EDITS))
    store.writes.clear()

    Journal(arena).close()

    assert store.writes == [(HEAD, 4)]
    assert store.released == []


def test_the_memory_of_a_large_journal_is_given_back_once_it_is_closed(
    arena: Arena, store: RecordingStore
) -> None:
    many = pack(EDITS[:1]) * (GEOMETRY.edits.entries - 1)

    Journal(arena).open(many)
    assert store.released == []
    Journal(arena).close()

    assert store.released == [(GEOMETRY.edits.offset, len(many))]


def test_more_edits_than_there_is_room_for_are_refused_and_nothing_is_written(
    arena: Arena, store: RecordingStore
) -> None:
    packed = pack(EDITS[:1]) * (GEOMETRY.edits.entries + 1)

    with pytest.raises(Refused, match=f"room for {GEOMETRY.edits.entries}: switch fewer"):
        Journal(arena).open(packed)

    assert store.writes == []
    Journal(arena).open(packed[SIZE:])


# ---- what is not believed ------------------------------------------------------------------------


@pytest.mark.parametrize("state", [2, 255, 1 << 31, (1 << 32) - 1])
def test_a_state_that_does_not_exist_makes_no_sense(
    arena: Arena, store: RecordingStore, state: int
) -> None:
    write_head(store, state=state)

    with pytest.raises(Unsupported, match="makes no sense"):
        Journal(arena).left()


@pytest.mark.parametrize("edits", [GEOMETRY.edits.entries + 1, (1 << 32) - 1])
def test_a_journal_of_more_edits_than_fit_makes_no_sense(
    arena: Arena, store: RecordingStore, edits: int
) -> None:
    write_head(store, state=abi.JOURNAL_OPEN, edits=edits)

    with pytest.raises(Unsupported, match="makes no sense"):
        Journal(arena).left()
    Journal(arena).close()
    assert all(at + size <= GEOMETRY.ring_offset(0) for at, size in store.released)


@pytest.mark.parametrize("size", [0, 17, 32, 255])
def test_an_edit_of_an_impossible_size_makes_no_sense(
    arena: Arena, store: RecordingStore, size: int
) -> None:
    Journal(arena).open(pack(EDITS))
    place = GEOMETRY.edits.offset + SIZE + EditEntry.size.offset
    store.write(place, bytes([size]))

    with pytest.raises(Unsupported, match="makes no sense"):
        Journal(arena).left()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(head=st.binary(min_size=32, max_size=32), body=st.binary(min_size=SIZE, max_size=3 * SIZE))
def test_any_bytes_in_the_place_of_a_journal_are_nothing_or_edits_or_refused(
    head: bytes, body: bytes
) -> None:
    store = RecordingStore()
    store.write(HEAD, head[: ctypes.sizeof(JournalHead)])
    store.write(GEOMETRY.edits.offset, body)
    journal = Journal(make_arena(GEOMETRY, store))

    try:
        left = journal.left()
    except Unsupported:
        return
    assert left is None or all(0 < len(edit.old) == len(edit.new) <= 16 for edit in left.edits)


# ---- around a transaction ------------------------------------------------------------------------


class FakeHelper:
    """libmjstop.so, of which the test says how it ends."""

    def __init__(self, arena: Arena, status: int) -> None:
        self._arena = arena
        self._status = status
        self.journal_meanwhile: tuple[Edit, ...] | None = None

    def mj_apply(
        self, target: object, number: int, edits: object, count: int, report: object
    ) -> int:
        left = Journal(self._arena).left()
        self.journal_meanwhile = left.edits if left else None
        if self._status < 0:
            raise KeyboardInterrupt
        return self._status


@pytest.mark.parametrize(
    ("status", "stays_open"),
    [
        (native.OK, False),
        (native.ERRNO, False),
        (native.BUSY, False),
        (native.IN_SPAN, False),
        (native.UNEXPECTED, False),
        (native.NOT_VERIFIED, False),
        (native.NO_THREAD, False),
        (native.NOT_SYNCED, False),
        (native.NOT_UNDONE, True),
        (native.GONE, True),
    ],
)
def test_the_journal_is_open_while_edits_are_written_and_after_it_only_if_they_may_be_there(
    arena: Arena, status: int, stays_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = FakeHelper(arena, status)
    monkeypatch.setattr(apply_module.native, "library", lambda: helper)
    target = native.NativeTarget(pid=7)
    try:
        apply(Plan("test", EDITS), target, Journal(arena))
    except MarkerError:
        assert status != native.OK

    assert helper.journal_meanwhile == EDITS
    assert (Journal(arena).left() is not None) == stays_open


def test_a_plan_that_writes_nothing_opens_no_journal(arena: Arena, store: RecordingStore) -> None:
    applied = apply(Plan("test", ()), native.NativeTarget(pid=7), Journal(arena))

    assert applied.written == 0
    assert store.writes == []


# ---- a change that is made in steps --------------------------------------------------------------


def test_a_journal_that_is_opened_with_a_lease_says_whose_it_is_and_how_long(arena: Arena) -> None:
    journal = Journal(arena)

    journal.open(pack(EDITS), lease_s=60)

    pause = journal.pause()
    assert pause is not None
    assert (pause.owner, pause.over) == (ourselves(), False)
    assert 58 < pause.left_s <= 60
    left = journal.left()
    assert left is not None
    assert left.pause is not None
    assert left.edits == EDITS


def test_a_journal_without_a_lease_is_no_pause(arena: Arena) -> None:
    journal = Journal(arena)
    assert journal.pause() is None

    journal.open(pack(EDITS))

    assert journal.pause() is None
    left = journal.left()
    assert left is not None
    assert left.pause is None


def test_a_lease_is_over_when_its_time_has_come_and_renewed_before(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(arena)
    journal.open(pack(EDITS), lease_s=60)
    now = journal_module.time.monotonic()

    monkeypatch.setattr(journal_module.time, "monotonic", lambda: now + 50)
    journal.renew(60)
    monkeypatch.setattr(journal_module.time, "monotonic", lambda: now + 70)
    assert not journal.pause().over  # type: ignore[union-attr]
    monkeypatch.setattr(journal_module.time, "monotonic", lambda: now + 111)
    assert journal.pause().over  # type: ignore[union-attr]


@pytest.mark.parametrize("owner", [ourselves(), Owner(ourselves().pid, 1, 2)])
@pytest.mark.parametrize("until", [1, (1 << 32) - 1])
def test_a_lease_that_cannot_be_is_over(
    store: RecordingStore, arena: Arena, owner: Owner, until: int
) -> None:
    write_head(store, state=JOURNAL_OPEN, until=until, owner=owner.entry())

    assert Journal(arena).pause().over  # type: ignore[union-attr]

"""Which code records a marker: made for it, kept, and found again by the next controller."""

from __future__ import annotations

from ctypes import c_char_p, c_double, c_int, c_uint64
from pathlib import Path

import pytest

from markerjit.abi import CODE_SIZE, RUNTIME_SIZE, MarkerEntry
from markerjit.errors import MarkerError, Refused, UnknownField
from markerjit.model import CType, RemoteAddress, Signature
from markerjit.patch.request import Count, Record
from markerjit.patch.where import Where
from markerjit.probes.recorder import LARGEST, make_recorder, setting_of, shape_of
from markerjit.probes.recorders import Recorders, check_fields
from markerjit.ring.types import Options, Time
from tests.support.own_arena import CHARS, DOUBLE, INT, LONG, SHARED, OwnArena, geometry_of

USUAL = Options()


def event(name: str = "m", format_: str = "a %d b %g", *args: CType) -> Signature:
    return Signature(name, format_, args or (INT, DOUBLE))


@pytest.fixture
def own(build: Path) -> OwnArena:
    return OwnArena()


@pytest.fixture
def recorders(own: OwnArena) -> Recorders:
    return Recorders(own.arena)


def marker_of(recorders: Recorders, signature: Signature, options: Options = USUAL) -> int:
    """Tell the runtime of a marker; returns its id."""
    recorders.tell([signature], Record(options))
    marker = recorders.find(signature, Record(options))
    assert marker is not None
    return marker


def is_own_code(own: OwnArena, marker: int) -> bool:
    return own.arena.record_probe(marker, preserving=True) >= own.base + RUNTIME_SIZE


def assert_made_as_alone(own: OwnArena, marker: int) -> None:
    """The recorder of a marker is the one that is made for it alone."""
    entry, place = own.arena.markers.entry(marker), own.arena.markers.address(marker)
    shape, setting = shape_of(marker, place, entry, preserving=True), setting_of(own.arena)
    probe = own.base + entry.recorder
    start = 2 * probe - make_recorder(shape, setting, probe).entry
    alone = make_recorder(shape, setting, start)
    assert own.store.read(start - own.base, len(alone.code)) == alone.code


# ---- entries -------------------------------------------------------------------------------------


def test_a_marker_is_unknown_until_the_runtime_was_told_of_it(recorders: Recorders) -> None:
    signature = event()
    assert recorders.find(signature, Record(USUAL)) is None

    recorders.tell([signature], Record(USUAL))

    assert recorders.find(signature, Record(USUAL)) == 0


def test_another_controller_finds_what_was_told(own: OwnArena, recorders: Recorders) -> None:
    signature = event()
    recorders.tell([signature, event("other")], Record(USUAL))

    again = Recorders(own.arena)

    assert [again.find(signature, Record(USUAL)), again.find(event("other"), Record(USUAL))] == [
        0,
        1,
    ]


def test_sites_of_one_marker_share_its_entry(own: OwnArena, recorders: Recorders) -> None:
    recorders.tell([event(), event(), event()], Record(USUAL))

    assert len(list(own.arena.markers.entries())) == 1


@pytest.mark.parametrize(
    "other",
    [
        Options(time=Time.NONE),
        Options(time=Time.COARSE),
        Options(thread_id=False),
        Options(fields=("b",)),
        Options(counted=False),
    ],
)
def test_what_is_recorded_otherwise_is_another_entry(
    own: OwnArena, recorders: Recorders, other: Options
) -> None:
    signature = event()

    assert marker_of(recorders, signature) == 0
    assert marker_of(recorders, signature, other) == 1
    assert marker_of(recorders, signature) == 0
    assert len({entry.name_hash for entry in own.arena.markers.entries()}) == 1


def test_a_limit_of_texts_matters_to_markers_with_texts_only(recorders: Recorders) -> None:
    text = event("text", "s %s", CHARS)

    assert marker_of(recorders, text) == 0
    assert marker_of(recorders, text, Options(text=10)) == 1
    assert marker_of(recorders, event()) == marker_of(recorders, event(), Options(text=10)) == 2


def test_a_full_table_is_refused(own: OwnArena, recorders: Recorders) -> None:
    for number in range(own.geometry.max_markers):
        marker_of(recorders, event(f"m{number}"))

    with pytest.raises(Refused, match="room for 8 markers"):
        recorders.tell([event("more")], Record(USUAL))
    assert marker_of(recorders, event("m3")) == 3


# ---- code ----------------------------------------------------------------------------------------


def test_numbers_get_code_of_their_own_that_records_them(
    own: OwnArena, recorders: Recorders
) -> None:
    marker = marker_of(recorders, event())
    own.types = recorders.types([event()])

    assert is_own_code(own, marker)
    probe = recorders.probe(marker, Record())
    own.slot(marker).hit(c_int(-7), c_double(0.5))
    assert [event.fields for event in own.records()] == [{"a": -7, "b": 0.5}]
    assert own.arena.records(probe, own.arena.markers.address(marker))
    assert not own.arena.records(probe, own.arena.markers.address(marker + 1))


@pytest.mark.parametrize("options", [Options(Time.MONOTONIC), Options(Time.COARSE)])
def test_a_time_that_takes_a_call_is_left_to_the_general_recorder(
    own: OwnArena, recorders: Recorders, options: Options
) -> None:
    assert not is_own_code(own, marker_of(recorders, event(), options))


def test_bounded_texts_are_left_to_the_general_recorder(
    own: OwnArena, recorders: Recorders
) -> None:
    signature = event("text", "s %.8s n %d", CHARS, INT)

    assert not is_own_code(own, marker_of(recorders, signature))
    assert is_own_code(own, marker_of(recorders, signature, Options(fields=("n",))))


def test_a_process_without_restartable_sequences_has_the_general_recorder(build: Path) -> None:
    own = OwnArena(way=SHARED)

    assert not is_own_code(own, marker_of(Recorders(own.arena), event()))


def test_who_only_counts_gets_no_code_until_somebody_records(
    own: OwnArena, recorders: Recorders
) -> None:
    recorders.tell([event()], Count())
    marker = recorders.find(event(), Count())
    assert marker is not None
    assert not is_own_code(own, marker)
    assert recorders.probe(marker, Count()) == own.arena.count_probe(preserving=True)

    assert marker_of(recorders, event(), Count().options) == marker
    assert is_own_code(own, marker)


def test_code_is_made_once_whoever_asks(own: OwnArena, recorders: Recorders) -> None:
    marker = marker_of(recorders, event())
    probe, used = own.arena.record_probe(marker, preserving=True), own.arena.control.now().code_used

    again = Recorders(own.arena)

    assert marker_of(again, event()) == marker
    assert again.probe(marker, Record()) == probe
    assert own.arena.control.now().code_used == used


def test_pieces_of_code_do_not_overlap_and_are_as_large_as_they_need(
    own: OwnArena, recorders: Recorders
) -> None:
    ends = [RUNTIME_SIZE]
    for number in range(6):
        format_ = ("%d " * number,) if number else ()
        signature = event(f"m{number}", *format_, *[INT] * number)
        probe = recorders.probe(marker_of(recorders, signature), Record())
        assert ends[-1] < probe - own.base < own.arena.control.now().code_used
        ends.append(own.arena.control.now().code_used)

    assert ends == sorted(set(ends))
    assert all(end % 32 == 0 for end in ends)
    assert ends[-1] - ends[0] < 6 * 512
    assert own.store.read(0, len(own.code)) == own.code


def test_recorders_of_many_are_those_that_one_would_have_and_some_find_no_room(
    own: OwnArena, recorders: Recorders
) -> None:
    """They are written together, up to the end of the room."""
    own.arena.control.write("code_used", CODE_SIZE - LARGEST - 1600)
    signatures = [event(f"m{number}", "a %d", INT) for number in range(8)]
    signatures[2] = event("m2", "a %d b %d", INT, INT)

    recorders.tell(signatures, Record(USUAL))

    markers = [recorders.find(signature, Record(USUAL)) for signature in signatures]
    own_code = [is_own_code(own, marker) for marker in markers if marker is not None]
    made = own_code.count(True)
    assert own_code == [True] * made + [False] * (8 - made)
    assert 3 < made < 8
    for marker in markers[:made]:
        assert marker is not None
        assert_made_as_alone(own, marker)
    own.types = recorders.types(signatures)
    for marker, signature in zip(markers, signatures, strict=True):
        assert marker is not None
        own.slot(marker).hit(*[c_int(7)] * len(signature.args))
    assert [record.name for record in own.records()] == [each.name for each in signatures]


@pytest.mark.parametrize("room", [CODE_SIZE, LARGEST + 8000], ids=["for all", "for some"])
def test_recorders_of_thousands_are_those_that_one_would_have(build: Path, room: int) -> None:
    """Those that are alike are made together."""
    own = OwnArena(geometry_of(max_markers=128))
    recorders = Recorders(own.arena)
    used = max(own.arena.control.number("code_used"), CODE_SIZE - room)
    own.arena.control.write("code_used", used)
    formats = ("a %d", INT), ("a %d b %d", INT, INT), ("a %s", CHARS)
    signatures = [event(f"m{number}", *formats[number % 3]) for number in range(90)]

    recorders.tell(signatures, Record(USUAL))

    markers = recorders.find_many(signatures, Record(USUAL))
    made = [marker for marker in markers if marker is not None and is_own_code(own, marker)]
    assert len(made) == 90 if room == CODE_SIZE else 10 < len(made) < 90
    for marker in made:
        assert_made_as_alone(own, marker)


def test_without_room_for_code_the_general_recorder_does_it(
    own: OwnArena, recorders: Recorders
) -> None:
    own.arena.control.write("code_used", CODE_SIZE - 512)

    marker = marker_of(recorders, event())

    assert not is_own_code(own, marker)
    assert own.arena.control.now().code_used == CODE_SIZE - 512
    own.types = recorders.types([event()])
    own.slot(marker).hit(c_int(1), c_double(2))
    assert len(own.records()) == 1


def test_code_that_was_put_there_and_never_taken_is_written_over(
    own: OwnArena, recorders: Recorders
) -> None:
    """Who put it there has died: nothing leads to it."""
    own.store.write(RUNTIME_SIZE, b"\x90" * 2000)

    marker = marker_of(recorders, event())

    assert is_own_code(own, marker)
    own.types = recorders.types([event()])
    own.slot(marker).hit(c_int(1), c_double(2))
    assert len(own.records()) == 1


def test_code_that_did_not_arrive_is_not_used(
    own: OwnArena, recorders: Recorders, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = own.store.write
    keep = lambda at, data: None if at >= RUNTIME_SIZE and at < CODE_SIZE else write(at, data)  # noqa: E731
    monkeypatch.setattr(own.store, "write", keep)

    with pytest.raises(MarkerError, match="did not arrive"):
        recorders.tell([event()], Record(USUAL))
    assert not is_own_code(own, 0)


# ---- types ---------------------------------------------------------------------------------------


def test_types_are_those_of_the_markers_that_are_switched_on_so(recorders: Recorders) -> None:
    signature, other = event(), event("other", "s %s", CHARS)
    recorders.tell([signature], Record(USUAL))
    options = Options(Time.NONE, thread_id=False, fields=("b",))
    recorders.tell([signature, other], Record(options))

    types = recorders.types_of([signature, event(), other], Record(options))

    assert sorted(types) == [1, 2]
    assert [field.name for field in types[1].fields] == ["b"]
    assert (types[1].id, types[1].marker, types[1].time, types[1].tid) == (1, "m", Time.NONE, False)
    assert types[2].fields == ()


def test_types_of_what_the_runtime_was_not_told_of_are_none(recorders: Recorders) -> None:
    assert recorders.types_of([event()], Record()) == {}
    assert recorders.types([event()]) == {}


def test_all_types_are_all_ways_in_which_the_markers_were_ever_recorded(
    recorders: Recorders,
) -> None:
    signature = event()
    for options in (USUAL, Options(fields=("a",)), Options(Time.COARSE)):
        recorders.tell([signature, event("other")], Record(options))

    types = recorders.types([signature])

    assert sorted(types) == [0, 2, 4]
    assert [len(types[marker].fields) for marker in (0, 2, 4)] == [2, 1, 2]
    assert [types[marker].time for marker in (0, 2, 4)] == [Time.TSC, Time.TSC, Time.COARSE]


def test_entries_with_another_number_of_arguments_are_of_no_known_type(
    own: OwnArena, recorders: Recorders
) -> None:
    """An entry is the target's to write."""
    marker_of(recorders, event())
    place = own.geometry.marker_offset(0) + MarkerEntry.argc.offset
    own.store.write(place, b"\x09")

    assert recorders.types([event()]) == {}


def test_records_of_all_ways_are_told_apart_in_one_ring(
    own: OwnArena, recorders: Recorders
) -> None:
    signature = event("m", "a %ld b %ld", LONG, LONG)
    for fields in (None, ("b",), ("a",)):
        marker = marker_of(recorders, signature, Options(fields=fields))
        own.slot(marker).hit(c_uint64(1), c_uint64(2))
    own.types = recorders.types([signature])

    assert [event.fields for event in own.records()] == [{"a": 1, "b": 2}, {"b": 2}, {"a": 1}]


def test_texts_are_recorded_by_the_general_recorder(own: OwnArena, recorders: Recorders) -> None:
    signature = event("text", "s %s", CHARS)
    marker = marker_of(recorders, signature, Options(text=3))
    data = RemoteAddress(own.arena.markers.address(marker))
    own.types = recorders.types([signature])

    own.slot(marker).hit(c_char_p(b"abcdef"))

    assert [event.fields for event in own.records()] == [{"s": "abc…"}]
    assert own.arena.records(recorders.probe(marker, Record()), data)


# ---- fields --------------------------------------------------------------------------------------


def test_fields_that_some_marker_has_are_fine() -> None:
    check_fields([event(), event("other", "c %d", INT)], ["a", "c"])
    check_fields([event()], [])


def test_a_field_that_no_marker_has_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(Refused, match="no marker has a field z; there are a, b, c"):
        check_fields([event(), event("other", "c %d", INT)], ["a", "z"])
    many = [event(f"of{number}", f"x{number:02} %d", INT) for number in range(30)]
    with pytest.raises(UnknownField, match=r"there are x00, x01, .*, x19 and 10 more$"):
        check_fields(many, ["zzzz"])


# ---- questions -----------------------------------------------------------------------------------


def asking(recorders: Recorders, probe: Count | Record) -> int:
    """Tell the runtime of a marker with two ints, behind a question; returns its id."""
    recorders.tell([event()], probe)
    marker = recorders.find(event(), probe)
    assert marker is not None
    assert recorders.probe(marker, probe) == recorders.arena.asking_probe(marker)
    return marker


def test_each_question_has_an_entry_and_code_of_its_own(own: OwnArena) -> None:
    recorders = Recorders(own.arena)
    first, other = Where.of("a == 1"), Where.of("a == 2")
    probes = [Count(), Count(first), Count(other), Record(USUAL, first), Record(USUAL)]
    markers = [asking(recorders, probe) for probe in probes[1:4]]
    room = own.arena.code.room.code

    assert len({*markers, marker_of(recorders, event())}) == 4
    again = Recorders(own.arena)
    assert [asking(again, probe) for probe in probes[1:4]] == markers
    data = [own.arena.markers.address(marker) for marker in markers]
    assert [own.arena.question(each) for each in data] == ["a == 1", "a == 2", "a == 1"]
    assert own.arena.code.room.code <= room
    asked = [own.arena.asking_probe(marker) for marker in markers]
    counts = [own.arena.counts(*words) for words in zip(asked, data, strict=True)]
    records = [own.arena.records(*words) for words in zip(asked, data, strict=True)]
    assert (counts, records) == ([True, True, False], [False, False, True])


def test_question_without_room_is_refused_and_nothing_is_bound_to_it(own: OwnArena) -> None:
    own.arena.control.write("code_used", CODE_SIZE - 64)
    recorders, probe = Recorders(own.arena), Count(Where.of("a + 1 > b * 3"))

    with pytest.raises(Refused, match="has no room for the code of another question"):
        recorders.tell([event()], probe)
    assert recorders.find(event(), probe) is None
    (marker,) = [int(entry.id) for entry in own.arena.markers.entries() if entry.asks]
    with pytest.raises(MarkerError, match="has no code"):
        recorders.probe(marker, probe)

    own.arena.control.write("code_used", RUNTIME_SIZE)
    assert asking(Recorders(own.arena), probe) == marker  # the next controller makes the code

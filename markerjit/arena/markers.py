"""The table of markers: how each is recorded, who switched it, and how.

A marker has an entry for each way in which it was ever recorded. An entry never becomes another
marker's, and what it describes never changes: a thread may be reading it. Only the entry of a
question that was given back (probes/idle.py) describes another one about the same marker later. An
entry that has added to aggregates goes on to do that: its words of struct mj_calls are counts, and
those of a question before a probe are brakes.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from markerjit.abi import ASKS_BEFORE_COUNT, ASKS_BEFORE_RECORD, Geometry, MarkerEntry
from markerjit.arena.control import ControlBlock
from markerjit.arena.extents import Extent
from markerjit.arena.hashes import fnv1a, know_hashes
from markerjit.arena.tables import Table
from markerjit.arena.versions import Layout
from markerjit.errors import Refused
from markerjit.model import Mode, RemoteAddress
from markerjit.ring.raw import Store
from markerjit.tuples import NamedTuple

NUMBERS = {mode: number for number, mode in enumerate(Mode, 1)}
"""How an entry says the mode of its marker; 0: off."""
NEAR = 8
"""To read as many other entries or counters takes less time than another read."""
_ENTRIES = 512
"""So many of the table's are read at a time."""
_PLACE = struct.Struct("<II")
_HASH, _ID = struct.Struct("<Q"), struct.Struct("<I")
_NAME = MarkerEntry.name.size
_SWITCHED = struct.Struct("<QIIBB")
"""The fields from `since` to `mode`."""
_COUNTS = (
    "passed_before", "lost_before", "delivered", "calls", "calls_before", "hits_before",
    "losses_before",
)  # fmt: skip
WORD_MASK = (1 << 64) - 1
BEFORE_PROBE = (ASKS_BEFORE_COUNT, ASKS_BEFORE_RECORD)
"""What entries ask whose code stands before a probe of the runtime's."""


class Switched(NamedTuple):
    """The part of a marker's entry that a switch writes.

    mode     how the marker is on now, None when it is off
    before   the entry that it had when it was on before, None when it was off
    slots    those that had this entry before, or have it now
    calling  whether they hold a probe in C, so that they count its calls themselves
    """

    mode: Mode | None
    before: int | None
    slots: tuple[RemoteAddress, ...]
    calling: bool


class Asking(NamedTuple):
    """What an entry says of its question: since when it is asked, what it asks for (MJ_ASKS_*),
    where its code is, and its number. Each is 0 where there is none."""

    marker: int
    since: int
    asks: int
    recorder: int
    question: int


class Noted(NamedTuple):
    """A marker whose switch is written down: its entry before that, how it is on, and since when
    (CLOCK_REALTIME, s)."""

    marker: int
    entry: MarkerEntry
    mode: Mode | None
    since: int


class Markers:
    """The markers of an arena that is mapped at `base`."""

    def __init__(
        self,
        base: RemoteAddress,
        store: Store,
        control: ControlBlock,
        layout: Layout,
        geometry: Geometry,
    ) -> None:
        self._base = base
        self._control = control
        self._table = Table(store, geometry.markers, MarkerEntry, layout.marker)
        self._room = geometry.max_markers
        self._ids: dict[tuple[str, bytes], int] = {}
        self._with_hash: dict[int, list[int]] = {}
        self._hashed = 0
        self._questions: tuple[int, tuple[Extent, ...]] | None = None

    @property
    def used(self) -> int:
        """How many markers the runtime was told of; more may come at any time."""
        return min(self._control.number("markers_used"), self._room)

    def entries(self, first: int = 0) -> Iterator[MarkerEntry]:
        """The markers that the runtime has been told of, in the order of their ids."""
        used = self.used
        for start in range(first, used, _ENTRIES):
            yield from self._table.read_many(start, min(_ENTRIES, used - start))

    def entry(self, marker: int) -> MarkerEntry:
        """A marker's entry, as it is now."""
        return self._table.read(marker)

    def entries_between(self, first: int, count: int) -> list[MarkerEntry]:
        """Entries that follow each other, read at once."""
        return self._table.read_many(first, count)

    def entries_of(self, markers: Iterable[int]) -> dict[int, MarkerEntry]:
        """The entries of these markers by id, those that are near to each other by one read."""
        asked = {*markers}
        entries: dict[int, MarkerEntry] = {}
        for run in runs(asked, apart=NEAR):
            entries.update(zip(run, self.entries_between(run.start, len(run)), strict=True))
        return {marker: entries[marker] for marker in sorted(asked)}

    def asking(self, signature: str) -> list[Asking]:
        """What all entries of a marker say of their questions."""
        markers = self.of(signature)
        words = {
            marker: of_entry
            for run in runs(markers, apart=NEAR)
            for marker, of_entry in zip(
                run, self._table.read_words(run.start, len(run), *Asking._fields[1:]), strict=True
            )
        }
        return [Asking(marker, *words[marker]) for marker in markers]

    def with_hash(self, name_hash: int) -> Sequence[int]:
        """The ids of all entries of a marker: it has one for each way in which it was recorded."""
        return self.with_hashes([name_hash])[0]

    def with_hashes(self, hashes: Iterable[int]) -> list[Sequence[int]]:
        """The same of many markers, by one look at the table."""
        for entry in self.entries(self._hashed):
            self._with_hash.setdefault(int(entry.name_hash), []).append(self._hashed)
            self._hashed += 1
        return [self._with_hash.get(name_hash, ()) for name_hash in hashes]

    def of(self, signature: str) -> Sequence[int]:
        """The ids of all entries of the marker with this signature."""
        return self.with_hash(fnv1a(signature.encode()))

    @property
    def entry_size(self) -> int:
        """Bytes of an entry."""
        return self._table.part.entry_size

    def address(self, marker: int) -> RemoteAddress:
        """Where the target has a marker's entry: the data of its slot."""
        return RemoteAddress(self._base + self._table.part.at(marker))

    def at(self, data: RemoteAddress) -> int | None:
        """The id of the marker whose entry is at this address."""
        marker, rest = divmod(data - self.address(0), self._table.part.entry_size)
        return marker if not rest and 0 <= marker < self._room else None

    def known(self, signature: str, entry: MarkerEntry) -> int | None:
        """The id of the marker with this signature that is recorded as `entry` says; None when the
        runtime was not told of it."""
        how = _how(entry)
        known = self._ids.get((signature, how))
        if known is not None and (not entry.asks or _how(self.entry(known)) == how):
            return known
        alike = (at.marker for at in self.asking(signature) if at.question == entry.question)
        for marker, other in self.entries_of(alike).items():
            if _how(other) == how:
                self._ids[signature, how] = marker
                return marker
        return None

    def find(self, name: str, signature: str, entry: MarkerEntry) -> int:
        """The same, and the runtime is told of it when it is new. The caller must hold the target's
        lock. Raises Refused when the table is full."""
        known = self.known(signature, entry)
        if known is not None:
            return known
        free = self._free(signature, entry) if entry.asks else None
        marker = int(self._control.now().markers_used) if free is None else free
        if marker >= self._room:
            raise Refused(f"the arena has room for {self._room} markers")
        copy = _named(entry, name, signature, marker)
        if free is None:
            self._table.write(marker, copy)
            self._control.write("markers_used", marker + 1)
        else:
            self._table.write(marker, _with_counts(copy, self.entry(marker)))
        self._ids[signature, _how(entry)] = marker
        return marker

    def find_many(self, markers: Sequence[tuple[str, str, MarkerEntry]]) -> list[int]:
        """The same of many, each with its name, signature and entry, none of which asks a question.
        Raises Refused when the table has no room for all: then nothing is written."""
        hows = {id(entry): _how(entry) for _, _, entry in markers}
        know_hashes(text for _, text, _ in markers)
        candidates = self.with_hashes([fnv1a(text.encode()) for _, text, _ in markers])
        stored = self.entries_of(index for indices in candidates for index in indices)
        known = {index: _how(entry) for index, entry in stored.items()}
        used = first = self.used
        ids: dict[tuple[str, bytes], int] = {}
        new: list[bytes] = []
        whole = {id(entry): bytes(entry) for _, _, entry in markers}
        numbers: list[int] = []
        for (name, text, entry), indices in zip(markers, candidates, strict=True):
            how = hows[id(entry)]
            marker = ids.get((text, how))
            if marker is None:
                marker = next((index for index in indices if known[index] == how), None)
            if marker is None:
                marker, used = used, used + 1
                new.append(_named_bytes(whole[id(entry)], name, text, marker))
            ids[text, how] = marker
            numbers.append(marker)
        if used > self._room:
            raise Refused(f"the arena has room for {self._room} markers")
        if new:
            self._table.write_packed(first, new)
            self._control.write("markers_used", used)
        self._ids |= ids
        return numbers

    def _free(self, signature: str, new: MarkerEntry) -> int | None:
        """An entry of this marker, for a question of the same kind, that has no code: nothing leads
        to it."""
        for entry in self.asking(signature):
            free = entry.asks and not entry.recorder and not entry.since
            if free and (entry.asks in BEFORE_PROBE) == (new.asks in BEFORE_PROBE):
                return entry.marker
        return None

    def set_recorder(self, marker: int, recorder: RemoteAddress, *, preserving: bool) -> None:
        """From now on this code records the marker where it is switched on, for bodies that make a
        preserving call or for those that make an ordinary one."""
        self.set_recorders({marker: recorder}, preserving=preserving)

    def set_recorders(self, recorders: Mapping[int, RemoteAddress], *, preserving: bool) -> None:
        """The same of many markers."""
        field, base = "recorder" if preserving else "recorder_of_c", self._base
        places = [
            (marker, (recorder - base).to_bytes(4, "little"))
            for marker, recorder in recorders.items()
        ]
        self._table.write_each(field, places)

    # ---- questions -----------------------------------------------------------------------------

    def set_question(
        self, marker: int, code: RemoteAddress, text: RemoteAddress, size: int
    ) -> None:
        """From now on the code of a marker's question is here, and behind it its text of so many
        bytes."""
        known, self._questions = self._questions, None
        changed = self._note_questions()
        self._table.write_field(marker, "question_text", _PLACE.pack(text - self._base, size))
        self.set_recorder(marker, code, preserving=True)
        if known and known[0] == changed - 1:
            extent = question_extent(self.entry(marker))
            self._questions = changed, (*known[1], extent)

    def give_back(self, marker: int) -> None:
        """From now on the question of a marker has no code, and its entry is free. Nothing may lead
        to them, and no thread may be in the memory of an aggregate that it names."""
        self._note_questions()
        self.set_recorder(marker, self._base, preserving=True)
        self._table.write_field(marker, "question_text", _PLACE.pack(0, 0))
        self.set_aggregate(marker, 0)

    def questions(self) -> tuple[Extent, ...]:
        """The code of all questions, each with what is behind it up to the end of its text. The
        target can write anything there."""
        changed = self.questions_changed
        if not changed:
            return ()
        if self._questions is None or self._questions[0] != changed:
            extents = tuple(
                question_extent(entry) for entry in self.entries() if entry.asks and entry.recorder
            )
            self._questions = changed, extents
        return self._questions[1]

    def _note_questions(self) -> int:
        """Before the code of a question comes or goes. How often that was so far."""
        changed = self.questions_changed + 1 & WORD_MASK
        self._control.write("questions_changed", changed)
        return changed

    @property
    def questions_changed(self) -> int:
        """How often the code of a question came or went, of all markers."""
        return self._control.number("questions_changed")

    def adding_to(self, ticket: int) -> list[int]:
        """The markers that add to the aggregate with this ticket."""
        return [*self._table.indices_with(self.used, "aggregate", ticket)]

    def set_aggregate(self, marker: int, ticket: int) -> None:
        """From now on the code of a marker adds to the aggregate with this ticket; 0: to none."""
        self._table.write_field(marker, "aggregate", ticket.to_bytes(8, "little"))

    # ---- who switched it, and how --------------------------------------------------------------

    def note_switched(
        self,
        marker: int,
        mode: Mode | None,
        *,
        since: int | None = None,
        by: int | None = None,
        held: int = 0,
        known: MarkerEntry | None = None,
    ) -> None:
        """Write down that a marker was switched: on since `since` (CLOCK_REALTIME, s; now), by the
        process `by` (us), and for which reading it records. `known` is its entry, where that was
        read under the target's lock already."""
        entry = self.entry(marker) if known is None else known
        when = int(time.time()) if since is None else since
        who = os.getpid() if by is None else by
        fields = (when, who, NUMBERS[mode]) if mode else (0, 0, 0)
        if self._table.is_current:
            since, by, number = fields
            words = _SWITCHED.pack(since, by, entry.id, entry.argc, number)
            self._table.write_field(marker, "since", words)
        else:
            entry.since, entry.by, entry.mode = fields
            self._table.write_fields(marker, entry, "since", "mode")
        reading = held if mode else 0
        if entry.held != reading:
            self.note_held(marker, reading)

    def note_all_switched(self, changes: Sequence[Noted], *, by: int, held: int = 0) -> None:
        """The same of many markers, whose entries were read under the target's lock."""
        if not self._table.is_current:
            for marker, entry, mode, since in changes:
                self.note_switched(marker, mode, since=since, by=by, held=held, known=entry)
            return
        pack, numbers = _SWITCHED.pack, NUMBERS
        self._table.write_each(
            "since",
            [
                (marker, pack(since, by, entry.id, entry.argc, numbers[mode]))
                if mode
                else (marker, pack(0, 0, entry.id, entry.argc, 0))
                for marker, entry, mode, since in changes
            ],
        )
        for marker, entry, mode, _ in changes:
            reading = held if mode else 0
            if entry.held != reading:
                self.note_held(marker, reading)

    def note_by(self, marker: int, pid: int) -> None:
        """Write down that it was another controller that switched a marker on."""
        self._table.write_field(marker, "by", pid.to_bytes(4, "little"))

    def note_held(self, marker: int, reading: int) -> None:
        """Write down for which reading a marker records; 0: for none."""
        self._table.write_field(marker, "held", reading.to_bytes(4, "little"))

    def note_until(self, marker: int, until_ns: int) -> None:
        """Write down by when a marker is to be off, CLOCK_MONOTONIC; 0: it stays on."""
        self._table.write_field(marker, "until_ns", until_ns.to_bytes(8, "little"))

    # ---- what was counted of it ----------------------------------------------------------------

    def note_began(self, counted: Sequence[tuple[int, int, int]]) -> None:
        """Write down how far the counters of markers were when a trace or flight recorder began:
        for each the marker, what had passed, and what was lost."""
        pairs = [(marker, _pair(passed, lost)) for marker, passed, lost in counted]
        self._table.write_each("passed_before", pairs)

    def note_before(self, marker: int, hits: int, lost: int) -> None:
        """Write down what was counted of a marker before it was switched on."""
        self._note_pair(marker, "hits_before", hits, lost)

    def note_calls(self, marker: int, calls: int, before: int, *, calling: bool) -> None:
        """Write down how many calls probes in C had, and how many the slots had counted when the
        one was connected that is connected now."""
        self._note_pair(marker, "calls", calls, before)
        self._table.write_field(marker, "calling", bytes([calling]))

    def note_delivered(self, marker: int, records: int) -> None:
        """So many records more were taken out of the rings: written by the reader."""
        before = int(self.entry(marker).delivered)
        delivered = before + records & WORD_MASK
        self._table.write_field(marker, "delivered", delivered.to_bytes(8, "little"))

    def _note_pair(self, marker: int, first: str, value: int, following: int) -> None:
        """Two words, the second behind the first."""
        self._table.write_field(marker, first, _pair(value, following))


def runs(markers: Iterable[int], *, apart: int = 0) -> Iterator[range]:
    """Ids that follow each other, to be read at once; with others between them, as many as `apart`
    at most."""
    start = end = None
    for marker in sorted(set(markers)):
        if end is None or marker > end + apart:
            if start is not None and end is not None:
                yield range(start, end)
            start = marker
        end = marker + 1
    if start is not None and end is not None:
        yield range(start, end)


def question_extent(entry: MarkerEntry) -> Extent:
    """The code of a question, and all behind it that belongs to it."""
    start = int(entry.recorder)
    return Extent(start, max(start, int(entry.question_text) + int(entry.question_size)))


def _pair(first: int, second: int) -> bytes:
    """Two words."""
    return struct.pack("<QQ", first & WORD_MASK, second & WORD_MASK)


def _named(entry: MarkerEntry, name: str, signature: str, marker: int) -> MarkerEntry:
    """The entry of a marker with this id."""
    return MarkerEntry.from_buffer_copy(_named_bytes(bytes(entry), name, signature, marker))


def _named_bytes(entry: bytes, name: str, signature: str, marker: int) -> bytes:
    """The same of packed ones."""
    copy = bytearray(entry)
    _HASH.pack_into(copy, MarkerEntry.name_hash.offset, fnv1a(signature.encode()))
    _ID.pack_into(copy, MarkerEntry.id.offset, marker)
    start = MarkerEntry.name.offset
    copy[start : start + _NAME] = name.encode()[: _NAME - 1].ljust(_NAME, b"\0")
    return bytes(copy)


def _with_counts(entry: MarkerEntry, before: MarkerEntry) -> MarkerEntry:
    """An entry that goes on with what was counted of another one."""
    for field in _COUNTS:
        setattr(entry, field, getattr(before, field))
    return entry


def _how(entry: MarkerEntry) -> bytes:
    """The part of an entry that says how its marker is recorded."""
    whole = bytes(entry)
    taken = whole[MarkerEntry.ops.offset : MarkerEntry.recorder.offset]
    flags = (entry.argc, entry.counted, entry.careful, entry.waits, entry.asks, entry.to_stack)
    taken += bytes(entry.more_ops)
    return bytes(flags) + int(entry.question).to_bytes(8, "little") + taken

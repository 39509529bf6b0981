"""The arena: the memory that the runtime and its controllers share inside the target.

It is a memfd that the target itself makes, at our request, and maps; abi.h says what stands
where. The target's descriptor of it is moved out of the way of the low numbers, and may be closed
by the program without harm: then we read through /proc/PID/mem instead.

What this does not do: find an arena (find.py) or make one (inject.py), decide which probe goes
where (switching.py), or write code of the program (apply.py).
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from operator import add
from typing import NamedTuple

import markerjit.abi as abi
from markerjit.abi import (
    CODE_SIZE,
    CONTROL,
    DATA,
    SCRATCH,
    Control,
    MarkerEntry,
    TrapSite,
)
from markerjit.arena.store import FileStore, MemoryStore
from markerjit.errors import MarkerError, MemoryFault, Refused
from markerjit.model import Mode, RemoteAddress
from markerjit.proc.owner import Owner, from_entry
from markerjit.ring.raw import Store

_MODES = tuple(Mode)
_ENTRIES = 512
"""So many of the table's are read at a time."""
_WORD_MASK = (1 << 64) - 1


class Counted(NamedTuple):
    """A marker's counters over all CPUs: executions of its probe, and those not recorded."""

    hits: int
    lost: int

    def plus(self, hits: int, lost: int = 0) -> Counted:
        """The sum."""
        return Counted(self.hits + hits, self.lost + lost)


class Switched(NamedTuple):
    """What a switch made of a marker's entry.

    mode     how the marker is on now, None when it is off
    before   the entry that it had when it was on before, None when it was off
    slots    those that had this entry before, or have it now
    calling  whether they hold a probe in C, so that they count its calls themselves
    """

    mode: Mode | None
    before: int | None
    slots: tuple[RemoteAddress, ...]
    calling: bool


class Arena:
    """An arena that exists. `base` is where the target has it."""

    def __init__(
        self, pid: int, base: RemoteAddress, store: FileStore | MemoryStore, mapped_size: int
    ) -> None:
        self.pid = pid
        self.base = base
        self.store: Store = store
        self.release = store.release
        self._close = store.close
        self._ids: dict[tuple[str, bytes], int] = {}
        self._with_hash: dict[int, list[int]] = {}
        self._hashed = 0
        head = store.read(CONTROL, ctypes.sizeof(Control))
        self.control, self.geometry = abi.checked_control(head, mapped_size)
        self.entry = abi.Entry.from_buffer_copy(store.read(0, ctypes.sizeof(abi.Entry)))

    def close(self) -> None:
        """Let go of it; it stays in the target for the next controller."""
        self._close()

    def record_probe(self, marker: int) -> RemoteAddress:
        """The probe that records a marker: code of its own, or the one that records any."""
        made = self.marker_entry(marker).recorder
        return RemoteAddress(self.base + (made or self.entry.record))

    def records(self, probe: RemoteAddress, data: RemoteAddress) -> bool:
        """Whether a slot with these words records."""
        if probe == self.base + self.entry.record:
            return True
        marker = self.marker_at(data)
        made = self.marker_entry(marker).recorder if marker is not None else 0
        return bool(made) and probe == self.base + made

    @property
    def count_probe(self) -> RemoteAddress:
        """The probe that only counts."""
        return RemoteAddress(self.base + self.entry.count)

    def entries(self, first: int = 0) -> Iterator[MarkerEntry]:
        """The markers that the runtime has been told of, in the order of their ids."""
        size = ctypes.sizeof(MarkerEntry)
        used = min(self.markers_used, self.geometry.max_markers)
        for start in range(first, used, _ENTRIES):
            some = min(_ENTRIES, used - start)
            piece = self.store.read(self.geometry.marker_offset(start), some * size)
            for at in range(0, len(piece), size):
                yield MarkerEntry.from_buffer_copy(piece, at)

    def entries_of(self, name_hash: int) -> Sequence[int]:
        """The ids of all entries of a marker: it has one for each way in which it was recorded.
        An entry never becomes another marker's."""
        for entry in self.entries(self._hashed):
            self._with_hash.setdefault(int(entry.name_hash), []).append(self._hashed)
            self._hashed += 1
        return self._with_hash.get(name_hash, ())

    def entry_address(self, marker: int) -> RemoteAddress:
        """Where the target has a marker's entry: the data of its slot."""
        return RemoteAddress(self.base + self.geometry.marker_offset(marker))

    def marker_at(self, data: RemoteAddress) -> int | None:
        """The id of the marker whose entry is at this address."""
        offset = data - self.entry_address(0)
        marker, rest = divmod(offset, ctypes.sizeof(MarkerEntry))
        return marker if not rest and 0 <= marker < self.geometry.max_markers else None

    def marker_entry(self, marker: int) -> MarkerEntry:
        """A marker's entry, as it is now."""
        data = self.store.read(self.geometry.marker_offset(marker), ctypes.sizeof(MarkerEntry))
        return MarkerEntry.from_buffer_copy(data)

    def known_marker(self, signature: str, wanted: MarkerEntry) -> int | None:
        """The id of the marker with this signature that is recorded as `wanted` says; None when the
        runtime was not told of it."""
        how = _how(wanted)
        known = self._ids.get((signature, how))
        if known is not None:
            return known
        name_hash = fnv1a(signature.encode())
        for entry in self.entries():
            if entry.name_hash == name_hash and _how(entry) == how:
                return self._ids.setdefault((signature, how), int(entry.id))
        return None

    def find_marker(self, name: str, signature: str, wanted: MarkerEntry) -> int:
        """The same, and the runtime is told of it when it is new: for who holds the target's lock.

        What an entry describes never changes: a thread may be reading it. Raises Refused when the
        table is full.
        """
        known = self.known_marker(signature, wanted)
        if known is not None:
            return known
        marker = self.markers_used
        if marker >= self.geometry.max_markers:
            raise Refused(f"the arena has room for {self.geometry.max_markers} markers")
        entry = MarkerEntry.from_buffer_copy(wanted)
        entry.name_hash, entry.id = fnv1a(signature.encode()), marker
        entry.name = name.encode()[:63]
        self.store.write(self.geometry.marker_offset(marker), bytes(entry))
        self.write_control("markers_used", marker + 1)
        return self._ids.setdefault((signature, _how(wanted)), marker)

    def resize_rings(self, size: int) -> None:
        """Use so many bytes of each ring from now on; what is in them is lost. For who holds the
        lock, while nothing is recorded and nobody reads. Raises Refused when the arena has no room
        for that."""
        if size > self.geometry.ring_stride:
            room = self.geometry.ring_stride >> 20
            raise Refused(
                f"the runtime in process {self.pid} has room for {room} MiB a CPU; restart the "
                "process to have more"
            )
        self.geometry = self.geometry._replace(ring_size=size)
        self.control.ring_size = size
        self.write_control("ring_size", size)
        for cpu in range(self.geometry.cpus):
            self._begin_lap(cpu, size)
        for ring in range(self.geometry.rings):
            place = self.geometry.head_offset(ring)
            end = int.from_bytes(self.store.read(place, 8), "little") + size
            self.store.write(place + abi.RING_MASK, (size - 1).to_bytes(8, "little"))
            self.store.write(place + abi.RING_LIMIT, (end % (1 << 64)).to_bytes(8, "little"))

    def ring_sizes(self) -> list[int]:
        """How many bytes of each ring are used now: another controller may have changed it, and may
        have died over it."""
        sizes = []
        for ring in range(self.geometry.rings):
            place = self.geometry.head_offset(ring) + abi.RING_MASK
            size = int.from_bytes(self.store.read(place, 8), "little") + 1
            fits = abi.PAGE <= size <= self.geometry.ring_stride and size & size - 1 == 0
            sizes.append(size if fits else self.geometry.ring_size)
        return sizes

    def _begin_lap(self, cpu: int, size: int) -> None:
        """Put the head of a shared ring to the begin of a lap, as rings are now. Never back: commit
        words of that position would be there already."""
        offset = self.geometry.head_offset(self.geometry.cpus + cpu)
        laps = -(-int.from_bytes(self.store.read(offset, 8), "little") // size)
        sums = (laps * abi.PAGE % (1 << 64)).to_bytes(8, "little") * (size // abi.PAGE)
        self.store.write(self.geometry.sums_offset(cpu), sums)
        self.store.write(offset, (laps * size % (1 << 64)).to_bytes(8, "little"))

    def is_overwritten(self) -> bool:
        """Whether the rings are a flight recorder's: nobody reads, and the newest is kept."""
        offset = self.geometry.head_offset(0) + abi.RING_LIMIT
        return self.store.read(offset, 8) == abi.NO_LIMIT.to_bytes(8, "little")

    def place_for_code(self, size: int, align: int = 32) -> RemoteAddress | None:
        """Where code of this size may be put, None when all is taken. For who holds the lock."""
        start = -(-max(self.current().code_used, abi.RUNTIME_SIZE) // align) * align
        return RemoteAddress(self.base + start) if start + size <= CODE_SIZE else None

    def place_for_data(self, size: int, align: int = 64) -> RemoteAddress | None:
        """The same for the variables of a probe. They are zeros."""
        start = -(-self.current().data_used // align) * align
        return RemoteAddress(self.base + DATA + start) if start + size <= abi.DATA_SIZE else None

    def put_code(self, address: RemoteAddress, code: bytes) -> None:
        """Write code where there is place for it, look whether it arrived, and take the place. It
        stays for as long as the arena does: a thread may be in it. Raises Refused where the process
        has closed its descriptor of the arena: its memory alone does not take code."""
        offset = address - self.base
        try:
            self.store.write(offset, code)  # over what somebody left who died before taking it
        except MemoryFault:
            raise Refused(
                f"process {self.pid} has closed its descriptor of the runtime's memory, so nothing "
                "can be added to it; restart the process"
            ) from None
        if self.store.read(offset, len(code)) != code:
            raise MarkerError("code for the runtime did not arrive in the target as it was written")
        self.write_control("code_used", offset + len(code))

    def take_data(self, address: RemoteAddress, data: bytes, size: int) -> None:
        """The first bytes of a probe's variables, and the place of all of them."""
        offset = address - self.base
        self.store.write(offset, data)
        self.write_control("data_used", offset - DATA + size)

    def set_recorder(self, marker: int, recorder: RemoteAddress) -> None:
        """From now on this code records the marker where it is switched on."""
        offset = self.geometry.marker_offset(marker) + MarkerEntry.recorder.offset
        self.store.write(offset, (recorder - self.base).to_bytes(4, "little"))

    def note_counts(self, marker: int) -> None:
        """Write down how far a marker's counters are, before it is switched on."""
        counts = self.counts(marker)
        passed, lost = sum(one.passed for one in counts), sum(one.lost for one in counts)
        offset = self.geometry.marker_offset(marker) + MarkerEntry.passed_before.offset
        self.store.write(offset, struct.pack("<QQ", passed & _WORD_MASK, lost & _WORD_MASK))

    def note_delivered(self, marker: int, records: int) -> None:
        """So many records more were taken out of the rings: for who reads them."""
        offset = self.geometry.marker_offset(marker) + MarkerEntry.delivered.offset
        before = int.from_bytes(self.store.read(offset, 8), "little")
        self.store.write(offset, (before + records & _WORD_MASK).to_bytes(8, "little"))

    def note_switched(
        self, marker: int, mode: Mode | None, *, since: int | None = None, held: int = 0
    ) -> None:
        """Write down that a marker was switched, by us: on since `since` (CLOCK_REALTIME, s; now),
        and for which reading it records."""
        offset = self.geometry.marker_offset(marker)
        when, by = (int(time.time()) if since is None else since, os.getpid()) if mode else (0, 0)
        self.store.write(offset + MarkerEntry.since.offset, struct.pack("<QI", when, by))
        number = _MODES.index(mode) + 1 if mode else 0
        self.store.write(offset + MarkerEntry.mode.offset, bytes([number]))
        self.note_held(marker, held if mode else 0)

    def note_by(self, marker: int, pid: int) -> None:
        """Write down that it was another controller that switched a marker on."""
        offset = self.geometry.marker_offset(marker) + MarkerEntry.by.offset
        self.store.write(offset, pid.to_bytes(4, "little"))

    def note_held(self, marker: int, reading: int) -> None:
        """Write down for which reading a marker records; 0: for none."""
        offset = self.geometry.marker_offset(marker) + MarkerEntry.held.offset
        self.store.write(offset, reading.to_bytes(4, "little"))

    def note_before(self, marker: int, counted: Counted) -> None:
        """Write down what was counted of a marker before it was switched on."""
        offset = self.geometry.marker_offset(marker) + MarkerEntry.hits_before.offset
        words = (counted.hits & _WORD_MASK, counted.lost & _WORD_MASK)
        self.store.write(offset, struct.pack("<QQ", *words))

    def note_calls(self, marker: int, calls: int, before: int, *, calling: bool) -> None:
        """Write down how many calls probes in C had, and how many the slots had counted when the
        one was connected that is connected now."""
        offset = self.geometry.marker_offset(marker)
        words = struct.pack("<QQ", calls & _WORD_MASK, before & _WORD_MASK)
        self.store.write(offset + MarkerEntry.calls.offset, words)
        self.store.write(offset + MarkerEntry.calling.offset, bytes([calling]))

    def counted(self, marker: int) -> Counted:
        """A marker's counters, added up."""
        return self.all_counted([marker])[marker]

    def all_counted(self, markers: Iterable[int]) -> dict[int, Counted]:
        """The counters of many markers, each added up. Without the calls of a probe in C that is
        connected: its slots have these."""
        found: dict[int, Counted] = {}
        for run in _runs(markers):
            size = ctypes.sizeof(MarkerEntry)
            table = self.store.read(self.geometry.marker_offset(run.start), len(run) * size)
            entries = [MarkerEntry.from_buffer_copy(table, at * size) for at in range(len(run))]
            hits = [int(entry.delivered + entry.calls) for entry in entries]
            lost = [0] * len(run)
            size = ctypes.sizeof(abi.Count)
            for ring in range(self.geometry.rings):
                offset = self.geometry.count_offset(ring, run.start)
                table = self.store.read(offset, len(run) * size)
                words = memoryview(table).cast("Q").tolist()
                lost = list(map(add, lost, words[1::2]))
                hits = list(map(add, hits, map(add, words[::2], words[1::2])))
            found.update(zip(run, map(Counted, hits, lost), strict=True))
        return found

    def counts(self, marker: int) -> list[abi.Count]:
        """A marker's counters, by ring."""
        size = ctypes.sizeof(abi.Count)
        offsets = (self.geometry.count_offset(ring, marker) for ring in range(self.geometry.rings))
        return [abi.Count.from_buffer_copy(self.store.read(at, size)) for at in offsets]

    def add_traps(self, traps: Sequence[tuple[RemoteAddress, RemoteAddress]]) -> None:
        """Tell the SIGTRAP handler where breakpoints lead. Entries stay: see trap.c.

        Raises Refused when the table is full, and for an address that led elsewhere before.
        """
        for address, body in traps:
            for offset, entry in self._trap_places(address):
                if not entry.address:
                    # The address last: the handler believes an entry once it is there.
                    whole = bytes(TrapSite(address=address, body=body))
                    word = TrapSite.address.size
                    self.store.write(offset + word, whole[word:])
                    self.store.write(offset, whole[:word])
                    break
                if entry.address == address:
                    self._check_body(entry, body)
                    if entry.gone:
                        self.store.write(offset + TrapSite.gone.offset, b"\0")
                    break
            else:
                raise Refused(f"the arena has room for {self.geometry.max_sites // 2} breakpoints")

    def _check_body(self, entry: TrapSite, body: RemoteAddress) -> None:
        if entry.body != body:
            raise Refused(
                f"a breakpoint at {entry.address:#x} led to code that process {self.pid} has "
                "unloaded since, and a child of it may still have that code; switch without "
                "breakpoints, or restart the process"
            )

    def forget_traps(self, addresses: Sequence[RemoteAddress]) -> None:
        """The code there is gone, and a breakpoint in what comes in its place is not ours.

        In this process: the child of a fork shares the table and may still have the code. So the
        entry stays, and says that it holds for others only.
        """
        for address in addresses:
            found = self._trap_at(address)
            if found:
                self.store.write(found[0] + TrapSite.gone.offset, b"\1")
                self.note_planted(address, False)

    def note_planted(self, address: RemoteAddress, planted: bool) -> None:
        """Write down whether a breakpoint of ours stands there: for who holds the lock, and either
        has the journal open or has just seen it."""
        found = self._trap_at(address)
        if found and bool(found[1].planted) is not planted:
            self.store.write(found[0] + TrapSite.planted.offset, bytes([planted]))

    def has_planted(self, address: RemoteAddress, body: RemoteAddress) -> bool:
        """Whether a breakpoint of ours stands there, and leads to this body. While a change is in
        the making the journal knows more."""
        found = self._trap_at(address)
        return bool(found and found[1].body == body and found[1].planted and not found[1].gone)

    def has_told(self, address: RemoteAddress, body: RemoteAddress) -> bool:
        """Whether a breakpoint of ours ever stood there, or was to, and led to this body."""
        found = self._trap_at(address)
        return bool(found and found[1].body == body)

    def _trap_at(self, address: RemoteAddress) -> tuple[int, TrapSite] | None:
        """The entry of an address, and its offset."""
        for offset, entry in self._trap_places(address):
            if entry.address == address:
                return offset, entry
            if not entry.address:
                break
        return None

    def _trap_places(self, address: RemoteAddress) -> Iterator[tuple[int, TrapSite]]:
        """Where an address may stand in the table, in the order in which trap.c looks, and what
        does."""
        mask = self.geometry.max_sites - 1
        at = (address * 0x9E3779B97F4A7C15 % (1 << 64) >> 32) & mask
        for tried in range(self.geometry.max_sites // 2):
            place = at + tried & mask
            offset = self.geometry.sites + place * ctypes.sizeof(TrapSite)
            entry = self.store.read(offset, ctypes.sizeof(TrapSite))
            yield offset, TrapSite.from_buffer_copy(entry)

    @property
    def scratch(self) -> RemoteAddress:
        """Where a borrowed thread's way back is kept."""
        return RemoteAddress(self.base + SCRATCH)

    @property
    def owner(self) -> Owner:
        """Who put the arena here."""
        return from_entry(self.control.owner)

    @property
    def trap_installed(self) -> bool:
        """Whether the runtime's handler has ever been the action for SIGTRAP."""
        return bool(self.current().trap_installed)

    def write_control(self, field: str, value: int) -> None:
        """Set a number of the control block."""
        place = getattr(Control, field)
        self.store.write(CONTROL + place.offset, value.to_bytes(place.size, "little"))

    def current(self) -> Control:
        """The control block as it is now; `control` is as it was when we came."""
        return Control.from_buffer_copy(self.store.read(CONTROL, ctypes.sizeof(Control)))

    @property
    def markers_used(self) -> int:
        """How many markers the runtime was told of; more may come at any time."""
        return int(self.current().markers_used)


def fnv1a(data: bytes) -> int:
    """The 64-bit FNV-1a hash. Never 0, which means a free entry."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return value or 1


def _runs(markers: Iterable[int]) -> Iterator[range]:
    """Ids that follow each other, to be read at once."""
    start = end = None
    for marker in sorted(set(markers)):
        if marker != end:
            if start is not None and end is not None:
                yield range(start, end)
            start = marker
        end = marker + 1
    if start is not None and end is not None:
        yield range(start, end)


def _how(entry: MarkerEntry) -> bytes:
    """The part of an entry that says how its marker is recorded."""
    whole = bytes(entry)
    taken = whole[MarkerEntry.ops.offset : MarkerEntry.recorder.offset]
    return bytes([entry.argc, entry.counted]) + taken

"""An arena with the real runtime in the test's own process, and slots to call its probes through.

It is laid out as abi.h says, by the test and not by the code under test (patch/inject.py), and
nothing is patched: a "marker" is a slot, and hitting it is a call of the slot's probe.

There are several ways to record, which `OwnArena.way` chooses: ASSEMBLED, code made for the marker;
RESTARTABLE, mj_record in restartable sequences; SHARED, mj_record in a process without those. They
are reached by a preserving call, but for OF_C, which is as ASSEMBLED, reached by an ordinary C call
as from objects of older versions. Markers with texts have code of their own only where those are
simple (takes_a_recorder).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import markerjit.abi as abi
from markerjit.abi import ALIVE, CONTROL, Control, Geometry, Sizes, lay_out
from markerjit.arena.arena import Arena
from markerjit.arena.counters import Counted
from markerjit.arena.facts import find_tid_offset
from markerjit.arena.hashes import image_id
from markerjit.arena.store import MemoryStore
from markerjit.memory import ProcessMemory
from markerjit.model import CType, Event, RemoteAddress, Signature, TypeClass
from markerjit.probes.record import Recording, recording, takes_a_recorder
from markerjit.probes.recorder import LARGEST, Setting, Shape, make_recorder
from markerjit.remote.calls import Thread
from markerjit.remote.native import package_file
from markerjit.ring.batch import Packet
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.decode import columns_of
from markerjit.ring.drain import RingDrain
from markerjit.ring.reader import SharedRing
from markerjit.ring.to_events import events
from markerjit.ring.types import Options, RecordType, Time
from markerjit.ring.walk import Walked, least_words, walk, walk_packet
from tests.support.programs import ROOT

MADV_WIPEONFORK = 18
MAP_PRIVATE_FIXED_ANONYMOUS = 0x32
SYS_ARCH_PRCTL, ARCH_GET_FS = 158, 0x1003
CPUS = max(os.sched_getaffinity(0)) + 1

AS_USUAL = Options()
ASSEMBLED, RESTARTABLE, SHARED, OF_C = WAYS = ("assembled", "restartable", "shared", "of C")

INT = CType(TypeClass.SIGNED, 4)
LONG = CType(TypeClass.SIGNED, 8)
DOUBLE = CType(TypeClass.FLOAT, 8)
POINTER = CType(TypeClass.POINTER, 8)
CHARS = CType(TypeClass.CHARS, 8)


def geometry_of(
    *, cpus: int = CPUS, ring_size: int = 1 << 16, max_markers: int = 8, max_patches: int = 4,
    max_edits: int = 4, ring_stride: int = 0, aggregate_pages: int = 64,
) -> Geometry:  # fmt: skip
    """Of a small arena."""
    stride = ring_stride or ring_size
    sizes = Sizes(cpus, ring_size, max_markers, max_patches, max_edits, stride)
    return lay_out(sizes._replace(aggregate_pages=aggregate_pages))


class OwnMemory:
    """One mapping of this process, without the way through /proc."""

    def __init__(self, mapping: mmap.mmap) -> None:
        self._mapping = mapping
        self._start = address_of(mapping)

    def read(self, address: RemoteAddress, size: int) -> bytes:
        data = self._mapping[address - self._start : address - self._start + size]
        assert len(data) == size
        return data

    def write(self, address: RemoteAddress, data: bytes) -> None:
        self._mapping[address - self._start : address - self._start + len(data)] = data


CALLS = ROOT / "tests" / "unit" / "recorder" / "calls.c"
_Simple = ctypes._SimpleCData  # type: ignore[type-arg]


def load_calls(folder: Path) -> ctypes.CDLL:
    """calls.c, compiled into a folder."""
    options = ["-O1", "-mno-red-zone", "-shared", "-fPIC", f"-I{ROOT}/native/include"]
    subprocess.run(["gcc", *options, "-o", folder / "calls.so", CALLS], check=True)
    return ctypes.CDLL(str(folder / "calls.so"))


@cache
def calls() -> ctypes.CDLL:
    """The calls.c by which slots are hit."""
    with tempfile.TemporaryDirectory() as folder:
        return load_calls(Path(folder))


class Slot(ctypes.Structure):
    """struct mj_slot of an entry. `preserving` is in a reserved word: how the probe is called."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("probe", "data", "entered", "left", "adapter", "preserving", "token", "stash")
    ]

    def hit(self, *args: object) -> None:
        """Call the probe as a marker's body does. Arguments are ctypes values."""
        if self.preserving:
            self._call_preserving(args)
        else:
            ctypes.CFUNCTYPE(None)(self.probe)(ctypes.byref(self), *args)

    def _call_preserving(self, args: Sequence[object]) -> None:
        words = [word_of(argument) for argument in args]
        floats = sum(
            isinstance(argument, ctypes.c_double) << at for at, argument in enumerate(args)
        )
        block = (ctypes.c_uint64 * 12)(*words)
        shape = ctypes.c_uint64(len(words) | floats << 8)
        changed = calls().call_block(ctypes.byref(self), shape, block)
        assert not changed, "the probe changed a register or the stack of its caller"


def word_of(value: object) -> int:
    """A ctypes value as the word of 64 bits that a body makes of it."""
    assert isinstance(value, _Simple)
    signed = isinstance(value, (ctypes.c_int, ctypes.c_int64))
    return int.from_bytes(
        bytes(value).ljust(8, b"\xff" if signed and value.value < 0 else b"\0"), "little"
    )


class OwnArena:
    """`store`, `geometry` and `arena` as a controller has them; `marker()` makes a marker.

    `control` are numbers of the control block that are to be others.
    """

    def __init__(
        self, geometry: Geometry | None = None, *, way: str = RESTARTABLE, **control: int
    ) -> None:
        self.way = way
        self.geometry = geometry = geometry or geometry_of()
        access = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        memory = mmap.mmap(-1, geometry.size, flags=mmap.MAP_SHARED, prot=access)
        # Never unmapped, not at the end either: whenever the kernel interrupts a thread it looks at
        # the last sequence that the thread was in.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
        self.base = RemoteAddress(address_of(memory))
        map_private(self.base, geometry.private_size)
        self.store = MemoryStore(OwnMemory(memory), self.base)
        self.code = Path(package_file("runtime.bin")).read_bytes()
        self.store.write(0, self.code)
        entry = abi.Entry.from_buffer_copy(self.code)
        numbers = {
            "magic": abi.MAGIC,
            "version": abi.VERSION,
            "cpu_flags": cpu_flags(),
            "runtime_id": image_id(self.code),
            "arena_size": geometry.size,
            "tid_offset": own_tid_offset(),
            "rseq_offset": 0 if way == SHARED else own_rseq_offset(),
            "pid": os.getpid(),
            "clock": own_clock(),
            "code_used": abi.RUNTIME_SIZE,
            "control_size": ctypes.sizeof(Control),
            "cpus": geometry.cpus,
            "ring_size": geometry.ring_size,
            **control,
        }
        block = Control(**numbers, parts=geometry.table())
        block.sequences = type(block.sequences)(*self._sequences(entry.sequences))
        block.cell_sequences = type(block.cell_sequences)(*self._sequences(entry.cell_sequences))
        self.store.write(CONTROL, bytes(block))
        for ring in range(geometry.rings):
            head = abi.Head(
                data=self.base + geometry.ring_offset(ring),
                mask=geometry.ring_size - 1,
                limit=geometry.ring_size,
            )
            self.store.write(geometry.head_offset(ring), bytes(head))
        self.revive()
        self.arena = Arena(os.getpid(), self.base, self.store, geometry.size)
        self.types: dict[int, RecordType] = {}
        self.own = [
            RingDrain(
                self.store, geometry.head_offset(cpu), geometry.ring_offset(cpu),
                geometry.ring_size, cpu, cpu,
            )
            for cpu in range(geometry.cpus)
        ]  # fmt: skip
        self.shared = [
            SharedRing(self.store, geometry, cpu, geometry.ring_size)
            for cpu in range(geometry.cpus)
        ]

    def _sequences(self, entries: Iterable[abi.SequenceEntry]) -> list[abi.Restartable]:
        return [
            abi.Restartable(
                start=self.base + entry.start,
                length=entry.end - entry.start,
                abort=self.base + entry.abort,
            )
            for entry in entries
        ]

    def revive(self) -> None:
        """What happens in this process is recorded: for a child, where it is not."""
        self.store.write(ALIVE, self.geometry.cpus.to_bytes(8, "little"))

    def marker(
        self,
        format_: str,
        *args: CType,
        options: Options = AS_USUAL,
        name: str = "m",
        count: bool = False,
    ) -> Slot:
        """A slot whose probe records (or only counts) a marker of this format and these types."""
        signature = Signature(name, format_, args)
        made = recording(signature, options)
        marker = self.arena.markers.find(name, signature.text, made.entry())
        self.types[marker] = RecordType(
            marker, name, format_, made.type.fields, time=options.time, tid=options.thread_id
        )
        if not count and self.way in (ASSEMBLED, OF_C) and takes_a_recorder(made, self.arena.facts):
            self._assemble(marker, made)
        return self.slot(marker, count=count)

    def slot(self, marker: int, *, count: bool = False) -> Slot:
        """A slot that holds what a controller would put there."""
        preserving = self.way != OF_C
        probe = self.arena.record_probe(marker, preserving=preserving)
        if count:
            probe = self.arena.count_probe(preserving=preserving)
        data = self.arena.markers.address(marker)
        return Slot(probe=probe, data=data, preserving=preserving)

    def _assemble(self, marker: int, made: Recording) -> None:
        """Make the code that records this marker, where there is none."""
        preserving = self.way != OF_C
        entry = self.arena.markers.entry(marker)
        if entry.recorder if preserving else entry.recorder_of_c:
            return
        functions = (
            "record_event", "pass_", "turn", "lose", "gate_record", "gate_pass", "gate_lose"
        )  # fmt: skip
        places = {name: self.base + getattr(self.arena.entry, name) for name in functions}
        setting = Setting(self.base, self.arena.facts, self.geometry, **places)
        place = self.arena.markers.address(marker)
        shape = Shape(
            marker, place, made.ops, made.type.size,
            timed=bool(made.time), tid=bool(made.tid), counted=bool(made.counted),
            limits=made.limits,
            preserving=preserving, waits=bool(made.waits), to_stack=made.to_stack,
        )  # fmt: skip
        address = self.arena.code.place(LARGEST)
        assert address is not None
        recorder = make_recorder(shape, setting, address)
        assert len(recorder.code) <= LARGEST
        self.arena.code.put(address, recorder.code)
        place = RemoteAddress(recorder.entry)
        self.arena.markers.set_recorder(marker, place, preserving=preserving)

    def walks(self) -> list[Walked]:
        """All that is there now, by ring: each CPU's own first."""
        own = [next(ring.take(), (0, b"")) for ring in self.own]
        return self._walks(own, [next(ring.take(), (0, b"")) for ring in self.shared])

    def _walks(
        self, own: Sequence[tuple[int, bytes]], shared: Sequence[tuple[int, bytes]]
    ) -> list[Walked]:
        least = least_words(self.types)
        walks = [
            walk(data, start, least, cpu=ring.cpu, ring=ring.ring)
            for ring, (start, data) in zip(self.own, own, strict=True)
            if data
        ]
        walks += [
            walk_packet(Packet(ring.cpu, ring.ring, data), least)
            for ring, (_, data) in zip(self.shared, shared, strict=True)
            if data
        ]
        assert not any(walked.damaged for walked in walks)
        return walks

    def picture(self) -> list[Event]:
        """The same, of rings that are overwritten."""
        pictures = ([own.picture() for own in self.own], [ring.picture() for ring in self.shared])
        return self.events_of(self._walks(*pictures))

    def start(self, *, overwrite: bool = False) -> None:
        """Forget what is in the rings."""
        for ring in (*self.own, *self.shared):
            ring.start(overwrite=overwrite)

    def records(self) -> list[Event]:
        """All that is there now, in order of time. Times are as recorded."""
        return self.events_of(self.walks())

    def events_of(self, walks: list[Walked]) -> list[Event]:
        """The events of these walks in order of time."""
        decoded = columns_of(walks, self.types)
        assert not decoded.bad
        return events(decoded.columns, Calibration(Time.TSC, 0, 0, NS, 0))

    @property
    def damaged(self) -> int:
        """How often a ring made no sense."""
        return sum(ring.damaged for ring in (*self.own, *self.shared))

    def counted(self, name: str = "m") -> Counted:
        """Of a marker: executions, and events that were lost."""
        (marker,) = (kind.id for kind in self.types.values() if kind.marker == name)
        return self.arena.counters.of(marker)


def map_private(base: int, own: int) -> None:
    """The page that tells the child of a fork that it is one, and what is private beside it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    place, size = ctypes.c_void_p(base + ALIVE), ctypes.c_size_t(own)
    access = mmap.PROT_READ | mmap.PROT_WRITE
    mapped = libc.mmap(place, size, access, MAP_PRIVATE_FIXED_ANONYMOUS, -1, ctypes.c_long(0))
    assert mapped == base + ALIVE
    assert not libc.madvise(place, size, MADV_WIPEONFORK)


def address_of(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return value


def cpu_flags() -> int:
    words = set(Path("/proc/cpuinfo").read_text().split())
    flags = {
        "rdpid": abi.CPU_RDPID,
        "rtm": abi.CPU_RTM,
        "ospke": abi.CPU_PKU,
        "xsave": abi.CPU_XSAVE,
    }
    sources = Path("/sys/devices/system/clocksource/clocksource0/available_clocksource")
    tsc = abi.CPU_TSC * ("tsc" in sources.read_text().split())
    return sum((bit for flag, bit in flags.items() if flag in words), tsc)


def own_fs_base() -> int:
    base = ctypes.c_uint64()
    ctypes.CDLL(None).syscall(SYS_ARCH_PRCTL, ARCH_GET_FS, ctypes.byref(base))
    return base.value


def own_tid_offset() -> int:
    thread = Thread(threading.get_native_id(), RemoteAddress(own_fs_base()), RemoteAddress(0))
    with ProcessMemory(os.getpid()) as memory:
        return find_tid_offset(memory, os.getpid(), [thread])


def own_rseq_offset() -> int:
    """As the C library says it (glibc 2.35 and later)."""
    return ctypes.c_ssize_t.in_dll(ctypes.CDLL(None), "__rseq_offset").value


def own_clock() -> int:
    """The vDSO's clock_gettime."""
    function = ctypes.CDLL("linux-vdso.so.1").__vdso_clock_gettime
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def marker_id(arena: OwnArena, slot: Slot) -> int:
    """The marker whose slot this is."""
    marker = arena.arena.markers.at(RemoteAddress(slot.data))
    assert marker is not None
    return marker


def numbers(events: Sequence[Event], field: str = "n") -> list[int]:
    """One field of some events."""
    return [int(event.fields[field]) for event in events]  # type: ignore[arg-type]

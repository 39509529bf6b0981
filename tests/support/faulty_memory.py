"""Memory for transactions that is made up, and fails where a test says so.

transaction.c, runs.c and write.c are compiled with pread and pwrite renamed (stop/faults.c), so
that what they do, and in which order, is up to Python; and so is the synchronisation of the cores.
"""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Sequence

from markerjit.arena.pack import as_native, pack
from markerjit.model import Edit, RemoteAddress
from markerjit.remote import native
from tests.support.programs import ROOT

STOP = ROOT / "native" / "src" / "stop"
FAULTS = ROOT / "tests" / "unit" / "stop" / "faults.c"
START = 0x1000
READ, WRITE, SYNC = 0, 1, 2
FAILED = -1

Access = ctypes.CFUNCTYPE(
    ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long,
    ctypes.POINTER(ctypes.c_int),
)  # fmt: skip

Sync = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
Step = tuple[int, int]  # READ or WRITE, and the address; or SYNC and 0


class FaultyMemory:
    """Memory behind pread and pwrite.

    steps   every access and synchronisation, in order
    sizes   of every access
    faults  by number of the step: an errno; 0 is an access of no bytes; less is a short one
    sneak   by number of the step: a byte that somebody else puts there just before
    hole    addresses that are not mapped
    states  the content after each write
    file    what the mapped file has; None: it cannot be read
    slots   how many bytes from the start on are slots of an arena
    """

    def __init__(self, library: ctypes.CDLL, content: bytes) -> None:
        self.content = bytearray(content)
        self.steps: list[Step] = []
        self.sizes: list[int] = []
        self.faults: dict[int, int] = {}
        self.sneak: dict[int, tuple[int, int]] = {}
        self.hole = range(0)
        self.states: list[bytes] = []
        self.file: bytes | None = None
        self.slots = 0
        self._library = library
        self._access = Access(self._reach)
        self._sync = Sync(self._synchronise)

    def _reach(self, writing: int, place: int, size: int, address: int, error: object) -> int:
        number = self._step((writing, address), size)
        fault = self.faults.get(number)
        if fault is None and address in self.hole:
            fault = errno.EIO
        if fault is not None and fault >= 0:
            error[0] = fault  # type: ignore[index]
            return FAILED if fault else 0
        size = size if fault is None else -fault
        if address < self.hole.start:
            size = min(size, self.hole.start - address)
        at = address - START
        if writing:
            self.content[at : at + size] = ctypes.string_at(place, size)
            self.states.append(bytes(self.content))
        else:
            ctypes.memmove(place, bytes(self.content[at : at + size]), size)
        return size

    def _synchronise(self, _: object) -> int:
        return -self.faults.get(self._step((SYNC, 0), 0), 0)

    def _step(self, step: Step, size: int) -> int:
        number = len(self.steps)
        self.steps.append(step)
        self.sizes.append(size)
        if number in self.sneak:
            at, byte = self.sneak[number]
            self.content[at - START] = byte
        return number

    def apply(self, edits: Sequence[Edit], *, nobody_runs: bool = False) -> int:
        """The status; the report is in `report`. While nobody runs, steps of code are written as
        runs."""
        return self._transact(edits, 0, 0, nobody_runs=nobody_runs)

    def apply_runs(self, edits: Sequence[Edit], first: int, count: int) -> int:
        """The same, with these edits as runs; 0: none."""
        return self._transact(edits, first, count, nobody_runs=False)

    def steps_of_runs(self, edits: Sequence[Edit]) -> list[int]:
        """How many edits there are in each step that is written as runs while nobody runs."""
        sizes = (ctypes.c_uint32 * len(edits))()
        count = self._library.mj_test_steps_of_runs(as_native(pack(edits)), len(edits), sizes)
        return list(sizes[:count])

    def _transact(self, edits: Sequence[Edit], first: int, count: int, *, nobody_runs: bool) -> int:
        for name, function in (("mj_test_access", self._access), ("mj_test_sync", self._sync)):
            place = ctypes.c_void_p.in_dll(self._library, name)
            place.value = ctypes.cast(function, ctypes.c_void_p).value
        packed = pack(edits)
        ctypes.c_char_p.in_dll(self._library, "mj_test_file").value = self.file
        ctypes.c_uint64.in_dll(self._library, "mj_test_slots_size").value = self.slots
        self.report = native.Report()
        return int(
            self._library.mj_test_transact(
                as_native(packed), len(edits), first, count, int(nobody_runs),
                ctypes.byref(self.report),
            )
        )  # fmt: skip

    def of(self, kind: int) -> list[int]:
        """The addresses of all steps of a kind."""
        return [address for what, address in self.steps if what == kind]


def edit(at: int, old: bytes, new: bytes, step: int = 0, *, code: bool = False) -> Edit:
    return Edit(RemoteAddress(at), old, new, "", code, step)


def close_together(number: int, gap: int, *, code: bool = True) -> list[Edit]:
    return [edit(START + n * gap, b"\0", b"\x01", code=code) for n in range(number)]


def zeros_and(edits: Sequence[Edit], content: bytes) -> bytes:
    changed = bytearray(content)
    for edit in edits:
        changed[edit.address - START] = 1
    return bytes(changed)

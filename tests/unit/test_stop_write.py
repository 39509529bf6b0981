"""mj_write: all or nothing, whatever fails. Its memory is made up, and fails where a test wants.

write.c is compiled with pread and pwrite renamed (stop/faults.c), so that what they do, and in
which order, is up to Python.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from own_arena import address_of

from markerjit.errors import MarkerError, NotPermitted, Refused, TargetGone
from markerjit.quiesce import native
from markerjit.quiesce.outcome import explain_failure

ROOT = Path(__file__).resolve().parent.parent.parent
STOP = ROOT / "native" / "src" / "stop"
FAULTS = Path(__file__).parent / "stop" / "faults.c"
START = 0x1000
READ, WRITE = 0, 1
FAILED = -1

Access = ctypes.CFUNCTYPE(
    ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long,
    ctypes.POINTER(ctypes.c_int),
)  # fmt: skip
Step = tuple[int, int]  # READ or WRITE, and the address


class FaultyMemory:
    """Memory behind pread and pwrite.

    steps   every access, in order
    faults  by number of the access: an errno; 0 is an access of no bytes; less is a short one
    sneak   by number of the access: a byte that somebody else puts there just before
    """

    def __init__(self, library: ctypes.CDLL, content: bytes) -> None:
        self.content = bytearray(content)
        self.steps: list[Step] = []
        self.faults: dict[int, int] = {}
        self.sneak: dict[int, tuple[int, int]] = {}
        self._library = library
        self._access = Access(self._reach)
        ctypes.c_void_p.in_dll(library, "mj_test_access").value = ctypes.cast(
            self._access, ctypes.c_void_p
        ).value

    def _reach(self, writing: int, place: int, size: int, address: int, error: object) -> int:
        number = len(self.steps)
        self.steps.append((writing, address))
        if number in self.sneak:
            at, byte = self.sneak[number]
            self.content[at - START] = byte
        fault = self.faults.get(number)
        if fault is not None and fault >= 0:
            error[0] = fault  # type: ignore[index]
            return FAILED if fault else 0
        size = size if fault is None else -fault
        at = address - START
        if writing:
            self.content[at : at + size] = ctypes.string_at(place, size)
        else:
            ctypes.memmove(place, bytes(self.content[at : at + size]), size)
        return size

    def write(self, edits: Sequence[tuple[int, bytes, bytes]]) -> int:
        """The status; the report is in `report`."""
        prepared = (native.NativeEdit * len(edits))()
        for edit, (address, old, new) in zip(prepared, edits, strict=True):
            edit.address, edit.size = address, len(new)
            edit.old_bytes[: len(old)] = old
            edit.new_bytes[: len(new)] = new
        self.report = native.Report()
        return int(self._library.mj_write(0, prepared, len(edits), ctypes.byref(self.report)))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("faults") / "faults.so"
    sources = [STOP / "write.c", STOP / "threads.c", FAULTS]
    renamed = ["-Dpread=test_pread", "-Dpwrite=test_pwrite"]
    subprocess.run(
        ["gcc", "-O1", "-shared", "-fPIC", *renamed, f"-I{STOP}", "-o", path, *sources], check=True
    )
    return ctypes.CDLL(str(path))


BEFORE = bytes(range(64))
EDITS = [
    (START + 1, b"\1", b"\xa1"),
    (START + 16, BEFORE[16:24], b"new word"),
    (START + 3, b"\3", b"\xa3"),
    (START + 32, BEFORE[32:48], b"sixteen bytes of"),
]
COUNT = len(EDITS)
AFTER = bytearray(BEFORE)
for _address, _old, _new in EDITS:
    AFTER[_address - START : _address - START + len(_new)] = _new
PLACES = [address for address, _, _ in EDITS]


@pytest.fixture
def memory(library: ctypes.CDLL) -> FaultyMemory:
    return FaultyMemory(library, BEFORE)


# ---- in order ------------------------------------------------------------------------------------


def test_all_are_compared_then_all_written_then_all_read_back(memory: FaultyMemory) -> None:
    assert memory.write(EDITS) == native.OK

    assert memory.content == AFTER
    assert memory.steps == [(phase, at) for phase in (READ, WRITE, READ) for at in PLACES]


def test_no_edits_are_nothing_to_do(memory: FaultyMemory) -> None:
    assert memory.write([]) == native.OK
    assert memory.steps == []


@pytest.mark.parametrize("wrong", range(COUNT))
def test_one_unexpected_byte_and_nothing_is_written(memory: FaultyMemory, wrong: int) -> None:
    at = PLACES[wrong] - START + len(EDITS[wrong][1]) - 1
    memory.content[at] ^= 0x80
    seen = bytes(memory.content)

    assert memory.write(EDITS) == native.UNEXPECTED

    assert memory.content == seen
    assert memory.steps == [(READ, at) for at in PLACES[: wrong + 1]]
    assert memory.report.index == wrong
    assert memory.report.found[len(EDITS[wrong][1]) - 1] == seen[at]


# ---- when an access fails ------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(COUNT))
def test_memory_that_cannot_be_read_is_not_written(memory: FaultyMemory, number: int) -> None:
    memory.faults[number] = errno.EIO

    assert memory.write(EDITS) == native.ERRNO

    assert memory.content == BEFORE
    assert (memory.report.index, memory.report.error) == (number, errno.EIO)


@pytest.mark.parametrize("number", range(COUNT))
def test_a_write_that_fails_takes_back_those_before_it_in_reverse_order(
    memory: FaultyMemory, number: int
) -> None:
    memory.faults[COUNT + number] = errno.EIO

    assert memory.write(EDITS) == native.ERRNO

    assert memory.content == BEFORE
    assert (memory.report.index, memory.report.error) == (number, errno.EIO)
    assert memory.steps[COUNT + number + 1 :] == [(WRITE, at) for at in PLACES[:number][::-1]]


@pytest.mark.parametrize("number", range(COUNT))
def test_a_byte_that_reads_back_otherwise_takes_everything_back(
    memory: FaultyMemory, number: int
) -> None:
    memory.sneak[2 * COUNT] = (PLACES[number], 0x55)

    assert memory.write(EDITS) == native.NOT_VERIFIED

    assert memory.content == BEFORE
    assert (memory.report.index, memory.report.found[0]) == (number, 0x55)
    assert memory.steps[-COUNT:] == [(WRITE, at) for at in PLACES[::-1]]


@pytest.mark.parametrize("number", range(COUNT))
def test_memory_that_cannot_be_read_back_takes_everything_back(
    memory: FaultyMemory, number: int
) -> None:
    memory.faults[2 * COUNT + number] = errno.EIO

    assert memory.write(EDITS) == native.ERRNO
    assert memory.content == BEFORE


@pytest.mark.parametrize(("failing", "undone"), [(n, m) for n in range(1, COUNT) for m in range(n)])
def test_what_cannot_be_taken_back_is_told_and_the_rest_is_taken_back(
    memory: FaultyMemory, failing: int, undone: int
) -> None:
    memory.faults[COUNT + failing] = errno.EIO
    memory.faults[COUNT + failing + 1 + undone] = errno.EIO
    stays = failing - 1 - undone

    assert memory.write(EDITS) == native.NOT_UNDONE

    assert memory.report.index == stays
    expected = bytearray(BEFORE)
    address, _, new = EDITS[stays]
    expected[address - START : address - START + len(new)] = new
    assert memory.content == expected


@pytest.mark.parametrize("number", range(3 * COUNT))
@pytest.mark.parametrize("fault", [errno.ESRCH, 0])
def test_memory_that_is_gone_needs_nothing_taken_back(
    memory: FaultyMemory, number: int, fault: int
) -> None:
    memory.faults[number] = fault

    assert memory.write(EDITS) == native.GONE
    assert len(memory.steps) == number + 1


@pytest.mark.parametrize("written", [1, 15])
def test_a_write_that_ends_half_way_is_taken_back_too(memory: FaultyMemory, written: int) -> None:
    """The kernel stops at a page that it cannot reach: nobody is gone then."""
    memory.faults[COUNT + 3] = -written

    assert memory.write(EDITS) not in (native.OK, native.GONE)
    assert memory.content == BEFORE


def test_edits_of_one_place_are_taken_back_in_the_right_order(memory: FaultyMemory) -> None:
    """The second expects what was there before the first: it can never be verified."""
    edits = [(START, b"\0", b"\1"), (START, b"\0", b"\2")]

    assert memory.write(edits) == native.NOT_VERIFIED
    assert memory.content == BEFORE


# ---- our own process -----------------------------------------------------------------------------


@pytest.fixture
def own_page() -> mmap.mmap:
    return mmap.mmap(-1, mmap.PAGESIZE)


def write_own(edits: Sequence[tuple[int, bytes, bytes]]) -> int:
    prepared = (native.NativeEdit * len(edits))()
    for edit, (address, old, new) in zip(prepared, edits, strict=True):
        edit.address, edit.size = address, len(new)
        edit.old_bytes[: len(old)] = old
        edit.new_bytes[: len(new)] = new
    descriptor = os.open("/proc/self/mem", os.O_RDWR)
    try:
        report = native.Report()
        return int(native.library().mj_write_own(descriptor, prepared, len(edits), report))
    finally:
        os.close(descriptor)


def test_words_and_bytes_of_our_own_process_are_written(build: Path, own_page: mmap.mmap) -> None:
    start = address_of(own_page)

    assert write_own([(start, bytes(8), b"one word"), (start + 13, b"\0", b"!")]) == native.OK
    assert own_page[:14] == b"one word\0\0\0\0\0!"


def test_one_unexpected_byte_of_our_own_and_nothing_is_written(
    build: Path, own_page: mmap.mmap
) -> None:
    start = address_of(own_page)

    assert write_own([(start, bytes(8), b"one word"), (start + 8, b"\1", b"!")]) == (
        native.UNEXPECTED
    )
    assert own_page[:16] == bytes(16)


def address_of_code() -> int:
    """A page of zeros, r-x, private and anonymous. Python's own mmap gives no such address."""
    function = ctypes.CDLL(None).mmap
    function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_void_p, *[ctypes.c_size_t] * 5]
    return int(function(None, mmap.PAGESIZE, 5, 0x22, (1 << 64) - 1, 0))


def test_code_of_our_own_is_written_although_it_is_not_writable(build: Path) -> None:
    address = address_of_code()

    assert write_own([(address + 3, b"\0", b"\xc3")]) == native.OK
    assert ctypes.string_at(address, 4) == b"\0\0\0\xc3"


# ---- what is said about it -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "facts", "kind", "said"),
    [
        (native.GONE, {}, TargetGone, "process 7 ended"),
        (native.BUSY, {"tid": 9}, Refused, "thread 9 of process 7 did not stop in time"),
        (native.IN_SPAN, {"tid": 9}, Refused, "thread 9 stands inside a site"),
        (native.NO_THREAD, {}, Refused, "no thread of process 7 can be borrowed"),
        (native.NOT_64_BIT, {}, MarkerError, "32-bit"),
        (native.NOT_VERIFIED, {"index": 3}, MarkerError, "edit 3 .*was rolled back"),
        (native.NOT_UNDONE, {"index": 3}, MarkerError, "COULD NOT be rolled back"),
        (native.ERRNO, {"error": errno.EPERM}, NotPermitted, "process 7"),
        (native.ERRNO, {"error": errno.EACCES}, NotPermitted, "process 7"),
        (native.ERRNO, {"error": errno.EIO}, MarkerError, "Input/output error"),
    ],
)
def test_each_failure_is_said_in_one_sentence(
    status: int, facts: dict[str, int], kind: type[MarkerError], said: str
) -> None:
    error = explain_failure(7, status, native.Report(**facts))

    assert type(error) is kind or (kind is MarkerError and isinstance(error, kind))
    with pytest.raises(kind, match=said):
        raise error
    assert "\n" not in str(error)
    assert getattr(error, "try_again", False) == (kind is Refused)

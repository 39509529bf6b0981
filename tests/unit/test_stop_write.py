"""A transaction: all or nothing, whatever fails. Its memory is made up, and fails where wanted.

transaction.c, runs.c and write.c are compiled with pread and pwrite renamed (stop/faults.c), so
that what they do, and in which order, is up to Python; and so is the synchronisation of the cores.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from markerjit.errors import MarkerError, NotPermitted, Refused, TargetGone
from markerjit.model import Change, Edit, RemoteAddress
from markerjit.patch.protocol import Context, breakpoint
from markerjit.quiesce.strategy import STOP as STOPPING
from markerjit.remote import native, outcome
from markerjit.remote.outcome import explain_failure
from markerjit.x86.templates import INT3
from tests.support.faulty_memory import (
    READ,
    START,
    SYNC,
    WRITE,
    FaultyMemory,
    Step,
    close_together,
    edit,
    zeros_and,
)
from tests.support.own_arena import address_of
from tests.support.own_writing import Own
from tests.support.programs import ROOT

BEFORE = bytes(range(64))
TOGETHER = [
    edit(START + 1, b"\1", b"\xa1"),
    edit(START + 16, BEFORE[16:24], b"new word"),
    edit(START + 3, b"\3", b"\xa3"),
    edit(START + 32, BEFORE[32:48], b"sixteen bytes of"),
]
IN_STEPS = [one._replace(step=step) for step, one in enumerate(TOGETHER)]
COUNT = len(TOGETHER)
AFTER = bytearray(BEFORE)
for _one in TOGETHER:
    AFTER[_one.address - START : _one.address - START + len(_one.new)] = _one.new
PLACES = [one.address for one in TOGETHER]


@pytest.fixture
def memory(faulty_library: ctypes.CDLL) -> FaultyMemory:
    return FaultyMemory(faulty_library, BEFORE)


@pytest.fixture(params=["together", "in steps", "with code"])
def edits(request: pytest.FixtureRequest) -> list[Edit]:
    if request.param == "with code":
        return [one._replace(code=True) for one in IN_STEPS]
    return TOGETHER if request.param == "together" else IN_STEPS


# ---- in order ------------------------------------------------------------------------------------


def test_all_are_compared_then_all_written_then_all_read_back(memory: FaultyMemory) -> None:
    assert memory.apply(TOGETHER) == native.OK

    assert memory.content == AFTER
    assert memory.steps == [(phase, at) for phase in (READ, WRITE, READ) for at in PLACES]
    assert memory.report.written == COUNT


def test_all_are_compared_and_then_each_step_is_written_and_read_back(memory: FaultyMemory) -> None:
    assert memory.apply(IN_STEPS) == native.OK

    assert memory.content == AFTER
    expected = [(READ, at) for at in PLACES]
    for at in PLACES:
        expected += [(WRITE, at), (READ, at)]
    assert memory.steps == expected


def test_after_a_step_with_code_and_after_no_other_cores_are_synchronised(
    memory: FaultyMemory,
) -> None:
    edits = [one._replace(code=one.step in (1, 3)) for one in IN_STEPS]

    assert memory.apply(edits) == native.OK

    after = [memory.steps[i - 1] for i, step in enumerate(memory.steps) if step[0] == SYNC]
    assert after == [(READ, PLACES[1]), (READ, PLACES[3])]


def test_no_edits_are_nothing_to_do(memory: FaultyMemory) -> None:
    assert memory.apply([]) == native.OK
    assert memory.steps == []


@pytest.mark.parametrize("wrong", range(COUNT))
def test_one_unexpected_byte_and_nothing_is_written(
    memory: FaultyMemory, edits: list[Edit], wrong: int
) -> None:
    at = PLACES[wrong] - START + len(edits[wrong].old) - 1
    memory.content[at] ^= 0x80
    seen = bytes(memory.content)

    assert memory.apply(edits) == native.UNEXPECTED

    assert memory.content == seen
    assert memory.steps == [(READ, at) for at in PLACES[: wrong + 1]]
    assert memory.report.index == wrong
    assert memory.report.found[len(edits[wrong].old) - 1] == seen[at]
    assert memory.report.written == 0


# ---- when an access fails ------------------------------------------------------------------------


def steps_of(faulty_library: ctypes.CDLL, edits: Sequence[Edit]) -> list[Step]:
    """What happens when nothing fails."""
    memory = FaultyMemory(faulty_library, BEFORE)
    assert memory.apply(edits) == native.OK
    return memory.steps


@pytest.mark.parametrize("number", range(COUNT))
def test_memory_that_cannot_be_read_is_not_written(
    memory: FaultyMemory, edits: list[Edit], number: int
) -> None:
    memory.faults[number] = errno.EIO

    assert memory.apply(edits) == native.ERRNO

    assert memory.content == BEFORE
    assert (memory.report.index, memory.report.error) == (number, errno.EIO)


@pytest.mark.parametrize("number", range(COUNT))
def test_a_write_that_fails_takes_back_those_before_it(
    memory: FaultyMemory, faulty_library: ctypes.CDLL, edits: list[Edit], number: int
) -> None:
    writes = [i for i, step in enumerate(steps_of(faulty_library, edits)) if step[0] == WRITE]
    memory.faults[writes[number]] = errno.EIO

    assert memory.apply(edits) == native.ERRNO

    assert memory.content == BEFORE
    assert (memory.report.index, memory.report.error) == (number, errno.EIO)
    assert memory.report.written == number
    back = [at for what, at in memory.steps[writes[number] + 1 :] if what == WRITE]
    expected = PLACES[:number] if edits is TOGETHER else PLACES[:number][::-1]
    assert back == expected  # steps in reverse; in one step there is no order


@pytest.mark.parametrize("number", range(COUNT))
def test_a_byte_that_reads_back_otherwise_takes_everything_back(
    memory: FaultyMemory, faulty_library: ctypes.CDLL, edits: list[Edit], number: int
) -> None:
    steps = steps_of(faulty_library, edits)
    written = max(i for i, step in enumerate(steps) if step == (WRITE, PLACES[number]))
    memory.sneak[written + 1] = (PLACES[number], 0x55)

    assert memory.apply(edits) == native.NOT_VERIFIED

    assert memory.content == BEFORE
    assert (memory.report.index, memory.report.found[0]) == (number, 0x55)


def test_every_access_or_synchronisation_may_fail_and_all_is_as_it_was(
    faulty_library: ctypes.CDLL, edits: list[Edit]
) -> None:
    for number, (what, _) in enumerate(steps_of(faulty_library, edits)):
        memory = FaultyMemory(faulty_library, BEFORE)
        memory.faults[number] = errno.EIO

        status = memory.apply(edits)

        assert status == (native.NOT_SYNCED if what == SYNC else native.ERRNO)
        assert memory.report.error == errno.EIO
        assert memory.content == BEFORE


def test_what_is_taken_back_is_synchronised_as_on_the_way_there(memory: FaultyMemory) -> None:
    edits = [one._replace(code=True) for one in IN_STEPS]
    memory.sneak[len(PLACES) + 3 * 3 + 1] = (PLACES[3], 0x55)  # the last is read back

    assert memory.apply(edits) == native.NOT_VERIFIED

    back = memory.steps[len(PLACES) + 3 * 3 + 2 :]
    assert back == [step for at in PLACES[::-1] for step in ((WRITE, at), (SYNC, 0))]


@pytest.mark.parametrize(("failing", "undone"), [(n, m) for n in range(1, COUNT) for m in range(n)])
def test_where_a_step_cannot_be_taken_back_the_steps_before_it_stay(
    memory: FaultyMemory, failing: int, undone: int
) -> None:
    """A breakpoint without its tail harms nobody; a tail without its breakpoint would."""
    write = COUNT + 2 * failing
    memory.faults[write] = errno.EIO
    memory.faults[write + 1 + undone] = errno.EACCES
    stays = failing - 1 - undone

    assert memory.apply(IN_STEPS) == native.NOT_UNDONE

    assert (memory.report.index, memory.report.error) == (stays, errno.EACCES)
    expected = bytearray(BEFORE)
    for one in IN_STEPS[: stays + 1]:
        expected[one.address - START : one.address - START + len(one.new)] = one.new
    assert memory.content == expected


def test_a_synchronisation_that_fails_on_the_way_back_is_told(memory: FaultyMemory) -> None:
    edits = [one._replace(code=True) for one in IN_STEPS[:2]]
    first, second = 2 + 2, 2 + 5  # of the two steps
    memory.faults[second] = errno.EAGAIN
    memory.faults[second + 2] = errno.EAGAIN

    assert memory.apply(edits) == native.NOT_UNDONE
    assert memory.steps[first] == memory.steps[second] == memory.steps[second + 2] == (SYNC, 0)
    assert memory.content[1] == 0xA1  # the first step stays
    assert memory.content[16:] == BEFORE[16:]


@pytest.mark.parametrize("fault", [errno.ESRCH, 0])
def test_memory_that_is_gone_needs_nothing_taken_back(
    faulty_library: ctypes.CDLL, edits: list[Edit], fault: int
) -> None:
    for number, (what, _) in enumerate(steps_of(faulty_library, edits)):
        memory = FaultyMemory(faulty_library, BEFORE)
        memory.faults[number] = fault

        if what != SYNC:
            assert memory.apply(edits) == native.GONE
            assert len(memory.steps) == number + 1


@pytest.mark.parametrize("written", [1, 15])
def test_a_write_that_ends_half_way_is_taken_back_too(
    memory: FaultyMemory, faulty_library: ctypes.CDLL, edits: list[Edit], written: int
) -> None:
    """The kernel stops at a page that it cannot reach: nobody is gone then."""
    memory.faults[steps_of(faulty_library, edits).index((WRITE, PLACES[3]))] = -written

    assert memory.apply(edits) not in (native.OK, native.GONE)
    assert memory.content == BEFORE


def test_edits_of_one_place_in_one_step_are_taken_back(memory: FaultyMemory) -> None:
    """The second expects what was there before the first: it can never be verified."""
    edits = [edit(START, b"\0", b"\1"), edit(START, b"\0", b"\2")]

    assert memory.apply(edits) == native.NOT_VERIFIED
    assert memory.content == BEFORE


def test_a_place_that_an_earlier_step_writes_is_compared_in_its_own_step(
    memory: FaultyMemory,
) -> None:
    first = edit(START + 1, b"\1", b"\xcc", 0)
    again = edit(START + 1, b"\xcc", b"\xa1", 1)

    assert memory.apply([first, again]) == native.UNEXPECTED  # without the word that it is again
    assert memory.content == BEFORE
    assert memory.apply([first, again._replace(again=True)]) == native.OK
    assert memory.content[1] == 0xA1


def test_a_place_that_changed_between_two_of_our_steps_ends_it(memory: FaultyMemory) -> None:
    first = edit(START + 1, b"\1", b"\xcc", 0)
    again = edit(START + 1, b"\xcc", b"\xa1", 1)._replace(again=True)
    memory.sneak[3] = (START + 1, 0x55)  # compared, written, read back; then by somebody else

    assert memory.apply([first, again]) == native.UNEXPECTED
    assert (memory.report.index, memory.report.found[0]) == (1, 0x55)


# ---- a breakpoint first --------------------------------------------------------------------------

SPANS = [
    (b"\x01\x02\x03", b"\xa1\xa2\xa3"),
    (b"\x01\x02\x03", bytes([INT3]) + b"\xa2\xa3"),
    (bytes([INT3]) + b"\x02\x03", b"\xa1\xa2\xa3"),
]


def whole(span: bytes, old: bytes, new: bytes) -> bool:
    """Whether a thread may come by."""
    return span[:1] == bytes([INT3]) or span in (old, new)


@pytest.mark.parametrize(("old", "new"), SPANS)
def test_no_fault_leaves_a_span_in_pieces_without_a_breakpoint_on_it(
    faulty_library: ctypes.CDLL, old: bytes, new: bytes
) -> None:
    change = Change(RemoteAddress(START), old, new, "", True, completion=RemoteAddress(1))
    edits = breakpoint.plan(change, Context(STOPPING, handler=True))
    assert isinstance(edits, tuple)
    undisturbed = FaultyMemory(faulty_library, old)
    assert undisturbed.apply(edits) == native.OK
    assert undisturbed.content == new

    count = len(undisturbed.steps)
    for first in range(count):
        for second in range(first, first + count):
            memory = FaultyMemory(faulty_library, old)
            memory.faults = {first: errno.EIO, second: errno.EIO}

            status = memory.apply(edits)

            assert all(whole(state[: len(old)], old, new) for state in memory.states)
            assert memory.content == old or status == native.NOT_UNDONE


def test_a_span_in_pieces_would_be_noticed() -> None:
    assert not whole(b"\x01\xa2\xa3", *SPANS[0])


# ---- many close together -------------------------------------------------------------------------


def test_code_that_lies_close_together_is_written_at_once_while_nobody_runs(
    faulty_library: ctypes.CDLL,
) -> None:
    edits = close_together(100, 64)
    between = bytearray(b"\x90" * 6400)
    for one in edits:
        between[one.address - START] = 0
    memory = FaultyMemory(faulty_library, bytes(between))

    assert memory.apply(edits, nobody_runs=True) == native.OK

    assert memory.content == zeros_and(edits, between)
    assert [what for what, _ in memory.steps] == [READ, READ, WRITE, READ, SYNC]


@pytest.mark.parametrize("code", [True, False])
def test_under_threads_that_run_every_edit_is_written_by_itself(
    faulty_library: ctypes.CDLL, code: bool
) -> None:
    """Not only threads write what stands between: the kernel does, and other processes."""
    edits = close_together(100, 64, code=code)
    memory = FaultyMemory(faulty_library, bytes(6400))

    assert memory.apply(edits) == native.OK

    assert memory.of(WRITE) == [one.address for one in edits]
    assert {memory.sizes[i] for i, step in enumerate(memory.steps) if step[0] == WRITE} == {1}


def test_data_before_and_behind_a_run_is_written_by_itself(faulty_library: ctypes.CDLL) -> None:
    edits = close_together(20, 64)
    for n, one in enumerate(edits):
        data = n < 5 or n >= 15
        edits[n] = one._replace(code=not data, step=(n >= 5) + (n >= 15))
    memory = FaultyMemory(faulty_library, bytes(20 * 64))

    assert memory.apply(edits, nobody_runs=True) == native.OK

    data = [one.address for one in edits if not one.code]
    assert memory.of(WRITE) == [*data[:5], edits[5].address, *data[5:]]
    assert memory.content == zeros_and(edits, bytes(20 * 64))


@pytest.mark.parametrize("code_behind", [0, 1, 4])
def test_a_step_that_runs_are_only_a_part_of_is_written_whole(
    faulty_library: ctypes.CDLL, code_behind: int
) -> None:
    """Two objects in one step: code, data, and code again."""
    edits = close_together(6 + code_behind, 64)
    edits[5] = edits[5]._replace(code=False)
    memory = FaultyMemory(faulty_library, bytes(6400))

    assert memory.apply_runs(edits, first=0, count=5) == native.OK

    assert memory.content == zeros_and(edits, bytes(6400))


@pytest.mark.parametrize("number", [3, 4])
def test_three_are_too_few_to_be_written_at_once(faulty_library: ctypes.CDLL, number: int) -> None:
    memory = FaultyMemory(faulty_library, bytes(4 * 64))

    assert memory.apply(close_together(number, 64), nobody_runs=True) == native.OK
    assert len(memory.of(WRITE)) == (1 if number == 4 else 3)


def test_nothing_longer_than_16_kib_is_written_at_once(faulty_library: ctypes.CDLL) -> None:
    edits = close_together(200, 1024)
    memory = FaultyMemory(faulty_library, bytes(200 * 1024))

    assert memory.apply(edits, nobody_runs=True) == native.OK

    assert max(memory.sizes) <= 1 << 14
    assert len(memory.of(WRITE)) == 13
    assert memory.content == zeros_and(edits, bytes(200 * 1024))


def test_what_lies_far_apart_is_not_written_at_once(faulty_library: ctypes.CDLL) -> None:
    edits = close_together(8, 3 * 4096)
    memory = FaultyMemory(faulty_library, bytes(8 * 3 * 4096))

    assert memory.apply(edits, nobody_runs=True) == native.OK
    assert len(memory.of(WRITE)) == 8


@pytest.mark.parametrize("nobody_runs", [True, False])
def test_a_hole_between_edits_is_not_touched(
    faulty_library: ctypes.CDLL, nobody_runs: bool
) -> None:
    """An unmapped page between the last byte of one page and the first of the next but one."""
    edits = [edit(START + at, b"\0", b"\1", code=True) for at in (4093, 4094, 4095, 8192, 8193)]
    memory = FaultyMemory(faulty_library, bytes(3 * 4096))
    memory.hole = range(START + 4096, START + 8192)

    assert memory.apply(edits, nobody_runs=nobody_runs) == native.OK
    assert memory.content == zeros_and(edits, bytes(3 * 4096))


@pytest.mark.parametrize("wrong", [0, 1, 57, 99])
def test_one_unexpected_byte_in_a_run_is_named(faulty_library: ctypes.CDLL, wrong: int) -> None:
    edits = close_together(100, 64)
    memory = FaultyMemory(faulty_library, bytes(6400))
    memory.content[64 * wrong] = 0x55
    seen = bytes(memory.content)

    assert memory.apply(edits, nobody_runs=True) == native.UNEXPECTED
    assert (memory.report.index, memory.report.found[0]) == (wrong, 0x55)
    assert memory.content == seen


@pytest.mark.parametrize("at", [0, 64, 6336])
def test_a_run_that_reads_back_otherwise_is_taken_back(
    faulty_library: ctypes.CDLL, at: int
) -> None:
    memory = FaultyMemory(faulty_library, bytes(6400))
    memory.sneak[3] = (START + at, 0x55)

    assert memory.apply(close_together(100, 64), nobody_runs=True) == native.NOT_VERIFIED
    assert memory.content == bytes(6400)


def test_an_edit_in_a_run_that_was_written_in_part_is_taken_back(
    faulty_library: ctypes.CDLL,
) -> None:
    edits = [edit(START + 64 * n, bytes(4), b"four", code=True) for n in range(10)]
    memory = FaultyMemory(faulty_library, bytes(640))
    memory.faults[2] = -(64 * 3 + 2)

    assert memory.apply(edits, nobody_runs=True) == native.ERRNO

    assert memory.of(WRITE)[1:] == [one.address for one in edits[:4]]
    assert memory.report.index == 3
    assert memory.content == bytes(640)


@pytest.mark.parametrize("written", [0, 1, 64, 65, 4096, 6335, 6336])
def test_only_as_much_of_a_run_as_was_written_is_taken_back(
    faulty_library: ctypes.CDLL, written: int
) -> None:
    """The rest may be where nothing can be written, and then nothing could be taken back."""
    edits = close_together(100, 64)
    memory = FaultyMemory(faulty_library, bytes(6400))
    memory.faults[2] = -written or errno.EIO

    assert memory.apply(edits, nobody_runs=True) == native.ERRNO

    reached = [one.address for one in edits if one.address < START + written]
    assert memory.of(WRITE)[1:] == reached
    assert memory.report.index == len(reached)
    assert memory.report.written == len(reached)
    assert memory.content == bytes(6400)


def test_every_access_of_many_edits_may_fail_and_all_is_as_it_was(
    faulty_library: ctypes.CDLL,
) -> None:
    edits = [
        *close_together(5, 8, code=False),
        *(edit(START + 0x100 + at * 1024, b"\0", b"\1", 1, code=True) for at in range(150)),
        *(edit(START + 0x40 + at * 8, b"\0", b"\1", 2) for at in range(5)),
    ]
    content = bytes(152 * 1024)
    undisturbed = FaultyMemory(faulty_library, content)
    assert undisturbed.apply(edits, nobody_runs=True) == native.OK
    assert undisturbed.content == zeros_and(edits, content)

    for number, (what, _) in enumerate(undisturbed.steps):
        half = -(undisturbed.sizes[number] // 2)
        for fault in (errno.EIO, half or errno.EIO):
            memory = FaultyMemory(faulty_library, content)
            memory.faults[number] = fault

            status = memory.apply(edits, nobody_runs=True)

            assert status in (native.OK, native.ERRNO, native.NOT_SYNCED)
            # A comparison that cannot be made at once is made edit by edit.
            done = status == native.OK and what == READ
            assert memory.content == (undisturbed.content if done else content)


# ---- our own process -----------------------------------------------------------------------------


@pytest.fixture
def own_page() -> mmap.mmap:
    return mmap.mmap(-1, mmap.PAGESIZE)


@pytest.fixture(params=[native.MEMBARRIER, native.SIGNALS, native.NONE])
def own(request: pytest.FixtureRequest, build: Path) -> Iterator[Own]:
    with open("/proc/self/mem", "r+b", buffering=0) as file:
        yield Own(request.param, file.fileno())


def stored(at: int, old: bytes, new: bytes) -> Edit:
    return edit(at, old, new)._replace(store=True)


def test_words_and_bytes_of_our_own_process_are_written(own: Own, own_page: mmap.mmap) -> None:
    start = address_of(own_page)

    status = own.apply(
        stored(start, bytes(8), b"one word"), edit(start + 13, b"\0", b"!"),
        stored(start + 20, bytes(4), b"half"), stored(start + 26, bytes(2), b"qu"),
        stored(start + 31, b"\0", b"."),
    )  # fmt: skip

    assert status == native.OK
    assert own_page[:32] == b"one word\0\0\0\0\0!\0\0\0\0\0\0half\0\0qu\0\0\0."


def test_one_unexpected_byte_of_our_own_and_nothing_is_written(
    own: Own, own_page: mmap.mmap
) -> None:
    start = address_of(own_page)

    edits = stored(start, bytes(8), b"one word"), edit(start + 8, b"\1", b"!")
    assert own.apply(*edits) == native.UNEXPECTED
    assert own_page[:16] == bytes(16)


@pytest.mark.parametrize(("offset", "size"), [(4, 8), (2, 4), (1, 2), (0, 3), (0, 16)])
def test_what_is_no_aligned_word_is_not_stored_and_what_was_is_taken_back(
    own: Own, own_page: mmap.mmap, offset: int, size: int
) -> None:
    start = address_of(own_page)

    status = own.apply(
        stored(start, bytes(8), b"one word"), stored(start + 16 + offset, bytes(size), b"x" * size)
    )

    assert (status, own.report.index, own.report.error) == (native.ERRNO, 1, errno.EINVAL)
    assert own_page[:64] == bytes(64)


def test_a_process_is_not_asked_to_stop_itself(own: Own, own_page: mmap.mmap) -> None:
    own._quiescence = native.STOP

    assert own.apply(edit(address_of(own_page), b"\0", b"!")) == native.ERRNO
    assert (own.report.error, own_page[:1]) == (errno.EINVAL, b"\0")


ALONE = """
import sys
import ctypes
from markerjit.remote import native
from tests.support.faulty_memory import edit
from tests.support.own_writing import Own, address_of_code

with open("/proc/self/mem", "r+b", buffering=0) as file:
    own = Own(int(sys.argv[1]), file.fileno())
    address = address_of_code()
    assert own.apply(edit(address + 3, b"\\0", b"\\xc3", code=True)) == native.OK, own.report.error
    assert ctypes.string_at(address, 4) == b"\\0\\0\\0\\xc3"
"""


def test_code_of_our_own_is_written_although_it_is_not_writable(own: Own) -> None:
    # In a process of its own: threads of other packages may block signals here (jemalloc's in
    # pyarrow does), and then there is no fence by signals.
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(own._quiescence)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


# ---- what is said about it -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "facts", "kind", "said"),
    [
        (native.GONE, {}, TargetGone, "process 7 has ended$"),
        (native.BUSY, {"tid": 9}, Refused, "thread 9 of process 7 did not stop in time"),
        (native.IN_SPAN, {"tid": 9}, Refused, "thread 9 stands inside a site"),
        (native.STACK_UNKNOWN, {"tid": 9}, Refused, "stack of thread 9 cannot be searched"),
        (native.NO_THREAD, {}, Refused, "no thread of process 7 can be borrowed"),
        (native.NOT_64_BIT, {}, MarkerError, "32-bit"),
        (native.NOT_VERIFIED, {"index": 3}, MarkerError, "edit 3 .*was rolled back"),
        (
            native.NOT_UNDONE,
            {"index": 3},
            MarkerError,
            "edit 3 COULD NOT be rolled back .*repair 7",
        ),
        (native.MOVED, {}, Refused, "loaded or unloaded just now; try again$"),
        (native.SIGTRAP_BLOCKED, {"tid": 9}, MarkerError, "thread 9 .*SIGTRAP"),
        (native.DISTURBED, {"index": 3}, Refused, "between the sites .* rolled back; try again"),
        (native.FAULTED, {"tid": 9}, Refused, "thread 9 .* met a fault"),
        (native.NOT_SYNCED, {"error": errno.EAGAIN, "tid": 9}, Refused, "thread 9 .*block"),
        (native.NOT_SYNCED, {"error": errno.ESRCH}, Refused, "did not come back .*rolled back"),
        (native.NOT_SYNCED, {"error": errno.EINVAL}, Refused, "cannot fence.*--quiesce stop"),
        (native.ERRNO, {"error": errno.EIO, "written": 2}, MarkerError, "and was rolled back: In"),
        (native.ERRNO, {"error": errno.EPERM}, NotPermitted, "process 7"),
        (native.ERRNO, {"error": errno.EACCES}, NotPermitted, "process 7"),
        (native.ERRNO, {"error": errno.EIO}, MarkerError, "Input/output error"),
    ],
)
def test_each_failure_is_said_in_one_sentence(
    status: int,
    facts: dict[str, int],
    kind: type[MarkerError],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outcome, "has_ended", lambda _: False)

    error = explain_failure(7, status, native.Report(**facts))

    assert type(error) is kind or (kind is MarkerError and isinstance(error, kind))
    with pytest.raises(kind, match=said):
        raise error
    assert "\n" not in str(error)
    not_now = kind is Refused and facts.get("error") != errno.EINVAL
    assert getattr(error, "try_again", False) == not_now


@pytest.mark.parametrize("status", [native.BUSY, native.NO_THREAD, native.ERRNO, native.NOT_UNDONE])
def test_whatever_failed_in_a_process_that_ends_it_has_ended(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that is killed does not stop, or come back from a call, either."""
    monkeypatch.setattr(outcome, "has_ended", lambda _: True)

    error = explain_failure(7, status, native.Report(error=errno.EPERM, borrowed=1))

    assert str(TargetGone(7)) == str(error) == "process 7 has ended"

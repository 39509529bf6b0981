"""A transaction: all or nothing, whatever fails. Its memory is made up (faulty_memory.py)."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Sequence

import pytest

from markerjit.model import Change, Edit, RemoteAddress
from markerjit.patch.protocol import Context, breakpoint
from markerjit.quiesce.strategies import STOP as STOPPING
from markerjit.remote import native
from markerjit.x86.forms import INT3
from tests.support.faulty_memory import READ, START, SYNC, WRITE, FaultyMemory, Step, edit

BEFORE = bytes(range(64))
TOGETHER = [
    edit(START + 1, b"\1", b"\xa1"),
    edit(START + 16, BEFORE[16:24], b"new word"),
    edit(START + 3, b"\3", b"\xa3"),
    edit(START + 32, BEFORE[32:48], b"sixteen bytes of"),
]
IN_STEPS = [change._replace(step=step) for step, change in enumerate(TOGETHER)]
COUNT = len(TOGETHER)
AFTER = bytearray(BEFORE)
for _change in TOGETHER:
    AFTER[_change.address - START : _change.address - START + len(_change.new)] = _change.new
PLACES = [change.address for change in TOGETHER]


@pytest.fixture
def memory(faulty_library: ctypes.CDLL) -> FaultyMemory:
    return FaultyMemory(faulty_library, BEFORE)


@pytest.fixture(params=["together", "in steps", "with code"])
def edits(request: pytest.FixtureRequest) -> list[Edit]:
    if request.param == "with code":
        return [change._replace(code=True) for change in IN_STEPS]
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
    edits = [change._replace(code=change.step in (1, 3)) for change in IN_STEPS]

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
    edits = [change._replace(code=True) for change in IN_STEPS]
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
    for change in IN_STEPS[: stays + 1]:
        expected[change.address - START : change.address - START + len(change.new)] = change.new
    assert memory.content == expected


def test_a_synchronisation_that_fails_on_the_way_back_is_told(memory: FaultyMemory) -> None:
    edits = [change._replace(code=True) for change in IN_STEPS[:2]]
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


# ---- many words of data --------------------------------------------------------------------------

WORDS = [edit(START + 32 * n, bytes(8), bytes([n + 1]) * 8) for n in range(40)]
"""Between any two of them is something that others may change."""


def words_written(count: int) -> bytes:
    return b"".join(change.new + bytes(24) for change in WORDS[:count]).ljust(32 * 40, b"\0")


def failing_at_word_20(library: ctypes.CDLL, *errors: int) -> FaultyMemory:
    """A memory where the first call that writes this word fails, and the calls after it, each with
    one of these errors."""
    undisturbed = FaultyMemory(library, bytes(32 * 40))
    assert undisturbed.apply(WORDS, nobody_runs=True) == native.OK
    number = undisturbed.steps.index((WRITE, WORDS[20].address))
    memory = FaultyMemory(library, bytes(32 * 40))
    memory.faults |= dict(enumerate(errors, number))
    return memory


def test_many_words_of_data_are_written_one_by_one_whichever_call_does_it(
    faulty_library: ctypes.CDLL,
) -> None:
    memory = FaultyMemory(faulty_library, bytes(32 * 40))

    assert memory.apply(WORDS, nobody_runs=True) == native.OK

    assert memory.content == words_written(40)
    assert memory.of(WRITE) == [change.address for change in WORDS]
    assert memory.report.written == 40


def test_where_many_words_cannot_be_written_at_once_they_are_written_singly(
    faulty_library: ctypes.CDLL,
) -> None:
    memory = failing_at_word_20(faulty_library, errno.EFAULT)

    assert memory.apply(WORDS, nobody_runs=True) == native.OK

    assert memory.content == words_written(40)
    assert memory.of(WRITE).count(WORDS[20].address) == 2


def test_words_that_were_written_are_taken_back_where_another_one_cannot_be(
    faulty_library: ctypes.CDLL,
) -> None:
    memory = failing_at_word_20(faulty_library, errno.EFAULT, errno.EFAULT, errno.EIO)

    assert memory.apply(WORDS, nobody_runs=True) == native.ERRNO

    assert (memory.report.index, memory.report.error) == (20, errno.EIO)
    assert memory.content == bytes(32 * 40)


def test_many_words_are_not_tried_again_for_each_place_that_is_only_compared(
    faulty_library: ctypes.CDLL,
) -> None:
    """The list of words is put together where a word is to be written, and nowhere else."""
    edits = [*(change._replace(new=change.old) for change in WORDS[:20]), *WORDS[20:]]
    undisturbed, memory = (FaultyMemory(faulty_library, bytes(32 * 40)) for _ in range(2))
    assert undisturbed.apply(edits, nobody_runs=True) == native.OK
    first = undisturbed.steps.index((WRITE, WORDS[20].address))
    memory.faults = {first: errno.EFAULT, first + 1: errno.EIO}

    assert memory.apply(edits, nobody_runs=True) == native.ERRNO

    assert memory.of(WRITE) == [WORDS[20].address] * 2  # in the list, and by itself
    assert (memory.report.index, memory.report.error) == (20, errno.EIO)


# ---- many words of slots -------------------------------------------------------------------------

SLOTS = [edit(START + 64 * n, bytes(8), bytes([n + 1]) * 8) for n in range(100)]
"""In two pages. What stands between them belongs to the runtime."""
COUNTED = b"".join(bytes(8) + bytes([n + 101]) * 56 for n in range(100))


def slots_written(count: int) -> bytes:
    written = bytearray(COUNTED)
    for change in SLOTS[:count]:
        written[change.address - START : change.address - START + 8] = change.new
    return bytes(written)


def slots_of(library: ctypes.CDLL, size: int = len(COUNTED)) -> FaultyMemory:
    memory = FaultyMemory(library, COUNTED)
    memory.slots = size
    return memory


def test_many_words_of_slots_are_written_with_what_stands_between(
    faulty_library: ctypes.CDLL,
) -> None:
    memory = slots_of(faulty_library)

    assert memory.apply(SLOTS, nobody_runs=True) == native.OK

    assert memory.content == slots_written(100)
    assert memory.of(WRITE) == [START, START + 4096], "a page at a time"
    assert memory.report.written == 100


@pytest.mark.parametrize(
    ("edits", "size", "stand"),
    [
        (SLOTS, 64 * 99, True),  # the last of them is no slot
        (SLOTS[:15], len(COUNTED), True),  # too few
        (SLOTS, len(COUNTED), False),  # threads may count
    ],
)
def test_other_words_are_written_one_by_one(
    faulty_library: ctypes.CDLL, edits: list[Edit], size: int, stand: bool
) -> None:
    memory = slots_of(faulty_library, size)

    assert memory.apply(edits, nobody_runs=stand) == native.OK

    assert memory.content == slots_written(len(edits))
    assert memory.of(WRITE) == [change.address for change in edits]


def test_what_is_only_compared_among_words_of_slots_stays(faulty_library: ctypes.CDLL) -> None:
    memory = slots_of(faulty_library)
    edits = [change._replace(new=change.old) if n % 2 else change for n, change in enumerate(SLOTS)]

    assert memory.apply(edits, nobody_runs=True) == native.OK

    expected = bytearray(slots_written(100))
    for change in SLOTS[1::2]:
        expected[change.address - START : change.address - START + 8] = change.old
    assert memory.content == expected


@pytest.mark.parametrize("page", [0, 1])
def test_words_of_slots_are_taken_back_where_a_page_cannot_be_written(
    faulty_library: ctypes.CDLL, page: int
) -> None:
    memory = slots_of(faulty_library)
    undisturbed = slots_of(faulty_library)
    assert undisturbed.apply(SLOTS, nobody_runs=True) == native.OK
    first = undisturbed.steps.index((WRITE, START + 4096 * page))
    # By its page, by the rest of the run where there is one, by the list, by the word.
    memory.faults = dict.fromkeys(range(first, first + 3 + page), errno.EIO)

    assert memory.apply(SLOTS, nobody_runs=True) != native.OK

    assert memory.content == COUNTED
    assert memory.report.index == 64 * page

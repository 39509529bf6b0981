"""Transactions in real processes, by every quiescence: all of a change, or nothing.

Pages are mapped into the child by its own borrowed thread. Among them is one that cannot be written
(code in a shared mapping) and one that cannot even be read (none).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from markerjit.arena.pack import as_native, pack
from markerjit.model import Edit, RemoteAddress
from markerjit.remote import native
from tests.support.children import RUNNING, WAITS, Start, Waiting

PAGE = 4096
SYS_MMAP, SYS_MUNMAP, SYS_MEMFD_CREATE, SYS_FTRUNCATE = 9, 11, 319, 77
READ, READ_WRITE, READ_EXEC = 1, 3, 5
SHARED, PRIVATE, FIXED, ANONYMOUS = 1, 2, 0x10, 0x20
COUNT = 6

pytestmark = pytest.mark.live

# By a stop the target may be without threads to borrow, by the others it runs.
QUIESCENCES = {"stop": native.STOP, "membarrier": native.MEMBARRIER, "none": native.NONE}
Apply = Callable[..., int]


@pytest.fixture(params=QUIESCENCES)
def quiescence(request: pytest.FixtureRequest) -> int:
    return QUIESCENCES[request.param]


@pytest.fixture(params=["spin", "futex"])
def child(request: pytest.FixtureRequest, start: Start) -> Iterator[Waiting]:
    """One that runs and one that sleeps; each ends as if nobody had come by."""
    child = start(request.param)
    yield child
    child.wait_state("R" if request.param in RUNNING else "S")  # it may just be on its way back
    child.end_wait(request.param)
    assert child.result() == WAITS[request.param]


class Pages:
    """COUNT pages of code in a row, private and zero; `kind` of the page number `odd` differs."""

    def __init__(self, child: Waiting, odd: int = -1, kind: str = "") -> None:
        size = COUNT * PAGE
        assert child.borrow((SYS_MMAP, 0, size, READ_EXEC, PRIVATE | ANONYMOUS, -1, 0)) == native.OK
        self.child = child
        self.start = child.results[0]
        at = self.start + odd * PAGE
        if kind == "shared":
            assert child.borrow((SYS_MEMFD_CREATE, child.data + 8 * 7, 0)) == native.OK
            descriptor = child.results[0]
            shared = (SYS_MMAP, at, PAGE, READ_EXEC, SHARED | FIXED, descriptor, 0)
            assert child.borrow((SYS_FTRUNCATE, descriptor, PAGE), shared) == native.OK
        if kind == "none":
            assert child.borrow((SYS_MUNMAP, at, PAGE)) == native.OK

    def edits(self, per_page: int = 1, size: int = 1, **facts: bool) -> list[Edit]:
        """Edits of zeros, the same on each page; the second half in a second step."""
        places = [(page, n) for page in range(COUNT) for n in range(per_page)]
        return [
            Edit(
                RemoteAddress(self.start + page * PAGE + 100 + 24 * n), bytes(size), b"\xc3" * size,
                "", True, int(page >= COUNT // 2), **facts,
            )
            for page, n in places
        ]  # fmt: skip

    def apply(self, edits: list[Edit], quiescence: int) -> int:
        packed = pack(edits)
        self.report = native.Report()
        return int(
            native.library().mj_apply(
                self.child.target, quiescence, as_native(packed), len(edits), self.report
            )
        )

    def content(self, page: int) -> bytes:
        return os.pread(self.child.memory, PAGE, self.start + page * PAGE)


@pytest.mark.parametrize(("per_page", "size"), [(1, 1), (8, 1)])
def test_all_edits_are_written_and_nothing_else(
    child: Waiting, quiescence: int, per_page: int, size: int
) -> None:
    pages = Pages(child)
    edits = pages.edits(per_page, size)

    assert pages.apply(edits, quiescence) == native.OK

    expected = bytearray(PAGE)
    for n in range(per_page):
        expected[100 + 24 * n] = 0xC3
    assert [pages.content(page) for page in range(COUNT)] == [expected] * COUNT
    assert pages.report.written == len(edits)
    assert bool(pages.report.borrowed) == (quiescence == native.MEMBARRIER)


def test_a_process_registers_for_fences_once(child: Waiting) -> None:
    """Where it is said to have done so, and has not, the first fence fails and all is undone."""
    pages = Pages(child)
    edits = pages.edits()
    back = [edit._replace(old=edit.new, new=edit.old) for edit in edits]

    child.target.is_registered = 1
    assert pages.apply(edits, native.MEMBARRIER) == native.NOT_SYNCED
    assert pages.report.error == errno.EPERM
    assert [pages.content(page) for page in range(COUNT)] == [bytes(PAGE)] * COUNT

    child.target.is_registered = 0
    assert pages.apply(edits, native.MEMBARRIER) == native.OK
    child.target.is_registered = 1
    assert pages.apply(back, native.MEMBARRIER) == native.OK
    assert [pages.content(page) for page in range(COUNT)] == [bytes(PAGE)] * COUNT


@pytest.mark.parametrize("size", [2, 5, 16])
def test_spans_are_written_while_all_threads_stand(child: Waiting, size: int) -> None:
    pages = Pages(child)

    assert pages.apply(pages.edits(8, size), native.STOP) == native.OK

    for page in range(COUNT):
        assert pages.content(page).count(0xC3) == 8 * size


@pytest.mark.parametrize(("odd", "per_page"), list(product(range(COUNT), [1, 8])))
def test_a_page_of_code_that_is_shared_takes_everything_back(
    child: Waiting, quiescence: int, odd: int, per_page: int
) -> None:
    """Its file would change; the kernel refuses the write, with all before it done."""
    pages = Pages(child, odd, "shared")

    assert pages.apply(pages.edits(per_page), quiescence) == native.ERRNO

    assert pages.report.error == errno.EIO
    assert pages.report.index == odd * per_page
    assert pages.report.written == odd * per_page
    assert [pages.content(page) for page in range(COUNT)] == [bytes(PAGE)] * COUNT


@pytest.mark.parametrize(("odd", "per_page"), list(product([0, 1, COUNT - 1], [1, 8])))
def test_a_page_that_is_not_there_is_noticed_before_anything_is_written(
    child: Waiting, quiescence: int, odd: int, per_page: int
) -> None:
    pages = Pages(child, odd, "none")

    assert pages.apply(pages.edits(per_page), quiescence) == native.ERRNO

    assert (pages.report.error, pages.report.written) == (errno.EIO, 0)
    for page in set(range(COUNT)) - {odd}:
        assert pages.content(page) == bytes(PAGE)


@pytest.mark.parametrize("number", [0, 7, 30, COUNT * 8 - 1])
def test_one_byte_that_is_not_as_expected_and_nothing_is_written(
    child: Waiting, quiescence: int, number: int
) -> None:
    pages = Pages(child)
    edits = pages.edits(8)
    edits[number] = edits[number]._replace(old=b"\x90")

    assert pages.apply(edits, quiescence) == native.UNEXPECTED

    assert (pages.report.index, pages.report.found[0], pages.report.written) == (number, 0, 0)
    assert [pages.content(page) for page in range(COUNT)] == [bytes(PAGE)] * COUNT


def test_stores_are_for_our_own_process(child: Waiting, quiescence: int) -> None:
    """At the child's address they would go to our memory, or nowhere."""
    pages = Pages(child)

    assert pages.apply(pages.edits(store=True), quiescence) == native.ERRNO
    assert (pages.report.error, pages.report.written) == (errno.EINVAL, 0)


@pytest.mark.parametrize("number", [native.SIGNALS, 0, 5, -1])
def test_another_process_has_no_other_quiescence(child: Waiting, number: int) -> None:
    pages = Pages(child)

    assert pages.apply(pages.edits(), number) == native.ERRNO
    assert (pages.report.error, pages.report.written) == (errno.EINVAL, 0)


def test_a_process_without_a_way_back_is_not_borrowed(child: Waiting) -> None:
    pages = Pages(child)
    for without in (("syscall_ret",), ("sigreturn", "pop_rax_ret")):
        saved = {name: getattr(child.target, name) for name in without}
        for name in without:
            setattr(child.target, name, 0)

        assert pages.apply(pages.edits(), native.MEMBARRIER) == native.NO_THREAD

        for name, value in saved.items():
            setattr(child.target, name, value)
    assert pages.content(0) == bytes(PAGE)
    assert pages.apply(pages.edits(), native.MEMBARRIER) == native.OK


@pytest.mark.parametrize("call", ["spin", "vector", "read", "epoll_wait", "nanosleep", "futex"])
@pytest.mark.parametrize("way", ["sigreturn", "pop_rax_ret"])
@pytest.mark.parametrize("where", ["scratch", "stack"])
def test_a_borrowed_thread_goes_on_by_either_way_back_and_on_its_own_stack_too(
    start: Start,
    call: str,
    way: str,
    where: str,
) -> None:
    child = start(call)
    setattr(child.target, "pop_rax_ret" if way == "sigreturn" else "sigreturn", 0)
    if where == "stack":
        child.target.scratch = 0
    before = child.signal_masks()

    for _ in range(20):
        assert child.borrow((39,), (110,)) == native.OK
        assert child.results == [child.pid, os.getpid()]

    assert child.signal_masks() == before
    assert child.is_silent()
    child.wait_state("R" if call in RUNNING else "S")
    child.end_wait(call)
    assert child.result() == WAITS[call]


def test_what_a_frame_covered_on_the_stack_is_as_before(start: Start) -> None:
    child = start("read")
    child.target.scratch = 0
    (stack,) = [
        [int(n, 16) for n in line.split()[0].split("-")]
        for line in Path(f"/proc/{child.pid}/maps").read_text().splitlines()
        if line.endswith("[stack]")
    ]
    before = os.pread(child.memory, stack[1] - stack[0], stack[0])

    assert child.borrow((39,)) == native.OK

    assert os.pread(child.memory, stack[1] - stack[0], stack[0]) == before
    child.wait_state("S")
    child.end_wait("read")
    assert child.result() == "1 0 0"


@pytest.mark.parametrize(
    ("options", "status"),
    [(("block",), native.SIGTRAP_BLOCKED), ((), native.OK), (("ignore",), native.OK)],
)
def test_a_thread_that_blocks_sigtrap_is_seen_before_a_breakpoint_is_written(
    start: Start,
    options: tuple[str, ...],
    status: int,
) -> None:
    """The kernel kills a process whose blocked SIGTRAP it has to deliver."""
    child = start("read", *options)
    child.target.needs_sigtrap = 1
    pages = Pages(child)

    assert pages.apply(pages.edits(), native.STOP) == status

    assert pages.report.tid == (child.pid if options == ("block",) else pages.report.tid)
    assert (pages.content(0) == bytes(PAGE)) == (status != native.OK)


# ---- before the threads are stopped --------------------------------------------------------------


def of_slots(pages: Pages, code: int, *, early: int = 4) -> list[Edit]:
    """Words of data in two steps, the first `early` of which no thread reads, and so many edits of
    code behind them."""
    words = [
        Edit(RemoteAddress(pages.start + 64 * n), bytes(8), b"markerjt", "", False, n // 2,
             early=n < early)
        for n in range(4)
    ]  # fmt: skip
    start = pages.start + PAGE
    return words + [
        Edit(RemoteAddress(start + 64 * n), b"\0", b"\xc3", "", True, 2) for n in range(code)
    ]


@pytest.mark.parametrize("code", [1, 8])
def test_words_that_no_thread_reads_yet_are_written_with_all_others(
    child: Waiting, code: int
) -> None:
    pages = Pages(child)
    edits = of_slots(pages, code)

    assert pages.apply(edits, native.STOP) == native.OK

    assert pages.content(0).count(b"markerjt") == 4
    assert pages.content(1).count(0xC3) == code
    assert pages.report.written == len(edits)
    assert pages.report.threads


@pytest.mark.parametrize(("early", "written"), [(4, 4), (3, 2), (1, 0)])
def test_whole_steps_are_written_before_the_stop_and_taken_back_with_it(
    child: Waiting, early: int, written: int
) -> None:
    """One edit of code is compared in the stop, with the words that are not written by then."""
    pages = Pages(child)
    edits = of_slots(pages, 1, early=early)
    edits[-1] = edits[-1]._replace(old=b"\x90")

    assert pages.apply(edits, native.STOP) == native.UNEXPECTED

    assert (pages.report.index, pages.report.found[0]) == (4, 0)
    assert pages.report.written == written
    assert pages.report.threads
    assert [pages.content(page) for page in range(2)] == [bytes(PAGE)] * 2


def test_code_that_was_changed_is_noticed_before_those_words_are_written(child: Waiting) -> None:
    pages = Pages(child)
    edits = of_slots(pages, 8)
    edits[6] = edits[6]._replace(old=b"\x90")

    assert pages.apply(edits, native.STOP) == native.UNEXPECTED

    assert (pages.report.index, pages.report.written, pages.report.threads) == (6, 0, 0)
    assert [pages.content(page) for page in range(2)] == [bytes(PAGE)] * 2


def test_no_thread_is_stopped_where_one_of_those_words_is_another(child: Waiting) -> None:
    pages = Pages(child)
    edits = of_slots(pages, 8)
    edits[3] = edits[3]._replace(old=b"\x90" * 8)

    assert pages.apply(edits, native.STOP) == native.UNEXPECTED

    assert (pages.report.index, pages.report.written, pages.report.threads) == (3, 0, 0)
    assert [pages.content(page) for page in range(2)] == [bytes(PAGE)] * 2


@pytest.mark.parametrize("other", [native.MEMBARRIER, native.NONE])
def test_under_threads_that_run_those_words_are_as_all_others(child: Waiting, other: int) -> None:
    pages = Pages(child)

    assert pages.apply(of_slots(pages, 8), other) == native.OK

    assert pages.content(0).count(b"markerjt") == 4
    assert pages.content(1).count(0xC3) == 8

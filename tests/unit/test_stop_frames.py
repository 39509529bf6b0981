"""A span is not written while a signal handler will return into it, wherever the frame is.

stop/frames.c keeps a thread in a handler that was called inside the span, so no luck is needed: the
thread's own instruction pointer is elsewhere, and the one that counts is in a frame.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random

import pytest

from markerjit.model import Edit, RemoteAddress
from markerjit.remote import native
from tests.support.children import Child
from tests.support.handling import PIECE, Handling
from tests.support.programs import ROOT, make

SPAN = b"\x90\x90\x0f\x0b\xc3"  # nop, nop, ud2, ret
CALL = b"\xb8\0\0\0\0\x0f\x05\xc3"  # mov, syscall, ret
RET = b"\xc3"
FRAMES = ("plain", "restorer", "alternate", "local", "coroutine", "nested", "above", "below")

pytestmark = pytest.mark.live


Start = Callable[..., Handling]


@pytest.fixture
def start(start_child: Callable[..., Child]) -> Start:
    return partial(start_child, Handling)


@pytest.mark.parametrize("kind", [*FRAMES, "thread"])
def test_a_handler_that_returns_into_a_span_keeps_it_from_being_written(
    start: Start, kind: str
) -> None:
    process = start(kind)

    assert process.replace(process.span, SPAN, RET * 5) == native.IN_SPAN

    assert process.report.tid == process.tid
    assert process.report.written == 0
    assert os.pread(process.memory, 5, process.span) == SPAN


@pytest.mark.parametrize("kind", [*(kind for kind in FRAMES if kind != "local"), "thread"])
def test_a_span_is_written_once_the_handler_has_returned(start: Start, kind: str) -> None:
    """What the frame left is below the stack pointer, or on a stack that nothing leads to."""
    process = start(kind)
    process.go_on()
    assert process.line() == "out"

    assert process.replace(process.span, SPAN, RET * 5) == native.OK

    process.go_on()
    assert process.process.wait() == 0


def test_what_is_left_of_a_frame_above_the_stack_pointer_counts_as_a_frame(start: Start) -> None:
    """Nothing tells the two apart, and to refuse is harmless. Here the alternate stack is an array
    on the thread's own one."""
    process = start("local")
    process.go_on()
    assert process.line() == "out"

    assert process.replace(process.span, SPAN, RET * 5) == native.IN_SPAN


@pytest.mark.parametrize("kind", FRAMES)
def test_a_span_that_no_handler_returns_into_is_written(start: Start, kind: str) -> None:
    """The thread returns to its third byte: the first of this span, and behind that one."""
    process = start(kind)

    assert process.replace(process.span + 2, SPAN[2:], SPAN[2:]) == native.OK
    assert process.replace(process.span, SPAN[:2], SPAN[:2]) == native.OK


def test_an_edit_of_one_byte_asks_for_no_stack(start: Start) -> None:
    process = start("plain")

    assert process.replace(process.span + 2, SPAN[2:3], SPAN[2:3]) == native.OK


@pytest.mark.parametrize("behind", range(-32, 49, 16))
def test_the_next_stack_is_found_from_any_depth_of_an_alternate_one(
    start: Start, behind: int
) -> None:
    """A stack is read in pieces, and the frame that leads to the next one may lie across two."""
    shallow = PIECE // 2
    first = start("above", shallow)
    depth = shallow + PIECE + behind - first.distance_to_frame() // 16 * 16

    process = start("above", depth)

    assert abs(process.distance_to_frame() - PIECE - behind) < 16
    assert process.replace(process.span, SPAN, RET * 5) == native.IN_SPAN


def test_a_handler_that_ends_in_time_is_waited_for(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends while the controller, which has found it, lets it run."""
    make("build/hooks/libmjstop.so")
    library = ctypes.CDLL(str(ROOT / "build" / "hooks" / "libmjstop.so"))
    points = tmp_path / "points"
    points.touch()
    monkeypatch.setenv("MJ_RACE_LOG", str(points))
    monkeypatch.setenv("MJ_PAUSE_POINT", "in span")
    monkeypatch.setenv("MJ_PAUSE_US", "300000")
    library.mj_race_begin()
    process = start("plain")

    with ThreadPoolExecutor(1) as pool:
        status = pool.submit(process.replace, process.span, SPAN, RET * 5, library)
        while "in span" not in points.read_text():
            assert not status.done()
        process.go_on()

    assert status.result() == native.OK
    assert process.line() == "out"


def test_a_call_that_begins_again_inside_a_span_keeps_it_from_being_written(start: Start) -> None:
    """The thread stands behind the span, and the kernel will put it back to the call."""
    process = start("call")
    process.wait_asleep()

    assert process.replace(process.call, CALL[:7], RET * 7) == native.IN_SPAN
    assert process.report.tid == process.tid
    assert process.replace(process.call, CALL[:5], CALL[:5]) == native.OK
    assert process.replace(process.call + 5, CALL[5:7], CALL[5:7]) == native.OK

    process.go_on()
    assert process.line() == "out"


@pytest.mark.parametrize("kind", ["lost", "huge"])
def test_a_stack_that_cannot_be_searched_keeps_a_span_from_being_written(
    start: Start, kind: str
) -> None:
    process = start(kind)

    while (status := process.replace(process.span, SPAN, SPAN)) == native.OK:
        pass  # it is not there yet

    assert status == native.STACK_UNKNOWN
    assert process.report.tid == process.tid
    assert process.replace(process.span, SPAN[:1], RET) == native.OK


def test_a_thread_of_the_kernel_has_no_stack_to_be_searched(start: Start) -> None:
    process = start("uring")
    if len(os.listdir(f"/proc/{process.process.pid}/task")) == 1:
        pytest.skip("io_uring is not allowed here")

    assert process.replace(process.span, SPAN, RET * 5) == native.OK

    assert process.report.threads == 2


@pytest.mark.parametrize("kind", ["plain", "call"])
@pytest.mark.parametrize("size", [2, 3, 5, 16])
def test_the_edit_that_a_thread_is_inside_of_is_named_among_many(
    start: Start, kind: str, size: int
) -> None:
    """They are in no order, and overlap. One ends where this one has its last byte."""
    process = start(kind)
    process.wait_asleep()
    inside = process.span + 2 if kind == "plain" else process.call + 5
    starts = [*range(1 << 20, (1 << 20) + 3000), *range(1 << 60, (1 << 60) + 3000), inside - size]
    Random(size).shuffle(starts)
    starts.insert(1234, inside - size + 1)
    # Of several steps: flips of one step are compared before any thread is stopped.
    edits = [
        Edit(RemoteAddress(at), bytes(size), RET * size, "", True, number % 2)
        for number, at in enumerate(starts)
    ]

    assert process.apply(edits) == native.IN_SPAN

    assert process.report.index == 1234
    assert process.apply([*edits[:1234], *edits[1235:]]) != native.IN_SPAN

"""The SIGTRAP handler of the runtime, called in this process with a trap that the test makes up.

Where breakpoints lead is written by the controller (arena.py) and looked up by the handler
(trap.c): both hash the address, and have to find the same place.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import markerjit.abi as abi
from markerjit.abi import CONTROL, Control, Geometry, PatchEntry, Sigaction, patch_place
from markerjit.arena.patches import Head
from markerjit.errors import Refused
from markerjit.model import Mode, RemoteAddress
from markerjit.x86.forms import INT3, NOP
from tests.support.own_arena import OwnArena, address_of, geometry_of
from tests.support.timing import reaped

GEOMETRY = geometry_of(ring_size=4096, max_markers=1, max_patches=16)
SIGTRAP = 5
LINK, RSP, RIP = 8, 160, 168
SI_KERNEL, SI_USER, SI_TKILL = 128, 0, -6
TRAP_BRKPT, TRAP_TRACE, TRAP_BRANCH, TRAP_HWBKPT, TRAP_UNK, TRAP_PERF = range(1, 7)
BODY = RemoteAddress(0x1234_5678)

Handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class Trap:
    """A runtime with its table of breakpoints, and code full of breakpoints to trap at."""

    def __init__(self, geometry: Geometry = GEOMETRY) -> None:
        self.own = OwnArena(geometry)
        self.arena = self.own.arena
        self.code = mmap.mmap(-1, 1 << 16)
        self.code[:] = bytes([INT3]) * len(self.code)
        self.start = address_of(self.code)
        self.passed_on: list[tuple[int, int]] = []
        self._old = Handler(lambda signal, info, context: self.passed_on.append((signal, info)))
        self.pass_on_to(ctypes.cast(self._old, ctypes.c_void_p).value or 0)

    def pass_on_to(self, handler: int) -> None:
        place = CONTROL + Control.old_trap.offset
        self.own.store.write(place, bytes(Sigaction(handler=handler)))

    def at(self, offset: int, code: int = SI_KERNEL) -> int:
        """Where the program goes on after a trap at `offset` of the code, with the same stack."""
        info, context = (ctypes.c_int32 * 32)(), (ctypes.c_uint64 * 32)()
        info[2] = code
        context[RIP // 8] = self.start + offset + 1  # behind the breakpoint
        context[RSP // 8] = stack = 0x7FFF_0000
        self.info = ctypes.addressof(info)
        Handler(self.own.base + self.arena.entry.trap)(SIGTRAP, info, context)
        assert context[RSP // 8] == stack
        self.link = context[LINK // 8]
        return context[RIP // 8]

    def add(self, offset: int, body: RemoteAddress = BODY, mode: Mode = Mode.INT3) -> None:
        address = RemoteAddress(self.start + offset)
        slot = RemoteAddress(0)
        self.arena.patches.put([Head(address, b"\x90", b"\xcc", mode, slot, body)])

    def forget(self, offset: int) -> None:
        self.arena.patches.forget([RemoteAddress(self.start + offset)])

    def fill(self, index: int, entry: PatchEntry) -> None:
        """Write a place of the table."""
        self.own.store.write(self.own.geometry.patches.at(index), bytes(entry))

    def went_through(self, offset: int) -> bool:
        """Whether a trap there is passed on, which leaves it where it was."""
        before = len(self.passed_on)
        went_on = self.at(offset) == self.start + offset + 1
        return went_on and self.passed_on[before:] == [(SIGTRAP, self.info)]


@pytest.fixture
def trap(build: object) -> Trap:
    return Trap()


def colliding(trap: Trap, count: int) -> list[int]:
    """Offsets whose addresses the handler starts to look for at the same place of its table."""
    chosen, offsets = None, []
    for offset in range(1 << 16):
        place = patch_place(trap.start + offset, GEOMETRY.patches.entries - 1)
        chosen = place if chosen is None else chosen
        if place == chosen:
            offsets.append(offset)
        if len(offsets) == count:
            return offsets
    raise AssertionError("not so many")


# ---- breakpoints of ours -------------------------------------------------------------------------


def test_a_breakpoint_leads_to_its_body(trap: Trap) -> None:
    trap.add(7)

    assert trap.at(7) == BODY
    assert trap.passed_on == []


@pytest.mark.parametrize("code", [SI_KERNEL, TRAP_BRKPT])
def test_a_breakpoint_is_known_by_what_linux_and_gvisor_call_it(trap: Trap, code: int) -> None:
    trap.add(7)

    assert trap.at(7, code) == BODY


def test_a_head_that_never_had_a_breakpoint_has_none_of_ours(trap: Trap) -> None:
    trap.add(7, RemoteAddress(0), Mode.JUMP)

    assert trap.went_through(7)


def test_a_head_that_is_opened_otherwise_now_still_knows_where_its_breakpoint_led(
    trap: Trap,
) -> None:
    """The child of a fork may have the breakpoint still, and a thread may be on its way here."""
    trap.add(7)
    trap.add(7, RemoteAddress(0), Mode.JUMP)

    assert trap.at(7) == BODY


def test_a_breakpoint_that_was_taken_away_meanwhile_is_run_again(trap: Trap) -> None:
    trap.add(7)
    trap.code[7] = NOP

    assert trap.at(7) == trap.start + 7


@pytest.mark.parametrize("unloaded", [False, True])
def test_an_address_never_leads_to_another_body(trap: Trap, unloaded: bool) -> None:
    """The child of a fork shares the table, and may still have the code that was unloaded here."""
    trap.add(7)
    if unloaded:
        trap.forget(7)

    with pytest.raises(Refused, match="a child of it may still have that code"):
        trap.add(7, RemoteAddress(BODY + 1))

    trap.own.store.write(abi.ALIVE, bytes(8))  # as in the child
    assert trap.at(7) == BODY


def test_an_object_that_is_loaded_again_has_its_breakpoints_again(trap: Trap) -> None:
    trap.add(7)
    trap.forget(7)
    assert trap.went_through(7)

    trap.add(7)

    assert trap.at(7) == BODY
    assert not trap.arena.patches.look().has_planted(RemoteAddress(trap.start + 7), BODY)


def test_addresses_of_the_same_hash_are_told_apart(trap: Trap) -> None:
    offsets = colliding(trap, 7)
    for number, offset in enumerate(offsets[:-1]):
        trap.add(offset, RemoteAddress(BODY + number))

    assert [trap.at(offset) for offset in offsets[:-1]] == [BODY + n for n in range(6)]
    assert trap.went_through(offsets[-1])


def test_a_table_that_is_full_is_refused_and_still_answers(trap: Trap) -> None:
    added = []
    with pytest.raises(Refused, match="places that are switched"):
        for offset in range(GEOMETRY.patches.entries + 1):
            trap.add(offset)
            added.append(offset)

    assert len(added) >= GEOMETRY.patches.entries // 2
    assert all(trap.at(offset) == BODY for offset in added)
    assert trap.went_through(1000)


def test_a_search_in_a_table_without_a_free_place_ends(trap: Trap) -> None:
    for index in range(GEOMETRY.patches.entries):
        trap.fill(index, PatchEntry(address=1 + index, body=2))

    assert trap.went_through(7)


@given(offsets=st.sets(st.integers(0, (1 << 16) - 1), min_size=1, max_size=100))
@settings(max_examples=20, deadline=None)
def test_the_handler_looks_where_the_controller_wrote(build: object, offsets: set[int]) -> None:
    """Only if both hash alike: an address is looked for from its own place to the next free one."""
    trap = Trap(geometry_of(ring_size=4096, max_markers=1, max_patches=1024))
    for offset in offsets:
        trap.add(offset, RemoteAddress(BODY + offset))

    assert {offset: trap.at(offset) for offset in offsets} == {n: BODY + n for n in offsets}
    other = next(offset for offset in range(1 << 16) if offset not in offsets)
    assert trap.went_through(other)


# ---- traps that are not ours ---------------------------------------------------------------------


def test_a_breakpoint_of_somebody_else_is_passed_on(trap: Trap) -> None:
    trap.add(7)

    assert trap.went_through(8)


@pytest.mark.parametrize("code", [SI_USER, SI_TKILL, -1])
def test_a_signal_that_was_sent_is_passed_on_even_at_a_site(trap: Trap, code: int) -> None:
    trap.add(7)

    assert trap.at(7, code) == trap.start + 8
    assert trap.passed_on == [(SIGTRAP, trap.info)]


@pytest.mark.parametrize("code", [TRAP_TRACE, TRAP_BRANCH, TRAP_HWBKPT, TRAP_UNK, TRAP_PERF])
@pytest.mark.parametrize("byte", [INT3, NOP])
def test_a_trap_that_no_breakpoint_raised_is_passed_on_even_behind_a_site(
    trap: Trap, code: int, byte: int
) -> None:
    """A single step over a site of one byte ends where its breakpoint would have ended."""
    trap.add(7)
    trap.code[7] = byte

    assert trap.at(7, code) == trap.start + 8
    assert trap.passed_on == [(SIGTRAP, trap.info)]


@pytest.mark.parametrize("code", [SI_USER, SI_TKILL])
def test_a_signal_that_was_sent_to_a_program_that_ignores_it_is_ignored(
    trap: Trap, code: int
) -> None:
    trap.pass_on_to(1)

    assert trap.at(7, code) == trap.start + 8
    assert trap.passed_on == []


def test_a_trap_goes_through_the_handlers_of_two_arenas(trap: Trap) -> None:
    newer = Trap()
    newer.pass_on_to(trap.own.base + trap.arena.entry.trap)

    newer.at(7)

    assert trap.passed_on == [(SIGTRAP, newer.info)]
    assert newer.link == 0


@pytest.mark.parametrize("between", [False, True])
def test_a_trap_that_is_passed_back_to_us_has_the_default_action(trap: Trap, between: bool) -> None:
    """The program's handler passes on to what it found, which was ours: no thread goes round for
    ever. Another arena's handler may be in between."""
    first = trap
    if between:
        first = Trap()
        first.pass_on_to(trap.own.base + trap.arena.entry.trap)
    back = Handler(first.own.base + first.arena.entry.trap)
    trap.pass_on_to(ctypes.cast(back, ctypes.c_void_p).value or 0)

    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            first.at(7)
        os._exit(0)
    status = reaped(child)

    assert os.WTERMSIG(status) == signal.SIGTRAP

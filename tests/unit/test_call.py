"""The adapters: a C function that a body reaches by a preserving call gets its arguments, and the
body gets back all its registers."""

from __future__ import annotations

import ctypes
import os
import struct
from ctypes import c_double, c_uint64
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from markerjit.abi import CALLS_SIZE, CPU_TSC, CPU_XSAVE, PROBE_COUNTED
from markerjit.abi import Calls as Calls_
from tests.support.choice import examples
from tests.support.own_arena import INT, OwnArena, Slot, calls, cpu_flags
from tests.support.recorder_code import Calls, instructions

VECTORS = pytest.mark.parametrize("vectors", [False, True])
INLINE = 2


class Taken:
    """A slot whose probe is the function `take` of calls.c."""

    def __init__(self, *, vectors: bool) -> None:
        self.own = OwnArena()
        self.library = calls()
        self.library.take_as.restype = ctypes.POINTER(c_uint64)
        self.library.times_taken.restype = c_uint64
        self.vectors = vectors
        address = ctypes.cast(self.library.take, ctypes.c_void_p).value or 0
        self.own.arena.control.write("data_used", 8)  # as after a probe in C was loaded
        self.slot = self.marker("m", address | PROBE_COUNTED)

    def marker(self, name: str, probe: int) -> Slot:
        """A marker's slot with a probe in C."""
        slot = self.own.marker("n %d", INT, name=name)
        slot.probe = probe
        slot.adapter = self.own.arena.adapter(vectors=self.vectors)
        return slot

    def hit(self, *args: object) -> list[int]:
        """What the function found, after a call of which all registers came back."""
        kinds = "".join("f" if isinstance(value, c_double) else "g" for value in args).encode()
        words = self.library.take_as(kinds, int(self.vectors))
        self.slot.hit(*args)
        return list(words[: len(args)])

    @property
    def counts(self) -> tuple[int, int, int]:
        """How often it was called, and how often it was entered and left."""
        return self.library.times_taken(), *self.entered_and_left(self.slot)

    def entered_and_left(self, slot: Slot) -> tuple[int, int]:
        """The calls that were counted of a slot's marker, over all CPUs."""
        own = self.own
        marker = own.arena.markers.at(slot.data)
        assert marker is not None
        offsets = (own.geometry.calls_offset(ring, marker) for ring in range(own.geometry.rings))
        rows = [Calls_.from_buffer_copy(own.store.read(at, CALLS_SIZE)) for at in offsets]
        return sum(row.entered for row in rows), sum(row.left for row in rows)


@pytest.fixture(scope="module", params=[False, True], ids=["general", "vectors"])
def taken(request: pytest.FixtureRequest, build: Path) -> Taken:
    return Taken(vectors=request.param)


def bits(real: float) -> int:
    return int.from_bytes(struct.pack("<d", real), "little")


@pytest.mark.parametrize("count", range(13))
def test_so_many_words_arrive(taken: Taken, count: int) -> None:
    assert taken.hit(*[c_uint64(at + 10) for at in range(count)]) == [*range(10, 10 + count)]
    assert taken.counts[0] == 1


@settings(max_examples=examples(60), deadline=None)
@given(drawn=st.lists(st.integers(0, (1 << 64) - 1) | st.floats(allow_nan=False), max_size=12))
def test_any_words_and_doubles_arrive_in_their_order(
    taken: Taken, drawn: list[int | float]
) -> None:
    args = [c_double(value) if isinstance(value, float) else c_uint64(value) for value in drawn]

    assert taken.hit(*args) == [bits(x) if isinstance(x, float) else x for x in drawn]


def test_calls_are_counted(taken: Taken) -> None:
    _, before, left = taken.counts
    hits = taken.own.counted().hits
    assert before == left

    for _ in range(3):
        taken.hit(c_uint64(1))

    assert taken.counts[1:] == (before + 3, before + 3)
    assert taken.own.counted().hits == hits + 3
    assert (taken.slot.entered, taken.slot.left) == (0, 0), "shared by all CPUs"


@pytest.mark.parametrize("probe", [PROBE_COUNTED, INLINE | PROBE_COUNTED])
def test_nothing_is_called_where_the_probe_is_gone(taken: Taken, probe: int) -> None:
    """The body saw it, and the adapter does not any more."""
    before, taken.slot.probe = taken.slot.probe, probe
    taken.hit(c_uint64(1))
    assert taken.counts[0] == 0
    _, entered, left = taken.counts
    assert entered == left

    taken.slot.probe = before
    assert taken.hit(c_uint64(1)) == [1]


def test_nothing_is_called_through_an_adapter_that_was_replaced(taken: Taken) -> None:
    """Another one serves the slot: the probe there may need it."""
    slot, own = taken.slot, taken.own
    adapter = own.arena.adapter(vectors=not taken.vectors)
    other = Slot(probe=slot.probe, data=slot.data, adapter=adapter, preserving=1)
    before = taken.entered_and_left(slot)
    taken.library.take_as(b"g", 0)
    # A body that had loaded the old address: it calls it directly.
    stale = Slot.from_buffer_copy(other)
    assert stale.adapter != slot.adapter

    taken.library.call_stale(ctypes.byref(stale), c_uint64(slot.adapter))

    assert taken.counts[0] == 0
    assert taken.entered_and_left(slot) == (before[0] + 1, before[1] + 1)


@pytest.mark.parametrize("data", [0, 8, (1 << 64) - 8, 0x7FFF_FFFF_F000])
def test_nothing_is_looked_at_or_called_where_the_data_is_not_of_the_arena(
    taken: Taken, data: int
) -> None:
    """Such as the program's own, where it has set a probe since."""
    slot = Slot.from_buffer_copy(taken.slot)
    slot.data = data
    taken.library.take_as(b"g", 0)

    slot.hit(c_uint64(1))

    assert taken.counts[0] == 0


def test_a_call_is_counted_for_the_marker_that_the_probe_came_with(taken: Taken) -> None:
    """Wherever the slot gets other data: what was counted for one marker does not call a probe that
    may have come with another."""
    other = taken.marker("other", taken.slot.probe)
    outcomes = set()
    for address in instructions(taken.own, adapter_of(taken.slot)):
        slot = Slot.from_buffer_copy(taken.slot)
        taken.library.take_as(b"g", 0)
        before = [taken.entered_and_left(each)[0] for each in (taken.slot, other)]
        place, data = ctypes.c_void_p(address), ctypes.c_void_p(other.data)
        came = taken.library.call_with_other_data(ctypes.byref(slot), data, place)
        after = [taken.entered_and_left(each) for each in (taken.slot, other)]
        assert all(entered == left for entered, left in after)
        gained = tuple(entered - start for (entered, _), start in zip(after, before, strict=True))
        if came:
            outcomes.add((gained, taken.library.times_taken()))

    assert outcomes == {((0, 1), 1), ((1, 0), 0), ((1, 0), 1)}


@pytest.mark.parametrize("flags", [CPU_XSAVE, CPU_XSAVE | CPU_TSC, CPU_TSC, 0])
def test_vector_registers_come_back_where_the_system_has_xsave_and_where_not(
    taken: Taken, flags: int
) -> None:
    """Whole with XSAVE, whichever other features there are. A system without it has no AVX, and
    the lower halves of FXSAVE are all that there is."""
    own_flags = cpu_flags()
    if flags & ~own_flags:
        pytest.skip("this processor does not have them")
    control = taken.own.arena.control
    control.write("cpu_flags", flags)
    taken.library.look_at_avx(int(bool(flags & CPU_XSAVE) and has_avx()))
    try:
        assert taken.hit(c_uint64(7), c_double(0.5)) == [7, bits(0.5)]
    finally:
        taken.library.look_at_avx(0)
        control.write("cpu_flags", own_flags)


def has_avx() -> bool:
    """Whether vector registers have an upper half here."""
    return "avx" in Path("/proc/cpuinfo").read_text().split()


def adapter_of(slot: Slot) -> Slot:
    """A slot whose probe's address is that of an adapter, to be decoded."""
    return Slot(probe=slot.adapter)


def test_calls_are_exact_whatever_interrupts_them(taken: Taken) -> None:
    calls = Calls(taken.library)
    inner = taken.marker("inner", taken.slot.probe)
    taken.library.take_as(b"g", 0)
    outside = taken.entered_and_left(inner)[0]
    before, came = taken.entered_and_left(taken.slot)[0], 0
    addresses = instructions(taken.own, adapter_of(taken.slot))
    for number, address in enumerate(addresses, 1):
        came += calls.interrupted(taken.slot, inner, 1, address)
        assert taken.entered_and_left(taken.slot) == (before + number,) * 2, hex(address)
        assert taken.entered_and_left(inner) == (outside + came,) * 2, hex(address)

    assert came > 60
    assert taken.counts[0] == len(addresses) + came


@pytest.mark.forks
def test_a_fork_inside_is_one_call_of_the_parent(taken: Taken) -> None:
    calls = Calls(taken.library)
    taken.library.take_as(b"g", 0)
    before, came = taken.entered_and_left(taken.slot)[0], 0
    for number, address in enumerate(instructions(taken.own, adapter_of(taken.slot)), 1):
        came += calls.forking(taken.slot, 1, address)
        assert taken.entered_and_left(taken.slot) == (before + number,) * 2, hex(address)

    assert came > 60


def test_a_thread_that_is_stepped_calls_and_so_does_its_signal_handler(taken: Taken) -> None:
    calls = Calls(taken.library)
    inner = taken.marker("inner", taken.slot.probe)
    taken.library.take_as(b"g", 0)
    outside = taken.entered_and_left(inner)[0]
    before, after = taken.entered_and_left(taken.slot)[0], 1
    while calls.stepped(taken.slot, inner, after):
        assert taken.entered_and_left(taken.slot) == (before + after,) * 2
        assert taken.entered_and_left(inner) == (outside + after,) * 2
        after += 1

    assert after > 60
    assert taken.counts[0] == 2 * after - 1


def test_a_thread_that_is_inside_is_counted_on_whatever_cpu_it_leaves(taken: Taken) -> None:
    cpus = os.sched_getaffinity(0)
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")
    marker = taken.own.arena.markers.at(taken.slot.data)
    assert marker is not None
    seen: list[bool] = []

    def move(*_: object) -> None:
        os.sched_setaffinity(0, {max(cpus)})
        seen.append(taken.own.arena.calls.is_entered([marker]))

    inside = ctypes.CFUNCTYPE(None)(move)
    slot = taken.marker("m", 0)
    slot.probe = (ctypes.cast(inside, ctypes.c_void_p).value or 0) | PROBE_COUNTED
    if slot.probe & 3 != PROBE_COUNTED:
        pytest.skip("the closure is not at a multiple of four")
    slot.adapter = taken.own.arena.adapter(vectors=True)
    try:
        os.sched_setaffinity(0, {min(cpus)})
        slot.hit()
    finally:
        os.sched_setaffinity(0, cpus)

    assert seen == [True]
    assert not taken.own.arena.calls.is_entered([marker])

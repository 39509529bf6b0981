"""The adapters: a C function that a body reaches by a preserving call gets its arguments, and the
body gets back all its registers."""

from __future__ import annotations

import ctypes
import struct
from ctypes import c_double, c_uint64
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from markerjit.abi import PROBE_COUNTED
from tests.support.own_arena import OwnArena, Slot, load_calls

VECTORS = pytest.mark.parametrize("vectors", [False, True])
INLINE = 2


class Taken:
    """A slot whose probe is the function `take` of calls.c."""

    def __init__(self, folder: Path, *, vectors: bool) -> None:
        self.own = OwnArena()
        self.library = load_calls(folder)
        self.library.take_as.restype = ctypes.POINTER(c_uint64)
        self.library.times_taken.restype = c_uint64
        self.vectors = vectors
        address = ctypes.cast(self.library.take, ctypes.c_void_p).value or 0
        self.slot = Slot(probe=address | PROBE_COUNTED, preserving=1)
        self.slot.adapter = self.own.arena.adapter(vectors=vectors)

    def hit(self, *args: object) -> list[int]:
        """What the function found, after a call of which all registers came back."""
        kinds = "".join("f" if isinstance(one, c_double) else "g" for one in args).encode()
        found = self.library.take_as(kinds, int(self.vectors))
        self.slot.hit(*args)
        return list(found[: len(args)])

    @property
    def counts(self) -> tuple[int, int, int]:
        """How often it was called, and what the slot has counted."""
        return self.library.times_taken(), self.slot.entered, self.slot.left


@pytest.fixture(scope="module", params=[False, True], ids=["general", "vectors"])
def taken(
    request: pytest.FixtureRequest, build: Path, tmp_path_factory: pytest.TempPathFactory
) -> Taken:
    return Taken(tmp_path_factory.mktemp("calls"), vectors=request.param)


def bits(real: float) -> int:
    return int.from_bytes(struct.pack("<d", real), "little")


@pytest.mark.parametrize("count", range(13))
def test_so_many_words_arrive(taken: Taken, count: int) -> None:
    assert taken.hit(*[c_uint64(at + 10) for at in range(count)]) == [*range(10, 10 + count)]
    assert taken.counts[0] == 1


@settings(max_examples=60, deadline=None)
@given(drawn=st.lists(st.integers(0, (1 << 64) - 1) | st.floats(allow_nan=False), max_size=12))
def test_any_words_and_doubles_arrive_in_their_order(
    taken: Taken, drawn: list[int | float]
) -> None:
    args = [c_double(one) if isinstance(one, float) else c_uint64(one) for one in drawn]

    assert taken.hit(*args) == [bits(x) if isinstance(x, float) else x for x in drawn]


def test_calls_are_counted(taken: Taken) -> None:
    before = taken.slot.entered

    for _ in range(3):
        taken.hit(c_uint64(1))

    assert taken.counts[1:] == (before + 3, before + 3)


@pytest.mark.parametrize("probe", [PROBE_COUNTED, INLINE | PROBE_COUNTED])
def test_nothing_is_called_where_the_probe_is_gone(taken: Taken, probe: int) -> None:
    """The body saw it, and the adapter does not any more."""
    before, taken.slot.probe = taken.slot.probe, probe
    taken.hit(c_uint64(1))
    assert taken.counts[0] == 0
    assert taken.slot.entered == taken.slot.left

    taken.slot.probe = before
    assert taken.hit(c_uint64(1)) == [1]


def test_nothing_is_called_through_an_adapter_that_was_replaced(taken: Taken) -> None:
    """Another one serves the slot: the probe there may need it."""
    slot, own = taken.slot, taken.own
    adapter = own.arena.adapter(vectors=not taken.vectors)
    other = Slot(probe=slot.probe, adapter=adapter, preserving=1)
    taken.library.take_as(b"g", 0)
    # A body that had loaded the old address: it calls it directly.
    stale = Slot.from_buffer_copy(other)
    assert stale.adapter != slot.adapter

    taken.library.call_stale(ctypes.byref(stale), c_uint64(slot.adapter))

    assert taken.counts[0] == 0
    assert (stale.entered, stale.left) == (1, 1)

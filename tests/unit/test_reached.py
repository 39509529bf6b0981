"""Showing what a slot leads to, where the process may have written anything into its arena."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

import markerjit.abi as abi
from markerjit.arena.arena import Arena
from markerjit.elf import Read
from markerjit.errors import MemoryFault
from markerjit.model import RemoteAddress
from markerjit.probes.reached import Content, reached
from tests.support.made_arena import BASE, FULL_PAGES, make_arena, make_store

ENTRY_SIZE = ctypes.sizeof(abi.MarkerEntry)


def arena_with(entry: bytes, marker: bytes, code: bytes) -> Arena:
    store = make_store(FULL_PAGES)
    store.write(0, entry)
    store.write(4096, code)
    arena = make_arena(store=store)
    arena.control.write("markers_used", 1)
    arena.store.write(FULL_PAGES.markers.at(0), marker)
    return arena


@given(
    entry=st.binary(min_size=ctypes.sizeof(abi.Entry), max_size=ctypes.sizeof(abi.Entry)),
    marker=st.binary(min_size=ENTRY_SIZE, max_size=ENTRY_SIZE),
    code=st.binary(max_size=64),
    preserving=st.booleans(),
    counted=st.booleans(),
)
def test_nonsense_in_an_arena_is_a_remark_and_no_error(
    entry: bytes, marker: bytes, code: bytes, preserving: bool, counted: bool
) -> None:
    arena = arena_with(entry, marker, code)
    probes = [
        arena.count_probe(preserving=preserving),
        arena.record_probe(0, preserving=preserving),
        RemoteAddress(BASE + 4096),
    ]

    for probe in probes:
        content = Content(
            RemoteAddress(probe | counted), arena.markers.address(0), arena.adapter(vectors=False)
        )
        try:
            shown = reached(arena, arena_read(arena), content, preserving=preserving)
        except MemoryFault:
            continue  # it leads out of the arena
        assert shown.usual or shown.remarks


def arena_read(arena: Arena) -> Read:
    """Reads what is in the arena, and nothing else."""

    def read(address: RemoteAddress, size: int) -> bytes:
        if not arena.base <= address <= address + size <= arena.base + FULL_PAGES.size:
            raise MemoryFault(address, size, "read", "outside of the arena")
        return arena.store.read(address - arena.base, size)

    return read


@pytest.mark.parametrize("ends", [(0, 0), (64, 32), (64, 1 << 31)])
def test_sequence_that_ends_before_it_begins_is_a_remark(ends: tuple[int, int]) -> None:
    entry = abi.Entry(count_block=4096)
    sequence = entry.sequences[abi.SEQUENCE_COUNT]
    sequence.start, sequence.end = 4096 + ends[0], 4096 + ends[1]
    arena = arena_with(bytes(entry), bytes(ENTRY_SIZE), b"\x90" * 128)
    probe = arena.count_probe(preserving=True)

    shown = reached(
        arena, arena_read(arena), Content(probe, arena.markers.address(0)), preserving=True
    )

    assert not shown.usual
    assert "makes no sense" in shown.remarks[0]

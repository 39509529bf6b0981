"""Runs and their sequences look like the values that they stand for."""

from __future__ import annotations

from typing import Any

import pytest

from markerjit.arena.pack import ADDRESS, pack, unpack
from markerjit.model import Edit, RemoteAddress
from markerjit.runs import Run, Runs, parts_of

EDIT = Edit(RemoteAddress(0), b"\x05", b"\x00", "a site", True, 2)
PLACES = [0x1001, 0x1031, 0x2001]


def values() -> list[tuple[Any, tuple[Edit, ...]]]:
    """Runs, and what they stand for."""
    several = tuple(EDIT._replace(address=RemoteAddress(place)) for place in PLACES)
    run = Run(EDIT, {ADDRESS: PLACES})
    return [(run, several), (Runs([[EDIT], run, [], (EDIT, EDIT)]), (EDIT, *several, EDIT, EDIT)),
            (Runs([]), ())]  # fmt: skip


@pytest.mark.parametrize(("run", "same"), values())
def test_a_run_looks_like_a_tuple_of_its_values(run: Any, same: tuple[Edit, ...]) -> None:
    assert run == same
    assert run == Runs([same])
    assert run != (*same, EDIT)
    assert hash(run) == hash(same)
    assert repr(run) == repr(same)
    assert len(run) == len(same)
    assert [*run] == [*same]
    assert [type(value) for value in run] == [Edit] * len(same)
    for index in range(-len(same), len(same)):
        assert run[index] == same[index]
    assert run[1:-1] == same[1:-1]
    for index in (len(same), -len(same) - 1):
        with pytest.raises(IndexError):
            run[index]


@pytest.mark.parametrize(("run", "same"), values())
def test_runs_are_packed_as_their_edits_are(run: Any, same: tuple[Edit, ...]) -> None:
    packed = pack(run)

    assert packed == pack(same)
    assert [edit.address for edit in unpack(packed)] == [edit.address for edit in same]


def test_the_parts_of_values_without_a_run_are_themselves() -> None:
    assert parts_of((EDIT,)) == ((EDIT,),)

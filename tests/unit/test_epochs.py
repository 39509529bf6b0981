"""Epochs of the directories of code, on the memory of stacks in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from markerjit.abi import DIRECTORIES, CodeEntry
from tests.support.own_stacks import OwnStacks

MAIN = CodeEntry(0x1000, 0x2000, 0, 0, 0x1100, 7)
FIRST = CodeEntry(0x5000, 0x6000, 0, 0x5000, 0x5100, 1)
SECOND = CodeEntry(0x5800, 0x7000, 0, 0x5000, 0x5100, 2)
ELSEWHERE = CodeEntry(0x8000, 0x9000, 0, 0x8000, 0x8100, 1)
MADE = CodeEntry(0x5000, 0x5800)
"""Code that a program has made for itself."""


@pytest.fixture
def own() -> Iterator[OwnStacks]:
    made = OwnStacks()
    yield made
    made.reading.close()


def epochs(own: OwnStacks, *directories: list[CodeEntry]) -> int:
    """How many epochs there are after these directories."""
    for entries in directories:
        own.enter(entries)
    return max(own.stacks.extents()) + 1


def test_an_object_that_comes_goes_and_comes_back_is_in_one_epoch(own: OwnStacks) -> None:
    assert epochs(own, [MAIN], [MAIN, FIRST], [MAIN], [MAIN, FIRST], [MAIN, FIRST, ELSEWHERE]) == 1


@pytest.mark.parametrize(("first", "then"), [(FIRST, SECOND), (FIRST, MADE), (MADE, FIRST)])
def test_another_object_at_an_address_begins_an_epoch(
    own: OwnStacks, first: CodeEntry, then: CodeEntry
) -> None:
    assert epochs(own, [MAIN, first], [MAIN, then]) == 2


def test_an_object_that_went_is_remembered_until_another_one_comes(own: OwnStacks) -> None:
    assert epochs(own, [MAIN, FIRST], [MAIN], [MAIN, ELSEWHERE], [MAIN, SECOND]) == 2


def test_an_object_that_would_be_forgotten_begins_an_epoch(own: OwnStacks) -> None:
    assert epochs(own, [MAIN, FIRST], *[[MAIN]] * (DIRECTORIES - 1)) == 1
    assert epochs(own, [MAIN]) == 2


def test_an_epoch_has_each_object_that_was_there(own: OwnStacks) -> None:
    epochs(own, [MAIN, FIRST], [MAIN], [MAIN, SECOND])

    codes = [{extent.object.value for extent in each} for each in own.stacks.extents().values()]
    assert codes == [{7, 1}, {7, 2}]


def test_directories_that_were_written_over_begin_no_more_than_an_epoch(own: OwnStacks) -> None:
    own.enter([MAIN, FIRST])
    own.store.write(0, b"\xff" * 256)

    own.enter([MAIN])

    assert isinstance(own.stacks.extents(), dict)

"""Columns on their way out of a stream: kept back until they are in order, then handed out."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest

from markerjit.events.order import KeptBack, Ready
from markerjit.ring.batch import Columns
from markerjit.ring.types import RecordType
from tests.support.made_records import I32, make_type

GET, PUT = make_type(1, "get", "n %d", I32), make_type(2, "put", "n %d", I32)


def columns(type_: RecordType, *times: int) -> Columns:
    count = len(times)
    return Columns(
        type_,
        np.array(times, np.uint64),
        np.zeros(count, np.uint16),
        np.zeros(count, np.uint32),
        {"n": np.arange(count, dtype=np.int32)},
    )


def times(parts: list[Columns]) -> dict[str, list[int]]:
    return {part.type.marker: part.time.tolist() for part in parts}


def ready(*added: list[Columns]) -> Ready:
    made = Ready()
    for parts in added:
        made.add(parts)
    return made


# ---- kept back -----------------------------------------------------------------------------------


def test_what_is_released_is_before_the_moment_and_the_rest_stays() -> None:
    kept = KeptBack()
    kept.add([columns(GET, 1, 5), columns(PUT, 7)])
    kept.add([columns(GET, 3, 9)])

    assert times(kept.release(5)) == {"get": [1, 3]}
    assert times(kept.release(8)) == {"get": [5], "put": [7]}
    assert times(kept.release(None)) == {"get": [9]}
    assert kept.release(None) == []


def test_a_record_from_far_ahead_is_released_at_once() -> None:
    kept = KeptBack()
    kept.add([columns(GET, 4, 6, 1 << 40)])

    assert times(kept.release(5)) == {"get": [4, 1 << 40]}
    assert times(kept.release(None)) == {"get": [6]}


# ---- ready ---------------------------------------------------------------------------------------


def test_no_more_are_taken_than_one_add_has_brought() -> None:
    made = ready([columns(GET, 1, 3), columns(PUT, 2)], [columns(GET, 9)])

    assert len(made) == 4
    assert times(made.take(2)) == {"get": [1], "put": [2]}
    assert times(made.take(None)) == {"get": [3]}
    assert times(made.take(5)) == {"get": [9]}
    assert made.take(None) == []


@pytest.mark.parametrize(
    ("most", "until", "lists", "remaining"),
    [
        (None, None, [[1, 2, 3], [8, 9]], 0),
        (4, None, [[1, 2, 3], [8]], 1),
        (2, None, [[1, 2]], 3),
        (None, 2, [[1, 2]], 3),
        (None, 8, [[1, 2, 3], [8]], 1),
        (1, 8, [[1]], 4),
        (None, 0, [], 5),
    ],
)
def test_a_list_comes_for_each_add_up_to_the_number_and_the_moment(
    most: int | None, until: int | None, lists: list[list[int]], remaining: int
) -> None:
    made = ready([columns(GET, 1, 3), columns(PUT, 2)], [columns(PUT, 8, 9)])

    taken = [*made.take_each(most, until)]

    assert [sorted(chain(*times(parts).values())) for parts in taken] == lists
    assert len(made) == remaining


def test_the_time_that_is_due_is_that_of_the_last_of_so_many() -> None:
    made = ready([columns(GET, 1, 3), columns(PUT, 2)], [columns(GET, 9)])

    assert [made.due(most) for most in (1, 2, 3, 4)] == [1, 2, 3, None]

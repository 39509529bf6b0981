"""Edits that know where the numbers of a layout stand: how real seeds become hostile inputs.

An edit is three numbers, so hypothesis can shrink one, and a pseudo-random generator can make one
for atheris; `apply` gives them a meaning. It does not know what is in the bytes: a harness says
which places are worth it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple


class Place(NamedTuple):
    """A little-endian number in an input."""

    at: int
    width: int


class Edit(NamedTuple):
    """`what` is one of the ways below; `where` and `how` are any numbers, taken modulo."""

    what: int
    where: int
    how: int


def apply(data: bytes, places: Sequence[Place], edits: Sequence[Edit]) -> bytes:
    """The input after all edits, in their order."""
    changed = bytearray(data)
    for edit in edits:
        _WAYS[edit.what % len(_WAYS)](changed, places, edit.where, edit.how)
    return bytes(changed)


def random_edits(rng: random.Random) -> list[Edit]:
    """One to four edits."""
    return [
        Edit(rng.randrange(len(_WAYS)), rng.getrandbits(32), rng.getrandbits(64))
        for _ in range(rng.randint(1, 4))
    ]


def _set(data: bytearray, places: Sequence[Place], where: int, how: int) -> None:
    """A number becomes one at which arithmetic breaks, or one like itself, or that of another."""
    if not places:
        return _byte(data, places, where, how)
    place, other = places[where % len(places)], places[(how >> 8) % len(places)]
    top = (1 << 8 * place.width) - 1
    old = _number(data, place)
    rest = how >> 8
    choices = (
        0, 1, top, top >> 1, (top >> 1) + 1, old + 1, old - 1, old + 8, old - 8, old * 2, old >> 1,
        old ^ 1 << rest % (8 * place.width), rest, rest & 0xFF, _number(data, other),
        _number(data, places[(where + 1) % len(places)]),
    )  # fmt: skip
    value = choices[how % 256 % len(choices)] & top
    if place.at + place.width <= len(data):
        data[place.at : place.at + place.width] = value.to_bytes(place.width, "little")
    return None


def _byte(data: bytearray, _: Sequence[Place], where: int, how: int) -> None:
    if data:
        data[where % len(data)] = how & 0xFF


def _cut(data: bytearray, _: Sequence[Place], where: int, how: int) -> None:
    """Cut the end off: a little of it mostly, and sometimes anywhere."""
    keep = where % (len(data) + 1)
    del data[keep if how % 4 == 0 else max(keep, len(data) - how % 64) :]


def _remove(data: bytearray, _: Sequence[Place], where: int, how: int) -> None:
    start = where % (len(data) + 1)
    del data[start : start + how % 16]


def _repeat(data: bytearray, _: Sequence[Place], where: int, how: int) -> None:
    """A stretch comes twice; what is behind it moves."""
    start = where % (len(data) + 1)
    stretch = data[start : start + how % 64]
    data[start:start] = stretch


def _copy_over(data: bytearray, _: Sequence[Place], where: int, how: int) -> None:
    """A stretch stands in another place too; nothing moves."""
    size = how % 64
    if len(data) > size:
        source = (how >> 8) % (len(data) - size)
        target = where % (len(data) - size)
        data[target : target + size] = data[source : source + size]


# Three times: most edits are of numbers.
_WAYS = (_set, _set, _set, _byte, _cut, _remove, _repeat, _copy_over)


def _number(data: bytearray, place: Place) -> int:
    return int.from_bytes(data[place.at : place.at + place.width], "little")

"""The tests that `make test` runs out of all of them.

A test marked `long` is left out: it takes seconds, and a short one shows the same. So is a row of
its parameters with that mark: other rows show it. Of a test marked `product`, whose parameters are
tried in each combination, rows are taken in which each value of each parameter occurs. The choice
depends on nothing but the tests that were collected. That another test stays for each one that goes
is what tests/unit/test_choice.py looks at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")

LONG, PRODUCT = "long", "product"
ALL_EXAMPLES, CHOSEN_EXAMPLES = 100, 25
"""How often a property is tried that does not say so itself. Each run tries others."""


def examples(most: int) -> int:
    """How often a property is tried that is worth `most` times: a share of them where the tests are
    chosen, as in the profile of tests/conftest.py."""
    return most * settings.default.max_examples // ALL_EXAMPLES


def share(values: Sequence[T], of: int, turn: int) -> Sequence[T]:
    """What is tried of values one by one, again and again with other things: all of them, or where
    the tests are chosen each `of`-th, from another one on at each turn."""
    return values[turn % spacing(of) :: spacing(of)]


def spacing(of: int) -> int:
    """How far values that are tried are apart: `of` where the tests are chosen, else 1."""
    return 1 if examples(ALL_EXAMPLES) == ALL_EXAMPLES else of


def chosen(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The tests that stay, in their order."""
    items = [item for item in items if item.get_closest_marker(LONG) is None]
    products: dict[tuple[object, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker(PRODUCT):
            products[item.parent, getattr(item, "originalname", item.name)].append(item)
    left: set[pytest.Item] = set()
    for product in products.values():
        stay = representatives([_row(item) for item in product])
        left.update(item for index, item in enumerate(product) if index not in stay)
    return [item for item in items if item not in left]


def representatives(rows: Sequence[Sequence[Hashable]]) -> set[int]:
    """The indexes of rows in which each value of each column occurs: always the first of those with
    the most values that are in none yet."""
    values = [set(enumerate(row)) for row in rows]
    missing = set().union(*values)
    taken: set[int] = set()
    while missing:
        best = max(range(len(rows)), key=lambda index: len(values[index] & missing))
        missing -= values[best]
        taken.add(best)
    return taken


def _row(item: pytest.Item) -> list[Hashable]:
    """The value of each parameter; those that are given together are one. Values are told apart as
    objects, which all items of a test share."""
    left = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    row: list[Hashable] = []
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0]
        names = names.split(",") if isinstance(names, str) else names
        row.append(tuple(id(left.pop(name.strip(), None)) for name in names))
    return [*row, *map(id, left.values())]

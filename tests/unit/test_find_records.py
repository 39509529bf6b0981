"""Records in a ring are found whatever their fields look like."""

from __future__ import annotations

import random

import numpy as np
import pytest

from markerjit.ring import find
from markerjit.ring.by_marker import ByMarker
from tests.support.heads import head_of, marker_and_words

LARGE = 3_000_000


def one_by_one(words: list[int], least: dict[int, int]) -> tuple[list[int], bool]:
    starts, at = [], 0
    while at < len(words):
        marker, size = marker_and_words(words[at] & 0xFFFFFFFF)
        if size < least.get(marker, 0xFFFF) or size > len(words) - at:
            break
        starts.append(at)
        at += size
    return starts, at == len(words)


def test_records_are_found_whatever_their_fields_look_like(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in range(500):
        find_misleading(monkeypatch, random.Random(seed))


def find_misleading(monkeypatch: pytest.MonkeyPatch, random_: random.Random) -> None:
    """Compare what is found with a walk record by record, where some fields look like headers."""
    monkeypatch.setattr(find, "_LANE", random_.choice([8, 16, 64]))
    monkeypatch.setattr(find, "_GUESSES", random_.choice([1, 4, 16]))
    monkeypatch.setattr(find, "_FEW", 130)
    smallest = {1: 2, 2: 3, 5: 1, LARGE: 2}
    least = ByMarker(smallest, np.uint16, others=0xFFFF, filler=1)
    misleading = random_.random()
    words: list[int] = []
    enough = random_.choice([50, 200, 400])
    while len(words) < enough:
        marker = random_.choice([1, 2, 5, LARGE])
        size = random_.randint(3, random_.choice([3, 4, 30]))
        words.append(head_of(marker, size))
        for _ in range(size - 1):
            like = head_of(random_.choice([1, 2, 5, LARGE]), random_.randint(1, 9))
            words.append(like if random_.random() < misleading else random_.getrandbits(64))
    if random_.random() < 0.7:
        words[random_.randrange(len(words))] = random_.getrandbits(64)
    if random_.random() < 0.2:
        words.pop()

    where, whole_ = find.find_records(np.array(words, np.uint64), least)

    assert (np.arange(len(words))[where].tolist(), whole_) == one_by_one(words, smallest)

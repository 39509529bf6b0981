"""Hashes of many texts at once are those of each by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from markerjit.arena import hashes
from markerjit.arena.hashes import fnv1a, image_id, know_hashes

TEXTS = [f"{'func:name_' * (number % 7)}{number}" for number in range(500)]


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    hashes._KNOWN.clear()
    yield
    hashes._KNOWN.clear()


def test_hashes_of_many_texts_are_those_of_each() -> None:
    alone = {text: fnv1a(text.encode()) for text in TEXTS}
    hashes._KNOWN.clear()

    know_hashes([*TEXTS, "", *TEXTS[:3]])

    assert {key.decode(): value for key, value in hashes._KNOWN.items()} == {
        **alone, "": fnv1a(b"")
    }  # fmt: skip


def test_a_hash_that_would_be_0_is_1_among_many_too() -> None:
    zero = bytes.fromhex("d56bb95342870836")
    texts = [bytes([number]) * 8 for number in range(100)]

    assert hashes._by_columns([*texts, zero]) == [*map(fnv1a, texts), 1]


def test_few_are_left_for_the_one_who_asks() -> None:
    know_hashes(TEXTS[:10])

    assert not hashes._KNOWN


def test_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "_MOST", 600)

    know_hashes(TEXTS)
    for number in range(1000):
        assert fnv1a(b"%d" % number) == fnv1a(b"%d" % number)
        assert len(hashes._KNOWN) <= 600
    fnv1a(bytes(1 << 16))

    assert len(hashes._KNOWN) <= 600
    assert bytes(1 << 16) not in hashes._KNOWN


def test_the_id_of_an_image_depends_on_each_of_its_bytes() -> None:
    code = bytes(range(250))
    others = {image_id(code[:at] + b"\xff" + code[at + 1 :]) for at in range(len(code))}

    assert len(others | {image_id(code)}) == len(code) + 1
    assert image_id(code) == image_id(bytes(bytearray(code))) != image_id(code[:-1])

"""The first four bytes of a record, as abi.h says: not by the code that is tested."""

from __future__ import annotations


def head_of(marker: int, words: int) -> int:
    """The head of a record of so many words."""
    assert 0 <= marker < 1 << 22
    assert 0 <= words < 1 << 10
    return words << 22 | marker


def marker_and_words(head: int) -> tuple[int, int]:
    """The marker's id, and the words of the record."""
    return head & 0x3FFFFF, head >> 22

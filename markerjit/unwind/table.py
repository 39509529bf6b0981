"""The rules of an object by address: a table, made from its `.eh_frame`.

A table is one run of bytes, the same in a file, in our memory and in a process's: a header and
three arrays of 32-bit numbers, all little endian.

    blocks  for each 256 bytes of code the place of the rule at its first byte, and that of the last
    starts  where a rule begins to hold, counted from `low`; in order, the first is 0
    rules   what holds from there on, up to the next one (rules.py); the last one is NONE

So a look-up reads one word of `blocks`, and goes through the few rules of 256 bytes of code.
"""

from __future__ import annotations

import bisect
import struct
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from markerjit.elf.functions import Functions
from markerjit.elf.unwind_rows import Row, rows_of
from markerjit.errors import MarkerError
from markerjit.unwind.rules import Kind, Rule, decode, encode, rule_of

BLOCK_BITS = 8
MAX_RULES = 1 << 25
_MAGIC = b"mjunwind"
_VERSION = 1
_HEADER = struct.Struct("<8sIIQQ")  # magic, version, rules, low, high
_HIGHEST = (1 << 32) - 1

Words = NDArray[np.uint32]

_PADDING = 16
"""Fewer bytes than this between two functions are no code."""

_NONE, _OTHER = encode(Rule(Kind.NONE)), encode(Rule(Kind.OTHER))


class BadTable(MarkerError):
    """Bytes are not a table, or an object cannot have one."""


class Table:
    """The rules of an object. Addresses are those of its file.

    low, high  where rules are known; outside there are none
    """

    def __init__(self, content: bytes) -> None:
        """Raises BadTable for anything but what `Table.content` was."""
        try:
            magic, version, count, self.low, self.high = _HEADER.unpack_from(content)
        except struct.error:
            raise BadTable("an unwind table without a header") from None
        if (magic, version) != (_MAGIC, _VERSION) or not 1 <= count <= MAX_RULES:
            raise BadTable("an unwind table of another kind")
        if not 0 <= self.high - self.low <= _HIGHEST:
            raise BadTable("an unwind table of no addresses")
        blocks = _blocks(self.high - self.low)
        if len(content) != _HEADER.size + 4 * (blocks + 2 * count):
            raise BadTable("an unwind table that was cut off")
        words = np.frombuffer(content, "<u4", blocks + 2 * count, _HEADER.size)
        self.content = content
        self.starts, self.rules = words[blocks : blocks + count], words[blocks + count :]
        if not np.array_equal(words[:blocks], _index(self.starts, self.high - self.low)):
            raise BadTable("an unwind table whose index is damaged")

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def _sorted(self) -> list[int]:
        starts: list[int] = self.starts.tolist()  # bisecting a list makes no numbers of numpy
        return starts

    def at(self, address: int) -> Rule:
        """The rule that holds at an address."""
        if not self.low <= address < self.high:
            return Rule(Kind.NONE)
        return decode(int(self.rules[bisect.bisect_right(self._sorted, address - self.low) - 1]))


def table_of(functions: Functions, name: str) -> Table:
    """The table of an object with these functions, which has this name. Raises BadTable for one of
    4 GiB of code, or of more than MAX_RULES rules."""
    starts, rules = _rules(functions)
    low = starts[0] >> BLOCK_BITS << BLOCK_BITS
    if low < starts[0]:
        starts.insert(0, low)
        rules.insert(0, _NONE)
    high = starts[-1]
    if high - low > _HIGHEST or len(starts) > MAX_RULES:
        raise BadTable(f"{name}: too much code for an unwind table")
    places: Words = np.subtract(np.array(starts, np.int64), low).astype("<u4")
    words = np.array(rules, "<u4")
    kept = np.ones(len(places), bool)
    kept[1:] = words[1:] != words[:-1]
    places, words = places[kept], words[kept]
    header = _HEADER.pack(_MAGIC, _VERSION, len(places), low, high)
    index = _index(places, high - low)
    return Table(b"".join([header, index.tobytes(), places.tobytes(), words.tobytes()]))


def _rules(functions: Functions) -> tuple[list[int], list[int]]:
    """Where rules begin, strictly in order, and the rules; the last one is NONE."""
    starts: list[int] = []
    rules: list[int] = []
    known: dict[tuple[object, ...], int] = {}
    firsts, ends = functions.starts.tolist(), functions.ends.tolist()
    for index, (first, end) in enumerate(zip(firsts, ends, strict=True)):
        following = firsts[index + 1] if index + 1 < len(firsts) else end + _PADDING
        end = min(end, following)
        if end <= first:
            continue
        try:
            for row in rows_of(functions, index):
                _add(starts, rules, min(first + row.offset, end), _word(known, row))
        except (IndexError, ValueError):
            _add(starts, rules, first if not starts else max(first, starts[-1]), _OTHER)
        if starts[-1] >= end:
            starts.pop()
            rules.pop()
        if end + _PADDING <= following:
            _add(starts, rules, end, _NONE)
    return starts, rules


def _add(starts: list[int], rules: list[int], start: int, rule: int) -> None:
    """A rule from this address on, in the place of one that was to begin there, too."""
    if starts and starts[-1] == start:
        rules[-1] = rule
    else:
        starts.append(start)
        rules.append(rule)


def _word(known: dict[tuple[object, ...], int], row: Row) -> int:
    key = row[1:]
    word = known.get(key)
    if word is None:
        word = known[key] = encode(rule_of(row))
    return word


def _blocks(size: int) -> int:
    """How many words the index of so many bytes of code has."""
    return (size >> BLOCK_BITS) + 2


def _index(starts: Words, size: int) -> Words:
    """For each block the place of the rule at its first byte."""
    if not len(starts) or starts[0] or bool(np.any(starts[1:] <= starts[:-1])):
        raise BadTable("an unwind table that is not in order")
    firsts = np.arange(_blocks(size), dtype=np.int64) << BLOCK_BITS
    return (np.searchsorted(starts, firsts, "right") - 1).astype("<u4")

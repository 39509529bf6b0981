"""A marker of this process that adds to an aggregate, and is hit by the test."""

from __future__ import annotations

import ctypes
import mmap

from markerjit.arena.aggregates import Aggregates, Size
from markerjit.events.aggregates import Answers, answers_of, totals_of, words_of
from markerjit.model import CType, Signature, TypeClass
from markerjit.patch.request import AddUp
from markerjit.probes.adding import ask_markers
from markerjit.probes.recorders import Recorders
from markerjit.questions.aggregates import parse_aggregate
from tests.support.own_arena import CHARS, DOUBLE, LONG, OwnArena, Slot, address_of

UNSIGNED = CType(TypeClass.UNSIGNED, 8)
FORMAT = "key %ld size %lu half %g text %s"
SIGNATURE = Signature("m", FORMAT, (LONG, UNSIGNED, DOUBLE, CHARS))
_PAGE = 4096
_TEXTS = mmap.mmap(-1, 2 * _PAGE)


def placed(text: bytes | None, page: int = 0, at: int = 0) -> ctypes.c_uint64:
    """The address of a text in one of two pages, at its beginning or so many bytes behind. One
    whose last word is not in its page is always left to the runtime, and Python puts its texts
    anywhere."""
    if text is None:
        return ctypes.c_uint64(0)
    at += page * _PAGE
    _TEXTS[at : at + len(text) + 1] = text + b"\0"
    return ctypes.c_uint64(address_of(_TEXTS) + at)


def give_back(aggregates: Aggregates, ticket: int) -> None:
    """End an aggregate to which no thread adds just now."""
    aggregates.free(ticket)
    aggregates.reclaim(lambda ticket: False)


class Adder:
    """A marker of this process that adds to an aggregate."""

    def __init__(
        self, own: OwnArena, what: str, *, by: str | None = None, where: str | None = None,
        keys: int = 16, text: int = 16, signature: Signature = SIGNATURE,
    ) -> None:  # fmt: skip
        self.asked = parse_aggregate(what, by=by, where=where, bytes_of_text=text)
        self.shape, _ = ask_markers(self.asked, [signature])
        self._arena = own.arena
        recorders = Recorders(own.arena)
        probe = AddUp.of(self.asked, self.shape)
        size = Size(self.shape.key_words, words_of(self.shape), keys)
        self.aggregate = own.arena.aggregates.make(size)
        recorders.tell([signature], probe)
        marker = recorders.find(signature, probe)
        assert marker is not None
        self.marker = marker
        own.arena.markers.set_aggregate(marker, self.aggregate.ticket)
        self.slot = Slot(
            probe=own.arena.asking_probe(marker),
            data=own.arena.markers.address(marker),
            preserving=1,
        )

    def hit(
        self, key: int = 0, size: int = 0, half: float = 0.0, text: bytes | None = b"text"
    ) -> None:
        self.slot.hit(
            ctypes.c_int64(key), ctypes.c_uint64(size), ctypes.c_double(half), placed(text)
        )

    def answers(self) -> Answers:
        copy = self._arena.aggregates.copy(self.aggregate)
        return answers_of(totals_of(copy, self.shape), self.shape, self.aggregate.size.room)

    def free(self) -> None:
        give_back(self._arena.aggregates, self.aggregate.ticket)

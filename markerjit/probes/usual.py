"""The usual case of an event that is added to an aggregate, assembled: nothing is called.

In one restartable sequence (native/src/runtime/restart.S says what that promises) the code

     1  names the sequence to the kernel; in the child of a fork, and in a thread without such
        sequences, it leaves the event to the runtime
     2  copies the texts of the key to the stack, and adds up the hash of the key
     3  finds the aggregate that the marker's entry names by its ticket
     4  searches the key from the place that its hash says
     5  changes the words of the key that are this CPU's (changes.py), by one instruction, the last:
        from now on the event is added

A reader that ends an aggregate takes its ticket away, and then stops all threads. So a sequence
that has seen the ticket is over before the memory is given to another aggregate.

Everything else goes to `slow`, where the runtime begins anew (aggregate.c): a key that is new, a
text whose page is not known to be readable, a number that is missing. Nothing has been changed by
then that the runtime does not change in the same way once more.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence

from markerjit.abi import (
    AGGREGATE_SIZE,
    HASH_FACTOR,
    HASH_STEP,
    RSEQ_CPU,
    RSEQ_SEQUENCE,
)
from markerjit.probes.changes import Change, of_entry
from markerjit.probes.compared import interrupted
from markerjit.probes.key_texts import DATA, TextPart, copies
from markerjit.probes.recorder import offset_of_thread
from markerjit.tuples import NamedTuple
from markerjit.x86.assemble import number, plus

LABELS = ("usual", "added", "interrupted")
"""The labels where the sequence begins and ends, and where it goes on when it was interrupted."""
INTERRUPTED = interrupted(LABELS[2], "slow")
"""Behind all other code."""
SEQUENCE = "sequence"
"""The name of the sequence."""

_WORD = 8
_NEEDS = ("rax", "rcx", "rdx", "rdi", "r10", "r11")
_ALL = (1 << 64) - 1


class NumberPart(NamedTuple):
    """A part of a key that is a number: its word among those that were computed."""

    at: int
    words: int = 1


class ConstantPart(NamedTuple):
    """A part of a key that is the same for all events: the bytes of its words."""

    constant: bytes

    @property
    def words(self) -> int:
        """Its words."""
        return len(self.constant) // _WORD


Part = NumberPart | ConstantPart | TextPart


class Usual(NamedTuple):
    """What is added in the usual case.

    key          the parts of the key
    change       what the event changes
    missing_at   the word that says whether a number is missing, plus 1; 0: none can be
    rseq_offset  where from its fs base a thread has its struct rseq
    """

    key: tuple[Part, ...]
    change: Change
    missing_at: int
    rseq_offset: int

    @property
    def needs(self) -> tuple[str, ...]:
        """Registers that have to be saved around the code."""
        return (*_NEEDS, *self.change.needs)

    @property
    def texts(self) -> list[TextPart]:
        """The parts that are texts."""
        return [part for part in self.key if isinstance(part, TextPart)]

    @property
    def words(self) -> int:
        """Words of the stack that the code needs."""
        return sum(text.room for text in self.texts) + self.change.words

    def data(self) -> dict[str, bytes]:
        """What the code refers to by name: for each text the factors of the words of its bytes,
        and for each constant part what it adds to the hash, and its words. So the code of many
        markers is the same."""
        made = dict(DATA) if self.texts else {}
        for at, first, part in self._placed():
            factors = [_factor(first + word) for word in range(part.words)]
            if isinstance(part, TextPart):
                made[f"factors{at}"] = _bytes_of(factors[1:])
            elif isinstance(part, ConstantPart):
                words = _words_of(part.constant)
                adds = sum(map(operator.mul, words, factors))
                made[f"constant{at}"] = _bytes_of([adds & _ALL, *words])
        return made

    def lines(self, room: int, arguments: int) -> Iterator[str]:
        """The code, which goes on at the label `no` where the event has been added, and behind
        itself, at `slow`, where it has not. `room` is where from rsp its words are, `arguments`
        where the marker's are."""
        places = self._texts_at(room)
        scratch = room + _WORD * (self.words - self.change.words)
        cpu = f"dword ptr fs:[{offset_of_thread(self.rseq_offset + RSEQ_CPU)}]"
        if self.missing_at:
            yield f"cmp qword ptr [rsp{plus(_WORD * (self.missing_at - 1))}], 0"
            yield "jne slow"
        yield f"lea rdx, [rip + {SEQUENCE}]"  # 1
        yield f"mov qword ptr fs:[{offset_of_thread(self.rseq_offset + RSEQ_SEQUENCE)}], rdx"
        yield f"{LABELS[0]}:"
        yield f"mov edi, {cpu}"
        yield "cmp edi, dword ptr [rip + alive]"
        yield "jae slow"
        texts = {at: part for at, _, part in self._placed() if isinstance(part, TextPart)}
        yield from copies(texts, places, arguments)  # 2
        yield from self._hash(places)
        yield from self._find_aggregate()  # 3
        yield from self._find_key(places)  # 4
        yield from self.change.lines(cpu, scratch)  # 5
        yield f"{LABELS[1]}:"
        yield "jmp no"
        yield "slow:"

    def _placed(self) -> Iterator[tuple[int, int, Part]]:
        """The parts of the key: the index, the first word, and the part."""
        first = 0
        for at, part in enumerate(self.key):
            yield at, first, part
            first += part.words

    def _texts_at(self, room: int) -> dict[int, int]:
        """Where from rsp each text is copied to, by the index of its part."""
        places = {}
        for at, _, part in self._placed():
            if isinstance(part, TextPart):
                places[at] = room
                room += _WORD * part.room
        return places

    def _hash(self, places: dict[int, int]) -> Iterator[str]:
        """mj_hash of the key, into rcx. A word that is 0 adds nothing, so of a text the first word
        is always added, and the others only where it has them."""
        if not self.key:
            yield "xor ecx, ecx"
        for at, first, part in self._placed():
            to = "rax" if first else "rcx"
            if isinstance(part, ConstantPart):
                yield f"mov {to}, qword ptr [rip + constant{at}]"
            else:
                place = places[at] if isinstance(part, TextPart) else _WORD * part.at
                yield f"movabs {to}, {number(_factor(first))}"
                yield f"imul {to}, qword ptr [rsp{plus(place)}]"
            if first:
                yield "add rcx, rax"
            if isinstance(part, TextPart) and part.words > 1:
                yield from _hash_of_bytes(at, places[at])
        yield "bswap rcx"

    def _find_aggregate(self) -> Iterator[str]:
        """Into r11."""
        yield "mov r10, qword ptr [rip + ticket]"
        yield "test r10, r10"
        yield "je slow"
        yield "movzx r11d, r10b"  # a ticket by AGGREGATES, which are 256
        yield f"imul r11, r11, {number(AGGREGATE_SIZE)}"
        yield "lea rax, [rip + aggregates]"
        yield "add r11, rax"
        yield "cmp qword ptr [r11], r10"
        yield "jne slow"
        words = sum(part.words for part in self.key)
        yield f"cmp {of_entry('key_words', 'dword')}, {number(words)}"
        yield "jne slow"

    def _find_key(self, places: dict[int, int]) -> Iterator[str]:
        """The number of the key at rsp, with the hash in rcx, into rax; and the arena into r10."""
        words = 1 + sum(part.words for part in self.key)
        yield from _place_of_hash("rdx", words)
        yield "add rdx, r10"
        yield "jmp place"
        yield "next:"
        yield "cmp dword ptr [rdx], 0"
        yield "je slow"  # it is free, so the key is new
        yield f"add rdx, {number(_WORD * words)}"
        yield f"mov edi, {of_entry('mask', 'dword')}"
        yield "inc rdi"
        yield f"imul rdi, rdi, {number(_WORD * words)}"
        yield f"add rdi, {of_entry('keys')}"
        yield "lea r10, [rip + arena]"
        yield "sub rdx, r10"
        yield "cmp rdx, rdi"
        yield f"cmove rdx, {of_entry('keys')}"  # behind the last place is the first one
        yield from _place_of_hash("rdi", words)
        yield "cmp rdx, rdi"
        yield "je slow"  # all have been looked at
        yield "add rdx, r10"
        yield "place:"
        yield "mov rdi, rcx"
        yield "shr rdi, 0x20"
        yield "cmp dword ptr [rdx + 4], edi"
        yield "jne next"
        for at, first, part in self._placed():
            place = _WORD * (1 + first)
            if isinstance(part, ConstantPart):
                yield from _unlike_constant(at, part, place)
                continue
            mine = places[at] if isinstance(part, TextPart) else _WORD * part.at
            yield f"mov rdi, qword ptr [rsp{plus(mine)}]"
            yield f"cmp qword ptr [rdx + {number(place)}], rdi"
            yield "jne next"
            if isinstance(part, TextPart) and part.words > 1:
                yield from _unlike_bytes(at, mine, place)
        if any(isinstance(part, ConstantPart) for part in self.key):
            yield "lea r10, [rip + arena]"
        yield "mov eax, dword ptr [rdx]"
        yield "sub eax, 2"  # where it has no number, it is a large one
        yield f"cmp eax, {of_entry('room', 'dword')}"
        yield "jae slow"


def _hash_of_bytes(at: int, place: int) -> Iterator[str]:
    """What the bytes of a text, behind the length at this offset from rsp, add to rcx."""
    yield f"mov rdi, qword ptr [rsp{plus(place)}]"
    yield f"mov rax, qword ptr [rsp{plus(place + _WORD)}]"
    yield f"imul rax, qword ptr [rip + factors{at}]"
    yield "add rcx, rax"
    yield f"cmp rdi, {number(_WORD)}"
    yield f"jbe hashed{at}"
    yield "add rdi, 7"
    yield "shr rdi, 3"
    yield f"lea r10, [rip + factors{at}]"
    yield f"word{at}:"
    yield f"mov rax, qword ptr [rsp + rdi*8{plus(place)}]"
    yield "imul rax, qword ptr [r10 + rdi*8 - 8]"
    yield "add rcx, rax"
    yield "dec rdi"
    yield "cmp rdi, 1"
    yield f"jne word{at}"
    yield f"hashed{at}:"


def _unlike_bytes(at: int, mine: int, place: int) -> Iterator[str]:
    """Go to `next` where the bytes of the text at this offset from rsp, whose length is in rdi, are
    not those at this offset from rdx. Behind a text of less than a word both have zeros."""
    yield f"mov rax, qword ptr [rsp{plus(mine + _WORD)}]"
    yield f"cmp qword ptr [rdx + {number(place + _WORD)}], rax"
    yield "jne next"
    yield f"cmp rdi, {number(_WORD)}"
    yield f"jbe same{at}"
    yield "add rdi, 7"
    yield "shr rdi, 3"
    yield f"like{at}:"
    yield f"mov rax, qword ptr [rsp + rdi*8{plus(mine)}]"
    yield f"cmp qword ptr [rdx + rdi*8 + {number(place)}], rax"
    yield "jne next"
    yield "dec rdi"
    yield "cmp rdi, 1"
    yield f"jne like{at}"
    yield f"same{at}:"


def _unlike_constant(at: int, part: ConstantPart, place: int) -> Iterator[str]:
    """Go to `next` where the words at this offset from rdx are not those of a constant."""
    yield f"lea r10, [rip + constant{at}]"
    yield f"mov edi, {number(part.words)}"
    yield f"like{at}:"
    yield "mov rax, qword ptr [r10 + rdi*8]"
    yield f"cmp qword ptr [rdx + rdi*8{plus(place - _WORD)}], rax"
    yield "jne next"
    yield "dec rdi"
    yield f"jne like{at}"


def _place_of_hash(register: str, words: int) -> Iterator[str]:
    """Where a key with the hash in rcx is searched first, an offset. The arena begins at r10."""
    half = {"rdx": "edx", "rdi": "edi"}[register]
    yield f"mov {half}, {of_entry('mask', 'dword')}"
    yield f"and {half}, ecx"
    yield f"imul {register}, {register}, {number(_WORD * words)}"
    yield f"add {register}, {of_entry('keys')}"
    yield "lea r10, [rip + arena]"


def _factor(word: int) -> int:
    """Of a word of a key in its hash."""
    return HASH_FACTOR * pow(HASH_STEP, word, 1 << 64) & _ALL


def _bytes_of(words: Sequence[int]) -> bytes:
    return b"".join(word.to_bytes(_WORD, "little") for word in words)


def _words_of(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + _WORD], "little") for at in range(0, len(data), _WORD)]

"""The usual case of an event that is added to an aggregate, assembled: nothing is called.

In one restartable sequence (native/src/runtime/restart.S says what that promises) the code

     1  names the sequence to the kernel; in the child of a fork, and in a thread without such
        sequences, it leaves the event to the runtime
     2  copies the texts of the key to the stack, and adds up the hash of the key
     3  finds the aggregate that the marker's entry names by its ticket
     4  searches the key from the place that its hash says
     5  finds the bucket of the value
     6  adds 1 to the word of this CPU: from now on the event is added

A reader that ends an aggregate takes its ticket away, and then stops all threads. So a sequence
that has seen the ticket is over before the memory is given to another aggregate.

Everything else goes to `slow`, where the runtime begins anew (aggregate.c): a key that is new, a
text whose page is not known to be readable, a number that is missing. Nothing has been changed by
then but the stack and the registers that are saved.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Self

from markerjit.abi import (
    AGGREGATE_SIZE,
    AGGREGATES,
    HASH_FACTOR,
    HASH_STEP,
    MISSED,
    OP_BYTES,
    OP_STRING,
    RSEQ_CPU,
    RSEQ_SEQUENCE,
    AggregateEntry,
    AskedText,
)
from markerjit.probes.compared import interrupted
from markerjit.probes.recorder import offset_of_thread
from markerjit.probes.texts import PAGE_MASK, Registers, known_page, window
from markerjit.questions.buckets import PARTS_BITS, Scale
from markerjit.questions.types import Type
from markerjit.tuples import NamedTuple
from markerjit.x86.assemble import number, plus

NEEDS = ("rax", "rcx", "rdx", "rdi", "r10", "r11")
"""Registers that have to be saved around the code."""
LABELS = ("usual", "added", "interrupted")
"""The labels where the sequence begins and ends, and where it goes on when it was interrupted."""
INTERRUPTED = interrupted(LABELS[2], "slow")
"""Behind all other code."""
SEQUENCE = "sequence"
"""The name of the sequence."""

_WORD = 8
_PAGE = Registers("r10", "r11", "rcx", "ecx", "rdx")
_LENGTH = _PAGE.window
"""The register with the bytes that are left of a text with a length."""
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


class TextPart(NamedTuple):
    """A part of a key that is an argument: which one, the most bytes it has in the key, and the
    words. Where it `is_cut`, what is behind these bytes is not in the key; otherwise it is longer
    than the key allows. It `has_length` where the argument before it is how many bytes it has at
    most."""

    arg: int
    most: int
    words: int
    is_cut: bool
    has_length: bool

    @classmethod
    def of(cls, asked: AskedText, words: int) -> Self | None:
        """A text as the runtime takes it. None where it is of another kind, or is no beginning."""
        is_cut = asked.high < asked.limit
        most = asked.high if is_cut else asked.limit
        is_other = asked.op not in (OP_STRING, OP_BYTES)
        if is_other or asked.low or most > _WORD * (words - 1):
            return None
        return cls(asked.arg, most, words, is_cut, asked.op == OP_BYTES)

    @property
    def room(self) -> int:
        """Words of the stack: its length, its bytes, and a NUL."""
        return 2 + self.most // _WORD


Part = NumberPart | ConstantPart | TextPart


class Usual(NamedTuple):
    """What is added in the usual case.

    key          the parts of the key
    scale        the buckets of the value; None for a count
    value_at     the value's word among those that were computed
    missing_at   the word that says whether one of them is missing, plus 1; 0: none can be
    rseq_offset  where from its fs base a thread has its struct rseq
    """

    key: Sequence[Part]
    scale: Scale | None
    value_at: int
    missing_at: int
    rseq_offset: int

    @property
    def texts(self) -> list[TextPart]:
        """The parts that are texts."""
        return [part for part in self.key if isinstance(part, TextPart)]

    @property
    def words(self) -> int:
        """Words of the stack that the code needs."""
        return sum(text.room for text in self.texts)

    def data(self) -> dict[str, bytes]:
        """What the code refers to by name: for each text the factors of the words of its bytes,
        and for each constant part what it adds to the hash, and its words. So the code of many
        markers is the same."""
        made = {"ones": b"\x01" * _WORD, "highs": b"\x80" * _WORD} if self.texts else {}
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
        yield from self._copies(places, arguments)  # 2
        yield from self._hash(places)
        yield from self._find_aggregate()  # 3
        yield from self._find_key(places)  # 4
        yield f"mov ecx, {_of_entry('words', 'dword')}"
        yield "imul rax, rcx"
        if self.scale:
            yield from self._bucket(self.scale)  # 5
        yield f"mov edi, {cpu}"
        yield f"imul rdi, {_of_entry('stride')}"
        yield f"add rdi, {_of_entry('values')}"
        yield "lea r10, [rip + arena]"
        yield "add rdi, r10"
        yield f"inc qword ptr [rdi + rax*8 + {number(_WORD * MISSED)}]"  # 6
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

    def _copies(self, places: dict[int, int], arguments: int) -> Iterator[str]:
        """Each text with its length before it, and zeros up to the end of its last word."""
        has_window = False
        for at, _, part in self._placed():
            if isinstance(part, TextPart):
                if not has_window:
                    yield from ("rdtsc", "shl rdx, 0x20", "or rax, rdx", *window(_PAGE.window))
                yield f"mov r10, qword ptr [rsp + {number(arguments + _WORD * part.arg)}]"
                yield from known_page(_PAGE)
                if part.has_length:
                    length = number(arguments + _WORD * (part.arg - 1))
                    yield f"mov {_LENGTH}d, dword ptr [rsp + {length}]"
                    yield f"test {_LENGTH}d, {_LENGTH}d"
                    yield "js slow"
                yield from _copy(at, part, places[at])
                has_window = not part.has_length  # both are in the same register

    def _hash(self, places: dict[int, int]) -> Iterator[str]:
        """mj_hash of the key, into rcx. A word that is 0 adds nothing."""
        yield "xor ecx, ecx"
        for at, first, part in self._placed():
            if isinstance(part, ConstantPart):
                yield f"add rcx, qword ptr [rip + constant{at}]"
                continue
            is_text = isinstance(part, TextPart)
            place = places[at] if isinstance(part, TextPart) else _WORD * part.at
            yield f"mov rax, qword ptr [rsp{plus(place)}]"
            if is_text:
                yield "lea rdi, [rax + 7]"
            yield f"movabs rdx, {number(_factor(first))}"
            yield "imul rax, rdx"
            yield "add rcx, rax"
            if is_text:
                yield "shr rdi, 3"
                yield f"je hashed{at}"
                yield f"lea r10, [rip + factors{at}]"
                yield f"word{at}:"
                yield f"mov rax, qword ptr [rsp + rdi*8{plus(place)}]"
                yield "imul rax, qword ptr [r10 + rdi*8 - 8]"
                yield "add rcx, rax"
                yield "dec rdi"
                yield f"jne word{at}"
                yield f"hashed{at}:"
        yield "bswap rcx"

    def _find_aggregate(self) -> Iterator[str]:
        """Into r11."""
        yield "mov r10, qword ptr [rip + ticket]"
        yield "test r10, r10"
        yield "je slow"
        yield f"mov r11d, {number(AGGREGATES - 1)}"
        yield "and r11d, r10d"
        yield f"imul r11, r11, {number(AGGREGATE_SIZE)}"
        yield "lea rax, [rip + aggregates]"
        yield "add r11, rax"
        yield "cmp qword ptr [r11], r10"
        yield "jne slow"
        words = sum(part.words for part in self.key)
        yield f"cmp {_of_entry('key_words', 'dword')}, {number(words)}"
        yield "jne slow"

    def _find_key(self, places: dict[int, int]) -> Iterator[str]:
        """The number of the key at rsp, with the hash in rcx, into rax."""
        words = 1 + sum(part.words for part in self.key)
        yield from _place_of_hash("rdx", words)
        yield "add rdx, r10"
        yield "jmp place"
        yield "next:"
        yield f"add rdx, {number(_WORD * words)}"
        yield f"mov edi, {_of_entry('mask', 'dword')}"
        yield "inc rdi"
        yield f"imul rdi, rdi, {number(_WORD * words)}"
        yield f"add rdi, {_of_entry('keys')}"
        yield "lea r10, [rip + arena]"
        yield "sub rdx, r10"
        yield "cmp rdx, rdi"
        yield f"cmove rdx, {_of_entry('keys')}"  # behind the last place is the first one
        yield from _place_of_hash("rdi", words)
        yield "cmp rdx, rdi"
        yield "je slow"  # all have been looked at
        yield "add rdx, r10"
        yield "place:"
        yield "mov rax, qword ptr [rdx]"
        yield "test rax, rax"
        yield "je slow"
        yield "xor rax, rcx"
        yield "shr rax, 0x20"
        yield "jne next"
        for at, first, part in self._placed():
            place = _WORD * (1 + first)
            if isinstance(part, ConstantPart):
                yield f"lea r10, [rip + constant{at}]"
                yield f"mov edi, {number(part.words)}"
                yield f"like{at}:"
                yield "mov rax, qword ptr [r10 + rdi*8]"
                yield f"cmp qword ptr [rdx + rdi*8{plus(place - _WORD)}], rax"
                yield "jne next"
                yield "dec rdi"
                yield f"jne like{at}"
                continue
            mine = places[at] if isinstance(part, TextPart) else _WORD * part.at
            yield f"mov rdi, qword ptr [rsp{plus(mine)}]"
            yield f"cmp qword ptr [rdx + {number(place)}], rdi"
            yield "jne next"
            if isinstance(part, TextPart):
                yield "add rdi, 7"
                yield "shr rdi, 3"
                yield f"je same{at}"
                yield f"like{at}:"
                yield f"mov rax, qword ptr [rsp + rdi*8{plus(mine)}]"
                yield f"cmp qword ptr [rdx + rdi*8 + {number(place)}], rax"
                yield "jne next"
                yield "dec rdi"
                yield f"jne like{at}"
                yield f"same{at}:"
        yield "mov eax, dword ptr [rdx]"
        yield "sub eax, 2"
        yield f"cmp eax, {_of_entry('room', 'dword')}"
        yield "jae slow"

    def _bucket(self, scale: Scale) -> Iterator[str]:
        """Of the value, added to rax (buckets.py)."""
        signed = scale.type is not Type.U64
        yield f"mov rdx, qword ptr [rsp{plus(_WORD * self.value_at)}]"
        if signed:  # its size
            yield "mov rdi, rdx"
            yield "sar rdi, 0x3f"
            yield "xor rdx, rdi"
            yield "sub rdx, rdi"
        if scale.fine:  # the bits behind the first PARTS_BITS + 1 are shifted out
            yield "mov rcx, rdx"
            yield f"or rcx, {number(1 << PARTS_BITS)}"
            yield "bsr rcx, rcx"
            yield f"sub ecx, {number(PARTS_BITS)}"
            yield "shr rdx, cl"
            yield f"shl ecx, {number(PARTS_BITS)}"
            yield "add rdx, rcx"
        else:
            yield "bsr rdx, rdx"
            yield "mov ecx, 0xffffffff"
            yield "cmove edx, ecx"
            yield "inc edx"
        if signed:
            yield "xor rdx, rdi"
            yield "sub rdx, rdi"
            yield f"add rdx, {number(scale.middle)}"
        yield f"mov ecx, {_of_entry('words', 'dword')}"
        yield "cmp rdx, rcx"
        yield "jae slow"
        yield "add rax, rdx"


def _of_entry(field: str, size: str = "qword") -> str:
    """A field of the aggregate at r11."""
    return f"{size} ptr [r11{plus(getattr(AggregateEntry, field).offset)}]"


def _copy(index: int, text: TextPart, to: int) -> Iterator[str]:
    """A text at r10, in a page that can be read, to this offset from rsp, word by word: its bytes,
    and its length before them. Each text has an `index`.

    The lowest bit of `(word - ones) & ~word & highs` is that of the first byte that is 0 [Mycroft].
    Where a length or a cut ends the text, the bit of the byte behind is set.
    """
    yield "mov ecx, r10d"  # the last offset at which a word may begin, or one below 0
    yield "not ecx"
    yield f"and ecx, {number(PAGE_MASK)}"
    yield f"sub ecx, {number(_WORD - 1)}"
    yield "xor edi, edi"
    yield f"next{index}:"
    yield "cmp edi, ecx"
    yield "jg slow"
    yield "mov rax, qword ptr [r10 + rdi]"
    yield "mov rdx, rax"
    yield "sub rdx, qword ptr [rip + ones]"
    yield "not rax"
    yield "and rdx, rax"
    yield "not rax"
    yield "and rdx, qword ptr [rip + highs]"
    if text.is_cut:  # as if a byte were 0 there, whatever it is
        full, more = divmod(text.most, _WORD)
        yield f"cmp edi, {number(_WORD * full)}"
        yield f"jne whole{index}"
        yield f"bts rdx, {number(8 * more + 7)}"
        yield f"whole{index}:"
    if text.has_length:
        yield f"cmp {_LENGTH}d, {number(_WORD)}"
        yield f"jae within{index}"
        yield f"lea {_LENGTH}d, [{_LENGTH}*8 + 7]"
        yield f"bts rdx, {_LENGTH}"
        yield f"within{index}:"
    yield "test rdx, rdx"
    yield f"jne last{index}"
    if text.has_length:
        yield f"sub {_LENGTH}d, {number(_WORD)}"
    yield f"mov qword ptr [rsp + rdi{plus(to + _WORD)}], rax"
    yield f"add edi, {number(_WORD)}"
    yield f"cmp edi, {number(text.most)}"
    yield f"jbe next{index}"
    yield "jmp slow"
    yield f"last{index}:"
    yield "mov rcx, rdx"  # what is before that byte stays
    yield "neg rcx"
    yield "and rcx, rdx"
    yield "shr rcx, 7"
    yield "dec rcx"
    yield "and rax, rcx"
    yield f"mov qword ptr [rsp + rdi{plus(to + _WORD)}], rax"
    yield "bsf rdx, rdx"
    yield "shr edx, 3"
    yield "add edi, edx"
    yield f"cmp edi, {number(text.most)}"
    yield "ja slow"
    yield f"mov qword ptr [rsp{plus(to)}], rdi"


def _place_of_hash(register: str, words: int) -> Iterator[str]:
    """Where a key with the hash in rcx is searched first, an offset. The arena begins at r10."""
    half = {"rdx": "edx", "rdi": "edi"}[register]
    yield f"mov {half}, {_of_entry('mask', 'dword')}"
    yield f"and {half}, ecx"
    yield f"imul {register}, {register}, {number(_WORD * words)}"
    yield f"add {register}, {_of_entry('keys')}"
    yield "lea r10, [rip + arena]"


def _factor(word: int) -> int:
    """Of a word of a key in its hash."""
    return HASH_FACTOR * pow(HASH_STEP, word, 1 << 64) & _ALL


def _bytes_of(words: Sequence[int]) -> bytes:
    return b"".join(word.to_bytes(_WORD, "little") for word in words)


def _words_of(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + _WORD], "little") for at in range(0, len(data), _WORD)]

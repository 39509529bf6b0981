"""The change of the words of a key by an event, assembled, at the end of a restartable sequence
(usual.py).

A count, and a bucket of a histogram or of quantiles, is one word. The others have the number of
events, and beside it

    a sum     in the next word: both are stored by one instruction
    extremes  which are stored before. An event that is interrupted then is added by the runtime,
              for which a least or largest value that is known already changes nothing

The runtime adds what these words do not say: a sum that leaves its 64 bits, a number of 64 bits
without a sign whose highest bit is set, and what is no number.

The runtime (native/src/runtime/aggregate.c) has the same order of words, buckets and extremes.
"""

from __future__ import annotations

from collections.abc import Iterator

from markerjit.abi import DOES_MAX, DOES_MIN, DOES_SUM, MISSED, AggregateEntry
from markerjit.questions.buckets import EXPONENTS_ABOVE, EXPONENTS_BELOW, PARTS_BITS, Scale
from markerjit.questions.types import Type
from markerjit.tuples import NamedTuple
from markerjit.x86.assemble import number, plus

_WORD = 8
_SUM = 1
_SIGN = 63
_FRACTION_BITS, _BIAS = 52, 1023
_NOT_FINITE = 0x7FF << _FRACTION_BITS
"""The bits of infinity. Those of what is no number are above, without the sign."""


class Change(NamedTuple):
    """What an event changes.

    flags     MJ_DOES_SUM, MJ_DOES_MIN and MJ_DOES_MAX
    type      of the value: I64, U64 or F64; None for a count
    scale     the buckets of the value, where there are some
    value_at  the value's word among those that were computed
    """

    flags: int
    type: Type | None
    scale: Scale | None
    value_at: int

    @property
    def needs(self) -> tuple[str, ...]:
        """Registers that are changed beside those of the sequence."""
        return ("xmm15",) if self._sums else ()

    @property
    def adds_floats(self) -> bool:
        """Whether floats are added, which the MXCSR has to be the usual one for."""
        return self._sums and self.type is Type.F64

    @property
    def words(self) -> int:
        """Words of the stack that the code needs."""
        return int(self._sums)

    @property
    def _sums(self) -> bool:
        return bool(self.flags & DOES_SUM)

    @property
    def _words_of_key(self) -> int:
        """Words of each key."""
        if self.scale:
            return self.scale.size
        return 1 + 2 * self._sums + bool(self.flags & DOES_MIN) + bool(self.flags & DOES_MAX)

    @property
    def _value(self) -> str:
        return f"qword ptr [rsp{plus(_WORD * self.value_at)}]"

    def lines(self, cpu: str, scratch: int) -> Iterator[str]:
        """The code, for the key whose number is in rax, of the aggregate at r11, in the arena at
        r10. It goes to `slow` where it changes nothing. `cpu` is where the number of this CPU is,
        `scratch` where from rsp its words are."""
        yield f"cmp {of_entry('words', 'dword')}, {number(self._words_of_key)}"
        yield "jne slow"
        if self._words_of_key > 1:
            yield f"imul rax, rax, {number(self._words_of_key)}"
        if self.scale:
            yield from self._bucket(self.scale)
        elif self.type is Type.F64:
            yield f"mov rdx, {self._value}"
            yield from _unless_nan()
        yield f"mov edi, {cpu}"
        yield f"imul rdi, {of_entry('stride')}"
        yield f"add rdi, {of_entry('values')}"
        yield "add rdi, r10"
        if self.flags:
            yield f"lea rdi, [rdi + rax*8 + {number(_WORD * MISSED)}]"
            yield from self._statistics(scratch)
        else:
            yield f"inc qword ptr [rdi + rax*8 + {number(_WORD * MISSED)}]"

    def _statistics(self, scratch: int) -> Iterator[str]:
        """Of the key whose words are at rdi."""
        if self._sums:
            yield from self._sum(f"qword ptr [rsp{plus(scratch)}]")
        if self.flags & (DOES_MIN | DOES_MAX):
            yield from self._extremes()
        if not self._sums:
            yield "inc qword ptr [rdi]"
            return
        yield "mov rcx, qword ptr [rdi]"
        yield "inc rcx"
        yield "movq xmm15, rcx"
        yield f"movhps xmm15, qword ptr [rsp{plus(scratch)}]"
        yield "movups xmmword ptr [rdi], xmm15"

    def _sum(self, scratch: str) -> Iterator[str]:
        """The new sum, into a word of the stack."""
        before = f"qword ptr [rdi + {number(_WORD * _SUM)}]"
        if self.type is Type.F64:
            yield f"movsd xmm15, {before}"
            yield f"addsd xmm15, {self._value}"
            yield f"movsd {scratch}, xmm15"
            return
        yield f"mov rax, {self._value}"
        if self.type is Type.U64:
            yield "test rax, rax"
            yield "js slow"
        yield f"add rax, {before}"
        yield "jo slow"
        yield f"mov {scratch}, rax"

    def _extremes(self) -> Iterator[str]:
        """The least and the largest value: words that are larger where the value is, of the least
        one with all bits inverted."""
        word = 1 + 2 * self._sums
        yield f"mov rdx, {self._value}"
        if self.type is Type.F64:
            yield "mov rcx, rdx"
            yield f"sar rcx, {number(_SIGN)}"
            yield f"bts rcx, {number(_SIGN)}"
            yield "xor rdx, rcx"
        elif self.type is Type.I64:
            yield f"btc rdx, {number(_SIGN)}"
        if self.flags & DOES_MIN:
            yield "mov rcx, rdx"
            yield "not rcx"
            yield from _keep_larger("rcx", word, "least")
            word += 1
        if self.flags & DOES_MAX:
            yield from _keep_larger("rdx", word, "largest")

    def _bucket(self, scale: Scale) -> Iterator[str]:
        """Of the value, added to rax (buckets.py)."""
        yield f"mov rdx, {self._value}"
        if scale.type is Type.F64:
            yield from _unless_nan()
            yield "mov rdi, rdx"
            yield f"sar rdi, {number(_SIGN)}"
            yield from _size_of_float(PARTS_BITS if scale.fine else 0)
        else:
            if scale.type is Type.I64:  # its size
                yield "mov rdi, rdx"
                yield f"sar rdi, {number(_SIGN)}"
                yield "xor rdx, rdi"
                yield "sub rdx, rdi"
            yield from _fine_size() if scale.fine else _bits_of_size()
        if scale.type is not Type.U64:
            yield "xor rdx, rdi"
            yield "sub rdx, rdi"
            yield f"add rdx, {number(scale.middle)}"
        yield "add rax, rdx"


def of_entry(field: str, size: str = "qword") -> str:
    """A field of the aggregate at r11."""
    return f"{size} ptr [r11{plus(getattr(AggregateEntry, field).offset)}]"


def _unless_nan() -> Iterator[str]:
    """Go to `slow` where the float in rdx is no number. rcx has it without its sign then, times 2.
    It changes rdi."""
    yield "lea rcx, [rdx + rdx]"
    yield f"movabs rdi, {number(2 * _NOT_FINITE)}"
    yield "cmp rcx, rdi"
    yield "ja slow"


def _keep_larger(register: str, word: int, label: str) -> Iterator[str]:
    """Store a register in a word of the key at rdi where it is larger."""
    place = f"qword ptr [rdi + {number(_WORD * word)}]"
    yield f"cmp {register}, {place}"
    yield f"jbe {label}"
    yield f"mov {place}, {register}"
    yield f"{label}:"


def _fine_size() -> Iterator[str]:
    """The distance of a fine bucket from that of 0, of a number in rdx without a sign: the bits
    behind its first PARTS_BITS + 1 are shifted out."""
    yield "mov rcx, rdx"
    yield f"or rcx, {number(1 << PARTS_BITS)}"
    yield "bsr rcx, rcx"
    yield f"sub ecx, {number(PARTS_BITS)}"
    yield "shr rdx, cl"
    yield f"shl ecx, {number(PARTS_BITS)}"
    yield "add rdx, rcx"


def _bits_of_size() -> Iterator[str]:
    """The distance of a bucket of powers of two: how many bits the number has."""
    yield "bsr rdx, rdx"
    yield "mov ecx, 0xffffffff"
    yield "cmove edx, ecx"
    yield "inc edx"


def _size_of_float(fraction_bits: int) -> Iterator[str]:
    """The same of a float in rcx without its sign, times 2, into rdx: its exponent, and so many
    bits of its fraction. What is below all buckets is in that of 0, and what is above in the last
    one."""
    below = (_BIAS - EXPONENTS_BELOW << fraction_bits) - 1
    last = (EXPONENTS_BELOW + EXPONENTS_ABOVE << fraction_bits) + 1
    yield "mov rdx, rcx"
    yield f"shr rdx, {number(_FRACTION_BITS + 1 - fraction_bits)}"
    yield "xor ecx, ecx"
    yield f"sub rdx, {number(below)}"
    yield "cmovl rdx, rcx"
    yield f"mov ecx, {number(last)}"
    yield "cmp rdx, rcx"
    yield "cmova rdx, rcx"

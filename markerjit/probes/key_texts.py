"""The texts of a key, copied to the stack by the code of a marker (usual.py), word by word.

A text is an argument that ends with a NUL, or where the argument before it says. It is read where a
recorder would read it: in a page that is known to be readable (texts.py). No vector register is
needed for that, so none has to be saved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self

from markerjit.abi import OP_BYTES, OP_STRING, AskedText
from markerjit.probes.texts import PAGE_MASK, Registers, known_page, nul_before, window_now
from markerjit.tuples import NamedTuple
from markerjit.x86.assemble import number, plus

_WORD = 8
_HALF = (1 << 32) - 1
DATA = {"ones": b"\x01" * _WORD, "highs": b"\x80" * _WORD}
"""What the code refers to by name."""

_PAGE = Registers("r10", "r11", "rcx", "ecx", "rdx")
_LENGTH = _PAGE.window
"""The register with the bytes that are left of a text with a length."""


class TextPart(NamedTuple):
    """A part of a key that is an argument: which one, the first byte of it that is in the key, the
    byte behind the last one, and the words in the key. Where it `is_cut`, what is behind these
    bytes is not in the key; otherwise it is longer than the key allows. It `has_length` where the
    argument before it is how many bytes it has at most."""

    arg: int
    low: int
    most: int
    words: int
    is_cut: bool
    has_length: bool

    @classmethod
    def of(cls, asked: AskedText, words: int) -> Self | None:
        """A text as the runtime takes it. None where it is of another kind, or has no bytes in the
        key but for its first ones."""
        is_cut = asked.high < asked.limit
        most = asked.high if is_cut else asked.limit
        is_other = asked.op not in (OP_STRING, OP_BYTES) or (asked.low and most <= asked.low)
        if is_other or most - asked.low > _WORD * (words - 1):
            return None
        return cls(asked.arg, asked.low, most, words, is_cut, asked.op == OP_BYTES)

    @property
    def room(self) -> int:
        """Words of the stack: its length, its bytes, and a NUL."""
        return 2 + (self.most - self.low) // _WORD


def copies(
    texts: Mapping[int, TextPart], places: Mapping[int, int], arguments: int
) -> Iterator[str]:
    """Each text with its length before it, and zeros up to the end of its last word. They have
    numbers, by which `places` says where from rsp their lengths are. `arguments` is where those of
    the marker are."""
    has_window = False
    for at, text in texts.items():
        if not has_window:
            yield from window_now(_PAGE.window)
        yield f"mov r10, qword ptr [rsp + {number(arguments + _WORD * text.arg)}]"
        yield from known_page(_PAGE)
        if text.has_length:
            length = number(arguments + _WORD * (text.arg - 1))
            yield f"mov {_LENGTH}d, dword ptr [rsp + {length}]"
            yield f"test {_LENGTH}d, {_LENGTH}d"
            yield "js slow"
        if text.low:
            yield from _skip(at, text)
        yield from _copy(at, text, places[at])
        has_window = not text.has_length  # both are in the same register


def _skip(index: int, text: TextPart) -> Iterator[str]:
    """Go on to the first byte of a part of a text at r10, or to `empty` and its index where the
    text ends before. The word that begins there has to be in the same page."""
    yield "mov eax, r10d"
    yield f"and eax, {number(PAGE_MASK)}"
    yield f"cmp eax, {number(PAGE_MASK + 1 - text.low - _WORD)}"
    yield "ja slow"
    yield from nul_before(text.low, "rcx", f"empty{index}")
    if text.has_length:
        yield f"sub {_LENGTH}d, {number(text.low)}"
        yield f"jb empty{index}"
    yield f"add r10, {number(text.low)}"


def _copy(index: int, text: TextPart, to: int) -> Iterator[str]:
    """A text at r10, in a page that can be read, to this offset from rsp: its bytes, and its length
    before them. Each text has an `index`.

    The lowest bit of `(word - ones) & ~word & highs` is that of the first byte that is 0 [Mycroft].
    Where a length or a cut ends the text, the bit of the byte behind is set.
    """
    first, most = to + _WORD, text.most - text.low
    yield "mov ecx, r10d"  # how far behind the end of its page the word ends
    yield f"or ecx, {number(_HALF & ~PAGE_MASK)}"
    yield "xor edi, edi"
    yield f"next{index}:"
    yield f"add ecx, {number(_WORD)}"
    yield "jg slow"
    yield "mov rax, qword ptr [r10 + rdi]"
    yield "mov rdx, rax"
    yield "sub rdx, qword ptr [rip + ones]"
    yield "not rax"
    yield "and rdx, rax"
    yield "not rax"
    yield "and rdx, qword ptr [rip + highs]"
    if text.is_cut:  # as if a byte were 0 there, whatever it is
        full, more = divmod(most, _WORD)
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
    if text.is_cut or text.has_length:
        yield "test rdx, rdx"
    yield f"jne last{index}"
    if text.has_length:
        yield f"sub {_LENGTH}d, {number(_WORD)}"
    yield f"mov qword ptr [rsp + rdi{plus(first)}], rax"
    yield f"add edi, {number(_WORD)}"
    yield f"cmp edi, {number(most)}"
    yield f"jbe next{index}"
    yield "jmp slow"
    if text.low:
        yield f"empty{index}:"
        yield "xor edi, edi"
        yield f"mov qword ptr [rsp{plus(first)}], rdi"
        yield f"jmp copied{index}"
    yield f"last{index}:"
    yield "lea rcx, [rdx - 1]"  # what is before that byte stays
    yield "xor rcx, rdx"
    yield "shr rcx, 8"
    yield "and rax, rcx"
    yield f"mov qword ptr [rsp + rdi{plus(first)}], rax"
    yield "tzcnt rdx, rdx"  # a processor that does not know it takes it for bsf, which is the same
    yield "shr edx, 3"
    yield "add edi, edx"
    yield f"cmp edi, {number(most)}"
    yield "ja slow"
    if text.low:
        yield f"copied{index}:"
    yield f"mov qword ptr [rsp{plus(to)}], rdi"

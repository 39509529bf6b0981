"""How an assembled recorder reads a text and puts it into the ring, in its restartable sequence.

The text has to be a simple one: its pointer leads into a page that is known to be readable (abi.h,
MJ_READABLE_WINDOW), and its NUL is within that page and within the limit. Every other text goes to
`slow`, where the runtime records the event and asks for the page. A load that would cross the
page's end is never made; bytes behind the NUL in the same page are, and are not kept.

These registers are the recorder's, saved by what calls.py puts around it:

    rbx   the window of the clock, above MJ_READABLE_TAG bits of zeros
    r11   no block may be written behind this address
    r13   where the text is; lost
    rdi   where it is written; behind the text, where the next field is
    r14, r15, rax, xmm14, xmm15   changed
"""

from __future__ import annotations

from collections.abc import Iterator

from markerjit.abi import READABLE, READABLE_BITS, READABLE_TAG, READABLE_WINDOW
from markerjit.tuples import NamedTuple
from markerjit.x86.assemble import number, plus

BEHIND = 32
"""Bytes behind r11 that may be written: a block, and zeros behind the NUL in it."""

PAGE_MASK = 0xFFF
_BLOCK, _WORD = 16, 8
_LOW_BITS, _HIGH_BITS = 0x0101010101010101, 0x8080808080808080
_PAGE_BITS = 12
_HALF_BITS = 32
_TO_WINDOW = READABLE_TAG - READABLE_WINDOW
_WINDOW = (1 << 64) - (1 << READABLE_TAG)


def window(register: str = "rbx") -> Iterator[str]:
    """From the time stamp counter in rax, which is lost."""
    yield f"shl rax, {number(_TO_WINDOW)}"
    yield f"and rax, {number(_WINDOW)}"
    yield f"mov {register}, rax"


def window_now(register: str) -> Iterator[str]:
    """The same, reading the time stamp counter. rax and rdx are lost."""
    yield "rdtsc"
    yield f"shl rdx, {number(_HALF_BITS + _TO_WINDOW)}"
    yield f"shl rax, {number(_TO_WINDOW)}"
    yield f"lea {register}, [rax + rdx]"
    yield f"and {register}, {number(_WINDOW)}"


class Registers(NamedTuple):
    """Those with which a page is looked up: an address, the window, and two that are changed beside
    rax, of which the first one has a lower half with another name."""

    address: str
    window: str
    tag: str
    half: str
    table: str


_OF_RECORDER = Registers("r13", "rbx", "r14", "r14d", "r15")


def known_page(registers: Registers, slow: str = "slow") -> Iterator[str]:
    """Go to the label `slow` unless the page of an address is known to be readable."""
    address, window, tag, half, table = registers
    yield f"mov rax, {address}"
    yield f"shr rax, {number(_PAGE_BITS)}"
    yield f"mov {tag}, rax"
    yield f"shr {tag}, {number(READABLE_BITS)}"
    yield f"cmp {tag}, {number((1 << READABLE_TAG) - 1)}"  # no address is larger
    yield f"ja {slow}"
    yield f"xor eax, {half}"
    yield f"and eax, {number(READABLE - 1)}"
    yield f"or {tag}, {window}"
    yield f"lea {table}, [rip + readable]"
    yield f"cmp {tag}, qword ptr [{table} + rax*8]"
    yield f"jne {slow}"


def nul_before(low: int, spare: str, label: str) -> Iterator[str]:
    """Go to a label where one of the first `low` bytes at r10 is a NUL. rax, rdx and a spare
    register are lost.

    The lowest bit of `(word - ones) & ~word & highs` is that of the first byte that is 0 [Mycroft].
    """
    for offset in range(0, low, _WORD):
        bits = 8 * min(low - offset, _WORD)
        yield f"mov rax, qword ptr [r10{plus(offset)}]"
        yield "mov rdx, rax"
        yield f"movabs {spare}, {number(_LOW_BITS)}"
        yield f"sub rdx, {spare}"
        yield "not rax"
        yield "and rdx, rax"
        yield f"movabs {spare}, {number(_HIGH_BITS & (1 << bits) - 1)}"
        yield f"test rdx, {spare}"
        yield f"jne {label}"


def put_text(index: int, at: int, limit: int) -> Iterator[str]:
    """Put the text at r13 behind its head, which is `at` bytes behind rdi, unless it has more than
    `limit` bytes, which is not 0. Each text of a recorder has its own `index`."""
    yield from known_page(_OF_RECORDER)
    yield f"add rdi, {number(at + 8)}"
    # The last place where a block may be written: by the limit, by the room, by the text's page.
    yield f"lea r14, [rdi + {number(limit)}]"
    yield "cmp r14, r11"
    yield "cmova r14, r11"
    yield "mov eax, r13d"
    yield "not eax"
    yield f"and eax, {number(PAGE_MASK)}"
    yield f"lea rax, [rdi + rax - {number(_BLOCK - 1)}]"
    yield "cmp r14, rax"
    yield "cmova r14, rax"
    yield "mov r15, rdi"
    yield "sub r13, rdi"
    yield "pxor xmm15, xmm15"
    yield f"block{index}:"
    yield "cmp rdi, r14"
    yield "ja slow"
    yield "movdqu xmm14, xmmword ptr [rdi + r13]"
    yield "movdqu xmmword ptr [rdi], xmm14"
    yield "pcmpeqb xmm14, xmm15"
    yield "pmovmskb eax, xmm14"
    yield f"add rdi, {number(_BLOCK)}"
    yield "test eax, eax"
    yield f"je block{index}"
    yield "bsf eax, eax"
    yield f"lea rdi, [rdi + rax - {number(_BLOCK)}]"
    yield "mov rax, rdi"
    yield "sub rax, r15"
    yield f"cmp eax, {number(limit)}"
    yield "ja slow"
    yield "mov qword ptr [r15 - 8], rax"  # its length, and MJ_TEXT_WHOLE
    yield "mov qword ptr [rdi], 0"
    yield "add rdi, 7"
    yield "and rdi, 0xfffffffffffffff8"

"""The operands of USDT notes, in the syntax in which compilers write them for the assembler.

    -4@%eax                  a register, of any width: the size before the @ decides
    8@-20(%rbp)  8@(%rax,%rbx,8)
    4@NBuffers(%rip)  -4@40+CheckpointStats(%rip)
    -4@$12  8@$message
    8f@%xmm0

The number is the size in bytes; a minus is for signed types, an f for floats. Headers older than
the f wrote a float in a vector register without it.

An operand that is not understood is refused with a reason. This does not guess.

Authority: sys/sdt.h; gdb/stap-probe.c; the AT&T syntax of "Using as", 9.16.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from markerjit.elf import FileImage
from markerjit.elf.sections import Symbols
from markerjit.errors import BadNote
from markerjit.model import (
    Constant,
    CType,
    Duration,
    General,
    HighByte,
    Kept,
    Memory,
    Operand,
    RemoteAddress,
    Static,
    TypeClass,
    Vector,
)
from markerjit.tuples import NamedTuple

MAX_ARGS = 12
"""The most operands: as many as a marker and sys/sdt.h allow."""

_NEXT = re.compile(r" +(?=[^ ]*@)")
_OPERAND = re.compile(r"(-?)([0-9]{1,3})(f?)@(.+)", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]+", re.ASCII)
_TERM = re.compile(r"([+-]?)([^+-]+)")
_SYMBOL = re.compile(r"[A-Za-z_.$][\w.$]*", re.ASCII)
_MEMORY = re.compile(r"([^()]*)\(\s*(%\w+)?\s*(?:,\s*(%\w+)\s*(?:,\s*([1248])\s*)?)?\)")
_VECTOR = re.compile(r"%xmm([0-9]|1[0-5])")
_LEAST, _MOST = -(1 << 31), (1 << 31) - 1
"""The range of a displacement."""


def _general() -> Iterator[General]:
    for letter in "abcd":
        yield General((f"{letter}l", f"{letter}x", f"e{letter}x", f"r{letter}x"))
    for name in ("si", "di", "bp", "sp"):
        yield General((f"{name}l", name, f"e{name}", f"r{name}"))
    for number in range(8, 16):
        yield General((f"r{number}b", f"r{number}w", f"r{number}d", f"r{number}"))


_GENERAL = {f"%{name}": register for register in _general() for name in register.names}
_HIGH = {f"%{letter}h": HighByte(f"{letter}h") for letter in "abcd"}
_WIDE = {f"%{register.names[-1]}": register.names[-1] for register in _GENERAL.values()}


class Argument(NamedTuple):
    """An operand and the type of its value, as far as a note says it."""

    operand: Operand
    ctype: CType


class Names:
    """The symbols of an object, which is loaded at a bias."""

    def __init__(self, image: FileImage, symbols: Symbols, bias: int) -> None:
        self.fixed_address = image.fixed_address
        self._symbols = symbols
        self._bias = bias
        self._loaded = image.loaded()

    def address(self, name: str, addend: int, size: int) -> RemoteAddress:
        """The address in the target of `size` bytes, `addend` behind a symbol. Raises BadNote where
        the file does not say it, and BadFile where its tables cannot be read."""
        addresses = self._symbols.addresses(name)
        if len(addresses) != 1:
            many = f"{len(addresses)} symbols" if addresses else "no symbol"
            raise BadNote(f"its file has {many} of the name {name[:60]}")
        address = addresses.pop() + addend
        if not any(address in span and address + size - 1 in span for span in self._loaded):
            raise BadNote(f"{name[:60]}{addend:+} is not in the program")
        return RemoteAddress(address + self._bias)


def shown(operand: Operand) -> str:
    """The place of a value, for people: `rdi`, `xmm0`, `8(rsp)`."""
    match operand:
        case General(names):
            return names[-1]
        case HighByte(name):
            return name
        case Vector(number):
            return f"xmm{number}"
        case Memory(base, offset, scaled, scale):
            index = f",{scaled},{scale}" if scaled else ""
            return f"{offset or ''}({base}{index})"
        case Static(_, symbol):
            return f"{symbol}(rip)"
        case Constant(value, symbol):
            return f"${symbol or value}"
        case Kept(number):
            return f"argument {number} of the entry"
        case Duration():
            return "time since the entry"


def conversion_of(argument: Argument, type_: str = "") -> str:
    """The conversion of a format that shows an argument; `type_` is its type in C, if known."""
    is_char = type_ == "char" and argument.ctype.size == 1
    match argument.ctype.type_class:
        case TypeClass.CHARS:
            return "%s"
        case TypeClass.POINTER:
            return "%p"
        case TypeClass.FLOAT:
            return "%g"
        case TypeClass.UNSIGNED:
            return "%c" if is_char else "%u"
        case _:
            return "%c" if is_char else "%d"


def parse_operands(text: str, names: Names) -> tuple[Argument, ...]:
    """The arguments of a note's operands. Raises BadNote, with the reason, for the first operand
    that is not understood, and what `Names.address` raises."""
    operands = [operand for operand in _NEXT.split(text.strip(" ")) if operand]
    if len(operands) > MAX_ARGS:
        raise BadNote(f"has {len(operands)} arguments; {MAX_ARGS} are supported")
    return tuple(_parse(operand, names) for operand in operands)


def _parse(text: str, names: Names) -> Argument:
    match = _OPERAND.fullmatch(text)
    if match is None:
        raise BadNote(f"has an operand without a size: {_cut(text)}")
    minus, digits, letter, place = match.groups()
    size = int(digits)
    is_float = bool(letter) or bool(_VECTOR.fullmatch(place))
    if size not in ((4, 8) if is_float else (1, 2, 4, 8)):
        raise BadNote(f"has a value of {size} bytes: {_cut(text)}")
    type_class = TypeClass.SIGNED if minus else TypeClass.UNSIGNED
    ctype = CType(TypeClass.FLOAT if is_float else type_class, size)
    try:
        return Argument(_place(place, ctype, names), ctype)
    except BadNote as problem:
        raise BadNote(f"has an operand {_cut(text)} that is not understood: {problem}") from None


def _place(place: str, ctype: CType, names: Names) -> Operand:
    if place.startswith("%") and ":" not in place:
        return _register(place, ctype)
    if place.startswith("$"):
        return _constant(place[1:], ctype, names)
    if place.startswith("%"):
        raise BadNote("it is in thread-local memory, behind a segment register")
    match = _MEMORY.fullmatch(place)
    if match is None:
        symbol, offset = _sum(place)
        if not symbol:
            raise BadNote("it is at an address without a name")
        return Static(names.address(symbol, offset, ctype.size), symbol)
    sum_, base, index, scale = match.groups()
    symbol, offset = _sum(sum_) if sum_ else ("", 0)
    if base == "%rip":
        if not symbol or index:
            raise BadNote("it is relative to the code and names no symbol")
        return Static(names.address(symbol, offset, ctype.size), symbol)
    if symbol:
        if not names.fixed_address:
            raise BadNote("a symbol and a register, in an object that can be loaded anywhere")
        offset = names.address(symbol, offset, 1)
    if not base and not index:
        raise BadNote("it is at an address without a name")
    if not _LEAST <= offset <= _MOST:
        raise BadNote("its distance is too large")
    return Memory(_wide(base), offset, _wide(index, is_index=True), int(scale or 1))


def _register(name: str, ctype: CType) -> Operand:
    if vector := _VECTOR.fullmatch(name):
        return Vector(int(vector[1]))
    if name in _HIGH:
        if ctype != CType(ctype.type_class, 1) or ctype.type_class is TypeClass.FLOAT:
            raise BadNote("it is larger than the register")
        return _HIGH[name]
    if name not in _GENERAL:
        raise BadNote(f"{name} is not supported")
    return _GENERAL[name]


def _wide(name: str | None, *, is_index: bool = False) -> str:
    if not name:
        return ""
    if name not in _WIDE or (is_index and name == "%rsp"):
        raise BadNote(f"{name} cannot hold an address")
    return _WIDE[name]


def _constant(text: str, ctype: CType, names: Names) -> Constant:
    symbol, value = _sum(text)
    if ctype.type_class is TypeClass.FLOAT:
        raise BadNote("a constant that is a float")
    if symbol:
        if ctype.size != 8 and not names.fixed_address:
            raise BadNote("an address does not fit into it")
        value = names.address(symbol, value, 1)
    bits = ctype.size * 8
    if not -(1 << bits - 1) <= value < 1 << bits:
        raise BadNote(f"the constant does not fit into {ctype.size} bytes")
    return Constant(value, symbol)


def _sum(text: str) -> tuple[str, int]:
    """The symbol, or "", and the sum of the numbers of `foo+8`, `40+foo`, `-20`."""
    symbol, total = "", 0
    terms: Sequence[tuple[str, str]] = _TERM.findall(text)
    if "".join(sign + term for sign, term in terms) != text or not terms:
        raise BadNote("it is no sum of a symbol and numbers")
    for sign, term in terms:
        if _NUMBER.fullmatch(term):
            if len(term) > 20:
                raise BadNote("its number is too large")
            total += int(f"{sign}{term}", 16 if term[1:2] in ("x", "X") else 10)
        elif _SYMBOL.fullmatch(term) and not symbol and sign != "-":
            symbol = term
        else:
            raise BadNote("it is no sum of a symbol and numbers")
    return symbol, total


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"

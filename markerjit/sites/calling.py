"""Where the arguments of a function are when it is entered, by the calling convention of C.

At the first instruction the return address is at (%rsp), and arguments that found no register
stand above it. A structure of up to two words is in registers by words, if it finds enough of
them; its members are arguments here, as `parameter_member`. A larger one is on the stack, and is
left out, as is all from the first parameter on whose place is not known.

What this does not do: find prototypes (elf/prototypes.py).

Authority: System V psABI for AMD64, 3.2.3 "Parameter Passing".
"""

from __future__ import annotations

from markerjit.elf.prototypes import Kind, Member, Prototype, Value
from markerjit.model import CType, General, Memory, Operand, Returned, TypeClass, Vector
from markerjit.sites.operands import MAX_ARGS, Argument, conversion_of
from markerjit.tuples import NamedTuple

GENERAL = (
    General(("dil", "di", "edi", "rdi")),
    General(("sil", "si", "esi", "rsi")),
    General(("dl", "dx", "edx", "rdx")),
    General(("cl", "cx", "ecx", "rcx")),
    General(("r8b", "r8w", "r8d", "r8")),
    General(("r9b", "r9w", "r9d", "r9")),
)
"""The registers of integers and pointers, in their order."""
RAX = General(("al", "ax", "eax", "rax"))
"""The register of an integer or pointer that is returned."""
_VECTORS = 8
_WORD = 8
_IN_REGISTERS = 2 * _WORD
_CLASSES = {
    Kind.SIGNED: TypeClass.SIGNED,
    Kind.UNSIGNED: TypeClass.UNSIGNED,
    Kind.BOOL: TypeClass.BOOL,
    Kind.FLOAT: TypeClass.FLOAT,
    Kind.POINTER: TypeClass.POINTER,
    Kind.TEXT: TypeClass.CHARS,
}


class Passed(NamedTuple):
    """An argument: its name, its conversion in a format, where it is, and its type as C writes it,
    "" for a member of a structure."""

    name: str
    conversion: str
    argument: Argument
    text: str = ""


def passed(prototype: Prototype) -> tuple[Passed, ...]:
    """The arguments of a function, as many as a marker can have."""
    return tuple(_Convention().arguments(prototype))[:MAX_ARGS]


def returned(prototype: Prototype) -> Returned | None:
    """The values that a function returns: `ret` with its type, and for an integer or address also
    `rax`, the whole register. Empty for a function that returns nothing; None if the value is not
    in one register.

    Authority: System V psABI for AMD64, 3.2.3 "Returning of Values".
    """
    value = prototype.returned
    if value.kind is Kind.VOID:
        return Returned("", (), ())
    if value.kind not in _CLASSES:
        return None
    if value.kind is Kind.FLOAT:
        _, conversion, (operand, ctype), _ = _passed("ret", value, Vector(0))
        return Returned(f"ret {conversion}", (ctype,), (operand,))
    _, conversion, (operand, ctype), _ = _passed("ret", value, RAX)
    whole = CType(TypeClass.UNSIGNED, _WORD)
    return Returned(f"ret {conversion} rax %#lx", (ctype, whole), (operand, RAX))


class _Convention:
    """The registers and the stack, and how many of them parameters have taken so far."""

    def __init__(self) -> None:
        self._general = 0
        self._vector = 0
        self._stack: int | None = _WORD

    def arguments(self, prototype: Prototype) -> list[Passed]:
        if prototype.returned.kind is Kind.OTHER:
            return []
        if _is_in_memory(prototype.returned):
            self._general = 1  # its address comes before the parameters
        taken: list[Passed] = []
        for index, (name, value, text) in enumerate(prototype.parameters):
            name = name or f"arg{index}"
            if value.kind in (Kind.OTHER, Kind.VOID):
                break
            if value.kind is Kind.LONG_DOUBLE:
                if self._stack is not None:
                    # The arguments on the stack begin at a multiple of 16.
                    self._stack = _WORD + -(-(self._stack - _WORD) // 16) * 16 + value.size
            elif value.kind is Kind.STRUCTURE:
                members = self._structure(value)
                if members is None:
                    break
                for member, operand in members:
                    taken.append(_passed(f"{name}_{member.name}", member.value, operand))
            else:
                place = self._scalar(value)
                if place is None:
                    break
                taken.append(_passed(name, value, place)._replace(text=text))
        return taken

    def _scalar(self, value: Value) -> Operand | None:
        if value.kind is Kind.FLOAT and self._vector < _VECTORS:
            self._vector += 1
            return Vector(self._vector - 1)
        if value.kind is not Kind.FLOAT and self._general < len(GENERAL):
            self._general += 1
            return GENERAL[self._general - 1]
        if self._stack is None:
            return None
        self._stack += _WORD
        return Memory("rsp", self._stack - _WORD)

    def _structure(self, value: Value) -> list[tuple[Member, Operand]] | None:
        """The members of a structure that stand at the beginning of a register. None where it
        cannot be said how it is passed."""
        if any(member.value.kind is Kind.LONG_DOUBLE for member in value.members):
            return None
        words = _words(value)
        vectors = sum(words)
        general = len(words) - vectors
        if not value.size:
            return []
        if (
            _is_in_memory(value)
            or self._general + general > len(GENERAL)
            or self._vector + vectors > _VECTORS
        ):
            self._push(value.size)
            return []
        places: list[Operand | None] = []
        for is_vector in words:
            places.append(self._scalar(Value(Kind.FLOAT if is_vector else Kind.UNSIGNED, _WORD)))
        return [
            (member, place)
            for member in value.members
            if (place := places[member.offset // _WORD])
            and member.name
            and not member.offset % _WORD
            and (member.value.kind is Kind.FLOAT) == words[member.offset // _WORD]
        ]

    def _push(self, size: int) -> None:
        """Note a structure on the stack. If its source aligns it to two words, the next argument is
        a word farther away, and drgn does not tell that."""
        if self._stack is None:
            return
        if (self._stack - _WORD) % _IN_REGISTERS and not size % _IN_REGISTERS:
            self._stack = None
        else:
            self._stack += -(-size // _WORD) * _WORD


def _words(value: Value) -> list[bool]:
    """For each word of a small structure, whether it is in a vector register: all its scalars are
    floats."""
    count = -(-value.size // _WORD)
    if value.size > _IN_REGISTERS:
        return []
    words = [True] * count
    for member in value.members:
        if member.value.kind is not Kind.FLOAT:
            words[member.offset // _WORD] = False
    return words


def _is_in_memory(value: Value) -> bool:
    """Whether a structure is passed and returned in memory: it is large, or not aligned."""
    return value.kind is Kind.STRUCTURE and (
        value.size > _IN_REGISTERS
        or any(member.offset % member.value.size for member in value.members)
    )


def _passed(name: str, value: Value, operand: Operand) -> Passed:
    argument = Argument(operand, CType(_CLASSES[value.kind], value.size))
    return Passed(name, conversion_of(argument, "char" if value.is_char else ""), argument)

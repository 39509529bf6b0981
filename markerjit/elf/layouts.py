"""C types in debugging information, for reads of memory: members of structures and their places,
elements of arrays, and targets of pointers.

What this does not do: find debugging information, or functions in it (prototypes.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from markerjit.tuples import NamedTuple

_DEEPEST = 8
"""The most levels of nested members without a name that are looked into."""


class LayoutMember(NamedTuple):
    """A member: where it begins in bits, and of a bit-field how many it has (0: it is none)."""

    bit_offset: int
    bits: int
    layout: CLayout


class CLayout:
    """A C type. What it leads to is looked at when it is asked for."""

    def __init__(self, program: Any, type_: Any) -> None:
        self._program = program
        self._given = type_

    @cached_property
    def _type(self) -> Any:
        """The type itself, and whole where only its name stands here and another unit has it."""
        type_ = bare(self._given)
        tag = getattr(type_, "tag", None)
        if tag and not type_.is_complete():
            word = type_.kind.name.lower()
            try:
                return bare(self._program.type(f"{word} {tag}"))
            except Exception:  # not there, or damaged: drgn's errors have no common root
                return type_
        return type_

    @property
    def text(self) -> str:
        """The type as C writes it."""
        return str(self._given.type_name())

    @property
    def kind(self) -> str:
        """`integer`, `bool`, `float`, `pointer`, `text` (the address of characters), `structure`
        (also a union), `array` or `other`."""
        import drgn

        type_, kinds = self._type, drgn.TypeKind
        match type_.kind:
            case kinds.INT:
                return "integer"
            case kinds.ENUM if type_.type is not None:
                return "integer"
            case kinds.BOOL:
                return "bool"
            case kinds.FLOAT:
                return "float"
            case kinds.POINTER:
                return "text" if CLayout(self._program, type_.type).is_char else "pointer"
            case kinds.STRUCT | kinds.UNION | kinds.CLASS:
                return "structure"
            case kinds.ARRAY:
                return "array"
        return "other"

    @property
    def size(self) -> int:
        """Bytes; 0 where that is not known."""
        import drgn

        try:
            return int(drgn.sizeof(self._type))
        except (TypeError, ValueError, OverflowError):
            return 0

    @property
    def signed(self) -> bool:
        """Whether it is an integer with a sign."""
        import drgn

        type_ = self._type
        if type_.kind is drgn.TypeKind.ENUM:
            type_ = bare(type_.type) if type_.type is not None else type_
        return bool(getattr(type_, "is_signed", False))

    @property
    def is_char(self) -> bool:
        """Whether it is a character. Bytes of an `int8_t` are data."""
        import drgn

        return bool(self._type.kind is drgn.TypeKind.INT and self._type.name == "char")

    @property
    def length(self) -> int | None:
        """The elements of an array; None where they are not known, as at the end of a structure."""
        length = getattr(self._type, "length", None)
        return length or None

    @property
    def inner(self) -> CLayout:
        """The type that a pointer leads to, or the type of an array's elements."""
        return CLayout(self._program, self._type.type)

    @property
    def names(self) -> Sequence[str]:
        """The members of a structure or union; none if only its name is known."""
        return [name for name, *_ in _members(self._type, 0, 0)]

    def member(self, name: str) -> LayoutMember | None:
        """A member of a structure or union, also of one without a name in it."""
        for known, bit_offset, bits, type_ in _members(self._type, 0, 0):
            if known == name:
                return LayoutMember(bit_offset, bits, CLayout(self._program, type_))
        return None


def bare(type_: Any) -> Any:
    """A type without the names that typedefs give it."""
    import drgn

    while type_.kind is drgn.TypeKind.TYPEDEF:
        type_ = type_.type
    return type_


def _members(type_: Any, start: int, depth: int) -> Iterator[tuple[str, int, int, Any]]:
    """The members of a type: name, place in bits, bits of a bit-field, and type."""
    import drgn

    kinds = drgn.TypeKind
    if type_.kind not in (kinds.STRUCT, kinds.UNION, kinds.CLASS) or depth > _DEEPEST:
        return
    for member in type_.members or ():
        at = start + member.bit_offset
        if member.name:
            yield member.name, at, member.bit_field_size or 0, member.type
        else:
            yield from _members(bare(member.type), at, depth + 1)

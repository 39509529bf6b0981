"""The types of values in an expression, and C's conversions between them."""

from __future__ import annotations

from enum import Enum

from markerjit.model import CType, Field, FieldType, TypeClass


class Type(Enum):
    """The type of a value. A character (`%c`) is a u8 that can be compared with a text of one byte.
    A pointer is a u64, and so is the
    number of a stack. A text is a string or bytes."""

    BOOL = "bool"
    CHAR = "char"
    I8 = "i8"
    U8 = "u8"
    I16 = "i16"
    U16 = "u16"
    I32 = "i32"
    U32 = "u32"
    I64 = "i64"
    U64 = "u64"
    F64 = "f64"
    POINTER = "pointer"
    STACK = "stack"
    TEXT = "text"

    def __str__(self) -> str:
        return self.value

    @property
    def bits(self) -> int:
        """The width of an integer; 1 for a bool."""
        return _BITS[self]

    @property
    def signed(self) -> bool:
        """Whether it is an integer with a sign."""
        return self in _SIGNED

    @property
    def least(self) -> int:
        """The smallest integer of this type."""
        return -1 << self.bits - 1 if self.signed else 0

    @property
    def most(self) -> int:
        """The largest integer of this type."""
        return (1 << self.bits - self.signed) - 1


_SIGNED = (Type.I8, Type.I16, Type.I32, Type.I64)
_UNSIGNED = (Type.U8, Type.U16, Type.U32, Type.U64)
_BITS = {
    Type.BOOL: 1,
    Type.CHAR: 8,
    Type.POINTER: 64,
    Type.STACK: 64,
    **dict(zip((*_SIGNED, *_UNSIGNED), (8, 16, 32, 64) * 2, strict=True)),
}
_CONSTANTS = (Type.I32, Type.I64, Type.U64)

RECORDED = {
    Type.BOOL: ("%d", CType(TypeClass.BOOL, 1)),
    Type.CHAR: ("%c", CType(TypeClass.UNSIGNED, 1)),
    Type.I8: ("%d", CType(TypeClass.SIGNED, 1)),
    Type.I16: ("%d", CType(TypeClass.SIGNED, 2)),
    Type.I32: ("%d", CType(TypeClass.SIGNED, 4)),
    Type.I64: ("%ld", CType(TypeClass.SIGNED, 8)),
    Type.U8: ("%u", CType(TypeClass.UNSIGNED, 1)),
    Type.U16: ("%u", CType(TypeClass.UNSIGNED, 2)),
    Type.U32: ("%u", CType(TypeClass.UNSIGNED, 4)),
    Type.U64: ("%lu", CType(TypeClass.UNSIGNED, 8)),
    Type.F64: ("%g", CType(TypeClass.FLOAT, 8)),
    Type.POINTER: ("%p", CType(TypeClass.POINTER, 8)),
    Type.STACK: ("%pB", CType(TypeClass.UNSIGNED, 8)),
}
"""How a number of a type is recorded where it is selected: its conversion and C type."""


def type_of(field: Field) -> Type:
    """The type of a field's values."""
    match field.type:
        case FieldType.STRING | FieldType.BYTES | FieldType.STACK:
            return Type.TEXT
        case FieldType.POINTER:
            return Type.POINTER
        case FieldType.CHAR:
            return Type.CHAR
        case FieldType.BOOL:
            return Type.BOOL
        case FieldType.FLOAT:
            return Type.F64
    types = _SIGNED if field.ctype.type_class is TypeClass.SIGNED else _UNSIGNED
    return types[field.ctype.size.bit_length() - 1]


def type_of_constant(value: int) -> Type | None:
    """The type of an integer constant: the first of i32, i64 and u64 that has it, or None."""
    return next((type_ for type_ in _CONSTANTS if type_.least <= value <= type_.most), None)


def promoted(type_: Type) -> Type:
    """C's integer promotion: smaller integers become an i32, and pointers are numbers."""
    if type_ in (Type.F64, Type.TEXT):
        return type_
    if type_ in (Type.POINTER, Type.STACK):
        return Type.U64
    return Type.I32 if type_.bits < 32 else type_


def common(left: Type, right: Type) -> Type:
    """C's usual arithmetic conversions: the type in which two numbers meet."""
    left, right = promoted(left), promoted(right)
    if Type.F64 in (left, right):
        return Type.F64
    if left.signed == right.signed:
        return max(left, right, key=lambda type_: type_.bits)
    signed, unsigned = (left, right) if left.signed else (right, left)
    return signed if signed.bits > unsigned.bits else unsigned


def compared(left: Type, right: Type) -> Type | None:
    """The type in which two numbers are compared by their values, which is no conversion of C's:
    -1 is less than every unsigned number. None for an i64 and a u64, which no type has both."""
    left, right = promoted(left), promoted(right)
    if Type.F64 in (left, right) or left.signed == right.signed:
        return common(left, right)
    unsigned = right if left.signed else left
    return Type.I64 if unsigned.bits < 64 else None


def wrapped(value: int, type_: Type) -> int:
    """The integer of this type that has the same lower bits."""
    value &= (1 << type_.bits) - 1
    return value - (1 << type_.bits) if type_.signed and value > type_.most else value

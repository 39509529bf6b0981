"""Does a function in C fit a marker? Its parameters must be what the marker passes.

The body of a marker calls its probe with the slot and the arguments as C passes them to a function
with variable arguments: a float arrives as a double, and what is smaller than an int as an int,
which the callee may as well take as what it was.
"""

from __future__ import annotations

from pathlib import Path

from markerjit.elf import parse_format
from markerjit.errors import Refused
from markerjit.model import CType, FieldType, Signature, TypeClass
from markerjit.probes.c.unit import Function

INT = CType(TypeClass.SIGNED, 4)
_SPELLED = {
    (TypeClass.SIGNED, 1): "char",
    (TypeClass.SIGNED, 2): "short",
    (TypeClass.SIGNED, 4): "int",
    (TypeClass.SIGNED, 8): "long",
    (TypeClass.UNSIGNED, 1): "unsigned char",
    (TypeClass.UNSIGNED, 2): "unsigned short",
    (TypeClass.UNSIGNED, 4): "unsigned",
    (TypeClass.UNSIGNED, 8): "unsigned long",
    (TypeClass.FLOAT, 4): "double",
    (TypeClass.FLOAT, 8): "double",
    (TypeClass.POINTER, 8): "const void *",
    (TypeClass.CHARS, 8): "const char *",
    (TypeClass.BOOL, 1): "_Bool",
}
_TAKEN = {"slot", "asm", "auto", "break", "case", "char", "const", "continue", "default", "do",
          "double", "else", "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long",
          "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct",
          "switch", "typedef", "typeof", "union", "unsigned", "void", "volatile",
          "while"}  # fmt: skip


class Mismatch(Refused):
    """A function does not fit a marker. `position` counts from 1, after the slot; `expected` is the
    type that the marker passes there, None for nothing at all; `found` is the parameter's, as it is
    written, "" where there is none."""

    def __init__(
        self, function: str, marker: str, position: int, expected: CType | None, found: str,
        reason: str, write: str,
    ) -> None:  # fmt: skip
        super().__init__(f"{function} does not fit {marker}: {reason}; write: {write}")
        self.function = function
        self.marker = marker
        self.position = position
        self.expected = expected
        self.found = found
        self.write = write


class NoProbe(Refused):
    """A function cannot be a probe of any marker."""

    def __init__(self, source: Path, function: Function) -> None:
        super().__init__(f"{function.name} in {source.name}:{function.line} {function.unfit}")
        self.source = source
        self.function = function.name


def check_fits(source: Path, function: Function, marker: Signature) -> None:
    """Raises NoProbe or Mismatch, with the first difference."""
    if function.unfit:
        raise NoProbe(source, function)
    names = _names(marker)
    write = declaration(function.name, marker)

    def mismatch(position: int, expected: CType | None, spelled: str, reason: str) -> Mismatch:
        return Mismatch(function.name, marker.name, position, expected, spelled, reason, write)

    parameters = function.parameters
    for index, (parameter, passed) in enumerate(zip(parameters, marker.args, strict=False)):
        if parameter.type not in _accepted(passed):
            spelled = f"{_SPELLED[passed]}, its {names[index]}"
            reason = (
                f"parameter {parameter.name} is {parameter.spelled}, the marker passes {spelled}"
            )
            raise mismatch(index + 1, passed, parameter.spelled, reason)
    if len(parameters) > len(marker.args):
        extra = parameters[len(marker.args)]
        reason = f"the marker passes nothing for parameter {extra.name}"
        raise mismatch(len(marker.args) + 1, None, extra.spelled, reason)
    if len(parameters) < len(marker.args) and not function.takes_more:
        at = len(parameters)
        reason = f"it has no parameter for the marker's {names[at]} ({_SPELLED[marker.args[at]]})"
        raise mismatch(at + 1, marker.args[at], "", reason)


def declaration(function: str, marker: Signature) -> str:
    """How a probe of this name for this marker is written in C."""
    parameters = ["struct mj_slot *slot"]
    for type_, name in zip(marker.args, _names(marker), strict=True):
        spelled = _SPELLED[type_]
        parameters.append(f"{spelled}{name}" if spelled.endswith("*") else f"{spelled} {name}")
    return f"void {function}({', '.join(parameters)})"


def _accepted(passed: CType) -> tuple[CType, ...]:
    if passed.type_class is TypeClass.FLOAT:
        return (CType(TypeClass.FLOAT, 8),)
    return (passed, INT) if passed.size < INT.size else (passed,)


def _names(marker: Signature) -> list[str]:
    """Names for the arguments: of their fields; else of their purpose, or their number."""
    names = [""] * len(marker.args)
    fields = parse_format(marker.format, marker.args)
    for field in fields:
        names[field.arg] = f"{field.name}_" if field.name in _TAKEN else field.name
    for field in fields:
        size = f"{field.name}_size"
        if field.type is FieldType.BYTES and size not in names:
            names[field.arg - 1] = size
    return [name or f"argument{number}" for number, name in enumerate(names, 1)]

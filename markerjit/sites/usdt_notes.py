"""The USDT probes of a file as its notes have them, with the names and types that tables give.

What this does not do: say where the file is mapped, or remember the answer (usdt_kept.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from markerjit.elf import FileImage
from markerjit.elf.stapsdt import SdtNote, read_sdt_notes
from markerjit.errors import BadFile, BadNote, MemoryFault
from markerjit.model import CType, Form, Recipe, RemoteAddress, Signature, TypeClass
from markerjit.printable import counted
from markerjit.sites.operands import Argument, Names, conversion_of, parse_operands
from markerjit.sites.providers import Parameter, Providers
from markerjit.sites.usdt_listing import Listing, UsdtNote, listing_of
from markerjit.tuples import NamedTuple
from markerjit.x86.forms import NO_OP_LENGTH, usdt_form

OWN_PROVIDER = "markerjit"
"""The provider in the notes of marker.h, which are where a marker's body begins."""
_INTEGERS = (TypeClass.SIGNED, TypeClass.UNSIGNED)


def list_notes(image: FileImage, providers: Providers) -> Listing:
    """The USDT probes of a file. Raises nothing: what cannot be read is a problem, whose message
    begins with the name of the file."""
    read = read_sdt_notes(image)
    problems = list(read.problems)
    bodies = 0
    names = Names(image, read.symbols, 0)
    notes = []
    for note in read.notes:
        try:
            notes.append(_site(image, note, names, providers))
        except (BadFile, BadNote) as problem:
            if note.provider == OWN_PROVIDER:
                bodies += 1
                continue
            probe = f"{note.provider}:{note.name}"
            where = f"{image.name}: {probe} at {note.site:#x}"
            problems.append(BadNote(f"{where} {problem}", probe))
    if bodies:
        problems.append(BadNote(
            f"{image.name}: {counted(bodies, 'note')} that marker.h makes for other tools; `list` "
            "without --usdt has these markers"
        ))  # fmt: skip
    return listing_of(notes, problems)


def _site(image: FileImage, note: SdtNote, names: Names, providers: Providers) -> UsdtNote:
    arguments = parse_operands(note.operands, names)
    fields = _fields(arguments, providers.parameters(note.provider, note.name))
    signature = Signature(
        f"{note.provider}:{note.name}",
        " ".join(f"{field.name} {field.conversion}" for field in fields if field.conversion),
        tuple(field.argument.ctype for field in fields),
    )
    operands = tuple(field.argument.operand for field in fields)
    recipe = Recipe(operands, note.operands, RemoteAddress(note.semaphore))
    return UsdtNote(signature, note.site, _form(image, note.site), recipe)


def _form(image: FileImage, site: int) -> Form:
    """Raises BadNote where no no-op is at the site."""
    for size in (NO_OP_LENGTH, 1):  # the last one of a segment may be short
        try:
            code = image.read(site, size)
        except MemoryFault:
            continue
        form = usdt_form(code)
        if form is None:
            raise BadNote(f"has no no-op: its code is {code.hex(' ')}")
        return form
    raise BadNote("has code that cannot be read")


class _Field(NamedTuple):
    """An argument in the order of the signature. The conversion is "" where it is the length of the
    next one."""

    name: str
    conversion: str
    argument: Argument


def _fields(arguments: Sequence[Argument], parameters: Sequence[Parameter] | None) -> list[_Field]:
    """The arguments with their names and types. A format has a length before its bytes."""
    if parameters is None or len(parameters) != len(arguments):
        return [
            _Field(f"arg{number}", conversion_of(argument, ""), argument)
            for number, argument in enumerate(arguments)
        ]
    by_name = {
        parameter.name: argument for parameter, argument in zip(parameters, arguments, strict=True)
    }
    lengths = {
        parameter.length
        for parameter in parameters
        if parameter.length and _is_pair(by_name[parameter.name], by_name[parameter.length])
    }
    fields = []
    for name, type_, length in parameters:
        argument = by_name[name]
        if name in lengths:
            continue
        if length in lengths:
            fields.append(_Field(length, "", by_name[length]))
            conversion = "%.*s"
            argument = _as(argument, TypeClass.CHARS)
        else:
            argument = _typed(argument, type_)
            conversion = conversion_of(argument, type_)
        fields.append(_Field(name, conversion, argument))
    return fields


def _is_pair(text: Argument, length: Argument) -> bool:
    return _is_word(text) and length.ctype.type_class in _INTEGERS


def _is_word(argument: Argument) -> bool:
    return argument.ctype.size == 8 and argument.ctype.type_class in _INTEGERS


def _typed(argument: Argument, type_: str) -> Argument:
    """With the type that a table says, where the note does not speak against it."""
    if type_ == "char *" and _is_word(argument):
        return _as(argument, TypeClass.CHARS)
    if type_.endswith("*") and _is_word(argument):
        return _as(argument, TypeClass.POINTER)
    if type_ in ("bool", "_Bool") and argument.ctype.type_class in _INTEGERS:
        return argument._replace(ctype=CType(TypeClass.BOOL, 1))  # its low byte has all of it
    return argument


def _as(argument: Argument, type_class: TypeClass) -> Argument:
    return argument._replace(ctype=CType(type_class, argument.ctype.size))

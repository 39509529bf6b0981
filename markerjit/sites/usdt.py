"""Find the USDT probes of a process or of a file.

Their notes are not loaded with the program. So the file of each mapped object is read
(mapped_files.py). Nothing is changed, and no thread is stopped.

What this does not do: decide how a site can be opened, or look at code behind the no-op.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import partial

from markerjit.elf import FileImage, Read
from markerjit.elf.stapsdt import SdtNote, read_sdt_notes
from markerjit.errors import (
    BadFile,
    BadNote,
    MemoryFault,
    UnexpectedBytes,
    UnknownMarker,
    Unsupported,
)
from markerjit.memory import Mapping
from markerjit.model import (
    CType,
    Form,
    MappedObject,
    Mode,
    Place,
    Recipe,
    RemoteAddress,
    Signature,
    TypeClass,
    UsdtSite,
)
from markerjit.sites.discover import mapped_images
from markerjit.sites.mapped_files import file_of
from markerjit.sites.names import NameKind, ProbeName, nearest
from markerjit.sites.operands import Argument, Names, conversion_of, parse_operands
from markerjit.sites.providers import Parameter, Providers
from markerjit.sites.selection import chosen, is_of_object
from markerjit.tuples import NamedTuple
from markerjit.x86.forms import NO_OP_LENGTH, is_breakpoint, usdt_form

_SEMAPHORE = 2
_INTEGERS = (TypeClass.SIGNED, TypeClass.UNSIGNED)


class UsdtSites(NamedTuple):
    """The sites of all USDT probes, by object and address, and what is wrong with those left out,
    with files, and with the user's tables."""

    sites: tuple[UsdtSite, ...]
    problems: tuple[BadNote | BadFile, ...]


class UsdtState(NamedTuple):
    """How a site of a process is now.

    raised   the count in its semaphore: how many look at the probe; None without a semaphore, or
             where it cannot be read
    problem  what is wrong with the code: another tool's breakpoint, for instance
    mode     how we have it open; None where we have not
    """

    site: UsdtSite
    raised: int | None = None
    problem: UnexpectedBytes | None = None
    mode: Mode | None = None


def usdt_of_file(path: str) -> UsdtSites:
    """The USDT probes of an executable or shared object. Raises BadFile, Unsupported."""
    collector = _Collector()
    with FileImage(path) as image:
        collector.add(image, MappedObject(path, 0, image.build_id(), False), None)
    return collector.result()


def usdt_of_process(pid: int, read: Read, maps: Sequence[Mapping]) -> UsdtSites:
    """The USDT probes of every object mapped into a process.

    Raises Unsupported for a 32-bit process, and what `read` raises when the process ends.
    """
    collector = _Collector()
    code = [range(mapping.start, mapping.end) for mapping in maps if mapping.executable]
    for mapping, loaded in mapped_images(read, maps, collector.problems):
        try:
            image = file_of(pid, mapping, loaded)
        except BadFile as problem:
            collector.problems.append(problem)
            continue
        with image:
            build_id = loaded.build_id()
            collector.add(
                image,
                MappedObject(mapping.path, loaded.bias, build_id, mapping.deleted),
                code,
            )
    return collector.result()


def usdt_states(read: Read, sites: Sequence[UsdtSite]) -> list[UsdtState]:
    """How these sites of a process are now. Raises what `read` raises when the process ends."""
    return [UsdtState(site, _raised(read, site), _problem(read, site)) for site in sites]


def matching_usdt(sites: Sequence[UsdtSite], name: ProbeName) -> tuple[UsdtSite, ...]:
    """The sites that a name is of: `provider:name`, or a name of any provider's.

    Raises UnknownMarker, with the nearest names, when there are none, and Unsupported for a name
    that is not of USDT probes.
    """
    return chosen(name, partial(_matching, sites))


def _matching(sites: Sequence[UsdtSite], name: ProbeName) -> Iterable[UsdtSite]:
    if name.kind not in (NameKind.USDT, NameKind.MARKER) or name.source:
        raise Unsupported(f"'{name}' names {name.kind.value}; a USDT probe is 'provider:name'")
    pattern = name.name if name.kind is NameKind.USDT else f"*:{name.name}"
    names = {site.signature.name for site in sites}
    selected = {probe for probe in names if fnmatchcase(probe, pattern)}
    if not selected:
        raise UnknownMarker(name.text, nearest(name.text, names), what="USDT probe")
    named = [
        site
        for site in sites
        if site.signature.name in selected and is_of_object(name.object, site.place.object.path)
    ]
    if not named:
        raise UnknownMarker(name.text, (), what="USDT probe")
    return named


class _Collector:
    def __init__(self) -> None:
        self.problems: list[BadNote | BadFile] = []
        self._sites: list[UsdtSite] = []
        self._providers = Providers()

    def add(self, image: FileImage, mapped: MappedObject, code: Sequence[range] | None) -> None:
        """The sites of an object: of a process those that one of the ranges `code` has."""
        notes = read_sdt_notes(image)
        self.problems += notes.problems
        names = Names(image, notes.symbols, mapped.bias)
        sites = []
        for note in notes.notes:
            if code is not None and not any(note.site + mapped.bias in span for span in code):
                continue  # a second mapping of the file, for reading only
            try:
                sites.append(self._site(image, note, mapped, names))
            except (BadFile, BadNote) as problem:
                where = f"{image.name}: {note.provider}:{note.name} at {note.site:#x}"
                self.problems.append(BadNote(f"{where} {problem}"))
        self._sites += sorted(sites, key=lambda site: site.address)

    def _site(
        self, image: FileImage, note: SdtNote, mapped: MappedObject, names: Names
    ) -> UsdtSite:
        arguments = parse_operands(note.operands, names)
        parameters = self._providers.parameters(note.provider, note.name)
        fields = _fields(arguments, parameters)
        signature = Signature(
            f"{note.provider}:{note.name}",
            " ".join(f"{field.name} {field.conversion}" for field in fields if field.conversion),
            tuple(field.argument.ctype for field in fields),
        )
        source = f"{os.path.basename(mapped.path)}+{note.site:#x}"
        semaphore = note.semaphore and note.semaphore + mapped.bias
        return UsdtSite(
            signature, Place(mapped, note.site, source), RemoteAddress(note.site + mapped.bias),
            _form(image, note.site),
            Recipe(
                tuple(field.argument.operand for field in fields), note.operands,
                RemoteAddress(semaphore),
            ),
        )  # fmt: skip

    def result(self) -> UsdtSites:
        problems = (*self.problems, *self._providers.problems)
        return UsdtSites(tuple(self._sites), problems)


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


def _raised(read: Read, site: UsdtSite) -> int | None:
    if not site.recipe.semaphore:
        return None
    try:
        return int.from_bytes(read(site.recipe.semaphore, _SEMAPHORE), "little")
    except MemoryFault:
        return None


def _problem(read: Read, site: UsdtSite) -> UnexpectedBytes | None:
    expected = site.form.head
    try:
        code = read(site.address, len(expected))
    except MemoryFault:
        code = b""
    if code == expected:
        return None
    return UnexpectedBytes(
        site.address,
        code,
        expected,
        site.signature.name,
        is_breakpoint=is_breakpoint(code),
    )

"""The USDT probes of files that were looked at before, in the user's cache by build id.

Anybody can give a file the build id of another file. So an entry has all places that were read when
it was made, and a digest of their content. Where a file has the same bytes in these places, and the
same size, its notes are the same: nothing else of it was looked at.

    build id  the name of the entry, and nothing more
    digest    of the bytes that the answer came from: headers, notes, names, no-ops
    rules     the code that reads them and the tables of names, by size and time of each file, as
              Python knows its own compiled modules; and the tables of the user by their contents
    checksum  a damaged entry is not believed, and is written again

What this does not do: say whose cache is believed, and write it (remembered.py).
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Sequence
from functools import cache, cached_property, lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from markerjit.elf import FileImage
from markerjit.elf.format import parse_format, tell_fields
from markerjit.errors import BadFile, BadNote, MemoryFault
from markerjit.model import (
    Constant,
    CType,
    Field,
    FieldType,
    Form,
    General,
    HighByte,
    Memory,
    Operand,
    Signature,
    Static,
    TypeClass,
    Vector,
    new,
)
from markerjit.ours import config_folder, own_directory, read_own_file
from markerjit.sites.remembered import blake2b, recall, remember
from markerjit.sites.usdt_listing import Columns, Listing
from markerjit.tuples import NamedTuple
from markerjit.x86.forms import usdt_form

if TYPE_CHECKING:  # imported where notes are read
    from markerjit.sites.providers import Providers

_MOST = 1 << 24
"""Bytes of an entry."""
_LARGE = 1 << 20
"""An entry of more is not kept decoded."""
_ENTRIES = 8
"""Entries that are."""
_SPAN = struct.Struct("<QQ")
_WORD = 1 << 64
_FORM = Columns._fields.index("form")
_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_RULES = (
    "model.py", "elf/format.py", "elf/image.py", "elf/rawnotes.py", "elf/sections.py",
    "elf/stapsdt.py", "sites/mapped_files.py", "sites/operands.py", "sites/providers.py",
    "sites/unchanged.py", "sites/usdt.py", "sites/usdt_files.py", "sites/usdt_kept.py",
    "sites/usdt_listing.py", "sites/usdt_notes.py", "x86/forms.py", "sites/providers",
)  # fmt: skip
_TABLE_BYTES = 1 << 20
_OPERANDS: tuple[type[Operand], ...] = (General, HighByte, Vector, Memory, Static, Constant)

Reads = dict[tuple[int, int], bytes]
"""What was read of a file, by offset and size."""


class NotedImage(FileImage):
    """A file that notes which parts of it are read."""

    def __init__(self, path: str) -> None:
        self.reads: Reads = {}
        super().__init__(path)
        self.reads[0, len(self.head)] = self.head

    def read_file(self, offset: int, size: int) -> bytes:
        """As a FileImage does."""
        data = super().read_file(offset, size)
        self.reads[offset, size] = data
        return data


class Listed(NamedTuple):
    """A listing, and the name of its entry with the digest of what was read for it; "" where there
    is no entry."""

    listing: Listing
    entry: str = ""
    digest: str = ""


class Listings:
    """The listings of files, one after the other."""

    def __init__(self) -> None:
        self._providers: Providers | None = None

    @property
    def problems(self) -> Sequence[BadFile]:
        """What is wrong with the tables of the user."""
        return self._providers.problems if self._providers else ()

    def of(self, image: FileImage) -> Listed:
        """The USDT probes of a file: as they are known, or read and kept. Raises nothing."""
        build_id, tables = image.build_id(), self._tables
        if not build_id or tables is None:
            return Listed(self._read(image))
        name = f"usdt-{build_id}"
        listed = _recalled(image, name, tables)
        if listed is not None:
            return listed
        with NotedImage(f"/proc/self/fd/{image.fileno()}") as noted:
            noted.name = image.name
            listing = self._read(noted)
            if self.problems:  # else nobody would be told of them the next time
                return Listed(listing)
            return Listed(listing, name, _keep(noted, name, tables, listing))

    def known(self, path: str, entry: str, digest: str) -> Listing | None:
        """The same of a file in which there still is what has this digest. None where the entry
        has gone, or is of something else."""
        if self._tables is None:
            return None
        kept = _entry_of(entry, self._tables)
        try:
            return _listing(kept, path) if kept and kept["digest"] == digest else None
        except (ValueError, TypeError, KeyError, IndexError):
            return None

    @cached_property
    def _tables(self) -> str | None:
        return _digest_of_tables()

    def _read(self, image: FileImage) -> Listing:
        from markerjit.sites.providers import Providers
        from markerjit.sites.usdt_notes import list_notes

        if self._providers is None:
            self._providers = Providers()
        return list_notes(image, self._providers)


# ---- what an answer depends on -------------------------------------------------------------------


@cache
def rules() -> str:
    """A digest of what gives the answers."""
    digest = blake2b()
    for room in _RULES:
        path = os.path.join(_PACKAGE, room)
        files = [path] if room.endswith(".py") else sorted(map(os.fspath, os.scandir(path)))
        for file in files:
            if file.endswith((".py", ".toml")):
                about = os.stat(file)
                digest.update(f"{file} {about.st_size} {about.st_mtime_ns}".encode())
    return str(digest.hexdigest())


def _digest_of_tables() -> str | None:
    """A digest of the tables of the user; None where there is one that cannot be read."""
    base = config_folder()
    digest = blake2b()
    try:
        with own_directory(base, ("markerjit", "usdt")) as directory:
            for name in sorted(os.listdir(directory)):
                if name.endswith(".toml"):
                    content = read_own_file(directory, name, _TABLE_BYTES + 1)
                    digest.update(f"{name} {len(content)} ".encode(errors="surrogateescape"))
                    digest.update(content)
    except FileNotFoundError:
        return ""
    except OSError:
        return None
    return str(digest.hexdigest())


def _digest(size: int, reads: Iterable[tuple[int, bytes]]) -> str:
    """Of a file of so many bytes, and what was read at each offset."""
    digest = blake2b(_SPAN.pack(size, 0))
    for offset, data in reads:
        digest.update(_SPAN.pack(offset, len(data)))
        digest.update(data)
    return str(digest.hexdigest())


# ---- an entry: a checksum, and a line of JSON ----------------------------------------------------


def _recalled(image: FileImage, name: str, tables: str) -> Listed | None:
    """What is known of this file; None where the entry is damaged, or of another one."""
    entry = _entry_of(name, tables)
    if entry is None:
        return None
    try:
        reads = ((offset, image.read_file(offset, size)) for offset, size in entry["reads"])
        if entry["size"] != image.size or entry["digest"] != _digest(image.size, reads):
            return None
        return Listed(_listing(entry, image.name), name, entry["digest"])
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, MemoryFault):
        return None


def _entry_of(name: str, tables: str) -> Any:
    """The entry of this name; None where it is damaged, or was made by other rules or tables."""
    checksum, _, text = (recall(name, _MOST) or "").partition("\n")
    if not text or blake2b(text.encode()).hexdigest() != checksum:
        return None
    try:
        parse = _entry if len(text) <= _LARGE else _entry.__wrapped__
        entry = parse(text)
        return entry if entry["rules"] == rules() and entry["tables"] == tables else None
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return None


def _listing(entry: Any, path: str) -> Listing:
    """The listing that an entry has, of the file at this path. Raises TypeError, ValueError and
    IndexError for what is none."""
    problems = (_problem(f"{path}{of}", *rest) for of, *rest in entry["problems"])
    signatures, operands, columns = entry["listing"]
    return Listing(signatures, operands, columns, tuple(problems))


def _problem(text: str, probe: str | None) -> BadNote | BadFile:
    """What is wrong with a note of a probe, or with a file where there is none. Raises TypeError
    for what is no name."""
    if probe is None:
        return BadFile(text)
    if not isinstance(probe, str):
        raise TypeError("a name")
    return BadNote(text, probe)


def _keep(image: NotedImage, name: str, tables: str, listing: Listing) -> str:
    """Write an entry. Returns its digest, "" where there is none."""
    if not all(str(problem).startswith(image.name) for problem in listing.problems):
        return ""
    columns = listing.columns
    heads = [form.head.hex() for form in columns.form]
    try:
        signatures = list(map(_encoded, listing.signatures))
    except BadNote:
        return ""
    reads = sorted((offset, data) for (offset, _), data in image.reads.items())
    digest = _digest(image.size, reads)
    entry = {
        "rules": rules(),
        "tables": tables,
        "size": image.size,
        "reads": [[offset, len(data)] for offset, data in reads],
        "digest": digest,
        "signatures": signatures,
        "operands": [[_OPERANDS.index(type(each)), *each] for each in listing.operands],
        "notes": [*columns[:_FORM], heads, *columns[_FORM + 1 :]],
        "problems": [
            [str(problem)[len(image.name) :], getattr(problem, "name", None)]
            for problem in listing.problems
        ],
    }
    text = json.dumps(entry)
    remember(name, f"{blake2b(text.encode()).hexdigest()}\n{text}")
    return digest


def _encoded(signature: Signature) -> list[object]:
    """A signature, with the fields that its format has. Raises BadNote where it has none."""
    name, format_, args = signature
    fields = [
        [field, _FIELDS.index(type_), arg, conversion, limit]
        for field, type_, _, arg, conversion, limit in parse_format(format_, args)
    ]
    return [name, format_, [[int(type_class), size] for type_class, size in args], fields]


@lru_cache(_ENTRIES)
def _entry(text: str) -> Any:
    """An entry with its listing decoded, which nobody changes. The processes of a family have the
    same files, whose entries are decoded once. Raises ValueError, TypeError, KeyError, IndexError
    for what is none."""
    entry = json.loads(text)
    signatures = list(map(_signature, entry["signatures"]))
    operands = list(map(_operand, entry["operands"]))
    number, offset, heads, *rest = entry["notes"]
    forms = {head: _form(head) for head in set(heads)}
    columns = Columns(number, offset, [forms[head] for head in heads], *rest)
    _check(columns, len(signatures), len(operands))
    entry["listing"] = signatures, operands, columns
    return entry


def _check(columns: Columns, signatures: int, operands: int) -> None:
    """Raises ValueError and TypeError for columns that are none, of so many different signatures
    and operands."""
    number, offset, _, places, text, semaphore = columns
    place = [*chain.from_iterable(places)]
    if len({*map(len, columns)}) != 1 or {*map(type, text)} - {str} or offset != sorted(offset):
        raise ValueError("columns")
    ends = (number, signatures), (place, operands), (offset, _WORD), (semaphore, _WORD)
    for column, end in ends:
        if {*map(type, column)} - {int}:
            raise TypeError("columns")
        if column and not 0 <= min(column) <= max(column) < end:
            raise ValueError("numbers")


def _signature(row: Any) -> Signature:
    """A signature, whose format need not be parsed again."""
    name, format_, types, fields = row
    args = tuple([_ctype(*each) for each in types])
    parsed = [
        new(Field, (field, _FIELDS[kind], args[arg], arg, conversion, limit))
        for field, kind, arg, conversion, limit in fields
    ]
    tell_fields(format_, args, tuple(parsed))
    return Signature(name, format_, args)


@cache  # there are some ten
def _ctype(type_class: int, size: int) -> CType:
    return CType(_CLASSES[type_class], size)


def _form(head: str) -> Form:
    form = usdt_form(bytes.fromhex(head))
    if form is None:
        raise ValueError(head)
    return form


def _operand(place: Any) -> Operand:
    kind, *fields = place
    if _OPERANDS[kind] is General:
        return General(tuple(fields[0]))
    operand: Operand = _OPERANDS[kind](*fields)
    return operand


_CLASSES = {int(type_class): type_class for type_class in TypeClass}
_FIELDS = (*FieldType,)

"""The prototypes of functions, as debugging information has them: names and C types.

The information is in the object's own file, or in one beside it that has the same build id, where
Debian, GNU strip and debuginfod's client put such files. drgn reads it, an extra: without it, or
without debugging information, a function has no prototype here. Nothing is downloaded.

Functions of C are known. What a C++ compiler passes depends on constructors, so a function that it
has compiled has a prototype only where no class is passed by value. drgn has no references and no
member functions, so what takes the one or is the other has no prototype either. Of overloaded
functions drgn knows one: its address tells which. What compilers have made of a function
(`name.isra.0`) has no prototype, because it takes other arguments than its source says. So do
functions that clang does not export: it may have removed arguments, and keeps the name.

What this does not do: say in which registers arguments are (sites/calling.py).
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

from markerjit.elf.demangle import qualified_name
from markerjit.elf.image import FileImage
from markerjit.elf.layouts import CLayout, bare
from markerjit.elf.sections import Section, read_sections, section_bytes
from markerjit.errors import BadFile
from markerjit.ours import cache_folder
from markerjit.tuples import NamedTuple

_DEBUG = "/usr/lib/debug"
_THREADS = "OMP_NUM_THREADS"
_INFO, _LINK, _COMMENT = b".debug_info", b".gnu_debuglink", b".comment"
_WORDS = (1, 2, 4, 8)
_IN_REGISTERS = 16
"""The most bytes of a structure that is not passed in memory."""
_DEEPEST = 8
"""The most levels of nested structures that are looked into."""
_OBJECTS = 8


class Kind(Enum):
    """The class of a value for a calling convention, and for people."""

    SIGNED = "signed"
    UNSIGNED = "unsigned"
    BOOL = "bool"
    FLOAT = "float"
    LONG_DOUBLE = "long double"
    POINTER = "pointer"
    TEXT = "text"
    STRUCTURE = "structure"
    VOID = "void"
    OTHER = "other"


class Value(NamedTuple):
    """A C type. The members of a structure or union are its scalars, at their offsets; a bit field
    and what a union holds besides have no name."""

    kind: Kind
    size: int = 0
    is_char: bool = False
    members: tuple[Member, ...] = ()


class Member(NamedTuple):
    """A scalar of a structure. `name` is "" where none can be given."""

    name: str
    offset: int
    value: Value


class Parameter(NamedTuple):
    """A parameter of a function; `name` is "" where the source gives none. `text` is its type as C
    writes it."""

    name: str
    value: Value
    text: str = ""


class Prototype(NamedTuple):
    """The parameters of a function, and what it returns."""

    parameters: tuple[Parameter, ...]
    returned: Value


class Prototypes:
    """The prototypes of one object's functions. `local` are the addresses of those that it does not
    export."""

    def __init__(self, program: Any, *, trusts_local: bool) -> None:
        self._program = program
        self._trusts_local = trusts_local

    def of(self, names: Sequence[str], address: int, *, local: bool) -> Prototype | None:
        """The prototype of the function with these names at an address of the file; None where it
        is not known."""
        if local and not self._trusts_local:
            return None
        for type_ in self._types_of(names, address):
            try:
                return _prototype(type_)
            except Exception:  # damaged: drgn's errors have no common root
                continue
        return None

    def layouts_of(self, names: Sequence[str], address: int, *, local: bool) -> dict[str, CLayout]:
        """The types of that function's parameters by name, and of its return value as `ret`. Empty
        where they are not known."""
        if local and not self._trusts_local:
            return {}
        for type_ in self._types_of(names, address):
            named = enumerate(type_.parameters)
            types = {each.name or f"arg{number}": each.type for number, each in named}
            types.setdefault("ret", type_.type)
            return {name: CLayout(self._program, each) for name, each in types.items()}
        return {}

    def _types_of(self, names: Sequence[str], address: int) -> Iterator[Any]:
        for symbol in names:
            name = qualified_name(symbol)
            places = (None, address) if name == symbol else (address,)  # others may be overloaded
            try:
                function = self._program.function(name)
                if function.address_ in places:
                    yield function.type_
            except Exception:  # not there, or damaged: drgn's errors have no common root
                continue


def prototypes_of(image: FileImage) -> Prototypes | None:
    """The prototypes of an object; None without debugging information, or without drgn to read
    it."""
    try:
        sections = read_sections(image)
    except BadFile:
        return None
    if any(section.name == _INFO and section.size for section in sections):
        program = _program(image.fileno(), None)
    else:
        program = _beside(image, sections)
    if program is None:
        return None
    return Prototypes(program, trusts_local=not _is_of_clang(image, sections))


def has_reader() -> bool:
    """Whether drgn is installed."""
    return importlib.util.find_spec("drgn") is not None


# ---- files ---------------------------------------------------------------------------------------

_programs: dict[tuple[int, int, int], Any] = {}
"""What drgn has read, by file: it takes a moment, and functions are looked up more than once."""


def _program(file: int, build_id: str | None) -> Any:
    """drgn's view of an open file. None where it cannot be read, or has another build id than is
    asked for."""
    status = os.fstat(file)
    key = status.st_dev, status.st_ino, status.st_mtime_ns
    if key not in _programs:
        if len(_programs) >= _OBJECTS:
            del _programs[next(iter(_programs))]
        _programs[key] = _load(os.dup(file))
    program, loaded = _programs[key]
    return program if build_id in (None, loaded) else None


def _load(file: int) -> tuple[Any, str | None]:
    """drgn's view of a file, which it closes, and the file's build id."""
    drgn = _drgn()
    if drgn is None:
        os.close(file)
        return None, None
    program = drgn.Program(drgn.host_platform)
    # One that drgn looks for itself would come from the network, where the user has set that up.
    module = program.extra_module("object", create=True)
    try:
        module.try_file("object", fd=file, force=True)
    except Exception:  # drgn's errors for damaged files have no common root
        return None, None
    build_id = module.build_id
    return program, build_id.hex() if build_id else None


def _drgn() -> Any:
    """drgn, if it is installed. It reads with as many threads as there are CPUs, and of functions
    with one name it knows the one that a thread has come to first: another one in the next process.
    With one thread it is always the same. OpenMP looks at its variable while it is loaded."""
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        import drgn
    except ImportError:
        return None
    finally:
        del os.environ[_THREADS]
        if before is not None:
            os.environ[_THREADS] = before
    return drgn


def _beside(image: FileImage, sections: Sequence[Section]) -> Any:
    """The first file with the debugging information of an object that is there, and of its
    build."""
    build_id = image.build_id()
    if not build_id:  # nothing would tell another build's file from it
        return None
    for path in _candidates(image, sections, build_id):
        try:
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            program = _program(file, build_id)
        finally:
            os.close(file)
        if program is not None:
            return program
    return None


def _candidates(image: FileImage, sections: Sequence[Section], build_id: str) -> Iterator[str]:
    """Where a file with debugging information may be: gdb's manual, "Separate Debug Files", and
    debuginfod-client-config(7)."""
    yield f"{_DEBUG}/.build-id/{build_id[:2]}/{build_id[2:]}.debug"
    directory = os.path.dirname(image.name)
    for link in _contents(image, sections, _LINK):
        name = os.fsdecode(link.partition(b"\0")[0])
        if name and "/" not in name:
            yield from (
                f"{directory}/{name}",
                f"{directory}/.debug/{name}",
                f"{_DEBUG}{directory}/{name}",
            )
    downloaded = os.environ.get("DEBUGINFOD_CACHE_PATH") or f"{cache_folder()}/debuginfod_client"
    yield f"{downloaded}/{build_id}/debuginfo"


def _is_of_clang(image: FileImage, sections: Sequence[Section]) -> bool:
    return any(b"clang" in text for text in _contents(image, sections, _COMMENT))


def _contents(image: FileImage, sections: Sequence[Section], name: bytes) -> Iterator[bytes]:
    for section in sections:
        if section.name == name:
            try:
                yield section_bytes(image, section)
            except BadFile:
                continue


# ---- types ---------------------------------------------------------------------------------------


def _prototype(function: Any) -> Prototype | None:
    parameters = tuple(
        Parameter(parameter.name or "", _value(parameter.type), parameter.type.type_name())
        for parameter in function.parameters
    )
    prototype = Prototype(parameters, _value(function.type))
    values = (prototype.returned, *(parameter.value for parameter in parameters))
    is_c = str(function.language) == "Language.C"
    if not is_c and any(value.kind in (Kind.STRUCTURE, Kind.OTHER) for value in values):
        return None
    return prototype


def _value(type_: Any, depth: int = 0) -> Value:
    import drgn

    type_ = bare(type_)
    kinds = drgn.TypeKind
    match type_.kind:
        case kinds.VOID:
            return Value(Kind.VOID)
        case kinds.BOOL:
            return Value(Kind.BOOL, type_.size)
        case kinds.INT if type_.size in _WORDS:
            kind = Kind.SIGNED if type_.is_signed else Kind.UNSIGNED
            return Value(kind, type_.size, is_char=type_.name == "char")
        case kinds.ENUM if type_.type is not None:
            return _value(type_.type)
        case kinds.FLOAT if type_.size in (4, 8):
            return Value(Kind.FLOAT, type_.size)
        case kinds.FLOAT if type_.size == 16 and type_.name == "long double":
            return Value(Kind.LONG_DOUBLE, 16)
        case kinds.POINTER:
            return Value(Kind.TEXT if _is_char(type_.type) else Kind.POINTER, 8)
        case kinds.STRUCT | kinds.UNION if type_.is_complete():
            members = _members(type_, depth)
            if members is not None:
                return Value(Kind.STRUCTURE, type_.size, members=tuple(members))
    return Value(Kind.OTHER)


def _is_char(type_: Any) -> bool:
    """Whether a pointer to this type is the address of a text. Bytes of an `int8_t` are
    data."""
    import drgn

    type_ = bare(type_)
    return bool(type_.kind is drgn.TypeKind.INT and type_.name == "char")


def _members(type_: Any, depth: int) -> list[Member] | None:
    """The scalars of a structure, and those of structures and arrays in it; None for one that holds
    what is not known. One that is larger than two words goes over the stack, whatever is in it."""
    import drgn

    if type_.size > _IN_REGISTERS:
        return []
    if depth > _DEEPEST:
        return None
    is_union = type_.kind is drgn.TypeKind.UNION
    members: list[Member] = []
    for member in type_.members:
        if member.bit_field_size is not None:
            if member.bit_offset >= 8 * type_.size:  # damaged
                return None
            members.append(Member("", member.bit_offset // 8, Value(Kind.UNSIGNED, 1)))
            continue
        inner = _scalars(member.type, depth + 1)
        if inner is None:
            return None
        is_named = member.name and not is_union
        for scalar in inner:
            name = f"{member.name}_{scalar.name}" if scalar.name else member.name
            offset = member.bit_offset // 8 + scalar.offset
            if offset + scalar.value.size > type_.size:  # damaged
                return None
            members.append(Member(name if is_named else "", offset, scalar.value))
    return members


def _scalars(type_: Any, depth: int) -> list[Member] | None:
    """A value as the scalars in it; one that is a scalar itself has no name there."""
    import drgn

    type_ = bare(type_)
    if type_.kind is drgn.TypeKind.ARRAY:
        element = _scalars(type_.type, depth + 1)
        if not element or not type_.length:
            return None if element is None else []
        if type_.size > _IN_REGISTERS:  # more than what it is in: damaged
            return None
        size = type_.size // type_.length
        return [
            Member(f"{index}_{each.name}" if each.name else str(index), index * size + each.offset,
                   each.value)
            for index in range(type_.length)
            for each in element
        ]  # fmt: skip
    value = _value(type_, depth)
    if value.kind is Kind.STRUCTURE:
        return list(value.members)
    return None if value.kind in (Kind.OTHER, Kind.VOID) else [Member("", 0, value)]

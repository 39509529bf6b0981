"""The values that all floors speak in. Frozen, and without behaviour that needs a process.

An address in the target is a `RemoteAddress`, never a bare int, so that the type checker notices
when one is taken for an offset in a file or an address of our own.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple, NewType

RemoteAddress = NewType("RemoteAddress", int)
"""An address in the target's address space."""


class Kind(IntEnum):
    """How a site is compiled: MJ_KIND_* of abi.h, which explains each."""

    JUMP = 1
    NOP = 2
    POINTER = 3
    SENTINEL = 4
    DIRECT = 5
    IMMEDIATE = 6
    SYMBOL = 7

    def __str__(self) -> str:
        return self.name.lower()


class Mode(Enum):
    """How a site is switched on. Each kind has its own way; some can also take a breakpoint."""

    JUMP = "jump"
    NOP = "nop"
    POINTER = "pointer"
    SENTINEL = "sentinel"
    IMMEDIATE = "immediate"
    INT3 = "int3"

    def __str__(self) -> str:
        return self.value


class Quiescence(Enum):
    """How threads are kept from harm while code changes: the name of a strategy, whose module
    (markerjit/quiesce/strategy) says what it proves. SIGNALS is for one's own process only."""

    STOP = "stop"
    MEMBARRIER = "membarrier"
    SIGNALS = "signals"
    NONE = "none"

    def __str__(self) -> str:
        return self.value


class TypeClass(IntEnum):
    """The class of an argument's C type: MJ_CLASS_* of abi.h."""

    SIGNED = 1
    UNSIGNED = 2
    FLOAT = 3
    POINTER = 4
    CHARS = 5
    BOOL = 6


class CType(NamedTuple):
    """An argument's C type as the note has it: its class, and its size in bytes."""

    type_class: TypeClass
    size: int

    def __str__(self) -> str:
        match self.type_class:
            case TypeClass.SIGNED:
                return f"i{self.size * 8}"
            case TypeClass.UNSIGNED:
                return f"u{self.size * 8}"
            case TypeClass.FLOAT:
                return f"f{self.size * 8}"
            case TypeClass.POINTER:
                return "pointer"
            case TypeClass.CHARS:
                return "chars"
            case TypeClass.BOOL:
                return "bool"


class FieldType(Enum):
    """What a field holds once it is decoded."""

    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    CHAR = "char"
    POINTER = "pointer"
    STRING = "string"
    BYTES = "bytes"

    def __str__(self) -> str:
        return self.value


class Field(NamedTuple):
    """A named field of a marker.

    `arg` is the index of the argument that holds it. A BYTES field (`%.*s`) has its length in the
    argument before. `conversion` is the printf conversion by which a reader shows it, e.g. "#x".
    """

    name: str
    type: FieldType
    ctype: CType
    arg: int
    conversion: str
    limit: int | None = None


class Signature(NamedTuple):
    """What an event is, wherever it happens: its name, its format and its arguments' C types.

    Marker notes, events of probes in C and sites of several objects share one when their records
    are read alike: then they share an entry of the runtime, too.
    """

    name: str
    format: str
    args: tuple[CType, ...]

    @property
    def text(self) -> str:
        """All of it as one text, whose hash the runtime's entry has."""
        return f"{self.name}\0{self.format}\0{' '.join(map(str, self.args))}"


class Note(NamedTuple):
    """One marker note, decoded, with addresses as the object file has them (before any load bias).

    `site`, `body`, `end` and `slot` are explained in abi.h; 0 where the kind has none.
    """

    name: str
    kind: Kind
    has_inline: bool
    format: str
    args: tuple[CType, ...]
    file: str
    line: int
    site: int
    body: int
    end: int
    slot: int

    @property
    def signature(self) -> Signature:
        """What the marker records."""
        return Signature(self.name, self.format, self.args)


class MappedObject(NamedTuple):
    """A file, or what was one, mapped into the target.

    path       as /proc/PID/maps shows it, without a trailing " (deleted)"
    bias       what to add to an address of the object file to get one of the target
    build_id   of the image in memory, lower-case hexadecimal, or None
    deleted    the file is gone or another one stands in its place; the image in memory is what we
               read, so nothing is guessed from the new file
    """

    path: str
    bias: int
    build_id: str | None
    deleted: bool


class Site(NamedTuple):
    """One place in the code of the target (or of a file: then `object.bias` is 0)."""

    marker: str
    kind: Kind
    address: RemoteAddress
    body: RemoteAddress
    end: RemoteAddress
    slot: RemoteAddress
    note: Note
    object: MappedObject

    @property
    def offset(self) -> int:
        """The address as the object file has it, for tools such as objdump and addr2line."""
        return self.note.site

    @property
    def source(self) -> str:
        return f"{self.note.file}:{self.note.line}"


Value = int | float | bool | str | bytes | None
"""A decoded field: None is a NULL string, bytes are what is no text."""


class Event(NamedTuple):
    """One record of a probe.

    time      nanoseconds of CLOCK_MONOTONIC
    cpu, tid  where it was recorded; tid is 0 where the runtime cannot know it
    fields    by name, in the order of the format
    """

    time: int
    cpu: int
    tid: int
    name: str
    fields: dict[str, Value]


class Change(NamedTuple):
    """Bytes that are to become others: what is wanted, not yet how.

    `what` is for people; `code` says whether threads execute the bytes. `new` is empty while it is
    not known: in a plan made before the runtime is in the target. `quiet` is for data: no thread
    reads it now, because the sites that would are closed. `completion` is where a thread goes on
    that comes to a breakpoint in the place of the instruction, if it can be said so simply.
    """

    address: RemoteAddress
    old: bytes
    new: bytes
    what: str
    code: bool
    quiet: bool = False
    completion: RemoteAddress | None = None


class Edit(NamedTuple):
    """One write of a plan: struct mj_edit of abi.h, which explains `step`, `again` and `store`."""

    address: RemoteAddress
    old: bytes
    new: bytes
    what: str
    code: bool
    step: int = 0
    again: bool = False
    store: bool = False

"""The values that all floors speak in. Frozen, and without behaviour that needs a process.

An address in the target is a `RemoteAddress`, never a bare int, so that the type checker notices
when one is taken for an offset in a file or an address of our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum, StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NewType

from markerjit.errors import Reason
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from datetime import datetime

    from markerjit.frames import Frame, StackText

new = tuple.__new__
"""`new(Site, (…))` is `Site(…)` in half the time, with all fields in their order. It is for values
of which a process may have a hundred thousand."""

RemoteAddress = NewType("RemoteAddress", int)
"""An address in the target's address space."""


class Kind(StrEnum):
    """How a marker's site is compiled, which is the name of its form. MJ_KIND_* of abi.h explains
    each. Sites that are not of markers have forms with other names."""

    JUMP = "jump"
    NOP = "nop"
    POINTER = "pointer"
    SENTINEL = "sentinel"
    DIRECT = "direct"
    IMMEDIATE = "immediate"
    SYMBOL = "symbol"


class Mode(Enum):
    """How a site is switched on. Each form has its own way; some can also take a breakpoint."""

    JUMP = "jump"
    NOP = "nop"
    POINTER = "pointer"
    SENTINEL = "sentinel"
    IMMEDIATE = "immediate"
    INT3 = "int3"

    __hash__ = object.__hash__  # that of Enum is a function in Python, called for each site

    def __str__(self) -> str:
        return self.value


class Quiescence(Enum):
    """How threads are kept from harm while code changes: the name of a strategy. Its docstring
    (markerjit/quiesce/strategies.py) says what it proves. SIGNALS works only in the controller's
    own process."""

    STOP = "stop"
    MEMBARRIER = "membarrier"
    SIGNALS = "signals"
    NONE = "none"

    def __str__(self) -> str:
        return self.value


class Seccomp(Enum):
    """What is done about a target's seccomp filters. READ runs the filters on each system call that
    is needed, and refuses if a call is not allowed. TRUST_ERRNO takes the caller's word that the
    filters answer with an error and never kill."""

    READ = "read"
    TRUST_ERRNO = "trust-errno"

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
    STACK = "stack"

    def __str__(self) -> str:
        return self.value


class Field(NamedTuple):
    """A named field of a marker.

    `arg` is the index of the argument that holds it. A BYTES field (`%.*s`) has its length in the
    argument before. A STACK has its number in a record, and is a text from there on (frames.py).
    `conversion` is the printf conversion by which a reader shows it, e.g. "#x".
    """

    name: str
    type: FieldType
    ctype: CType
    arg: int
    conversion: str
    limit: int | None = None


class Signature(NamedTuple):
    """What an event is, independent of where it happens: its name, format and arguments' C types.

    Marker notes, events of probes in C and sites of several objects share a signature when their
    records are read alike. They then share an entry of the runtime, too.
    """

    name: str
    format: str
    args: tuple[CType, ...]

    @property
    def text(self) -> str:
        """The whole signature as one text. The runtime's entry has its hash."""
        return f"{self.name}\0{self.format}\0{_text_of(self.args)}"


@lru_cache(1 << 12)
def _text_of(args: tuple[CType, ...]) -> str:
    """Types as one text. Thousands of functions have a few hundred lists of them."""
    return " ".join(map(str, args))


class MappedObject(NamedTuple):
    """A file mapped into the target, which may have been deleted since.

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


class Place(NamedTuple):
    """Where a site is, in its file's own terms.

    offset  the address as the object file has it, for tools such as objdump and addr2line
    source  `kv.c:7`
    """

    object: MappedObject
    offset: int
    source: str


class Form(NamedTuple):
    """What stands at the head of a site, and what may.

    name    for people, and for JSON; for a marker it says how it was compiled: a Kind
    head    the bytes that change, as they are while the site is dormant
    tail    the bytes that must follow the head; they never change
    ways    the head by mode, for each mode that the site can be switched on with, the best first
    inside  offsets in the head at which other instructions begin; () if the head is one
            instruction, or a part of one
    lead    how many bytes of the instruction stand before the head
    closed  why the site cannot be switched, as a clause; "" where the form's name says it
    reason  what `closed` is a reason of, to be counted
    lasts   the same request finds it closed as long as nothing else is mapped in the process, and
            it gets no stub by another request

    The head is empty where the slot alone decides. Then no code changes, and there is one way. A
    site without any way cannot be switched.
    """

    name: str
    head: bytes
    tail: bytes
    ways: Mapping[Mode, bytes]
    inside: tuple[int, ...] = ()
    lead: int = 0
    closed: str = ""
    reason: Reason = Reason.NO_OPENING
    lasts: bool = False

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes that a site can be switched on with, the best first."""
        return tuple(self.ways)

    @property
    def is_decided_by_slot(self) -> bool:
        """Whether the slot alone decides, so that no code changes."""
        return not self.head and bool(self.ways)

    def __hash__(self) -> int:
        return hash((self.name, self.head, self.tail))  # a mapping has no hash


class Hole(NamedTuple):
    """Bytes near a site that hold the long jump to its stub, while a short jump opens its head.

    The long jump is the last five bytes of `after`. Bytes before it change or are lost with it. A
    thread that is about to execute the long jump is inside.

    before  what stands there while the site is closed, or opened by a breakpoint
    after   what stands there while it is opened by the short jump
    covers  how many bytes are lost there, to the end of an instruction
    """

    address: RemoteAddress
    before: bytes
    after: bytes
    covers: int


class Body(NamedTuple):
    """The code that loads the arguments and calls the probe in the slot. A part that does not exist
    is 0.

    slot    where the probe and its data are
    entry   the start of the body
    end     the address behind the site at which the program goes on
    idle    the slot's probe while nothing is on
    inline  the body has code of the program's own too, besides the call of the probe
    preserving  the probe gets a block of words and changes no register (abi.h, struct mj_slot);
                otherwise it is called as a C function
    semaphore   the address of the program's 16-bit count of the tracers attached to the site
    hole        the hole that a jump at the head goes through; None where the jump leads here
                directly
    covers      how many bytes of the program's instructions the body has copies of; 0 for a body
                that a compiler made
    """

    slot: RemoteAddress
    entry: RemoteAddress
    end: RemoteAddress
    idle: RemoteAddress = RemoteAddress(0)
    inline: bool = False
    preserving: bool = False
    semaphore: RemoteAddress = RemoteAddress(0)
    hole: Hole | None = None
    covers: int = 0


class Site(NamedTuple):
    """One place in the code of the target, or of a file, that can be opened. In a file the bias of
    the object is 0.

    The body was made by a compiler, or by us from the recipe of a UsdtSite.
    """

    signature: Signature
    place: Place
    address: RemoteAddress
    form: Form
    body: Body

    @property
    def marker(self) -> str:
        """The name of the marker that it belongs to."""
        return self.signature.name

    @property
    def name(self) -> str:
        """The marker's name, as events and statuses show it."""
        return self.signature.name

    @property
    def kind(self) -> str:
        """The name of its form: how it was compiled."""
        return self.form.name

    @property
    def object(self) -> MappedObject:
        """The file that it is in."""
        return self.place.object

    @property
    def offset(self) -> int:
        """The address as the object file has it."""
        return self.place.offset

    @property
    def source(self) -> str:
        """`kv.c:7`."""
        return self.place.source

    @property
    def slot(self) -> RemoteAddress:
        """Where its probe is, 0 without one."""
        return self.body.slot

    def __hash__(self) -> int:
        return hash(self.address)  # there are sets of a hundred thousand

    def __repr__(self) -> str:
        return f"<Site of {self.name} at {self.address:#x} ({self.kind}), {self.source}>"

    def _repr_html_(self) -> str:
        from markerjit.printable.html import html_of

        return html_of([self])

    def _repr_cells_(self) -> Mapping[str, str]:
        from markerjit.printable.html import Code

        ways = [f"{mode}: {head.hex(' ')}" for mode, head in self.form.ways.items() if head]
        return {
            "marker": self.marker,
            "kind": str(self.kind),
            "address": Code(f"{self.address:#x}"),
            "off": Code(self.form.head.hex(" ")),
            "on": Code(", ".join(ways)),
            "source": self.source,
        }


class General(NamedTuple):
    """A value in a general register, which is named by its size: 1, 2, 4 and 8 bytes."""

    names: tuple[str, str, str, str]


class HighByte(NamedTuple):
    """A byte in the second byte of a general register, such as "ah"."""

    name: str


class Vector(NamedTuple):
    """A double or a float in the low bytes of a vector register."""

    number: int


class Memory(NamedTuple):
    """A value at base + offset + scaled × scale. The names are those of registers of 64 bits; "" is
    none."""

    base: str
    offset: int
    scaled: str = ""
    scale: int = 1


class Static(NamedTuple):
    """A value at a fixed place of an object. `address` is in the target, like a site's."""

    address: RemoteAddress
    symbol: str


class Constant(NamedTuple):
    """A value that the compiler knew. It is an address in the target if it came from a symbol."""

    value: int
    symbol: str = ""


class Kept(NamedTuple):
    """At an exit: the argument with this number, counted from 0, as the function's entry kept
    it."""

    number: int


class Duration(NamedTuple):
    """At an exit: how many nanoseconds ago the function was entered. `since` is always `entry`."""

    since: str = "entry"


Operand = General | HighByte | Vector | Memory | Static | Constant | Kept | Duration
"""Where a value is while a thread is at a site. Its size and sign are those of its CType."""


class Recipe(NamedTuple):
    """What a body must do for a site that no compiler prepared.

    operands   where the arguments of the signature are, in their order
    text       the operands for people, as the compiler wrote them, in its order
    semaphore  the address of the program's 16-bit count of the tracers attached to the probe; the
               program may skip the site while the count is 0. 0 where there is no count
    """

    operands: tuple[Operand, ...]
    text: str = ""
    semaphore: RemoteAddress = RemoteAddress(0)


class Returned(NamedTuple):
    """What a function returns, as fields of the event of a return. Format and types are as in
    Signature; the operands say where the values are."""

    format: str
    args: tuple[CType, ...]
    operands: tuple[Operand, ...]


class UsdtSite(NamedTuple):
    """One place in the code of the target, or of a file, where a USDT probe is. It has the fields
    of a Site, and a recipe for the body that no compiler made.

    The signature's name is `provider:name`. The form's head is the no-op at the site.

    Functions have such sites, too. The site of an exit is the first of the instructions that are
    lost, and the last of these leaves the function.

    leaves    the entry of the function that is left, as an address of the object file; None for
              other sites
    enters    the entry whose arguments are the operands of the site; None where there are none
    returned  at an entry: what the function returns; None where it is not known
    types     of an entry: the C types of its arguments, "" for one that is none; () where they are
              not known
    """

    signature: Signature
    place: Place
    address: RemoteAddress
    form: Form
    recipe: Recipe
    leaves: int | None = None
    enters: UsdtSite | None = None
    returned: Returned | None = None
    types: tuple[str, ...] = ()


Value = int | float | bool | str | bytes | None
"""A decoded field. None is a NULL string; bytes are what is not text."""


class Origin(NamedTuple):
    """Where events come from: the process, and the time since 1970 less CLOCK_MONOTONIC. 0 is not
    known."""

    pid: int = 0
    wall_offset_ns: int = 0


_UNKNOWN = Origin()


class Event(NamedTuple):
    """One record of a probe.

    time      nanoseconds of CLOCK_MONOTONIC
    cpu, tid  where it was recorded; tid is 0 where the runtime cannot know it
    fields    by name, in the order of the format

    Events with the same values are equal, whatever their origin.
    """

    time: int
    cpu: int
    tid: int
    name: str
    fields: dict[str, Value]

    @property
    def origin(self) -> Origin:
        """Where the event comes from. Events of one origin share it: see `event_type`."""
        return _UNKNOWN

    @property
    def pid(self) -> int:
        """The process; 0 where it is not known."""
        return self.origin.pid

    @property
    def process(self) -> int:
        """The same as `pid`."""
        return self.origin.pid

    @property
    def stack(self) -> tuple[Frame, ...]:
        """The frames of the stack that was recorded with it (`stack` of `Session.trace`), the
        innermost first, with the names of their functions; () where none was."""
        return self._stack.frames if self._stack else ()

    @property
    def stack_end(self) -> str:
        """Why `stack` has no more frames: "[no table]" or "[damaged]", where it could not be
        walked further, "[deeper]"; "" where nothing has called the last one."""
        return self._stack.end if self._stack else ""

    @property
    def _stack(self) -> StackText | None:
        from markerjit.frames import StackText  # few events have one

        value = self.fields.get("stack")
        return value if isinstance(value, StackText) else None

    @property
    def when(self) -> datetime | None:
        """The time of day, in UTC and whole microseconds. None where it is not known: an event that
        was recorded without a clock has a number in place of a time."""
        if not self.origin.wall_offset_ns:
            return None
        from datetime import UTC, datetime, timedelta  # not at start-up: it takes time

        since = timedelta(microseconds=(self.time + self.origin.wall_offset_ns) // 1000)
        try:
            return datetime(1970, 1, 1, tzinfo=UTC) + since
        except OverflowError:  # of a damaged file
            return None

    def __reduce__(self) -> tuple[object, ...]:
        return _event_of, (self.origin, tuple(self))

    def _repr_html_(self) -> str:
        from markerjit.printable.html import html_of

        return html_of([self])

    def _repr_cells_(self) -> Mapping[str, str]:
        return {
            "time": f"{self.time / 1e9:.9f} s",
            "cpu": str(self.cpu),
            "thread": str(self.tid or "-"),
            "marker": self.name,
            "fields": " ".join(f"{name}={value!r}" for name, value in self.fields.items()),
        }


@lru_cache(maxsize=256)
def event_type(origin: Origin) -> type[Event]:
    """The type of the events of one origin. The type holds the origin, so that an event is no
    larger and is made as fast as a tuple."""
    return type("Event", (Event,), {"__slots__": (), "origin": origin, "__module__": __name__})


def _event_of(origin: Origin, values: tuple[object, ...]) -> Event:
    """An event that was pickled or copied."""
    return tuple.__new__(event_type(origin), values)


class Change(NamedTuple):
    """Bytes that are to become others: what is wanted, not yet how.

    `what` is for people; `code` says whether threads execute the bytes. `new` is empty while it is
    not known: in a plan made before the runtime is in the target. `quiet` is for data: no thread
    reads it now, because the sites that use it are closed; `early`, that none has read it ever,
    and that it is in memory of ours. `completion` is the address at which a
    thread continues after it has hit a breakpoint in place of the instruction, if one address says
    it all.
    """

    address: RemoteAddress
    old: bytes
    new: bytes
    what: str
    code: bool
    quiet: bool = False
    completion: RemoteAddress | None = None
    early: bool = False


class Edit(NamedTuple):
    """One write of a plan: struct mj_edit of abi.h, which explains `step`, `again`, `store` and
    `early`."""

    address: RemoteAddress
    old: bytes
    new: bytes
    what: str
    code: bool
    step: int = 0
    again: bool = False
    store: bool = False
    early: bool = False

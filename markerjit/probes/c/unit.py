"""Probes written in C: what is known of one before and after it is linked for a process.

compile.py makes a `Compiled` of a source file, link.py a `Linked` of that for one target. A whole
file is loaded at once, so its functions share its variables; each of them that has a slot as its
first parameter can be connected to markers. Offsets in a `Compiled` count from where its code or
data will be, what a `Linked` says are addresses of the target.

What this does not do: put it there, connect it and take it away (patch), or read what it has
counted (values.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from markerjit.errors import BadArgument, MarkerError
from markerjit.model import CType, Signature
from markerjit.tuples import NamedTuple, brief

if TYPE_CHECKING:
    from pathlib import Path

ALIGNMENT = 64
"""Of code and data, at least: counters of two CPUs must not share a line."""

RUNTIME_FUNCTIONS = ("mj_record_event", "mj_fetch")
"""Functions of the runtime that a probe may call."""


class BadProbe(MarkerError):
    """A source file is not what can run in another program; `source` names it."""

    def __init__(self, source: Path, reason: str) -> None:
        super().__init__(f"{source.name}: {reason}")
        self.source = source
        self.reason = reason


class DoesNotCompile(BadProbe):
    """The compiler refuses the source. `output` is all that it says; the message has its first
    error."""

    def __init__(self, source: Path, output: str) -> None:
        errors = [line for line in output.splitlines() if "error:" in line] or output.splitlines()
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        first = errors[0].strip() if errors else "the compiler does not say why"
        super().__init__(source, f"does not compile: {first}{more}")
        self.output = output


class NoSuchFunction(BadProbe):
    """The source has no such function that can be a probe; `candidates` are those that can."""

    def __init__(
        self, source: Path, function: str, candidates: tuple[str, ...], *, is_static: bool
    ) -> None:
        if is_static:
            reason = f"{function} is static, so it cannot be called from outside; remove the word"
        else:
            known = f"it has {', '.join(candidates)}" if candidates else "it has none"
            reason = f"there is no function {function}; {known}"
        super().__init__(source, reason)
        self.function = function
        self.candidates = candidates
        self.is_static = is_static


class Undefined(NamedTuple):
    """An undefined symbol, and the place of its first use ("" and 0: not known)."""

    name: str
    file: str
    line: int
    called: bool

    def __str__(self) -> str:
        does = "called" if self.called else "used"
        return f"{self.name} is {does}" + (f" in {self.file}:{self.line}" if self.line else "")


class UndefinedSymbols(BadProbe):
    """The probe wants to be linked with something; `symbols` are all of those."""

    def __init__(self, source: Path, symbols: tuple[Undefined, ...]) -> None:
        super().__init__(
            source,
            f"{', '.join(map(str, symbols))}: a probe runs inside another program, where there is "
            "no libc for it and nothing else to link with; markerjit/probe.h has what it can call",
        )
        self.symbols = symbols


class Forbidden(BadProbe):
    """An instruction that a probe may not have."""

    def __init__(self, source: Path, instruction: str, file: str, line: int, why: str) -> None:
        where = f" ({file}:{line})" if line else ""
        super().__init__(source, f"{instruction}{where}: {why}")
        self.instruction = instruction
        self.file = file
        self.line = line


class NoTool(MarkerError):
    """A compiler or linker is missing; `tool` is what was looked for."""

    def __init__(self, tool: str, package: str) -> None:
        super().__init__(f"a probe in C needs {tool}, which is not here; apt-get install {package}")
        self.tool = tool
        self.package = package


class Parameter(NamedTuple):
    """A parameter of a function. `type` is None where no marker has arguments of its type."""

    name: str
    type: CType | None
    spelled: str


class Function(NamedTuple):
    """A function that can be called from outside of its file.

    parameters  without the slot
    takes_more  it ends with `...`
    unfit       why it cannot be a probe, or ""
    entry       offset in the code, of what a slot is to point to
    """

    name: str
    line: int
    parameters: tuple[Parameter, ...]
    takes_more: bool
    unfit: str
    entry: int


class Variable(NamedTuple):
    """A counter or histogram. `place` is where CPU 0 has its own; `words` are of eight bytes."""

    name: str
    is_histogram: bool
    place: int
    words: int


class ProbeEvent(NamedTuple):
    """An event that the probe emits, and where in its source.

    `words` are the places, one for each mj_emit, that want the address of the event's entry (struct
    mj_marker) in the target; as long as they hold 0 the event is not emitted.
    """

    signature: Signature
    file: str
    line: int
    words: tuple[int, ...]


class Sizes(NamedTuple):
    """The room that a probe takes, in bytes, and the alignment of its addresses.

    text             of the code, what is executed; constants follow
    code             all that is only read
    data             variables with a first value; those of each CPU follow
    per_cpu          what each CPU has, a multiple of ALIGNMENT
    zero             the other variables
    code_alignment, data_alignment, zero_alignment
    """

    text: int
    code: int
    data: int
    per_cpu: int
    zero: int
    code_alignment: int
    data_alignment: int
    zero_alignment: int

    def whole_data(self, cpus: int) -> int:
        """All that is written, with so many CPU numbers."""
        size = align(self.data, ALIGNMENT) + self.per_cpu * cpus
        return align(size, self.zero_alignment) + self.zero


class Compiled(NamedTuple):
    """A source file, compiled and found to be fit; nothing in it belongs to a process yet.

    function    the one that was asked for
    functions   all that can be called from outside
    objects     ELF objects to link
    warnings    what the compiler said
    needs       functions of the runtime, and numbers (`mj_link_…`), that it uses
    """

    source: Path
    function: Function
    functions: tuple[Function, ...]
    objects: tuple[bytes, ...]
    warnings: str
    needs: frozenset[str]
    sizes: Sizes
    events: tuple[ProbeEvent, ...]
    variables: tuple[Variable, ...]

    def __repr__(self) -> str:
        return brief(self)


class Runtime(NamedTuple):
    """The part of a target's runtime that probes use.

    functions    addresses of RUNTIME_FUNCTIONS
    count_probe  that of the probe that only counts, for replacements
    alive        address of a word that is zero in a fork's child, where nothing is done then
    cpus         how many CPU numbers there can be
    has_rdpid    the processor has that instruction
    tid_offset   of a thread's id, from its fs base; below 0: not known
    tick_hz      ticks of the time stamp counter in a second; 0: not known
    """

    functions: Mapping[str, int]
    alive: int
    cpus: int
    has_rdpid: bool
    tid_offset: int
    tick_hz: int
    count_probe: int = 0


class Linked(NamedTuple):
    """A probe for one target.

    code, data   the bytes to be written at code_address and data_address; behind the data there
                 have to be `bss_size` zeros
    entry        of the function that was asked for; `entries` has all that can be probes
    events       `words` are addresses, inside of the data
    variables    `place` is an address; the next CPU's is `stride` further
    """

    code: bytes
    code_address: int
    data: bytes
    data_address: int
    bss_size: int
    entry: int
    entries: Mapping[str, int]
    events: tuple[ProbeEvent, ...]
    variables: tuple[Variable, ...]
    cpus: int
    stride: int
    vectors: bool

    def data_for(self, entries: Mapping[str, int]) -> bytes:
        """The data, with the address of each event's struct mj_marker, by the event's name. Events
        that are not in it are not emitted."""
        data = bytearray(self.data)
        for event in self.events:
            for word in event.words:
                at = word - self.data_address
                data[at : at + 8] = entries.get(event.signature.name, 0).to_bytes(8, "little")
        return bytes(data)


PROBE_IN_C = "FILE.c:function"


def split_probe(
    text: str, argument: str = "probe", expected: str = f'"count", "record" or {PROBE_IN_C}'
) -> tuple[Path, str]:
    """`FILE.c:function`, as it is given on the command line, for an argument that may be what is
    `expected`. Raises BadArgument."""
    file, colon, function = text.rpartition(":")
    if not colon or not file.endswith(".c") or not function.isidentifier():
        raise BadArgument(argument, text, expected)
    from pathlib import Path  # most probes are not in C

    return Path(file), function


def align(size: int, alignment: int) -> int:
    """The next multiple."""
    return (size + alignment - 1) & -alignment

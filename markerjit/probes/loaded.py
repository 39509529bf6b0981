"""Probes written in C in the arena of a process: loading them, finding them again, and reading
their counts.

A file is put there once; how often its functions are connected and taken away does not matter. It
has an entry in the table of units; behind its variables stand, as JSON, the names that another
controller needs. The address in a marker's slot says which function the marker calls.

A file that nothing uses any more is given back (unused.py) when its room is needed, the oldest
first; until then its values can be read. It is given back at once when another version of it is
loaded: one of the same name, with the function that is asked for.

The process can write over all of this, so what is read of it is believed only as far as it makes
sense.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import markerjit.abi as abi
from markerjit.arena.arena import Arena
from markerjit.arena.units import Unit
from markerjit.errors import MarkerError, Refused
from markerjit.model import CType, RemoteAddress, Signature, TypeClass
from markerjit.printable import printable
from markerjit.probes.c.unit import Compiled, Linked, ProbeEvent, Runtime, Sizes, Variable, align
from markerjit.probes.c.values import BUCKETS, Histogram, read_counters, read_histograms
from markerjit.probes.record import recording
from markerjit.probes.unused import Unused
from markerjit.ring.types import Options, RecordType
from markerjit.tuples import NamedTuple, brief

_LENGTH = 4
_SIZES = (1, 2, 4, 8)
_LONGEST = 1 << 20
_USUAL = 1 << 14
"""Bytes for the names of a file; most have less. So another version of it fits into its room."""


class Loaded(NamedTuple):
    """A file of probes in an arena.

    unit     its entry in the table of units
    about    offset of what stands there of it
    entries  addresses of its functions
    events   by the id in the arena, what it emits
    vectors  whether its functions use registers besides the general ones
    """

    unit: Unit
    source: str
    digest: str
    about: int
    entries: Mapping[str, int]
    events: Mapping[int, ProbeEvent]
    variables: tuple[Variable, ...]
    cpus: int
    stride: int
    vectors: bool

    def types(self) -> dict[int, RecordType]:
        """The types of its events, in the rings."""
        types = {}
        for marker, event in self.events.items():
            type_ = recording(event.signature, Options()).type
            types[marker] = RecordType(marker, type_.marker, type_.format, type_.fields)
        return types

    def name_of(self, probe: int) -> str | None:
        """`FILE.c:function` of the function at this address."""
        for function, address in self.entries.items():
            if address == probe:
                return f"{self.source}:{function}"
        return None


MOST_REPLACING = 16
"""The number of units that replace functions, or did, at which memory is searched for those that
may be given back."""


class Values(NamedTuple):
    """The counts of the probes of a file, over all CPUs."""

    source: str
    counters: Mapping[str, int]
    histograms: Mapping[str, Histogram]

    def __repr__(self) -> str:
        return brief(self)


def load(
    arena: Arena,
    compiled: Compiled,
    *,
    tick_hz: int,
    unused: Callable[[Callable[[Unit], bool], bool], Unused] | None = None,
) -> Loaded:
    """Put a file of probes into the arena, if it is not there. The caller must hold the target's
    lock. `unused` finds the units that may go, given which of them have events, and whether the
    memory of the process may be searched for those that replace functions.

    Raises Refused when there is no room, and what linking raises.
    """
    from markerjit.probes.c.link import digest_of, link_probe

    digest, function = digest_of(compiled), compiled.function.name
    files = loaded(arena)
    for known in files:
        if known.digest == digest and function in known.entries:
            return known
    whole = align(compiled.sizes.whole_data(arena.geometry.cpus), 8)
    for names in (_USUAL, _LONGEST):
        code, data = _make_room(arena, compiled, whole + names, files, unused)
        linked = link_probe(
            compiled, code_address=code, data_address=data, runtime=_runtime(arena, tick_hz)
        )
        events = {_tell_of(arena, event): event for event in linked.events}
        contents = _contents(arena, compiled, linked, events, whole)
        if len(contents) <= whole + names:
            break
    else:
        raise Refused(f"{compiled.source.name}: its names take more than {_LONGEST >> 10} KiB")
    entry = abi.UnitEntry(
        code=code - arena.base, code_size=len(linked.code), data=data - arena.base,
        data_size=whole + names, about=data - arena.base + whole,
    )  # fmt: skip
    entry.digest[:] = bytes.fromhex(digest)
    arena.code.write(code, linked.code)
    arena.code.write_data(data, contents)
    unit = arena.units.add(entry)
    return Loaded(
        unit, compiled.source.name, digest, int(entry.about), linked.entries, events,
        linked.variables, linked.cpus, linked.stride, linked.vectors,
    )  # fmt: skip


def _contents(
    arena: Arena, compiled: Compiled, linked: Linked, events: Mapping[int, ProbeEvent], whole: int
) -> bytes:
    """The initial bytes of its variables, and the description behind them."""
    entries = {
        event.signature.name: arena.markers.address(marker) for marker, event in events.items()
    }
    about = _to_json(compiled.source.name, linked, events)
    data = linked.data_for(entries).ljust(whole, b"\0")
    return data + len(about).to_bytes(_LENGTH, "little") + about


def _make_room(
    arena: Arena,
    compiled: Compiled,
    size: int,
    files: list[Loaded],
    unused: Callable[[Callable[[Unit], bool], bool], Unused] | None,
) -> tuple[RemoteAddress, RemoteAddress]:
    """Where the code and the variables of a file may be put. Units that are in the way have been
    given back.

    Raises Refused, with the reasons why others stay.
    """
    source, function = compiled.source.name, compiled.function.name
    silent = {file.unit.number for file in files if not file.events}
    older = {
        file.unit.number for file in files if file.source == source and function in file.entries
    }

    def place() -> tuple[RemoteAddress | None, RemoteAddress | None]:
        return (
            arena.code.place_for_unit(compiled.sizes.code, compiled.sizes.code_alignment),
            arena.code.place_for_data(size, compiled.sizes.data_alignment),
        )

    code, data = place()
    reasons: list[str] = []
    has_room = code is not None and data is not None and arena.units.has_room()
    if unused and (older or not has_room):
        replacing = sum(file.unit.replaces for file in files)
        in_memory = not has_room or replacing >= MOST_REPLACING
        free = unused(lambda unit: unit.number not in silent, in_memory)
        names = {file.unit.number: file.source for file in files}
        reasons = [f"{names.get(at, 'a file')}: {why}" for at, why in free.kept.items()]
        for unit in sorted(free.units, key=lambda unit: unit.number not in older):
            if unit.number in older or not has_room:
                arena.units.give_back(unit)
                code, data = place()
                has_room = code is not None and data is not None
    arena.units.check_room()
    if code is None or data is None:
        problem = _no_room(arena, compiled.sizes, size, code)
        raise Refused(f"{source}: {problem}{_because(reasons)}")
    return code, data


def _because(reasons: list[str]) -> str:
    """Why nothing is given back, one reason for all."""
    if not reasons:
        return ""
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"; nothing can be given back: {reasons[0]}{more}"


def loaded(arena: Arena) -> list[Loaded]:
    """The files of probes that were put into this arena, the first one first."""
    files = (_from_json(arena, unit) for unit in arena.units.all())
    return [file for file in files if file is not None]


def function_at(arena: Arena, probe: RemoteAddress) -> str | None:
    """`FILE.c:function` that a slot with this word calls; None where that is not a probe in C."""
    address = probe & ~abi.PROBE_COUNTED
    is_made = abi.RUNTIME_SIZE <= address - arena.base < abi.CODE_SIZE
    if not probe & abi.PROBE_COUNTED or not is_made:
        return None
    names = (file.name_of(address) for file in loaded(arena))
    return next(filter(None, names), None)


def replacement_at(arena: Arena, probe: RemoteAddress) -> str | None:
    """`FILE.c:function` that a slot with this word leads to in place of its own function; None
    where it does not."""
    if probe & abi.PROBE_COUNTED or not any(
        probe - arena.base in range(unit.code.start, unit.code.end) for unit in arena.units.all()
    ):
        return None
    return next(filter(None, (file.name_of(probe) for file in loaded(arena))), None)


def may_be_replaced(arena: Arena) -> bool:
    """Whether a file was put there that may replace functions."""
    return any(unit.replaces or unit.is_kept for unit in arena.units.all())


def values(arena: Arena) -> list[Values]:
    """The counts of all probes."""
    values = []
    for file in loaded(arena):

        def read(address: int, size: int) -> bytes:
            return arena.store.read(address - arena.base, size)

        with suppress(MarkerError):  # its variables are said to be where nothing is
            counters, histograms = read_counters(file, read), read_histograms(file, read)
            if arena.units.is_there(file.unit):  # else its room may be another's by now
                values.append(Values(file.source, counters, histograms))
    return values


def _no_room(arena: Arena, sizes: Sizes, size: int, code: RemoteAddress | None) -> str:
    """The message that says which room is missing."""
    room = arena.code.room
    if code is None:
        return f"its code takes {-(-sizes.code >> 10)} KiB; there is room for {room.code >> 10}"
    return f"its variables take {-(-size >> 20)} MiB; there is room for {room.data >> 20}"


def _runtime(arena: Arena, tick_hz: int) -> Runtime:
    functions = {
        "mj_record_event": arena.base + arena.entry.record_event,
        "mj_fetch": arena.base + arena.entry.fetch,
    }
    return Runtime(
        functions,
        alive=arena.base + abi.ALIVE,
        cpus=arena.geometry.cpus,
        has_rdpid=bool(arena.facts.cpu_flags & abi.CPU_RDPID),
        tid_offset=arena.facts.tid_offset,
        tick_hz=tick_hz,
        count_probe=arena.base + arena.entry.count_block,
    )


def _tell_of(arena: Arena, event: ProbeEvent) -> int:
    signature = event.signature
    entry = recording(signature, Options()).entry()
    return arena.markers.find(signature.name, signature.text, entry)


def _to_json(source: str, linked: Linked, events: Mapping[int, ProbeEvent]) -> bytes:
    import json

    facts = {
        "source": source,
        "entries": dict(linked.entries),
        "events": {
            str(marker): [event.signature.name, event.signature.format,
                          [list(arg) for arg in event.signature.args], event.file, event.line]
            for marker, event in events.items()
        },
        "variables": [list(variable) for variable in linked.variables],
        "cpus": linked.cpus,
        "stride": linked.stride,
        "vectors": linked.vectors,
    }  # fmt: skip
    return json.dumps(facts).encode()


def _from_json(arena: Arena, unit: Unit) -> Loaded | None:
    """The description behind the variables of a unit, or None if it makes no sense: the process may
    have written over it."""
    import json

    data, place = arena.geometry.data, int(unit.entry.about)
    try:
        if not data.offset <= unit.data.start <= place <= data.end - _LENGTH:
            return None
        length = int.from_bytes(arena.store.read(place, _LENGTH), "little")
        if length > min(_LONGEST, data.end - place - _LENGTH):
            return None
        facts = json.loads(arena.store.read(place + _LENGTH, length))
        file = Loaded(
            unit, printable(str(facts["source"])), bytes(unit.entry.digest).hex(), place,
            {str(name): int(address) for name, address in facts["entries"].items()},
            {int(marker): _event(*event) for marker, event in facts["events"].items()},
            tuple(_variable(*variable) for variable in facts["variables"]),
            int(facts["cpus"]), int(facts["stride"]), bool(facts["vectors"]),
        )  # fmt: skip
        if not _makes_sense(arena, unit, file):
            return None
        file.types()  # its formats do
    except (
        MarkerError, LookupError, TypeError, ValueError, AttributeError, OverflowError,
        RecursionError,
    ):  # fmt: skip
        return None
    return file


def _event(name: str, format_: str, args: list[list[int]], file: str, line: int) -> ProbeEvent:
    types = tuple(CType(TypeClass(class_), _SIZES[_SIZES.index(size)]) for class_, size in args)
    return ProbeEvent(Signature(str(name), str(format_), types), str(file), int(line), ())


def _variable(name: str, is_histogram: bool, place: int, words: int) -> Variable:
    return Variable(str(name), bool(is_histogram), int(place), int(words))


def _makes_sense(arena: Arena, unit: Unit, file: Loaded) -> bool:
    """Whether all addresses are possible, and all names can be printed."""
    names = [*file.entries, *(event.signature.name for event in file.events.values())]
    names += [variable.name for variable in file.variables]
    code = range(abi.RUNTIME_SIZE, abi.CODE_SIZE)
    return (
        file.cpus == arena.geometry.cpus
        and file.stride >= 0
        and all(name and name.isprintable() for name in names)
        and all(address - arena.base in code for address in file.entries.values())
        and all(0 <= marker < arena.geometry.max_markers for marker in file.events)
        and all(_is_in_data(arena, unit, file, variable) for variable in file.variables)
    )


def _is_in_data(arena: Arena, unit: Unit, file: Loaded, variable: Variable) -> bool:
    """A variable stands before what is known of it, on all CPUs."""
    start = variable.place - arena.base
    end = start + file.stride * (file.cpus - 1) + variable.words * 8
    words = BUCKETS if variable.is_histogram else 1
    return variable.words == words and start >= unit.data.start and end <= file.about


def entry_of(file: Loaded, function: str, *, is_counted: bool = True) -> RemoteAddress:
    """The word of a slot for a function. Its calls are counted, so that its removal can wait for
    them. Calls of a function that replaces another are not counted."""
    return RemoteAddress(file.entries[function] | (abi.PROBE_COUNTED if is_counted else 0))

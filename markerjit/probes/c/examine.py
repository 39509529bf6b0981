"""Looking at a compiled probe: can it run in a program that knows nothing of it?

First at the object, for what must not be there and cannot be linked; then at an image of it that is
linked for nowhere, where every instruction has an address and with it a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from markerjit.elf import parse_format
from markerjit.errors import BadNote
from markerjit.probes.c.entries import HELPERS, entry_name
from markerjit.probes.c.fits import NoProbe
from markerjit.probes.c.link import NOWHERE, NOWHERE_DATA, DoesNotLink, link_for_nowhere, measure
from markerjit.probes.c.object import (
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHF_WRITE,
    ObjectFile,
    describe_function,
    events,
    first_uses,
    name_of,
    variables,
)
from markerjit.probes.c.unit import (
    RUNTIME_FUNCTIONS,
    BadProbe,
    Compiled,
    Forbidden,
    Function,
    NoSuchFunction,
    ProbeEvent,
    UndefinedSymbols,
    Variable,
)
from markerjit.probes.c.vet import can_return, objections

_LARGEST_ALIGNMENT = 4096
_NUMBERS = tuple(
    f"mj_link_{name}" for name in ("cpus", "stride", "has_rdpid", "tid_offset", "tick_ns")
)
_CONSTRUCTORS = (".init_array", ".fini_array", ".preinit_array", ".ctors", ".dtors")
_TYPES = ("NOTYPE", "OBJECT", "FUNC", "COMMON")
_PARTS = (".text", ".rodata", ".data", ".bss", ".mj_variables", ".mj_events")
_DISCARDED = (".eh_frame", ".note")


def check_object(source: Path, probe: ObjectFile) -> tuple[list[str], frozenset[str]]:
    """The functions that can be called from outside, and what is undefined. Raises BadProbe."""
    functions, undefined = [], []
    for symbol in probe.symbols():
        if symbol.type == "TLS":
            raise BadProbe(source, f"{symbol.name} is thread-local; a probe has no such variables")
        if symbol.type not in _TYPES:
            raise BadProbe(source, f"{symbol.name} is resolved at load time (ifunc): not supported")
        if not symbol.defined:
            undefined.append(symbol.name)
        elif symbol.type == "FUNC" and symbol.binding != "LOCAL":
            functions.append(symbol.name)
    for section in probe.sections():
        _check_part(source, section.name, section.flags)
    return functions, frozenset(undefined)


def examine(
    source: Path,
    function: str,
    objects: Sequence[bytes],
    undefined: frozenset[str],
    unused: frozenset[str],
    replaces: bool = False,
) -> Compiled:
    """The compiled probe that `objects` make, if they are fit. `unused` are static functions that
    the compiler has left out. What the function `replaces` decides how it is called. Raises what
    compile_probe does."""
    outside = undefined - {*HELPERS, *_NUMBERS}
    try:
        image = link_for_nowhere(objects, sorted(outside))
    except DoesNotLink as error:
        raise BadProbe(source, str(error)) from None
    functions, static = _functions(image)
    if replaces and function in functions:
        functions[function] = functions[function]._replace(unfit="", parameters=())
    chosen = functions.get(function)
    if chosen is None:
        fit = tuple(sorted(name for name, choice in functions.items() if not choice.unfit))
        raise NoSuchFunction(source, function, fit, is_static=function in static | unused)
    if outside - {*RUNTIME_FUNCTIONS}:
        raise UndefinedSymbols(source, first_uses(image, outside - {*RUNTIME_FUNCTIONS}))
    sizes = measure(image, NOWHERE, NOWHERE_DATA)
    if max(sizes.code_alignment, sizes.data_alignment) > _LARGEST_ALIGNMENT:
        raise BadProbe(source, f"it asks for an alignment of more than {_LARGEST_ALIGNMENT} bytes")
    _check_code(source, image)
    if chosen.unfit:
        raise NoProbe(source, chosen)
    return Compiled(
        source=source,
        function=chosen,
        functions=tuple(sorted(functions.values(), key=lambda choice: choice.line)),
        objects=tuple(objects),
        warnings="",
        needs=undefined - {*HELPERS},
        sizes=sizes,
        events=_merge(source, events(image, NOWHERE_DATA)),
        variables=_distinct(source, variables(image, NOWHERE_DATA)),
    )


def _check_part(source: Path, name: str, flags: int) -> None:
    if not flags & SHF_ALLOC or name.startswith(_DISCARDED):
        return
    if name.startswith(_CONSTRUCTORS):
        raise BadProbe(source, "it has a constructor or destructor, which would never be called")
    if not any(name == part or name.startswith(f"{part}.") for part in _PARTS):
        raise BadProbe(source, f"it has a section {name}, which is not supported")
    executed, written = bool(flags & SHF_EXECINSTR), bool(flags & SHF_WRITE)
    if executed != name.startswith(".text") or (executed and written):
        raise BadProbe(source, f"its section {name} mixes code and data")


def _functions(image: ObjectFile) -> tuple[dict[str, Function], frozenset[str]]:
    """The functions that can be called from outside, by name; and the names of the others."""
    entries = {symbol.name: symbol.value - NOWHERE for symbol in image.symbols() if symbol.defined}
    functions, static = {}, set()
    for die, is_external in image.functions():
        name = name_of(die)
        entry = entries.get(entry_name(name))
        if not is_external:
            static.add(name)
        elif entry is not None:
            functions[name] = describe_function(die, entry)
    return functions, frozenset(static)


def _check_code(source: Path, image: ObjectFile) -> None:
    text = image.loaded[".text"]
    for objection in objections(text.data, text.address):
        file, line = image.line_at(objection.address)
        raise Forbidden(source, objection.text, file, line, objection.why)
    for symbol in image.symbols():
        if symbol.type == "FUNC" and symbol.defined and symbol.size:
            at = symbol.value - text.address
            if not can_return(text.data[at : at + symbol.size], symbol.value):
                raise BadProbe(source, f"{symbol.name} never returns")


def _merge(source: Path, emitted: Iterable[ProbeEvent]) -> tuple[ProbeEvent, ...]:
    """One for each name. Raises BadProbe where one has several formats."""
    events: dict[str, ProbeEvent] = {}
    # Compilers lay them out in either direction.
    for event in sorted(emitted, key=lambda event: (event.file, event.line)):
        before = events.setdefault(event.signature.name, event)
        where = f"{event.file}:{event.line}"
        if before.signature != event.signature:
            raise BadProbe(
                source,
                f"{event.signature.name} is emitted with another format or other types in {where} "
                f"than in {before.file}:{before.line}; give one of them another name",
            )
        try:
            parse_format(event.signature.format, event.signature.args)
        except BadNote as error:
            raise BadProbe(source, f"the event {event.signature.name} in {where} {error}") from None
        if before is not event:
            events[event.signature.name] = before._replace(words=before.words + event.words)
    return tuple(events.values())


def _distinct(source: Path, variables: tuple[Variable, ...]) -> tuple[Variable, ...]:
    names = [variable.name for variable in variables]
    for name in names:
        if names.count(name) > 1:
            raise BadProbe(source, f"there are several counters or histograms {name}")
    return tuple(sorted(variables))

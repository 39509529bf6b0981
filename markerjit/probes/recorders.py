"""The markers that the runtime in an arena was told of, and the code that records each.

A marker has an entry for each way in which it was ever recorded: which fields, with which time. The
code made for an entry is kept, because a thread may be in it, and found again by the next
controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from markerjit.abi import ASKS_BEFORE_COUNT, ASKS_BEFORE_RECORD, MarkerEntry
from markerjit.arena.arena import Arena
from markerjit.arena.markers import fnv1a
from markerjit.arena.units import Noted, Unit
from markerjit.arguments import check_is
from markerjit.errors import BadArgument, Refused
from markerjit.model import RemoteAddress, Signature
from markerjit.patch.request import Count, InC, Probe, Record, Where
from markerjit.probes.c.unit import Compiled, split_probe
from markerjit.probes.inside import Read
from markerjit.probes.loaded import Loaded, entry_of, load, loaded
from markerjit.probes.record import Recording, recorded_type, recording, takes_a_recorder
from markerjit.probes.unused import Unused, find_unused, sharer_of
from markerjit.proc.barrier import barrier
from markerjit.ring.counter import time_to_use
from markerjit.ring.types import DEFAULT_TEXT, Options, RecordType, Strings, Time

COUNT = "count"
RECORD = "record"
"""The names of the runtime's own probes in the public API."""


class Recorders:
    """The recorders of one arena. For methods that write the caller must hold the target's lock."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self._loaded: dict[tuple[str, str, str], Loaded] = {}
        self._known: dict[tuple[Signature, Probe], int] = {}

    def find(self, signature: Signature, probe: Probe) -> int | None:
        """The id of a marker that is recorded so; None when the runtime was not told of it."""
        known = self._known.get((signature, probe))
        if known is None:
            known = self.arena.markers.known(signature.text, _entry(signature, probe))
            if known is not None:
                self._known[signature, probe] = known
        return known

    def tell(
        self, signatures: Iterable[Signature], probe: Probe, *, preserving: bool = True
    ) -> None:
        """Tell the runtime of these markers, whose bodies make a preserving call or an ordinary
        one. To record them each gets code of its own, where that can be had; mj_record does it for
        the others. A question is code of their own, too.

        Raises Refused when the arena has no room for another marker or question, BadQuestion, and
        Unsupported for a question that has no code.
        """
        for signature in signatures:
            entry = _entry(signature, probe)
            marker = self.arena.markers.find(signature.name, signature.text, entry)
            self._known[signature, probe] = marker
            made = recording(signature, probe.options)
            if probe.question:
                self._need_question(marker, signature, probe, made)
            elif isinstance(probe, Record) and takes_a_recorder(made, self.arena.facts):
                self._need_recorder(marker, made, preserving)

    def probe(self, marker: int, probe: Probe, *, preserving: bool = True) -> RemoteAddress:
        """The word that a slot must hold for this marker, whose bodies call so."""
        if probe.question:
            return self.arena.asking_probe(marker)
        if isinstance(probe, Record):
            return self.arena.record_probe(marker, preserving=preserving)
        if isinstance(probe, InC) and (file := self._loaded_of(probe)):
            return entry_of(file, probe.function)
        return self.arena.count_probe(preserving=preserving)

    def adapter(self, probe: Probe, *, preserving: bool) -> RemoteAddress:
        """What the slot must hold besides, for a preserving body to reach a C function; 0 where it
        needs nothing."""
        if preserving and isinstance(probe, InC) and (file := self._loaded_of(probe)):
            return self.arena.adapter(vectors=file.vectors)
        return RemoteAddress(0)

    def load(
        self,
        probe: InC,
        compiled: Compiled,
        *,
        tick_hz: int,
        read: Read,
        slots: Sequence[RemoteAddress],
    ) -> Loaded:
        """Load the file of a probe in C into the arena. It may be removed as soon as the lock is
        released and no marker calls it. `read` (of the target) and the `slots` of all objects serve
        to find units that may be removed to make room."""

        def unused(emits: Callable[[Unit], bool]) -> Unused:
            fence = partial(barrier, self.arena.pid)
            return find_unused(self.arena, read, slots, emits, sharer_of, fence)

        file = load(self.arena, compiled, tick_hz=tick_hz, unused=unused)
        self._loaded[probe.file, probe.function, probe.digest] = file
        return file

    def note_callers(self, probe: Probe, slots: Iterable[RemoteAddress]) -> Noted | None:
        """Write down that these slots may call a probe from now on, if it is one in C. The result
        is for `Units.forget_callers`."""
        if isinstance(probe, InC) and (file := self._loaded_of(probe)):
            return self.arena.units.note_callers(file.unit, slots)
        return None

    def _loaded_of(self, probe: InC) -> Loaded | None:
        # By its objects, too: a file may be edited while a trace still calls its older version.
        return self._loaded.get((probe.file, probe.function, probe.digest))

    def types_of(self, signatures: Iterable[Signature], probe: Probe) -> dict[int, RecordType]:
        """The types of the records of markers that are on with this probe, by their ids. For a
        probe in C, the types of the events that it emits."""
        if isinstance(probe, InC) and (file := self._loaded_of(probe)):
            return file.types()
        types = {}
        for signature in set(signatures):
            marker = self.find(signature, probe)
            if marker is not None:
                types[marker] = recorded_type(signature, self.arena.markers.entry(marker))
        return types

    def types(self, signatures: Iterable[Signature]) -> dict[int, RecordType]:
        """All that may be in the rings of these markers, however they were recorded, and of probes
        in C."""
        by_hash = {fnv1a(event.text.encode()): event for event in set(signatures)}
        types = {id: type_ for file in loaded(self.arena) for id, type_ in file.types().items()}
        for entry in self.arena.markers.entries():
            signature = by_hash.get(entry.name_hash)
            if signature is not None and len(signature.args) == entry.argc:
                types[int(entry.id)] = recorded_type(signature, entry)
        return types

    def _need_recorder(self, marker: int, made: Recording, preserving: bool) -> None:
        arena = self.arena
        known = arena.markers.entry(marker)
        if known.recorder if preserving else known.recorder_of_c:
            return
        from markerjit.probes.recorder import LARGEST

        address = arena.code.place(LARGEST)
        if address is None:
            return
        with suppress(Refused):  # mj_record does it then
            recorder = self._put_recorder(marker, made, address, preserving=preserving)
            arena.markers.set_recorder(marker, recorder, preserving=preserving)

    def _put_recorder(
        self, marker: int, made: Recording, address: RemoteAddress, *, preserving: bool
    ) -> RemoteAddress:
        """Put the code that records a marker where there is place for it; returns the place of its
        entry."""
        from markerjit.probes.recorder import make_recorder, setting_of, shape_of

        place = self.arena.markers.address(marker)
        shape = shape_of(marker, place, made.entry(), preserving=preserving)
        recorder = make_recorder(shape, setting_of(self.arena), address)
        self.arena.code.put(address, recorder.code)
        return RemoteAddress(recorder.entry)

    def _need_question(
        self, marker: int, signature: Signature, probe: Probe, made: Recording
    ) -> None:
        """Code that asks, before the probe of an entry whose bodies make a preserving call."""
        from markerjit.probes.asking import Behind, code_of

        arena, question = self.arena, probe.question
        assert question
        known = arena.markers.entry(marker)
        if known.recorder:
            known_text = arena.question(arena.markers.address(marker))
            if question.text and known_text != question.text:
                raise Refused(f"the question {known_text!r} has the number of this one")
            return
        behind = Behind(
            self._behind_question(marker, probe, made),
            arena.base + arena.entry.gate_ask,
            int(arena.facts.tid_offset),
            bool(known.careful),
        )
        text = question.text.encode()
        sizing = code_of(signature, question.text, arena.base, behind)
        address = arena.code.place(len(sizing) + len(text))
        if address is None:
            raise Refused(
                f"the arena of process {arena.pid} has no room for the code of another question; "
                "it has room again when the process is restarted"
            )
        code = code_of(signature, question.text, address, behind)
        arena.code.put(address, code + text)
        arena.markers.set_question(marker, RemoteAddress(address + len(code)), len(text))
        arena.markers.set_recorder(marker, address, preserving=True)

    def _behind_question(self, marker: int, probe: Probe, made: Recording) -> RemoteAddress:
        """The probe that is reached where the answer is yes."""
        arena = self.arena
        if not isinstance(probe, Record):
            return arena.count_probe(preserving=True)
        from markerjit.probes.recorder import LARGEST

        address = arena.code.place(LARGEST) if takes_a_recorder(made, arena.facts) else None
        if address is None:
            return RemoteAddress(arena.base + arena.entry.record_block)
        return self._put_recorder(marker, made, address, preserving=True)


def _entry(signature: Signature, probe: Probe) -> MarkerEntry:
    """The entry of a marker with this probe, without its name and id."""
    entry = recording(signature, probe.options).entry()
    if probe.question:
        is_recorded = isinstance(probe, Record)
        entry.asks = ASKS_BEFORE_RECORD if is_recorded else ASKS_BEFORE_COUNT
        entry.question = probe.question.number
        entry.careful = probe.options.strings is Strings.CAREFUL  # also of what is only asked for
    return entry


def compiled_probe(probe: str | Compiled) -> Compiled | None:
    """A probe in C, compiled; None for one of the runtime's. Raises BadArgument for neither."""
    check_is("probe", probe, str, Compiled)
    if isinstance(probe, Compiled):
        return probe
    if probe in (RECORD, COUNT):
        return None
    from markerjit.probes.c.compile import compile_probe

    return compile_probe(*split_probe(probe))


def probe_of(probe: str | Compiled, options: Options, where: str | None = None) -> Probe:
    """The probe that is meant by its name, or one in C that was compiled; behind the question
    `where`. Raises BadArgument, also for a question before a probe in C."""
    check_is("probe", probe, str, Compiled)
    if where is not None:
        check_is("where", where, str)
        if probe not in (RECORD, COUNT):
            raise BadArgument("where", where, "None for a probe in C, which can ask for itself")
    question = None if where is None else Where.of(where)
    if isinstance(probe, Compiled):
        return InC(probe.source.name, probe.function.name, options, _digest(probe.objects))
    if probe == RECORD:
        return Record(options, question)
    if probe == COUNT:
        return Count(question)
    file, function = split_probe(probe)
    return InC(str(file), function, options)


def _digest(objects: Iterable[bytes]) -> str:
    import hashlib  # 4 ms, and most probes are not in C

    return hashlib.blake2b(b"".join(objects), digest_size=16).hexdigest()


def options_of(
    compiled: Compiled | None,
    time: Time | str | None,
    thread_id: bool,
    fields: Sequence[str] | str | None,
    text: int,
    strings: Strings | str,
    *,
    lossless: bool = False,
) -> Options:
    """How a marker is recorded. Events emitted by a probe in C are always recorded in the same way:
    raises BadArgument if another is requested."""
    way = _strings_of(strings)
    if compiled:
        chosen = (time, thread_id, fields, text, way, lossless)
        if chosen != (None, True, None, DEFAULT_TEXT, Strings.FAST, False):
            raise BadArgument(
                "probe", f"{compiled.source.name}:{compiled.function.name}",
                "one of the runtime's where time, thread_id, fields, text, strings or lossless are "
                "given: "
                "these do not apply to events emitted by a probe in C",
            )  # fmt: skip
        return Options()
    names = (fields,) if isinstance(fields, str) else fields
    return Options(
        time_to_use(time), thread_id, None if names is None else tuple(names), text,
        strings=way, waits=lossless,
    )  # fmt: skip


def nothing_read(probe: str | Compiled, strings: Strings | str = "fast") -> Options:
    """The options for a marker that is on without a reader: then the recorder counts. Raises
    BadArgument where `strings` would have no effect: only the probe "record" reads them so."""
    way = _strings_of(strings)
    if way is not Strings.FAST and probe != RECORD:
        raise BadArgument("probe", str(probe), 'the probe "record" where strings are given')
    return Options(counted=probe == RECORD, strings=way)


def _strings_of(name: Strings | str) -> Strings:
    try:
        return Strings(name)
    except ValueError:
        names = ", ".join(f'"{way}"' for way in Strings)
        raise BadArgument("strings", name, f"one of {names}") from None


def check_fields(signatures: Iterable[Signature], names: Iterable[str]) -> None:
    """Raises Refused for a name that is a field of none of the markers."""
    from markerjit.elf import parse_format

    fields = {
        field.name
        for signature in set(signatures)
        for field in parse_format(signature.format, signature.args)
    }
    for name in names:
        if name not in fields:
            raise Refused(f"no marker has a field {name}; there are {', '.join(sorted(fields))}")

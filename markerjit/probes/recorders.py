"""The markers that the runtime in an arena was told of, and the code that records each.

A marker has an entry for each way in which it was ever recorded: which fields, with which time. The
code made for an entry is kept, because a thread may be in it, and found again by the next
controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import groupby
from typing import TYPE_CHECKING

from markerjit.abi import (
    ASKS_AGGREGATE,
    ASKS_BEFORE_COUNT,
    ASKS_BEFORE_RECORD,
    CPU_TSC,
    MarkerEntry,
)
from markerjit.arena.arena import Arena
from markerjit.arena.code import Places
from markerjit.arena.hashes import fnv1a
from markerjit.arena.units import Noted, Unit
from markerjit.arguments import check_int, check_is
from markerjit.errors import BadArgument, BadQuestion, Refused, UnknownField
from markerjit.model import RemoteAddress, Signature
from markerjit.patch.request import AddUp, Count, HeapStep, InC, Pair, Probe, Record
from markerjit.patch.where import Where
from markerjit.probes.c.unit import Compiled, split_probe
from markerjit.probes.record import (
    Recording,
    recorded_type,
    recording,
    recording_alike,
    takes_a_recorder,
)
from markerjit.proc.barrier import barrier
from markerjit.ring.brakes import NO_BRAKES, Brakes
from markerjit.ring.counter import time_to_use
from markerjit.ring.types import DEFAULT_TEXT, Options, RecordType, Strings, Time

if TYPE_CHECKING:  # few switches have a probe in C, or a question
    from markerjit.probes.asking import Behind
    from markerjit.probes.called import Runtime
    from markerjit.probes.inside import Read
    from markerjit.probes.loaded import Loaded
    from markerjit.probes.question import QuestionCode
    from markerjit.probes.unused import Mentioned, Unused

_ALIGN = 32
"""Of recorders and of questions, which may have a recorder behind them."""
_ENTRIES = 1024
_AT_ONCE = 1024
"""Recorders that are written together."""
_MANY = 64
"""Of fewer, what is made by columns takes longer, and numpy would be loaded for it."""

_ADDING = (AddUp, Pair, HeapStep)
"""Probes whose code adds to an aggregate. It stays while the aggregate does, whatever is asked
meanwhile, so it need not be looked for again for each site."""

COUNT = "count"
RECORD = "record"
"""The names of the runtime's own probes in the public API."""


def _nothing() -> int:
    """Nothing is given back."""
    return 0


class Recorders:
    """The recorders of one arena. For methods that write the caller must hold the target's lock."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self._loaded: dict[tuple[str, str, str], Loaded] = {}
        self._known: dict[Probe, dict[Signature, int]] = {}
        self._questions = 0
        self._most_idle: dict[str, int] = {}

    def find(self, signature: Signature, probe: Probe) -> int | None:
        """The id of a marker that is recorded so; None when the runtime was not told of it."""
        if probe.question and not isinstance(probe, _ADDING):  # its code may have been given back
            return self._find_asked(signature, probe)
        of_probe = self._known.setdefault(probe, {})
        known = of_probe.get(signature)
        if known is None:
            find = self._find_asked if probe.question else self._find_plain
            known = find(signature, probe)
            if known is not None:
                of_probe[signature] = known
        return known

    def find_many(self, signatures: Sequence[Signature], probe: Probe) -> list[int | None]:
        """The same of many: thousands of functions were told of together."""
        if probe.question:
            return [self.find(signature, probe) for signature in signatures]
        known = map(self._known.setdefault(probe, {}).get, signatures)
        return [
            self.find(signature, probe) if marker is None else marker
            for signature, marker in zip(signatures, known, strict=True)
        ]

    def _find_plain(self, signature: Signature, probe: Probe) -> int | None:
        return self.arena.markers.known(signature.text, _entry(signature, probe))

    def _find_asked(self, signature: Signature, probe: Probe) -> int | None:
        known = self._find_plain(signature, probe)
        has_code = known is not None and self.arena.markers.entry(known).recorder
        return known if has_code else None

    def tell(
        self,
        signatures: Iterable[Signature],
        probe: Probe,
        *,
        preserving: bool = True,
        give_back: Callable[[], int] = _nothing,
    ) -> None:
        """Tell the runtime of these markers, whose bodies make a preserving call or an ordinary
        one. To record them each gets code of its own, where that can be had; mj_record does it for
        the others. A question is code of their own, too; `give_back` has that of others given back
        that nothing uses, and says how many these were.

        Raises Refused when the arena has no room for another marker or question, BadQuestion, and
        Unsupported for a question that has no code.
        """
        if probe.question is None:
            self._tell_plainly(list(signatures), probe, preserving)
            return
        signatures = list(signatures)
        self._forget_given_back()
        new = [each for each in signatures if self.find(each, probe) is None]
        if not new and isinstance(probe, _ADDING):
            return  # their code is there, and nothing else has to be written
        self._need_few_idle(new, give_back)
        room = _Room(self.arena)
        try:
            self._tell_asked(signatures, probe, room)
        except Refused:
            if not room.is_full or not give_back():
                raise
            # Nothing uses the code of those that were told of yet, so it may have gone as well.
            self._tell_asked(signatures, probe, _Room(self.arena))
        self._forget_given_back(probe)

    def _forget_given_back(self, recent: Probe | None = None) -> None:
        """Look again for code that adds to aggregates, but for that of a `recent` one, if code of
        questions came or went meanwhile: any that no aggregate has may have been given back."""
        changed = self.arena.markers.questions_changed
        if changed != self._questions:
            for probe in [each for each in self._known if isinstance(each, _ADDING)]:
                if probe != recent:
                    del self._known[probe]
            self._questions = changed

    def _need_few_idle(self, signatures: Iterable[Signature], give_back: Callable[[], int]) -> None:
        """Have the code of questions given back where one of the markers has had many. Those that
        stay nevertheless, because of a child of the process for example, are looked at again when
        there are twice as many."""
        from markerjit.probes.idle import MOST_IDLE, idle_questions

        def idle(signature: Signature) -> int:
            return idle_questions(self.arena, signature.text)

        def most(signature: Signature) -> int:
            return self._most_idle.get(signature.text, MOST_IDLE)

        many = [each for each in signatures if idle(each) >= most(each)]
        if many:
            give_back()
            self._most_idle |= {each.text: max(MOST_IDLE, 2 * idle(each)) for each in many}

    def _tell_asked(self, signatures: Sequence[Signature], probe: Probe, room: _Room) -> None:
        """The same where a question is asked. Raises Refused where there is no room for its
        code."""
        for signature in signatures:
            entry = _entry(signature, probe)
            marker = self.arena.markers.find(signature.name, signature.text, entry)
            made = _recording(signature, probe)
            if isinstance(probe, _ADDING):
                self._need_adding(marker, signature, probe, room)
                continue
            self._need_question(marker, signature, probe, made, room)

    def _tell_plainly(
        self, signatures: Sequence[Signature], probe: Probe, preserving: bool
    ) -> None:
        """The same where no question is asked."""
        made = [recording_alike(signature, probe.options) for signature in signatures]
        entries = {id(way): way.entry() for way in {id(way): way for way in made}.values()}
        described = [
            (signature.name, signature.text, entries[id(way)])
            for signature, way in zip(signatures, made, strict=True)
        ]
        markers = self.arena.markers.find_many(described)
        known = self._known.setdefault(probe, {})
        known.update(zip(signatures, markers, strict=True))
        if not isinstance(probe, Record):
            return
        facts = self.arena.facts
        takes = {id(way): takes_a_recorder(way, facts) for way in made}
        self._need_recorders(
            {
                marker: entries[id(way)]
                for marker, way in zip(markers, made, strict=True)
                if takes[id(way)]
            },
            preserving,
        )

    def probe(self, marker: int, probe: Probe, *, preserving: bool = True) -> RemoteAddress:
        """The word that a slot must hold for this marker, whose bodies call so."""
        if probe.question:
            return self.arena.asking_probe(marker)
        if isinstance(probe, Record):
            return self.arena.record_probe(marker, preserving=preserving)
        if isinstance(probe, InC) and (file := self._loaded_of(probe)):
            from markerjit.probes.loaded import entry_of

            return entry_of(file, probe.function, is_counted=not probe.replaces)
        return self.arena.count_probe(preserving=preserving)

    def probes(
        self, markers: Sequence[int], probe: Probe, *, preserving: bool = True
    ) -> list[RemoteAddress]:
        """The same for many markers."""
        if not probe.question and isinstance(probe, Record):
            return self.arena.record_probes(markers, preserving=preserving)
        if not probe.question and isinstance(probe, Count):
            return [self.arena.count_probe(preserving=preserving)] * len(markers)
        return [self.probe(marker, probe, preserving=preserving) for marker in markers]

    def adapter(self, probe: Probe, *, preserving: bool) -> RemoteAddress:
        """What the slot must hold besides, for a preserving body to reach a C function; 0 where it
        needs nothing."""
        if not preserving or not isinstance(probe, InC) or probe.replaces:
            return RemoteAddress(0)
        if file := self._loaded_of(probe):
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
        mentioned: Mentioned,
    ) -> Loaded:
        """Load the file of a probe in C into the arena. It may be removed as soon as the lock is
        released and no marker calls it. `read` (of the target) and the `slots` of all objects serve
        to find units that may be removed to make room, and `mentioned` for those that replace
        functions."""
        from markerjit.probes.loaded import load
        from markerjit.probes.unused import find_unused, sharer_of

        def unused(emits: Callable[[Unit], bool], in_memory: bool) -> Unused:
            fence = partial(barrier, self.arena.pid)
            look = mentioned if in_memory else None
            return find_unused(self.arena, read, slots, emits, sharer_of, fence, look)

        file = load(self.arena, compiled, tick_hz=tick_hz, unused=unused)
        self._loaded[probe.file, probe.function, probe.digest] = file
        return file

    def note_callers(self, probe: Probe, slots: Iterable[RemoteAddress]) -> Noted | None:
        """Write down that these slots may call a probe from now on, if it is one in C. The result
        is for `Units.forget_callers`."""
        if isinstance(probe, InC) and (file := self._loaded_of(probe)):
            noted = self.arena.units.note_callers(file.unit, slots)
            if probe.replaces:
                self.arena.units.note_replaces(file.unit)
            return noted
        return None

    def _loaded_of(self, probe: InC) -> Loaded | None:
        # By its objects, too: a file may be edited while a trace still calls its older version.
        return self._loaded.get((probe.file, probe.function, probe.digest))

    def types_of(self, signatures: Iterable[Signature], probe: Probe) -> dict[int, RecordType]:
        """The types of the records of markers that are on with this probe, by their ids. For a
        probe in C, the types of the events that it emits."""
        if isinstance(probe, InC) and (file := self._loaded_of(probe)):
            return file.types()
        markers = ((signature, self.find(signature, probe)) for signature in set(signatures))
        known = {marker: signature for signature, marker in markers if marker is not None}
        entries = self.arena.markers.entries_of(known)
        return {
            marker: self._type_of(signature, entries[marker]) for marker, signature in known.items()
        }

    def _type_of(self, signature: Signature, entry: MarkerEntry) -> RecordType:
        """The type of a marker's records, or of what is selected of it."""
        if entry.asks != ASKS_BEFORE_RECORD:
            return recorded_type(signature, entry)
        address = self.arena.markers.address(int(entry.id))
        where = Where.again(self.arena.question(address), 0)
        if where.select is None:
            return recorded_type(signature, entry, where.brakes)
        from markerjit.probes.asking import recorded_signature

        try:
            recorded = recorded_signature(signature, where.select)
        except BadQuestion:  # the process has written over it
            return recorded_type(signature, entry)
        return recorded_type(recorded, entry, where.brakes)

    def types(self, signatures: Iterable[Signature]) -> dict[int, RecordType]:
        """All that may be in the rings of these markers, however they were recorded, and of probes
        in C."""
        by_hash = {fnv1a(event.text.encode()): event for event in set(signatures)}
        from markerjit.probes.loaded import loaded

        types = {id: type_ for file in loaded(self.arena) for id, type_ in file.types().items()}
        for entry in self.arena.markers.entries():
            signature = by_hash.get(entry.name_hash)
            if signature is not None and (entry.asks or len(signature.args) == entry.argc):
                types[int(entry.id)] = self._type_of(signature, entry)
        return types

    def _need_recorders(self, entries: Mapping[int, MarkerEntry], preserving: bool) -> None:
        """Have code of its own for each of these markers, which are recorded as these entries say,
        as far as there is room: mj_record does it for the others."""
        field = "recorder" if preserving else "recorder_of_c"
        stored = self.arena.markers.entries_of(entries)
        new = [marker for marker in entries if not getattr(stored[marker], field)]
        if len(new) >= _MANY:  # those that are alike together, in the order of their first ones
            kinds: dict[int, int] = {}
            for marker in new:
                kinds.setdefault(id(entries[marker]), len(kinds))
            new.sort(key=lambda marker: kinds[id(entries[marker])])
        put = self._put_alike if len(new) >= _MANY else self._put_recorders
        for at in range(0, len(new), _AT_ONCE):
            some = {marker: entries[marker] for marker in new[at : at + _AT_ONCE]}
            if not put(some, preserving):
                return

    def _put_recorders(self, entries: Mapping[int, MarkerEntry], preserving: bool) -> bool:
        """Write recorders one behind the other. Returns whether there was room for all."""
        from markerjit.probes.recorder import LARGEST, make_recorder, setting_of, shape_of

        arena, markers = self.arena, self.arena.markers
        setting = setting_of(arena)
        shapes = {
            id(entry): shape_of(0, 0, entry, preserving=preserving) for entry in entries.values()
        }
        room = arena.code.room_for_recorders()
        code = bytearray()
        places: dict[int, RemoteAddress] = {}
        for marker, entry in entries.items():
            start = room.start + len(code)
            if start + LARGEST > room.end:
                break
            shape = shapes[id(entry)]._replace(marker=marker, entry=markers.address(marker))
            recorder = make_recorder(shape, setting, arena.base + start)
            code += recorder.code
            places[marker] = RemoteAddress(recorder.entry)
        is_put = self._put_code(room.start, bytes(code), places, preserving=preserving)
        return is_put and len(places) == len(entries)

    def _put_alike(self, entries: Mapping[int, MarkerEntry], preserving: bool) -> bool:
        """The same of many, in which those that are alike follow each other."""
        from markerjit.probes.recorder import LARGEST, setting_of, shape_of, template_of
        from markerjit.probes.recorders_alike import make_recorders

        arena, markers = self.arena, self.arena.markers
        setting = setting_of(arena)
        room = arena.code.room_for_recorders()
        code = bytearray()
        places: dict[int, RemoteAddress] = {}
        for _, group in groupby(entries, key=lambda marker: id(entries[marker])):
            some = list(group)
            shape = shape_of(0, 0, entries[some[0]], preserving=preserving)
            start = room.start + len(code)
            size = len(template_of(shape, setting).code)
            some = some[: max(0, (room.end - start - LARGEST) // size + 1)]
            if not some:
                break
            addresses = [markers.address(marker) for marker in some]
            of_group, probes = make_recorders(shape, setting, some, addresses, arena.base + start)
            code += of_group
            places.update(zip(some, map(RemoteAddress, probes), strict=True))
        is_put = self._put_code(room.start, bytes(code), places, preserving=preserving)
        return is_put and len(places) == len(entries)

    def _put_code(
        self, start: int, code: bytes, places: Mapping[int, RemoteAddress], *, preserving: bool
    ) -> bool:
        """Write recorders into the room from `start` on, and tell the runtime which marker's probe
        is where. Returns whether they could be written."""
        if places:
            try:
                self.arena.code.put(RemoteAddress(self.arena.base + start), code)
            except Refused:
                return False
        self.arena.markers.set_recorders(places, preserving=preserving)
        return True

    def _made_recorder(
        self, marker: int, made: Recording, address: RemoteAddress, *, preserving: bool = True
    ) -> tuple[bytes, RemoteAddress]:
        """The code that records a marker, for an address, and the place of its entry."""
        from markerjit.probes.recorder import make_recorder, setting_of, shape_of

        place = self.arena.markers.address(marker)
        shape = shape_of(marker, place, made.entry(), preserving=preserving)
        recorder = make_recorder(shape, setting_of(self.arena), address)
        return recorder.code, RemoteAddress(recorder.entry)

    def _need_question(
        self,
        marker: int,
        signature: Signature,
        probe: Probe,
        made: Recording,
        room: _Room,
    ) -> None:
        """Code that asks, before the probe of an entry whose bodies make a preserving call. Behind
        the code stands the recorder, if it has one of its own, and then the text."""
        from markerjit.probes.asking import code_of
        from markerjit.probes.recorder import LARGEST

        arena, question = self.arena, probe.question
        assert question
        known = arena.markers.entry(marker)
        if question.brakes.are_any and not known.since:
            arena.braking.begin(marker, question.brakes.highest)
        if known.recorder:
            known_text = arena.question(arena.markers.address(marker))
            if known_text != question.whole:
                raise Refused(
                    f"the question {known_text!r} happens to have the same number as this one; "
                    "write this one differently"
                )
            return
        text = question.whole.encode()
        behind = self._behind_question(marker, probe, careful=bool(known.careful))
        code = code_of(signature, question, behind)
        recorder_at = -(-code.size // _ALIGN) * _ALIGN
        has_recorder = isinstance(probe, Record) and takes_a_recorder(made, arena.facts)
        most = LARGEST if has_recorder else 0
        address = room.take(recorder_at + most + len(text))
        recorder = b""
        if has_recorder:
            start = RemoteAddress(address + recorder_at)
            recorder, entry = self._made_recorder(marker, made, start)
            code = code.before(entry)
        whole = code.at(address).ljust(recorder_at, b"\0") + recorder
        arena.code.write(address, whole + text)
        text_at = RemoteAddress(address + len(whole))
        arena.markers.set_question(marker, address, text_at, len(text))

    def _behind_question(self, marker: int, probe: Probe, *, careful: bool) -> Behind:
        """What a question has of the process and its entry, before a probe of the runtime's."""
        from markerjit.probes.asking import Behind, Process
        from markerjit.probes.braking import Words
        from markerjit.probes.question import Gates, Places

        arena = self.arena
        has_rate = probe.question is not None and probe.question.brakes.at_most is not None
        ticks_per_s = _ticks_per_s() if has_rate and arena.facts.cpu_flags & CPU_TSC else 0
        generic = arena.entry.record_block if isinstance(probe, Record) else arena.entry.count_block
        return Behind(
            arena.base + generic,
            Gates.of(arena),
            Process.of(arena, ticks_per_s),
            careful,
            Words.of(arena, marker),
            Places.of(arena),
        )

    def _need_adding(
        self,
        marker: int,
        signature: Signature,
        probe: AddUp | Pair | HeapStep,
        room: _Room,
    ) -> None:
        """Code that adds to an aggregate."""
        from markerjit.probes.called import runtime_of

        arena, question = self.arena, probe.question
        known = arena.markers.entry(marker)
        if known.recorder:
            return
        text = question.text.encode()
        place = arena.markers.address(marker)
        runtime = runtime_of(arena, careful=bool(known.careful))
        code = _adding(signature, probe, place, runtime)
        address = room.take(code.size + len(text))
        arena.code.write(address, code.at(address) + text)
        text_at = RemoteAddress(address + code.size)
        arena.markers.set_question(marker, address, text_at, len(text))


class _Room:
    """The room for the code of questions that a process is told of together.

    is_full   whether a place was asked for that there is not
    """

    def __init__(self, arena: Arena) -> None:
        self.is_full = False
        self._arena = arena
        self._places: Places | None = None

    def take(self, size: int) -> RemoteAddress:
        """A place. Raises Refused where there is none."""
        self._places = self._places or self._arena.code.places()
        address = self._places.take(size, _ALIGN)
        if address is None:
            self.is_full = True
            raise Refused(
                f"the arena of process {self._arena.pid} has no room for the code of another "
                "question, and nothing can be given back now: all are in use, a thread does not "
                "stop, or a child shares the memory; name fewer at once, switch markers off, or "
                "restart the process"
            )
        return address


def _ticks_per_s() -> int:
    from markerjit.remote.native import tsc_frequency

    return tsc_frequency()


def _adding(
    signature: Signature,
    probe: AddUp | Pair | HeapStep,
    marker: RemoteAddress,
    runtime: Runtime,
) -> QuestionCode:
    """Code that adds to an aggregate."""
    if isinstance(probe, Pair):
        from markerjit.probes.pairing import code_of as code_of_pairing

        return code_of_pairing(signature, probe, marker, runtime)
    if isinstance(probe, HeapStep):
        from markerjit.probes.heap_step import code_of as code_of_heap_step

        return code_of_heap_step(signature, probe, marker, runtime)
    from markerjit.probes.adding import code_of

    return code_of(signature, probe, marker, runtime)


@lru_cache(_ENTRIES)
def _entry(signature: Signature, probe: Probe) -> MarkerEntry:
    """The entry of a marker with this probe, without its name and id. It is not to be changed."""
    entry = _recording(signature, probe).entry()
    if probe.question:
        entry.asks = _asks(probe)
        entry.question = probe.question.number
        entry.careful |= probe.options.strings is Strings.CAREFUL  # also of what is only asked for
    return entry


def _asks(probe: Probe) -> int:
    """What the code of an entry does with an event that meets the condition (MJ_ASKS_*)."""
    if isinstance(probe, AddUp | Pair | HeapStep):
        return ASKS_AGGREGATE
    return ASKS_BEFORE_RECORD if isinstance(probe, Record) else ASKS_BEFORE_COUNT


def _recording(signature: Signature, probe: Probe) -> Recording:
    """How a marker, or what is selected of it, is recorded. Raises BadQuestion."""
    if probe.question is None or probe.question.select is None:
        return recording(signature, probe.options)
    from markerjit.probes.asking import recorded_selection

    columns = recorded_selection(signature, probe.question.select)
    options = probe.options
    if columns.has_texts_in_memory:
        options = options._replace(strings=Strings.CAREFUL)
    return recording(columns.signature, options, is_selected=True)


def takes_time(probe: Probe) -> bool:
    """Whether it makes the duration of a call of the time of the entry by itself (MJ_OP_SINCE)."""
    return isinstance(probe, Record) and probe.question is None


def compiled_probe(probe: str | Compiled) -> Compiled | None:
    """A probe in C, compiled; None for one of the runtime's. Raises BadArgument for
    what is no probe, and what compile_probe raises."""
    check_is("probe", probe, str, Compiled)
    if isinstance(probe, Compiled):
        return probe
    if probe in (RECORD, COUNT):
        return None
    from markerjit.probes.c.compile import compile_probe

    return compile_probe(*split_probe(probe))


def probe_of(
    probe: str | Compiled,
    options: Options,
    where: str | None = None,
    select: str | None = None,
    brakes: Brakes = NO_BRAKES,
    stack: int | None = None,
) -> Probe:
    """The probe that is meant by its name, or one in C that was compiled; behind the question
    `where`, with the selection `select` in place of the fields, behind brakes, and with the stack
    of an event, of at most `stack` frames, recorded too. Raises
    BadArgument, also for a question before a probe in C, and BadQuestion for one that is empty."""
    check_is("probe", probe, str, Compiled)
    if where is not None:
        check_is("where", where, str)
        if probe not in (RECORD, COUNT):
            raise BadArgument("where", where, "None for a probe in C, which has its own conditions")
    if brakes.are_any and probe not in (RECORD, COUNT):
        raise BadArgument("probe", str(probe), "one of the runtime's where there are brakes")
    if select is not None:
        check_is("select", select, str)
        if probe != RECORD:
            raise BadArgument("select", select, "None for a probe that does not record")
        if options.fields is not None:
            raise BadArgument("select", select, "None where fields are given")
    if stack is not None:
        from markerjit.questions.scope import MOST_DEPTH
        from markerjit.questions.selection import with_stack

        check_int("stack", stack, 1, MOST_DEPTH)
        if probe != RECORD:
            raise BadArgument("stack", stack, "None for a probe that does not record")
        select = with_stack(select, options.fields, stack)
        options = options._replace(fields=None)
    is_asked = select is not None or brakes.are_any
    if is_asked and where is not None and not where.strip():
        raise BadQuestion("an expression is empty", where, 0, 0)
    question = Where.of(where or "", select, brakes) if is_asked or where is not None else None
    if isinstance(probe, Compiled):
        return InC(
            probe.source.name, probe.function.name, options, digest_of_objects(probe.objects)
        )
    if probe == RECORD:
        return Record(options, question)
    if probe == COUNT:
        return Count(question)
    file, function = split_probe(probe)
    return InC(str(file), function, options)


def digest_of_objects(objects: Iterable[bytes]) -> str:
    """By which the objects of a compiled probe are known."""
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
    """Raises UnknownField for a name that is a field of none of the markers."""
    from markerjit.elf import parse_format

    fields = {
        field.name
        for signature in set(signatures)
        for field in parse_format(signature.format, signature.args)
    }
    for name in names:
        if name not in fields:
            raise UnknownField(name, tuple(sorted(fields)))

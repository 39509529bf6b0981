"""Listeners: switched on while their forms are measured, and then asked for their counts.

Each is a context manager for a crew whose loops have the places. Its value is a `Listener`, which
has its own count of the hits of each form, and the work to do after a loop has run.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import markerjit
from markerjit.apps.bench.active import bpf, debuggers, hooks, listened, lttng, uprobes
from markerjit.apps.bench.active.crew import Crew
from markerjit.apps.bench.active.listened import UPROBES, Listened
from markerjit.apps.bench.sampling.place import Place
from markerjit.errors import MarkerError
from markerjit.tuples import NamedTuple

RING_SIZE = 1 << 20
"""Bytes of a trace for each CPU: the default of a session."""
_LAPS = 1.2
_NO_OP = b"\x90"
_SMALL_RING = 1 << 16
"""The bytes of a ring that is full at once, and always in the cache of a core."""


class Loops(NamedTuple):
    """The loops of one crew: by form, the number of its object in each layout."""

    crew: Crew
    forms: Sequence[Listened]
    numbers: Mapping[str, Sequence[int]]

    def by(self, name: str) -> list[Listened]:
        """The forms of a listener."""
        return [form for form in self.forms if form.by == name]

    def truth(self) -> dict[str, int]:
        """By form, the rounds that its loops have made."""
        rounds = self.crew.truth()
        return {
            form: sum(rounds[number] for number in numbers)
            for form, numbers in self.numbers.items()
        }

    def places(self, form: Listened) -> list[int]:
        """The addresses of a form's no-ops."""
        return [self.crew.place(number) for number in self.numbers[form.form.name]]


class Listener(NamedTuple):
    """A listener at work.

    hits    returns the hits of the places by form; called once, at the end
    after   to be called after a loop of its forms has run
    before  to be called before such a loop runs, with the number of threads
    """

    hits: Callable[[], dict[str, int]]
    after: Callable[[], None] = lambda: None
    before: Callable[[int], None] = lambda threads: None


def most_executions(repeat: int, record: int) -> int:
    """The most rounds of a loop whose records fit into a ring, with a tenth more for warming up,
    and with all repetitions."""
    return int(RING_SIZE / record * 0.9 / (repeat + 0.2))


@contextmanager
def probes(loops: Loops, place: Place) -> Iterator[Listener]:
    """Probes of markerjit: an empty one in C, the counter, and a trace. Raises MarkerError."""
    empty = markerjit.compile_probe(place.sources / "active" / "idle.c", "nothing")
    with markerjit.attach(loops.crew.pid, ring_size=RING_SIZE) as session:
        if loops.by(listened.EMPTY):
            session.enable(f"*_{listened.EMPTY}_*", probe=empty)
        if loops.by(listened.COUNT):
            session.enable(f"*_{listened.COUNT}_*", probe=listened.COUNT)
        if loops.by(listened.RECORD):
            with _traced(session, loops, listened.RECORD, {}) as listener:
                yield listener
        else:
            yield Listener(lambda: _counts(session, loops))


@contextmanager
def _traced(
    session: markerjit.Session,
    loops: Loops,
    name: str,
    options: Mapping[str, Any],
    pattern: str = "",
) -> Iterator[Listener]:
    """A trace of the markers of a listener, or of this pattern, drained after each loop."""
    with session.trace(pattern or f"*_{name}_*", **options) as stream:

        def drain() -> None:
            while stream.poll_batch(packets=True, columns=False):
                pass

        def hits() -> dict[str, int]:
            drain()
            counts = _counts(session, loops)
            recorded = sum(counts[form.form.name] * (1 + form.exits) for form in loops.by(name))
            statistics = stream.statistics()
            if statistics.events != recorded or statistics.bad_records or statistics.damaged_rings:
                raise MarkerError(f"of {recorded} events the trace shows {statistics}")
            return counts

        _fill_rings(loops, name, drain)
        yield Listener(hits, drain)


def recording(name: str) -> Opening:
    """A trace with other options, which needs a process of its own."""

    @contextmanager
    def opening(loops: Loops, place: Place) -> Iterator[Listener]:
        with (
            markerjit.attach(loops.crew.pid, ring_size=RING_SIZE) as session,
            _traced(session, loops, name, listened.OPTIONS[name]) as listener,
        ):
            yield listener

    return opening


def function(name: str) -> Opening:
    """A listener of functions without markers, which needs a process of its own."""

    @contextmanager
    def opening(loops: Loops, place: Place) -> Iterator[Listener]:
        behind, options = listened.FUNCTIONS[name]
        pattern = f"func:function_{name}_*{behind}"
        with markerjit.attach(loops.crew.pid, ring_size=RING_SIZE) as session:
            if name == listened.ENTRY_COUNT:
                session.enable(pattern, **options)
                yield Listener(lambda: _counts(session, loops))
            else:
                with _traced(session, loops, name, options, pattern) as listener:
                    yield listener

    return opening


@contextmanager
def hooked(loops: Loops, place: Place) -> Iterator[Listener]:
    """The markers that hooks of functions hit, traced. Raises MarkerError."""
    (name,) = {form.by for form in loops.forms}
    with (
        markerjit.attach(loops.crew.pid, ring_size=RING_SIZE) as session,
        _traced(session, loops, name, {}) as listener,
    ):
        yield listener


@contextmanager
def hooked_by_xray(loops: Loops, place: Place) -> Iterator[Listener]:
    """The markers that XRay's handler hits, traced. A process has only one such handler. Raises
    MarkerError."""
    with hooked(loops, place) as listener:
        yield listener


@contextmanager
def hooked_by_frida(loops: Loops, place: Place) -> Iterator[Listener]:
    """The markers that Frida's callbacks hit, traced. Raises MarkerError."""
    functions = [
        hooks.Hooked(address, form.exits) for form in loops.forms for address in loops.places(form)
    ]
    with hooks.frida(loops.crew.pid, functions), hooked(loops, place) as listener:
        yield listener


@contextmanager
def hooked_by_uftrace(loops: Loops, place: Place) -> Iterator[Listener]:
    """Functions that uftrace records. Raises MarkerError."""
    (form,) = loops.forms

    def hits() -> dict[str, int]:
        loops.crew.end()
        return {form.form.name: hooks.recorded_by_uftrace(place.directory)}

    yield Listener(hits)


@contextmanager
def questions(loops: Loops, place: Place) -> Iterator[Listener]:
    """The counter of markerjit behind questions and brakes. Raises MarkerError."""
    with markerjit.attach(loops.crew.pid) as session:
        for name, (options, _) in listened.QUESTIONS.items():
            if loops.by(name):
                session.on(f"*_{name}_*", **options)
        yield Listener(lambda: _counts(session, loops))


@contextmanager
def adding(loops: Loops, place: Place) -> Iterator[Listener]:
    """Aggregates of markerjit. Raises MarkerError."""
    with markerjit.attach(loops.crew.pid) as session, ExitStack() as stack:
        by_form = {}
        for form in loops.forms:
            what, by = listened.ADDED[form.by]
            context = session.aggregate(f"*_{form.by}_*", what, by=by)
            by_form[form.form.name] = stack.enter_context(context)

        def hits() -> dict[str, int]:
            answers = {name: request.read() for name, request in by_form.items()}
            for name, each in answers.items():
                if missed := sum(each.missed):
                    raise MarkerError(f"{missed} executions of {name} were missed, and are cheaper")
            return {name: each.events for name, each in answers.items()}

        yield Listener(hits)


@contextmanager
def pairing(loops: Loops, place: Place) -> Iterator[Listener]:
    """The time from one marker to the next of the same thread. Raises MarkerError."""
    name = f"*_{listened.LATENCY}_pair_"
    with (
        markerjit.attach(loops.crew.pid) as session,
        session.latency(f"{name}*[0-9]", f"{name}*_end") as pairs,
    ):

        def hits() -> dict[str, int]:
            (form,) = loops.forms
            return {form.form.name: pairs.read().sketch.total}

        yield Listener(hits)


@contextmanager
def usdt(loops: Loops, place: Place) -> Iterator[Listener]:
    """USDT probes, counted and traced. Raises MarkerError."""
    with markerjit.attach(loops.crew.pid, ring_size=RING_SIZE) as session:
        if loops.by(listened.USDT_COUNT):
            session.on(f"bench:*_{listened.USDT_COUNT}_*")
        if loops.by(listened.USDT_RECORD):
            name = listened.USDT_RECORD
            with _traced(session, loops, name, {}, f"bench:*_{name}_*") as listener:
                yield listener
        else:
            yield Listener(lambda: _counts(session, loops))


@contextmanager
def flight(loops: Loops, place: Place) -> Iterator[Listener]:
    """A flight recorder of markerjit. Raises MarkerError."""
    with _flight(loops, listened.FLIGHT, RING_SIZE) as listener:
        yield listener


@contextmanager
def flight_in_cache(loops: Loops, place: Place) -> Iterator[Listener]:
    """A flight recorder of markerjit with a small ring. Raises MarkerError."""
    with _flight(loops, listened.FLIGHT_HOT, _SMALL_RING) as listener:
        yield listener


@contextmanager
def _flight(loops: Loops, name: str, ring_size: int) -> Iterator[Listener]:
    with markerjit.attach(loops.crew.pid, ring_size=ring_size) as session:
        session.record(f"*_{name}_*")
        _fill_rings(loops, name, lambda: None)
        yield Listener(lambda: _counts(session, loops))


@contextmanager
def full(loops: Loops, place: Place) -> Iterator[Listener]:
    """A trace whose rings are full and never drained, so that each event is lost and counted as
    lost. Raises MarkerError."""
    with (
        markerjit.attach(loops.crew.pid, ring_size=_SMALL_RING) as session,
        session.trace(f"*_{listened.FULL}_*") as stream,
    ):

        def keep(threads: int) -> None:
            if not stream.keep():
                raise MarkerError("somebody else reads the rings")

        keep(loops.crew.size)
        _fill_rings(loops, listened.FULL, lambda: None)
        kept = _kept(session)

        def hits() -> dict[str, int]:
            if more := _kept(session) - kept:
                raise MarkerError(f"{more} events found room in a ring that should be full")
            return _counts(session, loops, lose=True)

        yield Listener(hits, before=keep)


def _kept(session: markerjit.Session) -> int:
    """The events of all markers that were not lost."""
    return sum(marker.total - marker.lost for marker in session.statistics())


def _counts(session: markerjit.Session, loops: Loops, *, lose: bool = False) -> dict[str, int]:
    """The counts of the runtime, by form. Raises MarkerError where events were lost; with `lose`
    that is intended."""
    by_name = {marker.name: marker for marker in session.statistics()}
    counts = {}
    for form in loops.forms:
        if form.by:
            layouts = range(len(loops.numbers[form.form.name]))
            names = dict.fromkeys(form.name_of_event(layout) for layout in layouts)
            markers = [by_name[name] for name in names]
            exits = [by_name[f"{name}_exit"] for name in names if form.exits]
            if (lost := sum(marker.lost for marker in (*markers, *exits))) and not lose:
                raise MarkerError(f"{lost} events of {form.form.name} were lost, and are cheaper")
            count = sum(marker.total for marker in markers)
            left = sum(marker.total for marker in exits)
            if form.exits and left != count:
                raise MarkerError(f"{count} entries were counted, and {left} exits")
            counts[form.form.name] = count
    return counts


def _fill_rings(loops: Loops, name: str, drain: Callable[[], None]) -> None:
    """Fill the rings of each CPU once, so that all their pages are in memory."""
    first = loops.by(name)[0]
    numbers = loops.numbers[first.form.name]
    times = most_executions(1, first.size) // 2
    for _ in range(int(_LAPS * RING_SIZE / first.size / times) + 1):
        loops.crew.run(numbers[0], times, 1, loops.crew.size)
        drain()


@contextmanager
def kernel(loops: Loops, place: Place) -> Iterator[Listener]:
    """Uprobes that count, some of which also record. Raises MarkerError."""
    crew = loops.crew
    spots = [
        (form, [uprobes.spot_at(crew.pid, address, **probe._asdict())
                for address in loops.places(form)])
        for form in loops.forms
        for probe in UPROBES[form.by]
    ]  # fmt: skip
    threads = crew.threads
    with uprobes.counting([spot for _, each in spots for spot in each], threads) as descriptors:

        def hits() -> dict[str, int]:
            counts = iter([uprobes.count(descriptor) for descriptor in descriptors])
            by_form: dict[str, int] = {}
            for form, each in spots:
                count = sum(next(counts) for _ in range(len(each) * len(threads)))
                if (first := by_form.setdefault(form.form.name, count)) != count:
                    raise MarkerError(f"{first} entries were counted, and {count} exits")
            return by_form

        yield Listener(hits)


@contextmanager
def bpftrace(loops: Loops, place: Place) -> Iterator[Listener]:
    """Maps of bpftrace, one for each form. Raises MarkerError."""
    maps = {}
    for form in loops.forms:
        objects = [loops.crew.objects[number] for number in loops.numbers[form.form.name]]
        probes = [
            bpf.Probe(Path(path), form.provider, form.name_of_marker(layout))
            for layout, path in enumerate(objects)
        ]
        maps[form.by] = probes, listened.BPFTRACE[form.by]
    with (
        markerjit.View(loops.crew.pid) as view,
        bpf.tracing(loops.crew.pid, maps, lambda: _have_breakpoints(view)) as tracer,
    ):

        def hits() -> dict[str, int]:
            counts = tracer.counts()
            return {form.form.name: counts.get(form.by, 0) for form in loops.forms}

        yield Listener(hits)


def _have_breakpoints(view: markerjit.View) -> bool:
    """Whether something is in the place of the no-op of each USDT probe of the bench: libraries
    may have others."""
    states = [state for probe in view.usdt("bench:*").probes for state in probe.states]
    return all(view.read(state.site.address, 1) != _NO_OP for state in states)


@contextmanager
def ptrace(loops: Loops, place: Place) -> Iterator[Listener]:
    """Breakpoints of our own tracer. Raises MarkerError."""
    (form,) = loops.forms
    program = place.programs / "active" / "tracer"
    with closing(debuggers.Tracer(program, loops.crew.pid, loops.places(form))) as tracer:
        yield Listener(
            lambda: {form.form.name: sum(tracer.hits())},
            before=lambda threads: tracer.stay_beside(threads, place.cpu),
        )


@contextmanager
def gdb(loops: Loops, place: Place) -> Iterator[Listener]:
    """Breakpoints of gdb, which prints its counts after the program has ended. Raises
    MarkerError."""
    (form,) = loops.forms
    debugger = debuggers.Gdb(loops.crew.pid, loops.places(form), place.directory)

    def hits() -> dict[str, int]:
        loops.crew.end()
        return {form.form.name: sum(debugger.hits())}

    with closing(debugger):
        yield Listener(hits)


@contextmanager
def ust(loops: Loops, place: Place) -> Iterator[Listener]:
    """Sessions of LTTng-UST, one for each form. Raises MarkerError."""
    layouts = {form.by: range(len(loops.numbers[form.form.name])) for form in loops.forms}
    sessions = {
        form.by: lttng.Session(
            [f"{form.name_of_marker(layout)}:event" for layout in layouts[form.by]],
            ["vtid"] if form.by == listened.LTTNG_TID else [],
            listened.NEVER if form.by == listened.LTTNG_NO else "",
        )
        for form in loops.forms
    }
    account = lttng.account_of(place.directory)
    with lttng.tracing(account, loops.crew.pid, sessions) as tracer:
        yield Listener(lambda: {form.form.name: tracer.recorded(form.by) for form in loops.forms})


@contextmanager
def own_crew(
    paths: Sequence[Path], cpus: Sequence[int], place: Place
) -> Iterator[tuple[Crew, Place]]:
    """A crew of these objects, as most listeners need it."""
    with closing(Crew(place.programs / "active" / "crew", paths, cpus)) as crew:
        yield crew, place


@contextmanager
def crew_of_lttng(
    paths: Sequence[Path], cpus: Sequence[int], place: Place
) -> Iterator[tuple[Crew, Place]]:
    """A crew that LTTng's daemon may trace, in a folder that both may enter. Raises Unsupported."""
    with lttng.folder() as directory:
        program, *objects = (
            Path(shutil.copy(path, directory))
            for path in (place.programs / "active" / "crew", *paths)
        )
        account = lttng.account_of(directory)
        with closing(Crew(program, objects, cpus, popen=account.popen)) as crew:
            yield crew, place._replace(directory=directory)


@contextmanager
def crew_of_xray(
    paths: Sequence[Path], cpus: Sequence[int], place: Place
) -> Iterator[tuple[Crew, Place]]:
    """A crew with these objects in it: XRay's runtime finds only the functions of the program that
    it was linked with. Raises Unsupported."""
    with closing(Crew(hooks.link_crew(paths, place), ["linked"] * len(paths), cpus)) as crew:
        yield crew, place


@contextmanager
def crew_of_uftrace(
    paths: Sequence[Path], cpus: Sequence[int], place: Place
) -> Iterator[tuple[Crew, Place]]:
    """A crew that uftrace has started. Raises Unsupported."""
    directory = place.directory / "uftrace"
    under = hooks.uftrace(directory)
    program = place.programs / "active" / "crew"
    with closing(Crew(program, paths, cpus, under=under)) as crew:
        yield crew, place._replace(directory=directory)


Opening = Callable[[Loops, Place], AbstractContextManager[Listener]]
Starting = Callable[
    [Sequence[Path], Sequence[int], Place], AbstractContextManager[tuple[Crew, Place]]
]

LISTENERS: Sequence[tuple[Opening, Sequence[str]]] = (
    (probes, (listened.NOBODY, listened.EMPTY, listened.COUNT, listened.RECORD)),
    (questions, tuple(listened.QUESTIONS)),
    (adding, tuple(listened.ADDED)),
    (pairing, (listened.LATENCY,)),
    (usdt, (listened.USDT_COUNT, listened.USDT_RECORD)),
    (flight, (listened.FLIGHT,)),
    (flight_in_cache, (listened.FLIGHT_HOT,)),
    (full, (listened.FULL,)),
    *((recording(name), (name,)) for name in listened.OPTIONS),
    *((function(name), (name,)) for name in listened.FUNCTIONS),
    (hooked, (listened.HOOK,)),
    (hooked_by_xray, (listened.XRAY_ENTRY,)),
    (hooked_by_xray, (listened.XRAY_BOTH,)),
    (hooked_by_frida, (listened.FRIDA,)),
    (hooked_by_uftrace, (listened.UFTRACE,)),
    (kernel, tuple(UPROBES)),
    (bpftrace, tuple(listened.BPFTRACE)),
    (ptrace, (listened.PTRACE,)),
    (gdb, (listened.GDB,)),
    (ust, (listened.LTTNG, listened.LTTNG_TID, listened.LTTNG_NO)),
)
"""The listeners, each with a crew of its own, and the names of the listeners of its forms."""

CREWS: Mapping[Opening, Starting] = {
    ust: crew_of_lttng,
    hooked_by_uftrace: crew_of_uftrace,
    hooked_by_xray: crew_of_xray,
}
"""The crews that are started in a special way."""

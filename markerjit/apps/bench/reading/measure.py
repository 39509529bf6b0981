"""The cost of reading an event, by its destination and by its fields."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np

import markerjit
from markerjit.apps.bench.reading.fill import MARKERS, Fill
from markerjit.apps.bench.sampling import results
from markerjit.apps.bench.sampling.build import Missing
from markerjit.apps.bench.sampling.compare import Comparison, is_narrow
from markerjit.apps.bench.sampling.figures import counted
from markerjit.apps.bench.sampling.form import Form, is_asked_for
from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.sampling.plan import Piece, Plan, Progress, Step
from markerjit.errors import MarkerError
from markerjit.tuples import NamedTuple

KIND = "reading"
BASELINE, AGAIN = "taken out", "taken out, again"
COLUMNS, OBJECTS = "columns", "Python objects"
TEXT, JSON_LINES, CTF, PARQUET = "text", "JSON lines", "CTF", "Parquet"
_SUFFIXES = {TEXT: ".txt", JSON_LINES: ".jsonl", CTF: ".ctf", PARQUET: ".parquet"}


def _form(name: str, what: str) -> Form:
    return Form(name, (), what, baseline=BASELINE)


FORMS = (
    _form(BASELINE, "the bytes of the rings, and where each record begins"),
    _form(AGAIN, "the same once more: its difference is the noise"),
    _form(COLUMNS, "an array for each field of each marker, in order of time"),
    _form(OBJECTS, "an Event for each, which has columns made first"),
    _form(TEXT, "written to a file in memory, as lines that trace prints, with columns made first"),
    _form(JSON_LINES, "the same as lines of trace --json"),
    _form(CTF, "written to a file of the format, in memory"),
    _form(PARQUET, "written to a file of the format, in memory, with columns made first"),
)

WORKLOADS = {
    "ints": "two ints",
    "longs": "two longs",
    "numbers": "two ints and two longs in turn",
    "text": "a text and a long",
    "mixed": "a text and a long, and two longs, in turn",
}
"""The names of the workloads in fill.c, and the fields of their events."""
_RING_SIZE = 1 << 20
_EVENTS = 15_000
"""The number of events for a ring, which does not fill it: the longest record has 48 bytes."""
_FEWEST_ROUNDS = 12
_LOOK_EVERY = 25
_HALF_WIDTH_NS = 0.5
_MEMORY = Path("/dev/shm")

Take = Callable[[], None]
"""A function that empties the rings."""


class Setting(NamedTuple):
    """Events of one kind, in the rings of several CPUs, none of them the reader's."""

    workload: str
    rings: int

    @property
    def title(self) -> str:
        """The setting in words."""
        return f"reading events of {WORKLOADS[self.workload]}, {counted(self.rings, 'ring')}"


def pieces(plan: Plan) -> Iterator[Piece]:
    """The pieces of a run, in order."""
    settings = _settings()
    for setting in settings:
        yield Piece(setting.title, [Step(setting.title, plan.seconds / len(settings))], 0)


def _settings() -> list[Setting]:
    """All kinds of events in one ring, and in two where there are two CPUs."""
    rings = sorted({1, min(2, len(os.sched_getaffinity(0)))})
    return [Setting(workload, number) for number in rings for workload in WORKLOADS]


def measure(plan: Plan, place: Place, progress: Progress) -> Generator[results.Measured]:
    """Measure one setting after the other. Raises MarkerError."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    settings = _settings()
    forms = [
        form for form in FORMS
        if form.name in (BASELINE, AGAIN) or is_asked_for(form.name, plan.only)
    ]  # fmt: skip
    with tempfile.TemporaryDirectory(dir=_in_memory(place)) as name, ExitStack() as stack:
        fill = stack.enter_context(closing(Fill(place.programs / "reading" / "fill")))
        session = stack.enter_context(markerjit.attach(fill.pid, ring_size=_RING_SIZE))
        stream = stack.enter_context(session.trace(MARKERS))
        takes = {}
        for form in forms:
            try:
                takes[form.name] = _take(form.name, session, stream, Path(name))
            except MarkerError as error:  # what a format needs is not installed
                yield results.Measured([], [Missing(form, str(error))], [])
        for setting in settings:
            progress(setting.title, 0)
            seconds = plan.grant(setting.title, plan.seconds / len(settings))
            comparison = _compare(setting, fill, cpus, stream, takes, seconds)
            part = results.part(
                KIND, setting.title, setting._asdict(), comparison, forms, {},
                again=AGAIN, control=None,
            )  # fmt: skip
            yield results.Measured([part], [], [])
            progress(setting.title, 1)


def _in_memory(place: Place) -> Path:
    """A folder in memory, or one on disk where there is none."""
    return _MEMORY if os.access(_MEMORY, os.W_OK) else place.directory


def _take(
    name: str, session: markerjit.Session, stream: markerjit.EventStream, directory: Path
) -> Take:
    """The function that takes all events in this form."""
    if name in (BASELINE, AGAIN):
        return _until_empty(lambda: stream.poll_batch(packets=True, columns=False))
    if name == COLUMNS:
        return _until_empty(stream.poll_batch)
    if name == OBJECTS:
        return _until_empty(stream.poll)
    info = session.trace_info(tuple(stream.types.values()), stream.clock())
    sink = markerjit.open_sink(str(directory / f"events{_SUFFIXES[name]}"), info)
    packets = markerjit.takes_packets(sink)

    def write() -> object:
        batch = stream.poll_batch(packets=packets, columns=not packets)
        if batch:
            sink.write(batch)
        return batch

    return _until_empty(write)


def _until_empty(poll: Callable[[], object]) -> Take:
    def take() -> None:
        while poll():
            pass

    return take


def _compare(
    setting: Setting,
    fill: Fill,
    cpus: Sequence[int],
    stream: markerjit.EventStream,
    takes: Mapping[str, Take],
    seconds: float,
) -> Comparison:
    """Rounds in which each form empties the rings once, in random order. The first round does not
    count, because its pages are new. Raises MarkerError where an event is missing."""
    chance = random.Random(0)
    forms = list(takes)
    times: dict[str, list[float]] = {form: [] for form in forms}
    began, rounds = time.monotonic(), -1
    while True:
        for form in chance.sample(forms, len(forms)):
            took = _emptied(setting, fill, cpus, stream, takes[form])
            if rounds >= 0:
                times[form].append(took)
        rounds += 1
        spent = time.monotonic() - began
        is_over = rounds >= _FEWEST_ROUNDS and spent > seconds
        if is_over or (rounds and rounds % _LOOK_EVERY == 0):
            samples = {form: np.array([values]) for form, values in times.items()}
            comparison = Comparison(samples, dict.fromkeys(forms, BASELINE), _EVENTS)
            if is_over or is_narrow(comparison, _HALF_WIDTH_NS):
                return comparison


def _emptied(
    setting: Setting,
    fill: Fill,
    cpus: Sequence[int],
    stream: markerjit.EventStream,
    take: Take,
) -> float:
    """Fill the rings and empty them. Returns our processor time for each event, in ns."""
    stream.keep()
    before = stream.statistics()
    for cpu in cpus[: setting.rings]:
        fill.run(cpu, setting.workload, _EVENTS)
    start = time.process_time_ns()
    take()
    took = time.process_time_ns() - start
    after = stream.statistics()
    events, lost = after.events - before.events, after.lost - before.lost
    if (events, lost, after.bad_records) != (_EVENTS * setting.rings, 0, 0):
        raise MarkerError(
            f"{setting.title}: of {_EVENTS * setting.rings} events {events} came and {lost} were "
            f"lost, {after.bad_records} were bad"
        )
    return took / events

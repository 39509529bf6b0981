"""The cost of a site with a listener, by mechanism, on one CPU and on all at once."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

from markerjit.apps.bench.active.crew import Crew
from markerjit.apps.bench.active.listened import FORMS, NOBODY, Listened
from markerjit.apps.bench.active.listeners import LISTENERS, Listener, Loops, Opening
from markerjit.apps.bench.active.rounds import Loop, Rounds, rounds
from markerjit.apps.bench.sampling import results
from markerjit.apps.bench.sampling.build import Missing, build, skips
from markerjit.apps.bench.sampling.figures import counted
from markerjit.apps.bench.sampling.form import Form, is_asked_for
from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.sampling.plan import Plan, Progress
from markerjit.errors import MarkerError

_HERE = "more than one thread"


class _Station(NamedTuple):
    """A crew, those of its forms that can be measured, and their listener, or None."""

    loops: Loops
    forms: Sequence[Listened]
    listener: Listener | None


class Account(NamedTuple):
    """The executions of one form in the whole run, with all numbers of threads and warming up, the
    hits that its listener counted, None where it could not count. Where the answer of a question
    is no it has to count none."""

    executed: int
    counted: int | None
    why: str = ""
    is_counted: bool = True

    @property
    def wrong(self) -> str:
        """The reason why there is no figure, "" where there is one."""
        if self.counted is None:
            return f"no figure, because the count is not known: {self.why}"
        if self.counted != self.executed * self.is_counted:
            return f"no figure, for {self.counted:,} of {self.executed:,} executions were counted"
        return ""


def measure(plan: Plan, place: Place, progress: Progress) -> results.Measured:
    """Measure with one thread, and with one on each CPU. Raises DoesNotCompile, MarkerError."""
    cpus = [place.cpu, *sorted(os.sched_getaffinity(0) - {place.cpu})]
    settings = sorted({1, len(cpus)})
    missing = [] if len(settings) > 1 else [_missing(_HERE, "only one CPU is ours")]
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(dir=place.directory))
        within = place._replace(directory=Path(name))
        selected = asked_for(plan.only)
        objects = _objects(selected, plan.layouts, within, progress)
        stations: list[_Station] = []
        for opening, names in LISTENERS:
            forms = [form for form in selected if form.by in names]
            if not forms:
                continue
            progress("switching on", len(stations) / len(LISTENERS))
            loops = _loops(forms, objects, cpus, within, stack)
            station, why = _station(opening, loops, within, stack)
            stations.append(station)
            missing += [
                _missing(form.form.name, why) for form in forms if form not in station.forms
            ]
        running = dict(pair for station in stations for pair in _running(station))
        by_threads = rounds(
            running, settings, plan.seconds, lambda done: progress("active markers", done)
        )
        accounts = {
            name: account for station in stations for name, account in _accounts(station).items()
        }
    wrong = {name: account.wrong for name, account in accounts.items() if account.wrong}
    for result in by_threads.values():
        wrong |= result.failed
    missing += [_missing(name, why) for name, why in wrong.items()]
    parts = [_part(threads, result, accounts) for threads, result in by_threads.items()]
    return results.Measured(parts, missing, [])


def asked_for(only: Sequence[str]) -> list[Listened]:
    """The forms of a run, with what they are compared with."""
    return [
        form for form in FORMS if is_asked_for(form.form.name, only, is_usual=form.form.is_usual)
    ]


def _missing(name: str, why: str) -> Missing:
    return Missing(Form(name, (), ""), why)


def _objects(
    forms: Sequence[Listened], layouts: int, place: Place, progress: Progress
) -> dict[str, list[Path]]:
    """By form, an object for each layout. Forms that are the same code share theirs."""
    built: dict[tuple[tuple[str, ...], str], list[Path]] = {}
    shared = {}
    for number, form in enumerate(forms):
        progress("compiling", number / len(forms))
        key = form.form.flags, form.marker
        if key not in built or not form.marker:
            built[key] = [
                build(
                    place.sources / "active" / "listen.c", form.form, layout, skip,
                    [f"-DBENCH_MARKER={form.name_of_marker(layout)}"],
                    directory=place.directory, chosen=place.compiler, include=[place.include],
                ).path
                for layout, skip in enumerate(skips(layouts))
            ]  # fmt: skip
        shared[form.form.name] = built[key]
    return shared


def _loops(
    forms: Sequence[Listened],
    objects: dict[str, list[Path]],
    cpus: Sequence[int],
    place: Place,
    stack: ExitStack,
) -> Loops:
    paths: list[Path] = []
    numbers = {}
    for form in forms:
        own = objects[form.form.name]
        numbers[form.form.name] = range(len(paths), len(paths) + len(own))
        paths += own
    crew = stack.enter_context(closing(Crew(place.programs / "active" / "crew", paths, cpus)))
    return Loops(crew, forms, numbers)


def _station(
    opening: Opening, loops: Loops, place: Place, stack: ExitStack
) -> tuple[_Station, str]:
    """Switch a listener on. Where it cannot be, the second value is the reason."""
    try:
        listener = stack.enter_context(opening(loops, place))
    except MarkerError as error:
        return _Station(loops, loops.by(NOBODY), None), str(error)
    return _Station(loops, loops.forms, listener), ""


def _running(station: _Station) -> Iterator[tuple[str, Loop]]:
    for form in station.forms:
        loop = Loop(station.loops.crew, station.loops.numbers[form.form.name])
        if station.listener:
            loop = loop._replace(before=station.listener.before)
            if form.records:
                loop = loop._replace(record=form.size, after=station.listener.after)
        yield form.form.name, loop


def _accounts(station: _Station) -> dict[str, Account]:
    """By form, executions and hits, where there is a listener."""
    if station.listener is None:
        return {}
    listening = [form for form in station.forms if form.by != NOBODY]
    truth = {form.form.name: 0 for form in listening}
    try:
        truth = station.loops.truth()
        hits = station.listener.hits()
    except MarkerError as error:
        return {name: Account(truth[name], None, str(error)) for name in truth}
    names = {form.form.name: form.is_counted for form in listening}
    return {
        name: Account(truth[name], hits[name], is_counted=is_counted)
        for name, is_counted in names.items()
    }


def _part(threads: int, result: Rounds, accounts: Mapping[str, Account]) -> dict[str, Any]:
    """The results for a number of threads, without forms that were miscounted."""
    title = f"somebody listens, {counted(threads, 'thread')}"
    forms = [
        form.form
        for form in FORMS
        if form.form.name not in accounts or not accounts[form.form.name].wrong
    ]
    part = results.part("active", title, {"threads": threads}, result.comparison, forms, {})
    for form in part["forms"]:
        form["executions"] = result.executions[form["name"]]
        if account := accounts.get(form["name"]):
            form |= {"executed": account.executed, "counted": account.counted}
    return part

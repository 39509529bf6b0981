"""What a site costs to which somebody listens, by mechanism: on one CPU, and on all at once."""

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
    """A crew, those of its forms that can be measured, and who listens to them; None: nobody."""

    loops: Loops
    forms: Sequence[Listened]
    listener: Listener | None


class Account(NamedTuple):
    """Of one form in the whole run, with all numbers of threads and warming up: how often its loops
    came to the place, and how often whoever listens says they did; None if that cannot be said."""

    executed: int
    counted: int | None
    why: str = ""

    @property
    def wrong(self) -> str:
        """What is wrong; "" where nothing is."""
        if self.counted is None:
            return f"no figure, for nobody knows the count: {self.why}"
        if self.counted != self.executed:
            return f"no figure, for {self.counted:,} of {self.executed:,} executions were counted"
        return ""


def measure(plan: Plan, place: Place, progress: Progress) -> results.Found:
    """With one thread, and with one on each CPU. Raises DoesNotCompile, MarkerError."""
    cpus = [place.cpu, *sorted(os.sched_getaffinity(0) - {place.cpu})]
    settings = sorted({1, len(cpus)})
    missing = [] if len(settings) > 1 else [_missing(_HERE, "only one CPU is ours")]
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(dir=place.directory))
        within = place._replace(directory=Path(name))
        asked = asked_for(plan.only)
        objects = _objects(asked, plan.layouts, within, progress)
        stations: list[_Station] = []
        for opening, who in LISTENERS:
            forms = [one for one in asked if one.by in who]
            if not forms:
                continue
            progress("switching on", len(stations) / len(LISTENERS))
            loops = _loops(forms, objects, cpus, within, stack)
            station, why = _station(opening, loops, within, stack)
            stations.append(station)
            missing += [_missing(one.form.name, why) for one in forms if one not in station.forms]
        running = dict(one for station in stations for one in _running(station))
        made = rounds(
            running, settings, plan.seconds, lambda done: progress("somebody listens", done)
        )
        accounts = {name: told for one in stations for name, told in _accounts(one).items()}
    wrong = {name: one.wrong for name, one in accounts.items() if one.wrong}
    for one in made.values():
        wrong |= one.failed
    missing += [_missing(name, why) for name, why in wrong.items()]
    parts = [_part(threads, one, accounts) for threads, one in made.items()]
    return results.Found(parts, missing, [])


def asked_for(only: Sequence[str]) -> list[Listened]:
    """The forms of a run, with what they are compared with."""
    return [one for one in FORMS if is_asked_for(one.form.name, only, is_usual=one.form.is_usual)]


def _missing(name: str, why: str) -> Missing:
    return Missing(Form(name, (), ""), why)


def _objects(
    forms: Sequence[Listened], layouts: int, place: Place, progress: Progress
) -> dict[str, list[Path]]:
    """By form, an object for each layout; forms that are the same code share theirs."""
    built: dict[tuple[tuple[str, ...], str], list[Path]] = {}
    found = {}
    for number, one in enumerate(forms):
        progress("compiling", number / len(forms))
        key = one.form.flags, one.marker
        if key not in built or not one.marker:
            built[key] = [
                build(
                    place.sources / "active" / "listen.c", one.form, layout, skip,
                    [f"-DBENCH_MARKER={one.name_of_marker(layout)}"],
                    directory=place.directory, chosen=place.compiler, include=[place.include],
                ).path
                for layout, skip in enumerate(skips(layouts))
            ]  # fmt: skip
        found[one.form.name] = built[key]
    return found


def _loops(
    forms: Sequence[Listened],
    objects: dict[str, list[Path]],
    cpus: Sequence[int],
    place: Place,
    stack: ExitStack,
) -> Loops:
    paths: list[Path] = []
    numbers = {}
    for one in forms:
        own = objects[one.form.name]
        numbers[one.form.name] = range(len(paths), len(paths) + len(own))
        paths += own
    crew = stack.enter_context(closing(Crew(place.programs / "active" / "crew", paths, cpus)))
    return Loops(crew, forms, numbers)


def _station(
    opening: Opening, loops: Loops, place: Place, stack: ExitStack
) -> tuple[_Station, str]:
    """Have somebody listen; where that cannot be, why not."""
    try:
        listener = stack.enter_context(opening(loops, place))
    except MarkerError as error:
        return _Station(loops, loops.by(NOBODY), None), str(error)
    return _Station(loops, loops.forms, listener), ""


def _running(station: _Station) -> Iterator[tuple[str, Loop]]:
    for one in station.forms:
        loop = Loop(station.loops.crew, station.loops.numbers[one.form.name])
        if station.listener:
            loop = loop._replace(before=station.listener.before)
            if one.records:
                loop = loop._replace(record=one.size, after=station.listener.after)
        yield one.form.name, loop


def _accounts(station: _Station) -> dict[str, Account]:
    """By form, what was executed and what was counted, where somebody listened."""
    if station.listener is None:
        return {}
    listening = [one.form.name for one in station.forms if one.by != NOBODY]
    truth = dict.fromkeys(listening, 0)
    try:
        truth = station.loops.truth()
        told = station.listener.hits()
    except MarkerError as error:
        return {name: Account(truth[name], None, str(error)) for name in listening}
    return {name: Account(truth[name], told[name]) for name in listening}


def _part(threads: int, made: Rounds, accounts: Mapping[str, Account]) -> dict[str, Any]:
    """What was measured, without what was miscounted: that is no figure."""
    title = f"somebody listens, {counted(threads, 'thread')}"
    forms = [
        one.form
        for one in FORMS
        if one.form.name not in accounts or not accounts[one.form.name].wrong
    ]
    part = results.part("active", title, {"threads": threads}, made.found, forms, {})
    for form in part["forms"]:
        form["executions"] = made.executions[form["name"]]
        if account := accounts.get(form["name"]):
            form |= {"executed": account.executed, "counted": account.counted}
    return part

"""The cost of a site with a listener, by mechanism, on one CPU and on all at once."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

from markerjit.apps.bench.active.listened import FIRST, FORMS, NOBODY, Listened
from markerjit.apps.bench.active.listeners import (
    CREWS,
    LISTENERS,
    Listener,
    Loops,
    Opening,
    Starting,
    own_crew,
)
from markerjit.apps.bench.active.rounds import Loop, Rounds, rounds
from markerjit.apps.bench.sampling import results
from markerjit.apps.bench.sampling.build import Missing, at_once, build, skips, why_missing
from markerjit.apps.bench.sampling.figures import counted
from markerjit.apps.bench.sampling.form import Form, is_asked_for
from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.sampling.plan import QUICK_S, Piece, Plan, Progress, Step
from markerjit.errors import MarkerError, Unsupported
from markerjit.tuples import NamedTuple

_HERE = "more than one thread"
_COMPILING, _SWITCHING, _MEASURING = (
    "compiling: active markers", "switching listeners on", "active markers"
)  # fmt: skip
_COMPILE_S, _SWITCH_S = 0.06, 0.7
"""Estimates for a step's share of the run. Most forms share their objects with another."""


class _Station(NamedTuple):
    """A crew, those of its forms that can be measured, and their listener, or None."""

    loops: Loops
    forms: Sequence[Listened]
    listener: Listener | None


class Account(NamedTuple):
    """The executions of one form in the whole run, including warming up and all numbers of threads,
    and the hits that its listener counted, None where it could not count. If the answer of a
    question is no, the listener must count none."""

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


def pieces(plan: Plan) -> Iterator[Piece]:
    """The only piece of a run."""
    forms = _forms(plan)
    listening = {form.by for form in forms}
    listeners = sum(not listening.isdisjoint(names) for _, names in LISTENERS)
    yield Piece(_MEASURING, [
        Step(_COMPILING, len(forms) * plan.layouts * _COMPILE_S, is_fixed=True),
        Step(_SWITCHING, listeners * _SWITCH_S, is_fixed=True),
        Step(_MEASURING, plan.seconds),
    ], 1)  # fmt: skip


def measure(plan: Plan, place: Place, progress: Progress) -> results.Measured:
    """Measure with one thread, and with one on each CPU. Raises DoesNotCompile, MarkerError."""
    cpus = [place.cpu, *sorted(os.sched_getaffinity(0) - {place.cpu})]
    settings = sorted({1, len(cpus)})
    missing = [] if len(settings) > 1 else [_missing(_HERE, "only one CPU is ours")]
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(dir=place.directory))
        within = place._replace(directory=Path(name))
        selected, lacking = _possible(_forms(plan), within)
        missing += lacking + _of_a_first_look(plan)
        objects = _objects(selected, plan.layouts, within, progress)
        stations: list[_Station] = []
        crews = [
            (opening, forms)
            for opening, names in LISTENERS
            if (forms := [form for form in selected if form.by in names])
        ]
        for number, (opening, forms) in enumerate(crews):
            progress(_SWITCHING, number / len(crews))
            starting = CREWS.get(opening, own_crew)
            try:
                loops, own = _loops(starting, forms, objects, cpus, within, stack)
            except Unsupported as error:
                missing += [_missing(form.form.name, str(error)) for form in forms]
                continue
            station, why = _station(opening, loops, own, stack)
            stations.append(station)
            missing += [
                _missing(form.form.name, why) for form in forms if form not in station.forms
            ]
        running = dict(pair for station in stations for pair in _running(station))
        progress(_MEASURING, 0)
        seconds = plan.grant(_MEASURING, plan.seconds)
        by_threads = rounds(running, settings, seconds, lambda done: progress(_MEASURING, done))
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
    """The forms of a run, including the forms that they are compared with."""
    return [
        form for form in FORMS if is_asked_for(form.form.name, only, is_usual=form.form.is_usual)
    ]


def _forms(plan: Plan) -> list[Listened]:
    """The forms of a run: a first look has fewer."""
    forms = asked_for(plan.only)
    if plan.is_quick and not plan.is_chosen:
        return [form for form in forms if form.form.name in FIRST]
    return forms


def _of_a_first_look(plan: Plan) -> list[Missing]:
    """The forms that only a longer run has."""
    measured = _forms(plan)
    left = [form.form.name for form in asked_for(plan.only) if form not in measured]
    why = f"a first look leaves it out; --seconds {QUICK_S:g} or markerjit bench active measures it"
    return [_missing("; ".join(left), why)] if left else []


def _possible(forms: Sequence[Listened], place: Place) -> tuple[list[Listened], list[Missing]]:
    """The forms that can be compiled here, and the others."""
    reasons = {
        form.form.name: why_missing(form.form, place.compiler, [place.include])
        for form in forms
        if form.form.needs or form.form.compiler
    }
    lacking = [Missing(form.form, why) for form in forms if (why := reasons.get(form.form.name))]
    return [form for form in forms if not reasons.get(form.form.name)], lacking


def _missing(name: str, why: str) -> Missing:
    return Missing(Form(name, (), ""), why)


def _objects(
    forms: Sequence[Listened], layouts: int, place: Place, progress: Progress
) -> dict[str, list[Path]]:
    """The objects by form, one for each layout. Forms with the same code share objects."""
    first: dict[object, Listened] = {}
    own: dict[str, Listened] = {}
    for form in forms:
        key = (form.form.flags, form.marker) if form.marker else form.form.name
        own[form.form.name] = first.setdefault(key, form)

    def build_one(variant: tuple[Listened, tuple[int, int]]) -> Path:
        form, (layout, skip) = variant
        return build(
            place.sources / "active" / "listen.c", form.form, layout, skip,
            [f"-DBENCH_MARKER={form.name_of_marker(layout)}"],
            directory=place.directory, chosen=place.compiler,
            include=[place.include, place.sources / "active"],
        ).path  # fmt: skip

    variants = product(first.values(), enumerate(skips(layouts)))
    paths = at_once(build_one, variants, lambda done: progress(_COMPILING, done))
    names = [form.form.name for form in first.values()]
    built = {name: paths[at * layouts :][:layouts] for at, name in enumerate(names)}
    return {name: built[form.form.name] for name, form in own.items()}


def _loops(
    starting: Starting,
    forms: Sequence[Listened],
    objects: dict[str, list[Path]],
    cpus: Sequence[int],
    place: Place,
    stack: ExitStack,
) -> tuple[Loops, Place]:
    """The loops of forms in a crew, and the folders of that crew."""
    paths: list[Path] = []
    numbers = {}
    for form in forms:
        own = objects[form.form.name]
        numbers[form.form.name] = range(len(paths), len(paths) + len(own))
        paths += own
    crew, place_of_crew = stack.enter_context(starting(paths, cpus, place))
    return Loops(crew, forms, numbers), place_of_crew


def _station(
    opening: Opening, loops: Loops, place: Place, stack: ExitStack
) -> tuple[_Station, str]:
    """Switch a listener on. If that is not possible, the second value is the reason."""
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

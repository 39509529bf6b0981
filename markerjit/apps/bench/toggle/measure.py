"""The cost of switching sites on and off, by the number of sites and of threads."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import numpy as np

from markerjit.apps.bench.sampling.build import Missing, at_once
from markerjit.apps.bench.sampling.form import is_asked_for
from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.sampling.plan import QUICK_S, Piece, Plan, Progress, Step
from markerjit.apps.bench.sampling.results import Measured
from markerjit.apps.bench.toggle import once, program, rounds
from markerjit.apps.bench.toggle.enough import TooSlow
from markerjit.apps.bench.toggle.parts import KIND, parts
from markerjit.apps.bench.toggle.rounds import Setting
from markerjit.apps.bench.toggle.ways import ASLEEP, BUSY, DEFAULT, FIRST, WAYS, Way, as_form

_START_S, _COMMANDS_S = 0.3, 3.0
"""Estimates for a step's share of the run: building and starting a program for each way, and the
fewest commands."""
_BUILDING = 0.5
"""The part of that which is building."""


def measure(plan: Plan, place: Place, progress: Progress) -> Generator[Measured]:
    """Measure all settings, one after the other: a result for each of `pieces`. Raises Refused,
    DoesNotCompile."""
    settings = list(settings_of(plan.sites, plan.threads))
    missing = _of_the_machine() + _of_a_first_look(plan)
    with tempfile.TemporaryDirectory(dir=place.directory) as name:
        for setting in settings:
            measured = _of_setting(setting, settings, plan, place, Path(name), progress)
            yield measured._replace(missing=missing + measured.missing)
            missing = []


def pieces(plan: Plan) -> Iterator[Piece]:
    """The pieces of a run, in order."""
    settings = list(settings_of(plan.sites, plan.threads))
    for setting in settings:
        fixed = len(_ways(plan)) * _START_S + _has_commands(setting, settings, plan) * _COMMANDS_S
        processes = _processes(setting, plan.seconds / len(settings), plan)
        yield Piece(_title(setting), [
            Step(_starting(setting), fixed * processes, is_fixed=True),
            Step(_title(setting), plan.seconds / len(settings)),
        ], 2 if setting == settings[0] else 4)  # fmt: skip


def _ways(plan: Plan) -> list[Way]:
    """The ways of a run. A first look has one for each door and each kind of patch."""
    chosen = [way for way in WAYS if way == DEFAULT or is_asked_for(way.name, plan.only)]
    if plan.is_quick and not plan.is_chosen:
        return [way for way in chosen if way in FIRST]
    return chosen


def _has_commands(setting: Setting, settings: Sequence[Setting], plan: Plan) -> bool:
    """Whether commands are run: at a first look in the first setting alone, since a command takes
    much longer than what its setting adds to it."""
    return not plan.is_quick or plan.is_chosen or setting == settings[0]


def _processes(setting: Setting, seconds: float, plan: Plan) -> int:
    return 1 if plan.is_quick and not plan.is_chosen else setting.processes(seconds)


def _of_a_first_look(plan: Plan) -> list[Missing]:
    """The ways that only a longer run has."""
    measured = _ways(plan)
    left = [way for way in WAYS if way not in measured and not plan.only]
    why = f"a first look leaves it out; --seconds {QUICK_S:g} or markerjit bench toggle measures it"
    names = "; ".join(way.name for way in left)
    return [Missing(as_form(f"{KIND}, {names}", "", ""), why)] if left else []


def _starting(setting: Setting) -> str:
    return f"starting programs: {setting.title}"


def _title(setting: Setting) -> str:
    return f"switching: {setting.title}"


def settings_of(sites: Sequence[int], threads: Sequence[int]) -> Iterator[Setting]:
    """Each number of sites with the fewest threads, each number of threads with the fewest
    sites."""
    for number in sorted(set(sites)):
        yield Setting(number, min(threads), BUSY)
    for number in sorted(set(threads)):
        for load in (BUSY, ASLEEP):
            setting = Setting(min(sites), number, load)
            if (number, load) != (min(threads), BUSY) and (number > 1 or load == BUSY):
                yield setting


def _of_setting(
    setting: Setting,
    settings: Sequence[Setting],
    plan: Plan,
    place: Place,
    directory: Path,
    progress: Progress,
) -> Measured:
    title, only = _title(setting), plan.only
    progress(_starting(setting), 0)
    ways = _ways(plan)
    modes = list(dict.fromkeys(way.compiled for way in ways))
    built = at_once(
        lambda mode: program.build(setting.sites, mode, place, directory), modes,
        lambda done: progress(_starting(setting), done * _BUILDING),
    )  # fmt: skip
    programs = dict(zip(modes, built, strict=True))
    seconds = plan.grant(title, plan.seconds / len(settings))
    done_once = {name for name in once.WHATS if only and is_asked_for(name, only)}
    does_switch = not only or any(is_asked_for(way.name, only) for way in ways)
    share = seconds / (bool(done_once) + does_switch)
    raw = rounds.nothing()
    try:
        if does_switch:
            raw = rounds.run(
                setting, programs, share, lambda done: progress(title, done), ways,
                processes=_processes(setting, share, plan),
                commands=_has_commands(setting, settings, plan),
            )  # fmt: skip
        if done_once:
            progress(title, 0.5)
            program_of = programs[DEFAULT.compiled]
            samples = once.measure(program_of, *setting, share, done_once)
            raw.samples[rounds.ONCE] = {name: np.array([took]) for name, took in samples.items()}
    except (TooSlow, *rounds.CANNOT) as error:
        return Measured([], [_missing(setting, DEFAULT.name, str(error))], [])
    whys: dict[str, list[str]] = {}
    for way, why in raw.missing.items():
        whys.setdefault(why, []).append(way)
    missing = [_missing(setting, "; ".join(names), why) for why, names in whys.items()]
    if _one_cpu():
        raw.samples.pop(rounds.SLOWEST, None)
    return Measured(list(parts(setting, raw)), missing, [])


def _missing(setting: Setting, name: str, reason: str) -> Missing:
    return Missing(as_form(f"{KIND}, {setting.title}, {name}", "", ""), reason)


def _of_the_machine() -> list[Missing]:
    if not _one_cpu():
        return []
    why = (
        "there is one CPU: while the controller computes, the program waits, whether it is stopped "
        "or not"
    )
    return [Missing(as_form(f"{KIND}, the slowest step", "", ""), why)]


def _one_cpu() -> bool:
    return len(os.sched_getaffinity(0)) == 1

"""The cost of switching sites on and off, by the number of sites and of threads."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from markerjit.apps.bench.sampling.build import Missing
from markerjit.apps.bench.sampling.form import is_asked_for
from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.sampling.plan import Plan, Progress, Step
from markerjit.apps.bench.sampling.results import Measured
from markerjit.apps.bench.toggle import once, program, rounds
from markerjit.apps.bench.toggle.enough import TooSlow
from markerjit.apps.bench.toggle.parts import KIND, parts
from markerjit.apps.bench.toggle.rounds import Setting
from markerjit.apps.bench.toggle.ways import ASLEEP, BUSY, DEFAULT, WAYS, as_form

_BUILD_S = 2.0
"""An estimate of building the programs of a setting and starting them, for its share of the run."""


def measure(plan: Plan, place: Place, progress: Progress) -> Iterator[Measured]:
    """Measure all settings, one after the other. Raises Refused, DoesNotCompile."""
    settings = list(settings_of(plan.sites, plan.threads))
    yield Measured([], _of_the_machine(), [])
    with tempfile.TemporaryDirectory(dir=place.directory) as name:
        for setting in settings:
            seconds = plan.seconds / len(settings)
            yield _of_setting(setting, seconds, plan.only, place, Path(name), progress)


def steps(plan: Plan) -> Iterator[Step]:
    """The steps of a run, in order."""
    settings = list(settings_of(plan.sites, plan.threads))
    for setting in settings:
        yield Step(_title(setting), plan.seconds / len(settings) + _BUILD_S)


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
    seconds: float,
    only: Sequence[str],
    place: Place,
    directory: Path,
    progress: Progress,
) -> Measured:
    title = _title(setting)
    progress(title, 0)
    ways = [way for way in WAYS if way == DEFAULT or is_asked_for(way.name, only)]
    programs = {
        mode: program.build(setting.sites, mode, place, directory)
        for mode in dict.fromkeys(way.compiled for way in ways)
    }
    done_once = {name for name in once.WHATS if only and is_asked_for(name, only)}
    does_switch = not only or any(is_asked_for(way.name, only) for way in ways)
    share = seconds / (bool(done_once) + does_switch)
    raw = rounds.nothing()
    try:
        if does_switch:
            raw = rounds.run(setting, programs, share, lambda done: progress(title, done), ways)
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

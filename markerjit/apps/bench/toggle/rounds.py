"""All ways to switch in one setting, against each other in random order, until every interval is
narrow or the time is up."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from markerjit.apps.bench.sampling.figures import counted
from markerjit.apps.bench.sampling.statistics import level
from markerjit.apps.bench.toggle.command import Commands
from markerjit.apps.bench.toggle.crowd import CannotStart, Noticed
from markerjit.apps.bench.toggle.enough import LEAST, PATIENCE, TooSlow, is_over
from markerjit.apps.bench.toggle.host import Host, Seen
from markerjit.apps.bench.toggle.program import Program
from markerjit.apps.bench.toggle.ways import (
    AGAIN,
    DEFAULT,
    FENCE,
    QUIET,
    QUIET_AGAIN,
    Way,
    form_name,
)
from markerjit.errors import NotPermitted, Refused, Unsupported
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.apps.bench.sampling.statistics import Array

CANNOT = (CannotStart, NotPermitted, Refused, Unsupported)
"""Errors of a way that cannot be used here. Any other error means that something went wrong."""
CALL, COMMAND, STOPPED, HELD, SLOWEST = "call", "command", "stopped", "held", "slowest"
ONCE = "once"
_NARROW = 0.03
_LOOK_EVERY = 10
_WARM_UP, _WARM_UP_S = 3, 20.0
_SHORTEST_S = 1.0
_ALWAYS = 4
"""Visits in a round of the default alone: once, once more, and two of the controls."""
_WINDOW_S, _ROOM = 0.002, 1.5
_LONGER = "as a rule its switch takes longer than the windows in which it would be looked for"
MANY = 10_000
_COMMAND_SHARE = 0.4


class Setting(NamedTuple):
    """Numbers of sites and of threads. The threads are `busy` or, all but one, `asleep`."""

    sites: int
    threads: int
    load: str

    @property
    def title(self) -> str:
        """The setting in words."""
        sites = counted(self.sites, "site")
        if self.threads == 1:
            return f"{sites}, 1 thread that runs"
        does = "that run" if self.load == "busy" else "of which 1 runs and the others sleep"
        return f"{sites}, {self.threads} threads {does}"

    def processes(self, seconds: float) -> int:
        """How many processes are started one after the other, each with its memory somewhere else.
        It is one where a start takes too much of the time."""
        return 1 if self.sites > MANY or seconds < _SHORTEST_S else 2


class Raw(NamedTuple):
    """The result for a setting.

    samples  by measure and form: processes by rounds, in ns
    steps    by form: the number of steps of the threads by their time, in the buckets of crowd.py
    first    by form: the first switch of each process, in ns
    missing  by way: the reason
    refused  by form: how often a switch was refused before it was made
    window   in which the threads' slowest step was looked for, in ns; longer where a switch is
    """

    samples: dict[str, dict[str, Array]]
    steps: dict[str, Counter[int]]
    first: dict[str, list[int]]
    missing: dict[str, str]
    window: int
    refused: Counter[str]


def nothing() -> Raw:
    """A setting in which nothing was measured yet."""
    return Raw({}, {}, {}, {}, 0, Counter())


Kept = dict[tuple[str, str], list[float]]
"""The values of one process, by measure and form."""


def run(
    setting: Setting,
    programs: Mapping[str, Program],
    seconds: float,
    progress: Callable[[float], None],
    ways: Sequence[Way],
    *,
    processes: int,
    commands: bool,
) -> Raw:
    """Measure in that many processes, one after the other, with `commands` or without. Raises
    TooSlow, one of CANNOT where the default way cannot be used, and MarkerError where something
    went wrong."""
    raw = nothing()
    kept: list[Kept] = []
    share = seconds / processes
    for number in range(processes):
        with ExitStack() as stack:
            default = _host(DEFAULT, setting, programs, raw, stack)
            rounds = _Rounds(default, raw, random.Random(number))
            chosen = [way for way in ways if way.at_many or setting.sites <= MANY]
            chosen = _affordable(chosen, rounds.visit_s, share, raw)
            for way in chosen:
                try:
                    rounds.add(_host(way, setting, programs, raw, stack))
                except CANNOT as error:
                    raw.missing[way.name] = str(error)
            raw = raw._replace(window=max(raw.window, round(rounds.window_s * 1e9)))
            done = number / processes
            of_commands = share * _COMMAND_SHARE * commands
            samples = rounds.until(share - of_commands, progress, done)
            for form in rounds.longer():
                del samples[SLOWEST, form]
                raw.missing[f"the slowest step of {form}"] = _LONGER
            if commands:
                try:
                    samples |= _of_commands(default, number, of_commands)
                except TooSlow as error:
                    raw.missing["the command line"] = str(error)
            for host in rounds.hosts():
                host.finish()
            kept.append(samples)
    progress(1.0)
    return raw._replace(samples=as_samples(kept))


def _of_commands(host: Host, seed: int, seconds: float) -> Kept:
    took = Commands(host, random.Random(seed)).until(seconds)
    return {(COMMAND, name): times for name, times in took.items()}


def _host(
    way: Way, setting: Setting, programs: Mapping[str, Program], raw: Raw, stack: ExitStack
) -> Host:
    """A process for a way: what one leaves in a slot must not meet another."""
    host = stack.enter_context(
        Host(way, programs[way.compiled], setting.sites, setting.threads, setting.load)
    )
    for direction, switched in host.first.items():
        raw.first.setdefault(form_name(way.name, direction), []).append(switched.call)
    return host


def _affordable(ways: Sequence[Way], visit_s: float, seconds: float, raw: Raw) -> list[Way]:
    """The ways beside the default: all that work, or none where a few rounds of them would take
    many times the time that there is. Raises TooSlow where even the default would."""
    others = [way for way in ways if way != DEFAULT and way.name not in raw.missing]
    time_for = max(seconds, _SHORTEST_S) * PATIENCE / (visit_s * LEAST)
    why = f"to switch on and off takes {visit_s:.1f} s there: --seconds is too short for that"
    if time_for < _ALWAYS:
        raise TooSlow(why)
    if time_for < _ALWAYS + len(others):
        raw.missing.update(dict.fromkeys((way.name for way in others), why))
        return []
    return others


class _Rounds:
    """The rounds with one set of processes."""

    def __init__(self, default: Host, raw: Raw, chance: random.Random) -> None:
        self._hosts = {DEFAULT.name: default, AGAIN: default}
        self._default = default
        self._raw = raw
        self._chance = chance
        self._kept: Kept = {}
        self._longer: Counter[str] = Counter()
        took: list[int] = []
        began = time.monotonic()
        for number in range(_WARM_UP):
            start = time.monotonic()
            if number >= default.warm_up and start - began > _WARM_UP_S:
                break
            took += [visit.switched.call for visit in default.visit(_WINDOW_S).values()]
            self.visit_s = time.monotonic() - start
        self.window_s = max(_WINDOW_S, max(took[-2:]) / 1e9 * _ROOM)
        self._last_ns = max(took[-2:])

    def add(self, host: Host) -> None:
        """Add a way to switch."""
        for _ in range(host.warm_up):
            host.visit(_WINDOW_S)
        self._hosts[host.way.name] = host

    def hosts(self) -> list[Host]:
        """The hosts of all ways, each once."""
        return list(dict.fromkeys(self._hosts.values()))

    def longer(self) -> list[str]:
        """Forms whose window was in most rounds much longer than that of their baseline."""
        return [
            form for form, times in self._longer.items() if times * 2 > len(self._kept[CALL, form])
        ]

    def until(self, seconds: float, progress: Callable[[float], None], done: float) -> Kept:
        """Run rounds for some seconds, or until all intervals are narrow."""
        began, rounds = time.monotonic(), 0
        while True:
            for name in self._chance.sample(names := self._names(), len(names)):
                self._visit(name)
            rounds += 1
            spent = time.monotonic() - began
            progress(min(1.0, done + spent / max(seconds, 1e-9) * (1 - done)))
            if is_over(rounds, spent, seconds) or (rounds % _LOOK_EVERY == 0 and self._is_narrow()):
                return self._kept

    def _names(self) -> list[str]:
        return [*self._hosts, QUIET, QUIET_AGAIN]

    def _visit(self, name: str) -> None:
        """Run a form once. The last switch of the default would fit into its window. The longer a
        window, the slower the slowest step in it, with a switch or without."""
        window_ns = max(round(self.window_s * 1e9), self._last_ns)
        if name not in self._hosts:
            self._notice(name, self._default.watch(window_ns / 1e9, lambda: spin(self._last_ns)))
            return
        host = self._hosts[name]
        visits = host.visit(window_ns / 1e9)
        for direction, visit in visits.items():
            form = form_name(name, direction)
            self._keep(form, visit, stops=host.way.stops)
            if fence := visit.switched.fence:
                self._add(CALL, form_name(FENCE, direction), fence)
            if visit.switched.call > window_ns * _ROOM:
                self._longer[form] += 1
        if host is self._default:
            self._last_ns = max(visit.switched.call for visit in visits.values())

    def _keep(self, form: str, visit: Seen, *, stops: bool) -> None:
        switched = visit.switched
        self._add(CALL, form, switched.call)
        self._raw.refused[form] += switched.refused
        if stops:
            self._add(STOPPED, form, switched.stopped)
            self._add(HELD, form, switched.held)
        self._notice(form, visit.noticed)

    def _notice(self, form: str, noticed: Noticed) -> None:
        self._raw.steps.setdefault(form, Counter()).update(noticed.counts)
        self._add(SLOWEST, form, noticed.slowest)

    def _add(self, measure: str, form: str, value: float) -> None:
        self._kept.setdefault((measure, form), []).append(value)

    def _is_narrow(self) -> bool:
        """Whether the intervals of all times are narrow. Slowest steps are left out: they scatter
        however long one measures."""
        levels = [
            level(np.array([values]))
            for (measure, form), values in self._kept.items()
            if measure in (CALL, STOPPED) and not form.startswith(FENCE)
        ]
        return all(estimate.half_width <= _NARROW * estimate.value for estimate in levels)


def spin(ns: int) -> None:
    """Compute for `ns`, as a controller does besides switching."""
    end = time.perf_counter_ns() + ns
    while time.perf_counter_ns() < end:
        pass


def as_samples(processes: Sequence[Kept]) -> dict[str, dict[str, Array]]:
    """The values by measure and form: processes by rounds, as many in each as all have. Forms that
    not all processes have are left out."""
    samples: dict[str, dict[str, Array]] = {}
    everywhere = [key for key in processes[0] if all(key in process for process in processes)]
    for measure in dict.fromkeys(measure for measure, _ in everywhere):
        keys = [key for key in everywhere if key[0] == measure]
        rounds = min(len(process[key]) for process in processes for key in keys)
        samples[measure] = {
            form: np.array(
                [process[measure, form][:rounds] for process in processes], dtype=np.float64
            )
            for _, form in keys
        }
    return samples

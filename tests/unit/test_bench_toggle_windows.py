"""Windows in which the slowest step is looked for: as long with a switch as without."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import cast

import pytest

from markerjit import Applied
from markerjit.apps.bench.toggle import crowd, rounds
from markerjit.apps.bench.toggle.door import Switched, _until_it_may
from markerjit.apps.bench.toggle.host import Host, Seen
from markerjit.apps.bench.toggle.ways import DEFAULT, DIRECTIONS, WAYS, Way, form_name
from markerjit.errors import Refused

MS = 1_000_000
NOTICED = crowd.Noticed(9, 1, 0, 0, Counter({9: 1}))


class FakeHost:
    """Its switches take what is in `calls`, one visit after the other; the last one for ever."""

    warm_up = 1

    def __init__(self, way: Way, *calls: float) -> None:
        self.way = way
        self.calls = [round(call * MS) for call in calls]
        self.windows: list[float] = []
        self.watched: list[float] = []

    def visit(self, window_s: float) -> dict[str, Seen]:
        self.windows.append(window_s * 1e3)
        call = self.calls.pop(0) if len(self.calls) > 1 else self.calls[0]
        return {direction: Seen(Switched(call, 1, 1), NOTICED) for direction in DIRECTIONS}

    def watch(self, window_s: float, pastime: Callable[[], object]) -> crowd.Noticed:
        self.watched.append(window_s * 1e3)
        return NOTICED


def rounds_of(default: FakeHost, *others: FakeHost) -> rounds._Rounds:
    made = rounds._Rounds(cast(Host, default), rounds.nothing(), random.Random(1))
    for host in (default, *others):
        if host is not default:
            made.add(cast(Host, host))
        host.windows.clear()
    made.until(0.0, lambda done: None, 0.0)
    return made


def test_windows_are_of_one_length_however_long_another_switch_takes() -> None:
    default, slow = FakeHost(DEFAULT, 10), FakeHost(WAYS[3], 700)

    made = rounds_of(default, slow)

    assert {*default.windows, *default.watched, *slow.windows} == {15}
    assert made.longer() == [form_name(WAYS[3].name, direction) for direction in DIRECTIONS]


def test_windows_are_no_shorter_than_the_defaults_last_switch() -> None:
    default, other = FakeHost(DEFAULT, 1, 1, 1, 40), FakeHost(WAYS[1], 1)

    made = rounds_of(default, other)

    assert {*default.windows, *default.watched, *other.windows} == {2, 40}
    assert default.watched[2:] == [40] * (len(default.watched) - 2)
    assert made.longer() == []


def test_a_switch_that_is_seldom_longer_has_a_figure() -> None:
    default, other = FakeHost(DEFAULT, 1), FakeHost(WAYS[1], 1, 50, 1)

    assert rounds_of(default, other).longer() == []


class FakeCrowd:
    """Threads that tell one thing after the other."""

    def __init__(self, *noticed: crowd.Noticed) -> None:
        self.all = list(noticed)

    def go(self) -> None: ...

    def clear(self) -> None: ...

    def rest(self) -> None: ...

    def noticed(self) -> crowd.Noticed:
        return self.all.pop(0)


def test_a_window_begins_after_a_step_and_ends_after_one() -> None:
    nothing = crowd.Noticed(0, 0, 0, 0, Counter())
    waits, stepped = nothing._replace(slowest=5 * MS), NOTICED._replace(slowest=9 * MS)
    threads = FakeCrowd(nothing, NOTICED, waits, waits, stepped)
    host = Host.__new__(Host)
    host.way = DEFAULT
    host.crowd = cast(crowd.Crowd, threads)

    assert host.watch(0.0, lambda: None) == stepped
    assert threads.all == []


# ---- a switch that is refused --------------------------------------------------------------------


def test_a_switch_is_timed_by_the_try_that_was_made_and_the_others_are_counted() -> None:
    refusals = iter([True, True, False])

    def switch() -> Applied:
        if next(refusals):
            raise Refused("no thread can be borrowed just now", try_again=True)
        return cast(Applied, "applied")

    _, applied, refused = _until_it_may(switch)

    assert (applied, refused) == ("applied", 2)


def test_a_switch_is_not_tried_for_ever() -> None:
    tries = []

    def switch() -> Applied:
        tries.append(1)
        raise Refused("no", try_again=len(tries) < 7)

    with pytest.raises(Refused):
        _until_it_may(switch)
    assert len(tries) == 7

"""The budget of a trace's probes: what is too expensive is thinned, then switched off, and it is
said."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

import markerjit
from markerjit.events.budget import Prices
from tests.support.commands import cli, one_line
from tests.support.processes import text_of
from tests.support.timing import Wait

pytestmark = pytest.mark.live

LONGEST_S = 60.0


def read_until(stream: markerjit.EventStream, condition: Callable[[], bool]) -> None:
    """Take events out until then, or for a very long time."""
    until = time.monotonic() + LONGEST_S
    while not condition() and not stream.is_over() and time.monotonic() < until:
        while stream.poll_batch():
            pass
        time.sleep(0.01)


def test_busy_marker_is_thinned_and_then_switched_off(target: Callable) -> None:
    program = target("truth_keys", "2")
    before = text_of(program.pid)
    program.ask("resume")
    with markerjit.attach(program.pid) as session:
        with session.trace("truth_key", budget="0.001%") as stream:
            read_until(stream, lambda: False)
            over = stream.is_over()
        (marker,) = session.statistics("truth_key")
    program.ask("pause")

    assert over
    assert [cut.marker for cut in stream.cuts] == ["truth_key", None]
    assert stream.cuts[0].sample == "1/1024"
    assert marker.mode is None
    assert text_of(program.pid) == before


def test_marker_that_was_thinned_goes_on_and_others_see_it(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A tenth of the turns: 24 ns a turn where they are recorded, by these prices, and 0.6 where
    # not. A turn takes 3 to 100 ns: 20 % is in between on a fast machine and on a slow one.
    monkeypatch.setattr(Prices, "measured", lambda: Prices(240, 6))
    program = target("truth_keys", "1")
    program.ask("resume")
    with (
        markerjit.attach(program.pid) as session,
        session.trace("truth_key", where="value % 10 == 0", budget="20%") as stream,
    ):
        read_until(stream, lambda: bool(stream.cuts))
        (marker,) = session.statistics("truth_key")
        with markerjit.View(program.pid) as view:
            (listed,) = view.statistics("truth_key")
        sample = stream.cuts[-1].sample
        is_over = stream.is_over()
    program.ask("pause")

    assert not is_over
    assert (marker.budget, marker.sample) == ("20%", sample)
    assert (listed.budget, listed.sample) == ("20%", sample)


# A turn takes 20 ns and more: at 160 ns an event, 1024 times less of them cost less than 1 %.
@pytest.mark.parametrize("ns", [15, 60, 160])
def test_sample_is_the_largest_that_keeps_to_the_budget_at_these_prices(
    target: Callable, monkeypatch: pytest.MonkeyPatch, ns: float
) -> None:
    """And the program has as many events as that sample says."""
    program = target("truth_modes-jump")
    monkeypatch.setattr(Prices, "measured", lambda: Prices(ns, 0))
    with (
        markerjit.attach(program.pid) as session,
        session.trace("truth_mode", budget="1%") as stream,
    ):
        wait = Wait("a cut")
        while not stream.cuts:
            wait.left_s()
            program.ask("run 200000")
            stream.poll_batch()
        (cut,) = stream.cuts
        (before,) = session.statistics("truth_mode")
        program.ask("run 1000000")
        (after,) = session.statistics("truth_mode")

    part = Fraction(cut.sample or 0)
    assert cut.percent * part <= 1 < cut.percent * part * 2
    counted = after.hits - before.hits
    expected = 1_000_000 * part
    assert abs(counted - expected) < 6 * math.sqrt(expected) + 1


def test_marker_that_is_cheap_is_left_alone(target: Callable) -> None:
    program = target("truth_modes-jump")
    with (
        markerjit.attach(program.pid) as session,
        session.trace("truth_mode", budget="100%") as stream,
    ):
        program.ask("run 1000")
        (marker,) = session.statistics("truth_mode")
        seen = list(stream.drain())

    assert len(seen) == 1000
    assert (stream.cuts, marker.sample, marker.budget) == ((), None, "100%")


def test_command_says_what_was_done(target: Callable, tmp_path: Path) -> None:
    program = target("truth_keys", "2")
    program.ask("resume")
    path = str(tmp_path / "trace.jsonl")
    done = cli(
        *("trace", program.pid, "truth_key", "--budget", "0.001%"),
        *("-o", path, "--json", "-d", "60s"),
    )
    program.ask("pause")
    summary = json.loads(done.stdout)["summary"]

    assert "truth_key is sampled 1/1024 from now on" in done.stderr
    assert "cannot be thinned any more: they are switched off" in done.stderr
    assert [cut["marker"] for cut in summary["cuts"]] == ["truth_key", None]
    assert "thinned to a budget of 0.001%: truth_key" in cli("read", path, "--stats").stdout


@pytest.mark.parametrize("part", ["0%", "200%", "1", "-1%"])
def test_wrong_budget_is_one_sentence(target: Callable, part: str) -> None:
    done = cli("trace", target("truth_modes-jump").pid, "truth_mode", f"--budget={part}")

    one_line(done, f"budget is '{part}'; it must be a share of the processor time such as 1%")


def test_on_has_nobody_who_looks(target: Callable) -> None:
    program = target("truth_modes-jump")
    done = cli("on", program.pid, "truth_mode", "--budget", "1%")

    one_line(done, "markerjit trace --budget; use --sample, --at-most or --for with `on`")


def test_a_flight_recorder_has_nobody_who_looks(target: Callable) -> None:
    program = target("truth_modes-jump")
    done = cli("flight", "start", program.pid, "truth_mode", "--budget", "1%")

    one_line(done, "nobody stays to watch a flight recorder; use --sample or --at-most, or marker")
    with markerjit.attach(program.pid) as session:
        (marker,) = session.statistics("truth_mode")
    assert marker.mode is None

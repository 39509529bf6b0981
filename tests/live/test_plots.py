"""Pictures of a session, and the notebook of the tutorial, which draws them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import markerjit
from tests.support.markers import modes_of
from tests.support.notebooks import Output, cells_of, run, stripped
from tests.support.programs import ROOT, Target
from tests.support.timing import wait_until

NOTEBOOK = ROOT / "docs" / "tutorial" / "markers.ipynb"

pytestmark = pytest.mark.live


@pytest.fixture(autouse=True)
def _without_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib (pip install matplotlib)")
    monkeypatch.setenv("MPLBACKEND", "agg")


@pytest.fixture
def program(target: Callable) -> Target:
    made: Target = target("truth_threads", "2", "--rate", "1000")
    return made


@pytest.fixture
def session(program: Target) -> Iterator[markerjit.Session]:
    with markerjit.attach(program.pid) as attached:
        yield attached


def hits_in(axes: Any, marker: str) -> float:
    """The hits that the line of a marker stands for."""
    (line,) = (line for line in axes.get_lines() if line.get_label() == marker)
    times, rates = line.get_xdata(), line.get_ydata()
    spans = [at - last for last, at in zip([0.0, *times], times, strict=False)]
    return sum(rate * span for rate, span in zip(rates, spans, strict=True))


def test_rates_add_up_to_the_hits_and_all_is_off_afterwards(
    program: Target, session: markerjit.Session
) -> None:
    before = program.ask("counts")["truth_loop"]

    axes = session.plot.rate("truth_loop", duration=0.5, every=0.1)

    more = program.ask("counts")["truth_loop"] - before
    hits = hits_in(axes, "truth_loop")
    assert 0 < hits <= more
    assert hits == pytest.approx(round(hits), abs=1e-3)
    assert modes_of(program.pid)["truth_loop"] is None


def deadlines_of(session: markerjit.Session, pattern: str) -> dict[str, tuple[str, str, int]]:
    """How the markers of a pattern are on, and by when each is to be off, CLOCK_MONOTONIC ns."""
    arena = session._target.look().arena
    assert arena
    until = {entry.name.decode(): int(entry.until_ns) for entry in arena.markers.entries()}
    return {
        each.name: (str(each.mode), each.probe, until.get(each.name, 0))
        for each in session.status(pattern)
    }


@pytest.mark.product
@pytest.mark.parametrize("pattern", ["truth_loop", "func:truth_threads:main"])
@pytest.mark.parametrize("for_s", [None, 3600.0])
def test_what_was_on_before_is_as_it_was(
    session: markerjit.Session, pattern: str, for_s: float | None
) -> None:
    session.on(pattern, for_s=for_s)
    before = deadlines_of(session, pattern)

    session.plot.rate(pattern, duration=0.1, every=0.05)

    assert deadlines_of(session, pattern) == before
    assert all(mode != "None" and probe == "count" for mode, probe, _ in before.values())


def test_functions_that_were_off_are_off_afterwards_beside_one_that_was_on(
    session: markerjit.Session,
) -> None:
    session.on("func:truth_threads:main")

    session.plot.rate("func:truth_threads:m*", duration=0.1, every=0.05)

    on = {each.name for each in session.status("func:truth_threads:*") if each.mode}
    assert on == {"func:main"}


def test_what_another_controller_switches_on_meanwhile_stays_on(
    program: Target, session: markerjit.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = session.statistics

    def switched_on(*arguments: Any) -> Any:
        with markerjit.attach(program.pid) as other:
            other.on("truth_loop")
        return real(*arguments)

    monkeypatch.setattr(session, "statistics", switched_on)
    session.plot.rate("truth_loop", duration=0.1, every=0.05)

    assert modes_of(program.pid)["truth_loop"]


def test_of_a_process_that_ends_meanwhile_there_is_what_came_until_then(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = target("truth_threads", "2", "--rate", "1000", may_die=True)
    with markerjit.attach(program.pid) as session:
        real = session.statistics
        looks: list[object] = []

        def killed(*arguments: Any) -> Any:
            looks.append(arguments)
            if len(looks) == 3:
                program.process.kill()
                wait_until(lambda: session.is_gone, "the process to end")
            return real(*arguments)

        monkeypatch.setattr(session, "statistics", killed)
        axes = session.plot.rate("truth_loop", duration=60, every=0.05)

    (line,) = axes.get_lines()
    assert len(line.get_xdata()) == 2
    assert hits_in(axes, "truth_loop") > 0


def test_rate_has_a_line_for_each_marker(session: markerjit.Session) -> None:
    axes = session.plot.rate("truth_*", duration=0.2, every=0.05)

    names = {marker.name for marker in session.status("truth_*")}
    assert {line.get_label() for line in axes.get_lines()} == names
    assert axes.get_title() == f"truth_* of process {session.pid}"


def test_histogram_has_all_events_in_its_bars(session: markerjit.Session) -> None:
    axes = session.plot.histogram("truth_loop", "i", duration=0.3)

    events = int(axes.get_title().split(", ")[1].removesuffix(" events").replace(",", ""))
    assert sum(bar.get_height() for bar in axes.patches) == events > 0


def test_timeline_has_a_row_for_each_thread(session: markerjit.Session) -> None:
    from matplotlib import pyplot

    _, given = pyplot.subplots()

    axes = session.plot.timeline("truth_loop", duration=0.3, limit=500, axes=given)

    assert axes is given
    (line,) = axes.get_lines()
    assert 0 < len(line.get_xdata()) <= 500
    assert len(axes.get_yticks()) == 2


def test_wrong_arguments_are_refused_and_nothing_is_on(
    program: Target, session: markerjit.Session
) -> None:
    for draw in (
        lambda: session.plot.rate(3),  # type: ignore[arg-type]
        lambda: session.plot.rate(every=-1),
        lambda: session.plot.rate(axes="left"),
        lambda: session.plot.histogram("truth_loop", None),  # type: ignore[arg-type]
        lambda: session.plot.timeline(limit=0),
    ):
        with pytest.raises(markerjit.BadArgument):
            draw()
    with pytest.raises(markerjit.BadQuestion):
        session.plot.histogram("truth_loop", "nothing", duration=0.1)

    assert set(modes_of(program.pid).values()) == {None}


def test_without_matplotlib_a_sentence_says_how_to_get_it(
    session: markerjit.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(markerjit.Unsupported, match=r"a picture needs matplotlib: .*install"):
        session.plot.rate()


@pytest.fixture(scope="module")
def outputs(build: object) -> dict[str, Output]:
    pytest.importorskip("matplotlib", reason="needs matplotlib (pip install matplotlib)")
    pytest.importorskip("pandas", reason="needs pandas (pip install pandas)")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPLBACKEND", "agg")
        return run(NOTEBOOK, sys.executable)


@pytest.mark.slow
def test_notebook_of_the_tutorial_runs_and_shows_what_it_says(outputs: dict[str, Output]) -> None:
    assert outputs["status"].html.count("<tr>") >= 7
    assert "05 -&gt; 00" in outputs["plan"].html
    assert "'kv_hit': True" in outputs["rates"].text
    assert outputs["stored"].text == "True"
    assert outputs["described"].text == "(['kv_store'], True, True)"
    assert set(eval(outputs["end"].text, {}).values()) == {None}


def test_notebook_of_the_tutorial_is_kept_without_outputs() -> None:
    text = NOTEBOOK.read_text()

    assert text == stripped(text), f"python -m tests.support.notebooks {NOTEBOOK}"
    names = [cell["id"] for cell in json.loads(text)["cells"]]
    assert len(names) == len(set(names)) and cells_of(NOTEBOOK, "code")

"""Experiment i: its story and its answer are those of the figures that the bench gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from markerjit.cli import lab as command
from markerjit.cli.chart import LEGEND, chart_lines
from markerjit.cli.main import run as run_command
from markerjit.errors import MarkerError
from markerjit.lab import Chart, Run, cost
from markerjit.lab.experiment import Bar, Tell
from markerjit.lab.processes import ALIVE

NOISY = "no verdict, the machine is too noisy: a call does not show"


def result(
    marker: tuple[float, float, float],
    call: tuple[float, float, float],
    *,
    differs: bool = True,
    noisy: str = "",
) -> dict[str, Any]:
    def form(name: str, estimate: tuple[float, float, float], differs: bool) -> dict[str, Any]:
        return dict(zip(("name", "value", "low", "high"), (name, *estimate), strict=True)) | {
            "differs": differs
        }

    return {
        "layouts": 8, "rounds": 70, "executions": 1000, "level": {"value": 1.5}, "floor": 0.02,
        "noisy": noisy,
        "forms": [form("no marker, again", (0, -0.01, 0.01), False), form("jump", marker, differs),
                  form("5-byte no-op", (0.1, 0.05, 0.15), True), form("call", call, True)],
    }  # fmt: skip


CALL = (1.2, 1.1, 1.3)
STORIES = {
    "nothing: holds zero": (
        result((0.1, -0.1, 0.3), CALL, differs=False), 0, "its interval holds zero. That is not"
    ),
    "nothing: within the noise": (
        result((0.01, 0.005, 0.015), CALL, differs=False), 0, "not above the noise, 0.02 ns."
    ),
    "nothing: it is faster": (result((-0.2, -0.3, -0.1), CALL), 0, "it took 0.20 ns less."),
    "less": (
        result((0.3, 0.2, 0.4), CALL), 1,
        "added 0.30 ns and the call 1.20 ns. The whole interval of the marker is below",
    ),
    "more": (
        result((2.3, 2.2, 2.4), CALL), 2,
        "added 2.30 ns and the call 1.20 ns. The whole interval of the marker is above",
    ),
    "they overlap": (result((1.0, 0.8, 1.2), CALL), None, "too close to tell"),
    "nearer than the noise": (result((1.0, 0.9, 1.09), CALL), None, "too close to tell"),
    "noisy": (result((0.3, 0.2, 0.4), CALL, noisy=NOISY), None, f"The bench gives {NOISY}."),
}  # fmt: skip


@pytest.mark.parametrize(("measured", "answer", "says"), STORIES.values(), ids=STORIES)
def test_the_answer_and_the_story_are_those_of_the_intervals(
    measured: dict[str, Any], answer: int | None, says: str
) -> None:
    run = cost.run_of(measured)

    assert cost.happened((run,)) == answer
    assert says in run.story
    assert (run.ending, run.faults, run.tries) == (ALIVE, 0, 70)
    assert run.chart is not None
    assert [bar.name for bar in run.chart.bars] == list(cost.SHOWN.values())


def shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], made: Run, *more: str
) -> str:
    def conduct(_: Tell) -> Iterator[Run]:
        yield made

    experiment = cost.EXPERIMENT._replace(conduct=conduct)
    monkeypatch.setattr(command, "EXPERIMENTS", {"i": experiment})
    assert run_command(["lab", "run", "i", *more]) == 0
    return capsys.readouterr().out


def test_runs_that_cannot_tell_confirm_no_prediction(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command.sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(command.sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: "1")

    text = shown(monkeypatch, capsys, cost.run_of(STORIES["noisy"][0]))

    assert "this cannot be told from these runs" in text
    assert "prediction was right" not in text and "predicted otherwise" not in text


def test_an_answer_that_there_is_not_is_null(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(monkeypatch, capsys, cost.run_of(STORIES["they overlap"][0]), "--json")

    assert '"answer": null' in text
    assert '"bars": [{"name": "no marker, again", "value": 0, "low": -0.01' in text


# ---- the picture ---------------------------------------------------------------------------------


def chart(*bars: tuple[str, float, float, float]) -> Chart:
    return Chart("ns more", tuple(Bar(*bar, True) for bar in bars), 0.02, "")


def test_bars_stand_on_one_scale_with_their_intervals() -> None:
    made = chart(("marker", 1.0, 0.5, 1.5), ("call", 3.0, 2.0, 4.0), ("less", -1.0, -1.0, 0.0))

    assert list(chart_lines(made, 56)) == [
        "ns more",
        "marker       |==--o--               +1.00 [+0.50, +1.50]",
        "call         |=========-----o-----  +3.00 [+2.00, +4.00]",
        "less    o----|                      -1.00 [-1.00, +0.00]",
        LEGEND,
    ]


@pytest.mark.parametrize("width", [1, 40, 60, 78])
@pytest.mark.parametrize("value", [0.0, 1e-9, 12345.0])
def test_bars_have_the_columns_that_there_are(width: int, value: float) -> None:
    _, *lines, _ = chart_lines(chart(("a", value, -value, 2 * value), ("longer", 0, 0, 0)), width)

    cells = [line[len("longer  ") :].rsplit("  ", 1)[0] for line in lines]
    assert len(set(map(len, cells))) == 1
    assert [each.count("o") for each in cells] == [1, 1]
    if width >= 60:
        assert max(map(len, lines)) <= width


# ---- the bench -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import sys; sys.exit('no loops here')", "without a result: no loops here"),
        ("print('progress 7'); raise ValueError('of ours')", "ValueError: of ours"),
        ("", "without a result: $"),
    ],
)
def test_a_bench_that_fails_says_why(
    program: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "BENCH", program)

    with pytest.raises(MarkerError, match=why):
        cost.measured(lambda *_: None)


def test_progress_is_told_until_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[tuple[str, int, int]] = []
    lines = "'progress 0', 'a remark', 'progress 60', 'result {\"rounds\": 3}', 'progress 99'"
    monkeypatch.setattr(cost, "BENCH", f"print({lines}, sep=chr(10))")

    assert cost.measured(lambda *each: reports.append(each)) == {"rounds": 3}
    assert reports == [(cost.NAME, 0, 100), (cost.NAME, 60, 100)]


def test_the_bench_ends_when_the_lab_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would go on for ever; what ends it is waited for."""
    started: list[Any] = []
    ended: list[int] = []
    popen, end = cost.subprocess.Popen, cost.end

    def noted(process: Any) -> None:
        end(process)
        ended.append(process.returncode)

    def tell(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cost, "BENCH", "print('progress 1', flush=True)\nwhile True: pass")
    monkeypatch.setattr(
        cost.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1]
    )
    monkeypatch.setattr(cost, "end", noted)

    with pytest.raises(KeyboardInterrupt):
        cost.measured(tell)

    assert len(started) == 1
    assert ended == [-9]

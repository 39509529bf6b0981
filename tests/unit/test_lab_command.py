"""`markerjit lab`: what it says of made-up runs. tests/live/test_lab.py has real ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from markerjit.cli import lab
from markerjit.cli.main import run
from markerjit.lab.experiment import Experiment, Picture, Run, Tell, first_or_second

DIED = Run("raw", "care", 7, {"torn": 1}, 1, "SIGILL", (Picture("at", 16, b"\x90"),), "It died.")
WENT_WELL = DIED._replace(faults=0, counts={"torn": 0}, ending="alive", story="It lived.")
SAFE = WENT_WELL._replace(name="with care", lacks="")


def made_up(*runs: Run) -> Experiment:
    def conduct(_: Tell) -> Iterator[Run]:
        yield from runs

    return Experiment(
        "z", "a title", "What?", ("it dies", "it lives"), conduct, first_or_second,
        "It must not be relied on.", ("Because.",), ("a manual",),
    )  # fmt: skip


def shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *runs: Run
) -> tuple[int, str]:
    monkeypatch.setattr(lab, "EXPERIMENTS", {"z": made_up(*runs)})
    code = run(["lab", "run", "z"])
    return code, capsys.readouterr().out


def test_a_fault_that_did_not_show_up_is_said_to_be_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = shown(monkeypatch, capsys, WENT_WELL, SAFE)

    assert code == 0
    assert "did not show up in 7 tries. It must not be relied on." in text
    assert "What came true: 2. it lives." in text


def test_a_fault_that_showed_up_is_not_forgiven(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = shown(monkeypatch, capsys, DIED, SAFE)

    assert code == 0
    assert "did not show up" not in text
    assert "What came true: 1. it dies." in text


def test_a_safe_run_that_goes_wrong_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = shown(monkeypatch, capsys, DIED, SAFE._replace(ending="SIGSEGV"))

    assert code == 1


def test_bytes_that_are_no_instruction_are_shown_as_such() -> None:
    assert Picture("half", 16, b"\x90\xe9").assembly == ["nop", "no instruction"]


@pytest.mark.parametrize(("answer", "verdict"), [("1", "was right"), ("x\n2", "otherwise")])
def test_a_prediction_is_compared_with_what_came_true(
    answer: str,
    verdict: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = iter(answer.splitlines())
    monkeypatch.setattr(lab.sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(lab.sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: next(answers))

    _, text = shown(monkeypatch, capsys, DIED, SAFE)

    assert verdict in text


@pytest.mark.parametrize("no_color", ["", "1"])
def test_only_a_terminal_that_wants_colour_gets_it(
    no_color: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    _, in_a_pipe = shown(monkeypatch, capsys, DIED, SAFE)
    monkeypatch.setattr(lab.sys.stdout, "isatty", lambda: True)

    _, on_a_terminal = shown(monkeypatch, capsys, DIED, SAFE)

    assert "\x1b" not in in_a_pipe
    assert ("\x1b[31m[dangerous] raw\x1b[0m" in on_a_terminal) is not bool(no_color)

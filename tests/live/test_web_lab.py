"""`markerjit lab --web` over HTTP: what is run, what browsers share, and how it ends."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

from tests.support.commands import cli, facts, one_line
from tests.support.pages import Served, States, served
from tests.support.timing import wait_until

pytest.importorskip("starlette", reason="the extra web is not installed")
pytest.importorskip("uvicorn", reason="the extra web is not installed")


def experiment(state: dict, letter: str) -> dict:
    return next(each for each in state["experiments"] if each["letter"] == letter)


def begin(page: Served, letter: str) -> bool:
    answer = page.act({"do": "run", "letter": letter})
    assert answer.status == 200
    return json.loads(answer.text)["started"]


def outcome(states: States, number: int = 1) -> dict:
    return states.until(lambda state: state["last"]["number"] == number)


def test_the_page_has_the_experiments_of_list() -> None:
    with served("lab") as page, page.states() as states:
        state = states.next()

        assert state["experiments"] == facts("lab", "list")["experiments"]
        assert page.end(signal.SIGTERM) == (143, "")


def test_an_experiment_is_run_for_all_browsers_and_has_the_facts_of_run() -> None:
    with served("lab") as page, page.states() as first, page.states() as other:
        assert begin(page, "d")
        for states in (first, other):
            state = outcome(states)
            shown = experiment(state, "d")
            assert shown["answer"] == 0
            assert shown["safe_ways_hold"]
            assert state["running"] == ""
        (printed,) = facts("lab", "run", "d")["experiments"]

        def keys(run: dict) -> set[str]:
            return set(run)

        assert keys(shown) == keys(printed)
        assert [run["name"] for run in shown["runs"]] == [run["name"] for run in printed["runs"]]
        assert page.end(signal.SIGINT) == (130, "")


def test_an_experiment_can_run_again_after_another() -> None:
    with served("lab") as page, page.states() as states:
        for number, letter in enumerate("dfd", 1):
            assert begin(page, letter)
            state = outcome(states, number)
            assert state["last"]["letter"] == letter
        assert experiment(state, "f")["runs"]
        assert "runs" not in experiment(state, "a")


def test_the_source_is_that_of_the_command() -> None:
    with served("lab") as page:
        answer = page.act({"do": "source", "letter": "a"})

    assert json.loads(answer.text)["source"].splitlines() == (
        cli("lab", "source", "a").stdout.splitlines()
    )


@pytest.mark.parametrize(
    "command", [{}, {"do": "run"}, {"do": "run", "letter": "?"}, {"do": "end", "letter": "a"}]
)
def test_what_is_no_command_is_not_obeyed(lab: Served, command: object) -> None:
    assert lab.act(command).status == 400


@pytest.fixture(scope="module")
def lab() -> Iterator[Served]:
    with served("lab") as page:
        yield page


def began(states: States) -> None:
    """Wait until an experiment runs, or has run."""
    states.until(lambda state: state["running"] or state["last"]["number"])


def test_the_end_ends_the_experiment_and_its_child() -> None:
    with served("lab") as page, page.states() as states:
        assert begin(page, "a")
        began(states)
        children = children_of(page)
        assert page.end(signal.SIGINT) == (130, "")
        assert states.until(lambda state: state["ended"])["ended"] == "markerjit lab has ended"
        wait_until(lambda: not any(map(is_alive, children)), "the end of the child")


@pytest.mark.parametrize("arguments", [(), ("list", "--web"), ("run", "a", "--web")])
def test_an_action_or_the_page_and_not_both(arguments: tuple[str, ...]) -> None:
    one_line(cli("lab", *arguments), "name an action .list, run or source., or --web")


def test_nothing_is_left_when_the_page_is_killed() -> None:
    with served("lab") as page, page.states() as states:
        assert begin(page, "a")
        began(states)
        children = children_of(page)
        page.process.kill()
        page.process.wait()
        wait_until(lambda: not any(map(is_alive, children)), "the end of the child")


def children_of(page: Served) -> list[psutil.Process]:
    return psutil.Process(page.process.pid).children()


def is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False

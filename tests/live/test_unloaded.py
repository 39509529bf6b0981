"""Aggregates of markers in a library that is unloaded, and loaded again, while they add up."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import markerjit
from tests.support.commands import cli, running
from tests.support.markers import wait_until_on
from tests.support.programs import Target


@pytest.fixture
def program(target: Callable[..., Target], build: Path) -> Target:
    program = target("truth_dlopen")
    load(program, build)
    return program


def load(program: Target, build: Path) -> None:
    assert program.command(f"load {build}/truth_plugin.so").endswith("ok=1")


def unload(program: Target) -> None:
    assert program.command("unload").endswith("ok=1")


@pytest.mark.parametrize("is_loaded_again", [False, True], ids=["unloaded", "loaded again"])
def test_what_was_unloaded_is_named_and_what_came_before_is_there(
    program: Target, build: Path, is_loaded_again: bool
) -> None:
    with markerjit.attach(program.pid) as session:
        with session.aggregate("truth_*") as adding:
            program.ask("call 5")
            unload(program)
            if is_loaded_again:
                load(program, build)
                program.ask("call 3")

        assert adding.gone == ("truth_plugin",)
        assert adding.read().events == 5 + 5 + 3 * is_loaded_again  # the host's are all there


def test_what_stays_is_not_gone(program: Target) -> None:
    with markerjit.attach(program.pid) as session, session.aggregate("truth_*") as adding:
        program.ask("call 5")

    assert adding.gone == ()
    assert adding.read().events == 10


def test_the_command_says_so(program: Target, build: Path) -> None:
    with running("count", program.pid, "truth_plugin") as process:
        try:
            wait_until_on(program.pid, lambda: "added up" in cli("status", program.pid).stdout)
            program.ask("call 5")
            unload(program)
            load(program, build)
            program.ask("call 3")
        finally:
            process.send_signal(signal.SIGTERM)
        printed, errors = process.communicate()

    assert printed == "5 events\n"
    assert errors == (
        f"markerjit: truth_plugin of process {program.pid} was unloaded, or switched off by "
        "others, and what came later is not here\n"
    )
    assert process.returncode == 0

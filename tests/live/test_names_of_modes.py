"""Modes and strategies are given by name, and a wrong name is answered with those there are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import markerjit
from markerjit import Mode


def test_a_mode_is_given_by_its_name_or_itself(target: Callable) -> None:
    program = target("truth_modes-jump")

    with markerjit.attach(program.pid) as session:
        for mode in ("int3", Mode.JUMP, "jump", Mode.INT3):
            assert session.plan("truth_mode", mode=mode).edits
            session.enable("truth_mode", mode=mode)
            (marker,) = session.statistics("truth_mode")
            assert marker.mode is Mode(mode)
            session.disable("truth_mode", quiesce="stop")
        with session.trace("truth_mode", mode="int3") as stream:
            program.command("run 3")
        assert len(stream.drain()) == 3
        session.record("truth_mode", mode="int3")
        assert session.statistics("truth_mode")[0].mode is Mode.INT3
        session.disable("*")


WRONG = ["", "INT3", "Mode.INT3", "direct", 6, ["int3"], b"int3", True]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("argument", ["mode", "quiesce"])
def test_any_other_value_is_answered_with_the_names(
    target: Callable, argument: str, wrong: object
) -> None:
    program = target("truth_modes-jump")
    names = {"mode": "jump, nop, pointer.*int3", "quiesce": "stop, membarrier, signals, none"}

    with markerjit.attach(program.pid) as session:
        actions = [session.plan, session.enable, session.record, enter_trace(session)]
        if argument == "quiesce":
            actions.append(session.disable)
        for action in actions:
            with pytest.raises(
                markerjit.BadArgument,
                match=f"^{argument} is .*; it must be one of {names[argument]}",
            ):
                action("truth_mode", **{argument: wrong})
        assert not session.has_runtime


def enter_trace(session: markerjit.Session) -> Callable:
    return lambda pattern, **how: session.trace(pattern, **how).__enter__()

"""The collector of reference cycles rests while a command has values of very many sites."""

from __future__ import annotations

import gc
import weakref

import pytest

from markerjit.cli import off, on
from markerjit.cli.parser import command_parser
from markerjit.uncollected import uncollected


class Value:
    """Something that can be watched."""


def test_values_of_a_function_have_gone_when_the_collector_works_again() -> None:
    collecting: list[bool] = []

    @uncollected()
    def work() -> None:
        value = Value()
        weakref.finalize(value, lambda: collecting.append(gc.isenabled()))
        assert not gc.isenabled()

    work()

    assert collecting == [False]
    assert gc.isenabled()


@pytest.mark.parametrize("command", [on, off])
def test_commands_that_switch_are_such_functions(
    command: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    enabled: list[bool] = []

    def chosen(_: object) -> None:
        enabled.append(gc.isenabled())
        raise KeyboardInterrupt

    monkeypatch.setattr("markerjit.cli.targets.chosen", chosen)
    name = command.__name__.rpartition(".")[2]  # type: ignore[attr-defined]
    options = command_parser(name, "1", "kv_*").parse_args(["1", "kv_*"])
    options.command = name  # as the parser of all commands has it

    with pytest.raises(KeyboardInterrupt):
        command.run(options)  # type: ignore[attr-defined]

    assert enabled == [False]
    assert gc.isenabled()

"""The collector of reference cycles rests while a command has values of very many sites."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

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


@pytest.fixture
def _nothing_frozen() -> Iterator[None]:
    """The tests' own process has frozen all that was imported."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("_nothing_frozen")
def test_very_many_values_count_as_old_ones_and_few_do_not() -> None:
    gc.collect()
    with uncollected():
        few = [[number] for number in range(1 << 8)]
    of_few = gc.get_count()[0]

    with uncollected():
        many = [[number] for number in range(1 << 16)]
    of_many = gc.get_count()[0]

    assert of_few >= len(few)
    assert of_many < len(few)
    assert sum(each is many for each in gc.get_objects(generation=2)) == 1


@pytest.mark.usefixtures("_nothing_frozen")
def test_what_a_program_has_frozen_stays_so() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()

    with uncollected():
        many = [[number] for number in range(1 << 16)]
    left = gc.get_freeze_count()

    assert many
    assert frozen
    assert left >= frozen * 0.9  # some of them have gone meanwhile


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

"""Selections that are computed in the process: what is recorded in place of the fields."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import markerjit
from markerjit.ring.to_events import events
from tests.support.commands import cli

pytestmark = pytest.mark.live

TURN = "func:truth_functions:turn"
SELECT = "i=arg0, text=str(arg1)[:2], half=float(arg0)/2, odd=arg0%2==1, gone=u32(arg0)"


@pytest.mark.parametrize("time", ["tsc", "monotonic"])
def test_a_trace_has_what_is_selected(target: Callable, time: str) -> None:
    """By a recorder of its own, and by the runtime."""
    program = target("truth_functions")
    with markerjit.attach(program.pid) as session:
        with session.trace(TURN, where="arg0 < 4", select=SELECT, time=time) as stream:
            (marker,) = [each for each in session.statistics(TURN) if each.mode]
            program.ask("run 100")
        seen = [event.fields for event in stream.drain()]
        (type_,) = stream.types.values()

    assert seen == [
        {"i": i, "text": "od" if i % 2 else "ev", "half": i / 2, "odd": bool(i % 2), "gone": 0}
        for i in range(4)
    ]
    assert (marker.where, marker.select) == ("arg0 < 4", SELECT)
    assert type_.format == "i=%lu text=%.2s half=%g odd=%d gone=%u"


def test_markers_and_their_numbers_are_selected(target: Callable) -> None:
    program = target("truth_modes-jump")
    with markerjit.attach(program.pid) as session:
        with session.trace("truth_mode", select="i, double=i*2, cpu, time") as stream:
            program.ask("run 50")
        seen = [event.fields for event in stream.drain()]

    assert [(each["i"], each["double"]) for each in seen] == [(i, 2 * i) for i in range(50)]
    assert all(each["time"] > 0 and each["cpu"] >= 0 for each in seen)


def test_the_next_reader_knows_the_types_of_a_selection(target: Callable) -> None:
    """A flight recorder's picture is taken by another session."""
    program = target("truth_modes-jump")
    with markerjit.attach(program.pid) as session:
        session.record("truth_mode", select="third=i/3", where="i % 3 == 0")
    program.ask("run 30")
    with markerjit.attach(program.pid) as session:
        picture = session.flight().picture()
        values = [event.fields for event in events(picture.batch.columns, picture.clock)]
        session.off("*")

    assert values == [{"third": i} for i in range(10)]


@pytest.mark.parametrize("marker", ["texts_string", "texts_bounded", "texts_raw", "texts_four"])
@pytest.mark.parametrize("most", [None, 3])
def test_texts_are_selected_by_their_beginnings(
    target: Callable, marker: str, most: int | None
) -> None:
    """As a trace of the fields has them, whatever memory they are in."""
    program = target("truth_texts")
    select = "at, s" if most is None else f"at, s[:{most}]"
    with markerjit.attach(program.pid) as session:
        with session.trace(marker) as stream:
            program.ask("pass 5")
        whole = [event.fields["s"] for event in stream.drain()]
        with session.trace(marker, select=select) as stream:
            program.ask("pass 5")
        parts = [(event.fields["at"], event.fields["s"]) for event in stream.drain()]

    assert parts == [
        (at, text if text in (None, "<unreadable>") else text[:most])  # type: ignore[index]
        for at, text in enumerate(whole)
    ]


def test_commands_select(target: Callable, tmp_path: Path) -> None:
    program = target("truth_functions")
    path = tmp_path / "a.jsonl"

    traced = cli(
        "trace", str(program.pid), TURN, "--select", "i=arg0, text=str(arg1)", "-n", "1", "-d",
        "0.2", "-o", str(path),
    )  # fmt: skip
    wrong = cli("trace", str(program.pid), TURN, "--select", "arg0/2")
    both = cli("trace", str(program.pid), TURN, "--select", "arg0", "--fields", "arg0")

    assert traced.returncode == 0
    assert json.loads(path.read_text().splitlines()[0])
    assert "this has no name" in wrong.stderr
    assert "leave out --fields" in both.stderr


@pytest.mark.parametrize(
    ("select", "error", "words"),
    [
        ("x=y", markerjit.BadQuestion, "there is no name y"),
        ("", markerjit.BadQuestion, "an expression is empty"),
        ("i[2:]", markerjit.BadQuestion, "only texts have parts"),
        (3, markerjit.BadArgument, "select is 3"),
    ],
)
def test_wrong_selections_are_refused_before_anything_is_written(
    target: Callable, select: object, error: type[Exception], words: str
) -> None:
    program = target("truth_modes-jump")
    with markerjit.attach(program.pid) as session:
        with pytest.raises(error, match=words):
            session.record("truth_mode", select=select)  # type: ignore[arg-type]
        assert session.arena() is None

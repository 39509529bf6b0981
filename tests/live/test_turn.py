"""The right to change a process: whoever has it, has it alone, and not for longer than it lasts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import markerjit
from markerjit.errors import (
    ChangeFailed,
    MemoryFault,
    NotRolledBack,
    Refused,
    TargetGone,
)
from markerjit.session.entries import Entries
from markerjit.session.turn import Turns

pytestmark = pytest.mark.live


def test_a_turn_that_is_over_changes_nothing(target: Callable) -> None:
    program = target("truth_threads", "1")
    with markerjit.attach(program.pid) as session:
        session.enable("*")
        switcher = session._switcher
        with switcher.turn() as turn:
            pass

        for change in (
            lambda: switcher.switch(turn, session.sites(), switcher.planner.off()),
            lambda: switcher.switch_off_for_the_gone(turn),
            lambda: Entries(turn, switcher.recorders).note_counts(),
            turn.caller,
            turn.native_target,
        ):
            with pytest.raises(RuntimeError, match="used after its end"):
                change()
        assert all(marker.mode for marker in session.statistics())


def test_a_turn_ends_with_what_fails_in_it(target: Callable) -> None:
    program = target("truth_threads", "1")
    with markerjit.attach(program.pid) as session:
        with pytest.raises(ZeroDivisionError), session._switcher.turn() as turn:
            assert 1 / 0

        with pytest.raises(RuntimeError, match="used after its end"):
            turn.check()
        with session._switcher.turn():
            assert session._target.memory.is_locked()
        assert not session._target.memory.is_locked()


def test_a_turn_begins_with_a_new_look(target: Callable) -> None:
    program = target("truth_threads", "1")
    with markerjit.attach(program.pid) as session, markerjit.attach(program.pid) as other:
        other.enable("*")
        assert session._target.seen.arena is None

        with session._switcher.turn() as turn:
            assert turn.seen.arena is not None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryFault(1, 2, "read", "gone"), Refused),
        (Refused("no marker there"), Refused),
        (NotRolledBack(7, 1, "why"), NotRolledBack),
        (ChangeFailed("no", 3), ChangeFailed),
        (markerjit.NoSuchProcess(7), TargetGone),
    ],
)
def test_what_fails_while_an_object_comes_says_so(
    target: Callable, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type
) -> None:
    """But what has become of the process is said as it is."""
    program = target("truth_threads", "1")
    with markerjit.View(program.pid) as view:
        turns = Turns(view._target)
        monkeypatch.setattr(view._target, "files_changed", lambda: True)

        with pytest.raises(kind) as raised, turns.take():
            raise error

    assert getattr(raised.value, "try_again", False) == (kind is Refused)
    assert kind is Refused or kind is TargetGone or raised.value is error


def test_what_fails_otherwise_is_said_as_it_is(target: Callable) -> None:
    program = target("truth_threads", "1")
    with markerjit.View(program.pid) as view:
        fault = MemoryFault(1, 2, "read", "gone")

        with pytest.raises(MemoryFault) as raised, Turns(view._target).take():
            raise fault

    assert raised.value is fault


def test_what_is_seen_once_stays_as_it_was(target: Callable) -> None:
    program = target("truth_threads", "1")
    with markerjit.View(program.pid) as view, markerjit.attach(program.pid) as session:
        before = view._target.seen

        session.enable("*")
        after = view._target.look()

    assert before.arena is None
    assert after.arena is not None
    assert after.objects is before.objects

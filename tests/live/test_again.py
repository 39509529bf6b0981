"""Switches that are made again in an open session: from what was prepared, and never wrongly.

`kept` counts those that were, by the session's own memory of them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import markerjit
from markerjit import Mode
from markerjit.x86.templates import TEMPLATES


def head(session: markerjit.Session) -> bytes:
    (site,) = session.sites("truth_loop")
    return session.read(site.address, len(TEMPLATES[site.kind].dormant))


DORMANT = TEMPLATES[markerjit.Kind.JUMP].dormant
JUMP = TEMPLATES[markerjit.Kind.JUMP].active[Mode.JUMP]
INT3 = TEMPLATES[markerjit.Kind.JUMP].active[Mode.INT3]


@pytest.mark.parametrize("quiesce", ["stop", "membarrier", "none"])
def test_switching_again_and_again_does_the_same_each_time(target: Callable, quiesce: str) -> None:
    program = target("truth_threads", "2", "--rate", "1000")

    with markerjit.attach(program.pid) as session:
        for _ in range(10):
            session.enable("truth_loop", quiesce=quiesce)
            assert head(session) == JUMP
            before = session.statistics("truth_loop")[0].hits
            program.ask("counts")
            session.disable("truth_loop", quiesce=quiesce)
            assert head(session) == DORMANT
            assert session.statistics("truth_loop")[0].hits >= before
        assert session._prepared  # else this has tested something else


@pytest.mark.parametrize("quiesce", ["stop", "membarrier"])
def test_a_breakpoint_in_between_is_noticed(target: Callable, quiesce: str) -> None:
    program = target("truth_threads", "2", "--rate", "1000")

    with markerjit.attach(program.pid) as session:
        session.enable("truth_loop", mode=Mode.JUMP)
        session.disable("truth_loop", quiesce="none")
        session.enable("truth_loop", mode=Mode.JUMP, quiesce=quiesce)
        session.enable("truth_loop", mode=Mode.INT3, quiesce=quiesce)
        assert head(session) == INT3

        session.enable("truth_loop", mode=Mode.JUMP, quiesce=quiesce)
        assert head(session) == JUMP

        session.disable("truth_loop", quiesce=quiesce)
        assert head(session) == DORMANT


def test_another_session_in_between_is_noticed(target: Callable) -> None:
    program = target("truth_threads", "2", "--rate", "1000")

    with markerjit.attach(program.pid) as session, markerjit.attach(program.pid) as other:
        for _ in range(2):
            session.enable("truth_loop")
            session.disable("truth_loop")
        other.enable("truth_loop", mode=Mode.INT3)

        session.disable("truth_loop")

        assert head(session) == DORMANT
        assert session.enable("truth_loop", mode=Mode.JUMP).written != 0
        assert other.enable("truth_loop", mode=Mode.JUMP).written == 0

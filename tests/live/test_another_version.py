"""A process that another version of markerjit was in: it is looked at, and not switched."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

import markerjit
from markerjit.abi import VERSION
from tests.support.commands import cli, one_line
from tests.support.programs import Target
from tests.support.shortage import open_descriptors

pytestmark = pytest.mark.live

OTHER = VERSION + 1
SENTENCE = f"the target holds an arena of version {OTHER}"
WAY_ROUND = "use the markerjit that made it, or restart the target"


@pytest.fixture
def program(target: Callable) -> Iterator[Target]:
    """One marker is on, put on by the other version."""
    program = target("truth_threads", "2", "--rate", "1000")
    with markerjit.attach(program.pid) as session:
        session.enable("truth_loop")
        assert session._target.seen.arena is not None
        session._target.seen.arena.write_control("version", OTHER)
        yield program
        session._target.seen.arena.write_control("version", VERSION)
        session.disable("truth_loop")


def test_its_markers_are_listed_and_it_is_said_whose_the_runtime_is(program: Target) -> None:
    for command in ("list", "status"):
        done = cli(command, program.pid)

        assert done.returncode == 0
        assert "truth_loop" in done.stdout
        assert "on (jump, another version's)" in done.stdout
        assert re.fullmatch(f"markerjit: {SENTENCE}.*{WAY_ROUND}\n", done.stderr)


def test_the_doctor_goes_on_to_its_end(program: Target) -> None:
    done = cli("doctor", program.pid)

    assert done.returncode == 1
    assert re.search(rf"runtime\b.*{SENTENCE}", done.stdout)
    assert "mode int3" in done.stdout


@pytest.mark.parametrize("command", [
    ("on",), ("off",), ("repair",), ("record", "--flight"), ("dump", "-o", "never.txt"),
])  # fmt: skip
def test_it_is_not_switched(program: Target, command: tuple[str, ...]) -> None:
    name, *rest = command
    pattern = () if name in ("repair", "dump") else ("truth_loop",)

    one_line(cli(name, program.pid, *pattern, *rest), SENTENCE)


def test_a_session_refuses_to_switch_and_leaves_nothing_open(program: Target) -> None:
    before = open_descriptors()
    with markerjit.attach(program.pid) as session:
        assert session.has_runtime
        assert SENTENCE in str(session.runtime_problem)
        assert session.arena() is None
        assert session.probe_values() == []
        for switch in (
            session.enable, session.disable, session.plan, session.record,
            lambda pattern: session.flight(), lambda pattern: session.trace(pattern).__enter__(),
        ):  # fmt: skip
            with pytest.raises(markerjit.Unsupported, match=SENTENCE):
                switch("truth_loop")
    assert open_descriptors() == before

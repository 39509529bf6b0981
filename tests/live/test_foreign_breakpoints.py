"""A breakpoint of another tool (gdb, a uprobe) at a marker's site. It is the same byte as ours.

It is told apart, shown, and never written over, whatever stood there before it came.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

import markerjit
from markerjit import Mode
from tests.support.commands import ENVIRONMENT, cli, facts, one_line
from tests.support.markers import modes_of
from tests.support.processes import text_of

INT3 = b"\xcc"
FOREIGN = "holds cc: a breakpoint of another tool"
KINDS = ("jump", "nop", "symbol")


@contextmanager
def breakpoint_of_another_tool(pid: int, address: int) -> Iterator[None]:
    """As a debugger puts it: the first byte, and that byte back."""
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        before = memory.read(1)
        memory.seek(address)
        memory.write(INT3)
        yield
        memory.seek(address)
        assert memory.read(1) == INT3, "written over"
        memory.seek(address)
        memory.write(before)


def address_of(pid: int) -> int:
    with markerjit.View(pid) as view:
        (site,) = view.sites("truth_mode")
    return site.address


def never(pid: int) -> None:
    pass


def ours_was_there(pid: int) -> None:
    with markerjit.attach(pid) as session:
        session.enable("truth_mode", mode=Mode.INT3)
        session.disable("truth_mode")


def ours_was_there_and_its_probe_still_is(pid: int) -> None:
    with markerjit.attach(pid) as session:
        session.enable("truth_mode", mode=Mode.INT3)
        session.disable("truth_mode", quiesce="membarrier")


def on_without_one(pid: int) -> None:
    with markerjit.attach(pid) as session:
        session.enable("truth_mode")


def on_without_one_since_ours_was_there(pid: int) -> None:
    ours_was_there(pid)
    on_without_one(pid)


BEFORE = [never, ours_was_there, ours_was_there_and_its_probe_still_is]
CASES = [(kind, before) for kind in KINDS for before in BEFORE]
CASES += [
    (kind, before)
    for kind in ("jump", "nop")
    for before in (on_without_one, on_without_one_since_ours_was_there)
]


@pytest.mark.parametrize(("kind", "before"), CASES)
def test_a_breakpoint_of_another_tool_is_named_and_left_alone(
    target: Callable, kind: str, before: Callable[[int], None]
) -> None:
    program = target(f"truth_modes-{kind}")
    address = address_of(program.pid)
    before(program.pid)

    with breakpoint_of_another_tool(program.pid, address):
        text = text_of(program.pid)
        with markerjit.attach(program.pid) as session:
            for act in (
                session.enable,
                session.disable,
                partial(session.enable, mode=Mode.INT3),
                partial(session.enable, probe="record"),
                session.record,
            ):
                with pytest.raises(markerjit.UnexpectedBytes, match=FOREIGN) as refused:
                    act("truth_mode")
                assert (refused.value.address, refused.value.is_breakpoint) == (address, True)
        assert not markerjit.repair(program.pid).anything
        assert text_of(program.pid) == text

    with markerjit.attach(program.pid) as session:
        session.enable("truth_mode")
        evaluated = program.ask("run 5")["evaluated"]
        assert session.statistics("truth_mode")[0].hits == evaluated == 5
        session.disable("*")


@pytest.mark.parametrize("command", [["on"], ["off"], ["on", "--mode", "int3"], ["trace"]])
def test_commands_answer_a_breakpoint_of_another_tool_with_one_line(
    target: Callable, command: list[str]
) -> None:
    program = target("truth_modes-jump")
    address = address_of(program.pid)

    with breakpoint_of_another_tool(program.pid, address):
        done = cli(command[0], program.pid, "truth_mode", *command[1:])

    assert hex(address) in one_line(done, FOREIGN)


@pytest.mark.parametrize("kind", KINDS)
def test_a_site_with_a_breakpoint_of_another_tool_is_shown_as_altered(
    target: Callable, kind: str
) -> None:
    program = target(f"truth_modes-{kind}")
    address = address_of(program.pid)

    with breakpoint_of_another_tool(program.pid, address):
        shown = {name: cli(name, program.pid, "*") for name in ("list", "status", "explain")}
        known = {name: facts(name, program.pid, "*") for name in ("list", "status")}
        explained = json.loads(cli("explain", program.pid, "truth_mode", "--json").stdout)

    for name, done in shown.items():
        assert (done.returncode, done.stderr) == (0, ""), name
        assert f"altered: {address:#x}" in done.stdout, name
        assert FOREIGN in done.stdout, name
    for document in known.values():
        by_name = {marker["name"]: marker for marker in document["markers"]}
        (altered,), (other,) = (by_name[name]["sites"] for name in ("truth_mode", "truth_spin"))
        assert by_name["truth_mode"]["on"] is False
        assert altered["altered"]["found"].startswith("cc")
        assert FOREIGN in altered["altered"]["problem"]
        assert other["altered"] is None
    assert FOREIGN in explained["plan"]["refused"]
    assert explained["sites"][0]["altered"]["found"].startswith("cc")
    assert "1 of 2 markers are off" in shown["status"].stdout


@pytest.mark.parametrize("kind", KINDS)
def test_one_of_ours_is_ours(target: Callable, kind: str) -> None:
    program = target(f"truth_modes-{kind}")
    text = text_of(program.pid)

    for _ in range(2):
        for probe in ("count", "record"):
            with markerjit.attach(program.pid) as session:
                session.enable("truth_mode", mode=Mode.INT3, probe=probe)
            assert modes_of(program.pid)["truth_mode"] == "int3"
        with markerjit.attach(program.pid) as session:
            session.disable("truth_mode")
        assert text_of(program.pid) == text


def test_a_byte_that_another_tool_wrote_behind_ours_is_left_alone(target: Callable) -> None:
    program = target("truth_modes-jump")
    address = address_of(program.pid)
    text = text_of(program.pid)
    with markerjit.attach(program.pid) as session:
        session.enable("truth_mode", mode=Mode.INT3)

    with open(f"/proc/{program.pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(address + 1)
        ours = memory.read(1)
        memory.seek(address + 1)
        memory.write(INT3)
        before = text_of(program.pid)
        with markerjit.attach(program.pid) as session:
            for act in (session.enable, session.disable, partial(session.enable, mode=Mode.JUMP)):
                with pytest.raises(markerjit.UnexpectedBytes, match="holds cc cc ") as refused:
                    act("truth_mode")
                assert not refused.value.is_breakpoint
        assert not markerjit.repair(program.pid).anything
        assert text_of(program.pid) == before
        assert program.ask("run 5")["evaluated"] == 5  # the breakpoint leads to the body still
        memory.seek(address + 1)
        memory.write(ours)

    with markerjit.attach(program.pid) as session:
        assert session.statistics("truth_mode")[0].hits == 5
        session.disable("truth_mode")
    assert text_of(program.pid) == text


# ---- a controller that dies ----------------------------------------------------------------------

KILLED = """
    import os, signal, sys
    import markerjit
    from markerjit.arena.journal import Journal
    where, what = sys.argv[2:]
    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)
    noting = Journal.note_breakpoints
    def note_and_die(*arguments):
        noting(*arguments)
        die()
    with markerjit.attach(int(sys.argv[1])) as session:
        if what == "off":
            session.enable("truth_mode", mode=markerjit.Mode.INT3)
        Journal.note_breakpoints = {"before": die, "after": note_and_die}[where]
        if what == "off":
            session.disable("truth_mode")
        else:
            session.enable("truth_mode", mode=markerjit.Mode.INT3)
"""


@pytest.mark.product
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("what", ["on", "off"])
def test_whose_a_breakpoint_is_stays_known_when_a_controller_is_killed(
    target: Callable, kind: str, where: str, what: str
) -> None:
    program = target(f"truth_modes-{kind}")
    address = address_of(program.pid)
    text = text_of(program.pid)
    script = [sys.executable, "-c", textwrap.dedent(KILLED), str(program.pid), where, what]
    assert subprocess.run(script, env=ENVIRONMENT, check=False).returncode == -9

    expected = "int3" if what == "on" else None
    assert modes_of(program.pid)["truth_mode"] == expected
    assert markerjit.repair(program.pid).journal == "finished"
    assert modes_of(program.pid)["truth_mode"] == expected
    with markerjit.attach(program.pid) as session:
        session.disable("truth_mode")
        assert text_of(program.pid) == text

        with (
            breakpoint_of_another_tool(program.pid, address),
            pytest.raises(markerjit.UnexpectedBytes, match=FOREIGN),
        ):
            session.disable("truth_mode")


# ---- forks ---------------------------------------------------------------------------------------


def test_a_breakpoint_that_another_tool_puts_into_a_child_is_not_inherited(
    target: Callable,
) -> None:
    """The child shares the table of its parent, which had one of ours there."""
    program = target("truth_family")
    with markerjit.attach(program.pid) as session:
        session.enable("truth_family", mode=Mode.INT3)
        session.disable("truth_family")
        (site,) = session.sites("truth_family")
        child_pid = int(program.command("keep").split("=")[1])

        with (
            breakpoint_of_another_tool(child_pid, site.address),
            markerjit.attach(child_pid) as child,
        ):
            for act in (child.disable, child.enable):
                with pytest.raises(markerjit.UnexpectedBytes, match=FOREIGN):
                    act("truth_family")


def test_a_breakpoint_stays_ours_in_a_child_when_the_parent_takes_its_own_away(
    target: Callable,
) -> None:
    program = target("truth_family")
    text = text_of(program.pid)
    with markerjit.attach(program.pid) as session:
        session.enable("truth_family", mode=Mode.INT3)
        child_pid = int(program.command("keep").split("=")[1])
        session.disable("truth_family")

        with markerjit.attach(child_pid) as child:
            (inherited,) = child.statistics()
            child.enable("truth_family")
            (own,) = child.statistics()
            child.disable("truth_family")

    assert (inherited.mode, inherited.probe) == (Mode.INT3, "inherited")
    assert (own.mode, own.probe) == (Mode.INT3, "count")
    assert text_of(child_pid) == text

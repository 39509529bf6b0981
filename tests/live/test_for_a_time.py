"""`on --for`: markers that go off by themselves, also where everything of ours is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

import markerjit
from tests.support.commands import CLI, ENVIRONMENT, cli, facts, one_line
from tests.support.markers import modes_of
from tests.support.processes import is_gone
from tests.support.programs import Target
from tests.support.terminals import in_terminal
from tests.support.timing import wait_until

pytestmark = pytest.mark.also_user

LONG = "1h"


def on_for(program: Target, *words: str) -> int:
    """Switch a marker on for a time; the process that will switch it off."""
    done = cli("on", program.pid, *words)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return int(re.search(r"off again at \S*\d\d:\d\d:\d\d, by process (\d+)", done.stdout)[1])


def wait_off(program: Target, marker: str) -> None:
    wait_until(lambda: modes_of(program.pid)[marker] is None, f"{marker} to be off")


def make_overdue(pid: int) -> None:
    """As if the time of all markers with a deadline had passed two seconds ago."""
    past = time.monotonic_ns() - 2_000_000_000
    with markerjit.attach(pid) as session, session._switcher.turn(leave_overdue=True) as turn:
        arena = turn.seen.arena
        for entry in arena.markers.entries():
            if entry.until_ns:
                arena.markers.note_until(int(entry.id), past)
        arena.control.write("until_ns", past)


def test_it_goes_off_by_itself_and_what_others_switched_on_stays(target: Callable) -> None:
    program = target("truth_modes-jump")
    cli("on", program.pid, "truth_spin")

    child = on_for(program, "truth_mode", "--for", "300ms")

    wait_until(lambda: is_gone(child), "the process in the background to end")
    modes = modes_of(program.pid)
    assert (modes["truth_mode"], bool(modes["truth_spin"])) == (None, True)
    program.command("run 5")  # it is alive


def test_time_that_is_said_is_that_of_status(target: Callable) -> None:
    program = target("truth_modes-jump")

    printed = cli("on", program.pid, "truth_mode", "--for", "3725.5s").stdout

    (at,) = re.findall(r"off again at (\S+),", printed)
    assert f"until {at}: truth_mode" in cli("status", program.pid).stdout
    assert cli("list", program.pid).stdout.count(f"until {at}: truth_mode") == 1
    cli("off", program.pid, "*")


def test_status_says_until_when(target: Callable) -> None:
    program = target("truth_modes-jump")
    child = on_for(program, "truth_mode", "--for", LONG)

    shown = cli("status", program.pid).stdout
    listed = {marker["name"]: marker for marker in facts("status", program.pid)["markers"]}

    assert re.search(r"^until \S*\d\d:\d\d:\d\d: truth_mode$", shown, re.MULTILINE)
    assert abs(listed["truth_mode"]["until"] - time.time() - 3600) < 600
    assert listed["truth_spin"]["until"] is None
    assert facts("status", program.pid)["arena"]["to_mend"] is None
    os.kill(child, signal.SIGKILL)


def test_terminal_and_pipes_of_the_command_end_with_it(target: Callable) -> None:
    program = target("truth_modes-jump")

    shown = in_terminal("on", program.pid, "truth_mode", "--for", LONG)  # until nobody has it

    reader, writer = os.pipe()
    subprocess.run(
        [*CLI, "on", str(program.pid), "truth_spin", "--for", LONG],
        env=ENVIRONMENT, pass_fds=[writer], check=True, capture_output=True,
    )  # fmt: skip
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)
    assert "off again at" in shown
    assert all(modes_of(program.pid)[name] for name in ("truth_mode", "truth_spin"))
    cli("off", program.pid, "*")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_where_it_is_asked_to_end_it_switches_off_before(
    target: Callable, number: signal.Signals
) -> None:
    program = target("truth_modes-jump")
    cli("on", program.pid, "truth_spin")
    child = on_for(program, "truth_mode", "--for", LONG)

    os.kill(child, number)  # at once: it can be asked as soon as its pid is known

    wait_until(lambda: is_gone(child), "the process in the background to end")
    modes = modes_of(program.pid)
    assert (modes["truth_mode"], bool(modes["truth_spin"])) == (None, True)


def test_it_may_be_asked_to_end_as_soon_as_it_is_there(target: Callable) -> None:
    program = target("truth_modes-jump")
    early = (
        "import os, signal, sys\n"
        "from markerjit.cli.main import main\n"
        "setsid = os.setsid\n"
        "def asked():\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    setsid()\n"
        "os.setsid = asked\n"
        "sys.exit(main(sys.argv[1:]))"
    )

    command = ["on", str(program.pid), "truth_mode", "--for", LONG]
    subprocess.run([sys.executable, "-c", early, *command], env=ENVIRONMENT, check=True)

    wait_off(program, "truth_mode")
    assert cli("status", program.pid).stderr == ""


@pytest.mark.parametrize("command", ["on", "off", "trace", "repair", "flight start"])
def test_where_it_is_killed_the_next_command_switches_off(target: Callable, command: str) -> None:
    program = target("truth_modes-jump")
    os.kill(on_for(program, "truth_mode", "--for", LONG), signal.SIGKILL)
    make_overdue(program.pid)

    shown = cli("status", program.pid)
    assert modes_of(program.pid)["truth_mode"], "status only reads"
    words = {"trace": ["truth_spin", "-d", "10ms"], "repair": []}.get(command, ["truth_spin"])
    done = cli(*command.split(), program.pid, *words)

    assert shown.stderr == (
        "markerjit: the time of truth_mode is over, and nobody has switched it off: "
        f"markerjit repair {program.pid}\n"
    )
    assert done.returncode == 0, done.stderr
    if command == "repair":
        assert done.stdout == "switched off, since their time was over: truth_mode\n"
    assert modes_of(program.pid)["truth_mode"] is None
    assert cli("status", program.pid).stderr == ""


def test_on_again_without_a_time_is_to_stay(target: Callable) -> None:
    program = target("truth_modes-jump")
    child = on_for(program, "truth_mode", "--for", LONG)

    again = cli("on", program.pid, "truth_mode")
    os.kill(child, signal.SIGTERM)

    assert "nothing had to be written" in again.stdout
    wait_until(lambda: is_gone(child), "the process in the background to end")
    assert modes_of(program.pid)["truth_mode"]
    assert facts("status", program.pid, "truth_mode")["markers"][0]["until"] is None


def test_on_again_for_longer_lasts_longer(target: Callable) -> None:
    program = target("truth_modes-jump")
    children = [on_for(program, "truth_mode", "--for", given) for given in ("300ms", LONG)]

    wait_until(lambda: is_gone(children[0]), "the first process in the background to end")

    assert modes_of(program.pid)["truth_mode"]
    os.kill(children[1], signal.SIGKILL)


def test_a_trace_gives_a_marker_back_with_its_time(target: Callable) -> None:
    program = target("truth_modes-jump")
    with markerjit.attach(program.pid) as session:
        session.enable("truth_mode", for_s=3600)
        with session.trace("truth_mode"):
            pass
        (marker,) = session.statistics("truth_mode")
        assert marker.mode and abs(marker.until - time.time() - 3600) < 600
        session.enable("truth_mode", for_s=0.1)
        over = time.monotonic() + 0.1
        with session.trace("truth_mode"):
            wait_until(lambda: time.monotonic() > over, "its time to pass")
        assert modes_of(program.pid)["truth_mode"] is None


def test_it_works_for_functions_and_for_several_processes(target: Callable) -> None:
    programs = [target("truth_modes-jump") for _ in range(2)]
    pids = ",".join(str(program.pid) for program in programs)

    done = cli("on", pids, "truth_mode", "func:malloc", "--for", "300ms")

    assert done.returncode == 0, done.stderr
    child = int(re.search(r"by process (\d+)", done.stdout)[1])
    wait_until(lambda: is_gone(child), "the process in the background to end")
    for program in programs:
        assert modes_of(program.pid)["truth_mode"] is None
        assert all(not marker["on"] for marker in facts("status", program.pid)["markers"])


def test_the_process_in_the_background_ends_with_the_target(target: Callable) -> None:
    program = target("truth_modes-jump", may_die=True)
    child = on_for(program, "truth_mode", "--for", LONG)

    program.process.kill()

    wait_until(lambda: is_gone(child), "the process in the background to end")


def test_a_switch_that_is_refused_leaves_nothing_in_the_background(target: Callable) -> None:
    program = target("truth_modes-jump")

    one_line(cli("on", program.pid, "nothing_such", "--for", LONG), "nothing_such")
    wrong = cli("on", program.pid, "truth_mode", "--for", "soon")

    assert wrong.returncode == 2 and "is not a duration" in wrong.stderr
    assert json.loads(cli("on", program.pid, "truth_mode", "--json").stdout)["pid"] == program.pid

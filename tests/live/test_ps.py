"""`markerjit ps`: which processes have markers, and what is on in them."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest

import markerjit
from markerjit.cli import main, output
from markerjit.memory import Mapping
from markerjit.session.target import Target
from markerjit.sites import marked
from markerjit.sites.discover import Objects, discover_object
from tests.support.commands import cli, facts
from tests.support.timing import Limited

pytestmark = pytest.mark.live


def test_processes_with_markers_are_listed_with_what_is_on(target: Callable) -> None:
    idle = target("truth_modes-jump")
    busy = target("truth_threads", "1", "--rate", "100")
    plain = target("truth_functions")
    with markerjit.attach(busy.pid) as session:
        session.enable("truth_loop", probe="count")

    document = facts("ps")
    text = cli("ps").stdout

    seen = {process["pid"]: process for process in document["processes"]}
    assert seen[busy.pid]["on"] == [
        {"name": "truth_loop", "mode": "jump", "probe": "count", "by": os.getpid(), "held": None}
    ]
    assert (seen[busy.pid]["runtime"], seen[busy.pid]["uid"]) == (True, os.geteuid())
    quiet = {"on": [], "runtime": False, "usdt": None, "markers": 2}
    assert {key: seen[idle.pid][key] for key in quiet} == quiet
    assert plain.pid not in seen
    (line,) = (line for line in text.splitlines() if line.split()[0] == str(busy.pid))
    cells = re.split(" {2,}", line)  # columns are as wide as other processes make them
    assert cells[3:5] == ["truth_loop", f"pid {os.getpid()}"]
    assert line.split()[1] == pwd.getpwuid(os.geteuid()).pw_name
    assert line.endswith("truth_threads 1 --rate 100")


def test_marked_processes_are_found_and_a_file_is_looked_at_once(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, other = (target("truth_threads", "1", "--rate", "100").pid for _ in range(2))
    plain = target("truth_functions")
    opened = target("truth_functions")
    looked_at: list[str] = []

    def discover(read: Any, maps: Sequence[Mapping], start: Mapping) -> Objects:
        looked_at.append(start.path)
        return discover_object(read, maps, start)

    monkeypatch.setattr(marked, "discover_object", discover)
    with markerjit.attach(opened.pid) as session:
        session.on("func:truth_functions:main")
    gone = Limited(["/bin/true"])
    gone.wait()

    pids = [other, opened.pid, gone.pid, busy, plain.pid]
    assert markerjit.find_marked(iter(pids)) == [other, opened.pid, busy]
    assert len(looked_at) == len(set(looked_at)) > 1
    assert markerjit.find_marked([]) == []


def test_functions_that_are_off_again_are_not_looked_for(target: Callable) -> None:
    program = target("truth_functions")

    def seen() -> list[markerjit.MarkerStatus]:
        (view,) = (each for each in markerjit.overview().processes if each.pid == program.pid)
        return list(view.markers)

    def opened() -> int:
        with closing(Target(program.pid, glance=True)) as glance:
            return len(glance.seen.opened)

    with markerjit.attach(program.pid) as session:
        session.on("func:truth_functions:*")
        both = seen(), session.status()
        stubs = opened()
        session.off()
        session.on("func:turn", mode="int3")
        alone = seen(), session.status()
        session.off()

    assert [each.name for each in both[0]] == [each.name for each in both[1]]
    assert len(both[0]) > 5
    assert [(each.name, each.mode) for each in alone[0]] == [("func:turn", markerjit.Mode.INT3)]
    assert alone[0][0].sites == alone[1][0].sites
    assert stubs >= len(both[0])
    assert (seen(), opened()) == ([], 0)


def test_processes_with_usdt_probes_are_listed_where_they_are_asked_for(target: Callable) -> None:
    program = target("truth_usdt")

    without = {process["pid"] for process in facts("ps")["processes"]}
    counted = {process["pid"]: process["usdt"] for process in facts("ps", "--usdt")["processes"]}

    assert program.pid not in without
    assert counted[program.pid] > 0


def test_long_command_lines_are_cut_for_a_terminal(
    target: Callable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = target("truth_threads", "1", "--rate", "100")
    with markerjit.attach(program.pid) as session:
        session.enable("*")
    monkeypatch.setattr(output, "width", lambda *_: 60)

    assert main.run(["ps"]) == 0

    lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if line.split()[0] == str(program.pid))
    assert line.endswith("…")
    assert max(map(len, lines)) <= 60


def test_nothing_to_be_listed_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = markerjit.Failed(7, markerjit.NotPermitted("it may not be looked at"))
    monkeypatch.setattr(markerjit, "overview", lambda **_: markerjit.Overview((), (refused,)))

    assert main.run(["ps"]) == 0

    shown = capsys.readouterr()
    assert shown.out == "no process here has markers\n"
    assert shown.err.startswith("1 process could not be looked at, such as ")

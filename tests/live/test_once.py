"""A switch looks once, plans once, acts and tells: how often each is done, counted."""

from __future__ import annotations

import builtins
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import markerjit
from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.toggle.program import build
from markerjit.cli.main import run
from markerjit.patch import prepared
from markerjit.remote.mappings import Mappings
from markerjit.session import planning, target
from tests.support.calls import calls_of
from tests.support.programs import ROOT
from tests.support.timing import Limited

pytestmark = pytest.mark.live

TELLS_MAPPINGS = Mappings(os.getpid()).now() is not None
"""Linux 6.11 and later tell the mappings of a process one by one, so its maps are not read."""


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a process is looked at, its sites read, a switch planned or prepared."""
    calls: Counter[str] = Counter()

    def count(owner: Any, name: str, what: str) -> None:
        function = getattr(owner, name)

        def counting(*args: Any, **options: Any) -> Any:
            calls[what] += 1
            return function(*args, **options)

        monkeypatch.setattr(owner, name, counting)

    opened = builtins.open

    def opening(path: Any, *args: Any, **options: Any) -> Any:
        match = re.fullmatch(r"/proc/([0-9]+)/maps", str(path))
        if match and int(match[1]) != os.getpid():  # ours have the vDSO's place
            calls["maps"] += 1
        return opened(path, *args, **options)

    monkeypatch.setattr(builtins, "open", opening)
    count(planning, "plan_on", "plans")
    count(planning, "plan_off", "plans")
    count(target.Target, "states", "readings")
    count(prepared, "prepare", "preparations")
    return calls


@pytest.mark.parametrize("options", [(), ("--mode", "int3"), ("--probe", "record")])
def test_the_first_on_of_a_process_reads_and_plans_once(
    target: Callable, counted: Counter[str], options: tuple[str, ...]
) -> None:
    program = target("truth_threads", "1")

    assert run(["on", str(program.pid), "truth_*", *options]) == 0

    # Maps are read at the begin and under the lock, sites for the plan and for what is told.
    assert counted == {"maps": 2, "plans": 1, "readings": 2}


@pytest.mark.parametrize("command", ["on", "off"])
def test_any_other_command_does_the_same(
    target: Callable, counted: Counter[str], command: str
) -> None:
    program = target("truth_threads", "1")
    run(["on", str(program.pid), "truth_*"])
    counted.clear()

    assert run([command, str(program.pid), "truth_*"]) == 0

    assert counted == {"maps": 2, "plans": 1, "readings": 2}


@pytest.mark.parametrize("mode", ["jump", "int3"])
def test_a_switch_is_prepared_when_it_comes_again(
    target: Callable, counted: Counter[str], mode: str
) -> None:
    program = target("truth_threads", "2", "--rate", "1000")

    with markerjit.attach(program.pid) as session:
        session.enable("*", mode=mode)
        session.disable("*")
        assert counted["preparations"] == 0
        session.enable("*", mode=mode)  # the slots have their data now, so it is planned anew
        session.disable("*")
        session.enable("*", mode=mode)
        assert counted["preparations"] == 2
        counted.clear()
        for _ in range(3):
            session.disable("*")
            assert not any(marker.mode for marker in session.statistics(look=False))
            session.enable("*", mode=mode)
            modes = {str(marker.mode) for marker in session.statistics(look=False)}
            assert modes == {mode}

    assert counted == {"readings": 6} | ({} if TELLS_MAPPINGS else {"maps": 6})


def test_a_switch_that_comes_again_sees_what_was_mapped_and_unmapped_meanwhile(
    target: Callable,
) -> None:
    program = target("truth_dlopen")
    switched = []

    with markerjit.attach(program.pid) as session:
        for command in ("", f"load {ROOT}/build/targets/truth_plugin.so", "unload", ""):
            if command:
                assert program.ask(command)["ok"] == 1
            for _ in range(3):
                session.enable("*")
                on = {marker.name for marker in session.statistics(look=False) if marker.mode}
                switched.append(sorted(on))
                session.disable("*")

    host, both = ["truth_host"], ["truth_host", "truth_plugin"]
    assert switched == [host] * 3 + [both] * 3 + [host] * 6


@pytest.fixture(scope="module")
def of_many_sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[subprocess.Popen]]:
    """Programs with 800 sites of a marker, and with 2,800: of both the native part enters the
    heads."""
    directory = tmp_path_factory.mktemp("many")
    native = ROOT / "markerjit" / "_native"
    place = Place(ROOT / "native/bench", native / "include", native / "bench", directory, "gcc", 0)
    programs = []
    for sites in (800, 2800):
        command = [build(sites, "jump", place, directory).program, "1", "asleep"]
        program = Limited(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert program.stdout and program.stdout.readline() == b"ready\n"
        programs.append(program)
    yield programs
    for program in programs:
        program.communicate()


@pytest.mark.parametrize("command", ["on", "off"])
def test_a_site_among_thousands_takes_a_few_calls_of_a_command(
    of_many_sites: list[subprocess.Popen], command: str
) -> None:
    """No value is made for each, but of a note where some do not make a whole column."""
    calls = []
    for program in of_many_sites:
        run(["on", str(program.pid), "*"])
        run(["off", str(program.pid), "*"])
        run(["off" if command == "on" else "on", str(program.pid), "*"])
        words = [command, str(program.pid), "*"]
        calls.append(calls_of(lambda words=words: run(words)))

    most = {"on": 3, "off": 4}
    assert (calls[1] - calls[0]) / 2000 < most[command]

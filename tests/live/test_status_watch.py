"""`markerjit status --watch`: what is on, again and again, with the hits in a second."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import termios
from collections.abc import Callable

import pytest

import markerjit
from tests.support.commands import CLI, ENVIRONMENT, cli, one_line, running
from tests.support.timing import Limited, Wait

pytestmark = pytest.mark.live


def test_it_looks_until_it_is_interrupted(target: Callable) -> None:
    program = target("truth_modes-jump")
    with markerjit.attach(program.pid) as session:
        session.enable("truth_mode")

    with running("status", program.pid, "--watch", "--every", "10ms", "--json") as watcher:
        assert watcher.stdout
        for total in (0, 30, 70):
            wait = Wait(f"a total of {total}")
            while json.loads(watcher.stdout.readline())["markers"][0]["total"] != total:
                wait.left_s()
            program.ask("run 30" if not total else "run 40")
        watcher.send_signal(signal.SIGINT)
        rest, errors = watcher.communicate()

    assert (watcher.returncode, errors) == (0, "")
    assert all(json.loads(line)["pid"] == program.pid for line in rest.splitlines())


def test_rate_is_that_of_the_time_between_two_looks(target: Callable) -> None:
    program = target("truth_modes-jump")
    with markerjit.attach(program.pid) as session:
        session.enable("truth_mode")

    with running("status", program.pid, "--watch", "--every", "20ms") as watcher:
        assert watcher.stdout
        program.ask("run 1000")
        rates, wait = [], Wait("a rate")
        while not any(rate != "-" and int(rate.replace(",", "")) > 0 for rate in rates):
            wait.left_s()
            line = watcher.stdout.readline()
            rates += re.findall(r"^truth_mode .* ([\d,]+|-) +[\d,]+ +0$", line.rstrip())
            program.ask("run 1000")
        watcher.send_signal(signal.SIGTERM)
        watcher.communicate()

    assert watcher.returncode == 0
    assert rates[0] == "-"  # nothing was seen before


def test_it_ends_with_the_process(target: Callable) -> None:
    program = target("truth_modes-jump")
    with running("status", program.pid, "--watch", "--every", "10ms", "--json") as watcher:
        assert watcher.stdout
        watcher.stdout.readline()
        assert program.process.stdin
        program.process.stdin.close()  # a program of ours ends then
        program.process.wait()
        _, errors = watcher.communicate()

    assert watcher.returncode == 1
    assert re.fullmatch(rf"markerjit: .*{program.pid}.*\n", errors)


def test_terminal_is_drawn_anew(target: Callable) -> None:
    program = target("truth_modes-jump")
    with markerjit.attach(program.pid) as session:
        session.enable("truth_mode")
    controller, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    command = [*CLI, "status", str(program.pid), "--watch", "--every", "10ms", "--color", "never"]
    watcher = Limited(command, stdin=terminal, stdout=terminal, stderr=terminal, env=ENVIRONMENT)
    os.close(terminal)
    shown, wait = b"", Wait("three pictures")
    while shown.count(b"\x1b[J") < 3:
        wait.for_input(controller)
        shown += os.read(controller, 1 << 16)
    watcher.send_signal(signal.SIGINT)
    while watcher.poll() is None:
        try:
            os.read(controller, 1 << 16)
        except OSError:  # its other end is closed
            break
    code = watcher.wait()
    os.close(controller)

    first, second, *_ = shown.decode().replace("\r", "").split("\x1b[J")
    picture = second.replace("\x1b[K", "").splitlines()
    assert code == 0
    assert "\x1b[H" not in shown.decode()  # what stood above stays
    up = re.match(r"\x1b\[(\d+)F", picture[0])
    assert up and int(up[1]) == first.count("\n")
    picture[0] = picture[0][up.end() :]
    assert picture[0].split() == ["MARKER", "STATE", "SINCE", "BY", "HITS/S", "HITS", "LOST"]
    assert picture[1].startswith("truth_mode  on (jump, count)")
    assert max(map(len, picture)) <= 80


def test_every_needs_watch(target: Callable) -> None:
    one_line(cli("status", target("truth_modes-jump").pid, "--every", "1s"), "give both")

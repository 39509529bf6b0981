"""How commands look: tables at 80 columns, and colours by role where they are taken."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import cli
from tests.support.terminals import in_terminal

pytestmark = pytest.mark.also_user

SGR = re.compile(r"\x1b\[[\d;]*m")


def plain(text: str) -> str:
    return SGR.sub("", text)


def test_states_and_names_have_colours_on_a_terminal_and_not_elsewhere(target: Callable) -> None:
    server = target("kvserver")
    cli("on", server.pid, "kv_hit")

    shown = in_terminal("status", server.pid)

    assert re.search(r"\x1b\[36mkv_hit *\x1b\[0m", shown)
    assert re.search(r"\x1b\[32mon \(jump, count\) *\x1b\[0m", shown)
    assert re.search(r"\x1b\[1mMARKER *\x1b\[0m", shown)
    assert not SGR.search(in_terminal("status", server.pid, NO_COLOR="1"))
    assert not SGR.search(in_terminal("status", server.pid, TERM="dumb"))
    assert not SGR.search(in_terminal("status", server.pid, "--color", "never"))
    assert not SGR.search(cli("status", server.pid).stdout)
    forced = cli("status", server.pid, "--color", "always").stdout
    assert plain(forced).splitlines()[0].split()[0] == "MARKER" and SGR.search(forced)


def test_events_have_colours_and_the_same_text(target: Callable, tmp_path: Path) -> None:
    program = target("truth_modes-jump")
    cli("flight", "start", program.pid, "truth_mode")
    program.command("run 3")
    path = tmp_path / "a.ctf"
    cli("flight", "dump", program.pid, "-o", path)

    usual = cli("read", path).stdout
    coloured = cli("read", path, "--color", "always").stdout

    assert plain(coloured) == usual and usual.count("\n") == 3
    assert coloured.count("\x1b[36mtruth_mode\x1b[0m") == 3
    assert not SGR.search(cli("read", path, "--json", "--color", "always").stdout)

"""What commands print has room in a terminal of 80 columns, and is whole and plain in a pipe."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from markerjit.cli.parser import COMMANDS
from tests.support.choice import share
from tests.support.commands import cli
from tests.support.programs import Target
from tests.support.terminals import in_terminal
from tests.support.timing import Limited

pytestmark = pytest.mark.also_user

SGR = re.compile(r"\x1b\[[\d;]*m")
MOVES = re.compile(r"\x1b\[\d*[FJK]")
PROGRESS = re.compile(r"\r[^\n]*\x1b\[K")


@pytest.fixture
def server(target: Callable, build: Path) -> Iterator[Target]:
    """A server under load, with something on."""
    program: Target = target("kvserver", "--port", "0")
    load = [build / "kvload", "--port", program.ready["port"], "--rate", "1000"]
    with Limited([*load, "--seconds", "600"], stdout=subprocess.DEVNULL) as client:
        cli("on", program.pid, "kv_hit", "--where", 'size > 10 and key != "some longer key"')
        yield program
        client.kill()


def looks(server: Target, path: Path) -> Iterator[tuple[object, ...]]:
    """Commands that can be repeated."""
    pid = server.pid
    yield from (("list", pid), ("list", pid, "func:*mark*"), ("list", pid, "--usdt"))
    yield from (("status", pid), ("doctor", pid), ("config",), ("lab",))
    yield from (("explain", pid, "kv_hit"), ("explain", pid, "kv_hit", "--all"))
    yield ("explain", pid, "kv_hit", "--path")
    yield ("explain", pid, "kv_hit", "--where", 'size > 10 and key[:4] == "load"')
    yield from (("explain", server.path, "kv_hit"), ("coverage", server.path))
    yield from (("stack", pid), ("stack", pid, "-n", 3))
    yield ("top", pid, "kv_*", "-d", "200ms", "--every", "100ms")
    yield ("count", pid, "kv_store", "--by", "name, key, size, tid, cpu", "-d", "50ms")
    yield from ((name, pid, "kv_store", "size", "-d", "50ms") for name in ("hist", "quantiles"))
    yield from (("read", path), ("read", path, "--stats"))
    yield from (("export", pid, "kv_*", "-d", "200ms"), ("export", pid, "kv_*", "--port", "0"))
    yield ("watch", pid)  # its standard input is no terminal
    yield from (("recipe", "list"), ("recipe", "show", "libc-malloc"))
    yield from (("alloc", pid, "-d", "200ms"), ("alloc", pid, "-d", "200ms", "--leaks"))
    yield ("calls", pid, "kv_*", "-d", "200ms", "--tree", "--graph", "kv_execute")
    yield ("latency", pid, "kv_command", "kv_hit", "-d", "50ms")


def changes(server: Target, path: Path) -> Iterator[tuple[object, ...]]:
    """Commands that change the process, in an order in which they can."""
    pid = server.pid
    yield from (("off", pid, "*"), ("flight", "start", pid, "kv_*"))
    yield from (("flight", "dump", pid, "-o", path, "--force"), ("flight", "stop", pid))
    yield from (("on", pid, "kv_hit"), ("off", pid, "*"), ("repair", pid))
    yield ("trace", pid, "no_such_marker_of_a_long_name_that_nobody_has_ever_given_to_any_marker")


def lines_of(shown: str) -> list[str]:
    return MOVES.sub("", PROGRESS.sub("", SGR.sub("", shown))).splitlines()


def lines_on_terminal(*words: object) -> list[str]:
    return lines_of(in_terminal(*words))


def wide(shown: str) -> list[str]:
    """Lines that are wider than the terminal, but for words that are to be copied."""
    return [line for line in lines_of(shown) if len(line) > 80 and " " in line.strip()]


def check_terminal(*words: object) -> None:
    assert wide(in_terminal(*words)) == [], words


def check(words: tuple[object, ...]) -> None:
    """One command, both ways."""
    check_terminal(*words)

    piped = cli(*words)
    assert "\x1b" not in piped.stdout + piped.stderr, words


def test_commands_have_room_on_a_terminal_and_are_plain_in_a_pipe(
    server: Target, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    cli("trace", server.pid, "kv_store", "-n", 50, "-o", path)
    assert len(cli("read", path).stdout.splitlines()) >= 50
    assert "key" in cli("count", server.pid, "kv_store", "--by", "key", "-d", "200ms").stdout

    for words in share([*looks(server, path)], 3, 0):
        check(words)
    for words in changes(server, tmp_path / "b.jsonl"):
        check(words)


def test_demo_and_bench_have_room_on_a_terminal(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    least = ("--only", "jump", "--seconds", 1, "--parts", 0, "--args", 1, "--layouts", 1)

    check_terminal("demo", "--rounds", 1, "--slice", "20ms")
    shown = in_terminal("bench", "dormant", *least, "--json", results)
    assert "ending the programs" in shown
    assert wide(shown) == []
    check_terminal("bench", "compare", results, results)


def test_what_has_no_room_is_cut_on_a_terminal_and_whole_in_a_pipe(server: Target) -> None:
    (header, row, *_) = cli("list", server.pid).stdout.splitlines()

    assert header.startswith("MARKER")
    assert len(row) > 80 and "…" not in row
    assert any("…" in line for line in lines_on_terminal("list", server.pid))


def test_ps_has_room_on_a_terminal(server: Target) -> None:
    lines = lines_on_terminal("ps")

    assert any(line.split()[0] == str(server.pid) for line in lines)
    assert [line for line in lines if len(line) > 80] == []


def test_help_has_room_in_80_columns() -> None:
    with ThreadPoolExecutor(2) as pool:
        shown = pool.map(lambda name: lines_on_terminal(name, "--help"), COMMANDS)

    for name, lines in zip(COMMANDS, shown, strict=True):
        assert [line for line in lines if len(line) > 80] == [], name

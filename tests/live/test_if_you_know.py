"""docs/reference/if-you-know.md: each command of ours does its job on the demo's server, in a
pipe and in a terminal."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.commands import cli
from tests.support.programs import ROOT, Target
from tests.support.terminals import ended_in_terminal, screen_of
from tests.support.timing import Limited

pytestmark = pytest.mark.live

COLOUR = re.compile(r"\x1b\[[\d;]*m")
WITH_A_TABLE = {
    "list PID", "ps", "status PID", "trace PID kv_* -n 5", "read events.ctf --stats",
    "top PID kv_* -d 300ms --every 100ms", "flight dump PID -o newest.ctf",
    "stack PID -n 10 -o stacks.folded", "explain PID kv_hit",
}  # fmt: skip
"""Rows that have colours, whatever the server does meanwhile."""
BEFORE_THEM = {
    "on PID func:malloc", "trace PID kv_* -d 300ms -o events.ctf", "flight start PID kv_*",
}  # fmt: skip
"""Rows on which those depend."""
SHORTER = "100ms"
"""So long are commands observed that have 300 ms on the page."""
PAGE = ROOT / "docs" / "reference" / "if-you-know.md"


def commands() -> list[list[str]]:
    """The words of our commands, in the order of the page."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    spans = (re.fullmatch(r".*\| `markerjit (.*)` \|", row) for row in rows[2:])
    return [shlex.split(span[1]) for span in spans if span]


@pytest.fixture
def server(target: Callable) -> Iterator[Target]:
    """The demo's server, under load."""
    program: Target = target("kvserver")
    beside = [*load_of(program), "--seconds", "600", "--keys", "50", "--rate", "1000"]
    with Limited(beside, stdout=subprocess.DEVNULL) as loading:
        yield program
        loading.kill()


def load_of(server: Target) -> list[object]:
    return [ROOT / "build/targets/kvload", "--port", server.ready["port"], "--connections", "1"]


def filled(words: list[str], server: Target) -> list[object]:
    """A row's words for this process, and with a load that ends as its command."""
    end = words.index("COMMAND") if "COMMAND" in words else len(words)
    words = [SHORTER if word == "300ms" else word for word in words]
    command = [*load_of(server), "--requests", "10", "--keys", "5"]
    pids = [server.pid if word == "PID" else word for word in words[:end]]
    return [*pids, *(command if end < len(words) else [])]


def test_each_command_of_ours_does_its_job_in_a_pipe(
    server: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    used = commands()
    assert len(used) == 36

    for words in used:
        done = cli(*filled(words, server))

        assert done.returncode == 0, (words, done.stderr)
        assert done.stdout.strip() or done.stderr.strip(), words
        assert "\x1b" not in done.stdout + done.stderr, words


def coloured(used: Sequence[list[str]], server: Target) -> set[str]:
    """Run rows in a terminal of 80 columns. Returns those that have colours."""
    with_colours = set()
    for words in used:
        code, text = ended_in_terminal(*filled(words, server))

        assert code == 0, (words, text)
        lines = [line for line in screen_of(text) if not line.startswith('{"')]  # but for data
        assert [line for line in lines if len(line) > 80] == [], words
        if COLOUR.search(text):
            with_colours.add(" ".join(words))
    return with_colours


@pytest.mark.long("test_tables_fit_a_terminal_of_80_columns")
def test_each_command_fits_a_terminal_of_80_columns(
    server: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert coloured(commands(), server) >= WITH_A_TABLE


def test_tables_fit_a_terminal_of_80_columns(
    server: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = {" ".join(words): words for words in commands()}
    used = [words for row, words in rows.items() if row in WITH_A_TABLE | BEFORE_THEM]

    assert coloured(used, server) >= WITH_A_TABLE

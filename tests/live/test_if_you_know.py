"""docs/reference/if-you-know.md: each command of ours does its job on the demo's server."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import cli
from tests.support.programs import ROOT
from tests.support.timing import Limited

pytestmark = pytest.mark.live

PAGE = ROOT / "docs" / "reference" / "if-you-know.md"


def commands() -> list[list[str]]:
    """The words of our commands, in the order of the page."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    spans = (re.fullmatch(r".*\| `markerjit (.*)` \|", row) for row in rows[2:])
    return [shlex.split(span[1]) for span in spans if span]


def test_each_command_of_ours_does_its_job(
    target: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = target("kvserver")
    monkeypatch.chdir(tmp_path)
    load = [ROOT / "build/targets/kvload", "--port", server.ready["port"], "--connections", "1"]
    brief = [*map(str, load), "--requests", "10", "--keys", "5"]
    beside = [*load, "--seconds", "600", "--keys", "50", "--rate", "5000"]
    used = commands()
    with Limited(beside, stdout=subprocess.DEVNULL) as loading:
        try:
            for words in used:
                end = words.index("COMMAND") if "COMMAND" in words else len(words)
                arguments = [str(server.pid) if word == "PID" else word for word in words[:end]]

                done = cli(*arguments, *(brief if end < len(words) else []))

                assert done.returncode == 0, (words, done.stderr)
                assert done.stdout.strip() or done.stderr.strip(), words
        finally:
            loading.kill()
    assert len(used) == 34

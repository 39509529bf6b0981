"""`markerjit bench toggle --only …`: forms that are measured only where they are asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from markerjit.apps.bench.toggle import once
from tests.support.commands import cli_with

pytestmark = pytest.mark.live


def forms_of(directory: Path, *only: str) -> dict[str, dict[str, dict[str, Any]]]:
    """By measure and name, of the shortest run of one setting, of two rounds or some more."""
    kept = directory / "a.json"
    done = cli_with(
        {"markerjit.apps.bench.toggle.enough.FEWEST": 2},
        "bench", "toggle", *(word for pattern in only for word in ("--only", pattern)),
        "--seconds", "0.2", "--sites", "203", "--threads", "1", "--json", kept,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = json.loads(kept.read_text())
    parts = run["parts"]
    assert parts, run["missing"]
    busy = [part for part in parts if part["setting"]["load"] == "busy"]
    return {
        part["setting"]["measure"]: {form["name"]: form for form in part["forms"]} for part in busy
    }


def test_first_switches_stand_beside_one_made_before(tmp_path: Path) -> None:
    forms = forms_of(tmp_path, once.LIVE, once.NEXT)

    assert list(forms) == ["once"]
    assert set(forms["once"]) == set(once.WHATS) - {once.UNSEEN, once.STATUS}
    assert {form["baseline"] for form in forms["once"].values()} == {once.BEFORE}
    samples = [forms["once"][name]["samples"][0] for name in (once.ATTACH, once.FIRST, once.LIVE)]
    assert all(a + b == c for a, b, c in zip(*samples, strict=True))


def test_commands_are_run_where_one_of_them_is_asked_for(tmp_path: Path) -> None:
    forms = forms_of(tmp_path, once.STATUS)

    assert set(forms["once"]) == set(once.WHATS)


def test_a_switch_of_the_library_stands_beside_a_bare_membarrier(tmp_path: Path) -> None:
    forms = forms_of(tmp_path, "jump, library")

    assert {"jump, library: on", "membarrier alone: on"} <= forms["call"].keys()
    for direction in ("on", "off"):
        own, alone = (forms["call"][f"{name}: {direction}"]["samples"][0]
                      for name in ("jump, library", "membarrier alone"))  # fmt: skip
        assert len(own) == len(alone)
        assert min(alone) > 0

"""`markerjit bench reading`: every event is read in every way, or there is no figure."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit.apps.bench.reading import measure
from markerjit.apps.bench.reading.fill import MARKERS, Fill
from markerjit.errors import MarkerError
from tests.support.commands import cli_with
from tests.support.programs import ROOT

pytestmark = pytest.mark.live

PROGRAM = ROOT / "markerjit" / "_native" / "bench" / "reading" / "fill"
CPU = min(os.sched_getaffinity(0))
EVENTS = {"markerjit.apps.bench.reading.measure._EVENTS": 1500}
"""A tenth of what is measured otherwise: several pages of a ring, as the others are."""


@pytest.fixture(scope="module")
def run(build: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """The shortest run, of few events, and its page."""
    kept = tmp_path_factory.mktemp("bench") / "a.json"
    page = kept.with_suffix(".html")
    done = cli_with(
        EVENTS, "bench", "reading", "--seconds", "0.1", "--json", kept, "--html", page
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(kept.read_text()), page.read_text()


def test_events_of_every_kind_are_read_in_every_way(run: tuple[dict[str, Any], str]) -> None:
    parts = run[0]["parts"]
    missing = {entry["form"] for entry in run[0]["missing"]}

    assert {part["setting"]["workload"] for part in parts} == set(measure.WORKLOADS)
    for part in parts:
        assert {form["name"] for form in part["forms"]} | missing == {
            form.name for form in measure.FORMS
        }
        assert all(len(form["samples"][0]) >= 12 for form in part["forms"])


def test_the_page_has_events_a_second(run: tuple[dict[str, Any], str]) -> None:
    assert "Million events a second" in run[1]
    assert all(text in run[1] for text in measure.WORKLOADS.values())


def test_a_form_is_read_beside_what_it_is_compared_with(build: Path, tmp_path: Path) -> None:
    kept = tmp_path / "a.json"

    done = cli_with(
        EVENTS, "bench", "reading", "--only", "columns", "--seconds", "0.1", "--json", kept
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    names = {
        form["name"] for part in json.loads(kept.read_text())["parts"] for form in part["forms"]
    }
    assert names == {measure.BASELINE, measure.AGAIN, measure.COLUMNS}


def test_an_event_that_does_not_come_is_no_figure(build: Path) -> None:
    setting = measure.Setting("ints", 1)
    with (
        closing(Fill(PROGRAM)) as fill,
        markerjit.attach(fill.pid, ring_size=1 << 20) as session,
        session.trace(MARKERS) as stream,
        pytest.raises(MarkerError, match="of 15000 events 0 came"),
    ):
        measure._emptied(setting, fill, [CPU], stream, lambda: None)


def test_rings_that_are_too_small_are_no_figure(build: Path) -> None:
    setting = measure.Setting("ints", 1)
    with (
        closing(Fill(PROGRAM)) as fill,
        markerjit.attach(fill.pid, ring_size=1 << 16) as session,
        session.trace(MARKERS) as stream,
        pytest.raises(MarkerError, match=r"and [1-9]\d* were lost"),
    ):
        measure._emptied(setting, fill, [CPU], stream, measure._until_empty(stream.poll_batch))

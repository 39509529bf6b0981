"""`markerjit bench toggle` as its user meets it. Its figures are for people; here: that each is of
a switch that happened, that none is missing, and that one that did not happen is no figure."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.toggle import program
from markerjit.apps.bench.toggle.host import Host
from markerjit.apps.bench.toggle.ways import BUSY, DEFAULT, DIRECTIONS, WAYS, form_name
from markerjit.errors import MarkerError
from tests.support.commands import cli, cli_with, one_line
from tests.support.programs import ROOT, make

pytestmark = pytest.mark.live

SITES = 203


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """The shortest run, of as few rounds as make an interval, and the file with its samples."""
    path = tmp_path_factory.mktemp("bench") / "a.json"
    done = cli_with(
        {"markerjit.apps.bench.toggle.enough.FEWEST": 2},
        "bench", "toggle", "--seconds", "0.5", "--sites", SITES, "--threads", "1,3",
        "--json", path, "--html", path.with_suffix(".html"),
    )  # fmt: skip
    return done, path


@pytest.fixture
def run(kept: tuple[subprocess.CompletedProcess[str], Path]) -> dict[str, Any]:
    done, path = kept
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def parts_of(run: dict[str, Any], measure: str) -> Iterator[dict[str, dict[str, Any]]]:
    """The forms of each part with this measure, by name."""
    for part in run["parts"]:
        if part["setting"]["measure"] == measure:
            yield {form["name"]: form for form in part["forms"]}


def left_out(run: dict[str, Any], name: str) -> bool:
    """Altogether, and not only its slowest step."""
    return any(form.endswith(name) for all_ in run["missing"] for form in all_["form"].split("; "))


def test_every_way_is_switched_on_and_off_in_every_setting(run: dict[str, Any]) -> None:
    settings = {
        (part["setting"]["sites"], part["setting"]["threads"], part["setting"]["load"])
        for part in run["parts"]
    }
    calls = list(parts_of(run, "call"))

    assert settings == {(SITES, 1, "busy"), (SITES, 3, "busy"), (SITES, 3, "asleep")}
    assert len(calls) == 3
    for way in WAYS:
        for direction in DIRECTIONS:
            name = form_name(way.name, direction)
            assert left_out(run, way.name) or all(name in forms for forms in calls)


def test_every_sample_is_a_time_and_there_are_some(run: dict[str, Any]) -> None:
    for part in run["parts"]:
        for form in part["forms"]:
            assert len(form["samples"]) == 1, "one process, in so short a time"
            assert all(len(layout) >= 2 for layout in form["samples"])
            assert min(map(min, form["samples"])) > 0
            level = form["level"]
            assert level["low"] <= level["value"] <= level["high"]


def test_only_a_stop_stops_and_never_longer_than_the_call(run: dict[str, Any]) -> None:
    for stopped, held, call in zip(
        *(parts_of(run, measure) for measure in ("stopped", "held", "call")), strict=True
    ):
        assert all("stop" in name for name in stopped)
        assert stopped.keys() == held.keys()
        for name, form in stopped.items():
            for shorter, longer in ((form, call[name]), (held[name], form)):
                pairs = zip(shorter["samples"], longer["samples"], strict=True)
                assert all(
                    a <= b for first, other in pairs for a, b in zip(first, other, strict=True)
                )


def test_a_command_stands_beside_a_bare_interpreter(run: dict[str, Any]) -> None:
    for forms in parts_of(run, "command"):
        assert list(forms) == [
            "python -c pass", "python -c pass, again", "markerjit on", "markerjit off",
        ]  # fmt: skip


def test_what_the_program_notices_stands_beside_no_switch(run: dict[str, Any]) -> None:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("needs two CPUs")
    for forms in parts_of(run, "slowest"):
        assert {"no switch", "no switch, again"} <= forms.keys()
        assert all(form["baseline"] == "no switch" for form in forms.values())
        assert all(form["steps"] > 0 for form in forms.values())


def test_the_report_draws_it(
    kept: tuple[subprocess.CompletedProcess[str], Path], run: dict[str, Any]
) -> None:
    _, path = kept
    page = path.with_suffix(".html").read_text()

    assert page.count("<svg") >= 12
    assert f"{SITES} sites, 1 thread that runs" in page


def test_a_run_is_compared_with_itself(
    kept: tuple[subprocess.CompletedProcess[str], Path], run: dict[str, Any]
) -> None:
    _, path = kept

    done = cli("bench", "compare", path, path)

    assert (done.returncode, done.stderr) == (0, "")
    assert "more expensive" not in done.stdout


def test_nonsense_is_refused_in_a_sentence() -> None:
    one_line(cli("bench", "toggle", "--cc", "no-such-cc"), "no-such-cc is not here")
    for wrong in (["--sites", "0"], ["--threads", "1,x"], ["--threads", "5000"]):
        assert cli("bench", "toggle", *wrong).returncode == 2


# ---- a switch that did not happen ----------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> program.Program:
    make("native")
    native = ROOT / "markerjit" / "_native"
    directory = tmp_path_factory.mktemp("toggle")
    place = Place(native / "bench", native / "include", native / "bench", directory, "gcc", 0)
    return program.build(SITES, "jump", place, directory)


def test_a_host_switches_and_its_program_ends_as_it_began(built: program.Program) -> None:
    with Host(DEFAULT, built, SITES, 2, BUSY) as host:
        seen = host.visit(0.002)
        host.finish()

    assert list(seen) == list(DIRECTIONS)
    assert all(way.noticed.steps > 0 and way.switched.stopped > 0 for way in seen.values())


def test_a_switch_that_somebody_else_made_is_no_figure(built: program.Program) -> None:
    with Host(DEFAULT, built, SITES, 1, BUSY) as host:
        host.during(lambda: cli("on", str(host.crowd.pid), program.MARKER), "on")
        with pytest.raises(MarkerError, match="nothing had to be written"):
            host.visit(0.0)


def test_a_site_that_is_left_out_is_no_figure(built: program.Program) -> None:
    with (
        Host(DEFAULT, built, SITES, 1, BUSY) as host,
        pytest.raises(MarkerError, match=f"{SITES} bytes of code are not as they should be"),
    ):
        host.during(lambda: None, "on")


def test_a_program_with_other_sites_than_asked_for_is_no_figure(built: program.Program) -> None:
    with pytest.raises(MarkerError, match=f"{SITES} bytes of code differ where {SITES + 1} should"):
        Host(DEFAULT, built, SITES + 1, 1, BUSY)

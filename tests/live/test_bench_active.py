"""`markerjit bench active` as its user meets it. Its figures are for people; what is looked at here
is that everything was measured or named, that who listens has counted everything, and that nothing
of it is left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from markerjit.apps.bench.active.listened import FORMS
from tests.support.commands import ENVIRONMENT, cli, running
from tests.support.timing import wait_until

pytestmark = pytest.mark.live

OURS = {
    f"{mode}, {does}"
    for mode in ("jump", "nop", "pointer", "int3")
    for does in ("dormant", "empty probe", "count", "record")
} | {"jump, flight recorder"}
CONTROLS = {"no marker", "no marker, again", "call", "rdtsc"}
PEERS = {"uprobe, 1-byte no-op", "uprobe, 5-byte no-op", "uprobe, record", "ptrace", "gdb"}
CHILDREN = {"crew", "tracer", "gdb"}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """A short run, and the file with its samples."""
    path = tmp_path_factory.mktemp("bench") / "a.json"
    done = cli("bench", "active", "--seconds", "1", "--layouts", "1", "--json", path,
               "--html", path.with_suffix(".html"))  # fmt: skip
    return done, path


def run_of(kept: tuple[subprocess.CompletedProcess[str], Path]) -> dict[str, Any]:
    done, path = kept
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text())


def test_every_form_is_measured_or_named(kept) -> None:
    run = run_of(kept)

    cpus = len(os.sched_getaffinity(0))
    missing = {one["form"] for one in run["missing"]}
    assert [part["setting"] for part in run["parts"]] == [
        {"threads": number} for number in sorted({1, cpus})
    ]
    for part in run["parts"]:
        names = {one["name"] for one in part["forms"]}
        assert names >= OURS | CONTROLS
        assert names | missing >= PEERS
        for one in part["forms"]:
            assert [len(rounds) >= 12 for rounds in one["samples"]] == [True]
            assert one["executions"] >= 4
            assert one["verdict"]


def test_who_listens_has_counted_every_execution(kept) -> None:
    for part in run_of(kept)["parts"]:
        for one in part["forms"]:
            if one["name"] in CONTROLS or "dormant" in one["name"]:
                assert "counted" not in one
            else:
                counted = 0 if "says no" in one["name"] else one["executed"]
                assert one["counted"] == counted, one["name"]
                assert one["executed"] > 0


def test_a_miscount_is_never_the_reason_for_something_missing(kept) -> None:
    for one in run_of(kept)["missing"]:
        assert "no figure" not in one["why"], one


def test_the_report_and_the_table_have_it(kept) -> None:
    done, path = kept
    run = run_of(kept)
    page = path.with_suffix(".html").read_text()

    assert page.count("<svg") == len(run["parts"]) + (len(run["parts"]) > 1)
    assert "To count, " in page
    for name in OURS:  # the name of a longer form may begin so, and go on with a word
        assert len(re.findall(f" {name} +\\W", done.stdout)) == len(run["parts"]), name
        assert name in page
    for one in run["missing"]:
        assert f"not measured: {one['form']}" in done.stdout


def test_with_one_cpu_it_says_so_and_measures_one_thread(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    alone = partial(os.sched_setaffinity, 0, {min(os.sched_getaffinity(0))})

    with running("bench", "active", "--seconds", "0.1", "--layouts", "1", "--json", path,
                 preexec_fn=alone) as bench:  # fmt: skip
        _, errors = bench.communicate()

    assert bench.returncode == 0, errors
    run = json.loads(path.read_text())
    assert [part["setting"]["threads"] for part in run["parts"]] == [1]
    (why,) = (one["why"] for one in run["missing"] if one["form"] == "more than one thread")
    assert "one CPU" in why


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_leaves_no_process_behind(
    tmp_path: Path,
    end: signal.Signals,
    needs_tool: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needs_tool("gdb", "gdb")
    monkeypatch.setitem(ENVIRONMENT, "TMPDIR", str(tmp_path))  # who is killed leaves files
    with running("bench", "active", "--seconds", "60", "--layouts", "1") as bench:
        wait_until(  # seldom: it looks at all processes, on the CPUs of those that compile
            lambda: names(children(bench.pid)) >= CHILDREN, "all of them", 120, every_s=0.05
        )
        left = children(bench.pid)
        bench.send_signal(end)
        bench.communicate()

    wait_until(lambda: not any(is_there(one) for one in left), "their end")


def children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def names(processes: list[psutil.Process]) -> set[str]:
    found = set()
    for one in processes:
        with suppress(psutil.NoSuchProcess):  # a compiler, which has ended
            found.add(one.name())
    return found


def is_there(one: psutil.Process) -> bool:
    try:
        return one.is_running() and one.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_forms_that_are_asked_for_are_measured_with_their_baseline_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    names = {"jump, count", "jump, record without time", "jump, record one of two ints"}
    only = [word for name in names for word in ("--only", name)]

    done = cli("bench", "active", *only, "--seconds", "0.1", "--layouts", "1", "--json", path,
               )  # fmt: skip

    assert done.returncode == 0, done.stderr
    for part in json.loads(path.read_text())["parts"]:
        forms = {one["name"]: one for one in part["forms"]}
        assert forms.keys() == (CONTROLS - {"rdtsc"}) | names
        assert all(forms[name]["counted"] == forms[name]["executed"] > 0 for name in names)


def test_every_option_and_every_size_of_event_records_every_execution(tmp_path: Path) -> None:
    path = tmp_path / "a.json"

    done = cli("bench", "active", "--only", "jump, record*", "--seconds", "0.1", "--layouts", "2",
               "--json", path)  # fmt: skip

    assert done.returncode == 0, done.stderr
    run = json.loads(path.read_text())
    assert run["missing"] == [] or len(os.sched_getaffinity(0)) == 1
    for part in run["parts"]:
        recorded = [one for one in part["forms"] if "record" in one["name"]]
        assert len(recorded) == sum(one.form.name.startswith("jump, record") for one in FORMS)
        assert all(one["counted"] == one["executed"] > 0 for one in recorded)

"""`markerjit bench active` as its user meets it. Its figures are for people; what is looked at here
is that everything was measured or named, that who listens has counted everything, and that nothing
of it is left."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from markerjit.apps.bench.active.listened import FORMS
from markerjit.apps.bench.active.words import answer, better
from markerjit.apps.bench.report.svg import clean
from markerjit.apps.bench.sampling.build import why_missing
from markerjit.apps.bench.sampling.form import YARDSTICKS
from markerjit.apps.bench.sampling.shapes import report
from tests.support.commands import ENVIRONMENT, cli, running
from tests.support.timing import wait_until

pytestmark = pytest.mark.live

OURS = {
    f"{mode}, {does}"
    for mode in ("jump", "nop", "pointer", "int3")
    for does in ("dormant", "empty probe", "count", "record")
} | {"jump, flight recorder"}
CONTROLS = {"no marker", "no marker, again", "call", "call by pointer", "rdtsc"}
PEERS = {"uprobe, 1-byte no-op", "uprobe, 5-byte no-op", "uprobe, record", "ptrace", "gdb"}
BPFTRACE = {
    f"bpftrace, {does}"
    for does in ("count", "count by an int", "count by a text of 5", "histogram of an int")
}
CHILDREN = {"crew", "tracer", "gdb"}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """A short run, and the file with its samples."""
    path = tmp_path_factory.mktemp("bench") / "a.json"
    done = cli("bench", "active", "--seconds", "0.3", "--layouts", "1", "--json", path,
               "--html", path.with_suffix(".html"))  # fmt: skip
    return done, path


def run_of(kept: tuple[subprocess.CompletedProcess[str], Path]) -> dict[str, Any]:
    done, path = kept
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text())


def test_every_form_is_measured_or_named(kept) -> None:
    run = run_of(kept)

    cpus = len(os.sched_getaffinity(0))
    missing = {entry["form"] for entry in run["missing"]}
    assert [part["setting"] for part in run["parts"]] == [
        {"threads": number} for number in sorted({1, cpus})
    ]
    for part in run["parts"]:
        names = {form["name"] for form in part["forms"]}
        assert names >= OURS | CONTROLS
        assert names | missing >= PEERS
        for form in part["forms"]:
            assert [len(rounds) >= 12 for rounds in form["samples"]] == [True]
            assert form["executions"] >= 4
            assert form["verdict"]


def test_who_listens_has_counted_every_execution(kept) -> None:
    for part in run_of(kept)["parts"]:
        for form in part["forms"]:
            if form["name"] in CONTROLS or "dormant" in form["name"]:
                assert "counted" not in form
            else:
                counted = 0 if "says no" in form["name"] else form["executed"]
                assert form["counted"] == counted, form["name"]
                assert form["executed"] > 0


def test_a_miscount_is_never_the_reason_for_something_missing(kept) -> None:
    for entry in run_of(kept)["missing"]:
        assert "no figure" not in entry["why"], entry


def test_the_report_and_the_table_have_it(kept) -> None:
    done, path = kept
    run = run_of(kept)
    page = path.with_suffix(".html").read_text()

    assert page.count("<svg") == len(run["parts"]) + (len(run["parts"]) > 1)
    sentences = [*answer(parts := report(run).parts), *better(parts)]  # of whatever was measured
    assert len(sentences) > len(parts)  # an answer of each, and what was found of peers
    text = page.replace("<b>", "").replace("</b>", "")
    for sentence in sentences:
        assert clean(sentence) in text
    for name in OURS:  # the name of a longer form may begin so, and go on with a word
        assert len(re.findall(f" {name} +\\W", done.stdout)) == len(run["parts"]), name
        assert name in page
    for entry in run["missing"]:
        assert f"not measured: {entry['form']}" in done.stdout


def test_with_one_cpu_it_says_so_and_measures_one_thread(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    alone = partial(os.sched_setaffinity, 0, {min(os.sched_getaffinity(0))})

    with running("bench", "active", "--only", "jump, count", "--seconds", "0.1", "--layouts", "1",
                 "--json", path, preexec_fn=alone) as bench:  # fmt: skip
        _, errors = bench.communicate()

    assert bench.returncode == 0, errors
    run = json.loads(path.read_text())
    assert [part["setting"]["threads"] for part in run["parts"]] == [1]
    (why,) = (entry["why"] for entry in run["missing"] if entry["form"] == "more than one thread")
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
    only = [word for name in ("jump, record", "ptrace", "gdb") for word in ("--only", name)]
    with running("bench", "active", *only, "--seconds", "60", "--layouts", "1") as bench:
        wait_until(  # seldom: it looks at all processes, on the CPUs of those that compile
            lambda: names(children(bench.pid)) >= CHILDREN, "all of them", 120, every_s=0.05
        )
        left = children(bench.pid)
        bench.send_signal(end)
        bench.communicate()

    wait_until(lambda: not any(is_there(process) for process in left), "their end")


def children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def names(processes: list[psutil.Process]) -> set[str]:
    alive = set()
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # a compiler, which has ended
            alive.add(process.name())
    return alive


def is_there(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
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
        forms = {form["name"]: form for form in part["forms"]}
        assert forms.keys() == (CONTROLS - {"call by pointer", "rdtsc"}) | names
        assert all(forms[name]["counted"] == forms[name]["executed"] > 0 for name in names)


def test_what_an_event_is_compared_with_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    only = [word for name in YARDSTICKS for word in ("--only", name)]

    done = cli("bench", "active", *only, "--seconds", "0.1", "--layouts", "1", "--json", path)

    assert done.returncode == 0, done.stderr
    for part in json.loads(path.read_text())["parts"]:
        assert {form["name"] for form in part["forms"]} == CONTROLS | {*YARDSTICKS}


def test_what_adds_up_has_every_execution(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    names = (
        "jump, count by an int", "jump, quantiles of an int", "jump, count by a text of 5",
        "jump, sum by an int", "jump, stat by an int", "jump, histogram of a float",
        "jump, count by a part of a text", "jump, latency by tid",
    )  # fmt: skip
    only = [word for name in names for word in ("--only", name)]

    done = cli("bench", "active", *only, "--seconds", "0.1", "--layouts", "1", "--json", path)

    assert done.returncode == 0, done.stderr
    for part in json.loads(path.read_text())["parts"]:
        forms = {form["name"]: form for form in part["forms"]}
        assert all(forms[name]["counted"] == forms[name]["executed"] > 0 for name in names)


def test_bpftrace_has_seen_every_execution(
    tmp_path: Path, needs_tool: Callable[[str, str], str]
) -> None:
    needs_tool("bpftrace", "bpftrace")
    if os.geteuid():
        pytest.skip("bpftrace needs root")
    path = tmp_path / "a.json"

    done = cli("bench", "active", "--only", "bpftrace*", "--seconds", "0.1", "--layouts", "2",
               "--json", path)  # fmt: skip

    assert done.returncode == 0, done.stderr
    for part in json.loads(path.read_text())["parts"]:
        forms = {form["name"]: form for form in part["forms"]}
        assert all(forms[name]["counted"] == forms[name]["executed"] > 0 for name in BPFTRACE)


def test_a_ring_that_is_full_or_in_the_cache_counts_every_execution(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    names = ("jump, full ring", "jump, flight recorder in the cache")

    done = cli("bench", "active", "--only", names[0], "--only", names[1], "--seconds", "0.1",
               "--layouts", "2", "--json", path)  # fmt: skip

    assert done.returncode == 0, done.stderr
    for part in json.loads(path.read_text())["parts"]:
        forms = {form["name"]: form for form in part["forms"]}
        assert all(forms[name]["counted"] == forms[name]["executed"] > 0 for name in names)


@pytest.fixture
def open_place(needs_tool: Callable[[str, str], str]) -> Iterator[Path]:
    """A folder that `nobody` may enter, as pytest's own are not, where there is LTTng. The pages
    that LTTng leaves in shared memory when its daemon is killed are removed."""
    for tool, package in (("lttng", "lttng-tools"), ("babeltrace2", "babeltrace2")):
        needs_tool(tool, package)
    form = next(way.form for way in FORMS if way.form.name == "LTTng-UST, record")
    if why := why_missing(form, "gcc", []):
        pytest.skip(why)
    pages = set(Path("/dev/shm").glob("lttng-ust-wait-*"))
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
    for page in set(Path("/dev/shm").glob("lttng-ust-wait-*")) - pages:
        page.unlink()


def test_lttng_has_recorded_every_execution_and_nothing_of_it_is_left(open_place: Path) -> None:
    path = open_place / "a.json"
    names = ("LTTng-UST, record", "LTTng-UST, record with thread id")

    environment = {**ENVIRONMENT, "TMPDIR": str(open_place)}
    with running("bench", "active", "--only", "LTTng*", "--seconds", "0.1", "--layouts", "2",
                 "--json", path, env=environment) as bench:  # fmt: skip
        _, errors = bench.communicate()

    assert bench.returncode == 0, errors
    for part in json.loads(path.read_text())["parts"]:
        forms = {form["name"]: form for form in part["forms"]}
        assert all(forms[name]["counted"] == forms[name]["executed"] > 0 for name in names)
        filtered = forms["LTTng-UST, a filter that says no"]
        assert (filtered["counted"], filtered["executed"] > 0) == (0, True)
    assert os.listdir(open_place) == ["a.json"]


def test_the_daemon_of_lttng_ends_when_the_bench_is_killed(open_place: Path) -> None:
    with running("bench", "active", "--only", "LTTng*", "--layouts", "1",
                 env={**ENVIRONMENT, "TMPDIR": str(open_place)}) as bench:  # fmt: skip
        wait_until(lambda: "lttng-sessiond" in names(children(bench.pid)), "its daemon")
        daemons = [child for child in children(bench.pid) if "lttng" in child.name()]
        bench.kill()
        bench.communicate()

    wait_until(lambda: not any(is_there(daemon) for daemon in daemons), "their end")


def measured(path: Path, only: str, layouts: int) -> Any:
    """The result of a short run of some forms."""
    done = cli("bench", "active", "--only", only, "--seconds", "0.1", "--layouts", layouts,
               "--json", path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text())


@pytest.mark.long("test_forms_that_are_asked_for_are_measured_with_their_baseline_alone")
def test_every_option_and_every_size_of_event_records_every_execution(tmp_path: Path) -> None:
    run = measured(tmp_path / "a.json", "jump, record*", 1)

    assert run["missing"] == [] or len(os.sched_getaffinity(0)) == 1
    for part in run["parts"]:
        recorded = [form for form in part["forms"] if "record" in form["name"]]
        assert len(recorded) == sum(way.form.name.startswith("jump, record") for way in FORMS)
        assert all(form["counted"] == form["executed"] > 0 for form in recorded)


def test_functions_are_counted_by_every_hook_that_can_be_had(tmp_path: Path) -> None:
    run = measured(tmp_path / "a.json", "function*", 1)

    missing = {entry["form"]: entry["why"] for entry in run["missing"]}
    assert not [why for why in missing.values() if "no figure" in why]
    names = {way.form.name for way in FORMS if way.form.name.startswith("function")}
    for part in run["parts"]:
        forms = {form["name"]: form for form in part["forms"]}
        assert forms.keys() | missing.keys() >= names
        counted = [form for form in forms.values() if "counted" in form]
        assert len(counted) >= 5
        assert all(form["counted"] == form["executed"] > 0 for form in counted)

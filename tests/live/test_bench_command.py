"""`markerjit bench` as its user meets it: that it measures, keeps and compares. Its figures are for
people; of them only what does not depend on time is looked at here."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import ENVIRONMENT, cli, one_line, running
from tests.support.timing import wait_until

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """A short run, and the file with its samples."""
    path = tmp_path_factory.mktemp("bench") / "a.json"
    done = cli("bench", "dormant", "--seconds", "0.3", "--parts", "0", "--layouts", "1",
               "--json", path, "--html", path.with_suffix(".html"))  # fmt: skip
    return done, path


def forms_of(run: dict[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    for part in run["parts"]:
        if part["kind"] == kind:
            yield {form["name"]: form for form in part["forms"]}


def test_every_form_is_measured_beside_no_marker_and_a_call(kept) -> None:
    done, path = kept
    run = json.loads(path.read_text())

    assert done.returncode == 0, done.stderr
    hot = list(forms_of(run, "hot"))
    assert len(hot) == 2, "arguments that are needed anyway, and those that are computed"
    for forms in hot:
        ours = {"no marker", "no marker, again", "jump", "nop", "symbol", "immediate", "pointer"}
        assert forms.keys() >= ours | {"sentinel", "direct", "5-byte no-op", "call"}
        for form in forms.values():
            layouts = form["samples"]
            assert len(layouts) == 1
            assert all(len(rounds) >= 12 for rounds in layouts)
            assert form["cost"]["low"] <= form["cost"]["value"] <= form["cost"]["high"]
            assert form["verdict"]
        assert forms["no marker"]["cost"] == {"value": 0.0, "low": 0.0, "high": 0.0}


def test_the_report_is_one_page_without_scripts_or_links_to_elsewhere(kept) -> None:
    _, path = kept
    page = path.with_suffix(".html").read_text()

    assert page.lower().startswith("<!doctype html>")
    assert page.count("<svg") >= 2
    assert "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")


def test_known_costs_stand_beside_what_was_measured(kept) -> None:
    _, path = kept
    (control,) = (
        part for part in json.loads(path.read_text())["parts"] if part["kind"] == "control"
    )

    assert [addition["more"] for addition in control["known"]] == [1, 2, 5]
    assert all({"known", "cost", "found"} <= addition.keys() for addition in control["known"])


def test_the_same_code_is_measured_against_itself_twenty_times(tmp_path: Path) -> None:
    path = tmp_path / "check.json"

    done = cli("bench", "check", "--seconds", "0.5", "--layouts", "1", "--json", path)

    assert "Traceback" not in done.stderr
    assert done.returncode == (0 if "the bench may be believed here" in done.stdout else 1)
    known, same = json.loads(path.read_text())["parts"]
    assert [addition["more"] for addition in known["known"]] == [1, 2, 5]
    assert sum(form["name"].startswith("the same, ") for form in same["forms"]) == 20
    assert same["noisy"] or "of 20 times the same code was not distinguishable" in done.stdout


def test_what_cannot_be_measured_is_named_with_its_package(kept) -> None:
    done, path = kept

    for entry in json.loads(path.read_text())["missing"]:
        assert f"not measured: {entry['form']}" in done.stdout
        assert "apt-get install" in entry["why"]


def test_a_run_compared_with_itself_differs_in_nothing(kept) -> None:
    _, path = kept

    done = cli("bench", "compare", path, path)

    assert (done.returncode, done.stderr) == (0, "")
    assert "not distinguishable" in done.stdout
    assert "more expensive" not in done.stdout
    assert "cheaper" not in done.stdout


def test_your_own_code_is_measured_in_every_mode(tmp_path: Path) -> None:
    source = tmp_path / "my.c"
    source.write_text(
        "#include <markerjit/marker.h>\n"
        "static volatile int total;\n"
        'void work(void) { total++; MARK(mine, "total %d", total); }\n'
    )
    path = tmp_path / "own.json"

    done = cli("bench", "--seconds", "0.5", "--layouts", "1", "--source", source,
               "--function", "work", "--json", path)  # fmt: skip

    assert done.returncode == 0, done.stderr
    (forms,) = forms_of(json.loads(path.read_text()), "own")
    assert set(forms) == {
        "no marker", "no marker, again", "jump", "nop", "symbol", "immediate", "pointer",
        "sentinel", "direct", "call",
    }  # fmt: skip


def test_what_cannot_be_measured_of_your_own_code_is_named(tmp_path: Path) -> None:
    source = tmp_path / "slow.c"
    source.write_text("#include <unistd.h>\nvoid work(void) { usleep(1000); }\n")
    own = ["--layouts", "1", "--source", source, "--function", "work"]

    done = cli("bench", "--seconds", "0.1", *own)

    assert done.returncode == 0, done.stderr
    assert "not measured: instructions: a round takes too long" in done.stdout
    assert "no verdict" in done.stdout, "a call does not stand out of a millisecond"

    source.write_text("void work(void) { __builtin_trap(); }\n")
    one_line(cli("bench", *own), "runner was ended by SIGILL")


@pytest.mark.parametrize(
    ("code", "function", "words"),
    [("int x = ;\n", "work", "expected expression"), ("\n", "nobody", "nobody")],
)
def test_a_source_that_does_not_compile_shows_what_the_compiler_says_once(
    tmp_path: Path, code: str, function: str, words: str
) -> None:
    source = tmp_path / "bad.c"
    source.write_text(code)

    done = cli("bench", "--source", source, "--function", function)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"markerjit: {source} does not compile"
    assert done.stderr.count("error: expected expression") <= 1
    assert words in done.stderr


@contextmanager
def existing(path: Path) -> Iterator[Path]:
    path.write_text("mine")
    yield path
    assert path.read_text() == "mine"


def test_nonsense_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with existing(tmp_path / "mine.json") as mine:
        one_line(cli("bench", "--json", mine), "exists already")
        one_line(cli("bench", "compare", mine, mine), "is not a result of markerjit bench")
    one_line(cli("bench", "--json", tmp_path / "no" / "x.json"), "no such directory")
    same = ["--json", tmp_path / "x", "--html", f"{tmp_path}/./x"]
    one_line(cli("bench", *same), "would be written twice")
    one_line(cli("bench", "compare", "a"), "compare takes two results")
    one_line(cli("bench", "compare", tmp_path / "x", tmp_path / "y"), "cannot read")
    one_line(cli("bench", "--source", tmp_path / "x.c", "--function", "f"), "there is no file")
    one_line(cli("bench", "--source", tmp_path / "x.c"), "--function NAME")
    own = ["--source", tmp_path / "x.c", "--function", "f"]
    one_line(cli("bench", "toggle", "check", *own), "measured alone; leave out toggle check")
    one_line(cli("bench", "--cc", "no-such-cc"), "no-such-cc is not here")
    for wrong in (["--args", "3"], ["--parts", "51"], ["--seconds", "x"], ["--layouts", "0"]):
        assert cli("bench", *wrong).returncode == 2
    assert "'3' is not a list of numbers out of 1, 2, 4, 8" in cli("bench", "--args", "3").stderr
    assert "'x' is not a list of numbers out of 0 … 50" in cli("bench", "--parts", "x").stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    with running(
        "bench", "dormant", "--seconds", "60", "--parts", "0", "--json", tmp_path / "x"
    ) as bench:
        wait_until(lambda: runners_of(bench.pid), "its runner", 120)
        (runner,) = runners_of(bench.pid)
        built = Path(Path(f"/proc/{runner}/cmdline").read_text().split("\0")[2])
        bench.send_signal(number)
        bench.communicate()

    wait_until(lambda: not Path(f"/proc/{runner}").exists(), "the runner's end")
    assert "markerjit-bench-" in built.parent.parent.name
    assert not built.parent.parent.exists()
    assert not (tmp_path / "x").exists()


def test_interrupted_run_gives_what_was_complete_and_says_so(tmp_path: Path) -> None:
    kept, page = tmp_path / "x.json", tmp_path / "x.html"
    first: set[int] = set()

    def is_at_second() -> bool:
        first.update(runners_of(bench.pid))
        return len(first) > 1

    with running(
        "bench", "dormant", "--seconds", "3", "--parts", "0", "--layouts", "1",
        "--json", kept, "--html", page,
    ) as bench:  # fmt: skip
        wait_until(is_at_second, "the runner of the second comparison", 120)
        bench.send_signal(signal.SIGINT)
        shown, remarks = bench.communicate()

    assert bench.returncode == 130
    run = json.loads(kept.read_text())
    done = len(run["parts"])
    assert 1 <= done < 3 and run["parts"][0]["kind"] == "control"
    assert run["machine"]["ended early"].startswith(f"interrupted after {done} comparison")
    assert "THE RUN ENDED EARLY: interrupted after" in shown
    assert "ended early" in page.read_text()
    assert f"every sample is in {kept}" in remarks


def test_a_run_without_time_for_all_measures_the_first_and_names_the_others(tmp_path: Path) -> None:
    path = tmp_path / "x.json"

    done = cli("bench", "--seconds", "1", "--layouts", "1", "--json", path)

    assert done.returncode == 0, done.stderr
    run = json.loads(path.read_text())
    assert [part["kind"] for part in run["parts"]] == ["control", "hot"]
    assert not run["parts"][1]["setting"]["computed"]
    shown = " ".join(done.stdout.split())
    for kind in ("dormant", "active", "toggle"):
        assert f"1 s do not hold it here; more --seconds, or markerjit bench {kind}" in shown


def test_second_run_takes_what_the_first_one_has_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    compiler = tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\necho x >>{tmp_path}/calls\nexec gcc "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setitem(ENVIRONMENT, "XDG_CACHE_HOME", str(cache))
    counts = []

    for _ in range(2):
        done = cli("bench", "active", "--seconds", "0.1", "--layouts", "1",
                   "--only", "jump, count", "--cc", compiler)  # fmt: skip
        assert done.returncode == 0, done.stderr
        counts.append((tmp_path / "calls").read_text().count("x"))

    assert counts[1] - counts[0] < counts[0] / 3
    assert any((cache / "markerjit" / "bench").iterdir())


def runners_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    runners = []
    for child in map(int, children):
        try:
            name = Path(f"/proc/{child}/comm").read_text().strip()
        except OSError:
            continue
        if name == "runner":
            runners.append(child)
    return runners

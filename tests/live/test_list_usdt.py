"""`markerjit list --usdt`: the USDT probes of a running program, and of a file."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import markerjit
from tests.support.commands import cli, facts, one_line
from tests.support.timing import Limited
from tests.support.usdt import build, debian

pytestmark = pytest.mark.live

PYTHON = "/usr/bin/python3.11"
long = partial(pytest.param, marks=pytest.mark.long)


@pytest.fixture
def python() -> Iterator[int]:
    """The pid of Debian's Python, running."""
    program = [debian(PYTHON), "-Ic", "print('ready', flush=True); input()"]
    pipe = subprocess.PIPE
    with Limited(program, stdin=pipe, stdout=pipe) as process:
        assert process.stdout and process.stdout.readline() == b"ready\n"
        yield process.pid
        process.kill()


def test_process_without_markers_says_that_it_has_usdt_probes(python: int) -> None:
    done = cli("list", python)

    start = f"process {python} has no markers; it has "
    assert done.stdout.startswith(start)
    assert done.stdout.endswith(" USDT probes; --usdt lists them\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert facts("list", python)["markers"] == []


def test_probes_of_a_process_are_listed_with_arguments_and_semaphore(python: int) -> None:
    done = cli("list", python, "python:function__e*", "--usdt")

    assert (done.returncode, done.stderr) == (0, "")
    (probe,) = facts("list", python, "python:function__e*", "--usdt")["probes"]
    (site,) = probe["sites"]
    assert site["operands"].count("@") == 3
    assert done.stdout == (
        "python:function__entry  1 site, semaphore not raised, in python3.11\n"
        "    file: string, function: string, line: int\n"
        f"    python3.11+{site['offset']:#x}: {site['operands']}\n"
    )


def test_probes_of_a_process_are_facts(python: int) -> None:
    listed = facts("list", python, "gc__*", "--usdt")

    assert listed["pid"] == python
    assert listed["problems"] == []
    assert [probe["name"] for probe in listed["probes"]] == ["python:gc__done", "python:gc__start"]
    (site,) = listed["probes"][0]["sites"]
    assert site["code"] == "90"
    assert site["raised"] == 0
    assert site["altered"] is None
    assert site["object"] == PYTHON
    assert listed["probes"][0]["fields"] == [{"name": "collected", "type": "int"}]


def test_pattern_that_matches_no_probe_is_refused(python: int) -> None:
    one_line(cli("list", python, "python:nothing", "--usdt"), "no USDT probe matches")


def test_probes_of_a_file_fit_into_80_columns() -> None:
    done = cli("list", debian("/usr/lib/postgresql/15/bin/postgres"), "--usdt")

    assert (done.returncode, done.stderr) == (0, "")
    first, fields, site = done.stdout.partition("postgresql:query__start ")[2].splitlines()[:3]
    assert (first, fields) == (" 1 site, in postgres", "    query: string")
    assert re.fullmatch(r"    postgres\+0x[0-9a-f]+: 8@\S+", site)
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "semaphore" not in done.stdout


def test_file_without_probes_says_so() -> None:
    assert cli("list", "/bin/true", "--usdt").stdout == "/bin/true has no USDT probes\n"


def test_process_and_its_notes_are_seen_from_python(tmp_path: Path) -> None:
    lines = ['PROBE seen, "8@%rax", raised', 'PROBE two, "8@%zax"']
    path = build(tmp_path, lines, "-shared", "-nostdlib", "-Wl,--build-id", name="libseen.so")
    ctypes.CDLL(str(path))

    with markerjit.View(os.getpid()) as view:
        probes, problems = view.usdt("made:seen")
    of_file = markerjit.list_file_usdt(str(path))

    assert [probe.name for probe in probes] == ["made:seen"]
    assert [state.raised for state in probes[0].states] == [0]
    assert any("%zax is not supported" in str(problem) for problem in problems)
    assert [probe.name for probe in of_file.probes] == ["made:seen"]
    assert len(of_file.problems) == 1


ENTRY, LINE = "python:function__entry", "python:line"


@pytest.mark.parametrize(
    "command",
    [
        "trace -d 0.1s", long("trace -d 0.1s --follow"), "trace -d 0.1s --follow -o {file}",
        long("count -d 0.1s"), "count -d 0.1s --follow", "latency -d 0.1s",
        "top -d 0.1s", long("top -d 0.1s --by cpu"),
        "export -d 0.1s", "on", "on -d 0.1s --follow --off-at-end", "flight start",
    ],
)  # fmt: skip
def test_probe_that_is_on_in_vain_is_said_to_be(python: int, command: str, tmp_path: Path) -> None:
    command = command.format(file=tmp_path / "events.jsonl")
    verb, *options = command.replace("flight start", "flight").split()
    words = [verb, *(["start"] if verb == "flight" else [])]
    other = ["python:function__return"] if verb == "latency" else []

    done = cli(*words, python, ENTRY, *other, *options)
    cli("off", python)
    (tmp_path / "events.jsonl").unlink(missing_ok=True)
    both = cli(*words, python, f"{ENTRY},{LINE}", *other, *options, "--breakpoints")

    sentence = f"markerjit: the program passes {ENTRY} only while {LINE} is on, too: "
    assert [line for line in done.stderr.splitlines() if " only while " in line] == [
        f"{sentence}'{ENTRY},{LINE}'"
    ]
    assert "only while" not in both.stderr
    assert done.returncode == both.returncode == 0


def test_probe_is_not_on_in_vain_where_somebody_looks_at_the_other_one(python: int) -> None:
    with markerjit.attach(python, breakpoints=True) as session:
        session.on(ENTRY)
        assert session.usdt_needs("python:*") == ((ENTRY, LINE),)
        assert session.usdt_needs(LINE) == session.usdt_needs("func:*") == ()
        session.on(LINE)
        assert session.usdt_needs("python:*") == ()
        session.off("python:*")
        assert session.usdt_needs("python:*") == ()

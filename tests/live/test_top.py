"""`top`: hits per second by marker, thread and field; and what was off is off afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.commands import cli, facts, one_line, running
from tests.support.markers import modes_of
from tests.support.programs import Target

pytestmark = pytest.mark.also_user


def looks_of(program: Target, *options: object) -> list[dict[str, Any]]:
    """Looks for a second, as JSON."""
    done = cli("top", program.pid, "truth_loop", *options, "-d", "1s", "--every", "250ms", "--json")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_hits_by_marker_are_those_that_the_program_counts(target: Callable) -> None:
    program = target("truth_threads", "2", "--rate", "1000")
    before = program.ask("counts")["truth_loop"]

    looks = looks_of(program)
    after = program.ask("counts")["truth_loop"]

    assert looks
    (row,) = looks[-1]["rows"]
    assert row["marker"] == "truth_loop"
    assert 0 < row["hits"] <= after - before
    rates = [row["rate"] * look["seconds"] for look in looks for row in look["rows"]]
    assert sum(rates) == pytest.approx(row["hits"], abs=len(looks))
    assert modes_of(program.pid)["truth_loop"] is None


@pytest.mark.parametrize(("key", "number"), [("thread", 3), ("i", 3), ("cpu", None)])
def test_hits_by_thread_and_field(target: Callable, key: str, number: int | None) -> None:
    program = target("truth_threads", "3", "--rate", "1000")

    looks = looks_of(program, "--by", key)

    rows = looks[-1]["rows"]
    assert number is None or len({row[key] for row in rows}) == number
    assert sum(row["hits"] for row in rows) > 0
    assert modes_of(program.pid)["truth_loop"] is None


def test_hits_by_two_keys(target: Callable) -> None:
    program = target("truth_threads", "2", "--rate", "1000")

    (row, *_) = looks_of(program, "--by", "marker,i", "--rows", "1")[-1]["rows"]

    assert row["marker"] == "truth_loop" and row["i"] in ("0", "1")


@pytest.mark.parametrize("key", ["marker", "i"])
def test_hits_of_several_processes_are_added_up_or_stand_apart(target: Callable, key: str) -> None:
    programs = [target("truth_threads", "1", "--rate", "1000") for _ in range(2)]
    pids = [program.pid for program in programs]
    words = ("truth_loop", "-d", "500ms", "--every", "60s", "--by")

    together = facts("top", ",".join(map(str, pids)), *words, key)
    apart = facts("top", ",".join(map(str, pids)), *words, f"process,{key}")

    (row,) = together["rows"]
    assert together["pids"] == apart["pids"] == pids
    assert row["hits"] > 0 and len(row) == 3
    assert sorted(row["process"] for row in apart["rows"]) == sorted(map(str, pids))
    assert all(row["hits"] > 0 and row[key] in ("truth_loop", "0") for row in apart["rows"])
    assert all(modes_of(pid)["truth_loop"] is None for pid in pids)


@pytest.mark.parametrize("key", ["marker", "i"])
def test_top_goes_on_with_the_processes_that_have_not_ended(target: Callable, key: str) -> None:
    first, second = (target("truth_threads", "1", "--rate", "1000", may_die=True) for _ in range(2))
    words = ("truth_loop", "--every", "100ms", "--json", "--by", f"process,{key}")

    with running("top", f"{first.pid},{second.pid}", *words) as top:
        top.stdout.readline()
        os.kill(first.pid, signal.SIGKILL)
        looks = [json.loads(top.stdout.readline()) for _ in range(4)]
        os.kill(second.pid, signal.SIGKILL)
        _, errors = top.communicate()

    rates = {row["process"]: row["rate"] for row in looks[-1]["rows"]}
    assert rates[str(first.pid)] == 0 < rates[str(second.pid)]
    assert all(row["rate"] >= 0 for look in looks for row in look["rows"])
    assert (top.returncode, "Traceback" in errors) == (1, False)


@pytest.mark.parametrize("key", ["marker", "thread"])
def test_an_end_before_the_first_look_is_looked_at(target: Callable, key: str) -> None:
    program = target("truth_threads", "2", "--rate", "1000")

    words = ("truth_loop", "--by", key, "--every", "60s", "-d", "300ms")
    look = facts("top", program.pid, *words)

    assert look["seconds"] < 60
    assert sum(row["hits"] for row in look["rows"]) > 0


def test_lines_in_a_pipe_and_the_end_by_a_signal(target: Callable) -> None:
    program = target("truth_threads", "2", "--rate", "1000")
    cli("on", program.pid, "truth_loop")

    with running("top", program.pid, "--every", "200ms") as top:
        head, header = top.stdout.readline(), top.stdout.readline()
        row = top.stdout.readline()
        top.send_signal(signal.SIGINT)
        _, errors = top.communicate()

    assert re.fullmatch(rf"process {program.pid}: [\d,]+ hits/s of \d+ markers?\n", head)
    assert header.split() == ["MARKER", "HITS/S", "HITS"]
    assert re.match(r"truth_loop +[\d,]+ +[\d,]+$", row)
    assert (top.returncode, errors) == (0, "")
    modes = modes_of(program.pid)
    assert modes.pop("truth_loop"), "it was on before"
    assert set(modes.values()) == {None}


@pytest.mark.parametrize("names", ["func:main", "truth_loop", "truth_loop,func:main"])
def test_what_is_on_already_is_counted_and_stays_on(target: Callable, names: str) -> None:
    program = target("truth_threads", "2", "--rate", "1000")
    cli("on", program.pid, names)

    done = cli("top", program.pid, names, "-d", "300ms", "--every", "60s", "--json")

    assert (done.returncode, done.stderr) == (0, "")
    hits = {row["marker"]: row["hits"] for row in json.loads(done.stdout)["rows"]}
    assert set(hits) == {*names.split(",")}
    assert hits.get("truth_loop", 1) > 0
    modes = modes_of(program.pid)
    assert all(modes[name] for name in names.split(","))


def test_a_killed_top_leaves_markers_that_have_a_deadline(target: Callable) -> None:
    program = target("truth_threads", "2", "--rate", "1000")

    with running("top", program.pid, "truth_loop", "--every", "200ms") as top:
        top.stdout.readline()
        top.kill()
        top.wait()

    (marker,) = facts("status", program.pid, "truth_loop")["markers"]
    assert marker["on"] and marker["until"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--by", "nothing"), "nothing"),
        (("--by", ""), "has an empty name"),
        (("nothing",), "nothing"),
    ],
)
def test_what_is_not_there_is_one_line(
    target: Callable, options: tuple[str, ...], reason: str
) -> None:
    program = target("truth_threads", "1", "--rate", "100")

    done = cli("top", program.pid, *options, "-d", "100ms")

    one_line(done, reason)
    assert done.returncode == 1
    assert set(modes_of(program.pid).values()) == {None}

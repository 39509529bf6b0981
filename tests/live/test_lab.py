"""The lab: the story of each experiment is that of what happened, and its children stay alone.

A dangerous run may go well on a processor that forgives. Then it has to say so. Where the mechanism
is certain, the fault is asked for.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from markerjit.errors import Refused
from markerjit.lab import (
    EXPERIMENTS,
    Outcome,
    Run,
    conduct,
    five_bytes,
    inside,
    no_synchronising,
    two_bytes,
)
from markerjit.lab.child import ALIVE, Child
from tests.support.timing import Wait

pytestmark = [pytest.mark.live, pytest.mark.slow]

LETTERS = sorted(EXPERIMENTS)
CERTAIN = {"d", "g", "h"}
"""Those whose fault no processor forgives."""


@cache
def outcome(letter: str) -> Outcome:
    return conduct(EXPERIMENTS[letter], lambda *_: None)


def dangerous(letter: str) -> Run:
    return next(run for run in outcome(letter).runs if not run.is_safe)


@pytest.mark.parametrize("letter", LETTERS)
def test_a_run_with_all_its_safeties_goes_well(letter: str) -> None:
    safe = [run for run in outcome(letter).runs if run.is_safe]

    assert safe
    assert [run.story for run in safe if not run.went_well] == []
    assert all(run.ending == ALIVE and run.tries for run in safe)


@pytest.mark.parametrize("letter", LETTERS)
def test_the_story_names_the_signal_and_no_other(letter: str) -> None:
    for run in outcome(letter).runs:
        if run.ending == ALIVE:
            assert "died by" not in run.story
        else:
            assert f"died by {run.ending}." in run.story
            assert run.faults or not run.went_well


@pytest.mark.parametrize("letter", sorted(CERTAIN & EXPERIMENTS.keys()))
def test_a_certain_fault_shows_up(letter: str) -> None:
    assert dangerous(letter).faults > 0
    assert outcome(letter).answer == 0


@pytest.mark.parametrize(
    ("letter", "torn", "most"),
    [
        ("b", "executed a mixture", two_bytes.RAW_FLIPS),
        ("c", "to an end of neither", five_bytes.RAW_FLIPS),
        ("e", "to an end of neither", no_synchronising.FLIPS),
    ],
)
def test_a_mixture_is_counted_and_kills_or_did_not_show_up(
    letter: str, torn: str, most: int
) -> None:
    run = dangerous(letter)

    if run.counts[torn]:
        assert run.ending == "SIGILL"
        assert outcome(letter).answer == 0
    else:
        assert run.ending == ALIVE
        assert run.tries == most
        assert outcome(letter).answer == 1


def test_a_mixture_of_two_bytes_kills_where_it_is_written() -> None:
    with Child(two_bytes.image()) as child:
        child.change(
            two_bytes.SITE, two_bytes.OLD, two_bytes.TORN, goes_on=two_bytes.OLD_END
        )  # stopped, so that the whole mixture is executed and no other

        assert child.ending(10) == "SIGILL"
        assert child.word("torn") == 1


@pytest.mark.parametrize("end", five_bytes.TORN_ENDS)
def test_a_mixture_of_both_jumps_kills_where_it_is_written(end: int) -> None:
    """What a torn fetch would execute, without the luck of one."""
    torn = five_bytes.assembled(five_bytes.SITE, [f"jmp {end:#x}"])

    with Child(five_bytes.image()) as child:
        child.change(
            five_bytes.SITE, five_bytes.OLD, torn, goes_on=five_bytes.OLD_END
        )  # stopped, so that the whole mixture is executed and no other

        assert child.ending(10) == "SIGILL"
        assert child.word("torn") == 1


def test_the_breakpoint_protocol_leaves_no_mixture() -> None:
    (run,) = (run for run in outcome("c").runs if run.is_safe)

    assert run.tries == five_bytes.SAFE_FLIPS
    assert run.counts["to an end of neither"] == 0
    assert run.counts["to the old end"] > 0
    assert run.counts["to the new end"] > 0


def test_a_refused_change_writes_nothing() -> None:
    (run,) = (run for run in outcome("d").runs if run.is_safe)

    assert run.counts["refused"] == 1
    assert run.pictures[1].code == inside.SPAN


def test_the_copy_is_private_and_the_file_keeps_its_byte() -> None:
    (run,) = outcome("f").runs

    in_file, in_memory = run.pictures
    assert run.counts["private KiB after"] > run.counts["private KiB before"]
    assert in_file.code != in_memory.code


def test_a_thread_that_goes_astray_dies_in_its_child() -> None:
    with Child(inside.image()) as child:
        inside.wait_until_inside(child)
        child.poke(inside.WAIT, bytes(inside.image().bytes[:1]))  # of an image without code there

        assert child.ending(10) == "SIGSEGV"


def test_a_change_of_other_bytes_than_expected_is_refused() -> None:
    with Child(inside.image()) as child:
        inside.wait_until_inside(child)
        with pytest.raises(Refused):
            child.change(inside.SITE, inside.SPAN, inside.NEW)

        assert child.is_alive()


# ---- the command -------------------------------------------------------------------------------


def lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "markerjit", "lab", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_list_names_every_experiment() -> None:
    assert [line[0] for line in lab("list").stdout.splitlines()] == list(EXPERIMENTS)


def test_a_run_in_a_pipe_has_80_columns_and_no_colour() -> None:
    done = lab("run", "d", "f")

    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "[dangerous]" in done.stdout and "[safe]" in done.stdout


def test_json_has_the_runs_and_what_came_true() -> None:
    (experiment,) = json.loads(lab("run", "h", "--json").stdout)["experiments"]

    assert experiment["answer"] == 0
    assert experiment["safe_ways_hold"] is True
    assert [run["is_safe"] for run in experiment["runs"]] == [False, True]
    assert all(run["pictures"][0]["assembly"] for run in experiment["runs"])


def test_source_is_that_of_the_module() -> None:
    assert lab("source", "d").stdout == Path(inside.__file__).read_text()


@pytest.mark.parametrize(
    "arguments", [("run",), ("run", "zz"), ("run", "a", "--all"), ("source", "zz")]
)
def test_nonsense_is_one_line_and_exit_code_1(arguments: tuple[str, ...]) -> None:
    done = lab(*arguments)

    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_children_end_with_the_lab(number: signal.Signals) -> None:
    code = (
        "import sys\n"
        "from markerjit.lab import inside\n"
        "from markerjit.lab.child import Child\n"
        "with Child(inside.image()) as child:\n"
        "    print(child.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert parent.stdout and parent.stdin
    child = os.pidfd_open(int(parent.stdout.readline()))
    try:
        parent.send_signal(number)
        parent.wait(10)

        assert Wait("the end of a child").for_input(child) == [child]
    finally:
        parent.kill()
        parent.wait()
        parent.stdin.close()
        parent.stdout.close()
        os.close(child)

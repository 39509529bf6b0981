"""The lab: the story of each experiment is that of what happened, and its children stay alone.

A dangerous run may go well on a processor that forgives. Then it has to say so. Where the mechanism
is certain, the fault is asked for.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest

from markerjit.cli import lab as command
from markerjit.errors import MarkerError, Refused
from markerjit.facts.lab import outcome_facts
from markerjit.lab import (
    EXPERIMENTS,
    Outcome,
    Run,
    conduct,
    cost,
    five_bytes,
    inside,
    killed,
    no_synchronising,
    one_byte,
    registers,
    two_bytes,
)
from markerjit.lab.child import Child
from markerjit.lab.mixture import SAFE_FLIPS, Span
from markerjit.lab.processes import ALIVE
from markerjit.lab.program import Program
from tests.support.choice import spacing
from tests.support.commands import cli
from tests.support.timing import HANG_S, Limited, Wait, wait_until

pytestmark = [pytest.mark.live, pytest.mark.slow]

LETTERS = sorted(EXPERIMENTS)
CERTAIN = {"d", "g", "h"}
"""Those whose fault no processor forgives."""


RAW = {
    "b": (two_bytes, "RAW_FLIPS"),
    "c": (five_bytes, "RAW_FLIPS"),
    "e": (no_synchronising, "FLIPS"),
}
"""How often bytes are changed until a thread executes a mixture, which not every processor does.
Where the tests are chosen, a fortieth of that."""
FLIPS = {**RAW, "a": (one_byte, "FLIPS")}
"""The same, and how often a byte is changed that may be."""


def most_flips(letter: str) -> int:
    module, name = FLIPS[letter]
    return int(getattr(module, name)) // spacing(40)


@cache
def outcome(letter: str) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        if letter in FLIPS:
            patch.setattr(*FLIPS[letter], most_flips(letter))
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
            assert re.search(rf"died by {run.ending}\b[^.]*\.", run.story)
            assert run.faults or not run.went_well


@pytest.mark.parametrize("letter", sorted(CERTAIN & EXPERIMENTS.keys()))
def test_a_certain_fault_shows_up(letter: str) -> None:
    assert dangerous(letter).faults > 0
    assert outcome(letter).answer == 0


@pytest.mark.parametrize("letter", RAW)
def test_a_mixture_is_counted_and_kills_or_did_not_show_up(letter: str) -> None:
    run = dangerous(letter)

    if run.counts["executed a mixture"]:
        assert run.ending == "SIGILL"
        assert outcome(letter).answer == 0
    else:
        assert run.ending == ALIVE
        assert run.tries == most_flips(letter)
        assert outcome(letter).answer == 1


@pytest.mark.parametrize("span", [five_bytes.SPAN, two_bytes.SPAN], ids=["five", "two"])
def test_a_mixture_kills_where_it_is_written(span: Span) -> None:
    """What a torn fetch would execute, without the luck of one: threads stand for the write."""
    for torn in span.mixtures:
        with Child(span.image()) as child:
            child.change(span.site, span.old, torn, goes_on=span.old_end)

            assert child.ending(HANG_S) == "SIGILL"
            assert child.word("torn") == 1


@pytest.mark.parametrize("letter", RAW)
def test_the_breakpoint_protocol_leaves_no_mixture(letter: str) -> None:
    (run,) = (run for run in outcome(letter).runs if run.is_safe)

    assert run.tries == SAFE_FLIPS
    assert run.counts["executed a mixture"] == 0
    assert run.counts["executed the old instruction"] + run.counts["executed the new one"] > 0


def test_a_refused_change_writes_nothing() -> None:
    (run,) = (run for run in outcome("d").runs if run.is_safe)

    assert run.counts["refused"] == 1
    assert run.pictures[1].code == inside.SPAN


def test_the_copy_is_private_and_the_file_keeps_its_byte() -> None:
    (run,) = outcome("f").runs

    in_file, in_memory = run.pictures
    assert run.counts["private KiB after"] > run.counts["private KiB before"]
    assert in_file.code != in_memory.code


def test_each_step_of_a_switch_is_left_once_and_repaired() -> None:
    left = {run.name: [picture.code.hex(" ") for picture in run.pictures]
            for run in outcome("j").runs}  # fmt: skip

    assert left == {
        "from off to jump, killed after 0 of 3 steps": ["eb 05", "eb 05", "eb 05"],
        "from off to jump, killed after 1 of 3 steps": ["eb 05", "eb 05", "eb 05"],
        "from off to jump, killed after 2 of 3 steps": ["eb 05", "eb 05", "eb 05"],
        "from off to jump, killed after 3 of 3 steps": ["eb 05", "eb 00", "eb 00"],
        "from int3 to jump, killed after 0 of 2 steps": ["cc 05", "cc 05", "cc 05"],
        "from int3 to jump, killed after 1 of 2 steps": ["cc 05", "cc 00", "cc 05"],
        "from int3 to jump, killed after 2 of 2 steps": ["cc 05", "eb 00", "eb 00"],
    }
    for run in outcome("j").runs:
        whole = "3 of 3" in run.name or "2 of 2" in run.name
        assert ("nothing to repair" in run.story) is whole
        assert ("is gone and left a change half done" in run.story) is not whole
        assert ("was taken back" in run.story) is not whole
        assert min(run.counts.values()) >= killed.PASSES


def die(pid: int, number: signal.Signals) -> None:
    """Return when the process is dead."""
    pidfd = os.pidfd_open(pid)
    try:
        os.kill(pid, number)
        assert Wait("the death of a program").for_input(pidfd)
    finally:
        os.close(pidfd)


def dies_when(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of experiment j dies at the end of a function of it, in the second trial."""
    function = getattr(killed, name)
    calls: list[object] = []

    def deadly(pid: int, *arguments: Any) -> Any:
        result = function(pid, *arguments)
        calls.append(result)
        if len(calls) == 2:
            die(pid, signal.SIGSEGV)
        return result

    monkeypatch.setattr(killed, name, deadly)


@pytest.mark.parametrize(
    ("name", "moment", "captions"),
    [
        pytest.param(
            "killed_after",
            "after the controller was killed",
            ["before"],
            marks=pytest.mark.long,
        ),
        ("repair", "after repair", ["before", "after the kill"]),
    ],
)
def test_a_program_that_dies_is_told_with_its_moment(
    name: str, moment: str, captions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the trials after it are made all the same."""
    dies_when(name, monkeypatch)

    seen = conduct(EXPERIMENTS["j"], lambda *_: None)

    assert [run.went_well for run in seen.runs] == [True, False, *[True] * 5]
    died = seen.runs[1]
    assert died.name == "from off to jump, killed after 1 of 3 steps"
    assert (died.ending, died.faults) == ("SIGSEGV", 1)
    assert died.story == f"The program died by SIGSEGV {moment}."
    assert [picture.caption for picture in died.pictures] == captions
    assert seen.answer == 1
    assert not seen.safe_ways_hold


def test_a_program_that_dies_before_a_step_is_made_ends_its_trials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How many steps there would have been is not known then."""
    function = killed.killed_after

    def deadly(pid: int, mode: str, steps: int) -> int:
        if steps == 1:
            die(pid, signal.SIGKILL)
        return function(pid, mode, steps)

    monkeypatch.setattr(killed, "killed_after", deadly)

    seen = conduct(EXPERIMENTS["j"], lambda *_: None)

    assert [run.name for run in seen.runs if not run.went_well] == [
        "from off to jump, killed after 1 step",
        "from int3 to jump, killed after 1 step",
    ]
    assert len(seen.runs) == 4
    assert seen.runs[1].story == "The program died by SIGKILL while the controller made its steps."
    assert seen.runs[1].counts == {"passes after the kill": 0, "passes after repair": 0}


def test_a_controller_that_is_not_killed_is_an_error() -> None:
    with Program("lab_turns") as program, pytest.raises(MarkerError, match="ended before"):
        killed.killed_after(program.pid, "no-such-mode", 0)


def test_the_story_of_the_cost_is_that_of_the_figures() -> None:
    (run,) = outcome("i").runs

    assert run.chart
    assert [bar.name for bar in run.chart.bars] == list(cost.SHOWN.values())
    assert all(bar.low <= bar.value <= bar.high for bar in run.chart.bars)
    assert run.tries == run.counts["rounds, in which each form runs"] > 0
    assert outcome("i").answer == cost.answer_of(run.chart)
    if run.chart.noisy:
        assert run.chart.noisy in run.story
    elif outcome("i").answer in (1, 2):
        for name in ("a marker, off", "call"):
            assert f"{run.chart.bar(name).value:.2f} ns" in run.story
    else:
        assert "cannot be told" in run.story or "less" in run.story or "too close" in run.story


def test_an_ordinary_call_costs_a_function_that_does_not_make_it() -> None:
    bare, ordinary, preserving = (run.counts for run in outcome("k").runs)

    assert outcome("k").answer == 0
    assert ordinary["for the stack"] > 0
    assert bare["for the stack"] == preserving["for the stack"] == 0
    assert bare["instructions executed"] < preserving["instructions executed"]
    assert preserving["instructions executed"] < ordinary["instructions executed"]
    for run in outcome("k").runs:
        captions = [picture.caption for picture in run.pictures]
        assert run.counts["instructions executed"] == len(captions)
        assert run.counts["for the stack"] == captions.count("stack")
        assert captions.count("site") == int(run.name != "no marker")
        assert set(captions) <= {"stack", "site", "work"}
        assert run.counts["calls"] >= registers.CALLS
        assert run.counts["wrong results"] == 0


@pytest.mark.parametrize("code", ["740090c3", "9090", "ebfe"], ids=["branch", "no end", "circle"])
def test_code_that_is_not_one_way_is_not_counted(code: str) -> None:
    with pytest.raises(MarkerError, match="does not end in its return"):
        registers.path_of(bytes.fromhex(code))


def test_a_wrong_result_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registers, "RESULT", 0x30)

    run = registers.run_of(lambda *_: None, "leaf_bare", "no marker")

    assert run.counts["wrong results"] >= registers.CALLS
    assert not run.went_well


def test_a_program_that_is_not_built_is_an_error() -> None:
    with pytest.raises(MarkerError, match="is not built"):
        Program("no_such_program")


def test_a_thread_that_goes_astray_dies_in_its_child() -> None:
    with Child(inside.image()) as child:
        inside.wait_until_inside(child)
        child.poke(inside.WAIT, bytes(inside.image().bytes[:1]))  # of an image without code there

        assert child.ending(HANG_S) == "SIGSEGV"


def test_a_change_of_other_bytes_than_expected_is_refused() -> None:
    with Child(inside.image()) as child:
        inside.wait_until_inside(child)
        with pytest.raises(Refused):
            child.change(inside.SITE, inside.SPAN, inside.NEW)

        assert child.is_alive()


# ---- the command -------------------------------------------------------------------------------


def lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    return cli("lab", *arguments)


def test_list_names_every_experiment() -> None:
    assert [line[0] for line in lab("list").stdout.splitlines()] == list(EXPERIMENTS)


def test_a_run_in_a_pipe_has_80_columns_and_no_colour() -> None:
    done = lab("run", "d", "f")

    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "[dangerous]" in done.stdout and "[safe]" in done.stdout


@pytest.mark.parametrize("letter", LETTERS)
def test_what_is_shown_fits_and_has_captions(
    letter: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = outcome(letter)
    page = command._Page()
    page.ask(seen.experiment)
    page.show(seen, None)

    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for run in seen.runs:
        assert f"[{'safe' if run.is_safe else 'dangerous'}] {run.name}" in lines
        assert run.pictures or run.chart
        assert all(picture.caption for picture in run.pictures)
        assert " ".join(run.story.split()) in " ".join(" ".join(lines).split())


@pytest.mark.parametrize("letter", LETTERS)
def test_facts_of_an_outcome_are_json(letter: str) -> None:
    seen = json.loads(json.dumps(outcome_facts(outcome(letter))))

    assert seen["answer"] == outcome(letter).answer
    assert seen["answer"] is None or seen["choices"][seen["answer"]]
    assert [run["story"] for run in seen["runs"]] == [run.story for run in outcome(letter).runs]


def test_a_reader_that_has_gone_is_no_error() -> None:
    command = f"{sys.executable} -m markerjit lab run f | head -1; echo ${{PIPESTATUS[0]}}"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=HANG_S)

    assert done.stdout.splitlines()[1] == "0"
    assert done.stderr == ""


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


CHILDREN = {
    "an image": "from markerjit.lab.child import Child\nheld = Child(inside.image())\n",
    "a program": "from markerjit.lab.program import Program\nheld = Program('lab_turns')\n",
}


@pytest.mark.product
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("kind", CHILDREN)
def test_children_end_with_the_lab(kind: str, number: signal.Signals) -> None:
    code = (
        "import sys\n"
        "from markerjit.lab import inside\n"
        f"{CHILDREN[kind]}"
        "with held as child:\n"
        "    print(child.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    parent = Limited(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert parent.stdout and parent.stdin
    child = os.pidfd_open(int(parent.stdout.readline()))
    try:
        parent.send_signal(number)
        parent.wait(HANG_S)

        assert Wait("the end of a child").for_input(child) == [child]
    finally:
        parent.kill()
        parent.wait()
        parent.stdin.close()
        parent.stdout.close()
        os.close(child)


@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)],
)
def test_the_bench_ends_with_the_lab(number: signal.Signals) -> None:
    """It and the process in which its loops run. It would measure for an hour."""
    code = (
        "import signal\n"
        "from markerjit.lab import cost\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "cost.SECONDS = 3600\n"
        "cost.measured(lambda *_: None)\n"
    )
    lab = Limited([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    try:
        started: list[psutil.Process] = []

        def runs() -> bool:
            started[:] = psutil.Process(lab.pid).children(recursive=True)
            return len(started) == 2

        wait_until(runs, "the loops of the bench")
        lab.send_signal(number)
        lab.wait(HANG_S)
        wait_until(lambda: not any(map(is_alive, started)), "the end of the bench")
    finally:
        lab.kill()
        lab.wait()


def is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False

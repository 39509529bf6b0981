"""The active path that `explain` shows: its bytes are those in the memory of the process, also
where they were only planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import markerjit
from tests.support.c_probes import ANY
from tests.support.commands import cli, facts

pytestmark = pytest.mark.live

RECORDER = "the recorder of this marker"
RECORDED = [
    "registers are saved",
    "the restartable sequence is named to the kernel",
    "the CPU is read (the restartable sequence begins)",
    "the position in the ring is claimed",
    "the clock",
    "the record is written",
    "commit: the ring's head moves behind the record",
    "the sequence that counts is named",
    "the counter of this CPU is found",
    "commit: the execution is counted",
    "the way back",
]
COUNTED = [
    "registers are saved, the restartable sequence is named",
    "the counter of this CPU is found",
    "commit: the execution is counted",
    "the way back",
]
CALL = [
    "registers are saved, the marker's counters are found",
    "the counter of this CPU is found",
    "commit: the call has begun",
    "arguments are loaded, the function is called",
]
RETURN = [
    "the counter of this CPU is found",
    "commit: the call is over",
    "the way back",
]


def path_of(pid: int, marker: str, *options: str) -> dict[str, Any]:
    """The path of the only site of a marker."""
    (site,) = facts("explain", pid, marker, *options)["sites"]
    return dict(site["path"])


def all_parts(path: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*path["parts"], *path["rest"]]


def names(path: Mapping[str, Any]) -> list[str]:
    return [part["name"] for part in path["parts"]]


def check_in_memory(pid: int, parts: Sequence[Mapping[str, Any]]) -> None:
    """The bytes are there, and the assembly is of these bytes."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for part in parts:
            code = bytes.fromhex(part["bytes"])
            memory.seek(part["address"])
            assert memory.read(len(code)) == code, part["name"]
            assert all(line.startswith(f"{part['address']:x}") for line in part["code"][:1])
    assert parts


@pytest.mark.parametrize("mode", ["jump", "int3"])
@pytest.mark.parametrize(("probe", "behind"), [("count", COUNTED), ("record", RECORDED)])
def test_path_of_a_marker_that_is_on_is_what_stands_in_memory(
    target: Callable, probe: str, behind: list[str], mode: str
) -> None:
    pid = target("kvserver").pid
    cli("on", pid, "kv_accept", "--probe", probe, "--mode", mode)

    path = path_of(pid, "kv_accept")

    check_in_memory(pid, all_parts(path))
    assert all(part["in_memory"] for part in all_parts(path))
    assert path["mode"] == mode
    assert names(path)[0] == ("the head: a breakpoint" if mode == "int3"
                              else "the head: jumps to the body")  # fmt: skip
    assert names(path)[1] == "arguments are pushed, the probe is called"
    assert names(path)[4:-1] == behind
    assert names(path)[-1] == "back into the program"
    assert bool(path["remarks"]) == (mode == "int3")


@pytest.mark.product
@pytest.mark.parametrize("program", ["kvserver", "kvserver-nop", "kvserver-pointer"])
@pytest.mark.parametrize("probe", ["count", "record"])
def test_path_of_a_marker_that_is_off_is_what_a_switch_then_makes(
    target: Callable, program: str, probe: str
) -> None:
    pid = target(program).pid
    cli("on", pid, "kv_miss")  # the runtime is there now

    planned = path_of(pid, "kv_accept", "--probe", probe)
    cli("on", pid, "kv_accept", "--probe", probe)
    made = path_of(pid, "kv_accept")

    check_in_memory(pid, all_parts(planned))
    assert any(not part["in_memory"] for part in planned["parts"])
    assert names(planned) == names(made)
    assert [part["bytes"] for part in all_parts(planned)] == [
        part["bytes"] for part in all_parts(made)
    ]
    has_recorder = any(part["where"] == RECORDER for part in planned["parts"])
    assert has_recorder == (probe == "record")


def test_recorder_that_is_there_already_is_shown_as_it_is_in_memory(target: Callable) -> None:
    pid = target("kvserver").pid
    cli("on", pid, "kv_accept", "--probe", "record")
    on = path_of(pid, "kv_accept")
    cli("off", pid, "kv_accept")

    off = path_of(pid, "kv_accept", "--probe", "record")

    recorders = [[part for part in all_parts(path) if part["where"] == RECORDER]
                 for path in (on, off)]  # fmt: skip
    assert recorders[0] == recorders[1]
    check_in_memory(pid, recorders[1])
    planned = [part for part in off["parts"] if not part["in_memory"]]
    assert [part["role"] for part in planned] == ["head", "slot", "slot"]


def test_path_before_there_is_a_runtime_says_what_is_not_known(target: Callable) -> None:
    pid = target("kvserver").pid

    path = path_of(pid, "kv_accept")

    assert [part["role"] for part in path["parts"]] == ["head", "save", "back"]
    check_in_memory(pid, path["parts"][1:])
    assert "`on` puts it there" in path["remarks"][0]


def test_path_of_a_probe_in_c_has_the_adapter_and_the_function(
    target: Callable, probe: Callable
) -> None:
    pid = target("kvserver").pid
    function = probe(ANY, "any")
    on = cli("on", pid, "kv_accept", "--probe", function)

    path = path_of(pid, "kv_accept")

    assert on.returncode == 0, on.stderr
    check_in_memory(pid, all_parts(path))
    assert names(path)[5:-1] == [*CALL, Path(function).name, *RETURN]


UNPREPARED = pytest.mark.parametrize(
    ("program", "name"),
    [("truth_usdt", "truth:turn"), ("truth_functions", "func:landing"),
     ("truth_functions", "func:looping")],
)  # fmt: skip
ENTERED = [
    "steps over the red zone, saves %rax and the flags",
    "is there a probe?",
    "is it the probe that counts?",
]
LEFT = [
    "%rax, the flags and the stack as they were",
    "the instructions that the site lost",
    "back into the program",
]


def stub_parts(path: dict) -> list[str]:
    return [part["name"] for part in path["parts"] if part["where"].startswith("the stub")]


@UNPREPARED
def test_path_of_code_that_nobody_prepared_counts_in_its_stub(
    target: Callable, program: str, name: str
) -> None:
    pid = target(program).pid
    before = path_of(pid, name)
    cli("on", pid, name)

    path = path_of(pid, name)

    assert before["parts"] == []
    assert "gets its stub when" in before["remarks"][0]
    check_in_memory(pid, all_parts(path))
    assert stub_parts(path) == [
        *ENTERED,
        "the restartable sequence is named to the kernel",
        "the CPU is read (the restartable sequence begins)",
        "the counter of this CPU is found",
        "commit: the execution is counted",
        "the way back",
        *(["are the operands kept for exits?"] if name.startswith("func:") else []),
        *LEFT,
    ]
    assert not [part for part in names(path) if part in COUNTED[:1]]


@UNPREPARED
def test_path_of_code_that_nobody_prepared_records_in_its_stub(
    target: Callable, program: str, name: str
) -> None:
    pid = target(program).pid
    with markerjit.attach(pid) as session, session.trace(name):
        path = path_of(pid, name)

    executed = stub_parts(path)
    assert executed[:4] == [*ENTERED, "is it a recorder of records with this layout?"]
    assert "the record is written" in executed
    assert executed.count("the restartable sequence is named to the kernel") == 1
    assert executed[-3:] == LEFT


@UNPREPARED
def test_path_of_code_that_nobody_prepared_calls_a_probe_that_its_stub_does_not_know(
    target: Callable, program: str, name: str
) -> None:
    """One that counts what it records, for want of a reader."""
    pid = target(program).pid
    cli("on", pid, name, "--probe", "record")

    path = path_of(pid, name)

    check_in_memory(pid, all_parts(path))
    assert stub_parts(path) == [
        *ENTERED,
        "is it a recorder of records with this layout?",
        "nothing was done: as without a fast path",
        "is there a probe?",
        "the operands are pushed",
        "the slot and the shape are pushed",
        "the probe is called",
        *(["the operands are kept for the exits"] if name.startswith("func:") else []),
        "the words are taken off the stack",
        *LEFT,
    ]
    at = names(path).index("the probe is called") + 3
    assert names(path)[at : at + len(RECORDED)] == RECORDED


def test_recorder_that_was_made_otherwise_has_no_parts(target: Callable) -> None:
    pid = target("kvserver").pid
    cli("on", pid, "kv_accept", "--probe", "record")
    (clock,) = (part for part in path_of(pid, "kv_accept")["parts"] if part["name"] == "the clock")
    cli("off", pid, "kv_accept")
    with markerjit.View(pid) as view:
        arena = view._target.seen.arena
        assert arena
        arena.store.write(clock["address"] - arena.base, b"\x90\x90")

    path = path_of(pid, "kv_accept", "--probe", "record")

    assert not [part for part in all_parts(path) if part["where"] == RECORDER]
    assert "not as this markerjit makes it" in path["remarks"][-1]


@pytest.mark.parametrize("program", ["kvserver", "truth_usdt"])
def test_text_shows_each_byte_of_the_path_in_80_columns(target: Callable, program: str) -> None:
    pid = target(program).pid
    marker = "kv_accept" if program == "kvserver" else "truth:turn"
    cli("on", pid, marker, "--probe", "record")

    path = path_of(pid, marker)
    shown = cli("explain", pid, marker, "--path")
    summary = cli("explain", pid, marker).stdout.partition("  active path")[2].partition("\n\n")[0]

    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert max(map(len, [*lines, *summary.splitlines()])) <= 80
    printed = "".join(line[17:40] for line in lines if line[1:4] == "   ").replace(" ", "")
    assert printed == "".join(part["bytes"] for part in all_parts(path))
    for part in all_parts(path):
        assert part["name"] in shown.stdout
    for part in path["parts"]:
        assert f"{part['address']:x}  {len(part['bytes']) // 2:>3} bytes" in summary


def test_path_of_a_file_is_refused(target: Callable) -> None:
    program = target("kvserver")

    refused = cli("explain", program.path, "kv_accept", "--path")

    assert refused.returncode == 1
    assert "--path is for a process" in refused.stderr

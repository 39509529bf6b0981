"""The commands as a user runs them: output, exit codes, and what is left behind however they
end."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from markerjit.cli.costs import costs_of
from tests.support.commands import ROOT, cli, facts, one_line, running
from tests.support.markers import modes_of, wait_on
from tests.support.processes import text_of
from tests.support.server import Client
from tests.support.timing import wait_until

pytestmark = pytest.mark.user

SITE_KEYS = {"address", "object", "offset", "source"}
MARKER_KEYS = {"name", "format", "fields", "mode", "on", "sites"}
EVENT_KEYS = {"time", "cpu", "tid", "name", "fields"}


# ---- list, on, off, status, explain ------------------------------------------------------------


@pytest.mark.pythons
def test_list_tells_markers_fields_and_sites(target: Callable) -> None:
    pid = target("kvserver").pid

    document = facts("list", pid)
    text = cli("list", pid, "kv_h*")

    assert document["pid"] == pid
    markers = {marker["name"]: marker for marker in document["markers"]}
    assert set(markers) == {
        f"kv_{verb}" for verb in ["accept", "close", "command", "delete", "hit", "miss", "store"]
    }
    hit = markers["kv_hit"]
    assert set(hit) >= MARKER_KEYS
    assert set(hit["sites"][0]) >= SITE_KEYS
    assert [field["name"] for field in hit["fields"]] == ["key", "size"]
    assert (hit["on"], hit["mode"]) == (False, None)
    assert (text.returncode, text.stderr) == (0, "")
    assert "kv_hit" in text.stdout
    assert "kv_miss" not in text.stdout


def test_list_reads_a_file_as_it_reads_a_process(target: Callable) -> None:
    program = target("kvserver")

    of_file = facts("list", program.path)["markers"]
    of_process = facts("list", program.pid)["markers"]

    offsets = [
        {marker["name"]: [site["offset"] for site in marker["sites"]] for marker in markers}
        for markers in (of_file, of_process)
    ]
    assert offsets[0] == offsets[1]


@pytest.mark.pythons
@pytest.mark.parametrize("mode", ["jump", "int3"])
def test_on_status_and_off_agree_with_what_the_server_counts(target: Callable, mode: str) -> None:
    program = target("kvserver")
    text = text_of(program.pid)

    on = facts("on", program.pid, "kv_hit", "--mode", mode)
    with Client(program.ready["port"]) as client:
        client.ask("SET", "a", "1")
        for _ in range(10):
            client.ask("GET", "a")
        hits = client.counters()["hits"]
    during, shown = facts("status", program.pid), cli("status", program.pid)
    off = facts("off", program.pid, "kv_hit")

    assert [(marker["name"], marker["mode"]) for marker in on["markers"]] == [("kv_hit", mode)]
    markers = {marker["name"]: marker for marker in during["markers"]}
    assert [name for name, marker in markers.items() if marker["on"]] == ["kv_hit"]
    assert (markers["kv_hit"]["hits"], markers["kv_hit"]["lost"]) == (hits, 0) == (10, 0)
    assert abs(markers["kv_hit"]["since"] - time.time()) < 3600
    assert markers["kv_hit"]["by"] > 0
    assert "kv_hit" in shown.stdout
    assert mode in shown.stdout
    assert [marker["on"] for marker in off["markers"]] == [False]
    assert text_of(program.pid) == text


def test_on_and_off_twice_write_nothing_the_second_time(target: Callable) -> None:
    pid = target("kvserver").pid

    first, second = cli("on", pid, "kv_*"), cli("on", pid, "kv_*")
    third, fourth = cli("off", pid, "kv_*"), cli("off", pid, "kv_*")

    assert {first.returncode, second.returncode, third.returncode, fourth.returncode} == {0}
    assert "nothing had to be written" in second.stdout
    assert "nothing had to be written" in fourth.stdout


def test_off_with_a_pattern_of_markers_names_what_else_is_on(target: Callable) -> None:
    pid = target("kvserver").pid
    cli("on", pid, "kv_hit", "func:malloc")

    of_markers, whatever = cli("off", pid, "*"), cli("off", pid)

    assert "kv_hit: off, 1 site" in of_markers.stdout
    assert "func:malloc: " not in of_markers.stdout
    assert of_markers.stdout.splitlines()[-1] == (
        "still on: func:malloc; the pattern names markers. Without a pattern `off` switches off "
        "whatever is on"
    )
    assert "func:malloc: off, 1 site" in whatever.stdout and "still on" not in whatever.stdout


@pytest.mark.parametrize("mode", ["jump", "int3"])
def test_explain_shows_the_plan_that_on_applies(target: Callable, mode: str) -> None:
    pid = target("kvserver").pid

    document = facts("explain", pid, "kv_hit", "--mode", mode)
    shown = cli("explain", pid, "kv_hit", "--mode", mode)
    cli("on", pid, "kv_hit", "--mode", mode)

    code = [edit for edit in document["plan"]["edits"] if edit["code"]]
    assert len(code) == len(document["sites"]) == 1
    assert len(bytes.fromhex(code[0]["new"])) == 1
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(code[0]["address"])
        assert memory.read(1).hex() == code[0]["new"]
    assert shown.returncode == 0
    for step in document["plan"]["steps"]:
        assert f"  {step['number']}. {step['sentence']}" in shown.stdout
    for name, value in (("dormant", "eb 05"), ("active", "eb 00" if mode == "jump" else "cc")):
        assert name in shown.stdout
        assert value in shown.stdout


def test_explain_says_whose_the_page_of_a_site_is(target: Callable) -> None:
    program = target("kvserver")
    document, texts = {}, {}

    for step in ("before", "on", "off"):
        if step != "before":
            cli(step, program.pid, "kv_hit")
        document[step] = facts("explain", program.pid, "kv_hit")["sites"][0]
        texts[step] = cli("explain", program.pid, "kv_hit").stdout

    pages = {step: site["page"] for step, site in document.items()}
    assert [page["copied"] for page in pages.values()] == [False, True, True]
    for page in pages.values():
        assert page["access"] == "r-xp"
        assert page["path"] == str(program.path)
        assert page["address"] == document["on"]["address"] // 4096 * 4096
    assert "r-xp: as the file has it; a write makes a private copy" in texts["before"]
    for step in ("on", "off"):
        assert "r-xp: the process has its own copy of it" in texts[step]


@pytest.mark.parametrize("quiesce", ["stop", "membarrier", "none"])
def test_explain_of_a_file_plans_for_the_quiescence_that_is_chosen(
    build: Path, quiesce: str
) -> None:
    plan = facts("explain", build / "kvserver", "kv_hit", "--quiesce", quiesce)["plan"]

    assert plan["strategy"] == quiesce


def test_explain_all_has_the_plan_of_each_way(target: Callable) -> None:
    pid = target("kvserver").pid

    every = facts("explain", pid, "kv_hit", "--all")["ways"]
    ways = {(way["mode"], way["quiesce"]): way for way in every}
    alone = facts("explain", pid, "kv_hit", "--mode", "int3", "--quiesce", "membarrier")["plan"]

    assert set(ways) == set(product(["jump", "int3"], ["stop", "membarrier", "none"]))
    assert ways["int3", "membarrier"]["plan"]["steps"] == alone["steps"]
    assert {way["code_bytes"] for way in ways.values()} == {1}


def test_explain_all_has_what_a_hit_costs_by_a_result_of_the_bench(build: Path) -> None:
    result = ROOT / "bench/results/bench.json.gz"
    costs = costs_of(result)

    ways = facts("explain", build / "kvserver", "kv_hit", "--all", "--bench", result)["ways"]
    shown = cli("explain", build / "kvserver", "kv_hit", "--all", "--bench", result).stdout
    without = facts("explain", build / "kvserver", "kv_hit", "--all")["ways"]

    assert {way["mode"]: way["ns_a_hit"] for way in ways} == {
        "jump": costs["jump, count"], "int3": costs["int3, count"],
    }  # fmt: skip
    assert {way["ns_a_hit"] for way in without} == {None}
    assert "ns a hit" in shown
    assert f" {costs['jump, count']:.1f} " in shown


def test_explain_takes_a_result_of_the_bench_for_all_ways_only(build: Path) -> None:
    one_line(cli("explain", build / "kvserver", "kv_hit", "--bench", "x.json"), "add --all")
    one_line(
        cli("explain", build / "kvserver", "kv_hit", "--all", "--bench", "x.json"), "cannot read"
    )


def test_explain_all_says_which_way_is_refused(target: Callable) -> None:
    """From jump to int3 two bytes change: nothing synchronises the cores between them."""
    pid = target("kvserver").pid
    cli("on", pid, "kv_hit", "--mode", "jump")

    shown = cli("explain", pid, "kv_hit", "--all")
    switched = cli("on", pid, "kv_hit", "--mode", "int3", "--quiesce", "none")

    [refused] = [line for line in shown.stdout.splitlines() if "refused" in line]
    assert refused.split()[:2] == ["int3", "none"]
    assert switched.returncode == 1
    assert "use --quiesce stop" in switched.stderr
    assert modes_of(pid)["kv_hit"] == "jump"


def test_explain_all_takes_no_one_way(build: Path) -> None:
    shown = cli("explain", build / "kvserver", "kv_hit", "--all", "--mode", "int3")

    assert shown.returncode == 1
    assert "leave out --mode" in shown.stderr


def test_explain_reads_a_file(build: Path) -> None:
    document = facts("explain", build / "kvserver-nop", "kv_command")

    assert document["sites"][0]["name"] == "kv_command"
    assert document["sites"][0]["kind"] == "nop"


def test_doctor_speaks_of_the_system_and_of_a_process(target: Callable) -> None:
    pid = target("kvserver").pid

    for args in ([], [pid]):
        done = cli("doctor", *args)
        assert done.returncode == 0, done.stderr
        assert done.stdout
        assert isinstance(facts("doctor", *args), dict)
    assert cli("doctor", 2).returncode == 1
    assert modes_of(pid)


def test_patterns_of_several_kinds_are_one_switch(target: Callable) -> None:
    program = target("truth_functions")

    names = ("func:tur[n]", "func:truth_functions:{brief,landing}", "!func:brief")
    done = cli("on", program.pid, *names)
    states = cli("status", program.pid, "func:*", "--in", "truth_functions")
    program.ask("run 3")
    after = facts("status", program.pid)
    cli("off", program.pid, "func:*,!func:turn")
    left = facts("status", program.pid)

    assert done.stdout.splitlines()[:-1] == [
        "func:landing: on (jump, count), 1 site",
        "func:turn: on (jump, count), 1 site",
    ]
    assert "func:turn" in states.stdout
    hits = {marker["name"]: marker["hits"] for marker in after["markers"]}
    assert hits == {"func:landing": 3, "func:turn": 3}
    assert [marker["name"] for marker in left["markers"] if marker["on"]] == ["func:turn"]


@pytest.mark.parametrize("command", ["list", "on", "off", "status", "trace", "explain"])
def test_help_of_every_command_says_how_to_use_it(command: str) -> None:
    done = cli(command, "--help")

    assert done.returncode == 0
    assert f"markerjit {command}" in done.stdout
    assert "PID" in done.stdout


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["nonsense"],
        ["on"],
        ["on", "1"],
        ["on", "/abc", "kv_*"],
        ["on", "-5", "kv_*"],
        ["on", "1", "kv_*", "--mode", "magic"],
        ["trace", "1", "kv_*", "--events", "0"],
        ["trace", "1", "kv_*", "--duration", "long"],
        ["trace", "1", "kv_*", "--ring-size", "3"],
        ["status", "1", "kv_*", "2"],
    ],
)
def test_wrong_usage_exits_with_2_and_no_traceback(args: list[str]) -> None:
    done = cli(*args)

    assert done.returncode == 2
    if args:
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
        assert "--help` explains it" in done.stderr
    else:
        assert done.stdout.startswith("usage: markerjit")
        assert done.stderr == ""


# ---- trace and its ends ------------------------------------------------------------------------


def test_trace_prints_a_line_for_each_event(target: Callable) -> None:
    pid = target("truth_threads", "2", "--rate", "500").pid

    shown = cli("trace", pid, "truth_loop", "--events", 20)
    in_json = cli("trace", pid, "truth_loop", "--events", 20, "--json")

    line = re.compile(r"\d\d:\d\d:\d\d\.\d{9} cpu\d+ \d+ truth_loop i=[01] n=\d+")
    assert (shown.returncode, in_json.returncode, in_json.stderr) == (0, 0, "")
    assert len(shown.stdout.splitlines()) == 20
    assert all(line.fullmatch(text) for text in shown.stdout.splitlines())
    assert re.search(r"[\d,]+ events, 0 lost", shown.stderr)
    *events, last = map(json.loads, in_json.stdout.splitlines())
    assert len(events) == 20
    assert all(set(event) == EVENT_KEYS for event in events)
    assert all(set(event["fields"]) == {"i", "n"} for event in events)
    assert last["summary"]["lost"] == 0
    assert last["summary"]["events"] == 20, "the summary counts what was printed"


@pytest.mark.product
@pytest.mark.parametrize("mode", ["jump", "int3"])
@pytest.mark.parametrize("end", ["SIGINT", "SIGTERM", "SIGHUP", "duration", "events", "closed"])
def test_trace_leaves_everything_off_and_as_it_was(target: Callable, end: str, mode: str) -> None:
    program = target("truth_threads", "2", "--rate", "2000")
    text = text_of(program.pid)
    options = {"duration": ["--duration", "0.3"], "events": ["--events", "50"]}.get(end, [])

    with running("trace", program.pid, "truth_*", "--mode", mode, *options) as tracer:
        assert tracer.stdout is not None
        assert tracer.stderr is not None
        assert tracer.stdout.readline()
        if end == "closed":
            tracer.stdout.close()
            errors = tracer.stderr.read()
            tracer.wait()
        else:
            if end.startswith("SIG"):
                tracer.send_signal(signal.Signals[end])
            _, errors = tracer.communicate()

    assert tracer.returncode == 0, errors
    assert "Traceback" not in errors
    assert set(modes_of(program.pid).values()) == {None}
    assert text_of(program.pid) == text
    assert program.ask("counts")["truth_loop"] > 0


@pytest.mark.parametrize("count", [0, 1, 5000])
def test_trace_calls_a_function_with_every_event(
    target: Callable, tmp_path: Path, count: int
) -> None:
    program = target("truth_modes-jump")
    seen = tmp_path / "seen.py"
    seen.write_text("def tell(event):\n    print(event.name, event.fields['i'])\n")

    with running("trace", program.pid, "truth_mode", "--probe", f"{seen}:tell") as tracer:
        wait_on(program.pid, "truth_mode", tracer)
        program.command(f"run {count}")
        tracer.send_signal(signal.SIGINT)
        output, errors = tracer.communicate()

    assert output.splitlines() == [f"truth_mode {number}" for number in range(count)]
    assert errors == f"{count:,} event{'' if count == 1 else 's'}, 0 lost\n"


def test_trace_refuses_what_a_probe_of_ours_cannot_have(target: Callable, tmp_path: Path) -> None:
    program = target("truth_modes-jump")
    python, source = tmp_path / "f.py", tmp_path / "f.c"
    python.write_text("def tell(event): pass\n")
    source.write_text("#include <markerjit/probe.h>\nvoid f(struct mj_slot *slot, ...) {}\n")
    file = tmp_path / "x.jsonl"

    for options, why in (
        (("--probe", f"{python}:tell", "-o", file), "leave out -o"),
        (("--probe", f"{python}:nobody"), "has no function nobody"),
        (("--probe", f"{source}:f", "--time", "none"), "leave out --time"),
        (("--probe", f"{source}:f", "--text", "9"), "leave out --time"),
    ):
        one_line(cli("trace", program.pid, "truth_mode", *options), why)
    assert not file.exists()
    assert not any(modes_of(program.pid).values())


def test_trace_ends_though_its_reader_has_stopped_reading(target: Callable) -> None:
    program = target("truth_threads", "2", "--rate", "20000")
    text = text_of(program.pid)

    with running("trace", program.pid, "truth_loop") as tracer:
        in_poll = "7 "  # waiting in system call 7, for room in the pipe
        syscall = Path(f"/proc/{tracer.pid}/syscall")
        wait_until(
            lambda: tracer.poll() is not None or syscall.read_text().startswith(in_poll),
            "the tracer to wait for its reader",
        )
        tracer.send_signal(signal.SIGTERM)
        tracer.wait()

    assert set(modes_of(program.pid).values()) == {None}
    assert text_of(program.pid) == text


def test_signal_before_anything_is_on_still_ends_the_trace(target: Callable) -> None:
    program = target("truth_threads", "2", "--rate", "2000")
    text = text_of(program.pid)

    for _ in range(5):  # wherever in its start it is
        with running("trace", program.pid, "truth_*") as tracer:
            wait_until(
                lambda: "markerjit" in Path(f"/proc/{tracer.pid}/maps").read_text(),
                "the tracer to have begun",
            )
            tracer.send_signal(signal.SIGINT)
            _, errors = tracer.communicate()
        assert "Traceback" not in errors
        assert text_of(program.pid) == text


# ---- demo --------------------------------------------------------------------------------------


def test_demo_shows_all_that_it_promises() -> None:
    shown = cli("demo", "--rounds", "1", "--slice", "0.05")

    assert (shown.returncode, shown.stderr) == (0, "")
    assert "0 failed, 0 replies were wrong" in shown.stdout
    assert len(re.findall(r"three markers live after", shown.stdout)) == 3
    assert re.search(r"int3, on +\S+ +\d\.\d+", shown.stdout)

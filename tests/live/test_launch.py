"""A program that is started to be traced: no marker of its own is missed, and it is as if it had
been started by a shell."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator
from operator import add
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit.cli.end import End
from markerjit.cli.main import run
from markerjit.fleet.hold import Hold
from markerjit.memory import ProcessMemory, read_maps
from tests.support.commands import (
    CLI,
    ENVIRONMENT,
    cli,
    cli_reading,
    one_line,
    python_started,
    running,
)
from tests.support.programs import make
from tests.support.timing import HANG_S, Limited, wait_until, within

BUILDS = ("truth_start", "truth_start_static")
SU = Path("/usr/bin/su")
"""A program of root that is set-user-ID."""
NOBODY = 65534
WHOLE_LIFE = ["truth_constructed", "truth_main", "truth_end"]
needs_su = pytest.mark.skipif(
    not (SU.exists() and SU.stat().st_mode & stat.S_ISUID),
    reason=f"needs {SU}, set-user-ID (Debian package util-linux)",
)
in_both_builds = pytest.mark.parametrize("name", BUILDS)


@pytest.fixture(scope="module")
def start(build: Path) -> Callable[[str], Path]:
    return lambda name: build / name


def traced(*arguments: object, path: Path) -> tuple[subprocess.CompletedProcess[str], list[Any]]:
    """A trace into a file, and its events."""
    done = cli("trace", "*", "-o", path, "--", *arguments)
    return done, list(markerjit.open_trace(path).events())


# ---- what is counted ----------------------------------------------------------------------------


@in_both_builds
def test_markers_of_a_program_are_counted_from_its_first_constructor_on(
    name: str, start: Callable[[str], Path]
) -> None:
    done = cli("count", "truth_*", "--by", "name", "--json", "--", start(name), "exit", 5)

    answers = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 5 and not done.stderr
    assert {row["key"][0]: row["count"] for row in answers["rows"]} == dict.fromkeys(WHOLE_LIFE, 1)


@pytest.mark.parametrize("command", ["stat", "hist", "quantiles"])
def test_values_of_a_program_are_added_up_until_its_end(
    command: str, start: Callable[[str], Path]
) -> None:
    done = cli(command, "truth_end", "code", "--json", "--", start("truth_start"), "exit", 7)

    answers = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 7 and not done.stderr
    assert answers["events"] == 1


def test_time_between_markers_of_a_program_is_measured(start: Callable[[str], Path]) -> None:
    done = cli(
        "latency", "truth_main", "truth_end", "--json", "--", start("truth_start"), "exit", 3
    )

    answers = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 3 and not done.stderr
    assert (answers["pairs"], answers["begins"], answers["ends"]) == (1, 1, 1)


def test_program_goes_on_when_the_time_is_over_and_its_markers_are_off() -> None:
    words = ("count", "func:libc.so*:vfork", "-d", "50ms", "--", "/bin/sh", "-c")
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    line = "/bin/true; read line; echo over; exit 6"
    with running(*words, line, **streams, text=True) as command:
        counted = command.stdout.readline()
        printed, errors = command.communicate("go on\n")

    assert counted == "1 event\n"
    assert (command.returncode, printed, errors) == (6, "over\n", "")


def test_program_that_is_switched_on_is_told_of_at_its_end(start: Callable[[str], Path]) -> None:
    done = cli("on", "truth_*", "--json", "--", start("truth_start"), "exit", 5)
    table = cli("on", "truth_main", "--", start("truth_start"), "exit", 0)

    assert done.returncode == 5
    markers = json.loads(done.stdout.splitlines()[-1])["markers"]
    assert {marker["name"]: marker["hits"] for marker in markers} == dict.fromkeys(WHOLE_LIFE, 1)
    assert table.stdout.splitlines()[-2:] == ["MARKER      HITS  LOST", "truth_main     1     0"]


def test_program_that_is_switched_on_is_followed(start: Callable[[str], Path]) -> None:
    program = start("truth_start")
    line = f"{program} exit 1; {program} exit 2; exit 9"
    done = cli("on", "truth_main", "--follow", "--json", "--", "/bin/sh", "-c", line)

    facts = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 9
    assert facts["markers"] == [{"name": "truth_main", "programs": 2, "hits": 2, "lost": 0}]
    begin, *_ = done.stderr.splitlines()
    assert begin == (
        "nothing is on yet; what the program starts is followed until all of it has ended"
    )


# ---- what it calls and allocates -----------------------------------------------------------------


def counts_in(lines: Iterable[str]) -> dict[str, list[int]]:
    """The line `counts …` that a program has printed about itself."""
    (line,) = (line for line in lines if line.startswith("counts "))
    pairs = (word.split("=") for word in line.split()[1:])
    return {name: [int(number) for number in numbers.split(",")] for name, numbers in pairs}


@pytest.mark.parametrize(
    ("words", "only_kept"), [(["alloc"], False), (["recipe", "run", "libc-leaks"], True)]
)
def test_blocks_of_a_program_are_those_that_it_counts(
    start: Callable[[str], Path], words: list[str], only_kept: bool
) -> None:
    done = cli_reading("run 20\ncounts\nquit\n", *words, "--json", "--", start("truth_alloc"))

    *printed, document = done.stdout.splitlines()
    truth = {
        name: [blocks, asked, live]
        for name, (blocks, asked, _, live) in counts_in(printed).items()
        if live or not only_kept
    }
    seen = {name: [0, 0, 0] for name in truth}
    for each in json.loads(document)["sites"]:
        if sums := seen.get(each["site"]["function"]):
            sums[:] = map(add, sums, (each["allocations"], each["asked"], each["live"]))
    assert (done.returncode, done.stderr) == (0, "")
    assert len(truth) == (1 if only_kept else 12)
    assert seen == truth


def test_calls_of_a_program_are_those_that_it_counts(start: Callable[[str], Path]) -> None:
    text = "run 20\ncounts\nquit\n"
    done = cli_reading(text, "calls", "leaf,twice", "--json", "--", start("truth_calls"))

    *printed, document = done.stdout.splitlines()
    calls = {each["name"]: each["calls"] for each in json.loads(document)["functions"]}
    truth = counts_in(printed)
    assert (done.returncode, done.stderr) == (0, "")
    assert {name: [number] for name, number in calls.items()} == {
        name: truth[name] for name in ("leaf", "twice")
    }


def test_calls_of_a_stripped_program_are_those_of_all_its_functions() -> None:
    """Debian's ls has some names that libraries may call, and hundreds of functions."""
    named = json.loads(cli("list", "/bin/ls", "func:*", "--json").stdout)
    everything = json.loads(cli("list", "/bin/ls", "func:ls:**", "--json").stdout)
    done = cli("calls", "--breakpoints", "--json", "--", "/bin/ls", "/dev/null")

    graph = json.loads(done.stdout.splitlines()[-1])
    followed = {*graph["opened"], *(each["name"] for each in graph["not_opened"])}
    nameless = named["nameless"]["ls"]
    assert (done.returncode, done.stderr) == (0, "")
    assert len(everything["functions"]) == len(named["functions"]) + nameless > 100
    assert len(followed) == len(everything["functions"])
    assert graph["calls"] > 10


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["calls", "nosuch_*"], "no function matches 'func:nosuch_*'"),
        (["alloc", "--alloc", "nosuch", "--free", "truth_end"], "no marker matches 'nosuch'"),
        (["alloc", "--alloc", "truth_main"], "--alloc needs --free"),
        (["recipe", "list"], "list starts no program; leave out -- and the rest"),
        (["recipe", "run", "libc-leaks", "12"], "a program that is started is the target"),
        (["recipe", "run", "nosuch"], "there is no recipe nosuch"),
    ],
)
def test_a_program_does_not_run_without_what_was_to_be_followed(
    start: Callable[[str], Path], words: list[str], sentence: str
) -> None:
    done = cli(*words, "--", start("truth_start"), "exit", 5)

    one_line(done, re.escape(sentence))


# ---- with a flight recorder ----------------------------------------------------------------------


@in_both_builds
@pytest.mark.parametrize("end", ["exit 6", "kill 9"])
def test_what_a_program_was_recorded_of_is_saved_at_its_end(
    name: str, start: Callable[[str], Path], tmp_path: Path, end: str
) -> None:
    """From its own first constructor on."""
    path = tmp_path / "events.jsonl"
    how, number = end.split()

    done = cli("flight", "start", "truth_*", "-o", path, "--", start(name), how, number)

    assert done.returncode == (6 if how == "exit" else 128 + 9)
    names = [event.name for event in markerjit.open_trace(path).events()]
    assert names == WHOLE_LIFE[: 3 if how == "exit" else 2]
    assert f"{len(names)} events in {path}" in done.stdout
    ending = "ended with exit code 6" if how == "exit" else "was ended by SIGKILL"
    assert re.fullmatch(rf"process \d+ {ending}\n", done.stderr)


@pytest.mark.parametrize(("words", "is_saved"), [(["exit", 0], False), (["kill", 11], True)])
def test_only_a_program_that_crashes_is_saved(
    start: Callable[[str], Path], tmp_path: Path, words: list[object], is_saved: bool
) -> None:
    path = tmp_path / "events.jsonl"

    done = cli(
        "flight", "start", "truth_*", "-o", path, "--on-crash", "--", start("truth_start"), *words
    )

    assert done.returncode == (128 + 11 if is_saved else 0)
    assert path.exists() is is_saved


def test_recorder_of_a_program_can_be_dumped_while_that_runs(
    start: Callable[[str], Path], tmp_path: Path
) -> None:
    path = tmp_path / "events.jsonl"
    words = ["flight", "start", "truth_*", "--", start("truth_start"), "wait"]

    with running(*words, stdin=subprocess.PIPE) as recorder:
        assert recorder.stderr is not None
        line = recorder.stderr.readline()
        pid = re.search(r"flight dump (\d+)", line)
        assert pid, line
        wait_until(
            lambda: (
                "truth_main" in cli("flight", "dump", pid[1], "-o", path, "--force").stdout
                and len(list(markerjit.open_trace(path).events())) == 2
            ),
            "main",
        )
        recorder.communicate("")

    assert recorder.returncode == 0
    assert [event.name for event in markerjit.open_trace(path).events()] == WHOLE_LIFE[:2]


def test_programs_that_a_program_starts_are_saved_too(
    start: Callable[[str], Path], tmp_path: Path
) -> None:
    program, path = start("truth_start"), tmp_path / "all.ctf"
    line = f"{program} exit 1; {program} exit 2; exit 9"

    done = cli("flight", "start", "truth_*", "--follow", "-o", path, "--", "/bin/sh", "-c", line)

    assert done.returncode == 9, done.stderr
    traces = markerjit.open_traces(path)
    codes = [event.fields.get("code") for trace in traces for event in trace.events()]
    assert sorted(code for code in codes if code is not None) == [1, 2]
    assert len(codes) == 2 * len(WHOLE_LIFE)


@pytest.mark.parametrize("action", ["dump", "stop"])
def test_only_the_start_of_a_flight_recorder_starts_a_program(action: str) -> None:
    done = cli("flight", action, "-o", "x.ctf", "--", "/bin/true")

    assert done.returncode == 2
    assert "a program is started by flight start" in done.stderr


# ---- options that it cannot have -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--for", "3s"], "--for .* this one waits for the program"),
        (["-d", "3s"], "-d is for --follow .* ends on its own, and its markers with it"),
        (["--off-at-end"], "--off-at-end is for --follow .* and its markers with it"),
    ],
)
def test_option_that_a_command_cannot_have_which_starts_a_program(
    words: list[str], sentence: str
) -> None:
    one_line(cli("on", "truth_main", *words, "--", "/bin/true"), sentence)


def test_program_without_markers_is_named_by_its_file_since_it_is_gone() -> None:
    done = cli("on", "truth_main", "--", "true")

    assert done.returncode == 1
    assert f"markerjit list {shutil.which('true')} --usdt" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("interval", [[], ["--every", "50ms"]])
def test_programs_that_a_program_starts_are_counted_together(
    start: Callable[[str], Path], interval: list[str]
) -> None:
    program = start("truth_start")
    line = f"{program} exit 1; {program} exit 2; {program} exit 4; exit 9"
    done = cli(
        "stat", "truth_end", "code", *interval, "--json", "--follow", "--", "/bin/sh", "-c", line
    )

    answers = [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]
    rows = [row for answer in answers for row in answer["rows"]]
    assert done.returncode == 9
    assert {answer["pid"] for answer in answers} == {None}
    assert sum(row["count"] for row in rows) == 3
    assert sum(row["sum"] for row in rows) == 7
    if not interval:
        assert (rows[0]["min"], rows[0]["max"]) == (1, 4)


# ---- the events ----------------------------------------------------------------------------------


@in_both_builds
def test_program_is_traced_from_its_first_constructor_to_its_last_line(
    name: str, start: Callable[[str], Path], tmp_path: Path
) -> None:
    done, events = traced(start(name), "exit", 5, path=tmp_path / "trace.jsonl")

    assert done.returncode == 5
    assert done.stderr == f"3 events in {tmp_path / 'trace.jsonl'}, 0 lost\n"
    assert [event.name for event in events] == WHOLE_LIFE
    assert [event.fields for event in events[1:]] == [{"argc": 3}, {"code": 5}]


def test_events_and_what_the_program_prints_are_both_there(start: Callable[[str], Path]) -> None:
    done = cli("trace", "truth_main", "--json", "--", start("truth_start"), "exit", 0)

    assert done.returncode == 0
    printed = [line for line in done.stdout.splitlines() if not line.startswith("{")]
    assert printed[0] == "args exit 0"
    words = [line.split()[0] for line in printed[1:]]
    assert words[:5] == ["entry", "descriptors", "blocked", "ignored", "group"]
    *_, event, summary = map(json.loads, re.findall(r"^\{.*\}$", done.stdout, re.MULTILINE))
    assert event["name"] == "truth_main"
    assert summary["summary"]["events"] == 1


# ---- the program is as it would be --------------------------------------------------------------


@in_both_builds
def test_program_has_what_a_shell_would_give_it(
    name: str, start: Callable[[str], Path], tmp_path: Path
) -> None:
    words = [start(name), "-x", "--", "a b", ""]
    plain = subprocess.run(words, capture_output=True, text=True, check=True)

    tracing = [*CLI, "trace", "*", "-o", tmp_path / "trace.jsonl", "--", *words]
    done = subprocess.run(tracing, capture_output=True, text=True, check=True, env=ENVIRONMENT)

    assert done.stdout == plain.stdout.replace("descriptors 3", "descriptors 4")  # the runtime's
    assert "entry 1\n" in plain.stdout
    assert "args -x -- a b \n" in plain.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSEGV, signal.SIGKILL])
def test_signal_that_ends_the_program_is_in_the_exit_code(
    number: signal.Signals, start: Callable[[str], Path], tmp_path: Path
) -> None:
    done, events = traced(start("truth_start"), "kill", number, path=tmp_path / "trace.jsonl")

    assert done.returncode == 128 + number
    assert [event.name for event in events] == WHOLE_LIFE[:2]


def test_interrupt_of_the_terminal_is_the_programs(
    start: Callable[[str], Path], tmp_path: Path
) -> None:
    """Both get it, and the program handles it and ends in its own way."""
    path = tmp_path / "trace.jsonl"
    words = ("trace", "*", "-o", path, "--", start("truth_start"), "count")
    with running(*words, process_group=0) as tracer:
        assert tracer.stdout is not None
        line = next(line for line in tracer.stdout if line.startswith("counting"))
        assert line
        os.killpg(tracer.pid, signal.SIGINT)
        tracer.communicate()

    assert tracer.returncode == 7
    assert [event.name for event in markerjit.open_trace(path).events()] == WHOLE_LIFE


def test_signal_that_asks_us_to_end_is_passed_on(
    start: Callable[[str], Path], tmp_path: Path
) -> None:
    words = ("trace", "*", "-o", tmp_path / "trace.jsonl", "--", start("truth_start"), "count")
    with running(*words) as tracer:
        assert tracer.stdout is not None
        assert next(line for line in tracer.stdout if line.startswith("counting"))
        tracer.send_signal(signal.SIGTERM)
        tracer.communicate()

    assert tracer.returncode == 128 + signal.SIGTERM


def test_code_that_a_handler_has_asked_for_is_known_to_all(start: Callable[[str], Path]) -> None:
    """A signal comes while the program is waited for, and its handler sees that it has ended."""
    with markerjit.Launched([str(start("truth_start")), "exit", "6"]) as program:
        assert program.wait_until_held()
        program.go()
        wait_until(lambda: program.code is not None, "its end")
        program.send(signal.SIGKILL)

        assert program.wait() == program.code == 6


def test_program_goes_on_when_the_trace_is_over(
    start: Callable[[str], Path], tmp_path: Path
) -> None:
    words = ("trace", "*", "-o", tmp_path / "trace.jsonl", "--events", 2, "--")
    with running(*words, start("truth_start"), "wait", stdin=subprocess.PIPE) as tracer:
        assert tracer.stderr is not None
        assert tracer.stderr.readline().startswith("2 events in ")
        assert tracer.poll() is None
        tracer.communicate("")

    assert tracer.returncode == 0


# ---- what is refused -----------------------------------------------------------------------------


def refused(words: list[object], why: str) -> None:
    one_line(cli("trace", "*", "--", *words), why)


def test_program_that_cannot_be_started_is_refused_in_a_sentence(tmp_path: Path) -> None:
    script, text = tmp_path / "script", tmp_path / "text"
    script.write_text("true\n")
    script.chmod(0o755)
    text.write_text("true\n")
    text.chmod(0o644)

    refused(["no such program"], "there is no program 'no such program' on the path; give a pa")
    refused([tmp_path / "none"], "cannot execute /.*/none: No such file or directory$")
    refused([tmp_path], "cannot execute /.*: it is not a regular file$")
    refused([text], "cannot execute /.*/text: no permission")
    refused([script], r"cannot execute /.*/script: Exec format error \(a script needs #! and an")


@pytest.mark.parametrize("mode", [0o4755, 0o2755])
def test_program_that_would_give_us_our_own_rights_runs(
    mode: int, start: Callable[[str], Path], tmp_path: Path
) -> None:
    program = Path(shutil.copy(start("truth_start"), tmp_path))
    program.chmod(mode)

    done, events = traced(program, path=tmp_path / "trace.ctf")

    assert (done.returncode, [event.name for event in events]) == (0, WHOLE_LIFE), done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="a tracer that may not do everything is refused")
@pytest.mark.parametrize(("mode", "option"), [(0o4755, "-u"), (0o2755, "-g")])
def test_program_gives_its_rights_under_a_tracer_that_may_do_everything(
    mode: int, option: str, tmp_path: Path
) -> None:
    program = Path(shutil.copy("/usr/bin/id", tmp_path))
    os.chown(program, NOBODY, NOBODY)
    program.chmod(mode)

    alone = subprocess.run([program, option], capture_output=True, text=True, check=True)
    counted = cli("count", "func:libc.so*:malloc", "--", program, option)

    assert (counted.returncode, counted.stdout.splitlines()[:1]) == (0, [str(NOBODY)])
    assert alone.stdout == f"{NOBODY}\n"


@pytest.mark.user
@needs_su
@pytest.mark.skipif(os.geteuid() == 0, reason="root has the rights of root already")
def test_program_of_root_that_gives_its_rights_is_refused() -> None:
    refused([SU, "--version"], f"{SU} is set-user-ID, and would run without those rights; run mar")


@pytest.mark.user
@needs_su
def test_program_that_gives_its_rights_runs_when_a_program_that_is_followed_executes_it(
    start: Callable[[str], Path],
) -> None:
    """It runs with no more rights than the program that executes it."""
    words = ("sh", "-c", f"{start('truth_start')} && exec {SU} --version")

    done = cli("trace", "*", "--follow", "--", *words)

    assert done.returncode == 0, done.stderr
    assert "util-linux" in done.stdout


def test_program_that_cannot_be_traced_does_not_run(
    start: Callable[[str], Path], tmp_path: Path
) -> None:
    mark = tmp_path / "it ran"

    refused(["touch", mark], r"process \d+ has no markers.*: markerjit list \S+/touch --usdt$")
    program = start("truth_start")
    done = cli("trace", "nothing*", "--", program)

    assert not mark.exists()
    assert (done.returncode, done.stdout) == (1, "")
    advice = f"markerjit list {program} shows the markers"
    assert done.stderr == f"markerjit: no marker matches 'nothing*'; {advice}\n"


def test_interrupt_before_there_is_a_program_starts_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signals_kept: None
) -> None:
    mark = tmp_path / "it ran"
    monkeypatch.setattr(End, "has_come", True)

    assert run(["trace", "*", "--", "touch", str(mark)]) == 130
    assert not mark.exists()


@pytest.fixture
def signals_kept() -> Iterator[None]:
    """Handlers are as before afterwards: a command sets some."""
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler and handler is not None:
            signal.signal(number, handler)


def test_program_and_another_target_are_wrong_usage() -> None:
    for words in (("--user", "root", "*", "--", "true"), ("*", "--"), ("1", "*", "--", "true")):
        assert cli("trace", *words).returncode == 2


def test_program_that_ends_in_its_loader_has_that_exit_code(
    start: Callable[[str], Path], tmp_path: Path
) -> None:
    """Its library is not there."""
    make("build/targets/truth_start")
    program = tmp_path / "lacks"
    (tmp_path / "none.c").write_text("void none(void) {}\n")
    (tmp_path / "main.c").write_text("void none(void);\nint main(void) { none(); }\n")
    library = tmp_path / "libnone.so"
    subprocess.run(["cc", "-shared", "-o", library, tmp_path / "none.c"], check=True)
    subprocess.run(["cc", "-o", program, tmp_path / "main.c", library], check=True)
    library.unlink()

    done = cli("trace", "*", "--", program)

    assert done.returncode == 127
    assert "libnone.so: cannot open shared object file" in done.stderr
    assert done.stderr.endswith("markerjit: the program ended before its entry point\n")


# ---- nothing is left -----------------------------------------------------------------------------


@pytest.fixture
def waiting(start: Callable[[str], Path]) -> Iterator[markerjit.Launched]:
    """A program at its entry point."""
    command = [str(start("truth_start")), "count"]
    with markerjit.Launched(command) as program:
        assert program.wait_until_held()
        yield program
        program.send(signal.SIGKILL)


def code_of(pid: int) -> bytes:
    """All code of the program's file, to the end of its pages."""
    with ProcessMemory(pid) as memory:
        return b"".join(
            memory.read(mapping.start, mapping.size)
            for mapping in read_maps(pid)
            if mapping.executable and mapping.path.endswith("/truth_start")
        )


def test_program_that_was_let_go_has_the_code_of_its_file(
    waiting: markerjit.Launched, start: Callable[[str], Path]
) -> None:
    with Limited([start("truth_start"), "wait"], stdin=subprocess.PIPE) as plain:
        wait_until(lambda: code_of(plain.pid), "its code")
        expected = code_of(plain.pid)
        held = code_of(waiting.pid)
        with markerjit.attach(waiting.pid) as session, session.trace("*"):
            assert waiting.go()
        after = code_of(waiting.pid)
        plain.kill()

    assert held != expected
    assert after == expected


def test_the_hold_is_not_taken_away_while_the_program_is_inside(
    waiting: markerjit.Launched,
) -> None:
    """It is stopped in its sleep, from which it comes back to an instruction at which an edit may
    begin."""
    waiting.send(signal.SIGSTOP)
    wait_until(lambda: state_of(waiting.pid) == "T", "it is stopped")
    with ProcessMemory(waiting.pid) as memory:
        waiting._hold.release(memory)
        held = code_of(waiting.pid)
        assert not waiting._hold.try_to_remove(memory)
    after = code_of(waiting.pid)
    waiting.send(signal.SIGCONT)

    assert after == held
    assert waiting.go()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_program_that_is_let_go_at_once_runs(start: Callable[[str], Path]) -> None:
    """Its loader has not come to the hold yet."""
    with markerjit.Launched([str(start("truth_start")), "exit", "3"]) as program:
        assert program.go()
        assert program.wait() == 3


def test_program_that_waits_is_traced_by_nobody(waiting: markerjit.Launched) -> None:
    text = Path(f"/proc/{waiting.pid}/status").read_text()

    assert "TracerPid:\t0\n" in text
    assert re.search(r"^State:\s+[SR]", text, re.MULTILINE)


def test_program_begins_by_itself_when_its_patience_is_over(
    start: Callable[[str], Path],
) -> None:
    """The least patience, so that nothing has to be waited for."""
    with markerjit.Launched([str(start("truth_start")), "exit", "3"], patience=0.001) as program:
        assert program.wait() == 3
        assert not program.go()


def test_program_that_has_begun_by_itself_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As by a controller that was itself held up, and has never seen it wait."""
    monkeypatch.setattr(Hold, "is_waiting", lambda hold: False)

    with markerjit.Launched(["sleep", "1000"], patience=0.001) as program:
        within(HANG_S, program.wait_until_held)

        assert not program.go()
        assert program.code is None
        program.send(signal.SIGKILL)


@pytest.mark.parametrize("patience", [0, -1, "1", None, 1e9, float("nan")])
def test_patience_is_a_number_of_seconds(patience: Any) -> None:
    with pytest.raises(markerjit.BadArgument, match="patience"):
        markerjit.Launched(["true"], patience=patience)


def test_program_that_is_not_let_go_is_killed(start: Callable[[str], Path]) -> None:
    with markerjit.Launched([str(start("truth_start")), "exit", "3"]) as program:
        assert program.wait_until_held()

    assert program.code == 128 + signal.SIGKILL


HOLDS = """\
import sys, time, markerjit
program = markerjit.Launched(sys.argv[1:])
assert program.wait_until_held()
print(program.pid, flush=True)
time.sleep(600)
"""


def test_program_begins_by_itself_when_its_controller_is_killed(
    start: Callable[[str], Path], tmp_path: Path
) -> None:
    """It says goodbye into a pipe that only it has left, and nothing stays stopped."""
    command = ["python3", "-c", HOLDS, start("truth_start"), "exit", "0"]
    command[0] = CLI[0]
    with Limited(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as controller:
        assert controller.stdout is not None
        pid = int(controller.stdout.readline())
        held = Path(f"/proc/{pid}/stat").exists()
        controller.kill()
        output = controller.stdout.read()

    assert held
    assert output.startswith("args exit 0\n")
    assert "entry 1\n" in output


SEIZE = """\
import ctypes, sys
print(ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), 0, 0), flush=True)
input()
"""
KILLED = """\
import sys, markerjit
from markerjit.remote import native
from tests.races.killed import use_hooked_library
use_hooked_library()
native.library().mj_race_begin()
markerjit.Launched(sys.argv[1:])
print("not killed")
"""


@pytest.mark.product
@in_both_builds
@pytest.mark.parametrize(
    ("point", "begins"),
    [
        ("child made", False),
        ("executed", True),
        ("hold written", True),
        ("held", True),
        ("launched", True),
    ],
)
def test_controller_that_is_killed_while_it_launches_leaves_nothing_stopped(
    name: str, point: str, begins: bool, start: Callable[[str], Path]
) -> None:
    """The program runs to its end, or was never executed."""
    make("build/hooks/libmjstop.so")
    faults = {"MJ_KILL_POINT": point, "MJ_KILL_AT": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with python_started(
        KILLED, start(name), "exit", "9", environment=faults, **pipes
    ) as controller:
        printed, errors = controller.communicate()  # both ends: the program's, too

    assert controller.returncode == -signal.SIGKILL, errors
    assert printed.startswith("args exit 9\n") is begins
    assert printed.endswith("group 0\n") or not begins


@pytest.mark.product
def test_controller_that_is_killed_when_it_has_sent_a_program_to_its_hold_leaves_it_running(
    start: Callable[[str], Path],
) -> None:
    """Of a program without a loader; AT_ENTRY is written afterwards, and put back by the hold."""
    make("build/hooks/libmjstop.so")
    faults = {"MJ_KILL_POINT": "sent to its hold", "MJ_KILL_AT": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [start("truth_start_static"), "exit", "9"]
    with python_started(KILLED, *command, environment=faults, **pipes) as controller:
        printed, errors = controller.communicate()

    assert controller.returncode == -signal.SIGKILL, errors
    assert printed.startswith("args exit 9\n")
    assert "entry 1\n" in printed


def test_another_tracer_does_not_stop_a_launch_halfway(start: Callable[[str], Path]) -> None:
    """A debugger that comes while the program waits: its markers cannot be switched, which is said,
    and the program is not left behind. One that comes later is nobody's business."""
    with markerjit.Launched([str(start("truth_start")), "count"]) as program:
        assert program.wait_until_held()
        with Limited(
            [CLI[0], "-c", SEIZE, str(program.pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as tracer:
            assert tracer.stdout is not None
            assert tracer.stdout.readline() == b"0\n"
            with (
                markerjit.attach(program.pid) as session,
                pytest.raises(markerjit.NotPermitted, match=rf"by process {tracer.pid} "),
            ):
                session.enable("*")
            assert program.go()
            tracer.communicate(b"\n")
        program.send(signal.SIGTERM)

        assert program.wait() == 128 + signal.SIGTERM

"""A process and all that it starts, traced: each marker of each process is seen once, and the
program counts what it would have counted alone."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit.fleet.follower import Follower
from markerjit.fleet.hold import Hold
from markerjit.proc.children import children_of
from tests.support.commands import CLI, cli, one_line, python_started, running
from tests.support.filters import KILL, answers, container_filter
from tests.support.markers import has_arena
from tests.support.processes import state_of, text_of
from tests.support.programs import ROOT, Target, make
from tests.support.timing import HANG_S, Limited, wait_until, within

TIMES = {"fork": 5, "quick": 30, "exec": 5, "vfork": 5, "threads": 5}
in_every_way = pytest.mark.parametrize("way", TIMES)

FIRST, CHILD = 0, 1


def is_on(pid: int) -> bool:
    if not has_arena(pid):
        return False
    with markerjit.View(pid) as view:
        return any(marker.mode for marker in view.statistics())


def tracer_of(pid: int) -> int:
    (line,) = re.findall(r"TracerPid:\s*(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(line)


def turns(events: list[dict[str, Any]]) -> Counter[int]:
    return Counter(event["fields"]["who"] for event in events)


def check(counts: dict[str, Any], way: str, events: list[dict[str, Any]]) -> None:
    """What was seen is what the program counted, and no child of it came to harm."""
    children = TIMES[way] * (4 if way == "threads" else 1)

    assert counts["bad"] == 0
    assert counts["reaped"] == counts["turns"] == children
    assert counts["children"] == children * (1 if way == "quick" else 3)
    assert turns(events) == {FIRST: counts["turns"], CHILD: counts["children"]}
    assert all(event["pid"] == event["fields"]["pid"] for event in events)
    assert len({event["pid"] for event in events}) == children + 1
    assert events == sorted(events, key=lambda event: event["time"])


@in_every_way
def test_process_is_followed_from_its_pid_on(target: Callable, way: str) -> None:
    """The trace ends with the family."""
    program = target("truth_follow")
    before = text_of(program.pid)

    with running("trace", "--follow", program.pid, "truth_follow", "--json") as tracer:
        wait_until(lambda: is_on(program.pid), "a trace")
        counts = program.ask(f"{way} {TIMES[way]}")
        tracer.send_signal(signal.SIGINT)
        printed, errors = tracer.communicate()
    *events, summary = map(json.loads, printed.splitlines())

    assert tracer.returncode == 0
    assert summary["summary"]["events"] == len(events)
    assert summary["summary"]["lost"] == 0
    check(counts, way, events)
    assert "followed " in errors
    assert text_of(program.pid) == before
    assert tracer_of(program.pid) == 0


@in_every_way
def test_program_that_is_started_is_followed(way: str, build: Path) -> None:
    command = ["trace", "--follow", "truth_follow", "--json", "--", build / "truth_follow"]
    with running(*command, stdin=subprocess.PIPE) as tracer:
        printed, errors = tracer.communicate(f"{way} {TIMES[way]}\n")
    events = [json.loads(line) for line in re.findall(r"^\{.*\}$", printed, re.MULTILINE)][:-1]
    (answer,) = re.findall(rf"^{way} (.*)$", printed, re.MULTILINE)

    assert tracer.returncode == 0, errors
    assert "left out" not in errors
    check({name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", answer)}, way, events)


def test_programs_of_a_shell_script_are_followed(build: Path) -> None:
    """The shell has no markers, and its exit code is that of the trace."""
    start = build / "truth_start"
    script = f"{start} exit 5; (/bin/true; {start}_static exit 6); {start} exit 7; exit 9"
    done = cli("trace", "--follow", "*", "--json", "--", "sh", "-c", script)
    events = [json.loads(line) for line in re.findall(r"^\{.*\}$", done.stdout, re.MULTILINE)][:-1]

    assert done.returncode == 9, done.stderr
    assert [event["name"] for event in events] == [
        "truth_constructed", "truth_main", "truth_end",
    ] * 3  # fmt: skip
    assert [e["fields"]["code"] for e in events if e["name"] == "truth_end"] == [5, 6, 7]
    assert "no markers here match '*' yet" in done.stderr


def test_signals_and_job_control_reach_a_process_that_is_followed(target: Callable) -> None:
    program = target("truth_follow")

    with running("trace", "--follow", program.pid, "truth_follow", "--json") as tracer:
        wait_until(lambda: is_on(program.pid), "a trace")
        os.kill(program.pid, signal.SIGSTOP)
        wait_until(lambda: state_of(program.pid) in "tT", "the stop")
        os.kill(program.pid, signal.SIGCONT)
        counts = program.ask("fork 2")
        tracer.send_signal(signal.SIGINT)
        tracer.communicate()

    assert counts["children"] == 6
    assert tracer.returncode == 0


# ---- a controller that is killed -----------------------------------------------------------------

KILLED = """\
import sys, markerjit
from markerjit.remote import native
from tests.races.killed import use_hooked_library
use_hooked_library()
native.library().mj_race_begin()
request = lambda session: session.trace("truth_follow")
with markerjit.Family([int(sys.argv[1])], request) as family:
    print("follows", flush=True)
    while not family.is_over:
        family.poll()
        family.wait(0.02)
"""


long = partial(pytest.param, marks=pytest.mark.long)

BIRTHS = [("follow: child", 1), ("follow: child", 3), ("follow: parent", 1)]
RELEASE = ("follow: release", 1)
EXECUTIONS = [("follow: executed", 1), ("hold written", 1), ("follow: held", 2)]


@pytest.mark.parametrize(
    ("way", "point", "at"),
    [
        *(("exec", *point) for point in (*BIRTHS, RELEASE, *EXECUTIONS)),
        *(("vfork", *point) for point in (BIRTHS[0], EXECUTIONS[-1])),
        *(("threads", *point) for point in (BIRTHS[0], RELEASE)),
        *(long("vfork", *point) for point in (*BIRTHS[1:], *EXECUTIONS[:-1])),
        *(long("threads", *point) for point in BIRTHS[1:]),
    ],
)
def test_family_goes_on_when_its_controller_is_killed(
    target: Callable, way: str, point: str, at: int
) -> None:
    """No process of it stays behind, stopped, or came to harm."""
    program = target("truth_follow")

    with killed_at(program, point, at) as controller, controller.reaped():
        counts = program.ask(f"{way} {TIMES[way]}")

    assert controller.returncode == -signal.SIGKILL
    check_unharmed(program, way, counts)


@pytest.mark.slow
def test_child_that_is_held_goes_on_in_time_where_nobody_waits_for_the_killed_controller(
    target: Callable,
) -> None:
    """To the kernel it is there still, and the child waits its longest."""
    program = target("truth_follow")

    with killed_at(program, "follow: held", 2) as controller:
        counts = program.ask(f"exec {TIMES['exec']}")

    assert controller.wait() == -signal.SIGKILL
    check_unharmed(program, "exec", counts)


@contextmanager
def killed_at(program: Target, point: str, at: int) -> Iterator[Limited]:
    """A controller that follows a program, and is killed at this point."""
    make("build/hooks/libmjstop.so")
    faults = {"MJ_KILL_POINT": point, "MJ_KILL_AT": str(at)}
    pipe = subprocess.PIPE
    with python_started(KILLED, program.pid, environment=faults, stdout=pipe) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == "follows\n"
        yield controller


def check_unharmed(program: Target, way: str, counts: dict[str, int]) -> None:
    children = TIMES[way] * (4 if way == "threads" else 1)
    assert counts["bad"] == 0
    assert counts["reaped"] == counts["turns"] == children
    assert counts["children"] == 3 * children
    assert tracer_of(program.pid) == 0


# ---- under filters -------------------------------------------------------------------------------

NANOSLEEP, KILL_CALL = 35, 62

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="filters are read with CAP_SYS_ADMIN")


@contextmanager
def filtered_family(build: Path, folder: Path, code: bytes) -> Iterator[subprocess.Popen[str]]:
    """truth_follow under a filter, ready for commands."""
    path = folder / "filter"
    path.write_bytes(code)
    under = [sys.executable, "-m", "tests.support.under_filters", path, "--"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with Limited([*under, build / "truth_follow"], cwd=ROOT, **pipes) as program:
        assert program.stdout is not None
        assert program.stdin is not None
        assert program.stdout.readline().startswith("ready")
        yield program
        program.stdin.close()


def asked_once(
    program: subprocess.Popen[str], tracer: subprocess.Popen[str], command: str
) -> tuple[str, list[dict[str, Any]], str]:
    """The answer of a program that is traced to a command; the trace is ended then. Returns its
    events, and what it said on standard error, too."""
    wait_until(lambda: is_on(program.pid), "a trace")
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(f"{command}\n")
    program.stdin.flush()
    answer = program.stdout.readline()
    tracer.send_signal(signal.SIGINT)
    printed, errors = tracer.communicate()
    events = [line for line in map(json.loads, printed.splitlines()) if "name" in line]
    return answer, events, errors


@needs_root
@pytest.mark.parametrize("way", ["fork", "exec"])
def test_children_of_a_process_under_the_filter_of_a_container_are_followed(
    build: Path, tmp_path: Path, way: str
) -> None:
    with (
        filtered_family(build, tmp_path, container_filter()) as program,
        running("trace", "--follow", program.pid, "truth_follow", "--json") as tracer,
    ):
        answer, events, errors = asked_once(program, tracer, f"{way} 3")

    assert answer.split()[1:] == ["turns=3", "children=9", "bad=0", "reaped=3"]
    assert tracer.returncode == 0, errors
    assert turns(events) == {FIRST: 3, CHILD: 9}
    assert "not traced" not in errors


@needs_root
@pytest.mark.parametrize("number", [KILL_CALL, NANOSLEEP], ids=["kill", "nanosleep"])
def test_file_executed_under_a_filter_that_would_end_its_wait_runs_untraced(
    build: Path, tmp_path: Path, number: int
) -> None:
    """The family itself needs neither of these calls."""
    with (
        filtered_family(build, tmp_path, answers({number: KILL})) as program,
        running("trace", "--follow", program.pid, "truth_follow", "--json") as tracer,
    ):
        answer, events, errors = asked_once(program, tracer, "exec 2")

    assert answer.split()[1:] == ["turns=2", "children=6", "bad=0", "reaped=2"]
    assert turns(events) == {FIRST: 2}
    assert errors.count("under a seccomp filter that does not allow a wait there") == 2


@needs_root
def test_family_under_a_filter_that_would_kill_it_is_refused(build: Path, tmp_path: Path) -> None:
    restart_syscall = 219
    with filtered_family(build, tmp_path, answers({restart_syscall: KILL})) as program:
        done = cli("trace", "--follow", program.pid, "truth_follow")

        one_line(done, "does not allow restart_syscall: it kills the process")
        assert program.poll() is None
        assert tracer_of(program.pid) == 0


# ---- what is there already -----------------------------------------------------------------------

OF_A_SHELL = """
sh -c '"$0" <"$1" & wait' "$1" "$2" &
shift 2
read go
"$@" $$ truth_follow
"""
"""A shell that has a child, which has one of its own; and the command is its child, too."""


def test_what_a_process_had_started_before_is_followed_too(build: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    words = [*CLI, "trace", "--json", "--events", "4", "--follow"]
    with (
        Limited(
            ["sh", "-c", OF_A_SHELL, "sh", build / "truth_follow", pipe, *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as shell,
        open(pipe, "w") as asked,
    ):  # fmt: skip
        assert shell.stdin and shell.stdout
        assert shell.stdout.readline().startswith("ready")
        (middle,) = children_of(shell.pid)
        (program,) = children_of(middle)
        print(file=shell.stdin, flush=True)
        wait_until(lambda: is_on(program), "a trace")
        print("fork 1", file=asked, flush=True)
        shell.wait()
        asked.close()
        printed, errors = shell.communicate()

    *events, _ = (json.loads(line) for line in printed.splitlines() if line.startswith("{"))
    assert shell.returncode == 0, errors
    assert turns(events) == {FIRST: 1, CHILD: 3}
    assert "left out" not in errors
    assert "followed 2 programs with such markers and 2 without" in errors


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-o", "x.json"], "several programs are written"),
        (["--lossless"], "--lossless"),
        (["--resume"], "--resume"),
        (["--time", "none"], "--time none"),
    ],
)
def test_what_a_family_cannot_have_is_refused(
    target: Callable, words: list[str], sentence: str
) -> None:
    program = target("truth_follow")

    one_line(cli("trace", "--follow", program.pid, "*", *words), sentence)

    assert tracer_of(program.pid) == 0


@pytest.mark.parametrize(
    "words", [["count", "--by", "tdi"], ["trace", "--where", "tdi"], ["hist", "tdi"]]
)
def test_question_with_an_unknown_name_is_refused(target: Callable, words: list[str]) -> None:
    program = target("truth_follow")
    command, *rest = words

    done = cli(command, "--follow", "-d", "5s", program.pid, "truth_follow", *rest)

    assert done.returncode == 1
    assert "there is no name tdi; did you mean tid?" in done.stderr
    assert done.stdout == ""
    assert tracer_of(program.pid) == 0


@pytest.mark.parametrize(
    "words", [["count", "--by", "hwo"], ["trace", "--where", "hwo > 5"], ["hist", "hwo"]]
)
def test_question_that_is_wrong_for_the_first_program_with_such_markers_ends_the_answer(
    build: Path, words: list[str]
) -> None:
    """The shell, which has none, has begun by then, and goes on."""
    command, *rest = words
    leaf = build / "truth_follow"
    script = f"{leaf} leaf 5; {leaf} leaf 6; exit 9"

    done = cli(command, "--follow", "truth_follow", *rest, "--", "sh", "-c", script)

    assert done.returncode == 9
    assert done.stdout == ""
    assert done.stderr.count("there is no name hwo; did you mean who?") == 1
    assert "names: cpu, name, pid, stack, tid, time, who" in done.stderr


def test_question_that_is_right_for_some_programs_is_no_end(build: Path) -> None:
    script = f"{build}/truth_start exit 5 >&2; {build}/truth_follow leaf 3; exit 4"
    pattern = "truth_[ef]*"

    done = cli("count", "--follow", pattern, "--by", "code", "--json", "--", "sh", "-c", script)

    assert done.returncode == 4
    assert [row["key"] for row in json.loads(done.stdout)["rows"]] == [[5]], done.stderr


def test_program_that_did_not_wait_for_its_markers_is_named(build: Path) -> None:
    """Its request begins only when its patience was over, and it has ended."""

    def late(session: markerjit.Session) -> Any:
        if os.readlink(f"/proc/{session.pid}/exe") == f"{build}/truth_start":
            ended = os.pidfd_open(session.pid)
            assert select.select([ended], [], [], HANG_S)[0]
            os.close(ended)
        return session.trace("truth_exit")

    command = ["sh", "-c", f"{build}/truth_start exit 5; exit 4"]
    with markerjit.launch(command) as program:
        program.patience = 0.001
        with markerjit.Family([program.pid], late, program=program) as family:
            program.go()
            while not family.is_over:
                family.poll()
                family.wait(0.02)
            missed = family.missed

    assert program.code == 4
    (sentence,) = missed
    assert re.match(r"process \d+ ended before its markers were on, .* waits 0.001 s", sentence)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_program_that_cannot_see_us_waits_for_a_short_time(
    build: Path, needs_tool: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another pid namespace it cannot ask whether we are there."""
    waits: list[float] = []
    begin = markerjit.Family._begin_held

    def noted(family: markerjit.Family[Any], hold: Hold) -> None:
        waits.append(hold.patience_s)
        begin(family, hold)

    monkeypatch.setattr(markerjit.Family, "_begin_held", noted)
    unshare = needs_tool("unshare", "util-linux")
    command = [unshare, "--pid", "--fork", f"{build}/truth_start", "exit", "5"]
    for words in (command, ["sh", "-c", 'exec "$@"', "sh", *command[3:]]):
        with markerjit.launch(words, patience=600.0) as program:
            with markerjit.Family(
                [program.pid], lambda session: session.trace("*"), program=program
            ) as family:
                program.go()
                while not family.is_over:
                    family.poll()
                    family.wait(0.02)
            assert program.code == 5

    assert waits == [10, 600]


def test_program_executed_at_the_end_of_the_family_is_not_left_in_its_hold(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When all that was held is released already, and the follower still follows."""
    pipe = tmp_path / "go"
    os.mkfifo(pipe)
    command = ["sh", "-c", f"read line <{pipe}; exec {build}/truth_start exit 5"]
    close = Follower.close

    def late(follower: Follower) -> None:
        if pipe.exists():  # it may be called again
            pipe.write_text("go\n")
            pipe.unlink()
            executes = f"{build}/truth_start"
            wait_until(lambda: os.readlink(f"/proc/{program.pid}/exe") == executes, "it executes")
        close(follower)

    monkeypatch.setattr(Follower, "close", late)
    with markerjit.launch(command) as program:
        family = markerjit.Family(
            [program.pid], lambda session: session.trace("*"), program=program
        )
        program.go()
        family.close()
        within(HANG_S, program.wait)

    assert program.code == 5


def test_child_of_ours_is_not_followed_by_us(target: Callable) -> None:
    program = target("truth_follow")

    with pytest.raises(markerjit.Refused, match="a child of this process"):
        markerjit.Family([program.pid], lambda session: session.trace("*"))

    with markerjit.attach(program.pid) as session:
        session.enable("truth_follow")


EXECUTES_FROM_ANOTHER_THREAD = """
import os, sys, threading

def execute():
    os.execv(sys.argv[1], [sys.argv[1]])

threading.Thread(target=execute).start()
threading.Event().wait()
"""


def test_a_thread_that_is_not_the_first_may_execute_a_file(tmp_path: Path) -> None:
    """It gets the number of the first one, and the kernel refuses every request for that number
    until the stop has been waited for."""
    program = tmp_path / "program.c"
    program.write_text(
        '#include <markerjit/marker.h>\nint main(void) { MARK(executed, "n %d", 7); return 7; }\n'
    )
    binary = tmp_path / "program"
    flags = cli("--cflags").stdout.split()
    subprocess.run(["gcc", *flags, "-o", binary, program], check=True)

    done = cli(
        "trace", "executed", "--follow", "--json",
        "--", sys.executable, "-c", EXECUTES_FROM_ANOTHER_THREAD, binary,
    )  # fmt: skip

    assert done.returncode == 7, done.stderr
    events = [line for line in map(json.loads, done.stdout.splitlines()) if "name" in line]
    assert [event["fields"]["n"] for event in events] == [7]


# ---- files ---------------------------------------------------------------------------------------


@pytest.mark.product
@pytest.mark.parametrize("suffix", [".ctf", ".jsonl", ".pftrace", ".parquet", ".arrow"])
@pytest.mark.parametrize("way", ["fork", "exec", "vfork"])
def test_family_is_written_into_files(
    target: Callable, tmp_path: Path, way: str, suffix: str
) -> None:
    program = target("truth_follow")
    output = tmp_path / f"all{suffix}"

    with running("trace", "--follow", program.pid, "truth_follow", "-o", output) as tracer:
        wait_until(lambda: is_on(program.pid), "a trace")
        counts = program.ask(f"{way} {TIMES[way]}")
        tracer.send_signal(signal.SIGTERM)
        _, errors = tracer.communicate()

    assert tracer.returncode == 0, errors
    assert f"in {output}, 0 lost" in errors
    events = [
        event._replace(fields={**event.fields, "of": trace.info.pid})
        for trace in markerjit.open_traces(output)
        for event in trace.events()
    ]
    assert Counter(event.fields["who"] for event in events) == {
        FIRST: counts["turns"], CHILD: counts["children"],
    }  # fmt: skip
    assert all(event.fields["pid"] == event.fields["of"] for event in events)
    read = cli("read", output)
    assert len(read.stdout.splitlines()) == len(events), read.stderr
    assert [line.split()[0] for line in read.stdout.splitlines()] == [
        str(event.fields["of"]) for event in sorted(events, key=lambda event: event.time)
    ]


def test_file_of_several_processes_is_in_the_order_of_time(
    target: Callable, tmp_path: Path
) -> None:
    """And has a summary; without --follow, too."""
    programs = [target("truth_follow") for _ in range(2)]
    pids = ",".join(str(program.pid) for program in programs)
    output = tmp_path / "both.jsonl"

    with running("trace", pids, "truth_follow", "-o", output) as tracer:
        for program in programs:
            wait_until(lambda program=program: is_on(program.pid), "a trace")
        for _ in range(3):
            for program in programs:
                program.command("quick 1")
        tracer.send_signal(signal.SIGTERM)
        _, errors = tracer.communicate()

    assert tracer.returncode == 0, errors
    documents = [json.loads(line) for line in output.read_text().splitlines()]
    events = [document for document in documents if "name" in document]
    assert [event["pid"] for event in events] == [program.pid for program in programs] * 3
    assert events == sorted(events, key=lambda event: event["time"])
    assert documents[-1]["summary"] == {"events": 6, "lost": 0, "losses": []}
    assert sum("trace" in document for document in documents) == 2
    with pytest.raises(markerjit.BadTrace, match="several processes"):
        markerjit.open_trace(output)


def test_a_single_process_that_is_refused_is_not_followed(target: Callable) -> None:
    pid = target("truth_threads", "1", "--rate", "100").pid

    with markerjit.attach(pid) as session, session.trace("truth_loop"):
        one_line(cli("on", pid, "truth_loop", "--follow", "-d", "1s"), "is recorded by process")

"""Arguments that make no sense: each is told in a sentence, and nothing is done, or waited for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import markerjit
from markerjit.cli.main import run
from markerjit.trace.encode import with_packets
from markerjit.trace.open import open_sink
from tests.support.commands import CLI, ENVIRONMENT, cli, one_line, running
from tests.support.made_traces import EVENTS, make_batch, make_info
from tests.support.markers import modes_of, wait_on
from tests.support.timing import wait_until

NOT_A_PID = ["", "0", "+5", " 5", "1_0", "\uff15", "3.14"]
NOBODY = "no such program"


@pytest.mark.parametrize("text", ["a/path", "5,postgres", *NOT_A_PID[:-1]])
@pytest.mark.parametrize("command", [("repair", "{}"), ("watch", "{}")])
def test_what_is_no_process_is_told_to_be_none(
    command: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"'{text}' is neither the number of a process nor the name" in (
        last_line(command, text, capsys)
    )


def test_a_process_has_the_name_of_its_program_and_nobody_is_told_so(target: Callable) -> None:
    server = target("truth_storm")

    done = cli("repair", "truth_storm")
    nobody = cli("repair", "no-such-program")

    several = done.returncode == 1 and "processes are named truth_storm" in done.stderr
    assert several or done.stdout == f"process {server.pid} needs no repair\n"
    one_line(nobody, "no process is named no-such-program")


@pytest.mark.parametrize("text", ["a/path", "5,postgres", "5,,6", "5,5", *NOT_A_PID])
@pytest.mark.parametrize(
    "command",
    [("on", "{}", "*"), ("off", "{}", "*"), ("status", "{}"), ("trace", "{}", "*"),
     ("flight", "start", "{}", "*")],
)  # fmt: skip
def test_what_is_neither_a_pid_nor_a_name_is_told_to_be_neither(
    command: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "argument TARGET: target is " in last_line(command, text, capsys)


def last_line(command: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command says of wrong usage."""
    with pytest.raises(SystemExit) as ended:
        run([word.format(text) for word in command])

    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    sentence, hint = line.rsplit("; ", 1)
    assert hint == f"`markerjit {command[0]} --help` explains it"
    return sentence


@pytest.mark.parametrize("command", ["list", "explain"])
def test_what_is_neither_a_process_nor_a_file_is_told_to_be_neither(command: str) -> None:
    one_line(
        cli(command, NOBODY, "*"),
        f"'{NOBODY}' is neither the number of a process nor a file, and no process is named",
    )
    one_line(cli(command, "no/such", "*"), "'no/such' is neither the number of a process nor a fi")


@pytest.mark.parametrize("command", ["list", "explain"])
def test_a_file_that_cannot_be_read_is_told_with_the_reason(command: str) -> None:
    """Its first page is not mapped."""
    one_line(cli(command, "/proc/self/mem", "*"), "/proc/self/mem: Input/output error")


@pytest.mark.parametrize(
    "args",
    [
        ("read", ""), ("read", "a.txt", "-o", ""), ("trace", "1", "*", "-o", ""),
        ("flight", "dump", "1", "-o", ""), ("flight", "start", "1", "*", "-o", ""),
        ("trace", "1", "*", "--fields", ""), ("trace", "1", "*", "--fields", "a,,b"),
        ("trace", "1,1", "*"), ("trace", "1", "*", "--probe", ""), ("bench", "--json", ""),
        ("bench", "--cc", ""),
    ],
)  # fmt: skip
def test_an_empty_argument_is_wrong_usage(args: tuple[str, ...]) -> None:
    done = cli(*args)

    assert (done.returncode, done.stdout) == (2, "")
    assert "invalid" not in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("suffix", ["", ".txt", ".jsonl", ".json", ".pftrace", ".parquet"])
def test_a_pipe_is_no_trace_and_is_not_waited_for(
    suffix: str, target: Callable, tmp_path: Path
) -> None:
    """The markers were on while it was waited for."""
    server, pipe = target("kvserver"), tmp_path / f"pipe{suffix}"
    os.mkfifo(pipe)

    why = f"{pipe} is a pipe or a device, and a trace is a file"
    one_line(cli("trace", server.pid, "kv_hit", "-o", pipe, "--force", "--duration", "0.1"), why)
    one_line(cli("read", pipe), "is not a regular file|is not a directory")
    with markerjit.View(server.pid) as view:
        assert not view.has_runtime


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/null"])
def test_a_device_is_no_trace(name: str, tmp_path: Path, target: Callable) -> None:
    server, trace = target("kvserver"), tmp_path / "a.txt"
    sink = open_sink(str(trace), make_info())
    sink.close({})

    for args in (("trace", server.pid, "kv_hit"), ("flight", "dump", server.pid), ("read", trace)):
        one_line(
            cli(*args, "-o", name), "print events on standard output without -o|print events ther"
        )
    with markerjit.View(server.pid) as view:
        assert not view.has_runtime


def test_a_directory_by_the_name_of_a_file_is_refused_before_anything_is_on(
    tmp_path: Path, target: Callable
) -> None:
    server = target("kvserver")

    one_line(cli("trace", server.pid, "kv_hit", "-o", f"{tmp_path}/a.txt/"), "and text is a file")
    with markerjit.View(server.pid) as view:
        assert not view.has_runtime


def test_results_of_the_bench_are_not_read_from_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")

    one_line(cli("bench", "compare", tmp_path / "a", tmp_path / "a"), "is not a regular file")


def test_the_time_of_a_trace_that_has_ended_ends_nothing(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its signal came while the interpreter ended, which then died of it."""
    armed: list[float] = []
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(signal, "setitimer", lambda _, seconds: armed.append(seconds))
    assert run(["trace", str(target("kvserver").pid), "nothing", "--duration", "9"]) == 1
    assert armed == [0]


@pytest.mark.parametrize(
    "args",
    [
        ("read", "{}/a.ctf"), ("read", "{}/a.txt"), ("read", "{}"), ("list", "{}/a"),
        ("explain", "{}/a", "*"), ("on", "{pid}", "*", "--probe", "{}/a.c:f"),
        ("trace", "{pid}", "*", "--probe", "{}/a.py:f"), ("trace", "{pid}", "*", "-o", "{}/a.txt"),
        ("read", "{trace}", "-o", "{}/a.txt"), ("read", "{trace}", "-o", "{}/a.ctf"),
        ("bench", "--json", "{}/a.json"), ("bench", "compare", "{}/a", "{}/b"),
        ("bench", "--source", "{}/a.c", "--function", "f"),
    ],
)  # fmt: skip
def test_what_is_in_a_directory_that_is_not_ours_is_told_in_a_sentence(
    args: tuple[str, ...], tmp_path: Path, target: Callable
) -> None:
    """As an ordinary user; root may look everywhere."""
    closed, trace, pid = tmp_path / "closed", tmp_path / "a.jsonl", target("kvserver").pid
    closed.mkdir(mode=0)
    open_sink(str(trace), make_info()).close({})
    words = [word.format(closed, pid=pid, trace=trace) for word in args]
    command = [*CLI, *words]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command]
        closed.chmod(0)
        os.chown(closed, 65534, 65534)

    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)

    one_line(done, "ermission denied|it is not ours|there is no file")


# ---- a function in Python ------------------------------------------------------------------------


def test_an_error_of_a_function_in_python_is_shown_with_its_own_frames(
    target: Callable, tmp_path: Path
) -> None:
    program, file = target("truth_modes-jump"), tmp_path / "look.py"
    file.write_text("def helper(event):\n    return 1 / 0\n\ndef look(event):\n    helper(event)\n")

    with running("trace", program.pid, "truth_mode", "--probe", f"{file}:look") as tracer:
        wait_on(program.pid, "truth_mode", tracer)
        program.command("run 1")
        output, errors = tracer.communicate()

    assert (tracer.returncode, output) == (1, "")
    assert errors.splitlines()[-1] == f"markerjit: {file} raised ZeroDivisionError"
    files = [line.split('"')[1] for line in errors.splitlines() if line.startswith("  File")]
    assert files == [str(file), str(file)]
    assert modes_of(program.pid)["truth_mode"] is None


@pytest.mark.parametrize("text", ["x(", "import nothing_of_the_kind", "open('/nothing')"])
def test_an_error_of_the_file_itself_is_shown_without_frames_of_ours(
    text: str, target: Callable, tmp_path: Path
) -> None:
    program, file = target("truth_modes-jump"), tmp_path / "look.py"
    file.write_text(f"{text}\n")

    done = cli("trace", program.pid, "truth_mode", "--probe", f"{file}:look")

    assert done.returncode == 1
    assert "runpy" not in done.stderr
    assert "cli/" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"markerjit: {file} raised ")


# ---- traces of several processes -----------------------------------------------------------------


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """What `trace 1,2 -o both.ctf` writes; each event is there twice, 5 ns later in process 2."""
    path = tmp_path / "both.ctf"
    path.mkdir()
    for pid in (1, 2):
        info = make_info()._replace(pid=pid)
        sink = open_sink(str(path / f"pid-{pid}.ctf"), info)
        events = [event._replace(time=event.time + 5 * pid) for event in EVENTS]
        sink.write(with_packets(make_batch(info, events)))
        sink.close({(0, "odd"): pid})
    return path


def test_traces_of_several_processes_are_printed_in_one_order_of_time(both: Path) -> None:
    text, objects = cli("read", both), cli("read", both, "--json", "--marker", "query_*")

    assert text.returncode == 0
    assert text.stderr == f"{2 * len(EVENTS)} events, 3 lost\n"
    lines = [line.split() for line in text.stdout.splitlines() if line[:2] in ("1 ", "2 ")]
    assert {words[0] for words in lines} == {"1", "2"}
    times = [words[1] for words in lines]
    assert times == sorted(times)
    *events, summary = map(json.loads, objects.stdout.splitlines())
    assert {event["pid"] for event in events} == {1, 2}
    assert summary["summary"]["events"] == len(events) == 2 * 5


def test_traces_of_several_processes_are_summed_up_one_by_one(both: Path) -> None:
    document = json.loads(cli("read", both, "--stats", "--json").stdout)

    assert [trace["pid"] for trace in document["traces"]] == [1, 2]
    assert "process 2 (" in cli("read", both, "--stats").stdout


def test_a_format_of_one_process_is_refused_for_several(both: Path, tmp_path: Path) -> None:
    done = cli("read", both, "-o", tmp_path / "a.txt")

    one_line(done, r"several programs .* a directory that ends in \.ctf, .* \.jsonl, \.pftrace")


def has_hits(pid: int) -> bool:
    with markerjit.View(pid) as view:
        return any(marker.hits for marker in view.statistics())


def test_a_live_trace_of_two_processes_can_be_read_again(target: Callable, tmp_path: Path) -> None:
    first, second = (
        target("truth_threads", "1", "--rate", "500"),
        target("truth_threads", "1", "--rate", "500"),
    )
    path = tmp_path / "both.ctf"

    with running("trace", f"{first.pid},{second.pid}", "truth_loop", "-o", path) as tracer:
        for program in (first, second):  # however long the second one takes to be on
            wait_on(program.pid, "truth_loop", tracer)
            wait_until(partial(has_hits, program.pid), "a hit")
        tracer.send_signal(signal.SIGINT)
        assert tracer.wait() == 0
    lines = cli("read", path).stdout.splitlines()

    assert {line.split()[0] for line in lines} == {str(first.pid), str(second.pid)}
    times = [line.split()[1] for line in lines]
    assert times == sorted(times)

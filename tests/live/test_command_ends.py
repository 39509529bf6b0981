"""Commands that are interrupted at any moment, and commands whose output has nowhere to go.

Interruptions are swept: a profile hook inside of the command sends it a signal at its n-th call,
for many n. So they are the same in every run.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

import markerjit
from tests.support.commands import CLI, ENVIRONMENT, cli, python, running
from tests.support.markers import modes_of, wait_on
from tests.support.timing import HANG_S

# Counts the calls from the moment at which `main` has taken the signals.
INTERRUPTED = """
import os, sys
from markerjit.cli import main, signals
take, left, number = signals.end_at_once, int(sys.argv[1]), int(sys.argv[2])
def hook(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), number)
def end_at_once():
    take()
    sys.setprofile(hook)
signals.end_at_once = end_at_once
try:
    main.main(sys.argv[3:])
finally:
    sys.setprofile(None)
    if left > 0:
        os.write(2, b"%d" % left)
"""
STEPS = 12
ENDS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def shell(script: str, *args: object) -> subprocess.CompletedProcess[str]:
    """Run a command with the redirections of a shell: "$@" is the command."""
    return subprocess.run(
        ["sh", "-c", script, "sh", *CLI, *map(str, args)],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip


def interrupted(at: int, number: int, *args: object) -> subprocess.CompletedProcess[str]:
    """A command that gets a signal at its `at`-th call."""
    return python(INTERRUPTED, at, int(number), *args)


def sweep(
    number: int, *args: object, again: Callable[[], object] = lambda: None
) -> Iterator[subprocess.CompletedProcess[str]]:
    """The command, interrupted at calls from its first one to its last. `again` makes things as
    they were before it. How many calls it makes depends on how soon threads stop and what is cached
    by then, so the last ones may come too late."""
    many = 1 << 40
    for _ in range(2):  # the first run in a process makes what all later ones find
        calls = many - int(interrupted(many, number, *args).stderr)
        again()
    came = 0
    for step in range(STEPS):
        done = interrupted(1 + step * calls // STEPS, number, *args)
        if not done.stderr.isdigit():
            came += 1
            yield done
    assert came >= STEPS // 2


# ---- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("command", "number"), [("list", ENDS[0]), ("explain", ENDS[1])])
def test_a_signal_ends_a_command_that_only_looks_without_a_word(
    command: str, number: int, target: Callable
) -> None:
    pid = target("kvserver").pid

    for done in sweep(number, command, pid, "kv_hit"):
        assert (done.returncode, done.stderr) == (128 + number, "")


@pytest.mark.parametrize("number", [*ENDS[:2], pytest.param(ENDS[2], marks=pytest.mark.long)])
def test_a_switch_that_gets_a_signal_is_finished_or_was_not_begun(
    number: int, target: Callable
) -> None:
    server = target("kvserver")
    assert cli("on", server.pid, "kv_hit").returncode == 0
    switched = set()

    def off() -> None:
        assert cli("off", server.pid, "kv_store").returncode == 0

    for done in sweep(number, "on", server.pid, "kv_store", again=off):
        assert (done.returncode, done.stderr) == (128 + number, "")
        mode = modes_of(server.pid)["kv_store"]
        assert done.stdout == "" or mode == "jump"  # what is told has been done
        with markerjit.View(server.pid) as view:
            arena = view.arena()
            assert arena and arena.to_mend is None
        switched.add(mode)
        off()

    assert switched == {None, "jump"}  # the sweep began before the switch, and ended after it
    assert cli("repair", server.pid).stdout == f"process {server.pid} needs no repair\n"


def test_a_signal_while_a_flight_recorder_is_switched_on_leaves_it_on(target: Callable) -> None:
    server = target("kvserver")
    recorded = set()

    def off() -> None:
        assert cli("off", server.pid, "*").returncode in (0, 1)

    for done in sweep(signal.SIGTERM, "flight", "start", server.pid, "kv_store", again=off):
        assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "")
        recorded.add(modes_of(server.pid)["kv_store"])
        off()

    assert recorded == {None, "jump"}


def test_a_signal_that_is_ignored_ends_nothing(target: Callable) -> None:
    """nohup, and what a shell without job control starts in the background."""
    server = target("kvserver")
    with running("trace", server.pid, "kv_*", preexec_fn=lambda: _ignore(signal.SIGHUP)) as trace:
        wait_on(server.pid, "kv_hit", trace)
        trace.send_signal(signal.SIGHUP)
        listed = cli("list", server.pid)
        assert trace.poll() is None
        trace.send_signal(signal.SIGINT)
        assert trace.wait() == 0

    assert "on (jump, record)" in listed.stdout


def _ignore(number: int) -> None:
    signal.signal(number, signal.SIG_IGN)


# ---- output --------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [("on", "kv_hit"), ("trace", "kv_hit", "--duration", "0.2")])
@pytest.mark.parametrize(
    ("redirection", "reason"),
    [
        (">&-", "standard output is closed; send it to /dev/null if it is not wanted"),
        ("<&- >&-", "standard output is closed; send it to /dev/null if it is not wanted"),
        ("1</dev/null", "standard output is not open for writing"),
    ],
)
def test_nothing_is_switched_where_the_outcome_cannot_be_told(
    redirection: str, reason: str, args: tuple[str, ...], target: Callable
) -> None:
    server = target("kvserver")

    done = shell(f'"$@" {redirection}', args[0], server.pid, *args[1:])

    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"markerjit: {reason}\n")
    with markerjit.View(server.pid) as view:
        assert not view.has_runtime


def test_no_file_takes_the_place_of_a_standard_stream_that_is_closed(target: Callable) -> None:
    """Otherwise what is printed there goes into that file: it may be a process's memory."""
    server = target("kvserver")
    inside = (
        "import os, markerjit; from markerjit.cli import main; "
        "main._prepare_output(); view = markerjit.View({}); "
        "memory = view._target.memory; "
        "print(min(memory.fileno(), memory.pidfd), *map(os.get_inheritable, range(3)))"
    )
    done = subprocess.run(
        ["sh", "-c", '"$@" <&- 2>&-', "sh", sys.executable, "-c", inside.format(server.pid)],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip

    lowest, *inherited = done.stdout.split()
    assert int(lowest) > 2
    assert inherited == ["True"] * 3


@pytest.mark.parametrize("args", [("--help",), ("list", "--help"), ("--version",), ("doctor",)])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_one_line(args: tuple[str, ...], unbuffered: str) -> None:
    done = shell(f'PYTHONUNBUFFERED={unbuffered} "$@" >/dev/full', *args)

    assert done.returncode == 1
    assert done.stderr == "markerjit: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_an_error_that_cannot_be_told_is_an_error_all_the_same(redirection: str) -> None:
    done = shell(f'"$@" {redirection}', "read", "/nothing.txt")

    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


@pytest.mark.parametrize(
    "encoding",
    ["PYTHONIOENCODING=ascii", "LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0"],
)
def test_what_the_encoding_of_the_output_does_not_have_is_shown_as_an_escape(
    encoding: str, target: Callable
) -> None:
    server = target("kvserver")

    done = shell(f'env {encoding} "$@"', "on", server.pid, "kv_hit")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(" \\xb5s\n")

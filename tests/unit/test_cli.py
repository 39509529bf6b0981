"""The command line without a process: arguments, exit codes, one-line errors, the shape of JSON."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

import markerjit
from markerjit.arena.lease import Reader
from markerjit.cli import list as cli_list
from markerjit.cli import main, output
from markerjit.cli import watch as cli_watch
from markerjit.cli.arguments import as_pid, mebibytes, positive, seconds
from markerjit.cli.examples import EXAMPLES
from markerjit.cli.parser import COMMANDS, parser_of, sentence, split
from markerjit.elf import parse_format
from markerjit.errors import MarkerError, NoSuchProcess
from markerjit.facts import words
from markerjit.model import (
    Body,
    CType,
    Form,
    MappedObject,
    Mode,
    Place,
    RemoteAddress,
    Signature,
    Site,
    TypeClass,
)
from markerjit.proc.owner import Owner, ourselves
from markerjit.remote.left import LeftThread
from markerjit.session.repair import Repaired
from markerjit.session.status import ArenaStatus, MarkerStatus
from markerjit.session.strays import Remedy
from markerjit.session.unfinished import FINISHED, NOTHING, ROLLED_BACK

NOBODY = str(1 << 30)
INT = CType(TypeClass.SIGNED, 4)
CHARS = CType(TypeClass.CHARS, 8)


def make_marker(**facts: Any) -> MarkerStatus:
    args = (CHARS, INT)
    signature = Signature("kv_get", "key %s n %d", args)
    place = Place(MappedObject("/bin/kv", 0x1000, None, True), 16, "kv.c:7")
    body = Body(RemoteAddress(0x1040), RemoteAddress(0x1020), RemoteAddress(0x1017))
    site = Site(signature, place, RemoteAddress(0x1010), Form("jump", b"", b"", {}), body)
    marker = MarkerStatus(
        name="kv_get", format=signature.format, fields=parse_format(*signature[1:]), kind="jump",
        sites=(site,), mode=None, partly=False, probe="", since=0, by=0, hits=0, lost=0,
    )  # fmt: skip
    return marker._replace(**facts)


ON = make_marker(
    mode=Mode.INT3, partly=True, probe="record", since=1_000, by=os.getpid(), hits=9, lost=2
)


class FakeView:
    """A process with the markers that the test put here."""

    markers: tuple[MarkerStatus, ...] = ()
    problems: tuple[MarkerError, ...] = ()
    held: ArenaStatus | None = None
    values: tuple[markerjit.Values, ...] = ()
    strays: tuple[markerjit.StrayHead, ...] = ()
    runtime_problem: MarkerError | None = None
    asked: tuple[int, str] | None = None

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def statistics(self, pattern: str = "*") -> list[MarkerStatus]:
        type(self).asked = (self.pid, pattern)
        return list(self.markers)

    def arena(self) -> ArenaStatus | None:
        return self.held

    def probe_values(self) -> list[markerjit.Values]:
        return list(self.values)

    def stray_heads(self) -> list[markerjit.StrayHead]:
        return list(self.strays)


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> type[FakeView]:
    fake = type("View", (FakeView,), {})
    monkeypatch.setattr(markerjit, "View", fake)
    return fake


def run(*arguments: str) -> int:
    """The exit code, also where argparse ends the command by itself."""
    try:
        return main.run(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)


# ---- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [("4", 4), ("4M", 4), ("4MiB", 4), ("1GiB", 1024), ("2G", 2048), ("0", 0)]
    + [(text, None) for text in ("", "MiB", "4KiB", "4 MiB", "1.5", "-1", "4MiBM", "٤")],
)
def test_a_size_is_in_mebibytes_or_has_a_unit(text: str, size: int | None) -> None:
    assert mebibytes(text) == size


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nonsense",),
        ("--nonsense",),
        ("list",),
        ("list", "1", "2", "b"),
        ("list", "1", "a", "--in", ""),
        ("list", "1", "a", "--in", "x,y"),
        ("on",),
        ("on", "1"),
        ("on", "/x", "a"),
        ("on", "1,x", "a"),
        ("on", "--name", "", "a"),
        ("on", "1", "a", "--user", "root"),
        ("on", "0", "a"),
        ("on", "-1", "a"),
        ("on", "1", "a", "--mode", "x"),
        ("on", "1", "a", "--probe", "x"),
        ("off",),
        ("off", "1.5", "a"),
        ("status",),
        ("status", "/bin/true"),
        ("trace",),
        ("trace", "1", "a", "--events", "0"),
        ("trace", "1", "a", "--duration", "x"),
        ("trace", "1", "a", "--ring-size", "0"),
        ("trace", "1", "a", "--ring-size", "3"),
        ("trace", "1", "a", "--ring-size", "2048"),
        ("trace", "1", "a", "--ring-size", "2GiB"),
        ("trace", "1", "a", "--ring-size", "4KiB"),
        ("trace", "1", "a", "--ring-growth", "-1MiB"),
        ("explain", "1"),
        ("on", "1", "a", "--quiesce", "x"),
        ("off", "1", "a", "--quiesce", "signals"),
        ("trace", "1", "a", "--quiesce", ""),
        ("repair",),
        ("repair", "1", "a"),
        ("--version", "--cflags"),
    ],
)
def test_wrong_usage_exits_with_2(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    if shown.err:
        line = r"markerjit[ a-z]*: .*; `markerjit[ a-z]* --help` explains it\n"
        assert re.fullmatch(line, shown.err)
    else:
        assert "usage: markerjit" in shown.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("lst", "1"), "markerjit: there is no command lst; did you mean list?; "),
        (("zzz",), "markerjit: there is no command zzz; `markerjit --help` "),
        (
            ("config", "x"),
            "markerjit config: unrecognized arguments: x; `markerjit config --help` ",
        ),
        (("off", "1", "a", "--al"), "markerjit off: unrecognized arguments: --al; "),
    ],
)
def test_wrong_usage_is_said_of_the_command_that_is_meant(
    arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    assert capsys.readouterr().err.startswith(sentence)


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "7", "--usdt", "kv_*"),
        ("list", "--usdt", "7", "kv_*"),
        ("list", "7", "kv_*", "--usdt"),
        ("list", "--usdt", "--", "7", "kv_*"),
    ],
)
def test_options_may_stand_between_other_arguments(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = []
    monkeypatch.setattr(cli_list, "run", lambda options: listed.append(options) or 0)

    assert run(*arguments) == 0

    (options,) = listed
    assert (options.target, options.pattern, options.usdt) == ("7", "kv_*", True)


@pytest.mark.parametrize("duration", ["nan", "inf"])
def test_a_duration_that_no_timer_takes_is_wrong_usage(
    duration: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise it is noticed when the markers are on already, with a traceback."""
    monkeypatch.setattr("signal.signal", lambda *_: None)  # trace takes them, for good

    assert run("trace", NOBODY, "a", "--duration", duration) == 2


@pytest.mark.parametrize("command", ["on", "trace", "flight start", "explain"])
def test_every_mode_and_every_strategy_for_another_process_can_be_asked_for(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*command.split(), "--help") == 0
    shown = capsys.readouterr().out

    assert f"--mode {{{','.join(map(str, Mode))}}}" in shown
    assert "--quiesce {stop,membarrier,none}" in shown


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    shown = capsys.readouterr().out
    for name, line in COMMANDS.items():
        assert f"\n    {name}" in shown
        assert line.split()[0] in shown
    assert {"list", "on", "off", "status", "trace", "repair", "explain"} <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name, "--help") == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: markerjit {name} ")
    assert f"\n{sentence(COMMANDS[name])}\n" in shown
    assert shown.endswith(f"{EXAMPLES[name][-1][1]}\n")


def test_the_sentence_of_a_command_keeps_its_capitals() -> None:
    assert sentence("a function in C") == "A function in C."


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_command_are_command_lines_of_it(name: str) -> None:
    for line, _ in EXAMPLES[name]:
        (typed,) = re.findall(r"markerjit [^)]*", line)
        words, program = split(shlex.split(typed.replace("PID", NOBODY))[1:])

        options = parser_of(*words, program=program).parse_args(words)

        assert options.command == name


def test_the_package_can_be_run_as_a_module() -> None:
    command = [sys.executable, "-m", "markerjit", "--version"]

    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout == f"markerjit {markerjit.__version__}\n"


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"markerjit {markerjit.__version__}\n"


def test_cflags_are_enough_to_compile_a_marker(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "a.c"
    source.write_text('#include <markerjit/marker.h>\nvoid f(int n) { MARK(a, "n %d", n); }\n')

    assert run("--cflags") == 0
    flags = capsys.readouterr().out.split()

    subprocess.run(["gcc", "-O2", "-Werror", *flags, "-c", source, "-o", "/dev/null"], check=True)


@pytest.mark.parametrize(
    ("target", "pid"),
    [
        ("12", 12),
        ("0", None),
        ("kv", None),
        ("./12", None),
        ("1²", None),
        ("9" * 40, 10**40 - 1),
        ("9" * 5000, None),  # int() takes no more than 4300 digits
    ],
)
def test_digits_are_a_pid(target: str, pid: int | None) -> None:
    assert as_pid(target) == pid


def test_watch_attaches_with_the_choice_about_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """It switches markers, as `on` does, and a filter would stop it as it stops that."""
    attached = []

    def attach(pid: int, **options: object) -> None:
        attached.append((pid, options))
        raise NoSuchProcess(pid)

    monkeypatch.setattr(cli_watch, "_check_terminal", lambda _: None)
    monkeypatch.setattr(markerjit, "attach", attach)

    assert run("watch", "7", "--seccomp", "trust-errno") == 1
    assert attached == [(7, {"seccomp": "trust-errno", "breakpoints": False})]


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", NOBODY),
        ("list", "9" * 5000),
        ("list", "/dev/null/nothing"),
        ("list", "/etc/passwd"),
        ("on", NOBODY, "a"),
        ("off", NOBODY, "a"),
        ("status", NOBODY),
        ("status", "1"),
        ("trace", NOBODY, "a"),
        ("repair", NOBODY),
        ("explain", NOBODY, "a"),
        ("explain", "/etc/passwd", "a"),
        ("on", "9" * 30, "a"),
    ],
)
def test_an_error_is_one_line_and_exits_with_1(
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)  # trace takes them, for good

    assert run(*arguments) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("markerjit: ")
    assert shown.err.count("\n") == 1


def test_an_error_about_a_name_of_two_lines_is_one_line(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("list", str(build / "kvserver"), "a\nb") == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"), [(NoSuchProcess(7), 1), (BrokenPipeError(), 0), (KeyboardInterrupt(), 130)]
)
def test_each_end_has_its_exit_code(
    error: BaseException,
    code: int,
    view: type[FakeView],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(view, "statistics", fail)
    monkeypatch.setattr("os.dup2", lambda *_: None)
    monkeypatch.setattr("sys.stdout", SimpleNamespace(fileno=lambda: 1, flush=lambda: None))

    assert run("status", "7") == code


def test_a_bug_of_ours_keeps_its_traceback(
    view: type[FakeView], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "statistics", lambda *_: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        run("status", "7")


# ---- what is printed -----------------------------------------------------------------------------


def test_status_as_json_has_every_fact_of_every_marker(
    view: type[FakeView], capsys: pytest.CaptureFixture[str]
) -> None:
    view.markers = (make_marker(), ON)

    assert run("status", "7", "kv_*", "--json") == 0
    off, on = (document := json.loads(capsys.readouterr().out))["markers"]

    assert (view.asked, document["pid"], document["arena"]) == ((7, "kv_*"), 7, None)
    assert set(document) == {"pid", "arena", "markers", "probes", "stray_heads"}
    assert on == {
        "name": "kv_get",
        "format": "key %s n %d",
        "fields": [{"name": "key", "type": "string"}, {"name": "n", "type": "int"}],
        "kind": "jump",
        "mode": "int3",
        "on": True,
        "partly": True,
        "probe": "record",
        "since": 1000,
        "by": ON.by,
        "hits": 9,
        "lost": 2,
        "total": 0,
        "held": None,
        "where": None,
        "select": None,
        "sample": None,
        "at_most": None,
        "held_back": 0,
        "budget": None,
        "aggregate": None,
        "unmatched": 0,
        "until": None,
        "sites": [
            {
                "address": 0x1010,
                "object": "/bin/kv",
                "offset": 16,
                "source": "kv.c:7",
                "kind": "jump",
                "deleted": True,
                "altered": None,
            }
        ],
    }
    assert set(off) == set(on)
    assert [off[name] for name in ("on", "mode", "probe", "since", "by")] == [
        False, None, None, None, None,
    ]  # fmt: skip


def test_list_as_json_adds_what_was_left_out(
    view: type[FakeView], capsys: pytest.CaptureFixture[str]
) -> None:
    view.markers, view.problems = (make_marker(),), (MarkerError("a note is odd"),)

    assert run("list", "7", "--json") == 0
    shown = capsys.readouterr()
    document = json.loads(shown.out)

    assert set(document) == {"pid", "markers", "problems"}
    assert document["problems"] == ["a note is odd"]
    assert shown.err == "markerjit: left out: a note is odd\n"


def test_list_of_a_file_names_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(markerjit, "list_file", lambda path, pattern: ([make_marker()], ()))

    assert run("list", __file__, "--json") == 0
    document = json.loads(capsys.readouterr().out)

    assert (document["file"], "pid" in document) == (__file__, False)


def test_status_for_people_shows_what_is_on_or_was_hit(
    view: type[FakeView],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(words.time, "time", lambda: 1_000 + 7_300.5)
    view.markers = (make_marker(), ON, make_marker(name="was_on", hits=12345))

    assert run("status", "7") == 0

    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "MARKER STATE SINCE BY HITS LOST",
        f"kv_get on (int3, record), not all sites 2 h ago pid {ON.by} 9 2",
        "was_on off - - 12,345 0",
        "2 of 3 markers are off",
    ]


US, GONE = ourselves(), Owner(1 << 30, ourselves().pid_namespace, 5)


def test_status_for_people_says_who_put_the_runtime_there_and_who_reads(
    view: type[FakeView], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words.time, "time", lambda: 1_000 + 7_300.5)
    view.markers = (make_marker(),)
    view.held = ArenaStatus(GONE, 1_000, 7, Reader(US, 7.4, False), None, False)

    assert run("status", "7") == 0
    shown = capsys.readouterr()

    assert shown.out.splitlines()[-2:] == [
        f"runtime: there for {words.age_words(1_000)}, put by pid {GONE.pid}",
        f"recording: for pid {US.pid}, lease 7 s",
    ]
    assert shown.err == ""


@pytest.mark.parametrize(
    ("reader", "writer", "words"),
    [
        (Reader(GONE, 3.0, True), None, "is gone and left its markers recording"),
        (Reader(US, -1.0, True), None, "has not read for too long and left its markers recording"),
        (None, GONE, "is gone and left a change half done"),
        (Reader(GONE, None, True), GONE, "is gone and left a change half done"),
        (None, US, "left a change half done"),  # it could not undo it, and lives
        (Reader(US, None, False), None, None),
    ],
)
@pytest.mark.parametrize("command", ["list", "status"])
def test_what_a_controller_left_is_told_on_standard_error_and_in_json(
    command: str,
    reader: Reader | None,
    writer: Owner | None,
    words: str | None,
    view: type[FakeView],
    capsys: pytest.CaptureFixture[str],
) -> None:
    view.markers = (make_marker(),)
    view.held = ArenaStatus(US, 1_000, 7, reader, writer, writer is not None)

    assert run(command, "7", "--json") == 0
    shown = capsys.readouterr()
    document = json.loads(shown.out)

    who = writer or (reader and reader.owner)
    sentence = f"process {who.pid} {words}" if words and who else None
    expected = "" if sentence is None else f"markerjit: {sentence}: markerjit repair 7\n"
    assert shown.err == expected
    if command == "status":
        assert document["arena"] == {
            "owner": US.pid,
            "since": 1_000,
            "runtime": "0000000000000007",
            "reader": reader.owner.pid if reader else None,
            "lease_s": reader.left_s if reader else None,
            "writer": writer.pid if writer else None,
            "paused_s": None,
            "to_mend": sentence,
        }


NO_REPAIR = Repaired(NOTHING, None, 0, 0, 0, (), (), 0)


@pytest.mark.parametrize(
    ("repaired", "lines"),
    [
        (NO_REPAIR, ["process 7 needs no repair"]),
        (
            NO_REPAIR._replace(journal=FINISHED, owner=GONE, since=5, places=3),
            [f"a change that process {GONE.pid} began was complete; it stands"],
        ),
        (
            NO_REPAIR._replace(
                journal=ROLLED_BACK, owner=GONE, since=5, places=3, written=1,
                left_alone=("0x10 holds 90, not ours",), switched_off=("a", "b"), removed=2,
            ),
            [
                f"a change of 3 places that process {GONE.pid} began was taken back: "
                "1 had to be repaired",
                "left alone: 0x10 holds 90, not ours",
                "switched off, since their reader is gone: a, b",
                "2 unfinished arenas removed",
            ],
        ),
        (NO_REPAIR._replace(removed=1), ["1 unfinished arena removed"]),
        (
            NO_REPAIR._replace(closed=2, forgotten=1),
            ["2 stray heads closed", "1 stray head forgotten, whose code is gone"],
        ),
        (
            NO_REPAIR._replace(overdue=("a", "b")),
            ["switched off, since their time was over: a, b"],
        ),
        (
            NO_REPAIR._replace(sent_back=(LeftThread(8, 324),)),
            [
                "thread 8 still waited in system call 324 for a controller that is gone; "
                "it goes back to its own code"
            ],
        ),
    ],
)  # fmt: skip
def test_repair_says_what_was_found_and_done(
    repaired: Repaired,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(markerjit, "repair", lambda pid, *, seccomp: repaired)

    assert run("repair", "7") == 0
    printed = capsys.readouterr().out.splitlines()
    assert run("repair", "7", "--json") == 0
    document = json.loads(capsys.readouterr().out)

    assert printed == lines
    assert document == {
        "pid": 7,
        "repaired": repaired.anything,
        "journal": repaired.journal,
        "owner": repaired.owner.pid if repaired.owner else None,
        "since": repaired.since or None,
        "places": repaired.places,
        "written": repaired.written,
        "left_alone": list(repaired.left_alone),
        "switched_off": list(repaired.switched_off),
        "removed": repaired.removed,
        "closed": repaired.closed,
        "forgotten": repaired.forgotten,
        "overdue": [*repaired.overdue],
        "sent_back": [{"tid": thread.tid, "call": thread.call} for thread in repaired.sent_back],
    }
    assert repaired.anything == (lines != ["process 7 needs no repair"])


def test_status_shows_so_many_stray_heads_and_how_many_more(
    view: type[FakeView], capsys: pytest.CaptureFixture[str]
) -> None:
    view.strays = tuple(
        markerjit.StrayHead(
            RemoteAddress(address), "", None, b"\xcc", b"\x90", "", 0, Remedy.LEAVE, "look"
        )
        for address in range(23)
    )

    assert run("status", "7") == 0

    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("stray")]
    assert lines[0] == (
        "stray head: 0x0 (memory without a file): head, opened by a newer way, belongs to no "
        "marker that is mapped now: holds cc, 90 before; look"
    )
    assert len(lines) == 21
    assert lines[-1] == "stray head: 3 more; --json shows all"


def test_a_table_is_as_wide_as_it_needs_and_numbers_stand_to_the_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.print_table(["A", "N", "LAST"], [["long", "9", "x"], ["b", "1,234", ""]])

    assert capsys.readouterr().out == "A         N  LAST\nlong      9  x\nb     1,234\n"


def test_every_name_of_the_door_can_be_had() -> None:
    for name in markerjit.__all__:
        assert getattr(markerjit, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = markerjit.nonsense


@pytest.mark.parametrize(
    ("text", "duration"),
    [("2", 2), ("0.5", 0.5), ("500ms", 0.5), ("10s", 10), ("2min", 120), ("1h", 3600), ("1e3", 1e3),
     ("250us", 0.00025), ("250µs", 0.00025)],
)  # fmt: skip
def test_a_duration_may_have_a_unit(text: str, duration: float) -> None:
    assert seconds(text) == pytest.approx(duration)


@pytest.mark.parametrize("text", ["", "s", "0s", "-1s", "1 day", "1sec", "nan", "infs", "1e9h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="such as 10s"):
        seconds(text)


@pytest.mark.parametrize(
    ("text", "number"), [("1", 1), ("500", 500), ("100k", 10**5), ("2M", 2 * 10**6)]
)
def test_a_number_may_be_of_thousands_or_millions(text: str, number: int) -> None:
    assert positive(text) == number


@pytest.mark.parametrize("text", ["", "k", "0", "0k", "-1", "1.5k", "1K", "1kk", "²"])
def test_what_is_no_number_above_zero_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="such as 500"):
        positive(text)

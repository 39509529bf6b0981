"""`markerjit read`: traces of all formats printed, summed up and converted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from markerjit import Trace
from markerjit.cli import main, read
from markerjit.model import Event
from markerjit.trace import lines
from markerjit.trace.open import FORMATS, open_trace
from tests.support.made_traces import EVENTS, START_NS, make_info, write_trace

ROOT = Path(__file__).resolve().parents[2]
LOST = {(0, "kv_get"): 3, (1, "odd"): 1}
SUFFIXES = [format_.suffixes[0] for format_ in FORMATS]


@pytest.fixture(autouse=True)
def _needed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow from PyPI")
    pytest.importorskip("perfetto", reason="needs perfetto from PyPI")
    monkeypatch.setattr(lines.time, "localtime", lines.time.gmtime)


def write(path: Path, *events: Event) -> str:
    return write_trace(path, events or EVENTS, LOST)


def run(*arguments: str) -> int:
    """The exit code, also where argparse ends the command by itself."""
    try:
        return main.run(["read", *arguments])
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_events_are_printed_as_trace_prints_them(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(write(tmp_path / f"a{suffix}")) == 0

    shown = capsys.readouterr()
    printed = shown.out.splitlines()
    assert (
        printed[1]
        == '00:00:05.000000020 cpu1 813 kv_get key="a b" len=9223372036854775808 flags=0xff cpu=-1'
    )
    assert len(printed) == len(EVENTS)
    assert shown.err == f"{len(EVENTS)} events, 4 lost\n"


def test_progress_is_shown_until_there_is_a_line_for_a_pager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    order: list[str] = []

    @contextmanager
    def noted(what: str) -> Iterator[None]:
        order.append(what)
        yield
        order.append(f"end of {what}")

    def formatter(trace: Trace, *, json: bool = False) -> Callable[[Event], str]:
        order.append("lines")
        return lambda event: order.append("line") or event.name

    monkeypatch.setattr(read.progress, "shown", lambda traces: noted("progress"))
    monkeypatch.setattr(read.pager, "paged", lambda: noted("pager"))
    monkeypatch.setattr(Trace, "formatter", formatter)

    assert run(write(tmp_path / "a.jsonl"), "-n", "2") == 0

    assert order == [
        "lines", "progress", "line", "end of progress", "pager", "line", "end of pager"
    ]  # fmt: skip
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_events_are_printed_as_json_lines(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(write(tmp_path / f"a{suffix}"), "--json", "--marker", "kv_*") == 0

    *events, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert [event["time"] for event in events] == [
        event.time for event in EVENTS if event.name.startswith("kv_")
    ]
    assert summary == {"summary": {"events": 3, "lost": 3}}


def test_a_sum_of_a_trace_is_a_table_for_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(write(tmp_path / "a.jsonl"), "--stats", "--marker", "kv_get") == 0

    assert capsys.readouterr().out.splitlines()[:6] == [
        "2 events, 3 lost, in 2.000000 s; process 812 (kvserver) on here",
        "",
        "MARKER  EVENTS  RATE/S  LOST  FIRST               LAST",
        "kv_get       2     1.0     3  00:00:05.000000020  00:00:07.000000001",
        "",
        "kv_get",
    ]


def test_a_sum_shows_every_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fields = EVENTS[1].fields
    events = [
        EVENTS[1]._replace(time=START_NS + n, fields={**fields, "len": n, "key": "ab"[n % 3 == 0]})
        for n in range(100)
    ]

    assert run(write(tmp_path / "a.parquet", *events), "--stats") == 0

    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "len 0 49 89 98 99 49.5 exact" in lines
    assert "flags 255 255 255 255 255 255 exact" in lines
    assert "kv_get key: 2 different values" in lines
    assert lines[lines.index("KEY TIMES") + 1 :][:2] == ['"a" 66', '"b" 34']


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_sum_is_one_json_document_with_the_same_keys_for_every_format(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(write(tmp_path / f"a{suffix}"), "--stats", "--json") == 0

    document = json.loads(capsys.readouterr().out)
    assert set(document) == {
        "file", "pid", "command", "host", "started_ns", "wall_offset_ns", "events", "lost",
        "first_ns", "last_ns", "markers", "problems",
    }  # fmt: skip
    assert (document["events"], document["lost"], document["pid"]) == (len(EVENTS), 4, 812)
    marker = next(entry for entry in document["markers"] if entry["name"] == "query_done")
    assert set(marker) == {
        "name", "source", "events", "lost", "rate_hz", "first_ns", "last_ns", "fields",
        "sample", "at_most", "budget",
    }  # fmt: skip
    assert marker["fields"][1] == {
        "name": "rows", "type": "int", "count": 3, "nans": 0, "min": 0, "p50": 1, "p90": 12,
        "p99": 12, "max": 12, "mean": pytest.approx(13 / 3), "error": 0,
    }  # fmt: skip


@pytest.mark.product
@pytest.mark.parametrize("target", SUFFIXES)
@pytest.mark.parametrize("source", SUFFIXES)
def test_every_format_becomes_every_other(
    source: str, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / f"b{target}"

    assert run(write(tmp_path / f"a{source}"), "-o", str(output)) == 0

    again = open_trace(str(output))
    assert list(again.events()) == list(EVENTS)
    assert dict(again.lost) == LOST
    assert again.info.clock.wall_offset_ns == make_info().clock.wall_offset_ns
    assert capsys.readouterr().out == f"{output}: {len(EVENTS)} events, 4 lost\n"


def test_some_markers_become_a_trace_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "b.arrow")

    assert run(write(tmp_path / "a.json"), "-o", output, "--marker", "odd", "--json") == 0

    again = open_trace(output)
    assert [kind.marker for kind in again.info.types] == ["odd"]
    assert again.lost == {(1, "odd"): 1}
    assert json.loads(capsys.readouterr().out) == {"file": output, "events": 1, "lost": 1}


def test_nothing_is_overwritten_without_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, other = write(tmp_path / "a.json"), write(tmp_path / "b.txt")

    assert run(source, "-o", other) == 1
    assert "b.txt exists already" in capsys.readouterr().err
    assert run(source, "-o", source, "--force") == 1
    assert "is the trace itself" in capsys.readouterr().err
    assert list(open_trace(source).events()) == list(EVENTS)
    assert run(source, "-o", other, "--force") == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a.csv",), "a.csv: no trace format has the suffix .csv; there are .txt"),
        (("none.json",), "cannot open none.json: No such file or directory"),
        (("none.ctf",), "cannot open none.ctf: No such file or directory"),
        (("a.json", "--marker", "kv_gte"), "no marker matches 'kv_gte'; did you mean kv_get"),
        (("a.json", "--marker", "kv_get,kv_gte"), "no marker matches 'kv_gte'; did you mean"),
        (("a.json", "--marker", "kv_get,!kv_*"), "no marker matches 'kv_get,!kv_*'"),
        (("a.json", "--marker", "kv_get@libkv.so"), "does not say which object or line"),
        (("a.json", "--marker", "*@a,!kv_get@b"), "does not say which object or line"),
        (("a.json", "--marker", "kv_get,!kv_get@b"), "does not say which object or line"),
        (("a.json", "--marker", "call:a->b"), "no marker matches"),
        (("a.json", "--marker", "func:main:return"), "no marker matches"),
        (("a.json", "-o", "b.csv"), "no trace format has the suffix .csv"),
        (("a.json", "-o", "none/b.txt"), "cannot write none/b.txt: No such file or directory"),
    ],
)
def test_an_error_is_one_line_and_exits_with_1(
    arguments: tuple[str, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("a.json"))

    assert run(*arguments) == 1

    shown = capsys.readouterr().err
    assert words in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [(), ("a.json", "b.json"), ("a.json", "--stats", "-o", "b.json")]
)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    assert run(*arguments) == 2


def test_a_cut_file_is_printed_up_to_there_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    write(path)
    path.write_bytes(path.read_bytes()[:-180])

    assert run(str(path)) == 0

    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == len(EVENTS) - 1
    assert "cut off" in shown.err
    assert "more may have been lost" in shown.err


def test_a_damaged_file_is_printed_up_to_there_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    write(path)
    lines = path.read_text().splitlines()
    lines[5] = '{"name": 3}'
    path.write_text("".join(f"{line}\n" for line in lines))

    assert run(str(path)) == 1

    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 4
    assert "a.jsonl:6 is not an event" in shown.err


def test_a_conversion_that_fails_keeps_what_it_had(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    write(path)
    with path.open("a") as file:
        file.write('{"name": 3}\n')

    assert run(str(path), "-o", str(tmp_path / "b.txt")) == 1

    assert "is not an event" in capsys.readouterr().err
    assert open_trace(str(tmp_path / "b.txt")).info.pid == 812


def test_lines_with_characters_that_a_terminal_has_not_are_printed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt")

    done = subprocess.run(
        [sys.executable, "-m", "markerjit.cli.main", "read", path],
        cwd=ROOT,
        env={"PYTHONIOENCODING": "ascii", "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin"},
        capture_output=True,
        check=True,
    )

    assert "select 'ä'" in done.stdout.decode()


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", *[EVENTS[0]] * 20_000)

    done = subprocess.run(
        f"{sys.executable} -m markerjit.cli.main read {path} | head -1",
        shell=True, cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")

"""`markerjit read --fields`: some of the fields, in all formats; a trace from standard input."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import markerjit
from markerjit.cli import main
from markerjit.cli.signals import Interrupted
from markerjit.cli.standard_input import FirstForTheWriter
from markerjit.errors import BadArgument, Refused
from markerjit.trace.open import FORMATS, open_trace
from tests.support.made_traces import EVENTS, write_trace
from tests.support.timing import Limited, wait_until

SUFFIXES = [format_.suffixes[0] for format_ in FORMATS]
WITH_A_START = [".parquet", ".arrow", ".pftrace", ".json", ".jsonl"]
LOST = {(0, "kv_get"): 3}


@pytest.fixture(autouse=True)
def _needed() -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow from PyPI")
    pytest.importorskip("perfetto", reason="needs perfetto from PyPI")


def read(*arguments: object) -> int:
    return main.run(["read", *map(str, arguments)])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_fields_that_are_not_named_are_left_away(suffix: str, tmp_path: Path) -> None:
    trace = open_trace(write_trace(tmp_path / f"a{suffix}", EVENTS, LOST))
    every = [*trace.events()]

    narrow = markerjit.only_fields(trace, ["id", "text"])

    expected = [
        event._replace(fields={k: v for k, v in event.fields.items() if k in ("id", "text")})
        for event in every
    ]
    assert repr([*narrow.events()]) == repr(expected)
    assert narrow.lost == trace.lost
    columns = [part for batch in narrow.batches() for part in batch]
    assert {name for part in columns for name in part.fields} == {"id", "text"}
    assert all({*part.fields} == {f.name for f in part.type.fields} for part in columns)
    assert sum(len(part.time) for part in columns) == len(every)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_again_has_these_fields(suffix: str, tmp_path: Path) -> None:
    source = write_trace(tmp_path / "a.jsonl", EVENTS, LOST)
    path = tmp_path / f"b{suffix}"

    assert read(source, "--fields", "id", "-o", path) == 0

    again = open_trace(str(path))
    assert len([*again.events()]) == len(EVENTS)
    assert {name for event in again.events() for name in event.fields} == {"id"}


def test_question_sees_all_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_trace(tmp_path / "a.parquet", EVENTS, LOST)

    assert read(path, "--where", "rows == 12", "--fields", "id", "--json") == 0
    event, _ = map(json.loads, capsys.readouterr().out.splitlines())

    assert event["fields"] == {"id": 7}


@pytest.mark.parametrize(
    ("fields", "words"),
    [("idd", "no marker of the trace has a field idd; did you mean id?"), ("id,%", "a field %; ")],
)
def test_field_that_no_marker_has_is_refused(
    fields: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_trace(tmp_path / "a.jsonl", EVENTS, LOST)

    assert read(path, "--fields", fields) == 1
    assert words in capsys.readouterr().err


def test_nonsense_is_refused(tmp_path: Path) -> None:
    trace = open_trace(write_trace(tmp_path / "a.jsonl", EVENTS, LOST))

    for arguments in ((trace, "id"), (trace, [3]), ("a.jsonl", ["id"]), (trace, None)):
        with pytest.raises(BadArgument):
            markerjit.only_fields(*arguments)  # type: ignore[arg-type]
    with pytest.raises(Refused):
        markerjit.only_fields(trace, ["nobody"])


# ---- standard input ------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", WITH_A_START)
def test_trace_comes_from_standard_input(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(write_trace(tmp_path / f"a{suffix}", EVENTS, LOST))
    assert read(path, "--json") == 0
    expected = capsys.readouterr().out
    given = io.BytesIO(path.read_bytes())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=given, isatty=lambda: False))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    assert read("-", "--json") == 0

    assert capsys.readouterr().out == expected
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "standard input is empty"),
        (b"10:00:00 cpu1 kv_get", "standard input does not begin as JSON lines"),
        (b"\x00\xff", "standard input does not begin as JSON lines"),
        (b"{nonsense", "standard-input.jsonl"),
        (b"PAR1nonsense", "standard-input.parquet"),
    ],
)
def test_nonsense_on_standard_input_is_refused(data: bytes, words: str) -> None:
    command = [sys.executable, "-m", "markerjit", "read", "-"]
    done = subprocess.run(command, input=data, capture_output=True, check=False)

    assert done.returncode == 1
    assert words in done.stderr.decode()
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_terminal_as_standard_input_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))

    assert read("-") == 1
    assert "standard input is a terminal" in capsys.readouterr().err


def test_first_interrupt_is_for_the_writer(tmp_path: Path) -> None:
    """As a shell sends Ctrl-C to all of a pipeline."""
    lines = Path(write_trace(tmp_path / "a.jsonl", EVENTS, LOST)).read_bytes()
    command = [sys.executable, "-m", "markerjit", "read", "-"]
    with Limited(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as reader:  # fmt: skip
        assert reader.stdin
        reader.stdin.write(lines[:100])
        reader.stdin.flush()
        wait_until(lambda: [*tmp_path.glob("markerjit-*/*")], "the file")
        reader.send_signal(signal.SIGINT)
        out, _ = reader.communicate(lines[100:])

    assert reader.returncode == 0
    assert len(out.splitlines()) == len(EVENTS)
    assert [*tmp_path.glob("markerjit-*")] == []


def test_second_interrupt_ends_it() -> None:
    with FirstForTheWriter():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGTERM)

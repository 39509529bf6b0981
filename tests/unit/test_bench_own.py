"""Somebody's own source in the bench: what its function may do, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from conftest import ROOT, make

from markerjit.apps.bench import own
from markerjit.apps.bench.place import Place
from markerjit.apps.bench.runner import Runner
from markerjit.errors import MarkerError

SOURCES = ROOT / "native" / "bench"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    make("native")
    runner = ROOT / "markerjit" / "_native" / "bench" / "runner"
    (tmp_path / "objects").mkdir()
    return Place(SOURCES, ROOT / "native" / "include", runner, tmp_path / "objects", "gcc", 0)


@contextmanager
def runs(code: str, place: Place, tmp_path: Path) -> Iterator[Runner]:
    """The function `work` of a source, without a marker."""
    source = tmp_path / "my.c"
    source.write_text(code)
    (one,) = own.objects(source, "work", own.FORMS[:1], place, 1)
    with closing(Runner(place.runner, [one.path], cpu=0)) as runner:
        yield runner


@pytest.mark.parametrize(
    "does",
    [
        'puts("ran 7 7 7")',
        'printf("ran 7 7 7\\n"); fflush(stdout)',
        "getchar()",
        'fputs("a line on standard error\\n", stderr)',
    ],
)
def test_what_a_function_prints_or_reads_is_not_the_benchs(
    does: str, place: Place, tmp_path: Path
) -> None:
    with runs(f"#include <stdio.h>\nvoid work(void) {{ {does}; }}\n", place, tmp_path) as runner:
        took = [runner.run(0, 10_000, 2) for _ in range(3)]

    assert [len(one) for one in took] == [2, 2, 2]
    assert all(ns > 1000 for one in took for ns in one)


def test_a_function_that_crashes_is_named_with_its_signal(place: Place, tmp_path: Path) -> None:
    code = "#include <stdlib.h>\nvoid work(void) { abort(); }\n"

    with runs(code, place, tmp_path) as runner, pytest.raises(MarkerError, match="SIGABRT"):
        runner.run(0, 1)

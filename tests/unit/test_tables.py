"""Parquet and Arrow files: what is held while they are written, and tables that are not what their
header says."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from markerjit.errors import BadTrace
from markerjit.model import Event
from markerjit.ring.types import Time
from markerjit.trace.open import open_sink, open_trace
from tests.support.made_traces import (
    EVENTS,
    F64,
    I32,
    START_NS,
    make_batch,
    make_info,
    make_type,
    put,
)

pa = pytest.importorskip("pyarrow", reason="needs pyarrow from PyPI")
parquet = pytest.importorskip("pyarrow.parquet")
arrow = pytest.importorskip("markerjit.trace.arrow")


@pytest.mark.parametrize("size", [1, 9])
def test_small_batches_are_held_in_few_tables_and_not_copied_each_time(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = make_info()
    batch = make_batch(info, EVENTS[:size])
    sink = arrow.ParquetSink(str(tmp_path / "a.parquet"), info)
    real, copied, held = arrow.joined, 0, 0

    def counted(tables: Any) -> Any:
        nonlocal copied
        copied += sum(table.num_rows for table in tables)
        return real(tables)

    monkeypatch.setattr(arrow, "joined", counted)
    for _ in range(1000):
        sink.write(batch)
        held = max(held, len(sink._file._new) + len(sink._file._held))
    sink.close({})

    assert held <= 64 + 8
    assert copied <= 1000 * size * 8
    names = parquet.read_table(tmp_path / "a.parquet")["name"].to_pylist()
    assert names == [event.name for event in EVENTS[:size]] * 1000


def test_row_groups_are_as_large_whether_batches_are_small_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "_GROUP_ROWS", 1000)
    info = make_info()
    path = str(tmp_path / "a.parquet")
    sink = arrow.ParquetSink(path, info)
    for _ in range(250):
        sink.write(make_batch(info))
    sink.close({})

    metadata = parquet.ParquetFile(path).metadata
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [
        1000,
        1000,
        500,
    ]


# ---- tables that are not as their header says ----------------------------------------------------


def change(path: Path, how: Callable[[Any], Any]) -> Path:
    """A table with the same header, written anew with other columns."""
    if path.suffix == ".parquet":
        table = how(parquet.read_table(path))
        parquet.write_table(table, path)
    else:
        table = how(pa.ipc.open_file(path).read_all()).unify_dictionaries()
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.fixture(params=["parquet", "arrow"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A table of two types of records that have one name."""
    kinds = tuple(
        make_type(number, "same", *description, time=Time.MONOTONIC, tid=True)  # type: ignore[arg-type]
        for number, description in enumerate([("n %d", I32), ("n %d x %f", I32, F64)])
    )
    info = make_info()
    info = info._replace(types=(*kinds, *(kind for kind in info.types if kind.id > 1)))
    path = tmp_path / f"a.{request.param}"
    sink = open_sink(str(path), info)
    put(sink, info, [Event(START_NS + 1, 0, 1, "same", {"n": 1}), *EVENTS[1:4], *EVENTS[5:]])
    return path


def as_type(name: str, type_: Any) -> Callable[[Any], Any]:
    def how(table: Any) -> Any:
        column = table.column(name).cast(type_)
        return table.set_column(table.schema.get_field_index(name), name, column)

    return how


def with_value(name: str, value: Any) -> Callable[[Any], Any]:
    """The first row has this."""

    def how(table: Any) -> Any:
        column = table.column(name)
        first = pa.array([value], column.type)
        new = pa.chunked_array([first, *column.slice(1).chunks], column.type)
        return table.set_column(table.schema.get_field_index(name), name, new)

    return how


def test_a_table_that_is_written_anew_is_read(path: Path) -> None:
    before = list(open_trace(str(path)).events())

    change(path, lambda table: table)

    assert list(open_trace(str(path)).events()) == before


@pytest.mark.parametrize(
    "how",
    [
        as_type("name", pa.string()),
        as_type("time", pa.int64()),
        as_type("tid", pa.int64()),
        as_type("key", pa.string()),
        as_type("key", pa.large_binary()),
        as_type("c", pa.large_string()),
        as_type("kind", pa.float64()),
        as_type("yes", pa.uint8()),
        lambda table: table.drop_columns(["key"]),
        lambda table: table.append_column("key", table.column("key")),
        lambda table: table.select(table.column_names[::-1]),
        lambda table: table.select([]),
    ],
)
def test_columns_of_another_type_are_refused(how: Callable[[Any], Any], path: Path) -> None:
    change(path, how)

    with pytest.raises(BadTrace, match=f"{path.name} has "):
        list(open_trace(str(path)).events())


@pytest.mark.parametrize("name", ["time", "cpu", "tid", "name", "kind"])
def test_a_null_that_no_event_can_have_is_refused(name: str, path: Path) -> None:
    change(path, with_value(name, None))

    with pytest.raises(BadTrace, match=f"without {name}"):
        list(open_trace(str(path)).events())


@pytest.mark.parametrize("kind", [-1, 7, 99, -(1 << 31), (1 << 31) - 1])
def test_a_kind_that_there_is_not_is_refused(kind: int, path: Path) -> None:
    change(path, with_value("kind", kind))

    with pytest.raises(BadTrace, match="of an unknown kind"):
        list(open_trace(str(path)).events())


@pytest.mark.parametrize("name", ["kind", None])
def test_a_name_that_there_is_not_is_refused(name: str | None, tmp_path: Path) -> None:
    info = make_info()  # pyarrow writes no null among the names into Parquet
    for suffix in ("parquet", "arrow") if name else ("arrow",):
        path = tmp_path / f"a.{suffix}"
        put(open_sink(str(path), info), info)

        def how(table: Any) -> Any:
            column = table.column("name").combine_chunks()
            names = pa.array([name, *column.dictionary.to_pylist()[1:]])
            new = pa.DictionaryArray.from_arrays(column.indices, names)
            return table.set_column(table.schema.get_field_index("name"), "name", new)

        change(path, how)

        with pytest.raises(BadTrace):
            list(open_trace(str(path)).events())


def test_a_pipe_is_refused_and_not_waited_for(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)

    with pytest.raises(BadTrace, match="is not a regular file"):
        open_trace(str(path))

"""DuckDB and Polars read our tables: Parquet and Arrow files made of columns that were made up."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from markerjit.trace.open import open_sink
from tests.support.made_traces import EVENTS, START_NS, WALL_NS, make_batch, make_info

pytestmark = pytest.mark.oracle

pytest.importorskip("pyarrow", reason="needs pyarrow from PyPI")

LOST = {(0, "kv_get"): 3}


@pytest.fixture(scope="module", params=["parquet", "arrow"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_table(tmp_path_factory.mktemp("table") / f"a.{request.param}")


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_table(tmp_path_factory.mktemp("parquet") / "a.parquet")


def make_table(path: Path) -> Path:
    info = make_info()
    sink = open_sink(str(path), info)
    for at in range(0, len(EVENTS), 4):
        sink.write(make_batch(info, EVENTS[at : at + 4]))
    sink.close(LOST)
    return path


def duck(path: Path) -> Any:
    """A function that asks DuckDB of the table `t`."""
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb from PyPI")
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    connection.execute(f"create view t as select * from '{path}'")
    return lambda sql: connection.execute(sql).fetchall()


def test_duckdb_finds_all_rows_in_order_of_time(parquet: Path) -> None:
    ask = duck(parquet)

    assert ask("select name, cpu, tid from t") == [
        (event.name, event.cpu, event.tid) for event in EVENTS
    ]
    assert ask("select epoch_ns(time) from t") == [(event.time + WALL_NS,) for event in EVENTS]


def test_duckdb_finds_the_types_of_columns(parquet: Path) -> None:
    types = dict(duck(parquet)("select column_name, column_type from (describe t)"))

    assert types["time"] in ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP_NS", "TIMESTAMPTZ_NS") or (
        "TIME" in types["time"]
    )
    assert {name: types[name] for name in ("cpu", "tid", "name", "key", "flags", "cpu_kv_get")} == {
        "cpu": "USMALLINT",
        "tid": "UINTEGER",
        "name": "VARCHAR",
        "key": "VARCHAR",
        "flags": "USMALLINT",
        "cpu_kv_get": "TINYINT",
    }
    assert (types["yes"], types["x"], types["at"], types["c"]) == (
        "BOOLEAN", "DOUBLE", "UBIGINT", "VARCHAR",
    )  # fmt: skip


def test_duckdb_finds_every_value_and_null_where_a_marker_has_none(parquet: Path) -> None:
    ask = duck(parquet)

    assert ask("select id, text, rows from t where name like 'query%' order by time") == [
        (7, "select 'ä'\n\"1\"", None),
        (-8, None, None),
        (-8, None, 0),
        (7, None, 12),
        (9, None, 1),
    ]
    assert ask("select key, len_kv_get, flags, cpu_kv_get from t where name = 'kv_get'") == [
        ("a b", 1 << 63, 255, -1),
        (None, 0, 0, 5),
    ]
    assert ask("select c, yes, \"at\", x, y, name_odd from t where name = 'odd'") == [
        ("x", True, 0xFFFF_8000_0000_0000, 0.1, -2.5, "")
    ]
    assert ask("select count(*) from t where id is null and key is null and x is null") == [(2,)]


def test_duckdb_sums_up(parquet: Path) -> None:
    ask = duck(parquet)

    assert ask("select name, count(*) from t group by name order by 2 desc, 1 limit 2") == [
        ("query_done", 3),
        ("kv_get", 2),
    ]
    assert ask("select quantile_disc(rows, 0.5) from t") == [(1,)]


def test_duckdb_finds_what_the_trace_says_of_itself_and_the_losses(parquet: Path) -> None:
    metadata = {
        bytes(key).decode(): bytes(value)
        for key, value in duck(parquet)(f"select key, value from parquet_kv_metadata('{parquet}')")
    }

    assert json.loads(metadata["markerjit"])["pid"] == 812
    assert json.loads(metadata["markerjit.lost"]) == [{"cpu": 0, "name": "kv_get", "lost": 3}]


def test_polars_finds_the_same(table: Path) -> None:
    polars = pytest.importorskip("polars", reason="needs polars from PyPI")

    frame = polars.read_parquet(table) if table.suffix == ".parquet" else polars.read_ipc(table)

    assert frame["name"].to_list() == [event.name for event in EVENTS]
    assert frame["time"].dt.epoch("ns").to_list() == [event.time + WALL_NS for event in EVENTS]
    assert frame["time"][0].replace(microsecond=0) == datetime.datetime.fromtimestamp(
        (START_NS + WALL_NS) / 1e9, datetime.UTC
    )
    assert frame["key"].to_list() == [event.fields.get("key") for event in EVENTS]
    assert frame["at"].to_list() == [event.fields.get("at") for event in EVENTS]
    assert frame["x"].to_list() == [event.fields.get("x") for event in EVENTS]

"""Probes of Debian's PostgreSQL against what the server itself counts of the same things.

What a backend reads is asked of the server's statistics from a connection to another database: each
database has its own numbers. What a statement does is asked of EXPLAIN, whose numbers are the
backend's own. The server counts no lightweight locks. But it takes exactly one to look up a
buffer, and one for each record of the log, and those it counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

import markerjit
from tests.support.postgresql import Client, Server, postgresql
from tests.support.timing import wait_until

pytestmark = [pytest.mark.live, pytest.mark.slow]

READS = "postgresql:buffer__read__done"
SHARED, EXCLUSIVE = 1, 0  # LWLockMode
ROWS = 20_000
PLAN_OF = (
    "create function plan_of(query text) returns text language plpgsql as "
    "'declare answer json; begin execute query into answer; return answer::text; end'; select 1;"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgresql() as server:
        yield server


@pytest.fixture
def observer(server: Server) -> Client:
    """In the database `postgres`."""
    return server.connect()


@pytest.fixture
def client(server: Server, observer: Client, request: pytest.FixtureRequest) -> Client:
    """Alone in a database of its own."""
    name = request.node.name.removeprefix("test_")[:60]
    observer.ask(f"create database {name}; select 1;")
    client = server.connect()
    client.ask(f"\\c {name}\nselect 1;")
    client.pid = int(client.ask("select pg_backend_pid();"))  # another process serves it now
    client.ask(PLAN_OF)
    return client


class Added(NamedTuple):
    """How often probes were reached, by their keys."""

    session: markerjit.Session
    stack: ExitStack

    def up(self, name: str, by: str | None = None) -> markerjit.AddingUp:
        return self.stack.enter_context(self.session.aggregate(f"postgresql:{name}", by=by))


@pytest.fixture
def added(client: Client) -> Iterator[Added]:
    with ExitStack() as stack:
        yield Added(stack.enter_context(markerjit.attach(client.pid)), stack)


def counts(adding: markerjit.AddingUp) -> dict[tuple[Any, ...], int]:
    answers = adding.read()
    assert answers.missed == markerjit.Missed()
    return {row.key: row.answer for row in answers.rows}


def total(adding: markerjit.AddingUp) -> int:
    return sum(counts(adding).values())


def of_database(observer: Client, client: Client, *columns: str) -> list[int]:
    """The server's numbers of the client's database, with all that the client has to report. It
    reports when a statement has ended that has read a table."""
    name = client.ask("select current_database();")
    client.ask("select count(pg_stat_force_next_flush()) from pg_class where oid < 20000;")
    return numbers(observer, f"pg_stat_database where datname = '{name}'", *columns)


def numbers(client: Client, source: str, *columns: str) -> list[int]:
    answer = client.ask(f"select {', '.join(columns)} from {source};")
    return [int(text) for text in answer.split("|")]


def work(client: Client) -> None:
    """Reads that hit and reads that do not, extensions of files, and a log."""
    client.ask(
        f"create table t as select g, repeat('x', 200) from generate_series(1, {ROWS}) g; select 1;"
    )
    client.ask("create index on t (g); select 1;")
    client.ask("begin; update t set g = g + 1 where g % 7 = 0; rollback; select 1;")
    client.ask(f"select count(*) from t where g < {ROWS // 2};")
    client.ask("select g from t where g = 500;")


def test_reads_of_blocks_are_those_of_the_statistics(
    observer: Client, client: Client, added: Added
) -> None:
    database = int(client.ask("select oid from pg_database where datname = current_database();"))
    before = of_database(observer, client, "blks_read", "blks_hit")
    reads = added.up("buffer__read__done", "database, hit")
    starts = added.up("buffer__read__start", "database")
    work(client)
    after = of_database(observer, client, "blks_read", "blks_hit")

    read, hit = (now - earlier for now, earlier in zip(after, before, strict=True))
    assert read > ROWS // 40
    assert hit > ROWS // 40
    seen = counts(reads)
    assert seen[database, True] == hit
    assert seen[database, False] == read
    assert counts(starts)[(database,)] == read + hit


def test_transactions_are_those_of_the_statistics(
    observer: Client, client: Client, added: Added
) -> None:
    before = of_database(observer, client, "xact_commit", "xact_rollback")
    commits, aborts = added.up("transaction__commit"), added.up("transaction__abort")
    for number in range(40):
        client.ask(
            f"begin; select {number} where false; {('commit', 'rollback')[number % 3 == 0]};"
            " select 1;"
        )
    after = of_database(observer, client, "xact_commit", "xact_rollback")

    assert [total(commits), total(aborts)] == [
        now - earlier for now, earlier in zip(after, before, strict=True)
    ]
    assert total(aborts) == 14


def test_locks_for_lookups_of_buffers_are_as_many_as_reads(
    observer: Client, client: Client, added: Added
) -> None:
    """BufferAlloc takes the shared lock of a part of the table of buffers, once for each block that
    is read or added to a file."""
    locks = added.up("lwlock__acquire", "tranche, mode")
    reads = added.up("buffer__read__start", "extend")
    client.ask(
        f"create table t as select g, repeat('x', 200) from generate_series(1, {ROWS}) g; select 1;"
    )
    client.ask("select count(*) from t;")

    lookups = counts(reads)
    assert counts(locks)["BufferMapping", SHARED] == sum(lookups.values())
    assert lookups[False,] > lookups[True,] > ROWS // 40


def test_records_of_the_log_are_those_of_explain_and_each_takes_its_lock(
    client: Client, added: Added
) -> None:
    client.ask("create table t (g int); create index on t (g); select 1;")
    records = added.up("wal__insert", "rmid")
    locks = added.up("lwlock__acquire", "tranche, mode")
    client.ask("begin; select 1;")
    before = counts(records), counts(locks)
    plan = explained(
        client,
        f"explain (analyze, wal, format json) insert into t select generate_series(1, {ROWS})",
    )
    after = counts(records), counts(locks)
    client.ask("rollback; select 1;")

    inserted = sum(after[0].values()) - sum(before[0].values())
    key = "WALInsert", EXCLUSIVE
    assert inserted == plan["WAL Records"] > 2 * ROWS
    assert after[1][key] - before[1].get(key, 0) == inserted


def test_blocks_of_explain_are_reads(client: Client, added: Added) -> None:
    client.ask(f"create table t as select g from generate_series(1, {ROWS}) g; select 1;")
    query = "explain (analyze, buffers, format json) select sum(g) from t"
    explained(client, query)  # the catalogs are known from now on
    relation = int(client.ask("select pg_relation_filenode('t');"))
    reads = added.up("buffer__read__done", "relation, hit")
    plan = explained(client, query)

    seen = counts(reads)
    assert seen[relation, True] == plan["Shared Hit Blocks"] > ROWS // 300
    assert seen.get((relation, False), 0) == plan["Shared Read Blocks"] == 0


def explained(client: Client, query: str) -> dict[str, Any]:
    """The root of a plan that was executed."""
    text = client.ask(f"select replace(plan_of($q${query}$q$), chr(10), ' ');")
    plan: dict[str, Any] = json.loads(text)[0]["Plan"]
    return plan


def test_blocks_that_a_checkpoint_writes_are_those_of_the_statistics(
    server: Server, observer: Client, client: Client
) -> None:
    work(client)
    pid = int(observer.ask("select pid from pg_stat_activity where backend_type = 'checkpointer';"))
    columns = "checkpoints_req", "buffers_checkpoint"

    def checkpoint() -> tuple[int, ...]:
        """The numbers behind a checkpoint. The server reports them after it has told of its end."""
        requested, _ = numbers(observer, "pg_stat_bgwriter", *columns)
        observer.ask("checkpoint; select 1;")
        wait_until(
            lambda: numbers(observer, "pg_stat_bgwriter", *columns)[0] > requested,
            "the checkpoint is in the statistics",
        )
        return tuple(numbers(observer, "pg_stat_bgwriter", *columns))

    before = checkpoint()
    client.ask("update t set g = g + 1; select 1;")
    with (
        markerjit.attach(pid) as session,
        session.aggregate("postgresql:checkpoint__start") as checkpoints,
        session.aggregate("postgresql:buffer__sync__written") as written,
        session.aggregate("postgresql:lwlock__acquire", by="tranche") as locks,
    ):
        after = checkpoint()

    requested, buffers = (now - earlier for now, earlier in zip(after, before, strict=True))
    assert [total(checkpoints), total(written)] == [requested, buffers]
    assert requested == 1
    assert buffers > ROWS // 40
    assert counts(locks)["CheckpointerComm",] > 0

"""The USDT probes of Debian's PostgreSQL, in a server of the test's own."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

import markerjit
from tests.support.commands import running
from tests.support.postgresql import Server, postgresql
from tests.support.recipes import asked
from tests.support.timing import wait_until

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture
def server() -> Iterator[Server]:
    with postgresql() as server:
        yield server


def heads_of(session: markerjit.Session) -> dict[int, str]:
    """The bytes of each site, by its address."""
    probes = session.usdt("postgresql:*").probes
    places = (state.site.address for probe in probes for state in probe.states)
    return {place: session.read(place, 8).hex() for place in places}


def semaphores_of(session: markerjit.Session) -> dict[int, int | None]:
    """The count in each semaphore, by its address."""
    probes = session.usdt("postgresql:*").probes
    states = [state for probe in probes for state in probe.states]
    return {state.site.recipe.semaphore: state.raised for state in states}


def sites_of_semaphores(session: markerjit.Session) -> Counter[int]:
    """How many sites have each semaphore."""
    probes = session.usdt("postgresql:*").probes
    return Counter(state.site.recipe.semaphore for probe in probes for state in probe.states)


def test_every_site_is_switched_while_it_serves_and_is_as_before(server: Server) -> None:
    client = server.connect()

    with markerjit.attach(client.pid, breakpoints=True) as session:
        before = heads_of(session)
        lowered = semaphores_of(session)
        for _ in range(10):
            applied = session.enable("postgresql:*")
            assert semaphores_of(session) == sites_of_semaphores(session)
            assert client.ask("select 1 + 1;") == "2"
            session.disable("postgresql:*")
            assert client.ask("select 2 + 2;") == "4"
        statuses = session.statistics("postgresql:*")
        after = heads_of(session)
        semaphores = semaphores_of(session)

    assert not applied.left_out
    assert sum(len(status.sites) for status in statuses) == len(before) == 71
    assert {s.name: s.total for s in statuses}["postgresql:transaction__commit"] == 10
    assert after == before
    assert semaphores == lowered == dict.fromkeys(lowered, 0)


def test_queries_are_traced_with_their_text(server: Server) -> None:
    client = server.connect()

    with (
        markerjit.attach(client.pid) as session,
        session.trace("postgresql:query__*") as stream,
    ):
        answer = client.ask("select 'hello';")
        events = [(event.name, event.fields) for event in stream.drain()]

    assert answer == "hello"
    assert events[0] == ("postgresql:query__start", {"query": "select 'hello';"})
    assert events[-1] == ("postgresql:query__done", {"query": "select 'hello';"})
    assert {name for name, _ in events} > {"postgresql:query__plan__start"}


def test_process_that_was_forked_while_probes_were_on_is_traced_by_itself(server: Server) -> None:
    with markerjit.attach(server.pid, breakpoints=True) as session:
        session.enable("postgresql:*")
        client = server.connect()
        with markerjit.attach(client.pid) as backend:
            with backend.trace("postgresql:transaction__*") as stream:
                for _ in range(5):
                    assert client.ask("select 3;") == "3"
                events = Counter(event.name for event in stream.drain())
            backend.disable("postgresql:*")
        assert client.ask("select 4;") == "4"
        session.disable("postgresql:*")

    assert events == {"postgresql:transaction__start": 5, "postgresql:transaction__commit": 5}


# ---- the whole family ----------------------------------------------------------------------------

QUERIES = 20
OWN = 2
"""Commits of a client before its first query here: its backend begins, and tells its pid."""


def is_on(pid: int) -> bool:
    with markerjit.View(pid) as view:
        return any(marker.mode for marker in view.statistics("postgresql:*"))


def test_commits_of_all_clients_are_counted_from_the_postmaster_on(server: Server) -> None:
    """Also those of a client that has ended meanwhile."""
    words = ["on", "--follow", server.pid, "postgresql:transaction__commit", "--off-at-end"]
    with running(*words, "--json") as command:
        wait_until(lambda: is_on(server.pid), "the switch")
        clients = [server.connect() for _ in range(3)]
        for client in clients:
            for number in range(QUERIES):
                assert client.ask(f"select {number};") == str(number)
        clients[0].close()
        command.send_signal(signal.SIGTERM)
        printed, errors = command.communicate()

    assert command.returncode == 0, errors
    (marker,) = json.loads(printed)["markers"]
    assert marker["hits"] == len(clients) * (QUERIES + OWN)
    assert clients[1].ask("select 'goes on';") == "goes on"
    assert not is_on(clients[1].pid)


def test_queries_of_new_clients_are_printed_as_they_come(server: Server) -> None:
    words = ["trace", "--follow", server.pid, "postgresql:query__start", "--json"]
    with running(*words) as command:
        wait_until(lambda: is_on(server.pid), "the switch")
        clients = [server.connect() for _ in range(2)]
        for client in clients:
            assert client.ask(f"select 'I am {client.pid}';") == f"I am {client.pid}"
        command.send_signal(signal.SIGTERM)
        printed, errors = command.communicate()

    assert command.returncode == 0, errors
    events = [line for line in map(json.loads, printed.splitlines()) if "name" in line]
    assert [(event["pid"], event["fields"]["query"]) for event in events if
            "I am" in event["fields"]["query"]] == [
        (client.pid, f"select 'I am {client.pid}';") for client in clients
    ]  # fmt: skip


def test_all_sites_of_all_processes_are_switched_while_they_serve(server: Server) -> None:
    clients = [server.connect() for _ in range(3)]
    pids = [server.pid, *(client.pid for client in clients)]

    with markerjit.Fleet(pids, breakpoints=True) as fleet:
        before = {pid: heads_of(session) for pid, session in fleet.sessions.items()}
        for number in range(5):
            fleet.each(lambda session: session.enable("postgresql:*"))
            assert {client.ask(f"select {number};") for client in clients} == {str(number)}
            fleet.each(lambda session: session.disable("postgresql:*"))
        after = {pid: heads_of(session) for pid, session in fleet.sessions.items()}

    assert not fleet.failed
    assert after == before


def test_recipes_say_how_long_statements_and_waits_take_and_what_is_read(server: Server) -> None:
    client, other = server.connect(), server.connect()
    client.ask("create table numbers as select generate_series(1, 10000) as n; select 1;")
    relation = client.ask("select pg_relation_filenode('numbers');")

    def sleep() -> None:
        client.ask("select pg_sleep(0.2)::text || 'x';")

    def wait_for_a_lock() -> None:
        client.ask("begin; lock table numbers; select 1;")
        assert other.process.stdin
        other.process.stdin.write("select count(*) from numbers;\n")
        wait_until(
            lambda: client.ask("select count(*) from pg_locks where not granted;") == "1",
            "the other one waits",
        )
        client.ask("commit; select 1;")
        assert other.process.stdout
        assert other.process.stdout.readline() == "10000\n"

    def read() -> None:
        client.ask("select sum(n) from numbers;")

    statements = asked("postgresql-statements", client.pid, sleep)
    locks = asked("postgresql-locks", other.pid, wait_for_a_lock)
    reads = asked("postgresql-reads", client.pid, read)

    slow = [document["slow"] for document in statements if "slow" in document]
    assert [pair["begin"]["fields"]["query"] for pair in slow] == [
        "select pg_sleep(0.2)::text || 'x';"
    ]
    assert statements[-1]["pairs"] == 1
    assert locks[-1]["pairs"] == 1
    pages = {row["key"][1]: row["count"] for row in reads[-1]["rows"]}
    assert pages[int(relation)] >= 40

"""The USDT probes of Debian's PostgreSQL, in a server of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import markerjit
from tests.support.timing import wait_until
from tests.support.usdt import debian

pytestmark = [pytest.mark.live, pytest.mark.slow]

SERVER = "/usr/lib/postgresql/15/bin/postgres"
USER = "postgres"


class Client:
    """A client, and the process of the server that serves it."""

    def __init__(self, directory: Path) -> None:
        pipe = subprocess.PIPE
        command = ["psql", "-h", directory, "-U", USER, "-d", "postgres", "-XAtq"]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        self.pid = int(self.ask("select pg_backend_pid();"))

    def ask(self, query: str) -> str:
        """The only line of the answer."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{query}\n")
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Server(NamedTuple):
    """The first process of a server, and `connect`, which makes a client."""

    pid: int
    connect: Callable[[], Client]


@pytest.fixture
def directory() -> Iterator[Path]:
    """For the server alone: pytest closes its own directories to other users whenever it starts."""
    with tempfile.TemporaryDirectory(prefix="mj-pg-") as name:
        yield Path(name)


@pytest.fixture
def server(directory: Path) -> Iterator[Server]:
    folder = Path(debian(SERVER)).parent
    if not shutil.which("psql"):
        pytest.skip("needs psql (Debian package postgresql-client-15)")
    as_user: list[str] = []
    if not os.geteuid():  # the server refuses root
        as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--"]
        shutil.chown(directory, USER)
    data, options = directory / "db", ["-c", "listen_addresses=", "-c", "fsync=off"]
    made = [*as_user, folder / "initdb", "-D", data, "-A", "trust", "-N", "-U", USER]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    command = [
        *as_user, SERVER, "-D", data, *options, "-c", f"unix_socket_directories={directory}",
    ]  # fmt: skip
    clients: list[Client] = []

    def connect() -> Client:
        clients.append(Client(directory))
        return clients[-1]

    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        ready = [folder / "pg_isready", "-q", "-h", directory]
        try:
            wait_until(
                lambda: not subprocess.run(ready, check=False).returncode,
                "a server that accepts clients", every_s=0.05,
            )  # fmt: skip
            yield Server(process.pid, connect)
        finally:
            for client in clients:
                client.close()
            process.terminate()


def heads_of(session: markerjit.Session) -> list[bytes]:
    probes = session.usdt("postgresql:*").probes
    return [session.read(state.site.address, 8) for one in probes for state in one.states]


def test_every_site_is_switched_while_it_serves_and_is_as_before(server: Server) -> None:
    client = server.connect()

    with markerjit.attach(client.pid) as session:
        before = heads_of(session)
        for _ in range(10):
            applied = session.enable("postgresql:*")
            assert client.ask("select 1 + 1;") == "2"
            session.disable("postgresql:*")
            assert client.ask("select 2 + 2;") == "4"
        statuses = session.statistics("postgresql:*")
        after = heads_of(session)

    assert not applied.left_out
    assert sum(len(status.sites) for status in statuses) == len(before) == 71
    assert {s.name: s.total for s in statuses}["postgresql:transaction__commit"] == 10
    assert after == before


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
    with markerjit.attach(server.pid) as session:
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

"""A server of Debian's PostgreSQL of the test's own, and clients of it."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.timing import Limited, wait_until
from tests.support.usdt import debian

SERVER = "/usr/lib/postgresql/15/bin/postgres"
USER = "postgres"


class Client:
    """A client, and the process of the server that serves it."""

    def __init__(self, directory: Path) -> None:
        pipe = subprocess.PIPE
        command = ["psql", "-h", directory, "-U", USER, "-d", "postgres", "-XAtq"]
        self.process = Limited(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)
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


@contextmanager
def postgresql() -> Iterator[Server]:
    """A server, in a directory for it alone: pytest closes its own ones to other users whenever it
    starts. Skips where there is none."""
    with tempfile.TemporaryDirectory(prefix="mj-pg-") as name:
        yield from _served(Path(name))


@cache
def _database(folder: Path, as_user: tuple[str, ...]) -> Path:
    """A database that is empty, to be copied: to make one takes as long as most tests."""
    place = tempfile.TemporaryDirectory(prefix="mj-pg-")
    atexit.register(place.cleanup)
    if as_user:
        shutil.chown(place.name, USER)
    data = Path(place.name) / "db"
    made = [*as_user, folder / "initdb", "-D", data, "-A", "trust", "-N", "-U", USER]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    return data


def _served(directory: Path) -> Iterator[Server]:
    folder = Path(debian(SERVER)).parent
    if not shutil.which("psql"):
        pytest.skip("needs psql (Debian package postgresql-client-15)")
    as_user: list[str] = []
    if not os.geteuid():  # the server refuses root
        as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--"]
        shutil.chown(directory, USER)
    data, options = directory / "db", ["-c", "listen_addresses=", "-c", "fsync=off"]
    options += ["-c", "autovacuum=off"]  # its workers commit, too, whenever they like
    subprocess.run([*as_user, "cp", "-a", _database(folder, tuple(as_user)), data], check=True)
    command = [
        *as_user, SERVER, "-D", data, *options, "-c", f"unix_socket_directories={directory}",
    ]  # fmt: skip
    clients: list[Client] = []

    def connect() -> Client:
        clients.append(Client(directory))
        return clients[-1]

    with Limited(command, stderr=subprocess.DEVNULL) as process:
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

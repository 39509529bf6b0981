"""The programs of `make whole`: how each is started, does its work, and says what came of it.

A program stands still at one place before its work and after it, waiting for a line or a client, so
that as many functions are on its stacks at the end as at the beginning.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.postgresql import SERVER, postgresql
from tests.support.timing import Limited, wait_until

LONGEST_WORK_S = 4 * 3600.0
"""The tests of CPython take 20 minutes with all open, and longer on a busy machine."""
HERE = Path(__file__).parent
PYTHON = Path("/usr/bin/python3.11")
NEW_PYTHON = "3.13"
REDIS = Path("/usr/bin/redis-server")
LIBSTDCXX = "libstdc++.so*"
TESTS = (
    *("test_json", "test_re", "test_dict", "test_list", "test_set", "test_exceptions"),
    *("test_generators", "test_coroutines", "test_contextlib", "test_threading", "test_signal"),
    *("test_struct", "test_long", "test_float", "test_descr", "test_gc", "test_fork1"),
    *("test_asyncgen", "test_itertools", "test_weakref", "test_sys_settrace", "test_ctypes"),
)
"""Of CPython's own tests: some that go through most of the interpreter in minutes."""


class Missing(Exception):
    """A program is not on this machine; the message says what to install."""


class Running(NamedTuple):
    """A program at its place.

    pid       the process whose functions are opened
    objects   the objects whose functions are opened, as names have them: paths, or patterns
    """

    pid: int
    objects: tuple[str, ...]
    process: subprocess.Popen[str] | None = None
    directory: Path = Path()

    def ask(self, line: str) -> str:
        """Give the program a line; returns the one that it answers with."""
        assert self.process
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


class Program:
    """A program that is run untouched, and then with all its functions open.

    unfinished  functions that may be entered more often than left, as one pattern: what they end
                by is no exit (a throw, longjmp, the end of a thread)
    """

    name = ""
    unfinished = "$^"

    @contextmanager
    def running(self, directory: Path) -> Iterator[Running]:
        """The program, at its place, with an empty directory of its own."""
        raise NotImplementedError

    def work(self, program: Running) -> str:
        """Let it do its work; returns what came of it, which is the same each time."""
        raise NotImplementedError

    def lacks(self, result: str) -> str:
        """Why such a result shows nothing, whatever is open meanwhile: a sentence; "" for one of a
        program that did its work."""
        return "it did no work" if result in ("", _digest("")) else ""


@contextmanager
def _started(
    command: list[str | Path], directory: Path, objects: tuple[str, ...], **options: object
) -> Iterator[Running]:
    with Limited(
        [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=directory, limit_s=LONGEST_WORK_S, **options,  # type: ignore[call-overload]
    ) as process:  # fmt: skip
        try:
            yield Running(process.pid, objects, process, directory)
        finally:
            process.kill()


class Python(Program):
    """CPython of Debian under a part of its own regression tests."""

    name = "python3.11"
    missing = "apt-get install python3.11 libpython3.11-testsuite"
    unfinished = r"(PyThread_exit_thread|Py_Exit)"  # they end the thread, or the process

    def __init__(self, tests: tuple[str, ...] = (*TESTS, "test_unicode")) -> None:
        self._tests = tests

    def path(self) -> Path | None:
        """The interpreter, and with it its tests; None where they are not here."""
        return PYTHON if PYTHON.exists() and self._has_tests(Path("/usr/lib/python3.11")) else None

    def _has_tests(self, library: Path) -> bool:
        """Whether all tests that are asked for are in a standard library. (Debian has the runner
        without them, too.)"""
        places = (library / "test" / test for test in self._tests)
        return all(place.with_suffix(".py").exists() or place.is_dir() for place in places)

    def objects(self, path: Path) -> tuple[str, ...]:
        """The objects whose functions are opened."""
        return (str(path),)

    @contextmanager
    def running(self, directory: Path) -> Iterator[Running]:
        path = self.path()
        if path is None:
            raise Missing(self.missing)
        command = [path, "-E", "-s", HERE / "regression.py", *self._tests]
        with _started(command, directory, self.objects(path)) as program:
            assert program.process
            assert program.process.stdout
            assert program.process.stdout.readline() == "ready\n"
            yield program

    def work(self, program: Running) -> str:
        return program.ask("go")

    def lacks(self, result: str) -> str:
        good = re.search(r"\bgood=\[(.*?)\]", result)
        passed = len(good[1].split(", ")) if good and good[1] else 0
        if 2 * passed > len(self._tests):
            return ""
        return f"{passed} of its {len(self._tests)} modules of tests pass: {result}"


class NewPython(Python):
    """CPython 3.13 as pyenv builds it, with symbols: as a program, or in a shared library."""

    name = "python3.13"
    missing = "env PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install 3.13"

    def __init__(self, tests: tuple[str, ...] = (*TESTS, "test_str")) -> None:
        super().__init__(tests)

    def path(self) -> Path | None:
        versions = Path.home() / ".pyenv" / "versions"
        paths = sorted(versions.glob(f"{NEW_PYTHON}.*/bin/python{NEW_PYTHON}"))
        paths = [path.resolve() for path in paths]
        library = Path("lib") / f"python{NEW_PYTHON}"
        return next((path for path in paths if self._has_tests(path.parents[1] / library)), None)

    def objects(self, path: Path) -> tuple[str, ...]:
        library = next(path.parents[1].glob(f"lib/libpython{NEW_PYTHON}.so.*"), None)
        return (str(library or path),)


class PostgreSql(Program):
    """A server process of PostgreSQL, which executes a script with errors; beside it pgbench."""

    name = "postgres"
    unfinished = r".*"  # an error leaves any function by siglongjmp

    @contextmanager
    def running(self, directory: Path) -> Iterator[Running]:
        if not Path(SERVER).exists() or not shutil.which("psql"):
            raise Missing("apt-get install postgresql")
        with postgresql() as server:
            self._client = server.connect()
            yield Running(self._client.pid, (SERVER,))

    def work(self, program: Running) -> str:
        lines = (HERE / "script.sql").read_text().splitlines()
        answers = [self._client.ask(line) for line in lines]
        return _digest("\n".join(answers))


class Redis(Program):
    """redis-server under redis-benchmark."""

    name = "redis-server"

    @contextmanager
    def running(self, directory: Path) -> Iterator[Running]:
        if not REDIS.exists() or not shutil.which("redis-benchmark"):
            raise Missing("apt-get install redis-server redis-tools")
        place = directory / "socket"
        options = ["--port", "0", "--unixsocket", place, "--save", "", "--appendonly", "no"]
        with _started([REDIS, *options], directory, (str(REDIS.resolve()),)) as program:
            wait_until(lambda: _answers(place), "the server")
            yield program

    def work(self, program: Running) -> str:
        place = program.directory / "socket"
        of_server = ["-s", str(place)]
        subprocess.run(
            ["redis-benchmark", *of_server, "-q", "-n", "5000", "-c", "10", "-P", "4",
             "-t", "set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,lrange_100,mset"],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        commands = (HERE / "commands.redis").read_text()
        done = subprocess.run(
            ["redis-cli", *of_server], input=commands, capture_output=True, text=True, check=True,

        )  # fmt: skip
        return _digest(done.stdout)


class Sqlite(Program):
    """The library of SQLite under a script of its shell."""

    name = "sqlite3"

    @contextmanager
    def running(self, directory: Path) -> Iterator[Running]:
        path = shutil.which("sqlite3")
        if path is None:
            raise Missing("apt-get install sqlite3")
        objects = ("libsqlite3.so*",)
        command = ["stdbuf", "-oL", path, ":memory:"]
        with _started(command, directory, objects) as program:
            assert program.ask(".print ready") == "ready"
            yield program

    def work(self, program: Running) -> str:
        out = program.directory / "out"
        program.ask(f".output {out}\n.read {HERE}/script.sqlite\n.output\n.print done")
        return _digest(out.read_text())


class Bash(Program):
    """A script of bash with functions, expansions, traps, subshells and signals."""

    name = "bash"

    @contextmanager
    def running(self, directory: Path) -> Iterator[Running]:
        path = os.path.realpath("/bin/bash")
        with _started([path, "--norc"], directory, (path,)) as program:
            assert program.ask("echo ready") == "ready"
            yield program

    def work(self, program: Running) -> str:
        program.ask(f"source {HERE}/script.bash > out 2>&1; echo done")
        return _digest((program.directory / "out").read_text())


class Exceptions(Program):
    """A program in C++ that throws through all kinds of frames, with libstdc++."""

    name = "exceptions"
    unfinished = r".*"  # a throw leaves any function without an exit

    @contextmanager
    def running(self, directory: Path) -> Iterator[Running]:
        if not shutil.which("g++"):
            raise Missing("apt-get install g++")
        path = directory / "exceptions"
        command = ["g++", "-O2", "-pthread", HERE / "exceptions.cc", "-o", path]
        subprocess.run([str(word) for word in command], check=True)
        with _started([path], directory, (str(path), LIBSTDCXX)) as program:
            assert program.ask("0") == "0"
            yield program

    def work(self, program: Running) -> str:
        return program.ask("20000")


PROGRAMS: tuple[Program, ...] = (
    Bash(), Sqlite(), Exceptions(), Redis(), PostgreSql(), Python(), NewPython(),
)  # fmt: skip


def _digest(text: str) -> str:
    return f"{len(text)} bytes {hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def _answers(place: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(place))
        except OSError:
            return False
        client.sendall(b"PING\r\n")
        return client.recv(64) == b"+PONG\r\n"

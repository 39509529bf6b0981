"""Each recipe of the package against the program that it is for. Those for PostgreSQL are run in
test_usdt_postgresql.py."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.programs import Target
from tests.support.recipes import asked
from tests.support.usdt import debian

pytestmark = pytest.mark.live

PYTHON = """
import gc, os, sys
def work(n):
    return [bytearray(100) for _ in range(n)]
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(7):
        work(3)
    bytearray(5000000)
    gc.collect()
    read, write = os.pipe()
    os.write(write, b"x" * 100)
    os.read(read, 3000)
    print("done", flush=True)
"""
THROWING = """
#include <cstdio>
#include <stdexcept>
int main() {
    char line[100];
    puts("ready"); fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        try { throw std::runtime_error("no"); } catch (std::exception &) {}
        try { throw 7; } catch (int) {}
        puts("done"); fflush(stdout);
    }
}
"""


Start = Callable[..., Target]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a program that does its work once for each line."""
    started: list[Target] = []

    def starts(path: str | Path, *arguments: str) -> Target:
        started.append(Target(Path(path), *arguments))
        started[-1].wait_ready()
        return started[-1]

    yield starts
    for program in started:
        program.end()


@pytest.fixture
def python(start: Start) -> Target:
    return start(debian("/usr/bin/python3.11"), "-S", "-c", PYTHON)


def work(program: Target) -> None:
    assert program.command("work") == "done"


def test_recipes_of_the_server_say_what_its_clients_did(target: Callable) -> None:
    server = target("kvserver", "--port", "0")
    pid, port = server.pid, int(server.ready["port"])

    def talk() -> None:
        with socket.create_connection(("127.0.0.1", port)) as client:
            for line in ("SET user:1 abc", "SET user:2 abcdefgh", "GET user:1"):
                client.sendall(f"{line}\r\n".encode())
                client.recv(100)

    commands = asked("kvserver-commands", pid, talk)[-1]
    values = asked("kvserver-values", pid, talk)[-1]
    connections = asked("kvserver-connections", pid, talk)[-1]

    counts = {row["key"][0].upper(): row["count"] for row in commands["rows"]}
    assert counts == {"SET": 2, "GET": 1}
    assert {row["key"][0]: row["count"] for row in values["rows"]} == {"user": 2}
    assert connections["begins"] == 1


def test_recipes_of_python_count_calls_and_time_collections(python: Target) -> None:
    calls = asked("python-calls", python.pid, partial(work, python))[-1]
    garbage = asked("python-garbage", python.pid, partial(work, python))[-1]

    counts = {row["key"][0]: row["count"] for row in calls["rows"]}
    assert counts["work"] == 7
    assert garbage["pairs"] == 1
    assert garbage["unmatched"]["alone"] == garbage["unmatched"]["waiting"] == 0


def test_recipes_of_the_c_library_have_the_sizes(python: Target) -> None:
    pid = python.pid
    malloc = asked("libc-malloc", pid, partial(work, python))[-1]
    reads = asked("libc-reads", pid, partial(work, python))[-1]
    writes = asked("libc-writes", pid, partial(work, python))[-1]

    (row,) = malloc["rows"]
    assert sum(b["number"] for b in row["buckets"] if b["low"] <= 5_000_001 <= b["high"]) == 1
    sizes = [(b["low"], b["high"]) for row in reads["rows"] for b in row["buckets"] if b["number"]]
    assert (2048, 4095) in sizes
    sizes = [(b["low"], b["high"]) for row in writes["rows"] for b in row["buckets"] if b["number"]]
    assert (64, 127) in sizes


def test_recipes_of_the_c_library_have_the_times(python: Target) -> None:
    reads = asked("libc-read-times", python.pid, partial(work, python))[-1]
    writes = asked("libc-write-times", python.pid, partial(work, python))[-1]

    # Of the pipe. Python may write a line to its standard output in two pieces.
    reads_of, writes_of = (
        {row["key"][0]: row["calls"] for row in document["rows"]} for document in (reads, writes)
    )
    assert [calls for fd, calls in reads_of.items() if fd > 2] == [1]
    assert [calls for fd, calls in writes_of.items() if fd > 2] == [1]
    assert writes_of[1] >= 1
    assert all(0 < row["sum_ns"] <= row["calls"] * row["longest_ns"] for row in reads["rows"])


def test_recipe_of_exceptions_prints_their_types(
    tmp_path: Path, start: Start, needs_tool: Callable[[str, str], str]
) -> None:
    debian("/usr/lib/x86_64-linux-gnu/libstdc++.so.6")
    source, path = tmp_path / "throwing.cc", tmp_path / "throwing"
    source.write_text(THROWING)
    subprocess.run([needs_tool("g++", "g++"), "-o", path, source], check=True)
    throwing = start(path)
    lines = asked("cpp-exceptions", throwing.pid, partial(work, throwing))

    types = [line["fields"]["type"] for line in lines if "fields" in line]
    assert types == ["St13runtime_error", "i"]

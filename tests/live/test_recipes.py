"""Each recipe of the package against the program that it is for. Those for PostgreSQL are run in
test_usdt_postgresql.py."""

from __future__ import annotations

import socket
import ssl
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
LEAKING = """
import sys
kept = []
print("ready", flush=True)
for line in sys.stdin:
    kept.append(bytearray(3000000))
    bytearray(5000000)
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


TLS = """
import socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1])
with socket.create_server(("127.0.0.1", 0)) as server:
    print(f"ready port={server.getsockname()[1]}", flush=True)
    for _ in sys.stdin:
        connection, _ = server.accept()
        with context.wrap_socket(connection, server_side=True) as client:
            while text := client.recv(10000):
                client.sendall(text * 2)
        print("done", flush=True)
"""
NAMED = """
#include <stddef.h>
#define CALLED __attribute__((noinline, noipa))
#define LONG_ENOUGH __asm__ volatile("nop; nop; nop; nop; nop; nop; nop; nop")
typedef struct ssl_st { int state; } SSL;
CALLED void SSL_set_accept_state(SSL *s) { s->state = 1; LONG_ENOUGH; }
CALLED void SSL_set_connect_state(SSL *s) { s->state = 2; LONG_ENOUGH; }
CALLED int SSL_read(SSL *s, void *buf, int num) { LONG_ENOUGH; return num - 1; }
CALLED int SSL_read_ex(SSL *s, void *buf, size_t num, size_t *readbytes) {
    LONG_ENOUGH; return *readbytes = num - 1, num > 1;
}
CALLED int SSL_write(SSL *s, const void *buf, int num) { LONG_ENOUGH; return num - 1; }
CALLED int SSL_write_ex(SSL *s, const void *buf, size_t num, size_t *written) {
    LONG_ENOUGH; return *written = num - 1, num > 1;
}
"""
"""What OpenSSL's libssl looks like where it has debugging information."""
USING_NAMED = """
#include <stddef.h>
#include <stdio.h>
typedef struct ssl_st { int state; } SSL;
void SSL_set_connect_state(SSL *);
int SSL_read(SSL *, void *, int), SSL_read_ex(SSL *, void *, size_t, size_t *);
int SSL_write(SSL *, const void *, int), SSL_write_ex(SSL *, const void *, size_t, size_t *);
int main() {
    char line[100]; SSL s; size_t bytes;
    puts("ready"); fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        SSL_set_connect_state(&s);
        SSL_write(&s, line, 31); SSL_write(&s, line, 0); SSL_write_ex(&s, line, 41, &bytes);
        SSL_read(&s, line, 11); SSL_read(&s, line, 1); SSL_read_ex(&s, line, 21, &bytes);
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


def test_recipe_of_leaks_has_the_paths_of_what_is_kept(start: Start) -> None:
    program = start(debian("/usr/bin/python3.11"), "-S", "-c", LEAKING)

    (document,) = asked("libc-leaks", program.pid, partial(work, program))

    assert document["live_given"] >= 3_000_000
    (kept,) = (each for each in document["sites"] if each["live_asked"] >= 3_000_000)
    assert (kept["live"], kept["live_asked"] < 5_000_000) == (1, True)
    assert len(kept["site"]["stack"]["frames"]) > 3
    assert all(each["live_asked"] for each in document["sites"])


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


@pytest.fixture
def certificate(tmp_path: Path, needs_tool: Callable[[str, str], str]) -> Path:
    """A key and a certificate for 127.0.0.1, in one file."""
    key, path = tmp_path / "key.pem", tmp_path / "server.pem"
    command = [
        needs_tool("openssl", "openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes",
        "-subj", "/CN=127.0.0.1", "-keyout", key, "-out", path,
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    path.write_bytes(key.read_bytes() + path.read_bytes())
    return path


SIZES = (3, 20, 20, 700, 3000)
COUNTED = ("count", "sum", "min", "max")


def talk_by_tls(server: Target) -> None:
    """Send a text of each size, and take twice as much back."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    server.send("once")
    with (
        socket.create_connection(("127.0.0.1", int(server.ready["port"]))) as plain,
        context.wrap_socket(plain) as client,
    ):
        for size in SIZES:
            client.sendall(b"x" * size)
            left = 2 * size
            while left:
                left -= len(client.recv(left))
    assert server.read_line() == "done"


def test_recipes_of_openssl_have_bytes_and_handshakes(start: Start, certificate: Path) -> None:
    server = start(debian("/usr/bin/python3.11"), "-c", TLS, str(certificate))
    talk = partial(talk_by_tls, server)
    talk()  # which loads what is loaded late

    def talk_thrice() -> None:
        for _ in range(3):
            talk()

    sent = asked("openssl-bytes", server.pid, talk)[-1]
    handshakes = asked("openssl-handshakes", server.pid, talk_thrice)[-1]

    rows = {row["key"][0]: row for row in sent["rows"]}
    reads, writes = (rows.pop(f"func:SSL_{name}_ex:return") for name in ("read", "write"))
    assert not rows
    assert [reads[key] for key in COUNTED] == [len(SIZES), sum(SIZES), 3, 3000]
    assert [writes[key] for key in COUNTED] == [len(SIZES), 2 * sum(SIZES), 6, 6000]
    (row,) = handshakes["rows"]
    assert (row["key"], row["pairs"]) == (["func:SSL_set_accept_state"], 3)
    # A signature by a key of 2048 bits alone takes as long. The call of SSL_do_handshake, up to its
    # jump, would be 500 ns.
    assert row["sum_ns"] / 3 > 50_000
    assert handshakes["unmatched"]["waiting"] == handshakes["unmatched"]["replaced"] == 0


def test_recipes_of_openssl_know_names_of_debugging_information(
    tmp_path: Path, start: Start, needs_tool: Callable[[str, str], str]
) -> None:
    pytest.importorskip("drgn", reason="drgn is not installed: pip install 'markerjit[debug]'")
    gcc = needs_tool("gcc", "gcc")
    library, program = tmp_path / "libssl.so.3", tmp_path / "using"
    for path, text, options in (
        (library, NAMED, ("-shared", "-fPIC")), (program, USING_NAMED, (str(library),)),
    ):  # fmt: skip
        source = path.with_suffix(".c")
        source.write_text(text)
        subprocess.run([gcc, "-O2", "-g", source, *options, "-o", path], check=True)
    using = start(program)
    sent = asked("openssl-bytes", using.pid, partial(work, using))[-1]
    handshakes = asked("openssl-handshakes", using.pid, partial(work, using))[-1]

    assert {row["key"][0]: (row["count"], row["sum"]) for row in sent["rows"]} == {
        "func:SSL_read:return": (1, 10),
        "func:SSL_read_ex:return": (1, 20),
        "func:SSL_write:return": (1, 30),
        "func:SSL_write_ex:return": (1, 40),
    }
    (row,) = handshakes["rows"]
    assert (row["key"], row["pairs"]) == (["func:SSL_set_connect_state"], 1)


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

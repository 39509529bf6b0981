"""What it takes to ask a question: from the call of a session until its code is in its place, with
the markers on.

    python -m bench.asking [--rounds 40] [--many 1000]

The bundled server is asked usual questions while it waits for its clients. Each is a new one in
every round, since a constant of it is another: it is parsed, assembled and put into its place. Then
the server gets some requests, and what the question says of them has to be right. The questions
come in random order, and the server is another one after some rounds. The same question is asked
once more at the end of each round.

The first question of a process, and the first one of a session with it, are asked by an interpreter
that has done nothing but open the session. So they have to import what they need.

With --many, one session asks so many new questions about a marker, and nothing else is measured.
The first ones are compared with the last ones, and it is printed how much of the room for their
code is left.

Printed are milliseconds: the median, and in brackets the least one; with the CPU time of it, and
where there are many, the mean of that.
"""

from __future__ import annotations

import argparse
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

import markerjit
from markerjit.apps import showcase

KEY, VALUE = "key:000001", "x" * 5000
BUILD = "kvserver"
COMMANDS = ("SET", "GET")
ROUNDS_OF_A_SERVER = 10
_FIRST, _NEXT = "the first one of a process", "the first one of a session"
_AGAIN = "the same question again"
_COMPARED = 50
"""Of many questions, the first and the last ones that are compared, without the very first one."""


class Took(NamedTuple):
    """Seconds, and seconds of CPU time."""

    wall: float
    cpu: float


class Answer(NamedTuple):
    """What is read while a question is on, and what it has to be."""

    read: Callable[[], object]
    expected: object


Ask = Callable[[markerjit.Session, int], AbstractContextManager[Answer]]


@contextmanager
def count_by_number(session: markerjit.Session, number: int) -> Iterator[Answer]:
    """`count() by args % N`, without a condition."""
    by = f"args % {number}"
    with session.aggregate("kv_command", "count()", by=by) as counting:
        yield Answer(lambda: {row.key: row.answer for row in counting.read().rows},
                     {(2 % number,): 1, (1 % number,): 1})  # fmt: skip


@contextmanager
def count_by_name(session: markerjit.Session, number: int) -> Iterator[Answer]:
    """`count() by name where args < N`."""
    where = f"args < {number}"
    with session.aggregate("kv_command", "count()", by="name", where=where) as counting:
        yield Answer(lambda: {row.key: row.answer for row in counting.read().rows},
                     {(name,): 1 for name in COMMANDS})  # fmt: skip


@contextmanager
def hist_by_text(session: markerjit.Session, number: int) -> Iterator[Answer]:
    """`hist(size) by key[:4] where size > N`."""
    where = f"size > {number}"
    with session.aggregate("kv_store", "hist(size)", by="key[:4]", where=where) as adding:
        yield Answer(lambda: [(row.key, row.events) for row in adding.read().rows],
                     [((KEY[:4],), 1)])  # fmt: skip


@contextmanager
def latency(session: markerjit.Session, number: int) -> Iterator[Answer]:
    """`latency kv_accept kv_close --by fd --where 'fd < N'`."""
    where = f"fd < {number}"
    with session.latency("kv_accept", "kv_close", by="fd", where=where) as timing:
        yield Answer(lambda: timing.read().pairs, 1)


@contextmanager
def where_only(session: markerjit.Session, number: int) -> Iterator[Answer]:
    """`on kv_store --where 'size > N and key.startswith("key")'`."""
    before = hits(session)
    session.on("kv_store", where=f'size > {number} and key.startswith("key")')
    try:
        yield Answer(lambda: hits(session) - before, 1)
    finally:
        session.off("kv_store")


def hits(session: markerjit.Session) -> int:
    """How often our probes were executed."""
    return sum(statistic.total for statistic in session.statistics("kv_store"))


QUESTIONS: tuple[Ask, ...] = (
    count_by_number, count_by_name, hist_by_text, latency, where_only,
)  # fmt: skip


def ask(session: markerjit.Session, port: int, question: Ask, number: int) -> Took:
    """How long a question takes, whose answer is right."""
    began, began_cpu = time.perf_counter(), time.process_time()
    with question(session, number) as answer:
        took = Took(time.perf_counter() - began, time.process_time() - began_cpu)
        make_requests(port)
        for _ in range(1000):  # the server sees a bit later that the connection is closed
            if (content := answer.read()) == answer.expected:
                return took
            time.sleep(0.001)
        raise SystemExit(f"{question.__name__}: {content}, and not {answer.expected}")


def make_requests(port: int) -> None:
    """Set a key and get it, by a connection that is opened and closed."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(f"SET {KEY} {VALUE}\r\nGET {KEY}\r\n".encode())
        got = b""
        while not got.endswith(f"{VALUE}\r\n".encode()):
            got += client.recv(1 << 16)


def measure(rounds: int) -> Iterator[tuple[str, Took]]:
    """The questions of a session, in random order."""
    chance = random.Random(rounds)
    for first in range(0, rounds, ROUNDS_OF_A_SERVER):
        with showcase.server(BUILD) as server, markerjit.attach(server.pid) as session:
            for question in QUESTIONS:
                ask(session, server.port, question, 99)
            for number in range(100 + first, 100 + min(first + ROUNDS_OF_A_SERVER, rounds)):
                for question in chance.sample(QUESTIONS, len(QUESTIONS)):
                    yield name_of(question), ask(session, server.port, question, number)
                yield _AGAIN, ask(session, server.port, hist_by_text, number)


def measure_first(rounds: int) -> Iterator[tuple[str, Took]]:
    """The first questions, each by an interpreter of its own."""
    for _ in range(rounds):
        with showcase.server(BUILD) as server:
            for name in (_FIRST, _NEXT):
                words = [sys.executable, "-m", "bench.asking", "--once", str(server.pid),
                         str(server.port)]  # fmt: skip
                done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
                yield name, Took(*map(float, done.stdout.split()))


def measure_many(questions: int) -> Iterator[tuple[str, Took]]:
    """New questions about one marker, in one session."""
    with showcase.server(BUILD) as server, markerjit.attach(server.pid) as session:
        taken = [ask(session, server.port, hist_by_text, 100 + at) for at in range(questions)]
        with session._switcher.turn() as turn:
            arena = turn.seen.arena
            assert arena
            print(f"{arena.markers.used} entries of markers, {arena.code.room.code >> 10} KiB left")
    few = min(_COMPARED, len(taken) // 2)
    for first in (1, len(taken) - few):
        for took in taken[first : first + few]:
            yield f"questions {first + 1} to {first + few} of a session", took


def name_of(question: Ask) -> str:
    """The question, as it is asked."""
    return (question.__doc__ or "").partition(",")[0].rstrip(".")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--once", type=int, nargs=2, metavar=("PID", "PORT"), help="ask here")
    parser.add_argument("--many", type=int, metavar="N", help="one session asks N questions")
    options = parser.parse_args()
    if options.once:
        pid, port = options.once
        with markerjit.attach(pid) as session:
            print(*ask(session, port, hist_by_text, 99))
        return
    times: dict[str, list[Took]] = {}
    if options.many:
        series = [measure_many(options.many)]
    else:
        series = [measure(options.rounds), measure_first(-(-options.rounds // 4))]
    for measured in series:
        for name, took in measured:
            times.setdefault(name, []).append(took)
    mean = " mean of that |" if options.many else ""
    print(f"| a question, ms: median (least) | until it is in its place | CPU time of that |{mean}")
    print(f"| --- | ---: | ---: |{' ---: |' if options.many else ''}")
    for name, taken in times.items():
        columns = [
            f"{statistics.median(column) * 1e3:.1f} ({min(column) * 1e3:.1f})"
            for column in zip(*taken, strict=True)
        ]
        if options.many:
            columns.append(f"{statistics.mean(took.cpu for took in taken) * 1e3:.1f}")
        print(f"| {name} | {' | '.join(columns)} |")


if __name__ == "__main__":
    main()

"""Programs that pass events, and the ways of recording them that bench/recording.py compares.

A way is a loop of recording/subjects.c or recording/lttng.c under one kind of recording. Each way
with a trace has a process of its own, whose trace is open all the time; so blocks of all ways can
come in any order, and nothing is switched between them. After each block its events are accounted
for: `account` says how many were recorded, and how many lost.

How markerjit's recorder is asked stands in a few functions: `trace`, `fly`, `keep`, `drain` and
`counted`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import ust

import markerjit

ROOT = Path(__file__).resolve().parent.parent
COMPILE = ["cc", "-O2", "-g", "-pthread", "-I", str(ROOT / "native/include")]
SMALL_RING = 1 << 16
"""Full at once, and in a core's own cache for ever."""
LARGE_RING = 1 << 23
"""For records of which a block would not fit into the ring of a run."""

Stream = markerjit.EventStream


@contextmanager
def trace(session: markerjit.Session, marker: str, options: Mapping[str, Any]) -> Iterator[Stream]:
    """Record a marker, with options of a way."""
    with session.trace(marker, **options) as stream:
        yield stream


def fly(session: markerjit.Session, marker: str, options: Mapping[str, Any]) -> None:
    """Switch a marker on as a flight recorder."""
    session.record(marker, **options)


def keep(stream: Stream) -> None:
    """Say that somebody reads, before a block: the blocks before may have taken a while."""
    if not stream.keep():
        raise RuntimeError("somebody else reads the rings")


def drain(stream: Stream) -> int:
    """Take all events out of the rings; returns how many there were."""
    before = stream.statistics().events
    stream.rest(packets=True, columns=False)
    return stream.statistics().events - before


def counted(session: markerjit.Session, marker: str) -> tuple[int, int]:
    """How often it was passed while it was on, and how many records of that were lost."""
    (status,) = session.statistics(marker)
    return status.hits, status.lost


class Way(NamedTuple):
    """One row. `kind` is how it is set up and accounted for: see `opening`. `options` are those of
    Session.trace; `threads`, with how many it is passed; `ring_size`, if not that of the run."""

    name: str
    subject: str
    kind: str = "bare"
    options: Mapping[str, Any] = {}
    threads: tuple[int, ...] = (1,)
    ring_size: int = 0


BOTH = (1, 2)

WAYS = (
    Way("empty loop", "empty"),
    Way("call of an empty function", "call"),
    Way("rdtsc", "rdtsc", threads=BOTH),
    Way("store 32 bytes", "store"),
    Way("record by hand", "by_hand", threads=BOTH),
    Way("record by hand, prefetched", "by_hand_ahead", threads=BOTH),
    Way("record by hand, hot", "by_hand_hot"),
    Way("clock_gettime", "clock_gettime"),
    Way("locked add, own line", "locked_own", threads=BOTH),
    Way("locked add, shared line", "locked_shared", threads=BOTH),
    Way("markerjit dormant", "bench"),
    Way("markerjit count only", "bench", "count", threads=BOTH),
    Way("markerjit 2 ints", "bench", "trace", threads=BOTH),
    Way("markerjit 2 ints, no time", "bench", "trace", {"time": "none"}, threads=BOTH),
    Way("markerjit 1 int", "bench_1", "trace"),
    Way("markerjit 3 ints", "bench_3", "trace"),
    Way("markerjit 4 ints", "bench_4", "trace"),
    Way("markerjit 8 ints", "bench_8", "trace"),
    Way("markerjit 1 int, no time", "bench_1", "trace", {"time": "none"}),
    Way("markerjit 3 ints, no time", "bench_3", "trace", {"time": "none"}),
    Way("markerjit 8 ints, no time", "bench_8", "trace", {"time": "none"}),
    Way("markerjit string of 5", "bench_text5", "trace", threads=BOTH),
    Way("markerjit string of 40", "bench_text40", "trace"),
    Way("markerjit string of 200", "bench_text200", "trace", ring_size=LARGE_RING),
    Way("markerjit string of 5, careful", "bench_text5", "trace", {"strings": "careful"}),
    Way("markerjit ring full, all lost", "bench", "full", {}, BOTH, SMALL_RING),
    Way("markerjit overwrite", "bench", "overwrite", threads=BOTH),
    Way("markerjit overwrite, hot", "bench", "overwrite", ring_size=SMALL_RING),
    Way("LTTng dormant", "dormant", "lttng"),
    Way("LTTng 2 ints", "discard", "lttng", threads=BOTH),
    Way("LTTng 2 ints, vtid", "discard_tid", "lttng"),
    Way("LTTng 2 ints, overwrite", "overwrite", "lttng"),
)


PIECES = 11
"""Of a block: block.h."""


class Block(NamedTuple):
    """What a program said: events passed, warm-up included, and its times by name and thread."""

    passed: int
    times: dict[str, list[int]]


class Account(NamedTuple):
    """What became of the events of a block. `right` is False if events are missing, or were lost
    where none should be. None where it cannot be said block by block."""

    recorded: int | None
    lost: int | None
    right: bool = True


class Program:
    """A program that includes block.h, running."""

    def __init__(self, path: Path, **popen: Any) -> None:
        self._process = subprocess.Popen(
            [path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a Ctrl-C is for us
            **popen,
        )
        self.pid = self._process.pid
        self._answer("ready")

    def run(self, subject: str, events: int, threads: int) -> Block:
        """Pass a block of events in each thread."""
        assert self._process.stdin
        self._process.stdin.write(f"run {subject} {events} {threads}\n")
        self._process.stdin.flush()
        said = self._answer("run")
        passed = int(said.pop("passed"))
        return Block(passed, {name: [*map(int, of.split(","))] for name, of in said.items()})

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _answer(self, word: str) -> dict[str, str]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        first, *pairs = line.split() or [""]
        if first != word:
            raise RuntimeError(f"the program said {line!r}, not {word}: {self._process.poll()}")
        return dict(pair.split("=") for pair in pairs)


@contextmanager
def running(path: Path, **popen: Any) -> Iterator[Program]:
    """Run a program until the end of the block."""
    program = Program(path, **popen)
    try:
        yield program
    finally:
        program.end()


def build(directory: Path) -> Path:
    """subjects.c as a program."""
    program = directory / "subjects"
    subprocess.run(
        [*COMPILE, "-o", program, ROOT / "bench/recording/subjects.c"],
        check=True,
    )
    return program


def uncounted(passed: int) -> Account:
    """Nothing is recorded, or it is counted at the end of all."""
    return Account(None, None)


class Target(NamedTuple):
    """A way, set up: its program, what to do before a block, what to ask when it has ended."""

    program: Program
    account: Callable[[int], Account] = uncounted
    prepare: Callable[[], object] = lambda: None

    def run(self, way: Way, threads: int, events: int) -> tuple[Block, Account]:
        """A block, and what became of its events."""
        self.prepare()
        block = self.program.run(way.subject, events, threads)
        return block, self.account(block.passed)


@contextmanager
def opening(way: Way, path: Path, ring_size: int) -> Iterator[Target]:
    """A process for one of our own ways of recording:

    count      switched on, and counts; each event is to be counted
    trace      recorded, and drained after each block; each event is to be recorded
    full       never drained; each event is to be lost
    overwrite  never drained; each event is to be counted
    """
    size = way.ring_size or ring_size
    with (
        running(path) as program,
        markerjit.attach(program.pid, ring_size=size) as session,
    ):
        if way.kind == "count":
            session.enable(way.subject)
            yield Target(program, _counting(session, way.subject))
            return
        if way.kind == "overwrite":
            fly(session, way.subject, way.options)
            yield Target(program, _counting(session, way.subject))
            return
        with trace(session, way.subject, way.options) as stream:
            if way.kind == "trace":
                yield Target(program, _draining(stream), partial(keep, stream))
                return
            if way.kind == "full":
                keep(stream)
                program.run(way.subject, size // 16, len(way.threads))
            yield Target(program, _losing(session, way), partial(keep, stream))


def _counting(session: markerjit.Session, marker: str) -> Callable[[int], Account]:
    before = counted(session, marker)[0]

    def account(passed: int) -> Account:
        nonlocal before
        now = counted(session, marker)[0]
        hits, before = now - before, now
        return Account(hits, 0, hits == passed)

    return account


def _draining(stream: Stream) -> Callable[[int], Account]:
    before = stream.statistics().lost

    def account(passed: int) -> Account:
        nonlocal before
        recorded = drain(stream)
        now = stream.statistics()
        lost, before = now.lost - before, now.lost
        sound = not now.bad_records and not now.damaged_rings
        return Account(recorded, lost, recorded == passed and not lost and sound)

    return account


def _losing(session: markerjit.Session, way: Way) -> Callable[[int], Account]:
    before = counted(session, way.subject)

    def account(passed: int) -> Account:
        nonlocal before
        now = counted(session, way.subject)
        (hits, lost), before = (now[0] - before[0], now[1] - before[1]), now
        right = hits == passed and (way.kind != "full" or lost == passed)
        return Account(hits - lost, lost, right)

    return account


@contextmanager
def opening_lttng(directory: Path, ring_size: int) -> Iterator[tuple[ust.Tracer, Program]]:
    """The one program of all LTTng's ways, and its sessions."""
    with (
        ust.tracing(directory, ring_size) as tracer,
        running(tracer.program, **tracer.account) as program,
    ):
        yield tracer, program

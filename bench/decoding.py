"""How fast records are found in the bytes of a ring and become columns and events.

A ring's worth of made-up records of each kind, in pages as recorders write them: `walk` finds where
they are, `decode` makes columns of them, `events` makes Python objects of these. `two rings` are as
many records again of another CPU, whose times lie between those of the first, so that they have to
be sorted. Each figure is the median over rounds with the 5th and 95th percentile.

    python bench/decoding.py [--rounds N] [--mib N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle
from pathlib import Path

from markerjit.elf import parse_format
from markerjit.model import CType, TypeClass
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.columns import columns_of, events
from markerjit.ring.types import FILLER, RecordType, Time
from markerjit.ring.walk import PAGE, least_words, packet, walk, walk_packet

Samples = dict[str, list[float]]

INT, LONG = CType(TypeClass.SIGNED, 4), CType(TypeClass.SIGNED, 8)
CHARS = CType(TypeClass.CHARS, 8)
HEAD = 16
CLOCK = Calibration(Time.TSC, 0, 0, 2 * NS, 0)


def make_type(id: int, format_: str, *args: CType) -> RecordType:
    return RecordType(id, f"m{id}", format_, parse_format(format_, args))


def plain(code: str) -> Iterator[bytes]:
    """Bodies of records of two numbers."""
    return (struct.pack(f"<2{code}", number, -number) for number in cycle(range(1000)))


def texts() -> Iterator[bytes]:
    """Bodies of records of a text of 0 to 23 bytes and a number."""
    for length in cycle(range(24)):
        padded = (b"key:%020d" % length)[:length] + bytes(-length % 8)
        yield struct.pack("<II", length, 0) + padded + struct.pack("<q", length)


INTS = make_type(0, "a %d b %d", INT, INT)
LONGS = make_type(1, "a %ld b %ld", LONG, LONG)
TEXT = make_type(2, "key %s len %ld", CHARS, LONG)
WORKLOADS = {
    "24 bytes: two 32-bit ints": {INTS: plain("i")},
    "32 bytes: two 64-bit ints": {LONGS: plain("q")},
    "the two in turn": {INTS: plain("i"), LONGS: plain("q")},
    "a text and an int": {TEXT: texts()},
    "a text, and two ints, in turn": {TEXT: texts(), LONGS: plain("q")},
}


def pages(kinds: Iterable[tuple[RecordType, Iterator[bytes]]], size: int) -> tuple[bytes, int]:
    """So many bytes of records of these kinds in turn, and how many records they are."""
    data = bytearray()
    following, records = cycle(kinds), 0
    while True:
        type_, bodies = next(following)
        body = next(bodies)
        left = PAGE - len(data) % PAGE
        if left < HEAD + len(body):
            data += struct.pack("<HHI", FILLER, left // 8, 0) + bytes(left - 8)
        if len(data) >= size:
            return bytes(data), records
        data += struct.pack("<HHIQ", type_.id, (HEAD + len(body)) // 8, 812, 20 * records) + body
        records += 1


def timed(samples: Samples, name: str, records: int, action: Callable[[], object]) -> None:
    """Do it and keep how many million records a second that is."""
    start = time.thread_time_ns()
    action()
    samples.setdefault(name, []).append(records * 1e3 / (time.thread_time_ns() - start))


def measure(samples: Samples, name: str, types: dict[int, RecordType], data: bytes, n: int) -> None:
    """One round of everything with these records."""
    least = least_words(types)
    one = walk(data, 0, least)
    two = [one, one._replace(cpu=1)]
    raw = packet(one)
    columns = columns_of([one], types).columns
    steps: dict[str, tuple[int, Callable[[], object]]] = {
        "walk": (n, lambda: walk(data, 0, least)),
        "decode": (n, lambda: columns_of([one], types)),
        "walk + decode": (n, lambda: columns_of([walk(data, 0, least)], types)),
        "decode two rings": (2 * n, lambda: columns_of(two, types)),
        "packet": (n, lambda: packet(one)),
        "walk packet": (n, lambda: walk_packet(raw, least)),
        "events": (n, lambda: events(columns, CLOCK)),
    }
    for step, (records, action) in steps.items():
        timed(samples, f"{name}: {step}", records, action)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--mib", type=int, default=1, help="bytes of each ring")
    parser.add_argument("--json", metavar="FILE", help="keep every sample")
    options = parser.parse_args()
    made = {
        name: ({type_.id: type_ for type_ in kinds}, *pages(kinds.items(), options.mib << 20))
        for name, kinds in WORKLOADS.items()
    }
    samples: Samples = {}
    for _ in range(options.rounds):
        for name, (types, data, records) in made.items():
            measure(samples, name, types, data, records)
    if options.json:
        Path(options.json).write_text(json.dumps(samples))
    print(f"{'million records a second':<50}{'median':>9}{'5 %':>9}{'95 %':>9}")
    for name, values in samples.items():
        values = values * 2 if len(values) == 1 else values
        low, *_, high = statistics.quantiles(values, n=20, method="inclusive")
        print(f"{name:<50}{statistics.median(values):>9.2f}{low:>9.2f}{high:>9.2f}")


if __name__ == "__main__":
    main()

"""How the places of real programs can be opened: a table for people, and counts for tests.

    python -m tests.support.opening_coverage FILE…     all functions' entries, and USDT sites

Without files: the objects that docs and tests speak of, as far as they are on this machine.
"""

from __future__ import annotations

import random
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from elftools.elf.elffile import ELFFile

from markerjit.elf.image import FileImage
from markerjit.spans import Closed, Code, Way, best_opening

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
OBJECTS = (
    "/usr/lib/postgresql/15/bin/postgres",
    *(f"/usr/bin/{name}" for name in ("python3", "bash", "gdb", "perl", "git", "openssl")),
    *(f"{LIBRARIES}/{name}" for name in ("libc.so.6", "libm.so.6", "libstdc++.so.6")),
    *(f"{LIBRARIES}/{name}" for name in ("libsqlite3.so.0", "libcrypto.so.3", "libssl.so.3")),
)


class Coverage(NamedTuple):
    """How many places there are for each way, and why better ways were turned down."""

    ways: Counter[Way | None]
    turned_down: Counter[str]

    def share(self, *ways: Way) -> float:
        return sum(self.ways[way] for way in ways) / max(self.ways.total(), 1)

    def __str__(self) -> str:
        shares = (f"{self.ways[way] / max(self.ways.total(), 1):7.1%}" for way in (*Way, None))
        return f"{self.ways.total():7} {' '.join(shares)}"


def code_of(path: str) -> Code:
    with FileImage(path) as image:
        return Code(image)


def coverage(code: Code, places: Iterable[int]) -> Coverage:
    """Of these addresses, which are starts of instructions."""
    ways: Counter[Way | None] = Counter()
    turned_down: Counter[str] = Counter()
    for place in places:
        opening = best_opening(code, place)
        ways[None if isinstance(opening, Closed) else opening.way] += 1
        turned_down.update(f"{down.way}: {down.reason}" for down in opening.turned_down)
    return Coverage(ways, turned_down)


def entries(code: Code, count: int | None = None) -> list[int]:
    """The entries of functions; `count` of them, the same each time."""
    functions = code.functions
    starts: list[int] = functions.starts[~functions.parts].tolist()
    starts = [start for start in starts if not code.is_linkage(start)]
    if count is None or count >= len(starts):
        return starts
    return random.Random(count).sample(starts, count)


def usdt_sites(path: str) -> list[int]:
    """The addresses of the no-ops of an object's USDT probes."""
    with open(path, "rb") as file:
        elf = ELFFile(file)
        section = elf.get_section_by_name(".note.stapsdt")
        if section is None:
            return []
        base = elf.get_section_by_name(".stapsdt.base")
        sites = set()
        for note in section.iter_notes():
            descriptor = note["n_desc"]
            data = descriptor.encode("latin-1") if isinstance(descriptor, str) else descriptor
            pc, linked_at, _ = struct.unpack_from("<3Q", data)
            sites.add(pc + (base["sh_addr"] - linked_at if base else 0))
        return sorted(sites)


def main(paths: list[str]) -> None:
    ways = " ".join(f"{word:>7}" for word in ("no-op", "jump", "padding", "hole", "int3", "none"))
    print(f"{'object':24} {'places':>7} {ways}   s")
    for path in paths or [path for path in OBJECTS if Path(path).exists()]:
        name = Path(path).name
        before = time.perf_counter()
        code = code_of(path)
        result = coverage(code, entries(code))
        print(f"{name:24} {result} {time.perf_counter() - before:5.1f}", flush=True)
        for reason, count in result.turned_down.most_common(6):
            print(f"    {count:6}  {reason}")
        sites = usdt_sites(path)
        if sites:
            result = coverage(code, sites)
            print(f"{name + ', USDT':24} {result}", flush=True)
            for reason, count in result.turned_down.most_common(6):
                print(f"    {count:6}  {reason}")


if __name__ == "__main__":
    main(sys.argv[1:])

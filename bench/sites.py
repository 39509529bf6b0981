"""Programs with as many sites as one likes, and the threads that go through them.

    with crowd(sites=100_000, threads=64) as busy:
        busy.go()
        ...

A thousand sites are compiled, each in a function of its own as gcc -O2 makes it, and that object is
linked as often as need be under other names: a hundred thousand sites take gcc minutes, and the
linker a second. What was built stays in build/bench/, by a hash of all that went into it.

    python bench/sites.py SITES [NAMES]       build one, print its path

What this does not do: say whether a marker counts right. The truth programs of the tests do that.
"""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

ROOT = Path(__file__).resolve().parent.parent
COMPILE = ["cc", "-O2", "-fPIC", "-pthread", "-I", str(ROOT / "native/include")]
PART = 1_000  # sites that one object has, at most: gcc takes seconds for so many
NAME = "bench"
CACHE = ROOT / "build/bench"

STEP = (
    "__attribute__((noinline)) static int step{i}(int n)"
    ' {{ MARK({name}, "n %d", n); return n * {factor} + 1; }}\n'
)


class Built(NamedTuple):
    """The same sites twice: as a program, and as a library for our own process."""

    program: Path
    library: Path


class Crowd(Protocol):
    """A process with sites. `go` and `rest` return when all its threads do so."""

    pid: int

    def go(self) -> None: ...
    def rest(self) -> None: ...


def part_source(sites: int, names: int) -> str:
    """A function `part` that goes through so many sites, each in a function of its own."""
    numbered = [NAME if names == 1 else f"{NAME}_{i % names}" for i in range(sites)]
    steps = "".join(
        STEP.format(i=i, name=name, factor=i % 7 + 3) for i, name in enumerate(numbered)
    )
    calls = "".join(f"    n = step{i}(n);\n" for i in range(sites))
    return (
        "#include <markerjit/marker.h>\n"
        f"int part(int n);\n{steps}int part(int n) {{\n{calls}    return n;\n}}\n"
    )


def table_source(parts: int) -> str:
    """All the copies of `part`, as sites.c and own.c want them."""
    declarations = "".join(f"int part{i}(int n);\n" for i in range(parts))
    names = "".join(f"part{i}, " for i in range(parts))
    return f"{declarations}int (*const parts[])(int) = {{{names}0}};\n"


def build(sites: int, names: int = 1) -> Built:
    """A program and a library with so many sites of so many names; from the cache if it can."""
    if not 1 <= names <= min(sites, PART) or (sites > PART and sites % PART):
        raise ValueError(f"{sites} sites of {names} names cannot be made of parts of {PART}")
    parts = max(sites // PART, 1)
    directory = CACHE / f"sites-{sites}-{names}-{_digest(f'{sites} {names}')}"
    built = Built(directory / "crowd", directory / "crowd.so")
    if not built.library.exists():
        directory.mkdir(parents=True, exist_ok=True)
        _link(built, compile_part(part_source(min(sites, PART), names)), parts)
    return built


def _digest(more: str) -> str:
    told = hashlib.blake2b(more.encode(), digest_size=8)
    sources = [Path(__file__), ROOT / "bench/sites.c", ROOT / "native/targets/truth.h"]
    for source in (*sources, *sorted((ROOT / "native/include/markerjit").glob("*.h"))):
        told.update(source.read_bytes())
    told.update(subprocess.run(["cc", "--version"], check=True, capture_output=True).stdout)
    return told.hexdigest()


def compile_part(source: str) -> Path:
    """The object of a part, from the cache if it can; the parts of all tables are shared."""
    compiled = CACHE / f"part-{_digest(source)}.o"
    if not compiled.exists():
        with tempfile.TemporaryDirectory(dir=CACHE) as directory:
            unfinished = Path(directory) / "part.o"
            command = [*COMPILE, "-x", "c", "-c", "-", "-o", unfinished]
            subprocess.run(command, input=source, text=True, check=True)
            unfinished.rename(compiled)
    return compiled


def copies(part: Path, number: int, directory: Path) -> list[Path]:
    """A part again and again, each under a name of its own, as the table has them."""
    made = [directory / f"part{i}.o" for i in range(number)]
    for i, copy in enumerate(made):
        subprocess.run(["objcopy", f"--redefine-sym=part=part{i}", part, copy], check=True)
    return made


def _link(built: Built, part: Path, parts: int) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE) as directory:
        table = Path(directory) / "table.c"
        table.write_text(table_source(parts))
        sources = [ROOT / "bench/sites.c", table, *copies(part, parts, Path(directory))]
        for target, more in ((built.program, ()), (built.library, ("-shared",))):
            unfinished = Path(directory) / target.name
            subprocess.run([*COMPILE, *more, "-o", unfinished, *sources], check=True)
            unfinished.rename(target)


class Process:
    """A crowd in a process of its own."""

    def __init__(self, program: Path, threads: int) -> None:
        self._process = subprocess.Popen(
            [program, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self._expect("ready")

    def go(self) -> None:
        self._tell("go")

    def rest(self) -> None:
        self._tell("rest")

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _tell(self, word: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        self._expect(word)

    def _expect(self, word: str) -> None:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if line.split()[:1] != [word]:
            raise RuntimeError(f"the crowd said {line!r}, not {word}: code {self._process.poll()}")


class Inside:
    """A crowd in this process. Its threads stay for as long as the process does."""

    def __init__(self, library: Path, threads: int) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.crowd_start(threads)
        self.pid = 0
        self.go, self.rest = self._library.crowd_go, self._library.crowd_rest


@contextmanager
def crowd(*, sites: int, threads: int, names: int = 1) -> Iterator[Process]:
    """Run a crowd until the end of the block; asleep at first."""
    process = Process(build(sites, names).program, threads)
    try:
        yield process
    finally:
        process.end()


if __name__ == "__main__":
    print(build(*map(int, sys.argv[1:])).program)

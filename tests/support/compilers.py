"""The compilers of this machine, and what they made of a marker: notes, code, symbols.

The ELF reading here is small and trusting on purpose: it checks what the package's own reader
finds, so it must not be that reader. It is for our own fresh builds, not for files of others.
"""

from __future__ import annotations

import functools
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.kept_builds import kept_or_made
from tests.support.programs import ROOT

T = TypeVar("T")

INCLUDE = ROOT / "native" / "include"
MODES = ("jump", "nop", "pointer", "sentinel", "direct", "immediate", "symbol", "none")
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")

# What a compiler is called, and the Debian package to name when it is missing.
PACKAGES = {"gcc": "gcc", "g++": "g++", "clang": "clang", "clang++": "clang"}
# Tried as well where they are there; nobody misses them.
EXTRA = ("clang-19", "clang++-19")


@dataclass(frozen=True)
class Compiler:
    name: str

    @property
    def is_cxx(self) -> bool:
        return "++" in self.name

    @property
    def is_extra(self) -> bool:
        """A second version of a compiler: worth a few options, not all."""
        return self.name in EXTRA

    @property
    def is_clang(self) -> bool:
        return self.name.startswith("clang")

    def command(self, *words: str | Path) -> list[str]:
        language = ["-x", "c++" if self.is_cxx else "c"]
        return [self.name, f"-I{INCLUDE}", *language, *map(str, words)]

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Compile; the messages are in `stderr`, in English and without colours."""
        return subprocess.run(
            self.command(*words),
            env={**os.environ, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
        )

    def build(self, output: Path, *words: str | Path) -> Path:
        done = self.run(*words, "-o", output)
        assert done.returncode == 0, f"{' '.join(self.command(*words))}\n{done.stderr[:4000]}"
        return output

    def build_once(self, output: Path, *words: str | Path) -> Path:
        """The same, or what was built of the same before: see kept_builds."""
        command = self.command(*words)
        kept_or_made(command, output, lambda more: self.build(output, *words, *more))
        return output


COMPILERS = [Compiler(name) for name in PACKAGES] + [
    Compiler(name) for name in EXTRA if shutil.which(name)
]
C_COMPILERS = [compiler for compiler in COMPILERS if not compiler.is_cxx]
CXX_COMPILERS = [compiler for compiler in COMPILERS if compiler.is_cxx]


def need(compiler: Compiler) -> None:
    if shutil.which(compiler.name) is None:
        pytest.skip(f"needs {compiler.name} (Debian package {PACKAGES[compiler.name]})")


@functools.cache
def can(compiler: Compiler, *options: str) -> bool:
    """Whether an empty program can be built so. Link-time optimisation wants a fitting linker."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.c"
        source.write_text("int main(void) { return 0; }\n")
        return compiler.run(*options, source, "-o", Path(folder) / "empty").returncode == 0


def each_at_once(function: Callable[[T], object], items: Iterable[T]) -> None:
    """Call it for every item, on all CPUs; fail with what all of them have to say."""

    def complaint(item: T) -> str:
        try:
            function(item)
        except AssertionError as error:
            return f"{item}: {error}"
        return ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = [text for text in pool.map(complaint, items) if text]
    if complaints:
        pytest.fail("\n".join(complaints), pytrace=False)


# ---- what was built --------------------------------------------------------------------------


@dataclass(frozen=True)
class Section:
    name: str
    kind: int
    flags: int
    address: int
    data: bytes


@dataclass(frozen=True)
class Symbol:
    name: str
    address: int
    size: int
    is_function: bool


@dataclass(frozen=True)
class Note:
    """One marker note, its places as addresses in the file's own terms; 0 is nowhere."""

    version: int
    kind: int
    argc: int
    flags: int
    name: str
    format: str
    file: str
    line: int
    types: bytes
    site: int
    body: int
    end: int
    slot: int


_FIELDS = struct.Struct("<BBBBHHiiiiiI12s")
_SHT_NOTE, _SHT_NOBITS, _SHF_ALLOC = 7, 8, 2


class Elf:
    """A 64-bit little-endian ELF file that we have just built."""

    def __init__(self, path: Path) -> None:
        self.image = path.read_bytes()
        offset, size, count, strings = struct.unpack_from("<Q10xHHH", self.image, 40)
        headers = [
            struct.unpack_from("<IIQQQQIIQQ", self.image, offset + i * size) for i in range(count)
        ]
        names = self._contents(headers[strings])
        self.sections = [
            Section(_text(names, h[0]), h[1], h[2], h[3], self._contents(h)) for h in headers
        ]

    def _contents(self, header: tuple[int, ...]) -> bytes:
        return b"" if header[1] == _SHT_NOBITS else self.image[header[4] : header[4] + header[5]]

    def section(self, name: str) -> Section | None:
        return next((section for section in self.sections if section.name == name), None)

    def read(self, address: int, size: int) -> bytes:
        for section in self.sections:
            start = section.address
            if section.flags & _SHF_ALLOC and start <= address < start + len(section.data):
                return section.data[address - start : address - start + size]
        raise AssertionError(f"nothing is at {address:#x}")

    def symbols(self) -> Iterator[Symbol]:
        table, names = self.section(".symtab"), self.section(".strtab")
        assert table is not None
        assert names is not None
        for name, info, _other, section, value, size in struct.iter_unpack("<IBBHQQ", table.data):
            if section:
                yield Symbol(_text(names.data, name), value, size, info & 15 == 2)

    def function(self, name: str) -> Symbol:
        return next(s for s in self.symbols() if s.is_function and s.name == name)

    def notes(self) -> list[Note]:
        """Every marker note that is loaded. Relative places are made addresses."""
        notes = []
        for section in self.sections:
            if section.kind == _SHT_NOTE and section.flags & _SHF_ALLOC:
                notes += [
                    self._note(section.address + start, body)
                    for owner, kind, start, body in _records(section.data)
                    if (owner, kind) == (b"markerjit\0", 1)
                ]
        return notes

    def _note(self, address: int, data: bytes) -> Note:
        version, kind, argc, flags, size, _, *places, line, types = _FIELDS.unpack_from(data)
        site, body, end, slot, text = (
            address + 8 + 4 * i + place if place else 0 for i, place in enumerate(places)
        )
        words = self.read(text, 4096).split(b"\0")
        return Note(
            version=version,
            kind=kind,
            argc=argc,
            flags=flags,
            name=_text(data, size),
            format=words[0].decode(),
            file=words[1].decode(),
            line=line,
            types=types,
            site=site,
            body=body,
            end=end,
            slot=slot,
        )


def _records(data: bytes) -> Iterator[tuple[bytes, int, int, bytes]]:
    """Owner, type, offset of the descriptor and descriptor of each note in a section."""
    at = 0
    while at + 12 <= len(data):
        name_size, size, kind = struct.unpack_from("<III", data, at)
        start = at + 12 + (name_size + 3 & ~3)
        yield data[at + 12 : at + 12 + name_size], kind, start, data[start : start + size]
        at = start + (size + 3 & ~3)


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()

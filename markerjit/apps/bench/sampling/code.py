"""The machine code of a form: bytes, instructions, and their assembly.

The instructions that a dormant site executes are not found by reading the code. callgrind counts
them while it runs (valgrind --tool=callgrind --dump-instr=yes).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import capstone
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from markerjit.apps.bench.sampling.build import Missing
from markerjit.apps.bench.sampling.form import Form
from markerjit.errors import MarkerError
from markerjit.tuples import NamedTuple

_ALLOC = 2  # sh_flags
_LONGEST = 15  # bytes of an instruction
_ROUNDS = 2000
_FEWEST_ROUNDS = 20
"""The least rounds to count. With fewer, code that runs once at the start would be mistaken for a
part of the loop."""
_COUNTED_NS = 10e6
"""The most time of the counted rounds without callgrind. With it they take fifty times as long."""
_PATIENCE_S = 60
_PREFIX = re.compile(r"^==\d+== *")


class NotCounted(MarkerError):
    """Instructions could not be counted here, with the reason."""


class Line(NamedTuple):
    """An instruction."""

    address: int
    code: bytes
    text: str
    reads: tuple[int, int] | None
    """A word with a fixed address: where, and its bytes."""


class Code(NamedTuple):
    """The code of one object. Sizes and counts are for each of its sites.

    whole           bytes of everything that is loaded: code, notes, data
    lines           the function with the site; none where there are several sites
    hot             instructions that run in each round, of all functions; None if not counted
    instructions    in each round
    uncounted       the reason why they are not counted
    """

    whole: float
    lines: tuple[Line, ...]
    hot: frozenset[Line] | None
    instructions: float | None
    uncounted: str = ""
    sites: int = 1

    @property
    def hot_bytes(self) -> float | None:
        """Bytes of code on the way of a round."""
        return None if self.hot is None else sum(len(line.code) for line in self.hot) / self.sites

    @property
    def data_bytes(self) -> float | None:
        """Bytes of data with fixed addresses that a round reads."""
        if self.hot is None:
            return None
        return sum(size for _, size in {line.reads for line in self.hot if line.reads}) / self.sites


def rounds_to_count(ns: float) -> int:
    """The rounds to count of a loop, by the time of a round; 0 where counting would take too
    long."""
    rounds = int(min(_ROUNDS, _COUNTED_NS / max(ns, 1)))
    return rounds if rounds >= _FEWEST_ROUNDS else 0


def missing(codes: Mapping[str, Code]) -> list[Missing]:
    """A missing form that stands for instructions that were not counted."""
    whys = [code.uncounted for code in codes.values() if code.uncounted]
    return [Missing(Form("instructions", (), ""), why) for why in whys[:1]]


def valgrind() -> str:
    """The program. Raises NotCounted."""
    program = shutil.which("valgrind")
    if program is None:
        raise NotCounted("valgrind is not here; apt-get install valgrind")
    return program


def look_at(path: Path, runner: Path, rounds: int = _ROUNDS, sites: int = 1) -> Code:
    """The code of an object of ours. Instructions that run in the rounds are counted, unless
    `rounds` is 0. A round goes through all sites."""
    return look_at_all([path], runner, rounds, sites)[0]


def look_at_all(
    paths: Sequence[Path], runner: Path, rounds: int = _ROUNDS, sites: int = 1
) -> list[Code]:
    """The code of several objects. They are counted in one process, since valgrind's start takes
    much longer than their rounds. Where one cannot be counted, each is tried by itself."""
    try:
        counts: Sequence[Mapping[int, int] | NotCounted] = _counts(paths, runner, rounds)
    except NotCounted as error:
        counts = [error]
        if len(paths) > 1:
            return [look_at(path, runner, rounds, sites) for path in paths]
    return [
        _code(path, counted, rounds, sites) for path, counted in zip(paths, counts, strict=True)
    ]


def _code(path: Path, counts: Mapping[int, int] | NotCounted, rounds: int, sites: int) -> Code:
    with path.open("rb") as file:
        elf = ELFFile(file)
        whole = sum(
            section["sh_size"] for section in elf.iter_sections() if section["sh_flags"] & _ALLOC
        )
        symbols = elf.get_section_by_name(".symtab")
        assert isinstance(symbols, SymbolTableSection)
        matches = symbols.get_symbol_by_name("run")
        assert matches, f"{path} has no run"
        (symbol,) = matches
        section = elf.get_section(symbol["st_shndx"])
        start, size = symbol["st_value"], symbol["st_size"]
        text, base = section.data(), section["sh_addr"]
    lines = tuple(_lines(text[start - base :][:size], start)) if sites == 1 else ()
    if isinstance(counts, NotCounted):
        return Code(whole / sites, lines, None, None, str(counts), sites)
    # An instruction that ran this often is in the loop, even where a site is not in every round.
    often = {address: count for address, count in counts.items() if count >= rounds // 2}
    inside = [address for address in often if base <= address < base + len(text)]
    hot = frozenset(next(_lines(text[address - base :][:_LONGEST], address)) for address in inside)
    instructions = sum(often.values()) / (rounds + rounds // 10 + 1)
    return Code(whole / sites, lines, hot, instructions / sites, sites=sites)


def _lines(code: bytes, start: int) -> Iterator[Line]:
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.detail = True
    for instruction in decoder.disasm(code, start):
        reads = None
        for operand in instruction.operands:
            is_place = operand.type == capstone.x86.X86_OP_MEM and instruction.mnemonic != "lea"
            if is_place and operand.mem.base == capstone.x86.X86_REG_RIP:
                reads = instruction.address + instruction.size + operand.mem.disp, operand.size
        yield Line(
            instruction.address,
            bytes(instruction.bytes),
            f"{instruction.mnemonic} {instruction.op_str}".strip(),
            reads,
        )


def _counts(paths: Sequence[Path], runner: Path, rounds: int) -> list[dict[int, int]]:
    """The executions of each instruction of some objects, by its address in the file. Raises
    NotCounted."""
    if not rounds:
        raise NotCounted("a round takes too long to be run under valgrind")
    with tempfile.NamedTemporaryFile(prefix="markerjit-callgrind-") as out:
        command = [f"--callgrind-out-file={out.name}", str(runner), "0", *map(str, paths)]
        _callgrind(command, rounds, len(paths))
        counts = _read(Path(out.name), paths)
    if not all(counts):
        raise NotCounted("valgrind has seen nothing of it")
    return counts


def _callgrind(command: list[str], rounds: int, objects: int) -> None:
    request = "".join(f"run {number} {rounds} 1\n" for number in range(objects))
    try:
        process = subprocess.run(
            [valgrind(), "--tool=callgrind", "--dump-instr=yes", "--compress-pos=no",
             "--compress-strings=no", *command],
            input=request, capture_output=True, text=True, errors="replace",
            check=False, timeout=_PATIENCE_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise NotCounted(f"valgrind took more than {_PATIENCE_S} s") from None
    if process.returncode:
        complaints = [
            message for line in process.stderr.splitlines() if (message := _PREFIX.sub("", line))
        ]
        last = complaints[-1] if complaints else "it says nothing"
        raise NotCounted(f"valgrind ended with {process.returncode}: {last}")


def _read(out: Path, paths: Sequence[Path]) -> list[dict[int, int]]:
    counts: dict[str, dict[int, int]] = {f"ob={path}": {} for path in paths}
    ours: dict[int, int] | None = None
    skip = False
    for line in out.read_text().splitlines():
        if line.startswith("ob="):
            ours = counts.get(line)
        elif line.startswith("calls="):
            skip = True  # the next line is what the callee took
        elif line.startswith("0x"):
            if ours is not None and not skip:
                address, _, count = line.split()
                ours[int(address, 16)] = ours.get(int(address, 16), 0) + int(count)
            skip = False
    return list(counts.values())

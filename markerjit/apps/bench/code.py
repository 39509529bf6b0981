"""What a form is in machine code: bytes, instructions, and what they look like.

Which instructions a dormant site takes is not read out of the code but counted while it runs, by
callgrind (valgrind --tool=callgrind --dump-instr=yes).
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import capstone
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

_ALLOC = 2  # sh_flags
_LONGEST = 15  # bytes of an instruction
_ROUNDS = 2000
_FEWEST = _ROUNDS // 2
"""What ran so often is in the loop, also where a site is not in every round."""


class Line(NamedTuple):
    """An instruction."""

    address: int
    code: bytes
    text: str
    reads: tuple[int, int] | None
    """A word with a fixed address: where, and its bytes."""


class Code(NamedTuple):
    """Of one object.

    whole           bytes of all that is loaded: code, notes, data
    lines           the function with the site
    hot             what runs in each round, of all functions; None where nobody has counted
    instructions    in each round
    """

    whole: int
    lines: tuple[Line, ...]
    hot: frozenset[Line] | None
    instructions: float | None

    @property
    def hot_bytes(self) -> int | None:
        """Bytes of code on the way of a round."""
        return None if self.hot is None else sum(len(one.code) for one in self.hot)

    @property
    def data_bytes(self) -> int | None:
        """Bytes of data with fixed addresses that a round reads."""
        if self.hot is None:
            return None
        return sum(size for _, size in {one.reads for one in self.hot if one.reads})


def look_at(path: Path, runner: Path) -> Code:
    """The code of an object of ours."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        whole = sum(one["sh_size"] for one in elf.iter_sections() if one["sh_flags"] & _ALLOC)
        symbols = elf.get_section_by_name(".symtab")
        assert isinstance(symbols, SymbolTableSection)
        found = symbols.get_symbol_by_name("run")
        assert found, f"{path} has no run"
        (symbol,) = found
        section = elf.get_section(symbol["st_shndx"])
        start, size = symbol["st_value"], symbol["st_size"]
        text, base = section.data(), section["sh_addr"]
    counts = _counts(path, runner)
    lines = tuple(_lines(text[start - base :][:size], start))
    if counts is None:
        return Code(whole, lines, None, None)
    often = {address: count for address, count in counts.items() if count >= _FEWEST}
    inside = [address for address in often if base <= address < base + len(text)]
    hot = frozenset(next(_lines(text[one - base :][:_LONGEST], one)) for one in inside)
    rounds = _ROUNDS + _ROUNDS // 10 + 1
    return Code(whole, lines, hot, sum(often.values()) / rounds)


def _lines(code: bytes, start: int) -> Iterator[Line]:
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.detail = True
    for one in decoder.disasm(code, start):
        reads = None
        for operand in one.operands:
            is_place = operand.type == capstone.x86.X86_OP_MEM and one.mnemonic != "lea"
            if is_place and operand.mem.base == capstone.x86.X86_REG_RIP:
                reads = one.address + one.size + operand.mem.disp, operand.size
        yield Line(one.address, bytes(one.bytes), f"{one.mnemonic} {one.op_str}".strip(), reads)


def _counts(path: Path, runner: Path) -> dict[int, int] | None:
    """How often each instruction of an object ran, by its address in the file; None without
    valgrind."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        return None
    with tempfile.NamedTemporaryFile(prefix="markerjit-callgrind-") as out:
        subprocess.run(
            [valgrind, "--tool=callgrind", "--dump-instr=yes", "--compress-pos=no",
             "--compress-strings=no", f"--callgrind-out-file={out.name}", runner, "0", path],
            input=f"run 0 {_ROUNDS} 1\n", capture_output=True, text=True, check=True,
        )  # fmt: skip
        lines = Path(out.name).read_text().splitlines()
    counts: dict[int, int] = {}
    ours = skip = False
    for line in lines:
        if line.startswith("ob="):
            ours = line == f"ob={path}"
        elif line.startswith("calls="):
            skip = True  # the next line is what the callee took
        elif line.startswith("0x"):
            if ours and not skip:
                address, _, count = line.split()
                counts[int(address, 16)] = counts.get(int(address, 16), 0) + int(count)
            skip = False
    return counts

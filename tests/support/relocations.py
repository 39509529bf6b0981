"""Runs of instructions of real programs, executed where they are and where relocate() puts them.

`sample` takes runs at random, `jobs` gives each a state of registers in which it has something to
do, and `execute` has tests/oracle/relocation/executor.c run both and compare.
"""

from __future__ import annotations

import random
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import capstone
from capstone import x86_const as x86

from markerjit.elf.functions import Functions
from markerjit.elf.image import FileImage
from markerjit.x86.flow import flow
from markerjit.x86.forms import JMP_NEAR, NEAR_LENGTH, relative
from markerjit.x86.relocate import Relocated, Unmovable, relocate
from tests.support.programs import ROOT

EXECUTOR = ROOT / "tests" / "oracle" / "relocation" / "executor.c"

BIAS = 0x100000000000
SCRATCH = 0x120000000000
MIDDLE = SCRATCH + 0x2000
STACK = SCRATCH + 0x3800
COPIES = 1 << 20
"""Room for copies, before the object."""

_JOB = struct.Struct("<4Q8Q16QQ16Q16Q256s256s")
_RESULT = struct.Struct("<IiiIIxxxxQQ")
_NAMES = ("signal", "rip", "registers", "flags", "vectors", "memory", "x87")
_GPR = (
    *("r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"),
    *("rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx", "rsp"),
)
# Values that are not the same twice, flags that end the single-stepping, and segments.
_UNREPEATABLE = frozenset(
    (
        *("rdtsc", "rdtscp", "rdrand", "rdseed", "rdpmc", "popf", "popfq", "cpuid", "xgetbv"),
        *("wrfsbase", "wrgsbase", "wrpkru", "xsave", "xsavec", "xrstor", "fxrstor", "fxsave"),
        *("fnstenv", "fnsave", "rdpid", "lfs", "lgs", "lss"),
    )
)
_SEGMENTS = (x86.X86_REG_FS, x86.X86_REG_GS, x86.X86_REG_SS, x86.X86_REG_DS, x86.X86_REG_ES)


class Run(NamedTuple):
    """Instructions that follow one another, and their copy."""

    instructions: list[capstone.CsInsn]
    relocated: Relocated

    def __str__(self) -> str:
        return "; ".join(f"{insn.mnemonic} {insn.op_str}" for insn in self.instructions)


class Verdict(NamedTuple):
    """What the executor saw: what differs, and the signals of the original and of the copy."""

    run: Run
    differs: tuple[str, ...]
    signals: tuple[int, int]
    rips: tuple[int, int]


class Sample:
    """Runs of an object at random: `runs`, and how many were refused, by their obstacle."""

    def __init__(self, path: Path, count: int, seed: int) -> None:
        self.path = path
        self.runs: list[Run] = []
        self.refused: Counter[str] = Counter()
        self._random = random.Random(f"{path.name} {seed}")
        self._decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        self._decoder.detail = True
        with FileImage(str(path)) as image:
            functions = Functions(image)
            self.loaded = [
                segment for segment in image.segments if segment.type == 1 and segment.memory_size
            ]
            self.code = {
                segment.address: image.read(segment.address, segment.file_size)
                for segment in self.loaded
                if segment.flags & 1
            }
        self.low = min(segment.address for segment in self.loaded) & -4096
        self.high = max(segment.end for segment in self.loaded) + 4095 & -4096
        while len(self.runs) < count:
            index = self._random.randrange(len(functions))
            self._take(range(int(functions.starts[index]), int(functions.ends[index])))

    def _take(self, bounds: range) -> None:
        """Up to four runs of a function."""
        for base, data in self.code.items():
            if base <= bounds.start < base + len(data):
                body = data[bounds.start - base : bounds.start - base + min(len(bounds), 2000)]
                break
        else:
            return
        start = bounds.start + BIAS
        places = list(flow(body, start).starts)
        for _ in range(min(4, len(places))):
            first = places[self._random.randrange(len(places))]
            count = self._random.choice((1, 1, 1, 2, 3, 4))
            chosen = list(self._decoder.disasm(body[first - start :], first, count))
            if any(_is_unrepeatable(insn) for insn in chosen) or _has_thread_local(chosen):
                continue
            code = b"".join(bytes(insn.bytes) for insn in chosen)
            target = BIAS + self.low - COPIES + self._random.randrange(COPIES - 512)
            relocated = relocate(code, chosen[0].address, target)
            if isinstance(relocated, Unmovable):
                self.refused[str(relocated.obstacle)] += 1
            elif not _loops(chosen):
                self.runs.append(Run(chosen, relocated))

    def execute(self, executor: Path) -> list[Verdict]:
        """Both of each run. An executor that a run destroys is started again behind that run."""
        layout = struct.pack(
            "<3Q", BIAS + self.low - COPIES, self.high - self.low + COPIES, len(self.loaded)
        ) + b"".join(
            struct.pack("<3Q", BIAS + s.address, s.offset, s.file_size) for s in self.loaded
        )
        verdicts: list[Verdict] = []
        jobs = [self._job(run) for run in self.runs]
        while len(verdicts) < len(jobs):
            done = subprocess.run(
                [executor, self.path],
                input=layout + b"".join(jobs[len(verdicts) :]),
                capture_output=True,
                check=False,
            )
            results = list(_RESULT.iter_unpack(done.stdout))
            assert done.returncode != 2, done.stderr.decode()
            for run, (differs, *numbers) in zip(self.runs[len(verdicts) :], results, strict=False):
                names = tuple(name for bit, name in enumerate(_NAMES) if differs >> bit & 1)
                signals, rips = (numbers[0], numbers[1]), (numbers[4], numbers[5])
                verdicts.append(Verdict(run, names, signals, rips))
            if len(verdicts) < len(jobs):
                lost = self.runs[len(verdicts)]
                verdicts.append(Verdict(lost, ("executor ended",), (0, 0), (0, 0)))
        return verdicts

    def _job(self, run: Run) -> bytes:
        relocated = run.relocated
        code, target = relocated.code, relocated.target
        end = relocated.address + sum(insn.size for insn in run.instructions)
        if relocated.falls_through:
            at = target + len(code)
            code += bytes([JMP_NEAR]) + relative(end, at + NEAR_LENGTH)
        places = list(relocated.places.items())
        padding = [0] * (16 - len(places))
        # bits that instructions may find set: carry, parity, adjust, zero, sign, overflow
        flags = 0x202 | self._random.getrandbits(12) & 0x8D5
        return _JOB.pack(
            *(relocated.address, end, target, len(code)),
            *self._touched(run),
            *self._registers(run),
            flags,
            *(old for old, _ in places), *padding,
            *(new for _, new in places), *padding,
            self._random.randbytes(256),
            code,
        )  # fmt: skip

    def _registers(self, run: Run) -> list[int]:
        """Pointers to memory where an operand needs one, small numbers where it counts."""
        values = {name: self._value() for name in _GPR}
        names = run.instructions[0].reg_name
        for insn in run.instructions:
            for operand in insn.operands:
                if operand.type != x86.X86_OP_MEM:
                    continue
                base, index = names(operand.mem.base), names(operand.mem.index)
                if base in values:
                    values[base] = MIDDLE - operand.mem.disp + 16 * self._random.randrange(-8, 8)
                if index in values and index != base:
                    values[index] = self._random.randrange(16)
        if any(insn.mnemonic.startswith("rep") for insn in run.instructions):
            values |= {"rcx": self._random.randrange(12)}
        values["rsp"] = STACK + 16 * self._random.randrange(-8, 8) + 8
        return [value & (1 << 64) - 1 for value in values.values()]

    def _value(self) -> int:
        return self._random.choice(
            (
                MIDDLE + self._random.randrange(-1024, 1024),
                self._random.randrange(4),
                self._random.getrandbits(64),
            )
        )

    def _touched(self, run: Run) -> list[int]:
        """What the operands relative to rip point to, as far as that is the object's; 8 of them."""
        addresses = [
            int(insn.address + insn.size + operand.mem.disp)
            for insn in run.instructions
            for operand in insn.operands
            if operand.type == x86.X86_OP_MEM and operand.mem.base == x86.X86_REG_RIP
        ]
        own = [a for a in addresses if BIAS + self.low <= a < BIAS + self.high - 64]
        return own + [0] * (8 - len(own))


def _is_unrepeatable(insn: capstone.CsInsn) -> bool:
    writes = insn.operands[:1]
    return insn.mnemonic.split()[-1] in _UNREPEATABLE or any(
        operand.type == x86.X86_OP_REG and operand.reg in _SEGMENTS for operand in writes
    )


def _has_thread_local(chosen: Sequence[capstone.CsInsn]) -> bool:
    """Whether a run may change what the executor's own thread has at fs, which it does not restore
    between the original and the copy: by that operand, or by a pointer that stands there."""
    memory = [
        operand for insn in chosen for operand in insn.operands if operand.type == x86.X86_OP_MEM
    ]
    is_own = any(each.mem.segment in (x86.X86_REG_FS, x86.X86_REG_GS) for each in memory)
    changes = len(memory) > 1 or any(each.access & capstone.CS_AC_WRITE for each in memory)
    return is_own and changes


def _loops(chosen: Sequence[capstone.CsInsn]) -> bool:
    """Whether a branch leads to the run's start: from there the copy's original goes on."""
    start = chosen[0].address
    return any(
        insn.group(x86.X86_GRP_BRANCH_RELATIVE) and insn.operands[0].imm == start for insn in chosen
    )


def _branches(insn: capstone.CsInsn) -> bool:
    groups = (x86.X86_GRP_BRANCH_RELATIVE, x86.X86_GRP_JUMP, x86.X86_GRP_CALL, x86.X86_GRP_RET)
    return any(insn.group(group) for group in groups) or insn.mnemonic.startswith("rep")


def differences(verdicts: Sequence[Verdict]) -> Iterator[Verdict]:
    """Those that are not the same. A call through memory that faults has pushed already.

    Also those whose instructions end elsewhere for the processor than for the decoder.
    """
    for verdict in verdicts:
        last = verdict.run.instructions[-1]
        if (
            verdict.signals == (0, 0)
            and not any(map(_branches, verdict.run.instructions))
            and verdict.rips[0] != last.address + last.size
        ):
            yield verdict._replace(differs=("length",))
        faulted = verdict.signals[0] == verdict.signals[1] != 0
        if verdict.differs and not (faulted and verdict.run.relocated.calls):
            yield verdict

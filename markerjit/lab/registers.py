"""(k) Registers saved for a probe that is off: the cost of an ordinary call in a body."""

from __future__ import annotations

from collections.abc import Iterator

from markerjit.errors import MarkerError
from markerjit.lab.child import Child
from markerjit.lab.experiment import Experiment, Picture, Run, Tell
from markerjit.lab.image import CODE, ENTRY, Image
from markerjit.lab.processes import ALIVE
from markerjit.lab.program import LIMIT_S, built
from markerjit.tuples import NamedTuple
from markerjit.x86.decode import Instruction, disassemble

FUNCTION = CODE + 0x200
CALLS = 10_000
A, B, RESULT = 6, 7, 6 * 7 + 7
FUNCTIONS = (
    ("leaf_bare", "no marker"),
    ("leaf_ordinary", "the body is an ordinary call"),
    ("leaf_preserving", "the body is a preserving call"),
)
_STACK = ("push", "pop", "enter", "leave")
_MOVES = ("add rsp,", "sub rsp,", "lea rsp,")


class Path(NamedTuple):
    """The instructions that are executed while the marker is off, in order."""

    instructions: tuple[Instruction, ...]

    @property
    def of_stack(self) -> int:
        """The number of instructions that push, pop or move the stack pointer."""
        return sum(map(is_for_stack, self.instructions))


def is_for_stack(instruction: Instruction) -> bool:
    """Whether an instruction pushes, pops or moves the stack pointer."""
    text = instruction.text
    return text.split()[0] in _STACK or text.startswith(_MOVES)


def purpose_of(instruction: Instruction) -> str:
    """The purpose of an instruction: the stack, the marker's site, or the function's work."""
    if is_for_stack(instruction):
        return "stack"
    return "site" if instruction.text.startswith("jmp") else "work"


def code_of(function: str) -> bytes:
    """The compiled code of a function, without the part that the compiler split off. Raises
    MarkerError where it was not built."""
    # imported here, because the import takes 30 ms and `lab list` does not need it
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    with open(built("lab_registers.so"), "rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        symbols = table.get_symbol_by_name(function)
        if not symbols:
            raise MarkerError(f"lab_registers.so has no {function}; run make native")
        entry = symbols[0].entry
        file.seek(next(elf.address_offsets(entry.st_value)))
        return bytes(file.read(entry.st_size))


def path_of(code: bytes) -> Path:
    """The instructions from the entry to the return, along the jumps. Raises MarkerError for code
    with a conditional jump, whose way cannot be known."""
    by_address = {each.address: each for each in disassemble(code, FUNCTION)}
    at = FUNCTION
    path: list[Instruction] = []
    while at in by_address and len(path) <= len(by_address):
        instruction = by_address[at]
        path.append(instruction)
        name, *operands = instruction.text.split()
        if name == "ret":
            return Path(tuple(path))
        if name.startswith("j") and name != "jmp":
            break
        at = int(operands[0], 0) if name == "jmp" else at + len(instruction.code)
    raise MarkerError("the way through this function does not end in its return")


def image(code: bytes) -> Image:
    """A loop that calls the function. `old` counts the calls, and `torn` the wrong results."""
    made = Image()
    made.put(FUNCTION, code)
    made.add(
        ENTRY,
        "again:",
        f"mov edi, {A}",
        f"mov esi, {B}",
        f"call {FUNCTION:#x}",
        f"cmp eax, {RESULT:#x}",
        "je right",
        "lock inc qword ptr [rip + torn]",
        "right:",
        "lock inc qword ptr [rip + old]",
        "jmp again",
    )
    return made


def run_of(tell: Tell, function: str, name: str) -> Run:
    """The run of one function: its instructions are counted, and a child calls it."""
    code = code_of(function)
    path = path_of(code)
    with Child(image(code)) as child:
        child.wait_for("old", CALLS, LIMIT_S, lambda calls: tell(name, min(calls, CALLS), CALLS))
        counts, ending = child.counts("old", "torn"), child.ending()
    count, of_stack = len(path.instructions), path.of_stack
    story = f"Each call executes {count} instructions, {of_stack} of them for the stack."
    if ending != ALIVE:
        story += f" The child died by {ending}."
    return Run(
        name,
        "",
        1,
        {
            "instructions executed": count,
            "for the stack": of_stack,
            "calls": counts["old"],
            "wrong results": counts["torn"],
        },
        counts["torn"] + int(counts["old"] < CALLS),
        ending,
        tuple(Picture(purpose_of(each), each.address, each.code) for each in path.instructions),
        story,
    )


def runs(tell: Tell) -> Iterator[Run]:
    """The same function, without a marker and with two kinds of bodies."""
    for function, name in FUNCTIONS:
        yield run_of(tell, function, name)


def happened(runs: tuple[Run, ...]) -> int:
    """0 where a function executes more instructions with the ordinary call than with the preserving
    one, otherwise 1."""
    _, ordinary, preserving = (run.counts["instructions executed"] for run in runs)
    return int(ordinary <= preserving)


EXPERIMENT = Experiment(
    letter="k",
    title="registers saved for a probe that is off",
    question="A small function calls nothing but the probe of its marker, and that stands behind "
    "a jump, in a body that is not executed. The compiler knows of the call. How many "
    "instructions will the function execute while the marker is off?",
    choices=(
        "more than the marker's site needs: it saves registers for a call that is not made",
        "its own and those of the site: what is not executed costs nothing",
    ),
    conduct=runs,
    happened=happened,
    forgiven="",
    explanation=(
        "An ordinary call may change half of the registers. What the function needs after it has "
        "to be kept in the others, whose old values are saved first, and the stack has to be "
        "aligned. The compiler puts that where the function begins, so that it is executed each "
        "time, whether the marker is on or off.",
        "So the body of a marker makes a call that changes no register, and the compiler is told "
        "so. The probe, or the adapter before it, saves what it uses, and that is paid only while "
        "the marker is on.",
        "The code is that of the compiler that built this package; another one may save more or "
        "less. The instructions were counted by following the compiled code from its entry.",
    ),
    references=(
        "docs/decisions/0024-a-preserving-call.md",
        "native/targets/lab_registers.c",
        "System V ABI, AMD64 supplement, 3.2.1: Registers",
    ),
)

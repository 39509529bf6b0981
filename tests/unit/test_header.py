"""marker.h in every compiler, language, mode and set of options: it builds, it says the truth
about itself in its notes, and it does nothing at all until somebody switches it on.

Everything here is seen from outside: programs in `header/` find and switch their own markers, and
capstone reads the code. Nothing of the package is used.
"""

from __future__ import annotations

import functools
import itertools
import re
import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from capstone import CS_ARCH_X86, CS_MODE_64, Cs, CsInsn
from capstone.x86 import X86_OP_IMM, X86_OP_MEM

from tests.support.choice import share
from tests.support.compilers import (
    C_COMPILERS,
    COMPILERS,
    CXX_COMPILERS,
    INCLUDE,
    MODES,
    STRICT,
    Compiler,
    Elf,
    Note,
    Symbol,
    can,
    each_at_once,
    need,
)
from tests.support.timing import HANG_S

T = TypeVar("T")

SOURCES = Path(__file__).parent / "header"
KINDS = {mode: number for number, mode in enumerate(MODES, 1)}

# What is tried with each compiler, in groups that are built at once: options, and the modes for
# which they may make a difference. Strict warnings are added.
OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "modes": {"-O2": MODES},
    "lto": {"-O2 -flto": ("jump", "sentinel")},
    "unoptimised": {"-O0": MODES},
    "others": {
        "-O1": ("jump", "nop"),
        "-O3 -funroll-loops": ("jump",),
        "-Os": ("jump",),
        "-O2 -fPIC -shared": ("jump", "nop", "sentinel"),
        "-O0 -fPIC -shared": ("jump",),
        "-O2 -static": ("jump",),
        "-O1 -static-pie -fPIE": ("jump",),
        "-O2 -fno-pie -no-pie": ("jump", "immediate"),
        "-O2 -fcf-protection=full": ("jump",),
        "-O2 -ffunction-sections -fdata-sections -Wl,--gc-sections": ("jump",),
        "-O2 -finstrument-functions": ("jump",),
    },
}
# A second version of a compiler is not worth them all. "others" are about what comes after the
# language, so gcc has them in C, and clang in C++; "modes", "lto" and "unoptimised" are long in the
# other two, which make test tries in the standards of their language. There gcc has every second
# one of all but "modes", and clang the others.
MATRIX = [
    pytest.param(
        compiler,
        group,
        id=f"{compiler.name}-{group}",
        marks=[pytest.mark.long]
        * (group != "others" and compiler.is_clang != compiler.is_cxx and not compiler.is_extra),
    )
    for compiler in COMPILERS
    for group in OPTIONS
    if group == "lto" or not compiler.is_extra
    if group != "others" or compiler.is_clang == compiler.is_cxx
]
STANDARDS = {False: ("c11", "gnu17", "gnu2x"), True: ("c++11", "c++14", "c++20")}


def shared_out(values: Sequence[T], compiler: Compiler) -> Sequence[T]:
    """What is tried with a compiler: all, or where the tests are chosen half for gcc and clang."""
    return share(values, 2, compiler.is_clang)


def by_name(compilers: list[Compiler]) -> Callable[..., object]:
    return pytest.mark.parametrize("compiler", compilers, ids=lambda compiler: compiler.name)


def run(program: Path) -> str:
    done = subprocess.run([program], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, (
        f"{program.name} ended with {done.returncode}\n{done.stdout[:2000]}"
    )
    return done.stdout


def make_adapter(folder: Path) -> list[str | Path]:
    """What a program of selfpatch.h is linked with."""
    made = folder / "adapter.o"
    words = [f"-I{INCLUDE}", "-c", "-o", made, SOURCES / "adapter.S"]
    subprocess.run(["gcc", *words], check=True)
    return ["-x", "none", made]


class Flip:
    """Builds of flip.c, each made once, as several tests look at them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._adapter = make_adapter(folder)
        self._built: dict[tuple[str, ...], Path] = {}
        self._number = itertools.count()

    def __call__(self, compiler: Compiler, mode: str, *options: str) -> Path:
        key = (compiler.name, mode, *options)
        if key not in self._built:
            folder = self._folder / str(next(self._number))
            folder.mkdir()
            self._built[key] = self._build(compiler, folder, f"-DMJ_MODE={mode}", *options)
        return self._built[key]

    def _build(self, compiler: Compiler, folder: Path, *options: str) -> Path:
        """As a program; a shared object gets one that calls its main."""
        program = folder / "flip"
        words = [*STRICT, *options, SOURCES / "flip.c", *self._adapter]
        if "-shared" not in options:
            return compiler.build_once(program, *words)
        library = compiler.build_once(folder / "libflip.so", "-Dmain=flip_main", *words)
        entry = folder / "entry.c"
        entry.write_text("int flip_main(void); int main(void) { return flip_main(); }\n")
        where = f"-Wl,-rpath,{folder}"
        return compiler.build(program, entry, "-x", "none", library, where)


@pytest.fixture(scope="module")
def flip(tmp_path_factory: pytest.TempPathFactory) -> Flip:
    return Flip(tmp_path_factory.mktemp("flip"))


@pytest.mark.parametrize(("compiler", "group"), MATRIX)
def test_markers_hit_exactly_when_they_are_on(compiler: Compiler, group: str, flip: Flip) -> None:
    need(compiler)
    if group == "lto" and not can(compiler, "-flto"):
        pytest.skip(f"{compiler.name} and the linker here cannot optimise at link time")

    def check(variant: tuple[str, str]) -> None:
        options, mode = variant
        assert run(flip(compiler, mode, *options.split())).startswith("ok")

    variants = [(o, mode) for o, modes in OPTIONS[group].items() for mode in modes]
    each_at_once(check, variants if group == "modes" else shared_out(variants, compiler))


@by_name(COMPILERS)
def test_markers_work_in_every_standard_of_the_language(compiler: Compiler, flip: Flip) -> None:
    need(compiler)

    def check(standard: str) -> None:
        assert run(flip(compiler, "jump", "-O1", f"-std={standard}"))

    each_at_once(check, shared_out(STANDARDS[compiler.is_cxx], compiler))


@by_name(CXX_COMPILERS)
def test_a_string_can_be_constructed_between_two_markers(compiler: Compiler, flip: Flip) -> None:
    need(compiler)

    def check(level: str) -> None:
        assert run(flip(compiler, "jump", level, "-DWITH_STRING"))

    each_at_once(check, shared_out(["-O0", "-O2"], compiler))


# Warnings that programs turn on beyond the usual ones; each has once been given by this header.
PEDANTIC = "-Wshadow -Wconversion -Wsign-conversion -Wundef -Wcast-qual -Wunused-macros"
PEDANTIC_C = "-Wmissing-prototypes -Wstrict-prototypes -Wnested-externs -Wredundant-decls"
PEDANTIC_CXX = "-Wold-style-cast -Wmissing-declarations -Wextra-semi -Wdeprecated"


@by_name(COMPILERS)
def test_the_header_gives_none_of_the_stricter_warnings(compiler: Compiler, tmp_path: Path) -> None:
    need(compiler)
    source = tmp_path / "strict.c"
    source.write_text(
        "#include <markerjit/marker.h>\n"
        "enum colour { RED, BLUE };\n"
        "int use(int x, const char *s, double d, enum colour c);\n"
        'static inline void probe(int x) { if (x) __asm__ __volatile__("nop"); }\n'
        "int use(int x, const char *s, double d, enum colour c) {\n"
        '    MARK(strict, "x %d s %s d %f c %d", x, s, d, c == BLUE);\n'
        '    MARK(strict, "x %d s %s d %f c %d", x, s, d, c == RED);\n'
        '    MARK_INLINE(strict_inline, probe, "x %d", x);\n'
        "    return x;\n"
        "}\n"
    )
    words = [*STRICT, *PEDANTIC.split(), *(PEDANTIC_CXX if compiler.is_cxx else PEDANTIC_C).split()]

    def check(mode: str) -> None:
        compiler.build_once(tmp_path / f"{mode}.o", "-c", f"-DMJ_MODE={mode}", *words, source)

    each_at_once(check, shared_out(MODES, compiler))


# ---- the code ----------------------------------------------------------------------------------


@functools.cache
def disassembler() -> Cs:
    machine = Cs(CS_ARCH_X86, CS_MODE_64)
    machine.detail = True
    return machine


def instruction(elf: Elf, address: int) -> CsInsn:
    (insn,) = disassembler().disasm(elf.read(address, 16), address, 1)
    return insn


def jumps_to(insn: CsInsn) -> int:
    assert insn.operands[0].type == X86_OP_IMM, f"{insn.mnemonic} {insn.op_str}"
    return insn.operands[0].imm


def start_of(elf: Elf, note: Note) -> int:
    """Where the site's instruction begins: at its prefix, if it has one."""
    text = elf.section(".text")
    is_first = text is not None and note.site == text.address
    prefixed = note.site % 64 == 0 and not is_first and elf.read(note.site - 1, 1) == b"\x40"
    return note.site - prefixed


def walk(elf: Elf, function: Symbol, notes: list[Note]) -> list[CsInsn]:
    """The instructions of one dormant pass from entry to return."""
    jumps = {start_of(elf, note) for note in notes if note.kind == KINDS["jump"]}
    passed: list[CsInsn] = []
    at = function.address
    while not passed or passed[-1].mnemonic != "ret":
        insn = instruction(elf, at)
        passed.append(insn)
        at += insn.size
        if insn.address in jumps or insn.mnemonic == "jmp":
            at = jumps_to(insn)
    return passed


@pytest.mark.product
@by_name(COMPILERS)
@pytest.mark.parametrize("mode", ["jump", "nop", "pointer", "symbol"])
def test_the_dormant_path_is_straight_through_each_site(
    compiler: Compiler, mode: str, tmp_path: Path
) -> None:
    """From the first instruction to the return there is no jump but the site's own, and each
    site is exactly one instruction: nothing before it goes round it, and what is at its end is
    the program's own code."""
    need(compiler)
    extra = [] if compiler.is_clang else ["-O1 -freorder-blocks-algorithm=stc"]

    def check(level: str) -> None:
        words = [*STRICT, *level.split(), f"-DMJ_MODE={mode}", SOURCES / "straight.c"]
        elf = Elf(compiler.build_once(tmp_path / level.replace(" ", ""), *words))
        notes = elf.notes()
        for markers in (1, 2, 3):
            function = elf.function(f"straight_{markers}")
            own = [n for n in notes if 0 <= n.site - function.address < function.size]
            assert len(own) == markers
            passed = walk(elf, function, notes)
            addresses = [insn.address for insn in passed]
            of_sites = set()
            for note in own:
                step = addresses.index(start_of(elf, note))
                inner = mode == "pointer"  # the comparison and its jump
                of_sites.update(addresses[step : step + 1 + inner])
                assert addresses[step + 1 + inner] == note.end
            others = [i for i in passed if i.address not in of_sites and i.mnemonic[0] == "j"]
            if level in {"-O1", "-Os"} and not compiler.is_clang:
                # gcc may put a body behind its site here, and jump over it: see marker.h
                assert len(others) <= markers
            else:
                assert not others, f"{function.name}: {others}"

    all_levels = ["-O1", "-O2", "-O3", "-Os", *extra]
    each_at_once(check, all_levels if mode in {"jump", "nop"} else ["-O2"])


def check_jump(elf: Elf, note: Note) -> None:
    code = elf.read(note.site, 7)
    assert code[:3] == b"\xeb\x05\xe9"
    assert note.end == note.site + 7
    assert note.end + struct.unpack_from("<i", code, 3)[0] == note.body
    assert note.site % 64 != 63, "eb and its displacement are in two lines"
    whole = instruction(elf, start_of(elf, note))
    assert (whole.mnemonic, jumps_to(whole)) == ("jmp", note.end)
    assert whole.address + whole.size == note.site + 2
    assert jumps_to(instruction(elf, note.site + 2)) == note.body


def check_nop(elf: Elf, note: Note) -> None:
    code = elf.read(note.site, 5)
    assert code[0] == 0xA9
    assert note.end == note.site + 5
    assert note.end + struct.unpack_from("<i", code, 1)[0] == note.body
    whole = instruction(elf, note.site)
    assert (whole.mnemonic, whole.size) == ("test", 5)


def check_pointer(elf: Elf, note: Note) -> None:
    compare = instruction(elf, note.site)
    jump = instruction(elf, note.site + compare.size)
    memory = next(operand.mem for operand in compare.operands if operand.type == X86_OP_MEM)
    assert compare.mnemonic == "cmp"
    assert compare.reg_name(memory.base) == "rip"
    assert jump.address + memory.disp == note.slot
    assert (jump.mnemonic, jumps_to(jump)) == ("jne", note.body)
    assert note.end == jump.address + jump.size


def check_immediate(elf: Elf, note: Note) -> None:
    assert note.end == note.site + 1
    # mov r8, imm8: the register is in the opcode, or in one of the upper eight
    before = elf.read(note.site - 2, 3)
    assert before[1] & 0xF8 == 0xB0
    size = 3 if before[0] & 0xF0 == 0x40 else 2
    move = instruction(elf, note.end - size)
    assert (move.mnemonic, move.size, move.operands[1].imm) == ("mov", size, 0)
    assert note.body == 0


def check_sentinel(elf: Elf, note: Note) -> None:
    lea = instruction(elf, note.site)
    assert lea.mnemonic == "lea"
    assert note.end + lea.operands[1].mem.disp == note.slot
    assert note.body == elf.function("mj_sentinel").address


def check_symbol(elf: Elf, note: Note) -> None:
    assert elf.read(note.site, 1) == b"\x90"
    assert note.end == note.site + 1
    assert note.body


def check_direct(_elf: Elf, note: Note) -> None:
    assert note.site == note.end
    assert (note.body, note.slot) == (0, 0)


CHECKS: dict[str, Callable[[Elf, Note], None]] = {
    "jump": check_jump,
    "nop": check_nop,
    "pointer": check_pointer,
    "sentinel": check_sentinel,
    "direct": check_direct,
    "immediate": check_immediate,
    "symbol": check_symbol,
}


@by_name(COMPILERS)
def test_every_note_describes_the_bytes_of_its_site(compiler: Compiler, flip: Flip) -> None:
    need(compiler)

    def check(mode: str) -> None:
        elf = Elf(flip(compiler, mode, "-O2"))
        notes = elf.notes()
        slots = {symbol.address: symbol for symbol in elf.symbols() if "_slot_" in symbol.name}
        assert len(notes) >= 10
        for note in notes:
            assert (note.version, note.kind) == (2, KINDS[mode])
            CHECKS[mode](elf, note)
            if note.slot:
                assert slots[note.slot].name.endswith(f"slot_{note.name}")
                size = 32 if mode == "sentinel" else 64
                assert slots[note.slot].size == size
                assert note.slot % size == 0
            source = SOURCES / "flip.c"
            assert note.file == str(source)
            # gcc gives the line on which the call begins, clang that on which it ends
            lines = "\n".join(source.read_text().splitlines()[: note.line])
            assert re.findall(r"\bMARK(?:_INLINE)?\((\w+)", lines)[-1] == note.name
            assert note.argc == len(note.types.rstrip(b"\0"))

    modes = [*CHECKS] if compiler.is_clang == compiler.is_cxx else shared_out([*CHECKS], compiler)
    each_at_once(check, ["jump", "nop"] if compiler.is_extra else modes)


@by_name(COMPILERS)
def test_the_mode_none_leaves_nothing_behind(compiler: Compiler, flip: Flip) -> None:
    need(compiler)

    elf = Elf(flip(compiler, "none", "-O2"))

    assert not elf.notes()
    assert not [s.name for s in elf.symbols() if "__mj_" in s.name]
    assert elf.section(".data.markerjit") is None


@pytest.mark.product
@by_name(COMPILERS)
@pytest.mark.parametrize("mode", ["jump", "nop"])
def test_a_site_is_one_instruction_at_every_place_of_a_cache_line(
    compiler: Compiler, mode: str, tmp_path: Path
) -> None:
    """Single steps, dormant and active, with the site moved to each of the 64 places."""
    need(compiler)
    adapter = make_adapter(tmp_path)

    def check(level: str) -> None:
        words = [*STRICT, level, f"-DMJ_MODE={mode}", SOURCES / "aligned.c", *adapter]
        program = compiler.build_once(tmp_path / level, *words)
        elf = Elf(program)
        notes = elf.notes()
        assert len(notes) == 64
        assert {start_of(elf, note) % 64 for note in notes} == set(range(64))
        for note in notes:
            CHECKS[mode](elf, note)
        prefixed = [note for note in notes if start_of(elf, note) != note.site]
        assert len(prefixed) == (mode == "jump")
        for note in prefixed:
            whole = instruction(elf, start_of(elf, note))
            assert bytes(whole.bytes) == b"\x40\xeb\x05"
        assert run(program) == "ok 64 sites 64 hits\n"

    each_at_once(check, shared_out(["-O0", "-O2"], compiler))


# ---- objects -----------------------------------------------------------------------------------


def relocated(library: Path) -> list[int]:
    """The addresses that the dynamic linker writes to."""
    listed = subprocess.run(
        ["readelf", "--relocs", "--wide", library], capture_output=True, text=True, check=True
    ).stdout
    return [int(line.split()[0], 16) for line in listed.splitlines() if " R_X86_64_" in line]


@by_name(COMPILERS)
def test_a_note_in_a_shared_object_needs_no_dynamic_relocation(
    compiler: Compiler, tmp_path: Path
) -> None:
    need(compiler)

    def check(mode: str) -> None:
        library = tmp_path / f"{mode}.so"
        words = ["-O2", "-fPIC", "-shared", f"-DMJ_MODE={mode}", SOURCES / "straight.c"]
        elf = Elf(compiler.build_once(library, *STRICT, *words))
        section = elf.section(".note.markerjit")
        assert section is not None
        writes = relocated(library)
        assert not [a for a in writes if 0 <= a - section.address < len(section.data)]
        slots = {note.slot for note in elf.notes() if note.slot}
        initial = [a for a in writes if any(0 <= a - slot < 32 for slot in slots)]
        assert len(initial) == (len(slots) if mode == "sentinel" else 0)
        dynamic = subprocess.run(
            ["readelf", "--dynamic", library], capture_output=True, text=True, check=True
        ).stdout
        assert "TEXTREL" not in dynamic

    each_at_once(check, shared_out([*CHECKS], compiler))


@by_name(COMPILERS)
def test_one_name_shares_one_slot_and_has_a_note_for_each_copy(
    compiler: Compiler, flip: Flip
) -> None:
    need(compiler)

    elf = Elf(flip(compiler, "jump", "-O3", "-funroll-loops"))

    copies = [note for note in elf.notes() if note.name == "copies"]
    assert len(copies) >= 4
    assert len({note.slot for note in copies}) == 1
    assert len({note.site for note in copies}) == len(copies)
    assert len({note.line for note in copies}) == 2


LINKS = {
    "plain": "-O0",
    "gc-sections": "-O0 -ffunction-sections -Wl,--gc-sections",
    "gc-sections-O2": "-O2 -ffunction-sections -fdata-sections -Wl,--gc-sections",
    "lto": "-O2 -flto -Wl,--gc-sections",
}


@by_name(CXX_COMPILERS)
def test_a_dropped_copy_of_an_inline_function_takes_its_note_along(
    compiler: Compiler, tmp_path: Path
) -> None:
    """Two translation units with the same inline functions, and functions that nobody calls."""
    need(compiler)

    def check(link: str) -> None:
        units = [SOURCES / "two.cc", SOURCES / "two_main.cc"]
        program = compiler.build(tmp_path / link, *STRICT, *LINKS[link].split(), *units)
        run(program)
        elf = Elf(program)
        functions = [s for s in elf.symbols() if s.is_function and s.size]
        names = [note.name for note in elf.notes()]
        for note in elf.notes():
            check_jump(elf, note)
            for place in (note.site, note.body):
                assert any(s.address <= place < s.address + s.size for s in functions), note.name
        assert {"kept", "shared", "shared_template"} <= set(names)
        if link == "plain":
            # one `shared`, and one note for each of the two instances of the template
            assert (names.count("shared"), names.count("shared_template")) == (1, 2)
        if link == "gc-sections":
            assert (names.count("shared"), names.count("shared_template")) == (1, 1)

    each_at_once(check, [link for link in LINKS if link != "lto" or can(compiler, "-flto")])


@by_name(C_COMPILERS)
def test_a_c_object_and_a_program_share_no_slot(compiler: Compiler, tmp_path: Path) -> None:
    """A name is switched in each module by itself: the slot is hidden."""
    need(compiler)

    words = ["-O2", "-fPIC", "-shared", SOURCES / "straight.c"]
    elf = Elf(compiler.build_once(tmp_path / "straight.so", *words))

    table, names = elf.section(".dynsym"), elf.section(".dynstr")
    assert table is not None
    assert names is not None
    assert b"straight_1" in names.data
    assert b"__mj_" not in names.data

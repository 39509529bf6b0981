"""What leads into code, and how its addresses are opened: on assembly whose truth is in its labels.

The object is analysed stripped, so the labels say where to look and not what to find.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from markerjit.elf.functions import NoFunctions
from markerjit.elf.image import PF_X, FileImage
from markerjit.elf.imports import PT_DYNAMIC
from markerjit.elf.sections import SHT_SYMTAB, read_sections
from markerjit.errors import MarkerError
from markerjit.spans import Closed, Code, Opening, TargetKind, Way, best_opening
from markerjit.spans.columns import UNBOUNDED, KeptExits, columns_of_exits
from markerjit.spans.exits import exits_of, has_bytes_of_entry
from markerjit.spans.openings import Why, room
from markerjit.x86.decode import disassemble
from markerjit.x86.flow import is_padding
from markerjit.x86.relocate import Obstacle
from tests.support.compilers import Elf

SOURCE = r"""
.macro begin name
    .p2align 4
\name: .type \name, @function
    .cfi_startproc
.endm
.macro end name
    .cfi_endproc
    .size \name, . - \name
.endm
    .text
    begin plain
    push %rbp
    mov %rsp, %rbp
    sub $32, %rsp
    leave
    ret
    end plain

    begin no_ops
    .byte 0x90, 0x90, 0x90, 0x90, 0x90
    ret
    end no_ops

    begin long_no_op
    .byte 0x0f, 0x1f, 0x44, 0, 0
    ret
    end long_no_op

    begin protected
    endbr64
    mov %edi, %eax
    add $100000, %eax
    ret
    end protected

    begin looped
    dec %edi
looped_back:
    nop
    dec %esi
    jne looped_back
    ret
    end looped

    begin entered
    dec %edi
entered_inside:
    nop
    nop
    dec %esi
    ret
    end entered

    begin enters
    cmpl $7, %edi
    je entered_inside
    ret
    end enters

    begin short
    xor %eax, %eax
    ret
    end short

    begin crowded
    xor %eax, %eax
    ret
    end crowded
    .cfi_startproc
crowding:
    xor %eax, %eax
crowding_second:
    jmp crowding
    .cfi_endproc

    begin holed
    dec %edi
holed_back:
    dec %esi
    jne holed_back
    ret
    end holed
    .p2align 5

    begin called_early
    call plain
    mov %eax, %edx
    ret
    end called_early

    begin called_too_early
    call *%rax
    ret
    .byte 0x31, 0xc0
    ret
    end called_too_early

    begin system
    syscall
    ret
    end system

    begin switched
    lea table(%rip), %rdx
    movslq (%rdx, %rdi, 4), %rax
    add %rdx, %rax
    jmp *%rax
switched_0:
    xor %eax, %eax
    nop
    ret
switched_1:
    mov $1, %eax
    ret
    end switched

    begin pointed
    dec %edi
pointed_at:
    dec %esi
    dec %edx
    ret
    end pointed

    begin taken
    dec %edi
taken_label:
    dec %esi
    dec %edx
    ret
    end taken
    begin takes
    lea taken_label(%rip), %rax
    ret
    end takes

    begin unknown
    push %rbx
    .cfi_adjust_cfa_offset 8
    mov global(%rip), %rax
    jmp *%rax
    nop
    nop
    end unknown

    begin tail
    mov global(%rip), %rax
    jmp *%rax
    end tail

    begin handed_on
    mov %edi, %eax
    add $100000, %eax
    add $100001, %eax
    .byte 0xe9  # jmp plain
    .long plain - . - 4
    end handed_on

    begin entered_tail
    mov %edi, %eax
    add $100000, %eax
    .byte 0xe9  # jmp plain
    .byte (plain - entered_tail - 12) & 0xff
in_displacement:
    .byte (plain - entered_tail - 12) >> 8 & 0xff, 0xff, 0xff
    end entered_tail

    begin enters_tail
    cmpl $7, %edi
    je in_displacement
    ret
    end enters_tail

    begin reads_itself
    mov reads_itself + 2(%rip), %ecx
    ret
    end reads_itself

    begin reads_far
    mov global(%rip), %rax
    ret
    end reads_far

    begin dead_behind
    xor %eax, %eax
    ret
    nop
    mov $1, %eax
    ret
    end dead_behind

    .p2align 12
    .skip 4096 - 9, 0x90
crossing: .type crossing, @function
    .cfi_startproc
    mov %edi, %eax
    mov $1, %edx
    ret
    .skip 8, 0x90
    .cfi_endproc
    .size crossing, . - crossing

    begin restarted
    xor %eax, %eax
sequence:
    mov %rdi, (%rsi)
    mov %rdi, (%rdx)
committed:
    ret
    end restarted

    begin only_protected
    endbr64
    end only_protected
    .byte 0x31, 0xc0

    .p2align 4
uncovered:
    jne uncovered_target - 0
    ret
    begin beside
    dec %edi
uncovered_target:
    dec %esi
    dec %edx
    ret
    end beside

    begin calls_last
    mov %edi, %eax
    add $100000, %eax
    call plain
    dec %edi
calls_last_end:
    ret
    end calls_last
    begin leads_there
    je calls_last_end
    nop
    ret
    end leads_there

    .section __rseq_cs, "aw"
    .long 0, 0
    .quad sequence, committed - sequence, plain
    .section .rodata
    .p2align 2
table:
    .long switched_0 - table
    .long switched_1 - table
    .data
    .p2align 3
global: .quad 0
    .quad pointed_at
"""


@pytest.fixture(scope="module")
def labels_and_code(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, int], Code, Path]:
    folder = tmp_path_factory.mktemp("spans")
    source, built, stripped = (folder / name for name in ("code.S", "code.so", "stripped.so"))
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-shared", "-nostdlib", source, "-o", built], check=True)
    subprocess.run(["strip", built, "-o", stripped], check=True)
    with FileImage(str(stripped)) as image:
        code = Code(image)
    return {symbol.name: symbol.address for symbol in Elf(built).symbols()}, code, stripped


@pytest.fixture(scope="module")
def labels(labels_and_code: tuple[dict[str, int], Code, Path]) -> dict[str, int]:
    return labels_and_code[0]


@pytest.fixture(scope="module")
def code(labels_and_code: tuple[dict[str, int], Code, Path]) -> Code:
    return labels_and_code[1]


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("looped_back", TargetKind.BRANCH),
        ("entered_inside", TargetKind.BRANCH),
        ("switched_0", TargetKind.TABLE),
        ("switched_1", TargetKind.TABLE),
        ("pointed_at", TargetKind.POINTER),
        ("taken_label", TargetKind.POINTER),
        ("uncovered_target", TargetKind.UNCOVERED),
    ],
)
def test_target_is_found(label: str, kind: TargetKind, labels: dict[str, int], code: Code) -> None:
    targets = code.targets(labels[label], labels[label] + 1)

    assert (labels[label], kind) in targets


def test_return_of_a_call_is_a_target(labels: dict[str, int], code: Code) -> None:
    behind = labels["called_early"] + 5

    assert (behind, TargetKind.RETURN) in code.targets(behind, behind + 1)


def test_symbols_are_targets(tmp_path: Path) -> None:
    source, built = tmp_path / "code.S", tmp_path / "code.so"
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-shared", "-nostdlib", source, "-o", built], check=True)
    inside = {symbol.name: symbol.address for symbol in Elf(built).symbols()}["crowding_second"]

    with FileImage(str(built)) as image:
        code = Code(image)

    assert (inside, TargetKind.LABEL) in code.targets(inside, inside + 1)


def test_nothing_leads_into_straight_code(labels: dict[str, int], code: Code) -> None:
    assert code.targets(labels["plain"] + 1, labels["plain"] + 8) == []


@pytest.fixture(scope="module")
def expecting(labels_and_code: tuple[dict[str, int], Code, Path]) -> Code:
    with FileImage(str(labels_and_code[2])) as image:
        code = Code(image)
    code.expect(len(code.functions))
    return code


def test_answers_are_the_same_where_many_are_expected(code: Code, expecting: Code) -> None:
    low, high = int(code.functions.starts[0]), int(code.functions.ends[-1]) + 16

    for at in range(low, high):
        assert expecting.targets(at, at + 5) == code.targets(at, at + 5)
        assert expecting.jumps_into(at, at + 5) == code.jumps_into(at, at + 5)
        assert best_opening(expecting, at) == best_opening(code, at)
        assert exits_of(expecting, at) == exits_of(code, at)


def test_rooms_for_holes_that_are_known_are_those_that_are_asked_for(
    labels: dict[str, int], code: Code, expecting: Code
) -> None:
    rooms = expecting.straight.rooms

    known = {at: code.read(at, end - at) if end else b"" for at, end in rooms.items()}

    assert known == {at: room(code, at) for at in rooms}
    assert any(rooms.values())
    assert rooms[labels["calls_last"]] == 0


def test_tables_read_one_by_one_lead_where_those_read_together_do(
    labels_and_code: tuple[dict[str, int], Code, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, code, stripped = labels_and_code
    low, high = int(code.functions.starts[0]), int(code.functions.ends[-1]) + 16

    monkeypatch.setattr("markerjit.spans.tables._FEW", 0)
    with FileImage(str(stripped)) as image:
        together = Code(image)

    assert together.targets(low, high) == code.targets(low, high)
    at = labels["switched_1"]
    assert (at, TargetKind.TABLE) in together.targets(at, at + 1)


def test_columns_say_of_each_place_what_its_values_say(code: Code) -> None:
    low, high = int(code.functions.starts[0]), int(code.functions.ends[-1]) + 16
    scanned = {at: exits_of(code, at) for at in range(low, high)}

    kept = KeptExits(columns_of_exits(scanned))
    some = [at for at in kept if at % 3]
    left = kept.left(some)

    values = [kept[at] for at in some]
    exits = [(each, exit_) for each in values for exit_ in each.exits]
    openings = [exit_.opening for _, exit_ in exits]
    assert [kept.openings.at(place) for place in left.entries] == [each.entry for each in values]
    assert [kept.openings.at(place) for place in left.exits] == openings
    assert [UNBOUNDED[number] for number in left.unbounded] == [each.unbounded for each in values]
    assert left.again.tolist() == [each.again for each in values]
    assert [values[function] for function in left.functions] == [each for each, _ in exits]
    overlap = kept.overlap(left).tolist()
    assert overlap == [has_bytes_of_entry(*pair) for pair in exits]
    displaced = kept.displaces(left).tolist()
    assert displaced == [exit_.opening == each.entry for each, exit_ in exits]
    assert {*overlap} == {*displaced} == {True, False}
    for last in (False, True):
        reasons = [[str(why.reason) for why in each.turned_down] or [""] for each in openings]
        expected = [each[-1 if last else 0] for each in reasons]
        assert kept.openings.reasons(left.exits, last=last) == expected
        assert len({*expected}) > 2
    for at, exits_ in scanned.items():  # the better ways of a jump are not kept
        of_kept = [each[:2] for each in kept[at].exits]
        assert (of_kept, kept[at][2:]) == ([each[:2] for each in exits_.exits], exits_[2:])


def test_usual_shapes_are_known_before_they_are_asked_for(
    labels: dict[str, int], expecting: Code
) -> None:
    entries, exits, tails, _ = expecting.straight
    ret = labels["short"] + 2

    assert entries[labels["plain"]] == 8
    assert entries[labels["reads_far"]] == 7  # its operand is far away
    assert labels["entered"] not in entries  # something leads into it
    assert labels["reads_itself"] not in entries
    assert labels["short"] not in entries
    assert exits[ret] == (ret, ret + 1)  # padding is behind it
    assert tails == {labels["handed_on"] + 12}
    assert labels["plain"] in expecting.alone
    assert expecting.alone[labels["handed_on"]].tails == (labels["handed_on"] + 12,)
    assert labels["unknown"] not in expecting.alone  # where its indirect jump leads


@pytest.mark.parametrize(
    ("label", "way", "size", "text"),
    [
        ("plain", Way.JUMP, 5, ["push rbp", "mov rbp, rsp", "sub rsp, 0x20"]),
        ("no_ops", Way.NO_OP, 5, ["nop"] * 5),
        ("long_no_op", Way.NO_OP, 5, ["nop dword ptr [rax + rax]"]),
        ("short", Way.PADDING, 5, ["xor eax, eax", "ret"]),
        ("looped", Way.HOLE, 2, ["dec edi"]),
        ("entered", Way.HOLE, 2, ["dec edi"]),
        ("holed", Way.HOLE, 2, ["dec edi"]),
        ("pointed", Way.HOLE, 2, ["dec edi"]),
        ("called_early", Way.JUMP, 5, None),
        ("tail", Way.JUMP, 5, None),
    ],
)
def test_best_way_is_chosen(
    label: str, way: Way, size: int, text: list[str] | None, labels: dict[str, int], code: Code
) -> None:
    opening = best_opening(code, labels[label])

    assert isinstance(opening, Opening)
    assert (opening.way, opening.address, opening.size) == (way, labels[label], size)
    if text is not None:
        assert [insn.text for insn in disassemble(opening.code, opening.address)] == text
    assert bool(opening.holes) is (way is Way.HOLE)


def test_hole_is_padding_within_reach(labels: dict[str, int], code: Code) -> None:
    opening = best_opening(code, labels["looped"])

    assert isinstance(opening, Opening)
    assert opening.holes
    for hole in opening.holes:
        gap = next(gap for gap in code.gaps(hole.jump - 64, hole.jump + 64) if hole.jump in gap)
        assert -128 <= hole.jump - (opening.address + 2) <= 127
        assert (hole.code, hole.made) == (code.read(hole.jump - 1, 6), False)
        assert hole.jump + 5 <= gap.stop
        assert is_padding(code.read(gap.start, len(gap)))


def test_no_instruction_of_a_restartable_sequence_is_displaced(
    labels: dict[str, int], code: Code
) -> None:
    inside = best_opening(code, labels["sequence"])
    before = best_opening(code, labels["restarted"])

    assert isinstance(inside, Closed)
    assert {each.reason for each in inside.turned_down} == {Why.RESTARTABLE}
    assert isinstance(before, Opening)
    assert before.size == 2


def test_way_is_turned_down_with_what_leads_there(labels: dict[str, int], code: Code) -> None:
    opening = best_opening(code, labels["looped"])

    assert isinstance(opening, Opening)
    assert opening.turned_down == ((Way.JUMP, TargetKind.BRANCH, labels["looped_back"]),)


def test_jump_is_behind_endbr64(labels: dict[str, int], code: Code) -> None:
    opening = best_opening(code, labels["protected"])

    assert isinstance(opening, Opening)
    assert opening.address == labels["protected"] + 4
    assert opening.way is Way.JUMP


def test_call_that_would_return_into_the_span_is_not_displaced(
    labels: dict[str, int], code: Code
) -> None:
    opening = best_opening(code, labels["called_too_early"])

    assert isinstance(opening, Opening)
    assert opening.way is not Way.JUMP


@pytest.mark.parametrize(
    ("label", "offset", "reason"),
    [
        ("system", 0, Obstacle.SYSTEM_CALL),
        ("unknown", 0, Why.UNEXPLAINED),
        ("plain", 2, Why.NO_START),
        ("uncovered", 0, Why.NOT_COVERED),
        ("only_protected", 0, Why.SHORT),  # a breakpoint behind it is not in it
    ],
)
def test_what_cannot_be_opened_says_why(
    label: str, offset: int, reason: Obstacle | Why, labels: dict[str, int], code: Code
) -> None:
    closed = best_opening(code, labels[label] + offset)

    assert isinstance(closed, Closed)
    assert closed.turned_down[-1].reason is reason
    assert closed.turned_down[-1].way is Way.INT3


# ---- objects that lie --------------------------------------------------------------------------


def words_that_are_believed(path: Path) -> list[int]:
    """The offsets in a file of its program headers, its dynamic section and two symbols, by 8."""
    with FileImage(str(path)) as image:
        tables = [range(64, 64 + 56 * len(image.segments))]
        for segment in image.segments:
            if segment.type == PT_DYNAMIC:
                tables.append(range(segment.offset, segment.offset + segment.file_size))
        for section in read_sections(image):
            if section.type == SHT_SYMTAB:
                tables.append(range(section.offset + 24, section.offset + 3 * 24))
        return [offset for table in tables for offset in table[::8]]


@pytest.mark.parametrize("flags", [["-shared"], ["-static", "-no-pie"]], ids=["shared", "fixed"])
def test_object_that_lies_is_refused_or_analysed(flags: list[str], tmp_path: Path) -> None:
    """A number that fits into no address was an OverflowError; a segment without an end, a
    MemoryError."""
    source, built, damaged = (tmp_path / name for name in ("code.S", "built", "damaged"))
    source.write_text(SOURCE + ".globl _start\n_start = plain\n")
    subprocess.run(["gcc", *flags, "-nostdlib", source, "-o", built], check=True)
    good = built.read_bytes()
    wrong = []
    for offset in words_that_are_believed(built):
        for word in (0, 1 << 56, 1 << 62, (1 << 64) - 1):
            damaged.write_bytes(good[:offset] + word.to_bytes(8, "little") + good[offset + 8 :])
            try:
                with FileImage(str(damaged)) as image:
                    code = Code(image)
                best_opening(code, int(code.functions.starts[0]))
            except MarkerError:
                continue
            except Exception as error:
                wrong.append(f"{word:#x} at {offset}: {error!r}")

    assert wrong == []


def test_object_without_code_is_refused(tmp_path: Path) -> None:
    source, built = tmp_path / "code.S", tmp_path / "code.so"
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-shared", "-nostdlib", source, "-o", built], check=True)
    data = bytearray(built.read_bytes())
    with FileImage(str(built)) as image:
        for index, segment in enumerate(image.segments):
            data[64 + 56 * index + 4] = segment.flags & ~PF_X
    built.write_bytes(data)

    with FileImage(str(built)) as image, pytest.raises(NoFunctions, match="it has no code"):
        Code(image)

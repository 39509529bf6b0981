"""Assembling: what keystone makes is what was meant, or it is refused.

objdump, which is neither keystone nor capstone, has the last word on what the bytes mean.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from capstone import CS_ARCH_X86, CS_MODE_64, Cs
from hypothesis import given
from hypothesis import strategies as st

from markerjit.abi import (
    OP_FP,
    OP_GP,
    OP_SKIP,
    OP_SKIP_FP,
    OP_STRING,
    RSEQ_SIGNATURE,
    Control,
    Restartable,
)
from markerjit.errors import MarkerError
from markerjit.probes.parts import Name
from markerjit.probes.recorder import LARGEST, Recorder, Setting, Shape, make_recorder
from markerjit.x86 import assemble as module
from markerjit.x86 import encoding
from markerjit.x86.assemble import (
    assemble,
    assemble_anywhere,
    displacement,
    number,
)
from markerjit.x86.decode import disassemble
from markerjit.x86.encoding import WronglyAssembled, assembled
from tests.support.made_arena import geometry_of
from tests.support.parts import check_parts

ADDRESS = 0x7F00_0000_1000
NAMES = {"near": ADDRESS + 0x40, "behind": ADDRESS - 0x2000, "far": ADDRESS + 0x4000_0000}


def code_of(lines: Sequence[str]) -> bytes:
    return assemble(lines, ADDRESS, NAMES).code


def code(*lines: str) -> str:
    return code_of(lines).hex(" ")


# ---- what is meant -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("ret", "c3"),
        ("mov rdi, qword ptr [r10]", "49 8b 3a"),
        ("mov r10d, dword ptr fs:[0x18]", "64 44 8b 14 25 18 00 00 00"),
        ("movsd qword ptr [rdi + 0x10], xmm7", "f2 0f 11 7f 10"),
        ("mov byte ptr [rdi + 8], sil", "40 88 77 08"),
        ("movabs eax, dword ptr fs:[0x2d0]", "64 a1 d0 02 00 00 00 00 00 00"),
        ("rdtsc", "0f 31"),
    ],
)
def test_instructions_become_what_the_manual_says(line: str, made: str) -> None:
    assert code(line) == made


def test_offsets_below_the_thread_are_written_as_large_numbers() -> None:
    offset = number(-0x1C & (1 << 64) - 1)

    assert code(f"mov r10d, dword ptr fs:[{offset}]") == "64 44 8b 14 25 e4 ff ff ff"
    assert code(f"movabs eax, dword ptr fs:[{offset}]") == "64 a1 e4 ff ff ff ff ff ff ff"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (9, "9"), (10, "0xa"), (255, "0xff"), (1 << 63, f"{1 << 63:#x}")]
)
def test_numbers_are_written_as_capstone_does(value: int, text: str) -> None:
    assert number(value) == text


def test_no_lines_are_no_code() -> None:
    assert assemble([], ADDRESS, {}) == (b"", {}, ())


# ---- labels and names ----------------------------------------------------------------------------


def test_labels_are_told_and_jumped_to() -> None:
    made = assemble(["start:", "nop", "again:", "jne again", "jmp end", "nop", "end:"], ADDRESS, {})

    assert made.code.hex(" ") == "90 75 fe eb 01 90"
    assert made.labels == {"start": ADDRESS, "again": ADDRESS + 1, "end": ADDRESS + 6}


def test_a_jump_that_is_too_far_for_a_byte_takes_four() -> None:
    made = assemble(["je end", *["nop"] * 200, "end:"], ADDRESS, {})

    assert made.code[:6].hex(" ") == "0f 84 c8 00 00 00"
    assert made.labels["end"] == ADDRESS + 206


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mnemonic", ["jmp", "ja", "call"])
def test_names_are_jumped_to_and_called(name: str, mnemonic: str) -> None:
    made = assemble([f"{mnemonic} {name}"], ADDRESS, NAMES).code
    size = 1 if len(made) == 2 else 4

    distance = int.from_bytes(made[-size:], "little", signed=True)

    assert ADDRESS + len(made) + distance == NAMES[name]


@pytest.mark.parametrize("mnemonic", ["jmp", "ja", "call"])
def test_a_number_may_be_jumped_to_and_called(mnemonic: str) -> None:
    made = assemble([f"{mnemonic} {NAMES['near']:#x}"], ADDRESS, {}).code

    assert made == code_of([f"{mnemonic} near"])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("line", "behind"),
    [
        ("lea r10, [rip + {}]", 0),
        ("cmp r10d, dword ptr [rip + {}]", 0),
        ("mov dword ptr [rip + {}], 0x12345678", 4),  # the displacement is not at the end
    ],
)
def test_operands_are_found_by_name_from_where_they_stand(
    name: str, line: str, behind: int
) -> None:
    made = assemble(["nop", line.format(name), "nop"], ADDRESS, NAMES).code
    at = len(made) - 1 - behind - 4

    distance = int.from_bytes(made[at : at + 4], "little", signed=True)

    assert ADDRESS + len(made) - 1 + distance == NAMES[name]


def test_a_label_may_be_an_operand() -> None:
    made = assemble(["lea rax, [rip + data]", "ret", "data:"], ADDRESS, {})

    assert made.code.hex(" ") == "48 8d 05 01 00 00 00 c3"


# ---- what is refused -----------------------------------------------------------------------------


def test_code_that_keystone_gets_wrong_without_a_word_is_refused() -> None:
    line = "push 0xffffffff"  # becomes a push of 16 bits
    assert assembled(line, ADDRESS), "says nothing of it"

    for _ in range(2):  # nor is it known from the first time
        with pytest.raises(WronglyAssembled, match="became `push 0xffff` where"):
            assemble([line], ADDRESS, {})


@pytest.mark.parametrize("line", ["sub rax, qword ptr fs:[0x10]", "add r10d, dword ptr fs:[0x18]"])
def test_code_that_keystone_gets_wrong_near_an_offset_is_encoded_elsewhere(line: str) -> None:
    low = 0x1000  # there it becomes an access by the instruction pointer
    assert [each.text for each in disassemble(assembled(line, low), low)] != [line]

    made = assemble([line], low, {}).code

    assert [each.text for each in disassemble(made, low)] == [line]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("bogus rax", "keystone"),
        ("rdpid rax", "keystone"),
        ("ja nowhere", "keystone"),
        ("lea rax, [rip + nowhere]", "nothing is called nowhere"),
        ("mov eax, 0x8", "`mov eax, 0x8` became `mov eax, 8`"),
        ("mov rax, qword ptr fs:[0x10]", "movabs"),  # as it should have been written
        ("nop; nop", "1 instructions became 2"),
    ],
)
def test_what_is_not_meant_so_is_refused_and_says_why(line: str, complaint: str) -> None:
    with pytest.raises(WronglyAssembled, match=re.escape(complaint)) as refused:
        code(line)
    assert isinstance(refused.value, MarkerError)


@pytest.mark.parametrize("line", ["lea rax, [rip + x]", "jmp x", "call x", "cmp eax, [rip + x]"])
@pytest.mark.parametrize("distance", [1 << 32, -(1 << 32), 1 << 46])
def test_what_is_out_of_reach_is_refused(line: str, distance: int) -> None:
    with pytest.raises(WronglyAssembled):
        assemble([line], ADDRESS, {"x": ADDRESS + distance})


LINES = ["mov rdi, qword ptr [r10]", "cmp r11, qword ptr [r10 + 8]", "ja far", "ret"]


def test_a_bit_that_keystone_gets_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte is looked at: whichever bit is flipped, capstone reads it otherwise."""
    lines = [*LINES[:2], f"ja {encoding.FAR:#x}", "ret"]
    right = encoding.encoded(lines)
    make, accepted = encoding.assembled, 0
    for bit in range(8 * len(b"".join(right))):

        def flipped(text: str, address: int, bit: int = bit) -> bytes:
            made = bytearray(make(text, address))
            made[bit // 8] ^= 1 << bit % 8
            return bytes(made)

        monkeypatch.setattr(encoding, "assembled", flipped)
        try:
            made = encoding.encoded(lines)
        except WronglyAssembled:
            continue
        accepted += 1
        assert made != right
    # Prefix bits without a meaning for that instruction: the text is the same, and what it does.
    assert accepted <= 4


def test_a_displacement_that_is_put_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["nop", "cmp dword ptr [rip + far], 0x12345678", "ja near", "jmp far", "near:"]
    right = assemble(lines, ADDRESS, {"far": NAMES["far"]}).code
    put = module.displacement

    for wrong in range(3):
        count = iter(range(3))

        def displaced(*args: Any, wrong: int = wrong, count: Iterator[int] = count) -> bytes:
            made = bytearray(put(*args))
            made[0] ^= next(count) == wrong
            return bytes(made)

        monkeypatch.setattr(module, "displacement", displaced)
        with pytest.raises(WronglyAssembled, match="where it should be"):
            assemble(lines, ADDRESS, {"far": NAMES["far"]})
    monkeypatch.undo()
    assert assemble(lines, ADDRESS, {"far": NAMES["far"]}).code == right


# ---- keystone is asked once ----------------------------------------------------------------------


def test_what_was_encoded_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Mock(wraps=encoding.assembled)
    monkeypatch.setattr(module, "_KNOWN", {})
    monkeypatch.setattr(encoding, "assembled", asked)
    first = assemble([*LINES, "again:", "jne again"], ADDRESS, NAMES)

    again = assemble([*LINES, "again:", "jne again"], ADDRESS, NAMES)
    more = assemble([*LINES, "add rax, 0x1234", "again:", "jne again", "ret"], ADDRESS, NAMES)

    assert again == first
    assert more.code.startswith(code_of(LINES)) and more.code.endswith(first.code[-2:] + b"\xc3")
    assert [call.args[0] for call in asked.call_args_list[1:]] == ["add rax, 0x1234"]


def test_no_more_is_known_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KNOWN", {})
    monkeypatch.setattr(module, "_MOST", 8)
    codes = []

    for start in range(10, 25, 5):
        lines = [f"add rax, {number(index)}" for index in range(start, start + 5)]
        codes.append(assemble(["push rax", *lines], ADDRESS, {}).code)
        assert len(module._KNOWN) <= 8

    assert [made[:1] for made in codes] == [codes[0][:1]] * 3


@given(
    st.lists(
        st.one_of(
            st.integers(1, 60).map(lambda count: ["nop"] * count),
            st.tuples(st.sampled_from(["jmp", "je", "ja", "js"]), st.integers(0, 12)).map(
                lambda jump: [f"{jump[0]} at{jump[1]}"]
            ),
        ),
        min_size=13,
        max_size=24,
    )
)
def test_jumps_have_the_sizes_that_keystone_gives_them(pieces: list[list[str]]) -> None:
    """keystone makes all of the code at once here, with the labels in it."""
    source = [line for at, piece in enumerate(pieces) for line in (*piece, f"at{at}:")]

    made = assemble(source, ADDRESS, {})

    assert made.code == assembled("\n".join(source), ADDRESS)


# ---- code for any address ------------------------------------------------------------------------


def test_code_for_any_address_is_that_which_is_assembled_there() -> None:
    source = [
        "start:", "lea rax, [rip + table]", "mov qword ptr fs:[0x40], rcx", "je behind",
        "call function", "ja function", "jmp start", "behind:", "cmp byte ptr [rip + table], 7",
        "ret",
    ]  # fmt: skip
    made = assemble_anywhere(source, ["table", "function"])

    for address in (0x7F12_3400_0000, 0x7F12_3400_0000 + (1 << 30)):
        names = {"table": 0x7F12_3412_3456, "function": 0x7F12_2000_0008}
        code = bytearray(made.code)
        for reference in made.references:
            code[reference.at : reference.at + 4] = displacement(reference, address, names)
        at_address = assemble(source, address, names)
        assert bytes(code) == at_address.code
        assert {at + address for at in made.labels.values()} == {
            at for name, at in at_address.labels.items() if name not in names
        }
    assert [reference.name for reference in made.references] == [
        "table", "function", "function", "table"
    ]  # fmt: skip


def test_code_that_is_put_too_far_away_is_refused() -> None:
    (reference,) = assemble_anywhere(["lea rax, [rip + table]"], ["table"]).references

    assert displacement(reference, 0, {"table": (1 << 31) + 6}) == b"\xff\xff\xff\x7f"
    with pytest.raises(WronglyAssembled, match="table is out of reach"):
        displacement(reference, 0, {"table": (1 << 31) + 7})


# ---- whole recorders -----------------------------------------------------------------------------

BASE = 0x7F12_3400_0000
PLACE = BASE + 0x8000
ENDBR64 = b"\xf3\x0f\x1e\xfa"


def recorder(ops: Sequence[int], **facts: object) -> bytes:
    return whole_recorder(ops, **facts).code  # type: ignore[arg-type]


def whole_recorder(
    ops: Sequence[int], *, rseq: int = -0x40, tid: int = 0x2D0, marker: int = 5, **shape: object
) -> Recorder:
    control = Control(rseq_offset=rseq, tid_offset=tid)
    places = {"record_event": 0x990, "pass_": 0xAA0, "turn": 0x1020, "lose": 0xA30}
    places |= {"gate_record": 0xB00, "gate_pass": 0xB40, "gate_lose": 0xB80}
    addresses = {name: BASE + at for name, at in places.items()}
    setting = Setting(BASE, control, geometry_of(max_markers=1 << 17), **addresses)
    facts = {"timed": True, "tid": True, "counted": True, **shape}
    whole = Shape(marker, BASE + 0x88_0000, bytes(ops), 120, **facts)  # type: ignore[arg-type]
    made = make_recorder(whole, setting, PLACE)
    assert made.entry % 32 == 0
    assert PLACE < made.entry < PLACE + len(made.code) <= PLACE + LARGEST
    check_parts(made.parts, PLACE, made.code)
    return made


def test_a_large_id_makes_no_recorder_longer() -> None:
    ops = [OP_GP | 2 << 4] * 2

    small, large = recorder(ops, marker=5), recorder(ops, marker=100_000)

    assert len(small) == len(large)
    # 48 0d imm32: or $imm32, %rax, which has the thread's id in its upper half
    assert small.count(b"\x48\x0d" + (15 << 22 | 5).to_bytes(4, "little")) == 1
    assert large.count(b"\x48\x0d" + (15 << 22 | 100_000).to_bytes(4, "little")) == 1


def test_events_that_may_wait_cost_nothing_where_there_is_room() -> None:
    """Up to the return of a recorder each instruction is the same, but for the distances of jumps
    out of the way."""

    def way(code: bytes) -> list[tuple[str, int]]:
        made = [*Cs(CS_ARCH_X86, CS_MODE_64).disasm(code[code.index(ENDBR64) :], 0)]
        names = [instruction.mnemonic for instruction in made]
        return [
            (instruction.mnemonic, instruction.size)
            for instruction in made[: names.index("ret") + 1]
        ]

    ops = [OP_GP | 2 << 4] * 2
    hasty, patient = recorder(ops), recorder(ops, waits=True)

    assert len(way(hasty)) > 20
    assert way(patient) == way(hasty)
    assert len(patient) <= len(hasty)


every_op = st.sampled_from(
    [OP_SKIP, OP_SKIP_FP, OP_FP | 3 << 4, *[OP_GP | size << 4 for size in range(4)]]
)


@given(
    ops=st.lists(every_op, max_size=12),
    rseq=st.sampled_from([-0x40, 0x9C0, -0x1000, 0xFE0, 0x20]),
    tid=st.sampled_from([-1, 0x2D0, 0x30, 0]),
    timed=st.booleans(),
    counted=st.booleans(),
)
def test_a_recorder_of_any_shape_is_assembled_and_checked(
    ops: list[int], rseq: int, tid: int, timed: bool, counted: bool
) -> None:
    made = recorder(ops, rseq=rseq, tid=tid, timed=timed, counted=counted)

    sequences = [Restartable.from_buffer_copy(made, at * 32) for at in range(1 + counted)]
    for sequence in sequences:
        assert (sequence.version, sequence.flags) == (0, 0)
        assert PLACE < sequence.start < sequence.start + sequence.length <= PLACE + len(made)
        assert not sequence.start <= sequence.abort < sequence.start + sequence.length
        before = made[sequence.abort - 4 - PLACE : sequence.abort - PLACE]
        assert before == RSEQ_SIGNATURE.to_bytes(4, "little")


every_op_or_text = st.one_of(every_op, st.just(OP_STRING))


@given(
    ops=st.lists(every_op_or_text, max_size=5),
    tid=st.sampled_from([-1, 0x2D0]),
    timed=st.booleans(),
    counted=st.booleans(),
    preserving=st.booleans(),
    waits=st.booleans(),
)
def test_the_parts_of_a_recorder_are_those_that_the_kernel_is_told_of(
    ops: list[int], tid: int, **facts: bool
) -> None:
    whole = whole_recorder(ops, tid=tid, limits=(64,) * len(ops), **facts)

    parts = {Name(part.name): part for part in whole.parts}
    sequence = Restartable.from_buffer_copy(whole.code, 0)
    assert sequence.start == parts[Name.CPU].start
    assert sequence.start + sequence.length == parts[Name.COMMIT].end
    assert sequence.abort == parts[Name.INTERRUPTED].start
    assert (Name.COUNT in parts) == facts["counted"]
    if facts["counted"]:
        counting = Restartable.from_buffer_copy(whole.code, 32)
        assert counting.start == parts[Name.COUNT_CPU].start
        assert counting.start + counting.length == parts[Name.COUNT].end
        assert counting.abort == parts[Name.UNCOUNTED].start
    assert sum(part.name == Name.TEXT for part in whole.parts) == ops.count(OP_STRING)
    assert (Name.CLOCK in parts) == (facts["timed"] or OP_STRING in ops)
    assert (Name.LOST in parts) == (not facts["waits"])


def test_a_part_has_the_instructions_that_its_name_says() -> None:
    whole = whole_recorder([OP_GP | 2 << 4] * 2, preserving=False)

    def lines(name: Name) -> list[str]:
        (part,) = (part for part in whole.parts if part.name == name)
        piece = whole.code[part.start - PLACE : part.end - PLACE]
        return [each.text for each in disassemble(piece, part.start)]

    assert lines(Name.CLOCK)[0] == "rdtsc"
    assert lines(Name.COMMIT) == ["add qword ptr [r10], 0x78"]
    assert lines(Name.BACK) == ["ret"]
    assert lines(Name.COUNT) == ["inc qword ptr [r10 + rax]"]


def test_headings_make_no_code_and_name_what_follows() -> None:
    lines = ["nop", "# first", "again:", "nop", "je again", "# none", "# last", "ret"]

    made = assemble(lines, ADDRESS, {})

    assert made.code == assemble([line for line in lines if line[0] != "#"], ADDRESS, {}).code
    assert made.parts == (("first", ADDRESS + 1, ADDRESS + 4), ("last", ADDRESS + 4, ADDRESS + 5))
    assert made.labels == {"again": ADDRESS + 1}


@pytest.mark.parametrize("kind", ["timed", "untimed"])
def test_objdump_reads_a_recorder_as_it_was_meant(
    tmp_path: Path, needs_tool: Callable[[str, str], str], kind: str
) -> None:
    objdump = needs_tool("objdump", "binutils")
    ops = [OP_GP | 2 << 4, OP_FP | 3 << 4] * 6
    made = recorder(ops, timed=kind == "timed", preserving=False)
    (tmp_path / "code").write_bytes(made)
    options = ["-D", "-b", "binary", "-m", "i386:x86-64", f"--adjust-vma={PLACE}"]

    text = subprocess.run(
        [objdump, *options, tmp_path / "code"], capture_output=True, text=True, check=True
    ).stdout

    stores = re.findall(r"mov +%(?:esi|edx|ecx|r8d|r9d|eax),(0x\w+)\(%rdi\)", text)
    floats = re.findall(r"movsd +%xmm\d,(0x\w+)\(%rdi\)", text)
    start = 16 if kind == "timed" else 8
    assert [int(at, 16) for at in stores[-6:]] == [start + 16 * i for i in range(6)]
    assert [int(at, 16) for at in floats] == [start + 16 * i + 8 for i in range(6)]
    assert len(re.findall(r"\brdtsc\b", text)) == (kind == "timed")
    assert f"{BASE + 0x990:x}" in text
    assert f"{BASE + 0x1020:x}" in text


def test_a_recorder_of_a_preserving_call_gives_back_what_it_pushes() -> None:
    made = recorder([OP_GP | 2 << 4, OP_FP | 3 << 4] * 6)
    machine = Cs(CS_ARCH_X86, CS_MODE_64)
    machine.skipdata = True  # the descriptors stand before it
    decoded = [
        f"{instruction.mnemonic} {instruction.op_str}".strip()
        for instruction in machine.disasm(made, 0)
    ]

    begin = decoded.index("endbr64")
    pushed = [line.split()[1] for line in decoded[begin + 1 : begin + 5]]
    end = decoded.index("ret", begin)
    assert pushed == ["rax", "rdi", "r10", "rdx"]
    assert decoded[end - 4 : end] == [f"pop {register}" for register in reversed(pushed)]
    assert not [line for line in decoded[begin:end] if "xmm" in line]

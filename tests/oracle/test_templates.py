"""The opcodes of x86/forms.py against two tools that are not ours.

keystone assembles what the forms say an instruction is and must give the same bytes; capstone
decodes what the forms give and must see the same instruction and the same target. keystone
does not know `jmp short`: it takes a target and chooses the shortest jump that reaches it.
"""

from __future__ import annotations

import contextlib
from itertools import product

import capstone
import keystone
import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.model import Form, Kind, Mode
from markerjit.x86 import forms
from markerjit.x86.decode import disassemble
from markerjit.x86.forms import (
    INT3,
    JMP_NEAR,
    JMP_SHORT,
    NEAR_LENGTH,
    NOP,
    POP_RAX_RET,
    SIGRETURN,
    SYSCALL_RET,
    TEST_EAX,
    marker_form,
    mode_of,
    relative,
)
from markerjit.x86.opinion import disagreement

pytestmark = pytest.mark.oracle

HERE = 0x401000
FAR = 0x7F0000
BYTE_REGISTERS = [
    "al",
    "bl",
    "cl",
    "dl",
    "sil",
    "dil",
    "bpl",
    "r8b",
    "r9b",
    "r10b",
    "r11b",
    "r12b",
    "r13b",
    "r14b",
    "r15b",
]

addresses = st.integers(min_value=1 << 16, max_value=(1 << 47) - 64)
distances = st.integers(min_value=-(1 << 31) + 64, max_value=(1 << 31) - 64)
PATCHED = [Kind.JUMP, Kind.NOP, Kind.IMMEDIATE, Kind.SYMBOL]
patched_kinds = st.sampled_from(PATCHED)


def form_of(kind: Kind, address: int = HERE, body: int = FAR) -> Form:
    return marker_form(kind, address, body)


def site_bytes(kind: Kind, address: int, body: int) -> bytes:
    """All bytes of a dormant site, as far as its form determines them."""
    form = marker_form(kind, address, body)
    return form.head + form.tail


def assemble(text: str, address: int = HERE) -> bytes:
    encoding, _ = keystone.Ks(keystone.KS_ARCH_X86, keystone.KS_MODE_64).asm(text, address)
    return bytes(encoding)


def decode(code: bytes, address: int = HERE) -> capstone.CsInsn:
    """The one instruction that these bytes are, all of them."""
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.detail = True
    (instruction,) = decoder.disasm(code, address)
    assert bytes(instruction.bytes) == code
    return instruction


def end_of(kind: Kind, address: int) -> int:
    return address + {Kind.JUMP: 2 + NEAR_LENGTH, Kind.NOP: NEAR_LENGTH}.get(kind, 1)


# ---- keystone ------------------------------------------------------------------------------------


def test_keystone_gives_the_short_jumps_of_a_jump_site() -> None:
    dormant, active = form_of(Kind.JUMP).head, form_of(Kind.JUMP).ways[Mode.JUMP]

    assert assemble(f"jmp {HERE + 7:#x}") == dormant
    assert assemble(f"jmp {HERE + 2:#x}") == active


def test_keystone_gives_the_near_jump_to_the_body() -> None:
    site = site_bytes(Kind.JUMP, HERE, FAR)
    opened = form_of(Kind.NOP).ways[Mode.NOP] + site_bytes(Kind.NOP, HERE, FAR)[1:]

    assert assemble(f"jmp {FAR:#x}", HERE + 2) == site[2:]
    assert assemble(f"jmp {FAR:#x}", HERE) == opened


def test_keystone_gives_the_test_of_a_nop_site() -> None:
    assert assemble(f"test eax, {FAR - (HERE + 5):#x}") == site_bytes(Kind.NOP, HERE, FAR)


@pytest.mark.parametrize(
    ("text", "code"),
    [("nop", bytes([NOP])), ("int3", bytes([INT3]))],
)
def test_keystone_gives_the_instructions_without_operands(text: str, code: bytes) -> None:
    assert assemble(text) == code
    assert decode(code).mnemonic == text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("syscall; ret", SYSCALL_RET),
        ("pop rax; ret", POP_RAX_RET),
        ("mov rax, 15; syscall", SIGRETURN[0]),
        ("mov eax, 15; syscall", SIGRETURN[1]),
    ],
)
def test_keystone_gives_the_instructions_that_a_borrowed_thread_runs(
    text: str, code: bytes
) -> None:
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)

    assert assemble(text) == code
    decoded = [
        f"{instruction.mnemonic} {instruction.op_str}".strip()
        for instruction in decoder.disasm(code, HERE)
    ]
    assert decoded == [part.replace("15", "0xf").strip() for part in text.split(";")]


@pytest.mark.parametrize("register", BYTE_REGISTERS)
def test_immediate_of_a_move_into_a_byte_register_is_its_last_byte(register: str) -> None:
    off, on = assemble(f"mov {register}, 0"), assemble(f"mov {register}, 1")

    form = form_of(Kind.IMMEDIATE)
    assert off[-1:] == form.head == site_bytes(Kind.IMMEDIATE, HERE, 0)
    assert on[-1:] == form.ways[Mode.IMMEDIATE]
    assert off[:-1] == on[:-1]


@pytest.mark.parametrize("register", BYTE_REGISTERS)
def test_capstone_agrees_with_the_immediate_of_every_register(register: str) -> None:
    """The site is read from one byte before the immediate, so without a REX prefix."""
    code = assemble(f"mov {register}, 0")[-2:]

    assert disagreement(form_of(Kind.IMMEDIATE), code, HERE - 1, 0, HERE + 1) is None


# ---- the tables ----------------------------------------------------------------------------------


def test_every_kind_has_the_modes_that_it_was_made_for() -> None:
    assert {kind: form_of(kind).modes for kind in Kind} == {
        Kind.JUMP: (Mode.JUMP, Mode.INT3),
        Kind.NOP: (Mode.NOP, Mode.INT3),
        Kind.POINTER: (Mode.POINTER,),
        Kind.SENTINEL: (Mode.SENTINEL,),
        Kind.DIRECT: (),
        Kind.IMMEDIATE: (Mode.IMMEDIATE,),
        Kind.SYMBOL: (Mode.INT3,),
    }


@pytest.mark.parametrize("kind", PATCHED)
def test_a_head_that_was_made_is_recognised(kind: Kind) -> None:
    form = form_of(kind)

    assert mode_of(form, form.head) is None
    for mode in form.modes:
        assert mode_of(form, form.ways[mode]) is mode


@pytest.mark.parametrize("kind", PATCHED)
def test_a_head_of_no_mode_is_refused(kind: Kind) -> None:
    form = form_of(kind)
    size = len(form.head)
    recognised = set()

    for number in range(256**size):
        head = number.to_bytes(size, "little")
        with contextlib.suppress(ValueError):
            mode_of(form, head)
            recognised.add(head)

    # What stands behind a breakpoint is not executed: bytes of one of the heads.
    stated = {form.head, *form.ways.values()}
    behind = [{head[at] for head in stated} for at in range(1, size)]
    trapped = {bytes([INT3, *rest]) for rest in product(*behind)}
    assert recognised == stated | (trapped if Mode.INT3 in form.modes else set())
    if Mode.INT3 in form.modes:
        assert {mode_of(form, head) for head in trapped} == {Mode.INT3}


@pytest.mark.parametrize("kind", PATCHED)
def test_every_mode_differs_from_dormant_in_exactly_one_byte(kind: Kind) -> None:
    form = form_of(kind)

    for active in form.ways.values():
        assert len(active) == len(form.head)
        assert sum(a != b for a, b in zip(active, form.head, strict=True)) == 1


@pytest.mark.parametrize("kind", [Kind.POINTER, Kind.SENTINEL, Kind.DIRECT])
def test_nothing_is_promised_of_code_that_the_compiler_wrote(kind: Kind) -> None:
    assert not form_of(kind).head
    assert site_bytes(kind, HERE, FAR) == b""


@pytest.mark.parametrize("kind", PATCHED)
def test_a_site_begins_with_its_dormant_head(kind: Kind) -> None:
    code = site_bytes(kind, HERE, FAR)

    assert code.startswith(form_of(kind).head)
    assert HERE + len(code) == end_of(kind, HERE)


# ---- capstone: the processor's view of what the forms give -----------------------------------


@given(address=addresses, distance=distances)
def test_jump_site_leads_to_its_end_and_opened_to_its_body(address: int, distance: int) -> None:
    body = address + distance
    code = site_bytes(Kind.JUMP, address, body)

    over = decode(code[:2], address)
    opened = decode(form_of(Kind.JUMP).ways[Mode.JUMP], address)
    near = decode(code[2:], address + 2)

    assert (code[0], code[2]) == (JMP_SHORT, JMP_NEAR)
    assert over.mnemonic == opened.mnemonic == near.mnemonic == "jmp"
    assert over.operands[0].imm == end_of(Kind.JUMP, address)
    assert opened.operands[0].imm == near.address
    assert near.operands[0].imm & (1 << 64) - 1 == body & (1 << 64) - 1


@given(address=addresses, distance=distances)
def test_nop_site_tests_the_way_to_its_body_and_opened_jumps_there(
    address: int, distance: int
) -> None:
    body = address + distance
    code = site_bytes(Kind.NOP, address, body)

    dormant = decode(code, address)
    opened = decode(form_of(Kind.NOP).ways[Mode.NOP] + code[1:], address)

    assert code[0] == TEST_EAX
    assert dormant.mnemonic == "test"
    assert not dormant.group(capstone.x86.X86_GRP_JUMP)
    assert opened.mnemonic == "jmp"
    assert opened.operands[0].imm & (1 << 64) - 1 == body & (1 << 64) - 1


@given(target=st.integers(0, 1 << 47), end=st.integers(0, 1 << 47))
def test_displacement_reaches_its_target_or_is_refused(target: int, end: int) -> None:
    if -(1 << 31) <= target - end < 1 << 31:
        assert end + int.from_bytes(relative(target, end), "little", signed=True) == target
    else:
        with pytest.raises(OverflowError):
            relative(target, end)


@given(kind=patched_kinds, address=addresses, distance=distances)
def test_capstone_agrees_with_every_dormant_site(kind: Kind, address: int, distance: int) -> None:
    body = address + distance
    code = site_bytes(kind, address, body)
    start = address
    if kind is Kind.IMMEDIATE:
        code, start = assemble("mov cl, 0")[:1] + code, address - 1

    assert disagreement(form_of(kind), code, start, body, end_of(kind, address)) is None


@given(kind=patched_kinds, address=addresses, distance=distances, data=st.data())
def test_capstone_agrees_with_no_site_in_which_a_byte_was_changed(
    kind: Kind, address: int, distance: int, data: st.DataObject
) -> None:
    body = address + distance
    code = bytearray(site_bytes(kind, address, body))
    start = address
    if kind is Kind.IMMEDIATE:  # which register it is, is the compiler's affair
        code, start = bytearray(assemble("mov cl, 0")[:1] + code), address - 1
    at = data.draw(st.integers(0, len(code) - 1))
    code[at] ^= data.draw(st.integers(1, 255))
    other_register = kind is Kind.IMMEDIATE and at == 0 and code[0] & 0xF8 == 0xB0

    reason = disagreement(form_of(kind), bytes(code), start, body, end_of(kind, address))

    assert (reason is None) == other_register


@pytest.mark.parametrize("kind", PATCHED)
def test_every_change_of_a_single_byte_of_a_site_is_noticed(kind: Kind) -> None:
    code, start = site_bytes(kind, HERE, FAR), HERE
    if kind is Kind.IMMEDIATE:
        code, start = assemble("mov cl, 0")[:1] + code, HERE - 1
    for at in range(len(code)):
        for value in range(256):
            changed = code[:at] + bytes([value]) + code[at + 1 :]
            same = changed == code or (kind is Kind.IMMEDIATE and at == 0 and value & 0xF8 == 0xB0)

            reason = disagreement(form_of(kind), changed, start, FAR, end_of(kind, HERE))

            assert (reason is None) == same, changed.hex(" ")


@pytest.mark.parametrize("kind", PATCHED)
@pytest.mark.parametrize("missing", [1, 2, 5])
def test_a_site_that_is_cut_off_is_noticed(kind: Kind, missing: int) -> None:
    code = site_bytes(kind, HERE, FAR)

    assert disagreement(form_of(kind), code[:-missing], HERE, FAR, end_of(kind, HERE))


@pytest.mark.parametrize("kind", [Kind.JUMP, Kind.NOP, Kind.SYMBOL])
@pytest.mark.parametrize("wrong", [-1, 1, 64])
def test_a_note_with_another_end_is_noticed(kind: Kind, wrong: int) -> None:
    code = site_bytes(kind, HERE, FAR) + bytes([NOP]) * 8

    assert disagreement(form_of(kind), code, HERE, FAR, end_of(kind, HERE) + wrong)


# ---- pointer: the compiler's test of the slot ----------------------------------------------------


def pointer_site(body: int = FAR) -> bytes:
    test = assemble("cmp qword ptr [rip + 0x3000], 0")
    return test + assemble(f"jne {body:#x}", HERE + len(test))


def test_capstone_agrees_with_a_test_of_the_slot() -> None:
    code = pointer_site()

    assert disagreement(form_of(Kind.POINTER), code, HERE, FAR, HERE + len(code)) is None


@pytest.mark.parametrize("at", [0, 1, -1, -2, -4])
def test_another_instruction_or_target_in_a_test_of_the_slot_is_noticed(at: int) -> None:
    code = bytearray(pointer_site())
    code[at] ^= 0x11

    assert disagreement(form_of(Kind.POINTER), bytes(code), HERE, FAR, HERE + len(code))


def test_a_test_of_the_slot_against_another_value_is_noticed() -> None:
    """`cmp [slot], 5; jne body` would call a probe that is not there."""
    code = bytearray(pointer_site())
    at = code.index(b"\x0f\x85") - 1
    code[at] = 5

    assert disagreement(form_of(Kind.POINTER), bytes(code), HERE, FAR, HERE + len(code))


def test_a_test_of_the_slot_with_another_end_is_noticed() -> None:
    code = pointer_site()

    assert disagreement(form_of(Kind.POINTER), code, HERE, FAR, HERE + len(code) + 1)


# ---- text ----------------------------------------------------------------------------------------


def test_disassembly_ends_where_nothing_can_be_decoded() -> None:
    lines = disassemble(bytes([NOP]) + b"\x06" + bytes([NOP]), HERE)

    assert [(line.address, line.code, line.text) for line in lines] == [(HERE, bytes([NOP]), "nop")]


def test_module_names_every_opcode_that_it_uses() -> None:
    opcodes = {JMP_SHORT: "jmp", JMP_NEAR: "jmp", TEST_EAX: "test", NOP: "nop", INT3: "int3"}

    for opcode, mnemonic in opcodes.items():
        code = bytes([opcode]) + bytes({JMP_SHORT: 1, JMP_NEAR: 4, TEST_EAX: 4}.get(opcode, 0))
        assert decode(code).mnemonic == mnemonic
    short, near = bytes([forms._JCC_SHORT, 1]), bytes([forms._TWO_BYTES, forms._JCC_NEAR])
    assert decode(short).mnemonic == decode(near + bytes(4)).mnemonic == "jo"
    call = bytes([forms._CALL_NEAR]) + bytes(4)
    by_slot = bytes([forms._INDIRECT, forms._CALL_SLOT]) + bytes(4)
    jump_by_slot = bytes([forms._BOUND, forms._INDIRECT, forms._JUMP_SLOT]) + bytes(4)
    assert (decode(call).mnemonic, decode(by_slot).mnemonic) == ("call", "call")
    assert decode(jump_by_slot).mnemonic.endswith("jmp")
    lengths = {NEAR_LENGTH, forms.SHORT_LENGTH, forms.SLOT_LENGTH, forms.CONDITION_LENGTH}
    assert {v for k, v in vars(forms).items() if k.isupper() and type(v) is int} == {
        *(*opcodes, *lengths),
        *(forms._JCC_SHORT, forms._JCC_NEAR, forms._TWO_BYTES),
        *(forms._CALL_NEAR, forms._INDIRECT, forms._CALL_SLOT, forms._JUMP_SLOT, forms._BOUND),
    }
    assert lengths == {len(short), len(near + bytes(4)), len(call), len(by_slot)}

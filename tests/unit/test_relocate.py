"""Moving instructions: what each form becomes at its new place, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.x86.decode import disassemble
from markerjit.x86.relocate import Obstacle, Relocated, Unmovable, relocate

HERE = 0x401000
NEW = 0x10401000
FAR_AWAY = HERE + (1 << 33)


def moved(code: str, target: int = NEW) -> Relocated:
    result = relocate(bytes.fromhex(code), HERE, target)
    assert isinstance(result, Relocated), str(result)
    return result


def refused(code: str, target: int = NEW) -> Unmovable:
    result = relocate(bytes.fromhex(code), HERE, target)
    assert isinstance(result, Unmovable)
    return result


def text(result: Relocated) -> list[str]:
    return [insn.text for insn in disassemble(result.code, result.target)]


@pytest.mark.parametrize(
    "code",
    [
        "55",  # push rbp
        "4883ec08",  # sub rsp, 8
        "48b81122334455667788",  # movabs rax, 0x8877665544332211
        "f3a4",  # rep movsb
        "f0ff03",  # lock inc dword ptr [rbx]
        "f30fb8c1",  # popcnt eax, ecx: the prefix is a part of the opcode
        "62f17c4810450a",  # vmovups zmm0, [rbp + 0x280]
        "64488b042528000000",  # mov rax, fs:[0x28]
        "0f1f440000",  # nop
    ],
)
def test_instructions_without_a_place_are_copied(code: str) -> None:
    result = moved(code)

    assert result.code == bytes.fromhex(code)
    assert result.places == {HERE: NEW}
    assert result.falls_through
    assert not result.calls


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("488d0510000000", "lea rax, [rip - 0xfffffed]"),
        ("c5f96f0510000000", "vmovdqa xmm0, xmmword ptr [rip - 0xffffff0]"),
        ("48c7051000000001000000", "mov qword ptr [rip - 0xffffff0], 1"),
        ("62f17c48100510000000", "vmovups zmm0, zmmword ptr [rip - 0xffffff0]"),
    ],
)
def test_operand_relative_to_rip_keeps_its_address(code: str, meant: str) -> None:
    result = moved(code)

    displacement = 0x10 + HERE - NEW
    assert len(result.code) == len(code) // 2
    assert displacement.to_bytes(4, "little", signed=True) in result.code
    assert text(result)[0].split("[rip")[0] == meant.split("[rip")[0]


@pytest.mark.parametrize(
    ("code", "meant", "falls_through"),
    [
        ("eb20", "jmp 0x401022", False),
        ("e920000000", "jmp 0x401025", False),
        ("f2e920000000", "jmp 0x401026", False),  # bnd jmp
        ("7420", "je 0x401022", True),
        ("7f80", "jg 0x400f82", True),
        ("0f8420000000", "je 0x401026", True),
        ("3e7420", "je 0x401023", True),  # a hint, without effect
        ("ebfe", "jmp 0x401000", False),  # to the start of the run, which stays one
    ],
)
def test_branches_keep_their_targets_and_become_near(
    code: str, meant: str, falls_through: bool
) -> None:
    result = moved(code)

    assert text(result) == [meant]
    assert len(result.code) == (6 if falls_through else 5)
    assert result.falls_through is falls_through


@pytest.mark.parametrize("condition", range(16))
def test_every_condition_is_kept(condition: int) -> None:
    code = bytes([0x70 | condition, 0x20])

    result = relocate(code, HERE, NEW)

    assert isinstance(result, Relocated)
    assert text(result) == [insn.text for insn in disassemble(code, HERE)]


@pytest.mark.parametrize(
    ("code", "name", "length"),
    [
        ("e2f0", "loop", 2),
        ("e1f0", "loope", 2),
        ("e0f0", "loopne", 2),
        ("e3f0", "jrcxz", 2),
        ("67e3f0", "jecxz", 3),
    ],
)
def test_branches_by_rcx_step_over_a_jump(code: str, name: str, length: int) -> None:
    result = moved(code)

    near = NEW + length + 2
    assert text(result) == [
        f"{name} {near:#x}",
        f"jmp {near + 5:#x}",
        f"jmp {HERE + length - 16:#x}",
    ]
    assert result.falls_through


@pytest.mark.parametrize(
    ("code", "jump"),
    [
        ("e810000000", "jmp 0x401015"),
        ("666648e810000000", "jmp 0x401018"),  # of __tls_get_addr, as linkers write it
        ("67e810000000", "jmp 0x401016"),  # of a word of the GOT, made direct by the linker
        ("ffd0", "jmp rax"),
        ("41ffd3", "jmp r11"),
        ("ff10", "jmp qword ptr [rax]"),
        ("41ff5308", "jmp qword ptr [r11 + 8]"),
        ("42ff54a310", "jmp qword ptr [rbx + r12*4 + 0x10]"),
        ("64ff142510000000", "jmp qword ptr fs:[0x10]"),
        ("3effd0", "notrack jmp rax"),
    ],
)
def test_call_pushes_its_own_return_address(code: str, jump: str) -> None:
    result = moved(code)

    push, jumps = disassemble(result.code, NEW)[:2]
    literal = len(push.code) + len(jumps.code)
    assert push.text == f"push qword ptr [rip + {len(jumps.code)}]"
    assert jumps.text == jump
    assert result.code[literal:] == (HERE + len(code) // 2).to_bytes(8, "little")
    assert result.calls
    assert not result.falls_through


def test_call_through_the_global_offset_table_keeps_its_slot() -> None:
    result = moved("ff1510000000")

    jump = disassemble(result.code, NEW)[1]
    displacement = int.from_bytes(jump.code[-4:], "little", signed=True)
    assert jump.address + len(jump.code) + displacement == HERE + 6 + 0x10


@pytest.mark.parametrize("code", ["c3", "f3c3", "f2c3", "c20800", "ffe0", "ff6424f8"])
def test_ends_of_functions_are_copied_and_do_not_fall_through(code: str) -> None:
    result = moved(code)

    assert result.code == bytes.fromhex(code)
    assert not result.falls_through


def test_places_have_every_start() -> None:
    result = moved("55 90 7410 4889e5")  # push; nop; je, which grows by four; mov

    assert result.places == {
        HERE: NEW,
        HERE + 1: NEW + 1,
        HERE + 2: NEW + 2,
        HERE + 4: NEW + 8,
    }


@pytest.mark.parametrize(
    ("code", "obstacle", "offset"),
    [
        ("9006", Obstacle.UNDECODED, 1),  # push es: not in 64 bits
        ("90e9", Obstacle.UNDECODED, 1),  # cut off
        ("0f05", Obstacle.SYSTEM_CALL, 0),
        ("0f34", Obstacle.SYSTEM_CALL, 0),
        ("cd80", Obstacle.SYSTEM_CALL, 0),
        ("cc", Obstacle.TRAP, 0),
        ("900f0b", Obstacle.TRAP, 1),
        ("f4", Obstacle.TRAP, 0),
        ("cb", Obstacle.FAR, 0),
        ("48cf", Obstacle.FAR, 0),
        ("ff18", Obstacle.FAR, 0),
        ("ff28", Obstacle.FAR, 0),
        ("f30f1efa", Obstacle.ENDBR, 0),
        ("90f30f1efa", Obstacle.ENDBR, 1),
        ("c7f810000000", Obstacle.TRANSACTION, 0),
        ("678b0510000000", Obstacle.PREFIX, 0),  # relative to eip
        ("f3e910000000", Obstacle.PREFIX, 0),
        ("66e810000000", Obstacle.PREFIX, 0),  # four bytes or two: processors differ
        ("90eb209090", Obstacle.BEHIND_END, 3),
        ("90c390", Obstacle.BEHIND_END, 2),
        ("90eb00", None, 0),  # to the end of the run
        ("eb00", None, 0),
        ("74019090", Obstacle.INTO_SPAN, 0),
        ("90e2fd", None, 0),  # to the start
        ("9090e2fd", Obstacle.INTO_SPAN, 2),  # to the second instruction
        ("9090488b05f9ffffff", Obstacle.INTO_SPAN, 2),  # reads its own code
        ("488d05f9ffffff", None, 0),  # the address of the start
        ("90488d05f9ffffff", Obstacle.INTO_SPAN, 1),
        ("e81000000090", Obstacle.CALL_INSIDE, 0),
        ("ff542408", Obstacle.CALL_BY_STACK, 0),
        ("ffd4", Obstacle.CALL_BY_STACK, 0),
    ],
)
def test_what_must_not_be_moved(code: str, obstacle: Obstacle | None, offset: int) -> None:
    result = relocate(bytes.fromhex(code), HERE, NEW)

    if obstacle is None:
        assert isinstance(result, Relocated)
    else:
        assert result == Unmovable(obstacle, HERE + offset)


@pytest.mark.parametrize(
    "code", ["488d0510000000", "eb10", "7410", "e210", "e810000000", "ff1510000000"]
)
def test_target_out_of_reach_is_refused(code: str) -> None:
    assert refused(code, FAR_AWAY).obstacle is Obstacle.OUT_OF_REACH


def test_refusal_is_a_sentence_with_its_place() -> None:
    assert str(refused("90cc")) == "0x401001: an instruction that traps"


@given(st.binary(min_size=1, max_size=24), st.integers(-(1 << 30), 1 << 30))
def test_any_bytes_are_moved_or_refused_and_going_back_gives_the_same_text(
    code: bytes, distance: int
) -> None:
    start = 1 << 40
    result = relocate(code, start, start + distance)

    if isinstance(result, Unmovable):
        assert start <= result.address < start + len(code)
        return
    assert list(result.places) == [insn.address for insn in disassemble(code, start)]
    assert list(result.places.values()) == sorted(result.places.values())
    if not result.calls and len(result.code) == len(code):
        assert relocate(result.code, start + distance, start) == result._replace(
            address=start + distance,
            target=start,
            code=code,
            places={new: old for old, new in result.places.items()},
        )


def test_a_run_that_depends_on_no_address_is_the_same_everywhere() -> None:
    for target in (NEW, FAR_AWAY):
        result = moved("55 4889e5 c3", target)  # push rbp; mov rbp, rsp; ret

        assert result.code == bytes.fromhex("554889e5c3")
        assert result.places == {HERE: target, HERE + 1: target + 1, HERE + 4: target + 4}
        assert not result.falls_through

    assert refused("c3 55").obstacle is Obstacle.BEHIND_END
    assert refused("55 06").obstacle is Obstacle.UNDECODED
    assert refused("55 0f05").obstacle is Obstacle.SYSTEM_CALL

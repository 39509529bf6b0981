"""Candidates for branches, the flow of a function, and straight lines of instructions."""

from __future__ import annotations

import re

import capstone
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from markerjit.x86.flow import Flows, flow, has_operand, is_padding
from markerjit.x86.run import whole_instructions
from markerjit.x86.windows import (
    absolute_operands,
    loaded_addresses,
    near_branches,
    short_branches,
)

HERE = 0x401000


@given(st.binary(min_size=8, max_size=200))
def test_every_branch_that_a_decoder_sees_is_a_candidate(code: bytes) -> None:
    """From every offset, since any could be the start of an instruction."""
    candidates = near_branches(code, HERE)
    known = set(zip(candidates.targets.tolist(), candidates.ends.tolist(), strict=True))
    known |= set(short_branches(code, HERE).into(0, 1 << 62))
    inside = range(HERE, HERE + len(code))

    seen = {
        (target, end)
        for offset in range(len(code))
        for end, target in flow(code[offset:], HERE + offset).branches.items()
        if target in inside
    }

    assert seen <= known
    assert np.all(np.diff(candidates.targets) >= 0)


def test_flow_of_a_function() -> None:
    code = bytes.fromhex("55 7405 e810000000 ffd0 0f05 ffe0 ff2510000000 c3")

    result = flow(code, HERE)

    assert result.starts[HERE + 1] == 2
    assert result.branches == {HERE + 3: HERE + 8, HERE + 8: HERE + 0x18}
    assert result.returns == {HERE + 8, HERE + 10, HERE + 12}
    assert result.jumps == (HERE + 12,)
    assert result.end == HERE + len(code)


def test_flow_ends_at_what_is_no_instruction() -> None:
    assert flow(bytes.fromhex("9006c3"), HERE).end == HERE + 1


def test_loaded_address_is_that_of_the_operand() -> None:
    code = bytes.fromhex("90 488d3d10000000 4c8d25f0ffffff")

    addresses, ends = loaded_addresses(code, HERE)

    assert addresses.tolist() == [HERE + 8 + 0x10, HERE + 15 - 0x10]
    assert ends.tolist() == [HERE + 8, HERE + 15]


def test_padding_is_no_ops_and_breakpoints() -> None:
    assert is_padding(bytes.fromhex("90 662e0f1f840000000000 0f1f00 cc"))
    assert not is_padding(bytes.fromhex("90c3"))
    assert not is_padding(bytes.fromhex("0000"))
    assert not is_padding(bytes.fromhex("900f1f"))


def test_run_ends_with_its_block() -> None:
    run = whole_instructions(bytes.fromhex("55 31c0 c3 90909090"), HERE)

    assert [code.hex() for code in run.codes] == ["55", "31c0", "c3"]
    assert run.ends
    assert run.first(2).hex() == "5531c0"
    assert run.no_ops() == b""


def test_run_ends_with_a_call_that_comes_back() -> None:
    run = whole_instructions(bytes.fromhex("90 90 e800000000 90"), HERE)

    assert len(run.codes) == 3
    assert not run.ends
    assert run.no_ops() == b"\x90\x90"


def test_run_knows_its_endbr() -> None:
    assert whole_instructions(bytes.fromhex("f30f1efa55c3"), HERE).endbr == 4
    assert whole_instructions(bytes.fromhex("55f30f1efac3"), HERE).endbr == 0


def test_absolute_operand_is_found_at_any_offset() -> None:
    code = bytes.fromhex("90 bf04104000 c3")  # mov edi, 0x401004

    candidates = absolute_operands(code, HERE)

    assert candidates.into(HERE, HERE + 7) == [(HERE + 4, HERE + 6)]
    assert absolute_operands(b"\x90", HERE).into(0, 1 << 62) == []


def test_operand_is_no_displacement_from_rip() -> None:
    assert has_operand(bytes.fromhex("bf04104000"), 0x401004)
    assert has_operand(bytes.fromhex("ff24c504104000"), 0x401004)  # jmp [rax*8 + 0x401004]
    assert not has_operand(bytes.fromhex("488b3d04104000"), 0x401004)
    assert not has_operand(bytes.fromhex("bf04104000"), 0x40100)


@given(st.binary(min_size=1, max_size=200))
def test_flow_is_what_capstone_says_one_by_one(code: bytes) -> None:
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    insns = list(decoder.disasm_lite(code, HERE))

    decoded = flow(code, HERE)

    assert decoded.starts == {at: size for at, size, *_ in insns}
    assert set(decoded.rets) == {at for at, _, name, _ in insns if "ret" in name}
    assert decoded.returns == {
        at + size
        for at, size, name, _ in insns
        if "call" in name or name in ("syscall", "sysenter", "int")
    }
    assert decoded.branches == {
        at + size: int(operand, 16)
        for at, size, name, operand in insns
        if operand.startswith("0x") and re.match("(bnd |notrack )?(j|call|loop|xbegin)", name)
    }
    assert decoded.end == (insns[-1][0] + insns[-1][1] if insns else HERE)


WHOLE = [
    bytes.fromhex(text)
    for text in ("55 e80500ff00 5d c3", "7402 31c0 ebf8", "e9fbffffff", "ff2510000000", "90")
]
NOT_WHOLE = [bytes.fromhex(text) for text in ("", "31c0 06 90", "55 48", "c3 e9ffff")]
BODIES = st.sampled_from(WHOLE + WHOLE + NOT_WHOLE) | st.binary(max_size=40)


@given(st.lists(st.tuples(st.integers(HERE, 4 * HERE), BODIES), min_size=1, max_size=20))
def test_flows_decoded_together_are_those_of_each_function(bodies: list[tuple[int, bytes]]) -> None:
    flows = Flows(bodies)

    expected = [flow(code, address) for address, code in bodies]
    branches = [
        (place, end, target)
        for place, each in enumerate(expected)
        for end, target in each.branches.items()
    ]

    assert [flows.at(place) for place in range(len(bodies))] == expected
    assert flows.ends.tolist() == [each.end for each in expected]
    functions, _, _, ends, targets = flows.branches()
    columns = (column.tolist() for column in (functions, ends, targets))
    signed = [(place, end, target - (target >> 63 << 64)) for place, end, target in branches]
    assert list(zip(*columns, strict=True)) == signed


def test_functions_that_end_in_the_middle_of_an_instruction_do_not_shift_the_next_ones() -> None:
    bodies = [(HERE, b"\x55\x48"), (HERE + 0x10, b"\x89\xe5\xc3"), (HERE + 0x20, b"\xc3")]

    flows = Flows(bodies)

    assert [list(flows.at(place).starts) for place in range(3)] == [
        [HERE], [HERE + 0x10, HERE + 0x12], [HERE + 0x20],
    ]  # fmt: skip

"""Functions whose exits are known for all of an object at once: those of each asked by itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from markerjit.elf.image import FileImage
from markerjit.spans import Code
from markerjit.spans.exits import ExitKind, Unbounded, exits_of
from markerjit.spans.openings import best_opening
from markerjit.x86.forms import ENDBR64
from tests.support.compilers import Elf

SOURCE = r"""
.macro begin name
    .p2align 4
\name: .type \name, @function
    .cfi_startproc
.endm
.macro begin_part name
    begin \name
    .cfi_def_cfa_offset 16
.endm
.macro end name
    .cfi_endproc
    .size \name, . - \name
.endm
    .text
    begin other
    mov %fs:40, %rax
    xor %edx, %edx
    ret
    end other

    begin hands_on
    test %edi, %edi
    je other
    mov $1, %eax
    jmp other
    end hands_on

    begin split
    push %rbx
    .cfi_def_cfa_offset 16
    test %edi, %edi
    je split.cold
split_inside:
    pop %rbx
    .cfi_def_cfa_offset 8
    ret
    end split
    begin_part split.cold
    mov $1, %eax
    jmp split_inside
    end split.cold

    begin named
    test %edi, %edi
    je named.cold
named_inside:
    mov $2, %eax
    ret
    end named
    begin named.cold
    mov $1, %eax
    jmp named_inside
    end named.cold

    begin again
    push %rbx
    .cfi_def_cfa_offset 16
    je again.cold
    pop %rbx
    .cfi_def_cfa_offset 8
    ret
    end again
    begin_part again.cold
    pop %rbx
    jmp again
    end again.cold

    begin shares_one
    push %rbx
    .cfi_def_cfa_offset 16
    je shared.cold
    pop %rbx
    .cfi_def_cfa_offset 8
    ret
    end shares_one
    begin shares_two
    push %rbx
    .cfi_def_cfa_offset 16
    je shared.cold
    pop %rbx
    .cfi_def_cfa_offset 8
    ret
    end shares_two
    begin_part shared.cold
    call other
    hlt
    end shared.cold

    begin entered
    push %rbx
    .cfi_def_cfa_offset 16
entered_inside:
    pop %rbx
    .cfi_def_cfa_offset 8
    ret
    end entered
    begin enters
    push %rbx
    .cfi_def_cfa_offset 16
    je enters.cold
    pop %rbx
    .cfi_def_cfa_offset 8
    ret
    end enters
    begin_part enters.cold
    mov $1, %eax
    jmp entered_inside
    end enters.cold

    begin returns_in_part
    push %rbx
    .cfi_def_cfa_offset 16
    je returns_in_part.cold
    pop %rbx
    .cfi_def_cfa_offset 8
    ret
    end returns_in_part
    begin_part returns_in_part.cold
    pop %rbx
    .cfi_def_cfa_offset 8
    ret
    end returns_in_part.cold

    begin switched
    push %rbx
    .cfi_def_cfa_offset 16
    lea table(%rip), %rdx
    movslq (%rdx, %rdi, 4), %rax
    add %rdx, %rax
    jmp *%rax
switched_0:
    pop %rbx
    .cfi_def_cfa_offset 8
    mov $1, %eax
    ret
    end switched

    begin leaps
    jmp *%rax
leaps_inside:
    mov $1, %eax
    ret
    end leaps

    begin marked
    endbr64
    push %rbx
    .cfi_def_cfa_offset 16
    mov %rdi, %rbx
    pop %rbx
    .cfi_def_cfa_offset 8
    ret
    end marked

    begin marked_again
    endbr64
marked_again_behind:
    dec %edi
    mov %edi, %eax
    add %eax, %ecx
    jne marked_again_behind
    ret
    end marked_again

    begin marked_split
    endbr64
marked_split_behind:
    push %rbx
    .cfi_def_cfa_offset 16
    test %edi, %edi
    je marked_split.cold
    pop %rbx
    .cfi_def_cfa_offset 8
    ret
    end marked_split
    begin_part marked_split.cold
    pop %rbx
    jmp marked_split_behind
    end marked_split.cold

    begin marked_twice
    endbr64
    endbr64
    mov $1, %eax
    ret
    end marked_twice

    begin marked_alone
    endbr64
    end marked_alone

    begin marked_short
    endbr64
    xor %eax, %eax
    ret
    end marked_short

    begin marked_tail
    endbr64
    test %edi, %edi
    je other
    jmp other
    end marked_tail

    begin last
    push %rbx
    .cfi_def_cfa_offset 16
    pop %rbx
    .cfi_def_cfa_offset 8
    ret
    end last

    .section .rodata
    .p2align 2
table: .long switched_0 - table
    .data
    .p2align 3
    .quad leaps_inside
"""


@pytest.fixture(scope="module")
def labels_and_codes(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, int], Code, Code]:
    """The labels of an object, and its code: asked one by one, and looked at as a whole."""
    folder: Path = tmp_path_factory.mktemp("alone")
    source, built = folder / "code.S", folder / "code.so"
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-shared", "-nostdlib", source, "-o", built], check=True)
    with FileImage(str(built)) as image:
        code, whole = Code(image), Code(image)
    whole.expect(len(whole.functions))
    return {symbol.name: symbol.address for symbol in Elf(built).symbols()}, code, whole


def test_all_functions_have_the_exits_that_each_has_by_itself(
    labels_and_codes: tuple[dict[str, int], Code, Code],
) -> None:
    labels, code, whole = labels_and_codes

    for name, at in labels.items():
        assert exits_of(whole, at) == exits_of(code, at), name


def test_each_address_has_the_exits_and_the_opening_that_it_has_by_itself(
    labels_and_codes: tuple[dict[str, int], Code, Code],
) -> None:
    labels, code, whole = labels_and_codes

    for at in range(labels["other"], labels["last"] + 16):
        assert exits_of(whole, at) == exits_of(code, at), hex(at)
        assert best_opening(whole, at) == best_opening(code, at), hex(at)


def test_functions_are_known_behind_an_endbr64(
    labels_and_codes: tuple[dict[str, int], Code, Code],
) -> None:
    labels, _, whole = labels_and_codes
    marked = {name: at + len(ENDBR64) for name, at in labels.items() if "marked" in name}
    entries = whole.straight.entries

    assert entries[marked["marked"]] == len(bytes.fromhex("53 4889fb 5b"))
    assert entries[marked["marked_again"]] == len(bytes.fromhex("ffcf 89f8 01c1"))
    assert marked["marked_split"] in entries
    assert marked["marked_twice"] not in entries
    assert labels["marked"] not in entries
    again = {name for name, at in marked.items() if at in whole.alone and whole.alone[at].again}
    assert again == {"marked_again", "marked_split"}
    assert not whole.alone[labels["marked_again"]].again
    assert not whole.alone[marked["marked"]].again
    assert marked["marked_alone"] not in whole.alone


@pytest.mark.parametrize(
    ("name", "returns", "tails", "again"),
    [
        ("other", 1, 0, False),
        ("hands_on", 0, 2, False),
        ("split", 1, 0, False),
        ("named", 1, 0, False),
        ("again", 1, 0, True),
        ("returns_in_part", 2, 0, False),
        ("switched", 1, 0, False),
        ("leaps", 1, 0, False),
    ],
)
def test_functions_with_tail_calls_and_parts_are_known(
    name: str,
    returns: int,
    tails: int,
    again: bool,
    labels_and_codes: tuple[dict[str, int], Code, Code],
) -> None:
    labels, _, whole = labels_and_codes

    known = whole.alone[labels[name]]

    assert (len(known.returns), len(known.tails), known.again) == (returns, tails, again)


@pytest.mark.parametrize("name", ["shares_one", "shares_two", "entered", "enters", "split.cold"])
def test_nothing_is_said_of_functions_that_share_code_with_others(
    name: str, labels_and_codes: tuple[dict[str, int], Code, Code]
) -> None:
    labels, _, whole = labels_and_codes

    assert labels[name] not in whole.alone


def test_reasons_and_kinds_of_exits_are_those_of_the_code(
    labels_and_codes: tuple[dict[str, int], Code, Code],
) -> None:
    labels, _, whole = labels_and_codes

    of = {name: exits_of(whole, at) for name, at in labels.items()}

    assert of["shares_one"].unbounded is Unbounded.SHARED
    assert of["returns_in_part"].unbounded is None
    assert [each.kind for each in of["hands_on"].exits] == [ExitKind.TAIL] * 2
    assert of["again"].again

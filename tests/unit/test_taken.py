"""Bytes that sites have: no two change or copy the same ones."""

from __future__ import annotations

import pytest

from markerjit.model import (
    CType,
    General,
    MappedObject,
    Place,
    Recipe,
    RemoteAddress,
    Signature,
    TypeClass,
    UsdtSite,
)
from markerjit.session.opened import with_stub
from markerjit.session.taken import Taken, spans_of
from markerjit.x86.forms import exit_form

AT = RemoteAddress(0x401000)
STUB = RemoteAddress(0x500000)
RAX = General(("al", "ax", "eax", "rax"))


def site_of(head: bytes) -> UsdtSite:
    mapped = MappedObject("/made", 0, None, False)
    signature = Signature("func:made:return", "ret %d", (CType(TypeClass.SIGNED, 4),))
    place = Place(mapped, AT, "made+0x401000")
    return UsdtSite(signature, place, AT, exit_form(head), Recipe((RAX,)), AT)


@pytest.mark.parametrize(
    ("head", "covers", "size"),
    [(b"\xc3\x90\x90\x90\x90", 1, 5), (b"\x48\x83\xc4\x08\xc3", 5, 5), (b"\xc3", 1, 1),
     (b"\x31\xc0", 3, 3)],
    ids=["into padding", "whole instructions", "breakpoint", "short jump"],
)  # fmt: skip
def test_a_site_has_what_its_jump_changes_and_what_its_stub_has_copied(
    head: bytes, covers: int, size: int
) -> None:
    made = with_stub(site_of(head), head, STUB, STUB, covers)

    (span,) = spans_of(made)

    assert span == range(AT, AT + size)
    taken = Taken([span])
    assert not taken.is_free(range(AT + size - 1, AT + size + 5))
    assert taken.is_free(range(AT + size, AT + size + 5))


def test_a_site_that_is_on_has_its_bytes_until_it_is_off_and_then_no_hole_is_made_of_them() -> None:
    taken = Taken([], on=[range(AT, AT + 7)])
    taken.add(range(AT + 16, AT + 21))

    assert not taken.is_free(range(AT + 4, AT + 9))
    assert taken.once_off.is_free(range(AT + 4, AT + 9))
    assert not taken.once_off.is_free(range(AT + 12, AT + 17))
    assert not taken.once_off.is_free_of_all(range(AT + 4, AT + 9))


def test_no_hole_is_made_of_instructions_that_a_closed_site_has_copied() -> None:
    taken = Taken([], closed=[range(AT, AT + 7)])

    assert taken.is_free(range(AT + 4, AT + 9))
    assert not taken.is_free_of_all(range(AT + 4, AT + 16))
    assert taken.is_free_of_all(range(AT + 7, AT + 17))

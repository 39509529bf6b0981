"""Selections: their names, their types, and what is refused."""

from __future__ import annotations

import pytest

from markerjit.errors import BadQuestion
from markerjit.model import CType, Signature, TypeClass
from markerjit.probes.asking import scope_of_marker
from markerjit.probes.selecting import columns_of
from markerjit.questions.selection import has_all_fields, parts_of, with_stack

pytestmark = pytest.mark.pythons

INT = CType(TypeClass.SIGNED, 4)
CHARS = CType(TypeClass.CHARS, 8)
STORE = Signature(
    "store", "key %s part %.*s size %u us %f raw %*ph",
    (CHARS, INT, CHARS, CType(TypeClass.UNSIGNED, 4), CType(TypeClass.FLOAT, 8), INT, CHARS),
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("key", ["key"]), ("ms=us/1e3, key", ["ms", "key"]), (" key[:4] , size ", ["key", "size"]),
        ("a = size == 3, b=(size)", ["a", "b"]), ("both=size in (1, 2), us", ["both", "us"]),
        ('x=key == "a,b", size', ["x", "size"]), ('field("key")', ["key"]),
    ],
)  # fmt: skip
def test_expressions_have_names(text: str, names: list[str]) -> None:
    assert [part.name for part in parts_of(text)] == names


@pytest.mark.parametrize(
    ("text", "words", "under"),
    [
        ("size / 2", "this has no name", "size / 2"),
        ("key, key", "two expressions are called key", " key"),
        ("*, *", "* can be given only once", " *"),
        ("*, key", "store has a field key, which * has", "key"),
        ("key, stack(0)", "this has no name", "stack(0)"),
        ("s=stack(257)", "a number of frames, from 1 to 256", "257"),
        ("", "an expression is empty", ""),
        ("size,", "an expression is empty", ""),
        ("ms=keyy", "there is no name keyy; did you mean key?", "keyy"),
        ("size, x=us &", "this is not an expression", ""),
        ("x=us & 1", "this is a float", "us"),
        ("name", "a text that is always the same is not recorded", "name"),
        ("key[2:]", "a selection takes the beginning of a text", "key[2:]"),
        ("size, \ud800", "a character that cannot be printed", "\ud800"),
        ("x=(1", "this is not an expression", None),
        (", ".join(f"x{number}=size" for number in range(13)), "more than 12 expressions", None),
    ],
)
def test_wrong_selections_are_refused_with_their_place(
    text: str, words: str, under: str | None
) -> None:
    with pytest.raises(BadQuestion) as raised:
        columns_of(text, STORE, scope_of_marker(STORE))

    assert words in str(raised.value)
    if under:
        assert text[raised.value.start : raised.value.end] == under


def test_the_signature_is_that_of_the_selection() -> None:
    made = columns_of(
        "ms=us/1e3, key[:4], part, raw[:8], big=size > 100, s=str(size), half=size / 2",
        STORE, scope_of_marker(STORE),
    )  # fmt: skip

    assert made.signature.name == "store"
    assert made.signature.format == ("ms=%g key=%.4s part=%.*s raw=%*ph big=%d s=%s half=%u")
    assert [str(arg) for arg in made.signature.args] == [
        str(arg)
        for arg in (
            CType(TypeClass.FLOAT, 8), CHARS, INT, CHARS, INT, CHARS, CType(TypeClass.BOOL, 1),
            CHARS, CType(TypeClass.UNSIGNED, 4),
        )
    ]  # fmt: skip
    assert len(made.words) == len(made.signature.args)


def test_a_star_is_all_fields_as_their_format_has_them() -> None:
    marker = Signature("hit", "n %#x at %p key %.*s f %.2f c %c", (
        CType(TypeClass.SIGNED, 2), CType(TypeClass.POINTER, 8), INT, CHARS,
        CType(TypeClass.FLOAT, 8), INT,
    ))  # fmt: skip

    made = columns_of("*, deep=stack(3)", marker, scope_of_marker(marker)).signature

    assert made.format == "n=%#x at=%p key=%.*s f=%.2f c=%c deep=%pB"
    assert made.args == (*marker.args, CType(TypeClass.UNSIGNED, 8))


def test_more_values_than_a_recorder_takes_are_refused() -> None:
    marker = Signature("insn:f", " ".join(f"a{n}=%d" for n in range(20)), (INT,) * 20)

    with pytest.raises(BadQuestion, match="21 values, and there can be 20"):
        columns_of("*, stack", marker, scope_of_marker(marker))


@pytest.mark.parametrize(
    ("select", "fields", "text"),
    [
        (None, None, "*, stack=stack(9)"),
        (None, ["a", "b"], "a, b, stack=stack(9)"),
        (None, [], "stack=stack(9)"),
        ("x=a*2", None, "x=a*2, stack=stack(9)"),
    ],
)
def test_a_stack_comes_behind_what_is_recorded(
    select: str | None, fields: list[str] | None, text: str
) -> None:
    assert with_stack(select, fields, 9) == text
    assert has_all_fields(text) == (select is None and fields is None)
    assert not has_all_fields("x=a * b, y=f(*, 2)")

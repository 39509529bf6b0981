"""Names of callers in a question become the bounds of their code."""

from __future__ import annotations

import pytest

from markerjit.errors import BadQuestion
from markerjit.session.callers import MOST, with_bounds
from markerjit.sites import parse_name
from markerjit.sites.selection import has_caller, without_caller

BOUNDS = {"main": (range(0x10, 0x20),), "kv_*": (range(0x30, 0x40), range(0x50, 0x60))}


@pytest.mark.parametrize(
    ("where", "written"),
    [
        ('caller == "main"', "(0x10 < caller <= 0x20)"),
        ('"main" == caller', "(0x10 < caller <= 0x20)"),
        ("caller != 'main'", "(not (0x10 < caller <= 0x20))"),
        ('n > 1 and caller == "kv_*"',
         "n > 1 and (0x30 < caller <= 0x40 or 0x50 < caller <= 0x60)"),
        ('caller in ("main", "kv_*")',
         "(0x10 < caller <= 0x20 or 0x30 < caller <= 0x40 or 0x50 < caller <= 0x60)"),
        ('caller not in ("main",) or text == "ä\\"b" and caller == "main"',
         '(not (0x10 < caller <= 0x20)) or text == "ä\\"b" and (0x10 < caller <= 0x20)'),
        ("caller == 5", "caller == 5"),
        ('name == "main"', 'name == "main"'),
        ('caller < "main"', 'caller < "main"'),
        ('caller == "main" and', 'caller == "main" and'),
    ],
)  # fmt: skip
def test_a_comparison_with_a_name_is_one_with_bounds(where: str, written: str) -> None:
    assert with_bounds(where, BOUNDS.__getitem__) == written


def test_a_name_of_too_many_functions_is_refused() -> None:
    many = tuple(range(start, start + 1) for start in range(MOST + 1))

    with pytest.raises(BadQuestion, match=f"names {MOST + 1} pieces of code"):
        with_bounds('caller == "*"', lambda glob: many)


@pytest.mark.parametrize(
    ("text", "is_caller"),
    [("func:malloc@main", True), ("func:malloc@ns::f", True), ("func:malloc@libc*", False),
     ("func:malloc@libc.so", False), ("func:malloc@/bin/x", False), ("func:libx:malloc", False),
     ("func:malloc", False), ("func:malloc@main:return", False), ("kv_*@main", False)],
)  # fmt: skip
def test_what_stands_behind_the_sign_is_a_file_or_else_a_function(
    text: str, is_caller: bool
) -> None:
    name = parse_name(text)

    assert has_caller(name, ["/lib/libc.so.6"]) is is_caller
    if is_caller:
        assert without_caller(name) == parse_name("func:malloc")

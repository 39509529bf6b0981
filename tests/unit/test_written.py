"""Functions of C++ are meant by the names that are shown of them, and by the parts of these."""

from __future__ import annotations

import pytest

from markerjit.elf.demangle import demangled, qualified_name
from markerjit.facts.calls import symbol_named
from markerjit.sites import NameKind, parse_name
from markerjit.sites.names import nearest
from markerjit.sites.selection import is_named

WRITTEN = {
    "_ZN2ns3getB5cxx11El": ("ns::get[abi:cxx11](long)", "ns::get"),
    "_ZN12_GLOBAL__N_14hideEi": ("(anonymous namespace)::hide(int)", "(anonymous namespace)::hide"),
    "_ZN2ns5twiceIiEET_S1_": ("int ns::twice<int>(int)", "ns::twice<int>"),
    "_ZNK2ns1VltERKS0_": ("ns::V::operator<(ns::V const&) const", "ns::V::operator<"),
    "_ZN2nslsERSoNS_1VE": ("ns::operator<<(std::ostream&, ns::V)", "ns::operator<<"),
    "_ZN2nsltIiEEbT_S1_": ("bool ns::operator< <int>(int, int)", "ns::operator< <int>"),
    "_ZNK2ns1VclEi": ("ns::V::operator()(int) const", "ns::V::operator()"),
    "_ZN2ns1VptEv": ("ns::V::operator->()", "ns::V::operator->"),
    "_ZN2ns1VixEm": ("ns::V::operator[](unsigned long)", "ns::V::operator[]"),
    "_ZN2ns1VcvmEv": ("ns::V::operator unsigned long()", "ns::V::operator unsigned long"),
    "_Znam": ("operator new[](unsigned long)", "operator new[]"),
    "_ZN2ns3sumERA3_i": ("ns::sum(int (&) [3])", "ns::sum"),
    "_ZZN2ns4eachEiENKUliiE_clEii": (
        "ns::each(int)::{lambda(int, int)#1}::operator()(int, int) const",
        "ns::each(int)::{lambda(int, int)#1}::operator()",
    ),
    "_ZThn16_N2ns1V1fEi": ("non-virtual thunk to ns::V::f(int)", "non-virtual thunk to ns::V::f"),
}
"""What is shown of a symbol, and the name in that."""


@pytest.fixture(autouse=True)
def _demangler() -> None:
    if demangled("_Z6handlev") == "_Z6handlev":
        pytest.skip("needs a C++ library (Debian package libstdc++6)")


@pytest.mark.parametrize("symbol", WRITTEN)
def test_function_is_meant_by_what_is_shown_of_it(symbol: str) -> None:
    written, bare = WRITTEN[symbol]
    assert demangled(symbol) == written

    for text in (written, bare, written.replace("[abi:cxx11]", ""), symbol):
        name = parse_name(f"func:{text}")
        assert (name.kind, name.name, name.object) == (NameKind.FUNCTION, text, "")
        assert is_named(name.name, symbol)
        assert parse_name(f"func:a.out:{text}:return").object == "a.out"
        parts = parse_name(f"func:{text},func:main,@a.out").parts
        assert [(part.name, part.object) for part in parts] == [(text, "a.out"), ("main", "a.out")]
        (excluded,) = parse_name(f"func:*,!func:{text}").without
        assert excluded.name == text
    assert qualified_name(symbol) == bare


@pytest.mark.parametrize("symbol", WRITTEN)
def test_function_of_a_call_graph_is_meant_by_what_is_shown_of_it(symbol: str) -> None:
    for text in (*WRITTEN[symbol], symbol):
        assert symbol_named([*WRITTEN], text) == symbol


def test_nearest_names_are_shown_as_they_are_written() -> None:
    assert nearest("ns::gt", {*WRITTEN, "main"})[0] == "ns::get"
    assert nearest("ns::V::g", {*WRITTEN}, {"_ZN2ns1V1gEi", "malloc"})[0] == "ns::V::g"


@pytest.mark.parametrize("caller", [bare for _, bare in WRITTEN.values()])
def test_call_is_between_functions_as_they_are_shown(caller: str) -> None:
    name = parse_name(f"call:{caller}->ns::V::operator->")

    assert (name.kind, name.caller, name.name) == (NameKind.CALL, caller, "ns::V::operator->")


@pytest.mark.parametrize(
    ("glob", "symbol"),
    [
        ("ns::each", "_ZZN2ns4eachEiENKUliiE_clEii"),  # what is local to it has a name of its own
        ("ns::V::f", "_ZThn16_N2ns1V1fEi"),  # what leads to it, too
        ("ns::twice", "_ZN2ns5twiceIiEET_S1_"),
        ("ns::V::operator", "_ZNK2ns1VclEi"),
        ("", "_ZN12_GLOBAL__N_14hideEi"),
    ],
)
def test_part_of_a_name_does_not_mean_another_function(glob: str, symbol: str) -> None:
    assert not is_named(glob, symbol)


def test_operator_that_is_a_comma_is_meant_with_its_parameters() -> None:
    parts = parse_name("func:ns::operator,(int, int),func:main").parts

    assert [part.name for part in parts] == ["ns::operator,(int, int)", "main"]
    assert is_named(parts[0].name, "_ZN2nscmEii")


def test_braces_with_commas_are_short_for_names_and_those_of_a_lambda_are_not() -> None:
    name = parse_name("func:ns::each(int)::{lambda(int, int)#1}::{a,operator()}(int, int) const")

    assert [part.name for part in name.parts] == [
        "ns::each(int)::{lambda(int, int)#1}::a(int, int) const",
        "ns::each(int)::{lambda(int, int)#1}::operator()(int, int) const",
    ]


@pytest.mark.parametrize(
    ("symbol", "written"),
    [
        ("_ZN1w6shapes2Sq4area17hd6d06c9c7e0861f1E", "w::shapes::Sq::area"),
        (
            "_ZN46_$LT$w..shapes..Sq$u20$as$u20$w..shapes..T$GT$2go17h8293790d549b59a6E",
            "<w::shapes::Sq as w::shapes::T>::go",
        ),
        (
            "_ZN3std2rt10lang_start28_$u7b$$u7b$closure$u7d$$u7d$17ha16d8e5c70b3654eE",
            "std::rt::lang_start::{{closure}}",
        ),
        ("_ZN1w4area17hd6d06c9c7e0861f1E.llvm.5540057329546874339", "w::area"),
        ("_ZN1w4area17hd6d06c9c7e0861f1E.llvm.55.cold", "w::area.cold"),
        ("_ZN4core3ops8function6FnOnce9call_once17hd6d06c9c7e0861fgE", None),  # no hash
        ("_ZN1a6_$u1b$17hd6d06c9c7e0861f1E", "a::$u1b$"),  # nothing that a terminal obeys
    ],
)
def test_functions_of_rust_are_written_without_the_hash_of_the_compiler(
    symbol: str, written: str | None
) -> None:
    if written is None:
        assert demangled(symbol).endswith("::hd6d06c9c7e0861fg")
        return
    assert demangled(symbol) == written
    assert qualified_name(symbol) == symbol  # whose prototype is not one of C
    assert is_named(written, symbol)
    assert is_named("*" + written[-4:], symbol)
    assert nearest(written[:-1], {symbol}) == (written,)

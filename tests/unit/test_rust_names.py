"""Functions of Rust are shown and meant as they are written, also in the newer mangling."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import markerjit
from markerjit.elf.demangle import demangled, qualified_name, spellings
from markerjit.elf.rust_v0 import may_have, written, written_briefly
from markerjit.errors import UnknownMarker
from markerjit.facts.calls import symbol_named
from markerjit.facts.words import name_words
from markerjit.sites import NameKind, parse_name
from markerjit.sites.names import nearest
from markerjit.sites.selection import is_named
from tests.support.compilers import Compiler, need
from tests.support.rust_symbols import base_62, symbols

WRITTEN = {
    "_RNvCs15kBYyAo9fc_7mycrate7example": ("mycrate::example", None),
    "_RNvMs_Cs4Cv8Wi1oAIB_7mycrateNtB4_7Example3foo": (
        "<mycrate::Example>::foo", "mycrate::Example::foo",
    ),
    "_RNvMsr_NtCs3ssYzQotkvD_3std4pathNtB5_7PathBuf3newCs15kBYyAo9fc_7mycrate": (
        "<std::path::PathBuf>::new", "std::path::PathBuf::new",
    ),
    "_RNvXCs15kBYyAo9fc_7mycrateNtB2_7ExampleNtB2_5Trait3foo": (
        "<mycrate::Example as mycrate::Trait>::foo", None,
    ),
    "_RNvYNtCs15kBYyAo9fc_7mycrate7ExampleNtB4_5Trait7exampleB4_": (
        "<mycrate::Example as mycrate::Trait>::example", None,
    ),
    "_RNvMNtCsgaVbcKgV9T0_2kv5storeINtB2_5StoreyE3putB4_": (
        "<kv::store::Store<u64>>::put", "kv::store::Store::put",
    ),
    "_RNvMCs1_2kvSh4tail": ("<[u8]>::tail", None),
    "_RNvMCs1_2kve4tail": ("<str>::tail", "str::tail"),
    "_RNCNvCsgStHSCytQ6I_7mycrate4mains_0B3_": ("mycrate::main::{closure#1}", None),
    "_RNCINvNtCsjrHSEGnQ3l9_3std2rt10lang_startuE0CsgaVbcKgV9T0_2kv": (
        "std::rt::lang_start::<()>::{closure#0}", "std::rt::lang_start::{closure#0}",
    ),
    "_RNSNvYNCINvNtCsjrHSEGnQ3l9_3std2rt10lang_startuE0INtNtNtCsgEmfK2I1SDS_4core3ops8function6"
    "FnOnceuE9call_once6vtableCsgaVbcKgV9T0_2kv": (
        "<std::rt::lang_start<()>::{closure#0} as core::ops::function::FnOnce<()>>::call_once"
        "::{shim:vtable#0}",
        "<std::rt::lang_start::{closure#0} as core::ops::function::FnOnce>::call_once"
        "::{shim:vtable#0}",
    ),
    "_RINvCsgStHSCytQ6I_7mycrate7examplelKj1_EB2_": (
        "mycrate::example::<i32, 1>", "mycrate::example",
    ),
    "_RINvCs7qp2U7fqm6G_7mycrate7exampleFG0_RL1_hRL0_tEuEB2_": (
        "mycrate::example::<for<'a, 'b> fn(&'a u8, &'b u16)>", "mycrate::example",
    ),
    "_RINvC1a1bFUKCEuShKj8_E": (
        'a::b::<unsafe extern "C" fn(), [u8], 8>', "a::b",
    ),
    "_RINvC1a1bFK8C_unwindRNtB2_1cQL_eEzE": (
        "a::b::<extern \"C-unwind\" fn(&a::c, &mut str) -> !>", "a::b",
    ),
    "_RINbNbCskIICzLVDPPb_5alloc5alloc8box_freeDINbNiB4_5boxed5FnBoxuEp6OutputuEL_E"
    "Cs1iopQbuBiw2_3std": (
        "alloc::alloc::box_free::<dyn alloc::boxed::FnBox<(), Output = ()>>",
        "alloc::alloc::box_free",
    ),
    "_RINvC1a1bDG_C1cp1dRL0_hC4SendEL_E": ("a::b::<dyn for<'a> c<d = &'a u8> + Send>", "a::b"),
    "_RNvNtNtCsgOH4LzxkuMq_7mycrateu8gdel_5qa6escher4bach": ("mycrate::gödel::escher::bach", None),
    "_RNvNvMCsd9PVOYlP1UU_7mycrateINtB4_7ExamplepKpE3foo14EXAMPLE_STATIC": (
        "<mycrate::Example<_, _>>::foo::EXAMPLE_STATIC", "mycrate::Example::foo::EXAMPLE_STATIC",
    ),
    "_RNvC6_123foo3bar": ("123foo::bar", None),
    "_RNvC1a1b.llvm.5540057329546874339": ("a::b", None),
    "_RNvC1a1b.cold": ("a::b.cold", None),
}  # fmt: skip
"""What is shown of a symbol, and how it is written without generic arguments; None for the same."""

CONSTANTS = {
    "h7b_": "123", "j_": "0", "anb_": "-11", "s98_": "152",
    "y123456789abcdef0_": "1311768467463790320",
    "o123456789abcdef01_": "0x123456789abcdef01",
    "b0_": "false", "b1_": "true", "p": "_",
    "c76_": "'v'", "ca_": r"'\n'", "c27_": r"'\''", "c22_": "'\"'", "c2202_": "'∂'",
    "c202e_": r"'\u{202e}'",
    "Re_": '""', "Re68c3a4220a_": r'"hä\"\n"', "e6869_": '{*"hi"}',
    "Rh1_": "{&1}", "QAh1_h2_E": "{&mut [1, 2]}",
    "Th1_E": "{(1,)}", "Th1_b1_E": "{(1, true)}",
    "VNvNtC1a1O4NoneU": "{a::O::None}", "VINvNtC1a1O4SomehETh7_E": "{a::O::Some::<u8>(7)}",
    "VNtC1a1SS1xh1_s_1yRh2_E": "{a::S { x: 1, y: &2 }}",
}  # fmt: skip

TYPES = {
    "": "", "PeOhSlAtj8_": "*const str, *mut u8, [i32], [u16; 8]",
    "TEThEThuE": "(), (u8,), (u8, ())", "C4f128": "f128",
    "WmRm1_m9_": "u32 is 1..=9", "WmORm0_m0_Rm2_m2_E": "u32 is 0..=0 | 2..=2",
    "WPhN": "*const u8 is !null",
    "FTwThEEEu": "fn((#[splat] (u8,),))",
}  # fmt: skip

NONSENSE = [
    "_R", "_RR", "_Read", "_RNv", "_RNvC1a", "_RNvC1a9b", "_RN1C1a1b", "_R1NvC1a1b", "_RNvC1a1b1",
    "_RC01", "_RB_", "_RMC0B1_", "_RIC1aB3_E", "_RIC1aE_", "_RIC1aLE", "_RIC1aL0_E", "_RIC1ah",
    "_RIC1aKb2_E", "_RIC1aKcd800_E", "_RIC1aKc110000_E", "_RIC1aKRe6_E", "_RIC1aKReff_E",
    "_RIC1aKVC1aXE", "_RIC1aDC1bEE", "_RIC1aFE", "_RIC1aWhXE", "_RIC1aKfE", "_RNvC1a2ä1", "R", "",
    "_RNvC1a1b\0", "_RNvC1a2b\x1b", "_RINvC1a1b" + "R" * 5000 + "hE", "_RC99999999999999999999999a",
    "_RIC1aFGzzzzzzzzzz_EuE", "_RCs" + "z" * 99 + "_1a", "_RNvC1a1bC1c.\n", "_RNv" * 9999,
]  # fmt: skip


def explosion(levels: int) -> str:
    """Pairs of pairs of pairs: so few letters stand for 2 to the levels types."""
    return "_RMC0" + "T" * levels + "p" + "".join(
        f"B{base_62(3 + levels - level)}E" for level in range(levels)
    )  # fmt: skip


@pytest.mark.parametrize("symbol", WRITTEN)
def test_function_is_meant_by_what_is_shown_of_it(symbol: str) -> None:
    text, brief = WRITTEN[symbol]
    assert demangled(symbol) == text
    assert written_briefly(symbol) == (brief or text)
    assert name_words(f"func:{symbol}:return") == f"func:{text}:return"

    for spelling in (text, brief or text, symbol):
        name = parse_name(f"func:{spelling}")
        assert (name.kind, name.name, name.object) == (NameKind.FUNCTION, spelling, "")
        assert is_named(name.name, symbol)
        assert parse_name(f"func:a.out:{spelling}:return").object == "a.out"
        parts = parse_name(f"func:{spelling},func:main,@a.out").parts
        assert [(part.name, part.object) for part in parts] == [
            (spelling, "a.out"),
            ("main", "a.out"),
        ]
        call = parse_name(f"call:{spelling}->{spelling}")
        assert (call.kind, call.caller, call.name) == (NameKind.CALL, spelling, spelling)
        assert symbol_named(["main", symbol], spelling) == symbol
    assert qualified_name(symbol) == symbol  # whose prototype is not one of C


@pytest.mark.parametrize(
    ("glob", "symbol"),
    [
        ("kv::store::Store::*", "_RNvMNtCsgaVbcKgV9T0_2kv5storeINtB2_5StoreyE3putB4_"),
        ("*::put", "_RNvMNtCsgaVbcKgV9T0_2kv5storeINtB2_5StoreyE3putB4_"),
        ("*Store<u64>*", "_RNvMNtCsgaVbcKgV9T0_2kv5storeINtB2_5StoreyE3putB4_"),
        ("*gödel*", "_RNvNtNtCsgOH4LzxkuMq_7mycrateu8gdel_5qa6escher4bach"),
        ("my*::g?del::*", "_RNvNtNtCsgOH4LzxkuMq_7mycrateu8gdel_5qa6escher4bach"),
        ("mycrate::main::{{closure}}", "_RNCNvCsgStHSCytQ6I_7mycrate4mains_0B3_"),
        ("*closure*", "_RNCNvCsgStHSCytQ6I_7mycrate4mains_0B3_"),
        ("*[[]u8]*", "_RNvMCs1_2kvSh4tail"),
        ("*fn*u16*", "_RINvCs7qp2U7fqm6G_7mycrate7exampleFG0_RL1_hRL0_tEuEB2_"),
        ("*::<*>", "_RINvCsgStHSCytQ6I_7mycrate7examplelKj1_EB2_"),
    ],
)
def test_globs_are_of_names_as_they_are_written(glob: str, symbol: str) -> None:
    assert is_named(glob, symbol)


@pytest.mark.parametrize("glob", ["mycrate::main", "main*", "mycrate::*::{closure#0}", "Store::*"])
def test_part_of_a_name_does_not_mean_another_function(glob: str) -> None:
    assert not is_named(glob, "_RNCNvCsgStHSCytQ6I_7mycrate4mains_0B3_")


def test_what_an_older_compiler_named_so_has_the_same_name() -> None:
    older = "_ZN3std2rt10lang_start28_$u7b$$u7b$closure$u7d$$u7d$17ha16d8e5c70b3654eE"
    newer = "_RNCINvNtCsjrHSEGnQ3l9_3std2rt10lang_startuE0CsgaVbcKgV9T0_2kv"

    assert set(spellings(older)) & set(spellings(newer)) == {"std::rt::lang_start::{{closure}}"}


@pytest.mark.parametrize("constant", CONSTANTS)
def test_constants_are_written_as_in_rust(constant: str) -> None:
    assert written(f"_RINvC1a1bK{constant}E") == f"a::b::<{CONSTANTS[constant]}>"
    assert written(f"_RINvC1a1bAhj1_K{constant}E") == f"a::b::<[u8; 1], {CONSTANTS[constant]}>"


@pytest.mark.parametrize("types", TYPES)
def test_types_are_written_as_in_rust(types: str) -> None:
    assert written(f"_RINvC1a1b{types}E") == f"a::b::<{TYPES[types]}>"
    assert written_briefly(f"_RINvC1a1b{types}E") == "a::b"


@pytest.mark.parametrize("symbol", NONSENSE)
def test_what_is_no_name_of_rust_stays_as_it_is(symbol: str) -> None:
    assert demangled(symbol) == symbol
    assert not is_named("no such name", symbol)


@pytest.mark.parametrize("label", ["u3_aa", "u4_b9_", "u9kva99999a", "u3ua6", "u03"])
def test_identifier_that_is_encoded_in_another_way_stays_so(label: str) -> None:
    text = written(f"_RNvC1a{label}")

    assert text is None or text == "a::punycode{" + text[12:]
    assert text is None or text.isprintable()


def test_few_letters_that_stand_for_very_many_types_are_read_no_further() -> None:
    assert len(written(explosion(6)) or "") == 318

    for levels in (20, 60, 140):
        assert written(explosion(levels)) is None
        assert written_briefly(explosion(levels)) is None


@given(symbols())
def test_whatever_the_grammar_makes_is_written(symbol: str) -> None:
    for text in (written(symbol), written_briefly(symbol)):
        assert text is not None
        assert text.isprintable()
        assert is_named(text, symbol)
        for word in re.findall(r"\w+", text):
            assert may_have(symbol, word)


@given(symbols(), st.data())
def test_a_symbol_that_is_damaged_is_written_or_stays_as_it_is(
    symbol: str, data: st.DataObject
) -> None:
    at = data.draw(st.integers(2, len(symbol)))
    middle = data.draw(st.text("0129_BCDEFGIKLMNOPRSTUVWXYaehjlnpsuw\0ä", max_size=4))
    damaged = symbol[:at] + middle + symbol[at + data.draw(st.integers(0, 4)) :]

    text = demangled(damaged)

    assert text == damaged or text.isprintable()
    assert len(text) < 1 << 18


@given(st.text())
def test_any_text_behind_the_prefix_is_written_or_stays_as_it_is(text: str) -> None:
    assert demangled(f"_R{text}")


def test_nearest_names_are_those_to_type() -> None:
    assert nearest("kv::Store::put", {*WRITTEN, "main"})[0] == "kv::store::Store::put"


def test_nearest_of_very_many_is_one_with_a_word_of_the_text() -> None:
    many = {f"_RNvC1a{len(name)}{name}" for name in (f"filler_{n}" for n in range(5000))}

    assert nearest("kv::Stor::put", {*many, *WRITTEN}) == ("kv::store::Store::put",)


def test_functions_of_a_file_are_found_as_they_are_written(tmp_path: Path) -> None:
    gcc = Compiler("gcc")
    need(gcc)
    source = tmp_path / "source.c"
    put = "_RNvMNtCsgaVbcKgV9T0_2kv5storeINtB2_5Store{}E3putB4_"
    source.write_text(
        f'int whole(int n) __asm__("{put.format("y")}"); int whole(int n) {{ return n; }}\n'
        f'int text(int n) __asm__("{put.format("Re")}"); int text(int n) {{ return n + 1; }}\n'
        "int main(void) { return whole(1) + text(2); }\n"
    )
    program = gcc.build(tmp_path / "program", "-O0", source)

    instances = markerjit.list_file_functions(str(program), "func:kv::store::Store::put")
    of_text = markerjit.list_file_functions(str(program), "func:<kv::store::Store<&str>>::put")

    assert {each.text for each in instances.functions} == {
        "<kv::store::Store<u64>>::put",
        "<kv::store::Store<&str>>::put",
    }
    assert [each.name for each in of_text.functions] == [f"func:{put.format('Re')}"]
    with pytest.raises(UnknownMarker, match="did you mean func:kv::store::Store::put"):
        markerjit.list_file_functions(str(program), "func:kv::Store::putt")

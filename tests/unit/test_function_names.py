"""Functions are found by the names of their symbols: globs, objects, C++, aliases, resolvers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import markerjit
from markerjit.elf.demangle import demangled, qualified_name
from markerjit.errors import BadFile, UnknownMarker, Unsupported
from markerjit.memory import read_maps
from markerjit.model import TypeClass
from markerjit.sites import parse_name
from markerjit.sites.functions import (
    FunctionSites,
    canonical,
    functions_of_file,
    functions_of_process,
)
from tests.support.compilers import CXX_COMPILERS, Compiler, need

SOURCE = r"""
#include <string>
namespace made {
struct Value { int base; __attribute__((noinline)) int as_int(int n) const { return base + n; } };
__attribute__((noinline)) int twice(int n) { return 2 * n; }
__attribute__((noinline)) int twice(long n) { return 2 * (int)n; }
}
int (made::Value::*taken)(int) const = &made::Value::as_int; // so that nothing is cloned
extern "C" {
__attribute__((noinline)) int __plain(int n) { return n - 1; }
int plain(int n) __attribute__((alias("__plain")));
int plain_too(int n) __attribute__((alias("__plain")));
static int chosen_one(int n) { return n; }
int (*choose(void))(int) { return chosen_one; }
int chosen(int n) __attribute__((ifunc("choose")));
}
__attribute__((noinline)) void loud(int n) {
    if (__builtin_expect(n == 77, 0)) { std::string text(n, 'x'); throw text; }
}
int main(int argc, char **) {
    loud(argc);
    return made::Value{argc}.as_int(argc) + made::twice(argc) + made::twice(2L) + plain(argc)
        + chosen(argc);
}
"""


@pytest.fixture(scope="module", params=CXX_COMPILERS, ids=lambda compiler: compiler.name)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler: Compiler = request.param
    need(compiler)
    folder = tmp_path_factory.mktemp("names")
    source = folder / "source.cc"
    source.write_text(SOURCE)
    return compiler.build_once(folder / "program", "-O2", source)


def sites_of(path: Path, name: str) -> FunctionSites:
    return functions_of_file(str(path), parse_name(f"func:{name}"))


def symbols(path: Path, name: str) -> set[str]:
    return {site.signature.name.removeprefix("func:") for site in sites_of(path, name).sites}


def addresses(path: Path) -> dict[str, int]:
    """By nm, which is binutils' own reading."""
    listed = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    lines = (line.split() for line in listed.splitlines())
    return {words[2]: int(words[0], 16) for words in lines if len(words) == 3}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("main", {"main"}),
        ("_ZN4made5twiceEi", {"_ZN4made5twiceEi"}),
        ("made::twice", {"_ZN4made5twiceEi", "_ZN4made5twiceEl"}),
        ("made::twice(long)", {"_ZN4made5twiceEl"}),
        ("made::Value::*", {"_ZNK4made5Value6as_intEi"}),
        ("made::*", {"_ZN4made5twiceEi", "_ZN4made5twiceEl", "_ZNK4made5Value6as_intEi"}),
        ("__plain", {"plain"}),
        ("plain_t?o", {"plain"}),
        ("loud*", {"_Z4loudi"}),
        ("prog*:main", {"main"}),
        ("main@program", {"main"}),
    ],
)
def test_names_are_globs_over_symbols_and_over_what_was_written(
    program: Path, name: str, expected: set[str]
) -> None:
    assert symbols(program, name) == expected


def test_sites_are_at_the_addresses_of_the_symbols_behind_an_endbr64(program: Path) -> None:
    known = addresses(program)

    for site in sites_of(program, "*").sites:
        symbol = site.signature.name.removeprefix("func:")
        assert site.place.offset - known[symbol] in (0, 4)
        assert site.form.head
        assert [ctype.type_class for ctype in site.signature.args] == [TypeClass.UNSIGNED] * 6
    assert not {text for text in symbols(program, "*") if text.endswith(".cold")}


def test_what_only_chooses_a_function_is_refused_alone_and_named_beside_others(
    program: Path,
) -> None:
    with pytest.raises(Unsupported, match="IFUNC"):
        sites_of(program, "chosen")

    assert sites_of(program, "chosen*").resolvers == ("chosen",)


@pytest.mark.parametrize("name", ["mian", "made::twise", "nothing.so:main"])
def test_unknown_names_are_refused_with_the_nearest(program: Path, name: str) -> None:
    with pytest.raises(UnknownMarker, match="no function matches") as caught:
        sites_of(program, name)

    if name == "mian":
        assert "func:main" in str(caught.value)


@pytest.mark.parametrize(
    ("file", "advice"),
    [
        ("{program}x", r"did you mean func:{program}:twice\?"),
        ("nothing-like", r"; no file here is called nothing-like; the program's is {program}"),
    ],
)
def test_a_file_that_there_is_not_is_told_with_those_there_are(
    program: Path, file: str, advice: str
) -> None:
    name = f"{file.format(program=program.name)}:twice"

    with pytest.raises(UnknownMarker, match=advice.format(program=program.name)):
        sites_of(program, name)


def test_the_file_that_is_told_is_none_of_ours() -> None:
    code = next(mapping for mapping in read_maps("self") if mapping.executable)
    maps = [code._replace(path="/memfd:markerjit (deleted)"), code]

    with pytest.raises(UnknownMarker, match=f"the program's is {Path(code.path).name}$"):
        functions_of_process(os.getpid(), bytes, maps, parse_name("func:nowhere:main"))


def test_a_file_is_known_by_its_links(program: Path) -> None:
    """Debian's redis-server is a link to redis-check-rdb, and libstdc++.so.6 is one, too."""
    for name, file in {"started-as": program.name, "another": "/bin/sh"}.items():
        (program.parent / name).symlink_to(file)

    known = sites_of(program, "started-as:main").sites

    assert known == sites_of(program, f"{program.name}:main").sites
    assert known == sites_of(program, f"{program.parent}/started-as:main").sites
    for name in ("another", "nothing", "\0"):
        with pytest.raises(UnknownMarker):
            sites_of(program, f"{name}:main")


@pytest.mark.parametrize("name", ["twice:retrn", "twice:ret"])
def test_a_return_that_is_misspelt_is_told_as_one(program: Path, name: str) -> None:
    with pytest.raises(UnknownMarker, match=r"did you mean func:twice:return\?"):
        sites_of(program, name)


@pytest.mark.parametrize("name", ["kv_get", "a:b", "insn:main+0x4", "call:a->b"])
def test_names_of_anything_else_are_unsupported(program: Path, name: str) -> None:
    with pytest.raises(Unsupported):
        functions_of_file(str(program), parse_name(name))


def test_a_function_without_a_symbol_is_known_by_its_file_and_address(
    program: Path, tmp_path: Path
) -> None:
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", stripped, program], check=True)
    entry = addresses(program)["main"]
    name = f"stripped+{entry:#x}"

    assert symbols(stripped, name) == {name}
    assert sites_of(stripped, name).sites[0].place.offset - entry in (0, 4)
    for other in (f"stripped+{entry + 1:#x}", f"striped+{entry:#x}", "stripped+0x0"):
        with pytest.raises(UnknownMarker):
            sites_of(stripped, other)
    with pytest.raises(UnknownMarker):  # it has a name
        sites_of(program, f"program+{entry:#x}")


def test_a_stripped_program_has_what_it_exports(program: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", stripped, program], check=True)

    with pytest.raises(UnknownMarker):
        sites_of(stripped, "made::twice")


def test_files_that_are_no_objects_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("no object")

    with pytest.raises(BadFile):
        markerjit.list_file_functions(str(other), "func:main")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("__libc_malloc", "malloc", "__malloc"), "malloc"),
        (("b", "a"), "a"),
        (("long_name", "name"), "name"),
        (("_one", "longer"), "longer"),
    ],
)
def test_a_function_has_one_name_in_whatever_order_the_symbols_stand(
    names: tuple[str, ...], expected: str
) -> None:
    assert canonical(names) == canonical(names[::-1]) == expected


@pytest.mark.parametrize(
    "symbol", ["main", "i", "_Z", "_Znonsense", "", "_Z" + "1" * 9999, "größe"]
)
def test_what_is_no_name_of_cxx_stays_as_it_is(symbol: str) -> None:
    assert demangled(symbol) == symbol


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z6handleP3Reqi", "handle"),
        ("_ZN2ns6handleEv", "ns::handle"),
        ("_ZNK3BoxIiLi3EE3getEi", "Box<int, 3>::get"),
        ("_ZN2ns4lookIidEET0_T_", "ns::look<int, double>"),
        ("_ZTV3Box", "_ZTV3Box"),
        ("main", "main"),
    ],
)
def test_a_name_without_parameters_is_that_of_the_source(symbol: str, name: str) -> None:
    if demangled("_Z6handlev") == "_Z6handlev":
        pytest.skip("no C++ library is here")

    assert qualified_name(symbol) == name

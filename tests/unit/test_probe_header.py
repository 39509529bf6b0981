"""probe.h by itself: it compiles everywhere, needs no libc, and says what the controller believes.

And its two pages: their examples are probes that compile and fit the markers that they are for.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from markerjit.model import CType, Signature, TypeClass
from markerjit.probes.c.compile import compile_probe
from markerjit.probes.c.fits import check_fits
from markerjit.probes.c.object import EVENT, EVENT_MARKER, VARIABLE
from markerjit.probes.c.values import BUCKETS
from tests.support.choice import share
from tests.support.compilers import (
    C_COMPILERS,
    CXX_COMPILERS,
    INCLUDE,
    ROOT,
    STRICT,
    Compiler,
    each_at_once,
    need,
)

HEADER = INCLUDE / "markerjit" / "probe.h"
EVERYTHING = Path(__file__).parent / "probe" / "everything.c"
HOWTO = ROOT / "docs" / "howto" / "write-a-probe.md"
REFERENCE = ROOT / "docs" / "reference" / "probes-in-c.md"
FREESTANDING = ("-ffreestanding", "-c", "-o", "/dev/null")

I32, U64 = CType(TypeClass.SIGNED, 4), CType(TypeClass.UNSIGNED, 8)
CHARS, POINTER = CType(TypeClass.CHARS, 8), CType(TypeClass.POINTER, 8)
MARKERS = {
    "on_hit": ("key %.*s size %zu", (I32, CHARS, U64)),
    "on_command": ("name %.*s args %d client %d", (I32, CHARS, I32, I32)),
    "on_miss": ("key %.*s", (I32, CHARS)),
    "on_request": ("request %p", (POINTER,)),
    "on_get": ("key %s len %zu", (CHARS, U64)),
}

c_compilers = pytest.mark.parametrize("compiler", C_COMPILERS, ids=lambda compiler: compiler.name)


def builtin_headers(compiler: Compiler) -> str:
    """The folder of the compiler's own stddef.h."""
    option = "-print-resource-dir" if compiler.is_clang else "-print-file-name=include"
    output = subprocess.run(
        [compiler.name, option], check=True, capture_output=True, text=True
    ).stdout.strip()
    return f"{output}/include" if compiler.is_clang else output


@c_compilers
def test_header_and_a_probe_compile_without_a_warning(compiler: Compiler) -> None:
    need(compiler)
    combinations = [
        (level, standard)
        for level in ("-O0", "-O1", "-O2", "-O3", "-Os")
        for standard in ("-std=c11", "-std=gnu17", "-std=gnu2x")
    ]

    def compiles(options: tuple[str, str]) -> None:
        words = (*STRICT, "-Wno-unused-parameter", *options, *FREESTANDING, EVERYTHING)
        done = compiler.run(*words)
        assert done.returncode == 0, done.stderr[:2000]

    each_at_once(compiles, share(combinations, 2, compiler.is_clang))


@c_compilers
def test_header_needs_only_what_comes_with_the_compiler(compiler: Compiler) -> None:
    need(compiler)

    done = compiler.run(
        "-nostdinc", "-isystem", builtin_headers(compiler), *FREESTANDING, "-H", EVERYTHING
    )

    assert done.returncode == 0, done.stderr[:2000]
    included = {line.split("/")[-1] for line in done.stderr.splitlines() if line.startswith(".")}
    assert included <= {"probe.h", "marker.h", "abi.h", "stddef.h", "stdint.h", "stdint-gcc.h"} | {
        name for name in included if name.startswith("__stddef_")
    }


@pytest.mark.parametrize("compiler", CXX_COMPILERS, ids=lambda compiler: compiler.name)
def test_header_says_that_it_is_for_c(compiler: Compiler, tmp_path: Path) -> None:
    need(compiler)
    (tmp_path / "a.cc").write_text("#include <markerjit/probe.h>\n")

    done = compiler.run(*FREESTANDING, tmp_path / "a.cc")

    assert done.returncode != 0
    assert "a probe that is loaded is written in C" in done.stderr


@c_compilers
def test_layouts_are_those_that_the_controller_reads(compiler: Compiler, tmp_path: Path) -> None:
    need(compiler)
    claims = [
        f"sizeof(struct mj_event) == {EVENT.size}",
        f"offsetof(struct mj_event, marker) == {EVENT_MARKER}",
        "offsetof(struct mj_event, line) == 24",
        "offsetof(struct mj_event, types) == 32",
        f"sizeof(struct mj_variable) == {VARIABLE.size}",
        "offsetof(struct mj_variable, kind) == 16",
        "offsetof(struct mj_variable, words) == 20",
        f"MJ_BUCKETS == {BUCKETS}",
        f"sizeof(struct mj_histogram) == {BUCKETS} * 8",
        "sizeof(struct mj_counter) == 8",
    ]
    (tmp_path / "a.c").write_text(
        "#include <markerjit/probe.h>\n"
        + "".join(f'_Static_assert({claim}, "{claim}");\n' for claim in claims)
    )

    done = compiler.run(*FREESTANDING, tmp_path / "a.c")

    assert done.returncode == 0, done.stderr[:2000]


# ---- the pages -----------------------------------------------------------------------------------


def examples() -> list[tuple[str, str]]:
    """(page, source) of each C example."""
    return [
        (page.name, source)
        for page in (HOWTO, REFERENCE)
        for source in re.findall(r"^```c\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    ]


@c_compilers
@pytest.mark.parametrize("number", range(len(examples())))
def test_example_is_a_probe_for_its_marker(compiler: Compiler, number: int, tmp_path: Path) -> None:
    need(compiler)
    _, text = examples()[number]
    source = tmp_path / "hot.c"
    source.write_text(text)
    functions = re.findall(r"^void (\w+)\(struct mj_slot", text, re.MULTILINE)

    compiled = compile_probe(source, functions[0], compiler.name, include=INCLUDE)

    assert compiled.warnings == ""
    assert [function.name for function in compiled.functions] == functions
    for function in compiled.functions:
        format_, args = MARKERS[function.name]
        check_fits(source, function, Signature("m", format_, args))


def test_markers_of_the_examples_are_those_of_the_bundled_server() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "native" / "targets").glob("kv_*.c"))

    for function in ("on_hit", "on_command", "on_miss"):
        name = function.replace("on_", "kv_")

        assert f'MARK({name}, "{MARKERS[function][0]}"' in sources


def test_reference_has_everything_that_a_probe_may_use() -> None:
    header, page = HEADER.read_text(), REFERENCE.read_text()
    functions = set(re.findall(r"^static inline [\w ]+?\**(mj_\w+)\(", header, re.MULTILINE))
    macros = {"MJ_COUNTER", "MJ_HISTOGRAM", "mj_emit"}
    helpers = set(re.findall(r"^(?:void \*|int |size_t )(mem\w+|strlen)\(", header, re.MULTILINE))

    public = functions - {"mj_of_this_cpu"} | macros | helpers

    assert len(functions) > 10
    assert len(helpers) == 5
    assert {name for name in public if not re.search(rf"\b{name}\b", page)} == set()


def test_example_in_the_header_compiles(tmp_path: Path) -> None:
    lines = HEADER.read_text().split("*/")[1].splitlines()
    source = tmp_path / "hot.c"
    source.write_text("\n".join(line[7:] for line in lines if line.startswith(" *     ")))

    compiled = compile_probe(source, "on_get", "gcc", include=INCLUDE)

    assert [variable.name for variable in compiled.variables] == ["misses", "sizes"]
    assert [event.signature.name for event in compiled.events] == ["empty_get"]
    assert compiled.warnings == ""

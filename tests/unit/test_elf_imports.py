"""Which functions of others an object calls by name, in objects of every kind and damaged ones."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from markerjit.elf import FileImage
from markerjit.elf.imports import PT_DYNAMIC, imports_any, needs_others

NAMES = (b"vfork", b"clone")
PROGRAMS = {
    "calls it": "#include <unistd.h>\nint main(void) { return vfork(); }",
    "calls another": "#include <unistd.h>\nint main(void) { return fork(); }",
    "calls one that ends so": "int my_vfork(void);\nint main(void) { return my_vfork(); }",
    "has its own": "int vfork(void) { return 0; }\nint main(void) { return vfork(); }",
}
KINDS = {
    "exe": ["-pie", "-fPIE"],
    "fixed": ["-no-pie", "-fno-pie"],
    "shared": ["-shared", "-fPIC", "-Wl,-z,undefs"],
    "static": ["-static"],
    "static-pie": ["-static-pie", "-fPIE"],
}


@pytest.fixture
def link(tmp_path: Path) -> Callable[..., Path]:
    def link(program: str, kind: str, *more: str) -> Path:
        (tmp_path / "one.c").write_text(PROGRAMS[program])
        path = tmp_path / "object"
        flags = ["-w", "-fno-builtin", *KINDS[kind], "-Wl,--unresolved-symbols=ignore-all", *more]
        subprocess.run(["gcc", *flags, "-o", path, tmp_path / "one.c"], check=True)
        return path

    return link


def imports(path: Path) -> bool:
    with FileImage(str(path)) as image:
        return imports_any(image, NAMES)


@pytest.mark.product
@pytest.mark.parametrize("strip", [[], ["-s"]], ids=["symbols", "stripped"])
@pytest.mark.parametrize("table", ["gnu", "sysv"])
@pytest.mark.parametrize("kind", ["exe", "fixed", "shared"])
def test_a_call_of_another_objects_function_is_seen(
    link: Callable[..., Path], kind: str, table: str, strip: list[str]
) -> None:
    names = {
        program: imports(link(program, kind, f"-Wl,--hash-style={table}", *strip))
        for program in PROGRAMS
    }

    assert names == {
        "calls it": True,
        "calls another": False,
        "calls one that ends so": False,
        "has its own": False,
    }


@pytest.mark.parametrize("linker", ["bfd", "gold", "lld"])
def test_a_call_is_seen_whichever_linker_laid_out_the_tables(
    link: Callable[..., Path], linker: str, needs_tool: Callable[..., None]
) -> None:
    needs_tool(f"ld.{linker}", "lld" if linker == "lld" else "binutils")

    assert imports(link("calls it", "exe", f"-fuse-ld={linker}"))
    assert not imports(link("calls another", "exe", f"-fuse-ld={linker}"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_static_program_needs_no_others(link: Callable[..., Path], kind: str) -> None:
    with FileImage(str(link("calls it", kind))) as image:
        assert needs_others(image) is not kind.startswith("static")


@pytest.mark.parametrize("tag", [5, 6, 10], ids=["strings", "symbols", "size of strings"])
@pytest.mark.parametrize("value", [1 << 40, (1 << 64) - 1])
def test_an_object_whose_tables_cannot_be_read_may_call_anything(
    link: Callable[..., Path], tag: int, value: int
) -> None:
    path = link("calls it", "exe")
    with FileImage(str(path)) as image:
        (dynamic,) = [segment for segment in image.segments if segment.type == PT_DYNAMIC]
    data = bytearray(path.read_bytes())
    for at in range(dynamic.offset, dynamic.offset + dynamic.file_size, 16):
        if struct.unpack_from("<q", data, at) == (tag,):
            struct.pack_into("<Q", data, at + 8, value)
    path.write_bytes(data)

    assert imports(path)

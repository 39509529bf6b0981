"""Compiling a probe with the system's compiler, and finding out whether it can run anywhere.

    1  compile the file, freestanding, position-independent, every surprise of a distribution's
       compiler (stack protector, fortified functions, control-flow marks) switched off
    2  assemble an entry for each function, which does nothing in a fork's child: there the probe's
       variables are still those of the parent; and those of memcpy, memset … that are called
    3  link for nowhere, keep the relocations, and look: what is undefined, which parts are there,
       which instructions, which types

No process has anything to do with it yet; link.py does what follows.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from markerjit.arguments import check_all, check_path, check_text
from markerjit.probes.c.entries import assembly
from markerjit.probes.c.examine import check_object, examine
from markerjit.probes.c.object import ObjectFile
from markerjit.probes.c.unit import BadProbe, Compiled, DoesNotCompile, NoTool
from markerjit.remote.native import package_file

COMPILERS = ("cc", "gcc", "clang")
FLAGS = (
    "-std=gnu11", "-O2", "-gdwarf-4", "-DMJ_MODE=none",
    "-ffreestanding", "-fPIE", "-mcmodel=small", "-fvisibility=hidden", "-fno-common", "-fno-lto",
    "-fno-stack-protector", "-U_FORTIFY_SOURCE", "-fcf-protection=none",
    "-fno-exceptions", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables",
    "-fno-strict-aliasing", "-fno-delete-null-pointer-checks", "-falign-functions=16",
    "-Wall", "-Wextra", "-Wno-unused-parameter",
    # So that undefined functions are told of in one way, whether a header declares them or not.
    "-Wno-error=implicit-function-declaration",
    # Large frames are found in the code: vet.py.
    "-Werror=vla", "-Walloca", "-Werror=alloca",
)  # fmt: skip

ORIGINAL = "MJ_ORIGINAL_FUNCTION"
"""The macro by which probe.h knows the way into a function that is replaced."""

_TIMEOUT_S = 60
_UNUSED = re.compile(r"'(\w+)'.*\[-Wunused-function\]")


def compile_probe(
    source: Path | str,
    function: str,
    compiler: str | None = None,
    *,
    options: Sequence[str] = (),
    include: Path | None = None,
) -> Compiled:
    """Compile `source`, in which `function` is to be a probe.

    `compiler` is a command, by default $CC or the first of COMPILERS that is there; `options` are
    more words for it, such as -I and -D; `include` is where markerjit/probe.h is. Raises NoTool,
    DoesNotCompile, NoSuchFunction, NoProbe, UndefinedSymbols, Forbidden, and BadProbe for whatever
    else is wrong with it.
    """
    check_path("source", source)
    check_text("function", function)
    if compiler is not None:
        check_text("compiler", compiler)
    check_all("options", options, str)
    for option in options:
        check_text("options", option)
    if include is not None:
        check_path("include", include)
    return _compiled(Path(source), function, compiler, options, include)


def compile_replacement(source: Path, function: str, original: int) -> Compiled:
    """Compile `source`, in which `function` is to replace one of the program, whose code goes on at
    the address `original`. It may take and return whatever that does. Raises as compile_probe.

    The result is for nothing else: what is called as a probe has another entry.
    """
    options = (f"-D{ORIGINAL}={original:#x}ul",)
    return _compiled(source, function, None, options, None, replaces=True)


def _compiled(
    source: Path,
    function: str,
    compiler: str | None,
    options: Sequence[str],
    include: Path | None,
    *,
    replaces: bool = False,
) -> Compiled:
    try:
        mode = source.stat().st_mode
    except FileNotFoundError:
        raise BadProbe(source, f"there is no file {source}") from None
    except OSError as error:
        raise BadProbe(source, f"it cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        raise BadProbe(source, "it is not a regular file")
    command = _find_compiler(compiler)
    where = include or Path(package_file("include"))
    with tempfile.TemporaryDirectory(prefix="markerjit-") as folder:
        output, entries = Path(folder) / "probe.o", Path(folder) / "entries.o"
        file = _as_file(source)
        words = [*options, f"-I{where}", *FLAGS, *_without_folder(file), "-x", "c"]
        words += ["-c", "-o", str(output), file]
        warnings = _run(source, [*command, *words])  # 1
        binary = output.read_bytes()
        functions, undefined = check_object(source, ObjectFile(binary))
        entries.with_suffix(".s").write_text(
            assembly(functions, undefined, function if replaces else "")
        )
        _run(source, [*command, "-c", "-o", str(entries), str(entries.with_suffix(".s"))])  # 2
        objects = (binary, entries.read_bytes())
    unused = frozenset(_UNUSED.findall(warnings))
    compiled = examine(source, function, objects, undefined, unused, replaces)  # 3
    return compiled._replace(warnings=warnings)


def _find_compiler(compiler: str | None) -> list[str]:
    asked = compiler or os.environ.get("CC")
    for command in [asked] if asked else COMPILERS:
        words = shlex.split(command)
        if words and shutil.which(words[0]):
            return words
    raise NoTool(f"a C compiler ({asked or ', '.join(COMPILERS)})", "gcc")


def _run(source: Path, command: Sequence[str]) -> str:
    """Run the compiler; what it says."""
    try:
        done = subprocess.run(
            command, env={**os.environ, "LC_ALL": "C"}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", check=False, timeout=_TIMEOUT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise BadProbe(source, f"{command[0]} was not done after {_TIMEOUT_S} s") from None
    if done.returncode:
        raise DoesNotCompile(source, done.stderr)
    return done.stderr


def _without_folder(file: str) -> list[str]:
    """So that __FILE__, which every event has, is the same wherever the file is."""
    folder = file[: file.rfind("/") + 1]
    return [f"-fmacro-prefix-map={folder}="] if folder and "=" not in folder else []


def _as_file(source: Path) -> str:
    """As the user named it, because messages say it; never to be taken for an option."""
    return f"./{source}" if str(source).startswith("-") else str(source)

"""Building a program in every form and several layouts.

Files without markers are compiled once, those with markers once in each form; what was compiled
stays in build/real/ and is taken again. Layouts are links of the same objects: in another order,
behind padding of another size, and with functions sorted in another way.
"""

from __future__ import annotations

import hashlib
import random
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import markerjit
from markerjit.apps.bench.api import FORMS, Form, skips
from markerjit.errors import Refused
from real import patching, sources
from real.programs import HERE, Program

ROOT = HERE.parent.parent
DIRECTORY = ROOT / "build" / "real"
INCLUDE = Path(markerjit.__file__).parent / "_native" / "include"
CFLAGS = ("-O2", "-ffunction-sections")
SORTS = ((), ("-Wl,--sort-section=name",), ("-Wl,--sort-section=alignment",))
TRUTH = Form(
    "truth", ("-DBENCH_FORM=mark", "-DMJ_MODE=jump", "-DREAL_TRUTH"), "jump, and counts for itself"
)
COMPARED = [form for form in FORMS if form.is_ours or form.name == "USDT"]


class Toolchain(NamedTuple):
    """A compiler, its flags, and where what it makes is kept."""

    compiler: str = "gcc"
    flags: tuple[str, ...] = CFLAGS
    directory: Path = DIRECTORY


def tree_of(program: Program, directory: Path = DIRECTORY) -> Path:
    """Its source with our markers in it, made where it is not there yet. Raises Refused."""
    archive = sources.archive(program.package, directory / "packages")
    what = _digest(archive.name, *map(str, program.marks))
    tree = directory / f"{program.name}-{what}"
    if not tree.exists():
        with tempfile.TemporaryDirectory(prefix="unpacked-", dir=directory) as name:
            unfinished = Path(name) / "tree"
            sources.unpack(archive, unfinished)
            patching.apply(program.marks, unfinished)
            program.prepare(unfinished)
            try:
                unfinished.rename(tree)
            except OSError:
                if not tree.is_dir():  # no other run was faster
                    raise
    return tree


def version_of(program: Program, directory: Path = DIRECTORY) -> str:
    """Of the source that is there."""
    archive = sources.archive(program.package, directory / "packages")
    return archive.name.removeprefix(f"{program.package}_").partition(".orig.")[0]


def compile_all(
    program: Program, tree: Path, forms: Iterable[Form], tools: Toolchain
) -> dict[str, list[Path]]:
    """By form, the objects of the program. Raises Refused, with what the compiler says."""
    if shutil.which(tools.compiler) is None:
        raise Refused(f"{tools.compiler} is not here; apt-get install gcc, or name one with --cc")
    (tools.directory / "objects").mkdir(parents=True, exist_ok=True)
    same = [HERE / "gate.c", *(tree / path for path in program.others)]
    marked = [tree / path for path in program.marked]
    forms = list(forms)
    with ThreadPoolExecutor() as pool:
        shared = [pool.submit(_compile, program, tree, path, (), tools) for path in same]
        own = {  # forms with the same flags are the same
            flags: [pool.submit(_compile, program, tree, path, flags, tools) for path in marked]
            for flags in dict.fromkeys(form.flags for form in forms)
        }
        return {form.name: [job.result() for job in [*own[form.flags], *shared]] for form in forms}


def _compile(
    program: Program, tree: Path, source: Path, marking: Sequence[str], tools: Toolchain
) -> Path:
    """One object, or the same that was made before: the name is what it depends on. `marking` are
    the flags of a form, for a file with markers."""
    flags = [*tools.flags, *program.flags]
    headers = [HERE / "truth.h"]
    if marking:
        flags += [f"-I{INCLUDE}", *marking, "-include", str(HERE / "real.h")]
        headers = sorted([*HERE.glob("*.h"), *INCLUDE.glob("*/*.h")])
    texts = [header.read_text() for header in headers]
    what = _digest(tools.compiler, *flags, str(source), source.read_text(), *texts)
    target = tools.directory / "objects" / f"{source.stem}-{what}.o"
    if not target.exists():
        with tempfile.TemporaryDirectory(prefix="compiled-", dir=target.parent) as name:
            unfinished = Path(name) / "one.o"
            command = [tools.compiler, *flags, "-w", "-c", "-o", str(unfinished), str(source)]
            _call(command, tree)
            unfinished.rename(target)
    return target


def link(
    program: Program, objects: Sequence[Path], layout: int, layouts: int, target: Path,
    tools: Toolchain,
) -> Path:  # fmt: skip
    """One layout of a program: how it is laid out depends on the number alone."""
    target.parent.mkdir(parents=True, exist_ok=True)
    padding = target.parent / f"padding-{layout}.s"
    padding.write_text(
        f"\t.text\n\t.skip {list(skips(layouts))[layout]}\n"
        '\t.section .note.GNU-stack, "", @progbits\n'
    )
    order = list(objects)
    if layout:
        random.Random(layout).shuffle(order)
    _call(
        [tools.compiler, "-o", str(target), str(padding), *map(str, order),
         *SORTS[layout % len(SORTS)], *program.libraries],
        target.parent,
    )  # fmt: skip
    return target


def _call(command: Sequence[str], directory: Path) -> None:
    done = subprocess.run(
        command, cwd=directory, check=False, stdin=subprocess.DEVNULL, capture_output=True,
        text=True,
    )  # fmt: skip
    if done.returncode:
        lines = done.stderr.splitlines()
        reason = next((line for line in lines if "error" in line), "".join(lines[:1]))
        raise Refused(f"{shlex.join(command[-3:])} does not compile: {reason}")


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]

"""Building the variants of a comparison: one source, one compiler, several layouts."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from itertools import product
from pathlib import Path
from typing import TypeVar

from markerjit.apps.bench.sampling.form import Form
from markerjit.apps.bench.sampling.kept import made_or_kept
from markerjit.errors import Refused
from markerjit.tuples import NamedTuple

CFLAGS = ("-O2", "-g", "-fPIC")
PAGE = 4096
_COMPILING = 0.6
"""The part of building that is compiling. The rest is assembling and linking."""
_SKIP = "bench_skip"
"""The symbol in assembly for the number of bytes before the code."""
_TICK_S = 0.5
_compilers: set[subprocess.Popen[str]] = set()
"""The compilers that are running."""
_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


class Missing(NamedTuple):
    """A form that cannot be measured here, and the reason, such as a package to install."""

    form: Form
    why: str


class DoesNotCompile(Refused):
    """The compiler refuses a source. `output` is all that it printed."""

    def __init__(self, source: Path, output: str) -> None:
        super().__init__(f"{source} does not compile")
        self.source = source
        self.output = output


def compiler(form: Form, chosen: str) -> str:
    """The compiler for a form."""
    return form.compiler or chosen


def why_missing(form: Form, chosen: str, include: Sequence[Path]) -> str:
    """The reason why a form cannot be built here, "" where it can."""
    cc = compiler(form, chosen)
    if shutil.which(cc) is None:
        return f"{cc} is not here; apt-get install {form.package or cc}"
    if form.needs:
        looked = subprocess.run(
            [cc, *(f"-I{folder}" for folder in include), "-E", "-x", "c", "-"],
            input=f"#include <{form.needs}>\n", capture_output=True, text=True, check=False,
        )  # fmt: skip
        if looked.returncode:
            return f"<{form.needs}> is not here; apt-get install {form.package}"
    return ""


def skips(layouts: int, elsewhere: int = 0) -> Iterator[int]:
    """The number of bytes before the code, for each layout: spread over a page, each at another
    place in a cache line. A number for `elsewhere` seeds other places, by chance."""
    if elsewhere:
        yield from random.Random(elsewhere).choices(range(16, PAGE, 16), k=layouts)
        return
    for number in range(layouts):
        yield (16 + number * (PAGE // layouts // 16 * 16) + number * 16) % PAGE


class Object(NamedTuple):
    """A shared object with one variant in it, in one layout."""

    form: Form
    layout: int
    path: Path


def build(
    source: Path,
    form: Form,
    layout: int,
    skip: int,
    flags: Sequence[str],
    *,
    directory: Path,
    chosen: str,
    include: Sequence[Path],
) -> Object:
    """Compile a source of native/bench in one form and layout, or take the object that was compiled
    before. Raises DoesNotCompile."""
    path = directory / f"{source.stem}-{file_name(form)}-{layout}.so"
    command = [
        compiler(form, chosen), *CFLAGS, "-shared", *form.flags, f"-DBENCH_SKIP={skip}", *flags
    ]  # fmt: skip
    compile_kept(source, command, path, form, include)
    return Object(form, layout, path)


def compile_kept(
    source: Path, command: Sequence[str], target: Path, form: Form, include: Sequence[Path]
) -> None:
    """Compile a source, whose headers are in these folders, or take the object that was compiled
    from the same files before. A form that needs headers of the system, or the user's own source,
    is always compiled. Raises DoesNotCompile."""

    def make() -> None:
        compile_with(source, [
            *command, *(f"-I{folder}" for folder in include), "-o", str(target), str(source),
            *(f"-l{library}" for library in form.libraries),
        ])  # fmt: skip

    if form.needs or any("BENCH_SOURCE" in word for word in command):
        make()
    else:
        made_or_kept(target, command, [source, *include], make)


def build_all(
    source: Path,
    forms: Sequence[Form],
    layouts: int,
    flags: Sequence[str],
    *,
    directory: Path,
    chosen: str,
    include: Sequence[Path],
    elsewhere: int = 0,
    progress: Callable[[float], None] = lambda done: None,
) -> list[Object]:
    """Compile a source in each of these forms and layouts. A form is compiled to assembly once, and
    its layouts are the same assembly with another number in it. Raises DoesNotCompile, once."""

    def compile_one(form: Form) -> str:
        path = directory / f"{source.stem}-{file_name(form)}.s"
        command = [compiler(form, chosen), *CFLAGS, *form.flags, f"-DBENCH_SKIP={_SKIP}", *flags]
        compile_kept(source, [*command, "-S"], path, form, include)
        return path.read_text()

    def assemble(variant: tuple[tuple[Form, str], tuple[int, int]]) -> Object:
        (form, assembly), (layout, skip) = variant
        path = directory / f"{source.stem}-{file_name(form)}-{layout}.so"
        placed = path.with_suffix(".s")
        placed.write_text(f".set {_SKIP}, {skip}\n{assembly}")
        command = [compiler(form, chosen), "-shared", *(f"-l{name}" for name in form.libraries)]

        def make() -> None:
            compile_with(source, [*command[:2], "-o", str(path), str(placed), *command[2:]])

        made_or_kept(path, command, [placed], make)
        placed.unlink()
        return Object(form, layout, path)

    compiled = at_once(compile_one, forms, lambda done: progress(done * _COMPILING))
    variants = product(
        zip(forms, compiled, strict=True), enumerate(skips(layouts, elsewhere))
    )  # fmt: skip
    return at_once(assemble, variants, lambda done: progress(_COMPILING + done * (1 - _COMPILING)))


def at_once(
    work: Callable[[_Item], _Made],
    items: Iterable[_Item],
    progress: Callable[[float], None] = lambda done: None,
) -> list[_Made]:
    """The results of work on each item, with as many at a time as there are CPUs. `progress` is
    called now and then with the part that is done or begun, which is an upper limit of the part
    that is done. After an error or an interrupt no further item is begun, and the running compilers
    are ended."""
    workers = len(os.sched_getaffinity(0))
    pool = ThreadPoolExecutor(workers)
    futures = [pool.submit(work, item) for item in items]
    left = set(futures)
    try:
        while left:
            done, left = wait(left, _TICK_S, FIRST_COMPLETED)
            for future in done:
                future.result()
            begun = len(futures) - max(len(left) - workers, 0)
            progress((begun - 0.5 * bool(left)) / len(futures))
        return [future.result() for future in futures]
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(_compilers):
            process.kill()
        raise
    finally:
        pool.shutdown()


def file_name(form: Form) -> str:
    """The name of a form with letters and digits only."""
    return "".join(char if char.isalnum() else "-" for char in form.name)


def compile_with(source: Path, command: Sequence[str]) -> None:
    """Run a compiler. Raises DoesNotCompile, with its output about `source`."""
    nothing = subprocess.DEVNULL
    with subprocess.Popen(
        command, stdin=nothing, stdout=nothing, stderr=subprocess.PIPE, text=True
    ) as process:
        _compilers.add(process)
        try:
            _, complaints = process.communicate()
        finally:
            _compilers.discard(process)
    if process.returncode:
        raise DoesNotCompile(source, complaints)

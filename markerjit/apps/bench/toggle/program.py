"""Programs with any number of sites of one marker, and native/bench/toggle/toggle.c around them.

A part of 200 functions with a site each is compiled once for each mode; the same object is linked
as often as need be. It has no symbols that others see, only a list of its functions in a section,
so the linker takes it again and again: 100,000 sites take it less than a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markerjit.apps.bench.sampling.build import CFLAGS, compile_with
from markerjit.apps.bench.sampling.kept import made_or_kept
from markerjit.apps.bench.sampling.place import Place
from markerjit.errors import Refused
from markerjit.tuples import NamedTuple

PART = 200
_FLAGS = (*CFLAGS, "-g0", "-pthread")
MARKER = "bench_toggle"

_STEP = (
    "__attribute__((noinline)) static unsigned step{i}(unsigned n) "
    '{{ MARK({marker}, "n %u", n); return n * {factor} + 1; }}\n'
)
_LIST = (
    "typedef unsigned step_fn(unsigned n);\n"
    'static step_fn *const steps[] __attribute__((used, section("toggle_steps"))) = {{{names}}};\n'
)


class Program(NamedTuple):
    """The same sites twice: as a program, and as a library for another one."""

    program: Path
    library: Path


def source(sites: int) -> str:
    """The C source of a part: a step takes n to n * (its number + 3) + 1."""
    steps = "".join(_STEP.format(i=i, marker=MARKER, factor=i + 3) for i in range(sites))
    names = ", ".join(f"step{i}" for i in range(sites))
    # A name of its own, so that the same build has the same build id the next time: verifying a
    # hundred thousand sites of a new one takes many seconds.
    name = f'#line 1 "{MARKER}.c"\n'
    return f"#include <markerjit/marker.h>\n{name}{steps}{_LIST.format(names=names)}"


def build(sites: int, mode: str, place: Place, directory: Path) -> Program:
    """A program with this number of sites in this mode. Raises Refused, DoesNotCompile."""
    _library(place)
    whole, rest = divmod(sites, PART)
    parts = whole * [_compile(PART, mode, place, directory)] if whole else []
    if rest:
        parts.append(_compile(rest, mode, place, directory))
    program = Program(directory / f"toggle-{mode}-{sites}", directory / f"toggle-{mode}-{sites}.so")
    _link(program.program, [], parts, mode, place)
    _link(program.library, ["-shared"], parts, mode, place)
    return program


def _link(
    target: Path, more: Sequence[str], parts: Sequence[Path], mode: str, place: Place
) -> None:
    main, library = place.sources / "toggle" / "toggle.c", _library(place)
    command = [place.compiler, *_FLAGS, *more, f"-DMJ_MODE={mode}", f"-DTOGGLE_PART={PART}"]

    def make() -> None:
        compile_with(main, [*command, f"-I{place.include}", "-o", str(target), str(main),
                     *map(str, parts), str(library)])  # fmt: skip

    names = [part.name for part in parts]
    made_or_kept(
        target, [*command, *names], [main, place.include, *dict.fromkeys(parts), library], make
    )


def _library(place: Place) -> Path:
    library = place.include.parent / "libmarkerjit.a"
    if not library.is_file():
        raise Refused(f"{library} is not here; make native builds it")
    return library


def _compile(sites: int, mode: str, place: Place, directory: Path) -> Path:
    target = directory / f"part-{mode}-{sites}.o"
    if target.exists():
        return target
    path = target.with_suffix(".c")
    path.write_text(source(sites))
    command = [place.compiler, *_FLAGS, f"-DMJ_MODE={mode}", "-c"]

    def make() -> None:
        compile_with(path, [*command, f"-I{place.include}", "-o", str(target), str(path)])

    made_or_kept(target, command, [path, place.include], make)
    return target

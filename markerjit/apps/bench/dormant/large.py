"""Thousands of sites, visited in a scattered order, whose cost a small loop cannot show.

A part is a source of 997 functions with a site each, generated here. Each function jumps to one of
the next part, in an order without a pattern. A chain as long as the number of functions visits each
of them once (997 is a prime, so any smaller number of parts works). A part is compiled once for
each form. Further parts are copies with other names for all functions, and for the slots that hold
a marker's state. Layouts are orders in which the linker places the parts.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from markerjit.apps.bench.sampling.build import (
    CFLAGS,
    Object,
    compile_kept,
    compile_with,
    compiler,
    file_name,
)
from markerjit.apps.bench.sampling.form import Form
from markerjit.apps.bench.sampling.place import Place
from markerjit.errors import Refused
from markerjit.tuples import NamedTuple

FUNCTIONS = 997
TITLE = f"a part of {FUNCTIONS} sites"

_HEAD = """#include "site.h"
typedef uint64_t visit_fn(uint64_t left, const uint64_t *data, uint64_t sum);
#define VISIT(from, number, to) \\
    __attribute__((visibility("hidden"))) visit_fn from, to; \\
    uint64_t from(uint64_t left, const uint64_t *data, uint64_t sum) { \\
        const uint64_t a = data[number & 7], b = data[(number + 3) & 7] + left; \\
        SITE_NAMED(bench_site_##number, a, b); \\
        sum += a ^ b; \\
        return --left ? to(left, data, sum) : sum; \\
    }
"""
_DRIVER = """#include <stdint.h>
uint64_t bench_0_at_0(uint64_t left, const uint64_t *data, uint64_t sum);
__attribute__((visibility("default"))) uint64_t run(uint64_t times, const uint64_t *data) {{
    uint64_t sum = 0;
    while (times--)
        sum = bench_0_at_0({sites}, data, sum);
    return sum;
}}
"""
_PAD = """.text
.skip {bytes}
.section .note.GNU-stack, "", @progbits
"""
_TRACEPOINTS = """#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER markerjit_bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "{path}"
#if !defined(BENCH_TRACEPOINTS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define BENCH_TRACEPOINTS_H
#include <stdint.h>
#include <lttng/tracepoint.h>
LTTNG_UST_TRACEPOINT_EVENT_CLASS(markerjit_bench, bench_site,
    LTTNG_UST_TP_ARGS(uint64_t, a, uint64_t, b),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint64_t, a, a)
                        lttng_ust_field_integer(uint64_t, b, b)))
{instances}
#endif
#include <lttng/tracepoint-event.h>
"""


def source() -> str:
    """The C source of a part."""
    order = list(range(FUNCTIONS))
    random.Random(1).shuffle(order)
    following = dict(zip(order, [*order[1:], order[0]], strict=True))
    visits = (
        f"VISIT(bench_at_{number}, {number}, bench_to_{following[number]})"
        for number in range(FUNCTIONS)
    )
    return _HEAD + "\n".join(visits) + "\n"


def tracepoints(path: Path) -> str:
    """LTTng's description of a part's sites, a header for this path, which includes itself."""
    instances = "\n".join(
        "LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(markerjit_bench, bench_site, markerjit_bench, "
        f"bench_site_{number}, LTTNG_UST_TP_ARGS(uint64_t, a, uint64_t, b))"
        for number in range(FUNCTIONS)
    )
    return _TRACEPOINTS.format(path=path, instances=instances)


class Part(NamedTuple):
    """A part in one form, as an object with a directory of its own."""

    form: Form
    path: Path


def compile_part(form: Form, place: Place, directory: Path) -> Part:
    """A part in one form. Raises DoesNotCompile."""
    directory /= file_name(form)
    directory.mkdir()
    path = directory / "part.c"
    path.write_text(source())
    flags = list(form.flags)
    if form.wants_description:
        described = directory / "tracepoints.h"
        described.write_text(tracepoints(described))
        flags.append(f'-DBENCH_TRACEPOINTS="{described}"')
    target = directory / "part.o"
    include = (place.include, place.sources / "dormant")
    # The notes of a kept object name the source of an earlier run. They are not read here.
    command = [compiler(form, place.compiler), *CFLAGS, "-g0", *flags, "-c"]
    compile_kept(path, command, target, form, include)
    return Part(form, target)


class Copies(NamedTuple):
    """A number of copies of a part, and the other files that are linked with them."""

    part: Part
    paths: list[Path]
    ways: Path
    driver: Path


def copy(part: Part, copies: int) -> Copies:
    """A number of copies of a part. Raises Refused."""
    if shutil.which("objcopy") is None or shutil.which("nm") is None:
        raise Refused("the bench with many sites needs objcopy and nm; apt-get install binutils")
    directory = part.path.parent
    names = _names(part.path)
    paths = [_copy(part.path, number, names) for number in range(copies)]
    ways = directory / "ways.ld"  # ld takes a file of assignments for a script to add
    ways.write_text(_ways(copies))
    driver = directory / "driver.c"
    driver.write_text(_DRIVER.format(sites=FUNCTIONS * copies))
    return Copies(part, paths, ways, driver)


def link(copies: Copies, layout: int, place: Place) -> Object:
    """Link copies of a part into one object, in an order of their own for each layout. Raises
    DoesNotCompile."""
    form, directory = copies.part.form, copies.part.path.parent
    chance = random.Random(layout)
    order = chance.sample(copies.paths, len(copies.paths))
    pad = directory / f"pad-{layout}.s"
    pad.write_text(_PAD.format(bytes=16 * chance.randrange(1, 256)))
    target = directory / f"{len(copies.paths)}-{layout}.so"
    compile_with(copies.driver, [
        compiler(form, place.compiler), *CFLAGS, "-g0", "-shared", "-o", str(target), str(pad),
        str(copies.driver), *map(str, order), str(copies.ways),
        *(f"-l{library}" for library in form.libraries),
    ])  # fmt: skip
    return Object(form, layout, target)


def _names(part: Path) -> list[str]:
    """The names of all symbols that a copy must not share with another."""
    listed = subprocess.run(
        ["nm", "--format=just-symbols", part], capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.split() if "bench" in name]


def _ways(copies: int) -> str:
    """The assignments of the linker by which each function jumps to the part after its own."""
    return "\n".join(
        f"bench_{number}_to_{function} = bench_{(number + 1) % copies}_at_{function};"
        for number in range(copies)
        for function in range(FUNCTIONS)
    )


def _copy(part: Path, number: int, names: Sequence[str]) -> Path:
    """A copy of a part. It is made once, because a larger setting uses the copies of a smaller
    one."""
    target = part.with_name(f"part-{number}.o")
    if target.exists():
        return target
    renamed = (f"{name} {name.replace('bench', f'bench_{number}', 1)}" for name in names)
    listed = part.with_name("names")
    listed.write_text("".join(f"{line}\n" for line in renamed))
    subprocess.run(["objcopy", f"--redefine-syms={listed}", str(part), str(target)], check=True)
    return target

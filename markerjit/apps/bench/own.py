"""Your own source, in every mode: compiled along with a loop that calls one of its functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from markerjit.apps.bench.build import Object, build, skips
from markerjit.apps.bench.forms import Form
from markerjit.apps.bench.place import Place
from markerjit.errors import Refused


def objects(
    source: Path, function: str, forms: Sequence[Form], place: Place, directory: Path, layouts: int
) -> Iterator[Object]:
    """For each form of a marker and each layout. Raises Refused, DoesNotCompile: once, for the
    first of them."""
    if not source.is_file():
        raise Refused(f"there is no file {source}")
    if not function.isidentifier():
        raise Refused(f"{function} is no name of a function")
    flags = [
        f'-DBENCH_SOURCE="{source.resolve()}"', f"-DBENCH_FUNCTION={function}",
        "-Werror=implicit-function-declaration",
    ]  # fmt: skip
    for form in forms:
        for layout, skip in enumerate(skips(layouts)):
            yield build(
                place.sources / "own.c", form, layout, skip, flags,
                directory=directory, chosen=place.compiler,
                include=[place.include, place.sources, source.resolve().parent],
            )  # fmt: skip

"""Functions of a probe against the markers that they are for: which fit, and why others do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from markerjit.model import CType, Signature
from markerjit.probes.c.fits import Mismatch, check_fits, declaration
from markerjit.probes.c.unit import Compiled
from tests.support.made_records import (
    BOOL,
    CHARS,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    POINTER,
    U8,
    U16,
    U32,
    U64,
)


def marker(format_: str, *args: CType) -> Signature:
    return Signature("m", format_, args)


@pytest.mark.product
@pytest.mark.parametrize(
    ("function", "event"),
    [
        ("on_count", marker("n %lu", U64)),
        ("on_place", marker("")),
        ("on_emit", marker("k %s l %zu r %f c %c", CHARS, U64, F64, I8)),
        ("on_emit", marker("k %s l %zu r %f c %c", CHARS, U64, F32, I8)),
        (
            "on_types",
            marker(
                "%d %d %d %d %d %p %s %p %p",
                I8, U16, BOOL, U32, I32, POINTER, CHARS, POINTER, POINTER,
            ),
        ),
        ("on_any", marker("")),
        ("on_any", marker("k %s r %f", CHARS, F64)),
        ("on_first", marker("k %s", CHARS)),
        ("on_first", marker("k %s l %zu", CHARS, U64)),
    ],
)  # fmt: skip
def test_function_fits_the_marker(everything: Compiled, function: str, event: Signature) -> None:
    (chosen,) = [candidate for candidate in everything.functions if candidate.name == function]

    check_fits(everything.source, chosen, event)


@pytest.mark.parametrize(
    ("function", "event", "position", "reason"),
    [
        ("on_count", marker("n %ld", I64), 1, "parameter number is uint64_t, .* long, its n"),
        ("on_count", marker("n %u", U32), 1, "passes unsigned, its n"),
        ("on_count", marker("p %p", POINTER), 1, r"passes const void \*, its p"),
        ("on_count", marker(""), 1, "passes nothing for parameter number"),
        ("on_count", marker("n %lu k %s", U64, CHARS), 2, r"no parameter for the marker's k"),
        ("on_emit", marker("k %p l %zu r %f c %c", POINTER, U64, F64, I8), 1, "parameter key"),
        ("on_emit", marker("k %s l %zu r %d c %c", CHARS, U64, I32, I8), 3, "is double"),
        ("on_first", marker(""), 1, "passes nothing for parameter key"),
        ("on_first", marker("n %d", I32), 1, "parameter key is const char"),
    ],
)
def test_function_that_does_not_fit_is_refused_with_the_parameter(
    everything: Compiled, function: str, event: Signature, position: int, reason: str
) -> None:
    (chosen,) = [candidate for candidate in everything.functions if candidate.name == function]

    with pytest.raises(Mismatch, match=reason) as caught:
        check_fits(everything.source, chosen, event)

    assert caught.value.position == position
    assert caught.value.write in str(caught.value)


def test_small_arguments_may_be_taken_as_the_int_that_they_travel_as(
    build_one: Callable[..., Compiled],
) -> None:
    compiled = build_one(
        "#include <markerjit/probe.h>\nvoid f(struct mj_slot *s, int a, int b, int c, int d) {}"
    )

    check_fits(compiled.source, compiled.function, marker("%d %d %d %d", I8, U8, BOOL, U16))
    with pytest.raises(Mismatch):
        check_fits(compiled.source, compiled.function, marker("%d %d %d %d", I8, U8, BOOL, U32))


@pytest.mark.parametrize(
    "parameter",
    ["float x", "long double x", "struct { long a; } x", "__int128 x", "_Complex double x"],
)
def test_parameters_that_no_marker_passes_are_refused(
    build_one: Callable[..., Compiled], parameter: str
) -> None:
    compiled = build_one(
        f"#include <markerjit/probe.h>\nvoid f(struct mj_slot *slot, {parameter}) {{}}"
    )

    for type_, conversion in ((F32, "%f"), (F64, "%f"), (U64, "%lu")):
        with pytest.raises(Mismatch, match="parameter x is"):
            check_fits(compiled.source, compiled.function, marker(f"x {conversion}", type_))


def test_declaration_that_is_proposed_fits(build_one: Callable[..., Compiled]) -> None:
    event = marker(
        "a %d b %hd c %d d %ld e %hhu f %hu g %u h %lu i %f j %f k %p int %s slot %d %.*s",
        I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, POINTER, CHARS,
    )  # fmt: skip
    event = event._replace(format=event.format.replace(" slot %d %.*s", ""))
    proposed = declaration("f", event)

    compiled = build_one(f"#include <markerjit/probe.h>\n{proposed} {{}}")

    assert "const char *int_)" in proposed
    check_fits(compiled.source, compiled.function, event)


def test_events_can_be_fitted_too(everything: Compiled) -> None:
    (event,) = [candidate for candidate in everything.events if candidate.signature.name == "got"]
    (function,) = [candidate for candidate in everything.functions if candidate.name == "on_emit"]

    check_fits(everything.source, function, event.signature)

"""Probes in C, linked to the addresses of a target: sizes, distances, and what the target lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from markerjit.errors import MarkerError
from markerjit.probes.c.link import DoesNotLink, link_probe
from markerjit.probes.c.unit import Compiled, Linked
from tests.support.probe_host import HEAD, NOWHERE

CODE, DATA = 0x7F0000100000, 0x7F0000800000


def link(compiled: Compiled, code: int = CODE, data: int = DATA, **runtime: object) -> Linked:
    return link_probe(
        compiled, code_address=code, data_address=data, runtime=NOWHERE._replace(**runtime)
    )


def test_sizes_are_known_before_the_addresses(everything: Compiled) -> None:
    for cpus in (1, 2, 64, 4096):
        linked = link(everything, cpus=cpus)

        assert len(linked.code) == everything.sizes.code
        assert len(linked.data) + linked.bss_size == everything.sizes.whole_data(cpus)
        for variable in linked.variables:
            end = variable.place + (cpus - 1) * linked.stride + variable.words * 8
            assert DATA <= variable.place < end <= DATA + everything.sizes.whole_data(cpus)


def test_moving_a_probe_changes_addresses_and_nothing_else(everything: Compiled) -> None:
    here, far = link(everything), link(everything, CODE + 4096 * 3, DATA + 64 * 5)

    assert far.entry - here.entry == 4096 * 3
    assert {b - a for a, b in zip(_places(here), _places(far), strict=True)} == {64 * 5}
    assert len(here.code) == len(far.code)


def _places(linked: Linked) -> Iterator[int]:
    yield from (variable.place for variable in linked.variables)
    for event in linked.events:
        yield from event.words


def test_addresses_must_be_aligned(everything: Compiled) -> None:
    with pytest.raises(MarkerError, match="has to be at a multiple of 64"):
        link(everything, CODE + 8)
    with pytest.raises(MarkerError, match="the data of 64"):
        link(everything, CODE, DATA + 32)


def test_runtime_out_of_reach_is_an_error(everything: Compiled) -> None:
    with pytest.raises(DoesNotLink, match="cannot be linked"):
        link(everything, functions={"mj_record_event": 0x5500_0000_0000, "mj_fetch": CODE - 4096})


def test_what_the_target_has_not_is_named(everything: Compiled) -> None:
    with pytest.raises(MarkerError, match="needs mj_fetch, which the runtime has not"):
        link(everything, functions={"mj_record_event": CODE - 4096})
    with pytest.raises(MarkerError, match="uses mj_ns, but how long a tick takes"):
        link(everything, tick_hz=0)


def test_probe_that_needs_nothing_gets_along_with_nothing(
    build_one: Callable[..., Compiled],
) -> None:
    compiled = build_one("#include <markerjit/probe.h>\nvoid f(struct mj_slot *slot) {}")

    linked = link(compiled, functions={}, tick_hz=0)

    assert compiled.needs == frozenset()
    assert (linked.data, linked.bss_size, linked.events, linked.variables) == (b"", 0, (), ())


def test_page_aligned_variables_are_where_they_should_be(
    build_one: Callable[..., Compiled],
) -> None:
    compiled = build_one(
        "static char page[4096] __attribute__((aligned(4096)));\nstatic int one = 1;\n"
        + HEAD
        + 'mj_read(page, (void *)n, 4096); one++; mj_emit(e, "%s %d", page, one); }'
    )

    assert compiled.sizes.data_alignment == 4096
    with pytest.raises(MarkerError, match="the data of 4096"):
        link(compiled, CODE, DATA + 64)
    assert len(link(compiled).data) + link(compiled).bss_size == compiled.sizes.whole_data(64)

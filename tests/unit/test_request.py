"""Probes as values: named at the door, told apart by what they are, and never by a text."""

from __future__ import annotations

from itertools import combinations

import pytest

from markerjit.errors import BadArgument
from markerjit.patch.request import Count, InC, Record, Request
from markerjit.probes.recorders import nothing_read, probe_of
from markerjit.quiesce.strategies import STOP
from markerjit.ring.types import Options, Time

OPTIONS = Options(Time.NONE, thread_id=False)


def test_probes_are_named_at_the_door() -> None:
    assert probe_of("count", OPTIONS) == Count()
    assert probe_of("record", OPTIONS) == Record(OPTIONS)
    assert probe_of("probes/hot.c:on_get", OPTIONS) == InC("probes/hot.c", "on_get", OPTIONS)
    assert str(probe_of("probes/hot.c:on_get", OPTIONS)) == "probes/hot.c:on_get"


@pytest.mark.parametrize(
    "text", ["", "Count", "records", "hot.c", ":on_get", "hot.py:on_get", "hot.c:1", "a.c:b:c d"]
)
def test_any_other_text_is_no_probe(text: str) -> None:
    with pytest.raises(BadArgument):
        probe_of(text, OPTIONS)


def test_probes_of_different_types_are_never_equal() -> None:
    """They are keys of what was prepared: a marker that counts must not be taken for one that
    records."""
    probes = [Count(), Record(), Record(OPTIONS), InC("a.c", "f"), InC("a.c", "g")]

    for first, other in combinations(probes, 2):
        assert first != other
        assert Request(True, STOP, None, first) != Request(True, STOP, None, other)


def test_only_a_probe_in_c_is_called() -> None:
    called = InC("a.c", "f")

    assert Request(True, STOP, probe=called).calls
    assert not Request(False, STOP, probe=called).calls
    assert not Request(True, STOP, probe=Record()).calls
    assert not Request(True, STOP).calls


def test_what_nobody_reads_is_counted_while_it_is_recorded() -> None:
    assert nothing_read("record").counted
    assert not nothing_read("count").counted
    assert not Count().options.counted
    assert not InC("a.c", "f").options.counted

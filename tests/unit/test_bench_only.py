"""`markerjit bench --only FORM`: which forms and which kinds of cost a run has."""

from __future__ import annotations

import pytest

from markerjit.apps.bench import measure
from markerjit.apps.bench.active import measure as active
from markerjit.apps.bench.dormant import measure as dormant
from markerjit.apps.bench.sampling.plan import Plan
from markerjit.errors import Refused


def names_of_kinds(*only: str, kinds: tuple[str, ...] = ()) -> list[str]:
    chosen = list(measure._kinds(Plan(only=only, kinds=kinds)))
    return [name for name, kind in measure.KINDS.items() if kind in chosen]


def test_without_a_choice_the_usual_forms_are_measured() -> None:
    names = [form.name for form in dormant.asked_for(())]

    assert "5-byte no-op" in names
    assert "2-byte no-op" not in names


def test_a_form_is_measured_with_what_it_is_compared_with() -> None:
    assert [form.name for form in dormant.asked_for(["2-byte*"])] == [
        "no marker", "no marker, again", "2-byte no-op", "call",
    ]  # fmt: skip
    assert "no marker, clang" in [form.name for form in dormant.asked_for(["XRay event"])]
    assert [way.form.name for way in active.asked_for(["jump, count"])] == [
        "no marker", "no marker, again", "call", "jump, count",
    ]  # fmt: skip


def test_kinds_of_cost_without_such_a_form_are_left_out() -> None:
    assert names_of_kinds("2-byte no-op") == ["dormant"]
    assert names_of_kinds("jump, count", "jump, stop") == ["active", "toggle"]
    assert names_of_kinds("2-byte no-op", kinds=("dormant", "check")) == ["dormant", "check"]
    assert names_of_kinds() == ["dormant", "active", "toggle"]


def test_a_form_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(Refused, match="--only gdp: no form has that name; the nearest are gdb; "):
        names_of_kinds("gdb", "gdp")
    with pytest.raises(Refused, match="no form has that name"):
        names_of_kinds("gdb", kinds=("dormant",))

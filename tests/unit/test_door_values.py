"""Values of the Python door: they say in a line what they are, and check what they are asked."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit.arguments import check_text
from markerjit.questions.buckets import Histogram, Scale, Sketch
from markerjit.questions.types import Type
from markerjit.ring.brakes import Sample
from markerjit.ring.types import Time
from tests.support.made_records import make_info

SCALE = Scale(Type.U64, fine=True)
SKETCH = Sketch(SCALE, {1: 2, 3: 1})
CLOCK = markerjit.Calibration(Time.TSC, 1000, 2000, 3_000_000_000, 0)
MISSED = markerjit.Missed(0, 0, 0, 0)
ROW = markerjit.AggregateRow(("load",), SKETCH)
VALUES = {
    "<Sketch of 3 values>": SKETCH,
    "<Histogram of 1 value>": Histogram(Scale(Type.U64, fine=False), {1: 1}),
    "<Answers of 3 events by 1 key>": markerjit.Answers((ROW,), MISSED, 1, 4),
    "<CallGraph of process 7: 0 calls of 0 functions in 2.000 s, 1 lost>": markerjit.CallGraph(
        2.0, (), (), (), (), lost=1, pid=7
    ),
    "<Allocations of process 7: 0 allocations at 0 sites in 1.000 s, 0 live>": (
        markerjit.Allocations(1.0, (), 0, 0.0, 0, 0, 0, 0, 0, "", False, (), (), 0, 7, "")
    ),
    "<StackSamples of process 7: 3 stacks in 1 look, 0 missed>": markerjit.StackSamples(
        1.0, 1, 0, 3, 0, 0, (), False, 7, ""
    ),
    "<Stacks of process 7: 0 threads>": markerjit.Stacks(7, "", (), 0),
    "<Summary of 2 events of 0 markers, 1 lost>": markerjit.Summary(2, 1, None, None, ()),
    "<Overview of 0 processes ()>": markerjit.Overview((), ()),
    "<FunctionView of 0 functions: >": markerjit.FunctionView((), (), (), {}),
    "<UsdtView of 0 probes, 0 problems>": markerjit.UsdtView((), ()),
}
NOT_A_SHARE = (None, -0.1, 1.1, math.nan, math.inf, "0.5", b"x", [], True, 1 << 70)
NOT_A_NUMBER = (None, -1, 3.5, math.nan, "1", b"x", [], True, 1 << 70, 10**5000)


@pytest.mark.parametrize("line", VALUES)
def test_a_value_says_in_a_line_what_it_is(line: str) -> None:
    assert repr(VALUES[line]) == line


def refused(call: Callable[[Any], object], values: tuple[object, ...]) -> None:
    for value in values:
        with pytest.raises(markerjit.BadArgument) as error:
            call(value)
        assert str(error.value).isprintable()


def test_a_quantile_is_of_a_share() -> None:
    row = markerjit.LatencyRow((), SKETCH, 0, 0)

    refused(SKETCH.quantile, NOT_A_SHARE)
    refused(row.quantile, NOT_A_SHARE)
    assert [SKETCH.quantile(share) for share in (0, 0.5, 1, 1.0)] == [1, 1, 3, 3]


def test_a_sample_is_made_of_a_text_and_halved_by_a_number() -> None:
    refused(Sample.of, (None, 1, 0.5, b"1/2", "x", "2/1", "0/1", []))
    refused(Sample(1, 2).halved, NOT_A_NUMBER)
    assert Sample.of("1/2").halved(3) == Sample(1, 16)


def test_a_trace_and_a_template_check_what_they_are_given(tmp_path: Path) -> None:
    path = str(tmp_path / "trace.txt")
    markerjit.open_sink(path, make_info(clock=CLOCK)).close({})
    trace = markerjit.open_trace(path)

    refused(trace.time_of_day, (None, 3.5, math.nan, "1", b"x", [], True, 1 << 70))
    refused(markerjit.LineTemplate("{name}").check, (None, 1, "x", b"x", [None], {1: 2}))
    assert trace.time_of_day(0).count(":") == 2


@pytest.mark.parametrize("names", [["kv_hit", "kv_miss"], ("kv_hit",), {"kv_hit"}])
def test_a_list_of_names_is_told_how_several_are_written(names: object) -> None:
    with pytest.raises(markerjit.BadArgument, match="one str, with commas between several names"):
        check_text("pattern", names)

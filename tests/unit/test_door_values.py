"""Values of the Python door: they say in a line what they are, and check what they are asked."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit.arguments import check_text
from markerjit.proc.owner import Owner
from markerjit.ring.brakes import Sample
from markerjit.tuples import MOST_SHOWN
from tests.support.made_records import make_info
from tests.support.made_traces import EVENTS, make_batch
from tests.support.made_traces import make_info as make_info_of_all
from tests.support.nonsense import (
    CLOCK,
    HISTOGRAM,
    LATENCIES,
    MISSED,
    ROW,
    SKETCH,
    complaints,
    of_values,
)

OWNER = Owner(7, 0, 0)
VALUES = {
    "<Latencies of 3 pairs, the longest 3 ns>": LATENCIES,
    "<Table of 2 rows: NAME, AT>": markerjit.Table(({"NAME": "a", "AT": "1"},) * 2),
    "<Plan on: kv_hit: 0 edits, 0 changes>": markerjit.Plan("on: kv_hit", ()),
    "<ArenaStatus of the runtime of process 7, with a flight recorder>": (
        markerjit.ArenaStatus(OWNER, 1, 2, None, None, False, True)
    ),
    "<Batch of 1 record (query_start 1)>": make_batch(make_info_of_all(), EVENTS[:1]),
    "<Sketch of 3 values>": SKETCH,
    "<Histogram of 1 value>": HISTOGRAM,
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


OF_A_PROCESS = {"Columns", "MarkerStatus", "Site"}
"""Values with a line of their own that only a process or a trace has (test_python_door.py)."""
SMALL = {
    "Bucket", "Calibration", "Cut", "Ending", "Failed", "Field", "Frame", "FunctionExit", "LeftOut",
    "Missed", "Refusal", "Sample", "Statistics", "Targets", "Waits",
}  # fmt: skip
"""Values of numbers, and of a name or a sentence."""
WITH_DATA = {
    "Event": "its fields are what was asked for",
    "PairEnd": "so are those of an end",
}
"""Values that show all that is in them, and why."""


def test_every_value_is_a_line_of_200_characters_at_most() -> None:
    """With what a value may have: names, numbers, and much of the rest."""
    much = ("a/long/path/of/some/file\n" * 10,) * 100
    in_table = {type(value).__name__ for value in VALUES.values()}
    shown = {}
    for name in markerjit.__all__:
        kind = getattr(markerjit, name)
        is_value = isinstance(kind, type) and issubclass(kind, tuple)
        if is_value and name not in in_table | OF_A_PROCESS | WITH_DATA.keys():
            fields = kind._fields
            numbers = repr(kind._make([1 << 40] * len(fields)))
            filled = "" if name in SMALL else repr(kind._make([much] * len(fields)))
            shown[name] = max(numbers, filled, key=len)
    long = {name: text for name, text in shown.items() if len(text) > MOST_SHOWN or "\n" in text}

    assert len(shown) > 30
    assert long == {}
    assert not SMALL - shown.keys()


def test_methods_of_values_refuse_nonsense_or_work(tmp_path: Path) -> None:
    wrong = []
    for name, (function, given) in of_values(tmp_path).items():
        function(**given)
        for argument in given:
            wrong += complaints(name, function, given, argument)
    assert wrong == []


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

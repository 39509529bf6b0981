"""Nonsense for arguments of public functions, and the public functions that need no process."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import markerjit
from markerjit.questions.buckets import Histogram, Scale, Sketch
from markerjit.questions.types import Type
from markerjit.ring.brakes import Sample
from markerjit.ring.types import Time
from tests.support.made_records import make_info
from tests.support.made_traces import EVENTS, make_batch
from tests.support.made_traces import make_info as make_info_of_all

NONSENSE = (
    None, -1, 0, 1 << 70, 10**5000, 0.25, math.nan, math.inf, True, "", "x\0y", "nothing*",
    "\x1b[31m\n", "func:\ud800", "func:" + "x" * 300, b"", b"x", [], [None], [[]], (), {}, {1: 2},
    object(), int, Path("x\0y"), Exception("x" * 1000),
)  # fmt: skip
OF_THE_CALLER = {"request", "known"}
"""Functions that are the caller's: once they can be called, so are their errors."""
CLOCK = markerjit.Calibration(Time.TSC, 1000, 2000, 3_000_000_000, 0)
SKETCH = Sketch(Scale(Type.U64, fine=True), {1: 2, 3: 1})
HISTOGRAM = Histogram(Scale(Type.U64, fine=False), {1: 1})
MISSED = markerjit.Missed(0, 0, 0, 0)
STACK = markerjit.WalkedStack((markerjit.Frame(1, "/bin/x", 1, "leaf", 0),), markerjit.StackEnd(""))
ROW = markerjit.AggregateRow(("load", STACK), 3)
PAIRS = markerjit.LatencyRow((STACK,), SKETCH, 5, 3)
LATENCIES = markerjit.Latencies(SKETCH, 5, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, rows=(PAIRS,))

Table = Mapping[str, tuple[Callable[..., Any], Mapping[str, Any]]]
"""Functions by their names, and arguments with which they work or would."""


def of_values(folder: Path) -> Table:
    """The methods of values, and of what is read from a file."""
    path = str(folder / "values.txt")
    markerjit.open_sink(path, make_info(clock=CLOCK), force=True).close({})
    trace = markerjit.open_trace(path)
    batch = make_batch(make_info_of_all(), EVENTS[:3])
    template = markerjit.LineTemplate("{time} {name}")
    answers = markerjit.Answers((ROW,), MISSED, 1, 4)
    graph = markerjit.CallGraph(2.0, (), (), (), (), lost=1, pid=7)
    lines = {"columns": batch.columns, "clock": CLOCK, "pids": None, "sources": None}
    stack = markerjit.StackText
    return {
        "Answers.plus": (answers.plus, {"other": answers}),
        "Answers.stacks": (answers.stacks, {"title": "t"}),
        "Batch.first": (batch.first, {"count": 1}),
        "Calibration.monotonic": (CLOCK.monotonic, {"counter": 5}),
        "CallGraph.callees": (graph.callees, {"name": "f"}),
        "CallGraph.callers": (graph.callers, {"name": "f"}),
        "Histogram.plus": (HISTOGRAM.plus, {"other": HISTOGRAM}),
        "Latencies.plus": (LATENCIES.plus, {"other": LATENCIES}),
        "Latencies.quantile": (LATENCIES.quantile, {"fraction": 0.5}),
        "Latencies.stacks": (LATENCIES.stacks, {"title": "t"}),
        "LatencyRow.plus": (PAIRS.plus, {"other": PAIRS}),
        "LatencyRow.quantile": (PAIRS.quantile, {"fraction": 0.5}),
        "LineTemplate.check": (template.check, {"types": make_info(clock=CLOCK).types}),
        "LineTemplate.lines": (template.lines, lines),
        "LineTemplate.of_columns": (markerjit.LineTemplate.of_columns, {"names": ["time"]}),
        "Sample.halved": (Sample(1, 2).halved, {"times": 1}),
        "Sample.of": (Sample.of, {"text": "1/2"}),
        "Sketch.plus": (SKETCH.plus, {"other": SKETCH}),
        "Sketch.quantile": (SKETCH.quantile, {"fraction": 0.5}),
        "StackText.of": (stack.of, {"frames": (), "end": ""}),
        "StackText.of_document": (stack.of_document, {"document": {"frames": [], "end": ""}}),
        "StackText.of_labels": (stack.of_labels, {"text": "a < b"}),
        "Trace.complain": (trace.complain, {"problem": "a problem"}),
        "Trace.formatter": (trace.formatter, {"json": False}),
        "Trace.time_of_day": (trace.time_of_day, {"time": 1}),
    }  # fmt: skip


def complaints(
    name: str,
    function: Callable[..., Any],
    given: Mapping[str, Any],
    argument: str,
    values: Sequence[object] = NONSENSE,
) -> Iterator[str]:
    """What is wrong with how a function answers nonsense in place of one of its arguments: an error
    of another kind than the house's, or one without a message."""
    for value in values:
        if argument in OF_THE_CALLER and callable(value):
            continue
        try:
            call(function, {**given, argument: value})
        except markerjit.MarkerError as error:
            message = str(error)
            if not message.isprintable() or len(message) > 500:
                yield f"{name}({argument}={_shown(value)}): {message!r:.100}"
        except Exception as error:
            yield f"{name}({argument}={_shown(value)}): {error!r:.200}"


def call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """And enter, go through, or close what comes of it."""
    with ExitStack() as stack:
        made = function(**arguments)
        if hasattr(made, "__enter__"):
            stack.enter_context(made)
        elif inspect.isgenerator(made):
            next(made, None)
        elif hasattr(made, "close") and "lost" in inspect.signature(made.close).parameters:
            made.close({})


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every function of `markerjit`, every class, and every method that a class has of ours, with
    the names that a user gives them."""
    for name in markerjit.__all__:
        owner = getattr(markerjit, name)
        if callable(owner):
            yield name, owner
        if isinstance(owner, type):
            for method, function in inspect.getmembers(owner, callable):
                module = getattr(getattr(function, "__func__", function), "__module__", None) or ""
                if not method.startswith("_") and module.startswith("markerjit"):
                    yield f"{name}.{method}", function


def _shown(value: object) -> str:
    try:
        return repr(value)[:40]
    except ValueError:  # repr takes no number of thousands of digits
        return f"a {type(value).__name__}"

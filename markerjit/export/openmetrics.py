"""Series as text in the format OpenMetrics 1.0, which Prometheus reads.

What this does not do: count anything, or know a process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from markerjit.export.series import Exemplar, Series
from markerjit.tuples import NamedTuple

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_OWN = ("pid", "program", "marker", "le")


class Marker(NamedTuple):
    """A marker of a process now. The rate is None until it is known."""

    pid: int
    program: str
    name: str
    hits: int
    lost: int
    per_second: float | None


def render(markers: Sequence[Marker], series: Series | None) -> str:
    """All of it."""
    programs = {marker.pid: marker.program for marker in markers}
    lines = [
        *_family("markerjit_hits", "counter", "Executions of a marker that were counted"),
        *(_line("markerjit_hits_total", _labels(marker), marker.hits) for marker in markers),
        *_family("markerjit_lost", "counter", "Events that found their ring full"),
        *(_line("markerjit_lost_total", _labels(marker), marker.lost) for marker in markers),
        *_family("markerjit_hits_per_second", "gauge", "The rate over the last second"),
        *(
            _line("markerjit_hits_per_second", _labels(marker), round(marker.per_second, 3))
            for marker in markers
            if marker.per_second is not None
        ),
    ]
    if series is not None:
        lines += _of_series(series, programs)
    return "\n".join([*lines, "# EOF", ""])


def _of_series(series: Series, programs: Mapping[int, str]) -> Iterator[str]:
    label = label_of(series.by) if series.by is not None else ""

    def labels(pid: int, marker: str, value: str | None) -> dict[str, str]:
        own = {"pid": str(pid), "program": programs.get(pid, ""), "marker": marker}
        return own if value is None else {**own, label: value}

    yield from _family("markerjit_events", "counter", "Events that were recorded and read")
    for key, count in series.counts.items():
        yield _line("markerjit_events_total", labels(*key), count)
    words = "Events of values that have no series of their own"
    yield from _family("markerjit_events_without_series", "counter", words)
    yield _line("markerjit_events_without_series_total", {}, series.without_series)
    if series.histogram is None:
        return
    name = f"markerjit_field_{label_of(series.histogram)}"
    yield from _family(name, "histogram", f"The field {series.histogram} of events")
    for key, histogram in series.histograms.items():
        of_series = labels(*key)
        for bound, count, exemplar in histogram.buckets():
            le = {**of_series, "le": _number(bound)}
            yield _line(f"{name}_bucket", le, count) + _exemplar(exemplar)
        if not histogram.has_negative:
            yield _line(f"{name}_count", of_series, histogram.count)
            yield _line(f"{name}_sum", of_series, histogram.sum)


def label_of(field: str) -> str:
    """A field's name as that of a label, apart from those of ours."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", field)
    return f"field_{name}" if name in _OWN or name[:1].isdigit() or name[:2] == "__" else name


def _labels(marker: Marker) -> dict[str, str]:
    return {"pid": str(marker.pid), "program": marker.program, "marker": marker.name}


def _family(name: str, kind: str, words: str) -> Iterable[str]:
    return (f"# TYPE {name} {kind}", f"# HELP {name} {_escaped(words)}.")


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    listed = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{listed}}} {_number(value)}" if listed else f"{name} {_number(value)}"


def _exemplar(exemplar: Exemplar | None) -> str:
    if exemplar is None:
        return ""
    labels = f'{{tid="{exemplar.tid}",cpu="{exemplar.cpu}"}}'
    return f" # {labels} {_number(exemplar.value)} {exemplar.when_s:.6f}"


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _escaped(text: str) -> str:
    whole = text.encode("utf-8", "backslashreplace").decode()
    return whole.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

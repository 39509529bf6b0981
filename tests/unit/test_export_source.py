"""How often the markers of an exporter are looked at."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest

from markerjit.export import source
from markerjit.export.openmetrics import Marker
from markerjit.export.source import Source


class Clock:
    """Seconds, which go on when they are asked to."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(("look_s", "every_s"), [(0.0, 1.0), (0.01, 1.0), (0.5, 5.0)])
def test_looks_take_a_tenth_of_the_time_at_most(
    look_s: float, every_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, looks = Clock(), []
    monkeypatch.setattr(source, "time", clock)

    def look(self: Source) -> list[Marker]:
        looks.append(clock.now)
        clock.now += look_s
        return [Marker(7, "program", "kv_hit", int(100 * clock.now), 0, None)]

    monkeypatch.setattr(Source, "markers", look)
    exported = Source(SimpleNamespace(sessions={}, streams={}), "*", None, 0)  # type: ignore[arg-type]
    until = clock.now + 30
    while clock.now < until:
        exported.update_rates()
        clock.now += 0.01

    between = [later - before for before, later in pairwise(looks)]
    assert between == pytest.approx([every_s] * len(between), abs=0.02)
    assert len(between) >= 5
    assert exported._rates[7, "kv_hit"] == pytest.approx(100, rel=0.02)

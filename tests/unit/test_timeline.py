"""The time stamp counter as CLOCK_MONOTONIC: with clocks that the test moves, and that drift."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.ring.clock import NS, Calibration
from markerjit.ring.timeline import Timeline
from markerjit.ring.types import Time

START_NS = 60 * NS
WALL_NS = 1_700_000_000 * NS
MS = 1_000_000


class Clocks:
    """Time passes when a test says so, or sleeps; the counter runs at its own rate, which changes
    when the kernel is told by NTP to be slower."""

    def __init__(self, hz: int = 3 * NS) -> None:
        self.now_ns = START_NS
        self.counter = 7_000_000
        self.hz = hz
        self.slept: list[float] = []

    def read(self) -> tuple[int, int]:
        return self.counter, self.now_ns

    def pass_ns(self, nanoseconds: int) -> None:
        self.now_ns += nanoseconds
        self.counter += nanoseconds * self.hz // NS

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.pass_ns(round(seconds * NS))


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def timeline(clocks: Clocks) -> Timeline:
    return Timeline(clocks.read, WALL_NS)


def test_a_counter_is_translated_by_two_readings(clocks: Clocks, timeline: Timeline) -> None:
    clocks.pass_ns(100 * MS)

    assert timeline.update() == clocks.counter
    line = timeline.line(clocks.sleep)

    assert (line.time, line.wall_offset_ns) == (Time.TSC, WALL_NS)
    assert line.monotonic(clocks.counter) == clocks.now_ns
    assert line.monotonic(clocks.counter - 3 * 500) == clocks.now_ns - 500
    assert line.monotonic(clocks.counter + 3 * 500) == clocks.now_ns + 500
    assert clocks.slept == []


def test_counters_from_long_before_and_long_after_are_exact(
    clocks: Clocks, timeline: Timeline
) -> None:
    clocks.pass_ns(100 * MS)
    timeline.update()
    line = timeline.line(clocks.sleep)

    for distance in (-30 * NS, 86_400 * NS):
        assert line.monotonic(clocks.counter + 3 * distance) == clocks.now_ns + distance


@pytest.mark.parametrize(("passed_ms", "slept"), [(0, 0.05), (20, 0.03), (49, 0.001)])
def test_two_readings_that_are_too_close_are_taken_apart(
    clocks: Clocks, timeline: Timeline, passed_ms: int, slept: float
) -> None:
    clocks.pass_ns(passed_ms * MS)
    timeline.update()

    line = timeline.line(clocks.sleep)

    assert clocks.slept == [slept]
    assert line.monotonic(clocks.counter) == clocks.now_ns
    assert timeline.line(clocks.sleep) == line
    assert clocks.slept == [slept]


def test_a_line_stays_for_a_second(clocks: Clocks, timeline: Timeline) -> None:
    clocks.pass_ns(100 * MS)
    timeline.update()
    first = timeline.line(clocks.sleep)
    clocks.pass_ns(900 * MS)
    timeline.update()
    assert timeline.line(clocks.sleep) is first
    clocks.pass_ns(200 * MS)
    timeline.update()

    second = timeline.line(clocks.sleep)

    assert second is not first
    assert second.counter == clocks.counter


@pytest.mark.parametrize("drift_ppm", [-500, -20, 20, 500])
def test_a_drifting_clock_is_met_again_within_a_microsecond_or_so(
    clocks: Clocks, timeline: Timeline, drift_ppm: int
) -> None:
    """A rate that was measured from the beginning on follows one that changes, slowly."""
    clocks.pass_ns(10 * NS)
    timeline.update()
    timeline.line(clocks.sleep)
    clocks.hz += clocks.hz * drift_ppm // 1_000_000
    worst = 0
    for _ in range(30):
        clocks.pass_ns(NS)
        timeline.update()
        line = timeline.line(clocks.sleep)
        worst = max(worst, abs(line.monotonic(clocks.counter) - clocks.now_ns))

    assert worst < abs(drift_ppm) * 2000  # of what a second drifts, and what comes after it
    assert abs(line.monotonic(clocks.counter) - clocks.now_ns) < abs(drift_ppm) * 1000


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3 * NS), st.integers(-2000, 2000)), min_size=2, max_size=30
    ),
    hz=st.sampled_from([1_000_000, NS, 2_899_999_999, 5 * NS]),
)
def test_times_never_go_backwards_whatever_the_clocks_do(
    steps: list[tuple[int, int]], hz: int
) -> None:
    """Events that are told apart by their counters are so by their times, through new lines too."""
    clocks = Clocks(hz)
    timeline = Timeline(clocks.read, WALL_NS)
    last = -1
    for nanoseconds, drift_ppm in steps:
        clocks.hz = hz + hz * drift_ppm // 1_000_000
        before = clocks.counter
        clocks.pass_ns(nanoseconds)
        timeline.update()
        line = timeline.line(clocks.sleep)
        for counter in (before, (before + clocks.counter) // 2, clocks.counter):
            now = line.monotonic(counter)
            assert now >= last or counter < line.counter
            last = max(now, last)


def test_a_counter_that_stands_still_is_no_harm(clocks: Clocks, timeline: Timeline) -> None:
    clocks.hz = 0
    clocks.pass_ns(NS)
    timeline.update()

    assert timeline.line(clocks.sleep).frequency_hz == 1


@pytest.mark.parametrize("ahead_s", [1, 3600, -1, -9])
def test_after_a_sleep_of_the_machine_times_are_right_again(
    clocks: Clocks, timeline: Timeline, ahead_s: int
) -> None:
    """CLOCK_MONOTONIC stands still then; the counter may go on, or begin at 0 again."""
    for _ in range(10):
        clocks.pass_ns(NS)
        timeline.update()
        timeline.line(clocks.sleep)

    clocks.counter += ahead_s * clocks.hz

    for _ in range(5):
        clocks.pass_ns(NS + MS)
        timeline.update()
        line = timeline.line(clocks.sleep)
        assert line.frequency_hz == clocks.hz
        assert line.monotonic(clocks.counter) == clocks.now_ns


@pytest.mark.parametrize("time", [Time.MONOTONIC, Time.COARSE])
def test_what_is_nanoseconds_already_is_not_translated(time: Time) -> None:
    assert Calibration(time, 5, 6, 7, 8).monotonic(1234) == 1234

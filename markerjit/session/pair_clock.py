"""The clock by which the runtime measures from one event to another, without a reader: latencies,
and the lifetimes of blocks."""

from __future__ import annotations

from time import monotonic_ns, sleep, time_ns

from markerjit.arena.aggregates import Ticks
from markerjit.arena.arena import Arena
from markerjit.errors import Refused
from markerjit.remote.native import clock_pair
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.counter import time_to_use
from markerjit.ring.timeline import Timeline
from markerjit.ring.types import Time
from markerjit.session.clock import EarlyClock


def clock_of_pairs(clock: EarlyClock) -> Calibration:
    """The time stamp counter where it is trusted, else CLOCK_MONOTONIC. May wait for the clocks to
    move."""
    wall_offset_ns = time_ns() - monotonic_ns()
    if time_to_use(None) is not Time.TSC:
        return Calibration(Time.MONOTONIC, 0, 0, NS, wall_offset_ns)
    return Timeline(clock_pair, wall_offset_ns, clock.pair()).line(sleep)


def check_clock(arena: Arena, clock: Calibration) -> None:
    """Raise Refused where the runtime cannot read this clock."""
    if clock.time is Time.MONOTONIC and not arena.facts.clock:
        raise Refused(
            f"process {arena.pid} has no vDSO that we know, so its clock would take a system call "
            "for each event, and this machine's kernel does not trust the time stamp counter; "
            f"markerjit trace {arena.pid} --time monotonic has the times of events"
        )


def ticks_of(clock: Calibration, forget_s: float = 0.0) -> Ticks:
    """The clock for the runtime."""
    frequency = clock.frequency_hz
    return Ticks((NS << 32) // frequency, int(forget_s * frequency))

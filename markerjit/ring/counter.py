"""Whether the time stamp counter can tell the time of events."""

from __future__ import annotations

from markerjit.errors import BadArgument, refuse_own_shortage
from markerjit.ring.types import Time

SOURCES = "/sys/devices/system/clocksource/clocksource0/available_clocksource"
CURRENT = "/sys/devices/system/clocksource/clocksource0/current_clocksource"

_SLOW = {"acpi_pm", "hpet", "jiffies", "pit", "refined-jiffies"}
"""Sources that no vDSO reads: clock_gettime makes a system call (arch/x86/include/asm/vdso)."""


def is_trusted(sources: str) -> bool:
    """Whether it counts at one rate on all CPUs, by the contents of SOURCES: the kernel has looked,
    and offers the counter as a clock source as long as nothing speaks against that
    (Documentation/timers/timekeeping.rst). Where it cannot be asked it is trusted."""
    return not sources or "tsc" in sources.split()


def time_to_use(wanted: Time | str | None) -> Time:
    """The time that is wanted; without a wish the counter; where it is none the system's clock, or
    if that takes a system call, its coarse one. Raises BadArgument for a name that is
    none, MarkerError when we have no descriptor to look with."""
    if wanted is not None:
        try:
            return Time(wanted)
        except ValueError:
            names = ", ".join(f'"{one}"' for one in Time)
            raise BadArgument("time", wanted, f"one of {names}") from None
    if is_trusted(_read(SOURCES)):
        return Time.TSC
    return Time.COARSE if _read(CURRENT).strip() in _SLOW else Time.MONOTONIC


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except OSError as error:
        refuse_own_shortage(error)
        return ""

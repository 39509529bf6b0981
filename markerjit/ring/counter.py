"""The choice of the clock for events: whether the time stamp counter can be trusted."""

from __future__ import annotations

from markerjit.errors import BadArgument, refuse_own_shortage
from markerjit.ring.types import Time

SOURCES = "/sys/devices/system/clocksource/clocksource0/available_clocksource"
CURRENT = "/sys/devices/system/clocksource/clocksource0/current_clocksource"

_SLOW = {"acpi_pm", "hpet", "jiffies", "pit", "refined-jiffies"}
"""Clock sources that need a system call for clock_gettime (arch/x86/include/asm/vdso)."""


def is_trusted(sources: str) -> bool:
    """Whether the counter advances at one rate on all CPUs, by the contents of SOURCES.

    The kernel checks that, and offers the counter as a clock source while it holds
    (Documentation/timers/timekeeping.rst). Without SOURCES the counter is trusted.
    """
    return not sources or "tsc" in sources.split()


def time_to_use(name: Time | str | None) -> Time:
    """The time of this name, or the best one of this machine if `name` is None.

    That is the counter if it is trusted, otherwise the system's clock, or its coarse clock where
    reading the clock takes a system call. Raises BadArgument for an unknown name, and MarkerError
    when no descriptor is free.
    """
    if name is not None:
        try:
            return Time(name)
        except ValueError:
            names = ", ".join(f'"{time}"' for time in Time)
            raise BadArgument("time", name, f"one of {names}") from None
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

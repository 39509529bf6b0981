"""Probes in C, as a session sees them: put into the arena before markers call them, and waited for
after. Their calls are counted, so it is known whether a thread is inside.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from time import monotonic, sleep
from typing import Protocol

from markerjit.abi import PROBE_COUNTED
from markerjit.errors import Refused
from markerjit.model import RemoteAddress, Site
from markerjit.patch.plan import by_slot
from markerjit.patch.request import InC, Request
from markerjit.probes.c.unit import Compiled
from markerjit.probes.inside import is_inside
from markerjit.probes.recorders import Recorders
from markerjit.proc.barrier import barrier
from markerjit.remote.native import tsc_frequency
from markerjit.ring.counter import time_to_use
from markerjit.ring.types import Time
from markerjit.session.target import Target
from markerjit.session.turn import Turn
from markerjit.sites import Lots

_GRACE_S = 5
_TICKS = "mj_link_tick_ns"


class Arenas(Protocol):
    """The part of a Switcher that is needed here. (It waits for probes in C itself, so that this
    module cannot know it.)"""

    def need_arena(self, turn: Turn, sites: Sequence[Site], request: Request) -> Recorders:
        """The recorders of the process, which gets the runtime if need be."""


def load_probe(
    turn: Turn, switcher: Arenas, sites: Sequence[Site], request: Request, compiled: Compiled
) -> None:
    """Have a probe in C in the arena, if it fits all these markers. Raises Refused."""
    from markerjit.probes.c.fits import check_fits

    for site in sites:
        if site.body.idle:
            raise Refused(
                f"{site.marker} ({site.source}) is compiled as sentinel: such a site calls "
                "what its slot holds as it is, and cannot say when a thread is in a probe in C"
            )
        if isinstance(request.probe, InC) and not request.probe.replaces:
            check_fits(compiled.source, compiled.function, site.signature)
    if compiled.events and time_to_use(None) is not Time.TSC:
        raise Refused(
            "events of a probe in C have the time of the time stamp counter, which this "
            "machine's kernel does not trust"
        )
    recorders = switcher.need_arena(turn, sites, request)
    tick_hz = tsc_frequency() if _TICKS in compiled.needs else 0
    assert isinstance(request.probe, InC)
    slots = [site.slot for site in by_slot(turn.seen.sites)]
    read = turn.target.memory.read

    def mentioned(ranges: Sequence[tuple[int, int]]) -> list[bool]:
        from markerjit.remote.references import mentioned

        if turn.target.own:  # whose threads we cannot stop
            return [True] * len(ranges)
        return mentioned(turn.native_target(), ranges)

    recorders.load(
        request.probe, compiled, tick_hz=tick_hz, read=read, slots=slots, mentioned=mentioned
    )


def may_be_entered(target: Target, sites: Sequence[Site]) -> set[RemoteAddress]:
    """Slots that hold a probe in C, whose calls are counted."""
    if not has_probes_in_c(target):
        return set()
    states = target.states(Lots(lot for lot in Lots.of(sites).lots if lot.first.slot))
    return {state.site.slot for state in states if state.probe & PROBE_COUNTED}


def has_probes_in_c(target: Target) -> bool:
    """Whether one was ever put into the process."""
    arena = target.seen.arena
    return bool(arena and arena.control.now().data_used)


def wait_until_left(target: Target, slots: set[RemoteAddress]) -> None:
    """A grace period for probes in C. Their code stays while a thread is inside, so a thread
    that does not come back does no harm. But a reader of the probe's counts or events would miss
    what that thread adds. Raises Refused."""
    arena = target.seen.arena
    if not slots or arena is None:
        return
    # Another process was stopped when these slots were emptied.
    if target.pid == os.getpid() and not barrier(target.pid):
        raise Refused("switched off, but the kernel does not say whether a thread is in its probe")
    deadline = monotonic() + _GRACE_S
    while is_inside(arena, target.memory.read, slots):
        if monotonic() > deadline:
            raise Refused("switched off, but a thread is still in its probe, and does not leave it")
        sleep(0.001)

"""A session: attached to a process, looking at its markers and switching them.

    with markerjit.attach(pid) as session, session.trace("kv_*") as events:
        for event in events:
            print(event.name, event.fields)

A session stops nobody until something is switched. Its methods either do all that they say or raise
a MarkerError and leave the target as it was. Not thread-safe; and where the target is our own
child, nobody in this process should wait for it while it is being stopped: to wait(2) a stop for us
looks like a change of the child.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from markerjit.elf import parse_format
from markerjit.errors import MarkerError, NoSuchProcess, NotPermitted, Refused, TargetGone
from markerjit.model import Mode, Site
from markerjit.patch.apply import Applied
from markerjit.patch.arena import Arena
from markerjit.patch.inject import DEFAULT_RING_SIZE
from markerjit.patch.lease import Lease
from markerjit.patch.plan import Plan
from markerjit.patch.wanted import COUNT, RECORD, Wanted
from markerjit.quiesce.strategy import default_strategy
from markerjit.stream import Decoder, EventStream
from markerjit.switching import Switching

__all__ = ["COUNT", "RECORD", "Session", "attach"]

_TRY_AGAIN_S = 30


def attach(pid: int | None = None, *, ring_size: int = DEFAULT_RING_SIZE) -> Session:
    """Open a session with a process; without a pid with this one.

    `ring_size` is the bytes of records for each CPU, a power of two; it is used when the process
    has no arena yet. Raises NoSuchProcess, NotPermitted, Unsupported, NoMarkers.
    """
    return Session(os.getpid() if pid is None else pid, ring_size=ring_size)


class Session(Switching):
    """A view that can also switch markers and trace them. See the module.

    `quiesce` is the name of a strategy (markerjit.quiesce.strategy): "stop", the default for
    another process; "membarrier", the default for this one; "signals", "none".
    """

    def plan(
        self,
        pattern: str,
        *,
        on: bool = True,
        mode: Mode | None = None,
        probe: str = COUNT,
        quiesce: str | None = None,
    ) -> Plan:
        """What `enable` or `disable` would write now. Raises Refused with the reason.

        Where the runtime is not in the target yet, its addresses are missing in the plan.
        """
        wanted = Wanted(on, self._strategy(quiesce), mode, probe)
        return self._plan(self.sites(pattern), wanted)

    def enable(
        self,
        pattern: str,
        *,
        mode: Mode | None = None,
        probe: str = COUNT,
        quiesce: str | None = None,
    ) -> Applied:
        """Switch markers on: all that match, at all their sites, in one transaction, or none.

        `probe` is "count" or "record" (use `trace` to read what that records). Raises
        UnknownMarker, Refused, UnexpectedBytes, NotPermitted, TargetGone.
        """
        wanted = Wanted(True, self._strategy(quiesce), mode, probe)
        with self._alone():
            return self._switch_again(pattern, wanted)

    def disable(self, pattern: str, *, quiesce: str | None = None) -> Applied:
        """Switch markers off, with the same promises and errors as `enable`."""
        wanted = Wanted(False, self._strategy(quiesce))
        with self._alone():
            return self._switch_again(pattern, wanted)

    @contextmanager
    def trace(
        self,
        pattern: str,
        *,
        mode: Mode | None = None,
        poll_s: float = 0.02,
        quiesce: str | None = None,
    ) -> Iterator[EventStream]:
        """Record markers and stream the events; at the end they are off, however it ends.

        Those that were on and counting before count again. While the stream is polled it holds a
        lease of the rings; one that is not for longer than that loses its probes. Raises what
        `enable` raises, and Refused while another controller reads the rings.
        """
        wanted = Wanted(True, self._strategy(quiesce), mode, RECORD)
        with self._alone():
            sites = self._matching(pattern)
            arena = self._need_arena(sites, wanted)
            self._tell_of_markers(arena, sites)
            lease = Lease(arena)
            lease.claim()
        switched = off = False
        try:
            stream = EventStream(
                arena,
                self._decoders(arena, sites),
                alive=lambda: self._memory.alive() and self._memory.has_program(arena.base),
                renew=lease.renew,
                poll_s=poll_s,
            )
            with self._alone():
                counting = self._counting(sites)
                self._switch(sites, wanted)
                switched = True
            try:
                yield stream
            finally:
                with suppress(TargetGone, NoSuchProcess):
                    self._disable_for_sure(lease, sites, counting, pattern)
                off = True
        finally:
            with suppress(TargetGone):
                lease.release(keep=switched and not off)

    def _disable_for_sure(
        self, lease: Lease, sites: Sequence[Site], counting: dict[Mode, list[Site]], pattern: str
    ) -> None:
        """Nobody comes after us to try again, so we do, for half a minute, where that may help:
        another controller or tracer is at work, or a thread waits in the kernel."""
        deadline = time.monotonic() + _TRY_AGAIN_S
        while True:
            try:
                with self._alone():
                    if lease.is_ours():  # else the markers are somebody else's by now
                        self._switch(self._still_there(sites), self._wanted_off())
                        self._count_again(counting)
                return
            except (TargetGone, NoSuchProcess):
                raise
            except MarkerError as error:
                passing = isinstance(error, Refused) and error.try_again
                may_help = passing or isinstance(error, NotPermitted)
                if not may_help or time.monotonic() > deadline:
                    raise Refused(
                        f"{error}; STILL ON: markerjit off {self.pid} '{pattern}' ends it",
                        try_again=may_help,
                    ) from None
            time.sleep(0.05)

    def _wanted_off(self) -> Wanted:
        return Wanted(False, default_strategy(own=self._own))

    def _still_there(self, sites: Sequence[Site]) -> list[Site]:
        """Objects may have been unloaded since."""
        known = set(self._objects.sites)
        return [site for site in sites if site in known]

    def _counting(self, sites: Sequence[Site]) -> dict[Mode, list[Site]]:
        """Sites that are on and only count: somebody left them so, and finds them so again."""
        found: dict[Mode, list[Site]] = {}
        for state in self.states(sites):
            if state.mode and self._arena and state.probe == self._arena.count_probe:
                found.setdefault(state.mode, []).append(state.site)
        return found

    def _count_again(self, counting: dict[Mode, list[Site]]) -> None:
        for mode, sites in counting.items():
            wanted = Wanted(True, default_strategy(own=self._own), mode, COUNT)
            self._switch(self._still_there(sites), wanted)

    def _decoders(self, arena: Arena, sites: Sequence[Site]) -> dict[int, Decoder]:
        decoders = {}
        for site in sites:
            marker = self._find_marker(arena, site)
            if marker is not None:
                fields = parse_format(site.note.format, site.note.args)
                decoders[marker] = Decoder(site.marker, site.note.args, fields)
        return decoders

"""The door by which sites are switched: a session with another process, or the program itself. Each
switch is timed where it is called."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

import markerjit
from markerjit import Applied
from markerjit.apps.bench.toggle.crowd import Crowd
from markerjit.apps.bench.toggle.program import MARKER
from markerjit.apps.bench.toggle.ways import CONTROLLER, LIBRARY, ON, Way
from markerjit.errors import MarkerError, Refused
from markerjit.tuples import NamedTuple

_MOST_TRIES = 100


class Switched(NamedTuple):
    """The times of one switch, in ns.

    call     of the function that switches
    stopped  from the first thread interrupted to the last one resumed, as the controller says
    held     the part of that while all stood
    fence    of a bare membarrier just before, where the program switches itself
    refused  how often it was refused before, because no thread could be borrowed just then
    """

    call: int
    stopped: int = 0
    held: int = 0
    fence: int = 0
    refused: int = 0


class Door(Protocol):
    """Switches all sites of a process, and knows how often they were hit while they were on."""

    def switch(self, direction: str) -> Switched:
        """On or off. Raises MarkerError."""
        ...

    def hits(self) -> int:
        """The hits of the probe so far."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


def door_for(way: Way, crowd: Crowd) -> Door:
    """The door of a way to a process. Raises MarkerError."""
    if way.door == CONTROLLER:
        return Outside(way, crowd.pid)
    return Inside(way, crowd)


class Outside:
    """An open session of this process with the other one."""

    def __init__(self, way: Way, pid: int) -> None:
        self._session = markerjit.attach(pid)
        self._on = partial(self._session.enable, MARKER, mode=way.mode, quiesce=way.quiesce)
        self._off = partial(self._session.disable, MARKER, quiesce=way.quiesce)

    def switch(self, direction: str) -> Switched:
        """On or off. Raises MarkerError."""
        switch = self._on if direction == ON else self._off
        call, took, refused = _until_it_may(switch)
        if not took.written:
            raise MarkerError(f"nothing had to be written to switch {MARKER} {direction}")
        stopped = took.stop + took.held + took.resume
        return Switched(call, stopped, took.held, refused=refused)

    def find_done(self) -> int:
        """Switch on what is on: how long that takes, in ns. Raises MarkerError."""
        start = time.perf_counter_ns()
        took = self._on()
        call = time.perf_counter_ns() - start
        if took.written:
            raise MarkerError(f"{took.written} bytes were written where {MARKER} was on already")
        return call

    def hits(self) -> int:
        """The hits of the probe so far."""
        return sum(marker.total for marker in self._session.statistics(MARKER))

    def slots(self) -> list[int]:
        """The addresses of the slots of the marker."""
        return sorted({site.slot for site in self._session.sites(MARKER)})

    def close(self) -> None:
        """End the session."""
        self._session.close()


def _until_it_may(switch: Callable[[], Applied]) -> tuple[int, Applied, int]:
    """The time of a switch that was not refused, in ns, its result, and how often it was refused
    before. Raises Refused where trying again does not help, and after too many tries."""
    refused = 0
    while True:
        start = time.perf_counter_ns()
        try:
            took = switch()
        except Refused as error:
            if not error.try_again or refused == _MOST_TRIES:
                raise
            refused += 1
        else:
            return time.perf_counter_ns() - start, took, refused


class Inside:
    """The program itself, by its library or by Python in it."""

    def __init__(self, way: Way, crowd: Crowd) -> None:
        self._crowd = crowd
        self._by_library = way.door == LIBRARY
        self._strategy = way.quiesce

    def switch(self, direction: str) -> Switched:
        """On or off. Raises MarkerError."""
        answer = self._crowd.ask(f"{direction} {self._strategy}".strip())
        first, _, rest = answer.partition(" ")
        if first == "refused":
            raise Refused(rest)
        values = {name: int(value) for name, value in (word.split("=") for word in answer.split())}
        if error := values["error"]:
            raise MarkerError(f"libmarkerjit cannot switch it {direction}: {os.strerror(error)}")
        return Switched(values["ns"], fence=values.get("fence", 0))

    def hits(self) -> int:
        """The hits of the probe so far."""
        if self._by_library:
            return self._crowd.noticed().hits
        return int(self._crowd.ask("hits").partition("=")[2])

    def close(self) -> None:
        """There is nothing to give back."""

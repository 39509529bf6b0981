"""One process and one way to switch its sites. A switch is timed from all sides, once it is certain
that it happened."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

from markerjit.apps.bench.toggle import crowd as crowds
from markerjit.apps.bench.toggle.crowd import Noticed
from markerjit.apps.bench.toggle.door import Outside, Switched, door_for
from markerjit.apps.bench.toggle.program import Program
from markerjit.apps.bench.toggle.state import State
from markerjit.apps.bench.toggle.ways import DIRECTIONS, OFF, ON, OWN, SWAP, Way
from markerjit.errors import MarkerError
from markerjit.tuples import NamedTuple

_COUNT_AT_MOST = 1000
"""With more sites the hits are not looked up after every switch, which would take half a second."""
_TRIES, _WAIT_S = 2000, 0.005


class Seen(NamedTuple):
    """A switch, and what the threads noticed from when it began to the end of the window."""

    switched: Switched
    noticed: Noticed


class Host:
    """A process with sites, at rest, whose switching was proved: see `prove`. Not for two threads.

    `first` is what its first switches took, by direction; `directory` where its program is.
    """

    def __init__(self, way: Way, program: Program, sites: int, threads: int, load: str) -> None:
        self.way = way
        self._sites = sites
        with ExitStack() as stack:
            if way.door == OWN:
                path = program.library
                self.crowd = crowds.start_inside(path, threads, load)
            else:
                path = program.program
                self.crowd = crowds.start(path, threads, load)
            stack.callback(self.crowd.close)
            self._door = door_for(way, self.crowd)
            stack.callback(self._door.close)
            self.directory = path.parent
            slots = []
            if way.protocol == SWAP and isinstance(self._door, Outside):
                slots = self._door.slots()
            self._state = State(self.crowd.pid, path, sites, slots)
            stack.callback(self._state.close)
            self.first = self.prove()
            self._stack = stack.pop_all()

    @property
    def warm_up(self) -> int:
        """Visits until switches take as long as all later ones. The first ones of a session are
        planned anew, which takes seconds with very many sites."""
        return 2 if self._sites > _COUNT_AT_MOST else 1

    def prove(self) -> dict[str, Switched]:
        """Switch on and off at rest: all sites and no other byte change, each is hit once by a way
        through all of them, and none while they are off. Raises MarkerError."""
        took = {}
        for direction in DIRECTIONS:
            took[direction] = self._door.switch(direction)
            self._state.check(direction)
            before = self._door.hits()
            walk = self.crowd.walk()
            hits = self._door.hits() - before
            expected = self._sites if direction == ON else 0
            if (walk.sites, walk.wrong, hits) != (self._sites, 0, expected):
                raise MarkerError(
                    f"{self.way.name}, {direction}: {walk.sites} sites were passed and hit {hits} "
                    f"times, not {expected}; {walk.wrong} had a wrong result"
                )
        return took

    def visit(self, window_s: float) -> dict[str, Seen]:
        """Switch on and off while the threads run. Raises MarkerError."""
        self._go()
        visits = {}
        for direction in DIRECTIONS:
            before = self._hits_if_few()
            self.crowd.clear()
            start = time.monotonic()
            switched = self._door.switch(direction)
            noticed = self._noticed_at(start + window_s)
            self._check(direction, before)
            visits[direction] = Seen(switched, noticed)
        self.crowd.rest()
        return visits

    def watch(self, window_s: float, pastime: Callable[[], object]) -> Noticed:
        """The steps that the threads notice while `pastime` runs, and nothing is switched."""
        self._go()
        self.crowd.clear()
        start = time.monotonic()
        pastime()
        noticed = self._noticed_at(start + window_s)
        self.crowd.rest()
        return noticed

    def during(self, action: Callable[[], object], direction: str = "") -> None:
        """Run `action` while the threads run. With a direction it switches the sites, which is
        checked."""
        self.crowd.go()
        before = self._hits_if_few()
        action()
        if direction:
            self._check(direction, before)
        self.crowd.rest()

    def finish(self) -> None:
        """Prove it once more, and let the program end by itself. Raises MarkerError where it or its
        code has come to harm."""
        self.prove()
        self._state.check(OFF)
        self._door.close()
        self.crowd.end()

    def close(self) -> None:
        """End the process, whatever it does."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _go(self) -> None:
        """Start the threads, and wait until one has made a step. Before that none could notice
        anything."""
        self.crowd.go()
        self.crowd.clear()
        self._noticed()

    def _noticed_at(self, when: float) -> Noticed:
        time.sleep(max(0.0, when - time.monotonic()))
        return self._noticed()

    def _noticed(self) -> Noticed:
        """The steps that the threads noticed, once one has ended. Without a CPU a step can take
        longer than any window. A step that ends while all is forgotten may be in `steps` alone, or
        in `counts`."""
        for _ in range(_TRIES):
            noticed = self.crowd.noticed()
            if noticed.wrong:
                raise MarkerError(f"{self.way.name}: {noticed.wrong} steps had a wrong result")
            if noticed.steps and noticed.counts:
                return noticed
            time.sleep(_WAIT_S)
        raise MarkerError(f"{self.way.name}: no thread made a step in {_TRIES * _WAIT_S:.0f} s")

    def _check(self, direction: str, hits_before: int | None) -> None:
        self._state.check(direction)
        if direction == ON:
            self._check_on(hits_before)
        else:
            self._check_off()

    def _hits_if_few(self) -> int | None:
        return self._door.hits() if self._sites <= _COUNT_AT_MOST else None

    def _check_on(self, before: int | None) -> None:
        """Hits arrive. Of hundreds of threads none may have had a CPU yet."""
        if before is None:
            return
        for _ in range(_TRIES):
            if self._door.hits() > before:
                return
            time.sleep(_WAIT_S)
        raise MarkerError(f"{self.way.name}: on, and no hit in {_TRIES * _WAIT_S:.0f} s")

    def _check_off(self) -> None:
        """No hits arrive any more, once those have come that were on their way: a thread each."""
        last = self._hits_if_few()
        for _ in range(_TRIES):
            time.sleep(0.0 if last is None else _WAIT_S / 10)
            now = self._hits_if_few()
            if now == last:
                return
            last = now
        raise MarkerError(f"{self.way.name}: off, and hits still arrive")

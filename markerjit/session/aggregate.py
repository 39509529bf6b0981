"""An aggregate: markers add up in the process, by key, for one reader; at its end they are off
(held.py).

The question is asked of all markers that match; those that lack a name are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from markerjit.arena.aggregates import ROOM_WITHOUT_KEY, Aggregates, Size, Words
from markerjit.errors import MarkerError
from markerjit.events.aggregates import (
    Answers,
    Totals,
    answers_of,
    since,
    totals_of,
    with_names,
    with_stacks,
    words_of,
)
from markerjit.patch.request import AddUp, Request
from markerjit.probes.recorders import Recorders
from markerjit.questions.aggregates import Asked, Does, Shape
from markerjit.questions.types import Type
from markerjit.session.asking import divide, rest_of
from markerjit.session.held import Gathering, Leg, Source, held, make
from markerjit.session.holding import refuse_added_up, take
from markerjit.session.switch import Switcher
from markerjit.session.target import Target
from markerjit.session.turn import Turn
from markerjit.sites import ProbeName
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:  # imported where a key has pointers, or stacks
    from markerjit.session.addresses import AddressNames
    from markerjit.session.walked import WalkedStacks


DEFAULT_KEYS = {Does.QUANTILES: 64}
"""Keys for which there is room: the sketch of one takes 15 KiB or more for each CPU, twice."""
USUAL_KEYS = 1024


class AddingUp(Gathering[Words]):
    """An aggregate of a process while its markers add to it, and its last sums afterwards.

    shape   what is added up, and the parts of the key
    """

    def __init__(
        self,
        source: Source[Words],
        shape: Shape,
        target: Target,
        stacks: WalkedStacks | None = None,
    ) -> None:
        """`stacks` where the key has one."""
        super().__init__(source)
        self._stacks = stacks
        self.shape = shape
        self._names: AddressNames | None = None
        if any(part.type is Type.POINTER for part in shape.key):
            from markerjit.session.addresses import AddressNames

            self._names = AddressNames(target)
        self._before: Totals | None = None

    def read(self) -> Answers:
        """All that was added up so far. It goes on."""
        return self._named(answers_of(self._totals(), self.shape, self._source.size.room))

    def take(self) -> Answers:
        """What was added up since the last `take`. The least and the largest value of an interval
        are not known: they are None."""
        now = self._totals()
        interval = since(now, self._before, self.shape)
        answers = answers_of(interval, self.shape, self._source.size.room, is_interval=True)
        self._before = now
        return self._named(answers)

    def _named(self, answers: Answers) -> Answers:
        """With the stacks of keys, and with the names of pointers, which are looked up as long as
        the process runs."""
        if self._names is not None:
            self._names.look()
            answers = with_names(answers, self.shape.key, self._names.of)
        elif any(part.is_name for part in self.shape.key):
            answers = with_names(answers, self.shape.key)
        if self._stacks is None:
            return answers
        if not self._source.is_over:
            self._stacks.look()
        stacks = self._stacks
        return with_stacks(answers, self.shape.key, stacks.of, stacks.lost)

    def _totals(self) -> Totals:
        return totals_of(self._source.copy(), self.shape)


class Job(NamedTuple):
    """A request to add up: which markers, what, how they are switched on, and for how many keys
    there is room (None: as many as usual)."""

    name: ProbeName
    asked: Asked
    on: Request
    keys: int | None


@contextmanager
def added_up(switcher: Switcher, job: Job) -> Iterator[AddingUp]:
    """The aggregate, which ends with the context. Raises what a switch raises, BadQuestion, and
    Refused where another reader holds one of the markers, or there is no room."""
    prepare = partial(_prepare, switcher=switcher, job=job)
    with ExitStack() as behind, held(switcher, prepare) as prepared:
        types = {part.type for part in prepared.shape.key}
        stacks = _stacks_of(switcher) if Type.STACK in types else None
        adding = AddingUp(prepared.source, prepared.shape, switcher.target, stacks)
        if stacks:
            stacks.look()
        if types & {Type.STACK, Type.POINTER}:
            behind.callback(_look_up, adding)  # when the markers are off
        yield adding


def _stacks_of(switcher: Switcher) -> WalkedStacks:
    from markerjit.session.walked import WalkedStacks

    return WalkedStacks(switcher)


def _look_up(adding: AddingUp) -> None:
    """At the end, as long as there is a session: find the stacks and the names of the last sums."""
    with suppress(MarkerError):
        adding.read()


class _Prepared(NamedTuple):
    """The legs of an aggregate, which there is one of, and what is read."""

    recorders: Recorders
    legs: Sequence[Leg]
    source: Source[Words]
    shape: Shape


def _prepare(turn: Turn, switcher: Switcher, job: Job) -> _Prepared:
    from markerjit.probes.adding import ask_markers

    switcher.need_stubs(turn, job.name, job.on)
    matching = turn.target.matching(job.name)
    signatures = list(dict.fromkeys(site.signature for site in matching))
    shape, markers = ask_markers(job.asked, signatures)
    left_out = divide(matching, signatures, markers).left_out
    sites = rest_of(matching, left_out)
    request = job.on._replace(probe=AddUp.of(job.asked, shape, job.on.probe.options))
    take(turn.target, switcher.recorders, job.name, request)
    recorders = switcher.need_arena(turn, sites, request)
    refuse_added_up(turn.target, recorders, sites)
    names = len({signature.name for signature in signatures})
    size = _size(shape, job.keys, names, recorders.arena.aggregates)
    legs = (Leg(job.name, sites, request),)
    aggregate = make(turn, recorders, legs, size)
    arena = recorders.arena
    source = Source(arena, aggregate, arena.aggregates.copy, turn.target.memory.alive)
    source.unswitched = tuple(left_out.values())
    return _Prepared(recorders, legs, source, shape)


def _size(shape: Shape, keys: int | None, names: int, aggregates: Aggregates) -> Size:
    """The size of an aggregate of markers with so many names, with room for so many keys (None: as
    many as usual). Where the names are in the key, usual is at least one for each of them, as long
    as there is room."""
    usual = DEFAULT_KEYS.get(shape.does, USUAL_KEYS)
    room = (keys or usual) if shape.key else ROOM_WITHOUT_KEY
    size = Size(shape.key_words, words_of(shape), room)
    if keys or names <= usual or not any(part.is_name for part in shape.key):
        return size
    of_names = size._replace(room=names)
    return of_names if aggregates.has_room(of_names) else size

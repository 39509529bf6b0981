"""The answers of an aggregate: its words, added up over CPUs and by key, as values.

The two numbers that a key may have are merged here. The words of a copy are read one after the
other while the process runs, so a row may be an event ahead of another.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import markerjit.abi as abi
from markerjit.arena.aggregates import Words
from markerjit.arguments import check_is
from markerjit.calls.samples import SampledTree, WeighedStacks
from markerjit.errors import BadArgument
from markerjit.printable import counted
from markerjit.questions.aggregates import Does, KeyPart, Shape
from markerjit.questions.buckets import Histogram, Number, Sketch
from markerjit.questions.types import Type, wrapped
from markerjit.sites.names import written_name
from markerjit.tuples import NamedTuple, brief
from markerjit.unwind.frames import WalkedStack

KeyValue = int | bool | str | WalkedStack | None
_NONE = (1 << 64) - 1
_SIGN = 1 << 63
_FLAGS = {
    Does.COUNT: 0,
    Does.SUM: abi.DOES_SUM,
    Does.AVG: abi.DOES_SUM,
    Does.MIN: abi.DOES_MIN,
    Does.MAX: abi.DOES_MAX,
    Does.STAT: abi.DOES_SUM | abi.DOES_MIN | abi.DOES_MAX,
    Does.HIST: abi.DOES_HIST,
    Does.QUANTILES: abi.DOES_QUANTILES,
}


class Statistics(NamedTuple):
    """The values of a key. `events` is how many there were. `sum`, `min` and `max` are None where
    they were not asked for."""

    events: int
    sum: Number | None = None
    min: Number | None = None
    max: Number | None = None

    @property
    def avg(self) -> float | None:
        """The mean of the values."""
        return None if self.sum is None or not self.events else self.sum / self.events


Answer = int | Statistics | Histogram | Sketch
"""Of a count, a number; of a histogram or of quantiles the buckets."""


class AggregateRow(NamedTuple):
    """A key, and what was added up for it. A text that was NULL or could not be read is None, and
    so is a stack that is not known. Where the key has pointers, or names of C++, `names` are those
    of its parts: where in the code a pointer is, such as `kv_get+0x1f`, or its number, and a
    marker's name as it was written; None of other parts."""

    key: tuple[KeyValue, ...]
    answer: Answer
    names: tuple[str | None, ...] = ()

    def __repr__(self) -> str:
        return brief(self)

    @property
    def events(self) -> int:
        """How many events had the key."""
        return events_of(self.answer)


class Missed(NamedTuple):
    """Events that were added to no key: there was no room for it, a text of it was too long, the
    value was no number (NaN), or a number of key or value could not be read from memory."""

    full: int = 0
    long: int = 0
    nan: int = 0
    unreadable: int = 0


class Answers(NamedTuple):
    """An aggregate at a moment. The events of all rows, and those that were missed, are all events
    that there were. `keys` is how many keys were seen, `room` how many there may be.
    `lost_stacks` is how many events of the process ever had no stack, for want of room: None is in
    their key."""

    rows: tuple[AggregateRow, ...]
    missed: Missed
    keys: int
    room: int
    lost_stacks: int = 0

    def __repr__(self) -> str:
        return f"<Answers of {counted(self.events, 'event')} by {counted(len(self.rows), 'key')}>"

    @property
    def events(self) -> int:
        """The events of all rows."""
        return sum(row.events for row in self.rows)

    def plus(self, other: Answers) -> Answers:
        """Merge these answers with another process's answers to the same question. Raises
        BadArgument for answers to another question: other keys, other types of values, or values
        that are added up in another way."""
        check_is("other", other, Answers)
        kinds = {_kind(row) for part in (self, other) for row in part.rows}
        if len(kinds) > 1:
            raise BadArgument("other", other, "answers to the same question")
        rows = _by_key((*self.rows, *other.rows))
        missed = Missed(*map(sum, zip(self.missed, other.missed, strict=True)))
        lost = self.lost_stacks + other.lost_stacks
        return Answers(_sorted(rows), missed, len(rows), self.room + other.room, lost)

    def stacks(self, title: str = "") -> WeighedStacks:
        """The stacks of the keys, each with its weight: the sum of its values where that was added
        up, else the number of its events. The other parts of a key stand above the stack. Raises
        BadArgument for a sum that is not of integers from 0 on, and where no key has a stack."""
        check_is("title", title, str)
        tree, unit = SampledTree(), "event"
        for key, answer, _ in self.rows:
            weight: Number = events_of(answer)
            if isinstance(answer, Statistics) and answer.sum is not None:
                weight, unit = answer.sum, "unit"
            if not isinstance(weight, int) or weight < 0:
                raise BadArgument("answers", weight, "sums of integers from 0 on")
            tree.add(path_of(key), weight)
        check_stacks("answers", self.rows)
        return WeighedStacks(tree.nodes, unit, title)


class Keyed(Protocol):
    """A row with a key."""

    @property
    def key(self) -> tuple[KeyValue, ...]:
        """The values of the key."""
        ...


def path_of(key: Iterable[KeyValue]) -> list[str]:
    """The functions of the stack of a key, the first caller first, below what else is in it."""
    names: list[str] = []
    for value in sorted(key, key=lambda value: isinstance(value, WalkedStack)):
        names += value.labels if isinstance(value, WalkedStack) else [str(value)]
    return names


def check_stacks(argument: str, rows: Iterable[Keyed]) -> None:
    """Raise BadArgument where no key of these rows has a stack."""
    rows = tuple(rows)
    if not any(isinstance(value, WalkedStack) for row in rows for value in row.key):
        raise BadArgument(argument, rows, "those of a key with a stack")


class Totals(NamedTuple):
    """The words of an aggregate, added up over CPUs and by key; those that are doubles as such."""

    keys: Mapping[bytes, tuple[Number, ...]]
    missed: tuple[int, ...]


def flags_of(does: Does) -> int:
    """What the runtime does (MJ_DOES_*)."""
    return _FLAGS[does]


def words_of(shape: Shape) -> int:
    """Words that are counted up for a key."""
    if scale := shape.scale:
        return scale.size
    flags = _FLAGS[shape.does]
    return 1 + 2 * bool(flags & abi.DOES_SUM) + flags.bit_count() - bool(flags & abi.DOES_SUM)


def totals_of(words: Words, shape: Shape) -> Totals:
    """The sums over all rings, by key."""
    count = words_of(shape)
    kinds = _kinds(shape)
    rings = [memoryview(ring).cast("Q") for ring in words.rings]
    missed = tuple(sum(ring[at] for ring in rings) for at in range(abi.MISSED))
    by_key: dict[bytes, list[int]] = {}
    for key, number in words.keys:
        by_key.setdefault(key, []).append(number)
    keys = {}
    for key, numbers in by_key.items():
        starts = [abi.MISSED + number * count for number in numbers]
        rows = [ring[start : start + count] for ring in rings for start in starts]
        keys[key] = _added(rows, kinds)
    return Totals(keys, missed)


def _kinds(shape: Shape) -> Sequence[str]:
    """How each word is added: "+" as a number, "s" as a signed one, "f" as a double, "m" the
    largest. All of buckets: none is said."""
    if shape.scale:
        return ()
    flags = _FLAGS[shape.does]
    sums = ("f", "s") if shape.value is Type.F64 else ("s", "s")
    return (
        "+",
        *(sums if flags & abi.DOES_SUM else ()),
        *("m" * bool(flags & abi.DOES_MIN)),
        *("m" * bool(flags & abi.DOES_MAX)),
    )


def _added(rows: Sequence[memoryview[int]], kinds: Sequence[str]) -> tuple[Number, ...]:
    if not kinds:
        import numpy as np

        table = np.array([np.frombuffer(row, np.uint64) for row in rows])
        return tuple(table.sum(axis=0).tolist())
    columns = zip(*rows, strict=True)
    return tuple(_word(column, kind) for column, kind in zip(columns, kinds, strict=True))


def _word(column: Iterable[int], kind: str) -> Number:
    if kind == "m":
        return max(column)
    if kind == "f":
        return float(sum(struct.unpack("<d", word.to_bytes(8, "little"))[0] for word in column))
    return sum(wrapped(word, Type.I64) if kind == "s" else word for word in column)


def since(now: Totals, before: Totals | None, shape: Shape) -> Totals:
    """What was added between two moments. It is not known for the least and the largest: 0."""
    if before is None:
        before = Totals({}, (0,) * len(now.missed))
    kinds = _kinds(shape)
    keys = {}
    for key, words in now.keys.items():
        earlier = before.keys.get(key, (0,) * len(words))
        differences = zip(words, earlier, kinds or "+" * len(words), strict=True)
        keys[key] = tuple(_difference(word, old, kind) for word, old, kind in differences)
    return Totals(keys, tuple(map(more, now.missed, before.missed)))


def _difference(now: Number, before: Number, kind: str) -> Number:
    if kind == "m":
        return 0
    return now - before if kind in "sf" else more(int(now), int(before))


def more(now: int, before: int) -> int:
    """How much a count has grown; 0 where it has become less: the process can write over both."""
    return max(0, now - before)


def answers_of(totals: Totals, shape: Shape, room: int, *, is_interval: bool = False) -> Answers:
    """The values of all keys that have events, the most frequent first. An interval has no least
    and no largest value."""
    rows = [
        AggregateRow(key_values(key, shape.key), _answer(words, shape))
        for key, words in totals.keys.items()
    ]
    if is_interval:
        rows = [row._replace(answer=_of_interval(row.answer)) for row in rows]
    missed = Missed(*(totals.missed[at] for at in range(len(Missed._fields))))
    return Answers(_sorted(row for row in rows if row.events), missed, len(totals.keys), room)


def _by_key(rows: Iterable[AggregateRow]) -> list[AggregateRow]:
    """Merge the rows with the same key."""
    by_key: dict[tuple[KeyValue, ...], AggregateRow] = {}
    for row in rows:
        before = by_key.setdefault(row.key, row)
        if before is not row:
            by_key[row.key] = before._replace(answer=_sum(before.answer, row.answer))
    return list(by_key.values())


def with_names(
    answers: Answers, parts: Sequence[KeyPart], name_of: Callable[[int], str] = hex
) -> Answers:
    """The answers with the names of the pointers of their keys, and of functions of C++."""
    rows = tuple(row._replace(names=names_of_key(row.key, parts, name_of)) for row in answers.rows)
    return answers._replace(rows=rows)


def names_of_key(
    key: Sequence[KeyValue], parts: Sequence[KeyPart], name_of: Callable[[int], str]
) -> tuple[str | None, ...]:
    """The names of a key's pointers and functions of C++, and None of its other parts; () where it
    has neither."""
    names = tuple(_name(value, part, name_of) for value, part in zip(key, parts, strict=True))
    return names if any(part.type is Type.POINTER for part in parts) or any(names) else ()


def _name(value: KeyValue, part: KeyPart, name_of: Callable[[int], str]) -> str | None:
    if part.type is Type.POINTER and isinstance(value, int):
        return name_of(value)
    if part.is_name and isinstance(value, str) and (written := written_name(value)) != value:
        return written
    return None


def with_stacks(
    answers: Answers,
    parts: Sequence[KeyPart],
    stack_of: Callable[[int], WalkedStack | None],
    lost: int,
) -> Answers:
    """The answers with stacks in the place of their numbers, of which a stack may have several, and
    `lost` events have none."""
    rows = (row._replace(key=with_stacks_in(row.key, parts, stack_of)) for row in answers.rows)
    return answers._replace(rows=_sorted(_by_key(rows)), lost_stacks=lost)


def with_stacks_in(
    key: Sequence[KeyValue],
    parts: Sequence[KeyPart],
    stack_of: Callable[[int], WalkedStack | None],
) -> tuple[KeyValue, ...]:
    """The key with stacks in the place of their numbers."""
    return tuple(
        (stack_of(value) if isinstance(value, int) else None) if part.type is Type.STACK else value
        for value, part in zip(key, parts, strict=True)
    )


def _kind(row: AggregateRow) -> tuple[object, ...]:
    """What rows that answer one question have in common: a text of a key may be None, and so may a
    stack."""
    key = tuple(
        str if value is None or isinstance(value, WalkedStack) else type(value) for value in row.key
    )
    answer = row.answer
    if isinstance(answer, int):
        return key, int
    if isinstance(answer, Statistics):
        return key, Statistics, *map(type, (answer.sum, answer.min, answer.max))
    return key, type(answer), answer.scale


def _sum(left: Answer, right: Answer) -> Answer:
    """The sum of two answers of one kind."""
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    if isinstance(left, Statistics) and isinstance(right, Statistics):
        return Statistics(
            left.events + right.events,
            _of_both(sum, left.sum, right.sum),
            _of_both(min, left.min, right.min),
            _of_both(max, left.max, right.max),
        )
    if isinstance(left, Histogram) and isinstance(right, Histogram):
        return left.plus(right)
    assert isinstance(left, Sketch) and isinstance(right, Sketch)
    return left.plus(right)


def _of_both(
    of: Callable[[tuple[Number, Number]], Number], left: Number | None, right: Number | None
) -> Number | None:
    return None if left is None or right is None else of((left, right))


def _sorted(rows: Iterable[AggregateRow]) -> tuple[AggregateRow, ...]:
    """The most frequent keys first."""
    return tuple(sorted(rows, key=lambda row: (-row.events, tuple(map(_sortable, row.key)))))


def _of_interval(answer: Answer) -> Answer:
    return answer._replace(min=None, max=None) if isinstance(answer, Statistics) else answer


def _sortable(value: KeyValue) -> tuple[int, int, str]:
    if isinstance(value, str):
        return 1, 0, value
    if isinstance(value, WalkedStack):
        return 1, 0, "\n".join(value.labels)
    return 0, -1 if value is None else int(value), ""


def events_of(answer: Answer) -> int:
    """The number of events in an answer."""
    if isinstance(answer, int):
        return answer
    return answer.events if isinstance(answer, Statistics) else answer.total


def key_values(key: bytes, parts: Sequence[KeyPart]) -> tuple[KeyValue, ...]:
    """The values of a key, from its words."""
    values = []
    at = 0
    for part in parts:
        size = 8 * part.words
        values.append(_key_value(key[at : at + size], part))
        at += size
    return tuple(values)


def _key_value(words: bytes, part: KeyPart) -> KeyValue:
    first = int.from_bytes(words[:8], "little")
    match part.type:
        case Type.TEXT:
            if first == _NONE:
                return None
            return words[8 : 8 + min(first, part.size)].decode("utf-8", "backslashreplace")
        case Type.BOOL:
            return bool(first)
        case Type.CHAR:
            return bytes([first & 0xFF]).decode("latin-1")
        case Type.I64:
            return wrapped(first, Type.I64)
    return first


def _answer(words: Sequence[Number], shape: Shape) -> Answer:
    if scale := shape.scale:
        counts = {at: int(count) for at, count in enumerate(words) if count}
        kind = Sketch if shape.does is Does.QUANTILES else Histogram
        return kind(scale, counts)
    flags, rest = _FLAGS[shape.does], iter(words)
    count = int(next(rest))
    if not flags:
        return count
    total = least = most = None
    if flags & abi.DOES_SUM:
        low, high = next(rest), next(rest)
        total = low if shape.value is Type.F64 else int(low) + (int(high) << 64)
    if flags & abi.DOES_MIN:
        least = _from_order(~int(next(rest)) & _NONE, shape.value)
    if flags & abi.DOES_MAX:
        most = _from_order(int(next(rest)), shape.value)
    return Statistics(count, total, least, most) if count else Statistics(0)


def _from_order(word: int, type_: Type | None) -> Number:
    """The value of a word that is larger where the value is: in_order of aggregate.c."""
    if type_ is Type.U64:
        return word
    if type_ is Type.I64:
        return wrapped(word ^ _SIGN, Type.I64)
    bits = word ^ _SIGN if word & _SIGN else ~word & _NONE
    return float(struct.unpack("<d", bits.to_bytes(8, "little"))[0])

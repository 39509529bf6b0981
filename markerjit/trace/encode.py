"""Columns as the bytes of records again, as the runtime would have written them (ring/types.py):
for a trace that is turned into CTF, whose sink takes packets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from markerjit.errors import Refused
from markerjit.ring.batch import Columns, Packet, Texts
from markerjit.ring.starts import starts_of
from markerjit.ring.types import HEAD, HEAD_SIZE, TIME_SIZE, WORD, TextState, Time
from markerjit.trace import wire
from markerjit.trace.batch import Batch
from markerjit.trace.stacks import with_numbers

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

_LARGEST = HEAD.most_words * WORD
"""Bytes of a record. Texts are cut to what the other fields leave of it; those that the runtime
recorded fit, for its records end with their page."""
_ZEROS = np.zeros(WORD, np.uint8)


def with_packets(batch: Batch) -> Batch:
    """A batch of columns with equivalent packets, one for each CPU."""
    columns, stacks = with_numbers(batch.columns)
    return batch._replace(packets=tuple(packets_of(columns)), stacks=stacks)


def packets_of(columns: Sequence[Columns]) -> Iterator[Packet]:
    """A packet for each CPU, its records in order of time. Raises Refused for a type with more
    fields than a record has room for."""
    parts = [part for part in columns if len(part.time)]
    if not parts:
        return
    rows = [row for part in parts for row in _rows(part)]
    cpus = np.concatenate([part.cpu for part in parts])
    times = np.concatenate([part.time for part in parts])
    order = np.lexsort((times, cpus))
    ordered = cpus[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    for of_cpu in np.split(order, starts[1:]):
        cpu = int(cpus[of_cpu[0]])
        records = [rows[index] for index in of_cpu.tolist()]
        words = np.array([len(record) // WORD for record in records])
        yield Packet(cpu, cpu, b"".join(records), starts_of(words))


def _rows(columns: Columns) -> list[bytes]:
    """The records of one type."""
    kind = columns.type
    count = len(columns.time)
    if kind.size > _LARGEST:
        raise Refused(
            f"{kind.marker} has {len(kind.fields)} fields, which take {kind.size} bytes; "
            f"a record of a CTF trace has at most {_LARGEST}"
        )
    room = np.full(count, _LARGEST - kind.size)
    parts: list[wire.Part] = []
    at = HEAD_SIZE
    if kind.time is not Time.NONE:
        parts.append(_block(columns.time.astype("<u8")))
        at += TIME_SIZE
    for field, _, code in kind.places:
        column = columns.fields[field.name]
        size = int(code[1]) if code else WORD
        parts.append(bytes(-at % size))
        at += -at % size
        if isinstance(column, Texts):
            lengths = np.minimum(np.diff(column.offsets), room) * (column.states <= TextState.CUT)
            parts += _text(column, lengths)
            room -= (lengths + WORD - 1) & -WORD
            at = 0  # of a word: only that matters
        else:
            parts.append(_block(column.astype(f"<{code}")))
            at += size
    parts.append(bytes(-at % WORD))
    sizes = HEAD_SIZE + wire.lengths(parts, count)
    head: list[wire.Part] = [
        _block(HEAD.pack(np.full(count, kind.id, "<u4"), (sizes // WORD).astype("<u4"))),
        _block(columns.tid.astype("<u4")),
    ]
    return wire.rows_of([*head, *(part for part in parts if part != b"")], count)


def _text(texts: Texts, lengths: Array) -> list[wire.Part]:
    """The texts, cut to these lengths."""
    whole = np.diff(texts.offsets)
    states = np.where(
        lengths < whole * (texts.states == TextState.WHOLE), TextState.CUT, texts.states
    )
    return [
        _block(lengths.astype("<u4")),
        _block(states.astype("<u4")),
        wire.Ragged(texts.data, texts.offsets[:-1], lengths),
        wire.Ragged(_ZEROS, np.zeros(len(lengths), np.int64), -lengths % WORD),
    ]


def _block(values: Array) -> wire.Block:
    return wire.Block(np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1))

"""The code of an object, and everything that could enter it at a given place.

`Code` is made once of an object's file; then `targets` answers for a span within microseconds, and
decodes only the functions whose bytes could be a branch into it. Where much will be asked, `expect`
decodes all of them before. These enter code in its middle:

    direct branches           all bytes of the object that could be one; a decoded function decides
    jump tables               tables.py
    pointers                  relocations, lea; of an object with a fixed address, all words
    symbols                   functions that begin inside the unwind entry of another one
    landing pads              where exceptions are caught
    behind calls              where calls and system calls return to

Bytes that no unwind entry covers cannot be decoded from a known start. So whatever could be a
branch there counts as one. Code that is made or loaded while the program runs is not seen; by the
ABI it enters functions at their entries.
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left
from enum import Enum
from functools import cache, cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from markerjit.elf.addresses import distinct
from markerjit.elf.code_pointers import code_pointers
from markerjit.elf.function_names import FunctionNames, function_names
from markerjit.elf.functions import Functions, NoFunctions
from markerjit.elf.image import PF_X, PT_LOAD, FileImage, Segment
from markerjit.elf.landing_pads import landing_pads
from markerjit.elf.restartable import restartable_sequences
from markerjit.elf.unwind_rows import entry_rows
from markerjit.spans.alone import Alone, functions_alone
from markerjit.spans.straight import NOTHING, Straight, straight
from markerjit.spans.tables import table_targets
from markerjit.tuples import NamedTuple
from markerjit.x86.flow import Flow, Flows, flow, has_operand
from markerjit.x86.forms import NEAR_LENGTH, jumps_always
from markerjit.x86.windows import (
    Candidates,
    absolute_operands,
    in_order,
    loaded_addresses,
    near_branches,
    short_branches,
)

_FLOWS = 2048
_ROWS = 64
_MANY = 4
"""Where questions are asked about one of so many functions, all are decoded."""
_MOST_TOGETHER = 1 << 26
"""Bytes of code that are kept decoded: they take three times as many."""
MAX_DECODED = 1 << 20
"""A function's bytes that are decoded: larger ones are data that somebody gave an unwind entry."""


class TargetKind(Enum):
    """The kind of a way into a place, which can be counted."""

    BRANCH = "a branch"
    UNCOVERED = "bytes outside of known functions, which could be a branch"
    TABLE = "a jump table"
    POINTER = "a pointer"
    LABEL = "a symbol"
    LANDING_PAD = "a landing pad of exceptions"
    RETURN = "the return of a call"

    def __str__(self) -> str:
        return self.value


_INDIRECT = TargetKind.TABLE, TargetKind.POINTER
"""What indirect jumps go by."""


class Target(NamedTuple):
    """A place that something leads to, and what."""

    address: int
    kind: TargetKind


class Jump(NamedTuple):
    """A direct branch that ends at `end`, in the function at this place in `functions`."""

    target: int
    end: int
    function: int
    is_call: bool


class _Text(NamedTuple):
    """An executable segment, and what in it could lead to code: branches of 32 bits, those of 8
    bits, and operands."""

    address: int
    code: bytes
    branches: Candidates
    short: Candidates
    operands: Candidates


class Code:
    """The code of an object, by the addresses of its file. The image has to stay open no longer.

    functions  their bounds
    names      their symbols
    straight   openings that are known already
    alone      functions whose exits are known already, by their starts
    """

    functions: Functions
    names: FunctionNames
    straight: Straight
    alone: dict[int, Alone]

    def __init__(self, image: FileImage) -> None:
        """Raises NoFunctions, MemoryFault."""
        self.functions = Functions(image)
        self.names = function_names(image)
        self._texts = [
            _text(image, segment)
            for segment in image.segments
            if segment.type == PT_LOAD and segment.flags & PF_X
        ]
        if not self._texts:
            raise NoFunctions(f"{image.name}: it has no code")
        loads = [loaded_addresses(text.code, text.address) for text in self._texts]
        loaded = np.concatenate([pair[0] for pair in loads])
        places = np.concatenate([pair[1] for pair in loads])
        labels = np.array([*self.names.names, *self.names.labels], np.int64)
        pointers = np.concatenate([code_pointers(image), loaded])
        calls = np.concatenate([text.branches.targets for text in self._texts])
        entries = np.concatenate([pointers, labels, calls])
        known = {
            TargetKind.TABLE: table_targets(image, self.functions, entries, (loaded, places)),
            TargetKind.POINTER: distinct(pointers),
            TargetKind.LABEL: distinct(labels),
            TargetKind.LANDING_PAD: np.array(sorted(landing_pads(self.functions)), np.int64),
        }
        self._known = {kind: in_order(targets) for kind, targets in known.items()}
        self._restartable = restartable_sequences(image)
        self.straight = NOTHING
        self.alone = {}
        self.jumped_from = cache(self._jumped_from)  # many functions may end in the same one
        self._decoded: Flows | None = None
        self._arrivals: array[int] | None = None
        self._returns: array[int] | None = None
        self._flow = lru_cache(_FLOWS)(self._decode)
        self._leaving = lru_cache(_ROWS)(self._leaps_out)
        self._rows = lru_cache(_ROWS)(partial(entry_rows, self.functions))

    def expect(self, questions: int) -> None:
        """Make ready for so many questions. If they are many, all functions are decoded together,
        and what is no branch there is no candidate any more. Answers stay what they are."""
        size = sum(len(text.code) for text in self._texts)
        if questions * _MANY < len(self.functions) or size > _MOST_TOGETHER:
            return
        flows = Flows([self._body(function) for function in range(len(self.functions))])
        possible = _Branches(self.functions, flows).possible
        self._texts = [
            text._replace(branches=possible(text.branches), short=possible(text.short))
            for text in self._texts
        ]
        certain = [np.frombuffer(known, np.int64) for known in self._known.values()]
        possible_only = [text.operands.targets for text in self._texts]
        for text in self._texts:
            for candidates in (text.branches, text.short):
                is_branch = self.functions.indices(candidates.ends - 1) >= 0
                certain.append(candidates.targets[is_branch])
                possible_only.append(candidates.targets[~is_branch])
        arrivals = np.sort(np.concatenate(certain))
        all_arrivals = np.sort(np.concatenate([arrivals, *possible_only]))
        self._arrivals = in_order(all_arrivals)
        self._decoded = flows
        functions, _, _, ends, _ = flows.returned_to()
        own = self.functions.indices(ends - 1) == functions
        self._returns = in_order(np.sort(ends[own]))
        texts = [(text.address, text.code) for text in self._texts]
        parts = [each.targets for each in self._from_parts]
        lead_inside = self._lead_inside()
        explained = self._explained(flows, lead_inside)
        self.straight = straight(
            self.functions, flows, texts, (all_arrivals, arrivals), explained, self._restartable
        )
        self.alone = functions_alone(
            self.functions, self.names, flows, (explained, lead_inside), parts
        )

    def read(self, address: int, size: int) -> bytes:
        """The code at an address, and less where its segment ends before."""
        for text in self._texts:
            if text.address <= address < text.address + len(text.code):
                return text.code[address - text.address : address - text.address + size]
        return b""

    def flow(self, function: int) -> Flow:
        """The instructions of a function, which is given by its place in `functions`."""
        return self._flow(function)

    def leaving(self, function: int) -> tuple[tuple[int, int, int | None], ...]:
        """The direct branches of a function that lead out of it, and are no calls: the address of
        each, its target, and the function that is there."""
        return self._leaving(function)

    def is_entry_row(self, address: int) -> bool:
        """Whether the stack pointer is there what it was at the function's entry."""
        function = self.functions.index(address)
        if function is None:
            return False
        offset = address - int(self.functions.starts[function])
        return self._rows(function).is_entry(offset)

    def targets(self, low: int, high: int) -> list[Target]:
        """All places with low <= place < high that something may lead to; not once each."""
        targets: list[Target] = []
        if self._arrivals is None or _between(self._arrivals, low, high):
            targets = self._arrived(low, high)
        targets += [Target(at, TargetKind.RETURN) for at in self._returned_to(low, high)]
        return targets

    def _returned_to(self, low: int, high: int) -> list[int]:
        """The places behind calls of the function that is at `low`."""
        function = self.functions.index(low)
        if function is None:
            return []
        if self._returns is None:
            returns = self.flow(function).returns
            return [at for at in range(low, high) if at in returns]
        start, end = self.functions.bounds(function)
        return _between(self._returns, max(low, start + 1), min(high, end + 1))

    def _arrived(self, low: int, high: int) -> list[Target]:
        """Those that are not behind a call."""
        targets = [
            Target(address, kind)
            for kind, places in self._known.items()
            for address in _between(places, low, high)
        ]
        for target, end in self._candidates(low, high):
            kind = self._judge(target, end)
            if kind:
                targets.append(Target(target, kind))
        targets += [
            Target(target, TargetKind.POINTER)
            for text in self._texts
            for target, end in text.operands.into(low, high)
            if self._is_operand(target, end)
        ]
        return targets

    def is_linkage(self, address: int) -> bool:
        """Whether this is in a linkage table, whose stubs lead to it and to other objects."""
        return self.names.is_linkage(address)

    def jumps_into(self, low: int, high: int) -> list[Jump]:
        """The direct branches from functions to low <= place < high, calls too."""
        return [*filter(None, itertools.starmap(self._jump, self._candidates(low, high)))]

    def jumps_from_parts(self, low: int, high: int, without: range) -> list[Jump]:
        """Those from the parts of functions, and not from the code `without`."""
        candidates = [
            (target, end)
            for from_parts in self._from_parts
            for target, end in from_parts.into(low, high)
            if not without.start < end <= without.stop
        ]
        return [*filter(None, itertools.starmap(self._jump, candidates))]

    def _jumped_from(self, start: int) -> frozenset[int] | None:
        """The functions whose conditional jumps lead to the start of a function; None where
        anything else may lead there."""
        if any(into.kind is not TargetKind.BRANCH for into in self.targets(start, start + 1)):
            return None
        jumps = self.jumps_into(start, start + 1)
        if any(jump.is_call or self._is_always(jump) for jump in jumps):
            return None
        return frozenset(jump.function for jump in jumps)

    def _is_always(self, jump: Jump) -> bool:
        """Whether a direct jump is unconditional."""
        starts = self.flow(jump.function).starts
        start = next(at for at in range(jump.end - 1, jump.end - 16, -1) if at in starts)
        return jumps_always(self.read(start, jump.end - start))

    def gaps(self, low: int, high: int) -> list[range]:
        """The bytes between functions, as far as a jump fits there, in low..high."""
        starts, ends = self.functions.starts, self.functions.ends
        first, last = np.searchsorted(starts, (low, high + 1))
        pairs = range(max(int(first) - 1, 0), min(int(last), len(starts) - 1))
        gaps = [
            range(max(int(ends[index]), low), min(int(starts[index + 1]), high)) for index in pairs
        ]
        return [gap for gap in gaps if len(gap) >= NEAR_LENGTH]

    def is_restartable(self, low: int, high: int) -> bool:
        """Whether one of these bytes is in a restartable sequence of the program's."""
        return any(low < each.stop and each.start < high for each in self._restartable)

    def is_named(self, address: int) -> bool:
        """Whether a symbol says that something begins there."""
        return address in self.names.names or address in self.names.labels

    def is_explained(self, function: int) -> bool:
        """Whether it is known where the indirect jumps of a function lead, which stay in it.

        Those that leave it, as the last thing that it does, lead to other functions.
        """
        inside = [at for at in self.flow(function).jumps if not self.is_entry_row(at)]
        return not inside or self.leads_inside(function)

    def _lead_inside(self) -> NDArray[np.bool_]:
        """Of each function, what `leads_inside` says."""
        starts, ends = self.functions.starts, self.functions.ends
        lead = np.zeros(len(starts), bool)
        for kind in _INDIRECT:
            places = np.frombuffer(self._known[kind], np.int64)
            lead |= np.searchsorted(places, starts + 1) < np.searchsorted(places, ends)
        return lead

    def _explained(self, flows: Flows, lead_inside: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Of each function, what `is_explained` says."""
        explained = np.ones(len(self.functions), bool)
        jumps = flows.jumps(through_slots=False)
        leaving = ~lead_inside[jumps.functions]
        of, starts = jumps.functions[leaving].tolist(), jumps.starts[leaving].tolist()
        for function, at in zip(of, starts, strict=True):
            explained[function] &= self.is_entry_row(at)
        return explained

    def leads_inside(self, function: int) -> bool:
        """Whether a jump table or a pointer leads behind the start of a function."""
        start, end = int(self.functions.starts[function]), int(self.functions.ends[function])
        return any(_between(self._known[kind], start + 1, end) for kind in _INDIRECT)

    def _candidates(self, low: int, high: int) -> list[tuple[int, int]]:
        """Target and end of all bytes that could be a branch to low..high."""
        return [
            candidate
            for text in self._texts
            for candidates in (text.branches, text.short)
            for candidate in candidates.into(low, high)
        ]

    def _jump(self, target: int, end: int) -> Jump | None:
        """The candidate that ends here, if it is a branch in a function."""
        source = self.functions.index(end - 1)
        if source is None or self._judge(target, end) is not TargetKind.BRANCH:
            return None
        return Jump(target, end, source, is_call=bool(self._returned_to(end - 1, end + 1)))

    @cached_property
    def _from_parts(self) -> list[Candidates]:
        """The candidates in parts of functions."""
        is_part = np.append(self.functions.parts, False)  # and what is in no function
        return [
            candidates.where(is_part[self.functions.indices(candidates.ends - 1)])
            for text in self._texts
            for candidates in (text.branches, text.short)
        ]

    def _judge(self, target: int, end: int) -> TargetKind | None:
        """The kind of a candidate that ends here; None for bytes that are no branch."""
        function = self.functions.index(end - 1)
        if function is None:
            return None if self.is_linkage(end - 1) else TargetKind.UNCOVERED
        if self._decoded:  # the candidates that are no branches are gone
            decoded_to = int(self._decoded.ends[function])
            return TargetKind.BRANCH if end <= decoded_to else TargetKind.UNCOVERED
        decoded = self.flow(function)
        if end > decoded.end:
            return TargetKind.UNCOVERED
        return TargetKind.BRANCH if decoded.branches.get(end) == target else None

    def _is_operand(self, value: int, end: int) -> bool:
        """Whether the four bytes that end here are an operand of an instruction, or may be one."""
        function = self.functions.index(end - 4)
        decoded = None if function is None else self.flow(function)
        if decoded is None or end > decoded.end:
            return True
        start = next((at for at in range(end - 4, end - 20, -1) if at in decoded.starts), end)
        size = decoded.starts.get(start, 0)
        return start + size >= end and has_operand(self.read(start, size), value)

    def _decode(self, function: int) -> Flow:
        if self._decoded:
            return self._decoded.at(function)
        start, code = self._body(function)
        return flow(code, start)

    def _leaps_out(self, function: int) -> tuple[tuple[int, int, int | None], ...]:
        start, end = int(self.functions.starts[function]), int(self.functions.ends[function])
        own = range(start, min(end, self.functions.next_start(start + 1)))
        return tuple(
            (at, target, self.functions.index(target))
            for at, target in self.flow(function).leaps
            if target not in own
        )

    def _body(self, function: int) -> tuple[int, bytes]:
        """Where a function starts, and its code."""
        start = int(self.functions.starts[function])
        size = int(self.functions.ends[function]) - start
        return start, self.read(start, min(size, MAX_DECODED))


class _Branches:
    """The direct branches of decoded functions, by their ends."""

    def __init__(self, functions: Functions, flows: Flows) -> None:
        self._functions = functions
        self._decoded_to = flows.ends
        sources, _, _, ends, targets = flows.branches()
        own = functions.indices(ends - 1) == sources  # a function may lie inside another one
        order = np.argsort(ends[own])
        self._ends = np.append(ends[own][order], -1)
        self._targets = np.append(targets[own][order], -1)

    def possible(self, candidates: Candidates) -> Candidates:
        """The candidates without those in decoded code that end with no branch to the same
        place."""
        same = np.searchsorted(self._ends[:-1], candidates.ends)
        is_branch = self._ends[same] == candidates.ends
        is_branch &= self._targets[same] == candidates.targets
        of = self._functions.indices(candidates.ends - 1)
        is_decoded = (of >= 0) & (candidates.ends <= self._decoded_to[of])
        return candidates.where(is_branch | ~is_decoded)


def _text(image: FileImage, segment: Segment) -> _Text:
    code = image.read(segment.address, segment.file_size)
    # Code that is loaded anywhere has no absolute operands.
    absolute = code if image.fixed_address else b""
    return _Text(
        segment.address,
        code,
        near_branches(code, segment.address),
        short_branches(code, segment.address),
        absolute_operands(absolute, segment.address),
    )


def _between(places: array[int], low: int, high: int) -> list[int]:
    first = bisect_left(places, low)
    last = bisect_left(places, high, first)
    return places[first:last].tolist() if first < last else []

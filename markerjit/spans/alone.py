"""Functions whose exits are known without following their jumps one by one, as columns.

Such a function is left by returns and by jumps to functions that are no parts of it, and jumps
nowhere else but into itself and its own cold parts; those are jumped to from nowhere else, and lead
to nowhere else. That is certain for most functions of a program. Of all others there is no word,
and exits.py asks. Whether the stack pointer is at the exits what it was at the entry is not looked
at here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from markerjit.elf.function_names import FunctionNames
from markerjit.elf.functions import Functions
from markerjit.tuples import NamedTuple
from markerjit.x86.flow import Addresses, Flows, Transfers

Mask = NDArray[np.bool_]

COLD = ".cold"
"""The mark in the names of parts."""
MOST_PARTS = 64
"""A function with more of them is not looked at further."""


class Alone(NamedTuple):
    """A function of the usual shape, with its parts.

    returns  the addresses of returns
    tails    those of jumps to other functions: direct ones, those through a slot, and indirect ones
             of a function that none of these lead into
    jumps    those of the other indirect jumps, which stay inside where the stack pointer is not
             that of the entry
    again    a jump leads to the function's start, or to an endbr64 there and what is behind it
    """

    returns: tuple[int, ...]
    tails: tuple[int, ...]
    jumps: tuple[int, ...]
    again: bool


class _Targets(NamedTuple):
    """Of direct jumps that leave their function: the function of each, the functions that they lead
    to, -1 for none, whether to its start, and whether that is a part, or it is not known."""

    of: Addresses
    to: Addresses
    starts: Addresses
    at_start: Mask
    to_part: Mask
    unclear: Mask


def functions_alone(
    functions: Functions,
    names: FunctionNames,
    flows: Flows,
    indirect: tuple[Mask, Mask],
    from_parts: Sequence[Addresses],
) -> dict[int, Alone]:
    """Those functions by their starts, of an object whose functions are all decoded; and by what is
    behind an endbr64 there, where they count as entered.

    `indirect` says of which functions it is known where their indirect jumps lead, and into which
    ones they may; `from_parts` are the places that parts of functions may jump to, sorted.
    """
    explained, lead_inside = indirect
    starts, ends = functions.starts, functions.ends
    count = len(starts)
    usual: Mask = (functions.indices(starts) == np.arange(count)) & (flows.ends == ends)
    usual &= explained
    usual[:-1] &= starts[1:] >= ends[:-1]  # no other one begins in it
    leaps = flows.leaps()
    inside = (leaps.targets >= starts[leaps.functions]) & (leaps.targets < ends[leaps.functions])
    out = _targets(functions, names, flows, ~inside)
    is_part = np.zeros(count, bool)
    is_part[out.to[out.to_part]] = True
    owners = _owners(functions, flows, is_part)
    own = out.to_part & (owners[out.to] == out.of)
    # A part leads back into its function, and nowhere else.
    back = is_part[out.of] & (out.to >= 0) & (owners[out.of] == out.to)
    usual[out.of[~own & ~back & (out.to_part | out.unclear | is_part[out.of])]] = False
    parts = np.flatnonzero(is_part & (owners >= 0))
    broken = owners[parts[~usual[parts]]]
    usual &= ~is_part
    usual[broken] = False
    usual[np.bincount(owners[parts], minlength=count) >= MOST_PARTS] = False
    usual &= _entered_by_own(functions, leaps, from_parts, owners)
    entered = starts + flows.behind_endbr()
    again = np.zeros(count, bool)
    again_behind = np.zeros(count, bool)
    out_targets = leaps.targets[~inside]
    for last, begins in ((starts, again), (entered, again_behind)):
        begins[leaps.functions[inside & (leaps.targets <= last[leaps.functions])]] = True
        to_start = (out_targets >= starts[out.to]) & (out_targets <= last[out.to])
        begins[out.to[back & to_start]] = True
    family = np.where(owners >= 0, owners, np.arange(count))
    returns, slots = flows.returns(), flows.jumps(through_slots=True)
    tails = ~own & ~back
    all_returns = _grouped(family[returns.functions], returns.starts, count)
    others = flows.jumps(through_slots=False)
    stay = lead_inside[others.functions]
    all_tails = _grouped(
        family[np.concatenate([out.of[tails], slots.functions, others.functions[~stay]])],
        np.concatenate([out.starts[tails], slots.starts, others.starts[~stay]]), count,
    )  # fmt: skip
    all_jumps = _grouped(family[others.functions[stay]], others.starts[stay], count)
    marked = usual & (entered > starts) & (entered < ends)
    return {
        start: Alone(all_returns[place], all_tails[place], all_jumps[place], begins_again)
        for chosen, at, begins in ((usual, starts, again), (marked, entered, again_behind))
        for place, start, begins_again in zip(
            np.flatnonzero(chosen).tolist(), at[chosen].tolist(), begins[chosen].tolist(),
            strict=True,
        )
    }  # fmt: skip


def _grouped(of: Addresses, places: Addresses, count: int) -> list[tuple[int, ...]]:
    """The places of each of so many functions, in order."""
    order = np.lexsort((places, of))
    bounds = np.searchsorted(of[order], np.arange(count + 1)).tolist()
    ordered = tuple(places[order].tolist())
    return [ordered[first:last] for first, last in pairwise(bounds)]


def _targets(functions: Functions, names: FunctionNames, flows: Flows, chosen: Mask) -> _Targets:
    """What the jumps lead to that are chosen, as they leave their function."""
    leaps = flows.leaps()
    of, targets = leaps.functions[chosen], leaps.targets[chosen]
    to = functions.indices(targets)
    for table in names.linkage:
        to = np.where((targets >= table.start) & (targets < table.stop), -1, to)
    starts = functions.starts.tolist()
    known = [names.names.get(start, ()) for start in starts]
    is_named = np.array([bool(each) for each in known], bool)
    is_cold = np.array([all(COLD in name for name in each) for each in known], bool) & is_named
    at_start = (functions.starts[to] == targets) & (to >= 0)
    by_rows = functions.parts[to] & (to >= 0)
    to_part = by_rows | (at_start & is_cold[to])
    calls = flows.returned_to()
    own = functions.indices(calls.ends - 1) == calls.functions
    is_called = np.isin(functions.starts, calls.targets[own])
    unclear = ~to_part & at_start & ~is_named[to] & ~is_called[to]
    # A part that only its name tells is one where it is entered, and nowhere else.
    unclear |= (to >= 0) & ~by_rows & is_cold[to] & ~at_start
    return _Targets(of, to, leaps.starts[chosen], at_start, to_part, unclear)


def _owners(functions: Functions, flows: Flows, is_part: Mask) -> Addresses:
    """The function that each part belongs to, as the only one with branches into it; -1 for
    others."""
    of, _, _, _, targets = flows.branches()
    to = functions.indices(targets)
    into = (to >= 0) & (to != of)
    into &= is_part[to]
    of, to = of[into], to[into]
    low = np.full(len(is_part), len(is_part))
    high = np.full(len(is_part), -1)
    np.minimum.at(low, to, of)
    np.maximum.at(high, to, of)
    single = is_part & (low == high)
    owners = np.where(single, high, -1)
    owners[single & is_part[np.maximum(owners, 0)]] = -1
    return owners


def _entered_by_own(
    functions: Functions,
    leaps: Transfers,
    from_parts: Sequence[Addresses],
    owners: Addresses,
) -> Mask:
    """Whether all that parts may jump to behind a function's start comes from its own parts."""
    to = functions.indices(leaps.targets)
    own = (to >= 0) & functions.parts[leaps.functions] & (owners[leaps.functions] == to)
    own &= leaps.targets > functions.starts[to]
    known = np.bincount(to[own], minlength=len(owners))
    arrived = np.zeros(len(owners), np.int64)
    for arrivals in from_parts:
        first = np.searchsorted(arrivals, functions.starts + 1)
        arrived += np.maximum(np.searchsorted(arrivals, functions.ends) - first, 0)
    mask: Mask = arrived == known
    return mask

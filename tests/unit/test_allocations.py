"""Steps of allocators as blocks and sums: against a model that takes them one by one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.allocations.continued import Continued
from markerjit.allocations.given import by_glibc, by_header, by_jemalloc
from markerjit.allocations.heap import Heap
from markerjit.allocations.sites import Sums
from markerjit.allocations.steps import CONTINUED, OWN, UNSEEN, Kind, Steps, steps_of

Row = tuple[Kind, int, int, int, int]  # kind, thread, block, asked, site


def steps(rows: list[Row], first: int = 0) -> Steps:
    kinds, tids, blocks, asked, sites = zip(*rows, strict=True) if rows else ([], [], [], [], [])
    times = range(first, first + len(rows))
    return steps_of(kinds, tids, tids, times, blocks, asked, asked, sites)


def added_up(rows: list[Row], parts: int = 1, sites: int = 8) -> tuple[Heap, Sums]:
    heap, sums = Heap(), Sums()
    size = max(1, -(-len(rows) // parts))
    for at in range(0, len(rows), size):
        last = at + size >= len(rows)
        sums.add(heap.advance(steps(rows[at : at + size], at), last=last), sites)
    return heap, sums


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """What threads may do with few addresses: each step is one that can follow."""
    rows: list[Row] = []
    live: set[int] = set()
    moving: dict[int, tuple[int, bool]] = {}
    for _ in range(draw(st.integers(0, 40))):
        tid, site, size = (draw(st.integers(1, most)) for most in (3, 5, 100))
        # The block of a reallocation that fails is never given to another one.
        taken = live | {block for block, fails in moving.values() if fails}
        free = [block for block in range(16, 1600, 16) if block not in taken][:4]
        if tid in moving:
            old, fails = moving.pop(tid)
            block = 0 if fails else draw(st.sampled_from(free))
            live.add(block or old)
            rows.append((Kind.MOVED, tid, block, size, site))
        elif live and draw(st.booleans()):
            block, moves = draw(st.sampled_from(sorted(live))), draw(st.booleans())
            live.remove(block)
            rows.append((Kind.MOVE if moves else Kind.FREE, tid, block, 0, 0))
            if moves:
                moving[tid] = block, draw(st.booleans())
        else:
            block = draw(st.sampled_from(free))
            live.add(block)
            is_nested = draw(st.booleans())
            rows += [(Kind.ALLOC, tid, block, size, 7)] * is_nested
            rows.append((Kind.OUTER if is_nested else Kind.ALLOC, tid, block, size, site))
    return rows


def modelled(rows: list[Row]) -> tuple[dict[int, tuple[int, int]], Counter[int], Counter[int]]:
    """The live blocks with site and bytes, and allocations and frees by site."""
    live: dict[int, tuple[int, int]] = {}
    made, freed = Counter[int](), Counter[int]()
    given_up: dict[int, tuple[int, tuple[int, int] | None]] = {}
    for kind, tid, block, asked, site in rows:
        if kind in (Kind.FREE, Kind.MOVE):
            known = live.pop(block, None)
            if known:
                freed[known[0]] += 1
            if kind == Kind.MOVE:
                given_up[tid] = block, known
        elif kind == Kind.MOVED and not block:
            old, known = given_up.pop(tid)
            if known:
                live[old] = known
                freed[known[0]] -= 1
        else:
            if kind == Kind.OUTER:
                made[live.pop(block)[0]] -= 1
            live[block] = site, asked
            made[site] += 1
    return live, +made, +freed


@given(histories(), st.integers(1, 6))
def test_blocks_are_those_of_a_model_however_steps_come(rows: list[Row], parts: int) -> None:
    heap, sums = added_up(rows, parts)
    live, made, freed = modelled(rows)

    blocks = zip(heap.live.block, heap.live.site, heap.live.asked, strict=True)
    assert {int(block): (int(site), int(asked)) for block, site, asked in blocks} == live
    assert Counter(dict(enumerate(sums.totals.allocations.tolist()))) == made
    assert Counter(dict(enumerate(sums.totals.frees.tolist()))) == freed
    assert sums.live_given == sum(asked for _, asked in live.values())
    assert sums.unknown_frees == 0


# ---- allocations that another function finishes --------------------------------------------------


def left_to_others(draw: st.DrawFn, rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """The rows with some allocations in two halves, and what they come to."""
    halves: list[Row] = []
    whole: list[Row] = []
    open_: dict[int, Row] = {}
    for row in rows:
        kind, tid, _, asked, site = row
        if tid in open_:  # it has been in the other function until now
            halves.append((Kind.RESULT, tid, open_[tid][2], 0, 0))
            whole.append(open_.pop(tid))
        if kind >= Kind.ALLOC and draw(st.booleans()):
            halves.append((kind, tid, CONTINUED, asked, site))
            open_[tid] = row
        else:
            halves += [(Kind.RESULT, tid, 4096, 0, 0)] * draw(st.booleans())  # of no allocation
            halves.append(row)
            whole.append(row)
    for tid, row in open_.items():
        halves.append((Kind.RESULT, tid, row[2], 0, 0))
        whole.append(row)
    return halves, whole


@given(st.data(), histories(), st.integers(1, 6))
def test_steps_in_two_halves_are_put_where_the_second_one_is(
    data: st.DataObject, rows: list[Row], parts: int
) -> None:
    halves, whole = data.draw(st.composite(left_to_others)(rows))
    continued = Continued(lambda steps, results: steps.asked + 1)
    size = max(1, -(-len(halves) // parts))
    done = [
        continued.completed(steps(halves[at : at + size], at), last=at + size >= len(halves))
        for at in range(0, len(halves), size)
    ]
    seen = Steps.joined(done)

    columns = (seen.kind, seen.tid, seen.block, seen.asked, seen.site)
    assert [tuple(map(int, row)) for row in zip(*columns, strict=True)] == whole
    assert (np.diff(seen.time) >= 0).all()


def kinds_of(rows: list[Row], *, last: bool = True) -> list[tuple[int, ...]]:
    seen = Continued(lambda steps, results: steps.asked).completed(steps(rows), last=last)
    return [*zip(seen.kind.tolist(), seen.block.tolist(), seen.asked.tolist(), strict=True)]


def test_what_a_third_function_returns_is_the_block() -> None:
    rows = [
        (Kind.ALLOC, 1, CONTINUED, 50, 1), (Kind.RESULT, 1, CONTINUED, 0, 0),
        (Kind.RESULT, 1, 64, 0, 0),
    ]  # fmt: skip

    assert kinds_of(rows) == [(Kind.ALLOC, 64, 50)]


def test_a_block_that_nobody_returns_is_unseen() -> None:
    again = [(Kind.ALLOC, 1, CONTINUED, 50, 1), (Kind.ALLOC, 1, CONTINUED, 60, 1)]

    assert kinds_of(again) == [(Kind.UNSEEN, UNSEEN, 50), (Kind.UNSEEN, UNSEEN, 60)]
    assert kinds_of(again, last=False) == [(Kind.UNSEEN, UNSEEN, 50)]
    assert kinds_of([(Kind.ALLOC, 1, UNSEEN, 50, 1)]) == [(Kind.UNSEEN, UNSEEN, 50)]


def test_a_reallocation_whose_block_is_unseen_ends_and_is_counted() -> None:
    seen, counted = (Kind.MOVED, 0, 0), (Kind.UNSEEN, UNSEEN, 50)

    assert kinds_of([(Kind.MOVED, 1, UNSEEN, 50, 1)]) == [seen, counted]
    assert kinds_of([(Kind.MOVED, 1, OWN, 50, 1)]) == [seen]
    assert kinds_of([(Kind.OUTER, 1, OWN, 50, 1)]) == []


def test_a_free_that_was_not_seen_ends_with_the_next_allocation() -> None:
    heap, sums = added_up([(Kind.ALLOC, 1, 16, 5, 1), (Kind.ALLOC, 2, 16, 7, 2)])

    assert sums.totals.lost_frees.tolist()[:3] == [0, 1, 0]
    assert heap.live.asked.tolist() == [7]


def test_frees_of_unknown_blocks_are_counted() -> None:
    _, sums = added_up([(Kind.FREE, 1, 32, 0, 0), (Kind.MOVE, 1, 48, 0, 0)])

    assert sums.unknown_frees == 2


def test_the_most_bytes_are_those_of_a_moment_between() -> None:
    rows = [(Kind.ALLOC, 1, 16, 50, 1), (Kind.ALLOC, 1, 32, 60, 1), (Kind.FREE, 1, 16, 0, 0)]

    _, sums = added_up(rows)

    assert (sums.most_given, sums.most_at, sums.live_given) == (110, 1, 60)


@pytest.mark.parametrize(
    ("asked", "glibc", "jemalloc"),
    [(0, 24, 8), (1, 24, 8), (24, 24, 32), (25, 40, 32), (128, 136, 128), (129, 136, 160),
     (1000, 1000, 1024), (1025, 1032, 1280), (5000, 5000, 5120), (20000, 20008, 20480)],
)  # fmt: skip
def test_allocators_give_what_their_rules_say(asked: int, glibc: int, jemalloc: int) -> None:
    sizes, blocks = np.array([asked]), np.array([0x5000_0120], np.uint64)

    assert by_glibc(sizes, blocks).tolist() == [glibc]
    assert by_jemalloc(sizes, blocks).tolist() == [jemalloc]


def test_a_header_says_the_size_or_nothing() -> None:
    headers = np.array([0x31, 0x41000 | 2, 0, 0xFFFF_FFFF_FFFF_FFF8], np.uint64)
    asked = np.array([40, 200_000, 77, 5])

    assert by_header(headers, asked).tolist() == [40, 0x41000 - 16, 77, 5]

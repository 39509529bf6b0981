"""The blocks that the runtime makes of steps, in this process: against a model of them."""

from __future__ import annotations

import ctypes
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import markerjit.abi as abi
from markerjit.allocations.heap import Heap, heap_of
from markerjit.allocations.steps import CONTINUED, GIVES, OWN, UNSEEN, Kind
from markerjit.allocations.summary import AllocationSite, CallSite, sites_of
from markerjit.arena.aggregates import Aggregate, Size, Ticks
from markerjit.arena.blocks import PLACE_WORDS, Blocks
from markerjit.model import CType, Signature, TypeClass
from markerjit.patch.request import HeapStep
from markerjit.probes.recorders import Recorders
from markerjit.session.allocations import AllocationTrace, AskedAllocations
from markerjit.session.held import Source
from tests.support.choice import examples, share, spacing
from tests.support.own_arena import LONG, RESTARTABLE, SHARED, OwnArena, Slot, geometry_of
from tests.support.recorder_code import compile_calls, instructions

Row = tuple[Kind, int, int, int, int]  # kind, thread, block, asked, site

POINTER = CType(TypeClass.POINTER, 8)
KINDS = {kind.name.lower(): kind for kind in Kind}
FORMAT = "block %p asked %ld site %p header %ld"
SELECT = "block=block, asked=asked, caller=site"
THREADS = 3
HUGE = 1 << 40


@pytest.fixture(scope="module", params=[RESTARTABLE, SHARED])
def own(request: pytest.FixtureRequest) -> OwnArena:
    return OwnArena(geometry_of(max_markers=512, aggregate_pages=2048), way=request.param)


class Steps:
    """Markers of this process, one for each kind of step, and threads that hit them."""

    def __init__(
        self, own: OwnArena, *, places: int, sites: int = 16, gives: str = "", select: str = SELECT
    ) -> None:
        self._arena = own.arena
        self._threads = [ThreadPoolExecutor(1) for _ in range(THREADS)]
        size = Size(1, abi.BLOCK_COUNTS, sites, slow_words=PLACE_WORDS, slow_room=places)
        self.aggregate = own.arena.aggregates.make(size, Ticks(1 << 32))
        recorders = Recorders(own.arena)
        probe = HeapStep.of(select, KINDS, GIVES[gives], counter=False, by="site")
        self._slots = {}
        for name, kind in KINDS.items():
            signature = Signature(name, FORMAT, (POINTER, LONG, POINTER, LONG))
            recorders.tell([signature], probe)
            marker = recorders.find(signature, probe)
            assert marker is not None
            own.arena.markers.set_aggregate(marker, self.aggregate.ticket)
            address = own.arena.markers.address(marker)
            slot = Slot(probe=own.arena.asking_probe(marker), data=address, preserving=1)
            self._slots[kind] = slot

    def hit(self, kind: Kind, block: int, asked: int = 0, site: int = 1, header: int = 0) -> None:
        self._slots[kind].hit(
            ctypes.c_void_p(block), ctypes.c_int64(asked), ctypes.c_void_p(site),
            ctypes.c_int64(header),
        )  # fmt: skip

    def take(self, rows: Sequence[Row]) -> None:
        """Each step in its thread, one behind the other."""
        for kind, tid, block, asked, site in rows:
            self._threads[tid - 1].submit(self.hit, kind, block, asked, site).result()

    def copy(self) -> Blocks:
        return self._arena.aggregates.copy_blocks(self.aggregate)

    def read(self) -> Heap:
        return heap_of(self.copy())

    def sites(self) -> dict[int, AllocationSite]:
        heap = self.read()
        named = {number: CallSite(key, str(key)) for number, key in heap.keys.items()}
        return {each.site.address: each for each in sites_of(heap, named, 0, lambda time: time)}

    def slot(self, kind: Kind) -> Slot:
        """The marker of these steps."""
        return self._slots[kind]

    def shared(self) -> tuple[int, int]:
        """The bytes that are live, and how many blocks are not at a place of theirs that is near
        others."""
        aggregates = self._arena.aggregates
        entry = aggregates._table.read(self.aggregate.ticket % abi.AGGREGATES)
        return int(entry.live), int(entry.spilled)

    def set_shared(self, live: int, spilled: int) -> None:
        """Make these words what they are to be."""
        aggregates = self._arena.aggregates
        aggregates._write(self.aggregate.ticket, "live", live)
        aggregates._write(self.aggregate.ticket, "spilled", spilled)

    def free(self) -> None:
        for each in self._threads:
            each.shutdown()
        self._arena.aggregates.free(self.aggregate.ticket)
        self._arena.aggregates.reclaim(lambda ticket: False)


@contextmanager
def stepping(own: OwnArena, **kwargs: Any) -> Iterator[Steps]:
    steps = Steps(own, **{"places": 1 << 10, **kwargs})
    try:
        yield steps
    finally:
        steps.free()


@pytest.fixture
def steps(own: OwnArena) -> Iterator[Steps]:
    with stepping(own) as made:
        yield made


def live_blocks(copy: Blocks, heap: Heap) -> dict[int, tuple[int, int]]:
    """By address: the site and the bytes."""
    rows = np.frombuffer(copy.blocks, np.uint64).reshape(-1, abi.BLOCK_WORDS).tolist()
    return {key: (heap.keys[where & abi.NO_SITE], asked) for key, _, asked, _, where, _ in rows}


def by_key(heap: Heap, column: int) -> Counter[int]:
    return +Counter({key: int(heap.counts[number][column]) for number, key in heap.keys.items()})


# ---- a model -------------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """What threads may do with few addresses: each step is one that can follow."""
    rows: list[Row] = []
    live: set[int] = set()
    moving: dict[int, tuple[int, bool]] = {}
    for _ in range(draw(st.integers(0, 40))):
        tid, site, size = (draw(st.integers(1, most)) for most in (THREADS, 5, 100))
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
    # What a thread has begun is no part of the model.
    ends = [(tid, 0 if fails else 1600 + 16 * tid) for tid, (_, fails) in moving.items()]
    return rows + [(Kind.MOVED, tid, block, 1, 5) for tid, block in ends]


def modelled(rows: list[Row]) -> tuple[dict[int, tuple[int, int]], Counter[int], Counter[int]]:
    """The live blocks with site and bytes, and allocations and frees by site."""
    live: dict[int, tuple[int, int]] = {}
    made, freed = Counter[int](), Counter[int]()
    given_up: dict[int, tuple[int, tuple[int, int]]] = {}
    for kind, tid, block, asked, site in rows:
        if kind == Kind.FREE:
            freed[live.pop(block)[0]] += 1
        elif kind == Kind.MOVE:
            given_up[tid] = block, live.pop(block)
        else:
            if kind == Kind.MOVED:
                old, known = given_up.pop(tid)
                if not block:
                    live[old] = known
                    continue
                freed[known[0]] += 1
            if kind == Kind.OUTER:
                made[live.pop(block)[0]] -= 1
            live[block] = site, asked
            made[site] += 1
    return live, +made, +freed


def left_to_others(draw: st.DrawFn, rows: list[Row]) -> list[Row]:
    """The rows with some allocations in two halves."""
    halves: list[Row] = []
    for kind, tid, block, asked, site in rows:
        if kind >= Kind.ALLOC and draw(st.booleans()):
            halves.append((kind, tid, CONTINUED, asked, site))
            halves += [(Kind.RESULT, tid, CONTINUED, 0, 0)] * draw(st.booleans())  # a third one
            halves.append((Kind.RESULT, tid, block, 0, 0))
        else:
            halves += [(Kind.RESULT, tid, 4096, 0, 0)] * draw(st.booleans())  # of no allocation
            halves.append((kind, tid, block, asked, site))
    return halves


@pytest.mark.product
@pytest.mark.parametrize("places", [64, 1 << 10])
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_blocks_are_those_of_a_model(own: OwnArena, places: int, data: st.DataObject) -> None:
    rows = data.draw(histories())
    with stepping(own, places=places) as steps:
        steps.take(left_to_others(data.draw, rows))
        copy, heap = steps.copy(), steps.read()
    live, made, freed = modelled(rows)

    assert live_blocks(copy, heap) == live
    assert by_key(heap, abi.BLOCK_ALLOCATIONS) == made
    assert by_key(heap, abi.BLOCK_FREES) == freed
    assert by_key(heap, abi.BLOCK_UNTRACKED) == by_key(heap, abi.BLOCK_REUSED) == Counter()
    assert int(heap.live_given.sum()) == sum(asked for _, asked in live.values())
    assert (heap.unknown, heap.unseen, heap.begun, heap.no_site) == (0, 0, 0, 0)
    assert copy.threads == len({tid for _, tid, *_ in rows})


@settings(max_examples=examples(30), deadline=None)
@given(before=st.integers(0, 90), fails=st.booleans(), rows=histories())
def test_in_a_table_that_is_full_each_block_is_in_one_number(
    own: OwnArena, before: int, fails: bool, rows: list[Row]
) -> None:
    """The block of a reallocation has another place meanwhile, which may be taken, and so may be
    its old one afterwards."""
    first = [(Kind.ALLOC, 1, 4096 + 16 * number, 8, 6) for number in range(before)]
    live, _, _ = modelled(first + rows)
    moves = [
        row
        for block in live
        for row in ((Kind.MOVE, 2, block, 0, 0), (Kind.MOVED, 2, 0 if fails else block, 1, 5))
    ]
    with stepping(own, places=64) as steps:
        steps.take(first + rows + moves)
        full = steps.read()
        steps.take([(Kind.FREE, 3, block, 0, 0) for block in live])
        empty = steps.read()
        steps.hit(Kind.ALLOC, 16, HUGE)
        copy = steps.copy()

    for heap in (full, empty):
        made, *ends = (
            sum(by_key(heap, column).values())
            for column in (abi.BLOCK_ALLOCATIONS, abi.BLOCK_FREES, abi.BLOCK_UNTRACKED)
        )
        assert made == sum(ends) + int(heap.live.sum())
    assert not empty.live.any()
    assert copy.most == HUGE  # nothing else is live


# ---- one by one ----------------------------------------------------------------------------------


def test_a_poll_copies_no_blocks(own: OwnArena) -> None:
    copies: list[Aggregate] = []
    sites: Any = SimpleNamespace(look=lambda: None, of=lambda key: CallSite(key, ""))
    target: Any = SimpleNamespace(pid=os.getpid(), command="")
    nothing: Any = None
    asked = AskedAllocations(nothing, nothing, nothing, read=False, limit=100, duration=None)

    def copy(aggregate: Aggregate) -> Blocks:
        copies.append(aggregate)
        return own.arena.aggregates.copy_blocks(aggregate)

    with stepping(own) as steps:
        source = Source(own.arena, steps.aggregate, copy, lambda: True)
        sums = own.arena.aggregates.copy
        trace = AllocationTrace(source, target, asked, nothing, sites, sums)
        steps.take([(Kind.ALLOC, 1, 16 * number, 8, number) for number in range(1, 6)])
        polled = [trace.poll(), trace.poll()]

    assert polled == [5, 0]
    assert copies == []


def test_a_free_that_was_not_seen_ends_with_the_next_allocation(steps: Steps) -> None:
    steps.take([(Kind.ALLOC, 1, 64, 10, 1), (Kind.ALLOC, 2, 64, 20, 2)])
    sites = steps.sites()

    assert (sites[1].lost_frees, sites[1].live, sites[2].live_asked) == (1, 0, 20)


def test_frees_of_unknown_blocks_are_counted(steps: Steps) -> None:
    steps.take([(Kind.FREE, 1, 64, 0, 0), (Kind.MOVE, 1, 80, 0, 0), (Kind.MOVED, 1, 96, 5, 1)])
    heap = steps.read()

    assert (heap.unknown, int(heap.live.sum())) == (2, 1)


def test_a_reallocation_of_an_unknown_block_that_fails_frees_nothing(steps: Steps) -> None:
    steps.take([(Kind.MOVE, 1, 80, 0, 0), (Kind.MOVED, 1, 0, 5, 1)])

    assert steps.read().unknown == 0
    assert steps.sites()[1].failed == 1


def test_a_reallocation_to_no_bytes_frees_its_block(steps: Steps) -> None:
    steps.take([(Kind.ALLOC, 1, 80, 9, 1), (Kind.MOVE, 1, 80, 0, 0), (Kind.MOVED, 1, 0, 0, 2)])
    sites = steps.sites()

    assert (sites[1].frees, sites[1].live) == (1, 0)
    assert 2 not in sites


def test_a_reallocation_by_way_of_free_and_malloc_is_one(steps: Steps) -> None:
    steps.take([
        (Kind.ALLOC, 1, 80, 9, 1), (Kind.MOVE, 1, 80, 0, 0), (Kind.ALLOC, 1, 96, 20, 3),
        (Kind.FREE, 1, 80, 0, 0), (Kind.MOVED, 1, 96, 20, 2),
    ])  # fmt: skip
    sites = steps.sites()

    assert (sites[1].frees, sites[1].live, sites[2].live) == (1, 0, 1)
    assert 3 not in sites
    assert steps.read().unknown == 0


def test_what_a_reallocation_has_tried_in_vain_is_one_failure(steps: Steps) -> None:
    steps.take([
        (Kind.ALLOC, 1, 80, 9, 1), (Kind.MOVE, 1, 80, 0, 0), (Kind.ALLOC, 1, 0, 99, 3),
        (Kind.MOVED, 1, 0, 99, 2),
    ])  # fmt: skip
    sites = steps.sites()

    assert (sites[1].live, sites[2].failed) == (1, 1)
    assert 3 not in sites


@pytest.mark.parametrize("block", [UNSEEN, OWN])
def test_a_block_whose_address_is_not_known_is_counted_or_anothers(
    steps: Steps, block: int
) -> None:
    steps.take([
        (Kind.ALLOC, 1, 80, 9, 1), (Kind.MOVE, 1, 80, 0, 0), (Kind.MOVED, 1, block, 20, 2),
        (Kind.ALLOC, 1, block, 5, 2),
    ])  # fmt: skip

    assert steps.read().unseen == (2 if block == UNSEEN else 0)
    assert (steps.sites()[1].frees, steps.sites()[1].live) == (1, 0)


def test_a_block_that_nobody_returns_is_begun_or_unseen(steps: Steps) -> None:
    steps.take([(Kind.ALLOC, 1, CONTINUED, 9, 1)])
    first = steps.read()
    steps.take([(Kind.ALLOC, 1, CONTINUED, 9, 1)])
    second = steps.read()

    assert (first.begun, first.unseen) == (1, 0)
    assert (second.begun, second.unseen) == (1, 1)


def test_the_most_bytes_are_those_of_a_moment_between(steps: Steps) -> None:
    steps.take([
        (Kind.ALLOC, 1, 16, 50, 1), (Kind.ALLOC, 2, 32, 60, 1), (Kind.FREE, 1, 16, 0, 0),
        (Kind.ALLOC, 1, 48, 5, 1),
    ])  # fmt: skip

    assert steps.copy().most == 110


def test_who_frees_and_how_long_blocks_lived_is_added_up(steps: Steps) -> None:
    steps.take([(Kind.ALLOC, 1, 16, 1, 1), (Kind.FREE, 2, 16, 0, 0)])
    steps.take([(Kind.ALLOC, 1, 16, 1, 1), (Kind.FREE, 1, 16, 0, 0)])
    site = steps.sites()[1]

    assert (site.frees, site.other_thread) == (2, 1)
    assert site.longest_ns and site.mean_ns and site.median_ns
    assert 0 < site.mean_ns <= site.longest_ns <= 2 * site.mean_ns
    assert site.median_ns <= 2 * site.longest_ns


def test_what_finds_no_room_is_counted(own: OwnArena) -> None:
    with stepping(own, places=64, sites=4) as steps:
        for number in range(1, 201):
            steps.hit(Kind.ALLOC, 16 * number, 8, 1)
        for site in range(2, 10):
            steps.hit(Kind.ALLOC, 0x100000 + 16 * site, 8, site)
        for number in range(1, 201):
            steps.hit(Kind.FREE, 16 * number)
        heap, sites = steps.read(), steps.sites()

    assert sites[1].allocations == 200
    assert sites[1].frees + sites[1].untracked == 200
    assert 200 - 64 <= sites[1].untracked < 200
    assert heap.unknown == sites[1].untracked
    assert heap.no_site == 9 - 4
    assert len(sites) == 4


@pytest.mark.parametrize(
    ("asked", "glibc", "jemalloc"),
    [
        (1, 24, 8), (8, 24, 8), (9, 24, 16), (24, 24, 32), (25, 40, 32), (128, 136, 128),
        (129, 136, 160), (1000, 1000, 1024), (1025, 1032, 1280), (5000, 5000, 5120),
    ],
)  # fmt: skip
def test_allocators_give_what_their_rules_say(
    own: OwnArena, asked: int, glibc: int, jemalloc: int
) -> None:
    for gives, expected in (("glibc", glibc), ("jemalloc", jemalloc), ("", asked)):
        with stepping(own, gives=gives) as steps:
            steps.hit(Kind.ALLOC, 64, asked)
            assert steps.sites()[1].given == expected


def test_a_mapping_of_glibc_ends_with_a_page(own: OwnArena) -> None:
    with stepping(own, gives="glibc") as steps:
        steps.hit(Kind.ALLOC, (7 << 12) + 16, 200_000)
        steps.hit(Kind.ALLOC, (900 << 12) + 32, 200_000, site=2)
        sites = steps.sites()

    assert sites[1].given == 49 * 4096 - 16 == 200_688
    assert sites[2].given == 200_008


def test_a_header_says_the_size_or_nothing(own: OwnArena) -> None:
    with stepping(own, gives="glibc", select=f"{SELECT}, header=header") as steps:
        for header in (1024 | 1, 4096 | 2, 0, 8):
            steps.hit(Kind.ALLOC, 64 + 16 * header, 100, site=header + 1, header=header)
        given_bytes = [steps.sites()[header + 1].given for header in (1025, 4098, 0, 8)]

    assert given_bytes == [1016, 4080, 100, 100]


def test_threads_at_once_lose_nothing(own: OwnArena) -> None:
    """Each has addresses of its own, in the same places of the table."""
    turns, blocks = 300, 20

    def work(steps: Steps, number: int) -> None:
        for _ in range(turns):
            for at in range(blocks):
                steps.hit(Kind.ALLOC, 16 * (at * 4 + number) + 16, 8, number + 1)
            for at in range(blocks):
                steps.hit(Kind.FREE, 16 * (at * 4 + number) + 16)

    with stepping(own, places=256) as steps:
        threads = [threading.Thread(target=work, args=(steps, number)) for number in range(3)]
        _all(threads, threading.Thread.start)
        _all(threads, threading.Thread.join)
        heap, sites, copy = steps.read(), steps.sites(), steps.copy()

    assert {site: each.frees for site, each in sites.items()} == dict.fromkeys(
        (1, 2, 3), turns * blocks
    )
    assert (heap.unknown, len(copy.blocks)) == (0, 0)


def _all(threads: Sequence[threading.Thread], do: Callable[[threading.Thread], None]) -> None:
    for thread in threads:
        do(thread)


# ---- forks ---------------------------------------------------------------------------------------


@pytest.mark.forks
@pytest.mark.parametrize("kind", [Kind.ALLOC, pytest.param(Kind.FREE, marks=pytest.mark.long)])
def test_a_fork_in_a_step_changes_no_word_of_the_parent_but_behind_a_look(
    build: Path, tmp_path: Path, kind: Kind
) -> None:
    """From the last look whether this is a child to what it does: to take a place, and to add."""
    own = OwnArena(geometry_of(max_markers=512, aggregate_pages=2048), way=SHARED)
    calls = compile_calls(tmp_path)
    near, spilled = [16 * (1 + 32 * number) for number in range(16)], 16 * (1 + 32 * 16)
    expected = (100, 1) if kind == Kind.ALLOC else (-100, -1)
    came, wrong = 0, []
    with stepping(own, places=32, select="block=block, asked=100, caller=1") as steps:
        for block in near:
            steps.hit(Kind.ALLOC, block)
        slot = steps.slot(kind)
        addresses = instructions(own, slot, own.base + own.arena.entry.gate_pair)
        for address in share(addresses, 3, kind == Kind.FREE):
            steps.hit(Kind.FREE, spilled)
            steps.set_shared(100 * len(near), 0)
            if kind == Kind.FREE:
                steps.hit(Kind.ALLOC, spilled)
            live, others = steps.shared()
            came += calls.forking(slot, spilled, address)
            if steps.shared() != (live + expected[0], others + expected[1]):
                wrong.append(address - own.base)

    assert came > 400 // spacing(3)
    assert len(wrong) <= 6 * 2
    assert len({at // 64 for at in wrong}) <= 2 * 2, "in two places, which are short"

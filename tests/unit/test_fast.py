"""The fast path of a stub, executed: it counts and records as the probes do that it stands for."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from markerjit.abi import ALIVE, PAGE, STASH_SIZE, TAKES_TIME, Stash
from markerjit.model import CType, Duration, Kept, Signature, TypeClass
from markerjit.probes.fast import OF_CALLS, USUAL, FastPaths, can_be_fast
from markerjit.ring.types import Options
from tests.support.own_arena import ASSEMBLED, CHARS, INT, SHARED, OwnArena, Slot, geometry_of
from tests.support.stub_host import NAMES, VALUES, Host, build_host, parsed

MAP_NORESERVE = 0x4000
LONG = CType(TypeClass.UNSIGNED, 8)
RETURN = Signature("func:f:return", "ret=%lu dur=%lu first=%lu second=%d", (LONG, LONG, LONG, INT))


@pytest.fixture(scope="module")
def host(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Host:
    return build_host(tmp_path_factory.mktemp("stub"))


@pytest.fixture
def own(build: Path) -> Iterator[OwnArena]:
    """Everything happens on one CPU, so that one ring and one counter have it."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    yield OwnArena(way=ASSEMBLED)
    os.sched_setaffinity(0, allowed)


SPOILT = b"\xcc"
"""A trap, in place of a probe's first instruction: only a fast path does without it."""


def hit(
    host: Host, own: OwnArena, slot: Slot, text: str, format_: str, *, way: Options = USUAL,
    times: int = 1, keeps: bool = False,
) -> None:  # fmt: skip
    """Execute a site with this slot and these operands, whose stub has a fast path."""
    operands, args = parsed(text)
    host.fast = FastPaths(own.arena, way).of(Signature("m", format_, args))
    before, host.slot = host.slot, slot
    try:
        for _ in range(times):
            host.execute(operands, args, keeps=keeps)
    finally:
        host.slot, host.fast = before, None


def spoil(own: OwnArena, slot: Slot) -> None:
    """Only a fast path can do without the probe from now on. Its ring has room by then."""
    own.marker("first", options=USUAL, name="first").hit()
    assert len(own.records()) == 1
    own.store.write(slot.probe - own.base, SPOILT)


def recorded(host: Host, own: OwnArena, text: str, format_: str) -> list[object]:
    """The fields of the event of a site with these operands."""
    slot = own.marker(format_, *parsed(text)[1], options=USUAL)
    spoil(own, slot)
    hit(host, own, slot, text, format_)
    (event,) = own.records()
    assert event.tid == threading.get_native_id()
    return list(event.fields.values())


def test_it_counts(host: Host, own: OwnArena) -> None:
    slot = own.marker("%lu", LONG, count=True)
    spoil(own, slot)

    hit(host, own, slot, "8@%rdi", "%lu", times=5)

    assert own.counted().hits == 5


@pytest.mark.parametrize("name", NAMES)
def test_it_records_each_register(host: Host, own: OwnArena, name: str) -> None:
    (value,) = recorded(host, own, f"8@%{name}", "%lu")

    top = ctypes.addressof(host.stack) + (1 << 15) & -16
    assert value == (top if name == "rsp" else VALUES[name])


@pytest.mark.parametrize("name", ["dil", "r10b", "cl", "dh", "ah", "di", "r11w", "edx", "r10d"])
def test_it_records_parts_of_registers_with_their_sign(
    host: Host, own: OwnArena, name: str
) -> None:
    size = {"dil": 1, "r10b": 1, "cl": 1, "dh": 1, "ah": 1, "di": 2, "r11w": 2}.get(name, 4)
    whole = VALUES[{"dil": "rdi", "di": "rdi", "cl": "rcx", "dh": "rdx", "ah": "rax", "edx": "rdx"}
                   .get(name, name.rstrip("bwd"))]  # fmt: skip
    low = (whole >> 8 * name.endswith("h")) & (1 << 8 * size) - 1
    signed = low - (low >> 8 * size - 1 << 8 * size)

    letter = {1: "hh", 2: "h", 4: ""}[size]
    values = recorded(host, own, f"{size}@%{name} -{size}@%{name}", f"%{letter}u %{letter}d")

    assert values == [low, signed]


def test_it_records_memory_constants_and_doubles(host: Host, own: OwnArena) -> None:
    place = host.address("word")
    format_ = "%lu %d %lu %g"

    values = recorded(host, own, "8@-8(%rsp) -4@$-7 8@16(%rsp) 8f@%xmm3", format_)

    (double,) = struct.unpack("<d", bytes(range(48, 56)))
    assert place and values[1:] == [-7, 0, double]


def test_it_records_the_stack_pointer_for_calls(host: Host, own: OwnArena) -> None:
    slot = own.marker("%lu", LONG, options=OF_CALLS)
    spoil(own, slot)

    hit(host, own, slot, "8@%rdi", "%lu", way=OF_CALLS)

    ((_, data),) = [taken for ring in own.own for taken in ring.take()]
    top = ctypes.addressof(host.stack) + (1 << 15) & -16
    assert struct.unpack("<4Q", data)[2:] == (top, VALUES["rdi"])


@pytest.mark.parametrize("options", [USUAL._replace(thread_id=False), OF_CALLS, Options()],
                         ids=["without thread", "with rsp", "counted"])  # fmt: skip
def test_records_of_another_layout_are_left_to_their_recorder(
    host: Host, own: OwnArena, options: Options
) -> None:
    slot = own.marker("%lu", LONG, options=options)

    hit(host, own, slot, "8@%rdi", "%lu")

    walked = own.walks()
    assert sum(len(each.starts) for each in walked) == 1


def test_a_page_without_room_and_a_full_ring_are_left_to_the_recorder(
    host: Host, own: OwnArena
) -> None:
    own = OwnArena(geometry_of(ring_size=4 * PAGE), way=ASSEMBLED)
    slot = own.marker("%lu", LONG, options=USUAL)
    room = own.geometry.ring_size // 24

    hit(host, own, slot, "8@%rdi", "%lu", times=room + 100)

    events = own.records()
    assert 0 < room - len(events) < room // 50, "but for the ends of pages"
    assert own.counted().lost == room + 100 - len(events)


def test_a_child_of_a_fork_records_nothing(host: Host, own: OwnArena) -> None:
    slot = own.marker("%lu", LONG, options=USUAL)
    own.store.write(ALIVE, bytes(8))

    hit(host, own, slot, "8@%rdi", "%lu")

    own.revive()
    assert not own.records()


def test_there_is_none_without_restartable_sequences(build: Path) -> None:
    assert FastPaths(OwnArena(way=SHARED).arena).of(Signature("m", "%lu", (LONG,))) is None


def test_a_text_is_left_to_the_recorder(own: OwnArena) -> None:
    fast = FastPaths(own.arena).of(Signature("m", "%s", (CHARS,)))

    assert fast and fast.layout is None


@pytest.mark.parametrize("text", ["8@(%rdx)", "8@8(%rax,%r10,4)", "4f@%xmm0"])
def test_operands_that_need_what_it_uses_have_none(own: OwnArena, host: Host, text: str) -> None:
    operands, args = parsed(text)

    assert not can_be_fast(args, operands)


# ---- what an entry keeps -------------------------------------------------------------------------


class Stashed(NamedTuple):
    """The memory of what entries keep, and the slot of an entry that keeps something there."""

    memory: mmap.mmap
    entry: Slot


@pytest.fixture
def stashed(own: OwnArena) -> Stashed:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    memory = mmap.mmap(-1, STASH_SIZE, flags=flags)
    find, claim = (own.base + own.arena.entry.stash_find, own.base + own.arena.entry.stash_claim)
    memory[: ctypes.sizeof(Stash)] = bytes(Stash(claim=claim, find=find, ns_per_tick=1 << 31))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return Stashed(memory, Slot(token=7, stash=address))


def enter(host: Host, own: OwnArena, stashed: Stashed) -> None:
    """Be at the entry of a function that nobody listens to, and that keeps two operands."""
    hit(host, own, stashed.entry, "8@%rdi -4@%ecx", "%lu %d", keeps=True)


def leave(host: Host, own: OwnArena, stashed: Stashed, slot: Slot) -> None:
    """Be at the exit of the same call."""
    (rax,), _ = parsed("8@%rax")
    host.fast = FastPaths(own.arena).of(RETURN)
    before, host.slot = host.slot, slot
    try:
        host.execute((rax, Duration(), Kept(0), Kept(1)), RETURN.args, entry=stashed.entry)
    finally:
        host.slot, host.fast = before, None


def test_an_exit_takes_what_the_entry_has_kept(host: Host, own: OwnArena, stashed: Stashed) -> None:
    slot = own.marker(RETURN.format, *RETURN.args, options=USUAL, name=RETURN.name)
    enter(host, own, stashed)  # the page gets its places
    spoil(own, slot)
    own.store.write(own.arena.entry.stash_claim, SPOILT)
    own.store.write(own.arena.entry.stash_find, SPOILT)

    enter(host, own, stashed)
    leave(host, own, stashed, slot)

    (event,) = own.records()
    ret, lasted, first, second = event.fields.values()
    assert ret == VALUES["rax"] and first == VALUES["rdi"]
    assert second == VALUES["rcx"] - (1 << 64) | 0x7FFFFFFF - 0xFFFFFFFF or second < 0
    assert isinstance(lasted, int) and 0 < lasted < 1 << 40


def test_what_an_entry_has_kept_is_taken_once(host: Host, own: OwnArena, stashed: Stashed) -> None:
    slot = own.marker(RETURN.format, *RETURN.args, options=USUAL, name=RETURN.name)
    slot.stash = slot.probe + TAKES_TIME
    enter(host, own, stashed)

    leave(host, own, stashed, slot)
    leave(host, own, stashed, slot)

    assert len(own.records()) == 1
    assert slot.token == 1, "a return whose entry was not seen"


def test_an_exit_that_only_counts_leaves_what_was_kept(
    host: Host, own: OwnArena, stashed: Stashed
) -> None:
    slot = own.marker(RETURN.format, *RETURN.args, count=True, name=RETURN.name)
    spoil(own, slot)
    enter(host, own, stashed)
    before = bytes(stashed.memory)

    leave(host, own, stashed, slot)

    assert own.counted(RETURN.name).hits == 1
    assert bytes(stashed.memory) == before


def test_an_entry_that_has_a_probe_does_both(host: Host, own: OwnArena, stashed: Stashed) -> None:
    slot = own.marker("%lu %d", LONG, INT, options=USUAL)
    slot.token, slot.stash = stashed.entry.token, stashed.entry.stash
    enter(host, own, stashed)
    spoil(own, slot)
    leaving = own.marker(RETURN.format, *RETURN.args, options=USUAL, name=RETURN.name)

    hit(host, own, slot, "8@%rdi -4@%ecx", "%lu %d", keeps=True)
    leave(host, own, stashed._replace(entry=slot), leaving)

    entered, left = own.records()
    assert list(entered.fields.values()) == list(left.fields.values())[2:]

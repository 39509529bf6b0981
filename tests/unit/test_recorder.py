"""The real recorder, in this process: what it writes is read with RingReader and decoded.

It is called through slots, as a marker's body calls it: from several threads, from a signal handler
that comes in at every instruction of another recording, from the child of a fork.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from ctypes import c_char_p, c_double, c_int, c_int32, c_uint64
from pathlib import Path

import pytest
from own_arena import OwnArena, Slot

from markerjit.elf import parse_format
from markerjit.model import CType, TypeClass, Value
from markerjit.probes.record import recorder_taking
from markerjit.ring.decode import decode
from markerjit.ring.layout import MAX_STRING, OP_BYTES, OP_FP, OP_GP, OP_STRING, Geometry

ROOT = Path(__file__).resolve().parent.parent.parent
GEOMETRY = Geometry(rings=1, ring_size=1 << 16, max_markers=8, max_sites=4, max_edits=4)
INT = CType(TypeClass.SIGNED, 4)
CHARS = CType(TypeClass.CHARS, 8)

HELPER = """
#define _GNU_SOURCE
#include <markerjit/abi.h>
#include <signal.h>
#include <ucontext.h>

#define TRAP_FLAG 0x100

void call_many(struct mj_slot *slot, uint64_t from, uint64_t to) {
    for (uint64_t i = from; i < to; i++)
        slot->probe(slot, i);
}

static struct mj_slot *nested;
static uint64_t wanted, steps;

/* After each instruction; at the wanted one, a recording inside the other. */
static void on_step(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    if (++steps < wanted)
        return;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    nested->probe(nested, wanted);
}

/* Whether the call was long enough to be interrupted after that instruction. */
int call_interrupted(struct mj_slot *slot, struct mj_slot *inside, uint64_t after) {
    struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO}, old;

    nested = inside;
    wanted = after;
    steps = 0;
    sigaction(SIGTRAP, &action, &old);
    __asm__ __volatile__("pushfq; orq %0, (%%rsp); popfq" : : "i"(TRAP_FLAG) : "memory", "cc");
    slot->probe(slot, after);
    __asm__ __volatile__("pushfq; andq %0, (%%rsp); popfq" : : "i"(~TRAP_FLAG) : "memory", "cc");
    sigaction(SIGTRAP, &old, 0);
    return steps >= wanted;
}
"""


@pytest.fixture(scope="module")
def helper(build: Path, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Calls that Python is too slow for, or cannot be interrupted in."""
    folder = tmp_path_factory.mktemp("helper")
    (folder / "helper.c").write_text(HELPER)
    options = ["-O1", "-mno-red-zone", "-shared", "-fPIC", f"-I{ROOT}/native/include"]
    library = folder / "helper.so"
    subprocess.run(["gcc", *options, "-o", library, folder / "helper.c"], check=True)
    return ctypes.CDLL(str(library))


@pytest.fixture
def own(build: Path) -> OwnArena:
    return OwnArena(GEOMETRY)


def taken(own: OwnArena, format_: str, args: tuple[CType, ...], *values: object) -> list[Value]:
    """What a marker of this format and types delivers for these values."""
    fields = parse_format(format_, args)
    taking = recorder_taking(args, fields)
    own.slot(taking.ops, taking.limits).hit(*values)
    (record,) = own.records()
    return list(decode(record.payload, args, fields).values())


# ---- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("number", [0, 1, -1, 127, -128])
def test_signed_numbers_of_every_size(own: OwnArena, size: int, number: int) -> None:
    register = c_uint64(number & (1 << 8 * size) - 1 | 0xA5A5A5A5A5A5A5A5 << 8 * size)

    assert taken(own, "n %d", (CType(TypeClass.SIGNED, size),), register) == [number]


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_unsigned_numbers_of_every_size(own: OwnArena, size: int) -> None:
    most = (1 << 8 * size) - 1

    found = taken(own, "n %u", (CType(TypeClass.UNSIGNED, size),), c_uint64((1 << 64) - 1))

    assert found == [most]


def test_numbers_and_floats_in_registers_and_on_the_stack(own: OwnArena) -> None:
    long, double = CType(TypeClass.SIGNED, 8), CType(TypeClass.FLOAT, 8)
    args = (long, double) * 6
    values = [kind(i + 1) for i, kind in enumerate((c_uint64, c_double) * 6)]

    assert taken(own, "%ld %g " * 6, args, *values) == list(range(1, 13))


def test_ten_floats_are_more_than_there_are_registers_for(own: OwnArena) -> None:
    args = (CType(TypeClass.FLOAT, 8),) * 10

    found = taken(own, "%g " * 10, args, *[c_double(i / 4) for i in range(10)])

    assert found == [i / 4 for i in range(10)]


def test_strings_and_numbers_together(own: OwnArena) -> None:
    args = (CHARS, INT, CHARS, CType(TypeClass.FLOAT, 4), CHARS)
    values = (c_char_p(b"one"), c_int(-2), c_char_p(b""), c_double(0.5), c_char_p(b"eight..."))

    assert taken(own, "%s %d %s %f %s", args, *values) == ["one", -2, "", 0.5, "eight..."]


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 255])
def test_strings_come_whole_up_to_their_limit(own: OwnArena, length: int) -> None:
    assert taken(own, "s %s", (CHARS,), c_char_p(b"x" * length)) == ["x" * length]


@pytest.mark.parametrize("length", [257, 10_000])
def test_longer_strings_are_cut_and_say_so(own: OwnArena, length: int) -> None:
    assert taken(own, "s %s", (CHARS,), c_char_p(b"x" * length)) == ["x" * 256 + "…"]


def test_a_precision_in_the_format_is_a_limit_and_no_cut(own: OwnArena) -> None:
    assert taken(own, "s %.3s", (CHARS,), c_char_p(b"abcdef")) == ["abc"]


def test_the_longest_string_that_a_marker_may_have(own: OwnArena) -> None:
    own.slot([OP_STRING], [MAX_STRING]).hit(c_char_p(b"x" * (MAX_STRING - 1)))

    (record,) = own.records()
    assert record.payload == (MAX_STRING - 1).to_bytes(8, "little") + b"x" * 4095 + b"\0"


@pytest.mark.parametrize("pointer", [0, 1, 4095])
def test_a_string_in_the_first_page_is_null(own: OwnArena, pointer: int) -> None:
    assert taken(own, "s %s", (CHARS,), c_uint64(pointer)) == [None]


@pytest.mark.parametrize(
    ("length", "found"),
    [
        (3, "abc"),
        (0, ""),
        (2, "ab"),
        (-1, "abc"),  # is no bound, as in printf
        (-(1 << 31), "abc"),
        (6, "abc"),
        (256, "abc"),
    ],
)
def test_bounded_strings_end_at_their_bound_or_at_a_nul(
    own: OwnArena, length: int, found: Value
) -> None:
    text = c_char_p(b"abc\0ef" + b"." * 1000)

    assert taken(own, "%.*s", (INT, CHARS), c_int32(length), text) == [found]


@pytest.mark.parametrize("length", [257, (1 << 31) - 1])
def test_bounded_strings_are_never_longer_than_the_limit(own: OwnArena, length: int) -> None:
    text = c_char_p(b"." * 1000)

    assert taken(own, "%.*s", (INT, CHARS), c_int32(length), text) == ["." * 256 + "…"]


def test_a_length_is_an_int_whatever_else_is_in_its_register(own: OwnArena) -> None:
    register = c_uint64(0xFFFFFFFF_00000002)

    assert taken(own, "%.*s", (INT, CHARS), register, c_char_p(b"abc")) == ["ab"]


def test_a_bounded_string_may_be_null(own: OwnArena) -> None:
    assert taken(own, "%.*s", (INT, CHARS), c_int32(5), c_uint64(0)) == [None]


def test_bytes_without_an_argument_before_them_are_none(own: OwnArena) -> None:
    own.slot([OP_BYTES], [8]).hit(c_char_p(b"abc"))

    assert [record.payload for record in own.records()] == [bytes(8)]


def test_a_record_says_who_and_when(own: OwnArena) -> None:
    slot = own.slot([])

    slot.hit()
    slot.hit()

    first, second = own.records()
    assert first.tid == second.tid == threading.get_native_id()
    assert 0 < first.time < second.time
    assert (first.cpu, first.marker, first.payload) == (0, 0, b"")


def test_a_thread_id_that_cannot_be_found_is_zero(build: Path) -> None:
    own = OwnArena(GEOMETRY, tid_offset=-1)

    own.slot([]).hit()

    assert [record.tid for record in own.records()] == [0]


# ---- counting and losing -------------------------------------------------------------------------


def test_counting_counts_and_records_nothing(own: OwnArena, helper: ctypes.CDLL) -> None:
    slot = own.slot([OP_GP], count=True)

    helper.call_many(ctypes.byref(slot), c_uint64(0), c_uint64(1000))

    assert own.arena.counted(0) == (1000, 0)
    assert own.records() == []


@pytest.mark.parametrize("limit", [0, 8, 100, 250])
def test_a_full_ring_counts_every_loss(build: Path, limit: int) -> None:
    own = OwnArena(Geometry(rings=1, ring_size=1 << 14, max_markers=2, max_sites=4, max_edits=4))
    slot = own.slot([OP_GP, OP_STRING], [0, limit])
    text = c_char_p(b"x" * 300)
    seen = 0
    for lap in range(6):
        for number in range(1000):
            slot.hit(c_uint64(1000 * lap + number), text)
        seen += len(own.records())

    counted = own.arena.counted(0)
    assert counted.hits == 6000
    assert counted.lost == 6000 - seen > 0
    assert own.readers[0].damaged == 0


def test_a_record_larger_than_the_ring_is_lost_and_the_ring_goes_on(build: Path) -> None:
    own = OwnArena(Geometry(rings=1, ring_size=1 << 12, max_markers=2, max_sites=4, max_edits=4))
    large, small = own.slot([OP_STRING] * 2, [4000] * 2), own.slot([OP_GP])

    large.hit(c_char_p(b"x" * 4000), c_char_p(b"x" * 4000))
    small.hit(c_uint64(1))

    assert own.arena.counted(0) == (1, 1)
    assert [record.payload for record in own.records()] == [(1).to_bytes(8, "little")]


def test_threads_and_a_reader_lose_nothing_but_what_is_counted(
    build: Path, helper: ctypes.CDLL
) -> None:
    own = OwnArena(Geometry(rings=2, ring_size=1 << 14, max_markers=8, max_sites=4, max_edits=4))
    each = 20_000
    slots = [own.slot([OP_GP], name=f"m{index}") for index in range(3)]
    threads = [
        threading.Thread(
            target=helper.call_many, args=(ctypes.byref(slot), c_uint64(1), c_uint64(each + 1))
        )
        for slot in slots
    ]
    for thread in threads:
        thread.start()
    seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
    running = True
    while running:
        running = any(thread.is_alive() for thread in threads)
        for record in own.records():
            seen[record.marker].append(int.from_bytes(record.payload, "little"))
    for thread in threads:
        thread.join()

    for marker, numbers in seen.items():
        counted = own.arena.counted(marker)
        assert counted.hits == each
        assert len(numbers) == len(set(numbers)) == each - counted.lost
        assert set(numbers) <= set(range(1, each + 1))
    assert [reader.damaged for reader in own.readers] == [0, 0]


# ---- interruptions -------------------------------------------------------------------------------


def test_a_signal_handler_may_record_after_any_instruction_of_a_recording(
    own: OwnArena, helper: ctypes.CDLL
) -> None:
    outer, inner = own.slot([OP_GP]), own.slot([OP_GP], name="inner")
    after = 0
    while True:
        after += 1
        interrupted = helper.call_interrupted(
            ctypes.byref(outer), ctypes.byref(inner), c_uint64(after)
        )
        found = own.records()
        payloads = {record.marker: record.payload for record in found}
        assert payloads[0] == after.to_bytes(8, "little"), after
        if not interrupted:
            break
        assert len(found) == 2
        assert payloads[1] == after.to_bytes(8, "little"), after
        assert found[0].time < found[1].time, "positions follow time"

    assert after > 50
    assert own.arena.counted(0) == (after, 0)
    assert own.arena.counted(1) == (after - 1, 0)
    assert own.readers[0].damaged == 0


def test_the_child_of_a_fork_records_and_counts_nothing(own: OwnArena) -> None:
    record, count = own.slot([OP_GP]), own.slot([OP_FP], count=True)
    child = os.fork()
    if not child:
        record.hit(c_uint64(1))
        count.hit(c_double(1))
        os._exit(0)

    assert os.waitpid(child, 0)[1] == 0
    assert own.records() == []
    assert [own.arena.counted(marker) for marker in (0, 1)] == [(0, 0), (0, 0)]
    record.hit(c_uint64(2))
    assert len(own.records()) == 1


def test_a_probe_leaves_its_slot_alone(own: OwnArena) -> None:
    slot = own.slot([OP_GP])
    before = bytes(slot)

    slot.hit(c_uint64(1))

    assert isinstance(slot, Slot)
    assert bytes(slot) == before

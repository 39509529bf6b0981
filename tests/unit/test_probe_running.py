"""Probes in C that run: compiled with each compiler, linked to this process, and called.

The runtime that they call is a stand-in, `probe/host.c`.
"""

from __future__ import annotations

import ctypes
import os
import random
import threading
from collections.abc import Callable
from ctypes import c_char, c_double, c_int, c_uint64

from markerjit.probes.c.unit import Compiled
from tests.support.made_records import CHARS, F64, I8, U64
from tests.support.probe_host import CPUS, EVERYTHING, Host


def test_probe_counts_what_is_passed(host: Host, everything: Compiled) -> None:
    probe = host.load(everything)

    for number in (1, 2, 300):
        probe.call("on_count", c_uint64(number))

    assert probe.counters() == {"hits": 3, "bytes": 303}
    assert [*probe.histograms()["sizes"].buckets()] == [(1, 1, 1), (2, 2, 1), (256, 319, 1)]


def test_counters_of_threads_that_change_their_cpu_are_exact(
    host: Host, everything: Compiled
) -> None:
    probe = host.load(everything)
    threads, times = 4, 20_000

    host.library.hit_from_threads(
        probe.pointer("on_count"), ctypes.byref(probe.slot), threads, c_uint64(times),
        os.cpu_count(),
    )  # fmt: skip

    assert probe.counters()["hits"] == threads * times
    assert probe.counters()["bytes"] == threads * sum(range(times))
    assert probe.histograms()["sizes"].total == threads * times


def test_each_cpu_counts_on_lines_of_its_own(host: Host, everything: Compiled) -> None:
    probe = host.load(everything)
    before = os.sched_getaffinity(0)

    try:
        for cpu in sorted(before):
            os.sched_setaffinity(0, {cpu})
            probe.call("on_count", c_uint64(0))
    finally:
        os.sched_setaffinity(0, before)

    (hits,) = [variable for variable in probe.linked.variables if variable.name == "hits"]
    at = [hits.place + cpu * probe.linked.stride for cpu in range(CPUS)]
    assert [c_uint64.from_address(address).value for address in at] == [
        int(cpu in before) for cpu in range(CPUS)
    ]
    assert probe.linked.stride % 64 == 0
    assert min(variable.place for variable in probe.linked.variables) % 64 == 0


def test_counting_in_a_signal_handler_loses_nothing(host: Host, everything: Compiled) -> None:
    probe = host.load(everything)
    host.library.hit_with_signals.restype = c_uint64
    times = 1_000_000

    handled = host.library.hit_with_signals(
        probe.pointer("on_count"), ctypes.byref(probe.slot), c_uint64(times)
    )

    assert handled > 0
    assert probe.counters()["hits"] == times + handled


def test_probe_knows_where_and_when_it_is(host: Host, everything: Compiled) -> None:
    probe = host.load(everything, {"place": b"ggggg", "named": b"s"})
    entry = ctypes.create_string_buffer(b"x" * 512)  # wherever struct mj_marker has the name
    probe.slot.data = ctypes.addressof(entry)
    before = os.sched_getaffinity(0)
    cpu = max(before)

    try:
        os.sched_setaffinity(0, {cpu})
        probe.call("on_place")
        probe.call("on_place")
    finally:
        os.sched_setaffinity(0, before)

    assert host.events()["named"].text == b"x" * 63
    words = host.events()["place"].words
    assert words[0] & 0xFFFFFFFF == cpu
    assert words[1] & 0xFFFFFFFF == threading.get_native_id()
    assert words[2] > 0
    assert words[3] in (399, 400)  # 1000 ticks, rounded
    assert words[4] == 43  # 41, and one for each call


def test_cpu_number_is_read_without_rdpid_too(host: Host, everything: Compiled) -> None:
    probe = host.load(everything, {"place": b"ggggg"}, has_rdpid=False, tid_offset=-1)
    before = os.sched_getaffinity(0)
    cpu = max(before)

    try:
        os.sched_setaffinity(0, {cpu})
        probe.slot.data = ctypes.addressof(ctypes.create_string_buffer(128))
        probe.call("on_place")
    finally:
        os.sched_setaffinity(0, before)

    assert host.events()["place"].words[0] & 0xFFFFFFFF == cpu
    assert host.events()["place"].words[1] & 0xFFFFFFFF == 0  # the thread's id is not known


def test_cpu_number_that_cannot_be_is_counted_with_the_first(
    host: Host, everything: Compiled
) -> None:
    probe = host.load(everything, cpus=1)
    before = os.sched_getaffinity(0)

    try:
        for cpu in sorted(before):
            os.sched_setaffinity(0, {cpu})
            probe.call("on_count", c_uint64(0))
    finally:
        os.sched_setaffinity(0, before)

    assert probe.counters()["hits"] == len(before)


def test_events_carry_all_their_arguments(host: Host, everything: Compiled) -> None:
    probe = host.load(everything, {"got": b"sgfg", "twelve": b"ggggggggffsg", "nothing": b""})

    probe.call("on_emit", ctypes.c_char_p(b"a key"), c_uint64(5), c_double(2.5), c_int(ord("x")))

    got, twelve = host.events()["got"], host.events()["twelve"]
    assert (got.text, got.words[1], got.real(2), got.words[3] & 0xFF) == (b"a key", 5, 2.5, 120)
    assert [word & 0xFFFFFFFF for word in twelve.words[:8]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (twelve.real(8), twelve.real(9), twelve.text) == (9.5, 10.5, b"two")
    assert twelve.words[11] == ctypes.addressof(probe.slot)
    assert "nothing" in host.events()


def test_the_same_event_may_be_emitted_in_two_places(host: Host, everything: Compiled) -> None:
    probe = host.load(everything, {"got": b"sgfg"})

    probe.call("on_emit", ctypes.c_char_p(b"k"), c_uint64(101), c_double(0), c_int(0))

    (event,) = [candidate for candidate in probe.linked.events if candidate.signature.name == "got"]
    assert len(event.words) == 2
    assert host.events()["got"].text == b"long"


def test_events_that_nobody_wants_are_not_emitted(host: Host, everything: Compiled) -> None:
    probe = host.load(everything, {})

    probe.call("on_emit", ctypes.c_char_p(b"k"), c_uint64(1), c_double(0), c_int(0))

    assert host.events() == {}


def test_events_are_described_as_markers_are(everything: Compiled) -> None:
    (got,) = [candidate for candidate in everything.events if candidate.signature.name == "got"]

    assert got.signature.format == "key %s len %zu ratio %f letter %c"
    assert got.signature.args == (CHARS, U64, F64, I8)
    assert got.file == "everything.c"
    assert "mj_emit(got" in EVERYTHING.read_text().splitlines()[got.line - 1]


def test_wild_pointers_are_read_without_harm(host: Host, everything: Compiled) -> None:
    probe = host.load(everything, {"read_back": b"sgg"})

    def read_back(address: int, size: int) -> tuple[bytes, int, int]:
        probe.call("on_read", ctypes.c_void_p(address), c_uint64(size))
        event = host.events()["read_back"]
        return event.text, _signed(event.words[1]), _signed(event.words[2] & 0xFFFFFFFF, 32)

    text = ctypes.create_string_buffer(b"0123456789abcdef", 64)
    long_one = ctypes.create_string_buffer(b"x" * 200)

    assert read_back(ctypes.addressof(text), 64) == (b"0123456789abcdef", 16, 0)
    assert read_back(ctypes.addressof(text), 5) == (b"0123", 4, 0)
    assert read_back(ctypes.addressof(long_one), 64) == (b"x" * 63, 63, 0)
    assert read_back(16, 64) == (b"", -1, -1)
    assert read_back(0x8000_0000_0000_0000, 64) == (b"", -1, -1)


def test_string_at_the_end_of_what_is_mapped_is_read(host: Host, everything: Compiled) -> None:
    import mmap

    probe = host.load(everything, {"read_back": b"sgg"})
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    start = ctypes.addressof(c_char.from_buffer(pages))
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + mmap.PAGESIZE), mmap.PAGESIZE, 0)
    pages[mmap.PAGESIZE - 4 : mmap.PAGESIZE] = b"end\0"

    def length_at(before_end: int) -> int:
        address = start + mmap.PAGESIZE - before_end
        probe.call("on_read", ctypes.c_void_p(address), c_uint64(64))
        return _signed(host.events()["read_back"].words[1])

    assert length_at(4) == 3
    pages[mmap.PAGESIZE - 1] = ord("!")
    assert length_at(4) == -1
    assert host.events()["read_back"].text == b"end!"


def test_copies_that_the_compiler_makes_work(host: Host, everything: Compiled) -> None:
    probe = host.load(everything, {"item": b"sg"})
    item = ctypes.create_string_buffer(328)
    item[312:320] = (12345).to_bytes(8, "little")
    item[320:326] = b"a name"

    probe.call("on_item", ctypes.byref(item))

    assert host.events()["item"].text == b"a name"
    assert host.events()["item"].words[1] == 12345


def test_nothing_is_done_in_the_child_of_a_fork(host: Host, everything: Compiled) -> None:
    probe = host.load(everything, {"got": b"sgfg"})
    host.alive.value = 0

    probe.call("on_count", c_uint64(1))
    probe.call("on_emit", ctypes.c_char_p(b"k"), c_uint64(1), c_double(0), c_int(0))

    assert probe.counters() == {"hits": 0, "bytes": 0}
    assert host.events() == {}


def test_variables_begin_anew_when_a_probe_is_loaded_again(
    host: Host, everything: Compiled
) -> None:
    for _ in range(2):
        probe = host.load(everything, {"place": b"ggggg"})
        probe.slot.data = ctypes.addressof(ctypes.create_string_buffer(128))
        probe.call("on_place")

        assert host.events()["place"].words[4] == 42


def test_entries_are_at_addresses_that_a_slot_can_hold(everything: Compiled) -> None:
    fit = [function for function in everything.functions if not function.unfit]

    assert len(fit) == 8
    assert all(function.entry % 16 == 0 for function in fit)
    assert {function.name for function in everything.functions if function.unfit} == {
        "returns",
        "takes_no_slot",
    }


HELPERS = """
#include <markerjit/probe.h>
void f(struct mj_slot *slot, char *to, char *from, size_t size, int which, long *result) {
    switch (which) {
    case 0: *result = memcpy(to, from, size) == to; break;
    case 1: *result = memmove(to, from, size) == to; break;
    case 2: *result = memset(to, from[0], size) == to; break;
    case 3: *result = memcmp(to, from, size); break;
    case 4: *result = (long)strlen(to); break;
    }
}
"""


def test_helpers_do_what_those_of_a_libc_do(
    host: Host, compiler: str, build_one: Callable[..., Compiled]
) -> None:
    probe = host.load(build_one(HELPERS, compiler=compiler))
    libc = ctypes.CDLL(None)
    random_one = random.Random(1)

    def both(which: int, to: int, from_: int, size: int) -> None:
        start = bytes(random_one.choice(b"\0\0ab") for _ in range(64))
        ours, theirs = (ctypes.create_string_buffer(start, 65) for _ in range(2))
        here, far = ctypes.addressof(ours), ctypes.addressof(theirs)
        result = c_uint64()
        probe.call(
            "f", ctypes.c_void_p(here + to), ctypes.c_void_p(here + from_), c_uint64(size),
            c_int(which), ctypes.byref(result),
        )  # fmt: skip
        target, origin = ctypes.c_void_p(far + to), ctypes.c_void_p(far + from_)
        value = _signed(result.value)
        if which < 2:
            libc.memmove(target, origin, c_uint64(size))
        elif which == 2:
            libc.memset(target, c_int(start[from_]), c_uint64(size))
        elif which == 3:
            libc.memcmp.restype = c_int
            expected = libc.memcmp(target, origin, c_uint64(size))
            assert (value > 0, value < 0) == (expected > 0, expected < 0)
        else:
            assert value == libc.strlen(target)
        assert ours.raw == theirs.raw
        assert which > 2 or value == 1

    for _ in range(300):
        to, from_, size = (random_one.randrange(20) for _ in range(3))
        both(0, to, 40 + from_ % 4, size)
        for which in range(1, 5):
            both(which, to, from_, size)


def _signed(word: int, bits: int = 64) -> int:
    return word - (1 << bits) if word >> (bits - 1) else word

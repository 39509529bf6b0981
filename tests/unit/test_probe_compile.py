"""Probes in C: compiled with each compiler, linked to addresses in this process, and called there.

The runtime that they call is a stand-in, `probe/host.c`. What must be refused is here too, with the
reason that the user is told.
"""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from ctypes import c_char, c_double, c_int, c_uint64
from functools import cache
from pathlib import Path

import pytest

from markerjit.errors import MarkerError
from markerjit.model import CType, Kind, Note, TypeClass
from markerjit.probes.c.compile import compile_probe
from markerjit.probes.c.examine import NoProbe
from markerjit.probes.c.fits import Mismatch, check_fits, declaration
from markerjit.probes.c.link import DoesNotLink, link_probe
from markerjit.probes.c.unit import (
    BadProbe,
    Compiled,
    DoesNotCompile,
    Forbidden,
    Linked,
    NoSuchFunction,
    NoTool,
    Runtime,
    UndefinedSymbols,
    split_probe,
)
from markerjit.probes.c.values import (
    BUCKETS,
    Histogram,
    bucket_low,
    read_counters,
    read_histograms,
)
from tests.support.compilers import C_COMPILERS, INCLUDE, Compiler, need

HERE = Path(__file__).parent / "probe"
EVERYTHING = HERE / "everything.c"
CPUS = (os.cpu_count() or 1) + 3
TICK_HZ = 2_500_000_000
HEAD = "#include <markerjit/probe.h>\nvoid f(struct mj_slot *slot, long n) {\n"

I8, I16, I32, I64 = (CType(TypeClass.SIGNED, size) for size in (1, 2, 4, 8))
U8, U16, U32, U64 = (CType(TypeClass.UNSIGNED, size) for size in (1, 2, 4, 8))
F32, F64 = CType(TypeClass.FLOAT, 4), CType(TypeClass.FLOAT, 8)
BOOL, CHARS, POINTER_TYPE = (
    CType(TypeClass.BOOL, 1), CType(TypeClass.CHARS, 8), CType(TypeClass.POINTER, 8)
)  # fmt: skip


# ---- a target ------------------------------------------------------------------------------------


class Slot(ctypes.Structure):
    """struct mj_slot."""

    _fields_ = [(name, c_uint64) for name in ("probe", "data", "entered", "left")]

    def hit(self, *args: object) -> None:
        ctypes.CFUNCTYPE(None)(self.probe)(ctypes.byref(self), *args)


class How(ctypes.Structure):
    """struct how of host.c."""

    _fields_ = [("letters", c_char * 16)]


class Event(ctypes.Structure):
    """struct event of host.c."""

    _fields_ = [("how", c_uint64), ("words", c_uint64 * 12), ("text", c_char * 64)]

    def real(self, index: int) -> float:
        return c_double.from_buffer(self, Event.words.offset + 8 * index).value


class Host:
    """host.c, and at most one probe in it."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.code = ctypes.addressof(c_char.in_dll(library, "code"))
        self.data = ctypes.addressof(c_char.in_dll(library, "data"))
        self.alive = c_uint64.in_dll(library, "alive")
        self.runtime = Runtime(
            functions={
                "mj_record_event": _address(library.record_event),
                "mj_fetch": _address(library.fetch),
            },
            alive=ctypes.addressof(self.alive),
            cpus=CPUS,
            has_rdpid=" rdpid" in Path("/proc/cpuinfo").read_text(),
            tid_offset=library.tid_offset(),
            tick_hz=TICK_HZ,
        )
        assert library.let_code_run() == 0

    def load(
        self, compiled: Compiled, wanted: dict[str, bytes] | None = None, **runtime: object
    ) -> Probe:
        """Link and write the probe; `wanted` events, by name, with the letters of host.c."""
        linked = link_probe(
            compiled,
            code_address=self.code,
            data_address=self.data,
            runtime=self.runtime._replace(**runtime),
        )
        self.how = {name: How(letters) for name, letters in (wanted or {}).items()}
        entries = {name: ctypes.addressof(how) for name, how in self.how.items()}
        data = linked.data_for(entries) + bytes(linked.bss_size)
        ctypes.memset(self.code, 0, 64 * 4096)
        ctypes.memmove(self.code, linked.code, len(linked.code))
        ctypes.memmove(self.data, data, len(data))
        self.alive.value = 1
        self._used.value = 0
        return Probe(self, linked)

    @property
    def _used(self) -> ctypes.c_uint:
        return ctypes.c_uint.in_dll(self.library, "events_used")

    def events(self) -> dict[str, Event]:
        """What was emitted, by name; the last of each."""
        all_events = (Event * 256).in_dll(self.library, "events")
        names = {ctypes.addressof(how): name for name, how in self.how.items()}
        return {names[event.how]: event for event in all_events[: self._used.value]}


class Probe:
    """A probe in the host. Its functions are called as a marker's body does."""

    def __init__(self, host: Host, linked: Linked) -> None:
        self.host = host
        self.linked = linked
        self.slot = Slot()

    def call(self, function: str, *args: object) -> None:
        self.slot.probe = self.linked.entries[function]
        self.slot.hit(*args)

    def counters(self) -> dict[str, int]:
        return read_counters(self.linked, ctypes.string_at)

    def histograms(self) -> dict[str, Histogram]:
        return read_histograms(self.linked, ctypes.string_at)

    def pointer(self, function: str) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.linked.entries[function])


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    output = tmp_path_factory.mktemp("host") / "host.so"
    options = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    subprocess.run(["gcc", *options, "-o", output, HERE / "host.c"], check=True)
    return Host(ctypes.CDLL(str(output)))


@cache
def _everything(compiler: str) -> Compiled:
    return compile_probe(EVERYTHING, "on_count", compiler, include=INCLUDE)


@pytest.fixture(params=C_COMPILERS, ids=lambda compiler: compiler.name)
def compiler(request: pytest.FixtureRequest) -> str:
    found: Compiler = request.param
    need(found)
    return found.name


@pytest.fixture
def everything(compiler: str) -> Compiled:
    """everything.c, compiled once by each compiler."""
    return _everything(compiler)


@pytest.fixture
def build_one(tmp_path: Path) -> Callable[..., Compiled]:
    """Compile a text as probe.c."""

    def build(text: str, function: str = "f", compiler: str = "gcc", **options: object) -> Compiled:
        source = tmp_path / "probe.c"
        source.write_text(text)
        return compile_probe(source, function, compiler, include=INCLUDE, **options)

    return build


# ---- running -------------------------------------------------------------------------------------


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

    (hits,) = [one for one in probe.linked.variables if one.name == "hits"]
    at = [hits.place + cpu * probe.linked.stride for cpu in range(CPUS)]
    assert [c_uint64.from_address(one).value for one in at] == [
        int(cpu in before) for cpu in range(CPUS)
    ]
    assert probe.linked.stride % 64 == 0
    assert min(one.place for one in probe.linked.variables) % 64 == 0


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

    (event,) = [one for one in probe.linked.events if one.name == "got"]
    assert len(event.words) == 2
    assert host.events()["got"].text == b"long"


def test_events_that_nobody_wants_are_not_emitted(host: Host, everything: Compiled) -> None:
    probe = host.load(everything, {})

    probe.call("on_emit", ctypes.c_char_p(b"k"), c_uint64(1), c_double(0), c_int(0))

    assert host.events() == {}


def test_events_are_described_as_markers_are(everything: Compiled) -> None:
    (got,) = [one for one in everything.events if one.name == "got"]

    assert got.format == "key %s len %zu ratio %f letter %c"
    assert got.args == (CHARS, U64, F64, I8)
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
    fit = [one for one in everything.functions if not one.unfit]

    assert len(fit) == 8
    assert all(one.entry % 16 == 0 for one in fit)
    assert {one.name for one in everything.functions if one.unfit} == {"returns", "takes_no_slot"}


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
        here, there = ctypes.addressof(ours), ctypes.addressof(theirs)
        result = c_uint64()
        probe.call(
            "f", ctypes.c_void_p(here + to), ctypes.c_void_p(here + from_), c_uint64(size),
            c_int(which), ctypes.byref(result),
        )  # fmt: skip
        target, origin = ctypes.c_void_p(there + to), ctypes.c_void_p(there + from_)
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


# ---- histograms ----------------------------------------------------------------------------------

BUCKET = """
#include <markerjit/probe.h>
void f(struct mj_slot *slot, uint64_t value, unsigned *bucket) { *bucket = mj_bucket(value); }
"""


def test_buckets_are_where_the_controller_thinks(
    host: Host, build_one: Callable[..., Compiled]
) -> None:
    probe = host.load(build_one(BUCKET))
    bucket = ctypes.c_uint()

    for index in range(BUCKETS):
        for value in (bucket_low(index), bucket_low(index + 1) - 1):
            probe.call("f", c_uint64(value), ctypes.byref(bucket))
            assert bucket.value == index

    assert bucket_low(BUCKETS) == 1 << 64


def test_a_bucket_is_at_most_a_quarter_as_wide_as_its_values_are_large() -> None:
    for index in range(4, BUCKETS):
        assert (bucket_low(index + 1) - bucket_low(index)) * 4 <= bucket_low(index)


def test_percentiles_are_upper_ends_of_buckets() -> None:
    counts = [0] * BUCKETS
    counts[1], counts[20] = 98, 2
    histogram = Histogram(tuple(counts))

    assert histogram.total == 100
    assert histogram.percentile(50) == 1
    assert histogram.percentile(99) == bucket_low(21) - 1
    assert Histogram((0,) * BUCKETS).percentile(50) is None


# ---- fitting a marker ----------------------------------------------------------------------------


def marker(format_: str, *args: CType) -> Note:
    return Note("m", Kind.JUMP, False, format_, args, "a.c", 1, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("function", "note"),
    [
        ("on_count", marker("n %lu", U64)),
        ("on_place", marker("")),
        ("on_emit", marker("k %s l %zu r %f c %c", CHARS, U64, F64, I8)),
        ("on_emit", marker("k %s l %zu r %f c %c", CHARS, U64, F32, I8)),
        (
            "on_types",
            marker(
                "%d %d %d %d %d %p %s %p %p",
                I8, U16, BOOL, U32, I32, POINTER_TYPE, CHARS, POINTER_TYPE, POINTER_TYPE,
            ),
        ),
        ("on_any", marker("")),
        ("on_any", marker("k %s r %f", CHARS, F64)),
        ("on_first", marker("k %s", CHARS)),
        ("on_first", marker("k %s l %zu", CHARS, U64)),
    ],
)  # fmt: skip
def test_function_fits_the_marker(everything: Compiled, function: str, note: Note) -> None:
    (found,) = [one for one in everything.functions if one.name == function]

    check_fits(everything.source, found, note)


@pytest.mark.parametrize(
    ("function", "note", "position", "reason"),
    [
        ("on_count", marker("n %ld", I64), 1, "parameter number is uint64_t, .* long, its n"),
        ("on_count", marker("n %u", U32), 1, "passes unsigned, its n"),
        ("on_count", marker("p %p", POINTER_TYPE), 1, r"passes const void \*, its p"),
        ("on_count", marker(""), 1, "passes nothing for parameter number"),
        ("on_count", marker("n %lu k %s", U64, CHARS), 2, r"no parameter for the marker's k"),
        ("on_emit", marker("k %p l %zu r %f c %c", POINTER_TYPE, U64, F64, I8), 1, "parameter key"),
        ("on_emit", marker("k %s l %zu r %d c %c", CHARS, U64, I32, I8), 3, "is double"),
        ("on_first", marker(""), 1, "passes nothing for parameter key"),
        ("on_first", marker("n %d", I32), 1, "parameter key is const char"),
    ],
)
def test_function_that_does_not_fit_is_refused_with_the_parameter(
    everything: Compiled, function: str, note: Note, position: int, reason: str
) -> None:
    (found,) = [one for one in everything.functions if one.name == function]

    with pytest.raises(Mismatch, match=reason) as caught:
        check_fits(everything.source, found, note)

    assert caught.value.position == position
    assert caught.value.write in str(caught.value)


def test_small_arguments_may_be_taken_as_the_int_that_they_travel_as(
    build_one: Callable[..., Compiled],
) -> None:
    compiled = build_one(
        "#include <markerjit/probe.h>\nvoid f(struct mj_slot *s, int a, int b, int c, int d) {}"
    )

    check_fits(compiled.source, compiled.function, marker("%d %d %d %d", I8, U8, BOOL, U16))
    with pytest.raises(Mismatch):
        check_fits(compiled.source, compiled.function, marker("%d %d %d %d", I8, U8, BOOL, U32))


@pytest.mark.parametrize(
    "parameter",
    ["float x", "long double x", "struct { long a; } x", "__int128 x", "_Complex double x"],
)
def test_parameters_that_no_marker_passes_are_refused(
    build_one: Callable[..., Compiled], parameter: str
) -> None:
    compiled = build_one(
        f"#include <markerjit/probe.h>\nvoid f(struct mj_slot *slot, {parameter}) {{}}"
    )

    for type_, conversion in ((F32, "%f"), (F64, "%f"), (U64, "%lu")):
        with pytest.raises(Mismatch, match="parameter x is"):
            check_fits(compiled.source, compiled.function, marker(f"x {conversion}", type_))


def test_declaration_that_is_proposed_fits(build_one: Callable[..., Compiled]) -> None:
    note = marker(
        "a %d b %hd c %d d %ld e %hhu f %hu g %u h %lu i %f j %f k %p int %s slot %d %.*s",
        I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, POINTER_TYPE, CHARS,
    )  # fmt: skip
    note = note._replace(format=note.format.replace(" slot %d %.*s", ""))
    proposed = declaration("f", note)

    compiled = build_one(f"#include <markerjit/probe.h>\n{proposed} {{}}")

    assert "const char *int_)" in proposed
    check_fits(compiled.source, compiled.function, note)


def test_events_can_be_fitted_too(everything: Compiled) -> None:
    (event,) = [one for one in everything.events if one.name == "got"]
    (function,) = [one for one in everything.functions if one.name == "on_emit"]

    check_fits(everything.source, function, event)


# ---- what is refused -----------------------------------------------------------------------------


def test_undefined_functions_are_named_with_their_lines(
    compiler: str, build_one: Callable[..., Compiled]
) -> None:
    text = (
        "#include <stdio.h>\n" + HEAD + 'printf("%ld", n);\n'
        'if (n) fputs("no", stderr);\n'
        "undeclared(n);\n}\n"
    )

    with pytest.raises(UndefinedSymbols) as caught:
        build_one(text, compiler=compiler)

    assert "printf is called in probe.c:4" in str(caught.value)
    assert "there is no libc for it" in str(caught.value)
    assert [(one.name, one.line, one.called) for one in caught.value.symbols] == [
        ("printf", 4, True),
        ("fputs", 5, True),
        ("stderr", 5, False),
        ("undeclared", 6, True),
    ]


FORBIDDEN = [
    ('__asm__ volatile("syscall" ::: "rcx", "r11", "memory");', "may not leave the program"),
    ('__asm__ volatile("int3");', "may not leave the program"),
    ('__asm__ volatile("int $0x80");', "may not leave the program"),
    ('__asm__ volatile("sysenter");', "may not leave the program"),
    ("__builtin_trap();", "would kill the program"),
    ('__asm__ volatile("hlt");', "only the kernel"),
    ('__asm__ volatile("cli");', "only the kernel"),
    ('__asm__ volatile("outb %al, $0x80");', "only the kernel"),
    ('__asm__ volatile("rep insb");', "only the kernel"),
    ('__asm__ volatile("wrmsr");', "only the kernel"),
    ('__asm__ volatile("movq $0, %fs:0x100");', "thread-local"),
    ('__asm__ volatile("lock incl %gs:0x100");', "thread-local"),
    ('__asm__ volatile("wrfsbase %rax");', "relies on that state"),
    ('__asm__ volatile("mov %ax, %fs");', "relies on that state"),
    ("unsigned csr = 0x1f80; __builtin_ia32_ldmxcsr(csr);", "relies on that state"),
    ('short word = 0; __asm__ volatile("fldcw %0" :: "m"(word));', "relies on that state"),
    ('__asm__ volatile("std");', "relies on that state"),
    ('__asm__ volatile("push %0; popfq" :: "r"(n));', "relies on that state"),
    ('__asm__ volatile("wrpkru");', "relies on that state"),
    ('__asm__ volatile("movq %rax, %mm0");', "relies on that state"),
    ('__asm__ volatile("vmcall");', "may not leave the program"),
    ('__asm__ volatile("lcall *%0" :: "m"(n));', "may not leave the program"),
    ('__asm__ volatile("ljmp *%0" :: "m"(n));', "may not leave the program"),
    ('__asm__ volatile("lretq");', "may not leave the program"),
    ('__asm__ volatile("iretq");', "only the kernel"),
    ('__asm__ volatile(".byte 0x06");', "cannot be decoded"),
    ("char big[2000]; mj_read(big, (void *)n, sizeof big); mj_emit(e, \"%s\", big);", "1024 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "why"), FORBIDDEN, ids=[body[:40] for body, _ in FORBIDDEN])
def test_instructions_that_do_harm_are_refused_with_their_line(
    build_one: Callable[..., Compiled], body: str, why: str
) -> None:
    with pytest.raises(Forbidden, match=why) as caught:
        build_one(f"{HEAD}\n{body}\n}}\n")

    assert caught.value.file == "probe.c"
    assert caught.value.line in (2, 4)  # a frame is made where the function begins


@pytest.mark.parametrize(
    "assembly", ["mov %fs:0, %rax", "rdtscp", "vzeroupper", "vpxorq %zmm0, %zmm0, %zmm0", "fld1"]
)
def test_what_any_function_may_do_a_probe_may_do(
    build_one: Callable[..., Compiled], assembly: str
) -> None:
    build_one(
        f'{HEAD} __asm__ volatile("{assembly.replace("%", "%%")}" ::: "rax", "rcx", "rdx"); }}'
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("__thread int t;\n" + HEAD + "t += n; }", "t is thread-local"),
        ("extern __thread int t;\n" + HEAD + "t += n; }", "t is thread-local"),
        (
            "int v;\n__attribute__((constructor)) static void c(void) { v = 1; }\n" + HEAD + "}",
            "constructor or destructor",
        ),
        ('int v __attribute__((section("mine"))) = 1;\n' + HEAD + "}", "section mine"),
        (
            '__attribute__((section(".data.code"))) void g(void) {}\n' + HEAD + "}",
            "mixes code and data",
        ),
        (
            "static void a(void) {}\nstatic void *pick(void) { return a; }\n"
            'void g(void) __attribute__((ifunc("pick")));\n' + HEAD + "}",
            "ifunc",
        ),
        (HEAD + "for (;;); }", "f never returns"),
        ("char page[8192] __attribute__((aligned(8192))) = {1};\n" + HEAD + "}", "alignment"),
        (HEAD + '__asm__ volatile("mov $here, %eax; here:"); }', "cannot be linked: .*R_X86_64_32"),
        (
            HEAD + 'mj_emit(e, "n %ld", n); mj_emit(e, "n %lu", (unsigned long)n); }',
            "e is emitted with another format or other types in probe.c:3 than in probe.c:3",
        ),
        (HEAD + 'mj_emit(e, "%2$ld %1$ld", n, n); }', "the event e in probe.c:3"),
        (
            HEAD + "MJ_COUNTER(c); mj_count(&c); }\nvoid g(struct mj_slot *slot) "
            "{ MJ_COUNTER(c); mj_count(&c); }",
            "several counters or histograms c",
        ),
    ],
)
def test_what_has_no_place_in_another_program_is_refused(
    build_one: Callable[..., Compiled], text: str, why: str
) -> None:
    with pytest.raises(BadProbe, match=why):
        build_one(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (HEAD + "n +; }", "probe.c:3:.* expected expression"),
        (HEAD + "char a[n]; mj_read(a, slot, n); }", "variable.length array"),
        (HEAD + "mj_read(__builtin_alloca(n), slot, n); }", "alloca"),
        (HEAD + 'mj_emit(e, "n %s", n); }', "expects|specifies"),
        (HEAD + 'mj_emit(e, "n %d"); }', "expects a matching|more '%' conversions"),
        (HEAD + 'mj_emit("e", "n"); }', "identifier|pasting"),
        (HEAD + 'mj_emit(e, "x", *slot); }', "error: "),
        ("#include <no/such.h>\n" + HEAD + "}", "no/such.h"),
    ],
)
def test_source_that_does_not_compile_is_told_in_the_compilers_words(
    compiler: str, build_one: Callable[..., Compiled], text: str, why: str
) -> None:
    with pytest.raises(DoesNotCompile, match=why) as caught:
        build_one(text, compiler=compiler)

    assert "\n" not in str(caught.value)
    assert caught.value.output.count("error:") >= 1


def test_function_that_is_not_there_is_told_with_those_that_are(compiler: str) -> None:
    with pytest.raises(NoSuchFunction, match="no function on_got; it has on_any, on_count, ") as e:
        compile_probe(EVERYTHING, "on_got", compiler, include=INCLUDE)

    assert "returns" not in e.value.there


@pytest.mark.parametrize(
    "text",
    [
        "#include <markerjit/probe.h>\nstatic void f(struct mj_slot *slot) { }",
        "#include <markerjit/probe.h>\nstatic void f(struct mj_slot *slot) { slot->data = 0; }\n"
        "void g(struct mj_slot *slot) { f(slot); }",
        "#include <markerjit/probe.h>\n__attribute__((noinline)) static void f(struct mj_slot *s) "
        "{ s->data = 0; }\nvoid g(struct mj_slot *slot) { f(slot); f(slot); }",
    ],
)
def test_static_function_is_told_to_be_static(
    compiler: str, build_one: Callable[..., Compiled], text: str
) -> None:
    with pytest.raises(NoSuchFunction, match="f is static") as caught:
        build_one(text, compiler=compiler)

    assert caught.value.is_static


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("int f(struct mj_slot *slot) { return 1; }", "f in probe.c:2 returns int"),
        ("void f(void) { }", "first parameter"),
        ("void f(void *slot) { }", "first parameter"),
        ("void f(struct mj_slot slot) { }", "first parameter"),
    ],
)
def test_function_that_is_no_probe_is_refused(
    build_one: Callable[..., Compiled], text: str, why: str
) -> None:
    with pytest.raises(NoProbe, match=why):
        build_one(f"#include <markerjit/probe.h>\n{text}")


def test_slot_may_be_constant(build_one: Callable[..., Compiled]) -> None:
    build_one("#include <markerjit/probe.h>\nvoid f(const struct mj_slot *const slot) { }")


def test_missing_file_and_missing_tools_are_told_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadProbe, match="there is no file"):
        compile_probe(tmp_path / "no.c", "f")

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)

    with pytest.raises(NoTool, match=r"a C compiler \(cc, gcc, clang\).*apt-get install gcc"):
        compile_probe(EVERYTHING, "on_count", include=INCLUDE)
    with pytest.raises(NoTool, match=r"\(tcc -x\)"):
        compile_probe(EVERYTHING, "on_count", "tcc -x", include=INCLUDE)
    with pytest.raises(NoTool, match="apt-get install binutils"):
        link_probe(_everything("gcc"), code_address=0, data_address=0, runtime=NOWHERE)


def test_compiler_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -m64")

    with pytest.raises(NoTool, match="no-such-compiler -m64"):
        compile_probe(EVERYTHING, "on_count", include=INCLUDE)


def test_options_reach_the_compiler_and_warnings_the_user(
    build_one: Callable[..., Compiled],
) -> None:
    compiled = build_one(HEAD + 'int unused; mj_emit(e, "%d", NUMBER); }', options=["-DNUMBER=3"])

    assert "unused variable" in compiled.warnings


@pytest.mark.parametrize(
    "options",
    [
        "-O0 -std=c99",
        "-O3 -march=native -flto",
        "-fno-PIE -mcmodel=large",
        "-fstack-protector-all -fcf-protection=full -fexceptions -D_FORTIFY_SOURCE=2",
    ],
)
def test_no_option_of_the_user_makes_a_probe_that_does_not_run(
    host: Host, compiler: str, options: str
) -> None:
    compiled = compile_probe(
        EVERYTHING, "on_count", compiler, options=options.split(), include=INCLUDE
    )
    probe = host.load(compiled)

    probe.call("on_count", c_uint64(7))

    assert probe.counters() == {"hits": 1, "bytes": 7}


# ---- linking -------------------------------------------------------------------------------------

NOWHERE = Runtime(
    {"mj_record_event": 0x7F0000001000, "mj_fetch": 0x7F0000002000}, 0x7F0001000000, 64, True, 720,
    TICK_HZ,
)  # fmt: skip
CODE, DATA = 0x7F0000100000, 0x7F0000800000


def link(compiled: Compiled, code: int = CODE, data: int = DATA, **runtime: object) -> Linked:
    return link_probe(
        compiled, code_address=code, data_address=data, runtime=NOWHERE._replace(**runtime)
    )


def test_sizes_are_known_before_the_addresses(everything: Compiled) -> None:
    for cpus in (1, 2, 64, 4096):
        linked = link(everything, cpus=cpus)

        assert len(linked.code) == everything.sizes.code
        assert len(linked.data) + linked.bss_size == everything.sizes.whole_data(cpus)
        for one in linked.variables:
            end = one.place + (cpus - 1) * linked.stride + one.words * 8
            assert DATA <= one.place < end <= DATA + everything.sizes.whole_data(cpus)


def test_moving_a_probe_changes_addresses_and_nothing_else(everything: Compiled) -> None:
    here, there = link(everything), link(everything, CODE + 4096 * 3, DATA + 64 * 5)

    assert there.entry - here.entry == 4096 * 3
    assert {b - a for a, b in zip(_places(here), _places(there), strict=True)} == {64 * 5}
    assert len(here.code) == len(there.code)


def _places(linked: Linked) -> Iterator[int]:
    yield from (one.place for one in linked.variables)
    for event in linked.events:
        yield from event.words


def test_addresses_must_be_aligned(everything: Compiled) -> None:
    with pytest.raises(MarkerError, match="has to be at a multiple of 64"):
        link(everything, CODE + 8)
    with pytest.raises(MarkerError, match="the data of 64"):
        link(everything, CODE, DATA + 32)


def test_runtime_out_of_reach_is_an_error(everything: Compiled) -> None:
    with pytest.raises(DoesNotLink, match="cannot be linked"):
        link(everything, functions={"mj_record_event": 0x5500_0000_0000, "mj_fetch": CODE - 4096})


def test_what_the_target_has_not_is_named(everything: Compiled) -> None:
    with pytest.raises(MarkerError, match="needs mj_fetch, which the runtime has not"):
        link(everything, functions={"mj_record_event": CODE - 4096})
    with pytest.raises(MarkerError, match="uses mj_ns, but how long a tick takes"):
        link(everything, tick_hz=0)


def test_probe_that_needs_nothing_gets_along_with_nothing(
    build_one: Callable[..., Compiled],
) -> None:
    compiled = build_one("#include <markerjit/probe.h>\nvoid f(struct mj_slot *slot) {}")

    linked = link(compiled, functions={}, tick_hz=0)

    assert compiled.needs == frozenset()
    assert (linked.data, linked.bss_size, linked.events, linked.variables) == (b"", 0, (), ())


def test_page_aligned_variables_are_where_they_should_be(
    build_one: Callable[..., Compiled],
) -> None:
    compiled = build_one(
        "static char page[4096] __attribute__((aligned(4096)));\nstatic int one = 1;\n"
        + HEAD
        + 'mj_read(page, (void *)n, 4096); one++; mj_emit(e, "%s %d", page, one); }'
    )

    assert compiled.sizes.data_alignment == 4096
    with pytest.raises(MarkerError, match="the data of 4096"):
        link(compiled, CODE, DATA + 64)
    assert len(link(compiled).data) + link(compiled).bss_size == compiled.sizes.whole_data(64)


# ---- names ---------------------------------------------------------------------------------------


def test_probe_is_named_by_file_and_function() -> None:
    assert split_probe("dir/my:probe.c:on_get") == (Path("dir/my:probe.c"), "on_get")


@pytest.mark.parametrize("text", ["count", "a.c", "a.c:", "a.cc:f", ":f", "a.c:1f", "a.c:f.g"])
def test_what_is_no_probe_in_c_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"FILE\.c:function"):
        split_probe(text)


def _signed(word: int, bits: int = 64) -> int:
    return word - (1 << bits) if word >> (bits - 1) else word

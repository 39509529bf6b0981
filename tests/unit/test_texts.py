"""Strings and bytes in records: whole, cut, and behind pointers that lead anywhere.

Each test runs with all ways of reading what may not be readable (fetch.c): in a memory
transaction, where the processor has them; from pages that are known, by mj_record and by code of
the marker's own; and by the kernel.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Mapping
from ctypes import c_char_p, c_double, c_int, c_int32, c_uint64
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from markerjit.abi import CPU_RTM, CPU_TSC, OP_BYTES, OP_RAW, PAGE
from markerjit.elf import show
from markerjit.model import CType, TypeClass, Value
from markerjit.ring.types import Options
from tests.support.choice import examples
from tests.support.own_arena import (
    AS_USUAL,
    ASSEMBLED,
    CHARS,
    INT,
    POINTER,
    RESTARTABLE,
    OwnArena,
    address_of,
    cpu_flags,
    geometry_of,
    marker_id,
)

UNREADABLE = "<unreadable>"
MADV_COLD = 20  # of Linux 5.4
COLD_ROUNDS = 50
WILD = [
    0x1000,  # nothing is ever mapped there (vm.mmap_min_addr)
    0x7FFF_FFFF_F000,  # the last page of a process's half of the addresses
    0x8000_0000_0000,  # no address at all: not canonical
    0xDEAD_BEEF_DEAD_BEEF,
    0xFFFF_8000_0000_0000,  # the kernel's
    0xFFFF_FFFF_FF60_0000,  # the page that was vsyscall's
    0xFFFF_FFFF_FFFF_FFFF,
]


@pytest.fixture(params=["transaction", "assembled", "pages", "kernel"])
def own(request: pytest.FixtureRequest, build: Path) -> OwnArena:
    return arena_that_reads(request.param)


def arena_that_reads(how: str) -> OwnArena:
    flags = cpu_flags()
    if how == "transaction" and not flags & CPU_RTM:
        pytest.skip("this processor has no memory transactions")
    others = {"transaction": CPU_TSC, "kernel": CPU_RTM | CPU_TSC}.get(how, CPU_RTM)
    if others == CPU_RTM and not flags & CPU_TSC:
        pytest.skip("the time stamp counter is not the same on all CPUs")
    way = ASSEMBLED if how == "assembled" else RESTARTABLE
    return OwnArena(geometry_of(max_markers=64), way=way, cpu_flags=flags & ~others)


class Edge:
    """Pages of which the last is the last that can be read."""

    def __init__(self, pages: int = 3) -> None:
        self.memory = mmap.mmap(-1, (pages + 1) * PAGE)
        self.start = address_of(self.memory)
        self.end = self.start + pages * PAGE
        libc = ctypes.CDLL(None, use_errno=True)
        assert not libc.mprotect(ctypes.c_void_p(self.end), ctypes.c_size_t(PAGE), 0)

    def put(self, data: bytes) -> int:
        """At the very end; returns the address."""
        self.memory[self.end - self.start - len(data) : self.end - self.start] = data
        return self.end - len(data)


@pytest.fixture(scope="module")
def edge() -> Iterator[Edge]:
    yield Edge()


def taken(
    own: OwnArena,
    format_: str,
    args: tuple[CType, ...],
    *values: object,
    options: Options = AS_USUAL,
) -> list[Value]:
    """What a marker of this format and these types delivers for these values."""
    own.marker(format_, *args, options=options).hit(*values)
    (event,) = own.records()
    return list(event.fields.values())


# ---- strings -------------------------------------------------------------------------------------


def test_strings_and_numbers_together(own: OwnArena) -> None:
    args = (CHARS, INT, CHARS, CType(TypeClass.FLOAT, 4), CHARS)
    values = (c_char_p(b"one"), c_int(-2), c_char_p(b""), c_double(0.5), c_char_p(b"eight..."))

    assert taken(own, "%s %d %s %f %s", args, *values) == ["one", -2, "", 0.5, "eight..."]


def test_texts_that_are_not_asked_for_are_not_read(own: OwnArena) -> None:
    options = Options(fields=("n", "c"))
    values = (c_uint64(WILD[0]), c_int(1), c_int(9), c_uint64(WILD[1]), c_char_p(b"c"))

    recorded = taken(own, "a %s n %d b %.*s c %s", (CHARS, INT, INT, CHARS, CHARS), *values,
                  options=options)  # fmt: skip

    assert recorded == [1, "c"]


def test_twelve_strings_fit_a_record(own: OwnArena) -> None:
    texts = [bytes([ord("a") + i]) * 1000 for i in range(12)]

    values = taken(
        own, "%s " * 12, (CHARS,) * 12, *map(c_char_p, texts), options=Options(text=9999)
    )

    for text, value in zip(texts, values, strict=True):
        assert isinstance(value, str)
        assert value.endswith("…")
        assert len(value) > 300
        assert set(value[:-1]) == {text.decode()[0]}


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 255, 256])
def test_strings_come_whole_up_to_their_limit(own: OwnArena, length: int) -> None:
    assert taken(own, "s %s", (CHARS,), c_char_p(b"x" * length)) == ["x" * length]


@pytest.mark.parametrize("length", [257, 10_000, 1 << 20])
def test_longer_strings_are_cut_and_say_so(own: OwnArena, length: int) -> None:
    assert taken(own, "s %s", (CHARS,), c_char_p(b"x" * length)) == ["x" * 256 + "…"]


@pytest.mark.parametrize("limit", [0, 1, 8, 100])
def test_the_limit_is_what_the_trace_asks_for(own: OwnArena, limit: int) -> None:
    text = c_char_p(b"x" * limit), c_char_p(b"x" * (limit + 1))

    values = taken(own, "%s %s", (CHARS, CHARS), *text, options=Options(text=limit))

    assert values == ["x" * limit, "x" * limit + "…"]


def test_a_precision_in_the_format_is_a_limit_and_no_cut(own: OwnArena) -> None:
    assert taken(own, "s %.3s", (CHARS,), c_char_p(b"abcdef")) == ["abc"]


def test_what_is_behind_a_precision_need_not_be_ours(own: OwnArena, edge: Edge) -> None:
    assert taken(own, "s %.3s", (CHARS,), c_uint64(edge.put(b"abc"))) == ["abc"]


@pytest.mark.parametrize("pointer", [0, 1, 4095])
def test_a_string_in_the_first_page_is_null(own: OwnArena, pointer: int) -> None:
    assert taken(own, "s %s", (CHARS,), c_uint64(pointer)) == [None]


@pytest.mark.parametrize("pointer", WILD, ids=hex)
def test_a_wild_pointer_is_unreadable_and_no_harm(own: OwnArena, pointer: int) -> None:
    args = (CHARS, INT, CHARS, INT, POINTER, INT)
    wild = c_uint64(pointer)

    values = taken(own, "%s %.*s %*ph %d", args, wild, c_int(9), wild, c_int(9), wild, c_int(7))

    assert values == [UNREADABLE, UNREADABLE, UNREADABLE, 7]


def test_a_page_that_may_not_be_read_is_unreadable(own: OwnArena, edge: Edge) -> None:
    assert taken(own, "s %s", (CHARS,), c_uint64(edge.end)) == [UNREADABLE]


@pytest.mark.parametrize("length", [1, 2, 8, 100, 255, 256])
def test_a_string_that_runs_into_what_cannot_be_read_is_cut_there(
    own: OwnArena, edge: Edge, length: int
) -> None:
    at = c_uint64(edge.put(b"x" * length))

    assert taken(own, "s %s", (CHARS,), at) == ["x" * length + "…"]


@pytest.mark.parametrize("length", [0, 1, 8, 255, 256])
def test_a_string_may_end_right_before_what_cannot_be_read(
    own: OwnArena, edge: Edge, length: int
) -> None:
    at = c_uint64(edge.put(b"x" * length + b"\0"))

    assert taken(own, "s %s", (CHARS,), at) == ["x" * length]


def test_a_page_that_is_not_in_memory_yet_is_read(own: OwnArena, tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"x" * PAGE + b"from the disk\0" + bytes(PAGE))
    with file.open("rb") as opened:  # not by prot=READ, or its address cannot be had
        memory = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)

    assert taken(own, "s %s", (CHARS,), c_uint64(address_of(memory) + PAGE)) == ["from the disk"]


# ---- with a length -------------------------------------------------------------------------------


@pytest.mark.product
@pytest.mark.parametrize("text", [1000, 300, 256, 40])
def test_bounded_strings_of_every_length(own: OwnArena, text: int) -> None:
    slot = own.marker("%.*s", INT, CHARS)
    data = c_char_p(b"." * text)
    lengths = [*range(-2, 260), 300, 1001, (1 << 31) - 1, -(1 << 31)]
    for length in lengths:
        slot.hit(c_int32(length), data)

        (event,) = own.records()
        most = min(text, 256 if length < 0 else length)
        cut = text > 256 and not 0 <= length <= 256
        assert event.fields["arg1"] == "." * min(most, 256) + "…" * cut, length


@pytest.mark.parametrize(
    ("length", "expected"),
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
    own: OwnArena, length: int, expected: Value
) -> None:
    text = c_char_p(b"abc\0ef" + b"." * 1000)

    assert taken(own, "%.*s", (INT, CHARS), c_int32(length), text) == [expected]


def test_a_length_is_an_int_whatever_else_is_in_its_register(own: OwnArena) -> None:
    register = c_uint64(0xFFFFFFFF_00000002)

    values = taken(own, "%.*s %*ph", (INT, CHARS, INT, CHARS), register, c_char_p(b"abc"), register,
                  c_char_p(b"abc"))  # fmt: skip

    assert values == ["ab", b"ab"]


def test_a_bounded_string_may_be_null(own: OwnArena) -> None:
    assert taken(own, "%.*s", (INT, CHARS), c_int32(5), c_uint64(0)) == [None]


@pytest.mark.parametrize("format_", ["%.*s", "%*ph"])
def test_what_is_behind_a_length_need_not_be_ours(own: OwnArena, edge: Edge, format_: str) -> None:
    slot = own.marker(format_, INT, CHARS)
    for length in (0, 1, 9, 256):
        slot.hit(c_int(length), c_uint64(edge.put(b"x" * length)))

        (event,) = own.records()
        assert event.fields["arg1"] in ("x" * length, b"x" * length)


@pytest.mark.parametrize("format_", ["%.*s", "%*ph"])
def test_no_bytes_are_read_where_none_are_asked_for(own: OwnArena, format_: str) -> None:
    (value,) = taken(own, format_, (INT, CHARS), c_int(0), c_uint64(WILD[0]))

    assert not value
    assert value is not None


# ---- raw bytes -----------------------------------------------------------------------------------


@pytest.mark.product
@pytest.mark.parametrize("ctype", [CHARS, POINTER])
def test_raw_bytes_of_every_length(own: OwnArena, ctype: CType) -> None:
    slot = own.marker("body %*ph", INT, ctype)
    data = bytes(range(256)) * 2
    for length in [*range(-2, 260), 512, (1 << 31) - 1, -(1 << 31)]:
        slot.hit(c_int32(length), c_char_p(data))

        (event,) = own.records()
        assert event.fields["body"] == data[: max(0, min(length, 256))], length


def test_raw_bytes_are_shown_as_the_kernel_does(own: OwnArena) -> None:
    (value,) = taken(own, "body %*ph", (INT, POINTER), c_int(4), c_char_p(b"a\0\xff\n"))

    (field,) = own.types[0].fields
    assert show(field, value) == "61 00 ff 0a"


def test_raw_bytes_up_to_what_cannot_be_read(own: OwnArena, edge: Edge) -> None:
    at = c_uint64(edge.put(b"\0\1\2"))

    assert taken(own, "%*ph", (INT, POINTER), c_int(10), at) == [b"\0\1\2"]


@pytest.mark.parametrize("pointer", [0, 4095])
def test_raw_bytes_may_be_null(own: OwnArena, pointer: int) -> None:
    assert taken(own, "%*ph", (INT, POINTER), c_int(10), c_uint64(pointer)) == [None]


# ---- an entry that nobody of us wrote ------------------------------------------------------------


@pytest.mark.parametrize("op", [OP_BYTES, OP_RAW])
def test_bytes_without_an_argument_before_them_are_none(own: OwnArena, op: int) -> None:
    slot = own.marker("s %s", CHARS)
    rewrite(own, 0, ops={0: op}, limits={0: 8})

    slot.hit(c_char_p(b"abc"))

    assert [list(event.fields.values()) for event in own.records()] == [[""]]


def rewrite(
    own: OwnArena, marker: int, *, ops: Mapping[int, int] | None = None, limits: Mapping[int, int]
) -> None:
    """Change the entry of a marker, by argument."""
    entry = own.arena.markers.entry(marker)
    for arg, op in (ops or {}).items():
        entry.ops[arg] = op
    for arg, limit in limits.items():
        entry.limits[arg] = limit
    own.store.write(own.geometry.marker_offset(marker), bytes(entry))


# ---- all of it -----------------------------------------------------------------------------------

_ARENAS: dict[str, OwnArena] = {}
_EDGES: list[Edge] = []


@pytest.mark.parametrize("how", ["transaction", "pages", "kernel"])
@settings(max_examples=examples(300), deadline=None)
@given(
    op=st.sampled_from(["%s", "%.*s", "%*ph"]),
    readable=st.integers(0, 2 * PAGE),
    nul=st.integers(0, 2 * PAGE),
    asked=st.integers(-1, 600),
    limit=st.integers(0, 4000),
)
def test_any_text_at_any_distance_from_what_cannot_be_read(
    how: str, build: Path, op: str, readable: int, nul: int, asked: int, limit: int
) -> None:
    if how not in _ARENAS:
        _ARENAS[how] = arena_that_reads(how)
    if not _EDGES:
        _EDGES.append(Edge())
    own, edge = _ARENAS[how], _EDGES[0]
    data = bytearray(b"x" * readable)
    if nul < readable:
        data[nul] = 0
    args = (CHARS,) if op == "%s" else (INT, CHARS)
    slot = own.marker(op, *args)
    rewrite(own, marker_id(own, slot), limits={len(args) - 1: limit})

    pointer = c_uint64(edge.put(bytes(data)))
    slot.hit(*([pointer] if op == "%s" else [c_int(asked), pointer]))

    (event,) = own.records()
    assert event.fields["arg1"] == expected(bytes(data), op, asked, limit)


def expected(data: bytes, op: str, asked: int, limit: int) -> Value:
    """By the rules, of `data` and nothing readable behind it."""
    bounded = op != "%s" and 0 <= asked <= limit
    bound = asked if bounded else 0 if op == "%*ph" and asked < 0 else limit
    text = data if op == "%*ph" else data.split(b"\0", 1)[0]
    ends = len(text) < len(data)  # at a NUL
    least = bound + (not bounded and op != "%*ph")  # is there more?
    if not data and least:
        return UNREADABLE
    kept = text[:bound]
    if op == "%*ph":
        return kept
    cut = len(text) > bound if ends or len(text) >= least else True
    return kept.decode() + "…" * (cut and not (bounded and len(text) >= bound))


# ---- fetching for probes in C --------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 100, PAGE, 2 * PAGE + 5, 3 * PAGE])
def test_a_probe_fetches_any_number_of_bytes(own: OwnArena, edge: Edge, size: int) -> None:
    data = bytes(range(1, 251)) * (size // 250 + 1)

    assert fetch(own, edge.put(data[:size]), size) == data[:size]


@pytest.mark.parametrize("size", [0, 1, 100, PAGE, 2 * PAGE + 5])
def test_a_probe_fetches_what_can_be_read(own: OwnArena, edge: Edge, size: int) -> None:
    assert fetch(own, edge.put(b"x" * size), size + 3000) == b"x" * size


@pytest.mark.parametrize("pointer", [0, *WILD], ids=hex)
def test_a_probe_fetches_nothing_from_nowhere(own: OwnArena, pointer: int) -> None:
    assert fetch(own, pointer, 100) == b""


def fetch(own: OwnArena, address: int, size: int) -> bytes:
    """mj_fetch; checks that it wrote no further."""
    function = ctypes.CFUNCTYPE(ctypes.c_long, c_uint64, c_uint64, ctypes.c_ulong)
    to = ctypes.create_string_buffer(b"\xee" * (size + 64), size + 64)
    done = function(own.base + own.arena.entry.fetch)(ctypes.addressof(to), address, size)
    assert 0 <= done <= size
    assert to.raw[size:] == b"\xee" * 64
    return to.raw[:done]


def test_a_transaction_that_ends_at_a_page_which_was_not_used_is_begun_again(
    build: Path,
) -> None:
    if not cpu_flags() & CPU_RTM:
        pytest.skip("this processor has no memory transactions")
    # With no process for process_vm_readv: what the kernel is asked for it cannot read.
    own = OwnArena(
        geometry_of(max_markers=64), way=RESTARTABLE, cpu_flags=cpu_flags() & ~CPU_TSC, pid=0
    )
    marker = own.marker("%s", CHARS)
    memory = mmap.mmap(-1, 2 * PAGE)
    memory[PAGE - 4 : PAGE + 4] = b"cold txt"
    texts = [memory_at(memory, PAGE - 4), memory_at(memory, PAGE)]

    for _ in range(COLD_ROUNDS):
        memory.madvise(MADV_COLD)
        for text in texts:
            marker.hit(text)

    seen = [event.fields["arg1"] for event in own.records()]
    assert len(seen) == 2 * COLD_ROUNDS
    read = [(text, at) for at, text in enumerate(seen) if text != UNREADABLE]
    assert {(text, at % 2) for text, at in read} == {("cold txt", 0), (" txt", 1)}
    # A transaction that is begun once ends at every cold page. Of those that are begun again one in
    # a thousand ends, too: an interrupt does that, and the kernel is asked then.
    assert len(read) > COLD_ROUNDS * 3 // 2


def memory_at(memory: mmap.mmap, offset: int) -> c_char_p:
    return c_char_p(address_of(memory) + offset)

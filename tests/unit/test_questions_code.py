"""Questions as code, run in this process: their answers are those of the reference, and they change
no register."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import get_native_id

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from markerjit.abi import MAX_ASKED, OP_RAW, OP_STRING, PAGE
from markerjit.errors import BadQuestion, Unsupported
from markerjit.probes.asked_texts import TextArgument
from markerjit.probes.computed import Known
from markerjit.probes.question import Gates, draft_of, make_question
from markerjit.questions import Question, Scope, ask
from markerjit.questions.ir import Node
from markerjit.questions.types import Type
from markerjit.x86.assemble import assemble, number, plus
from tests.support.choice import examples
from tests.support.own_arena import OwnArena
from tests.support.question_reference import Values, answer
from tests.support.question_texts import (
    NUMBERS,
    NUMBERS_OF_AN_EVENT,
    OF_NUMBERS,
    QUESTIONS,
    QUESTIONS_OF_MEMORY,
    QUESTIONS_OF_NUMBERS,
    SCOPE,
    numbers,
    texts,
)

ARGUMENTS = {name: index for index, name in enumerate(NUMBERS, 3)}
TEXTS = {
    "s": TextArgument(0, OP_STRING, MAX_ASKED),  # up to its NUL
    "t": TextArgument(2, OP_RAW, MAX_ASKED),  # as many bytes as the word before says
}
KNOWN = Known(ARGUMENTS, TEXTS)
WORDS = 3 + len(NUMBERS)
KEPT = ("rax", "rcx", "rdx", "rbx", "rsi", "rdi", *(f"r{index}" for index in range(8, 15)))
"""General registers that have known values in a call; r15 and rsp are for the harness."""
PROT_NONE = 0
WITH_CLOCK = OF_NUMBERS._replace(types={**OF_NUMBERS.types, "time": Type.I64, "cpu": Type.U32})
CONTROL, USUAL_CONTROL = 0xE040, 0x1F80
"""Of MXCSR. A program may have every exception of floats raise a signal, another rounding, and no
denormal numbers."""
PROPERTY = settings(
    max_examples=examples(60),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


class Harness:
    """A page of code that calls a question as the body of a marker does."""

    CODE, DATA, STRINGS, SIZE = 0x1000, 0x20000, 0x21000, 0x30000
    KEEP = ("rbx", "rbp", "r12", "r13", "r14", "r15")

    GATES = (0x80, 0xA0, 0xC0, 0xE0)

    def __init__(self, gates: Gates) -> None:
        self.text_at: int | None = None
        protection = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        self._memory = mmap.mmap(-1, self.SIZE, prot=protection)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        names = {
            "words": self.address + self.DATA,
            "taken": self.address + self.DATA + 0x800,
            "after": self.address + self.DATA + 0x810,
            "theirs": self.address + self.DATA + 0x818,
            "control": self.address + self.DATA + 0x81C,
            "usual": self.address + self.DATA + 0x820,
            "question": self.address + self.CODE,
        }
        probe = assemble(["inc qword ptr [rip + taken]", "ret"], self.address, names)
        self._put(0, probe.code)
        for at, gate in zip(self.GATES, gates, strict=True):
            # The runtime's, which may be too far away for a call.
            way = assemble([f"movabs r11, {number(gate)}", "jmp r11"], self.address + at, names)
            self._put(at, way.code)
        self._run_at = 0x100
        runner = assemble(list(self._runner()), self.address + self._run_at, names)
        self._put(self._run_at, runner.code)
        self._call = ctypes.CFUNCTYPE(None)(self.address + self._run_at)

    def _runner(self) -> Iterator[str]:
        for register in self.KEEP:
            yield f"push {register}"
        yield "lea r15, [rip + words]"
        yield "mov rbp, rsp"
        for index in reversed(range(WORDS)):
            yield f"mov rax, qword ptr [r15{plus(8 * index)}]"
            yield "push rax"
        yield "push r15"  # the slot, and the shape
        yield "push r15"
        for index, register in enumerate(KEPT):
            yield f"movabs {register}, {number(self.pattern(index))}"
        for vector in range(16):
            yield f"movups xmm{vector}, xmmword ptr [r15 + {number(0x400 + 16 * vector)}]"
        yield "ldmxcsr dword ptr [rip + theirs]"
        yield "call question"
        yield "stmxcsr dword ptr [rip + control]"
        yield "ldmxcsr dword ptr [rip + usual]"
        for index, register in enumerate(KEPT):
            yield f"mov qword ptr [r15 + {number(0x600 + 8 * index)}], {register}"
        for vector in range(16):
            yield f"movups xmmword ptr [r15 + {number(0x500 + 16 * vector)}], xmm{vector}"
        yield f"lea rax, [rsp + {number(8 * (WORDS + 2))}]"
        yield "sub rax, rbp"
        yield "mov qword ptr [rip + after], rax"
        yield "mov rsp, rbp"
        for register in reversed(self.KEEP):
            yield f"pop {register}"
        yield "ret"

    @staticmethod
    def pattern(index: int) -> int:
        return 0x1122334455667700 + index

    def place(self, condition: Node, known: Known = KNOWN) -> None:
        """Put the code of a condition where it is called."""
        draft = draft_of(condition, known)
        gates = Gates(*(self.address + at for at in self.GATES))
        made = make_question(draft, self.address, gates).at(self.address + self.CODE)
        assert len(made) < self.DATA - self.CODE
        self._put(self.CODE, made)

    def answers(self, values: Values) -> bool:
        """Whether the probe was called; every register has to be as before."""
        words = self._texts(values)
        words += b"".join(_word(name, values[name]) for name in ARGUMENTS)
        vectors = bytes(range(256))
        self._put(self.DATA, words)
        self._put(self.DATA + 0x400, vectors)
        self._put(self.DATA + 0x800, struct.pack("<3Q3I", 0, 0, 0, CONTROL, 0, USUAL_CONTROL))

        self._call()

        general = struct.pack(f"<{len(KEPT)}Q", *map(self.pattern, range(len(KEPT))))
        assert self._memory[self.DATA + 0x500 : self.DATA + 0x600] == vectors
        assert self._memory[self.DATA + 0x600 : self.DATA + 0x600 + len(general)] == general
        assert self._memory[self.DATA : self.DATA + len(words)] == words
        place = self.DATA + 0x800
        taken, _, moved, _, control = struct.unpack_from("<3Q2I", self._memory, place)
        assert control == CONTROL
        assert taken in (0, 1)
        assert moved == 0
        return bool(taken)

    def _texts(self, values: Values) -> bytes:
        """The words of the texts, which are put into memory."""
        words: list[int] = []
        for index, name in enumerate(TEXTS):
            text = values.get(name)
            assert text is None or isinstance(text, bytes)
            place = self.STRINGS + 0x1000 * index
            self._put(place, (text or b"") + b"\0")
            address = self.text_at or self.address + place
            words.append(0 if text is None else address)
        length = struct.pack("<iI", len(values.get("t") or b""), 0xA5A5A5A5)  # type: ignore[arg-type]
        return struct.pack("<Q", words[0]) + length + struct.pack("<Q", words[1])

    def _put(self, at: int, data: bytes) -> None:
        self._memory[at : at + len(data)] = data


def _word(name: str, value: object) -> bytes:
    """An argument as a word. What lies above a smaller one is not defined, so it is odd."""
    if NUMBERS[name] is Type.F64:
        return struct.pack("<d", value)
    assert isinstance(value, int)
    size = max(NUMBERS[name].bits, 8) // 8
    return (value & (1 << 8 * size) - 1).to_bytes(size, "little") + b"\xa5" * (8 - size)


@pytest.fixture(scope="module")
def own(build: Path) -> OwnArena:
    return OwnArena()


@pytest.fixture(scope="module")
def harness(own: OwnArena) -> Harness:
    entry = own.arena.entry
    return Harness(
        Gates(own.base + entry.gate_ask, own.base + entry.gate_load, own.base + entry.gate_clock)
    )


def condition_of(text: str, scope: Scope = OF_NUMBERS) -> Node:
    (question,) = ask(text, [scope])
    assert isinstance(question, Question)
    return question.condition


@PROPERTY
@given(text=QUESTIONS_OF_NUMBERS, rows=st.lists(NUMBERS_OF_AN_EVENT, min_size=12, max_size=12))
def test_code_has_the_answers_of_the_reference(
    harness: Harness, text: str, rows: list[Values]
) -> None:
    try:
        condition = condition_of(text)
    except BadQuestion:  # a constant that does not fit
        assume(False)

    harness.place(condition)

    for row in rows:
        assert harness.answers(row) is bool(answer(condition, row)), row


ZEROS: Mapping[str, int | float] = {
    name: 0.0 if type_ is Type.F64 else 0 for name, type_ in NUMBERS.items()
}
NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("i32_ / j32 == 0", {"i32_": 7, "j32": 0}, True),
        ("i32_ % j32 == 0", {"i32_": 7, "j32": 0}, True),
        ("u64_ / v64 == 0", {"u64_": 7, "v64": 0}, True),
        ("i64_ / j64 == i64_", {"i64_": -(2**63), "j64": -1}, True),
        ("i64_ % j64 == 0", {"i64_": -(2**63), "j64": -1}, True),
        ("i32_ / j32 == i32_", {"i32_": -(2**31), "j32": -1}, True),
        ("i32_ + 1 == -2147483648", {"i32_": 2**31 - 1}, True),
        ("u32_ + 1 == 0", {"u32_": 2**32 - 1}, True),
        ("i64_ < u64_", {"i64_": -1, "u64_": 0}, True),
        ("u64_ > i64_", {"i64_": -1, "u64_": 2**64 - 1}, True),
        ("i64_ == u64_", {"i64_": -1, "u64_": 2**64 - 1}, False),
        ("i32_ << j32 == 0", {"i32_": -1, "j32": 32}, True),
        ("i32_ >> j32 == -1", {"i32_": -1, "j32": -5}, True),
        ("i64_ > -2147483648", {"i64_": -(2**31)}, False),
        ("i64_ >= -2147483648", {"i64_": -(2**31)}, True),
        ("i64_ > -2147483649", {"i64_": -(2**31)}, True),
        ("i64_ < 2147483648", {"i64_": 2**31 - 1}, True),
        ("u64_ < 2147483648", {"u64_": 2**63}, False),
        ("u64_ == 18446744073709551615", {"u64_": 2**64 - 1}, True),
        ("f == f", {"f": NAN}, False),
        ("f != f", {"f": NAN}, True),
        ("f < g or f >= g", {"f": NAN, "g": 1.0}, False),
        ("not (f < g)", {"f": NAN, "g": 1.0}, True),
        ("f", {"f": NAN}, True),
        ("f", {"f": -0.0}, False),
        ("f / g > 1e308", {"f": 1.0, "g": 0.0}, True),
        ("int(f) == -9223372036854775808", {"f": INFINITE}, True),
        ("float(u64_) == 18446744073709551616.0", {"u64_": 2**64 - 1}, True),
        ("float(u64_) == 9223372036854777856.0", {"u64_": 2**63 + 1025}, True),
        ("log2(u64_) == 63", {"u64_": 2**64 - 1}, True),
        ("log2(i64_) == -1", {"i64_": -5}, True),
        ("b + 1 == 2", {"b": 1}, True),
        ("c == 'x'", {"c": ord("x")}, True),
        ('name == "marker"', {}, True),
        ('name == "other"', {}, False),
    ],
)  # fmt: skip
def test_code_has_the_answers_that_the_language_names(
    harness: Harness, text: str, values: Mapping[str, int | float], expected: bool
) -> None:
    harness.place(condition_of(text))

    assert harness.answers({**ZEROS, **values}) is expected


def test_thread_is_known_by_its_id(harness: Harness) -> None:
    own = get_native_id()
    for text, expected in ((f"tid == {own} and {own} + 1 > tid", True), ("tid == 0", False)):
        harness.place(condition_of(text))
        assert harness.answers(ZEROS) is expected


def test_a_simple_question_takes_few_instructions() -> None:
    lines = [line.text for line in draft_of(condition_of("i32_ > 100"), KNOWN).lines]

    assert len(lines) == 10
    assert not any("xmm" in line or "rdx" in line for line in lines)


def test_each_instruction_has_its_part_of_the_question() -> None:
    text = "i32_ > 100 and f < 2.5"
    lines = draft_of(condition_of(text), KNOWN).lines

    parts = {text[slice(*line.span)] for line in lines if line.span}

    assert parts == {"i32_", "i32_ > 100", "f", "2.5", "f < 2.5"}


EVENTS = st.fixed_dictionaries(
    {name: numbers(type_) for name, type_ in NUMBERS.items()}
    | {"s": texts().map(lambda text: text and text.split(b"\0")[0]), "t": texts()}
)
NEITHER: Values = {**ZEROS, "s": None, "t": None}


@PROPERTY
@given(text=QUESTIONS, rows=st.lists(EVENTS, min_size=12, max_size=12))
def test_code_about_texts_has_the_answers_of_the_reference(
    harness: Harness, text: str, rows: list[Values]
) -> None:
    try:
        condition = condition_of(text, SCOPE)
    except BadQuestion:  # a constant that does not fit
        assume(False)

    harness.place(condition)

    for row in rows:
        assert harness.answers(row) is bool(answer(condition, row)), row


@pytest.mark.parametrize(
    ("text", "s", "expected"),
    [
        ('s == ""', b"", True), ('s == ""', None, False), ('s != ""', None, True),
        ('s == "GET"', b"GET", True), ('s == "GET"', b"GETS", False), ('s == "GET"', b"GE", False),
        ('s.startswith("GET")', b"GETS", True), ('"" in s', b"", True), ('"" in s', None, False),
        ('"bc" in s', b"abc", True), ('"bc" in s[:2]', b"abc", False), ('len(s) == 0', None, True),
        ('s[1:][1:2] == "c"', b"abcd", True), ('s[70000:] == ""', b"abcd", True),
        ('len(s) == 256', b"x" * 300, True), (f's == "{"x" * 300}"', b"x" * 300, False),
        ('s in ("a", "b")', b"b", True), ('s is not None and len(s[2:1]) == 0', b"abc", True),
        ('s == t', b"", False), ('len(s) + i32_ * 2 + len(s[1:]) == 7', b"abcd", True),
    ],
)  # fmt: skip
def test_code_about_texts_has_the_answers_that_the_language_names(
    harness: Harness, text: str, s: bytes | None, expected: bool
) -> None:
    harness.place(condition_of(text, SCOPE))

    assert harness.answers({**NEITHER, "s": s}) is expected


@pytest.mark.parametrize("address", [1, PAGE - 1, 1 << 63, (1 << 64) - 1, 1 << 47])
def test_text_at_a_wild_address_is_missing(harness: Harness, address: int) -> None:
    harness.place(condition_of("s is None and len(s) == 0", SCOPE))
    harness.text_at = address

    try:
        assert harness.answers({**NEITHER, "s": b"there"})
    finally:
        harness.text_at = None


def test_careful_text_is_read_by_the_kernel(harness: Harness) -> None:
    careful = KNOWN._replace(careful=True)
    harness.place(condition_of('s == "GET" and t == "SET" and len(t) == 3', SCOPE), careful)

    assert harness.answers({**NEITHER, "s": b"GET", "t": b"SET"})
    assert not harness.answers({**NEITHER, "s": b"GET", "t": b"SETS"})
    assert not harness.answers({**NEITHER, "s": None, "t": b"SET"})


class Region:
    """Two pages that can be read, with pages before and behind them that cannot, and addresses of
    their own in them."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 4 * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.start, self.end = start + PAGE, start + 3 * PAGE
        libc = ctypes.CDLL(None, use_errno=True)
        for guard in (start, self.end):
            assert libc.mprotect(ctypes.c_void_p(guard), PAGE, PROT_NONE) == 0
        text = b"ab\0GET\0" + b"\xff" * 9
        for at in range(0, 2 * PAGE, 32):
            pointer = struct.pack("<Q", self.start + at // 2)
            self._memory[PAGE + at : PAGE + at + 32] = (pointer + text).ljust(32, b"a")

    def read(self, address: int) -> bytes:
        """What can be read from an address on."""
        if not self.start <= address < self.end:
            return b""
        at = address - self.start + PAGE
        return self._memory[at : 3 * PAGE]

    def addresses(self) -> st.SearchStrategy[int]:
        """Inside, near the ends, and wild."""
        near = st.sampled_from((self.start, self.end, self.start + PAGE))
        return st.one_of(
            st.integers(self.start, self.end),
            st.tuples(near, st.integers(-12, 12)).map(sum),
            st.sampled_from((0, 1, PAGE - 1, 1 << 47, 1 << 63, (1 << 64) - 1)),
        )


@pytest.fixture(scope="module")
def region() -> Region:
    return Region()


MEMORY_SCOPE = Scope(
    "marker",
    {**NUMBERS, "q": Type.POINTER, "s": Type.TEXT, "name": Type.TEXT},
    frozenset((*NUMBERS, "q", "s")),
    {},
)


@pytest.mark.parametrize("careful", [False, True])
def test_code_about_memory_has_the_answers_of_the_reference(
    harness: Harness, region: Region, careful: bool
) -> None:
    # The two pointers are the words of p and of v64.
    known = KNOWN._replace(
        arguments={**ARGUMENTS, "q": ARGUMENTS["v64"]},
        texts={"s": TEXTS["s"]},
        careful=careful,
    )
    events = st.tuples(EVENTS, region.addresses(), region.addresses(), region.addresses()).map(
        lambda drawn: drawn[0] | {"p": drawn[1], "q": drawn[2], "v64": drawn[2], "u64_": drawn[3]}
    )

    @settings(PROPERTY, max_examples=examples(150))
    @given(text=QUESTIONS_OF_MEMORY, rows=st.lists(events, min_size=8, max_size=8))
    def agree(text: str, rows: list[Values]) -> None:
        try:
            condition = condition_of(text, MEMORY_SCOPE)
        except BadQuestion:  # a constant that does not fit
            assume(False)
        harness.place(condition, known)
        for row in rows:
            assert harness.answers(row) is bool(answer(condition, row, region.read)), row

    agree()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("u32(p) == 0", False), ("u32(p) != 0", True), ("not (u32(p) == 0)", True),
        ("u32(p) < 1 or u32(p) >= 1", False), ("u32(p)", False), ("not u32(p)", True),
        ("u32(p) is None", True), ("u32(p) + 1 is None", True), ("u32(p) is not None", False),
        ("f64(p) == 0", False), ("f32(p) != 0.5", True), ("f32(p) is None", True),
        ("f64(p) < 1.0 or f64(p) >= 1", False), ("f32(p)", False), ("not f64(p)", True),
        ("(1 if u32(p) else 2) == 2", True), ("(u32(p) if i32_ else 7) == 7", True),
        ("u32(p) in (0, 1)", False), ("u32(p) not in (0, 1)", True), ("str(p) is None", True),
        ('str(p) == ""', False), ("len(str(u64(p))) == 0", True), ('str(p) != ""', True),
    ],
)  # fmt: skip
def test_memory_that_cannot_be_read_is_missing(harness: Harness, text: str, expected: bool) -> None:
    for wild in (0, PAGE - 1, 1 << 47, 1 << 63, (1 << 64) - 1):
        condition = condition_of(text)
        harness.place(condition)
        assert harness.answers({**ZEROS, "p": wild}) is expected
        assert bool(answer(condition, {**ZEROS, "p": wild})) is expected


def test_a_number_that_a_guard_page_cuts_is_missing(harness: Harness, region: Region) -> None:
    harness.place(condition_of("u32(p) is None and u16(p) == 24929 and i8(p + 1) == 97"))

    assert harness.answers({**ZEROS, "p": region.end - 2})


@pytest.mark.parametrize(
    "value", [0.0, -0.0, 0.5, -1e30, 1e-40, 3.4028234e38, float("inf"), float("-inf"), float("nan")]
)
def test_a_float_in_memory_has_its_value(harness: Harness, value: float) -> None:
    """Also one that is denormal, and whatever the program has in MXCSR."""
    single = ctypes.c_float(value)
    double = ctypes.c_double(value)
    same = "==" if value == value else "!="
    for name, place in (("f32", single), ("f64", double)):
        harness.place(condition_of(f"{name}(p) {same} f"))
        event = {**ZEROS, "p": ctypes.addressof(place), "f": place.value}
        assert harness.answers(event)
        harness.place(condition_of(f"{name}(p) * 2 - {name}(p) {same} f and {name}(p) is not None"))
        assert harness.answers(event) is not (abs(value) == float("inf"))


def test_a_float_that_a_guard_page_cuts_is_missing(harness: Harness, region: Region) -> None:
    harness.place(condition_of("f64(p) is None and f32(p) is not None and f32(p + 1) is None"))

    assert harness.answers({**ZEROS, "p": region.end - 4})


def test_time_is_that_of_the_monotonic_clock(harness: Harness) -> None:
    before = time.monotonic_ns()
    harness.place(condition_of(f"{before} < time <= i64_", WITH_CLOCK))

    assert harness.answers({**ZEROS, "i64_": before + 600 * 10**9})
    assert not harness.answers({**ZEROS, "i64_": before})


def test_cpu_is_the_one_that_the_thread_is_on(harness: Harness) -> None:
    allowed = os.sched_getaffinity(0)
    for cpu in sorted(allowed)[:2]:
        os.sched_setaffinity(0, {cpu})
        try:
            harness.place(condition_of("cpu == i32_ and i32_ >= cpu", WITH_CLOCK))
            assert harness.answers({**ZEROS, "i32_": cpu})
            assert not harness.answers({**ZEROS, "i32_": cpu + 1})
        finally:
            os.sched_setaffinity(0, allowed)


def test_without_a_clock_there_is_no_time() -> None:
    with pytest.raises(Unsupported, match="time is not known"):
        draft_of(condition_of("time > 1", WITH_CLOCK), KNOWN._replace(has_clock=False))

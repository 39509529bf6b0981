"""Questions as code, run in this process: their answers are those of the reference, and they change
no register."""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import get_native_id

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from markerjit.abi import MAX_ASKED, OP_RAW, OP_STRING, PAGE
from markerjit.errors import BadQuestion, Unsupported
from markerjit.probes.asked_texts import TextArgument
from markerjit.probes.question import draft_of, make_question
from markerjit.questions import Question, Scope, ask
from markerjit.questions.ir import Node
from markerjit.questions.types import Type
from markerjit.x86.assemble import assemble, number, plus
from tests.support.own_arena import OwnArena
from tests.support.question_reference import Values, answer
from tests.support.question_texts import (
    NUMBERS,
    NUMBERS_OF_AN_EVENT,
    OF_NUMBERS,
    QUESTIONS,
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
WORDS = 3 + len(NUMBERS)
KEPT = ("rax", "rcx", "rdx", "rbx", "rsi", "rdi", *(f"r{index}" for index in range(8, 15)))
"""General registers that have known values in a call; r15 and rsp are for the harness."""
CONTROL, USUAL_CONTROL = 0xE040, 0x1F80
"""Of MXCSR. A program may have every exception of floats raise a signal, another rounding, and no
denormal numbers."""
PROPERTY = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


class Harness:
    """A page of code that calls a question as the body of a marker does."""

    CODE, DATA, STRINGS, SIZE = 0x1000, 0x20000, 0x21000, 0x30000
    KEEP = ("rbx", "rbp", "r12", "r13", "r14", "r15")

    def __init__(self, gate: int) -> None:
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
        self._gate = self.address + 0x80  # the runtime's, which may be too far away for a call
        way = assemble([f"movabs r11, {number(gate)}", "jmp r11"], self._gate, names)
        self._put(0x80, way.code)
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

    def place(self, condition: Node, texts: Mapping[str, TextArgument] = TEXTS) -> None:
        """Put the code of a condition where it is called."""
        draft = draft_of(condition, ARGUMENTS, texts)
        made = make_question(draft, self.address + self.CODE, self.address, self._gate)
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
    return Harness(own.base + own.arena.entry.gate_ask)


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
    lines = [line.text for line in draft_of(condition_of("i32_ > 100"), ARGUMENTS).lines]

    assert len(lines) == 10
    assert not any("xmm" in line or "rdx" in line for line in lines)


def test_each_instruction_has_its_part_of_the_question() -> None:
    text = "i32_ > 100 and f < 2.5"
    lines = draft_of(condition_of(text), ARGUMENTS).lines

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
    careful = {name: text._replace(careful=True) for name, text in TEXTS.items()}
    harness.place(condition_of('s == "GET" and t == "SET" and len(t) == 3', SCOPE), careful)

    assert harness.answers({**NEITHER, "s": b"GET", "t": b"SET"})
    assert not harness.answers({**NEITHER, "s": b"GET", "t": b"SETS"})
    assert not harness.answers({**NEITHER, "s": None, "t": b"SET"})


def test_memory_has_no_code() -> None:
    scope = Scope("m", {"p": Type.POINTER}, frozenset(("p",)), {})

    with pytest.raises(Unsupported):
        draft_of(condition_of("u32(p) == 1", scope), {"p": 0})

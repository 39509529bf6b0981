"""Texts that are compared with a constant (markerjit/probes/compared.py), or with one another
(alike.py), by the code of a question, told apart from those that the runtime compares: by a second
marker of the same question, for which the runtime always answers no. A comparison that is
interrupted is the runtime's, too, so now and then one of that marker's is not met."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from markerjit.abi import CODE_SIZE
from markerjit.model import Signature
from markerjit.probes import called
from markerjit.probes.asking import Process, ask_markers, draft_of_question, scope_of_marker
from markerjit.questions import Question, ask
from tests.support.adder import SIGNATURE, Adder, placed
from tests.support.choice import examples
from tests.support.own_arena import CHARS, INT, RESTARTABLE, OwnArena, geometry_of
from tests.support.question_reference import answer
from tests.support.question_texts import TEXT_CONDITIONS, texts

OF_LENGTH = Signature("sized", "text %.*s", (INT, CHARS))
NO = b"\x31\xc0\xc3"  # xor eax, eax; ret
LETTERS = "abcdefghijklmnopqrstuvwxyz" * 3
LENGTHS = (1, 6, 7, 8, 9, 15, 16, 17, 63)
TIMES = 5
"""Events of which one at least is not interrupted."""


@pytest.fixture(scope="module")
def own() -> OwnArena:
    geometry = geometry_of(max_markers=1024, aggregate_pages=1024)
    return OwnArena(geometry, way=RESTARTABLE)


class Asked:
    """Events that meet a condition, by a marker as it is, and by one whose code asks nobody."""

    def __init__(self, own: OwnArena, where: str, signature: Signature = SIGNATURE) -> None:
        self.whole = Adder(own, "count()", where=where, signature=signature)
        again = signature._replace(name="again")
        returns_no = own.arena.base + own.arena.store.read(0, CODE_SIZE).index(NO)
        real = called.runtime_of

        def without(*args: Any, **rest: Any) -> called.Runtime:
            made = real(*args, **rest)
            return made._replace(gates=made.gates._replace(ask=returns_no))

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(called, "runtime_of", without)
            self.alone = Adder(own, "count()", where=where, signature=again)

    def met(self, text: bytes | None, length: int | None = None) -> tuple[int, int]:
        """How many of `TIMES` events with a text meet the condition, of both markers."""
        if length is None:
            return self.met_by(ctypes.c_int64(0), ctypes.c_uint64(0), ctypes.c_double(0),
                               placed(text))  # fmt: skip
        return self.met_by(ctypes.c_int(length), placed(text))

    def met_by(self, *arguments: Any) -> tuple[int, int]:
        """The same of events with these arguments."""
        before = self._counts()
        for _ in range(TIMES):
            for adder in (self.whole, self.alone):
                adder.slot.hit(*arguments)
        return tuple(now - then for now, then in zip(self._counts(), before, strict=True))

    def _counts(self) -> list[int]:
        return [adder.answers().events for adder in (self.whole, self.alone)]

    def free(self) -> None:
        self.whole.free()
        self.alone.free()


@pytest.fixture
def asked(own: OwnArena, request: pytest.FixtureRequest) -> Callable[[str], Asked]:
    def make(where: str) -> Asked:
        made = Asked(own, where)
        request.addfinalizer(made.free)
        return made

    return make


def likely(constant: str) -> list[bytes]:
    """Texts that are this one, or differ from it at an end or in its middle."""
    text = constant.encode()
    middle = len(text) // 2
    return [
        text, text[:-1], text + b"x", text + b"a" * 20, text[:-1] + b"X", b"X" + text[1:], b"",
        text[:middle] + b"X" + text[middle + 1 :],
    ]  # fmt: skip


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("operator", ["==", "startswith"])
def test_answer_is_that_of_python(
    asked: Callable[[str], Asked], length: int, operator: str
) -> None:
    constant = LETTERS[:length]
    made = asked(question(operator, constant))

    for text in likely(constant):
        met = is_met(operator, text, constant)
        whole, alone = made.met(text)
        assert whole == (TIMES if met else 0), text
        assert (0 < alone <= TIMES) if met else alone == 0, text


def question(operator: str, constant: str) -> str:
    """A text compared with a constant."""
    return f'text == "{constant}"' if operator == "==" else f'text.startswith("{constant}")'


def is_met(operator: str, text: bytes, constant: str) -> bool:
    """The answer of Python."""
    encoded = constant.encode()
    return text == encoded if operator == "==" else text.startswith(encoded)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("operator", ["==", "startswith"])
def test_text_with_a_length_ends_there_or_at_its_nul(
    own: OwnArena, length: int, operator: str
) -> None:
    constant = LETTERS[:length]
    made = Asked(own, question(operator, constant), OF_LENGTH)

    for data in likely(constant):
        for most in {-1, 0, length - 1, length, length + 1, 200}:
            text = data if most < 0 else data[:most]
            met = is_met(operator, text, constant)
            whole, alone = made.met(data, most)
            assert whole == (TIMES if met else 0), (text, most)
            assert (0 < alone <= TIMES) if met else alone == 0, (text, most)
    made.free()


@pytest.mark.parametrize("where", ['"yes" == text', 'text == ""', 'not text != "yes"'])
def test_however_it_is_written(asked: Callable[[str], Asked], where: str) -> None:
    met = asked(where).met(b"" if '""' in where else b"yes")

    assert met[0] == TIMES
    assert met[1] > 0


@pytest.mark.parametrize("text", [b"no", None])
def test_what_is_no_text_is_left_to_the_runtime(
    asked: Callable[[str], Asked], text: bytes | None
) -> None:
    """A text that is not there is none: it is not equal."""
    assert asked('text == "yes"').met(text) == (0, 0)
    whole, _ = asked('text != "yes"').met(text)
    assert whole == TIMES


@pytest.mark.parametrize(
    "where",
    [
        "text[:9] == text[:8]",
        "text[1:] != text",
        "len(text[65:]) == 0",
        f'text != "{LETTERS[:65]}"',
    ],
)
def test_other_tests_are_the_runtime_s(asked: Callable[[str], Asked], where: str) -> None:
    whole, alone = asked(where).met(b"yes")

    assert whole == TIMES
    assert alone == (0 if "text[:9]" in where else TIMES)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 16, 40, 77])
def test_length_is_that_of_python(asked: Callable[[str], Asked], length: int) -> None:
    made = asked(f"len(text) == {length}")

    for more in (-1, 0, 1, 8):
        if 0 <= length + more <= len(LETTERS):
            whole, alone = made.met(LETTERS[: length + more].encode())
            assert whole == (0 if more else TIMES)
            assert (0 < alone <= TIMES) if not more else alone <= (TIMES if not length else 0)


@pytest.mark.parametrize("constant", ["a", "es", "aab", "abcdefgh", "abcdefghi", LETTERS[:64]])
def test_constant_is_searched_as_python_searches_it(
    asked: Callable[[str], Asked], constant: str
) -> None:
    made = asked(f'"{constant}" in text')

    for before in ("", "x", "a", "aa", "aaaaaaa", "xxxxxxxx", constant[:-1], "xy" * 20):
        for behind in ("", "x", constant, "e" * 9):
            for middle in (constant, constant[:-1], constant[:-1] + "X"):
                text = (before + middle + behind).encode()
                met = constant.encode() in text
                whole, alone = made.met(text)
                assert whole == (TIMES if met else 0), text
                assert (0 < alone <= TIMES) if met else alone == 0, text


@pytest.mark.parametrize("length", [255, 256, 257, 300])
def test_only_the_first_bytes_of_a_text_are_looked_at(
    asked: Callable[[str], Asked], length: int
) -> None:
    text = b"x" * (length - 2) + b"ab"
    sizes, searched = asked("len(text) >= 255"), asked('"ab" in text')

    assert sizes.met(text)[0] == TIMES
    assert searched.met(text)[0] == (TIMES if length <= 256 else 0)
    assert asked("len(text) == 256").met(text)[0] == (TIMES if length >= 256 else 0)


@pytest.mark.parametrize("where", ["len(text) == 3", '"bc" in text'])
def test_text_at_the_end_of_its_page(asked: Callable[[str], Asked], where: str) -> None:
    made = asked(where)
    for at in (4096 - 12, 4096 - 8, 4096 - 4, 4096 - 2):
        arguments = (ctypes.c_int64(0), ctypes.c_uint64(0), ctypes.c_double(0))
        assert made.met_by(*arguments, placed(b"abc", at=at))[0] == TIMES
        assert made.met_by(*arguments, placed(b"ab", at=at))[0] == 0


@pytest.mark.parametrize("where", ["len(text[8:]) == 3", '"ab" in text[8:]', 'text[8:] == "abc"'])
def test_part_whose_word_is_not_in_the_page_is_the_runtime_s(
    asked: Callable[[str], Asked], where: str
) -> None:
    made = asked(where)
    arguments = (ctypes.c_int64(0), ctypes.c_uint64(0), ctypes.c_double(0))
    for at in (4096 - 17, 4096 - 16, 4096 - 15, 4096 - 12):
        whole, alone = made.met_by(*arguments, placed(b"x" * 8 + b"abc", at=at))
        assert whole == TIMES
        assert (0 < alone <= TIMES) if at <= 4096 - 16 else alone == 0


def test_two_comparisons_in_one_question(asked: Callable[[str], Asked]) -> None:
    made = asked('text.startswith("a") and (text == "ab" or text == "ac") and size == 0')

    assert [made.met(text)[0] for text in (b"ab", b"ac", b"ad", b"bb")] == [TIMES, TIMES, 0, 0]
    assert made.met(b"ac")[1] > 0


@pytest.mark.parametrize("among", [("GET", "SET"), ("a", "abcdefgh", "abcdefghi", "")])
@pytest.mark.parametrize("data", [SIGNATURE, OF_LENGTH])
def test_one_of_several_constants(own: OwnArena, among: tuple[str, ...], data: Signature) -> None:
    inside, outside = Asked(own, f"text in {among}", data), Asked(own, f"text not in {among}", data)

    for text in (*among, *(constant + "x" for constant in among), "SE", "GES", "abcdefgX"):
        length = None if data is SIGNATURE else len(text)
        met = text in among
        within, without = (each.met(text.encode(), length) for each in (inside, outside))
        assert within[0] == (TIMES if met else 0), text
        assert without[0] == TIMES - within[0], text
        if text:  # of 0 bytes the runtime reads none, so it does not learn that the page is there
            assert (0 < within[1] <= TIMES) if met else within[1] == 0, text
    inside.free()
    outside.free()


@pytest.mark.parametrize(
    "where",
    ['text == "ab" or text[1:] == "cd" or text.startswith("xy")', 'text[2:4] in ("cd", "ef")'],
)
def test_parts_of_one_text_that_are_compared(asked: Callable[[str], Asked], where: str) -> None:
    made, holds = asked(where), eval(f"lambda text: {where}")

    for text in ("ab", "acd", "xyz", "abcd", "abef", "abcdx", "abc", "xefx", "", "abc\xe9f"):
        whole, alone = made.met(text.encode("latin1"))
        assert whole == (TIMES if holds(text) else 0), text
        assert (0 < alone <= TIMES) if holds(text) else alone == 0, text


def test_one_of_several_constants_is_looked_for_in_one_sequence(own: OwnArena) -> None:
    signature = SIGNATURE._replace(name="several")
    where = 'text in ("GET", "SET") or size > 3 or text == "DEL"'
    question = ask_markers(where, [signature])[0]
    assert isinstance(question, Question)

    draft = draft_of_question(question, signature, process=Process.of(own.arena))

    assert [line.text for line in draft.lines].count("rdtsc") == 2
    assert len(draft.asked) == 3


PARTS = ((0, 3), (2, 5), (1, None), (7, 16), (8, 16), (9, 17), (8, None), (13, None))


@pytest.mark.parametrize("low, high", PARTS)
@pytest.mark.parametrize("operator", ["==", "startswith"])
def test_part_of_a_text_is_compared(
    asked: Callable[[str], Asked], low: int, high: int | None, operator: str
) -> None:
    part = f"text[{low}:{'' if high is None else high}]"
    whole = LETTERS[low:high][:9]
    for constant in {whole, whole[:-1], whole[:1]}:
        made = asked(question(operator, constant).replace("text", part))
        texts = {LETTERS[:length].encode() for length in range(low + 12)}
        for text in {*texts, LETTERS[:low].encode(), *likely(LETTERS[: low + len(constant)])}:
            met = is_met(operator, text[low:high], constant)
            answers = made.met(text)
            assert answers[0] == (TIMES if met else 0), (text, constant)
            assert (0 < answers[1] <= TIMES) if met else answers[1] == 0, (text, constant)


@pytest.mark.parametrize("low, high", [(2, 5), (3, None)])
def test_part_of_a_text_with_a_length_is_compared(
    own: OwnArena, low: int, high: int | None
) -> None:
    constant = LETTERS[low : low + 3]
    part = f"text[{low}:{'' if high is None else high}]"
    made = Asked(own, f'{part} == "{constant}"', OF_LENGTH)

    for data in (b"abcdefgh", b"abcde", b"abcdef", b"abcd", b"", b"abXdefgh", b"ab"):
        for most in range(9):
            met = data[:most][low:high] == constant.encode()
            answers = made.met(data, most)
            assert answers[0] == (TIMES if met else 0), (data, most)
            assert (0 < answers[1] <= TIMES) if met else answers[1] == 0, (data, most)
    made.free()


@pytest.mark.parametrize("low, high", PARTS)
def test_length_of_a_part_is_that_of_python(own: OwnArena, low: int, high: int | None) -> None:
    part = f"text[{low}:{'' if high is None else high}]"
    texts = [LETTERS[:length].encode() for length in range(low + 12)]
    for size in (1, 3, 8):
        where = f"len({part}) == {size}"
        made, sized = (Asked(own, where, data) for data in (SIGNATURE, OF_LENGTH))
        for text in texts:
            met = len(text[low:high]) == size
            for whole, alone in (made.met(text), sized.met(LETTERS.encode(), len(text))):
                assert whole == (TIMES if met else 0), (text, size)
                assert (0 < alone <= TIMES) if met else alone == 0, (text, size)
        made.free()
        sized.free()


@pytest.mark.parametrize("low, high", PARTS)
def test_constant_is_searched_in_a_part(own: OwnArena, low: int, high: int | None) -> None:
    part = f"text[{low}:{'' if high is None else high}]"
    for constant in (LETTERS[low : low + 2], LETTERS[low + 1 : low + 3], LETTERS[low + 1]):
        made, sized = (
            Asked(own, f'"{constant}" in {part}', data) for data in (SIGNATURE, OF_LENGTH)
        )
        for length in range(low + 12):
            text = LETTERS[:length]
            met = constant in text[low:high]
            for whole, alone in (made.met(text.encode()), sized.met(LETTERS.encode(), length)):
                assert whole == (TIMES if met else 0), (text, constant)
                assert (0 < alone <= TIMES) if met else alone == 0, (text, constant)
        made.free()
        sized.free()


@pytest.mark.parametrize("where", ["text is None", "text[2:] is None"])
def test_text_that_is_there_is_found_to_be(own: OwnArena, where: str) -> None:
    made = Asked(own, f"{where} or size == 1")
    size = ctypes.c_uint64(1)

    assert made.met(b"yes")[0] == made.met(b"")[0] == 0
    assert made.met(None) == (TIMES, 0)
    assert made.met_by(ctypes.c_int64(0), size, ctypes.c_double(0), placed(b"yes"))[0] == TIMES
    made.free()


OF_BOTH = Signature("both", "s %.*s t %s", (INT, CHARS, CHARS))
SCOPE_OF_BOTH = scope_of_marker(OF_BOTH)


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(
    where=TEXT_CONDITIONS,
    events=st.lists(
        st.tuples(texts(), st.integers(-1, 12), st.sampled_from((0, 5, 4080, 4090)), texts()),
        min_size=1,
        max_size=6,
    ),
)
def test_any_question_about_texts_has_the_answer_of_the_reference(
    own: OwnArena, where: str, events: list[tuple[bytes | None, int, int, bytes | None]]
) -> None:
    made, question = Asked(own, where, OF_BOTH), ask(where, [SCOPE_OF_BOTH])[0]
    assert isinstance(question, Question)
    try:
        for data, length, at, other in events:
            s = None if data is None else (data if length < 0 else data[:length]).split(b"\0")[0]
            t = None if other is None else other.split(b"\0")[0]
            texts_of_event = placed(data, at=at), placed(other, page=1)
            met = made.met_by(ctypes.c_int(length), *texts_of_event)[0]
            assert met == TIMES * answer(question.condition, {"s": s, "t": t}), (s, t)
    finally:
        made.free()


@pytest.mark.parametrize("where", ['text[2:5] == "cdef"', 'text[4:2] == ""', 'text[2:] == ""'])
def test_parts_that_are_the_runtime_s(asked: Callable[[str], Asked], where: str) -> None:
    whole, alone = asked(where).met(b"ab")

    assert whole == (0 if "cdef" in where else TIMES)
    assert alone == 0


OF_TWO = Signature("two", "one %s other %s", (CHARS, CHARS))
TEXTS = [
    *(LETTERS[:length].encode() for length in (0, 1, 7, 8, 9, 15, 16, 17, 70)),
    b"x", b"abcdefgX", b"abcdefghX", b"Xbcdefgh", b"abcdefgh\xff",
]  # fmt: skip


@pytest.fixture
def two(own: OwnArena, request: pytest.FixtureRequest) -> Callable[[str], Asked]:
    def make(where: str) -> Asked:
        made = Asked(own, where, OF_TWO)
        request.addfinalizer(made.free)
        return made

    return make


def test_two_texts_are_compared(two: Callable[[str], Asked]) -> None:
    alike, unlike = two("one == other"), two("other != one")

    for first in TEXTS:
        for other in TEXTS:
            same = alike.met_by(placed(first), placed(other, page=1))
            differ = unlike.met_by(placed(first), placed(other, page=1))
            assert same[0] == (TIMES if first == other else 0), (first, other)
            assert differ[0] == TIMES - same[0], (first, other)
            assert same[1] > 0 if first == other else same[1] == 0, (first, other)
            assert differ[1] < TIMES if first == other else differ[1] == TIMES, (first, other)


@pytest.mark.parametrize("at", [4096 - 20, 4096 - 9, 4096 - 8, 4096 - 4, 4096 - 1])
def test_texts_at_the_end_of_a_page_are_compared(two: Callable[[str], Asked], at: int) -> None:
    alike = two("one == other")

    for first, other in ((b"abc", b"abc"), (b"abc", b"abd"), (LETTERS.encode(),) * 2):
        for arguments in (
            (placed(first, at=at), placed(other, page=1, at=200)),
            (placed(first, page=1, at=200), placed(other, at=at)),
        ):
            met = alike.met_by(*arguments)
            assert met[0] == (TIMES if first == other else 0)
            assert met[1] in range(met[0] + 1)


@pytest.mark.parametrize("texts", [(None, None), (None, b""), (b"", None), (b"x" * 257,) * 2])
def test_two_texts_that_are_the_runtime_s(
    two: Callable[[str], Asked], texts: tuple[bytes | None, bytes | None]
) -> None:
    """Of a text 256 bytes are looked at. A text that is not there is none: it is not equal."""
    met = two("one == other").met_by(placed(texts[0]), placed(texts[1], page=1))

    assert met == ((TIMES, 0) if None not in texts else (0, 0))

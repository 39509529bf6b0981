"""Texts that are compared with a constant by the code of a question (markerjit/probes/compared.py),
told apart from those that the runtime compares: by a second marker of the same question, for which
the runtime always answers no. A comparison that is interrupted is the runtime's, too, so now and
then one of that marker's is not met."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from markerjit.abi import CODE_SIZE
from markerjit.model import Signature
from markerjit.probes import called
from tests.support.adder import SIGNATURE, Adder, placed
from tests.support.own_arena import CHARS, INT, RESTARTABLE, OwnArena, geometry_of

OF_LENGTH = Signature("sized", "text %.*s", (INT, CHARS))
NO = b"\x31\xc0\xc3"  # xor eax, eax; ret
LETTERS = "abcdefghijklmnopqrstuvwxyz" * 3
LENGTHS = (1, 6, 7, 8, 9, 15, 16, 17, 63)
TIMES = 5
"""Events of which one at least is not interrupted."""


@pytest.fixture(scope="module")
def own() -> OwnArena:
    geometry = geometry_of(max_markers=256, aggregate_pages=256)
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
        before = self._counts()
        for _ in range(TIMES):
            for adder in (self.whole, self.alone):
                if length is None:
                    adder.hit(text=text)
                else:
                    adder.slot.hit(ctypes.c_int(length), placed(text))
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
            if most >= 0:
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
    ['"es" in text', "len(text) == 3", 'text[1:] == "es"', f'text != "{LETTERS[:65]}"'],
)
def test_other_tests_are_the_runtime_s(asked: Callable[[str], Asked], where: str) -> None:
    whole, alone = asked(where).met(b"yes")

    assert whole == TIMES
    assert alone == (TIMES if "!=" in where else 0)


def test_two_comparisons_in_one_question(asked: Callable[[str], Asked]) -> None:
    made = asked('text.startswith("a") and (text == "ab" or text == "ac") and size == 0')

    assert [made.met(text)[0] for text in (b"ab", b"ac", b"ad", b"bb")] == [TIMES, TIMES, 0, 0]
    assert made.met(b"ac")[1] > 0

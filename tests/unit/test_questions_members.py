"""Members of structures, written as reads of memory: their places, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.errors import BadQuestion
from markerjit.questions.arrows import prepare
from markerjit.questions.members import LayoutKind, bases, written
from markerjit.questions.selection import parts_of
from markerjit.questions.syntax import parse


class Member(NamedTuple):
    """A member of a type that a test makes up."""

    bit_offset: int
    bits: int
    layout: Made


class Made(NamedTuple):
    """A C type that a test makes up."""

    kind: str
    text: str
    size: int
    signed: bool = False
    is_char: bool = False
    length: int | None = None
    to: tuple[Made, ...] = ()
    members: Mapping[str, Member] = {}

    @property
    def inner(self) -> Made:
        return self.to[0]

    @property
    def names(self) -> list[str]:
        return [*self.members]

    def member(self, name: str) -> Member | None:
        return self.members.get(name)


def integer(bits: int, *, signed: bool = False) -> Made:
    return Made(LayoutKind.INTEGER, f"{'i' if signed else 'u'}{bits}", bits // 8, signed)


def pointer(to: Made) -> Made:
    return Made(LayoutKind.POINTER, f"{to.text} *", 8, to=(to,))


def array(of: Made, length: int | None) -> Made:
    return Made(LayoutKind.ARRAY, f"{of.text} [{length}]", of.size * (length or 0), length=length,
                to=(of,))  # fmt: skip


CHAR = Made(LayoutKind.INTEGER, "char", 1, True, True)
TEXT = Made(LayoutKind.TEXT, "char *", 8, to=(CHAR,))
INT, USHORT = integer(32, signed=True), integer(16)
ADDRESS = Made(
    LayoutKind.STRUCTURE, "struct address", 6,
    members={"host": Member(0, 0, array(integer(8), 4)), "port": Member(32, 0, USHORT)},
)  # fmt: skip
EMPTY = Made(LayoutKind.STRUCTURE, "struct hidden", 0)
NODE = Made(
    LayoutKind.STRUCTURE, "struct node", 24,
    members={
        "next": Member(0, 0, pointer(ADDRESS)),
        "key": Member(64, 0, integer(64)),
        "rest": Member(128, 0, array(INT, None)),
    },
)  # fmt: skip
REQUEST = Made(
    LayoutKind.STRUCTURE, "struct request", 64,
    members={
        "method": Member(0, 3, integer(32)),
        "delta": Member(3, 5, INT),
        "done": Member(8, 1, Made(LayoutKind.BOOL, "_Bool", 1)),
        "open": Member(16, 0, Made(LayoutKind.BOOL, "_Bool", 1)),
        "crosses": Member(30, 6, integer(32)),
        "far": Member(62, 63, integer(64)),
        "url": Member(64, 0, TEXT),
        "name": Member(128, 0, array(CHAR, 8)),
        "addr": Member(192, 0, ADDRESS),
        "peer": Member(256, 0, pointer(ADDRESS)),
        "node": Member(320, 0, pointer(NODE)),
        "vec": Member(384, 0, array(INT, 4)),
        "load": Member(448, 0, Made(LayoutKind.FLOAT, "double", 8)),
        "pair": Member(512, 0, array(ADDRESS, 2)),
    },
)  # fmt: skip
TYPES = {
    "req": pointer(REQUEST), "hidden": pointer(EMPTY), "p": pointer(INT),
    "pp": pointer(pointer(INT)), "s": TEXT, "n": INT, "small": ADDRESS,
    "floats": pointer(Made(LayoutKind.FLOAT, "float", 4)),
    "long_double": pointer(Made(LayoutKind.FLOAT, "long double", 16)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("req->url", "str(u64(req + 8))"),
        ("req.url", "str(u64(req + 8))"),
        ("req -> url", "str(u64(req + 8))"),
        ("req->name", "str(req + 16)[:8]"),
        ("req->name[:3]", "str(req + 16)[:8][:3]"),
        ("req->name[2]", "i8(req + 18)"),
        ("req->addr.port > 80", "u16(req + 28) > 80"),
        ("req->peer->port", "u16(u64(req + 32) + 4)"),
        ("req->node->next->host[3]", "u8(u64(u64(req + 40)) + 3)"),
        ("req->node->rest[9]", "i32(u64(req + 40) + 52)"),
        ("req->vec[1] + n", "i32(req + 52) + n"),
        ("*req->vec", "i32(req + 48)"),
        ("req->pair[1].port", "u16(req + 74)"),
        ("req->method == 2", "(u32(req) >> 0 & 0x7) == 2"),
        ("req->delta < 0", "(int(u32(req)) << 56 >> 59) < 0"),
        ("req->done", "((u8(req + 1) >> 0 & 0x1) != 0)"),
        ("req->open", "(u8(req + 2) != 0)"),
        ("req->load > 0.5", "f64(req + 56) > 0.5"),
        ("floats[3] + *floats", "f32(floats + 12) + f32(floats)"),
        ("req->load is None", "(f64(req + 56) is None)"),
        ("req->crosses", "(u16(req + 3) >> 6 & 0x3f)"),
        ("*p", "i32(p)"),
        ("p[-1]", "i32(p - 4)"),
        ("**pp", "i32(u64(pp))"),
        ("*pp[2]", "i32(u64(pp + 16))"),
        ("*p * 2 + -*p", "i32(p) * 2 + -i32(p)"),
        ("small.port", "small_port"),
        ("req->url.startswith('/')", "str(u64(req + 8)).startswith('/')"),
        ("req->url is None", "(str(u64(req + 8)) is None)"),
        ("req->peer is None", "(u64(req + 32) == 0)"),
        ("req->peer is not None", "(u64(req + 32) > 0)"),
        ("'é->' in req->url", "'é->' in str(u64(req + 8))"),
        ("n * 2 > 3 and not req->vec[0]", "n * 2 > 3 and not i32(req + 48)"),
        ("u32(req->node)", "u32(u64(req + 40))"),
        ("hist(req->vec[0])", "hist(i32(req + 48))"),
        ("req->url, n", "str(u64(req + 8)), n"),
    ],
)
def test_a_member_is_a_read_of_memory(text: str, read: str) -> None:
    assert written(text, TYPES).text == read


@pytest.mark.parametrize(
    ("text", "recorded"),
    [
        ("req->url", "url=str(u64(req + 8))"),
        ("u=req->url[:8], n", "u=str(u64(req + 8))[:8], n"),
        ("n, req->addr.port, half=n / 2", "n, port=u16(req + 28), half=n / 2"),
        ("first=*p", "first=i32(p)"),
        ("é=n, req->vec[0] == 1", "é=n, i32(req + 48) == 1"),
    ],
)
def test_a_selected_member_has_its_name(text: str, recorded: str) -> None:
    assert written(text, TYPES, are_selected=True).text == recorded


def test_selected_members_are_a_selection() -> None:
    text = written("req->url, x=*p, key=n", TYPES, are_selected=True).text

    assert [part.name for part in parts_of(text)] == ["url", "x", "key"]


@pytest.mark.parametrize(
    ("text", "sentence", "marked"),
    [
        ("req->ulr == 'x'", "struct request has no member ulr; did you mean url?", "ulr"),
        ("req->addr == 1", "struct address; name a member", "req->addr"),
        ("n.x == 1", "i32, which has no members", "n."),
        ("req->vec[4]", "no element 4 of 4", "4"),
        ("req->vec[n]", "is a constant", "n"),
        ("req->vec", "name an element", "req->vec"),
        ("*long_double > 1", "does not read memory of type long double", "*long_double"),
        ("hidden->x", "the members of struct hidden are not known", "hidden->"),
        ("*s == 3", "its first byte is s[:1]", "*s"),
        ("s[2] == 3", "a byte of it is s[2:3]", "s[2]"),
        ("*n", "i32, which is not a pointer", "*n"),
        ("req->far", "9 bytes", "req->far"),
        ("'é' == req->ulr", "did you mean url", "ulr"),
    ],
)
def test_a_wrong_member_is_refused_with_its_place(text: str, sentence: str, marked: str) -> None:
    with pytest.raises(BadQuestion, match=None) as caught:
        written(text, TYPES)
    error = caught.value

    assert sentence in str(error)
    assert error.text[error.start : error.end] == marked


def test_unknown_members_are_told_those_that_there_are() -> None:
    with pytest.raises(BadQuestion) as caught:
        written("req->addr.prot", TYPES)

    assert caught.value.names == ("host", "port")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("req->url == s and *p > n", ["req", "p"]),
        ("s[:3] == 'a->b' and n * n > 1", []),
        ("s.startswith('*p')", []),
        ("n >= (", []),
        ("x->", []),
        ("f(*p) - n", ["p"]),
        ("1 if *p else -*q", ["p", "q"]),
        ("n in (*p, 2)", ["p"]),
        ("'a' * 2", []),
        ("n *p", []),
    ],
)
def test_names_with_members_are_found(text: str, names: list[str]) -> None:
    named = bases(text)

    assert [name for name, _ in named] == names
    assert all(text[slice(*span)] == name for name, span in named)


@given(text=st.text(alphabet="ab*->.[]0 ()'é+,=\\\n", max_size=30))
def test_what_is_prepared_is_as_long(text: str) -> None:
    prepared = prepare(text)

    assert len(prepared.line) == len(text)
    assert all(text[at] == "*" and prepared.line[at] == "+" for at in prepared.stars)
    changed = [at for at in range(len(text)) if prepared.line[at] != prepared.text[at]]
    assert all(prepared.text[at] in "*->" for at in changed)


@given(text=st.text(alphabet="pqn*->.[]01 ()+<", min_size=1, max_size=20))
def test_any_text_is_written_or_refused(text: str) -> None:
    types = {"p": pointer(REQUEST), "q": pointer(INT), "n": INT}
    if not all(name in types for name, _ in bases(text)):
        return
    try:
        made = written(text, types)
    except BadQuestion as error:
        assert 0 <= error.start <= error.end <= len(error.text)
        return
    assert not bases(made.text)
    for piece in made.pieces:
        parse(piece.text)  # is of the language


def test_a_place_in_what_was_written_is_one_in_the_text() -> None:
    made = written("n == 1 and req->url == n and n", TYPES)
    for marked, before in (("str(u64(req + 8)) == n", "req->url == n"), ("n == 1", "n == 1"),
                           ("u64(req + 8)", "req->url"), ("n == 1 and str", "n == 1 and req->url"),
                           (" and n", " and n")):  # fmt: skip
        start = made.text.rindex(marked) if marked == " and n" else made.text.index(marked)
        error = made.as_it_was(BadQuestion("wrong", made.text, start, start + len(marked)))

        assert error.text[error.start : error.end] == before


@pytest.mark.parametrize("text", ["req->url == 'x'", "a.b > 1", "*p == 3", "p[0]"])
def test_what_cannot_have_members_says_so(text: str) -> None:
    with pytest.raises(BadQuestion, match=r"members of structures|a part of a text is written"):
        parse(text)

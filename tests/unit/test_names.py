"""Names of what can be probed: markers as ever, the rest understood and refused."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.errors import BadArgument, UnknownMarker, Unsupported
from markerjit.model import Kind, MappedObject, Place
from markerjit.sites import NameKind, ProbeName, matching, parse_name
from markerjit.sites.names import nearest
from markerjit.sites.selection import matching_names
from tests.support.made_sites import make_site

SITES = [
    make_site(Kind.JUMP, address=0x1000 + 0x100 * number, marker=marker)
    for number, marker in enumerate(("kv_get", "kv_get", "kv_miss", "größe"))
]


@pytest.mark.parametrize("text", ["kv_get", "*", "kv_[gm]*", "[!k]*", "", "[", "func", "call->x"])
def test_a_text_without_a_colon_is_a_glob_over_markers(text: str) -> None:
    assert parse_name(text) == ProbeName(text, NameKind.MARKER, text)


@pytest.mark.parametrize(
    "text", ["[k:]v_get", "kv[_:]get", "[]:k]v_get", "[!:]v_get", "[!]:]v_get"]
)
def test_a_colon_in_the_brackets_of_a_glob_is_one_of_its_characters(text: str) -> None:
    assert parse_name(text).kind is NameKind.MARKER
    assert {site.marker for site in matching(SITES, parse_name(text))} == {"kv_get"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql:query__*", (NameKind.USDT, "postgresql:query__*")),
        ("[:a]x:b", (NameKind.USDT, "[:a]x:b")),
        ("func:malloc", (NameKind.FUNCTION, "malloc")),
        ("func:malloc:return", (NameKind.FUNCTION, "malloc", "", "", 0, True)),
        ("func:std::sort*", (NameKind.FUNCTION, "std::sort*")),
        ("func:a::return", (NameKind.FUNCTION, "a::return")),
        ("func:m*@libc.so.6", (NameKind.FUNCTION, "m*", "libc.so.6")),
        ("func:m*@libc*:return", (NameKind.FUNCTION, "m*", "libc*", "", 0, True)),
        ("insn:main+0x1F", (NameKind.INSTRUCTION, "main", "", "", 31)),
        ("insn:main@kv+0x10", (NameKind.INSTRUCTION, "main", "kv", "", 16)),
        ("call:a->b*", (NameKind.CALL, "b*", "", "a")),
        ("call:a@kv->b", (NameKind.CALL, "b", "kv", "a")),
    ],
)
def test_names_of_what_has_no_marker_are_understood(text: str, expected: tuple) -> None:
    name = parse_name(text)

    assert name == ProbeName(text, *expected)
    assert str(name) == text


@pytest.mark.parametrize(
    "text",
    [":", "::", "a:", ":a", "func:", "func::return", "func:f@", "func:@o", "insn:", "insn:f",
     "insn:f+", "insn:f+0x", "insn:f+12", "insn:f+0xg", "insn:+0x1", f"insn:f+0x{'1' * 17}",
     "call:", "call:f", "call:->f", "call:f->", "call:a@->b"],
)  # fmt: skip
def test_nonsense_is_a_bad_argument_that_says_how_it_looks(text: str) -> None:
    with pytest.raises(BadArgument) as caught:
        parse_name(text)

    assert (caught.value.name, caught.value.value) == ("pattern", text)


@pytest.mark.parametrize(
    ("text", "what"),
    [("a:b", "USDT probes"), ("func:f", "functions"), ("insn:f+0x1", "instructions"),
     ("call:f->g", "calls")],
)  # fmt: skip
def test_what_cannot_be_found_yet_is_refused_by_name(text: str, what: str) -> None:
    with pytest.raises(Unsupported, match=what):
        matching(SITES, parse_name(text))


def test_markers_match_as_globs_do_and_keep_their_order() -> None:
    assert matching(SITES, parse_name("kv_*")) == tuple(SITES[:3])
    assert matching(SITES, parse_name("größe")) == (SITES[3],)
    with pytest.raises(UnknownMarker) as caught:
        matching(SITES, parse_name("kv_got"))
    assert "kv_get" in caught.value.nearest


@given(st.text() | st.text(alphabet="func:insncall->+0x@[]*?!return"))
def test_any_text_is_a_name_or_a_bad_argument(text: str) -> None:
    with suppress(BadArgument):
        name = parse_name(text)
        assert name.text == text
        assert bool(name.name) == bool(text)
        with suppress(UnknownMarker, Unsupported):
            matching(SITES, name)


def test_pieces_of_names_in_any_order_are_names_or_bad_arguments() -> None:
    pieces = ["func", "insn", "call", ":", "return", "->", "+0x", "1f", "@", "[", "]", "*", "kv"]
    drawn = random.Random(1)
    for _ in range(500):
        text = "".join(drawn.choices(pieces, k=drawn.randint(1, 8)))
        with suppress(BadArgument, UnknownMarker, Unsupported):
            matching(SITES, parse_name(text))


# ---- lists ---------------------------------------------------------------------------------------


PLACED = [
    make_site(Kind.JUMP, address=0x1000 + 0x100 * number, marker=marker)._replace(
        place=Place(MappedObject(path, 0, None, False), 0x1000 + 0x100 * number, source)
    )
    for number, (marker, path, source) in enumerate(
        (
            ("kv_hit", "/usr/bin/kv", "src/kv_store.c:215"),
            ("kv_hit", "/usr/lib/libkv.so.1", "src/kv_store.c:215"),
            ("kv_miss", "/usr/lib/libkv.so.1", "src/kv_store.c:21"),
            ("kv_command", "/usr/bin/kv", "src/my_kv_store.c:215"),
        )
    )
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kv_hit,kv_miss", [0, 1, 2]),
        ("kv_miss,kv_hit,kv_*", [0, 1, 2, 3]),
        ("kv_{hit,miss}", [0, 1, 2]),
        ("kv_{{h,m}i*,comm*}", [0, 1, 2, 3]),
        ("kv_[{]x,kv_miss", None),
        ("!kv_hit", [2, 3]),
        ("kv_*,!kv_{hit,command}", [2]),
        ("kv_hit,!kv_*", None),
        ("kv_hit,kv_nothing", None),
        ("kv_hit@libkv*", [1]),
        ("*,@libkv*", [1, 2]),
        ("kv_hit@kv,kv_miss,@libkv*", [0, 2]),
        ("@/usr/bin/*", [0, 3]),
        ("kv_hit,!*@libkv*", [0]),
        ("*@nothing", None),
        ("kv_store.c:215", [0, 1]),
        ("src/kv_store.c:215,!*@kv", [1]),
        ("kv_*,!my_kv_store.c:215", [0, 1, 2]),
        ("kv_store.c:2", None),
    ],
)
def test_list_is_of_the_sites_that_it_says(text: str, expected: list[int] | None) -> None:
    name = parse_name(text)

    if expected is None:
        with pytest.raises(UnknownMarker):
            matching(PLACED, name)
    else:
        assert matching(PLACED, name) == tuple(PLACED[at] for at in expected)
    assert str(name) == text


def test_the_part_of_a_list_that_is_of_nothing_is_named() -> None:
    with pytest.raises(UnknownMarker, match="'kv_mis'; did you mean kv_miss") as unknown:
        matching(PLACED, parse_name("kv_hit,kv_mis"))

    assert "kv_hit," not in str(unknown.value)


def test_nearest_names_are_of_the_program_where_they_are_much_like_it() -> None:
    program, library = {"kv_store_gets", "kv_store_set", "main"}, {"kv_stor_get", "malloc"}

    assert nearest("kv_sto_get", program | library)[0] == "kv_stor_get"
    assert nearest("kv_sto_get", program, library) == ("kv_store_gets", "kv_store_set")
    assert nearest("mallo", program, library)[0] == "malloc"
    assert nearest("mai*", program, library)[0] == "main"
    assert nearest("nothing like it", program, library) == ()


@pytest.mark.parametrize(
    "text", [",", "a,", ",a", "a,,b", "!", "a,!", "@", "a,@", "a@", "@a,@b", "x@"]
)
def test_list_with_a_part_that_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(BadArgument, match="pattern is"):
        parse_name(text)


@pytest.mark.parametrize("text", ["{a,b,c,d,e,f,g,h}" * 5, "{a,b}" * 5000, "{" * 5000 + ","])
def test_braces_that_are_short_for_too_many_names_are_refused(text: str) -> None:
    with pytest.raises(BadArgument, match="at most 4096 names"):
        parse_name(text)


def test_commas_between_brackets_are_part_of_a_name() -> None:
    text = "func:ns::get<int, long>(char, int),func:other"

    name = parse_name(text)

    assert [part.name for part in name.parts] == ["ns::get<int, long>(char, int)", "other"]
    assert name.is_of_stubs
    assert len(parse_name("func:ns::operator>,call:a->b,other").parts) == 3


@given(st.text(max_size=40))
def test_any_text_is_a_name_or_refused(text: str) -> None:
    with suppress(BadArgument):
        name = parse_name(text)
        assert str(name) == text
        assert all(part.kind is not NameKind.LIST for part in (*name.parts, *name.without))


RECORDED = (
    *("kv_get", "kv_hit", "kv_store", "db:query__start"),
    *("func:main", "func:_ZN1A1fEi", "call:x"),
)


@pytest.mark.parametrize(
    ("pattern", "chosen"),
    [
        ("kv_get", {"kv_get"}),
        ("kv_*,!kv_hit", {"kv_get", "kv_store"}),
        ("kv_{hit,store}", {"kv_hit", "kv_store"}),
        ("!kv_*,!func:*", {"db:query__start", "call:x"}),
        ("db:query*,func:main", {"db:query__start", "func:main"}),
        ("func:*", {"func:main", "func:_ZN1A1fEi"}),
        ("func:A::f", {"func:_ZN1A1fEi"}),
        ("func:*,!func:main", {"func:_ZN1A1fEi"}),
        ("func:*,!func:A::f", {"func:main"}),
        ("func:*,!func:A::f(int)", {"func:main"}),
        ("func:*,!func:_ZN1A1fEi,!func:main:return", {"func:main"}),
        ("func:*,!func:m?in", {"func:_ZN1A1fEi"}),
        ("call:x", {"call:x"}),
    ],
)
def test_events_are_chosen_by_the_names_of_what_is_traced(pattern: str, chosen: set[str]) -> None:
    assert matching_names(pattern, RECORDED) == chosen

"""Questions that are refused: one sentence, the place, and the names that there are."""

from __future__ import annotations

import pytest

from markerjit.errors import BadQuestion
from markerjit.questions import Lack, Question, Scope, ask, scope_of
from markerjit.questions.ir import show
from markerjit.questions.syntax import DEEPEST, LONGEST
from markerjit.questions.types import Type

pytestmark = pytest.mark.pythons

TYPES = {
    "size": Type.U32,
    "flags": Type.U8,
    "id": Type.I32,
    "ms": Type.F64,
    "key": Type.TEXT,
    "p": Type.POINTER,
    "c": Type.CHAR,
    "time": Type.I64,
    "name": Type.TEXT,
}
SCOPE = Scope(
    "kv_get",
    TYPES,
    frozenset(TYPES) - {"time", "name"},
    {"caller": "it was not recorded"},
    "there is none",
)


def refusal(text: str) -> BadQuestion:
    with pytest.raises(BadQuestion) as raised:
        ask(text, [SCOPE])
    return raised.value


def shown(text: str, scope: Scope = SCOPE) -> list[str]:
    (question,) = ask(text, [scope])
    assert isinstance(question, Question)
    return [*show(question.condition)]


@pytest.mark.parametrize(
    ("text", "sentence", "place"),
    [
        ("siz > 3", "there is no name siz; did you mean size?", "siz"),
        ("key > 5", "cannot be compared: key is of type text, and 5 is of type i32", "key > 5"),
        ('id in (1, "x")', "a text and a number cannot be compared", 'id in (1, "x")'),
        ("flags == 256", "256 does not fit into u8, the type of what it is compared with", "256"),
        ("size > -1", "-1 does not fit into u32", "-1"),
        ("id < 3000000000", "3000000000 does not fit into i32", "3000000000"),
        ("id > 1 << 64", "by 0 to 63 bits", "1 << 64"),
        ("id > 99999999999999999999", "does not fit into 64 bits", "99999999999999999999"),
        ("key", "a text is neither true nor false", "key"),
        ("key + 1 > 2", "this is a text, and + takes a number", "key"),
        ("ms & 1", "this is a float, and & takes an integer", "ms"),
        ("ms % 2.0 > 1", "this is a float, and % takes an integer", "ms"),
        ("log2(ms) > 3", "this is a float, and log2 takes an integer", "ms"),
        ("len(size) > 3", "this is of type u32, and len takes a text", "size"),
        ("size[:2] == 1", "only texts have parts", "size"),
        ("key[0] == 1", "a part of a text is written", "key[0]"),
        ("key[-1:] == 'a'", "numbers from 0 on", "-1"),
        ("key[::2] == 'a'", "a part has no step", "2"),
        ("key < 'a'", "texts are compared with == and != only", "key < 'a'"),
        ("c == 'ab'", "this is not one byte", "'ab'"),
        ("key.endswith('a')", "a text has only .startswith(…)", "key.endswith('a')"),
        ("key.size", "members of structures", "key.size"),
        ("key.startswith(key)", "this has to be a constant text", "key"),
        ("key in key", "this has to be a constant text", "key"),
        ("1 in size", "behind `in` stands a text", "size"),
        ("id is None", "this is of type i32, which is never None", "id"),
        ("id == None", "None stands behind `is` only", "None"),
        ("id is 3", "use == or !=", "3"),
        ("u32(p) == 1", "reads memory, and there is none", "u32(p)"),
        ("caller == 1", "caller is not known: it was not recorded", "caller"),
        ("lenn(key) == 1", "there is no function lenn; did you mean len?", "lenn"),
        ("len(key, 2) == 1", "len takes one argument", "len(key, 2)"),
        ("len(*key)", "members of structures", "*"),
        ("field(key) == 1", "field takes a name as a text", "field(key)"),
        ("(1)(2)", "this cannot be called", "(1)(2)"),
        ("size // 2", "/ divides integers as C does", "size // 2"),
        ("size ** 2", "powers of two are 1 << n", "size ** 2"),
        ("size @ 2", "there is no @", "size @ 2"),
        ("id in [1, 2]", "write (1, 2, 3) behind `in`", "[1, 2]"),
        ("id in ()", "there is nothing in the brackets", "()"),
        ("id == (1, 2)", "stand behind `in` only", "(1, 2)"),
        ("(1, 2)", "stand behind `in` only", "(1, 2)"),
        ("(id := 3)", "there is no assignment", "id := 3"),
        ("lambda: 3", "no functions of your own", "lambda: 3"),
        ("f'{id}' == key", "there are no f-strings", "f'{id}'"),
        ("[x for x in key]", "this is not in the language (ListComp)", "[x for x in key]"),
        ("1j", "there is no complex", "1j"),
        ("...", "there is no ellipsis", "..."),
        ("id == 3 and", "this is not an expression", ""),
        ("(id", "'(' was never closed", ""),
        ("id = 3", "write `==` in place of `=`", "="),
        ("id == 3 && us > 1", "write `and` in place of `&&`", "&&"),
        ("id == 3 || us > 1", "write `or` in place of `||`", "||"),
        ("id == 3 OR us > 1", "write `or` in place of `OR`", "OR"),
        ("!(id == 3)", "write `not` in place of `!`", "!"),
        ("id <> 3", "write `!=` in place of `<>`", "<>"),
        ("id ? 3 : 4", "write `x if c else y` in place of `?`", "?"),
        ("id != 3 3", "this is not an expression: invalid syntax", "3"),
        ("key == 'é' and idd", "there is no name idd; did you mean id?", "idd"),
        ("  siz > 3", "there is no name siz", "siz"),
        ("key == 'a\0'", "a character that cannot be printed", "\0"),
        ("id == \x1b[1m", "a character that cannot be printed", "\x1b"),
        ("id == \ud800", "a character that cannot be printed", "\ud800"),
        ("key == '\\ud800'", "characters that UTF-8 has", "'\\ud800'"),
        ("", "an expression is empty", ""),
        (" ", "an expression is empty", ""),
        ("1 +" * LONGEST, f"more than {LONGEST} characters", ""),
        ("-" * (DEEPEST + 1) + "id", f"more than {DEEPEST} levels", "-id"),
        ("(" * 2000, "this is not an expression", None),
        ("9" * 4000, "does not fit into 64 bits", "9" * 4000),
        ("id == import", "this is not an expression", "import"),
    ],
)  # fmt: skip
def test_a_wrong_question_is_refused_with_its_place(
    text: str, sentence: str, place: str | None
) -> None:
    error = refusal(text)

    assert sentence in str(error)
    assert "\n" not in str(error)
    if place is not None:
        assert error.text[error.start : error.end] == place


def test_the_notes_of_a_refusal_have_the_place_and_the_names() -> None:
    error = refusal("key == 'ä漢' and siz > 3")

    assert error.__notes__ == [
        "  key == 'ä漢' and siz > 3",
        "                   ^^^",
        "names: c, flags, id, key, ms, name, p, size, time",
    ]


def test_only_the_surroundings_of_a_place_are_shown() -> None:
    error = refusal("id and " * 40 + "siz" + " and id" * 40)

    line, carets, _ = error.__notes__
    assert len(line) < 130
    assert line[carets.index("^") : carets.rindex("^") + 1] == "siz"


def test_numbers_meet_as_in_c() -> None:
    assert shown("flags + id > size") == [
        "> : bool",
        "  convert from i32 : i64",
        "    + : i32",
        "      convert from u8 : i32",
        "        value flags : u8",
        "      value id : i32",
        "  convert from u32 : i64",
        "    value size : u32",
    ]
    assert shown("id * size")[1] == "  * : u32"
    assert shown("id + ms")[1] == "  + : f64"
    assert shown("p + 8")[1] == "  + : u64"
    assert shown("-flags")[1] == "  - : i32"
    assert shown("flags << size")[1] == "  << : i32"


def test_a_constant_is_compared_in_the_type_of_the_other_side() -> None:
    assert shown("size > 100")[1:] == ["  value size : u32", "  constant 100 : u32"]
    assert shown("100 < flags")[1] == "  constant 100 : i32"
    assert shown("p == 1")[2:] == ["    value p : pointer", "  constant 1 : u64"]


def test_a_calculation_with_constants_is_exact() -> None:
    assert shown("time > 5 * 1000 * 1000 * 1000")[2] == "  constant 5000000000 : i64"
    assert shown("id == -7 / 2")[2] == "  constant -3 : i32"
    assert shown("id == -7 % 2")[2] == "  constant -1 : i32"
    assert shown("id == 7 / 0 + 7 % 0")[2] == "  constant 0 : i32"
    assert shown("ms > 1 / 2.0")[2] == "  constant 0.5 : f64"


def test_a_character_is_compared_with_a_text_of_one_byte() -> None:
    assert shown("c == 'x'")[-1] == "  constant 120 : i32"
    assert shown("c in ('x', 'y')")[0] == "or : bool"


def test_the_name_decides_what_it_can() -> None:
    assert shown('name == "kv_get" and id > 1') == shown("id > 1")
    assert shown('name.startswith("kv_") or id > 1') == ["constant 1 : bool"]
    assert shown('id > 1 if name == "kv_get" else id > 2') == shown("id > 1")


def test_parts_of_parts_are_parts() -> None:
    assert shown("key[2:8][1:3] == 'a'")[1] == "  bytes 3:5 : text"
    assert shown("key[2:][:3] == 'a'")[1] == "  bytes 2:5 : text"
    assert shown("key[:0][3:] == 'a'")[1] == "  bytes 3:0 : text"


def test_a_field_may_have_the_name_of_a_keyword() -> None:
    scope = Scope("m", {"from": Type.I32}, frozenset(("from",)), {})

    assert shown('field("from") > 3', scope) == [
        "> : bool",
        "  value from : i32",
        "  constant 3 : i32",
    ]
    with pytest.raises(BadQuestion, match=r"there is no field form; did you mean from?"):
        ask('field("form") > 3', [scope])


def test_whether_an_event_has_a_name_is_known_before_it_comes() -> None:
    assert shown('id if has("id") else size') == shown("id")
    assert shown('size if has("nothing") else id') == shown("id")
    with pytest.raises(BadQuestion, match=r'has takes a name as a text: has\("ret"\)'):
        shown("has(id)")


def test_a_field_hides_a_name_that_every_event_has() -> None:
    from markerjit.elf import parse_format
    from markerjit.model import CType, TypeClass

    fields = parse_format("name %d time %d", (CType(TypeClass.SIGNED, 4),) * 2)
    scope = scope_of("m", fields, {"time": "there is no clock"})

    assert shown("name == time", scope)[1:] == ["  value name : i32", "  value time : i32"]


WITH_X = Scope("a", {"x": Type.I32, "name": Type.TEXT}, frozenset(("x",)), {})
WITH_Y = Scope("b", {"y": Type.I32, "name": Type.TEXT}, frozenset(("y",)), {})


@pytest.mark.parametrize(
    ("text", "of_a", "of_b"),
    [
        ("x > 1", "x > 1", None),
        ("x > 1 or y > 2", "x > 1", "y > 2"),
        ("x > 1 and y > 2", None, None),
        ("not x > 1", "not x > 1", None),
        ("not (x > 1 or y > 2)", None, None),
        ("not (x > 1 and y > 2)", "not x > 1", "not y > 2"),
        ('name == "a" and x > 1 or name == "b" and y > 2', "x > 1", "y > 2"),
        ('y > 2 and name == "b"', "False", "y > 2"),
        ('name == "a" or y > 2', "True", "y > 2"),
        ("(x > 1 or y > 2) == True", None, None),
    ],
)
def test_a_name_that_some_events_lack_is_unknown_there(
    text: str, of_a: str | None, of_b: str | None
) -> None:
    for scope, asked, expected in zip(
        (WITH_X, WITH_Y), ask(text, [WITH_X, WITH_Y]), (of_a, of_b), strict=True
    ):
        if expected is None:
            assert asked == Lack(scope.marker, "y" if scope is WITH_X else "x")
        else:
            assert isinstance(asked, Question)
            assert [*show(asked.condition)] == shown(expected, scope)


def test_an_error_of_one_marker_names_it() -> None:
    texts = Scope("c", {"x": Type.TEXT}, frozenset(("x",)), {})

    with pytest.raises(BadQuestion, match=r"^c: a text and a number cannot be compared"):
        ask("x > 1", [WITH_X, texts])

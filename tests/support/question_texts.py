"""Generated questions, and values for their names that are more often odd than not."""

from __future__ import annotations

from hypothesis import strategies as st

from markerjit.questions.scope import Scope
from markerjit.questions.types import Type

NUMBERS = {
    "b": Type.BOOL,
    "c": Type.CHAR,
    "i8_": Type.I8,
    "u8_": Type.U8,
    "i16_": Type.I16,
    "u16_": Type.U16,
    "i32_": Type.I32,
    "j32": Type.I32,
    "u32_": Type.U32,
    "v32": Type.U32,
    "i64_": Type.I64,
    "j64": Type.I64,
    "u64_": Type.U64,
    "v64": Type.U64,
    "f": Type.F64,
    "g": Type.F64,
    "p": Type.POINTER,
}
TEXTS = {"s": Type.TEXT, "t": Type.TEXT}
SCOPE = Scope("marker", {**NUMBERS, **TEXTS, "name": Type.TEXT}, frozenset((*NUMBERS, *TEXTS)), {})
OF_NUMBERS = Scope(
    "marker", {**NUMBERS, "name": Type.TEXT, "tid": Type.U32}, frozenset(NUMBERS), {}
)

WHOLE = [name for name, type_ in NUMBERS.items() if type_ is not Type.F64]
_PIECES = ("", "a", "ab", "GET", "abcdefgh", "é", "\\x00")
_ON_INTEGERS = ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>")
_ODD_FLOATS = (0.0, -0.0, 1.5, -2.5, float("nan"), float("inf"), float("-inf"), 2.0**63, -(2.0**63))


def _constants() -> st.SearchStrategy[str]:
    small = st.integers(-3, 70)
    edges = st.sampled_from([2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63), 2**64 - 1])
    return st.one_of(small, edges).map(lambda value: f"({value})")


def _whole(depth: int) -> st.SearchStrategy[str]:
    leaf = st.one_of(st.sampled_from(WHOLE), _constants())
    if depth == 0:
        return leaf
    inner = _whole(depth - 1)
    return st.one_of(
        leaf,
        st.tuples(inner, st.sampled_from(_ON_INTEGERS), inner).map(
            lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
        ),
        st.tuples(st.sampled_from(("-", "~", "+")), inner).map(lambda parts: f"({''.join(parts)})"),
        inner.map(lambda text: f"log2({text})"),
        _number(depth - 1).map(lambda text: f"int({text})"),
        st.tuples(inner, _conditions(depth - 1), inner).map(
            lambda parts: f"({parts[0]} if {parts[1]} else {parts[2]})"
        ),
    )


def _number(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(("f", "g", "0.0", "-0.5", "1e300"))
    if depth == 0:
        return leaf
    inner = st.one_of(_number(depth - 1), _whole(depth - 1))
    return st.one_of(
        leaf,
        inner.map(lambda text: f"float({text})"),
        inner.map(lambda text: f"(-{text})"),
        st.tuples(inner, st.sampled_from(("+", "-", "*", "/")), inner).map(
            lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
        ),
        st.tuples(inner, _conditions(depth - 1), inner).map(
            lambda parts: f"({parts[0]} if {parts[1]} else {parts[2]})"
        ),
    )


def _conditions(depth: int) -> st.SearchStrategy[str]:
    number = st.one_of(_whole(depth), _number(depth))
    comparison = st.tuples(number, st.sampled_from(("==", "!=", "<", "<=", ">", ">=")), number).map(
        lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
    )
    if depth == 0:
        return comparison
    inner = _conditions(depth - 1)
    return st.one_of(
        comparison,
        number,
        inner.map(lambda text: f"(not {text})"),
        st.tuples(inner, st.sampled_from(("and", "or")), inner).map(
            lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
        ),
    )


def _texts() -> st.SearchStrategy[str]:
    bounds = st.one_of(st.just(""), st.integers(0, 9).map(str))
    part = st.tuples(bounds, bounds).map(lambda ends: f"[{ends[0]}:{ends[1]}]")
    return st.tuples(st.sampled_from(("s", "t")), st.lists(part, max_size=2)).map(
        lambda parts: parts[0] + "".join(parts[1])
    )


def _text_conditions() -> st.SearchStrategy[str]:
    piece = st.sampled_from(_PIECES).map(lambda text: f'"{text}"')
    other = st.one_of(piece, _texts())
    return st.one_of(
        st.tuples(_texts(), other).map(" == ".join),
        st.tuples(_texts(), other).map(" != ".join),
        st.tuples(piece, _texts()).map(" in ".join),
        st.tuples(piece, _texts()).map(" not in ".join),
        st.tuples(_texts(), piece).map(lambda parts: f"{parts[0]}.startswith({parts[1]})"),
        _texts().map(lambda text: f"{text} is None"),
        st.tuples(_texts(), st.integers(0, 9)).map(lambda parts: f"len({parts[0]}) > {parts[1]}"),
        st.tuples(_texts(), piece, piece).map(
            lambda parts: f"{parts[0]} in ({parts[1]}, {parts[2]})"
        ),
    )


def _addresses(depth: int) -> st.SearchStrategy[str]:
    near = st.tuples(st.sampled_from(("p", "q")), st.integers(-3, 12)).map(
        lambda parts: f"{parts[0]} + ({parts[1]})"
    )
    if depth == 0:
        return near
    return st.one_of(
        near, _addresses(depth - 1).map(lambda address: f"u64({address})"), st.just("u64_")
    )


def _in_memory(depth: int) -> st.SearchStrategy[str]:
    sizes = st.sampled_from(("u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"))
    load = st.tuples(sizes, _addresses(1)).map(lambda parts: f"{parts[0]}({parts[1]})")
    if depth == 0:
        return load
    inner = _in_memory(depth - 1)
    whole = st.sampled_from(("i32_", "u64_", "1", "0"))
    return st.one_of(
        load,
        st.tuples(inner, st.sampled_from(_ON_INTEGERS), whole).map(
            lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
        ),
        st.tuples(whole, st.sampled_from(_ON_INTEGERS), inner).map(
            lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
        ),
        st.tuples(inner, _of_memory(depth - 1), whole).map(
            lambda parts: f"({parts[0]} if {parts[1]} else {parts[2]})"
        ),
        st.tuples(whole, _of_memory(depth - 1), inner).map(
            lambda parts: f"({parts[0]} if {parts[1]} else {parts[2]})"
        ),
        inner.map(lambda text: f"int(float({text}))"),
        _texts_in_memory().map(lambda text: f"len({text})"),
    )


def _floats_in_memory() -> st.SearchStrategy[str]:
    load = st.tuples(st.sampled_from(("f32", "f64")), _addresses(1)).map(
        lambda parts: f"{parts[0]}({parts[1]})"
    )
    rest = st.sampled_from(("f", "1.5", "i32_"))
    return st.one_of(
        load,
        st.tuples(load, st.sampled_from(("+", "-", "*", "/")), st.one_of(load, rest)).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        load.map(lambda text: f"int({text})"),
    )


def _texts_in_memory() -> st.SearchStrategy[str]:
    part = st.sampled_from(("", "", "[:2]", "[1:]", "[1:3]"))
    return st.tuples(_addresses(1), part).map(lambda parts: f"str({parts[0]}){parts[1]}")


def _of_memory(depth: int) -> st.SearchStrategy[str]:
    number = _in_memory(depth)
    load = _in_memory(0)
    symbol = st.sampled_from(("==", "!=", "<", "<=", ">", ">="))
    whole = st.sampled_from(("i32_", "u64_", "0", "97", "f"))
    piece = st.sampled_from(('""', '"a"', '"ab"', '"GET"', "s"))
    simple = st.one_of(
        st.tuples(number, symbol, whole).map(lambda parts: f"({' '.join(parts)})"),
        st.tuples(whole, symbol, number).map(lambda parts: f"({' '.join(parts)})"),
        st.tuples(_floats_in_memory(), symbol, whole).map(lambda parts: f"({' '.join(parts)})"),
        st.tuples(number, symbol, _floats_in_memory()).map(lambda parts: f"({' '.join(parts)})"),
        _floats_in_memory().map(lambda text: f"({text} is None)"),
        number.map(lambda text: f"({text})"),
        st.tuples(load, st.sampled_from(("is None", "is not None"))).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        st.tuples(_texts_in_memory(), st.sampled_from(("==", "!=")), piece).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        st.tuples(_texts_in_memory(), st.just("=="), _texts_in_memory()).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        _texts_in_memory().map(lambda text: f"({text} is None)"),
    )
    if depth == 0:
        return simple
    inner = _of_memory(depth - 1)
    return st.one_of(
        simple,
        inner.map(lambda text: f"(not {text})"),
        st.tuples(inner, st.sampled_from(("and", "or")), inner).map(
            lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
        ),
    )


QUESTIONS_OF_MEMORY = _of_memory(2)
"""About numbers and texts at and around the pointers `p` and `q`, and at u64_."""
QUESTIONS_OF_NUMBERS = _conditions(3)
TEXT_CONDITIONS = st.lists(_text_conditions(), min_size=1, max_size=3).map(" or ".join)
QUESTIONS = st.lists(st.one_of(_text_conditions(), _conditions(2)), min_size=1, max_size=3).map(
    lambda parts: " and ".join(f"({part})" for part in parts)
)


def numbers(type_: Type) -> st.SearchStrategy[int | float]:
    """Values of a type, near its ends and near 0 more often than elsewhere."""
    if type_ is Type.F64:
        return st.one_of(st.sampled_from(_ODD_FLOATS), st.floats())
    least, most = type_.least, type_.most
    edges = [least, min(least + 1, most), 0, min(1, most), most - 1 if most > 1 else 0, most]
    if type_.signed:
        edges.append(-1)
    near = st.integers(max(least, -70), min(most, 70))
    return st.one_of(st.sampled_from(edges), near, st.integers(least, most))


def texts() -> st.SearchStrategy[bytes | None]:
    """Texts that have much in common, and missing ones."""
    parts = [piece.replace("\\x00", "\0").encode() for piece in _PIECES]
    return st.one_of(
        st.none(), st.lists(st.sampled_from(parts), max_size=3).map(b"".join), st.binary(max_size=9)
    )


NUMBERS_OF_AN_EVENT = st.fixed_dictionaries(
    {name: numbers(type_) for name, type_ in NUMBERS.items()}
)
VALUES_OF_AN_EVENT = st.fixed_dictionaries(
    {
        **{name: numbers(type_) for name, type_ in NUMBERS.items()},
        **{name: texts() for name in TEXTS},
    }
)

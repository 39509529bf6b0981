"""Members of structures in a question, such as `req->url`, written as reads of memory.

    req->length          u32(req + 8)
    req->url             str(u64(req + 16))
    conn->addr.port      u16(conn + 26)
    p->next->key[0]      u8(u64(p + 8) + 16)
    *p, p[2]             i32(p), i32(p + 8)
    req->method          str(req + 32)[:8]        an array of characters
    req->flags           (u32(req + 40) >> 3 & 7)  a bit-field
    req->ratio           f64(req + 48)            f32(…) of a float

So a question that is kept in a process shows what it reads. A wild pointer has the effect that it
has for `u32(p + 8)`: the number is missing. `.` and `->` mean the same, as the type of what stands
before it says which is meant.

What this does not do: know any type (elf/members.py).
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from markerjit.errors import BadQuestion
from markerjit.questions.arrows import Prepared, prepare
from markerjit.questions.ir import Span
from markerjit.questions.selection import ALL, name_before, pieces_of
from markerjit.questions.syntax import tree_of
from markerjit.tuples import NamedTuple

_SIZES = (8, 16, 32, 64)


class LayoutKind(StrEnum):
    """The kind of a C type for a question that reads it."""

    INTEGER = "integer"
    BOOL = "bool"
    FLOAT = "float"
    POINTER = "pointer"
    TEXT = "text"
    """The address of characters."""
    STRUCTURE = "structure"
    ARRAY = "array"
    OTHER = "other"


class Layout(Protocol):
    """A C type. `text` is as C writes it, `size` its bytes, and `length` the elements of an array,
    None where that is not known."""

    @property
    def kind(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def signed(self) -> bool: ...
    @property
    def is_char(self) -> bool: ...
    @property
    def length(self) -> int | None: ...
    @property
    def inner(self) -> Layout:
        """The target of a pointer, or the type of an element."""

    @property
    def names(self) -> Sequence[str]:
        """The members of a structure or union; none if it is not known."""

    def member(self, name: str) -> Member | None:
        """A member of a structure or union, also of one without a name in it."""


class Member(Protocol):
    """A member: where it begins in bits, and of a bit-field how many bits it has (0: it is
    none)."""

    @property
    def bit_offset(self) -> int: ...
    @property
    def bits(self) -> int: ...
    @property
    def layout(self) -> Layout: ...


class _Object(NamedTuple):
    """Something that a question names. It is in memory at `offset` bytes behind the address that
    the text `address` computes; without an address `text` is its value."""

    layout: Layout
    text: str
    address: str = ""
    bit_offset: int = 0
    bits: int = 0


class Piece(NamedTuple):
    """A part of the text, and what is written in its place."""

    span: Span
    text: str


class Written(NamedTuple):
    """A question without members, and what was replaced in it."""

    before: str
    text: str
    pieces: Sequence[Piece]

    def as_it_was(self, error: BadQuestion) -> BadQuestion:
        """An error of the question as one of the text before."""
        if error.text != self.text:
            return error
        span = Span(self._place(error.start, last=False), self._place(error.end, last=True))
        return BadQuestion(str(error), self.before, *span, error.names)

    def _place(self, at: int, *, last: bool) -> int:
        moved = 0
        for span, text in self.pieces:
            start = span.start + moved
            if at < start or (at == start and not last):
                break
            if at < start + len(text) or (at == start + len(text) and last):
                return span.end if last else span.start
            moved += len(text) - (span.end - span.start)
        return at - moved


def bases(text: str, *, are_selected: bool = False) -> list[tuple[str, Span]]:
    """The names of which a question, or a selection, has members, or what they lead to, and where
    they stand. Empty for what is no expression: that is said where it is read."""
    prepared = prepare(text)
    try:
        trees = [_tree(prepared, place) for place in _places(prepared, are_selected)]
    except BadQuestion:
        return []
    names = []
    for tree in trees:
        for node, _ in _members_in(tree, prepared):
            base = _base(node)
            if isinstance(base, ast.Name):
                names.append((base.id, _span(prepared, base)))
    return names


def written(text: str, types: Mapping[str, Layout], *, are_selected: bool = False) -> Written:
    """A question, or a selection, without members. A selected member that has no name gets its own.
    `types` has those of all `bases`. Raises BadQuestion for a member that there is not, and for
    what cannot be read."""
    prepared = prepare(text)
    writing = _Writing(prepared, types)
    pieces: list[Piece] = []
    for place in _places(prepared, are_selected):
        tree = _tree(prepared, place)
        replaced = [writing.piece(node, test) for node, test in _members_in(tree, prepared)]
        if are_selected and isinstance(tree, ast.Attribute) and not _has_name(prepared, place):
            replaced = [piece._replace(text=f"{tree.attr}={piece.text}") for piece in replaced]
        pieces += replaced
    pieces.sort()
    made, at = [], 0
    for span, replacement in pieces:
        made += [prepared.text[at : span.start], replacement]
        at = span.end
    return Written(prepared.text, "".join([*made, prepared.text[at:]]), pieces)


def _places(prepared: Prepared, are_selected: bool) -> Iterator[Span]:
    """The expressions of a text, without the names of those that are selected."""
    line = prepared.line
    if not are_selected:
        yield Span(0, len(line))
        return
    for piece in pieces_of(line):
        if line[piece.start : piece.end].strip() == ALL:
            continue
        yield Span(name_before(line, piece)[1], piece.end)


def _has_name(prepared: Prepared, place: Span) -> bool:
    """Whether a selected expression has a name before it."""
    return prepared.line[: place.start].rstrip().endswith("=")


def _tree(prepared: Prepared, place: Span) -> ast.expr:
    """The tree of an expression, with the places that it has in the line."""
    line, start = prepared.line, place.start
    start += len(line[start : place.end]) - len(line[start : place.end].lstrip())
    tree = tree_of(" " * start + line[start : place.end], start)
    shift = len(line[:start].encode())
    for node in ast.walk(tree):
        if isinstance(node, ast.expr):
            node.col_offset += shift
            node.end_col_offset = (node.end_col_offset or 0) + shift
    return tree


def _members_in(tree: ast.AST, prepared: Prepared) -> Iterator[tuple[ast.expr, ast.Compare | None]]:
    """The members in a tree, as large as they are; and the test for None that one stands in."""
    if isinstance(tree, ast.expr) and _is_member(tree, prepared):
        yield tree, None
        return
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Attribute):
        yield from _members_in(tree.func.value, prepared)  # s.startswith(…)
        children: Iterator[ast.AST] = iter(tree.args)
    elif _is_test(tree) and _is_member(tree.left, prepared):  # type: ignore[attr-defined]
        yield tree.left, tree  # type: ignore[attr-defined, misc]
        return
    else:
        children = ast.iter_child_nodes(tree)
    for child in children:
        yield from _members_in(child, prepared)


def _is_test(tree: ast.AST) -> bool:
    """Whether it is `x is None` or `x is not None`."""
    return (
        isinstance(tree, ast.Compare)
        and len(tree.ops) == 1
        and isinstance(tree.ops[0], ast.Is | ast.IsNot)
        and isinstance(tree.comparators[0], ast.Constant)
        and tree.comparators[0].value is None
    )


def _is_member(node: ast.expr, prepared: Prepared) -> bool:
    match node:
        case ast.Attribute():
            return True
        case ast.Subscript(slice=part):
            return not isinstance(part, ast.Slice)
        case ast.UnaryOp(op=ast.UAdd()):
            return _place(prepared, node.col_offset) in prepared.stars
    return False


def _base(node: ast.expr) -> ast.expr:
    """The name that members are of."""
    while True:
        match node:
            case ast.Attribute(value=inner) | ast.Subscript(value=inner):
                node = inner
            case ast.UnaryOp(op=ast.UAdd(), operand=inner):
                node = inner
            case _:
                return node


def _span(prepared: Prepared, node: ast.expr) -> Span:
    start, end = node.col_offset, node.end_col_offset or 0
    return Span(_place(prepared, start), _place(prepared, end))


def _place(prepared: Prepared, offset: int) -> int:
    """The character of an offset in bytes."""
    return len(prepared.line.encode()[:offset].decode(errors="replace"))


class _Writing:
    """The members of one text, written as reads of memory."""

    def __init__(self, prepared: Prepared, types: Mapping[str, Layout]) -> None:
        self._prepared = prepared
        self._types = types

    def piece(self, node: ast.expr, test: ast.Compare | None) -> Piece:
        """The text that replaces a member, or a test of it."""
        member = self._object(node)
        if test is None:
            return Piece(self._span(node), self._read(member, node))
        text = self._read(member, node)
        is_none = isinstance(test.ops[0], ast.Is)
        if member.layout.kind == LayoutKind.POINTER and member.address:
            return Piece(self._span(test), f"({text} {'==' if is_none else '>'} 0)")
        return Piece(self._span(test), f"({text} {'is' if is_none else 'is not'} None)")

    def _span(self, node: ast.expr) -> Span:
        return _span(self._prepared, node)

    def _wrong(
        self, sentence: str, node: ast.expr | Span, names: Sequence[str] = ()
    ) -> BadQuestion:
        span = node if isinstance(node, Span) else self._span(node)
        return BadQuestion(sentence, self._prepared.text, *span, tuple(sorted(names)))

    def _object(self, node: ast.expr) -> _Object:
        match node:
            case ast.Name(id=name):
                return _Object(self._types[name], name)
            case ast.Attribute(value=value, attr=attr):
                return self._member(self._object(value), attr, node)
            case ast.Subscript(value=value, slice=index) if not isinstance(index, ast.Slice):
                return self._element(self._object(value), index, node)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                inner = self._object(operand)
                if inner.layout.kind == LayoutKind.ARRAY and inner.address:
                    return inner._replace(layout=inner.layout.inner)
                return self._behind(inner, node)
        raise self._wrong("members are those of a field, such as req->url", node)

    def _behind(self, pointer: _Object, node: ast.expr, index: int = 0) -> _Object:
        """The target of a pointer."""
        kind = pointer.layout.kind
        if kind == LayoutKind.TEXT and not pointer.address:
            raise self._wrong("this is a text; its first byte is s[:1]", node)
        if kind not in (LayoutKind.POINTER, LayoutKind.TEXT):
            raise self._wrong(f"its type is {pointer.layout.text}, which is not a pointer", node)
        inner = pointer.layout.inner
        if index and not inner.size:
            raise self._wrong(f"the size of {inner.text} is not known", node)
        address = self._load(pointer, "u64") if pointer.address else pointer.text
        return _Object(inner, "", address, 8 * index * inner.size)

    def _member(self, whole: _Object, name: str, node: ast.expr) -> _Object:
        if whole.layout.kind == LayoutKind.POINTER:
            whole = self._behind(whole, node)
        layout = whole.layout
        end = self._span(node).end
        if layout.kind != LayoutKind.STRUCTURE:
            sentence = f"this is of type {layout.text}, which has no members"
            raise self._wrong(sentence, _before(self._span(node), name))
        if not layout.names:
            raise self._wrong(
                f"the members of {layout.text} are not known: the debugging information that was "
                "found only names it", _before(self._span(node), name),
            )  # fmt: skip
        member = layout.member(name)
        if member is None:
            nearest = difflib.get_close_matches(name, layout.names)
            hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
            place = Span(end - len(name), end)
            sentence = f"{layout.text} has no member {name}{hint}"
            raise self._wrong(sentence, place, layout.names)
        if not whole.address:  # passed in registers: its members are arguments
            return _Object(member.layout, f"{whole.text}_{name}")
        offset = whole.bit_offset + member.bit_offset
        return _Object(member.layout, "", whole.address, offset, member.bits)

    def _element(self, whole: _Object, index: ast.expr, node: ast.expr) -> _Object:
        negative = isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.USub)
        number = index.operand if isinstance(index, ast.UnaryOp) and negative else index
        if not isinstance(number, ast.Constant) or type(number.value) is not int:
            raise self._wrong("the number of an element is a constant", index)
        at = -number.value if negative else number.value
        if abs(at) >= 1 << 31:
            raise self._wrong("the number of an element has 31 bits at most", index)
        layout = whole.layout
        if layout.kind != LayoutKind.ARRAY or not whole.address:
            if layout.kind == LayoutKind.TEXT and not whole.address:
                raise self._wrong(f"this is a text; a byte of it is s[{at}:{at + 1}]", node)
            return self._behind(whole, node, at)
        if at < 0 or (layout.length is not None and at >= layout.length):
            count = "" if layout.length is None else f" of {layout.length}"
            raise self._wrong(f"there is no element {at}{count} of {layout.text}", index)
        inner = layout.inner
        return _Object(inner, "", whole.address, whole.bit_offset + 8 * at * inner.size)

    # ---- reads -----------------------------------------------------------------------------------

    def _read(self, member: _Object, node: ast.expr) -> str:
        """The value of a member, as the language reads it."""
        layout = member.layout
        if not member.address:
            return member.text
        if member.bits:
            return self._bits(member, node)
        match layout.kind:
            case LayoutKind.INTEGER if 8 * layout.size in _SIZES:
                return self._load(member, f"{'i' if layout.signed else 'u'}{8 * layout.size}")
            case LayoutKind.FLOAT if layout.size in (4, 8):
                return self._load(member, f"f{8 * layout.size}")
            case LayoutKind.BOOL if layout.size == 1:
                return f"({self._load(member, 'u8')} != 0)"
            case LayoutKind.POINTER:
                return self._load(member, "u64")
            case LayoutKind.TEXT:
                return self._load(member, "str", self._load(member, "u64"))
            case LayoutKind.ARRAY if layout.inner.is_char:
                text = self._load(member, "str", _sum(member))
                return text if layout.length is None else f"{text}[:{layout.length}]"
            case LayoutKind.STRUCTURE | LayoutKind.ARRAY:
                what = "a member of it" if layout.names else "an element of it, as in a[0]"
                raise self._wrong(f"this is of type {layout.text}; name {what}", node, layout.names)
        raise self._wrong(f"a question does not read memory of type {layout.text}", node)

    def _load(self, member: _Object, function: str, address: str = "") -> str:
        return f"{function}({address or _sum(member)})"

    def _bits(self, member: _Object, node: ast.expr) -> str:
        """A bit-field, by the unit of its type that it is in, or by more bytes where it crosses
        that."""
        layout, at, bits = member.layout, member.bit_offset, member.bits
        unit = 8 * layout.size
        if layout.kind not in (LayoutKind.INTEGER, LayoutKind.BOOL) or unit not in _SIZES:
            raise self._wrong(f"a question does not read bits of type {layout.text}", node)
        start = at // unit * unit
        if at - start + bits > unit:  # packed
            start = at // 8 * 8
            unit = next((size for size in _SIZES if at - start + bits <= size), 0)
            if not unit:
                raise self._wrong("this bit-field is in 9 bytes, and a question reads 8", node)
        shift = at - start
        read = self._load(member._replace(bit_offset=start), f"u{unit}")
        if layout.signed:
            return f"(int({read}) << {64 - bits - shift} >> {64 - bits})"
        value = f"({read} >> {shift} & {(1 << bits) - 1:#x})"
        return f"({value} != 0)" if layout.kind == LayoutKind.BOOL else value


def _sum(member: _Object) -> str:
    offset = member.bit_offset // 8
    if not offset:
        return member.address
    return f"{member.address} {'+' if offset > 0 else '-'} {abs(offset)}"


def _before(span: Span, name: str) -> Span:
    """The expression before a member."""
    return Span(span.start, max(span.start, span.end - len(name)))

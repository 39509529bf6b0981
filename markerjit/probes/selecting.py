"""A selection that is recorded: the signature of its events, and the words that are computed.

The code of a question computes the words, and calls the recorder as the body of a marker calls it.
So a selection is recorded as the event of a marker with these arguments is, with all that there is
for those: texts, limits, the reader's types.
"""

from __future__ import annotations

from collections.abc import Mapping

from markerjit.abi import MAX_WORDS
from markerjit.elf import parse_format
from markerjit.errors import BadQuestion
from markerjit.model import CType, Field, FieldType, Signature, TypeClass
from markerjit.questions import Lack
from markerjit.questions.ir import (
    Choice,
    Compare,
    Constant,
    Convert,
    Node,
    Slice,
    TextAt,
    Value,
    whole_text,
)
from markerjit.questions.scope import Scope
from markerjit.questions.selection import Selected, Selection, select, select_again
from markerjit.questions.types import RECORDED, Type
from markerjit.tuples import NamedTuple

_INT = CType(TypeClass.SIGNED, 4)
_CHARS = CType(TypeClass.CHARS, 8)
_LENGTH_OF = "length of "
"""Before the name of a text: the argument that says its most bytes, which no field is named."""


class Columns(NamedTuple):
    """What a selection records: the events' signature, and the words that their arguments are. The
    text at a computed address is never read from a page that is only known to be there."""

    signature: Signature
    words: tuple[Node, ...]
    has_texts_in_memory: bool = False


class _Column(NamedTuple):
    conversion: str
    args: tuple[CType, ...]
    words: tuple[Node, ...]


def columns_of(text: str, signature: Signature, scope: Scope, *, is_again: bool = False) -> Columns:
    """The selection of a marker's events. `is_again`: it was found right for several markers, and
    may have names that only others have. Raises BadQuestion, also where it has a name that these
    do not have."""
    selection = select_again(text, scope) if is_again else select(text, [scope])[0]
    if isinstance(selection, Lack):
        raise BadQuestion(f"{signature.name} has no field {selection.name}", text, 0, 0)
    return columns(selection, signature)


def columns(selection: Selection, signature: Signature) -> Columns:
    """The same, typed already."""
    fields = {field.name: field for field in parse_format(signature.format, signature.args)}
    made = [_column(selected, fields) for selected in selection]
    names = [selected.name for selected in selection]
    format_ = " ".join(
        f"{name}={column.conversion}" for name, column in zip(names, made, strict=True)
    )
    args = tuple(arg for column in made for arg in column.args)
    words = tuple(word for column in made for word in column.words)
    if len(args) > MAX_WORDS:
        raise BadQuestion(
            f"{signature.name} would be recorded with {len(args)} values, and there can be "
            f"{MAX_WORDS}; choose some of its fields", "", 0, 0,
        )  # fmt: skip
    in_memory = any(isinstance(whole_text(selected.node), TextAt) for selected in selection)
    return Columns(Signature(signature.name, format_, args), words, in_memory)


def lengths_of(signature: Signature) -> Mapping[str, int]:
    """The indices of the arguments that say how long texts are."""
    return {
        f"{_LENGTH_OF}{field.name}": field.arg - 1
        for field in parse_format(signature.format, signature.args)
        if field.type is FieldType.BYTES
    }


def _column(selected: Selected, fields: Mapping[str, Field]) -> _Column:
    node = selected.node
    if selected.as_is and node.type is not Type.TEXT:
        field = fields[selected.name]
        return _Column(f"%{field.conversion}", (field.ctype,), (node,))
    if node.type is not Type.TEXT:
        conversion, ctype = RECORDED[node.type]
        return _Column(conversion, (ctype,), (node,))
    high = node.high if isinstance(node, Slice) else None
    node = whole_text(node)
    if isinstance(node, TextAt):
        return _Column(_bounded(high), (_CHARS,), (node.address,))
    assert isinstance(node, Value)
    field, address = fields[node.name], node._replace(type=Type.POINTER)
    if field.type is not FieldType.BYTES:
        limits = [limit for limit in (high, field.limit) if limit is not None]
        return _Column(_bounded(min(limits, default=None)), (_CHARS,), (address,))
    conversion = "%*ph" if field.conversion == "ph" else "%.*s"
    length = Value(Type.I32, f"{_LENGTH_OF}{node.name}", node.span)
    return _Column(conversion, (_INT, _CHARS), (_least(length, high), address))


def _bounded(limit: int | None) -> str:
    return "%s" if limit is None else f"%.{limit}s"


def _least(length: Value, high: int | None) -> Node:
    """A length, or `high` where that is less: a negative length is no limit."""
    if high is None:
        return length
    unsigned = Convert(Type.U32, length, length.span)
    most = Constant(Type.U32, high, length.span)
    is_less = Compare(Type.BOOL, "<", unsigned, most, length.span)
    return Choice(Type.I32, is_less, length, Constant(Type.I32, high, length.span), length.span)
